//! Metrics, as a scraper reads them.

use std::collections::HashSet;
use std::time::Duration;

use tollgate_policy::{Facts, QueuePlace};
use tollgate_server::engine::{Engine, Protocol, for_tests};

use crate::support::{ask, decide, logged};

/// Reads the text format strictly: every line is a comment that belongs there or a series of the name
/// that was announced last, every label is escaped, every value is a number, nothing comes twice.
fn parse(text: &str) -> HashSet<String> {
    let mut series = HashSet::new();
    let mut names = HashSet::new();
    let mut current = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(names.insert(name.to_owned()), "{name} comes twice");
            assert!(help.ends_with('.') || help.ends_with('?'), "{line}");
            current = (name.to_owned(), String::new());
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, current.0);
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            current.1 = kind.to_owned();
            continue;
        }
        let (id, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
        let name = id.split('{').next().unwrap();
        let base = match current.1.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap(),
            _ => name,
        };
        assert_eq!(base, current.0, "{line}");
        if let Some(labels) = id.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            let mut labels = labels.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
            while !labels.is_empty() {
                let (label, rest) = labels.split_once("=\"").unwrap();
                assert!(
                    label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                    "{line}"
                );
                let mut escaped = false;
                let end = rest.char_indices().find(|(_, c)| {
                    let ends = *c == '"' && !escaped;
                    escaped = *c == '\\' && !escaped;
                    ends
                });
                let end = end.unwrap().0;
                labels = &rest[end + 1..];
                labels = labels.strip_prefix(',').unwrap_or(labels);
            }
        }
        assert!(series.insert(id.to_owned()), "{id} comes twice");
    }
    series
}

fn value(engine: &Engine, series: &str) -> String {
    let text = engine.metrics();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}"))
        .to_owned()
}

const POLICY: &str = "
default: pass
deny: [{ name: bad-net, match: { ip: 198.51.100.0/24 }, reason: abuse }]
limits:
  - { name: users, key: header.x-user, allow: 1/h, burst: 2, candidate: { allow: 1/h, burst: 1 } }
  - { name: watched, key: header.x-user, allow: 1/h, burst: 1, mode: shadow }
";

#[test]
fn every_outcome_is_counted_in_its_series() {
    let engine = for_tests(POLICY);
    for _ in 0..5 {
        let _ = ask(&engine, "ann");
    }
    let of = |verdict: &str| {
        let labels = format!("verdict=\"{verdict}\",reason=\"limit\",protocol=\"http\"");
        let series = format!("tollgate_decisions_total{{limit=\"users\",{labels}}}");
        value(&engine, &series)
    };
    assert_eq!(
        (of("pass"), of("refuse"), of("never")),
        ("2".into(), "3".into(), "0".into())
    );
    let shadow = |limit: &str, kind: &str| {
        value(
            &engine,
            &format!("tollgate_shadow_refusals_total{{limit=\"{limit}\",role=\"{kind}\"}}"),
        )
    };
    assert_eq!(shadow("users", "candidate"), "4");
    assert_eq!(shadow("watched", "shadow"), "4");
    let facts = Facts {
        path: "/",
        client: Some([198, 51, 100, 7].into()),
        ..Facts::default()
    };
    let _ = decide(&engine, Protocol::Auth, &facts);
    assert_eq!(
        value(&engine, "tollgate_denied_total{entry=\"bad-net\"}"),
        "1"
    );
    assert_eq!(
        value(&engine, "tollgate_decision_duration_seconds_count"),
        "6"
    );
    assert_eq!(value(&engine, "tollgate_keys{limit=\"users\"}"), "1");
    assert_eq!(value(&engine, "tollgate_policy_version"), "1");
    parse(&engine.metrics());
}

#[test]
fn a_request_that_nothing_matches_is_counted_apart() {
    let engine =
        for_tests("default: pass\nlimits: [{ name: a, match: { path: /a }, allow: 1/s }]\n");
    let _ = ask(&engine, "ann");
    assert_eq!(
        value(
            &engine,
            r#"tollgate_decisions_without_limit_total{reason="unmatched"}"#
        ),
        "1"
    );
}

