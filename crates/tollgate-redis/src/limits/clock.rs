//! The clock of the scripts, and its units of time.

use tollgate::Moment;

/// The clock of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScriptClock {
    /// Nanoseconds in a unit.
    pub(crate) unit: u64,
    /// Where ticks of buckets start, in units since the origin.
    pub(crate) since: u64,
    /// How long after that they must stay countable, in units.
    pub(crate) lasts: u64,
    /// The node's time, if not the system's: for tests.
    pub(crate) node_time: Option<Moment>,
}

impl ScriptClock {
    /// The server's clock in microseconds, good until 2056.
    pub(crate) const SERVER: ScriptClock = ScriptClock {
        unit: 1_000,
        since: 1_577_836_800_000_000,
        lasts: 36 * 366 * 86_400_000_000,
        node_time: None,
    };

    /// A clock whose time is an argument of each call, in units of this many nanoseconds.
    pub(crate) fn manual(unit: u64) -> ScriptClock {
        ScriptClock {
            unit: unit.max(1),
            since: 0,
            // Buckets of a few ticks in a unit are numbers too, unless units are very short.
            lasts: (1 << 52) / unit.clamp(1, 8),
            node_time: Some(Moment::ORIGIN),
        }
    }

    /// Units in a second, rounded up.
    pub(crate) fn second(&self) -> u64 {
        1_000_000_000_u64.div_ceil(self.unit)
    }

    /// The approximate time of the server. It only selects a period of a calendar; the script decides by its own time.
    #[expect(
        clippy::disallowed_methods,
        reason = "periods of a calendar are selected by the wall clock, and the server's own is not available"
    )]
    pub(super) fn approximate_now(&self) -> Moment {
        self.node_time.unwrap_or_else(|| {
            let since = std::time::SystemTime::now()
                .duration_since(std::time::SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            Moment::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        })
    }
}
