//! Overrides: limits in a request, where the policy follows the domain.

use tollgate_policy::{self, Facts};
use tollgate_server::rls::messages::{
    Code, LimitOverrideMessage, RateLimitDescriptor, UnitMessage,
};

use super::client::{Server, brief, hits, of};

const POLICY: &str = "
default: pass
domains: [{ name: edge, follow_request_limits: true }, { name: other, follow_request_limits: false }]
deny: [{ name: thief, match: { domain: edge, descriptor: { user: thief } } }]
limits:
  - { name: user, match: { domain: edge, entries: [{ user: true }] }, key: descriptor.user, algorithm: fixed-window, allow: 2/day }
  - { name: path, match: { domain: edge, entries: [{ path: true }] }, key: descriptor.path, algorithm: fixed-window, allow: 1/day }
";

/// The same descriptor with a limit of its own.
fn with(descriptor: RateLimitDescriptor, most: u32, unit: i32) -> RateLimitDescriptor {
    RateLimitDescriptor {
        limit: Some(LimitOverrideMessage {
            requests_per_unit: most,
            unit,
        }),
        ..descriptor
    }
}

fn year(entries: &[(&str, &str)], most: u32) -> RateLimitDescriptor {
    with(of(entries), most, UnitMessage::Year as i32)
}

const ANN: [(&str, &str); 1] = [("user", "ann")];
const IGNORED: &str = "tollgate_rls_ignored_overrides_total";

/// The code and what is left, of a single descriptor.
async fn left(server: &Server, asked: RateLimitDescriptor) -> (Code, u32) {
    let (code, statuses) = brief(&server.edge(&[asked]).await);
    (code, statuses[0].2)
}

#[tokio::test]
async fn an_override_replaces_the_limits_of_the_policy() {
    let server = Server::start(POLICY).await;
    let expected = Some((4, UnitMessage::Year as i32));
    for left in [3, 2, 1, 0] {
        let answer = server.edge(&[year(&ANN, 4)]).await;
        assert_eq!(brief(&answer), (Code::Ok, vec![(Code::Ok, expected, left)]));
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!(limit.name, "request-limits");
        let reset = status.duration_until_reset.unwrap().seconds;
        assert!((0..=365 * 86_400).contains(&reset), "{reset}");
        let headers = &answer.response_headers_to_add;
        let policy = headers.iter().find(|h| h.key == "ratelimit-policy");
        let policy = policy.map(|h| h.value.as_str());
        assert_eq!(policy, Some("\"request-limits\";q=4;w=31536000"));
    }
    let over = brief(&server.edge(&[year(&ANN, 4)]).await);
    let expected = vec![(Code::OverLimit, expected, 0)];
    assert_eq!(over, (Code::OverLimit, expected));
    // Neither the limit of the policy nor another key was charged.
    assert_eq!(left(&server, of(&ANN)).await, (Code::Ok, 1));
    assert_eq!(left(&server, year(&[("user", "bob")], 4)).await.1, 3);
    assert_eq!(server.metric(IGNORED), 0);
    let admitted = "tollgate_decisions_total{limit=\"request-limits\",verdict=\"pass\",reason=\"limit\",protocol=\"rls\"}";
    assert_eq!(server.metric(admitted), 5);
    let (top, _) = server.engine.top_refused();
    assert_eq!(top[0].key, ["edge", "user=ann"]);
}

#[tokio::test]
async fn an_override_is_decided_with_the_limits_of_other_descriptors() {
    let server = Server::start(POLICY).await;
    let both = [year(&ANN, 3), of(&[("path", "/a")])];
    assert_eq!(brief(&server.edge(&both).await).0, Code::Ok);
    for _ in 0..3 {
        let (code, statuses) = brief(&server.edge(&both).await);
        assert_eq!(code, Code::OverLimit);
        // Refused by the policy's limit, so nothing of the other was taken.
        assert_eq!((statuses[0].0, statuses[0].2), (Code::Ok, 2));
        assert_eq!(statuses[1].0, Code::OverLimit);
    }
    let both = [year(&ANN, 1), of(&[("path", "/b")])];
    for _ in 0..3 {
        let (code, statuses) = brief(&server.edge(&both).await);
        assert_eq!(code, Code::OverLimit);
        assert_eq!(statuses[0].0, Code::OverLimit);
        assert_eq!((statuses[1].0, statuses[1].2), (Code::Ok, 1));
    }
}

#[tokio::test]
async fn a_changed_number_keeps_usage_and_a_changed_unit_does_not() {
    let server = Server::start(POLICY).await;
    let ask = |most| left(&server, year(&ANN, most));
    assert_eq!(ask(10).await, (Code::Ok, 9));
    assert_eq!(ask(10).await, (Code::Ok, 8));
    assert_eq!(ask(2).await, (Code::OverLimit, 0));
    assert_eq!(ask(3).await, (Code::Ok, 0));
    assert_eq!(ask(100).await, (Code::Ok, 96));
    let by_month = with(of(&ANN), 10, UnitMessage::Month as i32);
    assert_eq!(left(&server, by_month).await, (Code::Ok, 9));
}

#[tokio::test]
async fn all_units_are_applied_and_reported_as_sent() {
    let server = Server::start(POLICY).await;
    let units = [
        (UnitMessage::Second, 1),
        (UnitMessage::Minute, 60),
        (UnitMessage::Hour, 3_600),
        (UnitMessage::Day, 86_400),
        (UnitMessage::Month, 30 * 86_400),
        (UnitMessage::Year, 365 * 86_400),
    ];
    for (unit, seconds) in units {
        let answer = server.edge(&[with(of(&ANN), 7, unit as i32)]).await;
        let expected = Some((7, unit as i32));
        assert_eq!(brief(&answer), (Code::Ok, vec![(Code::Ok, expected, 6)]));
        let reset = answer.statuses[0].duration_until_reset.unwrap();
        assert!(reset.seconds <= seconds, "{unit:?}: {reset:?}");
    }
}

