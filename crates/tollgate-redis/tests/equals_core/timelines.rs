//! The golden timelines, through the scripts.

use super::hierarchy::GroupOnServer;
use crate::server;
use std::cell::{Cell, RefCell};
use std::path::Path;
use tollgate::{Algorithm, Limit, LimitId, Moment};
use tollgate_policy::Quota;
use tollgate_policy::shared::{
    KeyKind, SharedCharge, SharedKey, SharedLimit, SharedOutcome, SharedRequest, SharedSettle,
};
use tollgate_redis::testing::{ScriptClient, ScriptOp, ScriptOpResult};
use tollgate_sim::model::{Model, ModelChange};
use tollgate_sim::oracle::OracleDecision;
use tollgate_sim::parameters::Parameters;
use tollgate_sim::replay::{CannotOpen, Opened, replay};
use tollgate_sim::subject::convert::answer;
use tollgate_sim::subject::group::{combined, credits_of};
use tollgate_sim::subject::limiter::{algorithm_of, check_layouts, limit_of};
use tollgate_sim::subject::{GroupSubject, ModelSubject};
use tollgate_sim::timeline::{Timeline, TimelineCase};

/// Times up to this many nanoseconds are exact in a script.
const LATEST: u64 = 1 << 52;

/// The limit of a case, on a server.
#[derive(Debug)]
struct OnServer {
    client: RefCell<ScriptClient>,
    numbers: Parameters,
    /// Is it charged with a peak?
    has_peak: bool,
    prefix: String,
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

/// Opens a case on the server at `port`, with keys of its own.
fn open(port: u16, prefix: &str, case: &TimelineCase) -> Opened {
    if case.algorithm == "all_token_bucket" {
        let group = GroupOnServer::start(port, prefix, case)?;
        return Ok(Box::new(GroupSubject(group)));
    }
    if case.algorithm == "sfq" {
        return Err(CannotOpen::not_expressible("no script is behind it"));
    }
    let numbers = Parameters::from_case(case)?;
    let quota = match numbers {
        Parameters::BurstCredits { .. } => {
            credits_of(&numbers)?.quota().map_err(|e| e.to_string())?
        }
        Parameters::Aimd { .. } | Parameters::Gradient2 { .. } => {
            return Err(CannotOpen::not_expressible("no script is behind it"));
        }
        _ => {
            check_layouts(case, &numbers)?;
            Quota::plain(limit_of(&numbers)?)
        }
    };
    for step in &case.steps {
        if step.op == "set_rate" {
            return Err(CannotOpen::not_expressible(
                "usage moves to another rate in whole units",
            ));
        }
        if step.t_ns.is_some_and(|t| t > LATEST) {
            return Err(CannotOpen::not_expressible(
                "later than the scripts can count in nanoseconds",
            ));
        }
    }
    let peak = quota.peak.clone().map(Quota::plain);
    let peaks = peak.iter().map(|peak| limit("rule/peak", peak));
    let limits: Vec<_> = std::iter::once(limit("rule", &quota))
        .chain(peaks)
        .collect();
    let client = ScriptClient::connect(port, prefix, Some(1), &limits)
        .map_err(|error| CannotOpen::not_expressible(&error.to_string()))?;
    if !client.is_fine() {
        return Err(CannotOpen::not_expressible(
            "counted in coarser units than nanoseconds",
        ));
    }
    Ok(Box::new(ModelSubject(Box::new(OnServer {
        client: RefCell::new(client),
        numbers,
        has_peak: peak.is_some(),
        prefix: prefix.to_owned(),
    }))))
}

fn limit<'a>(id: &'a str, quota: &'a Quota) -> SharedLimit<'a> {
    SharedLimit {
        id,
        quota,
        before: &[],
        plain: true,
    }
}

impl OnServer {
    fn charge(&self, name: &str, t: u64, cost: u64, take: bool) -> OracleDecision {
        let charge = |limit| SharedCharge {
            limit: LimitId::new(limit),
            key: key(name),
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
        let ScriptOpResult::Charged(outcomes, _, disagrees) =
            self.run(t, ScriptOp::Charge(request))
        else {
            panic!("no ruling");
        };
        assert!(!disagrees, "script and core disagree");
        if let [credit, peak] = outcomes[..] {
            let verdict = credit.verdict.stricter(peak.verdict);
            let of = |outcome: SharedOutcome| answer(verdict, outcome.status);
            let (credit, peak) = (of(credit), of(peak));
            return combined(credit.verdict, credit, peak);
        }
        answer(outcomes[0].verdict, outcomes[0].status)
    }

    fn run(&self, now: u64, op: ScriptOp) -> ScriptOpResult {
        let mut came = self.client.borrow_mut().run(&[(now, op)]).unwrap();
        came.remove(0)
    }
}

impl Model for OnServer {
    fn check(&mut self, key: &str, t: u64, cost: u64) -> OracleDecision {
        self.charge(key, t, cost, true)
    }

    fn peek(&self, key: &str, t: u64, cost: u64) -> OracleDecision {
        self.charge(key, t, cost, false)
    }

    fn change(
        &mut self,
        name: &str,
        t: u64,
        change: ModelChange,
    ) -> Result<OracleDecision, String> {
        match change {
            ModelChange::Refund { cost, issued } => {
                let settle = SharedSettle {
                    limit: LimitId::new(0),
                    key: key(name),
                    issued: Moment::from_nanos(issued),
                    taken: cost,
                    used: 0,
                };
                self.run(t, ScriptOp::Settle(settle));
            }
            ModelChange::Late { cost } => {
                let settle = SharedSettle {
                    limit: LimitId::new(0),
                    key: key(name),
                    issued: Moment::from_nanos(t),
                    taken: 0,
                    used: cost,
                };
                self.run(t, ScriptOp::Settle(settle));
            }
            ModelChange::SetCap { .. } | ModelChange::SetRate { .. } => {
                self.numbers = self.numbers.with(change)?;
                let algorithm = algorithm_of(&self.numbers).map_err(|error| error.to_string())?;
                let quota = quota(algorithm)?;
                let limits = [limit("rule", &quota)];
                let changed = self.client.get_mut().reload(&self.prefix, &limits);
                changed.map_err(|error| error.to_string())?;
            }
        }
        Ok(self.peek(name, t, 0))
    }
}

#[test]
fn the_scripts_keep_every_timeline_that_they_can_express() {
    let server = server();
    let cases = Cell::new(0);
    let scripts = |case: &TimelineCase| {
        cases.set(cases.get() + 1);
        open(server.port(), &format!("tg{}", cases.get()), case)
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
