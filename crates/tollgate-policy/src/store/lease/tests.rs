//! The lease of one key, step by step.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use super::state::{Block, BorrowRequest, Lease, Next, Payment, State};
use super::terms::LeaseTerms;
use crate::charge::Outcome;
use crate::rule::Quota;
use tollgate::Limit;
use tollgate::QuotaStatus;
use tollgate::{Moment, Span};

/// A handle of a borrow.
type Handle = u32;

fn terms() -> LeaseTerms {
    let limit = Limit::token_bucket("1000/s".parse().unwrap(), 1_000).unwrap();
    LeaseTerms::from_quota(&Quota::plain(limit)).unwrap()
}

fn at(ms: u64) -> Moment {
    Moment::ORIGIN.plus(Span::from_millis(10_000 + ms))
}

fn block(credit: u64, ms: u64) -> Block {
    Block {
        credit,
        issued: at(ms),
        local: at(ms),
        is_mirrored: true,
        expires: at(ms).plus(terms().term),
    }
}

fn pay(lease: &mut Lease<Handle>, cost: u64, ms: u64) -> Payment<Handle> {
    lease.record(&terms(), cost, at(ms));
    lease.pay(&terms(), 1, cost, at(ms))
}

fn wanted(payment: Payment<Handle>) -> BorrowRequest {
    match payment {
        Payment::Borrow(wanted) => wanted,
        other => panic!("{other:?}"),
    }
}

/// A lease with a block of this many units, granted at 0 ms.
fn leased(credit: u64) -> Lease<Handle> {
    let mut lease = Lease::default();
    assert!(matches!(pay(&mut lease, 1, 0), Payment::Forward));
    let first = wanted(pay(&mut lease, 1, 0));
    lease.start_borrow(first, 1);
    assert_eq!(
        lease.finish_borrow(Some(block(credit, 0)), Next::Borrow),
        (None, Some(1))
    );
    lease
}

#[test]
fn a_quiet_key_is_decided_by_the_store_and_a_busy_one_borrows() {
    let mut lease = Lease::default();
    assert!(matches!(pay(&mut lease, 1, 0), Payment::Forward));
    let first = wanted(pay(&mut lease, 1, 1));
    assert_eq!((first.cost, first.is_short), (1, false));
    lease.start_borrow(first, 7);
    // The next ones wait for the same borrow.
    assert!(matches!(pay(&mut lease, 1, 2), Payment::Wait(7)));
    // Much later it is quiet again.
    let mut lease = Lease::default();
    assert!(matches!(pay(&mut lease, 1, 0), Payment::Forward));
    assert!(matches!(pay(&mut lease, 1, 500), Payment::Forward));
}

#[test]
fn a_block_is_spent_once_and_not_after_its_term() {
    let mut lease = leased(3);
    for _ in 0..3 {
        assert!(matches!(pay(&mut lease, 1, 1), Payment::Paid(..)));
    }
    assert!(matches!(pay(&mut lease, 1, 1), Payment::Borrow(_)));
    let mut lease = leased(3);
    let over = lease.take_expired(false, at(1_000));
    assert_eq!(over.map(|block| block.credit), Some(3));
    assert!(!matches!(pay(&mut lease, 1, 1_000), Payment::Paid(..)));
    assert_eq!(lease.take_expired(true, at(1_000)), None);
}

#[test]
fn a_refusal_is_cached_for_costs_that_are_as_large() {
    let mut lease: Lease<Handle> = Lease::default();
    assert!(matches!(pay(&mut lease, 5, 0), Payment::Forward));
    lease.refused(5, at(300));
    assert!(
        matches!(pay(&mut lease, 5, 1), Payment::Refused(wait) if wait == Span::from_millis(299))
    );
    assert!(matches!(pay(&mut lease, 4, 1), Payment::Forward));
    // A refund arrives.
    lease.forget_refusal();
    assert!(!matches!(pay(&mut lease, 5, 1), Payment::Refused(_)));
}

#[test]
fn a_busy_key_caches_a_refusal_for_a_horizon_and_never_longer_than_its_ttl() {
    let mut lease: Lease<Handle> = Lease::default();
    pay(&mut lease, 1, 0);
    let until =
        |lease: &Lease<Handle>, ms| lease.refused_until(&terms(), 1, at(0), Span::from_millis(ms));
    assert_eq!(until(&lease, 1), at(1));
    pay(&mut lease, 1, 0);
    assert_eq!(until(&lease, 1), at(50));
    assert_eq!(until(&lease, 100_000), at(1_000));
}

#[test]
fn a_short_grant_refuses_when_it_is_used_up() {
    let mut lease = Lease::default();
    pay(&mut lease, 1, 0);
    let first = wanted(pay(&mut lease, 1, 0));
    lease.start_borrow(first, 1);
    let short = Next::Refuse {
        cost: 1,
        until: at(50),
    };
    lease.finish_borrow(Some(block(1, 0)), short);
    assert!(matches!(pay(&mut lease, 1, 1), Payment::Paid(..)));
    assert!(matches!(pay(&mut lease, 1, 2), Payment::Refused(_)));
    assert!(matches!(pay(&mut lease, 1, 50), Payment::Borrow(_)));
}

