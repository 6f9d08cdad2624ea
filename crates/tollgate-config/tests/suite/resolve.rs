//! The policy that each feature of the file resolves to.

use tollgate::{Algorithm, Estimate, Limit, Moment, Rate, Span};
use tollgate_config::{Severity, override_from, parse};
use tollgate_policy::address::ForwardedHeader;
use tollgate_policy::{
    CostRule, DefaultAction, LimitRule, MissingKey, Mode, OnStoreError, OverrideAction, Policy,
    Privacy, Source, ValueTest, WhenOver, XRateLimit,
};

fn policy(text: &str) -> Policy {
    match parse("test.yaml", text.as_bytes()) {
        Ok(loaded) => loaded.policy,
        Err(problems) => panic!("{problems}"),
    }
}

/// The only limit of a policy with these fields.
fn limit(fields: &str) -> LimitRule {
    let text = format!("default: pass\nlimits: [{{ name: a, {fields} }}]");
    policy(&text).limits.remove(0)
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

#[test]
fn every_algorithm_is_resolved() {
    let minute = Span::from_secs(60);
    let cases = [
        (
            "allow: 5/s",
            Algorithm::TokenBucket {
                rate: rate("5/s"),
                burst: 5,
            },
        ),
        (
            "allow: 5/s, burst: 1_000",
            Algorithm::TokenBucket {
                rate: rate("5/s"),
                burst: 1000,
            },
        ),
        (
            "allow: 5/s, burst: 30s",
            Algorithm::TokenBucket {
                rate: rate("5/s"),
                burst: 150,
            },
        ),
        (
            "algorithm: gcra, allow: 10/s, tolerance: 250ms",
            Algorithm::Gcra {
                rate: rate("10/s"),
                tolerance: Span::from_millis(250),
            },
        ),
        (
            "algorithm: leaky-bucket, allow: 3000/s, queue: 5000, max_wait: 2s",
            Algorithm::LeakyBucket {
                rate: rate("3000/s"),
                queue: 5000,
                max_wait: Some(Span::from_secs(2)),
            },
        ),
        (
            "algorithm: fixed-window, allow: 10/min",
            Algorithm::FixedWindow {
                limit: 10,
                window: minute,
                anchor: Span::ZERO,
            },
        ),
        (
            "algorithm: sliding-log, allow: 100/min",
            Algorithm::SlidingLog {
                limit: 100,
                window: minute,
            },
        ),
        (
            "algorithm: sliding-window, allow: 50/min",
            Algorithm::SlidingWindow {
                limit: 50,
                window: minute,
                estimate: Estimate::Span,
            },
        ),
        (
            "algorithm: sliding-window, allow: 50/min, estimate: strict",
            Algorithm::SlidingWindow {
                limit: 50,
                window: minute,
                estimate: Estimate::Strict,
            },
        ),
        (
            "algorithm: concurrency, allow: 20, ttl: 30s",
            Algorithm::Concurrency {
                limit: 20,
                ttl: Span::from_secs(30),
            },
        ),
    ];
    for (fields, algorithm) in cases {
        let rule = limit(fields);
        assert_eq!(*rule.quota.limit.algorithm(), algorithm, "{fields}");
        assert_eq!(rule.quota.limit.name(), "a");
    }
}

#[test]
fn burst_credits_are_two_buckets() {
    let rule = limit("algorithm: burst-credits, allow: 10/s, times: 10, for: 30s, slack: 4");
    let bucket = |rate: &str, burst| Limit::token_bucket(rate.parse().unwrap(), burst).unwrap();
    assert_eq!(rule.quota.limit, bucket("10/s", 2_704).with_name("a"));
    assert_eq!(
        rule.quota.peak,
        Some(bucket("100/s", 4).with_name("a/peak"))
    );
    let roomy = limit("algorithm: burst-credits, allow: 10/s, times: 2, for: 1s, max_keys: 7");
    let rooms = [&roomy.quota.limit, &roomy.quota.peak.unwrap()].map(Limit::max_keys);
    assert_eq!(rooms, [7, 7]);
}

#[test]
fn an_override_of_burst_credits_changes_only_its_fields() {
    let text = "algorithm: burst-credits, allow: 10/s, times: 10, for: 30s";
    let rule = limit(&format!("key: ip, {text}"));
    let change = br#"{"key": "192.0.2.1", "allow": "20/s"}"#;
    let OverrideAction::Quota(changed) = override_from(&rule, change).unwrap().grant else {
        panic!("no quota");
    };
    let whole = limit("algorithm: burst-credits, allow: 20/s, times: 10, for: 30s");
    assert_eq!(*changed, whole.quota);
}

#[test]
fn a_limit_of_the_calendar_is_a_fixed_window_of_its_periods() {
    let rule = limit(
        "key: ip, allow: 100_000, calendar: { every: month, zone: Europe/Berlin, starts: 15 }",
    );
    let periods = rule.quota.periods.clone().unwrap();
    assert_eq!(periods.name(), "month in Europe/Berlin");
    let Algorithm::FixedWindow {
        limit: 100_000,
        window,
        anchor: Span::ZERO,
    } = *rule.quota.limit.algorithm()
    else {
        panic!("{:?}", rule.quota);
    };
    assert_eq!(window, periods.window());
    // A month of 31 days in which the clocks are put back.
    assert_eq!(window, Span::from_secs((31 * 24 + 1) * 3600));
    let again = limit(
        "key: ip, allow: 5, algorithm: fixed-window, calendar: { every: week, starts: sunday }",
    );
    assert_eq!(again.quota.periods.unwrap().name(), "week in UTC");
}

#[test]
fn a_match_is_resolved() {
    let rule = limit(
        "allow: 5/s, key: ip, except: [{ path: /health }, { method: options }], match: { method: [get, POST], \
         path: [\"/api/rides/{ride}/cancel\", /admin/**], host: \"*.Example.com\", \
         header: { X-Beta: \"yes\", x-a: true, x-b: false, x-c: [a, b*] }, query: { format: pdf }, \
         ip: [10.0.0.0/8, 192.0.2.1], domain: edge, descriptor: { remote_address: \"*\" } }",
    );
    let matches = &rule.matches;
    assert_eq!(matches.methods, ["GET", "POST"]);
    assert_eq!(matches.paths[0].as_str(), "/api/rides/{ride}/cancel");
    assert_eq!(matches.hosts[0].as_str(), "*.example.com");
    let names: Vec<&str> = matches
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["x-beta", "x-a", "x-b", "x-c"]);
    assert!(matches!(&matches.headers[0].1, ValueTest::Like(all) if all[0].as_str() == "yes"));
    assert_eq!(matches.headers[1].1, ValueTest::Present);
    assert_eq!(matches.headers[2].1, ValueTest::Absent);
    assert!(matches!(&matches.headers[3].1, ValueTest::Like(all) if all.len() == 2));
    assert!(matches.addresses.contains("10.1.2.3".parse().unwrap()));
    assert!(!matches.addresses.contains("192.0.2.2".parse().unwrap()));
    assert_eq!(matches.domain.as_ref().unwrap().as_str(), "edge");
    assert_eq!(rule.except.len(), 2);
    assert_eq!(rule.except[1].methods, ["OPTIONS"]);
}

