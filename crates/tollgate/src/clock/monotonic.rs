//! The operating system's monotonic clock, read through the processor's cycle counter where the
//! kernel does so itself.
//!
//! # Theory
//!
//! Asking the system for the time costs more than deciding a request. Where the kernel's own clock source is the
//! cycle counter, the counter can be read directly: `ns = ns0 + (cycles - cycles0) * ratio`, with an *anchor*
//! (`cycles0`, `ns0`, `ratio`) that the first reader of an old anchor renews from the system's clock, every few
//! dozen milliseconds. So drift does not add up, and a counter that jumps (a virtual machine that was moved) is
//! noticed at once and costs one anchor.
//!
//! # Invariant
//!
//! Time never runs backward: a new anchor starts no earlier than the latest moment that the old one could have
//! returned. It is ahead of the system's clock by at most what the counter drifts in one anchor's life
//! (microseconds; the ratio is measured over the life of the clock), and that is corrected by pausing. Where the
//! kernel does not trust the counter, this clock does not use it: every reading then asks the system.
//!
//! # Why not a clock that is calibrated once
//!
//! It drifts for ever after; tens of parts in a million have been reported.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, fence};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::Clock;
use crate::raw::{cycles, cycles_in_order};
use crate::time::Moment;

/// How long an anchor is used. Shorter costs more readings of the system's clock, longer lets the
/// counter drift further.
const ANCHOR_LIFE_NS: u64 = 50_000_000;
/// The ratio is trusted once it was measured over this long.
const CALIBRATED_AFTER_NS: u64 = 20_000_000;
/// Bits behind the point of the ratio.
const RATIO_BITS: u32 = 32;

/// The default clock: exact, monotonic, the same for all its clones.
#[derive(Clone)]
pub struct MonotonicClock {
    shared: Arc<Shared>,
}

struct Shared {
    /// What the clock showed at `origin`.
    start: u64,
    origin: Instant,
    anchor: AnchorCell,
    /// Held while a new anchor is taken; holds the first reading, against which the ratio is measured.
    first: Mutex<Option<(u64, u64)>>,
    /// Whether the counter may be used.
    trusted: AtomicBool,
}

/// An anchor that is read without a lock: a sequence lock. The version is odd while it changes.
#[derive(Default)]
struct AnchorCell {
    version: AtomicU64,
    cycles: AtomicU64,
    ns: AtomicU64,
    ratio: AtomicU64,
    /// Cycles that the anchor may be used for; zero while there is none.
    life: AtomicU64,
}

#[derive(Clone, Copy)]
struct Anchor {
    cycles: u64,
    ns: u64,
    ratio: u64,
    life: u64,
}

impl Anchor {
    /// The time after `elapsed` cycles, which are at most `life`.
    #[inline(always)]
    const fn after(&self, elapsed: u64) -> u64 {
        let ns = (elapsed as u128 * self.ratio as u128) >> RATIO_BITS;
        self.ns.wrapping_add(ns as u64)
    }
}

impl AnchorCell {
    #[inline(always)]
    fn read(&self) -> Option<Anchor> {
        // Acquire pairs with the Release that ended the last change: the fields are at least as new.
        let before = self.version.load(Acquire);
        let anchor = Anchor {
            cycles: self.cycles.load(Relaxed),
            ns: self.ns.load(Relaxed),
            ratio: self.ratio.load(Relaxed),
            life: self.life.load(Relaxed),
        };
        // The fence keeps the reads above from moving below the second look at the version; if one
        // of them came from a later change, that change's odd version is seen here.
        fence(Acquire);
        (before & 1 == 0 && self.version.load(Relaxed) == before).then_some(anchor)
    }

    /// Only under the lock of [`Shared::first`].
    fn write(&self, anchor: Anchor) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        // The odd version is seen before any of the fields.
        fence(Release);
        self.cycles.store(anchor.cycles, Relaxed);
        self.ns.store(anchor.ns, Relaxed);
        self.ratio.store(anchor.ratio, Relaxed);
        self.life.store(anchor.life, Relaxed);
        self.version.store(version.wrapping_add(2), Release);
    }
}

impl MonotonicClock {
    /// A clock that starts at its origin now.
    pub fn new() -> MonotonicClock {
        MonotonicClock::with_start(Moment::ORIGIN)
    }

    /// A clock that starts at the wall clock's time since 1970, and then runs without it: windows begin with the
    /// minutes of the wall clock, and state outlives the process. A wall clock before 1970 counts as 1970.
    pub fn with_unix_time() -> MonotonicClock {
        MonotonicClock::with_start(MonotonicClock::wall_clock())
    }

    /// The wall clock's time since 1970 as it is now, be it right or wrong: it may step in either direction. Before 1970 it
    /// counts as 1970.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the module that reads time"
    )]
    pub fn wall_clock() -> Moment {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let ns = now.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        Moment::from_nanos(ns)
    }

    /// A clock that shows `start` now.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the module that reads time"
    )]
    pub fn with_start(start: Moment) -> MonotonicClock {
        MonotonicClock {
            shared: Arc::new(Shared {
                start: start.as_nanos(),
                origin: Instant::now(),
                anchor: AnchorCell::default(),
                first: Mutex::new(None),
                trusted: AtomicBool::new(kernel_trusts_the_counter()),
            }),
        }
    }

    #[inline(always)]
    fn moment_at(&self, cycles: impl Fn() -> Option<u64>) -> Moment {
        if let Some(anchor) = self.shared.anchor.read()
            && let Some(cycles) = cycles()
        {
            // Without an anchor its life is zero.
            let elapsed = cycles.wrapping_sub(anchor.cycles);
            if elapsed < anchor.life {
                return Moment::from_nanos(anchor.after(elapsed));
            }
        }
        self.shared.ask_the_system()
    }
}

