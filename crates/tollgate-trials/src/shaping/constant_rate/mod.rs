//! Waves of requests through a leaky bucket of 300 per second, and through queues with the same rate.
//!
//! # Theory
//!
//! The timeline is the golden one of the leaky bucket at a tenth of its size: 400, 250, 320 and 600 requests come at 0,
//! 1, 2 and 3 seconds, 500 may wait. At 3 seconds 70 still wait, so 430 of the 600 fit and 170 do not; the
//! queue is empty after 4.67 seconds. A wave takes some milliseconds to arrive, and in each 3.3 of them one slot
//! becomes free. So the same is done at a hundredth of the size beside it, where 33 milliseconds are between two: there the
//! number of those refused has to be exactly 17.
//!
//! The upstream records when it receives each request. Slot number `i` begins at `i / rate`, and tokio's timer lets its request
//! go at most a millisecond later, its granularity, and never before; then the scheduler and the way to the upstream take
//! their time. So a window of the length `w` may hold `1 + (w + jitter) * rate` of them: one that goes at once, what the
//! rate gives, and those that were late by less than [`JITTER`] from before. How late they are is printed.
//!
//! A leaky bucket is a limit, which gives each request its slot on arrival; a queue with a rate decides at each turn which
//! request is next. For clients and upstream the timeline is the same, so both have to keep it.
//!
//! Meanwhile in a third queue clients disconnect while they wait ([`abandoned`]).

mod abandoned;
mod waves;

use std::time::{Duration, Instant};

use super::gateway::{self, before};
use super::measure::{lateness, most_in_a_window, quantile, spacings};
use super::runtime;
use super::upstream::{ReceivedRequest, Upstream};
use crate::trials::TrialOptions;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::now;
use waves::{Responses, Size};

/// How late a request may reach the upstream on an idle machine.
const JITTER: Duration = Duration::from_millis(10);
/// How late the last request of a wave may be sent, for the timeline to be the golden one.
const LATENESS: Duration = Duration::from_millis(50);
/// How soon after the start the first wave comes.
const BEGIN: Duration = Duration::from_millis(1000);
/// How much later the waves of the leaky bucket come: between those of the queues, so that neither load makes the other
/// late.
const APART: Duration = Duration::from_millis(500);
/// How far from the truth the end may be.
const END_JITTER: Duration = Duration::from_millis(100);

const LEAKY: Size = Size {
    name: "leaky",
    rate: 300,
    waiting: 500,
    waves: [400, 250, 320, 600],
    refused: 170,
};
const TENTH: Size = Size {
    name: "tenth",
    rate: 300,
    waiting: 500,
    waves: [400, 250, 320, 600],
    refused: 170,
};
const HUNDREDTH: Size = Size {
    name: "hundredth",
    rate: 30,
    waiting: 50,
    waves: [40, 25, 32, 60],
    refused: 17,
};

pub(crate) fn run(_: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let start = now();
    let upstream = Upstream::quick(start)?;
    let gateway = gateway::start(&policy(upstream.port()))?;
    let port = gateway.port();
    let begin = now() + BEGIN;
    let (leaky, tenth, hundredth, abandoned_result) = runtime()?.block_on(async {
        tokio::join!(
            waves::send(&LEAKY, port, begin + APART),
            waves::send(&TENTH, port, begin),
            waves::send(&HUNDREDTH, port, begin),
            abandoned::send(port, begin),
        )
    });
    // Moments of the upstream count from the start of the trial, those of a load from its first wave.
    let seen = upstream.seen();
    let since = |first: Instant| -> Vec<ReceivedRequest> {
        let offset = first.saturating_duration_since(start);
        let moved = seen.iter().cloned().map(|mut request| {
            request.at = request.at.saturating_sub(offset);
            request
        });
        moved.collect()
    };
    check(verdicts, &LEAKY, &leaky?, &since(begin + APART));
    let received = since(begin);
    check(verdicts, &TENTH, &tenth?, &received);
    check(verdicts, &HUNDREDTH, &hundredth?, &received);
    abandoned::check(verdicts, &abandoned_result?, &received);
    Ok(())
}

fn policy(upstream: u16) -> String {
    let queue = |size: &Size| {
        format!(
            "  - {{ name: {0}, match: {{ path: /{0}/** }}, rate: {1}/s, waiting: {2}, waiting_per_flow: {2}, \
             max_wait: 60s }}\n",
            size.name, size.rate, size.waiting
        )
    };
    let limit = format!(
        "  - {{ name: {0}, match: {{ path: /{0}/** }}, algorithm: leaky-bucket, allow: {1}/s, queue: {2} }}\n",
        LEAKY.name, LEAKY.rate, LEAKY.waiting
    );
    format!(
        "version: 1\ndefault: pass\nlimits:\n{limit}queues:\n{}{}{}{}",
        queue(&TENTH),
        queue(&HUNDREDTH),
        abandoned::queue(),
        before(upstream)
    )
}

