//! The operations of the admin listener.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::pressure;
use super::response::{AdminResponse, ProblemDetails, json as respond, with_body};
use crate::engine::{Engine, Health, OverrideError, ReloadCause, ReloadError, Reloaded};
use crate::limit_view::PolicyView;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Health,
    Ready,
    Metrics,
    Reload,
    Overrides,
    SetOverride,
    RemoveOverride,
    Top,
    Switch,
    Pressure,
    HoldPressure,
    ReleasePressure,
    Policy,
    Peek,
    Explain,
    ResetKey,
}

/// Path of the keys of limits: the name of a limit and the parts of a key follow.
pub(super) const KEYS: &str = "/v1/keys/";

/// All operations with method and path.
const ALL: [(&str, &str, Operation); 15] = [
    ("GET", "/health", Operation::Health),
    ("GET", "/ready", Operation::Ready),
    ("GET", "/metrics", Operation::Metrics),
    ("POST", "/reload", Operation::Reload),
    ("GET", "/overrides", Operation::Overrides),
    ("PUT", "/overrides", Operation::SetOverride),
    ("DELETE", "/overrides", Operation::RemoveOverride),
    ("GET", "/top", Operation::Top),
    ("POST", "/switch", Operation::Switch),
    ("GET", "/pressure", Operation::Pressure),
    ("POST", "/pressure", Operation::HoldPressure),
    ("DELETE", "/pressure", Operation::ReleasePressure),
    ("GET", "/policy", Operation::Policy),
    ("POST", "/peek", Operation::Peek),
    ("POST", "/explain", Operation::Explain),
];

/// A key: a string, or one for each part.
#[derive(Deserialize)]
#[serde(untagged)]
enum KeyTexts {
    One(String),
    Many(Vec<String>),
}

impl KeyTexts {
    fn parts(self) -> Vec<String> {
        match self {
            KeyTexts::One(one) => vec![one],
            KeyTexts::Many(many) => many,
        }
    }
}

