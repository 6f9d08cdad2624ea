//! A server that records its requests and responds by the path.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use std::time::Instant;

use crate::support::pause;

/// A server behind the gateway.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    /// Requests in flight, and their maximum so far.
    at_once: AtomicUsize,
    busiest: AtomicUsize,
    is_unhealthy: AtomicBool,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) line: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let found: Vec<_> = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .collect();
        assert!(found.len() < 2, "{name} is repeated: {}", self.head);
        found.into_iter().next()
    }
}

impl Upstream {
    /// On a free port. Its threads end with the test program.
    pub(crate) fn start() -> Upstream {
        Upstream::on(0)
    }

    /// On this port.
    pub(crate) fn on(port: u16) -> Upstream {
        let socket = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let upstream = Upstream {
            port: socket.local_addr().unwrap().port(),
            shared: Arc::default(),
        };
        let shared = Arc::clone(&upstream.shared);
        std::thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                let shared = Arc::clone(&shared);
                shared.connections.fetch_add(1, SeqCst);
                shared.open.fetch_add(1, SeqCst);
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    serve(stream, &shared);
                    shared.open.fetch_sub(1, SeqCst);
                });
            }
        });
        upstream
    }

    /// All that came.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }

    /// The last that came.
    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().expect("a request")
    }

    /// The targets of all that came, in order; but for those that ask for its health.
    pub(crate) fn targets(&self) -> Vec<String> {
        let target = |seen: Seen| seen.line.split(' ').nth(1).unwrap().to_owned();
        let all = self.seen().into_iter().map(target);
        all.filter(|target| target != "/healthz").collect()
    }

    /// The most requests that it ever had at once.
    pub(crate) fn busiest(&self) -> usize {
        self.shared.busiest.load(SeqCst)
    }

    /// From now on it says that it is ill, or that it is not.
    pub(crate) fn set_unhealthy(&self, is_unhealthy: bool) {
        self.shared.is_unhealthy.store(is_unhealthy, SeqCst);
    }

    /// Connections that were made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(SeqCst)
    }
}

#[expect(clippy::disallowed_methods, reason = "a test measures another process")]
fn now() -> Instant {
    Instant::now()
}

fn line(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") {
        stream.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    Some(line)
}

/// The body, read as leniently as any server may: a length beside chunks would be taken for chunks.
fn body(stream: &mut TcpStream, head: &str) -> Option<Vec<u8>> {
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if lower.contains("transfer-encoding:") && lower.contains("chunked") {
        loop {
            let size = line(stream)?;
            let size = String::from_utf8_lossy(&size).trim().to_owned();
            let size = usize::from_str_radix(size.split(';').next()?, 16).ok()?;
            if size == 0 {
                while line(stream)? != b"\r\n" {}
                return Some(body);
            }
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            body.extend(&chunk[..size]);
        }
    }
    let length = lower
        .lines()
        .find_map(|l| l.strip_prefix("content-length:"));
    let length = length.map_or(0, |l| l.trim().parse().unwrap_or(0));
    body.resize(length, 0);
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match line(&mut stream) {
                Some(line) => head.extend(line),
                None => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let first = head.lines().next().unwrap_or_default().to_owned();
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let keep = |body| {
            shared.seen.lock().unwrap().push(Seen {
                at: now(),
                line: first.clone(),
                head: head.clone(),
                body,
            });
        };
        let mut say = |text: &str| stream.write_all(text.as_bytes()).is_ok();
        match path.as_str() {
            "/close" => {
                keep(Vec::new());
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            "/hang" => {
                keep(Vec::new());
                let mut byte = [0];
                // Until the gateway gives up.
                while matches!(stream.read(&mut byte), Ok(1..)) {}
                return;
            }
            "/early" => {
                keep(Vec::new());
                say(
                    "HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\nConnection: close\r\n\r\nearly",
                );
                pause(300);
                return;
            }
            "/ws" => {
                keep(Vec::new());
                say(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
                );
                let mut bytes = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..read]).is_err() {
                        return;
                    }
                }
                return;
            }
            _ => {}
        }
        let Some(body) = body(&mut stream, &head) else {
            return;
        };
        keep(body.clone());
        let in_flight = shared.at_once.fetch_add(1, SeqCst) + 1;
        shared.busiest.fetch_max(in_flight, SeqCst);
        if let Some((_, ms)) = path.split_once("?ms=") {
            pause(ms.parse().unwrap());
        }
        // Before it answers: with the answer, the client may send the next request.
        shared.at_once.fetch_sub(1, SeqCst);
        let mut say = |text: &str| stream.write_all(text.as_bytes()).is_ok();
        let is_fine = match path.as_str() {
            "/healthz" if shared.is_unhealthy.load(SeqCst) => {
                say("HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n")
            }
            "/large" => {
                let part = "x".repeat(1 << 20);
                let mut is_fine = say("HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n");
                for _ in 0..100 {
                    is_fine = is_fine && say(&part);
                }
                is_fine
            }
            "/slow" => {
                pause(400);
                say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
            }
            "/chunks" => say(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 1\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            ),
            "/drip" => {
                let mut is_fine = say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                for _ in 0..100 {
                    is_fine = is_fine && say("1\r\nx\r\n");
                    pause(20);
                }
                is_fine && say("0\r\n\r\n")
            }
            "/stall" => {
                say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
                let mut byte = [0];
                while matches!(stream.read(&mut byte), Ok(1..)) {}
                return;
            }
            "/kb30" => say(&format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n{}",
                "x".repeat(30_000)
            )),
            "/empty" => say("HTTP/1.1 204 No Content\r\n\r\n"),
            "/503" => say("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"),
            "/once" => {
                say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nonce");
                return;
            }
            _ if first.starts_with("HEAD ") => say("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"),
            _ => say(&format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n<{}>",
                body.len() + 2,
                String::from_utf8_lossy(&body)
            )),
        };
        if !is_fine {
            return;
        }
    }
}