fn check(verdicts: &mut Verdicts, size: &Size, load: &Responses, all: &[ReceivedRequest]) {
    let name = size.name;
    let golden = size.of_waves(all);
    let passed = load.passed();
    verdicts.promise(
        &format!(
            "{name}: every request passes or is refused, and what passes reaches the upstream once"
        ),
        passed + load.refused() == size.offered()
            && passed == golden.len()
            && load.are_sent_once(&golden),
        format!(
            "{} offered, {passed} passed, {} refused, {} seen",
            size.offered(),
            load.refused(),
            golden.len()
        ),
    );
    let early = load.refused_before_the_last_wave();
    verdicts.promise_undisturbed(
        &format!("{name}: no request of the first three waves is refused"),
        early == 0,
        format!("{early} are"),
    );
    let possible = load.possible_refusals(size, &golden);
    verdicts.promise(
        &format!("{name}: exactly the requests without a free slot are refused"),
        possible.contains(&load.refused()),
        format!("{} of {possible:?}", load.refused()),
    );
    check_count(verdicts, size, load);
    // A load that is late by a second sends two waves at once.
    verdicts.promise_undisturbed(
        &format!("{name}: waves are served in their order"),
        golden.is_sorted_by_key(|request| waves::wave_of(&request.id)),
        format!("{} seen", golden.len()),
    );
    check_refusals(verdicts, size, load);
    check_rate(verdicts, size, &golden);
}

fn check_count(verdicts: &mut Verdicts, size: &Size, load: &Responses) {
    let (name, refused) = (size.name, load.refused());
    verdicts.promise_time(
        &format!(
            "{name}: the load itself is late by at most {}",
            time(LATENESS)
        ),
        LATENESS,
        Some(load.lateness(size)),
    );
    let took = load.arrival_of_the_last_wave();
    verdicts.figure(&format!("{name}: the last wave arrives within"), time(took));
    let freed = size.freed_within(took);
    verdicts.promise_undisturbed(
        &format!(
            "{name}: {} are refused, less one for each slot that becomes free while they arrive",
            size.refused
        ),
        (size.refused - freed.min(size.refused)..=size.refused).contains(&refused),
        format!("{refused}, with {freed} slots"),
    );
}

fn check_refusals(verdicts: &mut Verdicts, size: &Size, load: &Responses) {
    let name = size.name;
    let hints = load.retry_afters();
    let missing = hints
        .iter()
        .filter(|hint| hint.is_none_or(|seconds| seconds == 0));
    let missing = missing.count();
    verdicts.promise(
        &format!("{name}: every refusal has a `Retry-After`"),
        missing == 0,
        format!("{missing} of {} have none", hints.len()),
    );
    let most = size.waiting.div_ceil(size.rate);
    let latest = hints.iter().flatten().max().copied().unwrap_or_default();
    verdicts.promise_undisturbed(
        &format!("{name}: it is not longer than the queue takes to drain, {most} s"),
        latest <= most,
        format!("{latest} s at the latest"),
    );
    let retry = load.retried();
    verdicts.promise(
        &format!("{name}: a retry after that passes"),
        retry.iter().all(|&status| status == 200) && !retry.is_empty(),
        format!("{retry:?}"),
    );
}

fn check_rate(verdicts: &mut Verdicts, size: &Size, golden: &[ReceivedRequest]) {
    let name = size.name;
    let moments: Vec<Duration> = golden.iter().map(|request| request.at).collect();
    for ms in [100, 1000] {
        let window = Duration::from_millis(ms);
        let most = 1 + size.freed_within(window + JITTER);
        let seen = most_in_a_window(&moments, window);
        verdicts.promise_undisturbed(
            &format!("{name}: at most {most} in any {}", time(window)),
            seen <= most,
            seen,
        );
    }
    let mut late = lateness(&moments, size.rate);
    for (rank, per_mille) in [("p50", 500), ("p99", 990), ("most", 1000)] {
        let late = quantile(&mut late, per_mille);
        verdicts.figure(&format!("{name}: after its slot, {rank}"), time(late));
    }
    let mut spacings = spacings(&moments);
    for (rank, per_mille) in [("p1", 10), ("p50", 500), ("p99", 990), ("most", 1000)] {
        let spacing = quantile(&mut spacings, per_mille);
        verdicts.figure(&format!("{name}: spacing, {rank}"), time(spacing));
    }
    let end = moments.last().copied().unwrap_or_default();
    let expected = size.empty_after();
    verdicts.promise_undisturbed(
        &format!("{name}: empty after {}", time(expected)),
        end.abs_diff(expected) <= END_JITTER,
        time(end),
    );
}
