//! From a question to its answer.

use hyper::StatusCode;
use std::sync::Arc;
use tollgate::policy::fields::status;
use tollgate::policy::{Answer, Begun, Facts, Settlement};
use tollgate::{Algorithm, Clock};

use super::answer::{Reserved, answered, push_answer, push_count};
use super::ask::{Ask, Batch, Settle, read};
use super::pairs::HeaderList;
use super::problems::{Answered, problem, push_problem};
use super::reservations::read_name;
use super::{Decisions, json};
use crate::engine::{Door, Epoch, carry};

/// Why a question has no answer.
type Unanswered = (StatusCode, String);

impl Decisions {
    /// `/v1/check`, or `/v1/peek` if it takes nothing.
    pub(super) async fn check(&self, body: &[u8], takes: bool) -> Answered {
        let ask: Ask<'_> = match read(body) {
            Ok(ask) => ask,
            Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
        };
        if ask.reserve && !takes {
            return problem(
                StatusCode::BAD_REQUEST,
                "`reserve` keeps what was taken, and a peek takes nothing; ask /v1/check, or leave it out",
            );
        }
        let epoch = self.engine.epoch_for_long();
        match self.decide(Door::Http, &epoch, &ask, takes).await {
            Ok((answer, reserved)) => answered(&epoch, &answer, reserved),
            Err((status, detail)) => problem(status, &detail),
        }
    }

    /// `/v1/check/batch`: one after the other, under one policy.
    pub(super) async fn check_batch(&self, body: &[u8]) -> Answered {
        let batch: Batch<'_> = match read(body) {
            Ok(batch) => batch,
            Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
        };
        let epoch = self.engine.epoch_for_long();
        let mut text = String::with_capacity(32 + 256 * batch.requests.len());
        text.push_str("{\"answers\":[");
        for (at, ask) in batch.requests.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            match self.decide(Door::Http, &epoch, ask, true).await {
                Ok((answer, reserved)) => {
                    push_answer(&mut text, &epoch, &answer, reserved, Some(status(&answer)));
                }
                Err((status, detail)) => push_problem(&mut text, status, &detail),
            }
        }
        text.push_str("]}");
        json(text)
    }

    /// `/v1/settle`.
    pub(super) async fn settle(&self, body: &[u8]) -> Answered {
        let settle: Settle<'_> = match read(body) {
            Ok(settle) => settle,
            Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
        };
        let how = match (settle.cancel, settle.actual) {
            (true, _) => Settlement::Cancelled,
            (false, Some(actual)) => Settlement::Actual(actual),
            (false, None) => Settlement::Done,
        };
        let name = read_name(&settle.reservation);
        let Some(unpaid) = self.settle_named(name, how).await else {
            return problem(
                StatusCode::NOT_FOUND,
                "there is no such reservation: it was settled already, is older than ten minutes, or was made at another node",
            );
        };
        let mut text = String::with_capacity(32);
        push_count(&mut text, "{\"unpaid\":", unpaid);
        text.push('}');
        json(text)
    }

    /// Settles a reservation: what could not be taken. None if there is no such reservation.
    pub(super) async fn settle_named(&self, name: Option<u128>, how: Settlement) -> Option<u64> {
        let now = self.engine.epoch().gate.clock().now();
        let reservation = self.reservations.take(name?, now)?;
        Some(match reservation.is_shared() {
            true => reservation.settle_everywhere(how).await,
            false => reservation.settle(how),
        })
    }

    /// Decides, in this process or in the store that a fleet shares.
    pub(super) async fn decide(
        &self,
        door: Door,
        epoch: &Arc<Epoch>,
        ask: &Ask<'_>,
        takes: bool,
    ) -> Result<(Answer, Reserved), Unanswered> {
        let gate = &epoch.gate;
        if gate.store().is_none() {
            return self.decide_here(door, epoch, ask, takes);
        }
        let takes = takes && ask.cost != Some(0);
        let before = gate.clock().now();
        let begun = match &ask.limit {
            None => with_facts(ask, |facts| gate.begin(facts, takes)),
            Some(limit) => {
                let key = named_key(epoch, limit, ask)?;
                let begun = gate.begin_named(limit, &key, ask.cost.unwrap_or(1), takes);
                begun.ok_or_else(|| no_such_limit(epoch, limit))?
            }
        };
        let answer = match begun {
            Begun::Decided(answer) => answer,
            Begun::Asks(asking) => carry::finish(epoch, asking).await,
        };
        let took = gate.clock().now().since(before).into();
        if takes {
            match &ask.limit {
                Some(_) => {
                    let key: Vec<_> = ask.key.iter().map(|part| &**part).collect();
                    self.engine.observe_named(epoch, door, &key, &answer, took);
                }
                None => with_facts(ask, |facts| {
                    self.engine.observe(epoch, door, facts, &answer, took);
                }),
            }
        }
        let reserved = self.reserve(epoch, ask, &answer, takes);
        Ok((answer, reserved))
    }

    /// Decides in this process.
    pub(super) fn decide_here(
        &self,
        door: Door,
        epoch: &Epoch,
        ask: &Ask<'_>,
        takes: bool,
    ) -> Result<(Answer, Reserved), Unanswered> {
        // Who asks for nothing asks how things stand, also of limits that have a cost of their own.
        let takes = takes && ask.cost != Some(0);
        let gate = &epoch.gate;
        let before = gate.clock().now();
        let took = || gate.clock().now().since(before).into();
        let engine = &self.engine;
        let answer = match &ask.limit {
            Some(limit) => {
                let answer = named(epoch, limit, ask, takes)?;
                if takes {
                    let key: Vec<_> = ask.key.iter().map(|part| &**part).collect();
                    engine.observe_named(epoch, door, &key, &answer, took());
                }
                answer
            }
            None if takes => with_facts(ask, |facts| {
                let answer = gate.admit(facts);
                engine.observe(epoch, door, facts, &answer, took());
                answer
            }),
            None => with_facts(ask, |facts| gate.peek(facts)),
        };
        let reserved = self.reserve(epoch, ask, &answer, takes);
        Ok((answer, reserved))
    }

    /// Keeps what was taken, if the caller wishes so, or if a place was taken that only the caller can
    /// free.
    fn reserve(&self, epoch: &Epoch, ask: &Ask<'_>, answer: &Answer, takes: bool) -> Reserved {
        let gate = &epoch.gate;
        let is_place = |quota: &tollgate::policy::Quota| {
            matches!(quota.limit.algorithm(), Algorithm::Concurrency { .. })
        };
        let has_place = || {
            let mut quotas = answer.charges.iter().filter_map(|c| gate.quota(c.limit));
            quotas.any(is_place)
        };
        let is_taken = takes && answer.is_admitted();
        match (ask.reserve, is_taken) {
            (true, false) => return Reserved::Nothing,
            (false, false) => return Reserved::Unasked,
            (false, true) if !has_place() => return Reserved::Unasked,
            (_, true) => {}
        }
        let reservation = gate.reserve(answer);
        if reservation.is_empty() {
            return Reserved::Nothing;
        }
        let kept = self.reservations.keep(reservation, answer.issued);
        kept.map_or(Reserved::Full, Reserved::Kept)
    }
}

