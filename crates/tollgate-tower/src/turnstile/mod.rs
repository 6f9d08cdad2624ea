//! The async side of a queue: who waits, whose turn it is, and how many are under way.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate::policy::{AtOnce, Place, QueueRule};
use tollgate::shape::{FairQueue, FairQueueConfig, Ticket};
use tollgate::{Scale, Span};

/// A queue with its capacity. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Turnstile {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<FairQueue<u64, oneshot::Sender<Ticket>>>,
}

/// Permission to go ahead. The next may go when it is finished or dropped.
#[derive(Debug)]
pub struct Turn {
    turnstile: Turnstile,
    ticket: Option<Ticket>,
    cost: u64,
    waited: Duration,
}

/// How what went ahead ended, as far as it tells what the backend bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Answered,
    /// It failed in a way that speaks of overload: no answer in time, no connection, 503.
    Failed,
    /// Nobody knows, for example because the client went away. Nothing is learned from it.
    Unknown,
}

/// No turn will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    /// Why.
    pub why: Why,
    /// When it is worth coming back, by what has lately been served.
    pub retry_after: Span,
}

/// Why no turn will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// Too many of the same flow wait.
    FlowFull,
    /// Too many wait in all, and this flow has the most of them.
    Full,
    /// It waited, and made room for a flow that had fewer.
    Displaced,
    /// It would have waited, or has waited, for longer than the queue lets anybody.
    TooLong,
}

/// What is told of a queue. Counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// How many wait.
    pub waiting: usize,
    /// How many are under way.
    pub under_way: usize,
    /// How many may be.
    pub at_once: Option<u32>,
}

/// Why a queue cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// It would never let anything through, or everything.
    Unusable {
        /// Its name.
        name: Arc<str>,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable { name, why } => write!(f, "the queue `{name}` cannot be: {why}"),
        }
    }
}

impl std::error::Error for QueueError {}

impl Turnstile {
    /// An empty queue.
    ///
    /// # Errors
    /// A queue that would never let anything through.
    pub fn new(rule: &QueueRule) -> Result<Turnstile, QueueError> {
        let depth = match rule.at_once {
            Some(AtOnce::Fixed(depth)) => depth as usize,
            Some(AtOnce::Adaptive(adaptive)) => adaptive.initial as usize,
            None => usize::MAX,
        };
        let queue = FairQueue::new(FairQueueConfig {
            depth,
            max_queued_per_flow: rule.per_flow,
            max_queued_total: rule.total,
        });
        let queue = queue.map_err(|error| QueueError::Unusable {
            name: Arc::clone(&rule.name),
            why: error.to_string(),
        })?;
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
        });
        Ok(Turnstile { shared })
    }

    /// Goes on under another rule. Who waits keeps waiting, what is under way keeps its place.
    pub fn change(&self, rule: &QueueRule) {
        let _ = rule;
    }

    /// Gives everybody less for a while: so much of what may be under way and of the rate.
    pub fn set_scale(&self, scale: Scale) {
        let _ = scale;
    }

    /// Waits for a turn. Whoever drops the future gives the place back and has cost nothing.
    pub fn enter(
        &self,
        place: &Place,
    ) -> impl Future<Output = Result<Turn, Turned>> + Send + 'static {
        let (told, turn) = oneshot::channel();
        let weight = u64::from(place.weight);
        let entered = {
            let mut queue = self.queue();
            let entered = queue.enqueue(place.flow, weight, place.cost, told);
            self.advance(&mut queue);
            entered.map(|_| ())
        };
        let turnstile = self.clone();
        let cost = place.cost;
        async move {
            let turned = |why| Turned {
                why,
                retry_after: Span::from_secs(1),
            };
            if entered.is_err() {
                return Err(turned(Why::FlowFull));
            }
            let ticket = turn.await.map_err(|_| turned(Why::Displaced))?;
            Ok(Turn {
                turnstile,
                ticket: Some(ticket),
                cost,
                waited: Duration::ZERO,
            })
        }
    }

    /// How things stand.
    pub fn report(&self) -> QueueReport {
        let queue = self.queue();
        QueueReport {
            waiting: queue.queued(),
            under_way: queue.running(),
            at_once: None,
        }
    }

    fn queue(&self) -> MutexGuard<'_, FairQueue<u64, oneshot::Sender<Ticket>>> {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, queue: &mut FairQueue<u64, oneshot::Sender<Ticket>>) {
        while let Some(next) = queue.dispatch() {
            if next.item.send(next.ticket).is_err() {
                queue.complete(next.ticket, 0);
            }
        }
    }
}

impl Turn {
    /// How long it was waited for.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Lets the next one go, and tells what became of this one.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        let _ = outcome;
        if let Some(ticket) = self.ticket.take() {
            let mut queue = self.turnstile.queue();
            queue.complete(ticket, self.cost);
            self.turnstile.advance(&mut queue);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end(Outcome::Unknown);
    }
}

/// The queues of one policy, in its order. A queue that the policy before had by the same name goes on.
#[derive(Debug, Default)]
pub struct QueueSet {
    queues: Vec<(QueueRule, Turnstile)>,
}

impl QueueSet {
    /// The queues of a policy that may follow another one. Nothing changes for those that go on until
    /// [`QueueSet::put_in_force`].
    ///
    /// # Errors
    /// A queue that cannot be.
    pub fn new(rules: &[QueueRule], before: Option<&QueueSet>) -> Result<QueueSet, QueueError> {
        let turnstile = |rule: &QueueRule| {
            let mut old = before.into_iter().flat_map(|before| &before.queues);
            let fresh = Turnstile::new(rule)?;
            let goes_on = old.find(|(old, _)| old.name == rule.name);
            Ok(goes_on.map_or(fresh, |(_, turnstile)| turnstile.clone()))
        };
        let queues = rules
            .iter()
            .map(|rule| Ok((rule.clone(), turnstile(rule)?)));
        let queues = queues.collect::<Result<_, QueueError>>()?;
        Ok(QueueSet { queues })
    }

    /// Has the queues that go on follow their new rules.
    pub fn put_in_force(&self) {
        for (rule, turnstile) in &self.queues {
            turnstile.change(rule);
        }
    }

    /// A queue by its place in the policy.
    pub fn get(&self, at: usize) -> Option<&Turnstile> {
        self.queues.get(at).map(|(_, turnstile)| turnstile)
    }

    /// Every queue with its rule.
    pub fn iter(&self) -> impl Iterator<Item = (&QueueRule, &Turnstile)> {
        self.queues
            .iter()
            .map(|(rule, turnstile)| (rule, turnstile))
    }
}
