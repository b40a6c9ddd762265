//! One insert of rows: each item becomes a chunk, so that its reader gets no other rows with it.

use super::insert_link::{InsertLink, MESSAGE_BYTES, MESSAGE_ITEMS};
use crate::dm_reverb::proto::InsertStreamRequest;
use bytes::Bytes;
use reverb_core::{Chunk, Error, ItemKeys, KeySlots, Result, random_key};
use reverb_formats::chunk::ChunkEncoder;
use reverb_formats::item::ItemEncoder;
use reverb_service::local::RowInsert;
use std::collections::HashMap;
use tonic::Status;

/// An insert in progress.
pub struct InsertCall {
    insert: RowInsert,
    keys: ItemKeys,
    /// Index of the first item that was not sent.
    next: u32,
    /// In how many tables the items with these keys are not known to be.
    unconfirmed: HashMap<u64, usize, foldhash::fast::RandomState>,
    num_confirmed: usize,
    chunks: ChunkEncoder,
    items: ItemEncoder,
}

/// The end of a call that did not insert all its items.
pub enum Failure {
    /// The items could not be encoded.
    Invalid(Error),
    /// The stream ended with this status, or without one.
    Ended(Option<Status>),
}

impl InsertCall {
    /// Prepares the call.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the chunk does not decode.
    pub fn new(mut insert: RowInsert) -> Result<Self> {
        for chunk in std::iter::once(&mut insert.chunk).chain(&mut insert.more) {
            if chunk.is_encoded() {
                *chunk = plain(chunk)?.into();
            }
        }
        Ok(Self {
            keys: insert.make_keys(KeySlots::ALL),
            insert,
            next: 0,
            unconfirmed: HashMap::default(),
            num_confirmed: 0,
            chunks: ChunkEncoder::default(),
            items: ItemEncoder::default(),
        })
    }

    /// Returns the keys of the items.
    pub fn into_keys(self) -> ItemKeys {
        self.keys
    }

    /// Returns the number of items in their tables, as far as is known, and the number of all items.
    pub fn progress(&self) -> (usize, usize) {
        (self.num_confirmed, self.insert.num_items() as usize * self.insert.tables.len())
    }

    /// Sends the items, and waits until they are in their tables. Does not wait for one confirmation before it sends the
    /// next items, except for the flow control of the stream. The future may be dropped.
    ///
    /// # Errors
    /// Why the items could not be sent, or how the stream ended. The stream cannot be used again.
    pub async fn run(&mut self, stream: &mut InsertLink) -> std::result::Result<(), Failure> {
        let count = self.insert.num_items();
        while self.next < count || !self.unconfirmed.is_empty() {
            let room = stream.room();
            tokio::select! {
                confirmed = stream.confirmed() => match confirmed {
                    Ok(Some(keys)) => keys.iter().for_each(|key| self.confirm(*key)),
                    Ok(None) => return Err(Failure::Ended(None)),
                    Err(status) => return Err(Failure::Ended(Some(status))),
                },
                permit = room, if self.next < count => match permit {
                    Some(permit) => drop(permit.send(self.message().map_err(Failure::Invalid)?)),
                    None => return Err(Failure::Ended(last_word(stream).await)),
                },
            }
        }
        Ok(())
    }

    fn confirm(&mut self, key: u64) {
        let Some(left) = self.unconfirmed.get_mut(&key) else { return };
        *left -= 1;
        if *left == 0 {
            self.unconfirmed.remove(&key);
        }
        self.num_confirmed += 1;
    }

    /// Makes the next message. Each chunk is sent with all its items, so the server keeps none for later.
    fn message(&mut self) -> Result<InsertStreamRequest> {
        let Self { insert, keys, chunks, items, unconfirmed, next, .. } = self;
        let (count, rows_per_item) = (insert.num_items(), insert.rows_per_item);
        let mut request = InsertStreamRequest::default();
        let mut bytes = 0;
        while *next < count && bytes < MESSAGE_BYTES && request.items.len() < MESSAGE_ITEMS {
            let index = *next as usize;
            let (chunk, first) = insert.place(*next);
            let (key, mut message) = (random_key(), Vec::new());
            // The chunk is plain, so its view copies nothing.
            let mut scratch = Vec::new();
            let view = chunk.view(&mut scratch)?;
            chunks.encode_rows(chunk, Some(view), first..first + rows_per_item, key, false, &mut message)?;
            bytes += message.len();
            request.chunks.push(message.into());
            for (table, priorities) in &insert.tables {
                let item = (keys[index], priorities.of(index));
                let mut message = Vec::new();
                items.encode_rows(item, table, (key, chunk.columns().len(), rows_per_item), &mut message)?;
                bytes += message.len();
                request.items.push(Bytes::from(message));
            }
            unconfirmed.insert(keys[index], insert.tables.len());
            *next += 1;
        }
        Ok(request)
    }
}

/// Returns the reason why a stream takes no more messages, if the server gives one.
async fn last_word(stream: &mut InsertLink) -> Option<Status> {
    loop {
        match stream.confirmed().await {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(status) => return Some(status),
        }
    }
}

/// Returns the same chunk with its rows as they are read.
fn plain(chunk: &Chunk) -> Result<Chunk> {
    let mut decoded = Vec::new();
    chunk.view(&mut decoded)?;
    let columns = chunk.columns().iter().map(|column| (column.dtype, column.shape.clone(), column.size_bytes));
    let layout = reverb_core::Layout::new(chunk.rows() as usize, columns)?;
    Chunk::new(chunk.key, chunk.episodes, chunk.steps, layout.into(), decoded.into())
}
