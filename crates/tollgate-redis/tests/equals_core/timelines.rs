//! The golden timelines, through the scripts.

use super::hierarchy::Together;
use crate::server;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use tollgate::{Algorithm, Limit, LimitId, Moment, Verdict};
use tollgate_policy::Quota;
use tollgate_policy::shared::{
    KeyKind, SharedCharge, SharedKey, SharedLimit, SharedOutcome, SharedRequest, SharedSettle,
};
use tollgate_redis::testing::{Came, Desk, Op};
use tollgate_sim::replay::{CannotOpen, Observed, Subject, SubjectFactory, replay};
use tollgate_sim::subject::core::told::answer;
use tollgate_sim::subject::store::algorithm::{algorithm_of, expressible};
use tollgate_sim::subject::together::{credits_of, told_as_one};
use tollgate_sim::timeline::{Case, Step, Timeline};

/// Times up to this many nanoseconds are exact in a script.
const LATEST: u64 = 1 << 52;

struct Scripts {
    port: u16,
    cases: Rc<RefCell<u32>>,
}

struct OnServer {
    desk: Desk,
    algorithm: Algorithm,
    /// Is it charged with a peak?
    has_peak: bool,
    prefix: String,
}

pub(crate) fn none(what: &str) -> CannotOpen {
    CannotOpen::NotExpressible(what.to_owned())
}

pub(crate) fn quota(algorithm: Algorithm) -> Result<Quota, String> {
    let limit = Limit::new(algorithm).map_err(|error| error.to_string())?;
    Ok(Quota::plain(limit))
}

pub(crate) fn key(name: &str) -> SharedKey {
    let mut key = SharedKey::new(KeyKind::Own);
    key.push(name.as_bytes());
    key
}

impl SubjectFactory for Scripts {
    fn start(&self, case: &Case) -> Result<Box<dyn Subject>, CannotOpen> {
        *self.cases.borrow_mut() += 1;
        let prefix = format!("tg{}", self.cases.borrow());
        if case.algorithm == "all_token_bucket" {
            return Ok(Box::new(Together::start(self.port, &prefix, case)?));
        }
        let quota = match case.algorithm.as_str() {
            "burst_credits" => credits_of(case)?.quota().map_err(|e| e.to_string())?,
            _ => {
                let algorithm = algorithm_of(case)?;
                expressible(case, &algorithm)?;
                quota(algorithm)?
            }
        };
        for step in &case.steps {
            if step.op == "set_rate" {
                return Err(none("usage moves to another rate in whole units"));
            }
            if step.t_ns.is_some_and(|t| t > LATEST) {
                return Err(none("later than the scripts can count in nanoseconds"));
            }
        }
        let peak = quota.peak.clone().map(Quota::plain);
        let limit = |id: &'static str, quota| SharedLimit {
            id,
            quota,
            before: &[],
            plain: true,
        };
        let peaks = peak.iter().map(|peak| limit("rule/peak", peak));
        let limits: Vec<_> = std::iter::once(limit("rule", &quota))
            .chain(peaks)
            .collect();
        let desk = Desk::connect(self.port, &prefix, Some(1), &limits)
            .map_err(|error| none(&error.to_string()))?;
        if !desk.is_fine() {
            return Err(none("counted in coarser units than nanoseconds"));
        }
        Ok(Box::new(OnServer {
            desk,
            algorithm: *quota.limit.algorithm(),
            has_peak: peak.is_some(),
            prefix,
        }))
    }
}

