//! What can be asked, and what is answered.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tollgate::{Span, Verdict};
use tollgate_policy::Subject;

use super::answer::{Answer, Problem, value, with_body};
use super::{pressure, shown};
use crate::engine::{Engine, EngineSource, OverrideError, Protocol, ReloadError, Reloaded, Why};

/// Something that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
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
}

/// Everything, with its method and its path.
const ALL: [(&str, &str, Asked); 15] = [
    ("GET", "/health", Asked::Health),
    ("GET", "/ready", Asked::Ready),
    ("GET", "/metrics", Asked::Metrics),
    ("POST", "/reload", Asked::Reload),
    ("GET", "/overrides", Asked::Overrides),
    ("PUT", "/overrides", Asked::SetOverride),
    ("DELETE", "/overrides", Asked::RemoveOverride),
    ("GET", "/top", Asked::Top),
    ("POST", "/switch", Asked::Switch),
    ("GET", "/pressure", Asked::Pressure),
    ("POST", "/pressure", Asked::HoldPressure),
    ("DELETE", "/pressure", Asked::ReleasePressure),
    ("GET", "/policy", Asked::Policy),
    ("POST", "/peek", Asked::Peek),
    ("POST", "/explain", Asked::Explain),
];

/// The key of one client: a text, or one for each part.
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

impl Asked {
    /// What this method and path ask for; else which methods the path knows.
    pub(super) fn by(method: &Method, path: &str) -> Result<Asked, Vec<&'static str>> {
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
        !matches!(self, Asked::Health | Asked::Ready | Asked::Metrics)
    }

    /// Does it. Reads and writes files.
    pub(super) fn answer(
        self,
        engine: &Arc<Engine>,
        body: &[u8],
        peer: IpAddr,
    ) -> Result<Answer, Problem> {
        match self {
            Asked::Health => Ok(value(&json!({"status": "ok"}))),
            Asked::Ready => Ok(value(&shown::json_of(&engine.health()))),
            Asked::Metrics => {
                let kind = HeaderValue::from_static(Engine::METRICS_TYPE);
                Ok(with_body(StatusCode::OK, kind, engine.metrics()))
            }
            Asked::Reload => reload(engine, peer),
            Asked::Overrides => Ok(value(&json!({"overrides": engine.overrides()}))),
            Asked::SetOverride => set_override(engine, read(body, SET_HINT)?, peer),
            Asked::RemoveOverride => remove_override(engine, read(body, KEY_HINT)?, peer),
            Asked::Top => {
                let (top, missed) = engine.top_refused();
                Ok(value(&json!({"refused": top, "not_looked_at": missed})))
            }
            Asked::Switch => switch(engine, read(body, SWITCH_HINT)?, peer),
            Asked::Pressure => Ok(value(&shown::json_of(&engine.pressure()))),
            Asked::HoldPressure => pressure::hold(engine, read(body, pressure::HINT)?, peer),
            Asked::ReleasePressure => Ok(pressure::release(engine, peer)),
            Asked::Policy => Ok(value(&shown::policy(engine))),
            Asked::Peek => peek(engine, read(body, PEEK_HINT)?),
            Asked::Explain => match crate::http::explain(engine, body) {
                Ok(told) => Ok(value(&told)),
                Err(detail) => Err(Problem::bad_request("bad-request", detail, EXPLAIN_HINT)),
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

fn read<T: DeserializeOwned>(body: &[u8], hint: &str) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        Problem::bad_request(
            "bad-body",
            format!("the body cannot be read: {error}"),
            hint,
        )
    })
}

fn reload(engine: &Engine, peer: IpAddr) -> Result<Answer, Problem> {
    match engine.reload(Why::Admin(peer)) {
        Ok(Reloaded::Unchanged { version }) => {
            Ok(value(&json!({"outcome": "unchanged", "version": version})))
        }
        Ok(Reloaded::Changed { version, warnings }) => Ok(value(
            &json!({"outcome": "changed", "version": version, "warnings": warnings}),
        )),
        Err(error) => {
            let hint = "mend it; the last good policy stays in force meanwhile";
            let detail = error.to_string();
            let problem = Problem::new(StatusCode::CONFLICT, error.code(), detail, hint);
            Err(match &error {
                ReloadError::Invalid(problems) => problem.with_problems(problems),
                _ => problem,
            })
        }
    }
}

