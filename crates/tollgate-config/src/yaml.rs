//! Parses YAML into a tree in which every key and value has its place.
//!
//! # Supported YAML
//!
//! Maps, lists and scalars. Anchors, aliases, tags, merge keys, several documents and keys that are not scalars are
//! errors: a policy needs none of them, and a few lines of aliases expand to gigabytes. Scalars stay texts until a
//! reader asks for a type. So no value becomes a float, a date or a boolean by accident.
//!
//! # Bounds
//!
//! The text has at most one megabyte and a depth of 32. The tree is built without recursion, and its size is
//! proportional to the text.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use crate::problem::Place;
use crate::report::{Report, Reported, quoted};
use crate::yaml_faults;
use crate::yaml_unread::Unread;

/// The maximum size of a file in bytes.
pub const FILE_MAX: usize = 1 << 20;
/// The maximum nesting.
pub(crate) const DEPTH_MAX: usize = 32;

/// The YAML merge key. It stays in the tree, so that fields it may stand for are not reported as missing.
pub(crate) const MERGE: &str = "<<";

/// A value and its place.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// The content of a node.
#[derive(Debug)]
pub(crate) enum Value {
    /// A text; `plain` if it has no quotes.
    Scalar { text: String, plain: bool },
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file. Keys are unique.
    Map(Vec<(Key, Node)>),
    /// An empty value, `~` or `null`.
    Nothing,
    /// A value that is unsupported and was reported.
    Bad,
}

/// A key of a map.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) place: Place,
}

impl Node {
    /// The kind of the value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Nothing | Value::Bad => "nothing",
        }
    }
}

/// A list or map that is not complete yet.
enum Open {
    List(Vec<Node>),
    Map {
        entries: Vec<(Key, Node)>,
        lines: HashMap<String, usize>,
        key: Option<Key>,
        /// The key is not a scalar, or is a duplicate: its value is read and dropped.
        drop: bool,
    },
}

/// Parses a text.
///
/// # Errors
/// The text is not YAML. Problems of a text that can be parsed are only reported.
pub(crate) fn tree(text: &str, report: &Report<'_>) -> Result<Node, Reported> {
    let mut parser = Parser::new_from_str(text);
    let mut unread = Unread::default();
    let mut stack: Vec<(Place, Open)> = Vec::new();
    let mut root: Option<Node> = None;
    let mut documents = 0;
    while let Some(event) = parser.next_event() {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                unread.report(report);
                return Err(yaml_faults::explain(&error, report));
            }
        };
        let place = place(&span);
        let done = match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(report.error(
                        Place { length: 3, ..place },
                        "several-documents",
                        "a second document begins here",
                        "a policy is one document: put all limits under one `limits:`, and drop the `---`",
                    ));
                }
                None
            }
            Event::Alias(_) => {
                unread.aliases.push(widened(place, report));
                Some(Node {
                    place,
                    value: Value::Bad,
                })
            }
            Event::Scalar(text, style, anchor, tag) => {
                let marked = unread.note(anchor, tag.is_some(), place);
                let plain = style == ScalarStyle::Plain;
                let value = match text.as_ref() {
                    _ if marked => Value::Bad,
                    "" | "~" | "null" if plain => Value::Nothing,
                    _ => Value::Scalar {
                        text: text.into_owned(),
                        plain,
                    },
                };
                Some(Node { place, value })
            }
            Event::SequenceStart(anchor, tag) => {
                unread.note(anchor, tag.is_some(), place);
                stack.push((place, Open::List(Vec::new())));
                None
            }
            Event::MappingStart(anchor, tag) => {
                unread.note(anchor, tag.is_some(), place);
                let map = Open::Map {
                    entries: Vec::new(),
                    lines: HashMap::new(),
                    key: None,
                    drop: false,
                };
                stack.push((place, map));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => stack.pop().map(closed),
            _ => None,
        };
        if stack.len() > DEPTH_MAX {
            let place = Place { length: 1, ..place };
            return Err(yaml_faults::too_deep(place, report));
        }
        if let Some(node) = done {
            match stack.last_mut() {
                Some((_, open)) => open.take(node, &mut unread, report),
                None => root = Some(node),
            }
        }
    }
    unread.report(report);
    match root {
        Some(node) if !matches!(node.value, Value::Nothing) => Ok(node),
        _ => Err(report.error(
            Place::FILE,
            "empty",
            "the file is empty",
            "write at least one limit; `tollgate check --help` shows a small policy",
        )),
    }
}

/// A complete list or map. Its place is that of its first key or item.
fn closed((place, open): (Place, Open)) -> Node {
    match open {
        Open::List(items) => Node {
            place: Place { length: 1, ..place },
            value: Value::List(items),
        },
        Open::Map { entries, .. } => Node {
            place: entries
                .first()
                .map_or(Place { length: 1, ..place }, |(key, _)| key.place),
            value: Value::Map(entries),
        },
    }
}

