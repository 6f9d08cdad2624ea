//! A running gateway with a policy, and clients of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_config::{ServerSpec, UpstreamSpec};
use tollgate_server::engine::{EngineSettings, PolicyOrigin};
use tollgate_server::gateway::{GatewaySettings, GatewayStarted, run};
use tollgate_testkit::http::{Reply, connect};
use tollgate_testkit::tollgate::sum;
use tollgate_testkit::{now, sleep};

/// No answer of a test takes longer.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(15);

/// Everything is counted, nothing refused.
pub(crate) const OPEN: &str =
    "default: pass\nlimits:\n  - { name: all, allow: 1000000/s, burst: 1000000 }\n";

/// A running gateway.
pub(crate) struct TestGateway {
    pub(crate) started: GatewayStarted,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn server(port: u16) -> ServerSpec {
    ServerSpec {
        tls: false,
        host: "127.0.0.1".into(),
        port,
    }
}

pub(crate) fn text(policy: &str) -> PolicyOrigin {
    PolicyOrigin::Text {
        name: "test".into(),
        text: policy.into(),
    }
}

pub(crate) fn settings(source: PolicyOrigin, upstreams: Vec<UpstreamSpec>) -> GatewaySettings {
    GatewaySettings {
        engine: EngineSettings {
            source,
            state: None,
            open_store: None,
        },
        upstreams,
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        admin: None,
        threads: Some(2),
        access_log: true,
    }
}

impl TestGateway {
    /// A gateway in front of this port.
    pub(crate) fn before(policy: &str, port: u16) -> TestGateway {
        TestGateway::with(policy, |_| (), &[port])
    }

    /// The same with something changed about the upstream.
    pub(crate) fn with(
        policy: &str,
        change: impl FnOnce(&mut UpstreamSpec),
        ports: &[u16],
    ) -> TestGateway {
        let servers = ports.iter().map(|port| server(*port)).collect();
        let mut upstream = UpstreamSpec::new("app", servers);
        change(&mut upstream);
        TestGateway::start(settings(text(policy), vec![upstream]))
    }

    /// A gateway that follows this file, which names its upstreams.
    pub(crate) fn by_file(path: &Path) -> TestGateway {
        TestGateway::start(settings(PolicyOrigin::File(path.into()), Vec::new()))
    }

    /// A gateway with these settings.
    pub(crate) fn start(settings: GatewaySettings) -> TestGateway {
        let (sender, receiver) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let events = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let started = |started: &GatewayStarted| sender.send(started.clone()).unwrap();
            let stop = async {
                let _ = stopped.await;
            };
            events.block_on(run(settings, started, stop)).unwrap();
        });
        TestGateway {
            started: receiver.recv_timeout(MAX_WAIT).expect("the gateway starts"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.started.listen
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address()).unwrap()
    }

    /// Sends these bytes and nothing more, and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The gateway may refuse before it has read all.
        let _ = stream.write_all(bytes);
        // A client that closes its side during a request counts as disconnected, so it closes after the last answer.
        let quiet = Duration::from_secs(3);
        stream.set_read_timeout(Some(quiet)).unwrap();
        let mut answer = Vec::new();
        if stream.read_to_end(&mut answer).is_err() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
            let _ = stream.read_to_end(&mut answer);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        reply(&mut stream)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n\r\n").as_bytes())
    }

    /// The sum of the series of a metric with these labels.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let text = self.started.engine.metrics();
        sum(&text, series).unwrap_or_else(|| panic!("no {series} in {text}"))
    }

    /// Requests that were admitted by the limit `all`.
    pub(crate) fn admitted(&self) -> u64 {
        self.metric("tollgate_decisions_total{limit=\"all\",verdict=\"pass\",reason=\"limit\",protocol=\"gateway\"}")
    }

    /// How many wait in the queue `all`.
    pub(crate) fn waiting(&self) -> u64 {
        self.metric("tollgate_queue_waiting_requests{queue=\"all\"}")
    }

    /// Sends a request on a connection of its own, and waits for nothing.
    pub(crate) fn send(&self, path: &str, field: &str) -> TcpStream {
        let mut stream = self.connect();
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Has it stop, and waits for that.
    pub(crate) fn end(mut self) {
        self.stop_and_wait();
    }

    fn stop_and_wait(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the gateway ends well");
            }
        }
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.stop_and_wait();
    }
}

/// Reads a head and no byte behind it.
pub(crate) fn read_head(stream: &mut impl Read) -> String {
    tollgate_testkit::http::read_head(stream).unwrap()
}

/// Reads one answer and no byte behind it.
pub(crate) fn reply(stream: &mut impl Read) -> Reply {
    Reply::read(stream).unwrap()
}

pub(crate) fn pause(ms: u64) {
    sleep(Duration::from_millis(ms));
}

/// How long something took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let done = work();
    (done, start.elapsed())
}
