//! Tests of the header fields and the bodies of responses.

use super::super::{
    BurstCredits, Facts, LimitRule, Mode, Override, OverrideAction, Policy, Privacy, TierQuota,
};
use super::*;
use tollgate::{Limit, ManualClock, Moment};

type Gate = PolicyGate<ManualClock>;

fn rule(name: &str, limit: Limit) -> LimitRule {
    LimitRule::new(name, Quota::plain(limit))
}

fn gate_of(limits: Vec<LimitRule>) -> (Gate, ManualClock) {
    gate_with(Policy {
        limits,
        ..Policy::default()
    })
}

fn gate_with(policy: Policy) -> (Gate, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Moment::from_nanos(1_000 * SECOND));
    (PolicyGate::new(policy, clock.clone()).unwrap(), clock)
}

/// All fields, as lines.
fn lines_of(gate: &Gate, answer: &PolicyDecision) -> Vec<String> {
    let mut text = String::new();
    let mut parts = Vec::new();
    fields(gate, answer, &mut text, &mut |field, part| {
        parts.push((field, part));
    });
    let line = |(field, part): (Field, Range<usize>)| format!("{}: {}", field.name(), &text[part]);
    parts.into_iter().map(line).collect()
}

fn ask(gate: &Gate, cost: u64) -> PolicyDecision {
    let facts = Facts {
        cost: Some(cost),
        ..Facts::default()
    };
    gate.admit(&facts)
}

/// The fields of one request that passes, and of one that is refused afterwards.
fn pass_and_refusal(limit: Limit, all: u64) -> (Vec<String>, Vec<String>) {
    let (gate, _) = gate_of(vec![rule("x", limit)]);
    let first = lines_of(&gate, &ask(&gate, 1));
    let mut left = all - 1;
    while left > 0 {
        assert!(ask(&gate, 1).is_admitted(), "{left} left");
        left -= 1;
    }
    (first, lines_of(&gate, &ask(&gate, 1)))
}

#[test]
fn a_token_bucket_reports_what_is_left_and_when_it_is_full() {
    let (pass, refusal) =
        pass_and_refusal(Limit::token_bucket("5/s".parse().unwrap(), 10).unwrap(), 10);
    assert_eq!(
        pass,
        [
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 9",
            "x-ratelimit-reset: 1",
            "ratelimit-policy: \"x\";q=10;w=2",
            "ratelimit: \"x\";r=9;t=2",
        ]
    );
    assert_eq!(
        refusal,
        [
            "retry-after: 1",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1",
            "ratelimit-policy: \"x\";q=10;w=2",
            "ratelimit: \"x\";r=0;t=1",
            "cache-control: no-store",
        ]
    );
}

#[test]
fn a_request_refused_for_its_cost_reports_one_remainder_in_all_fields() {
    let limit = Limit::token_bucket("1/s".parse().unwrap(), 10).unwrap();
    let (gate, _) = gate_of(vec![rule("x", limit)]);
    assert!(ask(&gate, 9).is_admitted());
    let refused = ask(&gate, 3);
    assert_eq!(refused.status.remaining, 1);
    let fields = lines_of(&gate, &refused);
    assert!(
        fields.contains(&"x-ratelimit-remaining: 1".to_owned()),
        "{fields:?}"
    );
    assert!(
        fields.contains(&"ratelimit: \"x\";r=1;t=2".to_owned()),
        "{fields:?}"
    );
}

#[test]
fn a_debt_leaves_nothing_and_a_retry_after_that_holds() {
    let limit = Limit::token_bucket("1/s".parse().unwrap(), 10).unwrap();
    let (gate, clock) = gate_of(vec![rule("x", limit.with_max_debt(100).unwrap())]);
    let answer = ask(&gate, 5);
    let unpaid = gate.reserve(&answer).settle(crate::Settlement::Actual(40));
    assert_eq!(unpaid, 0);
    let fields = lines_of(&gate, &ask(&gate, 2));
    assert_eq!(
        fields,
        [
            "retry-after: 32",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 32",
            "ratelimit-policy: \"x\";q=10;w=10",
            "ratelimit: \"x\";r=0;t=32",
            "cache-control: no-store",
        ]
    );
    clock.advance(tollgate::Span::from_secs(32));
    assert!(ask(&gate, 2).is_admitted());
}

