//! Fuzzes messages of Envoy's rate limit service, and their decisions.

use std::sync::LazyLock;

use prost::Message;
use tollgate_server::fuzzing::rls::{FrontEnd, MAX_MESSAGE_BYTES};
use tollgate_server::rls::messages::{Code, RateLimitRequest, RateLimitResponse};

use super::POLICY;
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "rls",
    holds: "a message that is written again reads as the same; every descriptor has a status, in order; the overall code is OK or \
            OVER_LIMIT, and OVER_LIMIT has a status that is OVER_LIMIT; memory grows with the bytes sent",
    run,
};

static FRONT_END: LazyLock<FrontEnd> = LazyLock::new(|| FrontEnd::new(POLICY));

fn run(bytes: &[u8]) {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return;
    }
    let (read, taken) = memory::peak(|| RateLimitRequest::decode(bytes));
    // An empty descriptor is two bytes on the wire, and a list doubles as it grows.
    assert!(
        taken <= 4096 + bytes.len().saturating_mul(256),
        "{taken} bytes of memory for {} bytes",
        bytes.len()
    );
    let Ok(request) = read else { return };
    let again = RateLimitRequest::decode(request.encode_to_vec().as_slice());
    assert_eq!(again.as_ref(), Ok(&request));
    let descriptors = request.descriptors.len();
    let response = match FRONT_END.answer(request) {
        Err(wrong) => {
            assert_eq!(wrong.code() as i32, 3, "{wrong}");
            assert!(!wrong.message().is_empty());
            return;
        }
        Ok(response) => response,
    };
    let Some(response) = response else {
        panic!("the decision is pending without a store")
    };
    let codes = [Code::Ok as i32, Code::OverLimit as i32];
    assert_eq!(response.statuses.len(), descriptors);
    assert!(codes.contains(&response.overall_code), "{response:?}");
    let statuses = || response.statuses.iter().map(|status| status.code);
    assert!(statuses().all(|code| codes.contains(&code)), "{response:?}");
    if response.overall_code == Code::OverLimit as i32 {
        assert!(
            statuses().any(|code| code == Code::OverLimit as i32),
            "{response:?}"
        );
    }
    let again = RateLimitResponse::decode(response.encode_to_vec().as_slice());
    assert_eq!(again, Ok(response));
}
