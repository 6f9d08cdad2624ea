//! Warnings about limits that work, but not as their author intends.

use tollgate_config::{Severity, parse};

/// The warnings and errors of a policy with this limit: codes and messages.
fn problems(limit: &str) -> Vec<(&'static str, String)> {
    let text = format!("default: pass\nlimits:\n  - {{ name: a, {limit} }}\n");
    let problems = match parse("p.yaml", text.as_bytes()) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    let found = problems.iter().filter(|p| p.severity != Severity::Note);
    found.map(|p| (p.code, p.message.clone())).collect()
}

fn codes(limit: &str) -> Vec<&'static str> {
    problems(limit).into_iter().map(|(code, _)| code).collect()
}

#[test]
fn a_match_by_the_key_without_missing_key_is_reported() {
    for (limit, reported) in [
        // Present means there once and not blank, so the key is there as well.
        ("match: { header: { x: true } }, key: header.x", false),
        ("match: { header: { x: 'a*' } }, key: header.x", true),
        ("match: { query: { x: true } }, key: query.x", true),
        ("match: { query: { x: true } }, key: [ip, query.x]", true),
        ("match: { query: { y: true } }, key: query.x", false),
        ("match: { query: { x: false } }, key: query.x", false),
        (
            "match: { query: { x: true } }, key: query.x, missing_key: deny",
            false,
        ),
        (
            "match: { query: { x: true } }, key: query.x, missing_key: ip",
            false,
        ),
        (
            "match: { query: { x: true } }, key: query.x, mode: shadow",
            false,
        ),
    ] {
        let found = codes(&format!("{limit}, allow: 5/s"));
        assert_eq!(
            found.contains(&"matched-without-key"),
            reported,
            "{limit}: {found:?}"
        );
    }
}

#[test]
fn a_large_sliding_log_is_reported_with_its_memory_and_bounded() {
    let log = |allow: &str, more: &str| {
        problems(&format!("algorithm: sliding-log, allow: {allow}{more}"))
    };
    assert_eq!(log("1000/min", ""), []);
    let found = log("600_000/min", "");
    let text = "the log of limit `a` takes 4 MiB for each key: 600000 times 8 bytes";
    assert_eq!(found, [("large-log", text.to_owned())]);
    let found = log("100_000/min", ", key: ip, max_keys: 1_000_000");
    let text =
        "the logs of limit `a` may take 745 GiB: 100000 times 8 bytes for each of 1000000 keys";
    assert_eq!(found, [("large-log", text.to_owned())]);
    // An error, in the candidate too.
    for limit in [
        "algorithm: sliding-log, allow: 1_000_001/min",
        "algorithm: sliding-log, allow: 5/min, candidate: { allow: 1_000_001/min }",
    ] {
        let text = format!("limits: [{{ name: a, {limit} }}]");
        let problems = parse("p.yaml", text.as_bytes()).unwrap_err();
        assert!(problems.iter().any(|p| p.code == "large-log"), "{problems}");
    }
}

/// A password that is put into `password_env` by mistake looks like a variable's name if it has letters and digits only.
#[test]
fn what_does_not_look_like_a_variable_is_not_shown() {
    for (store, code) in [
        (
            "{ url: redis://h, password_env: hunter2 }",
            "unusual-variable",
        ),
        (
            "{ url: 'redis://h', password_env: 'Hunter2' }",
            "unusual-variable",
        ),
        ("{ url: redis://h, password_env: hunter-2 }", "bad-variable"),
        ("{ url: redis://h, password_env: $hunter2 }", "bad-variable"),
        // The line is shown for another field.
        (
            "{ url: redis://h, password_env: hunter2, deadline: 1h }",
            "bad-span",
        ),
    ] {
        let text =
            format!("store: {store}\non_store_error: local\nlimits: [{{ name: a, allow: 5/s }}]\n");
        let problems = match parse("p.yaml", text.as_bytes()) {
            Ok(loaded) => loaded.warnings,
            Err(problems) => problems,
        };
        assert!(
            problems.iter().any(|p| p.code == code),
            "{store}: {problems}"
        );
        let shown = format!("{problems}{problems:?}").to_lowercase();
        assert!(!shown.contains("hunter"), "{store}: {shown}");
    }
    let text = "store: { url: redis://h, password_env: STORE_PASSWORD_2 }\non_store_error: local\nlimits: [{ name: a, allow: 5/s }]\n";
    let loaded = parse("p.yaml", text.as_bytes()).unwrap();
    assert!(loaded.warnings.iter().all(|p| p.code != "unusual-variable"));
}

