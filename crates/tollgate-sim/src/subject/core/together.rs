//! Several buckets charged together, by pure steps: all are asked, then all are charged or none.

use super::super::together::keys_of;
use super::super::{time, unsupported};
use super::spec::TokenBucketSpec;
use super::word::WordSteps;
use crate::model::Model;
use crate::oracle::{Answer, LimitSpec, Verdict};
use crate::replay::{Observed, Subject};
use crate::timeline::Step;
use std::cmp::Reverse;
use std::collections::HashMap;

type Bucket = WordSteps<TokenBucketSpec>;

/// One limit: a bucket for each key.
#[derive(Debug)]
struct Limit {
    name: String,
    fresh: Bucket,
    by_key: HashMap<String, Bucket>,
}

/// Named token buckets that are charged together.
#[derive(Debug)]
pub struct TogetherSteps(Vec<Limit>);

impl TogetherSteps {
    /// All buckets of all limits full; the order given is the order of configuration.
    ///
    /// # Errors
    ///
    /// If the numbers of one make no limit.
    pub fn new(limits: &[LimitSpec]) -> Result<Self, String> {
        let limit = |spec: &LimitSpec| {
            Ok(Limit {
                name: spec.name.clone(),
                fresh: WordSteps::new(TokenBucketSpec {
                    cap: spec.cap,
                    n: spec.n,
                    p_ns: spec.p_ns,
                })?,
                by_key: HashMap::new(),
            })
        };
        limits.iter().map(limit).collect::<Result<_, _>>().map(Self)
    }

    /// The buckets that `step` names, in the order of configuration: which limit, and its key.
    fn named<'a>(&mut self, step: &'a Step) -> Result<Vec<(usize, &'a str)>, String> {
        let mut named = Vec::new();
        for (name, key) in keys_of(step)? {
            let place = self.0.iter().position(|limit| limit.name == name);
            let place = place.ok_or_else(|| format!("no limit is called `{name}`"))?;
            if named.iter().any(|&(taken, _)| taken == place) {
                return Err(format!("limit `{name}` is charged twice"));
            }
            named.push((place, key));
        }
        named.sort_unstable_by_key(|&(place, _)| place);
        Ok(named)
    }

    fn bucket(&mut self, (place, key): (usize, &str)) -> Result<&mut Bucket, String> {
        let limit = self.0.get_mut(place).ok_or("no such limit")?;
        let fresh = &limit.fresh;
        Ok(limit
            .by_key
            .entry(key.to_owned())
            .or_insert_with(|| fresh.clone()))
    }
}

impl Subject for TogetherSteps {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let (t, cost) = (time(step)?, step.cost);
        let takes = match step.op.as_str() {
            "check" => true,
            "peek" => false,
            _ => return Err(unsupported(step)),
        };
        let named = self.named(step)?;
        let mut told = Vec::new();
        for &charge in &named {
            told.push((charge.0, self.bucket(charge)?.peek(t, cost)));
        }
        let (place, answer) = reported(&told, cost).ok_or("the request names no limit")?;
        if takes {
            for (&charge, (_, alone)) in named.iter().zip(&told) {
                // All are charged if the request passes. If not, only those that refuse it
                // themselves are asked again: they take nothing, and heal if they have to.
                if answer.passed() || matches!(alone.verdict, Verdict::Refuse { .. }) {
                    self.bucket(charge)?.check(t, cost);
                }
            }
        }
        let name = self.0.get(place).map(|limit| limit.name.clone());
        Ok(Observed {
            why: name,
            ..Observed::from(answer)
        })
    }
}

/// Which limit is reported: never before all, then the longest wait; if all pass, the one with the
/// fewest further requests, then the later reset. Among equals the one configured first.
fn reported(told: &[(usize, Answer)], cost: u64) -> Option<(usize, Answer)> {
    let severity = |answer: &Answer| match answer.verdict {
        Verdict::Never => (2, 0),
        Verdict::Refuse { retry_after } => (1, retry_after),
        Verdict::Pass { .. } => (0, 0),
    };
    let further = |answer: &Answer| (answer.remaining / cost.max(1), Reverse(answer.reset_after));
    // `min_by_key` gives the first of equals.
    told.iter()
        .min_by_key(|(_, answer)| {
            let severity = severity(answer);
            let among_passed = (severity.0 == 0).then(|| further(answer));
            (Reverse(severity), among_passed)
        })
        .copied()
}
