//! One real server: it starts, answers, fails, and leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use redis::Value;
use tollgate_testkit::Error;
use tollgate_testkit::servers::{Access, Kind, Plan, Server};
use tollgate_testkit::wait::{Check, sleep, wait_for};

/// The file in which a process that will be killed names its server.
const NOTE: &str = "TOLLGATE_TRIALS_NOTE";

/// Whether a process is there and not only waits to be buried.
fn lives(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

#[test]
fn a_server_answers_and_stores_values() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[("maxmemory", "50mb")]).unwrap();
        assert_eq!(server.ask(&["SET", "a", "1"]).unwrap(), Value::Okay);
        assert_eq!(server.ask_text(&["GET", "a"]).unwrap(), "1");
        assert_eq!(server.info("memory", "maxmemory").unwrap(), "52428800");
        let name = server.info("server", "server_name").unwrap();
        assert_eq!(name == "valkey", kind == Kind::Valkey, "{kind}: {name}");
    }
}

#[test]
fn a_killed_server_comes_back_empty_at_the_same_port_as_another_process() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]).unwrap();
        server.ask(&["SET", "a", "1"]).unwrap();
        let (port, pid) = (server.port(), server.pid().unwrap());
        server.kill();
        assert!(!lives(pid));
        assert_eq!(server.pid(), None);
        assert!(matches!(server.ask(&["PING"]), Err(Error::Rejected { .. })));
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), Some(pid));
        assert_eq!(server.ask(&["GET", "a"]).unwrap(), Value::Nil);
    }
}

#[test]
fn a_frozen_server_says_nothing_until_it_thaws() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]).unwrap();
        let client = server.access().client().unwrap();
        let mut connection = client.get_connection().unwrap();
        let deadline = Some(Duration::from_millis(200));
        connection.set_read_timeout(deadline).unwrap();
        server.freeze().unwrap();
        let silence = redis::cmd("PING").query::<String>(&mut connection);
        assert!(silence.unwrap_err().is_timeout());
        server.thaw().unwrap();
        assert_eq!(server.ask_text(&["PING"]).unwrap(), "PONG");
    }
}

#[test]
fn a_server_ends_with_its_holder_even_if_it_is_frozen_or_the_test_panics() {
    let server = Server::start(Kind::Redis, &[]).unwrap();
    let pid = server.pid().unwrap();
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert!(folder.is_dir());
    server.freeze().unwrap();
    let panicked = std::thread::spawn(move || {
        let _holds = server;
        panic!("this test wants a panic");
    });
    assert!(panicked.join().is_err());
    assert!(!lives(pid));
    assert!(!folder.exists(), "{}", folder.display());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let start = || Server::start(Kind::Redis, &[]).unwrap();
    let server = std::thread::spawn(start).join().unwrap();
    assert_eq!(server.ask_text(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_server_dies_with_a_process_that_is_killed() {
    // This very test is also the process that is killed, if it finds a place for its note.
    if let Some(note) = std::env::var_os(NOTE) {
        let server = Server::start(Kind::Redis, &[]).unwrap();
        std::fs::write(Path::new(&note), server.pid().unwrap().to_string()).unwrap();
        sleep(Duration::from_secs(60));
        panic!("this process was not killed");
    }
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("pid");
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "server::a_server_dies_with_a_process_that_is_killed",
        ])
        .env(NOTE, &note)
        // The killed process leaves the server's folder behind: here, where it is removed.
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Duration::from_secs(20);
    let pid: u32 = wait_for("the parent has a server", deadline, String::new, || {
        let note = std::fs::read_to_string(&note).unwrap_or_default();
        Ok(note
            .parse()
            .map_or_else(|_| Check::Pending(note), Check::Ready))
    })
    .unwrap();
    assert!(lives(pid));
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for("the server is gone", deadline, String::new, || {
        Ok(match lives(pid) {
            true => Check::Pending("it lives".into()),
            false => Check::Ready(()),
        })
    })
    .unwrap();
}

#[test]
fn a_server_that_cannot_start_is_an_error_that_quotes_its_log() {
    for kind in Kind::ALL {
        let error = Server::start(kind, &[("maxmemory", "plenty")]).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, Error::Exited { .. }), "{said}");
        assert!(said.contains("maxmemory plenty"), "{said}");
    }
    let two_lines = Server::start(Kind::Redis, &[("maxmemory", "1mb\nport 1")]);
    assert!(matches!(two_lines, Err(Error::Invalid(_))));
}