#[tokio::test]
async fn hits_peeks_and_refunds_work_on_overrides() {
    let server = Server::start(POLICY).await;
    let some = |count| with(hits(&ANN, count), 10, UnitMessage::Year as i32);
    assert_eq!(left(&server, some(0)).await, (Code::Ok, 10));
    assert_eq!(left(&server, some(8)).await, (Code::Ok, 2));
    assert_eq!(left(&server, some(3)).await, (Code::OverLimit, 0));
    let back = RateLimitDescriptor {
        is_negative_hits: true,
        ..some(5)
    };
    assert_eq!(left(&server, back).await, (Code::Ok, 7));
    assert_eq!(left(&server, some(7)).await, (Code::Ok, 0));
    assert_eq!(left(&server, some(0)).await, (Code::OverLimit, 0));
}

#[tokio::test]
async fn of_two_overrides_of_one_descriptor_the_lower_applies() {
    let server = Server::start(POLICY).await;
    let twice = [year(&ANN, 5), year(&ANN, 3)];
    let (code, statuses) = brief(&server.edge(&twice).await);
    assert_eq!((code, statuses[0].2, statuses[1].2), (Code::Ok, 1, 1));
    assert_eq!(brief(&server.edge(&twice).await).0, Code::OverLimit);
}

#[tokio::test]
async fn an_override_of_zero_refuses_all_requests() {
    let server = Server::start(POLICY).await;
    let answer = server.edge(&[year(&ANN, 0)]).await;
    let expected = Some((0, UnitMessage::Year as i32));
    let over = (Code::OverLimit, vec![(Code::OverLimit, expected, 0)]);
    assert_eq!(brief(&answer), over);
    // No waiting helps.
    assert_eq!(answer.statuses[0].duration_until_reset, None);
    let peek = with(hits(&ANN, 0), 0, UnitMessage::Year as i32);
    assert_eq!(left(&server, peek).await, (Code::OverLimit, 0));
    let (code, statuses) = brief(&server.edge(&[year(&ANN, u32::MAX)]).await);
    // One less than can be sent fits into a window.
    let expected = Some((u32::MAX - 1, UnitMessage::Year as i32));
    assert_eq!((code, statuses[0].1), (Code::Ok, expected));
    assert_eq!(statuses[0].2, u32::MAX - 2);
    let huge = with(hits(&ANN, u64::MAX), u32::MAX, UnitMessage::Year as i32);
    let answer = server.edge(&[huge]).await;
    assert_eq!(brief(&answer).0, Code::OverLimit);
    assert_eq!(answer.statuses[0].duration_until_reset, None);
    assert_eq!(left(&server, year(&ANN, 3)).await, (Code::Ok, 1));
}

#[tokio::test]
async fn an_unknown_unit_is_counted_and_the_policy_applies() {
    let server = Server::start(POLICY).await;
    for (unit, left_then) in [(0, 1), (4_711, 0)] {
        let asked = with(of(&ANN), 1_000, unit);
        assert_eq!(left(&server, asked).await, (Code::Ok, left_then));
    }
    for unit in [UnitMessage::Week as i32, -1, i32::MAX] {
        let asked = with(of(&ANN), 1_000, unit);
        assert_eq!(left(&server, asked).await, (Code::OverLimit, 0));
    }
    assert_eq!(server.metric(IGNORED), 5);
}

#[tokio::test]
async fn overrides_apply_only_in_followed_domains() {
    let server = Server::start(POLICY).await;
    for domain in ["other", "Edge", "edge2"] {
        let mut asked = super::client::edge(&[year(&ANN, 0)]);
        asked.domain = domain.into();
        let answer = brief(&server.ask(asked).await.unwrap());
        assert_eq!(answer, (Code::Ok, vec![(Code::Ok, None, 0)]), "{domain}");
    }
    assert_eq!(server.metric(IGNORED), 3);
    assert_eq!(
        server.metric("tollgate_rls_unknown_domain_requests_total"),
        3
    );
}

#[tokio::test]
async fn an_override_does_not_lift_a_deny_list() {
    let server = Server::start(POLICY).await;
    let asked = year(&[("user", "thief")], 1_000);
    assert_eq!(brief(&server.edge(&[asked]).await).0, Code::OverLimit);
}

#[tokio::test]
async fn a_reload_keeps_usage_and_can_end_overrides() {
    let server = Server::start(POLICY).await;
    assert_eq!(left(&server, year(&ANN, 5)).await, (Code::Ok, 4));
    let reload = |text: &str| {
        let loaded = tollgate_config::parse("test", text.as_bytes());
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        let active = server.engine.active_owned();
        active.gate.reload(loaded.policy, Vec::new()).unwrap()
    };
    let more = POLICY.replace("default: pass", "default: pass\nkey_privacy: plain");
    let next = reload(&more);
    let facts = Facts {
        domain: "edge",
        descriptor: &ANN,
        limit_override: Some(tollgate_policy::LimitOverride {
            most: 5,
            unit: tollgate_policy::Unit::Year,
        }),
        ..Facts::default()
    };
    assert_eq!(next.admit(&facts).status.remaining, 3);
    let none = POLICY.replace(
        "follow_request_limits: true",
        "follow_request_limits: false",
    );
    let none = reload(&none);
    assert!(!none.follows("edge"));
    // The policy's own limit decides then.
    assert_eq!(none.admit(&facts).status.remaining, 1);
}
