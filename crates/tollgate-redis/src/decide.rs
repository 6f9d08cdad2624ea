//! Decides the charges of one request, all or none, whichever servers hold their keys.
//!
//! # Theory
//!
//! Charges whose keys share a slot are one script, and all or none by themselves. In a cluster a request may touch several
//! slots: then its scripts are sent at the same time, and if one refuses, the charges of the others are refunded. Charges that
//! are only counted, in slots of their own, are sent when the enforced ones have passed.
//!
//! # The guarantee
//!
//! No limit is ever exceeded. A refused request may hold units of another slot for one round trip, and another request may be
//! refused meanwhile that would have passed. If this process dies in between, or the refund is lost, these units stay taken
//! until they are earned again. Within one slot there is nothing of the kind.
//!
//! # Invariant
//!
//! A request whose enforced charges were not all answered has no answer. Units that are known to be taken are refunded; units
//! that may have been taken are not. The caller may go away at any time: work in several slots is finished all the same. The
//! decision of a script stands: if our own arithmetic disagrees, there is no answer.
//!
//! # What it does not know
//!
//! Which scripts there are, and where a slot is.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};
use tollgate::{LimitId, Moment, QuotaStatus, Verdict};
use tollgate_policy::shared::{
    Answering, FaultKind, SharedCharge, SharedKey, SharedLimits, SharedOutcome, SharedRequest,
    SharedSettle, StoreFault,
};

use crate::error_action::without_keys;
use crate::limits::{BadReply, ChargeGroup, GroupReply, LimitSet};
use crate::report::count;
use crate::script_call::ScriptCall;
use crate::send::SendError;
use crate::store::{StoreInner, StoreTasks};

/// Deadline of a refund, and of a reset of a key.
const REFUND_TIMEOUT: Duration = Duration::from_secs(1);
/// A task keeps its deadline by itself. If it cannot, because its runtime is stuck, the caller waits for this much longer.
const GRACE: Duration = Duration::from_millis(2);

/// The limits of one policy, as this store charges them.
pub(crate) struct RedisLimits {
    charging: Arc<Charging>,
}

/// State for tasks that outlive their caller.
struct Charging {
    tasks: Arc<StoreTasks>,
    limits: LimitSet,
}

impl fmt::Debug for RedisLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLimits").finish_non_exhaustive()
    }
}

/// A group of charges and its reply.
struct GroupResult {
    group: ChargeGroup,
    reply: Result<GroupReply, StoreFault>,
}

impl GroupResult {
    fn taken(&self) -> Option<&GroupReply> {
        self.reply.as_ref().ok().filter(|reply| reply.took)
    }

    /// Whether its own limits let the request pass. A peek takes nothing and may pass all the same.
    fn passes(&self, request: &SharedRequest) -> bool {
        let Ok(reply) = &self.reply else {
            return false;
        };
        let mut outcomes = charges(request, &self.group).zip(&reply.outcomes);
        outcomes.all(|(charge, outcome)| !charge.enforced || outcome.verdict.is_admitted())
    }
}

/// The charges of a group.
fn charges<'a>(
    request: &'a SharedRequest,
    group: &'a ChargeGroup,
) -> impl Iterator<Item = &'a SharedCharge> {
    let places = group.charges.iter();
    places.filter_map(|place| request.charges.get(*place))
}

impl RedisLimits {
    pub(crate) fn new(tasks: Arc<StoreTasks>, limits: LimitSet) -> RedisLimits {
        RedisLimits {
            charging: Arc::new(Charging { tasks, limits }),
        }
    }

    fn deadline(&self, start: Instant) -> Instant {
        start + self.charging.store().context.settings().deadline
    }

    async fn decide(
        &self,
        request: &SharedRequest,
        deadline: Instant,
    ) -> Result<Vec<SharedOutcome>, StoreFault> {
        let charging = &self.charging;
        let by_slot = charging.store().routes.by_slot();
        let mut groups = charging.limits.groups(request, by_slot);
        // One script is all or none by itself, whether the caller waits for its reply or not.
        if let [group] = groups.as_slice() {
            match charging.send(request, group, deadline).await {
                Ok(reply) => return Ok(in_order(request, [(group, &reply)])),
                Err(SendError::Fault(fault)) => return Err(fault),
                Err(SendError::SplitKeys { ran }) => {
                    groups = charging.split(request, group, &ran)?;
                }
            }
        }
        let (charging, request) = (charging.clone(), request.clone());
        let decision = async move { charging.decide_all(&request, groups, deadline).await };
        self.run_to_end(decision, deadline).await
    }