#[test]
fn a_request_that_only_counted_limits_match_is_counted_as_such() {
    let engine = for_tests("default: pass\nlimits: [{ name: a, allow: 1/s, mode: shadow }]\n");
    let _ = ask(&engine, "ann");
    for (reason, count) in [("only-counted", "1"), ("unmatched", "0")] {
        let series = format!("tollgate_decisions_without_limit_total{{reason=\"{reason}\"}}");
        assert_eq!(value(&engine, &series), count);
    }
}

#[test]
fn only_protocols_that_are_served_or_used_have_series() {
    let engine = for_tests("default: pass\nlimits: [{ name: a, allow: 1/s }]\n");
    let protocols = || {
        let text = engine.metrics();
        let series = text
            .lines()
            .filter(|line| line.starts_with("tollgate_decisions_total{"));
        let names = series.filter_map(|line| line.split("protocol=\"").nth(1)?.split('"').next());
        names
            .map(str::to_owned)
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert!(protocols().is_empty(), "{:?}", protocols());
    let _ = ask(&engine, "ann");
    assert_eq!(protocols().into_iter().collect::<Vec<_>>(), ["http"]);
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_reports_its_memory_processor_time_and_descriptors() {
    let engine = for_tests("default: pass\nlimits: []\n");
    let number = |name: &str| value(&engine, name).parse::<f64>().unwrap();
    assert!(number("process_resident_memory_bytes") > 1_000_000.0);
    assert!(number("process_open_fds") >= 3.0);
    assert!(number("process_max_fds") >= number("process_open_fds"));
    assert!(number("process_cpu_seconds_total") >= 0.0);
    let started = number("process_start_time_seconds");
    let clock = tollgate::MonotonicClock::with_unix_time();
    let now = tollgate::Clock::now(&clock).as_nanos() as f64 / 1e9;
    assert!((0.0..600.0).contains(&(now - started)), "{started}");
}

#[test]
fn a_hundred_thousand_keys_add_no_series() {
    let engine = for_tests(POLICY);
    let _ = ask(&engine, "first");
    let before = parse(&engine.metrics());
    for i in 0..100_000 {
        let _ = ask(&engine, &format!("user-{i}\"}}\n# HELP x"));
    }
    assert_eq!(parse(&engine.metrics()), before);
}

#[test]
fn control_characters_of_a_logged_key_are_escaped() {
    let engine = for_tests(POLICY);
    let key = format!("\u{1b}[2J{}", "x".repeat(300));
    let lines = logged(|| {
        for _ in 0..100 {
            let _ = ask(&engine, &key);
        }
    });
    let lines: Vec<_> = lines
        .iter()
        .filter(|l| l.starts_with("tollgate::refused"))
        .collect();
    assert!((10..=12).contains(&lines.len()), "{}", lines.len());
    assert!(
        lines
            .iter()
            .all(|l| !l.contains('\u{1b}') && l.contains("limit=\"users\""))
    );
    let (top, _) = engine.top_refused();
    assert_eq!(top.len(), 1);
    assert_eq!(top[0].refused, 98);
    assert!(top[0].key[0].len() <= 128 && top[0].key[0].starts_with("\\u{1b}[2Jxx"));
}

#[test]
fn with_hashed_privacy_only_a_hash_is_kept() {
    let engine = for_tests(&format!("key_privacy: hashed\n{POLICY}"));
    let lines = logged(|| {
        for _ in 0..9 {
            let _ = ask(&engine, "ann@example.com");
        }
    });
    let (top, _) = engine.top_refused();
    assert_eq!(top.len(), 1);
    assert_eq!(top[0].key[0].len(), 32);
    assert!(top[0].key[0].bytes().all(|b| b.is_ascii_hexdigit()));
    assert!(
        lines.iter().all(|line| !line.contains("ann@example.com")),
        "{lines:#?}"
    );
}

const QUEUES: &str = "
default: pass
tiers: { pro: { weight: 4 }, free: { weight: 1 } }
limits: [{ name: all, allow: 1000000/s, burst: 1000000 }]
queues:
  - { name: api, match: { path: /api }, tier: header.x-plan, cost: 3, at_once: 1, waiting: 1, max_wait: 10s }
  - { name: rest, flow: ip, rate: 1000000/s, burst: 1000, at_once_per_flow: 50 }
";

/// Where a request of this plan waits.
fn place(engine: &Engine, path: &str, plan: &str) -> QueuePlace {
    let facts = Facts {
        path,
        headers: &[("x-plan", plan)],
        client: Some([192, 0, 2, 1].into()),
        ..Facts::default()
    };
    engine.active().gate.place(&facts).unwrap()
}

#[tokio::test]
async fn queues_count_waiting_served_and_rejected_requests() {
    let engine = for_tests(QUEUES);
    let active = engine.active_owned();
    let (api, rest) = (active.queues.get(0).unwrap(), active.queues.get(1).unwrap());
    drop(api.acquire(&place(&engine, "/api", "pro")).await.unwrap());
    drop(api.acquire(&place(&engine, "/api", "pro")).await.unwrap());
    drop(api.acquire(&place(&engine, "/api", "free")).await.unwrap());
    drop(rest.acquire(&place(&engine, "/", "pro")).await.unwrap());
    let holds = api.acquire(&place(&engine, "/api", "other")).await.unwrap();
    let mut waits = Box::pin(api.acquire(&place(&engine, "/api", "pro")));
    let soon = Duration::from_millis(20);
    tokio::time::timeout(soon, &mut waits).await.unwrap_err();
    let full = api.acquire(&place(&engine, "/api", "free")).await;
    full.unwrap_err();
    let of = |series: &str| value(&engine, series);
    assert_eq!(of("tollgate_queue_waiting_requests{queue=\"api\"}"), "1");
    assert_eq!(of("tollgate_queue_in_flight_requests{queue=\"api\"}"), "1");
    assert_eq!(of("tollgate_queue_concurrency_limit{queue=\"api\"}"), "1");
    assert_eq!(of("tollgate_queue_saturated_flows{queue=\"rest\"}"), "0");
    let text = engine.metrics();
    let unbounded = "tollgate_queue_saturated_flows{queue=\"api\"}";
    assert!(!text.contains(unbounded), "it has no such bound");
    drop(holds);
    drop(waits.await.unwrap());
    let holds = api.acquire(&place(&engine, "/api", "other")).await.unwrap();
    let mut gone = Box::pin(api.acquire(&place(&engine, "/api", "pro")));
    tokio::time::timeout(soon, &mut gone).await.unwrap_err();
    drop(gone);
    drop(holds);

    let series = parse(&engine.metrics());
    for (tier, turns, cost) in [("pro", "3", "9"), ("free", "1", "3"), ("", "2", "6")] {
        let labels = format!("{{queue=\"api\",tier=\"{tier}\"}}");
        assert_eq!(of(&format!("tollgate_queue_served_total{labels}")), turns);
        let costs = format!("tollgate_queue_served_cost_total{labels}");
        assert_eq!(of(&costs), cost);
    }
    assert_eq!(
        of("tollgate_queue_served_total{queue=\"rest\",tier=\"\"}"),
        "1"
    );
    let why = |why: &str| {
        let labels = format!("{{queue=\"api\",reason=\"{why}\"}}");
        of(&format!("tollgate_queue_rejected_total{labels}"))
    };
    assert_eq!(why("cancelled"), "1");
    assert_eq!(
        (why("displaced"), why("max_wait")),
        ("0".into(), "0".into())
    );
    let full: u64 = ["queue_full", "flow_full"]
        .iter()
        .map(|name| why(name).parse::<u64>().unwrap())
        .sum();
    assert_eq!(full, 1);

    let bucket = |le: &str| {
        let name = "tollgate_queue_wait_seconds_bucket";
        of(&format!("{name}{{queue=\"api\",le=\"{le}\"}}"))
    };
    // Five did not wait, and one did for as long as the test looked on.
    assert_eq!(bucket("0.01"), "5");
    assert_eq!(bucket("10"), "6");
    assert_eq!(bucket("+Inf"), "6");
    assert_eq!(of("tollgate_queue_wait_seconds_count{queue=\"api\"}"), "6");
    let sum = of("tollgate_queue_wait_seconds_sum{queue=\"api\"}");
    assert!((0.02..10.0).contains(&sum.parse::<f64>().unwrap()), "{sum}");
    let buckets = |queue: &str| {
        let begin = format!("tollgate_queue_wait_seconds_bucket{{queue=\"{queue}\",");
        series.iter().filter(|id| id.starts_with(&begin)).count()
    };
    assert_eq!((buckets("api"), buckets("rest")), (13, 13));
}

#[test]
fn a_policy_without_queues_has_no_queue_series() {
    let series = parse(&for_tests(POLICY).metrics());
    assert!(!series.iter().any(|id| id.starts_with("tollgate_queue_")));
}
