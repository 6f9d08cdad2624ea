//! State that survives the end of the process: counts, overrides and the switch.

use std::path::Path;

use tollgate_testkit::tollgate::Start;
use tollgate_testkit::{Directory, Signal, wait};

const POLICY: &str = "default: pass
limits:
  - { name: one, match: { path: / }, key: header.u, allow: 1/h, burst: 5 }
  - { name: log, match: { path: /log }, algorithm: sliding-log, allow: 3/h }
  - { name: window, match: { path: /window }, algorithm: sliding-window, allow: 3/h }
";

fn ask(user: &str) -> String {
    format!(r#"{{"path":"/","headers":{{"u":"{user}"}}}}"#)
}

/// Waits until everything that was counted so far is in the state file.
pub(crate) fn written_after(state: &Path) {
    let written = || {
        std::fs::metadata(state)
            .and_then(|file| file.modified())
            .ok()
    };
    // The one that is being written may have begun before; the one after it has not.
    for _ in 0..2 {
        let before = written();
        wait("the state file is written", || written() != before);
    }
}

#[test]
fn counts_overrides_and_the_switch_survive_a_kill() {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", POLICY);
    let state = scratch.file("tollgate.state");
    let start = || {
        Start::serve()
            .policy_file(&policy)
            .state(&state)
            .start()
            .unwrap()
    };
    let server = start();
    for _ in 0..3 {
        server.check(&ask("ann")).expect(200);
        server.check(r#"{"path":"/log"}"#).expect(200);
        server.check(r#"{"path":"/window"}"#).expect(200);
    }
    let bob = r#"{"limit":"one","key":"bob","burst":1}"#;
    server.operate("PUT", "/overrides", bob).expect(200);
    written_after(&state);
    server.kill();

    let server = start();
    for status in [200, 200, 429] {
        server.check(&ask("ann")).expect(status);
    }
    for status in [200, 429] {
        server.check(&ask("bob")).expect(status);
    }
    server.check(r#"{"path":"/log"}"#).expect(429);
    server.check(r#"{"path":"/window"}"#).expect(429);
    // Written at once, not with the next round: it must not be forgotten by a crash.
    server
        .operate("POST", "/switch", r#"{"limiting":"off"}"#)
        .expect(200);
    server.kill();

    let server = start();
    assert_eq!(server.ready()["limiting"], "off");
    server.check(&ask("ann")).expect(200);
    server
        .operate("POST", "/switch", r#"{"limiting":"on"}"#)
        .expect(200);
    server.check(&ask("bob")).expect(429);
}

#[test]
fn a_stop_writes_everything() {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", POLICY);
    let state = scratch.file("tollgate.state");
    let start = || {
        Start::serve()
            .policy_file(&policy)
            .state(&state)
            .args(&["--log", "json"])
            .start()
            .unwrap()
    };
    let server = start();
    for _ in 0..5 {
        server.check(&ask("ann")).expect(200);
    }
    server.signal(Signal::TERM).unwrap();
    assert_eq!(server.wait_for_exit().unwrap().code(), Some(0));
    start().check(&ask("ann")).expect(429);
}

#[test]
fn a_limit_that_changed_while_it_was_down_keeps_what_was_used() {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", POLICY);
    let state = scratch.file("tollgate.state");
    let start = || {
        Start::serve()
            .policy_file(&policy)
            .state(&state)
            .start()
            .unwrap()
    };
    let server = start();
    for _ in 0..5 {
        server.check(&ask("ann")).expect(200);
    }
    server.signal(Signal::TERM).unwrap();
    server.wait_for_exit().unwrap();
    scratch.write("tollgate.yaml", &POLICY.replace("burst: 5", "burst: 7"));
    let server = start();
    for status in [200, 200, 429] {
        server.check(&ask("ann")).expect(status);
    }
}

#[test]
fn a_state_file_that_is_damaged_is_refused_with_what_is_wrong_and_left_as_it_is() {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", POLICY);
    let state = scratch.file("tollgate.state");
    let server = Start::serve()
        .policy_file(&policy)
        .state(&state)
        .start()
        .unwrap();
    server.signal(Signal::TERM).unwrap();
    server.wait_for_exit().unwrap();
    let good = std::fs::read(&state).expect("a state file");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let damages: [(&str, &[u8], &str); 4] = [
        ("flipped", &flipped, "checksum is wrong"),
        ("cut", &good[..good.len() - 1], "ends too early"),
        ("empty", b"", "ends too early"),
        ("foreign", b"limits: []\n", "refused"),
    ];
    for (name, bytes, what) in damages {
        let file = scratch.file(name);
        std::fs::write(&file, bytes).expect("a file of the test");
        let (said, code) = Start::serve()
            .policy_file(&policy)
            .state(&file)
            .fails()
            .unwrap();
        assert!(said.contains(what), "{name}: {said}");
        assert!(said.contains(&file.display().to_string()), "{name}: {said}");
        assert!(said.contains("hint"), "{name}: {said}");
        assert!(code.is_some_and(|code| code != 0), "{name}: {code:?}");
        assert_eq!(std::fs::read(&file).expect("still there"), bytes, "{name}");
    }
}

#[test]
fn only_its_owner_can_read_the_state_file() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", POLICY);
    let state = scratch.file("tollgate.state");
    let _server = Start::serve()
        .policy_file(&policy)
        .state(&state)
        .start()
        .unwrap();
    written_after(&state);
    let mode = std::fs::metadata(&state)
        .expect("a state file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}
