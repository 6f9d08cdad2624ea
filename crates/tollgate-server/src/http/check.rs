//! Handles `/v1/check`, `/v1/peek` and `/v1/check/batch`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use tollgate_policy::fields::status;
use tollgate_policy::{DecisionRequest, Facts, Op, PolicyDecision, RefundOnDrop, Subject};

use super::pairs::HeaderList;
use super::problems::{Problem, problem, push_problem, write_problem};
use super::request::{Batch, CheckRequest, read};
use super::{HttpApi, write_fields, write_json};
use crate::decision_view::{DecisionView, Reserved};
use crate::engine::{ActivePolicy, Decide, EngineSource};
use crate::net::http1::fast_path::{PendingResponse, Respond};
use crate::net::http1::response::ResponseBuffer;

impl HttpApi {
    /// `/v1/check`, or `/v1/peek` with [`Op::Peek`].
    pub(super) fn check(&self, body: &[u8], op: Op, response: &mut ResponseBuffer) -> Respond {
        let ask: CheckRequest<'_> = match read(body) {
            Ok(ask) => ask,
            Err(detail) => {
                write_problem(response, StatusCode::BAD_REQUEST, &detail);
                return Respond::Ready;
            }
        };
        if ask.reserve && op == Op::Peek {
            write_problem(
                response,
                StatusCode::BAD_REQUEST,
                "a peek charges nothing to reserve; use /v1/check, or omit `reserve`",
            );
            return Respond::Ready;
        }
        let policy = self.engine().active();
        let op = op_of(&ask, op);
        match self.decide(&self.0.http, &policy, &ask, op) {
            Ok(Decide::Ready(answer)) => {
                let reserved = self.reserve(&policy, ask.reserve, &answer, op);
                write_decision(response, &policy, &answer, reserved);
                Respond::Ready
            }
            Ok(Decide::Pending(pending)) => {
                let (service, wanted) = (self.clone(), ask.reserve);
                Respond::Pending(Box::pin(async move {
                    let policy = Arc::clone(pending.policy());
                    let answer = pending.await;
                    let reserved = service.reserve(&policy, wanted, &answer, op);
                    let mut response = ResponseBuffer::default();
                    write_decision(&mut response, &policy, &answer, reserved);
                    response
                }))
            }
            Err((status, detail)) => {
                write_problem(response, status, &detail);
                Respond::Ready
            }
        }
    }

    /// `/v1/check/batch`: decides in order, under one policy. Dropping it before its end refunds everything.
    pub(super) fn check_batch(&self, body: Bytes) -> PendingResponse {
        let service = self.clone();
        Box::pin(async move {
            let batch: Batch<'_> = match read(&body) {
                Ok(batch) => batch,
                Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
            };
            let mut response = ResponseBuffer::default();
            let mut taken = BatchCharges {
                policy: service.engine().active_owned(),
                service: &service,
                answers: Vec::new(),
            };
            response.body().extend_from_slice(b"{\"answers\":[");
            for (at, ask) in batch.requests.iter().enumerate() {
                if at > 0 {
                    response.body().push(b',');
                }
                let op = op_of(ask, Op::Charge);
                match service.decide(&service.0.http, &taken.policy, ask, op) {
                    Ok(decide) => {
                        let answer = decide.resolve().await;
                        let reserved = service.reserve(&taken.policy, ask.reserve, &answer, op);
                        let view = DecisionView::new(&taken.policy, &answer, reserved.clone());
                        write_json(&mut response, &view.with_status(status(&answer)));
                        taken.answers.push((answer, op, reserved));
                    }
                    Err((status, detail)) => {
                        let mut text = String::new();
                        push_problem(&mut text, status, &detail);
                        response.body().extend_from_slice(text.as_bytes());
                    }
                }
            }
            response.body().extend_from_slice(b"]}");
            response.set_media("application/json");
            taken.answers.clear();
            response
        })
    }

    /// Decides a request for the front end of `source`.
    ///
    /// # Errors
    /// The limit or its key is unknown. Nothing was charged.
    pub(crate) fn decide(
        &self,
        source: &EngineSource,
        policy: &Arc<ActivePolicy>,
        ask: &CheckRequest<'_>,
        op: Op,
    ) -> Result<Decide, Problem> {
        let Some(limit) = &ask.limit else {
            return Ok(with_facts(ask, |facts| {
                source.decide(policy, &DecisionRequest::new(Subject::Request(facts), op))
            }));
        };
        let (rule, key) = named_key(policy, limit, &ask.key)?;
        let cost = ask.cost.unwrap_or(1);
        let subject = Subject::Rule {
            rule,
            key: &key,
            cost,
        };
        Ok(source.decide(policy, &DecisionRequest::new(subject, op)))
    }
}

/// The charges of a batch. Dropping them refunds them and removes their reservations.
struct BatchCharges<'a> {
    service: &'a HttpApi,
    policy: Arc<ActivePolicy>,
    answers: Vec<(PolicyDecision, Op, Reserved)>,
}

impl Drop for BatchCharges<'_> {
    fn drop(&mut self) {
        for (answer, op, reserved) in self.answers.drain(..) {
            if let Reserved::Stored(name, _) = reserved {
                let _ = self.service.0.reservations.take(name, answer.issued);
            }
            if op == Op::Charge {
                drop(RefundOnDrop::new(&self.policy.gate, &answer));
            }
        }
    }
}

/// A cost of zero asks for the status, also of limits that have a cost of their own.
pub(crate) fn op_of(ask: &CheckRequest<'_>, op: Op) -> Op {
    match ask.cost {
        Some(0) => Op::Peek,
        _ => op,
    }
}

fn write_decision(
    response: &mut ResponseBuffer,
    policy: &ActivePolicy,
    answer: &PolicyDecision,
    reserved: Reserved,
) {
    write_fields(response, policy, answer);
    response.set_status(status(answer));
    response.set_media("application/json");
    write_json(response, &DecisionView::new(policy, answer, reserved));
}

/// The facts of the request that is asked about.
pub(crate) fn with_facts<R>(ask: &CheckRequest<'_>, f: impl FnOnce(&Facts<'_>) -> R) -> R {
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

/// The rule of a limit and the parts of the key, if the limit has as many.
pub(crate) fn named_key<'a>(
    policy: &ActivePolicy,
    limit: &str,
    key: &'a [Cow<'_, str>],
) -> Result<(usize, Vec<&'a str>), Problem> {
    let gate = &policy.gate;
    let at = gate.rule_named(limit);
    let Some((at, rule)) = at.and_then(|at| Some((at, gate.rule(at)?))) else {
        return Err(no_such_limit(policy, limit));
    };
    if rule.key.len() != key.len() {
        let detail = format!(
            "the key of the limit `{}` has {} parts, and `key` has {}; see /v1/limits",
            rule.name,
            rule.key.len(),
            key.len()
        );
        return Err((StatusCode::BAD_REQUEST, detail));
    }
    Ok((at, key.iter().map(|part| &**part).collect()))
}

#[cold]
fn no_such_limit(policy: &ActivePolicy, limit: &str) -> Problem {
    let shown: String = limit.chars().take(64).collect();
    let names = policy.gate.rules().map(|rule| &*rule.name);
    let detail = match tollgate_config::suggest::suggest(limit, names) {
        Some(meant) => format!("there is no limit {shown:?}; did you mean `{meant}`?"),
        None => format!("there is no limit {shown:?}; see /v1/limits for those there are"),
    };
    (StatusCode::NOT_FOUND, detail)
}
