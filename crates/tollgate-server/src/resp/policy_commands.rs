//! Commands decided by the policy: `/v1/check`, `/v1/peek`, `/v1/settle` and an explanation for Redis clients.
//!
//! The arguments are pairs of a name and a value:
//!
//! ```text
//! TOLLGATE.CHECK path /api/rides header.x-rider-id 42 ip 203.0.113.7
//! TOLLGATE.CHECK limit app-open key 42 cost 3 reserve yes
//! TOLLGATE.SETTLE 0123456789abcdef0123456789abcdef actual 2
//! ```
//!
//! The decision is made by the same code as over HTTP, and reservations of either front end can be settled at both.

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::Value;
use tollgate_policy::{KEY_PARTS_MAX, Op, PolicyDecision, Settlement};

use super::Shared;
use super::reply::{Reply, quoted};
use crate::decision_view::{DecisionView, Reserved};
use crate::engine::{ActivePolicy, Decide};
use crate::http::{CheckRequest, HttpApi, NO_FACTS, op_of};

/// A command decided by the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyCommand {
    Check,
    Peek,
    Settle,
    Explain,
}

impl PolicyCommand {
    pub(super) fn from_name(name: &[u8]) -> Option<PolicyCommand> {
        let (tollgate, rest) = name.split_at_checked(9)?;
        if !tollgate.eq_ignore_ascii_case(b"TOLLGATE.") {
            return None;
        }
        let is = |known: &[u8]| rest.eq_ignore_ascii_case(known);
        Some(match () {
            () if is(b"CHECK") => PolicyCommand::Check,
            () if is(b"PEEK") => PolicyCommand::Peek,
            () if is(b"SETTLE") => PolicyCommand::Settle,
            () if is(b"EXPLAIN") => PolicyCommand::Explain,
            () => return None,
        })
    }

    /// Writes the reply, or returns a pending one.
    pub(super) fn reply(
        self,
        shared: &Shared,
        words: &[&[u8]],
        reply: &mut Reply<'_>,
    ) -> Option<PendingReply> {
        let service = shared.service.clone();
        let answered = match self {
            PolicyCommand::Check => check(shared, words, Op::Charge, reply),
            PolicyCommand::Peek => check(shared, words, Op::Peek, reply),
            PolicyCommand::Settle => settlement(words).map(|(name, how)| {
                let settled = async move { settle(&service, &name, how).await };
                write_if_ready(Box::pin(settled), reply)
            }),
            PolicyCommand::Explain => {
                let words: Vec<_> = words.iter().map(|word| word.to_vec()).collect();
                let explained = async move { explain(&service, &words).await };
                Ok(write_if_ready(Box::pin(explained), reply))
            }
        };
        answered.unwrap_or_else(|error| {
            PolicyReply::Error(error).write(reply);
            None
        })
    }
}

/// A reply before it is written, independent of the protocol version.
pub(super) enum PolicyReply {
    Decision(Arc<ActivePolicy>, PolicyDecision, Reserved),
    /// The units that could not be charged.
    Settled(u64),
    Explained(Value),
    Error(String),
}

/// A reply that waits for a store. Dropping it refunds what the command took.
pub(super) type PendingReply = Pin<Box<dyn Future<Output = PolicyReply> + Send>>;

impl PolicyReply {
    pub(super) fn write(&self, reply: &mut Reply<'_>) {
        match self {
            PolicyReply::Decision(policy, answer, reserved) => {
                reply.view(&DecisionView::new(policy, answer, reserved.clone()));
            }
            PolicyReply::Settled(unpaid) => {
                reply.map(1);
                reply.text("unpaid");
                reply.count(*unpaid);
            }
            PolicyReply::Explained(explanation) => reply.view(explanation),
            PolicyReply::Error(error) => reply.error(&format!("ERR {error}")),
        }
    }
}

/// Writes a reply that is ready at the first poll, as without a shared store.
fn write_if_ready(mut pending: PendingReply, reply: &mut Reply<'_>) -> Option<PendingReply> {
    match pin!(&mut pending).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answered) => {
            answered.write(reply);
            None
        }
        Poll::Pending => Some(pending),
    }
}

fn check(
    shared: &Shared,
    words: &[&[u8]],
    op: Op,
    reply: &mut Reply<'_>,
) -> Result<Option<PendingReply>, String> {
    let ask = read(words)?;
    if ask.reserve && op == Op::Peek {
        return Err(
            "a peek charges nothing to reserve; use TOLLGATE.CHECK, or omit `reserve`".into(),
        );
    }
    let op = op_of(&ask, op);
    let service = &shared.service;
    let policy = service.engine().active();
    let decide = service.decide(&shared.source, &policy, &ask, op);
    match decide.map_err(|(_, detail)| detail)? {
        Decide::Ready(answer) => {
            let reserved = service.reserve(&policy, ask.reserve, &answer, op);
            reply.view(&DecisionView::new(&policy, &answer, reserved));
            Ok(None)
        }
        Decide::Pending(pending) => {
            let (service, wanted) = (service.clone(), ask.reserve);
            Ok(Some(Box::pin(async move {
                let policy = Arc::clone(pending.policy());
                let answer = pending.await;
                let reserved = service.reserve(&policy, wanted, &answer, op);
                PolicyReply::Decision(policy, answer, reserved)
            })))
        }
    }
}