/// The facts of the request that is asked about.
pub(super) fn with_facts<R>(ask: &Ask<'_>, f: impl FnOnce(&Facts<'_>) -> R) -> R {
    let fields: Vec<_> = ask.fields.iter().map(|(n, v)| (&**n, &**v)).collect();
    let descriptor: Vec<_> = ask.descriptor.iter().map(|(n, v)| (&**n, &**v)).collect();
    let headers = HeaderList(&ask.headers);
    let (path, query) = ask.path.split_once('?').unwrap_or((&ask.path, ""));
    f(&Facts {
        method: &ask.method,
        path,
        query,
        host: &ask.host,
        client: ask.client,
        headers: &headers,
        domain: &ask.domain,
        descriptor: &descriptor,
        fields: &fields,
        cost: ask.cost,
        ..Facts::default()
    })
}

/// Asks one limit by its name.
fn named(epoch: &Epoch, limit: &str, ask: &Ask<'_>, takes: bool) -> Result<Answer, Unanswered> {
    let gate = &epoch.gate;
    let key = named_key(epoch, limit, ask)?;
    let cost = ask.cost.unwrap_or(1);
    let answer = if takes {
        gate.admit_named(limit, &key, cost)
    } else {
        gate.peek_named(limit, &key, cost)
    };
    answer.ok_or_else(|| no_such_limit(epoch, limit))
}

/// The key of a question about one limit, if it is one that the limit counts by.
fn named_key<'a>(epoch: &Epoch, limit: &str, ask: &'a Ask<'_>) -> Result<Vec<&'a str>, Unanswered> {
    let gate = &epoch.gate;
    let rule = gate.rule_named(limit).and_then(|at| gate.rule(at));
    let Some(rule) = rule else {
        return Err(no_such_limit(epoch, limit));
    };
    if rule.key.len() != ask.key.len() {
        let detail = format!(
            "the limit `{}` counts by {} parts, and `key` has {}; see /v1/limits for which they are",
            rule.name,
            rule.key.len(),
            ask.key.len()
        );
        return Err((StatusCode::BAD_REQUEST, detail));
    }
    Ok(ask.key.iter().map(|part| &**part).collect())
}

#[cold]
fn no_such_limit(epoch: &Epoch, limit: &str) -> Unanswered {
    let shown: String = limit.chars().take(64).collect();
    let names = epoch.gate.rules().map(|rule| &*rule.name);
    let detail = match tollgate_policy::near::nearest(limit, names) {
        Some(meant) => format!("there is no limit {shown:?}; did you mean `{meant}`?"),
        None => format!("there is no limit {shown:?}; see /v1/limits for those there are"),
    };
    (StatusCode::NOT_FOUND, detail)
}
