//! A thousand reloads under load.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tollgate_testkit::http::Reply;
use tollgate_testkit::tollgate::operate;

use crate::harness::serve;

const RELOADS: u64 = 1_000;
const KEPT: u64 = 2_000;

/// A policy in which `left` and `right` always change together, and `kept` never does.
fn policy(is_odd: bool) -> String {
    let (left, right) = if is_odd {
        (100_000, 200_000)
    } else {
        (300_000, 400_000)
    };
    format!(
        "default: pass
limits:
  - {{ name: kept, match: {{ path: /kept }}, allow: 1/h, burst: {KEPT} }}
  - {{ name: left, match: {{ path: /pair }}, allow: {left}/s, burst: {left} }}
  - {{ name: right, match: {{ path: /pair }}, allow: {right}/s, burst: {right} }}
"
    )
}

/// Whether the numbers of an answer all come from one policy, and from the one that it names.
fn is_whole(reply: &Reply) -> bool {
    let version = reply.json()["policy_version"].as_u64();
    let expected = match version.map(|version| version % 2) {
        Some(1) => r#""left";q=100000;w=1, "right";q=200000;w=1"#,
        Some(_) => r#""left";q=300000;w=1, "right";q=400000;w=1"#,
        None => return false,
    };
    reply.must("ratelimit-policy") == expected
}

#[test]
fn a_thousand_reloads_under_load_tear_no_answer_and_give_nothing_away() {
    let server = serve(&policy(true));
    let file = server.policy_file();
    let beside = file.with_extension("new");
    let done = AtomicBool::new(false);
    let (passed, asked) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.client();
                while !done.load(SeqCst) {
                    let pair = client.post("/v1/check", r#"{"path":"/pair"}"#);
                    assert!(matches!(pair.status, 200 | 429), "{pair:?}");
                    assert!(is_whole(&pair), "{pair:?}");
                    let kept = client.post("/v1/check", r#"{"path":"/kept"}"#);
                    match kept.status {
                        200 => drop(passed.fetch_add(1, SeqCst)),
                        429 => {}
                        other => panic!("{other}: {kept:?}"),
                    }
                    asked.fetch_add(2, SeqCst);
                }
            });
        }
        let mut admin = server.admin();
        for round in 0..RELOADS {
            fs::write(&beside, policy(round % 2 == 1)).expect("a file beside it");
            fs::rename(&beside, &file).expect("it is renamed");
            operate(&mut admin, "POST", "/reload", "{}").expect(200);
        }
        // Until nothing can be left: the last that asks is refused.
        let mut client = server.client();
        while client.post("/v1/check", r#"{"path":"/kept"}"#).status == 200 {
            passed.fetch_add(1, SeqCst);
        }
        done.store(true, SeqCst);
    });
    assert_eq!(server.ready()["policy"]["version"], RELOADS + 1);
    assert_eq!(passed.load(SeqCst), KEPT, "of an unchanged limit");
    assert!(asked.load(SeqCst) > RELOADS, "there was load");
}
