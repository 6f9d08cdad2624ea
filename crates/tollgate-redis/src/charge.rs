//! One request: its charges are decided, all or none, wherever they are kept.
//!
//! # Theory
//!
//! Charges whose keys share a slot are one script, and all or none by themselves. In a cluster a request may touch
//! several slots: then its scripts are sent at the same time, and if one refuses, what the others took is given back.
//! Charges that are only counted, in slots of their own, are sent when the enforced ones have passed.
//!
//! # The guarantee
//!
//! No limit is ever exceeded. A request that is refused may hold units of another slot for one round trip, and another
//! request may be refused meanwhile that would have passed. If this process dies in between, or the giving back is lost, these
//! units stay taken until they are earned again. Within one slot there is nothing of the kind.
//!
//! # Invariant
//!
//! A request whose enforced charges were not all answered has no answer. What is known to have been taken is given back; what may
//! have been taken is not.
//!
//! # What it does not know
//!
//! Which scripts there are, and where a slot is.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::store::shared::{
    Answering, FaultKind, SharedLimits, SharedOutcome, SharedRequest, SharedSettle, StoreFault,
};
use tollgate::{Moment, Standing, Verdict};

use crate::limits::{Garbled, Group, Limits, Ruling};
use crate::report::count;
use crate::send::Unsent;
use crate::store::{Desk, Open};

/// How long giving back may take.
const GIVING_BACK: Duration = Duration::from_secs(1);
/// What is given back at once; more stays taken.
const GIVING_BACK_MAX: usize = 1024;

/// The limits of one policy, as this store charges them.
pub(crate) struct Prepared {
    open: Arc<Open>,
    limits: Limits,
    giving_back: Arc<AtomicUsize>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

/// What became of a group of charges.
struct Part {
    group: Group,
    ruling: Result<Ruling, StoreFault>,
}

impl Part {
    fn took(&self) -> bool {
        self.ruling.as_ref().is_ok_and(|ruling| ruling.took)
    }

