//! The length-prefixed message of a unary call: a compression flag, four bytes of length, the message.

use prost::Message;
use tonic::Status;

use crate::response::PREFIX;

/// The state of a request body.
#[derive(Debug)]
pub(crate) enum Read<'a> {
    /// Complete: the message.
    Message(&'a [u8]),
    /// Incomplete.
    Partial,
    /// Never a message.
    Malformed(Status),
}

/// Reads the bytes received so far. With `end_stream` no more follow.
pub(crate) fn read(bytes: &[u8], end_stream: bool, max_bytes: usize) -> Read<'_> {
    let Some((prefix, message)) = bytes.split_first_chunk::<PREFIX>() else {
        return match (end_stream, bytes.is_empty()) {
            (false, _) => Read::Partial,
            (true, true) => Read::Malformed(Status::unimplemented(
                "there is no message; send exactly one",
            )),
            (true, false) => Read::Malformed(truncated()),
        };
    };
    let [flag, a, b, c, d] = *prefix;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    match flag {
        0 => {}
        1 => {
            return Read::Malformed(Status::unimplemented(
                "the message is compressed, which is not supported; send it uncompressed",
            ));
        }
        _ => {
            return Read::Malformed(Status::internal(format!(
                "the compression flag is {flag}; send 0"
            )));
        }
    }
    if length > max_bytes {
        return Read::Malformed(Status::out_of_range(format!(
            "the message has {length} bytes, and at most {max_bytes} are accepted; send a smaller one"
        )));
    }
    if message.len() > length {
        return Read::Malformed(Status::unimplemented(
            "there is more than one message; send exactly one",
        ));
    }
    match (end_stream, message.len() == length) {
        (true, true) => Read::Message(message),
        (true, false) => Read::Malformed(truncated()),
        (false, _) => Read::Partial,
    }
}

/// Decodes a message.
///
/// # Errors
/// `INVALID_ARGUMENT` if the bytes are no such message. tonic's own codec reports that as an error of the server.
pub(crate) fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| {
        Status::invalid_argument(format!(
            "the message cannot be decoded: {error}; encode it as the protocol file defines"
        ))
    })
}

fn truncated() -> Status {
    Status::invalid_argument(
        "the message is truncated; send all of it before the end of the stream",
    )
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const MAX: usize = 64 * 1024;

    fn code(bytes: &[u8], end_stream: bool) -> Option<Code> {
        match read(bytes, end_stream, MAX) {
            Read::Malformed(status) => Some(status.code()),
            _ => None,
        }
    }

    #[test]
    fn a_message_is_read_when_it_is_complete() {
        let bytes = b"\0\0\0\0\x03abc";
        for length in 0..=bytes.len() {
            let partial = read(&bytes[..length], false, MAX);
            assert!(matches!(partial, Read::Partial), "{length}");
        }
        assert!(matches!(read(bytes, true, MAX), Read::Message(b"abc")));
        assert!(matches!(read(&[0; 5], true, MAX), Read::Message(b"")));
    }

    #[test]
    fn everything_but_one_message_is_an_error() {
        assert_eq!(code(b"", true), Some(Code::Unimplemented));
        assert_eq!(code(b"\0\0", true), Some(Code::InvalidArgument));
        assert_eq!(code(b"\0\0\0\0\x03ab", true), Some(Code::InvalidArgument));
        assert_eq!(code(b"\0\0\0\0\x03abcd", false), Some(Code::Unimplemented));
        assert_eq!(code(b"\x01\0\0\0\x03", false), Some(Code::Unimplemented));
        assert_eq!(code(b"\x02\0\0\0\x03", false), Some(Code::Internal));
        assert_eq!(code(b"\0\0\x01\0\x01", false), Some(Code::OutOfRange));
        assert_eq!(code(b"\0\0\x01\0\0", false), None);
    }
}
