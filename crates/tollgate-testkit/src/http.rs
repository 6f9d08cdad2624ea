//! An HTTP/1.1 client that sends what a library would not, and shows every header.

use std::fmt::Write as _;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long one answer may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// A connection, opened when it is needed and kept.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// The head as it came, with its last empty line.
    pub head: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Reply {
    /// First value of a header, whatever the case of `name`.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The header, which must be there.
    #[track_caller]
    pub fn must(&self, name: &str) -> &str {
        self.header(name)
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The body as JSON, which it must be.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless the status is this.
    #[track_caller]
    pub fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Reads one answer and no byte behind it.
    pub fn read(from: &mut impl Read) -> io::Result<Reply> {
        Reply::read_for("GET", from)
    }

    /// Reads one answer to a request of this method: those to `HEAD` have no body.
    pub fn read_for(method: &str, from: &mut impl Read) -> io::Result<Reply> {
        let head = read_head(from)?;
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not HTTP: {first}")))?;
        let fields = lines.filter_map(|line| line.split_once(':'));
        let headers = fields
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut reply = Reply {
            status,
            head,
            headers,
            body: String::new(),
        };
        if method != "HEAD" && !matches!(status, 100..=199 | 204 | 304) {
            let body = reply.read_body(from)?;
            reply.body = String::from_utf8_lossy(&body).into_owned();
        }
        Ok(reply)
    }

    fn read_body(&self, from: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = read_until(from, b"\r\n")?;
                let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
                let start = body.len();
                body.resize(start + size + 2, 0);
                from.read_exact(&mut body[start..])?;
                body.truncate(start + size);
                if size == 0 {
                    break;
                }
            }
        } else if let Some(length) = self.header("content-length") {
            body.resize(length.parse().map_err(io::Error::other)?, 0);
            from.read_exact(&mut body)?;
        } else if self.header("connection") == Some("close") {
            from.read_to_end(&mut body)?;
        }
        Ok(body)
    }
}

impl Client {
    /// A client of this port of this machine.
    pub fn new(port: u16) -> Client {
        Client::with_address((Ipv4Addr::LOCALHOST, port).into())
    }

    /// A client of this address.
    pub fn with_address(address: SocketAddr) -> Client {
        Client {
            address,
            connection: None,
        }
    }

    /// GET.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    /// GET with headers.
    #[track_caller]
    pub fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send("GET", path, headers, "")
    }

    /// POST of JSON.
    #[track_caller]
    pub fn post(&mut self, path: &str, body: &str) -> Reply {
        self.send("POST", path, &[], body)
    }

    /// Any request; fails if there is no answer.
    #[track_caller]
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        self.try_send(method, path, headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Any request.
    pub fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Reply> {
        self.exchange(self.request(method, path, headers, body).as_bytes())
    }

    /// The bytes of a request. `host`, `content-type` and `content-length` are added unless they are given; a header
    /// with the value `-` is left out.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        let host = self.address.to_string();
        let length = body.len().to_string();
        let is_given = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let usual = [
            ("Host", host.as_str(), true),
            ("Content-Type", "application/json", !body.is_empty()),
            (
                "Content-Length",
                &length,
                !body.is_empty() || method != "GET",
            ),
        ];
        let usual = usual
            .into_iter()
            .filter(|(name, _, wanted)| *wanted && !is_given(name));
        let usual = usual.map(|(name, value, _)| (name, value));
        for (name, value) in usual.chain(headers.iter().copied()) {
            if value != "-" {
                // Writing to a string cannot fail.
                let _ = write!(text, "{name}: {value}\r\n");
            }
        }
        text + "\r\n" + body
    }

    /// Sends these bytes and reads one answer.
    pub fn exchange(&mut self, bytes: &[u8]) -> io::Result<Reply> {
        let method = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
        let method = String::from_utf8_lossy(method).into_owned();
        let outcome = self.write(bytes).and_then(|()| self.read_to(&method));
        if outcome.is_err() {
            self.connection = None;
        }
        outcome
    }

    /// Sends these bytes and reads nothing.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection()?.get_mut().write_all(bytes)
    }

    /// Reads one answer.
    pub fn read(&mut self) -> io::Result<Reply> {
        self.read_to("GET")
    }

    fn read_to(&mut self, method: &str) -> io::Result<Reply> {
        let reply = Reply::read_for(method, self.connection()?)?;
        let closes = |value: &str| value.eq_ignore_ascii_case("close");
        if reply.header("connection").is_some_and(closes) {
            self.connection = None;
        }
        Ok(reply)
    }

    fn connection(&mut self) -> io::Result<&mut BufReader<TcpStream>> {
        if self.connection.is_none() {
            self.connection = Some(BufReader::new(connect(self.address)?));
        }
        self.connection
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// A connection whose reads have a deadline.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// Sends these bytes on a connection of its own and reads until the server closes it.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect(address)?;
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Ok(answer)
}

/// Reads a head and no byte behind it.
pub fn read_head(from: &mut impl Read) -> io::Result<String> {
    read_until(from, b"\r\n\r\n")
}

/// Reads byte by byte, so that nothing behind the end is taken.
fn read_until(from: &mut impl Read, end: &[u8]) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(end) {
        if from.read(&mut byte)? == 0 {
            let read = String::from_utf8_lossy(&bytes);
            let text = format!("the connection ended after {read:?}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        bytes.extend(byte);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, mut bytes: &[u8]) -> (Reply, usize) {
        let reply = Reply::read_for(method, &mut bytes).unwrap();
        (reply, bytes.len())
    }

    #[test]
    fn an_answer_ends_where_its_head_says() {
        let fixed = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nokHTTP";
        let (reply, left) = read("GET", fixed);
        assert_eq!((reply.status, reply.body.as_str(), left), (200, "ok", 4));
        assert_eq!(reply.header("x-a"), Some("b"));
        assert_eq!(read("HEAD", fixed).0.body, "");
        let chunked =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n.";
        let (reply, left) = read("GET", chunked);
        assert_eq!((reply.body.as_str(), left), ("ok!", 1));
        let closed = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it";
        assert_eq!(read("GET", closed).0.body, "all of it");
        assert_eq!(read("GET", b"HTTP/1.1 204 \r\n\r\n.").1, 1);
    }

    #[test]
    fn an_answer_that_is_cut_is_an_error() {
        for cut in [
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no",
        ] {
            let error = Reply::read(&mut cut.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