#[test]
fn keys_are_resolved() {
    let sources = |key: &str| -> Vec<Source> {
        let fields = format!("allow: 5/s, match: {{ path: \"/r/{{ride}}\" }}, key: {key}");
        limit(&fields)
            .key
            .into_iter()
            .map(|part| part.source)
            .collect()
    };
    assert_eq!(sources("none"), []);
    assert_eq!(sources("ip"), [Source::Address { v4: 32, v6: 64 }]);
    assert_eq!(sources("ip/56"), [Source::Address { v4: 32, v6: 56 }]);
    assert_eq!(
        sources("[header.X-Id, query.q, cookie.s, path, path.ride, method, host, field.f]"),
        [
            Source::Header("x-id".into()),
            Source::Query("q".into()),
            Source::Cookie("s".into()),
            Source::Path,
            Source::Capture("ride".into()),
            Source::Method,
            Source::Host,
            Source::Field("f".into()),
        ]
    );
    let rule = limit("allow: 5/s, key: \"header.x-email | trim | lowercase\", missing_key: deny");
    assert!(rule.key[0].trim && rule.key[0].lowercase);
    assert_eq!(rule.missing_key, MissingKey::Deny);
    assert_eq!(
        limit("allow: 5/s").missing_key,
        MissingKey::Address { v6: 64 }
    );
    let text = "default: pass\nipv6_prefix: 56\nlimits: [{ name: a, key: ip, allow: 5/s }]";
    let source = policy(text).limits[0].key[0].source.clone();
    assert_eq!(source, Source::Address { v4: 32, v6: 56 });
}

