//! Where problems are gathered while a file is read.

use std::cell::RefCell;
use std::ops::Range;

use crate::problem::{Place, Problem, Problems, Severity};
use crate::secret::{veiled, without_password};

/// A value is missing because what is wrong with it was reported already. Whoever meets this says
/// nothing more about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported;

/// A value that may be absent, or wrong.
pub(crate) type Read<T> = Result<T, Reported>;

/// The problems found so far in one text.
///
/// Shared by everyone who reads, hence the cell: it is written from one thread, and never while it is
/// read.
pub(crate) struct Report<'t> {
    lines: Vec<&'t str>,
    found: RefCell<Vec<Problem>>,
    /// Lines, and columns from 0, that are not to be shown.
    hidden: RefCell<Vec<(usize, Range<usize>)>>,
}

impl<'t> Report<'t> {
    /// Nothing found yet in `text`.
    pub(crate) fn new(text: &'t str) -> Report<'t> {
        Report {
            lines: text.lines().collect(),
            found: RefCell::default(),
            hidden: RefCell::default(),
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

    /// Something is wrong.
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

    /// Something is probably not meant.
    pub(crate) fn warn(
        &self,
        at: Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(Severity::Warning, at, code, message.into(), hint.into());
    }

    /// Something is worth knowing.
    pub(crate) fn note(
        &self,
        at: Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(Severity::Note, at, code, message.into(), hint.into());
    }

    /// What stands there must not be shown in any problem, found before or after.
    pub(crate) fn hide(&self, at: Place) {
        let from = at.column.saturating_sub(1);
        let columns = from..from.saturating_add(at.length);
        self.hidden.borrow_mut().push((at.line, columns));
    }

    /// Has anything been found that makes the policy useless?
    pub(crate) fn has_errors(&self) -> bool {
        let found = self.found.borrow();
        found.iter().any(|p| p.severity == Severity::Error)
    }

    /// The characters of a line, to look around a place.
    pub(crate) fn line(&self, line: usize) -> &'t str {
        let at = line.checked_sub(1).and_then(|i| self.lines.get(i));
        at.copied().unwrap_or_default()
    }

    /// All of it.
    pub(crate) fn finish(self, name: &str) -> Problems {
        let hidden = self.hidden.into_inner();
        let mut found = self.found.into_inner();
        for problem in &mut found {
            let here = hidden.iter().filter(|(line, _)| *line == problem.line);
            let here: Vec<_> = here.map(|(_, columns)| columns.clone()).collect();
            problem.source = veiled(&problem.source, &here);
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

/// A text as it is quoted in a message: whole if it is short, else its beginning; never with a password.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    // Before it is cut: an address that has lost its `@` does not look like one with a password any more.
    let text = &without_password(text);
    if text.chars().count() <= MOST {
        return format!("`{text}`");
    }
    let part: String = text.chars().take(MOST).collect();
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
    fn what_is_hidden_is_shown_in_no_problem_before_or_after() {
        let report = Report::new("a: secret\nb: secret");
        let place = |line, column| Place {
            line,
            column,
            length: 6,
        };
        report.error(place(1, 4), "x", "m", "h");
        report.hide(place(1, 4));
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