#[test]
fn gcra_reports_its_tolerance_as_a_burst() {
    let limit = Limit::gcra("1/s".parse().unwrap(), Span::from_secs(4)).unwrap();
    let (pass, refusal) = pass_and_refusal(limit, 5);
    assert_eq!(
        pass[3..],
        [
            "ratelimit-policy: \"x\";q=5;w=5",
            "ratelimit: \"x\";r=4;t=4"
        ]
    );
    assert_eq!(refusal[0], "retry-after: 1");
    assert_eq!(refusal[5], "ratelimit: \"x\";r=0;t=1");
}

#[test]
fn a_leaky_bucket_reports_its_queue() {
    let (pass, refusal) =
        pass_and_refusal(Limit::leaky_bucket("2/s".parse().unwrap(), 4).unwrap(), 4);
    assert_eq!(
        pass[3..],
        [
            "ratelimit-policy: \"x\";q=4;w=2",
            "ratelimit: \"x\";r=3;t=2"
        ]
    );
    assert_eq!(refusal[0], "retry-after: 1");
}

#[test]
fn a_fixed_window_reports_what_is_left_of_it() {
    // The clock shows 1000 s: 20 s of the window of this minute are left.
    let (pass, refusal) =
        pass_and_refusal(Limit::fixed_window("3/min".parse().unwrap()).unwrap(), 3);
    assert_eq!(
        pass,
        [
            "x-ratelimit-limit: 3",
            "x-ratelimit-remaining: 2",
            "x-ratelimit-reset: 20",
            "ratelimit-policy: \"x\";q=3;w=60",
            "ratelimit: \"x\";r=2;t=20",
        ]
    );
    assert_eq!(refusal[0], "retry-after: 20");
    assert_eq!(refusal[5], "ratelimit: \"x\";r=0;t=20");
}

#[test]
fn a_sliding_log_reports_how_long_the_remainder_should_last() {
    let (pass, refusal) =
        pass_and_refusal(Limit::sliding_log("6/min".parse().unwrap()).unwrap(), 6);
    assert_eq!(
        pass[2..],
        [
            "x-ratelimit-reset: 60",
            "ratelimit-policy: \"x\";q=6;w=60",
            "ratelimit: \"x\";r=5;t=50"
        ]
    );
    assert_eq!(refusal[0], "retry-after: 60");
}

#[test]
fn a_sliding_window_reports_its_window() {
    let (pass, refusal) =
        pass_and_refusal(Limit::sliding_window("6/min".parse().unwrap()).unwrap(), 6);
    assert_eq!(
        pass[3..],
        [
            "ratelimit-policy: \"x\";q=6;w=60",
            "ratelimit: \"x\";r=5;t=50"
        ]
    );
    assert!(refusal[0].starts_with("retry-after: "), "{refusal:?}");
}

#[test]
fn burst_credits_report_the_credit_and_the_peak() {
    let credits = BurstCredits {
        rate: "10/s".parse().unwrap(),
        times: 2,
        duration: Span::from_secs(10),
        slack: Some(2),
    };
    let (gate, _) = gate_of(vec![LimitRule::new("x", credits.quota().unwrap())]);
    let lines = lines_of(&gate, &ask(&gate, 1));
    // Of the two limits the peak is closest to refusing.
    assert_eq!(lines[0], "x-ratelimit-limit: 2");
    assert_eq!(lines[1], "x-ratelimit-remaining: 1");
    assert_eq!(
        lines[3],
        "ratelimit-policy: \"x\";q=102;w=11, \"x/peak\";q=2;w=1"
    );
    assert_eq!(lines[4], "ratelimit: \"x/peak\";r=1;t=1");
}

#[test]
fn places_at_once_have_a_unit_and_no_window() {
    let (pass, refusal) = pass_and_refusal(Limit::concurrency(2, Span::from_secs(30)).unwrap(), 2);
    assert_eq!(
        pass[3..],
        [
            "ratelimit-policy: \"x\";q=2;qu=\"concurrent-requests\"",
            "ratelimit: \"x\";r=1"
        ]
    );
    // Permits that are not released expire in coarse steps, never too early.
    assert_eq!(refusal[0], "retry-after: 32");
    assert_eq!(refusal[5], "ratelimit: \"x\";r=0;t=32");
}

