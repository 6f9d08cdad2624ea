//! Questions by policy: what `/v1/check`, `/v1/peek` and `/v1/settle` answer in JSON, and an explanation, for
//! Redis clients.
//!
//! The request is told in pairs of a name and a value:
//!
//! ```text
//! TOLLGATE.CHECK path /api/rides header.x-rider-id 42 ip 203.0.113.7
//! TOLLGATE.CHECK limit app-open key 42 cost 3 reserve yes
//! TOLLGATE.SETTLE 0123456789abcdef0123456789abcdef actual 2
//! ```
//!
//! It is decided by the same code as over HTTP, and reservations of either door can be settled at both.

use std::borrow::Cow;

use tollgate::policy::{Answer, Basis, KEY_PARTS_MAX, Role, Settlement};
use tollgate::{Origin, Span, Verdict};

use super::codec::Command;
use super::reply::{Reply, quoted};
use crate::engine::{Door, Epoch};
use crate::explain::millis;
use crate::http::{Ask, Reserved, Service, reservation_name, weight};
use crate::words;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Check,
    Peek,
    Settle,
    Explain,
}

/// A name that there is not, or a value that is none.
type Wrong = String;

impl Question {
    /// The question by the name of its command.
    pub(super) fn of(name: &[u8]) -> Option<Question> {
        let (tollgate, rest) = name.split_at_checked(9)?;
        if !tollgate.eq_ignore_ascii_case(b"TOLLGATE.") {
            return None;
        }
        let is = |known: &[u8]| rest.eq_ignore_ascii_case(known);
        Some(match () {
            () if is(b"CHECK") => Question::Check,
            () if is(b"PEEK") => Question::Peek,
            () if is(b"SETTLE") => Question::Settle,
            () if is(b"EXPLAIN") => Question::Explain,
            () => return None,
        })
    }

    /// Answers it. Waits for nothing unless a fleet shares its store.
    pub(super) async fn answer(self, service: &Service, words: &[&[u8]], reply: &mut Reply<'_>) {
        let answered = match self {
            Question::Check | Question::Peek => {
                check(service, words, self == Question::Check, reply).await
            }
            Question::Settle => settle(service, words, reply).await,
            Question::Explain => explain(service, words, reply).await,
        };
        if let Err(wrong) = answered {
            reply.error(&format!("ERR {wrong}"));
        }
    }
}

async fn check(
    service: &Service,
    words: &[&[u8]],
    takes: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Wrong> {
    let ask = read(words)?;
    if ask.reserve && !takes {
        return Err(
            "`reserve` keeps what was taken, and a peek takes nothing; ask TOLLGATE.CHECK, or leave it out"
                .into(),
        );
    }
    let epoch = service.engine().epoch_for_long();
    let (answer, reserved) = service.decide(Door::Resp, &epoch, &ask, takes).await?;
    write(reply, &epoch, &answer, reserved);
    Ok(())
}

async fn settle(service: &Service, words: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Wrong> {
    let name = reservation_name(&words.first().map(|name| quoted(name)).unwrap_or_default());
    let how = match words.get(1..).unwrap_or_default() {
        _ if words.is_empty() => {
            return Err(
                "the reservation is missing: what TOLLGATE.CHECK answered with `reserve yes`"
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
    match service.settle(name, how).await {
        Some(unpaid) => {
            reply.map(1);
            reply.text("unpaid");
            reply.count(unpaid);
            Ok(())
        }
        None => Err(
            "there is no such reservation: it was settled already, is older than ten minutes, or was made at another node"
                .into(),
        ),
    }
}

async fn explain(service: &Service, words: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Wrong> {
    let ask = read(words)?;
    if ask.limit.is_some() {
        return Err(
            "a limit by its name explains itself; leave out `limit` and tell the request".into(),
        );
    }
    let epoch = service.engine().epoch_for_long();
    reply.json(&service.explain(&epoch, &ask).await);
    Ok(())
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

/// Reads pairs of names and values. What is not understood is an error: a misspelt name that was ignored
/// would be a limit that is not enforced.
fn read<'a>(words: &[&'a [u8]]) -> Result<Ask<'a>, Wrong> {
    let mut ask = Ask::default();
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
                return Err(format!("`{kind}` is there twice"));
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
            "reserve" => ask.reserve = truth(kind, value)?,
            kind => {
                has_facts = true;
                fact(&mut ask, kind, rest, value)?;
            }
        }
    }
    if let [name] = pairs.remainder() {
        let name = quoted(name);
        return Err(format!(
            "{name:?} has no value: facts are pairs of a name and a value"
        ));
    }
    match (&ask.limit, ask.key.is_empty(), has_facts) {
        (None, false, _) => Err(
            "`key` is for asking a limit by its name; add `limit`, or say what the request is".into(),
        ),
        (Some(_), _, true) => Err(
            "a limit that is asked by its name takes `key`, `cost` and `reserve`; leave out what the request is, or leave out `limit`".into(),
        ),
        _ => Ok(ask),
    }
}

/// One fact of the request.
fn fact<'a>(ask: &mut Ask<'a>, kind: &str, name: &'a str, value: &'a [u8]) -> Result<(), Wrong> {
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
                format!("`ip` is {shown:?}, which is no IP address; write one such as 203.0.113.7, or leave it out")
            });
            ask.client = Some(address?);
        }
        "header" => ask.headers.push(pair),
        "field" if ask.fields.iter().any(|(known, _)| *known == name) => {
            return Err(format!("`field.{name}` is there twice"));
        }
        "field" => ask.fields.push(pair),
        "descriptor" => ask.descriptor.push(pair),
        other => return Err(no_such_name(other)),
    }
    Ok(())
}

