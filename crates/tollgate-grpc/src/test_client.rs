//! Shared parts of the tests of sessions: a method, its messages, and a client's bytes.

use prost::Message;

use crate::Method;
use crate::frame::{self, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS};
use crate::hpack;

pub(crate) const METHOD: Method = Method {
    path: "/test.Service/Call",
    max_message_bytes: 64 * 1024,
};

/// A request for a response of `size` bytes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) size: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Response {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) payload: Vec<u8>,
}

impl Request {
    pub(crate) fn response(&self) -> Response {
        Response {
            payload: vec![b'r'; usize::try_from(self.size).unwrap()],
        }
    }
}

/// The preface and empty settings.
pub(crate) fn preface() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame::write(&mut bytes, SETTINGS, 0, 0, &[]);
    bytes
}

/// The header block of a call.
pub(crate) fn header_block() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    hpack::write(&mut block, b":path", METHOD.path.as_bytes());
    block
}

/// A complete call.
pub(crate) fn call(stream: u32, name: &str, size: u32) -> Vec<u8> {
    let request = Request {
        name: name.into(),
        size,
    };
    let message = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let mut bytes = Vec::new();
    frame::write(&mut bytes, HEADERS, END_HEADERS, stream, &header_block());
    frame::write(&mut bytes, DATA, END_STREAM, stream, &body);
    bytes
}
