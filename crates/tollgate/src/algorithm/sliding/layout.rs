//! The layout of the word of a sliding counter.

/// How much of the oldest part still counts.
///
/// ```
/// use tollgate::{Algorithm, Estimate, Limit, Span};
///
/// let window = Span::from_secs(60);
/// let strict = Algorithm::SlidingWindow { limit: 10, window, estimate: Estimate::Strict };
/// assert_eq!(Limit::new(strict)?, "sliding window 10/min strict".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Estimate {
    /// Spread over the time in which its arrivals came. A limit above 65 535 leaves no room for that
    /// time in the word: it spreads them evenly over the part.
    #[default]
    Span,
    /// Count all of it: never more than the limit in any window.
    Strict,
}

/// How a word is divided. [`Sliding::new`](super::Sliding::new) chooses it by the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Parts of the window; one more is counted.
    pub parts: u32,
    /// Divisions of a part in which first and last arrival are kept, a power of two; 1 without spans.
    pub divisions: u32,
    /// How the oldest part is counted.
    pub tail: Tail,
}

/// What still counts of the oldest part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Its count, spread from its first to its last arrival.
    Span,
    /// Its count, spread evenly over the part.
    Even,
    /// Its whole count.
    Whole,
}

impl Layout {
    /// The finest layout that fits one word beside `limit`.
    pub(super) fn for_limit(limit: u64, estimate: Estimate) -> Layout {
        let (parts, divisions, tail) = match (estimate, limit) {
            (Estimate::Span, 0..=127) => (3, 8, Tail::Span),
            (Estimate::Span, 128..=1023) => (2, 16, Tail::Span),
            (Estimate::Span, 1024..=65_535) => (1, 64, Tail::Span),
            (Estimate::Span, _) => (1, 1, Tail::Even),
            (Estimate::Strict, 0..=2047) => (4, 1, Tail::Whole),
            (Estimate::Strict, 2048..=16_383) => (3, 1, Tail::Whole),
            (Estimate::Strict, 16_384..=262_143) => (2, 1, Tail::Whole),
            (Estimate::Strict, _) => (1, 1, Tail::Whole),
        };
        Layout {
            parts,
            divisions,
            tail,
        }
    }
}

/// What a sliding counter counts in, for a store that keeps it in another form than a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Length of a part.
    pub part: u64,
    /// How many parts, and what is known of each.
    pub layout: Layout,
    /// The most that one part can count.
    pub most: u64,
}
