//! The service behind a proxy: counts what reaches it and answers with what it saw.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A service that counts requests.
#[derive(Debug)]
pub(crate) struct Upstream {
    port: u16,
    served: Arc<AtomicUsize>,
}

impl Upstream {
    /// On a free port. Its threads end with the test program.
    pub(crate) fn start() -> Upstream {
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = socket.local_addr().expect("an address").port();
        let served = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&served);
        std::thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || serve(&stream, &count));
            }
        });
        Upstream { port, served }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many requests have reached it.
    pub(crate) fn served(&self) -> usize {
        self.served.load(SeqCst)
    }
}

/// Answers every request with its head as the body.
fn serve(stream: &TcpStream, count: &AtomicUsize) {
    let mut from = BufReader::new(stream);
    let mut to = stream;
    loop {
        let mut head = String::new();
        let mut length = 0;
        loop {
            let start = head.len();
            if !matches!(from.read_line(&mut head), Ok(1..)) {
                return;
            }
            let field = head[start..].to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if field.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if from.read_exact(&mut body).is_err() {
            return;
        }
        count.fetch_add(1, SeqCst);
        let reply = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{head}",
            head.len()
        );
        if to.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}
