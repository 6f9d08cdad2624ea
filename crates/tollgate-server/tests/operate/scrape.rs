//! What a scraper reads.

use std::collections::HashSet;
use std::time::Duration;

use tollgate::policy::Facts;
use tollgate_server::engine::{Door, Engine, for_tests};

use crate::world::{ask, logged};

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
fn every_kind_of_decision_is_counted_where_it_belongs() {
    let engine = for_tests(POLICY);
    for _ in 0..5 {
        ask(&engine, "ann");
    }
    let of = |verdict: &str| {
        let series = format!(
            "tollgate_decisions_total{{limit=\"users\",verdict=\"{verdict}\",door=\"http\"}}"
        );
        value(&engine, &series)
    };
    assert_eq!(
        (of("admitted"), of("refused"), of("never")),
        ("2".into(), "3".into(), "0".into())
    );
    let shadow = |limit: &str, kind: &str| {
        value(
            &engine,
            &format!("tollgate_shadow_refusals_total{{limit=\"{limit}\",kind=\"{kind}\"}}"),
        )
    };
    assert_eq!(shadow("users", "candidate"), "4");
    assert_eq!(shadow("watched", "shadow"), "4");
    let facts = Facts {
        path: "/",
        client: Some([198, 51, 100, 7].into()),
        ..Facts::default()
    };
    let epoch = engine.epoch();
    let answer = epoch.gate.admit(&facts);
    engine.observe(
        &epoch,
        Door::Auth,
        &facts,
        &answer,
        Duration::from_millis(2),
    );
    assert_eq!(
        value(&engine, "tollgate_denied_total{list=\"bad-net\"}"),
        "1"
    );
    assert_eq!(
        value(&engine, "tollgate_decision_duration_seconds_count"),
        "6"
    );
    assert_eq!(
        value(&engine, "tollgate_decision_duration_seconds_sum"),
        "0.002015000"
    );
    assert_eq!(
        value(
            &engine,
            "tollgate_decision_duration_seconds_bucket{le=\"0.000005\"}"
        ),
        "5"
    );
    assert_eq!(value(&engine, "tollgate_keys{limit=\"users\"}"), "1");
    assert_eq!(value(&engine, "tollgate_policy_version"), "1");
    parse(&engine.metrics());
}

#[test]
fn a_request_that_nothing_matches_is_counted_apart() {
    let engine =
        for_tests("default: pass\nlimits: [{ name: a, match: { path: /a }, allow: 1/s }]\n");
    ask(&engine, "ann");
    assert_eq!(value(&engine, "tollgate_unmatched_total"), "1");
}

#[test]
fn a_hundred_thousand_keys_add_no_series() {
    let engine = for_tests(POLICY);
    ask(&engine, "first");
    let before = parse(&engine.metrics());
    for i in 0..100_000 {
        ask(&engine, &format!("user-{i}\"}}\n# HELP x"));
    }
    assert_eq!(parse(&engine.metrics()), before);
}

#[test]
fn the_key_of_a_refusal_is_told_without_anything_that_steers_a_terminal() {
    let engine = for_tests(POLICY);
    let key = format!("\u{1b}[2J{}", "x".repeat(300));
    let lines = logged(|| {
        for _ in 0..100 {
            ask(&engine, &key);
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
fn where_keys_may_not_be_shown_only_a_hash_is_kept() {
    let engine = for_tests(&format!("key_privacy: hashed\n{POLICY}"));
    let lines = logged(|| {
        for _ in 0..9 {
            ask(&engine, "ann@example.com");
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
