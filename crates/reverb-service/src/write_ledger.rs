//! Ledgers of the items that each writer has inserted.
//!
//! After a lost connection, a writer sends its unconfirmed items again. The ledger tells which of them are in their
//! tables already, so that no item is inserted twice. The turn that inserts an item enters it, under the lock of the
//! table.
//!
//! A server forgets the ledgers of writers that were away for long, and then some number of them by id. Such a writer is
//! told if it comes back with items that may be in their tables. The time counts while the server runs: a restored ledger
//! is one of a writer that has disconnected just now.

use parking_lot::Mutex;
use reverb_core::words::number;
use reverb_core::{Error, Result, WriterId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedMutexGuard, watch};

// limit (Writers): time for which a server remembers a disconnected writer, and number of those writers | {},
// {MAX_IDLE}; beyond it those that disconnected first are forgotten | `ResourceExhaustedError` for unconfirmed items
/// Time that the ledger of a disconnected writer is kept. A writer gives up reconnecting earlier.
const KEEP_TIME: Duration = Duration::from_secs(3600);
/// Maximum number of ledgers of disconnected writers. Beyond it, the server forgets those that disconnected first.
const MAX_IDLE: usize = 65_536;
// limit (Writers): number of forgotten writers that are told so if they come back | {} | items that a writer sends again
// are inserted again
/// Maximum number of forgotten writers that the server knows by id.
const MAX_FORGOTTEN: usize = 4 * MAX_IDLE;

/// The ledgers of all writers of a server. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Ledgers {
    writers: Arc<Mutex<Writers>>,
}

#[derive(Debug, Default)]
struct Writers {
    records: HashMap<Arc<WriterId>, WriterRecord>,
    /// The disconnected writers, in the order in which they disconnected, and when.
    idle: BTreeMap<u64, (Arc<WriterId>, Instant)>,
    next_idle: u64,
    /// The writers whose ledgers were forgotten: the last number that each has inserted, and their order.
    forgotten: HashMap<Arc<WriterId>, (u64, u64)>,
    forgotten_order: BTreeMap<u64, Arc<WriterId>>,
    next_forgotten: u64,
}

#[derive(Debug)]
struct WriterRecord {
    ledger: Arc<Ledger>,
    /// Locked by the stream that may use the ledger.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The number of the newest stream of the writer. Tells older streams to release the ledger.
    newest: watch::Sender<u64>,
    /// Number of streams that hold the ledger or wait for it.
    streams: usize,
    /// The place of a disconnected writer in their order.
    idle: Option<u64>,
}

impl Writers {
    /// Counts a new stream of a writer. Returns its ledger, its number, and the numbers of later streams.
    fn enter(&mut self, writer: &Arc<WriterId>) -> (&WriterRecord, u64) {
        self.forget_old(Instant::now());
        let record = self.record(writer);
        let place = record.idle.take();
        record.streams += 1;
        let number = *record.newest.borrow() + 1;
        record.newest.send_replace(number);
        if let Some(place) = place {
            self.idle.remove(&place);
        }
        (&self.records[writer], number)
    }

    /// The record of a writer, which is new if the writer has none.
    fn record(&mut self, writer: &Arc<WriterId>) -> &mut WriterRecord {
        let Self { records, forgotten, forgotten_order, .. } = self;
        records.entry(writer.clone()).or_insert_with(|| {
            let lost = forgotten.remove(writer).map_or(0, |(last, place)| {
                forgotten_order.remove(&place);
                last
            });
            let numbers = Numbers { lost, ..Numbers::default() };
            WriterRecord {
                ledger: Arc::new(Ledger { writer: writer.clone(), numbers: Mutex::new(numbers) }),
                turn: Arc::default(),
                newest: watch::Sender::new(0),
                streams: 0,
                idle: None,
            }
        })
    }

