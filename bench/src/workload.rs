//! The workload of every contestant in the process.
//!
//! A *workload* of the comparison is one choice on each axis: how many keys, how they are distributed, what they look like, how
//! many threads check them, and whether they are admitted or refused.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::output::short_count;

/// Keys are written with eight digits, so there can be no more than this.
pub(crate) const KEYS_MAX: usize = 100_000_000;

/// Above this, contestants are measured one after the other. A text key takes up to some 150 bytes in each of them.
const INTERLEAVED_MAX: usize = 2_000_000;

/// One choice on each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) keys: usize,
    pub(crate) distribution: Distribution,
    pub(crate) kind: KeyKind,
    /// Each thread has its own share of the keys; a single key is shared by all threads.
    pub(crate) threads: usize,
    pub(crate) mode: Mode,
}

/// How often each key comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Distribution {
    /// Every key as often as any other: the worst case for caches.
    Uniform,
    /// The k-th most popular key comes 1/k as often as the first: exponent 1.0.
    Zipf,
}

/// What a key looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KeyKind {
    /// Text such as `user:00001234`.
    Str,
    /// A number scattered over all 64 bits.
    U64,
}

/// The verdict of every timed check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Nothing is refused: every check writes.
    Pass,
    /// Everything after the warm-up is refused: most limiters then only read.
    Refuse,
}

/// The limit that every contestant enforces on every key, and the number of keys to expect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// For contestants that are sized up front. Those that grow on demand ignore it.
    pub(crate) keys: usize,
    /// Units that a rested key may spend at once.
    pub(crate) burst: NonZeroU32,
    /// The time in which a key earns one unit; whole seconds, at least one.
    pub(crate) interval: Duration,
}

impl Workload {
    pub(crate) fn config(&self) -> Config {
        Config::new(self.keys, self.mode)
    }

    /// Whether all contestants fit into memory beside each other.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.keys <= INTERLEAVED_MAX
    }

    /// The units a correct limiter admits out of `checks` made after the warm-up.
    pub(crate) fn admitted_expected(&self, checks: u64) -> u64 {
        match self.mode {
            Mode::Pass => checks,
            Mode::Refuse => 0,
        }
    }

    /// The choices in words.
    pub(crate) fn title(&self) -> String {
        let keys = short_count(self.keys);
        let noun = if self.keys == 1 { "key" } else { "keys" };
        let threads = match self.threads {
            1 => "1 thread".to_owned(),
            threads if self.keys == 1 => format!("{threads} threads on that key"),
            threads if self.keys < threads => format!("{threads} threads on the same keys"),
            threads => format!("{threads} threads, each its own keys"),
        };
        let (distribution, kind) = (self.distribution_name(), self.kind.name());
        format!(
            "{keys} {noun}, {distribution}, {kind}, {threads}, {}",
            self.mode.name()
        )
    }

    pub(crate) fn distribution_name(&self) -> &'static str {
        match self.distribution {
            _ if self.keys == 1 => "hot",
            Distribution::Uniform => "uniform",
            Distribution::Zipf => "zipf",
        }
    }
}

impl Config {
    pub(crate) fn new(keys: usize, mode: Mode) -> Self {
        let (burst, interval_s) = match mode {
            // Nothing is refused because the burst is out of reach, not because units are earned quickly. With a quick rate
            // every key would be at rest again before its next turn, and a limiter that forgets resting keys would be timed
            // with an empty table. Here the warm-up keeps a key live for 20 s and every further check for 10 s more. The
            // burst outlasts a hot key at the default number of passes down to 5 ns per check; the full bucket is
            // 3 * 10^18 ns, which still fits an `i64` when added to the time since 1970.
            Mode::Pass => (300_000_000, 10),
            Mode::Refuse => (1, 3600),
        };
        Self::with_limit(keys, burst, interval_s)
    }

    /// For inserting every key once: a unit takes an hour to earn, so that no key is at rest, and perhaps forgotten, before
    /// the last one is in. The burst is more than all keys that can collide in a sketch, so that an approximate contestant
    /// admits them too.
    pub(crate) fn for_memory(keys: usize) -> Self {
        Self::with_limit(keys, 500_000, 3600)
    }

    fn with_limit(keys: usize, burst: u32, interval_s: u64) -> Self {
        Self {
            keys,
            burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN),
            interval: Duration::from_secs(interval_s),
        }
    }
}

impl Distribution {
    pub(crate) const ALL: [Self; 2] = [Self::Uniform, Self::Zipf];
}

impl KeyKind {
    pub(crate) const ALL: [Self; 2] = [Self::Str, Self::U64];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Str => "str",
            Self::U64 => "u64",
        }
    }
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::Pass, Self::Refuse];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Refuse => "refuse",
        }
    }
}
