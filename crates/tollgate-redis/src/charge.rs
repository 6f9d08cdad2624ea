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
//! have been taken is not. Whoever asked may go away at any time: what was begun in several slots is ended all the same. What
//! a script decided stands: if our own arithmetic comes to something else, there is no answer.
//!
//! # What it does not know
//!
//! Which scripts there are, and where a slot is.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tollgate::{Moment, QuotaStatus, Verdict};
use tollgate_policy::shared::{
    Answering, FaultKind, SharedLimits, SharedOutcome, SharedRequest, SharedSettle, StoreFault,
};

use crate::call::Call;
use crate::fault::without_keys;
use crate::join::join;
use crate::limits::{Garbled, Group, Limits, Ruling};
use crate::report::count;
use crate::send::Unsent;
use crate::store::{Desk, Open};

/// How long giving back may take.
const GIVING_BACK: Duration = Duration::from_secs(1);
/// A task keeps its deadline by itself. If it cannot, because its runtime is stuck, it is waited for so much longer.
const GRACE: Duration = Duration::from_millis(2);

/// The limits of one policy, as this store charges them.
pub(crate) struct Prepared {
    charging: Arc<Charging>,
}

/// What tasks share that outlive whoever asked.
struct Charging {
    open: Arc<Open>,
    limits: Limits,
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
            charging: Arc::new(Charging { open, limits }),
        }
    }

    fn deadline(&self, asked: Instant) -> Instant {
        asked + self.charging.desk().context.access.settings.deadline
    }

    async fn decide(
        &self,
        request: &SharedRequest,
        deadline: Instant,
    ) -> Result<Vec<SharedOutcome>, StoreFault> {
        let charging = &self.charging;
        let by_slot = charging.desk().routes.by_slot();
        let mut groups = charging.limits.groups(request, by_slot);
        // One script is all or none by itself, whether anybody waits for its answer or not.
        if let [group] = groups.as_slice() {
            match charging.ask(request, group, deadline).await {
                Ok(ruling) => return Ok(in_order(request, [(group, &ruling)])),
                Err(Unsent::Fault(fault)) => return Err(fault),
                Err(Unsent::Split { ran }) => groups = charging.apart(request, group, &ran)?,
            }
        }
        let (charging, request) = (charging.clone(), request.clone());
        let decided = async move { charging.decide_all(&request, groups, deadline).await };
        self.finish(decided, deadline).await
    }

    /// Does it on the runtime of the store, to its end, though nobody may wait for it any more.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreFault>> + Send + 'static,
        deadline: Instant,
    ) -> Result<T, StoreFault> {
        let desk = self.charging.desk();
        let Some(task) = desk.finishing.begin(&desk.context.runtime, work) else {
            let words = "more requests of several parts are under way than may be";
            return Err(StoreFault::new(FaultKind::Busy, words));
        };
        match timeout_at(deadline + GRACE, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreFault::new(
                FaultKind::Unable,
                "the task was broken off: this process is shutting down",
            )),
            Err(_) => Err(StoreFault::new(
                FaultKind::Late,
                "the tasks of the store do not get to run",
            )),
        }
    }
}

impl Charging {
    fn desk(&self) -> &Arc<Desk> {
        &self.open.desk
    }