    /// Counts the end of a stream. After the last one, the ledger is forgotten if the writer does not need it any more.
    fn leave(&mut self, writer: &Arc<WriterId>, is_needed: bool) {
        let Some(record) = self.records.get_mut(writer) else { return };
        record.streams -= 1;
        if record.streams > 0 {
            return;
        }
        if is_needed {
            self.rest(writer);
        } else if let Some(record) = self.records.remove(writer) {
            let lost = record.ledger.numbers.lock().lost;
            if lost > 0 {
                self.note_forgotten(writer.clone(), lost);
            }
        }
        self.forget_old(Instant::now());
    }

    /// Makes a writer the one that has disconnected last.
    fn rest(&mut self, writer: &Arc<WriterId>) {
        let place = self.next_idle;
        self.next_idle += 1;
        if let Some(before) = self.record(writer).idle.replace(place) {
            self.idle.remove(&before);
        }
        self.idle.insert(place, (writer.clone(), Instant::now()));
    }

    /// Remembers that the ledger of a writer was forgotten which had inserted items up to a number.
    fn note_forgotten(&mut self, writer: Arc<WriterId>, last: u64) {
        let place = self.next_forgotten;
        self.next_forgotten += 1;
        if let Some((_, before)) = self.forgotten.insert(writer.clone(), (last, place)) {
            self.forgotten_order.remove(&before);
        }
        self.forgotten_order.insert(place, writer);
        while self.forgotten.len() > MAX_FORGOTTEN
            && let Some((_, first)) = self.forgotten_order.pop_first()
        {
            self.forgotten.remove(&first);
        }
    }

    /// Forgets the ledgers of writers that disconnected too long ago, and of the first ones if there are too many. Does
    /// not look at other writers.
    fn forget_old(&mut self, now: Instant) {
        let mut left = self.idle.len();
        while let Some(first) = self.idle.first_entry()
            && (left > MAX_IDLE || now.duration_since(first.get().1) >= KEEP_TIME)
        {
            let (writer, _) = first.remove();
            left -= 1;
            if let Some(record) = self.records.remove(&writer) {
                let last = record.ledger.numbers.lock().last();
                self.note_forgotten(writer, last);
            }
        }
    }
}

/// The sequence numbers of the items that one writer has inserted.
#[derive(Debug)]
pub struct Ledger {
    writer: Arc<WriterId>,
    numbers: Mutex<Numbers>,
}

/// What a server knows of a writer, for a restarted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerState {
    /// The writer.
    pub writer: Arc<WriterId>,
    /// All items up to this sequence number were inserted.
    pub through: u64,
    /// Further items that were inserted: the first and the last number of each range, which ascend.
    pub beyond: Vec<(u64, u64)>,
    /// The last number that the writer had inserted when its ledger was forgotten; 0 if it was not.
    pub lost: u64,
}

impl Ledger {
    /// Returns the writer.
    pub fn writer(&self) -> &Arc<WriterId> {
        &self.writer
    }

    /// Records that the item was inserted, or that it was refused and must not be inserted.
    #[inline]
    pub fn add(&self, sequence: u64) {
        self.numbers.lock().add(sequence);
    }

    /// Records that the writer will not send items up to a sequence number again. Returns which of the next `count`
    /// items from `first` on were inserted, in their order, and the number of gaps between the items that were inserted.
    ///
    /// # Errors
    /// [`Error::ResourceExhausted`] if an earlier ledger of the writer was forgotten, and some of these items may have been
    /// in it.
    pub fn settle(&self, through: u64, first: u64, count: u64) -> Result<(Vec<u64>, usize)> {
        let mut numbers = self.numbers.lock();
        numbers.settle(through);
        if numbers.lost > numbers.through && first <= numbers.lost && count > 0 {
            return Err(Error::ResourceExhausted(format!(
                "the server has forgotten which items of this writer it has inserted, because the writer was away for too \
                 long or too many others were: items {} to {} may be in their tables or not. Begin a new writer.",
                number(numbers.through + 1),
                number(numbers.lost)
            )));
        }
        let inserted = (first..first.saturating_add(count)).filter(|&sequence| numbers.has(sequence)).collect();
        Ok((inserted, numbers.beyond.len()))
    }

