//! A policy as a value: what was resolved from a file, or put together by a program.
//!
//! Everything here was checked by whoever made it: names are unique, numbers make limits, patterns are
//! read. It does not know live state; [`super::PolicyGate`] gives it some.

use std::fmt;
use std::sync::Arc;

use super::address::{CidrSet, Proxies};
use super::burst_credits::BurstCredits;
use super::limit_override::OverridePolicy;
use super::path::PathRules;
use super::pattern::{PathPattern, TextPattern};
use super::pressure::PressureRule;
use super::queue::QueueRule;
use tollgate::Limit;
use tollgate::Periods;
use tollgate::{Moment, Span};

/// Which limits there are, for whom, and what happens to everyone else.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The limits. All that match a request are charged together, or none.
    pub limits: Vec<LimitRule>,
    /// Who is never limited. Asked before everything but `deny`.
    pub allow: Vec<ListRule>,
    /// Who is always refused. Asked first.
    pub deny: Vec<ListRule>,
    /// What happens to a request that no limit matches.
    pub default: DefaultAction,
    /// How paths are made comparable.
    pub paths: PathRules,
    /// Whose word about the client's address is taken.
    pub proxies: Proxies,
    /// What answers look like.
    pub answers: AnswerStyle,
    /// May keys be shown in logs and to operators as they are?
    pub privacy: Privacy,
    /// Where requests wait that no limit refused. The first that matches is the one.
    pub queues: Vec<QueueRule>,
    /// When everybody is to have less for a while.
    pub pressure: Option<PressureRule>,
    /// Where limits that requests bring along are followed; nowhere unless it is said.
    pub follow: Option<OverridePolicy>,
}

/// What happens to a request that no limit matches.
#[derive(Clone, Debug, Default)]
pub enum DefaultAction {
    /// It passes; nobody said that it should, so it is counted apart.
    #[default]
    Unset,
    /// It passes.
    Pass,
    /// It is refused.
    Refuse,
    /// It is charged to this limit.
    Limit(Box<LimitRule>),
}

/// One limit and whom it is for.
#[derive(Clone, Debug)]
pub struct LimitRule {
    /// Its name: unique, letters, digits, `-`, `_` and `.`.
    pub name: Arc<str>,
    /// Which requests it is for.
    pub matches: Match,
    /// Which of these it is not for.
    pub except: Vec<Match>,
    /// Limits, by their names, that are not charged where this one is.
    pub replaces: Vec<Arc<str>>,
    /// Who shares one allowance. Nothing: everybody shares one.
    pub key: Vec<KeyPart>,
    /// What happens if a part of the key is missing.
    pub missing_key: MissingKey,
    /// How much.
    pub quota: Quota,
    /// How much it would be: counted beside, never enforced.
    pub candidate: Option<Quota>,
    /// What a request takes.
    pub cost: CostRule,
    /// Other quotas for other classes of clients.
    pub tiers: Option<Tiers>,
    /// Other quotas for single keys.
    pub overrides: Vec<Override>,
    /// What a request takes that does not pass.
    pub when_over: WhenOver,
    /// What happens while a shared store gives no answer.
    pub on_store_error: OnStoreError,
    /// How nodes that share a store share this limit.
    pub sharing: Sharing,
    /// Is it enforced?
    pub mode: Mode,
    /// For which part of the keys it is enforced, in ten-thousandths; the rest is counted as in shadow.
    pub enforced: u32,
    /// From when on it does not apply any more.
    pub expires: Option<Moment>,
    /// Who answers for it.
    pub owner: Option<String>,
    /// Why it is there.
    pub reason: Option<String>,
}

/// How much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The limit; its name is that of the rule.
    pub limit: Limit,
    /// A second limit that is charged with it, all or none: it bounds how fast the first may be spent
    /// ([`super::BurstCredits`]). Its name is that of the rule and `/peak`.
    pub peak: Option<Limit>,
    /// If its windows are days, weeks or months of a calendar: which. The limit is then a fixed window
    /// of [`Periods::window`].
    pub periods: Option<Periods>,
}

/// What the peak of a quota is called, behind the name of its rule.
pub(super) const PEAK: &str = "/peak";

/// Is a limit enforced?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Requests beyond it are refused.
    #[default]
    Enforce,
    /// Requests are counted; those that would be refused are counted apart, and pass.
    Shadow,
    /// It is as if it were not there.
    Off,
}

/// What a request takes from a limit if it does not pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenOver {
    /// Nothing.
    #[default]
    ChargeNothing,
    /// What it costs, as far as that is left: for costs that are told when the work is done, where refusing
    /// has no effect.
    ChargeRemaining,
}

