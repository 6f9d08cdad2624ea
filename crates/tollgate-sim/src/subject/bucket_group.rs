//! Several buckets charged together, by pure steps: all are checked, then all are charged or none.

use super::convert::bucket_parameters;
use super::group::{CREDIT, OpenGroup, PEAK};
use super::packed_algorithm::PackedModel;
use crate::model::{GroupDecision, GroupModel, KeyedModel, Model, ModelChange, ModelCharge};
use crate::oracle::{LimitSpec, OracleDecision, OracleVerdict};
use crate::parameters::Parameters;
use std::cmp::Reverse;
use tollgate::algorithm::bucket::Bucket;
use tollgate_policy::BurstCredits;

/// Named buckets, in the order of configuration.
#[derive(Clone, Debug)]
pub struct BucketGroup(Vec<(String, KeyedModel<PackedModel<Bucket>>)>);

impl BucketGroup {
    /// All buckets of all limits full.
    ///
    /// # Errors
    ///
    /// If the numbers of one make no limit.
    pub fn new(limits: &[LimitSpec]) -> Result<Self, String> {
        let limits = limits.iter().map(|spec| {
            let LimitSpec { cap, n, p_ns, .. } = *spec;
            let steps = PackedModel::new(Parameters::TokenBucket { cap, n, p_ns })?;
            Ok((spec.name.clone(), KeyedModel::new(steps)))
        });
        limits.collect::<Result<_, String>>().map(Self)
    }

    /// The two buckets of burst credits, full.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn from_credits(credits: &BurstCredits) -> Result<Self, String> {
        let quota = credits.quota().map_err(|error| error.to_string())?;
        let peak = quota.peak.ok_or("there is no peak")?;
        let limits = [(CREDIT, quota.limit), (PEAK, peak)].map(|(name, limit)| {
            let steps = PackedModel::new(bucket_parameters(limit.algorithm())?)?;
            Ok((name.to_owned(), KeyedModel::new(steps)))
        });
        limits.into_iter().collect::<Result<_, String>>().map(Self)
    }

    /// Whether the rates of all limits are kept exactly.
    pub fn is_exact(&self) -> bool {
        self.0.iter().all(|(_, limit)| limit.fresh.limit.is_exact())
    }

    fn place(&self, name: &str) -> Result<usize, String> {
        let place = self.0.iter().position(|(limit, _)| limit == name);
        place.ok_or_else(|| format!("no limit is called `{name}`"))
    }

    fn limit(&mut self, name: &str) -> Result<&mut KeyedModel<PackedModel<Bucket>>, String> {
        let place = self.place(name)?;
        let (_, limit) = self.0.get_mut(place).ok_or("no such limit")?;
        Ok(limit)
    }
}

impl GroupModel for BucketGroup {
    fn charge(
        &mut self,
        t: u64,
        charges: &[ModelCharge<'_>],
        take: bool,
    ) -> Result<GroupDecision, String> {
        let mut found = Vec::new();
        for &charge in charges {
            found.push((self.place(charge.limit)?, charge, self.peek(t, charge)?));
        }
        found.sort_by_key(|&(place, ..)| place);
        let reported = reported(&found).ok_or("the request names no limit")?;
        let verdict = reported.answer.verdict;
        for &(_, charge, alone) in found.iter().filter(|_| take) {
            // If the request is refused, only the limits that refuse it themselves are charged: they
            // take nothing, and repair if they have to.
            let repairs = matches!(alone.verdict, OracleVerdict::Refuse { .. })
                && verdict != OracleVerdict::Never;
            if reported.answer.passed() || repairs {
                self.limit(charge.limit)?.check(charge.key, t, charge.cost);
            }
        }
        Ok(reported)
    }
}

impl OpenGroup for BucketGroup {
    fn peek(&self, t: u64, charge: ModelCharge<'_>) -> Result<OracleDecision, String> {
        let (_, limit) = self.0.get(self.place(charge.limit)?).ok_or("no limit")?;
        Ok(limit.peek(charge.key, t, charge.cost))
    }

    fn refund(&mut self, t: u64, charge: ModelCharge<'_>, issued: u64) -> Result<(), String> {
        let ModelCharge { limit, key, cost } = charge;
        let refund = ModelChange::Refund { cost, issued };
        self.limit(limit)?.change(key, t, refund).map(drop)
    }
}

/// Which limit is reported: never before all, then the longest wait; if all pass, the one with the
/// fewest further requests, then the later reset. Among equals the one configured first.
fn reported(found: &[(usize, ModelCharge<'_>, OracleDecision)]) -> Option<GroupDecision> {
    let severity = |answer: &OracleDecision| match answer.verdict {
        OracleVerdict::Never => (2, 0),
        OracleVerdict::Refuse { retry_after } => (1, retry_after),
        OracleVerdict::Pass { .. } => (0, 0),
    };
    // `min_by_key` gives the first of equals.
    let (_, charge, answer) = found.iter().min_by_key(|(_, charge, answer)| {
        let severity = severity(answer);
        let further = answer.remaining / charge.cost.max(1);
        let among_passed = (severity.0 == 0).then_some((further, Reverse(answer.reset_after)));
        (Reverse(severity), among_passed)
    })?;
    Some(GroupDecision {
        answer: *answer,
        reported: charge.limit.to_owned(),
    })
}
