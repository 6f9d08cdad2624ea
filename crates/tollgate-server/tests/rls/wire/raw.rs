//! A client that sends arbitrary bytes.

use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_server::rls::messages::RateLimitResponse;

use crate::client::{METHOD, Server, edge, of};

pub(crate) use tollgate_testkit::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS as WHOLE, END_STREAM as END, Frame, GOAWAY, HEADERS, PING,
    PREFACE, PRIORITY, PUSH_PROMISE as PROMISE, RST_STREAM as RESET, SETTINGS,
    WINDOW_UPDATE as WINDOW, field, frame, reset, settings, string, window_update as window,
};

/// Flags that the test kit does not need.
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 32;

/// Codes of errors.
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const PROTOCOL: u32 = 1;
pub(crate) const FLOW_CONTROL: u32 = 3;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE: u32 = 6;
pub(crate) const REFUSED: u32 = 7;
pub(crate) const COMPRESSION: u32 = 9;
pub(crate) const CALM: u32 = 11;

pub(crate) fn setting(name: u16, value: u32) -> Vec<u8> {
    settings(&[(name, value)])
}

/// The fields of a request for this path.
pub(crate) fn head(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    block.extend(field(":path", path));
    for (name, value) in more {
        block.extend(field(name, value));
    }
    block
}

/// The usual head of the one call.
pub(crate) fn call_head() -> Vec<u8> {
    let usual = [("te", "trailers"), ("content-type", "application/grpc")];
    head(METHOD, &usual)
}

/// A message with what stands before it.
pub(crate) fn message(bytes: &[u8]) -> Vec<u8> {
    let mut whole = vec![0];
    whole.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    whole.extend(bytes);
    whole
}

/// A question.
pub(crate) fn question() -> Vec<u8> {
    message(&edge(&[of(&[("k", "v")])]).encode_to_vec())
}

/// One whole call.
pub(crate) fn call(stream: u32) -> Vec<u8> {
    let mut bytes = frame(HEADERS, WHOLE, stream, &call_head());
    bytes.extend(frame(DATA, END, stream, &question()));
    bytes
}

/// What became of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// The code of gRPC.
    pub(crate) status: Option<u32>,
    /// The code of HTTP, if it is not 200.
    pub(crate) http: Option<u32>,
    pub(crate) data: Vec<u8>,
    /// In how many pieces the data came.
    pub(crate) pieces: usize,
    /// The code of a reset, if it was reset instead.
    pub(crate) reset: Option<u32>,
}

impl Answer {
    pub(crate) fn response(&self) -> RateLimitResponse {
        assert_eq!(self.status, Some(0), "{self:?}");
        RateLimitResponse::decode(&self.data[5..]).unwrap()
    }
}

pub(crate) struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    /// A connection on which nothing was said.
    pub(crate) async fn silent(server: &Server) -> Raw {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).await;
        Raw {
            stream: stream.unwrap(),
            read: Vec::new(),
        }
    }

    /// A connection that has said what comes first.
    pub(crate) async fn new(server: &Server) -> Raw {
        let mut raw = Raw::silent(server).await;
        raw.send(PREFACE).await;
        raw.send(&frame(SETTINGS, 0, 0, &[])).await;
        raw
    }

    /// The same, and this.
    pub(crate) async fn with(server: &Server, bytes: &[u8]) -> Raw {
        let mut raw = Raw::new(server).await;
        raw.send(bytes).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends bytes that the server may not read to their end.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The next frame; None at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut rest = self.read.as_slice();
            if let Some(found) = Frame::read(&mut rest) {
                assert!(found.payload.len() <= 16_384);
                let used = self.read.len() - rest.len();
                self.read.drain(..used);
                return Some(found);
            }
            let read = timeout(
                Duration::from_secs(90),
                self.stream.read_buf(&mut self.read),
            );
            match read.await.expect("the server says nothing") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next frame of this kind.
    pub(crate) async fn next_of(&mut self, kind: u8) -> Frame {
        loop {
            let next = self.next().await.expect("the connection ended");
            if next.kind == kind && (kind != SETTINGS || next.flags & ACK == 0) {
                return next;
            }
        }
    }

    /// What becomes of this call.
    pub(crate) async fn answer(&mut self, stream: u32) -> Answer {
        let mut answer = Answer::default();
        loop {
            let next = self.next().await.expect("the connection ended");
            if next.stream != stream {
                assert_ne!(next.kind, GOAWAY, "{next:?}");
                continue;
            }
            match next.kind {
                RESET => {
                    answer.reset = Some(next.number(0));
                    return answer;
                }
                HEADERS => {
                    let text = String::from_utf8_lossy(&next.payload).into_owned();
                    let number = |name: &str| -> Option<u32> {
                        let rest = text.split(name).nth(1)?.get(1..)?;
                        let digits = rest.chars().take_while(char::is_ascii_digit);
                        digits.collect::<String>().parse().ok()
                    };
                    answer.status = number("grpc-status").or(answer.status);
                    if next.payload[0] == 0x08 {
                        answer.http = text.get(2..5).map(|code| code.parse().unwrap());
                    }
                }
                DATA => {
                    answer.data.extend(&next.payload);
                    answer.pieces += 1;
                }
                _ => continue,
            }
            if next.flags & END != 0 {
                return answer;
            }
        }
    }

    /// With which code the connection ends.
    pub(crate) async fn goodbye(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(next) = self.next().await {
            if next.kind == GOAWAY {
                code = Some(next.number(4));
            }
        }
        code
    }
}

/// How a connection ends on which this is said.
pub(crate) async fn ends(server: &Server, bytes: &[u8]) -> Option<u32> {
    let mut raw = Raw::new(server).await;
    // It may end before everything is said.
    raw.try_send(bytes).await;
    raw.goodbye().await
}

/// How the first call ends if this is said, and that the connection does not end with it.
pub(crate) async fn ends_call(server: &Server, bytes: &[u8]) -> Answer {
    let mut raw = Raw::with(server, bytes).await;
    let answer = raw.answer(1).await;
    raw.send(&call(4_711)).await;
    assert_eq!(raw.answer(4_711).await.status, Some(0));
    answer
}
