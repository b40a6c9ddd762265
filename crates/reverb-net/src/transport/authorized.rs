//! A channel whose calls carry the token of the client.

use super::passing::Passing;
use reverb_core::{Error, Result};
use reverb_secure::TokenSource;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::transport;

/// An open connection. All calls go through it, so that none lacks the token, whatever its protocol.
#[derive(Debug, Clone)]
pub struct Channel {
    channel: transport::Channel,
    bearer: Option<Bearer>,
    /// Descriptors on their way, if the connection can pass them.
    passing: Option<Arc<Passing>>,
}

/// The token that a connection shows.
#[derive(Debug, Clone)]
pub struct Bearer {
    value: HeaderValue,
    source: TokenSource,
}

impl Channel {
    /// Makes the channel of a connection.
    pub fn new(channel: transport::Channel, bearer: Option<Bearer>) -> Self {
        Self { channel, bearer, passing: None }
    }

    /// Makes the channel of a connection that can pass descriptors.
    #[must_use]
    pub fn with_passing(self, passing: Arc<Passing>) -> Self {
        Self { passing: Some(passing), ..self }
    }

    /// Returns the descriptors on their way, if the connection can pass them.
    pub fn passing(&self) -> Option<Arc<Passing>> {
        self.passing.clone()
    }

    /// Returns the token that the calls carry.
    pub fn bearer(&self) -> Option<&Bearer> {
        self.bearer.as_ref()
    }
}

impl Bearer {
    /// Reads a token, and makes the value of the header that shows it. That is marked as sensitive: HTTP/2 then enters it
    /// in no table, and logs leave it out.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the token cannot be read, or cannot be the value of a header.
    pub fn of(source: TokenSource) -> Result<Self> {
        let value = HeaderValue::from_str(&format!("Bearer {}", source.read()?.reveal()));
        let mut value = value.map_err(|_| Error::invalid("the token of the client cannot be sent in a header"))?;
        value.set_sensitive(true);
        Ok(Self { value, source })
    }

    /// Whether the file of the token has another one by now.
    pub fn is_outdated(&self) -> bool {
        let source = self.source.clone();
        matches!(source, TokenSource::File(_)) && Self::of(source).is_ok_and(|now| now.value != self.value)
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = transport::Error;
    type Future = <transport::Channel as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.value.clone());
        }
        self.channel.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_token_is_not_shown() {
        let bearer = Bearer::of(TokenSource::Given("rvb_hidden".to_owned().into())).unwrap();
        assert_eq!(bearer.value.as_bytes(), b"Bearer rvb_hidden");
        assert!(bearer.value.is_sensitive());
        assert_eq!(format!("{bearer:?}"), "Bearer { value: Sensitive, source: Given(***) }");
    }
}