    fn state(&self) -> LedgerState {
        let numbers = self.numbers.lock();
        let beyond = numbers.beyond.iter().map(|(first, last)| (*first, *last)).collect();
        LedgerState { writer: self.writer.clone(), through: numbers.through, beyond, lost: numbers.lost }
    }
}

/// Numbers as ranges, so the memory grows with the numbers that are missing in between, whatever the number of those
/// after them.
#[derive(Debug, Default)]
struct Numbers {
    /// All items up to this sequence number were inserted.
    through: u64,
    /// Further items that were inserted: the last number of each range by its first. Between two ranges, and before the
    /// first, at least one number is missing.
    beyond: BTreeMap<u64, u64>,
    /// Items up to this number may have been inserted that an earlier ledger knew; 0 for none.
    lost: u64,
}

impl Numbers {
    /// Makes the numbers of a state.
    fn restored(state: &LedgerState) -> Result<Self> {
        let mut last = state.through;
        for &(first, end) in &state.beyond {
            if first > end || first.checked_sub(1).is_none_or(|before| before <= last) {
                return Err(Error::DataLoss(format!(
                    "the ledger of writer {} has the range {first} to {end} after {last}",
                    state.writer.id
                )));
            }
            last = end;
        }
        Ok(Self { through: state.through, beyond: state.beyond.iter().copied().collect(), lost: state.lost })
    }

    /// The last number that was inserted, as far as is known.
    fn last(&self) -> u64 {
        let last = self.beyond.last_key_value().map_or(self.through, |(_, last)| *last);
        last.max(self.lost)
    }

    /// Whether the item with this sequence number was inserted.
    #[inline]
    fn has(&self, sequence: u64) -> bool {
        sequence <= self.through
            || self.beyond.range(..=sequence).next_back().is_some_and(|(_, &last)| sequence <= last)
    }

    /// Whether no item was inserted.
    fn is_empty(&self) -> bool {
        self.through == 0 && self.beyond.is_empty()
    }

    /// Adds all numbers up to this one.
    fn settle(&mut self, through: u64) {
        if through > self.through {
            self.through = through;
            self.advance();
        }
    }

    fn add(&mut self, sequence: u64) {
        if self.through.checked_add(1) == Some(sequence) {
            self.through = sequence;
            self.advance();
        } else if sequence > self.through {
            self.add_beyond(sequence);
        }
    }

    /// Adds a number after a missing one: to the ranges that it touches, or as a new range.
    fn add_beyond(&mut self, sequence: u64) {
        let after = sequence.checked_add(1).and_then(|next| self.beyond.remove(&next));
        let last = after.unwrap_or(sequence);
        match self.beyond.range_mut(..=sequence).next_back() {
            Some((_, end)) if *end >= sequence - 1 => *end = last.max(*end),
            _ => drop(self.beyond.insert(sequence, last)),
        }
    }

    /// Removes the ranges that no missing number separates from the first numbers.
    fn advance(&mut self) {
        while let Some(range) = self.beyond.first_entry()
            && *range.key() <= self.through.saturating_add(1)
        {
            self.through = self.through.max(range.remove());
        }
    }
}

/// Exclusive access of a stream to the ledger of its writer.
#[derive(Debug)]
pub struct LedgerGuard {
    /// The ledger, which no other stream uses until this guard is dropped.
    pub ledger: Arc<Ledger>,
    _turn: OwnedMutexGuard<()>,
    stream: StreamOfWriter,
}

/// A stream of a writer, which holds the ledger or waits for it.
#[derive(Debug)]
struct StreamOfWriter {
    writers: Arc<Mutex<Writers>>,
    writer: Arc<WriterId>,
    number: u64,
    newest: watch::Receiver<u64>,
    /// Whether the writer may come back and need the ledger.
    is_needed: bool,
}

impl Drop for StreamOfWriter {
    fn drop(&mut self) {
        self.writers.lock().leave(&self.writer, self.is_needed);
    }
}

impl LedgerGuard {
    /// Completes when a newer stream of the same writer needs the ledger.
    pub async fn taken_over(&mut self) {
        let number = self.stream.number;
        if self.stream.newest.wait_for(|&newest| newest > number).await.is_err() {
            // The record of a writer lives as long as its streams.
            std::future::pending::<()>().await;
        }
    }

