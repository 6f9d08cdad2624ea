//! Policies replaced while requests are decided.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::sync::oneshot;
use tollgate_server::engine::{ReloadCause, ReloadError, Reloaded, for_tests, watch};

use crate::support::{Directory, admitted, ask, logged, policy, soon, start};

#[test]
fn the_same_content_is_not_reloaded() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    assert_eq!(
        engine.reload(ReloadCause::Watch).unwrap(),
        Reloaded::Unchanged { version: 1 }
    );
    dir.write("p.yaml", &policy(6));
    assert!(matches!(
        engine.reload(ReloadCause::Signal).unwrap(),
        Reloaded::Changed { version: 2, .. }
    ));
    assert_eq!(engine.active().version, 2);
}

#[test]
fn a_built_in_policy_is_never_reloaded() {
    let engine = for_tests(&policy(5));
    assert_eq!(
        engine.reload(ReloadCause::Watch).unwrap(),
        Reloaded::Unchanged { version: 1 }
    );
}

#[test]
fn an_invalid_file_keeps_the_last_valid_policy_and_degrades_health() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    assert_eq!(admitted(&engine, "ann", 3), 3);
    let bad = "default: pass\nlimits:\n  - { name: users, allow: 5 }\n";
    for (text, code) in [
        (bad, "policy-invalid"),
        ("", "policy-invalid"),
        ("\u{0}", "policy-invalid"),
    ] {
        dir.write("p.yaml", text);
        let error = engine.reload(ReloadCause::Watch).unwrap_err();
        assert!(matches!(error, ReloadError::Invalid(_)), "{error}");
        let health = engine.health();
        assert_eq!(health.status, "degraded");
        assert_eq!(health.policy.last_error.unwrap().code, code);
        assert!(
            engine
                .metrics()
                .contains("\ntollgate_config_last_reload_successful 0\n")
        );
    }
    assert_eq!(engine.active().version, 1);
    assert_eq!(admitted(&engine, "ann", 9), 2);

    dir.write("p.yaml", &policy(5));
    assert_eq!(
        engine.reload(ReloadCause::Watch).unwrap(),
        Reloaded::Unchanged { version: 1 }
    );
    assert_eq!(engine.health().status, "ok");
    assert!(
        engine
            .metrics()
            .contains("\ntollgate_config_last_reload_successful 1\n")
    );
}

#[test]
fn health_quotes_nothing_of_a_bad_file() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    dir.write(
        "p.yaml",
        "default: pass\nlimits:\n  - { name: users, allow: secret-thing }\n",
    );
    let error = engine.reload(ReloadCause::Watch).unwrap_err();
    assert!(error.to_string().contains("secret-thing"));
    let message = engine.health().policy.last_error.unwrap().message;
    assert!(
        !message.contains("secret") && message.contains("in line 3"),
        "{message}"
    );
}

#[test]
fn a_missing_file_keeps_the_last_valid_policy() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        engine.reload(ReloadCause::Watch).unwrap_err().code(),
        "policy-missing"
    );
    assert_eq!(
        engine.health().policy.last_error.unwrap().code,
        "policy-missing"
    );
    fs::create_dir(&path).unwrap();
    assert_eq!(
        engine.reload(ReloadCause::Watch).unwrap_err().code(),
        "policy-unreadable"
    );
    assert_eq!(admitted(&engine, "ann", 9), 5);
}

#[test]
fn the_same_fault_is_logged_once() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    let lines = logged(|| {
        for text in ["a: [", "a: [", "b: [", "b: ["] {
            dir.write("p.yaml", text);
            for _ in 0..5 {
                assert!(engine.reload(ReloadCause::Watch).is_err());
            }
        }
        dir.write("p.yaml", &policy(5));
        assert!(engine.reload(ReloadCause::Watch).is_ok());
    });
    let of = |target: &str| lines.iter().filter(|l| l.starts_with(target)).count();
    assert_eq!(
        of("tollgate_policy"),
        3,
        "two faults and the end of them: {lines:#?}"
    );
}

