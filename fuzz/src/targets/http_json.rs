//! Questions in JSON: one, a batch, the end of a reservation.

use std::sync::LazyLock;

use serde_json::Value;
use tollgate_server::fuzzing::http::{FrontEnd, Kind, read};

use super::POLICY;
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "http_json",
    holds: "a body that is written again by another writer is read as the same; what is not read is answered with 400 and its reason; \
            no answer is an error of the server; every answer is JSON of the length that it says; memory grows by what was sent",
    run,
    words: &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\u0041",
        "\\n",
        "null",
        "true",
        "false",
        "-1",
        "1e3",
        "\"path\":\"/api/a\"",
        "\"headers\":{\"x-user\":\"1\"}",
        "\"headers\":{\"x-user\":[\"1\",\"2\"]}",
        "\"fields\":{\"kind\":\"batch\"}",
        "\"ip\":\"192.0.2.1\"",
        "\"limit\":\"per-user\"",
        "\"key\":[\"1\"]",
        "\"key\":\"1\"",
        "\"cost\":2",
        "\"reserve\":true",
        "\"descriptor\":[{\"key\":\"user\",\"value\":\"1\"}]",
        "\"descriptor\":{\"user\":\"1\"}",
        "\"domain\":\"edge\"",
        "\"requests\":[{}]",
        "\"reservation\":\"0\"",
        "\"actual\":1",
        "\"cancel\":true",
    ],
};

static FRONT_END: LazyLock<FrontEnd> = LazyLock::new(|| FrontEnd::new(POLICY));

fn run(bytes: &[u8]) {
    for kind in [Kind::Ask, Kind::Batch, Kind::Settle] {
        // As text it is longer than as a question: eight of the names are there even if nothing is said.
        let (asked, taken) = memory::most(|| read(kind, bytes));
        assert!(
            taken <= 8192 + bytes.len().saturating_mul(400),
            "{taken} bytes of memory for {} bytes",
            bytes.len()
        );
        if let Ok(asked) = &asked {
            let written = serde_json::from_slice::<Value>(bytes).map(|value| value.to_string());
            let written = written.unwrap_or_default();
            assert_eq!(read(kind, written.as_bytes()).as_ref(), Ok(asked));
        }
        let Some((status, body)) = FRONT_END.answer(kind, bytes) else {
            panic!("it waits, and there is nothing to wait for")
        };
        assert!((200..500).contains(&status), "{status}");
        assert!(asked.is_ok() || status == 400, "{status}");
        let told = serde_json::from_slice::<Value>(&body);
        assert!(told.is_ok(), "{status} {body:?}");
        if let (400, Ok(told)) = (status, &told) {
            // A path that cannot be compared is a decision, and says so.
            let is_told = told["detail"].is_string() || told["reason"].is_string();
            assert!(is_told, "{told}");
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
