//! Policies that cannot be activated.

use std::fs;

use super::{number, numbered};
use tollgate_testkit::{now, wait};

use crate::harness::serve;

const SUCCESSFUL: &str = "tollgate_config_last_reload_successful";

#[test]
fn a_bad_file_changes_nothing_and_is_reported_until_it_is_fixed() {
    let server = serve(&numbered(5));
    let file = server.policy_file();
    assert_eq!(server.metric(SUCCESSFUL), Some(1));
    let bads: [(&str, &[u8]); 6] = [
        (
            "a misspelt field",
            b"limits:\n  - { name: one, alow: 1/h }\n",
        ),
        (
            "half of a file",
            b"default: pass\nlimits:\n  - { name: one, al",
        ),
        ("an empty file", b""),
        ("not YAML", b"\t{{{\n"),
        ("not UTF-8", b"\xff\xfe\x00"),
        ("a bomb", b"a: &a [x,x]\nb: &b [*a,*a]\nlimits: [*b,*b]\n"),
    ];
    for (what, text) in bads {
        fs::write(&file, text).expect("the policy file");
        wait(what, || server.ready()["status"] == "degraded");
        let ready = server.ready();
        let fault = &ready["policy"]["last_error"];
        assert_eq!(fault["code"], "policy-invalid", "{what}: {ready}");
        assert!(fault["message"].is_string(), "{what}: {ready}");
        assert_eq!(server.metric(SUCCESSFUL), Some(0), "{what}");
        assert_eq!(number(&server), Some(5), "{what}: the last good one stays");
        let response = server.operate("POST", "/reload", "{}").expect(409);
        assert!(response.body.contains("hint"), "{what}: {response:?}");
        fs::write(&file, numbered(5)).expect("the policy file");
        wait("it is fixed", || server.ready()["status"] == "ok");
        assert_eq!(server.metric(SUCCESSFUL), Some(1), "{what}");
    }
    fs::remove_file(&file).expect("it is there");
    wait("a file that is gone", || {
        server.ready()["policy"]["last_error"]["code"] == "policy-missing"
    });
    assert_eq!(number(&server), Some(5));
    fs::write(&file, numbered(6)).expect("the policy file");
    wait("another one", || number(&server) == Some(6));
    assert_eq!(server.ready()["policy"]["version"], 2);
}

#[test]
fn an_error_is_logged_once_by_the_watcher_and_for_each_explicit_reload() {
    let server = serve(&numbered(5));
    fs::write(
        server.policy_file(),
        "default: pass\nlimits:\n  - name: one\n    allow: 1/h\n    brust: 5\n",
    )
    .expect("the policy file");
    wait("it is logged", || server.log().contains("brust"));
    // Longer than the watch takes to look again.
    let watch = now();
    wait("it was looked at again", || {
        watch.elapsed().as_millis() > 2500
    });
    assert_eq!(server.log().matches("did you mean `burst`?").count(), 1);
    for _ in 0..3 {
        server.operate("POST", "/reload", "{}").expect(409);
    }
    // The log comes through a pipe, which may lag behind the answers.
    let count = || server.log().matches("did you mean `burst`?").count();
    wait("each time is logged", || count() >= 4);
    assert_eq!(count(), 4, "{}", server.log());
}

#[test]
fn a_changed_limit_keeps_what_was_used_and_an_unchanged_one_keeps_all() {
    let policy = |burst: u64, more: &str| {
        format!(
            "default: pass\nlimits:\n  - {{ name: one, allow: 1/h, burst: {burst} }}\n  - {{ name: same, match: {{ path: /same }}, allow: 1/h, burst: 100 }}\n{more}"
        )
    };
    let server = serve(&policy(4, ""));
    let ask = r#"{"path":"/"}"#;
    for status in [200, 200, 200, 200, 429] {
        server.check(ask).expect(status);
    }
    let change = |text: &str| {
        fs::write(server.policy_file(), text).expect("the policy file");
        server.operate("POST", "/reload", "{}").expect(200);
    };
    change(&policy(6, ""));
    for status in [200, 200, 429] {
        server.check(ask).expect(status);
    }
    change(&policy(3, ""));
    server.check(ask).expect(429);
    // Others come and go beside it.
    let more = "  - { name: new, match: { path: /new }, allow: 1/h, burst: 1 }\n";
    change(&policy(3, more));
    server.check(ask).expect(429);
    server.check(r#"{"limit":"new","key":[]}"#).expect(200);
    server.check(r#"{"limit":"new","key":[]}"#).expect(429);
}
