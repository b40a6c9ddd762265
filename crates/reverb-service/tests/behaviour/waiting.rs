//! The waits of requests at a table, and how they end.

use crate::common::{exactly, here, item, items, keys, queue, silent, uniform};
use crate::done;
use crate::waits;
use reverb_core::Error;
use reverb_service::{Call, DrawRequest, Notice, TableHandle};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(50))
}

fn len(table: &TableHandle) -> usize {
    table.with_table(|table| table.len())
}

#[tokio::test]
async fn waiting_samples_are_served_first_come_first_served() {
    let table = queue("table", 10);
    let waiting: Vec<_> = (0..5).map(|_| waits!(table.sample(exactly(2), here()))).collect();
    for key in 0..10 {
        done!(table.insert(vec![item(key)], here()));
    }
    for (index, waiting) in (0..).zip(waiting) {
        let drawn = waiting.result(None, silent).await.unwrap();
        assert_eq!(keys(&drawn), [2 * index, 2 * index + 1]);
        assert!(drawn.iter().all(|drawn| drawn.rate_limited));
    }
}

#[tokio::test]
async fn waiting_inserts_are_served_first_come_first_served() {
    let table = queue("table", 2);
    done!(table.insert(items(0..2), here()));
    let waiting: Vec<_> = (1..4).map(|index| waits!(table.insert(items([2 * index, 2 * index + 1]), here()))).collect();
    for expected in 0..8 {
        assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [expected]);
    }
    for waiting in waiting {
        waiting.result(None, silent).await.unwrap();
    }
}

#[tokio::test]
async fn a_sample_that_waits_blocks_smaller_ones_behind_it() {
    let table = queue("table", 10);
    let large = waits!(table.sample(exactly(3), here()));
    let small = waits!(table.sample(exactly(1), here()));
    done!(table.insert(items(0..2), here()));
    assert_eq!(table.status().info.waiting_samples, Some(2), "the large one has two of three");
    done!(table.insert(items(2..4), here()));
    assert_eq!(keys(&large.result(None, silent).await.unwrap()), [0, 1, 2]);
    assert_eq!(keys(&small.result(None, silent).await.unwrap()), [3]);
}

#[tokio::test]
async fn an_insert_that_waits_blocks_later_ones_but_no_sample() {
    let table = queue("table", 2);
    let large = waits!(table.insert(items(0..4), here()));
    let small = waits!(table.insert(items(4..5), here()));
    assert_eq!(table.status().info.waiting_inserts, Some(2));
    assert_eq!(keys(&done!(table.sample(exactly(3), here()))), [0, 1, 2]);
    large.result(None, silent).await.unwrap();
    small.result(None, silent).await.unwrap();
    assert_eq!(keys(&done!(table.sample(exactly(2), here()))), [3, 4]);
}

#[tokio::test]
async fn inserts_and_samples_alternate() {
    let table = queue("table", 2);
    let sample = waits!(table.sample(exactly(100), here()));
    let insert = waits!(table.insert(items(0..150), here()));
    assert_eq!(keys(&sample.result(None, silent).await.unwrap()), Vec::from_iter(0..100));
    assert_eq!(table.status().info.inserts, 102);
    drop(insert);
}

#[test]
fn draws_of_a_dropped_sample_return_to_their_places() {
    let table = queue("table", 10);
    let large = waits!(table.sample(exactly(5), here()));
    let small = waits!(table.sample(exactly(1), here()));
    done!(table.insert(items(0..3), here()));
    assert_eq!((len(&table), table.status().info.waiting_samples), (0, Some(2)));
    drop(large);
    assert_eq!(table.status().info.waiting_samples, Some(0), "the one behind it was served");
    assert_eq!(keys(&done!(table.sample(exactly(2), here()))), [1, 2]);
    drop(small);
    assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [0], "served, not taken, and back");
    assert_eq!(table.status().info.samples, 3);
}

#[test]
fn a_dropped_insert_leaves_the_queue_and_the_rest_of_its_items_is_not_inserted() {
    let table = queue("table", 2);
    let large = waits!(table.insert(items(0..4), here()));
    let small = waits!(table.insert(items(4..5), here()));
    drop(large);
    assert_eq!(table.status().info.waiting_inserts, Some(1));
    assert_eq!(keys(&done!(table.sample(exactly(3), here()))), [0, 1, 4]);
    drop(small);
}

#[tokio::test(start_paused = true)]
async fn a_sample_at_its_deadline_returns_the_short_batch() {
    let table = queue("table", 10);
    let waiting = waits!(table.sample(exactly(5), here()));
    done!(table.insert(items(0..3), here()));
    assert_eq!(keys(&waiting.result(soon(), silent).await.unwrap()), [0, 1, 2]);
    assert_eq!(table.status().info.waiting_samples, Some(0));
}

