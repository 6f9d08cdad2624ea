//! A leaky bucket in front of a server: requests reach it at a constant rate.

use std::time::Duration;
use tollgate_testkit::wait;

use crate::support::{TestGateway, reply};
use crate::upstream::Upstream;

const POLICY: &str = "default: pass\nlimits:\n  - { name: all, algorithm: leaky-bucket, allow: 20/s, queue: 9, max_wait: 5s }\n";
/// The time between two requests.
const SLOT: Duration = Duration::from_millis(50);
/// How much earlier than its slot a request may seem to come: clocks are read after the fact.
const EARLY: Duration = Duration::from_millis(5);

#[test]
fn a_burst_is_paced_and_its_excess_refused() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(POLICY, upstream.port);
    let mut clients: Vec<_> = (0..20).map(|_| gateway.send("/", "")).collect();
    let answers: Vec<_> = clients.iter_mut().map(reply).collect();
    let passed = answers.iter().filter(|a| a.status == 200).count();
    // Some time may pass while they are sent, and a slot with it.
    assert!((9..=13).contains(&passed), "{passed}");
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(refused.status, 429, "{refused:?}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), passed);
    let delayed = "tollgate_decisions_total{limit=\"all\",verdict=\"wait\",reason=\"limit\",protocol=\"gateway\"}";
    assert_eq!(gateway.admitted() + gateway.metric(delayed), passed as u64);
    let came: Vec<_> = seen.iter().map(|s| s.at - seen[0].at).collect();
    for (slots, came) in (0..).zip(&came) {
        assert!(*came + EARLY >= SLOT * slots, "{slots}: {came:?}");
        assert!(*came < SLOT * (slots + 10), "{slots}: {came:?}");
    }
}

#[test]
fn the_slot_of_a_disconnected_client_stays_idle() {
    let upstream = Upstream::start();
    let policy = POLICY.replace("20/s", "4/s");
    let gateway = TestGateway::before(&policy, upstream.port);
    assert_eq!(gateway.get("/first").status, 200);
    // It waits for 250 ms, those behind it for as much more each.
    let gone = gateway.send("/gone", "");
    crate::support::pause(30);
    let mut next = gateway.send("/next", "");
    crate::support::pause(30);
    drop(gone);
    assert_eq!(reply(&mut next).status, 200);
    wait("it was seen", || upstream.count() == 2);
    assert_eq!(upstream.targets(), ["/first", "/next"]);
    let seen = upstream.seen();
    let apart = seen[1].at - seen[0].at;
    // Not at the slot of the one that is gone, 250 ms after the first.
    assert!((450..900).contains(&apart.as_millis()), "{apart:?}");
}
