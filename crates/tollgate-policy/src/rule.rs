//! Policies as values, read from a file or built by a program.
//!
//! The builder has validated everything: names are unique, numbers make limits, patterns are read. A policy has no
//! live state; [`super::PolicyGate`] adds it.

use std::collections::HashMap;
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

/// The limits, what they match, and the default for all other requests.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The limits. All that match a request are charged together, or none.
    pub limits: Vec<LimitRule>,
    /// Requests that are never limited. Checked before everything but `deny`.
    pub allow: Vec<ListRule>,
    /// Requests that are always refused. Checked first.
    pub deny: Vec<ListRule>,
    /// What happens to a request that no limit matches.
    pub default: DefaultAction,
    /// How paths are made comparable.
    pub paths: PathRules,
    /// The trusted proxies.
    pub proxies: Proxies,
    /// The style of responses.
    pub answers: AnswerStyle,
    /// Whether keys are shown in logs and to operators.
    pub privacy: Privacy,
    /// The queues for requests that no limit refused. The first that matches is used.
    pub queues: Vec<QueueRule>,
    /// Load-shedding settings.
    pub pressure: Option<PressureRule>,
    /// Domains in which limits of requests are accepted; `None`: nowhere.
    pub follow: Option<OverridePolicy>,
}

/// What happens to a request that no limit matches.
#[derive(Clone, Debug, Default)]
pub enum DefaultAction {
    /// It passes by the built-in default, and is counted apart.
    #[default]
    Unset,
    /// It passes.
    Pass,
    /// It is refused.
    Refuse,
    /// It is charged to this limit.
    Limit(Box<LimitRule>),
}

/// One limit and the requests that it is for.
#[derive(Clone, Debug)]
pub struct LimitRule {
    /// Its name: unique, letters, digits, `-`, `_` and `.`.
    pub name: Arc<str>,
    /// Requests that it is for.
    pub matches: Match,
    /// Exceptions.
    pub except: Vec<Match>,
    /// Limits, by name, that are not charged where this one is.
    pub replaces: Vec<Arc<str>>,
    /// The parts of the key. Empty: all requests share one allowance.
    pub key: Vec<KeyPart>,
    /// What happens if a part of the key is missing.
    pub missing_key: MissingKey,
    /// The quota.
    pub quota: Quota,
    /// A candidate quota: counted, never enforced.
    pub candidate: Option<Quota>,
    /// The cost of a request.
    pub cost: CostRule,
    /// Quotas of classes of clients.
    pub tiers: Option<Tiers>,
    /// Quotas of single keys.
    pub overrides: Vec<Override>,
    /// What a refused request takes.
    pub when_over: WhenOver,
    /// What happens while a shared store does not answer.
    pub on_store_error: OnStoreError,
    /// How nodes that share a store share this limit.
    pub sharing: Sharing,
    /// Whether it is enforced.
    pub mode: Mode,
    /// The share of keys for which it is enforced, in ten-thousandths; the rest is counted as in shadow mode.
    pub enforced: u32,
    /// When it expires.
    pub expires: Option<Moment>,
    /// The owner.
    pub owner: Option<String>,
    /// A comment.
    pub reason: Option<String>,
}

/// A limit, with its peak and calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The limit; its name is that of the rule.
    pub limit: Limit,
    /// A second limit that is charged with it, all or none, and bounds how fast the first may be spent
    /// ([`super::BurstCredits`]). Its name is that of the rule and `/peak`.
    pub peak: Option<Limit>,
    /// The calendar, if its windows are days, weeks or months. The limit is then a fixed window of
    /// [`Periods::window`].
    pub periods: Option<Periods>,
}

/// The suffix of a peak's name.
pub(super) const PEAK: &str = "/peak";

/// Whether a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Requests beyond it are refused.
    #[default]
    Enforce,
    /// Requests are counted. Those that would be refused are counted apart, and pass.
    Shadow,
    /// The limit is ignored.
    Off,
}

/// What a refused request takes from a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenOver {
    /// Nothing.
    #[default]
    ChargeNothing,
    /// Its cost, as far as units remain: for costs that are reported after the work, where refusing has no effect.
    ChargeRemaining,
}

/// What happens to a request while a shared store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreError {
    /// This node decides by its share of the limit.
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
    /// A node leases blocks of units from the store and spends them locally: never more than were granted, and
    /// hardly any round trips for busy keys.
    Lease,
    /// A node decides by the last reply of the store and pushes usage ten times a second: no round trips for known
    /// keys, and up to [`Quota::max_overshoot`] more than the limit for a moment.
    Sync,
}