#[tokio::test(start_paused = true)]
async fn an_empty_sample_at_its_deadline_fails_and_says_what_it_waited_for() {
    let table = queue("replay", 10);
    let error = waits!(table.sample(exactly(1), here())).result(soon(), silent).await.unwrap_err();
    let Error::DeadlineExceeded(text) = error else { panic!("{error:?}") };
    assert!(
        text.starts_with("sample of table `replay` waits: the queue is empty; 1 more insert until a sample may go\nRate Limiter: Timeout exceeded"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_insert_at_its_deadline_fails_and_says_how_far_it_came() {
    let table = queue("replay", 3);
    let error = waits!(table.insert(items(0..5), here())).result(soon(), silent).await.unwrap_err();
    let Error::DeadlineExceeded(text) = error else { panic!("{error:?}") };
    assert!(text.contains("3 of 5 items were inserted; insert into table `replay` waits"), "{text}");
    assert_eq!(keys(&done!(table.sample(exactly(3), here()))), [0, 1, 2]);
}

#[tokio::test]
async fn a_deadline_that_has_passed_takes_what_is_there() {
    let table = queue("table", 10);
    let waiting = waits!(table.sample(exactly(2), here()));
    done!(table.insert(items(0..1), here()));
    let past = Some(Instant::now() - Duration::from_secs(1));
    assert_eq!(keys(&waiting.result(past, silent).await.unwrap()), [0]);
}

#[tokio::test]
async fn a_sample_with_enough_is_served_when_the_table_allows_no_more() {
    let table = queue("table", 10);
    let waiting = waits!(table.sample(DrawRequest { at_least: 2, at_most: 8, ahead: 100, is_ahead: false }, here()));
    done!(table.insert(items(0..1), here()));
    assert_eq!(table.status().info.waiting_samples, Some(1));
    done!(table.insert(items(1..4), here()));
    assert_eq!(keys(&waiting.result(None, silent).await.unwrap()), [0, 1, 2, 3], "all there were");
}

#[test]
fn samples_are_drawn_ahead_only_if_draws_are_not_counted() {
    let ahead = DrawRequest { at_least: 1, at_most: 1, ahead: 7, is_ahead: false };
    let (free, counted) = (uniform("free"), queue("counted", 10));
    for table in [&free, &counted] {
        done!(table.insert(items(0..5), here()));
    }
    assert_eq!(done!(free.sample(ahead, here())).len(), 8);
    assert_eq!(done!(counted.sample(ahead, here())).len(), 1);
}

#[tokio::test]
async fn close_wakes_everyone_and_gives_back_what_was_drawn() {
    let (full, empty) = (queue("full", 2), queue("empty", 2));
    let inserts = [0, 1].map(|_| waits!(full.insert(items(0..3), here())));
    let samples = [0, 1].map(|_| waits!(empty.sample(exactly(5), here())));
    done!(empty.insert(items(0..2), here()));
    full.close();
    empty.close();
    assert_eq!(len(&empty), 2);
    for waiting in inserts {
        assert!(matches!(waiting.result(None, silent).await, Err(Error::Cancelled(_))));
    }
    for waiting in samples {
        assert!(matches!(waiting.result(None, silent).await, Err(Error::Cancelled(_))));
    }
    assert!(matches!(full.insert(items(9..10), here()), Call::Done(Err(Error::Cancelled(_)))));
    assert!(matches!(empty.sample(exactly(1), here()), Call::Done(Err(Error::Cancelled(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_reported_exactly_once() {
    let table = queue("replay", 10);
    let notices = Cell::new(0);
    let notice = |notice: &Notice| {
        assert_eq!(
            notice.text,
            "sample of table `replay` waits: the queue is empty; 1 more insert until a sample may go"
        );
        notices.set(notices.get() + 1);
    };
    let mut result = pin!(waits!(table.sample(exactly(1), here())).result(None, notice));
    assert!(poll_once(result.as_mut()).is_pending());
    for (seconds, expected) in [(9, 0), (2, 1), (100, 1), (1000, 1)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        assert!(poll_once(result.as_mut()).is_pending());
        assert_eq!(notices.get(), expected);
    }
}

#[test]
fn the_number_of_waiting_requests_is_limited_for_each_kind() {
    let table = queue("table", 1);
    done!(table.insert(items(0..1), here()));
    let waiting: Vec<_> = (0..100_000).map(|_| waits!(table.insert(Vec::from([item(7)]), here()))).collect();
    let Call::Done(Err(Error::ResourceExhausted(text))) = table.insert(items(8..9), here()) else {
        panic!("it is taken")
    };
    assert!(text.contains("100,000 requests wait at table `table`") && text.contains("the queue is full"), "{text}");
    assert_eq!(keys(&done!(table.sample(exactly(1), here()))), [0], "samples may go");
    // Withdrawn from the end of the queue, where a search from the front takes longest.
    drop(waiting.into_iter().rev().take(100));
}

#[test]
fn a_draw_of_any_number_is_bounded_and_a_draw_of_none_is_refused() {
    let table = uniform("table");
    done!(table.insert(items(0..1), here()));
    let draw =
        |at_least, at_most, ahead| table.sample(DrawRequest { at_least, at_most, ahead, is_ahead: false }, here());
    assert_eq!(done!(draw(1, usize::MAX, usize::MAX)).len(), 1 << 20);
    assert!(matches!(draw(usize::MAX, usize::MAX, 0), Call::Done(Err(Error::ResourceExhausted(_)))));
    assert!(matches!(draw(0, 0, 9), Call::Done(Err(Error::InvalidArgument(_)))));
    assert!(matches!(draw(2, 1, 0), Call::Done(Err(Error::InvalidArgument(_)))));
}