impl OnServer {
    fn ask(&mut self, step: &Step, cost: u64, take: bool) -> Result<Observed, String> {
        let charge = |limit| SharedCharge {
            limit: LimitId::at(limit),
            key: key(&step.key),
            cost,
            most: None,
            enforced: true,
            with_next: false,
            owed: 0,
        };
        let request = SharedRequest {
            take,
            waited: tollgate::Span::ZERO,
            charges: (0..=usize::from(self.has_peak)).map(charge).collect(),
        };
        let Came::Ruled(outcomes, _, disagrees) = self.run(step, Op::Charge(request))? else {
            return Err("no ruling".to_owned());
        };
        if disagrees {
            return Err("script and core disagree".to_owned());
        }
        let outcome = outcomes[0];
        if let [credit, peak] = outcomes[..] {
            let verdict = credit.verdict.stricter(peak.verdict);
            let told = |outcome: SharedOutcome| answer(verdict, outcome.status);
            let (credit, peak) = (told(credit), told(peak));
            return Ok(told_as_one(credit.verdict, credit, peak).into());
        }
        let mut told = Observed::from(answer(outcome.verdict, outcome.status));
        let queues = matches!(self.algorithm, Algorithm::LeakyBucket { .. });
        let refused = matches!(outcome.verdict, Verdict::Refuse { .. });
        if queues && refused && outcome.status.remaining >= cost {
            told.why = Some("max_wait".to_owned());
        }
        Ok(told)
    }

    fn run(&mut self, step: &Step, op: Op) -> Result<Came, String> {
        let now = step.t_ns.ok_or("a time is missing")?;
        let mut came = self.desk.run(&[(now, op)]).map_err(|e| e.to_string())?;
        Ok(came.remove(0))
    }

    fn number(step: &Step, name: &str) -> Result<u64, String> {
        let text = step.args.get(name).ok_or(format!("{name} is missing"))?;
        text.parse().map_err(|_| format!("{name} is {text}"))
    }
}

impl Subject for OnServer {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        match step.op.as_str() {
            "check" => self.ask(step, step.cost, true),
            "peek" => self.ask(step, step.cost, false),
            "burst" | "burst_quiet" => {
                let cost = if step.is_cost_given { step.cost } else { 1 };
                let mut whole = Observed {
                    allowed: Some(0),
                    retry_after: Some(0),
                    delay: Some(0),
                    ..self.ask(step, 0, false)?
                };
                for _ in 0..Self::number(step, "count")? {
                    let one = self.ask(step, cost, true)?;
                    if one.allowed == Some(1) {
                        whole.allowed = whole.allowed.map(|passed| passed + 1);
                        whole.delay = one.delay;
                    } else if whole.retry_after == Some(0) {
                        whole.retry_after = one.retry_after;
                        whole.why = one.why;
                    }
                    whole.remaining = one.remaining;
                    whole.reset_after = one.reset_after;
                }
                Ok(whole)
            }
            "refund" => {
                let settle = SharedSettle {
                    limit: LimitId::at(0),
                    key: key(&step.key),
                    issued: Moment::from_nanos(Self::number(step, "issued_ns")?),
                    taken: step.cost,
                    used: 0,
                };
                self.run(step, Op::Settle(settle))?;
                self.ask(step, 0, false)
            }
            "set_cap" => {
                let cap = Self::number(step, "cap")?;
                match &mut self.algorithm {
                    Algorithm::TokenBucket { burst: to, .. }
                    | Algorithm::LeakyBucket { queue: to, .. }
                    | Algorithm::FixedWindow { limit: to, .. }
                    | Algorithm::SlidingLog { limit: to, .. }
                    | Algorithm::SlidingWindow { limit: to, .. } => *to = cap,
                    other => return Err(format!("{other:?} has no capacity")),
                }
                let quota = quota(self.algorithm)?;
                let limit = SharedLimit {
                    id: "rule",
                    quota: &quota,
                    before: &[],
                    plain: true,
                };
                let changed = self.desk.change(&self.prefix, &[limit]);
                changed.map_err(|error| error.to_string())?;
                self.ask(step, 0, false)
            }
            other => Err(format!("there is no `{other}`")),
        }
    }
}

#[test]
fn the_scripts_keep_every_timeline_that_they_can_express() {
    let server = server();
    let scripts = Scripts {
        port: server.port(),
        cases: Rc::default(),
    };
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../timelines"));
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|ending| ending == "csv") {
            let report = replay(&Timeline::read(&file).unwrap(), &scripts);
            passed += report.passed;
            failed.extend(report.mismatches.iter().map(ToString::to_string));
            skipped.extend(report.skips.iter().map(ToString::to_string));
        }
    }
    println!(
        "{passed} steps passed; not expressible:\n{}",
        skipped.join("\n")
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(passed > 400, "only {passed} steps");
}
