//! Collects problems while a file is read.

use std::cell::RefCell;
use std::ops::Range;

use crate::problem::{Place, Problem, Problems, Severity};
use crate::redact::{redacted_line, without_password};

/// A value is missing because of an error that is reported already. It must not be reported again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported;

/// A value, unless there was an error in it.
pub(crate) type Read<T> = Result<T, Reported>;

/// The problems found so far in one text.
///
/// All readers share it, so it has cells inside. It is used by one thread.
pub(crate) struct Report<'t> {
    lines: Vec<&'t str>,
    found: RefCell<Vec<Problem>>,
    /// Lines and columns (from 0) that must not be shown.
    redacted: RefCell<Vec<(usize, Range<usize>)>>,
}

impl<'t> Report<'t> {
    /// An empty report on `text`.
    pub(crate) fn new(text: &'t str) -> Report<'t> {
        Report {
            lines: text.lines().collect(),
            found: RefCell::default(),
            redacted: RefCell::default(),
        }
    }

    fn add(
        &self,
        severity: Severity,
        at: Place,
        code: &'static str,
        message: String,
        hint: String,
    ) {
        let source = at.line.checked_sub(1).and_then(|i| self.lines.get(i));
        self.found.borrow_mut().push(Problem {
            severity,
            code,
            message,
            hint,
            line: at.line,
            column: at.column,
            length: at.length,
            source: source.copied().unwrap_or_default().into(),
        });
    }

    /// Reports an error.
    pub(crate) fn error(
        &self,
        at: Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Reported {
        self.add(Severity::Error, at, code, message.into(), hint.into());
        Reported
    }

    /// Reports something that is probably a mistake.
    pub(crate) fn warn(
        &self,
        at: Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(Severity::Warning, at, code, message.into(), hint.into());
    }

    /// Reports something that works but may surprise.
    pub(crate) fn note(
        &self,
        at: Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(Severity::Note, at, code, message.into(), hint.into());
    }

    /// Redacts a place in all problems, reported before or after.
    pub(crate) fn redact(&self, at: Place) {
        let from = at.column.saturating_sub(1);
        let columns = from..from.saturating_add(at.length);
        self.redacted.borrow_mut().push((at.line, columns));
    }

    /// Is there an error?
    pub(crate) fn has_errors(&self) -> bool {
        let found = self.found.borrow();
        found.iter().any(|p| p.severity == Severity::Error)
    }

    /// A line of the text.
    pub(crate) fn line(&self, line: usize) -> &'t str {
        let at = line.checked_sub(1).and_then(|i| self.lines.get(i));
        at.copied().unwrap_or_default()
    }

    /// The problems; `name` is that of the file.
    pub(crate) fn finish(self, name: &str) -> Problems {
        let redacted = self.redacted.into_inner();
        let mut found = self.found.into_inner();
        for problem in &mut found {
            let here = redacted.iter().filter(|(line, _)| *line == problem.line);
            let here: Vec<_> = here.map(|(_, columns)| columns.clone()).collect();
            problem.source = redacted_line(&problem.source, &here);
        }
        Problems::new(name, found)
    }
}

/// `a`, `b` and `c`, each in backticks.
pub(crate) fn list<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    joined(words, "and")
}

/// `a`, `b` or `c`, each in backticks.
pub(crate) fn either<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    joined(words, "or")
}

fn joined<'w>(words: impl IntoIterator<Item = &'w str>, link: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {link} {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Quotes a text in a message: the beginning if it is long, and without a password.
pub(crate) fn quoted(text: &str) -> String {
    const MAX: usize = 60;
    // Before the text is cut: an address without its `@` does not look like one with a password.
    let text = &without_password(text);
    if text.chars().count() <= MAX {
        return format!("`{text}`");
    }
    let part: String = text.chars().take(MAX).collect();
    format!("`{part}…`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_as_a_sentence() {
        assert_eq!(list([]), "");
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
        assert_eq!(either(["a", "b"]), "`a` or `b`");
    }

    #[test]
    fn what_is_redacted_is_shown_in_no_problem_before_or_after() {
        let report = Report::new("a: secret\nb: secret");
        let place = |line, column| Place {
            line,
            column,
            length: 6,
        };
        report.error(place(1, 4), "x", "m", "h");
        report.redact(place(1, 4));
        report.error(place(1, 1), "x", "m", "h");
        report.error(place(2, 4), "x", "m", "h");
        let problems = report.finish("p");
        let sources: Vec<&str> = problems.iter().map(|p| p.source.as_str()).collect();
        assert_eq!(sources, ["a: ******", "a: ******", "b: secret"]);
    }

    #[test]
    fn a_password_is_not_quoted_even_if_its_address_is_cut() {
        let long = format!("redis://u:{}@h", "secret".repeat(20));
        assert_eq!(quoted(&long), "`redis://…@h`");
    }

    #[test]
    fn a_long_text_is_quoted_by_its_beginning() {
        assert_eq!(quoted("ab"), "`ab`");
        assert!(quoted(&"é".repeat(100)).chars().count() < 70);
    }
}
