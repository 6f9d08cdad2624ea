//! How much a connection may do that leads to nothing.
//!
//! A call that is begun and taken back, a head that is none, an empty piece: each is allowed, costs us more than its
//! sender, and is rare among those who mean well. So they are counted together, and a connection that has too many of
//! them within a while is ended. What costs both sides the same (pings, calls that are answered) is not counted: who
//! sends it without reading our answers is not read from.

use tokio::time::{Duration, Instant};

/// So many.
const COUNT: u32 = 1_000;
/// Within so long.
const WHILE: Duration = Duration::from_secs(10);

/// What is left of it.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: Option<Instant>,
    count: u32,
}

impl Patience {
    /// Something led to nothing. False if that is too much.
    pub(super) fn bears(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now - since >= WHILE) {
            self.since = Some(now);
            self.count = 0;
        }
        self.count += 1;
        self.count <= COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_within_a_while_are_borne_and_no_more() {
        let mut patience = Patience::default();
        let now = Instant::now();
        assert!((0..COUNT).all(|_| patience.bears(now)));
        assert!(!patience.bears(now + WHILE / 2));
        assert!(patience.bears(now + WHILE));
    }
}
