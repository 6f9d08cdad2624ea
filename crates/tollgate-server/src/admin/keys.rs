//! Reset of one key of a limit: `DELETE /v1/keys/LIMIT/PART/PART`.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::response::{AdminResponse, ProblemDetails, json as respond};
use super::routes::KEYS;
use crate::engine::Engine;
use crate::http::named_key;

const HINT: &str = "send DELETE /v1/keys/LIMIT/KEY, with a path segment for each part of the key, percent-encoded; \
                    GET /policy lists the limits and their keys";

pub(super) fn reset(
    engine: &Arc<Engine>,
    path: &str,
    peer: IpAddr,
) -> Result<AdminResponse, ProblemDetails> {
    let bad = |detail: String| ProblemDetails::bad_request("bad-key", detail, HINT);
    let segments = path.strip_prefix(KEYS).unwrap_or_default().split('/');
    let segments: Result<Vec<_>, _> = segments
        .map(|segment| percent_decode_str(segment).decode_utf8())
        .collect();
    let segments = segments.map_err(|_| bad("the path is not UTF-8".into()))?;
    let Some((limit, key)) = segments.split_first() else {
        return Err(bad("the path names no limit".into()));
    };
    let policy = engine.active_owned();
    let (rule, parts) = named_key(&policy, limit, key).map_err(|(status, detail)| {
        let code = match status {
            StatusCode::NOT_FOUND => "no-such-limit",
            _ => "bad-key",
        };
        ProblemDetails::new(status, code, detail, HINT)
    })?;
    let Some(reset) = policy.gate.reset_key(rule, &parts) else {
        return Err(bad("there is no such limit any more".into()));
    };
    let units = reset.units;
    let key: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    let in_store = tokio::runtime::Handle::current().block_on(reset.in_store());
    tracing::info!(
        target: "tollgate::audit", actor = %peer, action = "reset-key",
        %limit, key = ?engine.log_key(&key), old = units, is_complete = in_store.is_ok(), "usage of a key reset"
    );
    match in_store {
        Ok(()) => Ok(respond(
            &json!({"limit": limit, "key": key, "units_here": units}),
        )),
        Err(fault) => Err(ProblemDetails::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store-away",
            format!("the key is reset at this node, and not in the store: {fault}"),
            "send it again when the store responds",
        )),
    }
}
