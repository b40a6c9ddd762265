//! Makes the messages of a writer for a server of dm-reverb, and takes its confirmations.

use super::streamed_chunks::{StreamedChunks, Used, uses};
use crate::dm_reverb::client::connection::Connection;
use crate::dm_reverb::client::insert_link::{MESSAGE_BYTES, MESSAGE_ITEMS, check_message_size};
use crate::dm_reverb::proto::InsertStreamRequest;
use crate::grpc::largest;
use crate::writing::{SharedSession, is_ready};
use reverb_core::writer::WriterItem;
use reverb_core::{Chunk, Error, ItemView, NewPriority, Result, TableConfig};
use reverb_formats::chunk::ChunkEncoder;
use reverb_formats::item::ItemEncoder;
use reverb_service::write_queue::Done;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time to ask the server for a table that it did not have before.
const ASK_TIME: Duration = Duration::from_secs(2);

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// An item on its way from the outbox into a message.
struct Taken {
    sequence: u64,
    table: Arc<str>,
    priority: NewPriority,
    is_validated: bool,
    item: ItemView,
    chunks: Box<[TakenChunk]>,
    /// Number of chunks that were looked at.
    next_chunk: usize,
}

struct TakenChunk {
    used: Used,
    chunk: Arc<Chunk>,
    is_delta_encoded: bool,
}

/// The sending half of a writer's stream. It makes one message at a time, and holds no lock while it encodes.
pub struct ItemSender<'a> {
    connection: &'a Connection,
    chunks: ChunkEncoder,
    items: ItemEncoder,
    streamed: StreamedChunks,
    taken: VecDeque<Taken>,
    /// Items that were sent and are not confirmed: their numbers, by key.
    unconfirmed: Map<u64, (u64, Arc<str>)>,
    /// Tables that the server did not have when the connection was made, or still does not have.
    late_tables: Map<Arc<str>, Result<TableConfig>>,
}

