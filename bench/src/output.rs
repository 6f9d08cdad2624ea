//! Results as tables or as JSON lines, from one description of a row.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

/// Where results go, and in which form.
pub(crate) struct Output<'a> {
    pub(crate) json: bool,
    pub(crate) writer: &'a mut dyn Write,
}

impl Output<'_> {
    /// Writes a line of text. JSON has no such lines.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        writeln!(self.writer, "{text}")
    }

    /// Writes rows: a titled table, or one JSON object for each row.
    pub(crate) fn rows(&mut self, title: &str, rows: &[Row]) -> io::Result<()> {
        if self.json {
            for row in rows {
                writeln!(self.writer, "{}", Value::Object(row.object.clone()))?;
            }
        } else if let Some(first) = rows.first() {
            if !title.is_empty() {
                writeln!(self.writer, "\n{title}")?;
            }
            let headings = first.columns.iter().map(|(heading, _)| heading.as_str());
            let mut lines: Vec<Vec<&str>> = vec![headings.collect()];
            for row in rows {
                lines.push(row.columns.iter().map(|(_, text)| text.as_str()).collect());
            }
            print(&lines, self.writer)?;
        }
        self.writer.flush()
    }
}

/// Prints columns: the first is a name and aligned to the left, all others to the right.
fn print(rows: &[Vec<&str>], out: &mut dyn Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &match column {
                0 => format!("  {cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// One result: columns of a table, and fields of a JSON object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    columns: Vec<(String, String)>,
    object: Map<String, Value>,
}

impl Row {
    /// The result of `name` in the comparison `command`.
    pub(crate) fn new(command: &str, name: &str) -> Row {
        Row::default()
            .json("command", command)
            .json("contestant", name)
            .column("", name)
    }

    /// Adds a column to the table only.
    pub(crate) fn column(mut self, heading: &str, text: impl Into<String>) -> Row {
        self.columns.push((heading.to_owned(), text.into()));
        self
    }

    /// Adds a field to the JSON object only.
    pub(crate) fn json(mut self, key: &str, value: impl Serialize) -> Row {
        self.object.insert(key.to_owned(), json!(value));
        self
    }

    /// Adds all fields of `more` to the JSON object.
    pub(crate) fn json_all(mut self, more: Value) -> Row {
        if let Value::Object(more) = more {
            self.object.extend(more);
        }
        self
    }

    /// Adds a count. `None` is a dash and `null`.
    pub(crate) fn count(self, key: &str, heading: &str, count: impl Into<Option<u64>>) -> Row {
        let count = count.into();
        self.json(key, count)
            .column(heading, count.map_or("-".to_owned(), |n| n.to_string()))
    }

    /// Adds a figure, printed with this many digits. `None` is a dash and `null`.
    pub(crate) fn figure(
        self,
        key: &str,
        heading: &str,
        figure: impl Into<Option<f64>>,
        digits: usize,
    ) -> Row {
        let figure = figure.into();
        self.json(key, figure).column(
            heading,
            shown(figure, |figure| format!("{figure:.digits$}")),
        )
    }
}

/// A figure as text, or a dash if there is none.
pub(crate) fn shown(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), show)
}

/// A range as text, or a dash if there is none.
pub(crate) fn range(range: Option<(f64, f64)>) -> String {
    range.map_or_else(
        || "-".to_owned(),
        |(least, most)| format!("{least:.2} to {most:.2}"),
    )
}

/// A count as it was typed: `10m`, `250k`, `17`.
pub(crate) fn short_count(count: usize) -> String {
    match count {
        0 => "0".to_owned(),
        _ if count.is_multiple_of(1_000_000) => format!("{}m", count / 1_000_000),
        _ if count.is_multiple_of(1_000) => format!("{}k", count / 1_000),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(json: bool) -> String {
        let row = |name: &str, ns| {
            Row::new("compare", name)
                .figure("ns", "ns", ns, 1)
                .count("checks", "checks", 5)
                .json("keys", 7)
        };
        let mut bytes = Vec::new();
        let mut output = Output {
            json,
            writer: &mut bytes,
        };
        let rows = [row("a", Some(1.25)), row("longer", None)];
        output.rows("title", &rows).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_are_aligned() {
        let expected =
            "\ntitle\n           ns  checks\n  a       1.2       5\n  longer    -       5\n";
        assert_eq!(printed(false), expected);
    }

    #[test]
    fn every_row_is_an_object_of_its_own() {
        let text = printed(true);
        let objects: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(objects[0]["contestant"], "a");
        assert_eq!(objects[0]["keys"], 7);
        assert_eq!(objects[1]["ns"], Value::Null);
    }
}
