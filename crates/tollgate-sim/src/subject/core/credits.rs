//! Burst credits as a model: two buckets, charged all or none by pure steps.

use super::super::together::told_as_one;
use super::spec::Spec;
use super::word::WordSteps;
use crate::model::{Change, Model, has_no};
use crate::oracle::{Answer, Verdict};
use tollgate::Algorithm;
use tollgate::algorithm::bucket::Bucket;
use tollgate_policy::BurstCredits;

/// A bucket, whichever way its numbers are said.
#[derive(Clone, Copy, Debug)]
struct BucketSpec(Algorithm);

impl Spec for BucketSpec {
    type Limit = Bucket;

    fn compile(&self) -> Result<Bucket, String> {
        match self.0 {
            Algorithm::TokenBucket { rate, burst } => Bucket::new(rate, burst),
            Algorithm::Gcra { rate, tolerance } => Bucket::gcra(rate, tolerance),
            other => return Err(format!("{other:?} is no bucket")),
        }
        .map_err(|error| error.to_string())
    }

    fn changed(&self, change: Change) -> Result<Self, String> {
        Err(has_no(change))
    }
}

/// One key with burst credits.
#[derive(Clone, Debug)]
pub struct CreditSteps {
    credit: WordSteps<BucketSpec>,
    peak: WordSteps<BucketSpec>,
}

impl CreditSteps {
    /// Full credit.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(credits: &BurstCredits) -> Result<Self, String> {
        let quota = credits.quota().map_err(|error| error.to_string())?;
        let peak = quota.peak.ok_or("there is no peak")?;
        Ok(Self {
            credit: WordSteps::new(BucketSpec(*quota.limit.algorithm()))?,
            peak: WordSteps::new(BucketSpec(*peak.algorithm()))?,
        })
    }

    /// Are both rates kept exactly?
    pub fn is_exact(&self) -> bool {
        let exact = |steps: &WordSteps<BucketSpec>| steps.spec().compile();
        [&self.credit, &self.peak]
            .into_iter()
            .all(|steps| exact(steps).is_ok_and(|bucket| bucket.is_exact()))
    }

    fn told(&self, verdict: Verdict, t: u64) -> Answer {
        told_as_one(verdict, self.credit.peek(t, 0), self.peak.peek(t, 0))
    }
}

impl Model for CreditSteps {
    fn check(&mut self, t: u64, cost: u64) -> Answer {
        let alone = [self.credit.peek(t, cost), self.peak.peek(t, cost)].map(|told| told.verdict);
        let verdict = match alone {
            [Verdict::Never, _] | [_, Verdict::Never] => Verdict::Never,
            [
                Verdict::Refuse { retry_after: a },
                Verdict::Refuse { retry_after: b },
            ] => Verdict::Refuse {
                retry_after: a.max(b),
            },
            [refused @ Verdict::Refuse { .. }, _] | [_, refused] => refused,
        };
        let passes = matches!(verdict, Verdict::Pass { .. });
        for (steps, alone) in [&mut self.credit, &mut self.peak].into_iter().zip(alone) {
            // If the request is refused, only those that refuse it themselves are asked again: they take
            // nothing, and heal if they have to.
            let heals = matches!(alone, Verdict::Refuse { .. }) && verdict != Verdict::Never;
            if passes || heals {
                steps.check(t, cost);
            }
        }
        self.told(verdict, t)
    }

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        self.credit.change(t, change)?;
        self.peak.change(t, change)?;
        Ok(self.told(Verdict::Pass { delay: 0 }, t))
    }
}
