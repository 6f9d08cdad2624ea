//! Windows within a run: whether a key got too much in any of them.
//!
//! # Theory
//!
//! A limiter that admits twice its burst at once, and then nothing for a while, admits no more than allowed in the whole run. It shows
//! only in the window of the burst. So the scan tries several lengths. For each length, a window starts at each moment at which an
//! admitted request was sent. The scan counts the requests that were sent in the window and answered in it. All of them were decided
//! within the window, so they may not exceed the most of that length.
//!
//! The lengths are the period of the limit, its halves down to a 1024th, and its doubles up to the run, each less a
//! nanosecond: a window of the sliding algorithms is half open, and one that holds both its ends may hold two windows' worth.
//! A window of any other length is at most twice as long as one of these.
//!
//! # Cost
//!
//! Admissions are in the order of sending. Both ends of a window only move forward, so a length takes one pass over the requests
//! and one over the responses.

use tollgate::{Algorithm, Span};

use super::{AdmittedRequest, Allowance, AuditFinding};

/// The shortest length is the period divided by two this many times.
const HALVES: u32 = 10;

/// Scans the windows of one key after the other.
#[derive(Debug)]
pub(super) struct WindowScan<'a> {
    allowance: &'a Allowance,
    cost: u64,
    lengths: Vec<u64>,
    /// The indices of a key's admissions in order of arrival. Reused.
    arrivals: Vec<usize>,
}