    /// Runs it on the runtime of the store, to its end, even if the caller leaves.
    async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreFault>> + Send + 'static,
        deadline: Instant,
    ) -> Result<T, StoreFault> {
        let store = self.charging.store();
        let Some(task) = store.spawn(&store.decisions, work) else {
            let message = "too many requests of several parts are in flight";
            return Err(StoreFault::new(FaultKind::Busy, message));
        };
        match timeout_at(deadline + GRACE, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreFault::new(
                FaultKind::Unable,
                "the task was aborted: this process is shutting down",
            )),
            Err(_) => Err(StoreFault::new(
                FaultKind::Late,
                "the runtime does not run the tasks of the store",
            )),
        }
    }
}

impl Charging {
    fn store(&self) -> &Arc<StoreInner> {
        &self.tasks.inner
    }

    /// Decides groups in several slots: all or none.
    async fn decide_all(
        &self,
        request: &SharedRequest,
        mut groups: Vec<ChargeGroup>,
        deadline: Instant,
    ) -> Result<Vec<SharedOutcome>, StoreFault> {
        let counted: Vec<ChargeGroup> = groups
            .extract_if(.., |group| !is_enforced(request, group))
            .collect();
        let results = self.send_all(request, groups, deadline).await;
        let fault = results
            .iter()
            .find_map(|result| result.reply.as_ref().err());
        let passes = results.iter().all(|result| result.passes(request));
        if !passes {
            for result in &results {
                if let Some(reply) = result.taken() {
                    self.refund(request, &result.group, reply);
                }
            }
        }
        if let Some(fault) = fault {
            return Err(fault.clone());
        }
        let counted = self.count(request, counted, passes, deadline).await;
        let replies = results.iter().chain(&counted).filter_map(|result| {
            let reply = result.reply.as_ref().ok()?;
            Some((&result.group, reply))
        });
        let mut outcomes = in_order(request, replies);
        if !passes && request.take {
            // Refunded charges are reported as if they had not been taken.
            for result in results.iter().filter(|result| result.taken().is_some()) {
                for place in &result.group.charges {
                    let charge = request.charges.get(*place);
                    if let (Some(charge), Some(outcome)) = (charge, outcomes.get_mut(*place))
                        && outcome.verdict.is_admitted()
                    {
                        let remaining = &mut outcome.status.remaining;
                        *remaining = remaining.saturating_add(charge.cost);
                    }
                }
            }
        }
        Ok(outcomes)
    }

    /// Sends charges that are only counted. They fail no request: one that is not answered in time passes.
    async fn count(
        &self,
        request: &SharedRequest,
        groups: Vec<ChargeGroup>,
        take: bool,
        deadline: Instant,
    ) -> Vec<GroupResult> {
        if take || !request.take || groups.is_empty() {
            return self.send_all(request, groups, deadline).await;
        }
        let peek = SharedRequest {
            take: false,
            ..request.clone()
        };
        let mut peeked = self.limits.groups(&peek, self.store().routes.by_slot());
        peeked.retain(|group| groups.iter().any(|other| other.charges == group.charges));
        self.send_all(&peek, peeked, deadline).await
    }

    /// Sends all groups at the same time. A group whose keys are on two servers is sent charge by charge.
    async fn send_all(
        &self,
        request: &SharedRequest,
        mut groups: Vec<ChargeGroup>,
        deadline: Instant,
    ) -> Vec<GroupResult> {
        let mut results = Vec::with_capacity(groups.len());
        // Twice at the most: a group of one charge is not split.
        while !groups.is_empty() {
            let sent = groups
                .iter()
                .map(|group| self.send(request, group, deadline));
            let replies = join_all(sent).await;
            let mut singles = Vec::new();
            for (group, reply) in groups.into_iter().zip(replies) {
                let reply = match reply {
                    Ok(reply) => Ok(reply),
                    Err(SendError::Fault(fault)) => Err(fault),
                    Err(SendError::SplitKeys { ran }) => match self.split(request, &group, &ran) {
                        Ok(split) => {
                            singles.extend(split);
                            continue;
                        }
                        Err(fault) => Err(fault),
                    },
                };
                results.push(GroupResult { group, reply });
            }
            groups = singles;
        }
        results
    }