    /// Do its own limits let the request pass? A question takes nothing and may pass all the same.
    fn passes(&self, request: &SharedRequest) -> bool {
        let Ok(ruling) = &self.ruling else {
            return false;
        };
        self.group
            .charges
            .iter()
            .zip(&ruling.outcomes)
            .all(|(place, outcome)| {
                let is_enforced = request
                    .charges
                    .get(*place)
                    .is_some_and(|charge| charge.enforced);
                !is_enforced || outcome.verdict.is_admitted()
            })
    }
}

impl Prepared {
    pub(crate) fn new(open: Arc<Open>, limits: Limits) -> Prepared {
        Prepared {
            open,
            limits,
            giving_back: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn desk(&self) -> &Arc<Desk> {
        &self.open.desk
    }

    fn deadline(&self, asked: Instant) -> Instant {
        asked + self.desk().context.access.settings.deadline
    }

    async fn decide(
        &self,
        request: &SharedRequest,
        deadline: Instant,
    ) -> Result<Vec<SharedOutcome>, StoreFault> {
        let mut groups = self.limits.groups(request, self.desk().routes.by_slot());
        if let [group] = groups.as_slice() {
            match self.ask(request, group, deadline).await {
                Ok(ruling) => return Ok(in_order(request, [(group, &ruling)])),
                Err(Unsent::Fault(fault)) => return Err(fault),
                Err(Unsent::Split) => {}
            }
        }
        let is_enforced = |group: &Group| {
            group.charges.iter().any(|place| {
                request
                    .charges
                    .get(*place)
                    .is_some_and(|charge| charge.enforced)
            })
        };
        let counted: Vec<Group> = groups.extract_if(.., |group| !is_enforced(group)).collect();
        let parts = self.ask_all(request, groups, deadline).await;
        let fault = parts.iter().find_map(|part| part.ruling.as_ref().err());
        let passes = parts.iter().all(|part| part.passes(request));
        if !passes {
            self.give_back(request, &parts);
        }
        if let Some(fault) = fault {
            return Err(fault.clone());
        }
        let counted = self.count(request, counted, passes, deadline).await;
        let rulings = parts.iter().chain(&counted).filter_map(|part| {
            let ruling = part.ruling.as_ref().ok()?;
            Some((&part.group, ruling))
        });
        let mut outcomes = in_order(request, rulings);
        if !passes {
            self.as_before(request, &parts, &mut outcomes);
        }
        Ok(outcomes)
    }

    /// What was taken and is given back is told as if it had not been taken.
    fn as_before(&self, request: &SharedRequest, parts: &[Part], outcomes: &mut [SharedOutcome]) {
        for place in parts
            .iter()
            .filter(|part| part.took() && request.take)
            .flat_map(|part| &part.group.charges)
        {
            if let (Some(charge), Some(outcome)) =
                (request.charges.get(*place), outcomes.get_mut(*place))
                && outcome.verdict.is_admitted()
            {
                let remaining = &mut outcome.standing.remaining;
                *remaining = remaining.saturating_add(charge.cost);
            }
        }
    }

    /// Charges that are only counted. They fail nobody: what is not answered in time passes.
    async fn count(
        &self,
        request: &SharedRequest,
        groups: Vec<Group>,
        take: bool,
        deadline: Instant,
    ) -> Vec<Part> {
        if groups.is_empty() {
            return Vec::new();
        }
        if take || !request.take {
            return self.ask_all(request, groups, deadline).await;
        }
        let question = SharedRequest {
            take: false,
            ..request.clone()
        };
        let mut asked = self.limits.groups(&question, self.desk().routes.by_slot());
        asked.retain(|group| groups.iter().any(|other| other.charges == group.charges));
        self.ask_all(&question, asked, deadline).await
    }

    /// Asks for all groups at the same time. A group whose keys are in two places is asked for charge by charge.
    async fn ask_all(
        &self,
        request: &SharedRequest,
        groups: Vec<Group>,
        deadline: Instant,
    ) -> Vec<Part> {
        let mut parts = Vec::with_capacity(groups.len());
        let mut split = Vec::new();
        let answers = join(
            groups
                .iter()
                .map(|group| self.ask(request, group, deadline)),
        )
        .await;
        for (group, answer) in groups.into_iter().zip(answers) {
            match answer {
                Ok(ruling) => parts.push(Part {
                    group,
                    ruling: Ok(ruling),
                }),
                Err(Unsent::Fault(fault)) => parts.push(Part {
                    group,
                    ruling: Err(fault),
                }),
                Err(Unsent::Split) => split.extend(group.charges),
            }
        }
        if split.is_empty() {
            return parts;
        }
        let mut singles = self.limits.singles(request);
        singles.retain(|group| group.charges.iter().any(|place| split.contains(place)));
        let answers = join(
            singles
                .iter()
                .map(|group| self.ask(request, group, deadline)),
        )
        .await;
        for (group, answer) in singles.into_iter().zip(answers) {
            let ruling = answer.map_err(|unsent| match unsent {
                Unsent::Fault(fault) => fault,
                Unsent::Split => StoreFault::new(
                    FaultKind::Unable,
                    format!(
                        "slot {} is moving, and this key is in two places",
                        group.slot
                    ),
                ),
            });
            parts.push(Part { group, ruling });
        }
        parts
    }

    async fn ask(
        &self,
        request: &SharedRequest,
        group: &Group,
        deadline: Instant,
    ) -> Result<Ruling, Unsent> {
        let replies = self.desk().send(group.slot, &group.calls, deadline).await?;
        let garbled = |what: Garbled| self.garbled(group.slot, &what);
        let ruling = match replies.last() {
            Some(reply) => self.limits.read(request, group, reply).map_err(garbled)?,
            None => return Err(garbled(Garbled("no call decides".into())).into()),
        };
        if ruling.disagrees {
            let counters = &self.desk().context.counters;
            count(&counters.script_errors);
        }
        Ok(ruling)
    }

    /// The script ran, and what it gave back cannot be read: who knows what else on this connection is not as it should be.
    fn garbled(&self, slot: u16, what: &Garbled) -> StoreFault {
        let words = format!("the script's answer cannot be read: {what}");
        if let Ok(link) = self.desk().routes.link(slot) {
            link.give_up(FaultKind::Garbled, &words);
        }
        count(&self.desk().context.counters.script_errors);
        StoreFault::new(FaultKind::Garbled, words)
    }

    /// Gives back what was taken, in the background.
    fn give_back(&self, request: &SharedRequest, parts: &[Part]) {
        for part in parts.iter().filter(|part| part.took() && request.take) {
            let Ok(ruling) = &part.ruling else { continue };
            let calls = self.limits.undo(request, &part.group, ruling);
            if calls.is_empty() {
                continue;
            }
            count(&self.desk().context.counters.compensated);
            let (desk, slot) = (self.desk().clone(), part.group.slot);
            let giving_back = self.giving_back.clone();
            // Relaxed: a bound, and nothing else.
            if giving_back.fetch_add(1, Ordering::Relaxed) >= GIVING_BACK_MAX {
                giving_back.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!("too much is being given back: some units stay taken");
                continue;
            }
            self.desk().context.runtime.spawn(async move {
                let deadline = Instant::now() + GIVING_BACK;
                // One by one: the keys of a slot that is moving may be in two places.
                for call in &calls {
                    if let Err(unsent) = desk.send(slot, std::slice::from_ref(call), deadline).await
                    {
                        tracing::warn!("units were not given back: {unsent:?}");
                    }
                }
                giving_back.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    async fn correct(&self, settle: &SharedSettle, deadline: Instant) -> Result<u64, StoreFault> {
        let (slot, calls) = self.limits.settle(settle);
        match self.desk().send(slot, &calls, deadline).await {
            Ok(replies) => self
                .limits
                .read_settle(&replies)
                .map_err(|what| self.garbled(slot, &what)),
            Err(Unsent::Fault(fault)) => Err(fault),
            Err(Unsent::Split) => Err(StoreFault::new(
                FaultKind::Unable,
                format!("slot {slot} is moving, and this key is in two places"),
            )),
        }
    }
}

impl SharedLimits for Prepared {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        Box::pin(async move {
            let asked = Instant::now();
            let decided = self.decide(request, self.deadline(asked)).await;
            let counters = &self.desk().context.counters;
            match &decided {
                Ok(_) => counters.answered(asked.elapsed()),
                Err(fault) => counters.failed(fault.kind),
            }
            decided
        })
    }

    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        Box::pin(async move { self.correct(settle, self.deadline(Instant::now())).await })
    }
}

/// One outcome for each charge. Whatever was not answered is only counted, and passes.
fn in_order<'a>(
    request: &SharedRequest,
    rulings: impl IntoIterator<Item = (&'a Group, &'a Ruling)>,
) -> Vec<SharedOutcome> {
    let neutral = SharedOutcome {
        verdict: Verdict::Pass,
        standing: Standing::default(),
        issued: Moment::ORIGIN,
    };
    let mut outcomes = vec![neutral; request.charges.len()];
    for (group, ruling) in rulings {
        for (place, outcome) in group.charges.iter().zip(&ruling.outcomes) {
            if let Some(told) = outcomes.get_mut(*place) {
                *told = *outcome;
            }
        }
    }
    outcomes
}

/// Waits for all of them at the same time.
async fn join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Joined<F>> = futures
        .map(|future| Joined::Waits(Box::pin(future)))
        .collect();
    poll_fn(|context| {
        let mut is_waiting = false;
        for joined in &mut waiting {
            if let Joined::Waits(future) = joined {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *joined = Joined::Done(output),
                    Poll::Pending => is_waiting = true,
                }
            }
        }
        if is_waiting {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    let done = waiting.into_iter().filter_map(|joined| match joined {
        Joined::Done(output) => Some(output),
        Joined::Waits(_) => None,
    });
    done.collect()
}

enum Joined<F: Future> {
    Waits(Pin<Box<F>>),
    Done(F::Output),
}
