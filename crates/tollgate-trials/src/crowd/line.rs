//! One connection to the service that asks one question after the other.
//!
//! It speaks as much of HTTP/1.1 as the service and nginx answer with: a head, `content-length`, a body.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest answer. Those of the service have a few hundred bytes.
const ANSWER_MAX: usize = 64 << 10;
/// How much is read at once.
const READ: usize = 4096;

/// A connection that is opened when it is needed and kept.
#[derive(Debug)]
pub(super) struct Line {
    port: u16,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

/// The bytes of a question.
pub(super) fn question(port: u16, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

impl Line {
    pub(super) fn new(port: u16) -> Line {
        Line {
            port,
            stream: None,
            buffer: Vec::new(),
        }
    }

    /// Opens the connection, so that the first question need not.
    pub(super) async fn open(&mut self) -> io::Result<()> {
        self.stream().await.map(drop)
    }

    /// Asks, and gives the status and the body of the answer. After an error the next question opens another
    /// connection; this one is not asked again.
    pub(super) async fn ask(&mut self, question: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let answer = self.exchange(question).await;
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    async fn exchange(&mut self, question: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.stream().await?.write_all(question).await?;
        self.buffer.clear();
        let mut head = None;
        loop {
            if head.is_none() {
                head = Head::read(&self.buffer)?;
            }
            if let Some(head) = &head
                && let Some(body) = self.buffer.get(head.length..head.length + head.body)
            {
                let body = body.to_vec();
                if head.closes {
                    self.stream = None;
                }
                return Ok((head.status, body));
            }
            if self.buffer.len() > ANSWER_MAX {
                return Err(io::Error::other("the answer is too long"));
            }
            let mut piece = [0; READ];
            let read = self.stream().await?.read(&mut piece).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer
                .extend_from_slice(piece.get(..read).unwrap_or_default());
        }
    }

    async fn stream(&mut self) -> io::Result<&mut TcpStream> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        Ok(self.stream.insert(stream))
    }
}

/// What the head of an answer says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Its own length, in bytes.
    length: usize,
    /// The length of the body.
    body: usize,
    /// Whether the connection ends with it.
    closes: bool,
}

impl Head {
    /// Nothing if it is not there as a whole yet.
    fn read(bytes: &[u8]) -> io::Result<Option<Head>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_lowercase();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not HTTP: {first}")))?;
        let mut head = Head {
            status,
            length: end + 4,
            body: 0,
            closes: false,
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            match (name, value.trim()) {
                ("content-length", length) => {
                    head.body = length.parse().map_err(io::Error::other)?;
                    if head.body > ANSWER_MAX {
                        return Err(io::Error::other("the answer is too long"));
                    }
                }
                ("connection", "close") => head.closes = true,
                ("transfer-encoding", _) => {
                    return Err(io::Error::other("an answer in chunks is not read here"));
                }
                _ => {}
            }
        }
        Ok(Some(head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let text = b"HTTP/1.1 429 Too Many\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
        assert_eq!(Head::read(&text[..20]).unwrap(), None);
        let head = Head {
            status: 429,
            length: text.len() - 3,
            body: 3,
            closes: true,
        };
        assert_eq!(Head::read(text).unwrap(), Some(head));
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        assert!(Head::read(b"+PONG\r\n\r\n").is_err());
        let endless = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
        assert!(Head::read(endless).is_err());
    }
}
