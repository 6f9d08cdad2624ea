//! Files of other rate limiters are converted to valid policies.

use tollgate::{ManualClock, Moment, Span};
use tollgate_config::import::{EnvoyOptions, envoy, envoy_folder, limitador};
use tollgate_config::{Problems, parse};
use tollgate_policy::{Facts, PolicyGate};

fn converted(text: &str) -> String {
    let files = [("config.yaml".to_owned(), text.as_bytes().to_vec())];
    let converted =
        envoy(&files, EnvoyOptions::default()).unwrap_or_else(|all| panic!("{}", all[0]));
    parse("converted", converted.policy.as_bytes())
        .map(|_| converted.policy)
        .unwrap()
}

fn gate(policy: &str) -> (PolicyGate<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Moment::from_nanos(1_700_000_000_000_000_000));
    let policy = parse("converted", policy.as_bytes()).unwrap().policy;
    (PolicyGate::new(policy, clock.clone()).unwrap(), clock)
}

/// The name of the limit that charges a descriptor of this domain.
fn met(gate: &PolicyGate<ManualClock>, domain: &str, entries: &[(&str, &str)]) -> Option<String> {
    let facts = Facts {
        domain,
        descriptor: entries,
        ..Facts::default()
    };
    let answer = gate.peek(&facts);
    assert!(answer.charges.len() <= 1, "one limit at the most");
    let rule = answer.charges.first().and_then(|c| gate.rule(c.rule));
    rule.map(|rule| rule.name.to_string())
}

const TREE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { name: any-user, unit: minute, requests_per_unit: 10 }
  - key: user
    value: ann
    rate_limit: { name: ann, unit: MINUTE, requests_per_unit: 20 }
    descriptors:
      - key: path
        rate_limit: { name: ann-path, unit: second, requests_per_unit: 1 }
  - key: user
    value: bot-*
    rate_limit: { name: bots, unit: hour, requests_per_unit: 5 }
  - key: user
    value: bot-g*
    rate_limit: { name: never-reached, unit: hour, requests_per_unit: 6 }
  - key: user
    value: '*-x'
    rate_limit: { name: crossed, unit: hour, requests_per_unit: 7 }
  - key: tenant
    descriptors:
      - key: user
        rate_limit: { name: tenant-user, unit: week, requests_per_unit: 70 }
  - key: tenant
    value: free
  - key: open
    value: yes
    rate_limit: { unlimited: true }
  - key: shut
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: tried
    rate_limit: { unit: year, requests_per_unit: 9 }
    shadow_mode: true
  - key: shared
    value: a*
    share_threshold: true
    rate_limit: { name: shared, unit: month, requests_per_unit: 3 }
";

#[test]
fn a_descriptor_matches_the_same_limit_as_in_the_reference_service() {
    let (gate, _) = gate(&converted(TREE));
    for (entries, name) in [
        // The exact value, then patterns in the order of the file, then the key alone.
        ([("user", "ann")].as_slice(), Some("ann")),
        (&[("user", "bob")], Some("any-user")),
        (&[("user", "bot-g1")], Some("bots")),
        (&[("user", "bot-x")], Some("bots")),
        (&[("user", "cat-x")], Some("crossed")),
        // The depth must be that of the last entry.
        (&[("user", "ann"), ("path", "/")], Some("ann-path")),
        (&[("user", "bob"), ("path", "/")], None),
        (&[("user", "ann"), ("path", "/"), ("more", "1")], None),
        (&[("tenant", "a")], None),
        (&[("tenant", "a"), ("user", "bob")], Some("tenant-user")),
        // There is no backtracking: `free` has no children.
        (&[("tenant", "free"), ("user", "bob")], None),
        // Order counts.
        (&[("user", "bob"), ("tenant", "a")], None),
        (&[("other", "x")], None),
        (&[], None),
    ] {
        assert_eq!(met(&gate, "edge", entries).as_deref(), name, "{entries:?}");
    }
    assert_eq!(met(&gate, "other", &[("user", "ann")]), None);
}