#[test]
fn headers_that_clients_cannot_set_are_not_reported() {
    let found = |file: &str| {
        let limit = "{ name: a, key: header.x-key, tier: header.x-plan, cost: { from: header.x-cost, max: 5 }, allow: 5/s }";
        let text =
            format!("default: pass\ntiers: {{ pro: {{ times: 2 }} }}\n{file}limits: [{limit}]\n");
        let problems = parse("p.yaml", text.as_bytes()).unwrap().warnings;
        problems.iter().map(|p| p.code).collect::<Vec<_>>()
    };
    assert_eq!(found("").len(), 3);
    assert_eq!(
        found("trusted_headers: X-Key\n"),
        ["tier-from-client", "cost-from-client"]
    );
    assert!(found("trusted_headers: [x-key, x-plan, x-cost]\n").is_empty());
    let problems = parse("p.yaml", b"trusted_headers: 'x key'\nlimits: []").unwrap_err();
    assert!(problems.iter().any(|p| p.code == "bad-name"), "{problems}");
}

#[test]
fn fields_at_a_front_end_without_fields_are_reported() {
    let codes_with = |file: &str, limit: &str| {
        let text = format!("default: pass\n{file}limits: [{{ name: a, {limit}, allow: 5/s }}]\n");
        let problems = parse("p.yaml", text.as_bytes()).unwrap().warnings;
        problems.iter().any(|p| p.code == "no-fields")
    };
    let gateway = "gateway: { upstreams: 'http://127.0.0.1:3000' }\n";
    assert!(codes_with(gateway, "key: field.user"));
    assert!(codes_with(
        gateway,
        "key: ip, cost: { from: field.tokens, max: 5 }"
    ));
    assert!(codes_with("", "match: { domain: edge }, key: field.user"));
    assert!(!codes_with(gateway, "key: header.x-user"));
    assert!(!codes_with("", "key: field.user"));
}

#[test]
fn a_debt_needs_a_bucket_and_a_bound() {
    let found = |limit: &str| {
        let found = problems(limit);
        found.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    let owe = "key: ip, when_over: owe, max_debt: 100";
    for (limit, code) in [
        (format!("allow: 5/s, {owe}"), None),
        (
            format!("algorithm: gcra, allow: 5/s, tolerance: 1s, {owe}"),
            None,
        ),
        (
            format!("algorithm: fixed-window, allow: 5/s, {owe}"),
            Some("no-debt"),
        ),
        (
            format!("algorithm: sliding-log, allow: 5/s, {owe}"),
            Some("no-debt"),
        ),
        (
            format!("algorithm: leaky-bucket, allow: 5/s, queue: 5, {owe}"),
            Some("no-debt"),
        ),
        (
            format!("algorithm: burst-credits, allow: 5/s, times: 2, for: 3s, {owe}"),
            Some("no-debt"),
        ),
        (
            "allow: 5/s, key: ip, when_over: owe".into(),
            Some("missing-field"),
        ),
        ("allow: 5/s, key: ip, max_debt: 5".into(), Some("no-debt")),
        (
            "allow: 5/s, key: ip, when_over: take-rest, max_debt: 5".into(),
            Some("no-debt"),
        ),
        (
            "allow: 5/s, key: ip, when_over: owe, max_debt: 0".into(),
            Some("bad-number"),
        ),
        (
            "allow: 1/day, key: ip, when_over: owe, max_debt: 100000".into(),
            Some("large-debt"),
        ),
        (
            format!("allow: 5/s, sharing: lease, {owe}"),
            Some("cannot-share"),
        ),
    ] {
        let found = found(&limit);
        assert_eq!(found.first().copied(), code, "{limit}: {found:?}");
    }
}
