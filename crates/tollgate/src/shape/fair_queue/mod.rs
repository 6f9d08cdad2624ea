//! Start-time fair queuing, SFQ(D): who goes next when only `D` may run at once.
//!
//! # Theory
//!
//! Each flow `f` has a weight `w` and remembers one number, the *finish tag* `F` of what it last
//! sent; the queue has one virtual time `V`. All start at 0. Of the waiting items of a flow only the
//! oldest, its *head*, has a *start tag* `S`:
//!
//! ```text
//! an item becomes head:   S = max(V, F)
//! dispatch:               if running < D, take the head with the least (S, seq)
//!                         V = S;  F = S + cost/w
//! complete with actual:   F = F + (actual - cost)/w, and the head of f is tagged anew
//! nothing queued, nothing running:   V = 0, every F = 0
//! ```
//!
//! Tagging only heads gives the same order as tagging on arrival (within a backlogged flow
//! `V <= F`, so each next `S` is the previous `F`), and lets a cost that is known only afterwards
//! count against the very next item of its flow.
//!
//! Tags are integers, `ceil(cost * 2^32 / weight)` per item. The rounding makes a flow seem at most
//! `2^-32` more expensive per item; it never makes one cheaper.
//!
//! # Invariant
//!
//! Every head has `V <= S <= V + c/w`, with `c` the largest cost of its flow. A flow that stays
//! backlogged moves its `S` by exactly `cost/w` per dispatch, so over **any** stretch of time in which
//! flows `f` and `g` both stay backlogged their dispatched work differs by at most
//!
//! ```text
//! | work_f/w_f - work_g/w_g |  <=  c_f/w_f + c_g/w_g
//! ```
//!
//! whatever the others do and however fast the backend is. (Costs corrected by [`complete`] shift it
//! by the corrections, which is their purpose.) A flow that used idle capacity owes nothing for
//! it: `V` is where the backlogged flows are, and a flow starts there, neither behind nor ahead.
//!
//! # Bounds
//!
//! - At most `max_queued_total` items wait, at most `max_queued_per_flow` of one flow, and at most
//!   `depth` run.
//! - A flow has state while it has something queued or running, and after that while `F > V`, because
//!   forgetting it earlier would let it come back for free. Strangers could grow this last kind
//!   without end (each new flow starts at `V` and so does not move it), so at most
//!   `max_queued_total + depth` are kept, and the one least ahead is forgiven first. Hence at most
//!   `2 * (max_queued_total + depth)` flows have state. Forgiving never touches a flow with work in
//!   the queue, so the invariant above stands; whoever owns that many flow names starts at `V` with
//!   each of them anyway.
//! - Every operation is `O(log flows)`, and [`cancel`] adds the queue of that one flow. Tags are kept
//!   below `2^63` by subtracting `V` from all of them, `O(flows)`, once per `2^30` units of
//!   cost/weight of virtual time; falling idle clears them too.
//! - A correction never puts a flow more than `2^30` units of cost/weight ahead of `V`.
//!
//! # Why not deficit round robin or a wall clock
//!
//! Deficit round robin is `O(1)`, but a flow's turn comes as a burst of a whole quantum, and a quantum
//! must be at least the largest cost. WF²Q+ bounds delay better but needs the backend's rate, which
//! for an API nobody knows. Tagging with wall time instead of `V` is fair only if the backend happens
//! to serve one unit of cost/weight per second: if it is faster, idle capacity used becomes a debt;
//! if it is slower, weights stop mattering.
//!
//! This module knows nothing of clocks, threads, wakers or connections. A caller that has to wait
//! keeps its waker in the item.
//!
//! [`complete`]: FairQueue::complete
//! [`cancel`]: FairQueue::cancel

#![deny(clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::hash::Hash;

/// One unit of cost at weight 1, in tags.
const TAG_SHIFT: u32 = 32;

/// The most units of cost per unit of weight that one item may ask for.
///
/// It bounds one item's step of the tags to `2^60`, so that a tag always fits in 64 bits.
pub const MAX_COST_PER_WEIGHT: u64 = 1 << 28;

/// The largest step one item may make.
const MAX_STEP: u64 = MAX_COST_PER_WEIGHT << TAG_SHIFT;

