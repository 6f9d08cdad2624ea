//! Parses a checked head into a request.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::HeaderMap;
use hyper::{Method, Request, Uri};

use crate::gateway::proxy::body::Inbound;
use crate::net::http1::head::FIELDS;

/// Room for the fields that the gateway adds.
const ADDED_FIELDS: usize = 5;

/// Parses a complete, checked head; `None` if the parser refuses it.
pub(super) fn parse(head: &Bytes) -> Option<Request<Inbound>> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(head, &mut fields).ok()?;
    let (Some(method), Some(target), Some(1)) = (parsed.method, parsed.path, parsed.version) else {
        return None;
    };
    if status.is_partial() {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + ADDED_FIELDS);
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value)).ok()?;
        headers.append(name, value);
    }
    let mut request = Request::new(Inbound::Left(Empty::new()));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).ok()?;
    *request.uri_mut() = Uri::from_maybe_shared(head.slice_ref(target.as_bytes())).ok()?;
    *request.headers_mut() = headers;
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_its_head_states() {
        let head = "PUT /a%20b?c=d HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a:  2 \r\nX-B:\r\n\r\n";
        let request = parse(&Bytes::copy_from_slice(head.as_bytes())).unwrap();
        assert_eq!(request.method(), Method::PUT);
        assert_eq!(request.uri(), "/a%20b?c=d");
        assert_eq!(request.headers()["host"], "x");
        let all: Vec<_> = request.headers().get_all("x-a").iter().collect();
        assert_eq!(all, ["1", "2"]);
        assert_eq!(request.headers()["x-b"], "");
    }

    #[test]
    fn refused_heads_are_no_request() {
        for head in [
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "GET http://a:b:c/ HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert!(
                parse(&Bytes::copy_from_slice(head.as_bytes())).is_none(),
                "{head:?}"
            );
        }
    }
}
