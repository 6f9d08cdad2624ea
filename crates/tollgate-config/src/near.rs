//! What a misspelt word was probably meant to be.

/// The candidate that is a slip or two away from `word`, if there is one; the first of the nearest.
///
/// ```
/// use tollgate_config::near::nearest;
/// assert_eq!(nearest("brust", ["queue", "burst"]), Some("burst"));
/// assert_eq!(nearest("sponge", ["queue", "burst"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    candidates
        .into_iter()
        // A word may be as long as a file; one that is longer by more than two is no slip.
        .filter(|candidate| word.len() <= candidate.len() + 2)
        .map(|candidate| {
            (
                slips(&word, &candidate.chars().collect::<Vec<_>>()),
                candidate,
            )
        })
        // Two slips in a word of three letters would make anything look like anything.
        .filter(|(slips, candidate)| *slips <= 2 && slips * 3 <= candidate.len())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// How many letters were added, lost, mistaken or swapped with their neighbour.
///
/// The usual table, of which three lines are kept.
fn slips(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut line = vec![i + 1];
        for (j, &cb) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(ca != cb))
                .min(above[j + 1] + 1)
                .min(line[j] + 1);
            if i > 0 && j > 0 && ca == b[j - 1] && a[i - 1] == cb {
                best = best.min(before[j - 1] + 1);
            }
            line.push(best);
        }
        before = std::mem::replace(&mut above, line);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 4] = ["burst", "queue", "token-bucket", "ttl"];

    #[test]
    fn a_slip_or_two_is_forgiven() {
        for (written, meant) in [
            ("brust", "burst"),
            ("bursts", "burst"),
            ("quue", "queue"),
            ("Burst", "burst"),
            ("tokn-buckt", "token-bucket"),
            ("tll", "ttl"),
        ] {
            assert_eq!(nearest(written, WORDS), Some(meant), "{written}");
        }
    }

    #[test]
    fn a_word_that_is_far_from_all_is_not_guessed_at() {
        for written in ["", "xyz", "window", "tax", "bucket"] {
            assert_eq!(nearest(written, WORDS), None, "{written}");
        }
    }

    #[test]
    fn slips_are_counted_as_people_make_them() {
        let count = |a: &str, b: &str| {
            slips(
                &a.chars().collect::<Vec<_>>(),
                &b.chars().collect::<Vec<_>>(),
            )
        };
        assert_eq!(count("burst", "burst"), 0);
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("abc", ""), 3);
        assert_eq!(count("brust", "burst"), 1);
        assert_eq!(count("kitten", "sitting"), 3);
    }
}
