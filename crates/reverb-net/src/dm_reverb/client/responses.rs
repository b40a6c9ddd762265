//! The responses of a stream, from its opening to its end.

use std::fmt::{self, Debug, Formatter};
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use tonic::{Response, Status, Streaming};

type Opening<T> = Pin<Box<dyn Future<Output = Result<Response<Streaming<T>>, Status>> + Send>>;

/// The responses of a stream. Servers of dm-reverb answer its opening with their first response.
pub enum Responses<T> {
    Opening(Opening<T>),
    Open(Box<Streaming<T>>),
    /// The call could not be made.
    Ended,
}

impl<T> Responses<T> {
    /// Waits for the next response. `None` if the server has ended the stream without an error. The future may be
    /// dropped.
    ///
    /// # Errors
    /// The status with which the stream ended.
    pub async fn next(&mut self) -> Result<Option<T>, Status> {
        if let Self::Opening(opening) = self {
            let opened = opening.as_mut().await;
            *self = Self::Ended;
            *self = Self::Open(Box::new(opened?.into_inner()));
        }
        if let Self::Open(responses) = self { responses.message().await } else { Ok(None) }
    }

    /// Whether nothing has arrived, not even the end of the stream.
    pub fn are_quiet(&mut self) -> bool {
        pin!(self.next()).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

impl<T> Debug for Responses<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Responses").finish_non_exhaustive()
    }
}
