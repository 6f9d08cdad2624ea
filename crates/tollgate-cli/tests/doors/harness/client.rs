//! A client of HTTP/1.1 that does what it is told: keeps its connection, sends what a library would not,
//! and shows every header.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// No answer of a test takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection, opened when it is needed and kept.
#[derive(Debug)]
pub(crate) struct Client {
    port: u16,
    connection: Option<BufReader<TcpStream>>,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// Names in lower case, and values.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: String,
}

impl Reply {
    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The header, which must be there.
    pub(crate) fn must(&self, name: &str) -> &str {
        self.header(name)
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The body as JSON, which it must be.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Fails unless the status is this.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

impl Client {
    /// Talks to this port of this machine.
    pub(crate) fn to(port: u16) -> Client {
        Client {
            port,
            connection: None,
        }
    }

    /// GET.
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    /// GET with headers.
    pub(crate) fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send("GET", path, headers, "")
    }

    /// POST of JSON.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Reply {
        self.send("POST", path, &[], body)
    }

    /// Any request; fails if there is no answer.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        self.ask(method, path, headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Any request.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Reply> {
        self.exchange(self.head(method, path, headers, body).as_bytes())
    }

    /// The bytes of a request.
    pub(crate) fn head(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        use std::fmt::Write;
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("host")) {
            let _ = write!(text, "Host: 127.0.0.1:{}\r\n", self.port);
        }
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if !body.is_empty() {
            let _ = write!(text, "Content-Type: application/json\r\n");
        }
        if !body.is_empty() || method != "GET" {
            let _ = write!(text, "Content-Length: {}\r\n", body.len());
        }
        let _ = write!(text, "\r\n{body}");
        text
    }

    /// Sends these bytes and reads one answer.
    pub(crate) fn exchange(&mut self, bytes: &[u8]) -> io::Result<Reply> {
        let outcome = self.write(bytes).and_then(|()| self.read());
        if outcome.is_err() {
            self.connection = None;
        }
        outcome
    }

    /// Sends these bytes and reads nothing.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection()?.get_mut().write_all(bytes)
    }

    /// Reads one answer.
    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        let connection = self.connection()?;
        let reply = read_reply(connection)?;
        let closes = |(name, value): &(String, String)| {
            name == "connection" && value.eq_ignore_ascii_case("close")
        };
        if reply.headers.iter().any(closes) {
            self.connection = None;
        }
        Ok(reply)
    }

    fn connection(&mut self) -> io::Result<&mut BufReader<TcpStream>> {
        if self.connection.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            self.connection = Some(BufReader::new(stream));
        }
        self.connection.as_mut().ok_or_else(|| ended("connect"))
    }
}

fn ended(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, what.to_owned())
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Err(ended("the connection ended before the answer did")),
        _ => Ok(line.trim_end().to_owned()),
    }
}

fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let first = line(from)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("not HTTP: {first}")))?;
    let mut headers = Vec::new();
    loop {
        let field = line(from)?;
        let Some((name, value)) = field.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut reply = Reply {
        status,
        headers,
        body: String::new(),
    };
    let mut body = Vec::new();
    if reply.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = line(from)?;
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size];
            from.read_exact(&mut chunk)?;
            line(from)?;
            if size == 0 {
                break;
            }
            body.extend(chunk);
        }
    } else if let Some(length) = reply.header("content-length") {
        body.resize(length.parse().map_err(io::Error::other)?, 0);
        from.read_exact(&mut body)?;
    }
    reply.body = String::from_utf8_lossy(&body).into_owned();
    Ok(reply)
}