#[test]
fn limits_count_as_in_the_reference_service() {
    let (gate, clock) = gate(&converted(TREE));
    let passes = |entries: &[(&str, &str)]| {
        let facts = Facts {
            domain: "edge",
            descriptor: entries,
            ..Facts::default()
        };
        (0..30).filter(|_| gate.admit(&facts).is_admitted()).count()
    };
    // Each value has a count of its own, unless they share one.
    assert_eq!(passes(&[("user", "bob")]), 10);
    assert_eq!(passes(&[("user", "eve")]), 10);
    assert_eq!(passes(&[("user", "ann")]), 20);
    assert_eq!(passes(&[("user", "bot-1")]), 5);
    assert_eq!(passes(&[("user", "bot-2")]), 5);
    assert_eq!(passes(&[("shared", "a1")]), 3);
    assert_eq!(passes(&[("shared", "a2")]), 0);
    assert_eq!(passes(&[("open", "yes")]), 30);
    assert_eq!(passes(&[("shut", "x")]), 0);
    assert_eq!(passes(&[("tried", "x")]), 30);
    // The minute of the clock turns: 1 700 000 000 s are 20 s into one.
    clock.advance(Span::from_secs(39));
    assert_eq!(passes(&[("user", "bob")]), 0);
    clock.advance(Span::from_secs(1));
    assert_eq!(passes(&[("user", "bob")]), 10);
}

#[test]
fn a_limit_that_replaces_others_names_them() {
    let policy = converted(
        "
domain: edge
descriptors:
  - key: user
    rate_limit: { name: plain, unit: day, requests_per_unit: 1 }
  - key: path
    rate_limit: { name: plain, unit: day, requests_per_unit: 2 }
  - key: vip
    rate_limit: { name: vip, unlimited: true, replaces: [{ name: plain }, { name: gone }] }
",
    );
    let loaded = parse("converted", policy.as_bytes()).unwrap();
    let vip = loaded.policy.limits.iter().find(|l| &*l.name == "vip");
    let replaced: Vec<&str> = vip.unwrap().replaces.iter().map(|r| &**r).collect();
    assert_eq!(replaced, ["plain", "plain-2"]);
    assert!(policy.contains("# `replaces` names 'gone'"), "{policy}");
    assert!(policy.contains("never reached"), "{policy}");
}

#[test]
fn replacing_a_limit_of_zero_is_reported() {
    let text = "
domain: edge
descriptors:
  - key: plan
    rate_limit: { name: none, unit: hour, requests_per_unit: 0 }
  - key: vip
    rate_limit: { name: some, unit: hour, requests_per_unit: 3, replaces: [{ name: none }] }
";
    let files = [("config.yaml".to_owned(), text.as_bytes().to_vec())];
    let converted = envoy(&files, EnvoyOptions::default()).unwrap();
    let said = converted.notes[0].to_string();
    assert!(said.contains("names 'none', which allows 0"), "{said}");
    let policy = converted.policy;
    assert!(policy.contains("# `replaces` names 'none'"), "{policy}");
}

#[test]
fn what_is_not_converted_is_a_note_and_a_comment() {
    let text = "
domain: edge
descriptors:
  - key: a
    detailed_metric: true
    quota_mode: true
    rate_limit: { unit: second, requests_per_unit: 1, sleep_on_throttle: true }
";
    let files = [("config.yaml".to_owned(), text.as_bytes().to_vec())];
    let converted = envoy(&files, EnvoyOptions::default()).unwrap();
    let said = converted.notes[0].to_string();
    for word in ["detailed_metric", "quota_mode", "sleep_on_throttle"] {
        assert!(said.contains(&format!("`{word}`")), "{said}");
        let comment = format!("  # `{word}`");
        assert!(converted.policy.contains(&comment), "{}", converted.policy);
    }
    assert!(said.contains("config.yaml:5:5"), "{said}");
}

fn wrong(files: &[&str]) -> Vec<Problems> {
    let name = |(at, text): (usize, &&str)| (format!("{at}.yaml"), text.as_bytes().to_vec());
    let files: Vec<_> = files.iter().enumerate().map(name).collect();
    envoy(&files, EnvoyOptions::default()).unwrap_err()
}

