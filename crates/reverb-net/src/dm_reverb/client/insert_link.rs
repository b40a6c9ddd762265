//! The client side of one insert stream.

use super::responses::Responses;
use crate::dm_reverb::proto::{InsertStreamRequest, InsertStreamResponse};
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::transport::authorized::Channel;
use reverb_core::Error;
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

// limit (Beside dm-reverb): chunks and items of a message to a server of dm-reverb | {} and one chunk, {MESSAGE_ITEMS}
// | the next message
/// Size of the chunks in bytes at which a message is sent. A message may exceed it by one chunk.
pub const MESSAGE_BYTES: usize = 512 << 10;
/// Maximum number of items of a message.
pub const MESSAGE_ITEMS: usize = 1024;

// limit (Beside dm-reverb): one chunk to a server of dm-reverb, decoded | {} | `MessageTooLargeError`
/// Maximum size of the data of a chunk in bytes. A message of Protocol Buffers has less than 2 GiB.
const MAX_CHUNK_BYTES: usize = i32::MAX as usize - (64 << 20);

/// Checks that a chunk with this size before compression fits into a message.
///
/// # Errors
/// [`Error::MessageTooLarge`].
pub fn check_message_size(size_bytes: usize) -> Result<(), Error> {
    if size_bytes <= MAX_CHUNK_BYTES {
        return Ok(());
    }
    Err(Error::MessageTooLarge {
        what: "the data of this insert".into(),
        option: "the protocol of dm-reverb".into(),
        size_bytes: size_bytes as u64,
        limit_bytes: MAX_CHUNK_BYTES as u64,
    })
}

/// An insert stream, from its opening to its end. Dropping it cancels it: the server drops the chunks that it holds for
/// the stream, and still inserts the items that it has queued.
#[derive(Debug)]
pub struct InsertLink {
    requests: mpsc::Sender<InsertStreamRequest>,
    responses: Responses<InsertStreamResponse>,
}

impl InsertLink {
    /// Opens a stream. Nothing is sent before [`InsertLink::confirmed`] is awaited.
    pub fn open(mut service: ReverbServiceClient<Channel>) -> Self {
        // The channel has room for one message beside the one being sent.
        let (requests, stream) = mpsc::channel(1);
        let opening = Box::pin(async move { service.insert_stream(ReceiverStream::new(stream)).await });
        Self { requests, responses: Responses::Opening(opening) }
    }

    /// Waits for room for a message. `None` if the stream has ended; [`InsertLink::confirmed`] returns the reason. The
    /// future may be dropped.
    pub fn room(&self) -> impl Future<Output = Option<OwnedPermit<InsertStreamRequest>>> + use<> {
        let requests = self.requests.clone();
        async move { requests.reserve_owned().await.ok() }
    }

    /// Waits for the next confirmations, and returns the keys of the items. `None` if the server has ended the stream
    /// without an error. The future may be dropped.
    ///
    /// # Errors
    /// The status with which the stream ended.
    pub async fn confirmed(&mut self) -> Result<Option<Vec<u64>>, Status> {
        Ok(self.responses.next().await?.map(|response| response.keys))
    }

    /// Whether an idle stream can be used for another call: it has not ended, and nothing has arrived.
    pub fn is_idle(&mut self) -> bool {
        self.responses.are_quiet()
    }
}
