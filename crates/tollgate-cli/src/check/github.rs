//! Problems as workflow commands of GitHub Actions: annotations at the lines of a pull request.

use std::io::{self, Write};

use tollgate_config::{Problems, Severity};

/// Prints one annotation for each problem.
pub(super) fn print(problems: &Problems, out: &mut impl Write) -> io::Result<()> {
    for problem in problems {
        let command = match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        write!(out, "::{command} file={}", property(problems.name()))?;
        if problem.line > 0 {
            let end = problem.column.saturating_add(problem.length);
            let (line, column) = (problem.line, problem.column);
            write!(out, ",line={line},col={column},endColumn={end}")?;
        }
        let text = format!("{}\nhint: {}", problem.message, problem.hint);
        writeln!(out, ",title={}::{}", property(problem.code), data(&text))?;
    }
    Ok(())
}

/// A text after the last `::`.
fn data(text: &str) -> String {
    let text = text.replace('%', "%25");
    text.replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