impl<'a> WindowScan<'a> {
    /// For a run of this many nanoseconds.
    pub(super) fn new(allowance: &'a Allowance, cost: u64, run: u64) -> WindowScan<'a> {
        WindowScan {
            allowance,
            cost,
            lengths: lengths(&allowance.algorithm, run),
            arrivals: Vec::new(),
        }
    }

    /// The window in which this key exceeded its bound the most, if any. Its admissions are in the order of sending.
    pub(super) fn worst(&mut self, key: u64, own: &[AdmittedRequest]) -> Option<AuditFinding> {
        if own.len() < 2 {
            return None;
        }
        self.arrivals.clear();
        self.arrivals.extend(0..own.len());
        self.arrivals
            .sort_unstable_by_key(|place| own.get(*place).map(|admission| admission.arrived));
        let mut worst: Option<AuditFinding> = None;
        for length in &self.lengths {
            let Some((from, times)) = self.fullest(own, *length) else {
                continue;
            };
            let within = (from, from.saturating_add(*length));
            let finding = AuditFinding::new(self.allowance, key, within, times, self.cost);
            if finding.over() > worst.as_ref().map_or(0, AuditFinding::over) {
                worst = Some(finding);
            }
        }
        worst
    }

    /// Of all windows of this length: where the one begins that most were decided in, and how many.
    fn fullest(&self, own: &[AdmittedRequest], length: u64) -> Option<(u64, u64)> {
        let mut arrivals = self
            .arrivals
            .iter()
            .filter_map(|place| own.get(*place))
            .peekable();
        let mut leaving = own.iter().peekable();
        let (mut within, mut until) = (0_u64, 0_u64);
        let mut fullest = None;
        for begin in own {
            let from = begin.sent;
            // Requests sent before this moment leave the window, if they were counted.
            while let Some(left) = leaving.next_if(|left| left.sent < from) {
                if left.arrived <= until {
                    within -= 1;
                }
            }
            until = from.saturating_add(length);
            while let Some(come) = arrivals.next_if(|come| come.arrived <= until) {
                if come.sent >= from {
                    within += 1;
                }
            }
            if fullest.is_none_or(|(_, most)| within > most) {
                fullest = Some((from, within));
            }
        }
        fullest
    }
}

/// The lengths to scan; none if the limit does not bound what passes in a time.
fn lengths(algorithm: &Algorithm, run: u64) -> Vec<u64> {
    let Some(period) = period(algorithm).map(|period| period.as_nanos()) else {
        return Vec::new();
    };
    // From the shortest on: of two windows that are as wrong the shorter one says more.
    let shorter = (1..=HALVES).rev().map(|half| period >> half);
    let longer = std::iter::successors(Some(period), |length| length.checked_mul(2));
    let longer = longer.take_while(|length| *length <= run.max(period));
    let all = shorter.chain(longer);
    all.filter_map(|length| length.checked_sub(1)).collect()
}

fn period(algorithm: &Algorithm) -> Option<Span> {
    match *algorithm {
        Algorithm::TokenBucket { rate, .. }
        | Algorithm::Gcra { rate, .. }
        | Algorithm::LeakyBucket { rate, .. } => Some(rate.per()),
        Algorithm::FixedWindow { window, .. }
        | Algorithm::SlidingLog { window, .. }
        | Algorithm::SlidingWindow { window, .. } => Some(window),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn bucket(burst: u64) -> Allowance {
        Allowance {
            algorithm: Algorithm::TokenBucket {
                rate: "100/s".parse().unwrap(),
                burst,
            },
            slack: Span::ZERO,
        }
    }

    fn admissions(sent: impl Iterator<Item = u64>, takes: u64) -> Vec<AdmittedRequest> {
        let admission = |sent| AdmittedRequest {
            key: 0,
            sent,
            arrived: sent + takes,
        };
        sent.map(admission).collect()
    }

    fn worst(allowance: &Allowance, own: &[AdmittedRequest]) -> Option<AuditFinding> {
        let run = own.iter().map(|admission| admission.arrived).max();
        WindowScan::new(allowance, 1, run.unwrap_or(0)).worst(0, own)
    }

    #[test]
    fn an_excessive_burst_is_found_though_the_average_is_right() {
        // Twenty at once every second, where ten may come at once and a hundred in a second.
        let bursts = (0..5).flat_map(|second| [second * 1000 * MS; 20]);
        let found = worst(&bucket(10), &admissions(bursts, MS / 2)).unwrap();
        assert_eq!((found.admitted, found.allowed), (20, 10));
        assert!(found.window < Span::from_millis(2), "{found:?}");
        // The same with a burst of twenty is right.
        let bursts = (0..5).flat_map(|second| [second * 1000 * MS; 20]);
        assert_eq!(worst(&bucket(20), &admissions(bursts, MS / 2)), None);
    }

    #[test]
    fn requests_perhaps_decided_outside_are_not_counted() {
        // All responses arrive after the shortest lengths: perhaps they were not decided together.
        let bursts = admissions([0; 20].into_iter(), 200 * MS);
        assert_eq!(worst(&bucket(10), &bursts), None);
        let found = worst(&bucket(10), &admissions([0; 20].into_iter(), 90 * MS));
        assert_eq!(found, None, "nine more were earned, and one is in doubt");
        let found = worst(&bucket(10), &admissions([0; 20].into_iter(), 50 * MS)).unwrap();
        assert_eq!(found.allowed, 16);
    }

    #[test]
    fn windows_are_counted_like_a_naive_count() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..200 {
            let mut own: Vec<AdmittedRequest> = (0..next(30) + 2)
                .map(|_| {
                    let sent = next(100);
                    AdmittedRequest {
                        key: 0,
                        sent,
                        arrived: sent + next(20),
                    }
                })
                .collect();
            own.sort_unstable();
            let allowance = bucket(1);
            let mut windows = WindowScan::new(&allowance, 1, 0);
            windows.worst(0, &own);
            for length in [0, 1, 5, 19, 50, 200] {
                let inside = |from: u64| {
                    let is_in = |a: &&AdmittedRequest| a.sent >= from && a.arrived <= from + length;
                    own.iter().filter(is_in).count() as u64
                };
                let most = own.iter().map(|a| inside(a.sent)).max();
                let found = windows.fullest(&own, length);
                assert_eq!(found.map(|(_, times)| times), most, "{length}: {own:?}");
                assert_eq!(found.map(|(from, _)| inside(from)), most);
            }
        }
    }

    #[test]
    fn lengths_reach_from_a_thousandth_of_the_period_to_the_run() {
        let of = |run| lengths(&bucket(1).algorithm, run);
        assert_eq!(of(0).len(), 11);
        assert_eq!(of(0).last(), Some(&999_999_999));
        assert!(of(4_000_000_000).is_sorted());
        assert_eq!(of(4_000_000_000).last(), Some(&3_999_999_999));
        let at_once = Algorithm::Concurrency {
            limit: 1,
            ttl: Span::from_secs(1),
        };
        assert!(lengths(&at_once, 1).is_empty());
    }
}
