//! Invalid queues, pressure and gateways: each problem has its line, its code and a hint.

use tollgate_config::parse;

const REST: &str = "default: pass\nlimits: [{ name: a, key: ip, allow: 5/s }]\n";

/// The lines and codes of all problems of a file that begins with this text.
fn wrong(text: &str) -> Vec<(usize, &'static str)> {
    let problems = match parse("test.yaml", format!("{text}\n{REST}").as_bytes()) {
        Ok(_) => panic!("nothing is wrong with\n{text}"),
        Err(problems) => problems,
    };
    for problem in &problems {
        assert!(!problem.message.is_empty() && !problem.hint.is_empty());
        assert!(problem.column > 0 && problem.length > 0, "{problem:?}");
    }
    problems.iter().map(|p| (p.line, p.code)).collect()
}

/// The only hint about a file that begins with this text.
fn hint(text: &str) -> String {
    let problems = parse("test.yaml", format!("{text}\n{REST}").as_bytes()).unwrap_err();
    let mut hints = problems.iter().map(|p| p.hint.clone());
    let first = hints.next().unwrap();
    assert_eq!(hints.next(), None, "{problems}");
    first
}

fn check(cases: &[(&str, &[(usize, &str)])]) {
    for (text, expected) in cases {
        assert_eq!(wrong(text), *expected, "{text}");
    }
}

