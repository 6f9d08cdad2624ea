//! The messages of the service in protobuf, as far as they are sent and read.

use super::GrpcTemplate;
use crate::error::LoadError;
use crate::template::{KeyFormat, Template};

/// `RateLimitRequest { domain = 1, descriptors = 2 { entries = 1 { key = 1, value = 2 } }, hits_addend = 3 }`.
pub(super) fn request(template: &GrpcTemplate, hits: u64, key_format: &KeyFormat) -> Template {
    let mut descriptor = Template::default();
    for (key, value) in &template.descriptor {
        let mut entry = field(1, &Template::parse(key, key_format));
        entry.append(&field(2, &Template::parse(value, key_format)));
        descriptor.append(&field(1, &entry));
    }
    let mut request = field(1, &Template::parse(&template.domain, key_format));
    request.append(&field(2, &descriptor));
    // The default is one hit.
    if hits != 1 {
        let mut addend = vec![3 << 3];
        varint(hits, &mut addend);
        request.push(&addend);
    }
    request
}

/// A length-delimited field.
fn field(number: u8, inner: &Template) -> Template {
    let mut head = vec![number << 3 | 2];
    varint(inner.len() as u64, &mut head);
    let mut field = Template::fixed(head);
    field.append(inner);
    field
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.extend(u8::try_from(value & 0x7f | 0x80));
        value >>= 7;
    }
    out.extend(u8::try_from(value));
}

/// The overall code of a response; `None` while it is incomplete.
pub(super) fn code_of_call(bytes: &[u8]) -> Result<Option<u64>, LoadError> {
    let Some((&[is_compressed, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() else {
        return Ok(None);
    };
    let wrong = |what: &str| LoadError::new(what, "name a server of Envoy's rate limit service");
    if is_compressed != 0 {
        return Err(wrong(
            "a compressed response, which the client did not accept",
        ));
    }
    let len = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    match rest.get(..len) {
        None => Ok(None),
        Some(message) => overall_code(message)
            .map(Some)
            .ok_or_else(|| wrong("a message that is no RateLimitResponse")),
    }
}

/// Field 1 of a `RateLimitResponse`; 0 if it is absent.
fn overall_code(mut message: &[u8]) -> Option<u64> {
    let mut code = 0;
    while !message.is_empty() {
        let tag = read_varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => code = read_varint(&mut message)?,
            (_, 0) => {
                read_varint(&mut message)?;
            }
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let len = usize::try_from(read_varint(&mut message)?).ok()?;
                message = message.get(len..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(code)
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_equals_that_of_a_protobuf_library() {
        let template = GrpcTemplate {
            domain: "edge".into(),
            descriptor: vec![("user".into(), "{key}".into()), ("a".into(), "b".into())],
        };
        let mut out = Vec::new();
        request(&template, 300, &KeyFormat::new("k", 10, 1)).write(7, &mut out);
        let expected = b"\x0a\x04edge\x12\x14\x0a\x0a\x0a\x04user\x12\x02k7\x0a\x06\x0a\x01a\x12\x01b\x18\xac\x02";
        assert_eq!(
            out.escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
    }

    #[test]
    fn the_overall_code_is_found_among_other_fields() {
        let call = |message: &[u8]| {
            let mut bytes = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
            bytes.extend_from_slice(message);
            bytes
        };
        let over = call(b"\x12\x04\x08\x02\x18\x00\x08\x02\x49........\x2d....");
        for len in 0..over.len() {
            assert_eq!(code_of_call(&over[..len]), Ok(None));
        }
        assert_eq!(code_of_call(&over), Ok(Some(2)));
        assert_eq!(code_of_call(&call(b"")), Ok(Some(0)));
        assert!(code_of_call(&call(b"\x0f")).is_err());
        assert!(code_of_call(&call(b"\x12\x09x")).is_err());
        assert!(code_of_call(b"\x01\0\0\0\0").is_err());
    }
}
