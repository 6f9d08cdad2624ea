//! Redacts passwords.
//!
//! A problem quotes the file in its message and shows the line of its place. In both, text between `://` and `@` and text
//! after `password:` is replaced. This goes by the look of the text, because a line that cannot be parsed is shown as well.
//! It redacts too much rather than too little: up to the last `@`, up to the end of the line.
//!
//! Readers that know more mark a place ([`Report::redact`](crate::report::Report::redact)).

use std::ops::Range;

/// Replaces each redacted character of a line.
const MASK: char = '*';

/// A text for a message, with `…` for the user and the password in an address.
pub(crate) fn without_password(text: &str) -> String {
    match between(text) {
        Some(hidden) => {
            let before = text.get(..hidden.start).unwrap_or_default();
            let after = text.get(hidden.end..).unwrap_or_default();
            format!("{before}…{after}")
        }
        None => text.to_owned(),
    }
}

/// A line of the file without what looks like a password, and without the columns (from 0, in characters) in `places`.
/// Characters are replaced one for one, so that carets stay aligned.
pub(crate) fn redacted_line(line: &str, places: &[Range<usize>]) -> String {
    let hidden = [between(line), behind_password(line)];
    line.char_indices()
        .enumerate()
        .map(|(column, (at, c))| {
            let looks = hidden.iter().flatten().any(|range| range.contains(&at));
            let named = places.iter().any(|range| range.contains(&column));
            if (looks || named) && !c.is_whitespace() {
                MASK
            } else {
                c
            }
        })
        .collect()
}

/// The bytes between `://` and the last `@`.
fn between(text: &str) -> Option<Range<usize>> {
    let start = text.find("://")? + "://".len();
    let end = text.rfind('@')?;
    (start < end).then_some(start..end)
}

/// The bytes after `password:`, also if the name is longer (`sentinel_password:`) or in quotes.
fn behind_password(line: &str) -> Option<Range<usize>> {
    const NAME: &str = "password";
    let lower = line.to_ascii_lowercase();
    lower.match_indices(NAME).find_map(|(at, _)| {
        let rest = lower.get(at + NAME.len()..)?;
        let value = rest
            .trim_start_matches(['"', '\''])
            .trim_start()
            .strip_prefix(':')?;
        Some(line.len() - value.len()..line.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_quoted_without_its_password() {
        for (text, shown) in [
            ("redis://u:p@h:1/0", "redis://…@h:1/0"),
            ("redis://:p@ss:w/rd@h", "redis://…@h"),
            ("redis://h", "redis://h"),
            ("a@b", "a@b"),
            ("redis://@h", "redis://@h"),
            ("", ""),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }

    #[test]
    fn a_line_keeps_its_columns_and_loses_its_password() {
        for (line, shown) in [
            ("store: redis://ü:sé@h:x", "store: redis://****@h:x"),
            ("  password: hunter2 # x", "  password: ******* * *"),
            (
                "{\"sentinel_password\" : \"x\"}",
                "{\"sentinel_password\" : ****",
            ),
            ("password_env: NAME", "password_env: NAME"),
            ("key: query.password", "key: query.password"),
            (
                "password_env: A, password: b",
                "password_env: A, password: *",
            ),
        ] {
            assert_eq!(redacted_line(line, &[]), shown);
        }
        assert_eq!(redacted_line("é secret ü!", &[2..8, 9..10]), "é ****** *!");
        assert_eq!(redacted_line("abc", &[0..0, 1..usize::MAX]), "a**");
    }
}
