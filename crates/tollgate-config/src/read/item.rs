//! One value of the file, with the report that takes its problems.

use std::ops::Deref;

use crate::problem::Place;
use crate::report::{Read, Report, Reported, quoted};
use crate::yaml::{MERGE, Node, Value};

/// A scalar, list or map of the file.
///
/// It carries the report, so a reader needs one argument for a value, and an error about the value itself needs no
/// place.
#[derive(Clone, Copy)]
pub(crate) struct Item<'n> {
    pub(crate) node: &'n Node,
    pub(crate) report: &'n Report<'n>,
}

impl Deref for Item<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
    }
}

impl<'n> Item<'n> {
    pub(crate) fn new(node: &'n Node, report: &'n Report<'n>) -> Item<'n> {
        Item { node, report }
    }

    /// Reports an error at this value.
    pub(crate) fn error(
        self,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Reported {
        self.report.error(self.place, code, message, hint)
    }

    /// Reports that something is probably not meant.
    pub(crate) fn warn(
        self,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.report.warn(self.place, code, message, hint);
    }

    /// The items of a list, or the value itself as the only one.
    pub(crate) fn one_or_many(self) -> Vec<Item<'n>> {
        let nodes = match &self.node.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(self.node),
        };
        let report = self.report;
        nodes.iter().map(|node| Item { node, report }).collect()
    }

    /// The entries of a map that is called `what` in messages. Merge keys are reported elsewhere.
    pub(crate) fn entries(
        self,
        what: &str,
    ) -> Read<impl Iterator<Item = (&'n str, Place, Item<'n>)>> {
        let report = self.report;
        match &self.node.value {
            Value::Map(entries) => Ok(entries
                .iter()
                .filter(|(key, _)| key.text != MERGE)
                .map(move |(key, node)| (key.text.as_str(), key.place, Item { node, report }))),
            Value::Bad => Err(Reported),
            _ => {
                let message = format!("{what} is a map, but this is {}", self.kind());
                Err(self.error("not-a-map", message, "write its fields as `name: value`"))
            }
        }
    }

    /// This value as that of the field `name`, which may not be empty.
    pub(crate) fn present(self, name: &str, place: Place) -> Read<Item<'n>> {
        match self.value {
            Value::Nothing => Err(self.report.error(
                place,
                "no-value",
                format!("{} has no value", quoted(name)),
                "write one behind the colon, or leave the field out",
            )),
            Value::Bad => Err(Reported),
            _ => Ok(self),
        }
    }

    /// A field of a map, whatever else is wrong in the map.
    pub(crate) fn field(self, name: &str) -> Option<Item<'n>> {
        let Value::Map(entries) = &self.node.value else {
            return None;
        };
        let found = entries.iter().find(|(key, _)| key.text == name);
        found.map(|(_, node)| Item::new(node, self.report))
    }

    /// The items of the list `name` in a map, whatever else is wrong in the map.
    pub(crate) fn items_of(self, name: &str) -> Vec<Item<'n>> {
        match self.field(name) {
            Some(list) if matches!(list.value, Value::List(_)) => list.one_or_many(),
            _ => Vec::new(),
        }
    }
}
