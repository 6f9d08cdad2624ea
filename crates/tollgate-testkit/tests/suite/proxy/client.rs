//! A client without a parser: bytes out, bytes in.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_testkit::proxy::Proxy;
use tollgate_testkit::servers::{Kind, Server};
use tollgate_testkit::wait::now;

/// How long a reply may take that is not held back.
const DEADLINE: Duration = Duration::from_secs(10);

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    Closed,
    Reset,
}

pub(crate) struct RawClient {
    stream: TcpStream,
}

impl RawClient {
    pub(crate) fn connect(proxy: &Proxy) -> RawClient {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        RawClient { stream }
    }

    /// Sends a command, its words separated by blanks.
    pub(crate) fn send(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(bytes.as_bytes()).unwrap();
    }

    /// Reads exactly this.
    #[track_caller]
    pub(crate) fn expect(&mut self, reply: &str) {
        let mut bytes = vec![0; reply.len()];
        self.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), reply);
    }

    /// Reads exactly this many bytes.
    pub(crate) fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads whatever comes in one go.
    pub(crate) fn read_some(&mut self) -> usize {
        self.stream.read(&mut [0; 65536]).unwrap()
    }

    /// Sends a command and reads its reply.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str, reply: &str) {
        self.send(command);
        self.expect(reply);
    }

    /// Nothing comes for so long.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let read = self.stream.read(&mut [0; 64]);
        let kind = read.as_ref().map_err(std::io::Error::kind);
        assert!(
            matches!(kind, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "{read:?}"
        );
        self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
    }

    /// How the stream ends, if nothing more comes.
    #[track_caller]
    pub(crate) fn end(&mut self) -> StreamEnd {
        match self.stream.read(&mut [0; 64]) {
            Ok(0) => StreamEnd::Closed,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => StreamEnd::Reset,
            other => panic!("no end, but {other:?}"),
        }
    }
}

/// A server and a proxy before it.
pub(crate) fn server_and_proxy() -> (Server, Proxy) {
    server_and_proxy_of(Kind::Redis)
}

pub(crate) fn server_and_proxy_of(kind: Kind) -> (Server, Proxy) {
    let server = Server::start(kind, &[]).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    (server, proxy)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The start of a measurement.
pub(crate) fn stopwatch() -> Instant {
    now()
}
