//! Costs reported after the work: a cost above the remaining quota charges the remainder.

use tollgate_server::rls::messages::Code;

use super::client::{Server, brief, hits, of};

const POLICY: &str = "
default: pass
limits:
  - { name: tokens, match: { domain: edge, entries: [{ user: true }] }, key: descriptor.user, algorithm: fixed-window, allow: 100/day, when_over: take-rest }
  - { name: bucket, match: { domain: edge, entries: [{ bucket: true }] }, key: descriptor.bucket, allow: 1/h, burst: 100, when_over: take-rest }
  - { name: log, match: { domain: edge, entries: [{ log: true }] }, key: descriptor.log, algorithm: sliding-log, allow: 100/day, when_over: take-rest }
  - { name: sliding, match: { domain: edge, entries: [{ sliding: true }] }, key: descriptor.sliding, algorithm: sliding-window, allow: 100/day, when_over: take-rest }
  - { name: calendar, match: { domain: edge, entries: [{ calendar: true }] }, key: descriptor.calendar, allow: 100, calendar: { every: month }, when_over: take-rest }
  - { name: plain, match: { domain: edge, entries: [{ plain: true }] }, key: descriptor.plain, algorithm: fixed-window, allow: 100/day }
  - { name: shadow, match: { domain: edge, entries: [{ shadow: true }] }, key: descriptor.shadow, algorithm: fixed-window, allow: 100/day, mode: shadow, when_over: take-rest }
";

async fn left(server: &Server, key: &str, count: u64) -> (Code, u32) {
    let (code, statuses) = brief(&server.edge(&[hits(&[(key, "a")], count)]).await);
    (code, statuses[0].2)
}

#[tokio::test]
async fn a_late_cost_above_the_remaining_quota_charges_the_remainder() {
    let server = Server::start(POLICY).await;
    for key in ["user", "bucket", "log", "sliding", "calendar"] {
        assert_eq!(left(&server, key, 70).await, (Code::Ok, 30), "{key}");
        // The status is still over limit.
        assert_eq!(left(&server, key, 31).await, (Code::OverLimit, 0), "{key}");
        // The next request is refused before it does any work.
        assert_eq!(left(&server, key, 0).await, (Code::OverLimit, 0), "{key}");
        assert_eq!(left(&server, key, 1).await.0, Code::OverLimit, "{key}");
    }
}

#[tokio::test]
async fn a_client_that_always_reports_too_much_is_limited() {
    let server = Server::start(POLICY).await;
    for key in ["user", "bucket", "log", "sliding", "calendar"] {
        let mut passed = 0;
        for _ in 0..10 {
            // Checked before the work, reported after it.
            if left(&server, key, 0).await.0 == Code::Ok {
                passed += 1;
                assert_eq!(left(&server, key, 1_000_000).await.0, Code::OverLimit);
            }
        }
        assert_eq!(passed, 1, "{key}");
    }
    // Without the setting it never is.
    for _ in 0..10 {
        assert_eq!(left(&server, "plain", 0).await, (Code::Ok, 100));
        assert_eq!(left(&server, "plain", 1_000_000).await.0, Code::OverLimit);
    }
}

#[tokio::test]
async fn a_late_cost_is_charged_though_another_limit_refuses() {
    let server = Server::start(POLICY).await;
    assert_eq!(left(&server, "plain", 95).await, (Code::Ok, 5));
    let both = [hits(&[("user", "a")], 10), hits(&[("plain", "a")], 10)];
    assert_eq!(brief(&server.edge(&both).await).0, Code::OverLimit);
    assert_eq!(left(&server, "user", 0).await, (Code::Ok, 90));
    assert_eq!(left(&server, "plain", 0).await, (Code::Ok, 5));
}

#[tokio::test]
async fn a_check_with_zero_hits_charges_nothing() {
    let server = Server::start(POLICY).await;
    assert_eq!(left(&server, "user", 100).await, (Code::Ok, 0));
    let both = [hits(&[("bucket", "a")], 5), hits(&[("user", "a")], 0)];
    // Refused by a question, so it was never charged: it comes before the work.
    assert_eq!(brief(&server.edge(&both).await).0, Code::OverLimit);
    assert_eq!(left(&server, "bucket", 0).await, (Code::Ok, 100));
}

#[tokio::test]
async fn a_shadow_limit_counts_as_if_it_were_enforced() {
    let server = Server::start(POLICY).await;
    assert_eq!(left(&server, "shadow", 1_000).await, (Code::Ok, 0));
    assert_eq!(left(&server, "shadow", 1).await, (Code::Ok, 0));
    let refused = "tollgate_shadow_refusals_total{limit=\"shadow\",role=\"shadow\"}";
    assert_eq!(server.metric(refused), 2);
}

#[tokio::test]
async fn other_keys_are_not_charged() {
    let server = Server::start(POLICY).await;
    assert_eq!(left(&server, "user", 1_000).await.0, Code::OverLimit);
    let (code, statuses) = brief(&server.edge(&[of(&[("user", "b")])]).await);
    assert_eq!((code, statuses[0].2), (Code::Ok, 99));
}
