//! One HTTP/1.1 connection, for clients and for the upstream.
//!
//! It reads a head, and then the body that the head announces: by its length or in chunks. It is lenient, because it is
//! not under test. A client library would not do: trials cut requests at any byte, and reset connections.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest head and the longest body that are read.
const HEAD_MAX: usize = 64 << 10;
const BODY_MAX: usize = 16 << 20;
/// How much is read at once.
const READ: usize = 16 << 10;

/// A connection and what was read from it and not used yet.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// The head of a request or an answer, with the line that it begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head(String);

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilTheEnd,
}

impl HttpConnection {
    pub(crate) fn new(stream: TcpStream) -> HttpConnection {
        HttpConnection {
            stream,
            buffer: Vec::new(),
        }
    }

    /// A connection to a port of this machine.
    pub(crate) async fn open(port: u16) -> io::Result<HttpConnection> {
        HttpConnection::open_from(Ipv4Addr::LOCALHOST, port).await
    }

    /// The same from another address of this machine, which the server counts as another client.
    pub(crate) async fn open_from(source: Ipv4Addr, port: u16) -> io::Result<HttpConnection> {
        let socket = TcpSocket::new_v4()?;
        if source != Ipv4Addr::LOCALHOST {
            socket.bind(SocketAddr::V4(SocketAddrV4::new(source, 0)))?;
        }
        let there = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let stream = socket.connect(there).await?;
        stream.set_nodelay(true)?;
        Ok(HttpConnection::new(stream))
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.send(request).await?;
        self.answer().await
    }

