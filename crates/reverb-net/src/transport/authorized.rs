//! A channel whose calls carry the token of the client.

use reverb_core::{Error, Result};
use reverb_secure::Secret;
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
    bearer: Option<HeaderValue>,
}

impl Channel {
    /// Makes the channel of a connection.
    pub fn new(channel: transport::Channel, bearer: Option<HeaderValue>) -> Self {
        Self { channel, bearer }
    }
}

/// Returns the value of the header that shows a token. It is marked as sensitive: HTTP/2 then enters it in no table, and
/// logs leave it out.
///
/// # Errors
/// [`Error::InvalidArgument`] if the token cannot be the value of a header.
pub fn bearer(token: &Secret) -> Result<HeaderValue> {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
    let mut value = value.map_err(|_| Error::invalid("the token of the client cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
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
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        self.channel.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_token_is_not_shown() {
        let value = bearer(&Secret::from("rvb_hidden".to_owned())).unwrap();
        assert_eq!(value.as_bytes(), b"Bearer rvb_hidden");
        assert!(value.is_sensitive());
        assert_eq!(format!("{value:?}"), "Sensitive");
    }
}
