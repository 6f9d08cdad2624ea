//! The golden timeline of several buckets that are charged together, through the scripts.

use super::timelines::{key, quota};
use std::cmp::Reverse;
use tollgate::{Algorithm, LimitId, Rate, Span, Verdict};
use tollgate_policy::Quota;
use tollgate_policy::shared::{SharedCharge, SharedLimit, SharedOutcome, SharedRequest};
use tollgate_redis::testing::{ScriptClient, ScriptOp, ScriptOpResult};
use tollgate_sim::model::{GroupDecision, GroupModel, ModelCharge};
use tollgate_sim::replay::CannotOpen;
use tollgate_sim::subject::convert::answer;
use tollgate_sim::subject::group::limits_of;
use tollgate_sim::timeline::TimelineCase;

/// The limits of a case, by name, on a server.
#[derive(Debug)]
pub(crate) struct GroupOnServer {
    client: ScriptClient,
    names: Vec<String>,
}

impl GroupOnServer {
    pub(crate) fn start(
        port: u16,
        prefix: &str,
        case: &TimelineCase,
    ) -> Result<GroupOnServer, CannotOpen> {
        let specs = limits_of(case)?;
        let bucket = |cap, n, p_ns| -> Result<Quota, String> {
            let rate = Rate::new(n, Span::from_nanos(p_ns)).map_err(|error| error.to_string())?;
            quota(Algorithm::TokenBucket { rate, burst: cap })
        };
        let quotas: Vec<Quota> = specs
            .iter()
            .map(|spec| bucket(spec.cap, spec.n, spec.p_ns))
            .collect::<Result<_, _>>()?;
        let names: Vec<String> = specs.into_iter().map(|spec| spec.name).collect();
        let limits: Vec<SharedLimit<'_>> = super::limits(&quotas, &names);
        let client = ScriptClient::connect(port, prefix, Some(1), &limits)
            .map_err(|error| CannotOpen::not_expressible(&error.to_string()))?;
        Ok(GroupOnServer { client, names })
    }
}

/// The outcome that a client receives: what can never pass, else the longest wait, else the least left.
fn reported(outcomes: &[SharedOutcome], cost: u64) -> Option<usize> {
    let places = || outcomes.iter().enumerate();
    let never = places().find(|(_, outcome)| outcome.verdict == Verdict::Never);
    let waits = places().filter_map(|(place, outcome)| match outcome.verdict {
        Verdict::Refuse { retry_after } => Some((retry_after, Reverse(place))),
        _ => None,
    });
    let narrowest = places().min_by_key(|(_, outcome)| {
        let status = outcome.status;
        (status.remaining / cost.max(1), Reverse(status.full_after))
    });
    never
        .map(|(place, _)| place)
        .or(waits.max().map(|(_, Reverse(place))| place))
        .or(narrowest.map(|(place, _)| place))
}

impl GroupModel for GroupOnServer {
    fn charge(
        &mut self,
        now: u64,
        charges: &[ModelCharge<'_>],
        take: bool,
    ) -> Result<GroupDecision, String> {
        let cost = charges.first().map_or(0, |charge| charge.cost);
        let mut sent = Vec::new();
        for charge in charges {
            let place = self.names.iter().position(|known| known == charge.limit);
            sent.push(SharedCharge {
                limit: LimitId::new(place.ok_or(format!("there is no limit `{}`", charge.limit))?),
                key: key(charge.key),
                cost: charge.cost,
                most: None,
                enforced: true,
                with_next: false,
                owed: 0,
            });
        }
        sent.sort_by_key(|charge| charge.limit.index());
        let named: Vec<usize> = sent.iter().map(|charge| charge.limit.index()).collect();
        let op = ScriptOp::Charge(SharedRequest {
            take,
            waited: tollgate::Span::ZERO,
            charges: sent,
        });
        let mut came = self
            .client
            .run(&[(now, op)])
            .map_err(|error| error.to_string())?;
        let ScriptOpResult::Charged(outcomes, _, disagrees) = came.remove(0) else {
            return Err("no outcomes".to_owned());
        };
        if disagrees {
            return Err("script and core disagree".to_owned());
        }
        let place = reported(&outcomes, cost).ok_or("nothing was charged")?;
        let outcome = outcomes[place];
        Ok(GroupDecision {
            answer: answer(outcome.verdict, outcome.status),
            reported: self.names[named[place]].clone(),
        })
    }
}
