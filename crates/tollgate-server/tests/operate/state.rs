//! State that survives a restart.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Map, Value, json};
use tollgate_server::engine::{Engine, StartError};

use crate::support::{Directory, admitted, ask, logged, policy, settings, start};

/// Writes a state file as the format says it is.
pub(crate) fn write_state(path: &Path, overrides: &[Value], counted: &[u8]) {
    let secret = [7; 32];
    let changed =
        json!({"switched_off": false, "secret": secret, "overrides": overrides}).to_string();
    let mut bytes = b"TOLLGATE\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    for (kind, section) in [(1u32, changed.as_bytes()), (2, counted)] {
        bytes.extend(kind.to_le_bytes());
        bytes.extend((section.len() as u64).to_le_bytes());
        bytes.extend(section);
    }
    let checksum = blake3::hash(&bytes);
    bytes.extend(checksum.as_bytes());
    fs::write(path, bytes).unwrap();
}

fn refused(dir: &Directory) -> String {
    let error = Engine::start(settings(&dir.file("p.yaml"), Some(&dir.file("s")))).unwrap_err();
    assert!(matches!(error, StartError::State(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&dir.file("s").display().to_string()) && text.contains("\nhint: "),
        "{text}"
    );
    text
}

#[test]
fn counts_overrides_and_the_switch_survive_a_restart() {
    let dir = Directory::new();
    let (path, state) = (dir.write("p.yaml", &policy(5)), dir.file("s"));
    {
        let engine = start(&path, Some(&state));
        assert_eq!(admitted(&engine, "ann", 3), 3);
        let blocked: Map<String, Value> = [("blocked".into(), true.into())].into_iter().collect();
        let set = engine
            .set_override("users", &["bob".into()], &blocked)
            .unwrap();
        assert!(set.persisted);
    }
    // Nothing was written after the override: what was counted before it is there all the same.
    let engine = start(&path, Some(&state));
    assert_eq!(admitted(&engine, "bob", 9), 0);
    assert_eq!(admitted(&engine, "ann", 9), 2);
    engine.switch(true);
    drop(engine);

    let engine = start(&path, Some(&state));
    assert!(engine.is_switched_off());
    assert_eq!(admitted(&engine, "bob", 9), 9);
    engine.switch(false);
    assert_eq!(admitted(&engine, "ann", 9), 0);
}

#[test]
fn usage_survives_a_changed_policy() {
    let dir = Directory::new();
    let (path, state) = (dir.write("p.yaml", &policy(5)), dir.file("s"));
    let engine = start(&path, Some(&state));
    assert_eq!(admitted(&engine, "ann", 4), 4);
    assert!(engine.persist());
    dir.write("p.yaml", &policy(6));
    drop(engine);
    let engine = start(&path, Some(&state));
    assert_eq!(admitted(&engine, "ann", 9), 2);
}

#[test]
fn only_its_owner_may_read_the_file() {
    let dir = Directory::new();
    let (path, state) = (dir.write("p.yaml", &policy(5)), dir.file("s"));
    assert!(start(&path, Some(&state)).persist());
    let mode = fs::metadata(&state).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(
        left.len(),
        3,
        "the policy, the state and its lock: {left:?}"
    );
}

#[test]
fn a_damaged_state_file_is_refused_with_a_hint() {
    let dir = Directory::new();
    let (path, state) = (dir.write("p.yaml", &policy(5)), dir.file("s"));
    let engine = start(&path, Some(&state));
    let _ = ask(&engine, "ann");
    assert!(engine.persist());
    let good = fs::read(&state).unwrap();
    assert!(refused(&dir).contains("another server uses it"));
    drop(engine);

    fs::write(&state, &good[..good.len() / 2]).unwrap();
    assert!(refused(&dir).contains("ends too early"));
    fs::write(&state, "").unwrap();
    assert!(refused(&dir).contains("ends too early"));
    let mut bad = good.clone();
    let at = bad.len() - 100;
    bad[at] ^= 1;
    fs::write(&state, bad).unwrap();
    assert!(refused(&dir).contains("checksum"));
    let mut newer = good.clone();
    newer[8] = 9;
    fs::write(&state, newer).unwrap();
    assert!(refused(&dir).contains("version 9"));
    fs::write(&state, "root:x:0:0").unwrap();
    assert!(refused(&dir).contains("not a state file of Tollgate"));
    assert_eq!(
        fs::read_to_string(&state).unwrap(),
        "root:x:0:0",
        "it is left as it is"
    );
    write_state(&state, &[], b"nonsense");
    assert!(refused(&dir).contains("ends too early"));
    fs::File::create(&state)
        .unwrap()
        .set_len((4 << 30) + 1)
        .unwrap();
    assert!(refused(&dir).contains("more than any state file"));
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    assert!(refused(&dir).contains("cannot be read"));

    fs::remove_dir(&state).unwrap();
    fs::write(&state, good).unwrap();
    assert_eq!(admitted(&start(&path, Some(&state)), "ann", 9), 4);
}

#[test]
fn a_failed_state_write_is_logged_once_and_decisions_continue() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let home = dir.file("home");
    fs::create_dir(&home).unwrap();
    let state = home.join("s");
    let engine = start(&path, Some(&state));
    assert!(engine.persist());
    let moved = dir.file("moved");
    let lines = logged(|| {
        fs::rename(&home, &moved).unwrap();
        assert!(!engine.persist() && !engine.persist());
        assert_eq!(engine.health().status, "degraded");
        assert!(
            engine
                .metrics()
                .contains("\ntollgate_state_last_write_successful 0\n")
        );
        assert_eq!(admitted(&engine, "ann", 9), 5);
        assert!(moved.join("s").exists(), "the old one is left as it was");
        fs::rename(&moved, &home).unwrap();
        assert!(engine.persist());
    });
    assert_eq!(engine.health().status, "ok");
    let logged = lines
        .iter()
        .filter(|l| l.starts_with("tollgate::state"))
        .count();
    assert_eq!(logged, 2, "{lines:#?}");
}

#[test]
fn a_link_in_the_place_of_the_new_file_is_not_followed() {
    let dir = Directory::new();
    let (path, state) = (dir.write("p.yaml", &policy(5)), dir.file("s"));
    let victim = dir.write("victim", "precious");
    std::os::unix::fs::symlink(&victim, dir.file(".s.new")).unwrap();
    assert!(start(&path, Some(&state)).persist());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}
