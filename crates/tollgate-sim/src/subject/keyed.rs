//! One model per key, driven by the steps of a timeline.

use super::given::Given;
use super::{time, unsupported};
use crate::model::{Change, Model};
use crate::oracle::Answer;
use crate::replay::{Observed, Subject};
use crate::timeline::Step;
use std::collections::HashMap;

/// One model per key. Changes of the limit reach all of them, and every key that comes later.
#[derive(Debug)]
pub struct Keyed<M> {
    /// A model never charged: what a key not seen yet starts from.
    fresh: M,
    by_key: HashMap<String, M>,
}

impl<M: Model + 'static> Keyed<M> {
    /// All keys start as `fresh`.
    pub fn subject(fresh: M) -> Box<dyn Subject> {
        Box::new(Self {
            fresh,
            by_key: HashMap::new(),
        })
    }

    fn of_key(&mut self, key: &str) -> &mut M {
        let fresh = &self.fresh;
        self.by_key
            .entry(key.to_owned())
            .or_insert_with(|| fresh.clone())
    }

    fn change_all(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        for model in self.by_key.values_mut() {
            model.change(t, change)?;
        }
        self.fresh.change(t, change)
    }
}

impl<M: Model + 'static> Subject for Keyed<M> {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let t = time(step)?;
        Ok(match step.op.as_str() {
            "check" | "peek" => {
                Given::of_step(step, &[])?;
                let model = self.of_key(&step.key);
                let reason = model.reason(t, step.cost);
                let answer = if step.op == "check" {
                    model.check(t, step.cost)
                } else {
                    model.peek(t, step.cost)
                };
                because(answer, reason)
            }
            "burst" | "burst_quiet" => {
                let count = Given::of_step(step, &["count"])?.need("count")?;
                burst(self.of_key(&step.key), t, step, count)
            }
            _ => {
                let change = change_of(step)?;
                let told = if change.is_for_all_keys() {
                    // The key of the row is told of, so it has to be there.
                    self.of_key(&step.key);
                    self.change_all(t, change)?;
                    self.of_key(&step.key).peek(t, 0)
                } else {
                    self.of_key(&step.key).change(t, change)?
                };
                told.into()
            }
        })
    }
}

/// The change that `step` asks for.
pub(crate) fn change_of(step: &Step) -> Result<Change, String> {
    Ok(match step.op.as_str() {
        "refund" => Change::Refund {
            cost: step.cost,
            issued: Given::of_step(step, &["issued_ns"])?.need("issued_ns")?,
        },
        "set_cap" => Change::SetCap {
            cap: Given::of_step(step, &["cap"])?.need("cap")?,
        },
        "set_rate" => {
            let given = Given::of_step(step, &["n", "p_ns"])?;
            Change::SetRate {
                n: given.need("n")?,
                p_ns: given.need("p_ns")?,
            }
        }
        _ => return Err(unsupported(step)),
    })
}

/// `answer` with the reason for a refusal that it does not tell itself.
pub(crate) fn because(answer: Answer, reason: Option<&str>) -> Observed {
    let observed = Observed::from(answer);
    Observed {
        why: observed.why.or_else(|| reason.map(str::to_owned)),
        ..observed
    }
}

/// The checks of a burst are of one unit, unless it says otherwise.
pub(crate) fn burst_cost(step: &Step) -> u64 {
    if step.is_cost_given { step.cost } else { 1 }
}

/// What `count` checks at one instant came to, as they come in one by one.
#[derive(Debug)]
pub(crate) struct Burst(Observed);

impl Burst {
    /// Before the first check; `status` is what a request for nothing is told.
    pub(crate) fn new(status: Answer) -> Self {
        Self(Observed {
            allowed: Some(0),
            retry_after: Some(0),
            delay: Some(0),
            ..status.into()
        })
    }

    /// Adds one check: how many passed, the wait of the first refusal, the delay of the last that
    /// passed, and what is left in the end.
    pub(crate) fn add(&mut self, one: Observed) {
        let whole = &mut self.0;
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

    /// What the burst came to.
    pub(crate) fn told(self) -> Observed {
        self.0
    }
}

fn burst<M: Model>(model: &mut M, t: u64, step: &Step, count: u64) -> Observed {
    let cost = burst_cost(step);
    let mut whole = Burst::new(model.peek(t, 0));
    for _ in 0..count {
        let reason = model.reason(t, cost);
        whole.add(because(model.check(t, cost), reason));
    }
    whole.told()
}
