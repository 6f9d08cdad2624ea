//! The turns of a contestant, as figures and as a row of a table.

use std::time::Duration;

/// One turn of one contestant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) answers: u64,
    /// Answers other than expected.
    pub(crate) unexpected: u64,
    pub(crate) elapsed: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Of the server; `None` where there is no `/proc`.
    pub(crate) cpu: Option<Duration>,
    /// Of everything but the server and this process.
    pub(crate) cpu_elsewhere: Option<Duration>,
}

impl Turn {
    pub(crate) fn rate(&self) -> Option<f64> {
        Some(self.answers as f64 / self.elapsed.as_secs_f64())
    }

    pub(crate) fn p50_us(&self) -> Option<f64> {
        Some(self.p50.as_secs_f64() * 1e6)
    }

    pub(crate) fn p99_us(&self) -> Option<f64> {
        Some(self.p99.as_secs_f64() * 1e6)
    }

    pub(crate) fn cpu_us(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() * 1e6 / self.answers as f64)
    }

    /// The part of one core that the server used.
    pub(crate) fn cpu_share(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() / self.elapsed.as_secs_f64())
    }

    /// The cores that the rest of the machine used.
    pub(crate) fn cores_elsewhere(&self) -> Option<f64> {
        Some(self.cpu_elsewhere?.as_secs_f64() / self.elapsed.as_secs_f64())
    }
}

/// A figure of a turn, if it has it.
pub(crate) type Figure = fn(&Turn) -> Option<f64>;

/// One figure of every turn; none if a turn does not have it.
pub(crate) fn figures(turns: &[Turn], figure: Figure) -> Figures {
    let all: Option<Vec<f64>> = turns.iter().map(figure).collect();
    Figures(all.unwrap_or_default())
}

/// Answers other than expected.
pub(crate) fn unexpected(turns: &[Turn]) -> u64 {
    turns.iter().map(|turn| turn.unexpected).sum()
}

/// A row of a table: medians of these turns.
pub(crate) fn cells(name: &str, turns: &[Turn]) -> [String; 9] {
    let rate = figures(turns, Turn::rate);
    let median = |figure: Figure| figures(turns, figure).median();
    [
        name.to_owned(),
        shown(rate.median(), |rate| format!("{rate:.0}")),
        shown(rate.spread(), |part| format!("±{:.0} %", part * 100.0)),
        shown(median(Turn::p50_us), |us| format!("{us:.0}")),
        shown(median(Turn::p99_us), |us| format!("{us:.0}")),
        shown(median(Turn::cpu_share), |part| {
            format!("{:.0} %", part * 100.0)
        }),
        shown(median(Turn::cpu_us), |us| format!("{us:.2}")),
        unexpected(turns).to_string(),
        shown(median(Turn::cores_elsewhere), |cores| format!("{cores:.2}")),
    ]
}

/// A figure in words, or a dash if there is none.
pub(crate) fn shown(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), show)
}

/// One figure, turn by turn.
#[derive(Clone, Debug)]
pub(crate) struct Figures(pub(crate) Vec<f64>);

impl Figures {
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.as_slice() {
            [] => None,
            even if even.len().is_multiple_of(2) => {
                Some(f64::midpoint(even[middle - 1], even[middle]))
            }
            odd => Some(odd[middle]),
        }
    }

    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        let least = self.0.iter().copied().reduce(f64::min)?;
        Some((least, self.0.iter().copied().reduce(f64::max)?))
    }

    /// Half of the range, as a part of the median.
    pub(crate) fn spread(&self) -> Option<f64> {
        let (least, most) = self.range()?;
        Some((most - least) / 2.0 / self.median()?)
    }

    /// This over that, turn by turn.
    pub(crate) fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle_and_the_spread_is_half_the_range() {
        assert_eq!(Figures(vec![3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(Figures(vec![4.0, 1.0, 2.0, 3.0]).median(), Some(2.5));
        assert_eq!(Figures(vec![9.0, 10.0, 11.0]).spread(), Some(0.1));
        assert_eq!(Figures(vec![]).median(), None);
        assert_eq!(Figures(vec![]).spread(), None);
    }

    #[test]
    fn a_ratio_is_taken_turn_by_turn() {
        let (slow, fast) = (Figures(vec![1.0, 2.0]), Figures(vec![2.0, 8.0]));
        assert_eq!(fast.over(&slow).0, [2.0, 4.0]);
    }
}
