//! Several limits, one decision: all of them are charged or none.

use crate::algorithm::LimitError;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Origin};
use crate::key::Keyed;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::table::{MAX_CHARGES, ResolvedCharge, all_or_none};

/// Several limits that one request must pass together: all of them are charged, or none. Cheap to clone: clones
/// share the state.
///
/// ```
/// use tollgate::Gate;
///
/// let gate = Gate::with_limits(["10/s burst 20".parse()?, "1000/day".parse()?])?;
/// if !gate.check("rider:42").is_admitted() { /* respond with 429 */ }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Each limit can have a key and a cost of its own:
///
/// ```
/// use tollgate::{Gate, LimitId};
///
/// let gate = Gate::with_limits(["ip: 10/s burst 20".parse()?, "org: 100/s burst 200".parse()?])?;
/// let [per_ip, per_org] = [LimitId::new(0), LimitId::new(1)];
///
/// let admission = gate.admit(&[gate.charge(per_ip, "203.0.113.7", 1), gate.charge(per_org, "acme", 5)]);
/// assert!(admission.is_admitted());
/// assert_eq!(gate.limiter(admission.binding.unwrap()).limit().name(), "ip"); // the closest to refusing
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Two limits on one key make *burst credits*: here a client runs at 100/s for 30 s, then at 10/s, and earns the
/// burst back by idling. The one bucket bounds how long, the other how fast.
///
/// ```
/// use tollgate::{Gate, Limit};
///
/// let credit = Limit::token_bucket("10/s".parse()?, (100 - 10) * 30 + 10)?;
/// let gate = Gate::with_limits([credit, "100/s burst 10".parse()?])?;
/// assert!(gate.check("acme").is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gate<C = MonotonicClock> {
    clock: C,
    limiters: Vec<Limiter<C>>,
}

/// A limit of one gate.
///
/// ```
/// use tollgate::{Gate, LimitId};
///
/// let gate = Gate::with_limits(["user: 5/s".parse()?, "all: 100/s".parse()?])?;
/// assert_eq!(gate.limiter(LimitId::new(1)).limit().name(), "all");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(usize);

impl LimitId {
    /// The limit with this index. Limits are numbered in the order in which they were added.
    pub const fn new(index: usize) -> LimitId {
        LimitId(index)
    }

    /// Its index.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A charge of one limit: the key, by its hash, and the cost.
///
/// ```
/// use tollgate::{Gate, LimitId};
///
/// let gate = Gate::with_limits(["5/s".parse()?])?;
/// let charge = gate.charge(LimitId::new(0), "rider:42", 3);
/// assert_eq!(gate.admit(&[charge]).decision.remaining(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a charge takes nothing until `Gate::admit` gets it"]
pub struct LimitCharge {
    limit: LimitId,
    hash: u64,
    cost: u64,
    max: Option<u32>,
}

impl LimitCharge {
    /// A charge of `cost` on `limit` for the key with this hash ([`Limiter::key_hash`]).
    pub const fn new(limit: LimitId, hash: u64, cost: u64) -> LimitCharge {
        LimitCharge {
            limit,
            hash,
            cost,
            max: None,
        }
    }

    /// The same charge on a fixed window with room for at most `max`, for a number that comes with the request.
    pub const fn with_max(self, max: Option<u32>) -> LimitCharge {
        LimitCharge { max, ..self }
    }
}

/// The decision on a request.
///
/// ```
/// use tollgate::{Gate, LimitId};
///
/// let gate = Gate::with_limits(["5/s".parse()?, "100/s".parse()?])?;
/// let admission = gate.check("rider:42");
/// assert!(admission.is_admitted());
/// assert_eq!(admission.binding, Some(LimitId::new(0)));
/// assert_eq!(admission.decision.remaining(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request that is not admitted must not continue"]
pub struct Admission {
    /// What happens to the request, with the numbers of the binding limit.
    pub decision: Decision,
    /// The limit that refused, or else the one closest to refusing; none if there was nothing to charge.
    pub binding: Option<LimitId>,
}

impl Admission {
    /// Was the request admitted, now or after its delay?
    pub const fn is_admitted(&self) -> bool {
        self.decision.is_admitted()
    }
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new()
    }
}

impl Gate {
    /// A gate without limits, on the system's monotonic clock.
    pub fn new() -> Gate {
        Gate::with_clock(MonotonicClock::new())
    }