#[test]
fn an_invalid_queue_is_reported_with_line_and_code() {
    check(&[
        ("queues: 5", &[(1, "not-a-list")]),
        ("queues:\n  name: a\n  at_once: 1", &[(2, "not-a-list")]),
        ("queues:", &[(1, "no-value")]),
        ("queues:\n- api", &[(2, "not-a-map")]),
        ("queues:\n- { at_once: 1 }", &[(2, "missing-field")]),
        ("queues:\n- { name: a }", &[(2, "missing-field")]),
        ("queues:\n- { name: 'a b', at_once: 1 }", &[(2, "bad-name")]),
        (
            "queues:\n- { name: a, at_once: 1 }\n- { name: a, at_once: 1 }",
            &[(3, "duplicate-name")],
        ),
        ("queues:\n- name: a\n  at_once: 0", &[(3, "bad-number")]),
        (
            "queues:\n- name: a\n  at_once: 100_001",
            &[(3, "bad-number")],
        ),
        ("queues:\n- name: a\n  at_once: -1", &[(3, "bad-number")]),
        (
            "queues:\n- name: a\n  at_once: gradient2",
            &[(3, "bad-number")],
        ),
        ("queues:\n- name: a\n  at_once: [1]", &[(3, "not-a-value")]),
        ("queues:\n- name: a\n  at_once: {}", &[(3, "missing-field")]),
        (
            "queues:\n- name: a\n  at_once:\n    adaptive: gradiant2",
            &[(4, "unknown-word")],
        ),
        (
            "queues:\n- name: a\n  at_once:\n    adaptive: aimd\n    min: 9\n    max: 8",
            &[(5, "bad-range")],
        ),
        (
            "queues:\n- name: a\n  at_once:\n    adaptive: aimd\n    initial: 201",
            &[(5, "bad-range")],
        ),
        (
            "queues:\n- name: a\n  at_once:\n    adaptive: aimd\n    min: 0\n    timeout: 0s",
            &[(5, "bad-number"), (6, "bad-span")],
        ),
        (
            "queues:\n- name: a\n  at_once:\n    adaptive: aimd\n    maximum: 5",
            &[(5, "unknown-field")],
        ),
        (
            "queues:\n- name: a\n  at_once: 8\n  at_once_per_flow: 0",
            &[(4, "bad-number")],
        ),
        (
            "queues:\n- name: a\n  at_once: 8\n  at_once_per_flow: half",
            &[(4, "bad-number")],
        ),
        (
            "queues:\n- name: a\n  at_once: 8\n  at_once_per_flow: 9",
            &[(4, "bad-range")],
        ),
        (
            "queues:\n- name: a\n  at_once: { adaptive: aimd, max: 50 }\n  at_once_per_flow: 51",
            &[(4, "bad-range")],
        ),
        (
            "queues:\n- name: a\n  rate: 5/s\n  at_once_per_flow: 100_001",
            &[(4, "bad-number")],
        ),
        (
            "queues:\n- name: a\n  at_once_per_flow: 5",
            &[(2, "missing-field")],
        ),
        ("queues:\n- name: a\n  rate: 5", &[(3, "bad-rate")]),
        ("queues:\n- name: a\n  rate: 0/s", &[(3, "bad-rate")]),
        (
            "queues:\n- name: a\n  at_once: 1\n  burst: 5",
            &[(4, "field-without-effect")],
        ),
        (
            "queues:\n- name: a\n  rate: 5/s\n  burst: 30s",
            &[(4, "bad-number")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  waiting: 0",
            &[(4, "bad-number")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  waiting: 1_000_001\n  waiting_per_flow: 1e3",
            &[(4, "bad-number"), (5, "bad-number")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  max_wait: 0s",
            &[(4, "bad-span")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  max_wait: 61min",
            &[(4, "bad-span")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  max_wait: 10",
            &[(4, "bad-span")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  shuffle: { queues: 512, hand: 6 }",
            &[(4, "unknown-field")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  flow: hedaer.x",
            &[(4, "bad-source")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  flow: []",
            &[(4, "bad-key")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  flow: [ip, ip]",
            &[(4, "bad-key")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  match: { path: '/t/{tenant}' }\n  flow:\n  - ip\n  - path.tenent",
            &[(7, "unknown-capture")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  missing_key: deny",
            &[(4, "unknown-word")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  missing_key: shard",
            &[(4, "unknown-word")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  tier: header.x-plan",
            &[(4, "no-tiers")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  tier: ip",
            &[(4, "bad-source")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  cost: 268435457",
            &[(4, "bad-cost")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  cost: header.x",
            &[(4, "cost-without-max")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  match: { path: x }",
            &[(4, "bad-path")],
        ),
        (
            "queues:\n- name: a\n  at_once: 1\n  except: { path: x }",
            &[(4, "bad-path")],
        ),
        ("queues:\n- name: a\n  at-once: 1", &[(3, "unknown-field")]),
        (
            "queues:\n- name: a\n  at_once: 1\n  wieght: 3",
            &[(4, "unknown-field")],
        ),
        ("queue:\n- name: a\n  at_once: 1", &[(1, "unknown-field")]),
    ]);
}

#[test]
fn invalid_pressure_is_reported_with_line_and_code() {
    check(&[
        ("pressure: high", &[(1, "not-a-map")]),
        ("pressure: [cpu]", &[(1, "not-a-map")]),
        ("pressure:\n  latency: 0ms", &[(2, "bad-span")]),
        ("pressure:\n  latency: 2h", &[(2, "bad-span")]),
        ("pressure:\n  latency: fast", &[(2, "bad-span")]),
        (
            "pressure:\n  errors: 0%\n  cpu: 100%",
            &[(2, "bad-share"), (3, "bad-share")],
        ),
        ("pressure:\n  errors: 10", &[(2, "bad-share")]),
        ("pressure:\n  cpu: 0.001%", &[(2, "bad-share")]),
        ("pressure:\n  floor: 0%", &[(2, "bad-share")]),
        ("pressure:\n  floor: 101%", &[(2, "bad-share")]),
        ("pressure:\n  floors: 5%", &[(2, "not-a-map")]),
        ("pressure:\n  floors:\n    pro: 5%", &[(3, "unknown-tier")]),
        (
            "tiers: { pro: {} }\npressure:\n  floors:\n    por: 5%\n    pro: 0%",
            &[(4, "unknown-tier"), (5, "bad-share")],
        ),
        (
            "pressure:\n  floors:\n    pro:",
            &[(3, "unknown-tier"), (3, "no-value")],
        ),
        ("pressure:\n  latncy: 5ms", &[(2, "unknown-field")]),
        // Invalid tiers are not reported as missing as well.
        (
            "tiers: { pro: { wait: 4 } }\npressure: { floors: { free: 5% } }",
            &[(1, "unknown-field")],
        ),
    ]);
}

#[test]
fn an_invalid_gateway_is_reported_with_line_and_code() {
    check(&[
        ("gateway: http://a", &[(1, "not-a-map")]),
        ("gateway:\n  upstream: http://a", &[(2, "unknown-field")]),
        ("gateway:\n  listen: 0.0.0.0:80", &[(2, "unknown-field")]),
        (
            "gateway:\n  accept: { connections: 0, per_address: 1_000_001 }",
            &[(2, "bad-number"), (2, "bad-number")],
        ),
        (
            "gateway:\n  accept: { burst: 5 }",
            &[(2, "field-without-effect")],
        ),
        (
            "gateway:\n  accept:\n    rate: 5\n    burst: 0",
            &[(3, "bad-rate"), (4, "bad-number")],
        ),
        ("gateway:\n  accept: 5", &[(2, "not-a-map")]),
        (
            "gateway:\n  timeouts:\n    head: 0s\n    body: 25h\n    idle: never\n    wirte: 1s",
            &[
                (3, "bad-span"),
                (4, "bad-span"),
                (5, "bad-span"),
                (6, "unknown-field"),
            ],
        ),
        ("gateway:\n  max_body: 10mb", &[(2, "bad-size")]),
        ("gateway:\n  max_body: 0", &[(2, "bad-size")]),
        ("gateway:\n  wait_header: yes", &[(2, "not-a-boolean")]),
        ("gateway:\n  upstreams:", &[(2, "no-value")]),
        (
            "gateway:\n  upstreams:\n    name: a\n    servers: http://a",
            &[(3, "not-a-list")],
        ),
        (
            "gateway:\n  upstreams: [http://a, http://b]",
            &[(2, "not-a-map"), (2, "not-a-map")],
        ),
        ("gateway:\n  upstreams: a:80", &[(2, "bad-url")]),
        (
            "gateway:\n  upstreams:\n  - { name: a }",
            &[(3, "missing-field")],
        ),
        (
            "gateway:\n  upstreams:\n  - { servers: http://a }",
            &[(3, "missing-field")],
        ),
        (
            "gateway:\n  upstreams:\n  - { name: a/b, servers: http://a }",
            &[(3, "bad-name")],
        ),
        (
            "gateway:\n  upstreams:\n  - { name: a, servers: http://a }\n  - { name: a, servers: http://b }",
            &[(4, "duplicate-name")],
        ),
        (
            "gateway:\n  upstreams:\n  - { name: a, servers: [] }",
            &[(3, "bad-servers")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers:\n    - http://a\n    - http://b/x\n    - http://c:0",
            &[(6, "bad-url"), (7, "bad-url")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers:\n    - http://a\n    - http://A:80",
            &[(6, "bad-servers")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    ca_file: /ca",
            &[(5, "field-without-effect")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: https://a\n    ca_file: ''",
            &[(5, "bad-file")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    protocol: h2c",
            &[(5, "unknown-word")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    protocol: htpt1",
            &[(5, "unknown-word")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    timeouts: { connect: 0s, write: 1s }",
            &[(5, "bad-span"), (5, "unknown-field")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    retries: 11\n    keep_host: 1",
            &[(5, "bad-number"), (6, "not-a-boolean")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    health: healthz",
            &[(5, "bad-path")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    health: \"/a\\r\\nx: y\"",
            &[(5, "bad-path")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    health: { every: 0s, fails: 0 }",
            &[(5, "missing-field"), (5, "bad-span"), (5, "bad-number")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    health: {}",
            &[(5, "missing-field")],
        ),
        (
            "gateway:\n  upstreams:\n  - name: a\n    servers: http://a\n    match: { paths: /a }",
            &[(5, "unknown-field")],
        ),
        ("upstreams: http://a", &[(1, "unknown-field")]),
        ("max_body: 5MB", &[(1, "unknown-field")]),
    ]);
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "queues:\n- { name: a, at_once: 0 }\n- { name: b, rate: 5 }\npressure:\n  cpu: 90\ngateway:\n  max_body: x\n  \
                upstreams: ftp://a\nversion: 2";
    let expected = [
        (2, "bad-number"),
        (3, "bad-rate"),
        (5, "bad-share"),
        (7, "bad-size"),
        (8, "bad-url"),
        (9, "bad-version"),
    ];
    assert_eq!(wrong(text), expected);
}

#[test]
fn the_number_of_queues_and_upstreams_is_bounded() {
    let many = |count: usize, line: &str| line.repeat(count);
    let queues = |count: usize| {
        let lines = (0..count)
            .map(|n| format!("- {{ name: q{n}, match: {{ path: /p{n} }}, at_once: 1 }}\n"));
        format!("queues:\n{}{REST}", lines.collect::<String>())
    };
    let loaded = parse("x", queues(1000).as_bytes()).unwrap();
    assert_eq!(loaded.policy.queues.len(), 1000);
    assert_eq!(wrong(&queues(1001).replace(REST, "")), [(1002, "too-many")]);
    let upstreams = |count: usize| {
        let lines = (0..count).map(|n| {
            format!("  - {{ name: u{n}, match: {{ path: /p{n} }}, servers: http://a{n} }}\n")
        });
        format!(
            "gateway:\n  upstreams:\n{}{REST}",
            lines.collect::<String>()
        )
    };
    let loaded = parse("x", upstreams(1000).as_bytes()).unwrap();
    assert_eq!(loaded.gateway.upstreams.len(), 1000);
    assert_eq!(
        wrong(&upstreams(1001).replace(REST, "")),
        [(1003, "too-many")]
    );
    let servers = |count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("http://a{n}")).collect();
        format!(
            "gateway:\n  upstreams:\n  - name: a\n    servers: [{}]\n{REST}",
            all.join(", ")
        )
    };
    let loaded = parse("x", servers(100).as_bytes()).unwrap();
    assert_eq!(loaded.gateway.upstreams[0].servers.len(), 100);
    assert_eq!(wrong(&servers(101).replace(REST, "")), [(4, "bad-servers")]);
    let health = format!("/{}", many(2048, "a"));
    let text =
        format!("gateway:\n  upstreams:\n  - {{ name: a, servers: http://a, health: {health} }}");
    assert_eq!(wrong(&text), [(3, "bad-path")]);
}

#[test]
fn a_misspelt_field_has_a_suggestion() {
    for (text, expected) in [
        ("queus: []", "did you mean `queues`?"),
        ("gatway: {}", "did you mean `gateway`?"),
        ("presure: {}", "did you mean `pressure`?"),
        (
            "queues: [{ name: a, at_once: 1, key: ip }]",
            "did you mean `flow`?",
        ),
        (
            "queues: [{ name: a, at_once: 1, per_flow: 5 }]",
            "did you mean `waiting_per_flow`?",
        ),
        (
            "queues: [{ name: a, at_once: 4, at_once_per_flow: 5 }]",
            "write less than 4, so that one flow cannot take all of them",
        ),
        (
            "queues: [{ name: a, at_once: 4, turns_per_flow: 2 }]",
            "did you mean `at_once_per_flow`?",
        ),
        (
            "queues: [{ name: a, at_once: gradient2 }]",
            "write `at_once: { adaptive: gradient2 }`",
        ),
        (
            "queues: [{ name: a, at_once: { adaptive: Gradient2 } }]",
            "did you mean `gradient2`?",
        ),
        (
            "queues: [{ name: a, at_once: 1, match: { path: '/{tenant}' }, flow: path.tenent }]",
            "did you mean `path.tenant`?",
        ),
        (
            "tiers: { pro: { weight: 2 } }\npressure: { floors: { por: 5% } }",
            "did you mean `pro`?",
        ),
        (
            "gateway: { upstreams: 'htps://a' }",
            "did you mean `https://a`?",
        ),
        (
            "gateway: { upstreams: 'localhost:3000' }",
            "write `http://localhost:3000`",
        ),
        (
            "gateway: { upstreams: 'http://a/api' }",
            "write `http://a`: paths are passed on as they come",
        ),
        ("gateway: { max_body: 10M }", "did you mean `10MB`?"),
        ("gateway: { max_body: 10kib }", "did you mean `10KiB`?"),
        ("gateway: { max_bdy: 10MB }", "did you mean `max_body`?"),
        (
            "gateway: { upstreams: [{ name: a, servers: http://a, protocol: h2 }] }",
            "did you mean `http2`?",
        ),
        (
            "gateway: { upstreams: [{ name: a, url: http://a }] }",
            "did you mean `servers`?",
        ),
    ] {
        assert_eq!(hint(text), expected, "{text}");
    }
}

#[test]
fn invalid_descriptor_entries_are_reported_with_line_and_code() {
    check(&[
        ("deny:\n- match: { entries: [a] }", &[(2, "not-a-map")]),
        (
            "deny:\n- match: { entries: [{ a: 1, b: 2 }] }",
            &[(2, "bad-entries")],
        ),
        (
            "deny:\n- match: { entries: [{ a: false }] }",
            &[(2, "bad-entries")],
        ),
        ("deny:\n- match: { entries: [{}] }", &[(2, "bad-entries")]),
        (
            "deny:\n- { match: { domain: d }, except: { entry: a } }",
            &[(2, "unknown-field")],
        ),
    ]);
}

#[test]
fn a_limit_that_replaces_an_unknown_one_is_an_error() {
    let text =
        b"default: pass\nlimits:\n- { name: plain, allow: 5/s }\n- { name: b, allow: 5/s, replaces: plian }\n";
    let problems = parse("test.yaml", text).unwrap_err();
    let problem = problems.iter().next().unwrap();
    assert_eq!((problem.line, problem.code), (4, "unknown-limit"));
    assert_eq!(problem.hint, "did you mean `plain`?");
}