    /// The same, with a deadline.
    pub(crate) async fn exchange_within(
        &mut self,
        request: &[u8],
        deadline: Duration,
    ) -> io::Result<Answer> {
        match timeout(deadline, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads an answer to its end. Answers that only announce another one are skipped.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        loop {
            let head = self.head().await?;
            let head = head.ok_or(io::ErrorKind::UnexpectedEof)?;
            let status = head.status().ok_or_else(|| invalid("no status"))?;
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let framing = match status {
                101 | 204 | 304 => Framing::Length(0),
                _ => head.framing().unwrap_or(Framing::UntilTheEnd),
            };
            let body = self.body(framing).await?;
            return Ok(Answer { status, head, body });
        }
    }

    /// Reads a head; none if the other side closed instead of beginning one.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Head>> {
        let mut searched = 0;
        loop {
            if let Some(end) = end_of_head(&self.buffer, searched) {
                let rest = self.buffer.split_off(end);
                let head = std::mem::replace(&mut self.buffer, rest);
                return Ok(Some(Head(String::from_utf8_lossy(&head).into_owned())));
            }
            searched = self.buffer.len().saturating_sub(3);
            if self.buffer.len() > HEAD_MAX {
                return Err(invalid("a head that never ends"));
            }
            if self.more().await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Reads the body of a request.
    pub(crate) async fn request_body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        self.body(head.framing().unwrap_or(Framing::Length(0)))
            .await
    }

    /// Whatever comes next, at least a byte; nothing at the end.
    pub(crate) async fn piece(&mut self) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.more().await?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// The stream itself, for an upgrade to another protocol. Bytes that were read ahead are lost.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Resets the connection as a crash would: bytes in flight are lost.
    pub(crate) fn reset(self) {
        // An error means that the connection is gone already.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    async fn body(&mut self, framing: Framing) -> io::Result<Vec<u8>> {
        match framing {
            Framing::Length(length) => self.exactly(length).await,
            Framing::Chunked => self.chunks().await,
            Framing::UntilTheEnd => {
                while self.more().await? > 0 {
                    if self.buffer.len() > BODY_MAX {
                        return Err(invalid("a body that never ends"));
                    }
                }
                Ok(std::mem::take(&mut self.buffer))
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > BODY_MAX {
            return Err(invalid("a body that is too long"));
        }
        while self.buffer.len() < length {
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length =
                usize::from_str_radix(digits, 16).map_err(|_| invalid("a chunk's length"))?;
            if length == 0 {
                // What follows the last chunk ends with an empty line.
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            if body.len().saturating_add(length) > BODY_MAX {
                return Err(invalid("a body that is too long"));
            }
            body.append(&mut self.exactly(length).await?);
            self.line().await?;
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.buffer.len() > HEAD_MAX {
                return Err(invalid("a line that never ends"));
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads what is there, at least a byte unless the other side closed.
    async fn more(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ);
        self.stream.read_buf(&mut self.buffer).await
    }
}

fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let at = rest.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(from + at + 4)
}

fn invalid(what: &str) -> io::Error {
    io::Error::other(format!("the peer sent {what}"))
}

impl Head {
    /// The first line.
    pub(crate) fn first(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    /// The target of a request.
    pub(crate) fn target(&self) -> &str {
        self.first().split(' ').nth(1).unwrap_or_default()
    }

    fn status(&self) -> Option<u16> {
        self.first().split(' ').nth(1)?.parse().ok()
    }

    /// The first value of a header.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().skip(1).filter_map(|l| l.split_once(':'));
        let (_, value) = lines.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// Whether the connection closes after this message.
    pub(crate) fn is_last(&self) -> bool {
        let value = self.value("connection").unwrap_or_default();
        value.eq_ignore_ascii_case("close")
    }

    fn framing(&self) -> Option<Framing> {
        match self.value("transfer-encoding") {
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => Some(Framing::Chunked),
            _ => Some(Framing::Length(self.value("content-length")?.parse().ok()?)),
        }
    }
}

/// Idle connections to one port, by tenant. A request takes an idle connection of its tenant or opens a new one.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    port: u16,
    in_flight: Semaphore,
    idle: Mutex<HashMap<u32, Vec<HttpConnection>>>,
}

impl ConnectionPool {
    /// A pool of at most this many connections in use.
    pub(crate) fn new(port: u16, in_flight_max: usize) -> ConnectionPool {
        ConnectionPool {
            port,
            in_flight: Semaphore::new(in_flight_max),
            idle: Mutex::default(),
        }
    }

    /// Sends a request and reads its answer. A connection is reused only after a whole answer.
    pub(crate) async fn exchange(&self, tenant: u32, request: &[u8]) -> io::Result<Answer> {
        // The semaphore is never closed.
        let _permit = self.in_flight.acquire().await.map_err(io::Error::other)?;
        let idle = self.idle().get_mut(&tenant).and_then(Vec::pop);
        let mut connection = match idle {
            Some(connection) => connection,
            None => HttpConnection::open(self.port).await?,
        };
        let answer = connection.exchange(request).await?;
        if !answer.head.is_last() {
            self.idle().entry(tenant).or_default().push(connection);
        }
        Ok(answer)
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<u32, Vec<HttpConnection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A GET with these header lines.
pub(crate) fn get(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let lines: String = headers
        .iter()
        .map(|(n, v)| format!("{n}: {v}\r\n"))
        .collect();
    format!("GET {path} HTTP/1.1\r\nhost: app.test\r\n{lines}\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_head_is_found_across_pieces() {
        let text = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nrest";
        assert_eq!(end_of_head(text, 0), Some(27));
        assert_eq!(end_of_head(text.get(..25).unwrap(), 0), None);
        assert_eq!(end_of_head(text, 22), Some(27));
    }

    #[test]
    fn a_head_has_a_first_line_values_and_the_framing_of_its_body() {
        let head =
            Head("HTTP/1.1 429 Too Many\r\nRetry-After: 2\r\ncontent-length: 7\r\n\r\n".into());
        assert_eq!(head.status(), Some(429));
        assert_eq!(head.value("retry-after"), Some("2"));
        assert_eq!(head.framing(), Some(Framing::Length(7)));
        let head = Head("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".into());
        assert_eq!(
            (head.target(), head.framing()),
            ("/a", Some(Framing::Chunked))
        );
    }
}