fn set_override(engine: &Engine, body: SetBody, peer: IpAddr) -> Result<Answer, Problem> {
    let SetBody { limit, key, change } = body;
    let changed = engine
        .set_override(&limit, &key.parts(), &change)
        .map_err(|error| not_changed(&error))?;
    tracing::info!(
        target: "tollgate::audit", who = %peer, what = "override",
        %limit, key = ?engine.log_key(&changed.key),
        old = %text_of(changed.old.as_ref()), new = %text_of(Some(&change)), "an override was set"
    );
    Ok(value(&json!({
        "limit": limit, "key": changed.key, "change": change,
        "replaced": changed.old, "persisted": changed.persisted,
    })))
}

fn remove_override(engine: &Engine, body: KeyBody, peer: IpAddr) -> Result<Answer, Problem> {
    let KeyBody { limit, key } = body;
    let changed = engine
        .remove_override(&limit, &key.parts())
        .map_err(|error| not_changed(&error))?;
    tracing::info!(
        target: "tollgate::audit", who = %peer, what = "override",
        %limit, key = ?engine.log_key(&changed.key),
        old = %text_of(changed.old.as_ref()), new = "none", "an override was removed"
    );
    Ok(value(&json!({
        "limit": limit, "key": changed.key, "removed": changed.old, "persisted": changed.persisted,
    })))
}

fn text_of(change: Option<&Map<String, Value>>) -> String {
    change.map_or_else(
        || "none".into(),
        |change| Value::Object(change.clone()).to_string(),
    )
}

fn not_changed(error: &OverrideError) -> Problem {
    let detail = error.to_string();
    match error {
        OverrideError::NoSuchLimit { .. } => Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-limit",
            detail,
            "see `GET /policy` for the limits",
        ),
        OverrideError::NotThere => Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-override",
            detail,
            "see `GET /overrides`; those of the policy are changed in its file",
        ),
        OverrideError::Invalid(problems) => {
            Problem::bad_request("bad-override", detail, SET_HINT).with_problems(problems)
        }
        OverrideError::Full => {
            let hint = "remove some, or write them into the policy as tiers";
            Problem::new(StatusCode::CONFLICT, "too-many-overrides", detail, hint)
        }
        _ => Problem::bad_request("bad-override", detail, SET_HINT),
    }
}

fn switch(engine: &Engine, body: SwitchBody, peer: IpAddr) -> Result<Answer, Problem> {
    let off = matches!(body.limiting, Limiting::Off);
    let was = engine.switch(off);
    let text = |off| if off { "off" } else { "on" };
    tracing::warn!(
        target: "tollgate::audit", who = %peer, what = "limiting",
        old = text(was), new = text(off), "limiting was switched"
    );
    Ok(value(&json!({"limiting": text(off), "was": text(was)})))
}

fn peek(engine: &Arc<Engine>, body: PeekBody) -> Result<Answer, Problem> {
    let PeekBody { limit, key, cost } = body;
    let parts = key.parts();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let epoch = engine.epoch_for_long();
    let gate = &epoch.gate;
    let at = gate.rule_named(&limit);
    let Some((at, rule)) = at.and_then(|at| Some((at, gate.rule(at)?))) else {
        let detail = format!("there is no limit `{}`", limit.escape_debug());
        let hint = "see `GET /policy` for the limits";
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-limit",
            detail,
            hint,
        ));
    };
    if rule.key.len() != parts.len() {
        let detail = format!(
            "the key of this limit has {} parts, not {}",
            rule.key.len(),
            parts.len()
        );
        let hint = "send one text for each part of the key; see `GET /policy`";
        return Err(Problem::bad_request("bad-key", detail, hint));
    }
    let subject = Subject::Rule {
        rule: at,
        key: &parts,
        cost,
    };
    let source = EngineSource::new(Arc::clone(engine), Protocol::Http);
    let answer = crate::http::peek(&source, &epoch, subject);
    let millis = |span: Span| span.as_nanos().div_ceil(1_000_000);
    let verdict = match answer.verdict {
        Verdict::Pass => "pass",
        Verdict::Wait { .. } => "wait",
        Verdict::Refuse { .. } => "refuse",
        Verdict::Never => "never",
    };
    Ok(value(&json!({
        "limit": limit,
        "verdict": verdict,
        "wait_ms": answer.verdict.wait().map(millis),
        "remaining": answer.binding().map(|_| answer.status.remaining),
        "full_after_ms": answer.binding().map(|_| millis(answer.status.full_after)),
        "limiting": if gate.is_switched_off() { "off" } else { "on" },
    })))
}
