//! The names of the algorithms and of their options, in one place.

/// The algorithms, by the names that they are written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// [`tollgate::Algorithm::TokenBucket`].
    TokenBucket,
    /// [`tollgate::Algorithm::Gcra`].
    Gcra,
    /// [`tollgate::Algorithm::LeakyBucket`].
    LeakyBucket,
    /// [`tollgate::Algorithm::FixedWindow`].
    FixedWindow,
    /// [`tollgate::Algorithm::SlidingLog`].
    SlidingLog,
    /// [`tollgate::Algorithm::SlidingWindow`].
    SlidingWindow,
    /// [`tollgate::Algorithm::BurstCredits`].
    BurstCredits,
    /// [`tollgate::Algorithm::Concurrency`].
    Concurrency,
}

impl Kind {
    /// All of them, in the order of the list that people see.
    pub(crate) const ALL: [Kind; 8] = [
        Kind::TokenBucket,
        Kind::Gcra,
        Kind::LeakyBucket,
        Kind::FixedWindow,
        Kind::SlidingLog,
        Kind::SlidingWindow,
        Kind::BurstCredits,
        Kind::Concurrency,
    ];

    /// The name as it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::TokenBucket => "token-bucket",
            Kind::Gcra => "gcra",
            Kind::LeakyBucket => "leaky-bucket",
            Kind::FixedWindow => "fixed-window",
            Kind::SlidingLog => "sliding-log",
            Kind::SlidingWindow => "sliding-window",
            Kind::BurstCredits => "burst-credits",
            Kind::Concurrency => "concurrency",
        }
    }

    /// A whole limit of this kind.
    pub(crate) const fn example(self) -> &'static str {
        match self {
            Kind::TokenBucket => "token-bucket 5/s burst 10",
            Kind::Gcra => "gcra 10/s tolerance 250ms",
            Kind::LeakyBucket => "leaky-bucket 3000/s queue 5000 max-wait 2s",
            Kind::FixedWindow => "fixed-window 10/min",
            Kind::SlidingLog => "sliding-log 100/min",
            Kind::SlidingWindow => "sliding-window 50/min",
            Kind::BurstCredits => "burst-credits 10/s times 10 for 30s",
            Kind::Concurrency => "concurrency 20 ttl 30s",
        }
    }

    /// What stands behind the name.
    pub(crate) const fn amount(self) -> &'static str {
        match self {
            Kind::Concurrency => "number",
            _ => "rate",
        }
    }

    /// The options that it takes.
    pub(crate) const fn options(self) -> &'static [Word] {
        match self {
            Kind::TokenBucket => &[Word::Burst],
            Kind::Gcra => &[Word::Tolerance],
            Kind::LeakyBucket => &[Word::Queue, Word::MaxWait],
            Kind::FixedWindow => &[Word::Anchor],
            Kind::SlidingLog => &[],
            Kind::SlidingWindow => &[Word::Estimate, Word::Parts],
            Kind::BurstCredits => &[Word::Times, Word::For, Word::Slack],
            Kind::Concurrency => &[Word::Ttl],
        }
    }

    pub(super) fn named(word: &str) -> Option<Kind> {
        let word = spelt(word);
        Kind::ALL.into_iter().find(|kind| kind.name() == word)
    }
}

/// The option words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// What a token bucket saves.
    Burst,
    /// How early still conforms.
    Tolerance,
    /// How many may wait.
    Queue,
    /// For how long.
    MaxWait,
    /// When the first window starts.
    Anchor,
    /// How the oldest part of a window is counted.
    Estimate,
    /// Into how many parts a window is cut.
    Parts,
    /// How many times faster.
    Times,
    /// For how long.
    For,
    /// What may come at once.
    Slack,
    /// How long a permit lives.
    Ttl,
}

impl Word {
    /// The option as it is written.
    pub(crate) fn name(self) -> &'static str {
        self.sample().split(' ').next().unwrap_or_default()
    }

    /// The option with a value.
    pub(crate) const fn sample(self) -> &'static str {
        match self {
            Word::Burst => "burst 10",
            Word::Tolerance => "tolerance 250ms",
            Word::Queue => "queue 5000",
            Word::MaxWait => "max-wait 2s",
            Word::Anchor => "anchor 30s",
            Word::Estimate => "estimate classic",
            Word::Parts => "parts 3",
            Word::Times => "times 10",
            Word::For => "for 30s",
            Word::Slack => "slack 10",
            Word::Ttl => "ttl 30s",
        }
    }
}

/// A word as it is compared: `Max_Wait` is `max-wait`.
pub(super) fn spelt(word: &str) -> String {
    word.to_lowercase().replace('_', "-")
}
