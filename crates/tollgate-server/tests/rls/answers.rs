//! The status of each descriptor.

use tollgate_server::rls::messages::{Code, LimitOverrideMessage, RateLimitRequest, UnitMessage};

use super::client::{Server, brief, edge, of};

const POLICY: &str = "
default: pass
allow: [{ name: office, match: { domain: edge, descriptor: { office: true } } }]
deny: [{ name: thief, match: { domain: edge, descriptor: { user: thief } } }]
limits:
  - { name: bucket, match: { domain: edge, descriptor: { bucket: true } }, key: descriptor.bucket, allow: 5/min, burst: 3 }
  - { name: window, match: { domain: edge, descriptor: { window: true } }, key: descriptor.window, algorithm: fixed-window, allow: 2/day }
  - { name: sliding, match: { domain: edge, descriptor: { sliding: true } }, key: descriptor.sliding, algorithm: sliding-window, allow: 2/h }
  - { name: log, match: { domain: edge, descriptor: { log: true } }, key: descriptor.log, algorithm: sliding-log, allow: 2/h }
  - { name: week, match: { domain: edge, descriptor: { week: true } }, algorithm: fixed-window, allow: 7/7d }
  - { name: shadow, match: { domain: edge, descriptor: { shadow: true } }, algorithm: fixed-window, allow: 1/day, mode: shadow }
  - { name: narrow, match: { domain: edge, descriptor: { both: true } }, algorithm: fixed-window, allow: 2/day }
  - { name: wide, match: { domain: edge, descriptor: { both: true } }, algorithm: fixed-window, allow: 9/h }
  - { name: large, match: { domain: edge, descriptor: { large: true } }, allow: 1/h, burst: 2 }
";

#[tokio::test]
async fn every_algorithm_reports_its_limit_remaining_and_reset() {
    let server = Server::start(POLICY).await;
    let day = UnitMessage::Day as i32;
    let hour = UnitMessage::Hour as i32;
    for (key, limit, lefts) in [
        (
            "bucket",
            (5, UnitMessage::Minute as i32),
            [2, 1, 0].as_slice(),
        ),
        ("window", (2, day), &[1, 0]),
        ("sliding", (2, hour), &[1, 0]),
        ("log", (2, hour), &[1, 0]),
        (
            "week",
            (7, UnitMessage::Week as i32),
            &[6, 5, 4, 3, 2, 1, 0],
        ),
    ] {
        for left in lefts {
            let answer = server.edge(&[of(&[(key, "a")])]).await;
            let expected = (Code::Ok, vec![(Code::Ok, Some(limit), *left)]);
            assert_eq!(brief(&answer), expected, "{key}");
            let status = &answer.statuses[0];
            assert_eq!(status.current_limit.as_ref().unwrap().name, key);
            let reset = status.duration_until_reset.unwrap();
            assert!(reset.seconds > 0 && reset.nanos == 0, "{key} {reset:?}");
        }
        let answer = server.edge(&[of(&[(key, "a")])]).await;
        let expected = (Code::OverLimit, vec![(Code::OverLimit, Some(limit), 0)]);
        assert_eq!(brief(&answer), expected, "{key}");
    }
}

#[tokio::test]
async fn a_refused_descriptor_reports_when_the_same_request_passes() {
    let server = Server::start(POLICY).await;
    for _ in 0..3 {
        server.edge(&[of(&[("bucket", "a")])]).await;
    }
    let refused = server.edge(&[of(&[("bucket", "a")])]).await;
    let reset = refused.statuses[0].duration_until_reset.unwrap();
    // One is earned in twelve seconds.
    assert!((10..=12).contains(&reset.seconds), "{reset:?}");
    let headers = &refused.response_headers_to_add;
    let header = |name: &str| {
        let mut all = refused.response_headers_to_add.iter();
        all.find(|h| h.key == name).map(|h| h.value.clone())
    };
    assert!(headers.len() > 2);
    assert_eq!(header("retry-after").as_deref(), Some("12"));
    assert_eq!(header("ratelimit").as_deref(), Some("\"bucket\";r=0;t=12"));
    assert_eq!(
        header("ratelimit-policy").as_deref(),
        Some("\"bucket\";q=3;w=36")
    );
    assert_eq!(header("cache-control").as_deref(), Some("no-store"));
    // Those are Envoy's, made of the statuses.
    assert_eq!(header("x-ratelimit-limit"), None);
}

/// Envoy drops the fraction of the duration, so a client that waits for it must not return too early.
#[tokio::test]
async fn the_reset_of_a_refused_descriptor_is_in_whole_seconds_rounded_up_and_at_least_one() {
    let server = Server::start(
        "
default: pass
limits:
  - { name: fast, match: { descriptor: { fast: true } }, allow: 10/4s, burst: 1 }
  - { name: slow, match: { descriptor: { slow: true } }, allow: 10/12s, burst: 1 }
",
    )
    .await;
    for (key, seconds) in [("fast", 1), ("slow", 2)] {
        server.edge(&[of(&[(key, "a")])]).await;
        let refused = server.edge(&[of(&[(key, "a")])]).await;
        assert_eq!(refused.statuses[0].code(), Code::OverLimit, "{key}");
        let reset = refused.statuses[0].duration_until_reset.unwrap();
        assert_eq!((reset.seconds, reset.nanos), (seconds, 0), "{key}");
    }
}