#[derive(Deserialize)]
struct SetBody {
    limit: String,
    key: KeyTexts,
    #[serde(flatten)]
    change: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    limit: String,
    key: KeyTexts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeekBody {
    limit: String,
    key: KeyTexts,
    #[serde(default = "one")]
    cost: u64,
}

fn one() -> u64 {
    1
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchBody {
    limiting: Limiting,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Limiting {
    On,
    Off,
}

impl Operation {
    /// The operation of a method and path; otherwise the methods of the path.
    pub(super) fn find(method: &Method, path: &str) -> Result<Operation, Vec<&'static str>> {
        if path.starts_with(KEYS) {
            return match *method {
                Method::DELETE => Ok(Operation::ResetKey),
                _ => Err(vec!["DELETE"]),
            };
        }
        let method = match *method {
            Method::HEAD => "GET",
            ref method => method.as_str(),
        };
        let here = || ALL.iter().filter(|(_, at, _)| *at == path);
        let found = here()
            .find(|(by, ..)| *by == method)
            .map(|(_, _, asked)| *asked);
        found.ok_or_else(|| here().map(|(by, ..)| *by).collect())
    }

    pub(super) fn needs_token(self) -> bool {
        !matches!(
            self,
            Operation::Health | Operation::Ready | Operation::Metrics
        )
    }

    /// Returns `true` if it reads a body. The others may be sent without one.
    pub(super) fn needs_body(self) -> bool {
        !matches!(
            self,
            Operation::Reload | Operation::ReleasePressure | Operation::ResetKey
        )
    }

    /// Runs it. Reads and writes files, and may wait for the shared store.
    pub(super) fn run(
        self,
        engine: &Arc<Engine>,
        path: &str,
        body: &[u8],
        peer: IpAddr,
    ) -> Result<AdminResponse, ProblemDetails> {
        match self {
            Operation::Health => Ok(respond(&json!({"status": "ok"}))),
            Operation::Ready => Ok(ready(engine)),
            Operation::Metrics => {
                let kind = HeaderValue::from_static(Engine::METRICS_TYPE);
                Ok(with_body(StatusCode::OK, kind, engine.metrics()))
            }
            Operation::Reload => reload(engine, peer),
            Operation::Overrides => Ok(respond(&json!({"overrides": engine.overrides()}))),
            Operation::SetOverride => set_override(engine, read(body, SET_HINT)?, peer),
            Operation::RemoveOverride => remove_override(engine, read(body, KEY_HINT)?, peer),
            Operation::Top => {
                let (top, unsampled) = engine.top_refused();
                Ok(respond(&json!({"refused": top, "unsampled": unsampled})))
            }
            Operation::Switch => switch(engine, read(body, SWITCH_HINT)?, peer),
            Operation::Pressure => Ok(respond(&engine.pressure())),
            Operation::HoldPressure => pressure::hold(engine, read(body, pressure::HINT)?, peer),
            Operation::ReleasePressure => Ok(pressure::release(engine, peer)),
            Operation::Policy => Ok(respond(&PolicyView::new(engine, &engine.active()))),
            Operation::Peek => peek(engine, read(body, PEEK_HINT)?),
            Operation::ResetKey => super::keys::reset(engine, path, peer),
            Operation::Explain => match crate::http::explain(engine, body) {
                Ok(explanation) => Ok(respond(&explanation)),
                Err(detail) => Err(ProblemDetails::bad_request(
                    "bad-request",
                    detail,
                    EXPLAIN_HINT,
                )),
            },
        }
    }
}

const EXPLAIN_HINT: &str = r#"send a request as /v1/check reads it: {"path": "/api/rides", "headers": {"x-rider-id": "42"}}"#;
const SET_HINT: &str = r#"send {"limit": "app-open", "key": "acme", "allow": "100/s"}, or "unlimited": true, or "blocked": true"#;
const KEY_HINT: &str = r#"send {"limit": "app-open", "key": "acme"}"#;
const PEEK_HINT: &str =
    r#"send {"limit": "app-open", "key": "acme", "cost": 1}; "cost" can be left out"#;
const SWITCH_HINT: &str = r#"send {"limiting": "off"} or {"limiting": "on"}"#;

fn read<T: DeserializeOwned>(body: &[u8], hint: &str) -> Result<T, ProblemDetails> {
    serde_json::from_slice(body).map_err(|error| {
        ProblemDetails::bad_request(
            "bad-body",
            format!("the body cannot be read: {error}"),
            hint,
        )
    })
}

/// 503 if requests cannot be served, so that a load balancer chooses another node.
fn ready(engine: &Engine) -> AdminResponse {
    let health = engine.health();
    let mut response = respond(&health);
    if health.status == Health::UNAVAILABLE {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

fn reload(engine: &Engine, peer: IpAddr) -> Result<AdminResponse, ProblemDetails> {
    match engine.reload(ReloadCause::Admin(peer)) {
        Ok(Reloaded::Unchanged { version }) => Ok(respond(
            &json!({"outcome": "unchanged", "version": version}),
        )),
        Ok(Reloaded::Changed { version, warnings }) => Ok(respond(
            &json!({"outcome": "changed", "version": version, "warnings": warnings}),
        )),
        Err(error) => {
            let hint = "fix it; the last valid policy stays active";
            let detail = error.to_string();
            let problem = ProblemDetails::new(StatusCode::CONFLICT, error.code(), detail, hint);
            Err(match &error {
                ReloadError::Invalid(problems) => problem.with_problems(problems),
                _ => problem,
            })
        }
    }
}

fn set_override(
    engine: &Engine,
    body: SetBody,
    peer: IpAddr,
) -> Result<AdminResponse, ProblemDetails> {
    let SetBody { limit, key, change } = body;
    let changed = engine
        .set_override(&limit, &key.parts(), &change)
        .map_err(|error| not_changed(&error))?;
    tracing::info!(
        target: "tollgate::audit", actor = %peer, action = "override",
        %limit, key = ?engine.log_key(&changed.key),
        old = %text_of(changed.old.as_ref()), new = %text_of(Some(&change)), "override set"
    );
    Ok(respond(&json!({
        "limit": limit, "key": changed.key, "change": change,
        "replaced": changed.old, "persisted": changed.persisted,
    })))
}

fn remove_override(
    engine: &Engine,
    body: KeyBody,
    peer: IpAddr,
) -> Result<AdminResponse, ProblemDetails> {
    let KeyBody { limit, key } = body;
    let changed = engine
        .remove_override(&limit, &key.parts())
        .map_err(|error| not_changed(&error))?;
    tracing::info!(
        target: "tollgate::audit", actor = %peer, action = "override",
        %limit, key = ?engine.log_key(&changed.key),
        old = %text_of(changed.old.as_ref()), new = "none", "override removed"
    );
    Ok(respond(&json!({
        "limit": limit, "key": changed.key, "removed": changed.old, "persisted": changed.persisted,
    })))
}

fn text_of(change: Option<&Map<String, Value>>) -> String {
    change.map_or_else(
        || "none".into(),
        |change| Value::Object(change.clone()).to_string(),
    )
}

fn not_changed(error: &OverrideError) -> ProblemDetails {
    let detail = error.to_string();
    match error {
        OverrideError::NoSuchLimit { .. } => ProblemDetails::new(
            StatusCode::NOT_FOUND,
            "no-such-limit",
            detail,
            "see `GET /policy` for the limits",
        ),
        OverrideError::NotFound => ProblemDetails::new(
            StatusCode::NOT_FOUND,
            "no-such-override",
            detail,
            "see `GET /overrides`; those of the policy are changed in its file",
        ),
        OverrideError::Invalid(problems) => {
            ProblemDetails::bad_request("bad-override", detail, SET_HINT).with_problems(problems)
        }
        OverrideError::Full => {
            let hint = "remove some, or write them into the policy as tiers";
            ProblemDetails::new(StatusCode::CONFLICT, "too-many-overrides", detail, hint)
        }
        _ => ProblemDetails::bad_request("bad-override", detail, SET_HINT),
    }
}

fn switch(
    engine: &Engine,
    body: SwitchBody,
    peer: IpAddr,
) -> Result<AdminResponse, ProblemDetails> {
    let off = matches!(body.limiting, Limiting::Off);
    let was = engine.switch(off);
    let name = |off| if off { "off" } else { "on" };
    tracing::warn!(
        target: "tollgate::audit", actor = %peer, action = "switch",
        old = name(was), new = name(off), "limiting switched"
    );
    Ok(respond(&json!({"limiting": name(off), "was": name(was)})))
}

fn peek(engine: &Arc<Engine>, body: PeekBody) -> Result<AdminResponse, ProblemDetails> {
    let PeekBody { limit, key, cost } = body;
    let key = key.parts();
    match crate::http::peek_key(engine, &limit, &key, cost) {
        Ok(decision) => Ok(respond(&decision)),
        Err((StatusCode::NOT_FOUND, detail)) => {
            let hint = "see `GET /policy` for the limits";
            Err(ProblemDetails::new(
                StatusCode::NOT_FOUND,
                "no-such-limit",
                detail,
                hint,
            ))
        }
        Err((_, detail)) => {
            let hint = "send one string for each part of the key; see `GET /policy`";
            Err(ProblemDetails::bad_request("bad-key", detail, hint))
        }
    }
}