    /// Forgets the ledger of a writer that has ended and will not send items again.
    pub fn forget(mut self) {
        self.stream.is_needed = false;
    }
}

impl Drop for LedgerGuard {
    fn drop(&mut self) {
        // A writer that has inserted nothing has nothing to remember.
        self.stream.is_needed &= !self.ledger.numbers.lock().is_empty();
    }
}

impl Ledgers {
    /// Takes the ledger of a writer. Tells a stream that holds it to release it, and waits for that. `owner` is the name
    /// of the token whose writers it is one of.
    pub async fn take(&self, owner: Option<&str>, writer_id: u64) -> LedgerGuard {
        let writer = Arc::new(WriterId { owner: owner.map(Arc::from), id: writer_id });
        let (ledger, turn, number, newest) = {
            let mut writers = self.writers.lock();
            let (record, number) = writers.enter(&writer);
            (record.ledger.clone(), record.turn.clone(), number, record.newest.subscribe())
        };
        let stream = StreamOfWriter { writers: self.writers.clone(), writer, number, newest, is_needed: true };
        LedgerGuard { ledger, _turn: turn.lock_owned().await, stream }
    }

    /// Returns what is known of all writers: of forgotten ones, of those that have disconnected in the order in which they
    /// have, and of the others.
    pub fn states(&self) -> Vec<LedgerState> {
        let writers = self.writers.lock();
        let forgotten = writers.forgotten_order.values().map(|writer| LedgerState {
            writer: writer.clone(),
            through: 0,
            beyond: Vec::new(),
            lost: writers.forgotten[writer].0,
        });
        let idle = writers.idle.values().map(|(writer, _)| &writers.records[writer]);
        let connected = writers.records.values().filter(|record| record.idle.is_none());
        forgotten.chain(idle.chain(connected).map(|record| record.ledger.state())).collect()
    }

    /// Restores what an earlier server knew of a writer, which counts as the last that has disconnected. Replaces what is
    /// known of it.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the ranges do not ascend.
    pub fn restore(&self, state: &LedgerState) -> Result<()> {
        let numbers = Numbers::restored(state)?;
        let mut writers = self.writers.lock();
        if numbers.is_empty() {
            writers.note_forgotten(state.writer.clone(), state.lost);
            return Ok(());
        }
        *writers.record(&state.writer).ledger.numbers.lock() = numbers;
        writers.rest(&state.writer);
        writers.forget_old(Instant::now());
        Ok(())
    }

