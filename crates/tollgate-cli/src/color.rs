//! Colours for terminals.
//!
//! Colour is a filter over finished lines: what a command prints does not depend on colours, and everything is printed
//! without them where they are off. `--color`, `NO_COLOR`, `CLICOLOR` and the kind of the stream decide.

use std::io::{self, Write};

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;

const RESET: &str = "\x1b[0m";
const BLUE: &str = "\x1b[1;34m";
const CYAN: &str = "\x1b[1;36m";
const GREEN: &str = "\x1b[1;32m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";

/// Words at the beginning of a line, and their colours.
const LABELS: [(&str, &str); 7] = [
    ("error:", RED),
    ("warning:", YELLOW),
    ("note:", CYAN),
    ("hint:", CYAN),
    ("ok:", GREEN),
    ("failed:", RED),
    ("verdict:", BLUE),
];

/// Verdicts and outcomes at the beginning of a cell, and their colours.
const CELLS: [(&str, &str); 5] = [
    ("pass", GREEN),
    ("wait", YELLOW),
    ("refuse", RED),
    ("never", RED),
    ("FAIL", RED),
];

/// When output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Applies `--color` to all streams. It looks at the arguments itself, because errors in arguments are coloured too.
pub(crate) fn set_choice(arguments: impl Iterator<Item = String>) {
    let mut arguments = arguments.take_while(|argument| argument != "--");
    let mut choice = None;
    while let Some(argument) = arguments.next() {
        choice = match argument.strip_prefix("--color") {
            Some("") => arguments.next(),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => continue,
        };
    }
    match choice.as_deref() {
        Some("always") => ColorChoice::Always.write_global(),
        Some("never") => ColorChoice::Never.write_global(),
        _ => {}
    }
}

/// Is output on this stream coloured?
pub(crate) fn is_on(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// A writer that colours lines.
pub(crate) struct Painted<W> {
    out: W,
    is_on: bool,
    line: Vec<u8>,
    /// The colour of the last label, for the carets below it.
    label: &'static str,
}

impl<W: Write> Painted<W> {
    /// Writes to `out`, with colours if they are on.
    pub(crate) fn new(out: W, is_on: bool) -> Painted<W> {
        Painted {
            out,
            is_on,
            line: Vec::new(),
            label: RED,
        }
    }

    fn write_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        match std::str::from_utf8(&line) {
            Ok(text) => {
                let text = self.paint(text);
                self.out.write_all(text.as_bytes())
            }
            Err(_) => self.out.write_all(&line),
        }
    }

    /// The line with colours.
    fn paint(&mut self, line: &str) -> String {
        // JSON is for programs.
        if line.starts_with(['{', '[']) {
            return line.to_owned();
        }
        for (label, color) in LABELS {
            if let Some(rest) = line.strip_prefix(label) {
                self.label = color;
                let rest = match label {
                    "verdict:" => rest.strip_prefix(' ').map_or(rest.to_owned(), |rest| {
                        format!(" {}", cell(rest).unwrap_or_else(|| rest.to_owned()))
                    }),
                    _ => rest.to_owned(),
                };
                return format!("{color}{label}{RESET}{rest}");
            }
        }
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        if let Some(rest) = trimmed.strip_prefix("-->") {
            return format!("{indent}{BLUE}-->{RESET}{rest}");
        }
        if let Some(rest) = trimmed.strip_prefix('|').filter(|_| !indent.is_empty()) {
            let carets = rest.trim();
            return match !carets.is_empty() && carets.bytes().all(|byte| byte == b'^') {
                true => format!(
                    "{indent}{BLUE}|{RESET}{}{}{RESET}\n",
                    self.label,
                    rest.trim_end()
                ),
                false => format!("{indent}{BLUE}|{RESET}{rest}"),
            };
        }
        cells(line)
    }
}

/// The line with the cells coloured that begin with a verdict. Two spaces separate cells.
fn cells(line: &str) -> String {
    let cells = line.split("  ").map(|text| {
        let trimmed = text.trim_start_matches(' ');
        let indent = &text[..text.len() - trimmed.len()];
        cell(trimmed).map_or(text.to_owned(), |painted| format!("{indent}{painted}"))
    });
    cells.collect::<Vec<_>>().join("  ")
}

/// The text with its first word coloured, if that is a verdict.
fn cell(text: &str) -> Option<String> {
    CELLS.into_iter().find_map(|(word, color)| {
        let rest = text.strip_prefix(word)?;
        let ends = rest.is_empty() || rest.starts_with([' ', ',', '\n']);
        ends.then(|| format!("{color}{word}{RESET}{rest}"))
    })
}

impl<W: Write> Write for Painted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_on {
            return self.out.write(bytes);
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.write_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.write_line()?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output with colours as marks.
    fn painted(text: &str) -> String {
        let mut out = Painted::new(Vec::new(), true);
        // In pieces, as `write!` writes it.
        for piece in text.as_bytes().chunks(3) {
            out.write_all(piece).unwrap();
        }
        out.flush().unwrap();
        let text = String::from_utf8(out.out).unwrap();
        let marks = [
            (RESET, "."),
            (BLUE, "B"),
            (CYAN, "C"),
            (GREEN, "G"),
            (RED, "R"),
            (YELLOW, "Y"),
        ];
        marks
            .iter()
            .fold(text, |text, (code, mark)| text.replace(code, mark))
    }

    #[test]
    fn problems_are_coloured_by_severity() {
        let text = "warning: x\n  --> a.yaml:1:1\n   |  pass\n   |  ^^\nhint: y\n\n1 warning\nok: 1 limit\n";
        assert_eq!(
            painted(text),
            "Ywarning:. x\n  B-->. a.yaml:1:1\n   B|.  pass\n   B|.Y  ^^.\nChint:. y\n\n1 warning\nGok:. 1 limit\n"
        );
    }

    #[test]
    fn verdicts_in_tables_are_coloured() {
        let text = "0s  -  1  pass      0\n0s  -  1  wait 2s  0\na  yes  refuse, retry after 1s\n  FAIL  passwords\nverdict: never (x)";
        assert_eq!(
            painted(text),
            "0s  -  1  Gpass.      0\n0s  -  1  Ywait. 2s  0\na  yes  Rrefuse., retry after 1s\n  RFAIL.  passwords\nBverdict:. Rnever. (x)"
        );
    }

    #[test]
    fn json_has_no_colours_and_nothing_has_where_they_are_off() {
        let json = "{\"verdict\":  pass }\n";
        assert_eq!(painted(json), json);
        let mut out = Painted::new(Vec::new(), false);
        out.write_all(b"error: x\n").unwrap();
        assert_eq!(out.out, b"error: x\n");
    }
}