/// What happens to a request while a store that several processes share gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreError {
    /// This node goes on alone, with its share of the limit.
    #[default]
    Local,
    /// It passes.
    Allow,
    /// It is refused.
    Deny,
}

/// How nodes share a limit that they count in one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The store decides every request.
    #[default]
    Exact,
    /// A node borrows blocks of units from the store and spends them by itself: never more than were granted,
    /// and hardly any round trips for keys that are busy.
    Lease,
    /// A node decides by what the store said last and tells it ten times a second what passed: no round trips for
    /// keys that are known, and up to [`Quota::max_overshoot`] more than the limit for a moment.
    Sync,
}

impl Sharing {
    /// All of them.
    pub const ALL: [Sharing; 3] = [Sharing::Exact, Sharing::Lease, Sharing::Sync];

    /// What it is called in a policy file.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::Exact => "exact",
            Sharing::Lease => "lease",
            Sharing::Sync => "sync",
        }
    }
}

/// What happens to a request that lacks a part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// It is counted for the client's address, cut to these many bits if it is IPv6.
    Address {
        /// Bits that count.
        v6: u8,
    },
    /// All such requests share one allowance.
    Shared,
    /// It is refused.
    Deny,
}

impl Default for MissingKey {
    fn default() -> MissingKey {
        MissingKey::Address { v6: 64 }
    }
}

/// Classes of clients with quotas of their own.
#[derive(Clone, Debug)]
pub struct Tiers {
    /// Where the name of the tier is found.
    pub source: Source,
    /// The tiers. A request that names none of them has the limit's own quota.
    pub tiers: Vec<TierQuota>,
}

/// The quota of one tier.
#[derive(Clone, Debug)]
pub struct TierQuota {
    /// The tier's name.
    pub name: Arc<str>,
    /// Its share where clients wait in line.
    pub weight: u32,
    /// The limit's quota, scaled.
    pub quota: Quota,
}

/// A quota for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The parts of the key, as they are counted (an address with its prefix, folded text).
    pub key: Vec<String>,
    /// What is different.
    pub grant: OverrideAction,
    /// From when on it does not apply any more.
    pub expires: Option<Moment>,
}

/// What an override grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideAction {
    /// Another quota.
    Quota(Quota),
    /// No limit at all.
    Unlimited,
    /// Nothing.
    Blocked,
}

/// A condition with a name, for lists of who is let through or kept out.
#[derive(Clone, Debug)]
pub struct ListRule {
    /// What it is called in answers and logs.
    pub name: Arc<str>,
    /// Whom it is for.
    pub matches: Match,
    /// Which of these it is not for.
    pub except: Vec<Match>,
    /// Why.
    pub reason: Option<String>,
    /// From when on it does not apply any more.
    pub expires: Option<Moment>,
}

/// Conditions on a request; all that are there must hold. Of several values for one thing, one must.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Methods, in upper case. None: any.
    pub methods: Vec<String>,
    /// Paths, after normalisation. None: any.
    pub paths: Vec<PathPattern>,
    /// Hosts, without port, in lower case. None: any.
    pub hosts: Vec<TextPattern>,
    /// Headers (names in lower case) and what must hold for their values.
    pub headers: Vec<(String, ValueTest)>,
    /// Query parameters and what must hold for their values.
    pub query: Vec<(String, ValueTest)>,
    /// Client addresses. None: any.
    pub addresses: CidrSet,
    /// The domain of an Envoy rate limit request.
    pub domain: Option<TextPattern>,
    /// Entries of an Envoy descriptor and what must hold for their values.
    pub descriptor: Vec<(String, ValueTest)>,
    /// All entries of an Envoy descriptor: as many, with these keys and in this order. None: any.
    pub entries: Vec<(String, ValueTest)>,
}

/// What must hold for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueTest {
    /// It is there. A header must be there once and not blank, as in a key.
    Present,
    /// The opposite of `Present`.
    Absent,
    /// It is like one of these.
    Like(Vec<TextPattern>),
}

/// Where a text of a request is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's address, cut to these many bits.
    Address {
        /// Bits of an IPv4 address that count.
        v4: u8,
        /// Bits of an IPv6 address that count.
        v6: u8,
    },
    /// A header, by its name in lower case.
    Header(String),
    /// A query parameter.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// The whole path.
    Path,
    /// What stands in the path at a `{name}` of the pattern that matched.
    Capture(String),
    /// The method.
    Method,
    /// The host.
    Host,
    /// An entry of an Envoy descriptor.
    Descriptor(String),
    /// A field of a request in our own protocol.
    Field(String),
}

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Where it is found.
    pub source: Source,
    /// Is white space around it dropped?
    pub trim: bool,
    /// Do upper and lower case count as the same?
    pub lowercase: bool,
}

