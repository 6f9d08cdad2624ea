//! Fuzzes requests in JSON and their answers: a check, a batch, the settlement of a reservation.

use std::sync::LazyLock;

use serde_json::Value;
use tollgate_server::fuzzing::http::{FrontEnd, Kind, read};

use super::POLICY;
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "http_json",
    holds: "a body that is written again by another writer reads as the same; an invalid body is answered with 400 and a reason; \
            no answer is a server error; every answer is JSON of the announced length; memory grows with the bytes sent",
    run,
};

static FRONT_END: LazyLock<FrontEnd> = LazyLock::new(|| FrontEnd::new(POLICY));

fn run(bytes: &[u8]) {
    for kind in [Kind::CheckRequest, Kind::Batch, Kind::Settle] {
        // Errors are longer than the request: eight field names are there even if the body is empty.
        let (parsed, taken) = memory::peak(|| read(kind, bytes));
        assert!(
            taken <= 8192 + bytes.len().saturating_mul(400),
            "{taken} bytes of memory for {} bytes",
            bytes.len()
        );
        if let Ok(request) = &parsed {
            let written = serde_json::from_slice::<Value>(bytes).map(|value| value.to_string());
            let written = written.unwrap_or_default();
            assert_eq!(read(kind, written.as_bytes()).as_ref(), Ok(request));
        }
        let Some((status, body)) = FRONT_END.answer(kind, bytes) else {
            panic!("the decision is pending without a store")
        };
        assert!((200..500).contains(&status), "{status}");
        assert!(parsed.is_ok() || status == 400, "{status}");
        let json = serde_json::from_slice::<Value>(&body);
        assert!(json.is_ok(), "{status} {body:?}");
        if let (400, Ok(json)) = (status, &json) {
            // A path that cannot be normalised is a decision, with its reason.
            let has_reason = json["detail"].is_string() || json["reason"].is_string();
            assert!(has_reason, "{json}");
        }
    }
    if let Some(answer) = FRONT_END.answer_fast(bytes) {
        is_one_answer(&answer);
    }
}

/// A head, and a body of JSON that is as long as the head says.
fn is_one_answer(answer: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = parsed.parse(answer) else {
        panic!("no answer: {}", answer.escape_ascii())
    };
    let length = parsed
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("content-length"))
        .and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
    let body = answer.get(head..).unwrap_or_default();
    assert_eq!(length, Some(body.len()));
    assert!(serde_json::from_slice::<Value>(body).is_ok());
}