#[tokio::test]
async fn an_unused_window_still_reports_its_end() {
    let server = Server::start(POLICY).await;
    let peek = super::client::hits(&[("window", "new")], 0);
    let answer = server.edge(&[peek]).await;
    let reset = answer.statuses[0].duration_until_reset.unwrap();
    assert!((1..=86_400).contains(&reset.seconds), "{reset:?}");
    assert_eq!(answer.statuses[0].limit_remaining, 2);
}

#[tokio::test]
async fn a_descriptor_without_a_limit_passes() {
    let server = Server::start(POLICY).await;
    let free = (Code::Ok, vec![(Code::Ok, None, 0)]);
    let answer = server.edge(&[of(&[("other", "a")])]).await;
    assert_eq!(brief(&answer), free);
    assert!(answer.response_headers_to_add.is_empty());
    assert_eq!(
        server.metric("tollgate_rls_unknown_domain_requests_total"),
        0
    );
    let unknown = RateLimitRequest {
        domain: "egde".into(),
        ..edge(&[of(&[("bucket", "a")])])
    };
    assert_eq!(brief(&server.ask(unknown).await.unwrap()), free);
    assert_eq!(
        server.metric("tollgate_rls_unknown_domain_requests_total"),
        1
    );
}

#[tokio::test]
async fn a_shadow_limit_is_reported_and_never_refuses() {
    let server = Server::start(POLICY).await;
    let day = UnitMessage::Day as i32;
    for _ in 0..3 {
        let answer = server.edge(&[of(&[("shadow", "a")])]).await;
        assert_eq!(
            brief(&answer),
            (Code::Ok, vec![(Code::Ok, Some((1, day)), 0)])
        );
    }
    let refused = "tollgate_shadow_refusals_total{limit=\"shadow\",role=\"shadow\"}";
    assert_eq!(server.metric(refused), 2);
}

#[tokio::test]
async fn a_descriptor_reports_the_tightest_of_its_limits() {
    let server = Server::start(POLICY).await;
    let answer = server.edge(&[of(&[("both", "a")])]).await;
    let status = &answer.statuses[0];
    assert_eq!(status.current_limit.as_ref().unwrap().name, "narrow");
    assert_eq!(status.limit_remaining, 1);
}

#[tokio::test]
async fn lists_apply_to_each_descriptor() {
    let server = Server::start(POLICY).await;
    let answer = server
        .edge(&[of(&[("office", "1"), ("bucket", "x")])])
        .await;
    assert_eq!(brief(&answer), (Code::Ok, vec![(Code::Ok, None, u32::MAX)]));
    let both = [of(&[("bucket", "x")]), of(&[("user", "thief")])];
    let (overall, statuses) = brief(&server.edge(&both).await);
    assert_eq!(overall, Code::OverLimit);
    assert_eq!(statuses[0].0, Code::Ok);
    assert_eq!(statuses[1], (Code::OverLimit, None, 0));
    // Nothing was taken for the other one.
    assert_eq!(statuses[0].2, 3);
}

#[tokio::test]
async fn a_cost_above_the_burst_is_over_limit_without_a_reset() {
    let server = Server::start(POLICY).await;
    let asked = super::client::hits(&[("large", "a")], u64::MAX);
    let answer = server.edge(&[asked]).await;
    assert_eq!(brief(&answer).0, Code::OverLimit);
    assert_eq!(answer.statuses[0].duration_until_reset, None);
}

#[tokio::test]
async fn an_override_of_a_domain_without_follow_is_ignored_and_counted() {
    let server = Server::start(POLICY).await;
    let mut asked = of(&[("window", "mine")]);
    asked.limit = Some(LimitOverrideMessage {
        requests_per_unit: 1_000_000,
        unit: UnitMessage::Second as i32,
    });
    let answer = server.edge(&[asked]).await;
    let day = UnitMessage::Day as i32;
    assert_eq!(
        brief(&answer),
        (Code::Ok, vec![(Code::Ok, Some((2, day)), 1)])
    );
    assert_eq!(server.metric("tollgate_rls_ignored_overrides_total"), 1);
}

#[tokio::test]
async fn decisions_are_counted_under_the_protocol_rls() {
    let server = Server::start(POLICY).await;
    for _ in 0..3 {
        server.edge(&[of(&[("window", "a")])]).await;
    }
    let series = |verdict: &str| {
        format!(
            "tollgate_decisions_total{{limit=\"window\",verdict=\"{verdict}\",reason=\"limit\",protocol=\"rls\"}}"
        )
    };
    assert_eq!(server.metric(&series("pass")), 2);
    assert_eq!(server.metric(&series("refuse")), 1);
    let (top, _) = server.engine.top_refused();
    assert_eq!(top[0].key, ["a"]);
}
