//! Whose turn it is where inserts wait: clients insert in turns, one item each, so that none of them takes all the room
//! that becomes free. The items of one stream keep their order.
//!
//! A request joins when its caller begins to wait. As long as the table has room, nobody waits, and there are no turns.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

/// Whose turn an insert takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct InsertTurn {
    /// The client, whatever its streams and connections.
    pub client: u64,
    /// The stream of a writer, whose items count as one waiting request.
    pub stream: Option<NonZeroU64>,
}

/// The turns of the clients whose inserts wait at a table.
#[derive(Debug, Default)]
pub struct Turns {
    /// The clients, the next one first.
    ring: VecDeque<u64>,
    /// The tickets of the requests of each client, in ascending order.
    tickets: HashMap<u64, VecDeque<u64>>,
    /// Number of waiting items of each stream.
    streams: HashMap<NonZeroU64, usize>,
    /// Number of these items that are not the first of their stream.
    num_behind: usize,
}

impl Turns {
    /// The ticket of the request whose turn it is.
    #[inline]
    pub fn current(&self) -> Option<u64> {
        self.tickets.get(self.ring.front()?)?.front().copied()
    }

    /// Whether several clients wait.
    #[inline]
    pub fn are_several(&self) -> bool {
        self.ring.len() > 1
    }

    /// Number of waiting items behind another one of the same stream.
    pub fn num_behind(&self) -> usize {
        self.num_behind
    }

    /// Whether an item of the stream waits.
    pub fn has_stream(&self, stream: NonZeroU64) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Passes the turn of a client to the next one.
    #[inline]
    pub fn pass_from(&mut self, turn: InsertTurn) {
        if self.are_several() && self.ring.front() == Some(&turn.client) {
            self.ring.rotate_left(1);
        }
    }

    /// Adds a request, whose ticket is above those of its client before it.
    pub fn join(&mut self, turn: InsertTurn, ticket: u64) {
        let InsertTurn { client, stream } = turn;
        let tickets = self.tickets.entry(client).or_default();
        if tickets.is_empty() {
            self.ring.push_back(client);
        }
        tickets.push_back(ticket);
        if let Some(stream) = stream {
            let items = self.streams.entry(stream).or_default();
            self.num_behind += usize::from(*items > 0);
            *items += 1;
        }
    }

    /// Removes a request, if it has joined. A client without others gives its place up.
    #[inline]
    pub fn leave(&mut self, turn: InsertTurn, ticket: u64) {
        if !self.ring.is_empty() {
            self.remove(turn, ticket);
        }
    }

    fn remove(&mut self, turn: InsertTurn, ticket: u64) {
        let InsertTurn { client, stream } = turn;
        let Some(tickets) = self.tickets.get_mut(&client) else { return };
        let Ok(index) = tickets.binary_search(&ticket) else { return };
        tickets.remove(index);
        if tickets.is_empty() {
            self.tickets.remove(&client);
            self.ring.retain(|other| *other != client);
        }
        if let Some(stream) = stream
            && let Some(items) = self.streams.get_mut(&stream)
        {
            *items -= 1;
            self.num_behind -= usize::from(*items > 0);
            if *items == 0 {
                self.streams.remove(&stream);
            }
        }
    }
}