    /// Groups in several slots: all or none.
    async fn decide_all(
        &self,
        request: &SharedRequest,
        mut groups: Vec<Group>,
        deadline: Instant,
    ) -> Result<Vec<SharedOutcome>, StoreFault> {
        let counted: Vec<Group> = groups
            .extract_if(.., |group| !is_enforced(request, group))
            .collect();
        let parts = self.ask_all(request, groups, deadline).await;
        let fault = parts.iter().find_map(|part| part.ruling.as_ref().err());
        let passes = parts.iter().all(|part| part.passes(request));
        if !passes {
            for part in parts.iter().filter(|part| part.took()) {
                if let Ok(ruling) = &part.ruling {
                    self.give_back(request, &part.group, ruling);
                }
            }
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
                let remaining = &mut outcome.status.remaining;
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
        let mut singles = Vec::new();
        let answers = join(
            groups
                .iter()
                .map(|group| self.ask(request, group, deadline)),
        )
        .await;
        for (group, answer) in groups.into_iter().zip(answers) {
            let ruling = match answer {
                Ok(ruling) => Ok(ruling),
                Err(Unsent::Fault(fault)) => Err(fault),
                Err(Unsent::Split { ran }) => match self.apart(request, &group, &ran) {
                    Ok(more) => {
                        singles.extend(more);
                        continue;
                    }
                    Err(fault) => Err(fault),
                },
            };
            parts.push(Part { group, ruling });
        }
        if singles.is_empty() {
            return parts;
        }
        let answers = join(
            singles
                .iter()
                .map(|group| self.ask(request, group, deadline)),
        )
        .await;
        for (group, answer) in singles.into_iter().zip(answers) {
            let ruling = answer.map_err(|unsent| match unsent {
                Unsent::Fault(fault) => fault,
                Unsent::Split { .. } => in_two_places(group.slot),
            });
            parts.push(Part { group, ruling });
        }
        parts
    }

    /// The same charges one by one, because their keys are in two places. Of the calls before the deciding one, those that
    /// ran already are left out: what was owed is taken once.
    ///
    /// # Errors
    /// There is only one charge.
    fn apart(
        &self,
        request: &SharedRequest,
        group: &Group,
        ran: &[usize],
    ) -> Result<Vec<Group>, StoreFault> {
        if group.charges.len() < 2 {
            return Err(in_two_places(group.slot));
        }
        let mut singles = self.limits.singles(request);
        singles.retain(|single| {
            let mut places = single.charges.iter();
            places.any(|place| group.charges.contains(place))
        });
        for done in ran.iter().filter_map(|place| group.calls.get(*place)) {
            leave_out(&mut singles, done);
        }
        Ok(singles)
    }

    async fn ask(
        &self,
        request: &SharedRequest,
        group: &Group,
        deadline: Instant,
    ) -> Result<Ruling, Unsent> {
        let replies = self.desk().send(group.slot, &group.calls, deadline).await?;
        let garbled = |what: Garbled| self.garbled(group.slot, &what);
        let ruling = self
            .limits
            .read(request, group, &replies)
            .map_err(garbled)?;
        if ruling.disagrees {
            self.disagreed(request, group, &ruling)?;
        }
        Ok(ruling)
    }

    /// The script decided something, and the core's arithmetic comes to something else: nobody knows who is right. What the
    /// script took is given back, and the request is told that it has no answer.
    fn disagreed(
        &self,
        request: &SharedRequest,
        group: &Group,
        ruling: &Ruling,
    ) -> Result<(), StoreFault> {
        let context = &self.desk().context;
        count(&context.counters.script_errors);
        let words = format!(
            "the script decided otherwise than this node's own arithmetic on {}: do all nodes run the same version, and \
             does another program write below our prefix?",
            limits_of(group)
        );
        let server = self.desk().routes.link(group.slot);
        let server = server.map_or_else(|_| String::new(), |link| link.address().to_string());
        context
            .warnings
            .mention("script-disagrees", &server, words.clone());
        if !is_enforced(request, group) {
            return Ok(());
        }
        let mut as_the_script = Ruling {
            outcomes: ruling.outcomes.clone(),
            ..*ruling
        };
        for (place, outcome) in group.charges.iter().zip(&mut as_the_script.outcomes) {
            let charge = request.charges.get(*place);
            if charge.is_some_and(|charge| charge.enforced) {
                outcome.verdict = Verdict::Pass;
            }
        }
        self.give_back(request, group, &as_the_script);
        Err(StoreFault::new(FaultKind::Garbled, words))
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
    fn give_back(&self, request: &SharedRequest, group: &Group, ruling: &Ruling) {
        if !request.take {
            return;
        }
        let calls = self.limits.undo(request, group, ruling);
        if calls.is_empty() {
            return;
        }
        let (desk, slot) = (self.desk().clone(), group.slot);
        let begun = self
            .desk()
            .giving_back
            .begin(&self.desk().context.runtime, async move {
                let deadline = Instant::now() + GIVING_BACK;
                // One by one: the keys of a slot that is moving may be in two places.
                for call in &calls {
                    match desk.send(slot, std::slice::from_ref(call), deadline).await {
                        Ok(_) => count(&desk.context.counters.compensated),
                        Err(unsent) => not_given_back(&desk, &format!("{unsent}")),
                    }
                }
            });
        if begun.is_none() {
            not_given_back(self.desk(), "too much is being given back at once");
        }
    }

    async fn correct(&self, settle: &SharedSettle, deadline: Instant) -> Result<u64, StoreFault> {
        let (slot, calls) = self.limits.settle(settle);
        // As much was used as was taken.
        if calls.is_empty() {
            return Ok(0);
        }
        match self.desk().send(slot, &calls, deadline).await {
            Ok(replies) => self
                .limits
                .read_settle(&replies)
                .map_err(|what| self.garbled(slot, &what)),
            Err(Unsent::Fault(fault)) => Err(fault),
            Err(Unsent::Split { .. }) => Err(in_two_places(slot)),
        }
    }
}

impl SharedLimits for Prepared {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        Box::pin(async move {
            let asked = Instant::now();
            let waited = Duration::from(request.waited);
            // Nothing is left of it: it fails at once.
            let deadline = self.deadline(asked).checked_sub(waited).unwrap_or(asked);
            let decided = self.decide(request, deadline).await;
            let counters = &self.charging.desk().context.counters;
            match &decided {
                Ok(_) => counters.answered(asked.elapsed()),
                Err(fault) => counters.failed(fault.kind),
            }
            decided
        })
    }

    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        Box::pin(async move {
            let deadline = self.deadline(Instant::now());
            let (charging, settle) = (self.charging.clone(), settle.clone());
            let corrected = async move { charging.correct(&settle, deadline).await };
            self.finish(corrected, deadline).await
        })
    }
}

