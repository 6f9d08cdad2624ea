//! What a history has to know of its limiter to ask interesting questions, and how its time passes.

use crate::rng::Rng;

/// The longest sleep: nine years.
const SLEEP_MAX: u64 = 1 << 58;

/// A history ends before its clock does.
const END_OF_TIME: u64 = 1 << 63;

/// The proportions of a limiter.
#[derive(Clone, Debug)]
pub struct Nature {
    /// The numbers, for whoever reads a failure.
    pub params: String,
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
    /// Steps back of up to this are small: nothing is healed.
    pub small_back: u64,
    /// The clock never shows less: what happens at the very origin is told elsewhere.
    pub floor: u64,
    /// Whether units can be given back.
    pub has_refunds: bool,
    /// Whether the rate can be changed.
    pub has_rate: bool,
    /// Whether a request can be refused for its wait alone. A queue that is full speaks first, so the
    /// wait it tells may then not be enough.
    pub has_max_wait: bool,
    /// Whether the clock may be set back by a lot.
    pub goes_far_back: bool,
}

/// The clock of a history.
#[derive(Clone, Debug)]
pub struct Time {
    now: u64,
    /// The latest moment at which something was done since the state was last known to be healed.
    latest: u64,
    /// A moment at which a refused request was told to come back.
    promised: Option<u64>,
}

impl Time {
    /// A moment to begin with: near the origin, or anywhere.
    pub fn begin(rng: &mut Rng, nature: &Nature) -> Self {
        let now = match rng.below(4) {
            0 => 0,
            1 => rng.below(1 << 40),
            2 => 1_700_000_000_000_000_000 + rng.below(1 << 50),
            _ => rng.below(1 << 62),
        };
        let now = now.max(nature.floor);
        Self {
            now,
            latest: now,
            promised: None,
        }
    }

    /// Now.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether the clock has not run out.
    pub fn goes_on(&self) -> bool {
        self.now < END_OF_TIME
    }

    /// Whether the clock is so far behind the state that something may want to be healed.
    pub fn is_far_behind(&self, nature: &Nature) -> bool {
        self.latest.saturating_sub(self.now) > nature.small_back
    }

    /// A charge was decided now: if there was something to heal, it is healed, and what was not far
    /// enough ahead for that is at most a small step ahead.
    pub fn decided(&mut self, nature: &Nature) {
        let ahead = self.now.saturating_add(nature.small_back);
        self.latest = self.latest.clamp(self.now, ahead);
    }

    /// Something was written now.
    pub fn written(&mut self) {
        self.latest = self.latest.max(self.now);
    }

    /// A refused request was told to come back after `wait`.
    pub fn promise(&mut self, wait: u64) {
        self.promised = self.now.checked_add(wait);
    }

    /// Moves on, or back.
    pub fn pass(&mut self, rng: &mut Rng, nature: &Nature) {
        let now = self.now;
        let on = |by: u64| now.saturating_add(by);
        // Not further back in all than is small, or the steps would add up.
        let lowest = self.latest.saturating_sub(nature.small_back).min(now);
        self.now = match rng.below(32) {
            0..=7 => now,
            8..=9 => on(1),
            10..=17 => on(rng.below(nature.tick.saturating_mul(2).saturating_add(1))),
            18..=20 => on(rng.below(nature.fill.saturating_add(2))),
            21..=23 => self.promised.filter(|&then| then >= now).unwrap_or(now),
            24..=25 => {
                let early = self.promised.map(|then| then.saturating_sub(1));
                early.filter(|&then| then >= now).unwrap_or(now)
            }
            26 => on(nature.fill),
            27 => {
                let times = rng.magnitude(1 << 12);
                on(nature.fill.saturating_mul(times).min(SLEEP_MAX))
            }
            28 => now.saturating_sub(1).max(lowest),
            29..=30 => {
                let back = rng.below(nature.small_back.saturating_add(1));
                now.saturating_sub(back).max(lowest)
            }
            _ if nature.goes_far_back && rng.one_in(4) => {
                let far = nature.small_back.saturating_add(nature.fill);
                now.saturating_sub(rng.magnitude(far.saturating_mul(8)))
            }
            _ => on(nature.tick),
        }
        .max(nature.floor);
    }
}

/// A cost that asks something: nothing, one, a few, all but one, all, too much.
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