#[test]
fn costs_are_resolved() {
    assert_eq!(limit("allow: 5/s").cost, CostRule::Asked);
    assert_eq!(limit("allow: 5/s, cost: 2").cost, CostRule::Constant(2));
    let CostRule::Routes { routes, default: 2 } =
        limit("allow: 50/s, cost: { \"post,put /export/pdf\": 10, \"/x/**\": 3, default: 2 }").cost
    else {
        panic!("routes");
    };
    assert_eq!(
        (routes[0].0.as_slice(), routes[0].2),
        (["POST".to_owned(), "PUT".into()].as_slice(), 10)
    );
    assert_eq!(
        (routes[1].0.len(), routes[1].1.as_str(), routes[1].2),
        (0, "/x/**", 3)
    );
    assert_eq!(
        limit("allow: 500/s, cost: { from: header.x-cost, default: 2, min: 1, max: 100 }").cost,
        CostRule::From {
            source: Source::Header("x-cost".into()),
            default: 2,
            least: 1,
            most: 100
        }
    );
}

#[test]
fn numbers_and_rates_have_thousands_and_millions() {
    let quota = |text: &str| tollgate_config::quota_from(text).unwrap().to_string();
    for text in [
        "100k/min",
        "100_000/min",
        "100k per minute",
        "allow: 100k per min, burst: 100k",
    ] {
        assert_eq!(
            quota(text),
            "token bucket 100000/min burst 100000",
            "{text}"
        );
    }
    assert_eq!(
        quota("algorithm: leaky-bucket, allow: 3k/s, queue: 2M"),
        "leaky bucket 3000/s queue 2000000"
    );
    // A span of the rate, not a million.
    assert_eq!(quota("allow: 1/s, burst: 1m"), "token bucket 1/s burst 60");
}

#[test]
fn a_tier_is_found_by_its_keys() {
    let head = "default: pass\ntiers: { free: { keys: initech }, pro: { times: 10, keys: [Acme, globex] } }\n";
    let members = |rest: &str| {
        let policy = policy(&format!("{head}{rest}"));
        let of_limit = policy.limits.into_iter().filter_map(|limit| limit.tiers);
        let of_limit = of_limit.map(|tiers| (tiers.source, tiers.members));
        let of_queue = policy.queues.into_iter().filter_map(|queue| queue.weights);
        let of_queue = of_queue.map(|weights| (weights.source, weights.members));
        let (source, members) = of_limit.chain(of_queue).next().unwrap();
        assert_eq!(source, Source::Header("x-key".into()));
        members.unwrap()
    };
    let plain = members("limits: [{ name: a, key: [header.x-key, ip], allow: 5/s, tier: key }]");
    assert_eq!(plain.tiers.len(), 3);
    assert_eq!(
        (plain.tiers.get("initech"), plain.tiers.get("Acme")),
        (Some(&0), Some(&1))
    );
    let folded =
        members("limits: [{ name: a, key: header.x-key|lowercase, allow: 5/s, tier: key }]");
    assert_eq!(
        (folded.lowercase, folded.tiers.get("acme")),
        (true, Some(&1))
    );
    let queue =
        members("queues: [{ name: a, flow: header.x-key, at_once: 5, tier: key }]\nlimits: []");
    assert_eq!(queue.tiers.get("globex"), Some(&1));

    for (text, code) in [
        (
            "tiers: { a: { keys: [x] }, b: { keys: [x] } }",
            "duplicate-key",
        ),
        ("tiers: { a: { keys: [' '] } }", "bad-key"),
        (
            "tiers: { a: {} }\nlimits: [{ name: a, key: header.x, allow: 5/s, tier: key }]",
            "no-tiers",
        ),
        (
            "tiers: { a: { keys: x } }\nlimits: [{ name: a, allow: 5/s, tier: key }]",
            "bad-source",
        ),
        (
            "tiers: { a: { keys: x } }\nlimits: [{ name: a, key: ip, allow: 5/s, tier: key }]",
            "bad-source",
        ),
    ] {
        let problems = parse("p.yaml", text.as_bytes()).unwrap_err();
        assert!(
            problems.iter().any(|p| p.code == code),
            "{text}: {problems}"
        );
    }
}