    /// Repeats [`Effect::Wrote`](reverb_core::Effect::Wrote) of an earlier server, with the same consequences as
    /// [`Ledgers::restore`].
    pub fn restore_written(&self, writer: &Arc<WriterId>, sequence: u64) {
        let mut writers = self.writers.lock();
        writers.record(writer).ledger.add(sequence);
        writers.rest(writer);
        writers.forget_old(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    impl Ledgers {
        /// The number of writers whose ledgers are kept.
        fn len(&self) -> usize {
            self.writers.lock().records.len()
        }
    }

    /// Polls a future once.
    fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_stream_is_taken_over_by_newer_ones_only() {
        let ledgers = Ledgers::default();
        let first = ledgers.take(None, 7).await;
        first.ledger.add(1);
        let mut taking = Box::pin(ledgers.take(None, 7));
        assert!(poll_once(&mut taking).is_none());
        // The first stream ends by itself, before it has heard of the second.
        drop(first);
        let mut second = taking.await;
        assert!(second.ledger.numbers.lock().has(1));
        assert!(poll_once(&mut Box::pin(second.taken_over())).is_none(), "there is no newer stream");
        let mut third = Box::pin(ledgers.take(None, 7));
        assert!(poll_once(&mut third).is_none());
        second.taken_over().await;
    }

    #[tokio::test]
    async fn ledgers_of_many_disconnected_writers_are_forgotten_the_oldest_first() {
        let ledgers = Ledgers::default();
        let connected = ledgers.take(None, 1).await;
        connected.ledger.add(1);
        for writer_id in 2..MAX_IDLE as u64 + 102 {
            ledgers.take(None, writer_id).await.ledger.add(1);
        }
        assert_eq!(ledgers.len(), MAX_IDLE + 1);
        assert!(!ledgers.take(None, 101).await.ledger.numbers.lock().has(1), "the first ones are forgotten");
        assert!(ledgers.take(None, 102).await.ledger.numbers.lock().has(1));
        assert!(connected.ledger.numbers.lock().has(1), "a connected writer keeps its ledger");
        // A writer that was away comes last in the order.
        for writer_id in 1_000_000..1_000_000 + MAX_IDLE as u64 - 1 {
            ledgers.take(None, writer_id).await.ledger.add(1);
        }
        assert!(ledgers.take(None, 102).await.ledger.numbers.lock().has(1));
        assert_eq!(ledgers.len(), MAX_IDLE + 1);
    }

    #[tokio::test]
    async fn old_ledgers_are_forgotten_and_those_without_items_are_not_kept() {
        let ledgers = Ledgers::default();
        drop(ledgers.take(None, 1).await);
        assert_eq!(ledgers.len(), 0, "nothing was inserted");
        ledgers.take(None, 2).await.ledger.add(1);
        let ended = ledgers.take(None, 3).await;
        ended.ledger.add(1);
        ended.forget();
        assert_eq!(ledgers.len(), 1);
        let now = Instant::now();
        ledgers.writers.lock().forget_old(now + KEEP_TIME / 2);
        assert_eq!(ledgers.len(), 1);
        ledgers.writers.lock().forget_old(now + KEEP_TIME + KEEP_TIME);
        assert_eq!(ledgers.len(), 0);
    }

    fn state(id: u64, through: u64, beyond: &[(u64, u64)], lost: u64) -> LedgerState {
        LedgerState { writer: writer(id), through, beyond: beyond.to_vec(), lost }
    }

    fn writer(id: u64) -> Arc<WriterId> {
        Arc::new(WriterId { owner: None, id })
    }

    #[tokio::test]
    async fn a_writer_that_was_forgotten_is_told_if_it_sends_items_that_may_be_in_their_tables() {
        let ledgers = Ledgers::default();
        let ledger = ledgers.take(None, 1).await;
        [1, 2, 5].into_iter().for_each(|number| ledger.ledger.add(number));
        drop(ledger);
        ledgers.writers.lock().forget_old(Instant::now() + KEEP_TIME);
        // Also if it comes several times.
        for _ in 0..2 {
            let again = ledgers.take(None, 1).await;
            let error = again.ledger.settle(3, 4, 2).unwrap_err();
            assert!(
                matches!(&error, Error::ResourceExhausted(text) if text.contains("items 4 to 5 may be")),
                "{error}"
            );
            assert_eq!(again.ledger.settle(3, 4, 0).unwrap(), (vec![], 0), "it sends no items");
            assert_eq!(again.ledger.settle(3, 6, 1).unwrap(), (vec![], 0), "this one is new");
        }
        let again = ledgers.take(None, 1).await;
        assert_eq!(again.ledger.settle(5, 6, 1).unwrap(), (vec![], 0), "it knows of all that were inserted");
        drop(again);
        // Also one that knows of nothing that was inserted, and comes several times.
        ledgers.writers.lock().note_forgotten(writer(2), 2);
        for _ in 0..2 {
            assert!(ledgers.take(None, 2).await.ledger.settle(0, 1, 1).is_err());
        }
        let other = ledgers.take(Some("owner"), 1).await;
        assert_eq!(other.ledger.settle(0, 1, 1).unwrap(), (vec![], 0), "another writer");
    }

    #[tokio::test]
    async fn a_restarted_server_knows_the_writers_of_the_one_before_in_their_order() {
        let before = Ledgers::default();
        let connected = before.take(Some("owner"), 1).await;
        connected.ledger.add(7);
        for (id, numbers) in [(2, [1, 2, 4, 5]), (3, [1, 2, 3, 4])] {
            let ledger = before.take(None, id).await;
            numbers.into_iter().for_each(|number| ledger.ledger.add(number));
        }
        before.writers.lock().note_forgotten(writer(4), 9);
        let mut states = before.states();
        let owned = states.pop().unwrap();
        assert_eq!(
            (owned.writer.owner.as_deref(), owned.writer.id, &owned.beyond[..]),
            (Some("owner"), 1, &[(7, 7)][..])
        );
        assert_eq!(states, [state(4, 0, &[], 9), state(2, 2, &[(4, 5)], 0), state(3, 4, &[], 0)]);
        states.push(owned);
        let after = Ledgers::default();
        states.iter().for_each(|state| after.restore(state).unwrap());
        assert_eq!(after.states(), states);
        after.restore_written(&writer(2), 3);
        after.restore_written(&writer(5), 1);
        let order: Vec<_> = after.states().iter().map(|state| (state.writer.id, state.through)).collect();
        assert_eq!(order, [(4, 0), (3, 4), (1, 0), (2, 5), (5, 1)], "the last that wrote is forgotten last");
        after.writers.lock().forget_old(Instant::now() + KEEP_TIME / 2);
        assert_eq!(after.len(), 4);
        after.writers.lock().forget_old(Instant::now() + KEEP_TIME);
        assert_eq!(after.len(), 0, "the time begins with the server");
        assert!(after.take(None, 2).await.ledger.settle(2, 3, 1).is_err());
    }

    #[test]
    fn a_state_whose_ranges_do_not_ascend_is_refused() {
        for beyond in [&[(3, 2)][..], &[(2, 3)], &[(4, 5), (6, 7)], &[(8, 9), (4, 5)], &[(0, 1)]] {
            let error = Ledgers::default().restore(&state(1, 1, beyond, 0)).unwrap_err();
            assert!(matches!(error, Error::DataLoss(_)), "{beyond:?}");
        }
    }

    /// The numbers up to 50 that the ledger has.
    fn known(ledger: &Numbers) -> Vec<u64> {
        (1..=50).filter(|&sequence| ledger.has(sequence)).collect()
    }

    #[test]
    fn a_ledger_knows_what_came_out_of_order() {
        let mut ledger = Numbers::default();
        [1, 3, 2, 7, 5].into_iter().for_each(|sequence| ledger.add(sequence));
        assert_eq!(known(&ledger), [1, 2, 3, 5, 7]);
        assert_eq!((ledger.through, ledger.beyond.len()), (3, 2));
        ledger.settle(4);
        assert_eq!((ledger.through, ledger.beyond.len()), (5, 1));
        ledger.settle(u64::MAX);
        assert_eq!((ledger.through, ledger.beyond.len()), (u64::MAX, 0));
    }

    #[test]
    fn a_ledger_grows_with_the_missing_items_only() {
        let mut ledger = Numbers::default();
        (2..100_000).filter(|sequence| sequence % 10_000 != 0).for_each(|sequence| ledger.add(sequence));
        assert_eq!((ledger.through, ledger.beyond.len()), (0, 10));
        (10_000..100_000).step_by(10_000).for_each(|sequence| ledger.add(sequence));
        assert_eq!(ledger.beyond.len(), 1);
        ledger.add(1);
        assert_eq!((ledger.through, ledger.beyond.len()), (99_999, 0));
    }

    proptest! {
        #[test]
        fn a_ledger_is_a_set_of_numbers(steps in prop::collection::vec((1_u64..50, prop::bool::weighted(0.1)), 0..60)) {
            let mut ledger = Numbers::default();
            let mut model = BTreeSet::new();
            for (sequence, settles) in steps {
                if settles {
                    ledger.settle(sequence);
                    model.extend(1..=sequence);
                } else {
                    ledger.add(sequence);
                    model.insert(sequence);
                }
                prop_assert_eq!(known(&ledger), model.iter().copied().collect::<Vec<_>>());
                let missing = (1..=50).filter(|number| !model.contains(number)).count();
                prop_assert!(ledger.beyond.len() <= missing);
            }
        }
    }
}
