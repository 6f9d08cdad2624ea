//! Runs one case.

use std::collections::VecDeque;

use tollgate::{Clock, KeySecret, ManualClock};
use tollgate_config::{ExpectedCase, ExpectedRequest, ExpectedSettlement, ExpectedStep};
use tollgate_policy::{Facts, Policy, PolicyGate, PriorState, Reservation, Settlement};

use super::compare::differences;
use super::{CaseOutcome, Difference, Failure};
use crate::fault::{Stop, shown};
use crate::span_text::short;

/// Fixed, so that `enforce: 10%` selects the same keys in every run.
const SEED: u64 = 0;

/// Sends the requests of a case until one gets another decision than the case expects.
pub(super) fn case<'c>(case: &'c ExpectedCase, policy: &Policy) -> Result<CaseOutcome<'c>, Stop> {
    let clock = ManualClock::new();
    clock.set(case.start);
    let prior = PriorState::new().with_secret(KeySecret::from_seed(SEED));
    let gate = PolicyGate::with_prior(policy.clone(), Vec::new(), clock.clone(), prior);
    let gate = gate.map_err(|cause| Stop::Other {
        what: cause.to_string(),
        hint: "lower `max_keys`, or give the process more memory".into(),
    })?;
    let mut session = Session {
        gate,
        clock,
        open: VecDeque::new(),
        requests: 0,
    };
    let failure = case.steps.iter().find_map(|step| {
        let (number, differences) = session.step(step)?;
        let at = session.clock.now().since(case.start);
        Some(Failure {
            line: step.line,
            request: describe(step, number, &short(at)),
            differences,
        })
    });
    Ok(CaseOutcome {
        case,
        requests: session.requests,
        failure,
    })
}

struct Session {
    gate: PolicyGate<ManualClock>,
    clock: ManualClock,
    /// Of the requests that passed and have not ended, oldest first.
    open: VecDeque<Reservation<ManualClock>>,
    requests: u64,
}

impl Session {
    /// Runs a step: the first request that got another decision, by its number from 1, and what differs.
    fn step(&mut self, step: &ExpectedStep) -> Option<(u32, Vec<Difference>)> {
        self.clock.advance(step.advance);
        if let Some(how) = step.settle {
            let Some(reservation) = self.open.pop_front() else {
                let nothing = Difference {
                    field: "settle",
                    expected: "a request that passed and has not ended".into(),
                    got: "none".into(),
                };
                return Some((1, vec![nothing]));
            };
            reservation.settle(match how {
                ExpectedSettlement::Actual(actual) => Settlement::Actual(actual),
                ExpectedSettlement::Cancelled => Settlement::Cancelled,
                _ => Settlement::Done,
            });
        }
        let ExpectedRequest {
            headers,
            fields,
            descriptor,
            ..
        } = &step.request;
        let (headers, fields) = (pairs(headers), pairs(fields));
        let descriptor = pairs(descriptor);
        let facts = Facts {
            method: &step.request.method,
            path: &step.request.path,
            query: &step.request.query,
            host: &step.request.host,
            client: step.request.ip,
            headers: &headers,
            domain: &step.request.domain,
            descriptor: &descriptor,
            fields: &fields,
            cost: step.request.cost,
            ..Facts::default()
        };
        for number in 1..=step.times {
            self.requests += 1;
            let decision = self.gate.admit(&facts);
            let is_last = number == step.times;
            let differences = differences(&self.gate, &facts, &decision, &step.decision, is_last);
            if !differences.is_empty() {
                return Some((number, differences));
            }
            if decision.is_admitted() {
                self.open.push_back(self.gate.reserve(&decision));
            }
        }
        None
    }
}

fn pairs(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(n, v)| (&**n, &**v)).collect()
}

/// `GET /api/rides at 12s, request 3 of 5`.
fn describe(step: &ExpectedStep, number: u32, at: &str) -> String {
    let ExpectedRequest { method, path, .. } = &step.request;
    let number = match step.times {
        1 => String::new(),
        times => format!(", request {number} of {times}"),
    };
    format!("{} {} at {at}{number}", shown(method), shown(path))
}
