//! The messages of a call, which end when its caller may no longer do what it does.

use super::refusals::status_of;
use crate::grpc::caller::Caller;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::HeaderMap;

/// A body of a request or of an answer.
pub struct Guarded {
    body: Body,
    is_answer: bool,
    caller: Caller,
    /// Waits for the end of the caller. Made when the body first waits.
    end: Option<BoxFuture<(), Infallible>>,
    has_ended: bool,
}

impl Guarded {
    /// Passes the messages of a caller on, for as long as it may do what it does.
    pub fn request(body: Body, caller: Caller) -> Body {
        Body::new(Self { body, is_answer: false, caller, end: None, has_ended: false })
    }

    /// Passes the messages for a caller on, for as long as it may do what it does.
    pub fn answer(body: Body, caller: Caller) -> Body {
        Body::new(Self { body, is_answer: true, caller, end: None, has_ended: false })
    }

    fn end(&mut self) -> Result<Frame<Bytes>, Status> {
        self.has_ended = true;
        // What the service still has to say is of no use, and it notices that nobody listens.
        self.body = Body::empty();
        let status = status_of(self.caller.access.end(&self.caller.guest));
        if !self.is_answer {
            return Err(status);
        }
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        if this.caller.guest.has_ended() {
            return Poll::Ready(Some(this.end()));
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let guest = &this.caller.guest;
        let end = this.end.get_or_insert_with(|| {
            let guest = guest.clone();
            Box::pin(async move {
                guest.ended().await;
                Ok(())
            })
        });
        if end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(this.end()));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