/// The reservation and how it is settled.
fn settlement(words: &[&[u8]]) -> Result<(String, Settlement), String> {
    let name = words.first().map(|name| String::from_utf8_lossy(name));
    let how = match words.get(1..).unwrap_or_default() {
        _ if words.is_empty() => {
            return Err(
                "the reservation is missing; send the one that TOLLGATE.CHECK returned for `reserve yes`"
                    .into(),
            );
        }
        [] => Settlement::Done,
        [word] if word.eq_ignore_ascii_case(b"cancel") => Settlement::Cancelled,
        [word, units] if word.eq_ignore_ascii_case(b"actual") => {
            Settlement::Actual(number("actual", units)?)
        }
        _ => return Err("after the reservation comes `actual UNITS`, `cancel` or nothing".into()),
    };
    Ok((name.unwrap_or_default().into_owned(), how))
}

async fn settle(service: &HttpApi, name: &str, how: Settlement) -> PolicyReply {
    match service.settle(name, how).await {
        Ok(unpaid) => PolicyReply::Settled(unpaid),
        Err(error) => PolicyReply::Error(error.problem().1),
    }
}

async fn explain(service: &HttpApi, words: &[Vec<u8>]) -> PolicyReply {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let ask = match read(&words) {
        Ok(ask) if ask.limit.is_some() => {
            return PolicyReply::Error("explain needs the facts of a request; omit `limit`".into());
        }
        Ok(ask) => ask,
        Err(wrong) => return PolicyReply::Error(wrong),
    };
    let policy = service.engine().active_owned();
    PolicyReply::Explained(service.explain(&policy, &ask).await)
}

const NAMES: [&str; 12] = [
    "method",
    "path",
    "host",
    "ip",
    "domain",
    "limit",
    "key",
    "cost",
    "reserve",
    "header.",
    "field.",
    "descriptor.",
];

/// Reads pairs of names and values. Unknown names are errors: a misspelt name that was ignored would be a limit that is
/// not enforced.
fn read<'a>(words: &[&'a [u8]]) -> Result<CheckRequest<'a>, String> {
    let mut ask = CheckRequest::default();
    let (mut seen, mut has_facts) = (0u32, false);
    let mut pairs = words.chunks_exact(2);
    for pair in &mut pairs {
        let &[name, value] = pair else { continue };
        let name = text("a name", name)?;
        let (kind, rest) = match name.split_once('.') {
            Some((kind @ ("header" | "field" | "descriptor"), rest)) => (kind, rest),
            _ => (name, ""),
        };
        if let Some(at) = NAMES
            .iter()
            .position(|known| *known == kind && kind != "key")
        {
            if seen & 1 << at != 0 {
                return Err(format!("`{kind}` is repeated"));
            }
            seen |= 1 << at;
        }
        match kind {
            "limit" => ask.limit = Some(text(kind, value)?.into()),
            "key" if ask.key.len() == KEY_PARTS_MAX => {
                return Err(format!("a key has at most {KEY_PARTS_MAX} parts"));
            }
            "key" => ask.key.push(text(kind, value)?.into()),
            "cost" => ask.cost = Some(number(kind, value)?),
            "reserve" => ask.reserve = boolean(kind, value)?,
            kind => {
                has_facts = true;
                fact(&mut ask, kind, rest, value)?;
            }
        }
    }
    if let [name] = pairs.remainder() {
        let name = quoted(name);
        return Err(format!(
            "{name:?} has no value; send pairs of a name and a value"
        ));
    }
    match (&ask.limit, ask.key.is_empty(), has_facts) {
        (None, false, _) => Err(
            "`key` needs `limit`; add it, or describe the request by its facts".into(),
        ),
        (Some(_), _, true) => Err(
            "`limit` excludes facts of a request; with it, send only `key`, `cost` and `reserve`, or omit it".into(),
        ),
        (None, true, false) => Err(NO_FACTS.into()),
        _ => Ok(ask),
    }
}

/// One fact of the request.
fn fact<'a>(
    ask: &mut CheckRequest<'a>,
    kind: &str,
    name: &'a str,
    value: &'a [u8],
) -> Result<(), String> {
    let value = text(kind, value)?;
    let pair = (Cow::Borrowed(name), Cow::Borrowed(value));
    match kind {
        "method" => ask.method = value.into(),
        "path" => ask.path = value.into(),
        "host" => ask.host = value.into(),
        "domain" => ask.domain = value.into(),
        "ip" => {
            let address = value.parse().map_err(|_| {
                let shown: String = value.chars().take(64).collect();
                format!("`ip` is {shown:?}, which is no IP address; write one such as 203.0.113.7, or omit it")
            });
            ask.client = Some(address?);
        }
        "header" => ask.headers.push(pair),
        "field" if ask.fields.iter().any(|(known, _)| *known == name) => {
            return Err(format!("`field.{name}` is repeated"));
        }
        "field" => ask.fields.push(pair),
        "descriptor" => ask.descriptor.push(pair),
        other => return Err(no_such_name(other)),
    }
    Ok(())
}

#[cold]
fn no_such_name(name: &str) -> String {
    let shown: String = name.chars().take(64).collect();
    match tollgate_config::suggest::suggest(name, NAMES) {
        Some(meant) => format!("unknown name {shown:?}; did you mean `{meant}`?"),
        None => format!(
            "unknown name {shown:?}; known names are `{}`NAME",
            NAMES.join("`, `")
        ),
    }
}

fn text<'a>(what: &str, value: &'a [u8]) -> Result<&'a str, String> {
    std::str::from_utf8(value).map_err(|_| format!("{what} is not UTF-8; policies match text"))
}

fn number(what: &str, value: &[u8]) -> Result<u64, String> {
    let number = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        let shown = quoted(value);
        format!("`{what}` is {shown:?}; write a whole number of units, 0 or more")
    })
}

fn boolean(what: &str, value: &[u8]) -> Result<bool, String> {
    let is = |words: [&str; 3]| {
        words
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
    };
    match (is(["yes", "true", "1"]), is(["no", "false", "0"])) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(format!(
            "`{what}` is {:?}; write `yes` or `no`",
            quoted(value)
        )),
    }
}
