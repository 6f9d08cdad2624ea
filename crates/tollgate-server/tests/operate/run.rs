//! A whole server, from start to end.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate::LimitError;
use tollgate_policy::shared::{
    Answering, ServerReport, SharedLimit, SharedLimits, SharedOutcome, SharedRequest, SharedSettle,
    SharedStore, StoreReport,
};
use tollgate_server::engine::{EngineSettings, OpenStore, PolicyOrigin};
use tollgate_server::{AdminBind, RunError, ServerSettings, Started, run};

use crate::support::{Directory, TOKEN, admitted, policy, send, settings, soon};

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn all(dir: &Directory, tokens: &[&str], admin: SocketAddr) -> ServerSettings {
    ServerSettings {
        engine: settings(&dir.file("p.yaml"), Some(&dir.file("s"))),
        http: local(),
        rls: Some(local()),
        admin: Some(AdminBind {
            address: admin,
            tokens: tokens.iter().map(|token| (*token).into()).collect(),
            hosts: Vec::new(),
        }),
        resp: None,
        threads: Some(2),
        access_log: false,
    }
}

/// Runs a server while `during` looks at it.
async fn running(settings: ServerSettings, during: impl AsyncFnOnce(&Started)) {
    let (stop, stopped) = oneshot::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let server = tokio::spawn(run(
        settings,
        move |started| sender.send(started.clone()).unwrap(),
        async { drop(stopped.await) },
    ));
    let started = tokio::task::spawn_blocking(move || receiver.recv().unwrap())
        .await
        .unwrap();
    during(&started).await;
    drop(started);
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_loopback_generates_a_token_and_keeps_its_state() {
    let dir = Directory::new();
    dir.write("p.yaml", &policy(5));
    running(all(&dir, &[], local()), async |started| {
        let token = started.generated_token.clone().unwrap();
        let admin = started.admin.unwrap();
        assert!(admin.ip().is_loopback() && started.http.ip().is_loopback());
        let bearer = format!("Bearer {token}");
        let got = tokio::task::spawn_blocking(move || {
            send(admin, "GET", "/top", &[("Authorization", &bearer)], "").status
        });
        assert_eq!(got.await.unwrap(), 200);
        assert_eq!(admitted(&started.engine, "ann", 4), 4);
        assert!(!format!("{started:?}").contains(&token));
        dir.write("p.yaml", &policy(6));
        soon("the other policy", || started.engine.active().version == 2).await;
    })
    .await;
    running(all(&dir, &[TOKEN], local()), async |started| {
        assert!(started.generated_token.is_none());
        assert_eq!(admitted(&started.engine, "ann", 9), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_is_written_while_the_server_runs() {
    let dir = Directory::new();
    dir.write("p.yaml", &policy(5));
    running(all(&dir, &[TOKEN], local()), async |started| {
        assert_eq!(admitted(&started.engine, "ann", 4), 4);
        let written = || started.engine.health().state.unwrap().written_at.is_some();
        soon("the state file", written).await;
        // What a killed server would find: at most one interval is lost.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let copy = dir.file("copy");
        std::fs::copy(dir.file("s"), &copy).unwrap();
        let other = crate::support::start(&dir.file("p.yaml"), Some(&copy));
        assert_eq!(admitted(&other, "ann", 9), 1);
    })
    .await;
}

async fn refused(settings: ServerSettings) -> RunError {
    let never = std::future::pending();
    run(settings, |_| panic!("it started"), never)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn an_admin_port_that_is_open_to_a_network_needs_a_token() {
    let dir = Directory::new();
    dir.write("p.yaml", &policy(5));
    let open: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let error = refused(all(&dir, &[], open)).await;
    assert!(matches!(error, RunError::AdminOpen { .. }));
    assert!(error.to_string().contains("openssl rand -hex 16"));
    let error = refused(all(&dir, &["short"], local())).await;
    assert!(matches!(error, RunError::Token(_)));
    running(all(&dir, &[TOKEN], open), async |_| {}).await;
}

#[tokio::test]
async fn start_errors_have_a_hint() {
    let dir = Directory::new();
    let error = refused(all(&dir, &[TOKEN], local())).await.to_string();
    assert!(error.contains("does not exist\nhint: "), "{error}");
    dir.write("p.yaml", &policy(5));
    dir.write("s", "something else");
    let error = refused(all(&dir, &[TOKEN], local())).await.to_string();
    assert!(error.contains("not a state file"), "{error}");
    std::fs::remove_file(dir.file("s")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = refused(all(&dir, &[TOKEN], taken.local_addr().unwrap()))
        .await
        .to_string();
    assert!(
        error.contains("for admin") && error.contains("another port"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_reloads_and_does_not_stop_the_server() {
    let dir = Directory::new();
    dir.write("p.yaml", &policy(5));
    running(all(&dir, &[TOKEN], local()), async |started| {
        dir.write("p.yaml", &policy(6));
        let this = std::process::id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-HUP", &this])
            .status();
        assert!(sent.unwrap().success());
        soon("the other policy", || started.engine.active().version == 2).await;
    })
    .await;
}

/// A shared store whose only server is connected after a delay.
#[derive(Debug)]
struct SlowStore {
    connected_at: Instant,
}

impl SharedStore for SlowStore {
    fn prepare(&self, _: &[SharedLimit<'_>]) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        Ok(Arc::new(NoLimits))
    }

    fn nodes(&self) -> u32 {
        1
    }

    fn report(&self) -> StoreReport {
        let server = ServerReport {
            is_up: Instant::now() >= self.connected_at,
            ..ServerReport::default()
        };
        StoreReport {
            servers: vec![server],
            ..StoreReport::default()
        }
    }
}

/// The limits of a policy without any.
#[derive(Debug)]
struct NoLimits;

impl SharedLimits for NoLimits {
    fn charge<'a>(&'a self, _: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn settle<'a>(&'a self, _: &'a SharedSettle) -> Answering<'a, u64> {
        Box::pin(async { Ok(0) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_open_when_the_store_is_connected_or_after_a_bounded_time() {
    for (delay, least, most) in [(300, 300, 1_900), (60_000, 1_900, 20_000)] {
        let begun = Instant::now();
        let connected_at = begun + Duration::from_millis(delay);
        let mut settings = all(&Directory::new(), &[TOKEN], local());
        settings.engine = EngineSettings {
            source: PolicyOrigin::Text {
                name: "test".into(),
                text: "default: pass\nlimits: []\nstore: redis://127.0.0.1:1\n".into(),
            },
            state: None,
            open_store: Some(OpenStore(Arc::new(move |_| {
                Ok(Arc::new(SlowStore { connected_at }))
            }))),
        };
        running(settings, async |_| {
            let took = begun.elapsed();
            let bounds = Duration::from_millis(least)..Duration::from_millis(most);
            assert!(bounds.contains(&took), "{delay} ms: {took:?}");
        })
        .await;
    }
}