    /// The same charges one by one, because their keys are on two servers. Of the calls before the deciding one, those that ran
    /// already are left out: a debt is charged once.
    ///
    /// # Errors
    /// There is only one charge.
    fn split(
        &self,
        request: &SharedRequest,
        group: &ChargeGroup,
        ran: &[usize],
    ) -> Result<Vec<ChargeGroup>, StoreFault> {
        if group.charges.len() < 2 {
            return Err(key_on_two_servers(group.slot));
        }
        let mut singles = self.limits.singles(request);
        singles.retain(|single| {
            let mut places = single.charges.iter();
            places.any(|place| group.charges.contains(place))
        });
        for done in ran.iter().filter_map(|place| group.calls.get(*place)) {
            remove_call(&mut singles, done);
        }
        Ok(singles)
    }

    async fn send(
        &self,
        request: &SharedRequest,
        group: &ChargeGroup,
        deadline: Instant,
    ) -> Result<GroupReply, SendError> {
        let replies = self
            .store()
            .send(group.slot, &group.calls, deadline)
            .await?;
        let reply = self.limits.read(request, group, &replies);
        let reply = reply.map_err(|error| self.bad_reply(group.slot, &error))?;
        if reply.disagrees {
            self.disagreement(request, group, &reply)?;
        }
        Ok(reply)
    }

    /// The script and the core's arithmetic decided differently, and either may be wrong. The units that the script took are
    /// refunded, and the request has no answer.
    fn disagreement(
        &self,
        request: &SharedRequest,
        group: &ChargeGroup,
        reply: &GroupReply,
    ) -> Result<(), StoreFault> {
        let context = &self.store().context;
        count(&context.counters.script_errors);
        let message = format!(
            "the script and this node decide differently on {}: check that all nodes run the same version and that no other \
             program writes below the key prefix",
            limits_of(group)
        );
        let server = self.store().routes.link(group.slot);
        let server = server.map_or_else(|_| String::new(), |link| link.address().to_string());
        let warnings = &context.warnings;
        warnings.raise_briefly("script-disagrees", &server, message.clone());
        if !is_enforced(request, group) {
            return Ok(());
        }
        let mut taken = reply.clone();
        for (charge, outcome) in charges(request, group).zip(&mut taken.outcomes) {
            if charge.enforced {
                outcome.verdict = Verdict::Pass;
            }
        }
        self.refund(request, group, &taken);
        Err(StoreFault::new(FaultKind::Garbled, message))
    }

    /// The script ran, and its reply cannot be read: other replies on this connection may be wrong, too.
    fn bad_reply(&self, slot: u16, error: &BadReply) -> StoreFault {
        let message = format!("bad reply of a script: {error}");
        if let Ok(link) = self.store().routes.link(slot) {
            link.mark_down(FaultKind::Garbled, &message);
        }
        count(&self.store().context.counters.script_errors);
        StoreFault::new(FaultKind::Garbled, message)
    }

    /// Refunds a group in the background.
    fn refund(&self, request: &SharedRequest, group: &ChargeGroup, reply: &GroupReply) {
        if !request.take {
            return;
        }
        let calls = self.limits.refunds(request, group, reply);
        if calls.is_empty() {
            return;
        }
        let (store, slot) = (self.store().clone(), group.slot);
        let refund = async move {
            let deadline = Instant::now() + REFUND_TIMEOUT;
            // One by one: the keys of a slot that is moving may be on two servers.
            for call in &calls {
                match store.send(slot, std::slice::from_ref(call), deadline).await {
                    Ok(_) => count(&store.context.counters.compensated),
                    Err(error) => not_refunded(&store, &error.to_string()),
                }
            }
        };
        if self.store().spawn(&self.store().refunds, refund).is_none() {
            not_refunded(self.store(), "too many refunds are in flight");
        }
    }

