//! What decides how many may be in flight.

use tollgate::Span;
use tollgate::policy::{Adaptive, Estimator};
use tollgate::shape::{
    AdaptiveError, AdaptiveLimit, Aimd, Gradient2, Learned, Sample, Vegas, Windowed, learned,
};

/// Never fewer.
pub const MIN: u32 = 2;
/// Never more.
pub const MAX: u32 = 1000;
/// At the start.
pub const INITIAL: u32 = 20;
/// What takes longer is given up.
pub const TIMEOUT_NS: u64 = 1_000_000_000;

/// The estimators, the default first.
pub const ESTIMATORS: [Estimator; 3] = [Estimator::Gradient2, Estimator::Vegas, Estimator::Aimd];

/// The name of an estimator in a policy file.
pub fn name(by: Estimator) -> &'static str {
    match by {
        Estimator::Aimd => "aimd",
        Estimator::Vegas => "vegas",
        Estimator::Gradient2 => "gradient2",
    }
}

/// A limit.
#[derive(Debug)]
pub enum Control {
    /// Always the same.
    Fixed(u32),
    /// As the product has it.
    Learned(Box<Learned>),
    /// The estimator alone, without the guard.
    Plain(Windowed<Plain>),
}

/// An estimator alone.
#[derive(Debug)]
pub enum Plain {
    /// See [`Aimd`].
    Aimd(Aimd),
    /// See [`Vegas`].
    Vegas(Vegas),
    /// See [`Gradient2`].
    Gradient2(Gradient2),
}

impl AdaptiveLimit for Plain {
    fn limit(&self) -> u32 {
        match self {
            Self::Aimd(inner) => inner.limit(),
            Self::Vegas(inner) => inner.limit(),
            Self::Gradient2(inner) => inner.limit(),
        }
    }

    fn sample(&mut self, sample: Sample) -> u32 {
        match self {
            Self::Aimd(inner) => inner.sample(sample),
            Self::Vegas(inner) => inner.sample(sample),
            Self::Gradient2(inner) => inner.sample(sample),
        }
    }
}

impl Control {
    /// The estimator as the product uses it.
    ///
    /// # Errors
    ///
    /// If the estimator does not take its settings.
    pub fn learned(by: Estimator) -> Result<Self, AdaptiveError> {
        let adaptive = Adaptive {
            by,
            min: MIN,
            max: MAX,
            initial: INITIAL,
            timeout: Span::from_nanos(TIMEOUT_NS),
        };
        Ok(Self::Learned(Box::new(learned(&adaptive)?)))
    }

    /// The estimator without its guard, behind plain windows.
    ///
    /// # Errors
    ///
    /// If the estimator does not take its settings.
    pub fn plain(by: Estimator) -> Result<Self, AdaptiveError> {
        let inner = match by {
            Estimator::Aimd => {
                let builder = Aimd::builder().min(MIN).initial(INITIAL).max(MAX);
                Plain::Aimd(builder.timeout_ns(TIMEOUT_NS).build()?)
            }
            Estimator::Vegas => {
                let builder = Vegas::builder().min(MIN).initial(INITIAL).max(MAX);
                Plain::Vegas(builder.with_seed(1).build()?)
            }
            Estimator::Gradient2 => {
                let builder = Gradient2::builder().min(MIN).initial(INITIAL).max(MAX);
                Plain::Gradient2(builder.build()?)
            }
        };
        Ok(Self::Plain(Windowed::new(inner)))
    }

    /// How many may be in flight.
    pub fn limit(&self) -> u32 {
        match self {
            Self::Fixed(limit) => *limit,
            Self::Learned(inner) => inner.limit(),
            Self::Plain(inner) => inner.limit(),
        }
    }

    /// One has left.
    pub fn sample(&mut self, now_ns: u64, sample: Sample) {
        match self {
            Self::Fixed(_) => {}
            Self::Learned(inner) => drop(inner.sample(now_ns, sample)),
            Self::Plain(inner) => drop(inner.sample(now_ns, sample)),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64, oldest_running_ns: u64) {
        if let Self::Learned(inner) = self {
            inner.tick(now_ns, oldest_running_ns);
        }
    }
}