/// How far ahead of `V` a finish tag may be: four of the largest items.
const MAX_LEAD: u64 = 1 << 62;

/// Tags are shifted down when `V` reaches this. `V + MAX_LEAD` then always fits.
const REBASE_AT: u64 = 1 << 62;

/// A queue of items `T` that is fair between flows `F`. See the [module](self) for the rules.
#[derive(Debug)]
pub struct FairQueue<F, T> {
    config: FairQueueConfig,
    /// The virtual time: the start tag of the last item dispatched.
    now: u64,
    last_seq: u64,
    last_id: u64,
    ids: HashMap<F, FlowId>,
    flows: HashMap<FlowId, Flow<F, T>>,
    /// The oldest item of each flow that has one, by start tag, then by arrival.
    heads: BTreeMap<(u64, u64), FlowId>,
    /// Flows with something queued, by queued cost/weight, so that the largest is the last.
    loads: BTreeSet<(u128, FlowId)>,
    /// Flows with nothing queued or running that are still ahead of `now`, the least ahead first.
    ahead: BTreeSet<(u64, FlowId)>,
    /// Which flow a queued ticket belongs to.
    waiting: HashMap<u64, FlowId>,
    running: HashMap<u64, Running>,
}

/// A flow's name inside the queue: never reused, so an old one can only miss.
type FlowId = u64;

#[derive(Debug)]
struct Flow<F, T> {
    name: F,
    /// Finish tag of what was last dispatched. The waiting items are not in it.
    finish: u64,
    /// Start tag under which the first of `queue` stands in `heads`. Stale while `queue` is empty.
    head_tag: u64,
    /// Oldest first, so in order of `seq`.
    queue: VecDeque<Queued<T>>,
    queued_cost: u128,
    /// The sum of the steps of `queue`: its queued cost/weight.
    load: u128,
    running: usize,
}

#[derive(Debug)]
struct Queued<T> {
    seq: u64,
    cost: u64,
    weight: u64,
    /// What dispatching this adds to the flow's finish tag.
    step: u64,
    item: T,
}

#[derive(Debug)]
struct Running {
    flow: FlowId,
    weight: u64,
    /// What dispatching it added to the flow's finish tag.
    step: u64,
}

/// How many may run and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairQueueConfig {
    /// How many items may be dispatched and not completed: the backend's concurrency.
    pub depth: usize,
    /// How many items of one flow may wait.
    pub max_queued_per_flow: usize,
    /// How many items may wait in all.
    pub max_queued_total: usize,
}

/// Names one enqueued item until it is completed, cancelled or displaced. Earlier arrivals compare
/// less; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The arrival number.
    pub fn seq(self) -> u64 {
        self.0
    }
}

/// An item that was taken into the queue.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a displaced item is somebody's request: refuse it"]
pub struct Enqueued<F, T> {
    /// The item's name from now on.
    pub ticket: Ticket,
    /// The item that had to leave to make room, if the queue was full.
    pub displaced: Option<Displaced<F, T>>,
}

/// A queued item that lost its place to one of a flow that had less queued.
#[derive(Debug, PartialEq, Eq)]
pub struct Displaced<F, T> {
    /// Its name until now; it means nothing to the queue any more.
    pub ticket: Ticket,
    /// The flow that had the most queued cost/weight.
    pub flow: F,
    /// What was enqueued.
    pub item: T,
    /// The cost it was enqueued with.
    pub cost: u64,
}

/// An item whose turn has come. [`FairQueue::complete`] must follow, or its place is never free again.
#[derive(Debug, PartialEq, Eq)]
pub struct Dispatched<F, T> {
    /// What to complete it by.
    pub ticket: Ticket,
    /// Whose it is.
    pub flow: F,
    /// What was enqueued.
    pub item: T,
    /// The cost it was enqueued with.
    pub cost: u64,
}

