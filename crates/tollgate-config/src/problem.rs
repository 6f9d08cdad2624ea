//! Problems of a policy file: what is wrong, where, and how to fix it.
//!
//! A [`Problem`] has its place and a copy of the line, so it can be printed after the file was dropped. This module
//! does not depend on YAML or on policies.

use std::fmt;
use std::sync::Arc;

/// The maximum number of problems that are kept. Further ones are only counted, because a file of a megabyte can have
/// a great many.
const KEPT_MAX: usize = 100;
/// Characters of a source line that are shown around the place.
const SHOWN_MAX: usize = 120;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The policy cannot be used.
    Error,
    /// The policy is valid, but probably does not do what was intended.
    Warning,
    /// The policy is valid, and this effect may surprise.
    Note,
}

impl Severity {
    /// `error`, `warning` or `note`.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A range within one line of the file. Lines and columns count from 1, columns in characters. Line 0 is the file as
/// a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) length: usize,
}

impl Place {
    /// The file as a whole.
    pub(crate) const FILE: Place = Place {
        line: 0,
        column: 0,
        length: 0,
    };
}

/// One problem of a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Its severity.
    pub severity: Severity,
    /// A stable code for this kind of problem, such as `unknown-field`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub hint: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The first column, from 1, in characters.
    pub column: usize,
    /// The length in characters.
    pub length: usize,
    /// The text of the line.
    pub source: String,
}

impl Problem {
    /// Formats the problem for a terminal: message, place, the line with carets, hint.
    pub fn render(&self, name: &str) -> String {
        let mut text = format!("{}: {}\n", self.severity, shown(&self.message));
        if self.line == 0 {
            text.push_str(&format!("  --> {}\n", shown(name)));
        } else {
            let (line, column) = (self.line, self.column);
            text.push_str(&format!("  --> {}:{line}:{column}\n", shown(name)));
            let (excerpt, from) = excerpt(&self.source, self.column.saturating_sub(1));
            let room = excerpt.chars().count().saturating_sub(from).max(1);
            let carets = "^".repeat(self.length.clamp(1, room));
            text.push_str(&format!("   |  {}\n", shown(&excerpt)));
            text.push_str(&format!("   |  {:from$}{carets}\n", ""));
        }
        text.push_str(&format!("hint: {}\n", shown(&self.hint)));
        text
    }

    /// Formats the problem as one JSON object on one line.
    pub fn to_json(&self, name: &str) -> String {
        serde_json::json!({
            "severity": self.severity.name(),
            "code": self.code,
            "file": name,
            "line": self.line,
            "column": self.column,
            "length": self.length,
            "message": self.message,
            "hint": self.hint,
        })
        .to_string()
    }
}

/// The part of a line that is shown, and the column of the place in it.
fn excerpt(line: &str, from: usize) -> (String, usize) {
    let characters = line.chars().count();
    if characters <= SHOWN_MAX {
        return (line.into(), from.min(characters));
    }
    let skip = from
        .saturating_sub(SHOWN_MAX / 3)
        .min(characters - SHOWN_MAX);
    let part: String = line.chars().skip(skip).take(SHOWN_MAX).collect();
    let before = if skip > 0 { "…" } else { "" };
    let after = if skip + SHOWN_MAX < characters {
        "…"
    } else {
        ""
    };
    let at = from - skip + before.chars().count();
    (format!("{before}{part}{after}"), at)
}

/// Replaces each control character by one visible character: a file cannot send escape sequences to a terminal, and
/// carets stay aligned.
fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// All problems of one file, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    name: Arc<str>,
    list: Vec<Problem>,
    /// Errors, warnings and notes, including those that are not kept.
    counts: [usize; 3],
}

impl Problems {
    pub(crate) fn new(name: &str, mut list: Vec<Problem>) -> Problems {
        list.sort_by_key(|p| (p.line, p.column, p.severity));
        let count = |severity| list.iter().filter(|p| p.severity == severity).count();
        let counts = [Severity::Error, Severity::Warning, Severity::Note].map(count);
        if list.len() > KEPT_MAX {
            // Errors come first: notes must not displace errors.
            list.sort_by_key(|p| p.severity);
            list.truncate(KEPT_MAX);
            list.sort_by_key(|p| (p.line, p.column, p.severity));
        }
        Problems {
            name: Arc::from(name),
            list,
            counts,
        }
    }

    /// The name of the file, as given to the reader.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The problems, in the order of the file; the first hundred if there are more.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// Whether there is no problem.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of problems of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        let [errors, warnings, notes] = self.counts;
        match severity {
            Severity::Error => errors,
            Severity::Warning => warnings,
            Severity::Note => notes,
        }
    }

    /// `3 errors, 1 warning`.
    pub fn summary(&self) -> String {
        let all = [Severity::Error, Severity::Warning, Severity::Note];
        let parts: Vec<String> = all
            .into_iter()
            .filter(|severity| self.count(*severity) > 0)
            .map(|severity| {
                let count = self.count(severity);
                let plural = if count == 1 { "" } else { "s" };
                format!("{count} {severity}{plural}")
            })
            .collect();
        parts.join(", ")
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    /// Formats every problem with an empty line after each, and a summary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            writeln!(f, "{}", problem.render(&self.name))?;
        }
        let all: usize = self.counts.iter().sum();
        let more = all.saturating_sub(self.list.len());
        match more {
            0 => writeln!(f, "{}", self.summary()),
            _ => writeln!(f, "{} ({more} not shown)", self.summary()),
        }
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(source: &str, column: usize, length: usize) -> Problem {
        Problem {
            severity: Severity::Error,
            code: "test",
            message: "wrong".into(),
            hint: "fix it".into(),
            line: 4,
            column,
            length,
            source: source.into(),
        }
    }

    #[test]
    fn a_problem_has_message_place_and_hint() {
        assert_eq!(
            problem("    brust: 10", 5, 5).render("a.yaml"),
            "error: wrong\n\
             \x20 --> a.yaml:4:5\n\
             \x20  |      brust: 10\n\
             \x20  |      ^^^^^\n\
             hint: fix it\n"
        );
    }

    #[test]
    fn carets_stay_below_the_line_even_if_the_place_is_longer() {
        let text = problem("ab", 2, 99).render("a");
        assert!(text.contains("\n   |   ^\n"), "{text}");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = format!("{}HERE{}", "x".repeat(5000), "y".repeat(5000));
        let text = problem(&line, 5001, 4).render("a");
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[3].chars().position(|c| c == '^').unwrap();
        let here: String = lines[2].chars().skip(at).take(4).collect();
        assert_eq!(here, "HERE");
        assert!(lines[2].chars().count() < 140);
    }

    #[test]
    fn control_characters_of_a_file_do_not_reach_the_terminal() {
        let text = problem("a\x1b[2Jb", 1, 1).render("\x1b");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn problems_beyond_the_bound_are_counted_and_errors_are_kept() {
        let mut list = vec![problem("", 1, 1); 150];
        for p in &mut list[..140] {
            p.severity = Severity::Note;
        }
        let problems = Problems::new("a", list);
        assert_eq!(problems.iter().count(), KEPT_MAX);
        assert_eq!(problems.count(Severity::Error), 10);
        let kept = problems.iter().filter(|p| p.severity == Severity::Error);
        assert_eq!(kept.count(), 10);
        assert!(
            problems
                .to_string()
                .ends_with("10 errors, 140 notes (50 not shown)\n")
        );
    }
}
