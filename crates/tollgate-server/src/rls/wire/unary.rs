//! The one message of a call: a byte that says whether it is compressed, its length, itself.

use tonic::Status;

use super::answer::PREFIX;
use crate::rls::ask::MESSAGE_BYTES;

/// What the bytes of a call come to.
#[derive(Debug)]
pub(super) enum Read<'a> {
    /// All of it: the message.
    Message(&'a [u8]),
    /// There is more to come.
    More,
    /// It will never be a message.
    Wrong(Status),
}

/// Reads what came so far; `is_all` if nothing will come any more.
pub(super) fn read(bytes: &[u8], is_all: bool) -> Read<'_> {
    let Some((prefix, message)) = bytes.split_first_chunk::<PREFIX>() else {
        return match (is_all, bytes.is_empty()) {
            (false, _) => Read::More,
            (true, true) => Read::Wrong(Status::unimplemented(
                "there is no message; send exactly one",
            )),
            (true, false) => Read::Wrong(cut_short()),
        };
    };
    let [flag, a, b, c, d] = *prefix;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    match flag {
        0 => {}
        1 => {
            return Read::Wrong(Status::unimplemented(
                "the message is compressed, which is not understood here; send it as it is",
            ));
        }
        _ => {
            return Read::Wrong(Status::internal(format!(
                "{flag} does not say whether the message is compressed; send 0"
            )));
        }
    }
    if length > MESSAGE_BYTES {
        return Read::Wrong(Status::out_of_range(format!(
            "the message has {length} bytes, and {MESSAGE_BYTES} are read; send fewer descriptors"
        )));
    }
    if message.len() > length {
        return Read::Wrong(Status::unimplemented(
            "there is more than one message; send exactly one",
        ));
    }
    match (is_all, message.len() == length) {
        (true, true) => Read::Message(message),
        (true, false) => Read::Wrong(cut_short()),
        (false, _) => Read::More,
    }
}

fn cut_short() -> Status {
    Status::invalid_argument("the message is cut short; send all of it before the end")
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn code(bytes: &[u8], is_all: bool) -> Option<Code> {
        match read(bytes, is_all) {
            Read::Wrong(status) => Some(status.code()),
            _ => None,
        }
    }

    #[test]
    fn a_message_is_read_when_all_of_it_is_there() {
        let bytes = b"\0\0\0\0\x03abc";
        for length in 0..=bytes.len() {
            assert!(
                matches!(read(&bytes[..length], false), Read::More),
                "{length}"
            );
        }
        assert!(matches!(read(bytes, true), Read::Message(b"abc")));
        assert!(matches!(read(&[0; 5], true), Read::Message(b"")));
    }

    #[test]
    fn what_is_not_one_message_is_an_error() {
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