impl<F, T> FairQueue<F, T>
where
    F: Clone + Eq + Hash,
{
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// When one of the three numbers is 0: such a queue would never let anything through.
    pub fn new(config: FairQueueConfig) -> Result<Self, FairQueueError> {
        if config.depth == 0 {
            return Err(FairQueueError::ZeroDepth);
        }
        if config.max_queued_per_flow == 0 {
            return Err(FairQueueError::ZeroQueuedPerFlow);
        }
        if config.max_queued_total == 0 {
            return Err(FairQueueError::ZeroQueuedTotal);
        }
        Ok(Self {
            config,
            now: 0,
            last_seq: 0,
            last_id: 0,
            ids: HashMap::new(),
            flows: HashMap::new(),
            heads: BTreeMap::new(),
            loads: BTreeSet::new(),
            ahead: BTreeSet::new(),
            waiting: HashMap::new(),
            running: HashMap::new(),
        })
    }

    /// Puts an item at the end of its flow's queue.
    ///
    /// When the queue is full in total, the flow with the largest queued cost/weight pays: if that
    /// is this flow, counting the arrival (or it is a tie), the arrival is refused; otherwise the
    /// newest item of the largest flow leaves and comes back as [`Enqueued::displaced`].
    ///
    /// `weight` holds for this item; a flow whose weight changes keeps the old one for what it
    /// already queued.
    ///
    /// # Errors
    ///
    /// [`Rejected`] gives the item back, and nothing has changed. Cost 0 is refused because it moves
    /// no tag: a flow of such items would go first forever.
    pub fn enqueue(
        &mut self,
        flow: F,
        weight: u64,
        cost: u64,
        item: T,
    ) -> Result<Enqueued<F, T>, Rejected<T>> {
        let step = match self.admit(&flow, weight, cost) {
            Ok(step) => step,
            Err(reason) => return Err(Rejected { item, reason }),
        };
        let displaced = if self.waiting.len() >= self.config.max_queued_total {
            self.displace()
        } else {
            None
        };

        let id = self.id_of(flow);
        self.last_seq = self.last_seq.wrapping_add(1);
        let seq = self.last_seq;
        if let Some(state) = self.flows.get_mut(&id) {
            self.ahead.remove(&(state.finish, id));
            self.loads.remove(&(state.load, id));
            state.load += u128::from(step);
            state.queued_cost += u128::from(cost);
            self.loads.insert((state.load, id));
            state.queue.push_back(Queued {
                seq,
                cost,
                weight,
                step,
                item,
            });
            self.waiting.insert(seq, id);
            if state.queue.len() == 1 {
                Self::tag_head(&mut self.heads, self.now, id, state);
            }
        }
        Ok(Enqueued {
            ticket: Ticket(seq),
            displaced,
        })
    }

    /// The next item, if one waits and a place is free.
    pub fn dispatch(&mut self) -> Option<Dispatched<F, T>> {
        if self.running.len() >= self.config.depth {
            return None;
        }
        let ((tag, _), id) = self.heads.pop_first()?;
        let state = self.flows.get_mut(&id)?;
        let queued = state.queue.pop_front()?;
        self.waiting.remove(&queued.seq);
        self.loads.remove(&(state.load, id));
        state.load = state.load.saturating_sub(u128::from(queued.step));
        state.queued_cost = state.queued_cost.saturating_sub(u128::from(queued.cost));
        state.running += 1;
        self.now = tag;
        state.finish = tag.saturating_add(queued.step);
        if !state.queue.is_empty() {
            self.loads.insert((state.load, id));
            Self::tag_head(&mut self.heads, self.now, id, state);
        }
        self.running.insert(
            queued.seq,
            Running {
                flow: id,
                weight: queued.weight,
                step: queued.step,
            },
        );
        let dispatched = Dispatched {
            ticket: Ticket(queued.seq),
            flow: state.name.clone(),
            item: queued.item,
            cost: queued.cost,
        };
        self.forget_overtaken();
        if self.now >= REBASE_AT {
            self.rebase();
        }
        Some(dispatched)
    }

    /// Frees the place of a dispatched item and corrects its flow's tag to the cost it really had.
    ///
    /// `false` if no such item is running; then nothing changes, so completing twice is harmless. An
    /// `actual_cost` of 0 gives the whole cost back.
    pub fn complete(&mut self, ticket: Ticket, actual_cost: u64) -> bool {
        let Some(done) = self.running.remove(&ticket.0) else {
            return false;
        };
        if let Some(state) = self.flows.get_mut(&done.flow) {
            state.running = state.running.saturating_sub(1);
            let actual = step_of(actual_cost, done.weight).min(MAX_LEAD);
            state.finish = if actual >= done.step {
                let latest = self.now.saturating_add(MAX_LEAD);
                state.finish.saturating_add(actual - done.step).min(latest)
            } else {
                state.finish.saturating_sub(done.step - actual)
            };
            if let Some(head) = state.queue.front() {
                self.heads.remove(&(state.head_tag, head.seq));
                Self::tag_head(&mut self.heads, self.now, done.flow, state);
            }
        }
        self.settle(done.flow);
        true
    }

    /// Takes a queued item out, for a client that went away; the rest of its flow moves up.
    ///
    /// `None` if no such item is queued: it was dispatched, displaced or cancelled before.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let id = *self.waiting.get(&ticket.0)?;
        let at = self
            .flows
            .get(&id)?
            .queue
            .binary_search_by_key(&ticket.0, |queued| queued.seq)
            .ok()?;
        let queued = self.take(id, at)?;
        self.settle(id);
        Some(queued.item)
    }

    /// What this queue was built with.
    pub fn config(&self) -> FairQueueConfig {
        self.config
    }

    /// How many items wait.
    pub fn queued(&self) -> usize {
        self.waiting.len()
    }

    /// How many items are dispatched and not completed.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many items of this flow wait.
    pub fn queued_of(&self, flow: &F) -> usize {
        self.state_of(flow).map_or(0, |state| state.queue.len())
    }

    /// The cost of all waiting items of this flow, as [`ShuffleShard::shortest`] wants it.
    ///
    /// [`ShuffleShard::shortest`]: super::shuffle::ShuffleShard::shortest
    pub fn queued_cost_of(&self, flow: &F) -> u128 {
        self.state_of(flow).map_or(0, |state| state.queued_cost)
    }

    /// How many flows have state: at most `2 * (max_queued_total + depth)`.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The virtual time `V`, in units of `2^-32` cost/weight.
    ///
    /// It grows while the queue is busy, except that it goes back to 0 when the queue falls idle or
    /// all tags are shifted down together. Compare it only for curiosity.
    pub fn virtual_time(&self) -> u64 {
        self.now
    }

    /// Decides whether an arrival may have a place, and how far it will move its flow's tag.
    fn admit(&self, flow: &F, weight: u64, cost: u64) -> Result<u64, RejectReason> {
        if weight == 0 {
            return Err(RejectReason::ZeroWeight);
        }
        if cost == 0 {
            return Err(RejectReason::ZeroCost);
        }
        let step = step_of(cost, weight);
        if step > MAX_STEP {
            return Err(RejectReason::CostAboveMax {
                cost,
                max: weight.saturating_mul(MAX_COST_PER_WEIGHT),
            });
        }
        let id = self.ids.get(flow);
        let state = id.and_then(|id| self.flows.get(id));
        let max = self.config.max_queued_per_flow;
        if state.is_some_and(|state| state.queue.len() >= max) {
            return Err(RejectReason::FlowFull { max });
        }
        let max = self.config.max_queued_total;
        if self.waiting.len() >= max {
            let load = state.map_or(0, |state| state.load) + u128::from(step);
            let spares_another = self
                .loads
                .last()
                .is_some_and(|(largest, owner)| id != Some(owner) && *largest > load);
            if !spares_another {
                return Err(RejectReason::TotalFull { max });
            }
        }
        Ok(step)
    }

    /// Takes the newest item from the flow with the largest queued cost/weight.
    fn displace(&mut self) -> Option<Displaced<F, T>> {
        let &(_, id) = self.loads.last()?;
        let state = self.flows.get(&id)?;
        let flow = state.name.clone();
        let newest = state.queue.len().checked_sub(1)?;
        let queued = self.take(id, newest)?;
        // Not `settle`: the arrival that caused this is about to be queued, so nothing is idle.
        self.retire(id);
        Some(Displaced {
            ticket: Ticket(queued.seq),
            flow,
            item: queued.item,
            cost: queued.cost,
        })
    }

    /// Takes the item at `at` out of a flow's queue. If it was the head, the next one inherits.
    fn take(&mut self, id: FlowId, at: usize) -> Option<Queued<T>> {
        let state = self.flows.get_mut(&id)?;
        let queued = state.queue.remove(at)?;
        self.waiting.remove(&queued.seq);
        self.loads.remove(&(state.load, id));
        state.load = state.load.saturating_sub(u128::from(queued.step));
        state.queued_cost = state.queued_cost.saturating_sub(u128::from(queued.cost));
        if at == 0 {
            self.heads.remove(&(state.head_tag, queued.seq));
        }
        if !state.queue.is_empty() {
            self.loads.insert((state.load, id));
            if at == 0 {
                Self::tag_head(&mut self.heads, self.now, id, state);
            }
        }
        Some(queued)
    }

    /// Gives the head of a flow its start tag.
    ///
    /// Doing so again without a change of `finish` gives the same tag: a head is never behind `V`, so
    /// if it once started at `V`, then `V` has not moved since.
    fn tag_head(
        heads: &mut BTreeMap<(u64, u64), FlowId>,
        now: u64,
        id: FlowId,
        state: &mut Flow<F, T>,
    ) {
        if let Some(head) = state.queue.front() {
            state.head_tag = state.finish.max(now);
            heads.insert((state.head_tag, head.seq), id);
        }
    }

    fn id_of(&mut self, flow: F) -> FlowId {
        if let Some(id) = self.ids.get(&flow) {
            return *id;
        }
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        self.flows.insert(
            id,
            Flow {
                name: flow.clone(),
                finish: 0,
                head_tag: 0,
                queue: VecDeque::new(),
                queued_cost: 0,
                load: 0,
                running: 0,
            },
        );
        self.ids.insert(flow, id);
        id
    }

    fn state_of(&self, flow: &F) -> Option<&Flow<F, T>> {
        self.ids.get(flow).and_then(|id| self.flows.get(id))
    }

    /// After something left: starts over if nothing is left at all, or else retires the flow.
    fn settle(&mut self, id: FlowId) {
        if self.waiting.is_empty() && self.running.is_empty() {
            self.now = 0;
            self.ids.clear();
            self.flows.clear();
            self.ahead.clear();
        } else {
            self.retire(id);
        }
    }

    /// Drops the state of a flow that has no work and is not ahead, or sets it aside until it is not.
    fn retire(&mut self, id: FlowId) {
        let Some(state) = self.flows.get(&id) else {
            return;
        };
        if !state.queue.is_empty() || state.running > 0 {
            return;
        }
        if state.finish <= self.now {
            self.forget(id);
            return;
        }
        self.ahead.insert((state.finish, id));
        let most = self
            .config
            .max_queued_total
            .saturating_add(self.config.depth);
        if self.ahead.len() > most
            && let Some((_, least)) = self.ahead.pop_first()
        {
            self.forget(least);
        }
    }

    /// Drops the flows without work that the virtual time has caught up with.
    fn forget_overtaken(&mut self) {
        while let Some(&(finish, id)) = self.ahead.first() {
            if finish > self.now {
                break;
            }
            self.ahead.pop_first();
            self.forget(id);
        }
    }

    fn forget(&mut self, id: FlowId) {
        if let Some(state) = self.flows.remove(&id) {
            self.ids.remove(&state.name);
        }
    }

    /// Subtracts `V` from every tag. Differences, and so the order, stay; a finish tag that was
    /// behind `V` becomes equal to it, which means the same to the next item of its flow.
    fn rebase(&mut self) {
        let by = self.now;
        self.now = 0;
        for state in self.flows.values_mut() {
            state.finish = state.finish.saturating_sub(by);
            state.head_tag = state.head_tag.saturating_sub(by);
        }
        self.heads = std::mem::take(&mut self.heads)
            .into_iter()
            .map(|((tag, seq), id)| ((tag.saturating_sub(by), seq), id))
            .collect();
        self.ahead = std::mem::take(&mut self.ahead)
            .into_iter()
            .map(|(finish, id)| (finish.saturating_sub(by), id))
            .collect();
    }
}

