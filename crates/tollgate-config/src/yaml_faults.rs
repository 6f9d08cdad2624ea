//! Explains errors of the YAML parser in terms of the text that was typed.
//!
//! The parser's messages use terms of the YAML grammar. This module rewrites the common ones and passes on the
//! others.

use saphyr_parser::ScanError;

use crate::problem::Place;
use crate::report::{Report, Reported};
use crate::yaml::DEPTH_MAX;

/// Reports an error of the parser.
pub(crate) fn explain(error: &ScanError, report: &Report<'_>) -> Reported {
    let (line, column) = (error.marker().line(), error.marker().col() + 1);
    let source = report.line(line);
    let at = |column: usize, length: usize| Place {
        line,
        column,
        length,
    };
    // A tab is the cause wherever the parser noticed it.
    for line in [line, line + 1] {
        let indent = report.line(line).chars().take_while(|c| c.is_whitespace());
        if let Some(tab) = indent.into_iter().position(|c| c == '\t') {
            return report.error(
                Place {
                    line,
                    column: tab + 1,
                    length: 1,
                },
                "tab",
                "a tab is used to indent",
                "YAML is indented with spaces only: replace the tab by two spaces",
            );
        }
    }
    if let Some((from, length)) = braced(source, column) {
        return report.error(
            at(from, length),
            "yaml",
            "a text with `{` in it needs quotes inside brackets",
            "write it in quotes, such as \"/api/rides/{ride}/cancel\"",
        );
    }
    let info = error.info();
    let has = |part: &str| info.contains(part);
    if has("unknown anchor") {
        let rest = source.chars().skip(column - 1);
        let word: String = rest
            .take_while(|c| !c.is_whitespace() && !",]}".contains(*c))
            .collect();
        return report.error(
            at(column, word.chars().count()),
            "alias",
            "a text that begins with `*` needs quotes: YAML reads it as an alias",
            format!("write \"{word}\""),
        );
    }
    if has("recursion limit") {
        return too_deep(at(column, 1), report);
    }
    let (code, message, hint) = if has("anchor or alias") {
        (
            "yaml",
            "a value that begins with `*` or `&` needs quotes".to_owned(),
            "write it in quotes, such as \"*bot*\"",
        )
    } else if has("unexpected end of stream") || has("in quoted scalar") {
        (
            "yaml",
            "a quoted text does not end where it should".to_owned(),
            "add the missing quote at the end of the text",
        )
    } else if has("while parsing a flow") || has("unexpected end of plain scalar") {
        (
            "yaml",
            "a bracket is not closed, or a comma is missing".to_owned(),
            "see that every `{` has its `}`, every `[` its `]`, and that a comma stands between entries",
        )
    } else if has("mapping values are not allowed") || has("':'") {
        (
            "yaml",
            "a `:` stands where no field can begin".to_owned(),
            "see that the line is indented like its neighbours, and put quotes around a text with `: ` in it",
        )
    } else if has("simple key") || has("did not find expected") {
        (
            "yaml",
            "this line is neither a field nor part of the one above".to_owned(),
            "write `name: value`, indented like its neighbours; a list item begins with `- `",
        )
    } else if has("unexpected character") {
        (
            "yaml",
            "no value can begin with this character".to_owned(),
            "put the text in quotes",
        )
    } else if has("unprintable") {
        (
            "yaml",
            "there is a control character in the file".to_owned(),
            "remove it; in a quoted text it can be written as \"\\x1b\"",
        )
    } else if has("tab") {
        (
            "tab",
            "a tab stands where YAML wants spaces".to_owned(),
            "replace the tab by spaces",
        )
    } else {
        (
            "yaml",
            format!("this is not YAML: {info}"),
            "see that the lines around are indented alike, and put quotes around unusual texts",
        )
    };
    report.error(at(column, 1), code, message, hint)
}

/// Reports nesting beyond the bound.
pub(crate) fn too_deep(at: Place, report: &Report<'_>) -> Reported {
    report.error(
        at,
        "too-deep",
        format!("this is nested more than {DEPTH_MAX} levels deep"),
        "a policy needs about six levels; see whether a bracket is missing its end",
    )
}

/// The place of a path with a capture whose brace the parser took for a map: its column and its length.
fn braced(line: &str, column: usize) -> Option<(usize, usize)> {
    let characters: Vec<char> = line.chars().collect();
    // The parser stops at the brace, or behind the map that it read.
    let near = characters.get(..column.min(characters.len()))?;
    let brace = near.iter().rposition(|c| *c == '{')?;
    let inside = |c: char| !c.is_whitespace() && !"[,".contains(c);
    let before = characters.get(..brace)?.iter().rev();
    let before = before.take_while(|c| inside(**c)).count();
    let after = characters.get(brace..)?.iter();
    let after = after.take_while(|c| inside(**c)).count();
    let starts_with_slash = characters.get(brace - before) == Some(&'/');
    (before > 0 && starts_with_slash).then_some((brace - before + 1, before + after))
}