#[test]
fn every_enforced_limit_is_in_the_policy_and_the_binding_one_is_reported() {
    let wide = Limit::token_bucket("100/s".parse().unwrap(), 100).unwrap();
    let narrow = Limit::token_bucket("1/s".parse().unwrap(), 2).unwrap();
    let mut watched = rule("watched", narrow.clone());
    watched.mode = Mode::Shadow;
    let (gate, _) = gate_of(vec![rule("wide", wide), watched, rule("narrow", narrow)]);
    let lines = lines_of(&gate, &ask(&gate, 1));
    assert_eq!(
        lines[3],
        "ratelimit-policy: \"wide\";q=100;w=1, \"narrow\";q=2;w=2"
    );
    assert_eq!(lines[4], "ratelimit: \"narrow\";r=1;t=1");
}

#[test]
fn the_reported_quota_is_that_of_the_tier() {
    let limit = |burst| Limit::token_bucket("1/s".parse().unwrap(), burst).unwrap();
    let mut of = rule("x", limit(1));
    of.tiers = Some(super::super::Tiers {
        source: super::super::Source::Field("plan".into()),
        members: None,
        tiers: vec![TierQuota {
            name: "pro".into(),
            weight: 4,
            quota: Quota::plain(limit(10)),
        }],
    });
    let (gate, _) = gate_of(vec![of]);
    let facts = Facts {
        fields: &[("plan", "pro")],
        ..Facts::default()
    };
    let answer = gate.admit(&facts);
    assert_eq!(lines_of(&gate, &answer)[0], "x-ratelimit-limit: 10");
}

#[test]
fn a_request_without_a_limit_gets_no_fields() {
    let mut of = rule("x", Limit::fixed_window("1/min".parse().unwrap()).unwrap());
    of.key = vec![super::super::KeyPart::new(super::super::Source::Field(
        "who".into(),
    ))];
    of.overrides = vec![Override {
        key: vec!["boss".into()],
        grant: OverrideAction::Unlimited,
        expires: None,
    }];
    let (gate, _) = gate_of(vec![of]);
    let facts = Facts {
        fields: &[("who", "boss")],
        ..Facts::default()
    };
    let answer = gate.admit(&facts);
    assert!(answer.is_admitted());
    assert_eq!(lines_of(&gate, &answer), Vec::<String>::new());
}

#[test]
fn a_cost_above_the_limit_is_no_wait() {
    let (gate, _) = gate_of(vec![rule(
        "x",
        Limit::token_bucket("5/s".parse().unwrap(), 10).unwrap(),
    )]);
    let answer = ask(&gate, 11);
    assert_eq!(status(&answer), 422);
    let lines = lines_of(&gate, &answer);
    assert!(
        !lines.iter().any(|line| line.starts_with("retry-after")),
        "{lines:?}"
    );
    assert_eq!(lines.last().unwrap(), "cache-control: no-store");
}

#[test]
fn families_are_written_only_if_the_policy_enables_them() {
    let style = super::super::AnswerStyle {
        retry_after: false,
        x_ratelimit: XRateLimit::Off,
        ratelimit: false,
        ..Default::default()
    };
    let (gate, _) = gate_with(Policy {
        limits: vec![rule(
            "x",
            Limit::fixed_window("1/min".parse().unwrap()).unwrap(),
        )],
        answers: style,
        privacy: Privacy::Plain,
        ..Policy::default()
    });
    assert!(lines_of(&gate, &ask(&gate, 1)).is_empty());
    assert_eq!(lines_of(&gate, &ask(&gate, 1)), ["cache-control: no-store"]);
}

#[test]
fn the_epoch_of_a_window_never_moves_while_it_lasts() {
    let style = super::super::AnswerStyle {
        x_ratelimit: XRateLimit::Epoch,
        ..Default::default()
    };
    let (gate, clock) = gate_with(Policy {
        limits: vec![rule(
            "x",
            Limit::fixed_window("3/min".parse().unwrap()).unwrap(),
        )],
        answers: style,
        ..Policy::default()
    });
    for _ in 0..6 {
        let lines = lines_of(&gate, &ask(&gate, 1));
        assert!(
            lines.contains(&"x-ratelimit-reset: 1020".to_string()),
            "{lines:?}"
        );
        clock.advance(Span::from_millis(3_100));
    }
}

