//! Suggests the intended word for a misspelt one.

/// The candidate with the smallest edit distance to `word`, if that is at most two; the first one of several.
///
/// ```
/// use tollgate_config::suggest::suggest;
/// assert_eq!(suggest("brust", ["queue", "burst"]), Some("burst"));
/// assert_eq!(suggest("sponge", ["queue", "burst"]), None);
/// ```
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    candidates
        .into_iter()
        // Bounds the work: a word may be as long as a file.
        .filter(|candidate| word.len() <= candidate.len() + 2)
        .map(|candidate| {
            (
                distance(&word, &candidate.chars().collect::<Vec<_>>()),
                candidate,
            )
        })
        // Two edits in a word of three letters would match almost anything.
        .filter(|(distance, candidate)| *distance <= 2 && distance * 3 <= candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The hint for a misspelt word, if one of the candidates is near.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    suggest(word, candidates).map(|near| format!("did you mean `{near}`?"))
}

/// The edit distance: letters inserted, deleted, replaced, or swapped with their neighbour.
///
/// Of the usual dynamic programming table only three rows are kept.
fn distance(a: &[char], b: &[char]) -> usize {
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
    fn one_or_two_edits_are_found() {
        for (written, meant) in [
            ("brust", "burst"),
            ("bursts", "burst"),
            ("quue", "queue"),
            ("Burst", "burst"),
            ("tokn-buckt", "token-bucket"),
            ("tll", "ttl"),
        ] {
            assert_eq!(suggest(written, WORDS), Some(meant), "{written}");
        }
    }

    #[test]
    fn a_word_that_is_far_from_all_has_no_suggestion() {
        for written in ["", "xyz", "window", "tax", "bucket"] {
            assert_eq!(suggest(written, WORDS), None, "{written}");
        }
    }

    #[test]
    fn the_distance_counts_edits() {
        let count = |a: &str, b: &str| {
            distance(
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
