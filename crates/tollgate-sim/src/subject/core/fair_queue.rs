//! The fair queue as subject: `why` is the sequence number of an arrival, or `seq:flow` of what goes
//! next, and nothing where nothing goes.

use super::super::given::Given;
use super::super::unsupported;
use crate::replay::{Observed, Subject};
use crate::timeline::{Case, Step};
use std::collections::{BTreeMap, HashMap};
use tollgate::shape::fair_queue::{FairQueue, FairQueueConfig, Ticket};

/// More than any timeline queues: their bound is not what they are about.
const QUEUED_MAX: usize = 1 << 20;

/// A fair queue and what runs.
#[derive(Debug)]
pub struct FairQueueSubject {
    queue: FairQueue<String, ()>,
    weights: HashMap<String, u64>,
    /// What was dispatched and not completed, with the cost it was enqueued with, by its number.
    running: BTreeMap<u64, (Ticket, u64)>,
    /// The numbers of `running`, the longest running first.
    order: Vec<u64>,
}

impl FairQueueSubject {
    /// The queue that `case` asks for: `depth=D`, then `flow:weight` for each flow.
    ///
    /// # Errors
    ///
    /// If a word is neither.
    pub fn open(case: &Case) -> Result<Self, String> {
        let mut depth = None;
        let mut weights = HashMap::new();
        for word in &case.words {
            let strange = || format!("`{word}` is not understood");
            if let Some((name, value)) = word.split_once('=') {
                let value = value.parse().map_err(|_| strange())?;
                if name != "depth" || depth.replace(value).is_some() {
                    return Err(strange());
                }
            } else {
                let (flow, weight) = word.split_once(':').ok_or_else(strange)?;
                let weight = weight.parse().map_err(|_| strange())?;
                if weights.insert(flow.to_owned(), weight).is_some() {
                    return Err(strange());
                }
            }
        }
        let queue = FairQueue::new(FairQueueConfig {
            depth: depth.ok_or("`depth` is missing")?,
            max_running_per_flow: usize::MAX,
            max_queued_per_flow: QUEUED_MAX,
            max_queued_total: QUEUED_MAX,
        })
        .map_err(|error| error.to_string())?;
        Ok(Self {
            queue,
            weights,
            running: BTreeMap::new(),
            order: Vec::new(),
        })
    }

    fn enqueue(&mut self, step: &Step) -> Result<String, String> {
        let weight = *self
            .weights
            .get(&step.key)
            .ok_or_else(|| format!("no flow is called `{}`", step.key))?;
        let enqueued = self
            .queue
            .enqueue(step.key.clone(), weight, step.cost, ())
            .map_err(|rejected| format!("rejected: {}", rejected.reason))?;
        Ok(enqueued.ticket.seq().to_string())
    }

    fn dispatch(&mut self) -> String {
        let Some(next) = self.queue.dispatch() else {
            return String::new();
        };
        let seq = next.ticket.seq();
        self.running.insert(seq, (next.ticket, next.cost));
        self.order.push(seq);
        format!("{seq}:{}", next.flow)
    }

    /// Completes what the row names; the longest running if it names none.
    fn complete(&mut self, step: &Step) -> Result<String, String> {
        let seq = match &step.expect.why {
            Some(named) => named
                .parse()
                .map_err(|_| format!("`{named}` is no sequence number"))?,
            None => *self.order.first().ok_or("nothing runs")?,
        };
        let (ticket, declared) = self
            .running
            .remove(&seq)
            .ok_or_else(|| format!("{seq} does not run"))?;
        self.order.retain(|&running| running != seq);
        let actual = if step.is_cost_given {
            step.cost
        } else {
            declared
        };
        if self.queue.complete(ticket, actual) {
            Ok(seq.to_string())
        } else {
            Err(format!("the queue does not know that {seq} runs"))
        }
    }
}

impl Subject for FairQueueSubject {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        Given::of_step(step, &[])?;
        let why = match step.op.as_str() {
            "enqueue" => self.enqueue(step)?,
            "dispatch" => {
                let next = self.dispatch();
                // An empty cell asserts nothing elsewhere; here it says that nobody goes.
                if step.expect.why.is_none() && !next.is_empty() {
                    return Err(format!("`{next}` was dispatched, expected nothing"));
                }
                next
            }
            "complete" => self.complete(step)?,
            _ => return Err(unsupported(step)),
        };
        Ok(Observed {
            why: Some(why),
            ..Observed::default()
        })
    }
}