    async fn settle(&self, settle: &SharedSettle, deadline: Instant) -> Result<u64, StoreFault> {
        let (slot, calls) = self.limits.settle(settle);
        let replies = self.store().send(slot, &calls, deadline).await;
        let replies = replies.map_err(|error| match error {
            SendError::Fault(fault) => fault,
            SendError::SplitKeys { .. } => key_on_two_servers(slot),
        })?;
        let unpaid = self.limits.read_settle(&replies);
        unpaid.map_err(|error| self.bad_reply(slot, &error))
    }
}

impl SharedLimits for RedisLimits {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        Box::pin(async move {
            let start = Instant::now();
            let waited = Duration::from(request.waited);
            // If nothing of the deadline is left, the request fails at once.
            let deadline = self.deadline(start).checked_sub(waited).unwrap_or(start);
            let decided = self.decide(request, deadline).await;
            let counters = &self.charging.store().context.counters;
            match &decided {
                Ok(_) => counters.answered(start.elapsed()),
                Err(fault) => counters.failed(fault.kind),
            }
            decided
        })
    }

    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        Box::pin(async move {
            let deadline = self.deadline(Instant::now());
            let (charging, settle) = (self.charging.clone(), settle.clone());
            let settled = async move { charging.settle(&settle, deadline).await };
            self.run_to_end(settled, deadline).await
        })
    }

    fn forget<'a>(&'a self, limit: LimitId, key: &'a SharedKey) -> Answering<'a, ()> {
        Box::pin(async move {
            let deadline = Instant::now() + REFUND_TIMEOUT;
            for (slot, call) in self.charging.limits.forget(limit, key) {
                let sent = self.charging.store().send(slot, &[call], deadline).await;
                sent.map_err(|error| match error {
                    SendError::Fault(fault) => fault,
                    SendError::SplitKeys { .. } => key_on_two_servers(slot),
                })?;
            }
            Ok(())
        })
    }
}

/// One outcome for each charge. A charge without a reply is only counted, and passes.
fn in_order<'a>(
    request: &SharedRequest,
    replies: impl IntoIterator<Item = (&'a ChargeGroup, &'a GroupReply)>,
) -> Vec<SharedOutcome> {
    let neutral = SharedOutcome {
        verdict: Verdict::Pass,
        status: QuotaStatus::default(),
        issued: Moment::ORIGIN,
        unpaid: 0,
    };
    let mut outcomes = vec![neutral; request.charges.len()];
    for (group, reply) in replies {
        for (place, outcome) in group.charges.iter().zip(&reply.outcomes) {
            if let Some(target) = outcomes.get_mut(*place) {
                *target = *outcome;
            }
        }
    }
    outcomes
}

/// Whether one of its charges can refuse the request.
fn is_enforced(request: &SharedRequest, group: &ChargeGroup) -> bool {
    charges(request, group).any(|charge| charge.enforced)
}

/// Removes one call like this from the calls before a deciding one. Its arguments may differ, if the time is among them.
fn remove_call(singles: &mut [ChargeGroup], done: &ScriptCall) {
    for single in singles {
        let deciding = single.calls.len().saturating_sub(1);
        let is_same = |call: &ScriptCall| call.script == done.script && call.keys == done.keys;
        let mut before = single.calls.iter().take(deciding);
        if let Some(place) = before.position(is_same) {
            single.calls.remove(place);
            // The reply is lost, and with it the number of units without room.
            single.debts.clear();
            return;
        }
    }
}

fn key_on_two_servers(slot: u16) -> StoreFault {
    let message = format!("slot {slot} is moving, and this key is on two servers");
    StoreFault::new(FaultKind::Unable, message)
}

fn not_refunded(store: &StoreInner, why: &str) {
    let message = format!("units of a refused request stay taken: {why}");
    let warnings = &store.context.warnings;
    warnings.raise_briefly("refund-failed", "", message);
}

/// The limits of a group, by their names on the server and without the keys.
fn limits_of(group: &ChargeGroup) -> String {
    let mut limits: Vec<String> = Vec::new();
    for key in group.calls.last().iter().flat_map(|call| call.keys.iter()) {
        let limit = without_keys(&String::from_utf8_lossy(key));
        if !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    limits.join(", ")
}
