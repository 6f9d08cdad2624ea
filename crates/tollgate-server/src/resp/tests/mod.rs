//! Tests of the Redis protocol over sockets, in bytes.

mod bounds;
mod handshake;
mod policy;
mod transactions;
mod vectors;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::sync::watch;

use super::*;

/// A listener that is open until this value is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub(super) const PASSWORD: &str = "correct-horse";

/// Settings of a listener.
pub(super) struct Open {
    pub(super) policy: &'static str,
    pub(super) password: Option<String>,
    pub(super) keys: Option<usize>,
    pub(super) limits: ListenLimits,
}

impl Default for Open {
    fn default() -> Open {
        Open {
            policy: "default: pass\nlimits: []\n",
            password: None,
            keys: Some(100_000),
            limits: limits(),
        }
    }
}

impl Server {
    pub(super) fn start() -> Server {
        Server::with(Open::default())
    }

    pub(super) fn with(open: Open) -> Server {
        let (stop, stopped) = watch::channel(false);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let bind = RespBind {
            address,
            password: open.password,
            keys: open.keys,
        };
        let engine = crate::engine::for_tests(open.policy);
        let service = HttpApi::new(engine, stopped.clone());
        let resp = RespConfig::new(&bind).unwrap().build(service);
        let events = tokio::runtime::Builder::new_current_thread();
        let events = { events }.enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            events.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                resp.serve_within(listener, open.limits, stopped).await;
            });
        });
        Server {
            address,
            stop,
            thread: Some(thread),
        }
    }

    pub(super) fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(15)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// A client in bytes.
pub(super) struct Client(pub(super) TcpStream);

impl Client {
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Fails unless exactly this comes next.
    #[track_caller]
    pub(super) fn expect(&mut self, answer: impl AsRef<[u8]>) {
        let expected = answer.as_ref();
        let mut got = Vec::new();
        let mut part = vec![0; expected.len()];
        while got.len() < expected.len() {
            let room = &mut part[..expected.len() - got.len()];
            match self.0.read(room) {
                Ok(0) => break,
                Ok(count) => got.extend_from_slice(&room[..count]),
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&got)),
            }
        }
        let (got, expected) = (
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(expected),
        );
        assert_eq!(got, expected);
    }

    /// Sends a command, and waits for an answer. Is the connection at its end instead?
    pub(super) fn is_over_after(&mut self, words: &[&str]) -> bool {
        let mut room = [0; 1024];
        self.0.write_all(&array(words)).is_err() || !matches!(self.0.read(&mut room), Ok(1..))
    }

    /// Sends a command and fails unless it is answered so.
    #[track_caller]
    pub(super) fn ask(&mut self, words: &[&str], answer: impl AsRef<[u8]>) {
        self.send(array(words));
        self.expect(answer);
    }

    /// Fails unless the connection ends without another byte.
    #[track_caller]
    pub(super) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        let read = self.0.read_to_end(&mut rest);
        let is_end = match &read {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(is_end, "{read:?} {:?}", String::from_utf8_lossy(&rest));
    }
}

/// A command as libraries send it.
pub(super) fn array(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Five integers.
pub(super) fn five(numbers: [i64; 5]) -> String {
    let items = numbers.map(|number| format!(":{number}\r\n"));
    format!("*5\r\n{}", items.concat())
}

/// An error.
pub(super) fn error(text: &str) -> String {
    format!("-{text}\r\n")
}
