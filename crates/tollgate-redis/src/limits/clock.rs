//! In which units of time the scripts count.

use tollgate::time::Moment;

/// The clock of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Nanoseconds in a unit.
    pub(crate) unit: u64,
    /// When ticks of buckets begin to be counted, in units since the origin.
    pub(crate) since: u64,
    /// For how long after that they must be countable, in units.
    pub(crate) lasts: u64,
    /// The time that is thought to be now, if not the system's: for tests.
    pub(crate) thought: Option<Moment>,
}

impl Timing {
    /// The server's clock in microseconds, good until 2056.
    pub(crate) const SERVER: Timing = Timing {
        unit: 1_000,
        since: 1_577_836_800_000_000,
        lasts: 36 * 366 * 86_400_000_000,
        thought: None,
    };

    /// A clock that is told the time, in units of so many nanoseconds.
    pub(crate) fn given(unit: u64) -> Timing {
        Timing {
            unit: unit.max(1),
            since: 0,
            // Buckets of a few ticks in a unit are numbers too, unless units are very short.
            lasts: (1 << 52) / unit.clamp(1, 8),
            thought: Some(Moment::ORIGIN),
        }
    }

    /// Units in a second, rounded up.
    pub(crate) fn second(&self) -> u64 {
        1_000_000_000_u64.div_ceil(self.unit)
    }

    /// About what time it is on the server. Only to choose a period of a calendar; the script has the last
    /// word.
    #[expect(
        clippy::disallowed_methods,
        reason = "periods of a calendar are chosen by the wall clock, and the server's own is not at hand"
    )]
    pub(super) fn about_now(&self) -> Moment {
        self.thought.unwrap_or_else(|| {
            let since = std::time::SystemTime::now()
                .duration_since(std::time::SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            Moment::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        })
    }
}
