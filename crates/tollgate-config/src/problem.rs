//! What is wrong with a policy file, where, and how to mend it.
//!
//! A problem knows its place and the line it stands in, so that it can be shown long after the file was
//! read. It does not know YAML or policies.

use std::fmt;
use std::sync::Arc;

/// Problems beyond this many are counted, not kept: nobody reads on, and a file of a megabyte can have
/// a great many.
const KEPT_MAX: usize = 100;
/// Characters of a source line that are shown around the place.
const SHOWN_MAX: usize = 120;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The policy cannot be used.
    Error,
    /// It can be used, but probably does not do what was meant.
    Warning,
    /// Worth knowing.
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

/// A stretch of one line of the file. Lines and columns count from 1, columns in characters; line 0 is
/// the file as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) length: usize,
}

impl Place {
    /// No one place is to blame.
    pub(crate) const FILE: Place = Place {
        line: 0,
        column: 0,
        length: 0,
    };
}

/// One thing that is wrong or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name for this kind of problem, such as `unknown-field`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub hint: String,
    /// The line, from 1; 0 if no one place is to blame.
    pub line: usize,
    /// The first column, from 1, in characters.
    pub column: usize,
    /// How many characters.
    pub length: usize,
    /// The line of the file that it stands in.
    pub source: String,
}

impl Problem {
    /// As text for people: what, where, the line with carets, how to mend it.
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

    /// As one JSON object on one line.
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

/// The part of a line that is shown, and where in it the place is.
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

/// The text with each control character replaced, so that nothing in a file can steer a terminal. One
/// for one, so that carets stay below what they mean.
fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// All that was found in one file, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    name: Arc<str>,
    list: Vec<Problem>,
    /// Errors, warnings and notes, kept or not.
    counts: [usize; 3],
}

impl Problems {
    pub(crate) fn new(name: &str, mut list: Vec<Problem>) -> Problems {
        list.sort_by_key(|p| (p.line, p.column, p.severity));
        let count = |severity| list.iter().filter(|p| p.severity == severity).count();
        let counts = [Severity::Error, Severity::Warning, Severity::Note].map(count);
        if list.len() > KEPT_MAX {
            // Errors first: a note must not push out what has to be mended.
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

    /// The file's name, as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The problems, in the order of the file; the first hundred if there are more.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// Is there nothing to say?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are of this severity.
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
    /// Every problem as people read it, with an empty line behind each, and a summary.
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
            hint: "mend it".into(),
            line: 4,
            column,
            length,
            source: source.into(),
        }
    }

    #[test]
    fn a_problem_says_what_where_and_how_to_mend_it() {
        assert_eq!(
            problem("    brust: 10", 5, 5).render("a.yaml"),
            "error: wrong\n\
             \x20 --> a.yaml:4:5\n\
             \x20  |      brust: 10\n\
             \x20  |      ^^^^^\n\
             hint: mend it\n"
        );
    }

    #[test]
    fn carets_stay_below_the_line_even_if_the_place_is_longer() {
        let text = problem("ab", 2, 99).render("a");
        assert!(text.contains("\n   |   ^\n"), "{text}");
    }

    #[test]
    fn of_a_long_line_the_part_around_the_place_is_shown() {
        let line = format!("{}HERE{}", "x".repeat(5000), "y".repeat(5000));
        let text = problem(&line, 5001, 4).render("a");
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[3].chars().position(|c| c == '^').unwrap();
        let here: String = lines[2].chars().skip(at).take(4).collect();
        assert_eq!(here, "HERE");
        assert!(lines[2].chars().count() < 140);
    }

    #[test]
    fn nothing_in_a_file_can_steer_the_terminal() {
        let text = problem("a\x1b[2Jb", 1, 1).render("\x1b");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn more_problems_than_anybody_reads_are_counted_and_errors_are_kept() {
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