#[test]
fn older_names_replace_those_with_a_prefix() {
    let (gate, _) = gate_with(Policy {
        limits: vec![rule(
            "x",
            Limit::token_bucket("1/s".parse().unwrap(), 10).unwrap(),
        )],
        answers: super::super::AnswerStyle {
            x_ratelimit: XRateLimit::Unprefixed,
            ratelimit: false,
            ..Default::default()
        },
        ..Policy::default()
    });
    assert_eq!(
        lines_of(&gate, &ask(&gate, 3)),
        [
            "ratelimit-limit: 10",
            "ratelimit-remaining: 7",
            "ratelimit-reset: 3"
        ]
    );
}

#[test]
fn a_spread_wait_is_the_same_for_a_key_and_stays_within_its_bound() {
    let style = super::super::AnswerStyle {
        jitter_percent: 20,
        ..Default::default()
    };
    let mut of = rule("x", Limit::fixed_window("1/min".parse().unwrap()).unwrap());
    of.key = vec![super::super::KeyPart::new(super::super::Source::Field(
        "who".into(),
    ))];
    let (gate, _) = gate_with(Policy {
        limits: vec![of],
        answers: style,
        ..Policy::default()
    });
    let mut seen = std::collections::BTreeSet::new();
    for who in 0..200 {
        let who = who.to_string();
        let fields = [("who", who.as_str())];
        let facts = Facts {
            fields: &fields,
            ..Facts::default()
        };
        assert!(gate.admit(&facts).is_admitted());
        let refused = lines_of(&gate, &gate.admit(&facts));
        assert_eq!(refused, lines_of(&gate, &gate.admit(&facts)));
        // Without the spread, as in every field but Retry-After.
        assert!(refused.contains(&"ratelimit: \"x\";r=0;t=20".to_string()));
        seen.insert(
            refused[0]
                .trim_start_matches("retry-after: ")
                .parse::<u64>()
                .unwrap(),
        );
    }
    assert_eq!(seen, (20..=24).collect());
}

#[test]
fn numbers_are_written_in_full() {
    for number in [0, 1, 9, 10, 99, 1_000_000_007, u64::MAX] {
        let mut text = String::from("n");
        push_number(&mut text, number);
        assert_eq!(text, format!("n{number}"));
    }
    let mut text = String::new();
    push_parameter(&mut text, ";q=", u64::MAX);
    assert_eq!(text, ";q=999999999999999");
}

#[test]
fn a_refusal_is_explained() {
    let (gate, _) = gate_of(vec![rule(
        "x",
        Limit::fixed_window("1/min".parse().unwrap()).unwrap(),
    )]);
    let _ = ask(&gate, 1);
    let mut text = String::new();
    problem(&gate, &ask(&gate, 1), &mut text);
    assert_eq!(
        text,
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"The limit `x` has nothing left for this request; try again in 20s.","violated-policies":["x"],"retry_after_ms":20000}"#
    );
    text.clear();
    problem(&gate, &ask(&gate, 2), &mut text);
    assert_eq!(
        text,
        r#"{"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"The request costs 2, more than the limit `x` ever holds (1); split it into smaller ones.","violated-policies":["x"]}"#
    );
    text.clear();
    let facts = Facts {
        path: "/a%2fb",
        ..Facts::default()
    };
    let answer = gate.admit(&facts);
    assert_eq!(status(&answer), 400);
    problem(&gate, &answer, &mut text);
    assert!(
        text.starts_with(r#"{"type":"about:blank","title":"Bad Request","status":400,"#),
        "{text}"
    );
}

#[test]
fn texts_are_written_as_json_reads_them() {
    let mut out = String::new();
    push_json_text(&mut out, "a\"b\\c\n\r\t\u{1}\u{7f}é");
    assert_eq!(out, "\"a\\\"b\\\\c\\n\\r\\t\\u0001\u{7f}é\"");
}

#[test]
fn every_number_is_written_as_the_standard_library_writes_it() {
    let powers = (0..20).map(|n| 10_u64.pow(n));
    let around = powers.flat_map(|p| [p - 1, p, p + 1, p.saturating_mul(7)]);
    for number in (0..1000).chain(around).chain([u64::MAX - 1, u64::MAX]) {
        let mut text = String::from("x");
        push_number(&mut text, number);
        assert_eq!(text, format!("x{number}"));
        let small = small_number(number).map(str::to_owned);
        assert_eq!(small, (number < 100).then(|| number.to_string()));
    }
}