/// One outcome for each charge. Whatever was not answered is only counted, and passes.
fn in_order<'a>(
    request: &SharedRequest,
    rulings: impl IntoIterator<Item = (&'a Group, &'a Ruling)>,
) -> Vec<SharedOutcome> {
    let neutral = SharedOutcome {
        verdict: Verdict::Pass,
        status: QuotaStatus::default(),
        issued: Moment::ORIGIN,
        unpaid: 0,
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

/// Is there a charge in it that can refuse the request?
fn is_enforced(request: &SharedRequest, group: &Group) -> bool {
    let mut charges = group
        .charges
        .iter()
        .filter_map(|place| request.charges.get(*place));
    charges.any(|charge| charge.enforced)
}

/// Takes out one call like this among those that only go before. Its numbers may be others, if the time is among them.
fn leave_out(singles: &mut [Group], done: &Call) {
    for single in singles {
        let deciding = single.calls.len().saturating_sub(1);
        let is_it = |call: &Call| call.script == done.script && call.keys == done.keys;
        let mut before = single.calls.iter().take(deciding);
        if let Some(place) = before.position(is_it) {
            single.calls.remove(place);
            // Nobody knows any more how much of it there was room for.
            single.owed.clear();
            return;
        }
    }
}

fn in_two_places(slot: u16) -> StoreFault {
    StoreFault::new(
        FaultKind::Unable,
        format!("slot {slot} is moving, and this key is in two places"),
    )
}

fn not_given_back(desk: &Desk, why: &str) {
    let words = format!("units that were taken for a refused request stay taken: {why}");
    desk.context.warnings.mention("not-given-back", "", words);
}

/// The limits that a group is about, by their names on the server and without the keys.
fn limits_of(group: &Group) -> String {
    let mut limits: Vec<String> = Vec::new();
    for key in group.calls.last().iter().flat_map(|call| call.keys.iter()) {
        let limit = without_keys(&String::from_utf8_lossy(key));
        if !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    limits.join(", ")
}
