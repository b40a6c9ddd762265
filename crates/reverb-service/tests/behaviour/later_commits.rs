//! Commits of tasks, which the journal makes later: nobody is told of what it has not kept, and nobody waits in between.

use crate::common::{self, exactly, here, item, items, keys, queue, uniform};
use crate::done;
use crate::waits;
use reverb_core::{Confirmation, Error, Result};
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Journal, Kept, TableHandle, Waiting};
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// A journal that keeps what it is asked to when the test says so.
#[derive(Default)]
struct Later {
    asked: Mutex<Vec<Kept>>,
    blocking: AtomicUsize,
}

impl Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

impl Later {
    fn of(table: &TableHandle) -> Arc<Self> {
        let later = Arc::new(Self::default());
        table.set_journal(later.clone());
        later
    }

    /// Makes the commit, and returns how many had asked.
    fn keep(&self, result: &Result<()>) -> usize {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let count = asked.len();
        asked.into_iter().for_each(|kept| kept(result.clone()));
        count
    }
}

impl Journal for Later {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn waits_for_disk(&self) -> bool {
        true
    }

    fn commit(&self, confirmation: Confirmation) -> Result<()> {
        self.blocking.fetch_add(usize::from(confirmation == Confirmation::Synced), Relaxed);
        Ok(())
    }

    fn commit_later(&self, kept: Kept) {
        self.asked.lock().unwrap().push(kept);
    }
}

fn broken() -> Error {
    Error::Storage("the disk is broken".into())
}

fn poll<T: Debug>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

fn result_of(waiting: &mut Waiting<()>) -> Poll<Result<()>> {
    poll(|context| waiting.poll_result(context))
}

/// Runs a task, since only tasks are told later.
fn in_task(task: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    runtime.block_on(runtime.spawn(task)).unwrap();
}

#[test]
fn an_insert_is_answered_once_it_is_kept() {
    in_task(async {
        let table = uniform("table");
        let later = Later::of(&table);
        let mut first = waits!(table.insert(items(0..3), here()));
        let mut second = waits!(table.insert(items([3]), here()));
        assert_eq!(table.with_table(|table| table.len()), 4, "they are in the table at once");
        assert!(result_of(&mut first).is_pending());
        assert!(first.explain().contains("the disk has not confirmed"));
        assert_eq!(later.keep(&Ok(())), 2);
        assert_eq!(result_of(&mut first), Poll::Ready(Ok(())));
        assert_eq!(result_of(&mut second), Poll::Ready(Ok(())));
        let mut third = waits!(table.insert(items([4]), here()));
        later.keep(&Err(broken()));
        assert_eq!(result_of(&mut third), Poll::Ready(Err(broken())));
        let mut fourth = waits!(table.insert(items([5]), here()));
        later.keep(&Ok(()));
        assert_eq!(result_of(&mut fourth), Poll::Ready(Ok(())), "the table goes on");
        assert_eq!(later.blocking.load(Relaxed), 0);
        drop(waits!(table.insert(items([6]), here())));
        assert_eq!(later.keep(&Ok(())), 1, "whoever asked may be gone");
    });
}

#[test]
fn those_who_waited_are_answered_once_what_let_them_go_is_kept() {
    in_task(async {
        let table = queue("table", 2);
        let later = Later::of(&table);
        let mut draw = waits!(table.sample(exactly(2), here()));
        let mut insert = waits!(table.insert(items([1, 2]), here()));
        assert!(poll(|context| draw.poll_result(context)).is_pending());
        later.keep(&Ok(()));
        assert_eq!(result_of(&mut insert), Poll::Ready(Ok(())));
        let Poll::Ready(Ok(drawn)) = poll(|context| draw.poll_result(context)) else { panic!("it waits") };
        table.delivered(&drawn).unwrap();
        // An insert that a draw has let in. The draw confirms nothing.
        let mut full = waits!(table.insert(items([3, 4]), here()));
        let mut waiting = waits!(table.insert(items([5]), here()));
        later.keep(&Ok(()));
        assert_eq!(result_of(&mut full), Poll::Ready(Ok(())));
        assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [3]);
        assert!(result_of(&mut waiting).is_pending());
        assert!(waiting.explain().contains("the disk has not confirmed"));
        later.keep(&Err(broken()));
        assert_eq!(result_of(&mut waiting), Poll::Ready(Err(broken())));
    });
}

#[test]
fn a_deadline_ends_the_wait_for_the_disk() {
    in_task(async {
        let table = uniform("table");
        let later = Later::of(&table);
        let insert = waits!(table.insert(items([1]), here()));
        let error = insert.result(Some(Instant::now()), common::silent).await.unwrap_err();
        assert!(matches!(error, Error::DeadlineExceeded(text) if text.contains("the disk has not confirmed")));
        later.keep(&Ok(()));
        assert_eq!(table.with_table(|table| table.len()), 1);
        let table = queue("table", 1);
        let later = Later::of(&table);
        drop(waits!(table.insert(items([1]), here())));
        let waiting = waits!(table.insert(items([2]), here()));
        drop(done!(table.sample(exactly(1), here())));
        let error = waiting.result(Some(Instant::now()), common::silent).await.unwrap_err();
        assert!(matches!(error, Error::DeadlineExceeded(text) if text.contains("the disk has not confirmed")));
        later.keep(&Ok(()));
    });
}

#[test]
fn a_writer_sends_more_while_the_disk_works() {
    in_task(async {
        let table = queue("table", 3);
        let later = Later::of(&table);
        let arrival = |sequence| Arrival { sequence, item: item(sequence), is_validated: true };
        let (mut queue, mut done) = (WriteQueue::new(here(), None), Done::new());
        queue.push_all(&table, vec![arrival(1), arrival(2)], &mut done);
        queue.push_all(&table, vec![arrival(3), arrival(4)], &mut done);
        assert_eq!((queue.num_waiting(), done.len(), table.with_table(|table| table.len())), (4, 0, 3));
        assert!(poll(|context| queue.poll(context, &mut done)).is_pending());
        let explained = queue.explain().unwrap();
        assert!(explained.contains("full"), "what waits for the table comes first: {explained}");
        later.keep(&Ok(()));
        assert!(poll(|context| queue.poll(context, &mut done)).is_ready());
        assert_eq!(std::mem::take(&mut done), [1, 2, 3].map(|sequence| (sequence, Ok(()))));
        drop(done!(table.sample(exactly(1), here())));
        later.keep(&Err(broken()));
        assert!(poll(|context| queue.poll(context, &mut done)).is_ready());
        assert_eq!(std::mem::take(&mut done), [(4, Err(broken()))]);
        table.delivered(&done!(table.sample(exactly(3), here()))).unwrap();
        queue.push_all(&table, vec![arrival(5)], &mut done);
        assert!(queue.explain().unwrap().contains("the disk has not confirmed"));
        let kept = tokio::spawn(async move {
            let mut done = Done::new();
            queue.withdraw(&mut done).await;
            done
        });
        tokio::task::yield_now().await;
        later.keep(&Ok(()));
        assert_eq!(kept.await.unwrap(), [(5, Ok(()))], "it is in the table, so it cannot be withdrawn");
    });
}

#[test]
fn a_thread_of_a_program_commits_itself() {
    let table = uniform("table");
    let later = Later::of(&table);
    done!(table.insert(items([1]), here()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(async { done!(table.insert(items([2]), here())) });
    assert_eq!((later.blocking.load(Relaxed), later.keep(&Ok(()))), (2, 0));
}
