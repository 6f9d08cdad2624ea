//! Passes over contestants, and the figures of each.

use std::io;

/// Runs `turn` for every contestant in each pass and returns the results of each contestant, pass by pass.
///
/// All contestants take one turn in a pass, in an order that rotates by one with every pass. So a busy minute of the machine
/// falls on all of them, and none always follows the same other.
pub(crate) fn interleave<C, T>(
    passes: u16,
    contestants: &mut [C],
    mut turn: impl FnMut(&mut C, usize) -> io::Result<T>,
) -> io::Result<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = contestants.iter().map(|_| Vec::new()).collect();
    let count = contestants.len();
    for pass in 0..usize::from(passes) {
        for place in 0..count {
            let at = (place + pass) % count;
            results[at].push(turn(&mut contestants[at], pass)?);
        }
    }
    Ok(results)
}

/// One figure, pass by pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures(pub(crate) Vec<f64>);

impl Figures {
    /// One figure of every result; none if a result does not have it.
    pub(crate) fn collect<T>(results: &[T], figure: impl Fn(&T) -> Option<f64>) -> Figures {
        let all: Option<Vec<f64>> = results.iter().map(figure).collect();
        Figures(all.unwrap_or_default())
    }

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

    /// This over that, pass by pass.
    pub(crate) fn over(&self, other: &Figures) -> Figures {
        Figures(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

/// The ratio of two medians; `None` if one is missing.
pub(crate) fn ratio(first: &Figures, second: &Figures) -> Option<f64> {
    Some(first.median()? / second.median()?)
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
    fn a_ratio_is_taken_pass_by_pass() {
        let (slow, fast) = (Figures(vec![1.0, 2.0]), Figures(vec![2.0, 8.0]));
        assert_eq!(fast.over(&slow).0, [2.0, 4.0]);
        assert_eq!(ratio(&fast, &slow), Some(5.0 / 1.5));
    }

    #[test]
    fn the_order_of_turns_rotates_and_results_stay_with_their_contestant() {
        let mut turns = Vec::new();
        let results = interleave(3, &mut ['a', 'b', 'c'], |name, pass| {
            turns.push(*name);
            Ok(format!("{name}{pass}"))
        });
        assert_eq!(turns.iter().collect::<String>(), "abcbcacab");
        assert_eq!(results.unwrap()[1], ["b0", "b1", "b2"]);
    }
}
