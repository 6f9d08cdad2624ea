//! One connection that speaks HTTP/1.1, from either side.
//!
//! It reads a head, and then the body that the head announces: by its length or in chunks. It is lenient, because what is
//! tried here is not it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The longest head and the longest body that are read.
const HEAD_MAX: usize = 64 << 10;
const BODY_MAX: usize = 16 << 20;
/// How much is read at once.
const READ: usize = 16 << 10;

/// A connection and what was read from it and not used yet.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// The head of a request or an answer, with the line that it begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head(String);

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilTheEnd,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Wire {
        Wire {
            stream,
            buffer: Vec::new(),
        }
    }

    /// A connection to a port of this machine.
    pub(super) async fn open(port: u16) -> io::Result<Wire> {
        Wire::open_from(Ipv4Addr::LOCALHOST, port).await
    }

    /// The same from another address of this machine, for whom the server takes somebody else.
    pub(super) async fn open_from(source: Ipv4Addr, port: u16) -> io::Result<Wire> {
        let socket = TcpSocket::new_v4()?;
        if source != Ipv4Addr::LOCALHOST {
            socket.bind(SocketAddr::V4(SocketAddrV4::new(source, 0)))?;
        }
        let there = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let stream = socket.connect(there).await?;
        stream.set_nodelay(true)?;
        Ok(Wire::new(stream))
    }

    /// Sends a request and reads its answer.
    pub(super) async fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.send(request).await?;
        self.answer().await
    }

    /// The same, with an end.
    pub(super) async fn ask_within(
        &mut self,
        request: &[u8],
        deadline: Duration,
    ) -> io::Result<Answer> {
        match timeout(deadline, self.ask(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads an answer to its end. Answers that only announce another one are skipped.
    pub(super) async fn answer(&mut self) -> io::Result<Answer> {
        loop {
            let head = self.head().await?;
            let head = head.ok_or(io::ErrorKind::UnexpectedEof)?;
            let status = head.status().ok_or_else(|| odd("no status"))?;
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
    pub(super) async fn head(&mut self) -> io::Result<Option<Head>> {
        let mut searched = 0;
        loop {
            if let Some(end) = end_of_head(&self.buffer, searched) {
                let rest = self.buffer.split_off(end);
                let head = std::mem::replace(&mut self.buffer, rest);
                return Ok(Some(Head(String::from_utf8_lossy(&head).into_owned())));
            }
            searched = self.buffer.len().saturating_sub(3);
            if self.buffer.len() > HEAD_MAX {
                return Err(odd("a head that never ends"));
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
    pub(super) async fn request_body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        self.body(head.framing().unwrap_or(Framing::Length(0)))
            .await
    }

    /// Whatever comes next, at least a byte; nothing at the end.
    pub(super) async fn piece(&mut self) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.more().await?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// The connection itself, for who goes on in another language. What was read ahead is lost.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Ends the connection as a crash would: whatever is on its way is lost.
    pub(super) fn reset(self) {
        // A connection that is gone already cannot be told anything.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    async fn body(&mut self, framing: Framing) -> io::Result<Vec<u8>> {
        match framing {
            Framing::Length(length) => self.exactly(length).await,
            Framing::Chunked => self.chunks().await,
            Framing::UntilTheEnd => {
                while self.more().await? > 0 {
                    if self.buffer.len() > BODY_MAX {
                        return Err(odd("a body that never ends"));
                    }
                }
                Ok(std::mem::take(&mut self.buffer))
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > BODY_MAX {
            return Err(odd("a body that is too long"));
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
            let length = usize::from_str_radix(digits, 16).map_err(|_| odd("a chunk's length"))?;
            if length == 0 {
                // What follows the last chunk ends with an empty line.
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            if body.len().saturating_add(length) > BODY_MAX {
                return Err(odd("a body that is too long"));
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
                return Err(odd("a line that never ends"));
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

fn odd(what: &str) -> io::Error {
    io::Error::other(format!("the other side sent {what}"))
}

impl Head {
    /// The first line.
    pub(super) fn first(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    /// The target of a request.
    pub(super) fn target(&self) -> &str {
        self.first().split(' ').nth(1).unwrap_or_default()
    }

    fn status(&self) -> Option<u16> {
        self.first().split(' ').nth(1)?.parse().ok()
    }

    /// The first value of a header.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().skip(1).filter_map(|l| l.split_once(':'));
        let (_, value) = lines.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// Whether the connection ends with this message.
    pub(super) fn closes(&self) -> bool {
        let said = self.value("connection").unwrap_or_default();
        said.eq_ignore_ascii_case("close")
    }

    fn framing(&self) -> Option<Framing> {
        match self.value("transfer-encoding") {
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => Some(Framing::Chunked),
            _ => Some(Framing::Length(self.value("content-length")?.parse().ok()?)),
        }
    }
}

/// A GET with these header lines.
pub(super) fn get(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
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
    fn a_head_says_what_it_is_and_how_its_body_ends() {
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