#[test]
fn what_the_reference_service_refuses_is_refused_with_its_place() {
    let under = |descriptor: &str| format!("domain: d\ndescriptors:\n  - {descriptor}\n");
    let limit = |limit: &str| under(&format!("{{ key: k, rate_limit: {{ {limit} }} }}"));
    for (text, said, line) in [
        (
            "descriptors: []\n".to_owned(),
            "config file cannot have empty domain",
            1,
        ),
        (
            "domain: ''\n".to_owned(),
            "config file cannot have empty domain",
            1,
        ),
        (under("{ value: v }"), "descriptor has empty key", 3),
        (
            under("{ key: k }\n  - { key: k }"),
            "duplicate descriptor composite key 'k'",
            4,
        ),
        (
            under("{ key: k, value: v }\n  - { key: k, value: v }"),
            "duplicate descriptor composite key 'k_v'",
            4,
        ),
        (
            limit("unit: fortnight, requests_per_unit: 1"),
            "invalid rate limit unit 'fortnight'",
            3,
        ),
        (
            limit("requests_per_unit: 1"),
            "invalid rate limit unit ''",
            3,
        ),
        (
            limit("unlimited: true, unit: day"),
            "should not specify rate limit unit when unlimited",
            3,
        ),
        (
            limit("unit: day, requests_per_unit: 1, replaces: [{ name: '' }]"),
            "should not have an empty replaces entry",
            3,
        ),
        (
            limit("name: n, unit: day, requests_per_unit: 1, replaces: [{ name: n }]"),
            "replaces should not contain name of same descriptor",
            3,
        ),
        (
            under("{ key: k, ratelimit: {} }"),
            "config error, unknown key 'ratelimit'",
            3,
        ),
        (limit("unit: day, requests_per_unit: -1"), "is negative", 3),
        (
            under("{ key: k, value: v, share_threshold: true }"),
            "`share_threshold` needs",
            3,
        ),
        ("- a\n".to_owned(), "a section is a map", 1),
        (
            "domain: d\ndescriptors: { key: k }\n".to_owned(),
            "`descriptors` is a list",
            2,
        ),
    ] {
        let all = wrong(&[&text]);
        let problem = all[0].iter().next().unwrap();
        assert!(problem.message.contains(said), "{}", all[0]);
        assert_eq!(problem.line, line, "{}", all[0]);
        assert!(!problem.hint.is_empty());
    }
    let all = wrong(&["domain: d\n", "domain: d\n"]);
    assert_eq!(all[0].name(), "1.yaml");
    let said = &all[0].iter().next().unwrap().message;
    assert_eq!(said, "duplicate domain 'd' in config file");
}

#[test]
fn keys_that_a_policy_cannot_distinguish_are_an_error() {
    let text = "
domain: d
descriptors:
  - key: a
    descriptors:
      - key: a
        rate_limit: { unit: day, requests_per_unit: 1 }
";
    let all = wrong(&[text]);
    assert!(all[0].to_string().contains("two levels"), "{}", all[0]);
}

#[test]
fn odd_names_and_values_survive() {
    let policy = converted(
        "
domain: 'a \"b\" c: {}'
descriptors:
  - key: 'k: [1]'
    value: \"true\"
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: no
    value: 'null'
    rate_limit: { unit: day, requests_per_unit: 2 }
",
    );
    let (gate, _) = gate(&policy);
    let domain = "a \"b\" c: {}";
    assert!(met(&gate, domain, &[("k: [1]", "true")]).is_some());
    assert!(met(&gate, domain, &[("k: [1]", "x")]).is_none());
    assert!(met(&gate, domain, &[("no", "null")]).is_some());
}

