//! Overrides of single keys that operators add at run time.

use serde_json::{Map, Value, json};
use tollgate_server::engine::{Engine, OVERRIDES_MAX, OverrideError, ReloadCause, for_tests};

use crate::support::{Directory, admitted, policy, start};

fn change(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn set(engine: &Engine, key: &str, what: Value) {
    engine
        .set_override("users", &[key.into()], &change(what))
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn an_override_applies_at_once_and_keeps_usage() {
    let engine = for_tests(&policy(5));
    assert_eq!(admitted(&engine, "ann", 3), 3);
    set(&engine, "ann", json!({"allow": "1/h", "burst": 8}));
    assert_eq!(admitted(&engine, "ann", 20), 5);
    assert_eq!(admitted(&engine, "bob", 20), 5);
    set(&engine, "ann", json!({"unlimited": true}));
    assert_eq!(admitted(&engine, "ann", 20), 20);
    set(&engine, "ann", json!({"blocked": true}));
    assert_eq!(admitted(&engine, "ann", 20), 0);
    assert_eq!(engine.overrides().len(), 1);
    engine.remove_override("users", &["ann".into()]).unwrap();
    assert!(engine.overrides().is_empty());
    assert!(matches!(
        engine
            .remove_override("users", &["ann".into()])
            .unwrap_err(),
        OverrideError::NotFound
    ));
}

#[test]
fn overrides_survive_a_reload_and_wait_for_a_limit_that_they_fit() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    set(&engine, "ann", json!({"blocked": true}));
    dir.write("p.yaml", &policy(6));
    engine.reload(ReloadCause::Watch).unwrap();
    assert_eq!(admitted(&engine, "ann", 20), 0);

    dir.write(
        "p.yaml",
        "default: pass\nlimits: [{ name: others, key: ip, allow: 1/h, burst: 2 }]\n",
    );
    engine.reload(ReloadCause::Watch).unwrap();
    assert_eq!(admitted(&engine, "ann", 20), 2);
    assert!(!engine.overrides()[0].active);
    assert_eq!(engine.health().status, "degraded");
    assert!(engine.metrics().contains("\ntollgate_overrides 0\n"));

    dir.write("p.yaml", &policy(5));
    engine.reload(ReloadCause::Watch).unwrap();
    assert_eq!(admitted(&engine, "ann", 20), 0);
    assert_eq!(engine.health().status, "ok");
}

#[test]
fn an_override_that_is_over_before_it_begins_is_refused() {
    let engine = for_tests(&policy(5));
    let over = change(json!({"blocked": true, "expires": "2020-01-01"}));
    let error = engine.set_override("users", &["ann".into()], &over);
    assert!(error.unwrap_err().to_string().contains("in the past"));
    assert_eq!(admitted(&engine, "ann", 9), 5);
    assert!(engine.overrides().is_empty());
    set(
        &engine,
        "bob",
        json!({"blocked": true, "expires": "2200-01-01"}),
    );
    assert_eq!(admitted(&engine, "bob", 9), 0);
}

#[test]
fn an_invalid_override_changes_nothing_and_names_the_error() {
    let engine = for_tests(&policy(5));
    let try_set = |limit: &str, key: &[&str], what: Value| {
        let key: Vec<String> = key.iter().map(|part| (*part).into()).collect();
        engine
            .set_override(limit, &key, &change(what))
            .unwrap_err()
            .to_string()
    };
    assert!(try_set("user", &["a"], json!({"blocked": true})).contains("did you mean `users`"));
    let two_parts = try_set("users", &["a", "b"], json!({"blocked": true}));
    assert!(
        two_parts.contains("the key of this limit is [header.x-user]"),
        "{two_parts}"
    );
    assert!(try_set("users", &["a"], json!({})).contains("changes nothing"));
    assert!(try_set("users", &["a"], json!({"allow": "5"})).contains("not a rate"));
    assert!(try_set("users", &["a"], json!({"blokked": true})).contains("blokked"));
    assert!(try_set("users", &[&"k".repeat(5000)], json!({"blocked": true})).contains("at most"));
    assert!(engine.overrides().is_empty());
}

#[test]
fn the_number_of_overrides_is_bounded() {
    let dir = Directory::new();
    let engine = start(&dir.write("p.yaml", &policy(1)), None);
    // Filling it one by one would read each of them again for each; the state file is the short way.
    let state = dir.file("s");
    let saved = |i: usize| {
        let key = i.to_string();
        json!({"limit": "users", "key": [key], "body": json!({"key": key, "blocked": true}).to_string(),
               "expires": null, "made": 0})
    };
    let overrides: Vec<Value> = (0..OVERRIDES_MAX).map(saved).collect();
    crate::state::write_state(&state, &overrides, &engine.active().gate.save());
    let engine = start(&dir.file("p.yaml"), Some(&state));
    assert_eq!(engine.overrides().len(), OVERRIDES_MAX);
    assert_eq!(admitted(&engine, "9999", 1), 0);
    let blocked = change(json!({"blocked": true}));
    let more = engine
        .set_override("users", &["more".into()], &blocked)
        .unwrap_err();
    assert!(matches!(more, OverrideError::Full), "{more}");
    engine
        .set_override("users", &["7".into()], &change(json!({"unlimited": true})))
        .unwrap();
    assert_eq!(admitted(&engine, "7", 9), 9);
}