impl Sharing {
    /// All modes.
    pub const ALL: [Sharing; 3] = [Sharing::Exact, Sharing::Lease, Sharing::Sync];

    /// The name in a policy file.
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
    /// It is counted for the client's address, cut to this many bits if it is IPv6.
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
    /// The source of the tier's name, or of a member.
    pub source: Source,
    /// The members of the tiers. `None`: the source is the tier's name.
    pub members: Option<Arc<TierMembers>>,
    /// The tiers. A request of no tier has the limit's own quota.
    pub tiers: Vec<TierQuota>,
}

/// Which keys belong to which tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierMembers {
    /// Do upper and lower case count as the same? Then the keys are in lower case.
    pub lowercase: bool,
    /// The index of the tier of each key.
    pub tiers: HashMap<String, usize>,
}

impl TierMembers {
    /// The tier of a key.
    pub(crate) fn tier_of(&self, key: &[u8]) -> Option<usize> {
        let key = std::str::from_utf8(key).ok()?;
        match self.lowercase {
            true => self.tiers.get(&key.to_lowercase()),
            false => self.tiers.get(key),
        }
        .copied()
    }
}

/// The quota of one tier.
#[derive(Clone, Debug)]
pub struct TierQuota {
    /// The tier's name.
    pub name: Arc<str>,
    /// Its weight in queues.
    pub weight: u32,
    /// The limit's quota, scaled.
    pub quota: Quota,
}

/// A quota for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The parts of the key in counted form (an address with its prefix, folded text).
    pub key: Vec<String>,
    /// The override's effect.
    pub grant: OverrideAction,
    /// When it expires.
    pub expires: Option<Moment>,
}

/// The effect of an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideAction {
    /// Another quota.
    Quota(Box<Quota>),
    /// No limit.
    Unlimited,
    /// Blocks the key.
    Blocked,
}

/// A named condition of the allow or deny list.
#[derive(Clone, Debug)]
pub struct ListRule {
    /// Its name in decisions and logs.
    pub name: Arc<str>,
    /// Requests that it is for.
    pub matches: Match,
    /// Exceptions.
    pub except: Vec<Match>,
    /// A comment.
    pub reason: Option<String>,
    /// When it expires.
    pub expires: Option<Moment>,
}

/// Conditions on a request; all that are set must hold. Of several alternatives for one field, one must.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Methods, in upper case. Empty: any.
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

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueTest {
    /// It is present. A header must be present exactly once and not blank, as in a key.
    Present,
    /// The opposite of `Present`.
    Absent,
    /// It matches one of these patterns.
    Like(Vec<TextPattern>),
}

/// The source of a text in a request.
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
    /// The segment at a `{name}` of the path pattern that matched.
    Capture(String),
    /// The method.
    Method,
    /// The host.
    Host,
    /// An entry of an Envoy descriptor.
    Descriptor(String),
    /// A field of a request in Tollgate's own protocol.
    Field(String),
}

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Its source.
    pub source: Source,
    /// Whether white space around it is dropped.
    pub trim: bool,
    /// Whether upper and lower case are equal.
    pub lowercase: bool,
}

/// The cost of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CostRule {
    /// What the caller states, or one.
    #[default]
    Asked,
    /// Constant, whatever the caller states.
    Constant(u64),
    /// By route; the first that matches counts.
    Routes {
        /// Methods (empty: any), a path, and the cost.
        routes: Vec<(Vec<String>, PathPattern, u64)>,
        /// The cost of all other requests.
        default: u64,
    },
    /// What the request states. A value that is not in digits costs `most`.
    From {
        /// The source of the value.
        source: Source,
        /// The cost if the value is missing.
        default: u64,
        /// The least cost.
        least: u64,
        /// The greatest cost.
        most: u64,
    },
}

/// The style of responses to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerStyle {
    /// `Retry-After` on refusals.
    pub retry_after: bool,
    /// Up to this many percent are added to `Retry-After`, by the key, so that clients do not return together.
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

/// The form of `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XRateLimit {
    /// None of the three headers.
    Off,
    /// In seconds from now.
    #[default]
    Seconds,
    /// In seconds since 1970.
    Epoch,
    /// In seconds from now; the names of older drafts: `RateLimit-Limit`, `-Remaining` and `-Reset`.
    Unprefixed,
}

/// Whether keys are shown.
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

    /// The same with room for at least this many keys.
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

    /// The `q` and `w` that clients see: the limit, and its period (rounded up to seconds).
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
    /// The limit without a name.
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
    /// A rule for every request, with one shared allowance. Change fields as needed.
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

/// [`LimitRule::enforced`] of a limit that is enforced for all keys.
pub const FULLY_ENFORCED: u32 = 10_000;