#[test]
fn tiers_scale_exactly() {
    let text = "default: pass\ntiers: { free: {}, half: { times: 0.5 }, pro: { times: 2.5, weight: 4 } }\n\
                limits: [{ name: a, key: ip, allow: 5/s, burst: 10, tier: descriptor.plan }]";
    let tiers = policy(text).limits.remove(0).tiers.unwrap();
    assert_eq!(tiers.source, Source::Descriptor("plan".into()));
    let all: Vec<_> = tiers
        .tiers
        .iter()
        .map(|t| (&*t.name, t.weight, *t.quota.limit.algorithm()))
        .collect();
    let bucket = |text: &str, burst| Algorithm::TokenBucket {
        rate: rate(text),
        burst,
    };
    assert_eq!(
        all,
        [
            ("free", 1, bucket("5/s", 10)),
            ("half", 1, bucket("5/2s", 5)),
            ("pro", 4, bucket("25/2s", 25)),
        ]
    );
}

#[test]
fn overrides_inherit_other_fields_from_the_limit() {
    let rule = limit(
        "key: [ip, \"header.x-org|lowercase\"], allow: 5/s, burst: 30s, overrides: [{ key: [10.1.2.3, Acme], allow: 100/s, \
         expires: 2100-01-01 }, { key: [\"2001:db8::1\", b], unlimited: true }, { key: [\"::ffff:10.0.0.1\", c], blocked: true }, \
         { key: [10.1.2.3, d], burst: 7 }]",
    );
    let keys: Vec<String> = rule.overrides.iter().map(|o| o.key.join(" ")).collect();
    assert_eq!(
        keys,
        [
            "10.1.2.3 acme",
            "2001:db8::/64 b",
            "10.0.0.1 c",
            "10.1.2.3 d"
        ]
    );
    let OverrideAction::Quota(quota) = &rule.overrides[0].grant else {
        panic!("a quota");
    };
    assert_eq!(
        *quota.limit.algorithm(),
        Algorithm::TokenBucket {
            rate: rate("100/s"),
            burst: 3000
        }
    );
    assert_eq!(rule.overrides[1].grant, OverrideAction::Unlimited);
    assert_eq!(rule.overrides[2].grant, OverrideAction::Blocked);
    let OverrideAction::Quota(quota) = &rule.overrides[3].grant else {
        panic!("a quota");
    };
    assert_eq!(
        *quota.limit.algorithm(),
        Algorithm::TokenBucket {
            rate: rate("5/s"),
            burst: 7
        }
    );
    assert_eq!(
        rule.overrides[0].expires,
        Some(Moment::from_nanos(4_102_444_800_000_000_000))
    );
}

