//! A program whose large memory lies on pages.

#![cfg(target_os = "linux")]

use reverb_core::memory::{Allocator, mapped_bytes};
use reverb_core::pooled_bytes;
use std::alloc::{GlobalAlloc, Layout};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Lets tests look at the memory of the process one after another, also if they share one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers without a pattern.
fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % below
}

/// A length around the bounds of the memory that gets pages, and far from them.
fn length(state: &mut u64) -> usize {
    let around = [64, 200 * KIB, 256 * KIB, 512 * KIB, MIB, 3 * MIB, 8 * MIB][random(state, 7)];
    around + random(state, 128) - 64
}

#[test]
fn memory_keeps_its_content_while_it_grows_and_shrinks_on_many_threads() {
    let _alone = alone();
    let (sender, receiver) = mpsc::channel::<(Vec<u8>, u8)>();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let sender = sender.clone();
            scope.spawn(move || {
                let mut state = thread.into();
                let mut used = VecDeque::new();
                for round in 0..120_u8 {
                    let mut bytes = vec![round ^ thread; length(&mut state)];
                    bytes.resize(length(&mut state), round ^ thread);
                    bytes.shrink_to_fit();
                    bytes.reserve_exact(random(&mut state, 10_000));
                    used.push_back((bytes, round ^ thread));
                    if used.len() > 8 {
                        // Another thread frees it.
                        sender.send(used.pop_front().unwrap()).unwrap();
                    }
                }
            });
        }
        drop(sender);
        let mut seen = 0;
        for (bytes, value) in receiver {
            assert!(bytes.iter().all(|&byte| byte == value), "{} bytes", bytes.len());
            seen += 1;
        }
        assert_eq!(seen, 4 * (120 - 8));
    });
}

#[test]
fn memory_is_aligned_and_zeroed_as_it_was_asked_for() {
    let _alone = alone();
    let mut state = 1;
    for _ in 0..300 {
        let layout = Layout::from_size_align(length(&mut state).max(1), 1 << random(&mut state, 13)).unwrap();
        // SAFETY: the layout is not empty, and the memory is used within it.
        unsafe {
            let (dirty, zeroed) = (ALLOCATOR.alloc(layout), ALLOCATOR.alloc_zeroed(layout));
            for memory in [dirty, zeroed] {
                assert!(!memory.is_null() && memory.addr().is_multiple_of(layout.align()), "{layout:?}");
            }
            assert!(std::slice::from_raw_parts(zeroed, layout.size()).iter().all(|&byte| byte == 0), "{layout:?}");
            for memory in [dirty, zeroed] {
                memory.write_bytes(0xFF, layout.size());
                ALLOCATOR.dealloc(memory, layout);
            }
        }
    }
}

#[test]
fn one_thread_uses_what_another_has_freed_and_all_of_it_goes_back() {
    let _alone = alone();
    let held = || std::thread::spawn(|| (0..10).map(|_| vec![1_u8; MIB]).collect::<Vec<_>>()).join().unwrap();
    let addresses = |held: &[Vec<u8>]| {
        let mut all: Vec<_> = held.iter().map(|bytes| bytes.as_ptr().addr()).collect();
        all.sort_unstable();
        all
    };
    let first = held();
    assert!(mapped_bytes() >= 10 * MIB);
    let places = addresses(&first);
    drop(first);
    assert!(pooled_bytes() >= 10 * MIB);
    let second = held();
    assert_eq!(addresses(&second), places);
    drop(second);
    let begun = Instant::now();
    while pooled_bytes() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} bytes are still kept", pooled_bytes());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(mapped_bytes() < 10 * MIB);
}

#[test]
fn a_forked_child_uses_memory_whatever_threads_of_its_parent_did() {
    let _alone = alone();
    let parents = vec![3_u8; MIB];
    std::thread::scope(|scope| {
        let (ended, is_ended) = mpsc::channel::<()>();
        let busy = scope.spawn(move || {
            while is_ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                drop([vec![1_u8; 300 * KIB], vec![1_u8; 400 * KIB]]);
            }
        });
        for _ in 0..50 {
            // SAFETY: the child calls only the allocators, which may be used after a fork, and `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let mut bytes = parents.clone();
                bytes.resize(2 * MIB, 3);
                let is_right = bytes.iter().all(|&byte| byte == 3);
                drop((bytes, parents));
                // SAFETY: it ends the child without anything of the parent's.
                unsafe { libc::_exit(if is_right { 7 } else { 8 }) };
            }
            let mut status = 0;
            // SAFETY: the child is ours, and the status is valid for writes. An alarm ends a child that hangs.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
        }
        drop(ended);
        busy.join().unwrap();
    });
}