impl<'a> ItemSender<'a> {
    /// Makes the sender of a new stream.
    pub fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            chunks: ChunkEncoder::default(),
            items: ItemEncoder::default(),
            streamed: StreamedChunks::default(),
            taken: VecDeque::new(),
            unconfirmed: Map::default(),
            late_tables: Map::default(),
        }
    }

    /// Whether items that were taken from the outbox are still to be sent.
    pub fn has_next(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Returns the number of items that were sent and are not confirmed.
    pub fn num_unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Returns the tables of the items that were sent and are not confirmed.
    pub fn unconfirmed_tables(&self) -> Vec<Arc<str>> {
        let tables: HashSet<_> = self.unconfirmed.values().map(|(_, table)| table.clone()).collect();
        tables.into_iter().collect()
    }

    /// Records that items are in their tables.
    pub fn confirm(&mut self, shared: &SharedSession, keys: &[u64]) {
        let mut finished: Vec<WriterItem> = Vec::with_capacity(keys.len());
        {
            let mut state = shared.state.lock();
            for key in keys {
                // The server may confirm an item twice, which was sent on a stream before.
                let Some((sequence, _)) = self.unconfirmed.remove(key) else { continue };
                finished.extend(state.outbox.confirm(sequence));
            }
            state.count(&shared.all);
            state.reason.clear();
        }
        shared.tell();
        finished.iter().for_each(|item| self.streamed.item_confirmed(item));
    }

    /// Makes a message of the items that are ready, with the chunks that the server does not have. `None` if all of
    /// them were refused.
    ///
    /// # Errors
    /// The error of a question to the server.
    pub async fn message(&mut self, shared: &SharedSession) -> Result<Option<InsertStreamRequest>> {
        if self.taken.is_empty() {
            self.take(shared);
        }
        let mut request = InsertStreamRequest::default();
        let mut refused = Done::new();
        let mut bytes = 0;
        while bytes < MESSAGE_BYTES && request.items.len() < MESSAGE_ITEMS {
            let Some(mut taken) = self.taken.pop_front() else { break };
            let is_checked = taken.next_chunk > 0;
            let result = match if is_checked { Ok(()) } else { self.check(&taken).await? } {
                Ok(()) => self.add(&mut taken, &mut request, &mut bytes),
                Err(error) => Err(error),
            };
            match result {
                Ok(true) => {}
                // The rest of its chunks, and the item itself, are sent with the next message.
                Ok(false) => self.taken.push_front(taken),
                Err(error) => refused.push((taken.sequence, Err(error))),
            }
        }
        shared.settle(refused);
        if request.items.is_empty() {
            // The server would ignore the list of a message without items.
            return Ok(Some(request).filter(|request| !request.chunks.is_empty()));
        }
        request.keep_chunk_keys = self.streamed.keep();
        Ok(Some(request))
    }

    /// Moves items that are ready from the outbox, about as many as fit into a message.
    fn take(&mut self, shared: &SharedSession) {
        let mut refused = Done::new();
        let mut bytes = 0;
        let mut new = HashSet::<u64, foldhash::fast::RandomState>::default();
        let mut state = shared.state.lock();
        while self.taken.len() < MESSAGE_ITEMS && bytes < MESSAGE_BYTES {
            let Some(item) = state.outbox.front().filter(|item| is_ready(item)) else { break };
            for chunk in item.chunks() {
                if !self.streamed.contains(chunk.key) && new.insert(chunk.key) {
                    bytes += chunk.size_bytes();
                }
            }
            match state.outbox.send_front(|sequence, item| (sequence, Taken::new(sequence, item))) {
                Some((_, Ok(taken))) => self.taken.push_back(taken),
                Some((sequence, Err(error))) => refused.push((sequence, Err(error))),
                None => break,
            }
        }
        drop(state);
        shared.settle(refused);
    }

    /// Checks what the server does not check, or would answer with the end of the stream. The outer error is that of a
    /// question to the server.
    async fn check(&mut self, taken: &Taken) -> Result<Result<()>> {
        if let Ok(info) = self.connection.tables.get(&taken.table) {
            return Ok(taken.check(&info.config));
        }
        if !self.late_tables.contains_key(&taken.table) {
            let found = self.connection.table(&taken.table, Instant::now().checked_add(ASK_TIME)).await;
            let found = match found {
                Ok(info) => Ok(info.config.clone()),
                Err(error @ Error::TableNotFound { .. }) => Err(error),
                Err(error) => return Err(error),
            };
            self.late_tables.insert(taken.table.clone(), found);
        }
        Ok(match &self.late_tables[&taken.table] {
            Ok(config) => taken.check(config),
            Err(error) => Err(error.clone()),
        })
    }

    /// Adds the chunks of an item that the server does not have, up to the size of a message, and then the item.
    /// Returns true if the item was added.
    fn add(&mut self, taken: &mut Taken, request: &mut InsertStreamRequest, bytes: &mut usize) -> Result<bool> {
        while let Some(TakenChunk { used, chunk, is_delta_encoded }) = taken.chunks.get(taken.next_chunk) {
            if !self.streamed.contains(used.key) {
                if *bytes >= MESSAGE_BYTES {
                    return Ok(false);
                }
                let mut message = Vec::new();
                self.chunks.encode(chunk, chunk.key, *is_delta_encoded, &mut message)?;
                *bytes += message.len();
                request.chunks.push(message.into());
                self.streamed.add(used);
            }
            taken.next_chunk += 1;
        }
        if taken.priority.takes_largest {
            self.connection.warn_of_largest(&taken.table);
        }
        taken.item.priority = largest::filled_in(&self.connection.peer, &taken.table, taken.priority);
        let mut message = Vec::new();
        self.items.encode(&taken.item, &taken.table, |chunk| chunk.key, &mut message)?;
        *bytes += message.len();
        request.items.push(message.into());
        self.streamed.item_sent(taken.chunks.iter().map(|taken| &taken.used));
        self.unconfirmed.insert(taken.item.key, (taken.sequence, taken.table.clone()));
        Ok(true)
    }
}

impl Taken {
    fn new(sequence: u64, item: &WriterItem) -> Result<Self> {
        let &WriterItem { key, priority, is_validated, .. } = item;
        let chunks = uses(item).map(|(chunk, references)| {
            Ok(TakenChunk {
                used: Used::new(chunk, references),
                chunk: chunk.close()?,
                is_delta_encoded: chunk.template.is_delta_encoded,
            })
        });
        Ok(Self {
            sequence,
            table: item.table.clone(),
            priority,
            is_validated,
            chunks: chunks.collect::<Result<_>>()?,
            next_chunk: 0,
            item: ItemView {
                key,
                priority: priority.value,
                times_sampled: 0,
                inserted_at: 0,
                trajectory: item.trajectory()?,
            },
        })
    }

    fn check(&self, config: &TableConfig) -> Result<()> {
        let trajectory = &self.item.trajectory;
        trajectory.check_size(&self.table)?;
        if self.is_validated {
            config.check_signature(trajectory)?;
        }
        if self.priority.takes_largest {
            config.check_takes_largest()?;
        }
        config.check_priority(self.priority.value)?;
        self.chunks.iter().try_for_each(|taken| check_message_size(taken.chunk.decoded_bytes()))
    }
}
