//! Pages for the data of large chunks and for other large memory: pages of earlier data, or such as are faulted ahead of need.
//!
//! The first write to each page of fresh memory is a page fault, which takes longer than copying the page. A table that
//! grows begins a new block of pages every few MiB. While it does so, a thread faults later blocks, the more the faster it
//! grows. Data that is dropped leaves its pages to later data of its size. Memory that was not needed for a while
//! goes back to the system, and the thread ends.
//!
//! Nobody waits for the thread: where it has no block ready, the caller faults the pages that it takes.

use super::buffer::{Buffer, LentMemory};
use super::pages::{Block, Pages, page_bytes};
use crate::fork;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Data below this size in bytes comes from the global allocator, which is as fast.
const LEAST_BYTES: usize = 32 << 10;
/// Size of a block in bytes.
const BLOCK_BYTES: usize = 16 << 20;
/// Data that would leave much of a block unused has a mapping of its own.
const LEAST_OF_BLOCK: usize = 4;
// limit (Processes): memory faulted ahead of tables that grow | {:bytes}, and half of what they grew by in {QUIET} | later memory is faulted as it is used
/// Maximum number of bytes of the blocks that are ready.
const READY_LIMIT: usize = 128 << 20;
// limit (Processes): pages kept for later data | {:bytes}, for {QUIET} | given back to the system
/// Maximum number of bytes of the pages that are kept.
const FREE_LIMIT: usize = 64 << 20;
/// Time after which memory that was not needed goes back.
const QUIET: Duration = Duration::from_secs(5);

/// More bytes than any allocation that is made with the lock held: such an allocation must not ask for pages.
pub(super) const MOST_UNDER_LOCK: usize = 256 << 10;
const _: () = assert!(2 * size_of::<Pages>() * (FREE_LIMIT / LEAST_BYTES) < MOST_UNDER_LOCK);

static STOCK: Stock = Stock::new(QUIET);

/// Returns a buffer of `len` bytes for the data of a chunk, with arbitrary content. `None` if the data is small, or there is
/// no such memory: it comes from the global allocator then.
pub fn chunk_buffer(len: usize) -> Option<Buffer> {
    STOCK.buffer(len)
}

/// Returns pages of at least `len` bytes with arbitrary content, which are faulted as they are used. They are not cut from a
/// block: most are free again soon, so no table grows by them. `None` where there is no such memory.
pub(super) fn pages(len: usize) -> Option<Pages> {
    STOCK.pages(len)
}

/// Takes pages back.
pub(super) fn put(pages: Pages) {
    STOCK.put(pages);
}

/// Returns the size in bytes of the memory that is kept for later data.
pub fn stocked_bytes() -> usize {
    STOCK.stocked_bytes()
}

struct Stock {
    /// Locks of `std` allocate nothing while they wait, so that a global allocator may use them.
    state: Mutex<State>,
    /// Is told of each block that is begun.
    begun: Condvar,
    quiet: Duration,
    /// One more than the generation of the process, or 0. Forked children use the system's allocator: they lack the thread, and
    /// may lack its lock.
    process: AtomicU32,
}

struct State {
    /// Pages of dropped data by their size, and the sum of their sizes.
    free: BTreeMap<usize, Kept>,
    free_bytes: usize,
    /// The block that pages are cut from.
    current: Option<Block>,
    ready: Vec<Block>,
    /// When blocks were begun lately.
    begun: VecDeque<Instant>,
    /// Whether anything was taken since the thread last looked.
    is_used: bool,
    has_thread: bool,
}

/// Pages of one size.
#[derive(Default)]
struct Kept {
    pages: Vec<Pages>,
    /// The least number of them since the thread last looked: so many were not needed.
    least: usize,
}

impl Stock {
    const fn new(quiet: Duration) -> Self {
        let state = State {
            free: BTreeMap::new(),
            free_bytes: 0,
            current: None,
            ready: Vec::new(),
            begun: VecDeque::new(),
            is_used: false,
            has_thread: false,
        };
        Self { state: Mutex::new(state), begun: Condvar::new(), quiet, process: AtomicU32::new(0) }
    }

    fn buffer(&'static self, len: usize) -> Option<Buffer> {
        if len < LEAST_BYTES {
            return None;
        }
        let size = self.size_of_pages(len)?;
        let mut state = self.lock();
        // What is left of the block before goes back without the lock.
        let (mut pages, _rest) = match state.reuse(size) {
            Some(pages) => (pages, None),
            None => self.cut(&mut state, size)?,
        };
        self.note_use(&mut state);
        drop(state);
        pages.fault();
        Some(Buffer::lent(Box::new(Lent { pages: Some(pages), stock: self }), len))
    }

