//! The fair queue as subject: `why` is the sequence number of an arrival, or `seq:flow` of what is
//! dispatched, and empty if nothing is.

use crate::replay::CaseRunner;
use crate::timeline::{Observation, Operation, TimelineCase, TimelineStep};
use std::collections::{BTreeMap, HashMap};
use tollgate::shape::fair_queue::{FairQueue, FairQueueConfig, Ticket};

/// More than any timeline queues.
const QUEUED_MAX: usize = 1 << 20;

/// A fair queue and its running requests.
#[derive(Debug)]
pub struct FairQueueSubject {
    queue: FairQueue<String, ()>,
    weights: HashMap<String, u64>,
    /// Dispatched and not completed, by sequence number, with the cost of the enqueue.
    running: BTreeMap<u64, (Ticket, u64)>,
    /// The numbers of `running`, the longest running first.
    order: Vec<u64>,
}

impl FairQueueSubject {
    /// The queue of `case`: `depth=D`, then `flow:weight` for each flow.
    ///
    /// # Errors
    ///
    /// If a word is neither.
    pub fn open(case: &TimelineCase) -> Result<Self, String> {
        let mut depth = None;
        let mut weights = HashMap::new();
        for word in &case.words {
            let unknown = || format!("`{word}` is neither `depth=D` nor `flow:weight`");
            if let Some((name, value)) = word.split_once('=') {
                let value = value.parse().map_err(|_| unknown())?;
                if name != "depth" || depth.replace(value).is_some() {
                    return Err(unknown());
                }
            } else {
                let (flow, weight) = word.split_once(':').ok_or_else(unknown)?;
                let weight = weight.parse().map_err(|_| unknown())?;
                if weights.insert(flow.to_owned(), weight).is_some() {
                    return Err(unknown());
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

    fn enqueue(&mut self, step: &TimelineStep) -> Result<String, String> {
        let weight = *self
            .weights
            .get(&step.key)
            .ok_or_else(|| format!("no flow is called `{}`", step.key))?;
        let enqueued = self
            .queue
            .enqueue(step.key.clone(), weight, step.cost.unwrap_or(0), ())
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

    /// Completes the request that the row names, or the longest running one.
    fn complete(&mut self, step: &TimelineStep) -> Result<String, String> {
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
        if self.queue.complete(ticket, step.cost.unwrap_or(declared)) {
            Ok(seq.to_string())
        } else {
            Err(format!("the queue has no running {seq}"))
        }
    }
}

impl CaseRunner for FairQueueSubject {
    fn apply(&mut self, step: &TimelineStep) -> Result<Observation, String> {
        let why = match step.operation()? {
            Operation::Enqueue {} => self.enqueue(step)?,
            Operation::Dispatch {} => {
                let next = self.dispatch();
                // An empty cell asserts nothing elsewhere; here it means that nothing is dispatched.
                if step.expect.why.is_none() && !next.is_empty() {
                    return Err(format!("`{next}` was dispatched, expected nothing"));
                }
                next
            }
            Operation::Complete {} => self.complete(step)?,
            _ => return Err(step.unsupported()),
        };
        Ok(Observation {
            why: Some(why),
            ..Observation::default()
        })
    }
}