#[test]
fn all_files_of_a_folder_are_read_in_order() {
    let folder = std::env::temp_dir().join(format!("tollgate-import-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let said = envoy_folder(&folder).unwrap_err().to_string();
    assert!(said.contains("no file that ends in .yaml"), "{said}");
    let write = |name: &str, domain: &str| {
        let text = format!(
            "domain: {domain}\ndescriptors: [{{ key: k, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]\n"
        );
        std::fs::write(folder.join(name), text).unwrap();
    };
    write("b.yaml", "second");
    write("a.yml", "first");
    std::fs::write(folder.join("notes.txt"), "no").unwrap();
    std::fs::write(folder.join(".hidden.yaml"), "no").unwrap();
    let policy = envoy_folder(&folder).unwrap().policy;
    assert!(policy.find("first.k").unwrap() < policy.find("second.k").unwrap());
    write("c.yaml", "first");
    let said = envoy_folder(&folder).unwrap_err().to_string();
    assert!(said.contains("c.yaml:1:1"), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(envoy_folder(&folder).is_err());
}

#[test]
fn limits_of_limitador_become_limits() {
    let text = "
- namespace: api
  max_value: 10
  seconds: 60
  name: per-user
  conditions: [\"descriptors[0]['req.method'] == 'GET'\"]
  variables: [\"descriptors[0].user_id\"]
- namespace: api
  max_value: 5
  seconds: 3600
  conditions: [\"req.method != 'GET'\", \"plan == 'free'\"]
  variables: []
- namespace: api
  max_value: 0
  seconds: 1
  conditions: [\"user_id == 'thief'\"]
- namespace: all
  max_value: 7
  seconds: 1
  conditions: []
  variables: []
";
    let converted = limitador("limits.yaml", text.as_bytes()).unwrap();
    let notes: Vec<&str> = converted.notes[0].iter().map(|p| p.code).collect();
    assert_eq!(notes, ["first-descriptor"]);
    let (gate, _) = gate(&converted.policy);
    let get = [("req.method", "GET"), ("user_id", "ann")];
    assert_eq!(met(&gate, "api", &get).as_deref(), Some("per-user"));
    assert_eq!(met(&gate, "api", &get[..1]), None);
    let post = [("req.method", "POST"), ("plan", "free")];
    assert_eq!(met(&gate, "api", &post).as_deref(), Some("api"));
    assert_eq!(met(&gate, "api", &post[1..]), None);
    assert_eq!(met(&gate, "all", &[("x", "y")]).as_deref(), Some("all"));
    let thief = Facts {
        domain: "api",
        descriptor: &[("user_id", "thief")],
        ..Facts::default()
    };
    assert!(!gate.peek(&thief).is_admitted());
}

#[test]
fn what_a_policy_cannot_express_is_left_out_with_a_note() {
    let text = "
- { namespace: a, max_value: 1, seconds: 1, conditions: [\"x == '1' || y == '2'\"], variables: [] }
- { namespace: a, max_value: 2, seconds: 1, conditions: [], variables: [\"descriptors[1].z\"] }
- { namespace: a, max_value: 3, seconds: 1, name: good, conditions: [], variables: [z] }
";
    let converted = limitador("limits.yaml", text.as_bytes()).unwrap();
    let said = converted.notes[0].to_string();
    assert_eq!(said.matches("this limit is left out").count(), 2, "{said}");
    let policy = &converted.policy;
    assert_eq!(policy.matches("# LEFT OUT, line").count(), 2, "{policy}");
    assert!(policy.contains("allow: 3/1s") && !policy.contains("allow: 1/1s"));
}

#[test]
fn a_wrong_limits_file_is_refused_with_places() {
    for (text, said) in [
        ("- { namespace: a, max_value: 1 }\n", "no `seconds`"),
        ("- { max_value: 1, seconds: 1 }\n", "no `namespace`"),
        ("- { namespace: a, seconds: 1 }\n", "no `max_value`"),
        (
            "- { namespace: a, max_value: x, seconds: 1 }\n",
            "not a whole number",
        ),
        (
            "- { namespaces: a, max_value: 1, seconds: 1 }\n",
            "unknown key 'namespaces'",
        ),
        ("namespace: a\n", "is a list"),
    ] {
        let problems = limitador("limits.yaml", text.as_bytes()).unwrap_err();
        assert!(problems.to_string().contains(said), "{problems}");
        assert_eq!(problems.iter().next().unwrap().line, 1);
    }
}

#[test]
fn the_limit_of_a_condition_is_known_when_it_is_converted() {
    let text = "
- { namespace: a, name: gold, max_value: 1, seconds: 60, conditions: [\"limit.name == 'gold'\"], variables: [limit.name] }
- { namespace: b, id: x, max_value: 1, seconds: 60, conditions: [\"limit.id == 'y'\"] }
";
    let converted = limitador("limits.yaml", text.as_bytes()).unwrap();
    let (gate, _) = gate(&converted.policy);
    assert_eq!(met(&gate, "a", &[("x", "y")]).as_deref(), Some("gold"));
    assert_eq!(met(&gate, "b", &[("x", "y")]), None);
    let said = converted.notes[0].to_string();
    assert!(said.contains("it never holds for this limit"), "{said}");
}

#[test]
fn tests_that_a_policy_can_express_are_converted() {
    let text = "
- { namespace: a, name: one, max_value: 1, seconds: 60, conditions: [\"descriptors[0].path.startsWith('/api')\"] }
- { namespace: b, name: two, max_value: 1, seconds: 60, conditions: [\"m in ['GET', 'PUT']\", \"m != 'PUT'\"] }
- { namespace: c, name: three, max_value: 1, seconds: 60, conditions: [\"(m == 'GET' || m == 'PUT') && !has(user)\"] }
- { namespace: d, name: four, max_value: 1, seconds: 60, conditions: [\"m in ['a', 'b']\", \"m in ['b', 'c']\"] }
";
    let converted = limitador("limits.yaml", text.as_bytes()).unwrap();
    let (gate, _) = gate(&converted.policy);
    for (domain, entries, expected) in [
        ("a", &[("path", "/api/x")][..], Some("one")),
        ("a", &[("path", "/x")], None),
        ("b", &[("m", "GET")], Some("two")),
        ("b", &[("m", "PUT")], None),
        ("c", &[("m", "PUT")], Some("three")),
        ("c", &[("m", "PUT"), ("user", "ann")], None),
        ("d", &[("m", "b")], Some("four")),
        ("d", &[("m", "a")], None),
    ] {
        assert_eq!(
            met(&gate, domain, entries).as_deref(),
            expected,
            "{domain} {entries:?}"
        );
    }
}

#[test]
fn files_of_one_domain_are_merged_if_that_is_requested() {
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let limit = "rate_limit: { unit: minute, requests_per_unit: 1 }";
    let files = [
        file(
            "a.yaml",
            &format!("domain: d\ndescriptors: [{{ key: k, value: v, {limit} }}]\n"),
        ),
        file(
            "b.yaml",
            &format!(
                "domain: d\ndescriptors: [{{ key: k, {limit} }}, {{ key: l, quota_mode: true, {limit} }}]\n"
            ),
        ),
    ];
    assert!(envoy(&files, EnvoyOptions::default()).is_err());
    let merge = EnvoyOptions {
        merge_domains: true,
        ..EnvoyOptions::default()
    };
    let converted = envoy(&files, merge).unwrap();
    let notes: Vec<_> = converted.notes.iter().flatten().map(|p| p.code).collect();
    assert_eq!(
        (converted.notes[0].name(), notes),
        ("b.yaml", vec!["quota-mode"])
    );
    let (gate, _) = gate(&converted.policy);
    // The value of the first file takes precedence over the key of the second.
    assert_eq!(met(&gate, "d", &[("k", "v")]).as_deref(), Some("d.k.v"));
    assert_eq!(met(&gate, "d", &[("k", "w")]).as_deref(), Some("d.k"));
    let twice = [files[0].clone(), files[0].clone()];
    let wrong = envoy(&twice, merge).unwrap_err();
    assert!(
        wrong[0]
            .to_string()
            .contains("duplicate descriptor composite key 'k_v'"),
        "{}",
        wrong[0]
    );
}

#[test]
fn all_limits_can_be_converted_to_shadow_mode() {
    let shadow = EnvoyOptions {
        shadow: true,
        ..EnvoyOptions::default()
    };
    let files = [("config.yaml".to_owned(), TREE.as_bytes().to_vec())];
    let policy = envoy(&files, shadow).unwrap().policy;
    let limits = policy.matches("algorithm: fixed-window").count();
    assert!(limits > 3);
    assert_eq!(policy.matches("mode: shadow").count(), limits);
    assert!(!policy.contains("\ndeny:"));
}
