//! A map whose fields are known.

use crate::near::nearest;
use crate::problem::Place;
use crate::report::{Read, Report, Reported, list, quoted};
use crate::yaml::{MERGE, Node, Value};

/// The fields of a map, none of which is unknown or without a value; what was, is reported and left out.
pub(crate) struct Fields<'n> {
    /// Where the map begins.
    pub(crate) place: Place,
    entries: Vec<(&'n str, Place, &'n Node)>,
    /// Fields that were meant but not written so; nobody is to miss them a second time.
    broken: Vec<&'n str>,
    /// Something was meant that is not known, so any field may only seem to be missing.
    partial: bool,
}

impl<'n> Fields<'n> {
    /// The fields of `node`, which is called `what` in messages; only `known` ones may be there.
    pub(crate) fn open(
        node: &'n Node,
        what: &str,
        known: &[&'static str],
        report: &Report<'_>,
    ) -> Read<Fields<'n>> {
        Fields::open_with(node, what, known, report, |_| None)
    }

    /// The same, where `hint` knows more about some names.
    pub(crate) fn open_with(
        node: &'n Node,
        what: &str,
        known: &[&'static str],
        report: &Report<'_>,
        hint: impl Fn(&str) -> Option<String>,
    ) -> Read<Fields<'n>> {
        let mut fields = Fields {
            place: node.place,
            entries: Vec::new(),
            broken: Vec::new(),
            partial: merges(node),
        };
        for (name, place, value) in map(node, what, known, report)? {
            if known.contains(&name) {
                match present(name, place, value, report) {
                    Ok(value) => fields.entries.push((name, place, value)),
                    Err(_) => fields.broken.push(name),
                }
            } else {
                let near = meant(name, known);
                let hint = hint(name).unwrap_or_else(|| match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("{what} takes {}", list(known.iter().copied())),
                });
                let message = format!("{} is not a field of {what}", quoted(name));
                report.error(place, "unknown-field", message, hint);
                match near {
                    Some(near) => fields.broken.push(near),
                    None => fields.partial = true,
                }
            }
        }
        Ok(fields)
    }

    /// The value of a field, if it is there.
    pub(crate) fn get(&self, name: &str) -> Option<&'n Node> {
        self.entry(name).map(|(_, value)| value)
    }

    /// Where the name of a field stands, if it is there.
    pub(crate) fn name_place(&self, name: &str) -> Option<Place> {
        self.entry(name).map(|(place, _)| place)
    }

    fn entry(&self, name: &str) -> Option<(Place, &'n Node)> {
        let found = self.entries.iter().find(|(n, ..)| *n == name);
        found.map(|(_, place, value)| (*place, *value))
    }

    /// Reads a field, if it is there.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'n Node) -> Read<T>,
    ) -> Read<Option<T>> {
        match self.get(name) {
            Some(node) => read(node).map(Some),
            None if self.partial || self.broken.contains(&name) => Err(Reported),
            None => Ok(None),
        }
    }

    /// Where every value stands.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&'n str, Place, Place)> + '_ {
        self.entries
            .iter()
            .map(|(name, place, value)| (*name, *place, value.place))
    }
}

/// The field that another name was probably meant to be.
fn meant(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let spelt = name.to_lowercase().replace('-', "_");
    let all = || known.iter().copied();
    let part = |k: &&str| {
        let inside = k.len() > 2 && (spelt.starts_with(*k) || spelt.ends_with(*k));
        inside || (spelt.len() > 3 && (k.ends_with(&spelt) || k.starts_with(&spelt)))
    };
    all()
        .find(|k| *k == spelt)
        .or_else(|| nearest(&spelt, all()))
        .or_else(|| all().find(part))
}

/// The entries of a map of `what`, or a complaint that there is none.
pub(crate) fn map<'n>(
    node: &'n Node,
    what: &str,
    known: &[&str],
    report: &Report<'_>,
) -> Read<impl Iterator<Item = (&'n str, Place, &'n Node)>> {
    match &node.value {
        Value::Map(entries) => Ok(entries
            .iter()
            .filter(|(key, _)| key.text != MERGE)
            .map(|(key, node)| (key.text.as_str(), key.place, node))),
        Value::Bad => Err(Reported),
        _ => {
            let hint = match known {
                known if known.is_empty() || known.len() > 8 => {
                    "write its fields as `name: value`".to_owned()
                }
                known => format!("write a map with some of {}", list(known.iter().copied())),
            };
            let message = format!("{what} is a map, but this is {}", node.kind());
            Err(report.error(node.place, "not-a-map", message, hint))
        }
    }
}

/// Does a map stand for more fields than it has? It was said that it may not.
fn merges(node: &Node) -> bool {
    matches!(&node.value, Value::Map(entries) if entries.iter().any(|(key, _)| key.text == MERGE))
}

/// A value that is not nothing.
pub(crate) fn present<'n>(
    name: &str,
    place: Place,
    value: &'n Node,
    report: &Report<'_>,
) -> Read<&'n Node> {
    match value.value {
        Value::Nothing => Err(report.error(
            place,
            "no-value",
            format!("{} has no value", quoted(name)),
            "write one behind the colon, or leave the field out",
        )),
        Value::Bad => Err(Reported),
        _ => Ok(value),
    }
}

/// One value or a list of them.
pub(crate) fn one_or_many(node: &Node) -> Vec<&Node> {
    match &node.value {
        Value::List(items) => items.iter().collect(),
        _ => vec![node],
    }
}

/// A list in the file, as it is spoken of.
pub(crate) struct Listed<'a> {
    /// Its field.
    pub(crate) name: &'a str,
    /// What it is: a list, or more than that.
    pub(crate) is: &'a str,
    /// How to write it.
    pub(crate) hint: &'a str,
    /// How many are read, and what to do about more.
    pub(crate) most: Option<(usize, &'a str)>,
}

impl Listed<'_> {
    /// Reads each item with its number, from 1; all of them even if one is wrong.
    pub(crate) fn read<T>(
        &self,
        node: &Node,
        report: &Report<'_>,
        mut item: impl FnMut(&Node, usize) -> Read<T>,
    ) -> Read<Vec<T>> {
        let Listed { name, is, hint, .. } = *self;
        let items = match &node.value {
            Value::List(items) => items,
            Value::Bad => return Err(Reported),
            _ => {
                let message = format!("`{name}` is {is}, but this is {}", node.kind());
                return Err(report.error(node.place, "not-a-list", message, hint));
            }
        };
        if let Some((most, hint)) = self.most
            && let Some(node) = items.get(most)
        {
            let message = format!("there are {} {name}; {most} are read", items.len());
            return Err(report.error(node.place, "too-many", message, hint));
        }
        let mut number = 0;
        each(items, |node| {
            number += 1;
            item(node, number)
        })
    }
}

/// Reads one value or each of a list; all of them are read even if one is wrong.
pub(crate) fn each<'n, T>(
    nodes: impl IntoIterator<Item = &'n Node>,
    mut read: impl FnMut(&'n Node) -> Read<T>,
) -> Read<Vec<T>> {
    let all: Vec<Read<T>> = nodes.into_iter().map(&mut read).collect();
    all.into_iter().collect()
}