#[cold]
fn no_such_name(name: &str) -> Wrong {
    let shown: String = name.chars().take(64).collect();
    match tollgate_policy::near::nearest(name, NAMES) {
        Some(meant) => format!("there is no name {shown:?}; did you mean `{meant}`?"),
        None => format!(
            "there is no name {shown:?}; there are `{}`NAME",
            NAMES.join("`, `")
        ),
    }
}

fn text<'a>(what: &str, value: &'a [u8]) -> Result<&'a str, Wrong> {
    std::str::from_utf8(value).map_err(|_| format!("{what} is not UTF-8; policies match text"))
}

fn number(what: &str, value: &[u8]) -> Result<u64, Wrong> {
    let number = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        let shown = quoted(value);
        format!("`{what}` is {shown:?}; write a whole number of units, 0 or more")
    })
}

fn truth(what: &str, value: &[u8]) -> Result<bool, Wrong> {
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

/// Writes an answer with the names that it has in JSON.
fn write(reply: &mut Reply<'_>, epoch: &Epoch, answer: &Answer, reserved: Reserved) {
    let gate = &epoch.gate;
    let (retry, delay) = match answer.verdict {
        Verdict::Refuse { retry_after } => (Some(retry_after), None),
        Verdict::Wait { delay } => (None, Some(delay)),
        _ => (None, None),
    };
    let is_degraded = answer.origin == Origin::Degraded;
    let listed = match answer.basis {
        Basis::AllowList(at) => gate.policy().allow.get(at),
        Basis::DenyList(at) => gate.policy().deny.get(at),
        _ => None,
    };
    let rule = match answer.basis {
        Basis::MissingKey(rule) | Basis::Blocked(rule) | Basis::StoreError(rule) => Some(rule),
        _ => answer.binding().map(|charge| charge.rule),
    };
    let weight = weight(epoch, answer);
    let more = [
        retry.is_some(),
        delay.is_some(),
        is_degraded,
        listed.is_some(),
        weight.is_some(),
    ];
    let more = more.into_iter().filter(|is| *is).count();
    let kept = match reserved {
        Reserved::Unasked => 0,
        Reserved::Full => 2,
        _ => 1,
    };
    reply.map(7 + more + kept);
    reply.text("verdict");
    reply.text(words::verdict(answer.verdict));
    reply.text("limit");
    reply.optional(rule.and_then(|at| gate.rule(at)).map(|rule| &*rule.name));
    reply.text("reason");
    reply.text(words::reason(answer.basis));
    if is_degraded {
        reply.text("degraded");
        reply.truth(true);
    }
    if let Some(listed) = listed {
        reply.text("rule");
        reply.text(&listed.name);
    }
    reply.text("remaining");
    match answer.standing.remaining {
        u64::MAX => reply.nil(),
        remaining => reply.count(remaining),
    }
    let mut span = |name: &str, span: Option<Span>| {
        if let Some(span) = span {
            reply.text(name);
            reply.count(millis(span));
        }
    };
    span("retry_after_ms", retry);
    span("delay_ms", delay);
    span("reset_after_ms", Some(answer.standing.full_after));
    reply.text("limits");
    reply.array(answer.charges.len());
    for charge in answer.charges.iter() {
        let is_refusing =
            matches!(charge.role, Role::Shadow | Role::Candidate) && !charge.verdict.is_admitted();
        reply.map(3 + usize::from(is_refusing));
        reply.text("name");
        reply.optional(gate.rule(charge.rule).map(|rule| &*rule.name));
        reply.text("role");
        reply.text(words::role(charge.role));
        reply.text("cost");
        reply.count(charge.cost);
        if is_refusing {
            reply.text("would_refuse");
            reply.truth(true);
        }
    }
    if let Some(weight) = weight {
        reply.text("weight");
        reply.count(u64::from(weight));
    }
    reply.text("policy_version");
    reply.count(epoch.version);
    write_reserved(reply, reserved);
}

fn write_reserved(reply: &mut Reply<'_>, reserved: Reserved) {
    if reserved != Reserved::Unasked {
        reply.text("reservation");
    }
    match reserved {
        Reserved::Unasked => {}
        Reserved::Nothing => reply.nil(),
        Reserved::Kept(name) => reply.text(&format!("{name:032x}")),
        Reserved::Full => {
            reply.nil();
            reply.text("reservation_error");
            reply.text("there is no room for another reservation; settle those that are done");
        }
    }
}

/// The words of a question, kept while it is waited for.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) question: Question,
    words: Vec<Vec<u8>>,
}

impl Kept {
    pub(super) fn of(question: Question, command: &Command<'_>) -> Kept {
        Kept {
            question,
            words: command.from(1).map(<[u8]>::to_vec).collect(),
        }
    }

    pub(super) async fn answer(&self, service: &Service, reply: &mut Reply<'_>) {
        let words: Vec<&[u8]> = self.words.iter().map(Vec::as_slice).collect();
        self.question.answer(service, &words, reply).await;
    }
}
