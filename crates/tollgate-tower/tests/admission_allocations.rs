//! A queue without waiting requests allocates nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::Span;
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::admission::{AdmissionQueue, BackendOutcome};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what this thread allocates.
struct Counting;

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as promised to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as promised to this function.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(of: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    of();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn a_permit_without_a_wait_allocates_nothing() {
    let mut rule = QueueRule::new("api", QueueConcurrency::Fixed(8));
    rule.rate = Some(("1000000/s".parse().unwrap(), 1_000_000));
    rule.max_wait = Span::from_secs(1);
    let queue = AdmissionQueue::new(&rule).unwrap();
    let go = |flow: u64| {
        let place = QueuePlace {
            queue: 0,
            flow,
            tier: None,
            weight: 1,
            cost: 1,
        };
        let acquire = pin!(queue.acquire(&place));
        match acquire.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(permit)) => permit.finish(BackendOutcome::Answered),
            other => panic!("no permit at once: {other:?}"),
        }
    };
    assert!(
        allocations(|| go(1)) > 0,
        "the count works: the first grows the queue"
    );
    assert_eq!(allocations(|| (0..10_000).for_each(go)), 0);
}