    /// A gate with these limits, on the system's monotonic clock. They are numbered in this order, from 0.
    ///
    /// # Errors
    /// As [`Limiter::new`].
    pub fn with_limits(limits: impl IntoIterator<Item = Limit>) -> Result<Gate, LimitError> {
        let mut gate = Gate::new();
        for limit in limits {
            gate.add(limit)?;
        }
        Ok(gate)
    }
}

impl<C: Clock> Gate<C> {
    /// A gate without limits, on this clock.
    pub fn with_clock(clock: C) -> Gate<C> {
        Gate {
            clock,
            limiters: Vec::new(),
        }
    }

    /// Adds a limit.
    ///
    /// # Errors
    /// As [`Limiter::new`].
    pub fn add(&mut self, limit: Limit) -> Result<LimitId, LimitError> {
        let limiter = Limiter::with_clock(limit, self.clock.clone())?;
        self.limiters.push(limiter);
        Ok(LimitId(self.limiters.len() - 1))
    }

    /// Adds an existing limiter, which keeps its state.
    pub fn adopt(&mut self, limiter: Limiter<C>) -> LimitId {
        self.limiters.push(limiter);
        LimitId(self.limiters.len() - 1)
    }

    /// The limiter of a limit, to peek, settle or change it.
    ///
    /// # Panics
    /// The limit is of another gate: a mistake in the program, not in its input.
    pub fn limiter(&self, limit: LimitId) -> &Limiter<C> {
        &self.limiters[limit.0]
    }

    /// A charge of `cost` on `limit` for `key`.
    ///
    /// # Panics
    /// The limit is of another gate: a mistake in the program, not in its input.
    #[inline]
    pub fn charge<K: Keyed + ?Sized>(&self, limit: LimitId, key: &K, cost: u64) -> LimitCharge {
        LimitCharge::new(limit, self.limiter(limit).key_hash(key), cost)
    }

    /// Takes one unit of every limit for `key`, or nothing. A refused request leaves no trace.
    ///
    /// At most [`MAX_CHARGES`] limits decide one request: see [`Gate::admit`].
    pub fn check<K: Keyed + ?Sized>(&self, key: &K) -> Admission {
        let mut charges = [LimitCharge::default(); MAX_CHARGES + 1];
        let count = self.limiters.len().min(charges.len());
        for (at, charge) in charges.iter_mut().take(count).enumerate() {
            *charge = self.charge(LimitId(at), key, 1);
        }
        self.admit(charges.get(..count).unwrap_or(&charges))
    }

    /// Takes all of `charges` or none of them. A refused request leaves no trace.
    ///
    /// At most [`MAX_CHARGES`] charges can be taken together. A request with more is refused as
    /// [`crate::Verdict::Never`], because otherwise the rest would go unpaid.
    pub fn admit(&self, charges: &[LimitCharge]) -> Admission {
        // Usually few; room for many is made only if it is needed.
        let few = self.admit_within::<4>(charges);
        let admission = few.or_else(|| self.admit_within::<MAX_CHARGES>(charges));
        admission.unwrap_or_else(|| self.too_many(charges))
    }

    /// Takes all charges if they are at most `N` and of this gate.
    #[inline(always)]
    fn admit_within<const N: usize>(&self, charges: &[LimitCharge]) -> Option<Admission> {
        let Some(first) = self.limiters.first().filter(|_| !charges.is_empty()) else {
            return charges.is_empty().then(|| Admission {
                decision: Decision::unlimited(self.clock.now()),
                binding: None,
            });
        };
        // The initial contents are never read.
        let mut resolved = [ResolvedCharge {
            table: first.table(),
            hash: 0,
            cost: 0,
            max: None,
        }; N];
        for (at, charge) in charges.iter().enumerate() {
            *resolved.get_mut(at)? = ResolvedCharge {
                table: self.limiters.get(charge.limit.0)?.table(),
                hash: charge.hash,
                cost: charge.cost,
                max: charge.max,
            };
        }
        let outcome = all_or_none(resolved.get(..charges.len())?, &self.clock);
        Some(Admission {
            decision: outcome.decision,
            binding: charges.get(outcome.binding).map(|charge| charge.limit),
        })
    }

    #[cold]
    fn too_many(&self, charges: &[LimitCharge]) -> Admission {
        let mut decision = Decision::unlimited(self.clock.now());
        decision.verdict = crate::Verdict::Never;
        decision.status.remaining = 0;
        decision.origin = Origin::Fresh;
        Admission {
            decision,
            binding: charges.last().map(|charge| charge.limit),
        }
    }
}
