//! The profile of a limiter: how a history generates requests that test it, and how its time passes.

use crate::oracle::bucket::REPAIR_NS;
use crate::rng::Rng;

/// The longest sleep: nine years.
const SLEEP_MAX: u64 = 1 << 58;

/// A history ends before its clock does.
const END_OF_TIME: u64 = 1 << 63;

/// The magnitudes of a limiter, and which operations it has.
#[derive(Clone, Debug, Default)]
pub struct InputProfile {
    /// The greatest cost that can pass.
    pub cap: u64,
    /// The least that the capacity may be changed to.
    pub cap_min: u64,
    /// The most that the capacity may be changed to; zero if it cannot be changed.
    pub cap_max: u64,
    /// The time in which about one unit comes back.
    pub tick: u64,
    /// The time in which all comes back.
    pub fill: u64,
    /// Steps back of up to this are small: nothing is repaired.
    pub small_back: u64,
    /// The clock never shows less: the very origin has tests of its own.
    pub floor: u64,
    /// Whether units can be given back.
    pub has_refunds: bool,
    /// Whether costs can be charged afterwards.
    pub has_late_costs: bool,
    /// Whether the rate can be changed.
    pub has_rate: bool,
    /// Whether a request can be refused for its wait alone. A queue that is full refuses first, so the
    /// wait of that refusal may not be enough.
    pub has_max_wait: bool,
    /// Whether the clock may be set back by a lot.
    pub goes_far_back: bool,
}

impl InputProfile {
    /// A bucket: `n` units every `p_ns`, `cap` at the most.
    pub fn bucket(cap: u64, n: u64, p_ns: u64) -> Self {
        let fill = u128::from(cap) * u128::from(p_ns) / u128::from(n.max(1));
        Self {
            cap,
            cap_min: 1,
            tick: p_ns / n.max(1),
            fill: u64::try_from(fill).unwrap_or(u64::MAX),
            small_back: REPAIR_NS,
            has_refunds: true,
            goes_far_back: true,
            ..Self::default()
        }
    }

    /// A limit on a window that is cut into `parts`.
    pub fn window(limit: u64, window_ns: u64, parts: u64) -> Self {
        Self {
            cap: limit,
            cap_min: 1,
            tick: window_ns / limit.max(1),
            fill: window_ns,
            small_back: window_ns / parts.max(1),
            has_refunds: true,
            goes_far_back: true,
            ..Self::default()
        }
    }
}

/// The clock of a history.
#[derive(Clone, Debug)]
pub struct Time {
    now: u64,
    /// The latest moment of a write since the state was last known to be repaired.
    latest: u64,
    /// The end of the wait of the last refusal.
    due: Option<u64>,
}

impl Time {
    /// A moment to begin with: near the origin, or anywhere.
    pub fn new(rng: &mut Rng, profile: &InputProfile) -> Self {
        let now = match rng.below(4) {
            0 => 0,
            1 => rng.below(1 << 40),
            2 => 1_700_000_000_000_000_000 + rng.below(1 << 50),
            _ => rng.below(1 << 62),
        };
        let now = now.max(profile.floor);
        Self {
            now,
            latest: now,
            due: None,
        }
    }

    /// Now.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether the clock is before its end.
    pub fn is_running(&self) -> bool {
        self.now < END_OF_TIME
    }

    /// Whether the clock is so far behind the state that it may have to be repaired.
    pub fn is_far_behind(&self, profile: &InputProfile) -> bool {
        self.latest.saturating_sub(self.now) > profile.small_back
    }

    /// A charge was decided now: if there was something to repair, it is repaired, and what was not far
    /// enough ahead for that is at most a small step ahead.
    pub fn decided(&mut self, profile: &InputProfile) {
        let ahead = self.now.saturating_add(profile.small_back);
        self.latest = self.latest.clamp(self.now, ahead);
    }

    /// Something was written now.
    pub fn written(&mut self) {
        self.latest = self.latest.max(self.now);
    }

    /// A request was refused with this wait.
    pub fn refused(&mut self, wait: u64) {
        self.due = self.now.checked_add(wait);
    }

    /// Moves on, or back.
    pub fn advance(&mut self, rng: &mut Rng, profile: &InputProfile) {
        let now = self.now;
        let on = |by: u64| now.saturating_add(by);
        // Not further back in all than is small, or the steps would add up.
        let lowest = self.latest.saturating_sub(profile.small_back).min(now);
        self.now = match rng.below(32) {
            0..=7 => now,
            8..=9 => on(1),
            10..=17 => on(rng.below(profile.tick.saturating_mul(2).saturating_add(1))),
            18..=20 => on(rng.below(profile.fill.saturating_add(2))),
            21..=23 => self.due.filter(|&then| then >= now).unwrap_or(now),
            24..=25 => {
                let early = self.due.map(|then| then.saturating_sub(1));
                early.filter(|&then| then >= now).unwrap_or(now)
            }
            26 => on(profile.fill),
            27 => {
                let times = rng.magnitude(1 << 12);
                on(profile.fill.saturating_mul(times).min(SLEEP_MAX))
            }
            28 => now.saturating_sub(1).max(lowest),
            29..=30 => {
                let back = rng.below(profile.small_back.saturating_add(1));
                now.saturating_sub(back).max(lowest)
            }
            _ if profile.goes_far_back && rng.one_in(4) => {
                let far = profile.small_back.saturating_add(profile.fill);
                now.saturating_sub(rng.magnitude(far.saturating_mul(8)))
            }
            _ => on(profile.tick),
        }
        .max(profile.floor);
    }
}

/// A cost at a boundary: nothing, one, a few, all but one, all, too much.
pub fn cost(rng: &mut Rng, cap: u64) -> u64 {
    match rng.below(32) {
        0..=1 => 0,
        2..=15 => 1,
        16..=21 => rng.between(1, 4),
        22..=26 => rng.between(1, cap),
        27 => cap.saturating_sub(1),
        28..=29 => cap,
        30 => cap.saturating_add(1),
        _ => rng.pick(&[u64::MAX, cap.saturating_mul(2), cap.saturating_add(5)]),
    }
}
