//! Splits a Redis command line into words, as `redis-cli` does: at spaces outside of `'…'` and `"…"`.
//! In double quotes a backslash escapes the next character.

use crate::error::LoadError;

/// More than any command needs.
const MAX_WORDS: usize = 1024;

/// The words of a command.
pub(crate) fn split(text: &str) -> Result<Vec<String>, LoadError> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            break;
        }
        let mut word = String::new();
        while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
            match c {
                '\'' | '"' => quoted(c, &mut chars, &mut word)?,
                c => word.push(c),
            }
        }
        words.push(word);
    }
    match words.len() {
        0 => Err(LoadError::new(
            "`--command` is empty",
            "write a command, such as `CL.THROTTLE {key} 99 100 1 {cost}`",
        )),
        1..=MAX_WORDS => Ok(words),
        many => Err(LoadError::new(
            format!("`--command` has {many} words"),
            "use at most 1024",
        )),
    }
}

fn quoted(
    quote: char,
    chars: &mut impl Iterator<Item = char>,
    word: &mut String,
) -> Result<(), LoadError> {
    while let Some(c) = chars.next() {
        match c {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    Err(LoadError::new(
        format!("a {quote} in `--command` is not closed"),
        "close it, or put the other kind of quotes around it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_spaces_but_not_within_quotes() {
        let words = split(r#"  EVAL 'return "a b"' 1 {key} "x \" y" pre'fi x' "" "#).unwrap();
        let expected = [
            "EVAL",
            r#"return "a b""#,
            "1",
            "{key}",
            r#"x " y"#,
            "prefi x",
            "",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn an_open_quote_and_an_empty_command_are_errors() {
        assert!(
            split("EVAL 'return")
                .unwrap_err()
                .problem
                .contains("not closed")
        );
        assert!(split("   ").unwrap_err().problem.contains("empty"));
    }
}