impl Open {
    /// Adds the next node: an item, a key, or the value of the last key.
    fn take(&mut self, node: Node, unread: &mut Unread, report: &Report<'_>) {
        let (entries, lines, key, drop) = match self {
            Open::List(items) => return items.push(node),
            Open::Map {
                entries,
                lines,
                key,
                drop,
            } => (entries, lines, key, drop),
        };
        if let Some(key) = key.take() {
            // A missing value is reported at its key.
            let place = match node.value {
                Value::Nothing => key.place,
                _ => node.place,
            };
            if !std::mem::take(drop) {
                entries.push((key, Node { place, ..node }));
            }
            return;
        }
        let text = match node.value {
            Value::Scalar { text, .. } => text,
            Value::Bad => {
                *drop = true;
                String::new()
            }
            _ => {
                report.error(
                    node.place,
                    "bad-key",
                    format!("{} cannot be the name of a field", node.kind()),
                    "write `name: value`",
                );
                *drop = true;
                String::new()
            }
        };
        if text == MERGE {
            unread.merges.push(node.place);
        } else if !*drop {
            match lines.get(&text) {
                Some(line) => {
                    report.error(
                        node.place,
                        "duplicate-key",
                        format!("{} is given twice", quoted(&text)),
                        format!("keep one of the two; the first is in line {line}"),
                    );
                    *drop = true;
                }
                None => {
                    lines.insert(text.clone(), node.place.line);
                }
            }
        }
        *key = Some(Key {
            text,
            place: node.place,
        });
    }
}

/// The place of an event, up to the end of its first line.
fn place(span: &Span) -> Place {
    let length = if span.start.line() == span.end.line() {
        span.end.col().saturating_sub(span.start.col())
    } else {
        usize::MAX
    };
    Place {
        line: span.start.line(),
        column: span.start.col() + 1,
        length,
    }
}

/// The place of an alias, as long as its name.
fn widened(place: Place, report: &Report<'_>) -> Place {
    let rest = report.line(place.line).chars().skip(place.column - 1);
    let length = rest
        .take_while(|c| !c.is_whitespace() && !",]}".contains(*c))
        .count();
    Place { length, ..place }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<Node>, Vec<(usize, usize, &'static str)>) {
        let report = Report::new(text);
        let node = tree(text, &report).ok();
        let problems = report.finish("test");
        let found = problems.iter().map(|p| (p.line, p.column, p.code));
        (node, found.collect())
    }

    #[test]
    fn every_key_and_value_knows_its_place() {
        let (node, problems) = read("limits:\n  - name: ä\n    burst: 10 # ten\n");
        assert!(problems.is_empty());
        let Some(Node {
            value: Value::Map(entries),
            ..
        }) = node
        else {
            panic!("a map");
        };
        let (key, limits) = &entries[0];
        assert_eq!(
            (key.place.line, key.place.column, key.place.length),
            (1, 1, 6)
        );
        let Value::List(items) = &limits.value else {
            panic!("a list");
        };
        let Value::Map(fields) = &items[0].value else {
            panic!("a map");
        };
        let (key, value) = &fields[1];
        assert_eq!(
            (key.place.line, key.place.column, key.place.length),
            (3, 5, 5)
        );
        let at = value.place;
        assert_eq!((at.line, at.column, at.length), (3, 12, 2));
    }

    #[test]
    fn what_a_policy_does_not_need_is_named_once() {
        let text = "a: &x 1\nb: *x\nc: *x\nd: !!int 5\ne:\n  <<: *x\n";
        let (_, problems) = read(text);
        let codes: Vec<_> = problems.iter().map(|p| p.2).collect();
        assert_eq!(codes, ["anchor", "alias", "tag", "merge-key"]);
    }

    #[test]
    fn a_key_that_is_given_twice_keeps_its_first_value() {
        let (node, problems) = read("a: 1\na: 2\n");
        assert_eq!(problems, [(2, 1, "duplicate-key")]);
        let Some(Node {
            value: Value::Map(entries),
            ..
        }) = node
        else {
            panic!("a map");
        };
        assert_eq!(entries.len(), 1);
    }

    #[test]
    fn deep_nesting_is_refused_before_it_costs_anything() {
        for text in [
            "[".repeat(100_000),
            "- ".repeat(100_000),
            "{a: ".repeat(100_000),
        ] {
            assert_eq!(read(&text).1[0].2, "too-deep");
        }
    }

    #[test]
    fn null_is_nothing_and_stands_at_its_key() {
        let (node, _) = read("first: 1\nburst:\nlast: ~\n");
        let Some(Node {
            value: Value::Map(entries),
            ..
        }) = node
        else {
            panic!("a map");
        };
        assert!(matches!(entries[1].1.value, Value::Nothing));
        assert_eq!(entries[1].1.place.line, 2);
        assert!(matches!(entries[2].1.value, Value::Nothing));
    }
}