#[test]
fn a_client_without_password_is_refused_and_a_user_has_the_listed_rights() {
    for kind in Kind::ALL {
        let server = Plan::new(kind)
            .password("open-sesame")
            .user("limiter", "secret", "~tg:* +@all")
            .start()
            .unwrap();
        assert_eq!(server.ask(&["SET", "other", "1"]).unwrap(), Value::Okay);
        let foreign = Access::plain(server.port()).ask(&["GET", "other"]);
        assert_eq!(foreign.unwrap_err().code(), Some("NOAUTH"));
        let limiter = Access {
            user: Some("limiter".into()),
            password: Some("secret".into()),
            ..Access::plain(server.port())
        };
        assert_eq!(limiter.ask(&["SET", "tg:a", "1"]).unwrap(), Value::Okay);
        let beyond = limiter.ask(&["GET", "other"]).unwrap_err();
        assert_eq!(beyond.code(), Some("NOPERM"), "{beyond}");
    }
}

#[test]
fn a_server_with_tls_is_trusted_by_its_certificate_and_not_without() {
    let server = Plan::new(Kind::Redis)
        .tls()
        .password("secret")
        .start()
        .unwrap();
    assert_eq!(server.ask_text(&["PING"]).unwrap(), "PONG");
    server.restart().unwrap();
    assert_eq!(server.ask_text(&["PING"]).unwrap(), "PONG");
    let open = Access {
        certificates: None,
        ..server.access().clone()
    };
    assert!(open.ask(&["PING"]).is_err());
    let other = Plan::new(Kind::Redis).tls().start().unwrap();
    let mistrusted = Access {
        certificates: other.certificates().cloned(),
        ..server.access().clone()
    };
    assert!(mistrusted.ask(&["PING"]).is_err());
}

#[test]
fn tls_of_a_valkey_that_was_built_without_it_is_an_error_that_says_so() {
    let error = Plan::new(Kind::Valkey).tls().start().unwrap_err();
    assert!(error.to_string().contains("built without TLS"), "{error}");
}

#[test]
fn a_foreign_server_at_the_port_is_detected_and_the_start_is_repeated() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]).unwrap();
        let port = server.port().to_string();
        server.kill();
        let mut foreign = std::process::Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", ""])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        wait_for(
            "the foreign server answers",
            Duration::from_secs(10),
            String::new,
            || {
                Ok(match server.ask(&["PING"]) {
                    Ok(_) => Check::Ready(()),
                    Err(error) => Check::Pending(error.to_string()),
                })
            },
        )
        .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(300));
                foreign.kill().unwrap();
                foreign.wait().unwrap();
            });
            server.restart().unwrap();
        });
        let answers = server.info("server", "process_id").unwrap();
        assert_eq!(
            Some(answers),
            server.pid().map(|pid| pid.to_string()),
            "{kind}"
        );
    }
}

#[test]
fn many_servers_at_once_find_ports_of_their_own() {
    let start = || Server::start(Kind::Redis, &[]).unwrap();
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(start)).collect();
    let servers: Vec<Server> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    for (number, server) in servers.iter().enumerate() {
        server.ask(&["SET", "me", &number.to_string()]).unwrap();
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.ask_text(&["GET", "me"]).unwrap(), number.to_string());
    }
}