/// What a request takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CostRule {
    /// What the caller says, or one.
    #[default]
    Asked,
    /// Always this much, whatever the caller says.
    Constant(u64),
    /// By the route; the first that matches counts.
    Routes {
        /// Methods (none: any), a path, and what it takes.
        routes: Vec<(Vec<String>, PathPattern, u64)>,
        /// What everything else takes.
        default: u64,
    },
    /// What the request says. What it does not say in digits takes `most`.
    From {
        /// Where it says so.
        source: Source,
        /// If it says nothing.
        default: u64,
        /// It never takes less.
        least: u64,
        /// It never takes more.
        most: u64,
    },
}

/// What answers to clients look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerStyle {
    /// `Retry-After` on refusals.
    pub retry_after: bool,
    /// Up to this many hundredths are added to `Retry-After`, by the key, so that clients do not come
    /// back together.
    pub jitter_percent: u32,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: XRateLimit,
    /// `RateLimit` and `RateLimit-Policy`.
    pub ratelimit: bool,
    /// A body that explains a refusal.
    pub problem: bool,
}

impl Default for AnswerStyle {
    fn default() -> AnswerStyle {
        AnswerStyle {
            retry_after: true,
            jitter_percent: 0,
            x_ratelimit: XRateLimit::Seconds,
            ratelimit: true,
            problem: true,
        }
    }
}

/// How `X-RateLimit-Reset` is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XRateLimit {
    /// None of the three headers.
    Off,
    /// In seconds from now.
    #[default]
    Seconds,
    /// In seconds since 1970.
    Epoch,
}

/// May keys be shown?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privacy {
    /// As they are.
    #[default]
    Plain,
    /// Only as a keyed hash.
    Hashed,
}

impl Quota {
    /// A quota without a calendar.
    pub fn plain(limit: Limit) -> Quota {
        Quota {
            limit,
            peak: None,
            periods: None,
        }
    }

    /// The same with room for at least so many keys.
    #[must_use]
    pub fn with_max_keys(self, max_keys: usize) -> Quota {
        Quota {
            limit: self.limit.with_max_keys(max_keys),
            peak: self.peak.map(|peak| peak.with_max_keys(max_keys)),
            periods: self.periods,
        }
    }

    /// The same for a rule of this name.
    #[must_use]
    pub fn with_name(self, name: &str) -> Quota {
        Quota {
            limit: self.limit.with_name(name),
            peak: self
                .peak
                .map(|peak| peak.with_name(&format!("{name}{PEAK}"))),
            periods: self.periods,
        }
    }

    /// The `q` and `w` that clients are told of the limit: how many, and in how long (rounded up to seconds).
    pub fn advertised(&self) -> (u64, Span) {
        use tollgate::Algorithm as A;
        let fill = |rate: tollgate::Rate, units: u64| rate.time_to_earn(units);
        match *self.limit.algorithm() {
            A::TokenBucket { rate, burst } => (burst, fill(rate, burst)),
            A::Gcra { rate, tolerance } => {
                let burst = rate.earned_in(tolerance).saturating_add(1);
                (burst, fill(rate, burst))
            }
            A::LeakyBucket { rate, queue, .. } => (queue, fill(rate, queue)),
            A::FixedWindow { limit, window, .. } => match &self.periods {
                Some(periods) => (limit, periods.nominal()),
                None => (limit, window),
            },
            A::SlidingLog { limit, window } | A::SlidingWindow { limit, window, .. } => {
                (limit, window)
            }
            A::Concurrency { limit, ttl } => (limit, ttl),
        }
    }
}

impl fmt::Display for Quota {
    /// How much, without a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match BurstCredits::from_quota(self) {
            Some(BurstCredits {
                rate,
                times,
                duration,
                ..
            }) => write!(f, "burst credits {rate} times {times} for {duration}"),
            None => self.limit.clone().with_name("").fmt(f),
        }
    }
}

impl LimitRule {
    /// A rule for every request, with one allowance for everybody; change what is different.
    pub fn new(name: &str, quota: Quota) -> LimitRule {
        LimitRule {
            name: Arc::from(name),
            matches: Match::default(),
            except: Vec::new(),
            replaces: Vec::new(),
            key: Vec::new(),
            missing_key: MissingKey::default(),
            quota,
            candidate: None,
            cost: CostRule::default(),
            tiers: None,
            overrides: Vec::new(),
            when_over: WhenOver::default(),
            on_store_error: OnStoreError::default(),
            sharing: Sharing::default(),
            mode: Mode::default(),
            enforced: FULLY_ENFORCED,
            expires: None,
            owner: None,
            reason: None,
        }
    }
}

/// [`LimitRule::enforced`] of a limit that is enforced for everybody.
pub const FULLY_ENFORCED: u32 = 10_000;
