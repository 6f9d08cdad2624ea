//! `queues`, `pressure` and `gateway`: resolved values and warnings.

use std::path::PathBuf;

use tollgate::shape::{Adaptive, Estimator};
use tollgate::{Scale, Span};
use tollgate_config::{
    AcceptSpec, ClientTimeouts, GatewaySpec, HealthSpec, Loaded, Protocol, ServerSpec, Severity,
    UpstreamSpec, parse,
};
use tollgate_policy::{
    CostRule, KeyPart, MissingKey, PressureRule, QueueConcurrency, QueueRule, Source,
};

const EXAMPLE: &str = include_str!("../../../../examples/gateway/tollgate.yaml");
const LIMIT: &str = "default: pass\nlimits: [{ name: a, key: ip, allow: 5/s }]\n";

fn load(text: &str) -> Loaded {
    parse("test.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The only queue of a policy, with these fields beside its name.
fn queue(fields: &str) -> QueueRule {
    let text = format!("{LIMIT}queues: [{{ name: q, {fields} }}]\n");
    load(&text).policy.queues.remove(0)
}

fn pressure(fields: &str) -> PressureRule {
    let tiers = "tiers: { free: {}, pro: { weight: 4 } }";
    load(&format!("{LIMIT}{tiers}\npressure: {{ {fields} }}\n"))
        .policy
        .pressure
        .unwrap()
}

fn gateway(fields: &str) -> GatewaySpec {
    load(&format!("{LIMIT}gateway: {{ {fields} }}\n")).gateway
}

/// The only upstream of a gateway, with these fields beside its name.
fn upstream(fields: &str) -> UpstreamSpec {
    gateway(&format!("upstreams: [{{ name: app, {fields} }}]"))
        .upstreams
        .remove(0)
}

/// The warnings about a valid file.
fn said(text: &str) -> Vec<(Severity, &'static str)> {
    let warnings = load(&format!("{LIMIT}{text}")).warnings;
    warnings.iter().map(|p| (p.severity, p.code)).collect()
}

fn server(tls: bool, host: &str, port: u16) -> ServerSpec {
    ServerSpec {
        tls,
        host: host.into(),
        port,
    }
}

#[test]
fn a_file_without_the_sections_has_defaults() {
    let loaded = load(LIMIT);
    assert!(loaded.policy.queues.is_empty());
    assert_eq!(loaded.policy.pressure, None);
    assert!(loaded.gateway.upstreams.is_empty());
    assert_eq!(loaded.gateway.accept, AcceptSpec::default());
    assert_eq!(loaded.gateway.timeouts, ClientTimeouts::default());
    assert_eq!(loaded.gateway.max_body, None);
    assert!(loaded.gateway.wait_header);
}

#[test]
fn the_example_is_valid_and_complete() {
    let loaded = load(EXAMPLE);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let names: Vec<&str> = loaded.policy.queues.iter().map(|q| &*q.name).collect();
    assert_eq!(names, ["reports", "api", "web"]);
    assert!(loaded.policy.pressure.is_some());
    assert_eq!(loaded.gateway.upstreams.len(), 2);
}

#[test]
fn a_minimal_queue_has_defaults() {
    let rule = queue("at_once: 64");
    assert_eq!(&*rule.name, "q");
    assert_eq!(rule.at_once, Some(QueueConcurrency::Fixed(64)));
    assert_eq!(rule.rate, None);
    assert!(rule.matches.paths.is_empty() && rule.except.is_empty());
    assert!(rule.flow.is_empty() && rule.weights.is_none());
    assert_eq!(rule.missing_key, MissingKey::Address { v6: 64 });
    assert_eq!(rule.cost, CostRule::Asked);
    assert_eq!(rule.max_wait, Span::from_secs(10));
    assert_eq!(rule.at_once_per_flow, None);
}

#[test]
fn one_flow_may_use_the_whole_queue_and_many_a_part() {
    let room = |fields: &str| {
        let rule = queue(&format!("at_once: 1, {fields}"));
        (rule.total, rule.per_flow)
    };
    assert_eq!(room(""), (1000, 1000));
    assert_eq!(room("waiting: 50"), (50, 50));
    assert_eq!(room("flow: ip"), (1000, 100));
    assert_eq!(room("flow: ip, waiting: 50"), (50, 50));
    assert_eq!(room("flow: ip, waiting_per_flow: 7"), (1000, 7));
    assert_eq!(room("waiting: 1_000_000"), (1_000_000, 1_000_000));
}

#[test]
fn every_field_of_a_queue_is_resolved() {
    let text = format!(
        "{LIMIT}ipv6_prefix: 56\ntiers: {{ free: {{}}, pro: {{ weight: 4 }} }}\nqueues:\n- name: api\n  \
         match: {{ path: '/t/{{tenant}}/**' }}\n  except: [{{ method: GET }}, {{ path: /t/x/y }}]\n  \
         flow: [path.tenant, 'header.X-Key|trim']\n  missing_key: shared\n  tier: header.x-plan\n  \
         cost: {{ 'POST /t/*/import': 10, default: 2 }}\n  at_once: 8\n  at_once_per_flow: 3\n  rate: 30/min\n  burst: 5\n  waiting: 70\n  \
         waiting_per_flow: 30\n  max_wait: 1500ms\n"
    );
    let rule = load(&text).policy.queues.remove(0);
    assert_eq!(rule.matches.paths[0].as_str(), "/t/{tenant}/**");
    assert_eq!(rule.except.len(), 2);
    let parts = [
        KeyPart::new(Source::Capture("tenant".into())),
        KeyPart {
            trim: true,
            ..KeyPart::new(Source::Header("x-key".into()))
        },
    ];
    assert_eq!(rule.flow, parts);
    assert_eq!(rule.missing_key, MissingKey::Shared);
    let weights = rule.weights.unwrap();
    assert_eq!(weights.source, Source::Header("x-plan".into()));
    let tiers: Vec<(&str, u32)> = weights.tiers.iter().map(|(n, w)| (&**n, *w)).collect();
    assert_eq!(tiers, [("free", 1), ("pro", 4)]);
    assert!(matches!(rule.cost, CostRule::Routes { default: 2, .. }));
    assert_eq!(rule.at_once, Some(QueueConcurrency::Fixed(8)));
    assert_eq!(rule.at_once_per_flow, Some(3));
    assert_eq!(rule.rate, Some(("30/min".parse().unwrap(), 5)));
    assert_eq!((rule.total, rule.per_flow), (70, 30));
    assert_eq!(rule.max_wait, Span::from_millis(1500));
}

#[test]
fn a_rate_alone_is_enough_and_has_a_burst_of_one() {
    let rule = queue("rate: 3000/s");
    assert_eq!(rule.at_once, None);
    assert_eq!(rule.rate, Some(("3000/s".parse().unwrap(), 1)));
}

#[test]
fn at_once_per_flow_goes_with_fixed_and_adaptive_concurrency_and_a_rate() {
    let own = |fields: &str| queue(fields).at_once_per_flow;
    assert_eq!(own("flow: ip, at_once: 8, at_once_per_flow: 8"), Some(8));
    let found = "flow: ip, at_once: { adaptive: aimd, max: 50 }, at_once_per_flow: 50";
    assert_eq!(own(found), Some(50));
    let paced = "flow: ip, rate: 10/s, at_once_per_flow: 100_000";
    assert_eq!(own(paced), Some(100_000));
}

#[test]
fn adaptive_defaults_stay_within_the_given_range() {
    let usual = Adaptive {
        by: Estimator::Gradient2,
        min: 4,
        max: 200,
        initial: 20,
        timeout: Span::from_secs(5),
    };
    for (fields, expected) in [
        ("adaptive: gradient2", usual),
        (
            "adaptive: aimd, min: 1, max: 9, initial: 3, timeout: 250ms",
            Adaptive {
                by: Estimator::Aimd,
                min: 1,
                max: 9,
                initial: 3,
                timeout: Span::from_millis(250),
            },
        ),
        (
            "adaptive: aimd, max: 10",
            Adaptive {
                by: Estimator::Aimd,
                max: 10,
                initial: 10,
                ..usual
            },
        ),
        (
            "adaptive: gradient2, min: 50",
            Adaptive {
                min: 50,
                initial: 50,
                ..usual
            },
        ),
        (
            "adaptive: gradient2, min: 300",
            Adaptive {
                min: 300,
                max: 300,
                initial: 300,
                ..usual
            },
        ),
        (
            "adaptive: gradient2, max: 2",
            Adaptive {
                min: 2,
                max: 2,
                initial: 2,
                ..usual
            },
        ),
    ] {
        let rule = queue(&format!("at_once: {{ {fields} }}"));
        assert_eq!(
            rule.at_once,
            Some(QueueConcurrency::Adaptive(expected)),
            "{fields}"
        );
    }
}

#[test]
fn pressure_is_resolved_to_the_units_of_the_controller() {
    let rule = pressure("latency: 500ms, errors: 2.5%, cpu: 90%, floor: 25%, floors: { pro: 50% }");
    assert_eq!(
        rule,
        PressureRule {
            latency: Some(Span::from_millis(500)),
            errors: Some(250),
            cpu: Some(9000),
            floor: Scale::from_q16(16_384),
            floors: vec![("pro".into(), Scale::from_q16(32_768))],
        }
    );
    assert_eq!(pressure(""), PressureRule::default());
    assert_eq!(pressure("floor: 10%"), PressureRule::default());
    assert_eq!(pressure("floor: 0.01%").floor, Scale::from_q16(7));
    assert_eq!(pressure("floor: 100%, cpu: 90%").floor, Scale::ONE);
}

#[test]
fn an_address_alone_is_an_upstream_for_everything() {
    let found = gateway("upstreams: 'http://127.0.0.1:3000'").upstreams;
    assert_eq!(found.len(), 1);
    let usual = UpstreamSpec::new("default", vec![server(false, "127.0.0.1", 3000)]);
    assert_eq!(format!("{:?}", found[0]), format!("{usual:?}"));
}

#[test]
fn a_minimal_upstream_has_defaults() {
    let found = upstream("servers: http://app");
    let usual = UpstreamSpec::new("app", vec![server(false, "app", 80)]);
    assert_eq!(format!("{found:?}"), format!("{usual:?}"));
}

#[test]
fn every_field_of_an_upstream_is_resolved() {
    let found = upstream(
        "match: { host: api.example.com }, servers: ['http://127.0.0.1:3000', 'https://App.internal', 'http://[::1]:81'], \
         protocol: http2, ca_file: /ca.pem, timeouts: { connect: 2s, answer: 3s, idle: 4s }, keep_host: false, \
         retries: 2, health: { path: '/healthz?deep=1', every: 7s, timeout: 2s, fails: 4, passes: 5 }",
    );
    assert_eq!(found.matches.hosts[0].as_str(), "api.example.com");
    let servers = [
        server(false, "127.0.0.1", 3000),
        server(true, "app.internal", 443),
        server(false, "::1", 81),
    ];
    assert_eq!(found.servers, servers);
    assert_eq!(found.protocol, Protocol::Http2);
    assert_eq!(found.ca_file, Some(PathBuf::from("/ca.pem")));
    assert_eq!(
        (found.connect, found.answer, found.idle),
        (Span::from_secs(2), Span::from_secs(3), Span::from_secs(4))
    );
    assert!(!found.keep_host);
    assert_eq!(found.retries, 2);
    assert_eq!(
        found.health,
        Some(HealthSpec {
            path: "/healthz?deep=1".into(),
            every: Span::from_secs(7),
            timeout: Span::from_secs(2),
            fails: 4,
            passes: 5,
        })
    );
    let short = upstream("servers: http://app, health: /up");
    assert_eq!(short.health, Some(HealthSpec::at("/up")));
}

#[test]
fn bounds_on_clients_are_resolved() {
    let spec = gateway(
        "accept: { connections: 500, per_address: 20, rate: 50/s, burst: 100 }, \
         timeouts: { head: 1s, body: 2s, idle: 3s, write: 4s }, max_body: 64KiB, wait_header: false",
    );
    assert_eq!(
        spec.accept,
        AcceptSpec {
            connections: 500,
            per_address: 20,
            rate: Some(("50/s".parse().unwrap(), 100)),
        }
    );
    assert_eq!(
        spec.timeouts,
        ClientTimeouts {
            head: Span::from_secs(1),
            body: Span::from_secs(2),
            idle: Span::from_secs(3),
            write: Span::from_secs(4),
        }
    );
    assert_eq!(spec.max_body, Some(65_536));
    assert!(!spec.wait_header);
    // Other fields have defaults that follow from these.
    let accept = gateway("accept: { connections: 100, rate: 50/s }").accept;
    assert_eq!(accept.per_address, 100);
    assert_eq!(accept.rate.unwrap().1, 50);
    let timeouts = gateway("timeouts: { head: 1s }").timeouts;
    assert_eq!(timeouts.idle, ClientTimeouts::default().idle);
}

#[test]
fn a_policy_of_queues_alone_is_not_warned_to_have_no_limit() {
    let loaded = load("default: pass\nqueues: [{ name: q, at_once: 4 }]\n");
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
}

#[test]
fn tiers_that_only_a_queue_names_are_used() {
    let queues = "queues: [{ name: q, flow: ip, at_once: 4, tier: header.x-plan }]";
    let tiers = "tiers: { free: {}, pro: { weight: 4 } }";
    assert_eq!(said(&format!("{tiers}\n{queues}")), []);
}

#[test]
fn unwise_settings_are_warned_about_by_name() {
    let two = |first: &str| {
        format!(
            "queues:\n- {{ name: a, {first}at_once: 1 }}\n- {{ name: b, match: {{ path: /b }}, at_once: 1 }}"
        )
    };
    let ups = |first: &str| {
        format!(
            "gateway:\n  upstreams:\n  - {{ name: a, {first}servers: http://a }}\n  - {{ name: b, servers: http://b }}"
        )
    };
    let one = |fields: &str| format!("queues: [{{ name: q, {fields} }}]");
    let app = |fields: &str| {
        format!("gateway: {{ upstreams: [{{ name: app, servers: http://app, {fields} }}] }}")
    };
    use Severity::{Note, Warning};
    for (text, expected) in [
        (two(""), vec![(Warning, "unreachable")]),
        (
            two("match: { path: /** }, "),
            vec![(Warning, "unreachable")],
        ),
        (two("match: { path: /a }, "), vec![]),
        // A request that a queue does not match continues with the next.
        (two("except: { path: /b }, "), vec![]),
        (
            one("at_once: 1, match: { path: /a/b }, except: { path: /a/** }"),
            vec![(Warning, "unreachable")],
        ),
        (
            one("at_once: 1, flow: ip, waiting: 10, waiting_per_flow: 11"),
            vec![(Warning, "waiting-per-flow-above-waiting")],
        ),
        (
            one("at_once: 1, flow: ip, waiting: 10, waiting_per_flow: 10"),
            vec![],
        ),
        (
            one("at_once: 1, waiting_per_flow: 10"),
            vec![(Warning, "one-flow")],
        ),
        (one("at_once: 4, flow: ip, at_once_per_flow: 3"), vec![]),
        (one("rate: 5/s, flow: ip, at_once_per_flow: 3"), vec![]),
        (
            one("at_once: 4, flow: ip, at_once_per_flow: 4"),
            vec![(Warning, "at-once-per-flow-without-effect")],
        ),
        (
            one("at_once: { adaptive: aimd, max: 40 }, flow: ip, at_once_per_flow: 40"),
            vec![(Warning, "at-once-per-flow-without-effect")],
        ),
        (
            one("at_once: 4, at_once_per_flow: 3"),
            vec![(Warning, "one-flow")],
        ),
        (
            one("at_once: { adaptive: aimd, max: 10_001 }"),
            vec![(Warning, "large-adaptive")],
        ),
        (one("at_once: { adaptive: aimd, max: 10_000 }"), vec![]),
        (one("at_once: 100_000"), vec![]),
        (
            format!(
                "tiers: {{ free: {{}}, pro: {{ times: 2 }} }}\n{}",
                one("at_once: 1, flow: ip, tier: header.x-plan")
            ),
            vec![(Warning, "equal-weights")],
        ),
        (
            format!(
                "tiers: {{ pro: {{ weight: 2 }} }}\n{}",
                one("at_once: 1, tier: header.x-plan")
            ),
            vec![(Warning, "one-flow")],
        ),
        ("pressure: {}".into(), vec![(Note, "pressure-by-hand")]),
        ("pressure: { cpu: 90% }".into(), vec![]),
        (
            "pressure: { cpu: 90%, floor: 100% }".into(),
            vec![(Warning, "pressure-without-effect")],
        ),
        (ups(""), vec![(Warning, "unreachable")]),
        (
            ups("match: { host: '*' }, "),
            vec![(Warning, "unreachable")],
        ),
        (ups("match: { path: /a }, "), vec![]),
        (app("retries: 4"), vec![(Warning, "many-retries")]),
        (app("retries: 3"), vec![]),
        (
            app("health: { path: /h, every: 1s, timeout: 1001ms }"),
            vec![(Warning, "slow-health")],
        ),
        (app("health: { path: /h, every: 1s, timeout: 1s }"), vec![]),
        (
            "gateway: { accept: { connections: 10, per_address: 11 } }".into(),
            vec![(Warning, "per-address-above-connections")],
        ),
        // Without TLS, which this test is not about.
        (
            "gateway: { upstreams: 'http://203.0.113.7' }".into(),
            vec![],
        ),
    ] {
        assert_eq!(said(&text), expected, "{text}");
    }
}

#[test]
fn a_password_in_an_address_is_never_printed() {
    for text in [
        "gateway: { upstreams: 'http://u:hunter2@app' }",
        "gateway: { upstreams: ['http://u:hunter2@app'] }",
        "gateway: { upstreams: [{ name: a, servers: 'http://u:hunter2@app/x' }] }",
        "gateway: { upstreams: [{ name: a, servers: ['http://u:hunter2@app', x] }] }",
        "gateway: { upstreams: [{ name: a, servers: 'u:hunter2@app' }] }",
        "gateway: { upstreams: [{ name: a, servers: http://a, health: 'http://u:hunter2@app/h' }] }",
        "gateway: { upstreams: [{ name: a, servers: \"http://u:\\\n  hunter2@app\" }] }",
    ] {
        let text = format!("{LIMIT}{text}\n");
        let problems = parse("test.yaml", text.as_bytes()).unwrap_err();
        let json = problems.iter().map(|p| p.to_json("test.yaml"));
        let json: String = json.collect();
        for said in [problems.to_string(), format!("{problems:?}"), json] {
            assert!(!said.contains("hunter2"), "{text}:\n{said}");
        }
    }
}
