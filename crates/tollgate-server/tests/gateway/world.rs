//! A running gateway with a policy, and clients of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_policy::{ServerSpec, UpstreamSpec};
use tollgate_server::engine::{EngineSettings, PolicySource};
use tollgate_server::gateway::{GatewaySettings, GatewayStarted, run};

/// No answer of a test takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Everything is counted, nothing refused.
pub(crate) const OPEN: &str =
    "default: pass\nlimits:\n  - { name: all, allow: 1000000/s, burst: 1000000 }\n";

/// A running gateway.
pub(crate) struct World {
    pub(crate) started: GatewayStarted,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

pub(crate) fn server(port: u16) -> ServerSpec {
    ServerSpec {
        tls: false,
        host: "127.0.0.1".into(),
        port,
    }
}

pub(crate) fn text(policy: &str) -> PolicySource {
    PolicySource::Text {
        name: "test".into(),
        text: policy.into(),
    }
}

pub(crate) fn settings(source: PolicySource, upstreams: Vec<UpstreamSpec>) -> GatewaySettings {
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
    }
}

/// A directory for the files of one test.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let name = format!("gateway-{process}-{number}");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file whole: whoever watches never sees half of it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, beside) = (self.path(name), self.path("beside"));
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, &path).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl World {
    /// A gateway in front of this port.
    pub(crate) fn before(policy: &str, port: u16) -> World {
        World::with(policy, |_| (), &[port])
    }

    /// The same with something changed about the upstream.
    pub(crate) fn with(
        policy: &str,
        change: impl FnOnce(&mut UpstreamSpec),
        ports: &[u16],
    ) -> World {
        let servers = ports.iter().map(|port| server(*port)).collect();
        let mut upstream = UpstreamSpec::new("app", servers);
        change(&mut upstream);
        World::start(settings(text(policy), vec![upstream]))
    }

    /// A gateway that follows this file, which names its upstreams.
    pub(crate) fn by_file(path: &Path) -> World {
        World::start(settings(PolicySource::File(path.into()), Vec::new()))
    }

    /// A gateway with these settings.
    pub(crate) fn start(settings: GatewaySettings) -> World {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let events = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let started = |started: &GatewayStarted| tell.send(started.clone()).unwrap();
            let stop = async {
                let _ = stopped.await;
            };
            events.block_on(run(settings, started, stop)).unwrap();
        });
        World {
            started: told.recv_timeout(PATIENCE).expect("the gateway starts"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.started.listen
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends these bytes and nothing more, and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The gateway may refuse before it has read all.
        let _ = stream.write_all(bytes);
        // Who ends its side while its request is under way is gone: so not before no more answers come.
        let quiet = Duration::from_secs(3);
        stream.set_read_timeout(Some(quiet)).unwrap();
        let mut answer = Vec::new();
        if stream.read_to_end(&mut answer).is_err() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
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

    /// A number of the metrics, by its name and labels.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let text = self.started.engine.metrics();
        let mut lines = text.lines();
        let found = lines.find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        let found = found.unwrap_or_else(|| panic!("no {series} in {text}"));
        found.parse().unwrap()
    }

    /// Requests that were admitted by the limit `all`.
    pub(crate) fn admitted(&self) -> u64 {
        self.metric("tollgate_decisions_total{limit=\"all\",verdict=\"admitted\",door=\"gateway\"}")
    }

    /// How many wait in the queue `all`.
    pub(crate) fn waiting(&self) -> u64 {
        self.metric("tollgate_queue_waiting{queue=\"all\"}")
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

impl Drop for World {
    fn drop(&mut self) {
        self.stop_and_wait();
    }
}

/// Reads a head, byte by byte so that nothing behind it is taken.
pub(crate) fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&head)),
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Reads one answer.
pub(crate) fn reply(stream: &mut impl Read) -> Reply {
    let head = read_head(stream);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut reply = Reply {
        status,
        head,
        body: Vec::new(),
    };
    if reply.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut line = Vec::new();
            let mut byte = [0];
            while !line.ends_with(b"\r\n") {
                stream.read_exact(&mut byte).unwrap();
                line.push(byte[0]);
            }
            let size = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).unwrap();
            reply.body.extend(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = reply.header("content-length") {
        let length = length.parse().unwrap();
        reply.body.resize(length, 0);
        stream.read_exact(&mut reply.body).unwrap();
    }
    reply
}

/// Waits until it holds.
#[expect(
    clippy::disallowed_methods,
    reason = "a test waits for another process"
)]
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test waits for another process"
)]
pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// How long something took.
#[expect(clippy::disallowed_methods, reason = "a test measures another process")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = std::time::Instant::now();
    let done = work();
    (done, begun.elapsed())
}