/// `ceil(cost * 2^32 / weight)`, or the largest number if that does not fit.
///
/// Rounded up: rounded down, a heavy enough flow would pay nothing and go first forever.
fn step_of(cost: u64, weight: u64) -> u64 {
    // 64 bits shifted by 32 fit in 96, so nothing is lost. Weight 0 was refused on arrival.
    let scaled = u128::from(cost) << TAG_SHIFT;
    let step = scaled.div_ceil(u128::from(weight.max(1)));
    u64::try_from(step).unwrap_or(u64::MAX)
}

/// An item that was not taken, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// What was to be enqueued.
    pub item: T,
    /// Why it was not.
    pub reason: RejectReason,
}

impl<T> Rejected<T> {
    /// What can be done about it, in one imperative sentence.
    pub fn hint(&self) -> String {
        self.reason.hint()
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T: fmt::Debug> Error for Rejected<T> {}

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// Its flow has as many items waiting as one flow may.
    FlowFull {
        /// How many one flow may have waiting.
        max: usize,
    },
    /// The queue is full, and no other flow has more queued cost/weight than this one would.
    TotalFull {
        /// How many may wait in all.
        max: usize,
    },
    /// A share of nothing would wait forever.
    ZeroWeight,
    /// An item that costs nothing would move no tag, and its flow would go first forever.
    ZeroCost,
    /// The cost is beyond [`MAX_COST_PER_WEIGHT`] for this weight.
    CostAboveMax {
        /// The cost asked for.
        cost: u64,
        /// The most this weight may ask for.
        max: u64,
    },
}

impl RejectReason {
    /// What can be done about it, in one imperative sentence.
    pub fn hint(&self) -> String {
        match self {
            Self::FlowFull { .. } => {
                "refuse the request and let the client retry later, or raise `max_queued_per_flow`"
                    .into()
            }
            Self::TotalFull { .. } => {
                "refuse the request and let the client retry later, or raise `max_queued_total`"
                    .into()
            }
            Self::ZeroWeight => {
                "give the flow a `weight` of at least 1; to block it, deny it before the queue"
                    .into()
            }
            Self::ZeroCost => {
                "charge at least 1, or let requests that cost nothing pass beside the queue".into()
            }
            Self::CostAboveMax { .. } => {
                "count cost in a larger unit (KiB instead of bytes), or scale all weights up".into()
            }
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FlowFull { max } => {
                write!(
                    f,
                    "this flow already has {max} waiting, the most one flow may"
                )
            }
            Self::TotalFull { max } => write!(
                f,
                "{max} are waiting, the most there may be, and no flow has more queued than this one"
            ),
            Self::ZeroWeight => write!(f, "`weight` is 0, so the item would wait forever"),
            Self::ZeroCost => {
                write!(f, "`cost` is 0, so this flow would go first forever")
            }
            Self::CostAboveMax { cost, max } => {
                write!(
                    f,
                    "`cost` is {cost}, but this weight may ask for at most {max}"
                )
            }
        }
    }
}

impl Error for RejectReason {}

/// Why a queue cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FairQueueError {
    /// Nothing could ever run.
    ZeroDepth,
    /// No flow could ever wait, and every item waits, if only for a moment.
    ZeroQueuedPerFlow,
    /// Nothing could ever wait, and every item waits, if only for a moment.
    ZeroQueuedTotal,
}

impl FairQueueError {
    /// What the operator can do now, in one imperative sentence.
    pub fn hint(&self) -> String {
        match self {
            Self::ZeroDepth => {
                "set `depth` to the number of requests the backend serves at once".into()
            }
            Self::ZeroQueuedPerFlow => "set `max_queued_per_flow` to at least 1".into(),
            Self::ZeroQueuedTotal => "set `max_queued_total` to at least 1".into(),
        }
    }
}

impl fmt::Display for FairQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroDepth => write!(f, "`depth` is 0, so nothing would ever run"),
            Self::ZeroQueuedPerFlow => write!(
                f,
                "`max_queued_per_flow` is 0, so every request would be refused"
            ),
            Self::ZeroQueuedTotal => write!(
                f,
                "`max_queued_total` is 0, so every request would be refused"
            ),
        }
    }
}

impl Error for FairQueueError {}

#[cfg(test)]
mod tests;