#[test]
fn after_a_lost_answer_the_store_decides_each_charge() {
    let mut lease = Lease::default();
    pay(&mut lease, 1, 0);
    let first = wanted(pay(&mut lease, 1, 0));
    lease.start_borrow(first, 1);
    lease.finish_borrow(None, Next::Exact { until: at(1_000) });
    for _ in 0..5 {
        assert!(matches!(pay(&mut lease, 1, 10), Payment::Forward));
    }
    pay(&mut lease, 1, 1_000);
    assert!(matches!(pay(&mut lease, 1, 1_000), Payment::Borrow(_)));
}

/// The store's outcome of a charge that it granted.
fn granted(status: QuotaStatus) -> Outcome {
    Outcome {
        status,
        ..Outcome::open(at(0))
    }
}

#[test]
fn the_next_block_is_prefetched_when_little_is_left_and_the_limit_is_far() {
    let mut lease = leased(20);
    let far = QuotaStatus {
        remaining: 900,
        full_after: Span::from_millis(100),
        next_after: Span::ZERO,
    };
    lease.record_status(&granted(far), 1, at(0));
    assert_eq!(lease.prefetch(&terms(), at(1)), None, "much is left");
    for _ in 0..19 {
        assert!(matches!(pay(&mut lease, 1, 1), Payment::Paid(..)));
    }
    let next = lease.prefetch(&terms(), at(1)).unwrap();
    assert_eq!(next.cost, 0);
    lease.start_borrow(next, 2);
    assert!(matches!(lease.state, State::Prefetching { .. }));
    assert!(matches!(pay(&mut lease, 1, 2), Payment::Paid(..)));
    assert!(matches!(pay(&mut lease, 1, 2), Payment::Wait(2)));
    lease.finish_borrow(Some(block(20, 2)), Next::Borrow);
    assert!(matches!(pay(&mut lease, 1, 3), Payment::Paid(..)));
    assert_eq!(lease.credit(), 19);
}

#[test]
fn near_the_limit_nothing_is_prefetched_and_a_block_is_half_of_what_is_left() {
    let mut lease: Lease<Handle> = Lease::default();
    for _ in 0..200 {
        lease.record(&terms(), 1, at(0));
    }
    let near = QuotaStatus {
        remaining: 100,
        full_after: Span::from_millis(900),
        next_after: Span::ZERO,
    };
    lease.record_status(&granted(near), 1, at(0));
    let half = wanted(lease.pay(&terms(), 1, 1, at(0)));
    assert_eq!((half.extra, half.is_short), (50, true));
    lease.start_borrow(half, 1);
    lease.finish_borrow(Some(block(1, 0)), Next::Borrow);
    lease.record_status(&granted(near), 1, at(0));
    assert_eq!(lease.prefetch(&terms(), at(0)), None);
}

#[test]
fn what_is_put_back_goes_to_the_block_that_paid_and_never_makes_the_lease_too_large() {
    let mut lease = leased(20);
    let most = terms().block_max(1);
    assert!(matches!(pay(&mut lease, 5, 1), Payment::Paid(..)));
    assert!(lease.put_back(5, at(0), at(2)));
    assert_eq!(lease.credit(), 20);
    assert!(!lease.put_back(5, at(1), at(2)), "of another block");
    assert!(!lease.put_back(most, at(0), at(2)), "too much");
    assert!(!lease.put_back(5, at(0), at(1_000)), "its term is over");
}

#[test]
fn a_second_block_that_is_empty_makes_room_for_the_next() {
    let mut lease = leased(1);
    let next = BorrowRequest {
        cost: 0,
        extra: 2,
        is_short: false,
    };
    lease.start_borrow(next, 2);
    lease.finish_borrow(Some(block(2, 1)), Next::Borrow);
    // Too large for the first block.
    assert!(matches!(pay(&mut lease, 2, 2), Payment::Paid(block, _) if block.issued == at(1)));
    assert!(matches!(
        lease.state,
        State::Leased {
            following: None,
            ..
        }
    ));
}

#[test]
fn with_more_nodes_a_lease_is_smaller_and_a_limit_that_is_too_small_is_not_leased() {
    let terms = terms();
    assert_eq!(terms.block_max(1), 250);
    assert_eq!(terms.block_max(4), 62);
    assert_eq!(terms.block_max(251), 0);
    let mut lease: Lease<Handle> = Lease::default();
    for _ in 0..100 {
        lease.record(&terms, 1, at(0));
    }
    assert!(matches!(lease.pay(&terms, 251, 1, at(0)), Payment::Forward));
}

#[test]
fn an_entry_is_dropped_when_it_holds_no_state() {
    let mut lease = leased(3);
    assert!(!lease.is_unused(&terms(), at(500)));
    assert!(lease.is_quiet(&terms(), at(500)));
    assert!(lease.take_expired(true, at(500)).is_some());
    assert!(lease.is_unused(&terms(), at(500)));
    lease.refused(1, at(900));
    assert!(!lease.is_unused(&terms(), at(500)));
    assert!(lease.is_unused(&terms(), at(900)));
}