impl Shared {
    fn system_ns(&self) -> u64 {
        let elapsed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.start.saturating_add(elapsed)
    }

    /// The counter and the system's clock at one moment. The counter is read last: if this thread is stopped in
    /// between, the anchor is late, never early. The closest of a few readings counts.
    fn both(&self) -> Option<(u64, u64)> {
        let mut closest: Option<(u64, u64, u64)> = None;
        for _ in 0..4 {
            let before = cycles_in_order()?;
            let system = self.system_ns();
            let cycles = cycles_in_order()?;
            let apart = cycles.wrapping_sub(before);
            if closest.is_none_or(|(least, ..)| apart < least) {
                closest = Some((apart, cycles, system));
            }
        }
        closest.map(|(_, cycles, system)| (cycles, system))
    }

    /// Reads the system's clock, and takes a new anchor unless another thread does.
    #[cold]
    fn ask_the_system(&self) -> Moment {
        if !self.trusted.load(Relaxed) {
            return Moment::from_nanos(self.system_ns());
        }
        // A second thread waits: with a reading of its own it could be behind the new anchor a moment later.
        let Ok(mut first) = self.first.lock() else {
            return Moment::from_nanos(self.system_ns());
        };
        let Some((cycles, system)) = self.both() else {
            self.trusted.store(false, Relaxed);
            return Moment::from_nanos(self.system_ns());
        };
        let old = self.anchor.read();
        let mut now = system;
        if let Some(old) = old.filter(|a| a.life > 0) {
            let elapsed = cycles.wrapping_sub(old.cycles);
            if elapsed < old.life {
                return Moment::from_nanos(old.after(elapsed)); // another thread has taken one
            }
            now = now.max(old.after(old.life));
        }
        let (first_cycles, first_ns) = *first.get_or_insert((cycles, system));
        let (run, span) = (
            cycles.wrapping_sub(first_cycles),
            system.saturating_sub(first_ns),
        );
        if span >= CALIBRATED_AFTER_NS {
            match ratio(run, span) {
                Some(ratio) => self.anchor.write(Anchor {
                    cycles,
                    ns: now,
                    ratio,
                    life: life_of(ratio),
                }),
                // The counter jumped: measure anew from here.
                None => *first = Some((cycles, system)),
            }
        }
        Moment::from_nanos(now)
    }
}

/// Nanoseconds in a cycle, unless that is not a speed that processors have (0.1 to 100 GHz).
fn ratio(cycles: u64, ns: u64) -> Option<u64> {
    if cycles == 0 {
        return None;
    }
    // Rounded down: the counter then runs behind the system's clock, never ahead, as far as possible.
    let ratio = (u128::from(ns) << RATIO_BITS) / u128::from(cycles);
    u64::try_from(ratio)
        .ok()
        .filter(|r| ((1 << RATIO_BITS) / 100..=10 << RATIO_BITS).contains(r))
}

/// Cycles in the life of an anchor.
fn life_of(ratio: u64) -> u64 {
    ((ANCHOR_LIFE_NS as u128) << RATIO_BITS)
        .checked_div(u128::from(ratio))
        .and_then(|cycles| u64::try_from(cycles).ok())
        .unwrap_or(0)
}

#[cfg(target_os = "linux")]
fn kernel_trusts_the_counter() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cycles().is_some() && std::fs::read_to_string(SOURCE).is_ok_and(|s| s.trim() == "tsc")
}

#[cfg(not(target_os = "linux"))]
fn kernel_trusts_the_counter() -> bool {
    false
}

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Moment {
        self.moment_at(cycles)
    }

    #[inline]
    fn fresh(&self) -> Moment {
        self.moment_at(cycles_in_order)
    }
}

impl Default for MonotonicClock {
    fn default() -> MonotonicClock {
        MonotonicClock::new()
    }
}

impl std::fmt::Debug for MonotonicClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MonotonicClock({})", self.now().as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backward_within_or_between_threads() {
        let clock = MonotonicClock::new();
        let latest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 50 } else { 400_000 } {
                        let seen = latest.load(SeqCst);
                        let now = clock.fresh().as_nanos();
                        assert!(now >= seen, "{now} after {seen}");
                        latest.fetch_max(now, SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn it_keeps_pace_with_the_systems_clock() {
        let clock = MonotonicClock::new();
        let mut worst = 0;
        while clock.shared.system_ns() < if cfg!(miri) { 1_000 } else { 300_000_000 } {
            let before = clock.shared.system_ns();
            let reading = clock.now().as_nanos();
            let after = clock.shared.system_ns();
            worst = worst
                .max(before.saturating_sub(reading))
                .max(reading.saturating_sub(after));
        }
        // One anchor's drift. A machine that stops a thread between two of the three readings only
        // widens the interval that the middle one must lie in.
        assert!(worst < 1_000_000, "{worst} ns apart");
    }

    #[test]
    fn an_impossible_counter_speed_is_rejected() {
        assert!(ratio(0, 1).is_none());
        assert!(ratio(1, 1_000_000_000).is_none());
        assert!(ratio(u64::MAX, 1).is_none());
        assert_eq!(ratio(1 << 32, 1 << 32), Some(1 << 32));
    }
}
