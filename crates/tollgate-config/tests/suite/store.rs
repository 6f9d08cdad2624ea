//! `store` and `on_store_error`: resolved values, warnings, and passwords that are never shown.

use std::path::PathBuf;

use tollgate::Span;
use tollgate_config::{Loaded, SecretSpec, SharedSpec, StoreSpec, TlsFiles, Topology, parse};
use tollgate_policy::{DefaultAction, OnStoreError};

const LIMIT: &str =
    "on_store_error: local\ndefault: pass\nlimits: [{ name: a, key: ip, allow: 5/s }]\n";

fn load(text: &str) -> Loaded {
    parse("test.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The shared store of a policy that begins with this text.
fn shared(store: &str) -> SharedSpec {
    match load(&format!("{store}\n{LIMIT}")).store {
        StoreSpec::Shared(spec) => *spec,
        StoreSpec::Memory => panic!("a shared store"),
    }
}

/// The codes of all problems of a file.
fn codes(text: &str) -> Vec<&'static str> {
    let problems = match parse("test.yaml", text.as_bytes()) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    problems.iter().map(|problem| problem.code).collect()
}

#[test]
fn memory_is_the_default_store() {
    for store in ["", "store: memory\n"] {
        let text = format!("{store}default: pass\nlimits: [{{ name: a, key: ip, allow: 5/s }}]");
        assert_eq!(load(&text).store, StoreSpec::Memory);
        assert!(codes(&text).is_empty());
    }
}

#[test]
fn an_address_alone_has_default_settings() {
    assert_eq!(
        shared("store: redis://10.0.0.5/2"),
        SharedSpec {
            topology: Topology::Standalone {
                server: ("10.0.0.5".into(), 6379),
            },
            tls: None,
            username: None,
            password: None,
            sentinel_username: None,
            sentinel_password: None,
            database: 2,
            deadline: Span::from_millis(8),
            prefix: "tg".into(),
            nodes: None,
        }
    );
    assert_eq!(shared("store: rediss://h").tls, Some(TlsFiles::default()));
}

#[test]
fn every_field_is_resolved() {
    let spec = shared(
        "store:\n  url: valkeys+sentinel://s1,[::1]:5000/mymaster/3\n  username: tollgate\n  password_env: A\n  \
         sentinel_username: watcher\n  sentinel_password_file: /run/b\n  ca_file: /ca\n  cert_file: /cert\n  \
         key_file: /key\n  deadline: 5ms\n  prefix: tg-1_x.y\n  nodes: 1_000",
    );
    let expected = SharedSpec {
        topology: Topology::Sentinel {
            sentinels: vec![("s1".into(), 26379), ("::1".into(), 5000)],
            service: "mymaster".into(),
        },
        tls: Some(TlsFiles {
            ca_file: Some(PathBuf::from("/ca")),
            cert_file: Some(PathBuf::from("/cert")),
            key_file: Some(PathBuf::from("/key")),
        }),
        username: Some("tollgate".into()),
        password: Some(SecretSpec::Env("A".into())),
        sentinel_username: Some("watcher".into()),
        sentinel_password: Some(SecretSpec::File(PathBuf::from("/run/b"))),
        database: 3,
        deadline: Span::from_millis(5),
        prefix: "tg-1_x.y".into(),
        nodes: Some(1000),
    };
    assert_eq!(spec, expected);
}

#[test]
fn the_user_may_be_in_the_address_and_the_password_elsewhere() {
    let spec = shared("store: { url: 'redis://u%40x@127.0.0.1', password_file: p }");
    assert_eq!(spec.username.as_deref(), Some("u@x"));
    assert_eq!(spec.password, Some(SecretSpec::File("p".into())));
}

#[test]
fn a_store_is_the_same_only_if_every_part_is() {
    let of = |more: &str| shared(&format!("store: {{ url: redis://127.0.0.1{more} }}"));
    assert_eq!(of(""), of(", deadline: 8ms, prefix: tg"));
    for other in [
        ":7000",
        "/1",
        ", deadline: 9ms",
        ", prefix: x",
        ", nodes: 4",
        ", username: u",
    ] {
        assert_ne!(of(""), of(other), "{other}");
    }
}

#[test]
fn each_limit_has_its_own_on_store_error_or_that_of_the_file() {
    let all = |text: &str| -> Vec<OnStoreError> {
        let policy = load(text).policy;
        let DefaultAction::Limit(default) = &policy.default else {
            panic!("a default limit");
        };
        let limits = policy.limits.iter().map(|rule| rule.on_store_error);
        limits.chain([default.on_store_error]).collect()
    };
    use OnStoreError::{Allow, Deny, Local};
    let limits = "limits:\n- { name: a, key: ip, match: { path: /a }, allow: 5/s }\n\
                  - { name: b, key: ip, match: { path: /b }, allow: 5/s, on_store_error: allow }\n";
    let text = format!(
        "store: redis://127.0.0.1\non_store_error: deny\n{limits}default: {{ key: ip, allow: 5/s, on_store_error: local }}"
    );
    assert_eq!(all(&text), [Deny, Allow, Local]);
    let text = format!(
        "store: redis://127.0.0.1\non_store_error: deny\n{limits}default: {{ key: ip, allow: 5/s }}"
    );
    assert_eq!(all(&text), [Deny, Allow, Deny]);
    let text = format!("{limits}default: {{ key: ip, allow: 5/s }}");
    assert_eq!(all(&text), [Local, Allow, Local]);
}

#[test]
fn a_shared_store_requires_on_store_error_for_every_limit_and_the_default() {
    let says = ", on_store_error: local";
    let of = |file: &str, limit: &str, default: &str| {
        codes(&format!(
            "store: redis://127.0.0.1\n{file}limits: [{{ name: a, key: ip, match: {{ path: /a }}, allow: 5/s{limit} }}]\n\
             default: {{ key: ip, allow: 5/s{default} }}"
        ))
    };
    assert!(of("on_store_error: local\n", "", "").is_empty());
    assert!(of("", says, says).is_empty());
    assert_eq!(of("", says, ""), ["missing-field"]);
    assert_eq!(of("", "", says), ["missing-field"]);
    assert_eq!(of("", "", ""), ["missing-field"]);
    // A misspelt field is not reported as missing as well.
    assert_eq!(of("on_store_eror: local\n", "", ""), ["unknown-field"]);
    assert_eq!(of("", ", on-store-error: local", says), ["unknown-field"]);
    // A store with an error is shared, too; a limit with an error has no `on_store_error`.
    let text = "store: redis://h:x\nlimits: [{ name: a, key: ip, brust: 5 }]\ndefault: pass";
    assert_eq!(
        codes(text),
        ["bad-store-address", "missing-field", "unknown-field"]
    );
}

#[test]
fn a_sensible_store_has_no_warning() {
    for store in [
        "store: redis://127.0.0.1",
        "store: redis://10.0.0.5",
        "store: { url: redis://localhost, password_env: P }",
        "store: { url: 'redis://[::1]', username: u, password_env: P, deadline: 15ms }",
        "store: { url: rediss://10.0.0.5, username: u, password_file: p }",
    ] {
        assert!(codes(&format!("{store}\n{LIMIT}")).is_empty(), "{store}");
    }
}

#[test]
fn an_unwise_store_has_warnings() {
    for (store, expected) in [
        ("store: redis://:p@localhost", vec!["password-in-file"]),
        ("store: rediss://:p@h", vec!["password-in-file"]),
        (
            "store: { url: redis://10.0.0.5, password_env: P }",
            vec!["password-in-clear"],
        ),
        (
            "store: { url: 'redis+cluster://localhost,c2', password_file: p }",
            vec!["password-in-clear"],
        ),
        (
            "store: { url: redis+sentinel://s/m, sentinel_password_env: P }",
            vec!["password-in-clear"],
        ),
        ("store: redis://u@10.0.0.5", vec!["user-without-password"]),
        (
            "store: { url: redis://h, deadline: 15001us }",
            vec!["slow-deadline"],
        ),
    ] {
        assert_eq!(codes(&format!("{store}\n{LIMIT}")), expected, "{store}");
    }
}

#[test]
fn a_large_log_is_unwise_only_in_a_shared_store() {
    let log = |store: &str, limit: u32| {
        codes(&format!(
            "{store}default: pass\nlimits: [{{ name: a, algorithm: sliding-log, allow: {limit}/h }}]"
        ))
    };
    let store = "store: redis://127.0.0.1\non_store_error: local\n";
    assert_eq!(log(store, 10_001), ["large-shared-log"]);
    let refused = |limit: &str| {
        let text = format!("{store}default: pass\n{limit}");
        let problems = parse("test.yaml", text.as_bytes()).unwrap_err();
        problems.to_string()
    };
    let too_large = refused("limits: [{ name: a, algorithm: sliding-log, allow: 50001/h }]");
    assert!(too_large.contains("keeps at most 50000"), "{too_large}");
    // Also where a tier makes it so.
    let tiers = "tiers: { big: { times: 10 } }\n";
    let limit = "limits: [{ name: a, algorithm: sliding-log, allow: 10000/h, tier: header.plan }]";
    let too_large = refused(&format!("{tiers}{limit}"));
    assert!(too_large.contains("up to 100000 entries"), "{too_large}");
    assert!(log(store, 10_000).is_empty());
    assert!(log("", 10_001).is_empty());
}

#[test]
fn a_password_is_never_printed() {
    let secret = "hunter2";
    for store in [
        "store: redis://u:hunter2@10.0.0.5",
        "store: redis://u:hunter2@10.0.0.5:x/y",
        "store: redis://u:hunter2",
        "store: u:hunter2@redis://h",
        "store: {url: \"redis://u:hunter2\\x40h:0\"}",
        "store: {url: \"redis://u:\\\n  hunter2\\\n  @h\", nodes: 0}",
        "store: {\"redis://u:hunter2@h\"}",
        "store: {url: redis://h, password: hunter2, nodes: 0}",
        "store: {url: redis://h, requirepass: hunter2, nodes: 0}",
        "store: {url: redis://h, password_env: hunter2-, nodes: 0}",
        "store: redis://h/0?auth=hunter2",
        "password: hunter2",
        "store: redis://u:hunter2@h\nstore: redis://u:hunter2@h",
        "store: redis://u:hunter2@h: x",
        "store: &x redis://u:hunter2@h",
        "store: !!str redis://u:hunter2@h",
    ] {
        let text = format!("{store}\n{LIMIT}");
        let (problems, loaded) = match parse("test.yaml", text.as_bytes()) {
            Ok(loaded) => (loaded.warnings.clone(), format!("{loaded:?} {loaded:#?}")),
            Err(problems) => (problems, String::new()),
        };
        assert!(!problems.is_empty(), "{store}");
        let json = problems.iter().map(|p| p.to_json("test.yaml"));
        let json: String = json.collect();
        for said in [problems.to_string(), format!("{problems:?}"), json, loaded] {
            assert!(!said.contains(secret), "{store}:\n{said}");
        }
    }
}