#[test]
fn an_override_at_run_time_is_read_as_one_in_the_file() {
    let rule = limit("key: ip, allow: 5/s, burst: 10");
    let read = override_from(&rule, br#"{"key": "10.1.2.3", "allow": "100/s"}"#).unwrap();
    let OverrideAction::Quota(quota) = &read.grant else {
        panic!("a quota");
    };
    assert_eq!(
        *quota.limit.algorithm(),
        Algorithm::TokenBucket {
            rate: rate("100/s"),
            burst: 10
        }
    );
    assert_eq!(quota.limit.name(), "a");
    // The file sets no burst, so it follows the rate.
    let rule = limit("key: ip, allow: 5/s");
    let read = override_from(&rule, b"{key: 10.1.2.3, allow: 100/s}").unwrap();
    assert!(
        matches!(read.grant, OverrideAction::Quota(q) if *q.limit.algorithm() == Algorithm::TokenBucket { rate: rate("100/s"), burst: 100 })
    );
    let rule = limit("key: ip, allow: 1000, calendar: { every: month }");
    let read = override_from(&rule, b"{key: 10.1.2.3, allow: 2000}").unwrap();
    assert!(matches!(read.grant, OverrideAction::Quota(q) if q.periods == rule.quota.periods));
    let problems = override_from(&rule, b"{key: acme, alow: 5}").unwrap_err();
    assert_eq!(problems.count(Severity::Error), 2);
}

#[test]
fn a_candidate_inherits_other_fields_from_the_limit() {
    let quota = limit("key: ip, allow: 5/s, burst: 10, candidate: { allow: 3/s }")
        .candidate
        .unwrap();
    assert_eq!(
        *quota.limit.algorithm(),
        Algorithm::TokenBucket {
            rate: rate("3/s"),
            burst: 10
        }
    );
    let quota = limit("key: ip, allow: 5/s, burst: 10, candidate: { algorithm: sliding-log }")
        .candidate
        .unwrap();
    assert_eq!(
        *quota.limit.algorithm(),
        Algorithm::SlidingLog {
            limit: 5,
            window: Span::from_secs(1)
        }
    );
}

#[test]
fn the_rest_of_a_limit_is_resolved() {
    let rule = limit(
        "key: ip, allow: 5/s, max_keys: 100_000, mode: shadow, expires: 2100-01-01T12:00:00Z, owner: me, reason: why",
    );
    assert_eq!(rule.quota.limit.max_keys(), 100_000);
    assert_eq!(rule.mode, Mode::Shadow);
    assert_eq!(
        rule.expires,
        Some(Moment::from_nanos(4_102_488_000_000_000_000))
    );
    assert_eq!(
        (rule.owner.as_deref(), rule.reason.as_deref()),
        (Some("me"), Some("why"))
    );
    assert_eq!(limit("key: ip, allow: 5/s, enforce: 25%").enforced, 2500);
    assert_eq!(limit("key: ip, allow: 5/s, enforce: 0.5%").enforced, 50);
    assert_eq!(limit("key: ip, allow: 5/s").enforced, 10_000);
}

#[test]
fn the_top_of_the_file_is_resolved() {
    let policy = policy(
        "version: 1\nstore: memory\ndefault: { key: ip, allow: 100/s }\nkey_privacy: hashed\n\
         trusted_proxies: [10.0.0.0/8]\nclient_address: forwarded\npaths: { ignore_case: true, trailing_slash: keep }\n\
         headers: { retry_after: false, jitter: 20%, x_ratelimit: epoch, ratelimit: false, problem: false }\n\
         allow: [{ match: { ip: 10.0.0.0/8 } }, { name: b, match: { path: /B/ } }]\n\
         deny: [{ match: { header: { user-agent: \"*bot*\" } }, reason: scraper, expires: 2100-01-01 }]\n",
    );
    assert!(
        matches!(&policy.default, DefaultAction::Limit(rule) if &*rule.name == "default" && rule.key.len() == 1)
    );
    assert_eq!(policy.privacy, Privacy::Hashed);
    assert_eq!(policy.proxies.header, ForwardedHeader::Forwarded);
    assert!(policy.proxies.trusts("10.1.1.1".parse().unwrap()));
    assert!(policy.paths.ignore_case && policy.paths.keep_trailing_slash);
    let answers = &policy.answers;
    assert!(!answers.retry_after && !answers.ratelimit && !answers.problem);
    assert_eq!(
        (answers.jitter_percent, answers.x_ratelimit),
        (20, XRateLimit::Epoch)
    );
    let names: Vec<&str> = policy
        .allow
        .iter()
        .chain(&policy.deny)
        .map(|rule| &*rule.name)
        .collect();
    assert_eq!(names, ["allow-1", "b", "deny-1"]);
    // Patterns are compared as paths are.
    assert!(policy.allow[1].matches.paths[0].matches("/b/"));
    assert_eq!(policy.deny[0].reason.as_deref(), Some("scraper"));
}

#[test]
fn json_is_read_as_well() {
    let policy = policy(
        r#"{"default": "refuse", "limits": [{"name": "a", "match": {"path": "/a"}, "key": "ip", "allow": "5/s"}]}"#,
    );
    assert!(matches!(policy.default, DefaultAction::Refuse));
    assert_eq!(policy.limits.len(), 1);
}

#[test]
fn the_example_has_every_algorithm_and_no_warning() {
    let loaded = parse("example", tollgate_config::EXAMPLE.as_bytes()).unwrap();
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let kinds: std::collections::HashSet<_> = loaded
        .policy
        .limits
        .iter()
        .map(|rule| std::mem::discriminant(rule.quota.limit.algorithm()))
        .collect();
    assert_eq!(kinds.len(), 7);
    let mut peaks = loaded.policy.limits.iter().map(|rule| &rule.quota.peak);
    assert!(peaks.any(Option::is_some), "burst credits");
    assert!(
        loaded
            .policy
            .limits
            .iter()
            .any(|rule| rule.quota.periods.is_some())
    );
    assert!(
        loaded.policy.allow.is_empty(),
        "who tries it from this machine is to be refused as well"
    );
}

#[test]
fn limits_without_max_keys_share_a_default() {
    let of = |count: usize, more: &str| {
        let mut text = String::from("default: pass\nlimits:\n");
        for at in 0..count {
            text.push_str(&format!(
                "  - {{ name: l{at}, key: ip, match: {{ path: /l{at} }}, allow: 5/s{more} }}\n"
            ));
        }
        let loaded = tollgate_config::parse("p.yaml", text.as_bytes()).unwrap();
        loaded.policy.limits[0].quota.limit.max_keys()
    };
    assert_eq!(of(1, ""), 1_000_000);
    assert_eq!(of(15, ""), 1_000_000);
    assert_eq!(of(999, ""), 16_000);
    assert_eq!(of(9999, ""), 10_000);
    assert_eq!(of(999, ", max_keys: 2_000_000"), 2_000_000);
}

#[test]
fn domains_enforce_limits_of_requests_only_if_set() {
    let of = |domains: &str| policy(&format!("default: pass\n{domains}\nlimits: []\n")).follow;
    assert_eq!(of(""), None);
    assert_eq!(of("domains: []"), None);
    assert_eq!(of("domains: [{ name: edge }]"), None);
    assert_eq!(
        of("domains: [{ name: edge, follow_request_limits: false }]"),
        None
    );
    let two = "domains: [{ name: edge, follow_request_limits: true }, { name: b }, { name: 'a b/c', follow_request_limits: true }]";
    let follow = of(two).unwrap();
    let names: Vec<&str> = follow.domains.iter().map(|name| &**name).collect();
    assert_eq!(names, ["edge", "a b/c"]);
    assert_eq!(follow.max_keys, 1_000_000);
    assert_eq!(follow.on_store_error, OnStoreError::Local);
    let shared = "store: redis://127.0.0.1:6379\non_store_error: deny\n";
    let follow = of(&format!("{shared}{two}")).unwrap();
    assert_eq!(follow.on_store_error, OnStoreError::Deny);
}

#[test]
fn limits_of_requests_share_the_default_max_keys_with_the_file() {
    let limits: String = (0..999)
        .map(|n| format!("  - {{ name: l{n}, key: ip, allow: 5/s, match: {{ path: /{n} }} }}\n"))
        .collect();
    let text = format!(
        "default: pass\ndomains: [{{ name: edge, follow_request_limits: true }}]\nlimits:\n{limits}"
    );
    assert_eq!(policy(&text).follow.unwrap().max_keys, 16_000 / 6);
}

#[test]
fn a_debt_is_resolved_for_tiers_overrides_and_the_candidate() {
    let rule = limit(
        "key: header.x, allow: 5/s, when_over: owe, max_debt: 1_000, candidate: { allow: 9/s }, \
         overrides: [{ key: a, allow: 7/s }, { key: b, unlimited: true }]",
    );
    assert_eq!(rule.quota.limit.max_debt(), 1_000);
    assert_eq!(rule.candidate.unwrap().limit.max_debt(), 1_000);
    let OverrideAction::Quota(quota) = &rule.overrides[0].grant else {
        panic!("{:?}", rule.overrides);
    };
    assert_eq!(quota.limit.max_debt(), 1_000);
    assert_eq!(rule.when_over, WhenOver::ChargeNothing);
    assert_eq!(limit("allow: 5/s").quota.limit.max_debt(), 0);
}

#[test]
fn what_a_refused_request_takes_is_resolved() {
    assert_eq!(limit("allow: 5/s").when_over, WhenOver::ChargeNothing);
    let said = limit("allow: 5/s, when_over: take-nothing");
    assert_eq!(said.when_over, WhenOver::ChargeNothing);
    let said = limit("allow: 5/s, when_over: take-rest");
    assert_eq!(said.when_over, WhenOver::ChargeRemaining);
    let default = policy("default: { key: ip, allow: 5/s, when_over: take-rest }").default;
    assert!(
        matches!(default, DefaultAction::Limit(rule) if rule.when_over == WhenOver::ChargeRemaining)
    );
}