    fn pages(&'static self, len: usize) -> Option<Pages> {
        let size = self.size_of_pages(len)?;
        let mut state = self.lock();
        let pages = state.reuse(size);
        self.note_use(&mut state);
        drop(state);
        pages.or_else(|| Block::new(size)?.cut(size))
    }

    /// Number of bytes of the pages for data of `len` bytes, if there are any in this process. Data whose sizes differ a
    /// little leave their pages to each other.
    fn size_of_pages(&self, len: usize) -> Option<usize> {
        // Measured on Linux only.
        if !cfg!(target_os = "linux") || !self.is_of_this_process() {
            return None;
        }
        len.checked_next_multiple_of((len / 32).next_power_of_two().max(page_bytes()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics with the lock held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that pages are taken, and starts the thread if there is none.
    fn note_use(&'static self, state: &mut State) {
        state.is_used = true;
        if !state.has_thread {
            let thread = std::thread::Builder::new().name("reverb-pages".into());
            state.has_thread = thread.spawn(|| self.work()).is_ok();
        }
    }

    /// Cuts pages, from a new block if the current one has too few left. Returns the block before, too.
    fn cut(&self, state: &mut State, size: usize) -> Option<(Pages, Option<Block>)> {
        if size > BLOCK_BYTES / LEAST_OF_BLOCK {
            return Some((Block::new(size)?.cut(size)?, None));
        }
        if let Some(pages) = state.current.as_mut().and_then(|block| block.cut(size)) {
            return Some((pages, None));
        }
        let mut block = state.ready.pop().or_else(|| Block::new(BLOCK_BYTES))?;
        let pages = block.cut(size)?;
        state.begun.push_back(Instant::now());
        self.begun.notify_one();
        Some((pages, state.current.replace(block)))
    }

    fn put(&self, pages: Pages) {
        if !self.is_of_this_process() {
            return;
        }
        let unneeded = self.lock().keep(pages);
        // The system takes them back without the lock.
        drop(unneeded);
    }

    /// Faults blocks ahead, and gives back what is not needed, until nothing is.
    fn work(&self) {
        let mut look_at = Instant::now() + self.quiet;
        loop {
            let mut state = self.lock();
            if state.ready.len() < state.wanted(self.quiet) {
                drop(state);
                let Some(mut block) = Block::new(BLOCK_BYTES) else { return self.end() };
                block.fault();
                self.lock().ready.push(block);
                continue;
            }
            let (mut state, waited) = self
                .begun
                .wait_timeout(state, look_at.saturating_duration_since(Instant::now()))
                .unwrap_or_else(PoisonError::into_inner);
            if !waited.timed_out() {
                continue;
            }
            look_at = Instant::now() + self.quiet;
            if !std::mem::take(&mut state.is_used) {
                drop(state);
                return self.end();
            }
            let wanted = state.wanted(self.quiet).min(state.ready.len());
            let unneeded = (state.ready.split_off(wanted), state.take_surplus());
            // The system takes them back without the lock.
            drop(state);
            drop(unneeded);
        }
    }

    /// Gives everything back. The next caller starts a thread.
    fn end(&self) {
        let mut state = self.lock();
        state.has_thread = false;
        state.free_bytes = 0;
        let unneeded = (std::mem::take(&mut state.free), std::mem::take(&mut state.ready), state.current.take());
        drop(state);
        drop(unneeded);
    }

    fn stocked_bytes(&self) -> usize {
        if !self.is_of_this_process() {
            return 0;
        }
        let state = self.lock();
        state.free_bytes + state.ready.len() * BLOCK_BYTES
    }

    fn is_of_this_process(&self) -> bool {
        let process = fork::generation() + 1;
        match self.process.compare_exchange(0, process, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(other) => other == process,
        }
    }
}

impl State {
    /// Takes pages of an earlier chunk of this size.
    fn reuse(&mut self, size: usize) -> Option<Pages> {
        let kept = self.free.get_mut(&size)?;
        let pages = kept.pages.pop()?;
        kept.least = kept.least.min(kept.pages.len());
        self.free_bytes -= size;
        Some(pages)
    }

    /// Takes the pages that nobody needed since the last call.
    fn take_surplus(&mut self) -> Vec<Pages> {
        let mut surplus = Vec::new();
        for kept in self.free.values_mut() {
            surplus.extend(kept.pages.drain(..kept.least.min(kept.pages.len())));
            kept.least = kept.pages.len();
        }
        self.free.retain(|_, kept| !kept.pages.is_empty());
        self.free_bytes -= surplus.iter().map(Pages::size).sum::<usize>();
        surplus
    }

    /// Keeps pages for later data. Returns those that there is no room for: of the sizes of which most are kept, so that a few
    /// pages that are always used again stay.
    fn keep(&mut self, pages: Pages) -> Vec<Pages> {
        let (size, mut unneeded) = (pages.size(), Vec::new());
        self.free_bytes += size;
        self.free.entry(size).or_default().pages.push(pages);
        while self.free_bytes > FREE_LIMIT {
            let most = self.free.iter_mut().max_by_key(|(size, kept)| **size * kept.pages.len());
            let Some(pages) = most.and_then(|(_, kept)| kept.pages.pop()) else { break };
            self.free_bytes -= pages.size();
            unneeded.push(pages);
        }
        unneeded
    }

    /// Number of blocks that should be ready: half of those that were begun lately.
    fn wanted(&mut self, lately: Duration) -> usize {
        while self.begun.front().is_some_and(|begun| begun.elapsed() > lately) {
            self.begun.pop_front();
        }
        (self.begun.len() / 2).min(READY_LIMIT / BLOCK_BYTES)
    }
}

/// Pages that return to the stock.
struct Lent {
    pages: Option<Pages>,
    stock: &'static Stock,
}

// SAFETY: the pages are initialised, by the system or by earlier data, and this value owns them. The size of a page is a
// multiple of the alignment.
unsafe impl LentMemory for Lent {
    fn bytes(&self) -> (*mut u8, usize) {
        self.pages.as_ref().map_or((std::ptr::null_mut(), 0), |pages| (pages.as_mut_ptr(), pages.size()))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pages.take().into_iter().for_each(|pages| self.stock.put(pages));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::mem::MaybeUninit;

    /// A stock of its own, which is quiet after so many milliseconds.
    fn stock(quiet_ms: u64) -> &'static Stock {
        /// LeakSanitizer does not take what a static has for a leak.
        static ALL: Mutex<Vec<&Stock>> = Mutex::new(Vec::new());
        let stock = Box::leak(Box::new(Stock::new(Duration::from_millis(quiet_ms))));
        ALL.lock().unwrap().push(stock);
        stock
    }

    fn filled(stock: &'static Stock, len: usize, value: u8) -> Buffer {
        let mut buffer = stock.buffer(len).unwrap();
        assert_eq!(buffer.len(), len);
        buffer.as_uninit_mut().fill(MaybeUninit::new(value));
        buffer
    }

    fn has(buffer: &Buffer, value: u8) -> bool {
        // SAFETY: the memory is initialised.
        unsafe { buffer.as_bytes() }.iter().all(|&byte| byte == value)
    }

    /// Number of resident bytes of a buffer's pages.
    fn resident(address: usize, len: usize) -> usize {
        let mut pages = vec![0_u8; len.div_ceil(page_bytes())];
        // SAFETY: the addresses are mapped, and there is a byte for each of their pages.
        let status = unsafe { libc::mincore(address as *mut _, len, pages.as_mut_ptr()) };
        assert_eq!(status, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count() * page_bytes()
    }

    fn wait_until(mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn buffers_in_use_never_overlap() {
        let stock = stock(60_000);
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut used: Vec<(Buffer, u8)> = Vec::new();
        for round in 0..2000 {
            let len = LEAST_BYTES + [random(10_000), random(500_000), random(9_000_000)][random(20).saturating_sub(17)];
            let value = round as u8;
            used.push((filled(stock, len, value), value));
            while used.len() > 40 {
                let (buffer, value) = used.swap_remove(random(used.len()));
                assert_eq!(buffer.as_ptr() as usize % super::super::ALIGN, 0);
                assert!(has(&buffer, value), "round {round}");
            }
        }
        drop(used);
        assert!(stock.lock().free_bytes <= FREE_LIMIT);
    }

    #[test]
    fn many_threads_share_it() {
        let stock = stock(1);
        std::thread::scope(|scope| {
            for number in 0..4_u8 {
                scope.spawn(move || {
                    let mut used = VecDeque::new();
                    for round in 0..1500_usize {
                        used.push_back(filled(stock, LEAST_BYTES + round % 7 * 20_000, number));
                        if used.len() > 64 {
                            assert!(has(&used.pop_front().unwrap(), number));
                        }
                        if round % 500 == 0 {
                            // The thread ends meanwhile, and is started anew.
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    }
                });
            }
        });
        wait_until(|| !stock.lock().has_thread);
        assert_eq!(stock.stocked_bytes(), 0);
    }

    #[test]
    fn chunks_of_one_size_use_the_pages_of_others() {
        let stock = stock(60_000);
        let addresses: HashSet<usize> = (0..10).map(|_| filled(stock, 400_000, 1).as_ptr() as usize).collect();
        assert_eq!(addresses.len(), 1);
        let kept = filled(stock, 400_000, 2);
        let next = filled(stock, 401_000, 3);
        assert!(has(&kept, 2) && kept.as_ptr() != next.as_ptr());
        let freed = kept.as_ptr();
        drop(kept);
        assert_eq!(stock.stocked_bytes(), 409_600);
        assert_ne!(filled(stock, 40_000, 4).as_ptr(), freed, "much smaller");
        assert_eq!(filled(stock, 395_000, 4).as_ptr(), freed, "a little smaller");
    }

    #[test]
    fn pages_that_nobody_needs_go_back_while_others_are_used() {
        let stock = stock(100);
        drop((0..20).map(|_| filled(stock, 400_000, 1)).collect::<Vec<_>>());
        drop((0..3).map(|_| filled(stock, 100_000, 1)).collect::<Vec<_>>());
        let one = 100_000_usize.next_multiple_of(page_bytes());
        // Two of the others are used all the time, while a table grows.
        let mut table = Vec::new();
        wait_until(|| {
            drop([(); 2].map(|()| filled(stock, 100_000, 2)));
            table.push(filled(stock, 1_000_000, 3));
            stock.lock().free_bytes == 2 * one
        });
    }

    #[test]
    fn no_more_pages_are_kept_than_the_limit_allows() {
        let stock = stock(60_000);
        let count = FREE_LIMIT / 409_600 + 20;
        let mut first: Vec<_> = (0..count).map(|_| filled(stock, 400_000, 1)).collect();
        // So that no block goes as a whole.
        let _kept: Vec<_> = (0..count / 20).map(|place| first.swap_remove(place * 19)).collect();
        let places: Vec<_> = first.iter().map(|buffer| buffer.as_ptr() as usize).collect();
        drop(first);
        let resident_bytes = || -> usize { places.iter().map(|&place| resident(place, 400_000)).sum() };
        assert!(resident_bytes() <= FREE_LIMIT, "{} of {count}", resident_bytes());
        // Others have the same right.
        drop((0..2 * count).map(|_| filled(stock, 300_000, 1)).collect::<Vec<_>>());
        assert!(resident_bytes() <= FREE_LIMIT / 2 + 409_600, "{}", resident_bytes());
        let kept = stock.lock().free_bytes;
        assert!((FREE_LIMIT - 409_600..=FREE_LIMIT).contains(&kept), "{kept}");
    }

    #[test]
    fn pages_that_are_always_used_again_stay_beside_many_that_are_not() {
        let stock = stock(60_000);
        let fill = || (0..2 * FREE_LIMIT / 409_600).map(|_| filled(stock, 400_000, 1)).collect::<VecDeque<_>>();
        let mut table = fill();
        drop(fill());
        let mut places = HashSet::new();
        for _ in 0..200 {
            places.extend([(); 4].map(|()| filled(stock, 260_000, 2)).map(|buffer| buffer.as_ptr() as usize));
            drop(table.pop_front());
            table.push_back(filled(stock, 400_000, 1));
        }
        assert_eq!(places.len(), 4);
    }

    #[test]
    fn a_growing_table_finds_its_pages_there() {
        let stock = stock(1000);
        let mut table: Vec<_> = (0..200).map(|_| filled(stock, 400_000, 1)).collect();
        wait_until(|| !stock.lock().ready.is_empty());
        let ready = stock.lock().ready.pop().unwrap().cut(400_000).unwrap();
        assert_eq!(resident(ready.as_mut_ptr() as usize, ready.size()), ready.size());
        drop(ready);
        wait_until(|| !stock.lock().ready.is_empty());
        let is_faulted = || {
            let next = stock.lock().current.as_mut().and_then(|block| block.cut(page_bytes()));
            next.is_some_and(|pages| resident(pages.as_mut_ptr() as usize, pages.size()) > 0)
        };
        let mut found = 0;
        for _ in 0..60 {
            table.push(filled(stock, 400_000, 1));
            found += usize::from(is_faulted());
        }
        assert!(found > 0, "nothing was taken from the block that was ready");
        assert!(stock.stocked_bytes() <= READY_LIMIT);
        // It does not grow any more.
        wait_until(|| !stock.lock().has_thread);
        assert_eq!(stock.stocked_bytes(), 0);
        assert!(table.iter().all(|buffer| has(buffer, 1)));
        let size = table.len();
        table.push(filled(stock, 400_000, 2));
        assert!(has(&table[size], 2) && has(&table[0], 1), "it grows again");
    }

    #[test]
    fn a_slow_table_has_nothing_faulted() {
        let stock = stock(60_000);
        let _table: Vec<_> = (0..39).map(|_| filled(stock, 400_000, 1)).collect();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(stock.stocked_bytes(), 0);
        assert!(stock.buffer(LEAST_BYTES - 1).is_none());
    }
}