#[test]
fn a_reload_logs_the_old_and_the_new_hash() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    let old = engine.health().policy.content;
    dir.write("p.yaml", &policy(6));
    let lines = logged(|| {
        engine
            .reload(ReloadCause::Admin([192, 0, 2, 9].into()))
            .unwrap();
    });
    let new = engine.health().policy.content;
    let line = lines
        .iter()
        .find(|l| l.starts_with("tollgate::audit"))
        .unwrap();
    for part in [
        "actor=192.0.2.9",
        "action=\"reload\"",
        &format!("old={old}"),
        &format!("new={new}"),
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn two_hundred_reloads_under_load_admit_exactly_the_limit() {
    const USERS: usize = 4;
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    let done = AtomicBool::new(false);
    let passed = [(); USERS].map(|()| AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    for (user, passed) in passed.iter().enumerate() {
                        if ask(&engine, &user.to_string()).is_admitted() {
                            passed.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
        for i in 0..200 {
            // Another limit comes and goes; the users' stays.
            let more = format!("  - {{ name: l{i}, match: {{ path: /other }}, allow: 1/s }}\n");
            dir.write("p.yaml", &(policy(5) + &more));
            engine.reload(ReloadCause::Watch).unwrap();
        }
        done.store(true, Relaxed);
    });
    assert_eq!(engine.active().version, 201);
    assert!(
        passed.iter().all(|passed| passed.load(Relaxed) == 5),
        "{passed:?}"
    );
    let admitted = "tollgate_decisions_total{limit=\"users\",verdict=\"pass\",reason=\"limit\",protocol=\"http\"} 20\n";
    assert!(engine.metrics().contains(admitted), "counters continue");
}

#[test]
fn a_changed_limit_applies_to_keys_that_are_known() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    let engine = start(&path, None);
    assert_eq!(admitted(&engine, "ann", 9), 5);
    dir.write("p.yaml", &policy(8));
    engine.reload(ReloadCause::Watch).unwrap();
    assert_eq!(admitted(&engine, "ann", 9), 3);
}

#[test]
fn limiting_stays_off_over_a_reload() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(1));
    let engine = start(&path, None);
    engine.switch(true);
    dir.write("p.yaml", &policy(2));
    engine.reload(ReloadCause::Watch).unwrap();
    assert_eq!(admitted(&engine, "ann", 9), 9);
    assert!(engine.metrics().contains("\ntollgate_switched_off 1\n"));
    engine.switch(false);
    assert_eq!(admitted(&engine, "ann", 9), 2);
}

/// Puts another text in the place of a file, somehow.
type Replace = fn(&Path, &str);

const WAYS: [(&str, Replace); 6] = [
    ("written in place", |path, text| {
        use std::io::Write;
        let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_len(text.len() as u64).unwrap();
    }),
    ("renamed over", |path, text| {
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, path).unwrap();
    }),
    ("emptied and written", |path, text| {
        fs::File::create(path).unwrap();
        fs::write(path, text).unwrap();
    }),
    ("deleted and made again", |path, text| {
        fs::remove_file(path).unwrap();
        fs::write(path, text).unwrap();
    }),
    ("moved to a backup and written anew", |path, text| {
        fs::rename(path, path.with_extension("yaml~")).unwrap();
        fs::write(path, text).unwrap();
    }),
    ("behind a link that is swapped", |path, text| {
        // As Kubernetes does: p.yaml -> ..data/p.yaml, ..data -> ..1, then ..data -> ..2.
        let dir = path.parent().unwrap();
        let version = fs::read_dir(dir).unwrap().count();
        let made = dir.join(format!("..{version}"));
        fs::create_dir(&made).unwrap();
        fs::write(made.join("p.yaml"), text).unwrap();
        let fresh = dir.join("..data_tmp");
        symlink(&made, &fresh).unwrap();
        fs::rename(&fresh, dir.join("..data")).unwrap();
        if !path.is_symlink() {
            fs::remove_file(path).unwrap();
            symlink("..data/p.yaml", path).unwrap();
        }
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_of_replacing_the_file_is_noticed_within_three_seconds() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(1));
    let engine = start(&path, None);
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let watching = tokio::spawn(watch::watch(engine.clone(), stopped));
    let mut version = 1;
    for (name, replace) in WAYS {
        for _ in 0..2 {
            version += 1;
            replace(&path, &policy(version));
            soon(name, || {
                let rule = engine.active().gate.rule(0).unwrap().quota.clone();
                rule.advertised().0 == version
            })
            .await;
        }
    }
    fs::remove_file(&path).unwrap();
    soon("that it is gone", || engine.health().status == "degraded").await;
    fs::write(&path, policy(version)).unwrap();
    soon("that it is back", || engine.health().status == "ok").await;
    stop.send(()).unwrap();
    watching.await.unwrap();
}
