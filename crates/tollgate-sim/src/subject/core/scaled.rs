//! A token bucket on the core's virtual clock.

use super::spec::TokenBucketSpec;
use super::told::{at, span};
use super::word::WordSteps;
use crate::model::{Change, Model, has_no};
use crate::oracle::{Answer, Verdict};
use tollgate::Scale;
use tollgate::algorithm::pressure::VirtualClock;

/// One key of a token bucket on a clock that can be slowed.
#[derive(Clone, Debug)]
pub struct ScaledSteps {
    bucket: WordSteps<TokenBucketSpec>,
    clock: VirtualClock,
}

impl ScaledSteps {
    /// A full bucket on a clock at full speed.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(spec: TokenBucketSpec) -> Result<Self, String> {
        Ok(Self {
            bucket: WordSteps::new(spec)?,
            clock: VirtualClock::new(),
        })
    }

    fn real(&self, t: u64, wait: u64) -> u64 {
        self.clock.real(at(t), span(wait)).as_nanos()
    }

    /// The bucket's waits are virtual; a person waits in real time.
    fn told(&self, t: u64, answer: Answer) -> Answer {
        Answer {
            verdict: match answer.verdict {
                Verdict::Refuse { retry_after } => Verdict::Refuse {
                    retry_after: self.real(t, retry_after),
                },
                other => other,
            },
            remaining: answer.remaining,
            reset_after: self.real(t, answer.reset_after),
            next_after: self.real(t, answer.next_after),
        }
    }
}

impl Model for ScaledSteps {
    fn check(&mut self, t: u64, cost: u64) -> Answer {
        let answer = self.bucket.check(self.clock.at(at(t)).as_nanos(), cost);
        self.told(t, answer)
    }

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        let Change::Scale { q16 } = change else {
            return Err(has_no(change));
        };
        self.clock.set(at(t), Scale::from_q16(q16));
        Ok(self.peek(t, 0))
    }

    fn virtual_time(&self, t: u64) -> Option<u64> {
        Some(self.clock.at(at(t)).as_nanos())
    }
}
