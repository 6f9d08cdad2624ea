//! Real servers on free ports, and the shortest way to a store that uses them.
#![allow(dead_code, reason = "every test file uses its own part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

pub(crate) mod cluster;
pub(crate) mod fake;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tollgate::policy::Quota;
use tollgate::store::shared::{
    KeyKind, SharedCharge, SharedKey, SharedLimit, SharedLimits, SharedOutcome, SharedRequest,
    SharedStore,
};
use tollgate::{Limit, LimitId};
use tollgate_redis::{Settings, Store};

/// Long enough for a busy machine; tests of the deadline itself set their own.
pub(crate) const DEADLINE: Duration = Duration::from_millis(400);

static DIRS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

pub(crate) fn new_dir() -> PathBuf {
    let number = DIRS.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("tollgate-redis-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) dir: PathBuf,
    args: Vec<String>,
    child: Child,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Server {
        Server::start_at(free_port(), args)
    }

    pub(crate) fn start_at(port: u16, args: &[&str]) -> Server {
        let dir = new_dir();
        let mut all = vec!["--port".to_owned(), port.to_string()];
        all.extend(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"].map(String::from));
        all.extend(["--dir".to_owned(), dir.to_str().unwrap().to_owned()]);
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let child = spawn(&all);
        Server {
            port,
            dir,
            args: all,
            child,
        }
    }

    /// A sentinel that watches the server at `primary` as `limits`.
    pub(crate) fn sentinel(primary: u16) -> Server {
        let (port, dir) = (free_port(), new_dir());
        let file = dir.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor limits 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds limits 500\nsentinel failover-timeout limits 3000\n",
            dir.display()
        );
        std::fs::write(&file, text).unwrap();
        let args = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        let child = spawn(&args);
        Server {
            port,
            dir,
            args,
            child,
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.args);
    }

    pub(crate) fn cli(&self, args: &[&str]) -> String {
        cli(self.port, args)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Starts a server and waits until it listens.
fn spawn(args: &[String]) -> Child {
    let mut child = Command::new("redis-server")
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is needed for this test: install redis-server");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
        line.contains("eady to accept connections") || line.contains("+monitor master")
    });
    assert!(is_ready, "redis-server {args:?} did not start");
    // Whatever it says later is read, so that it never waits for us.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

pub(crate) fn cli(port: u16, args: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .args(args)
        .output()
        .expect("redis-cli is needed for this test: install redis-tools");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) fn settings(port: u16) -> Settings {
    let mut settings = Settings::standalone("127.0.0.1", port);
    settings.deadline = DEADLINE;
    settings
}

pub(crate) fn open(settings: Settings) -> Store {
    Store::open(settings, &Handle::current()).unwrap()
}

/// Waits until this holds.
pub(crate) async fn until(what: &str, within: Duration, holds: impl AsyncFn() -> bool) -> Duration {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < within, "not within {within:?}: {what}");
        sleep(Duration::from_millis(2)).await;
    }
    since.elapsed()
}

pub(crate) async fn until_up(store: &Store) {
    let since = Instant::now();
    loop {
        let report = store.report();
        if !report.servers.is_empty() && report.servers.iter().all(|server| server.is_up) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "{report:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Limits of these capacities that earn nothing while a test runs.
pub(crate) fn prepare(store: &Store, capacities: &[u64]) -> Arc<dyn SharedLimits> {
    let quotas: Vec<(String, Quota)> = capacities
        .iter()
        .enumerate()
        .map(|(place, capacity)| {
            let limit = Limit::token_bucket("10/h".parse().unwrap(), *capacity).unwrap();
            (format!("limit{place}"), Quota::plain(limit))
        })
        .collect();
    let limits: Vec<SharedLimit<'_>> = quotas
        .iter()
        .map(|(id, quota)| SharedLimit {
            id,
            quota,
            before: &[],
            plain: true,
        })
        .collect();
    store.prepare(&limits).unwrap()
}

pub(crate) fn key(part: &str) -> SharedKey {
    let mut key = SharedKey::new(KeyKind::Own);
    key.push(part.as_bytes());
    key
}

/// A charge of one unit on this limit for this key.
pub(crate) fn charge(limit: usize, part: &str) -> SharedCharge {
    SharedCharge {
        limit: LimitId::at(limit),
        key: key(part),
        cost: 1,
        most: None,
        enforced: true,
        owed: 0,
    }
}

pub(crate) fn request(charges: Vec<SharedCharge>) -> SharedRequest {
    SharedRequest {
        take: true,
        waited: tollgate::Span::ZERO,
        charges,
    }
}

pub(crate) fn one(part: &str) -> SharedRequest {
    request(vec![charge(0, part)])
}

pub(crate) fn passes(outcomes: &[SharedOutcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.verdict.is_admitted())
}

pub(crate) fn codes(store: &Store) -> Vec<&'static str> {
    let warnings = store.report().warnings;
    warnings.iter().map(|(code, _)| *code).collect()
}
