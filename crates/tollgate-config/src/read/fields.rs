//! Reads the fields of a map, and reports the unknown ones.

use super::item::Item;

use crate::problem::Place;
use crate::report::{Read, Report, Reported, list, quoted};
use crate::suggest::suggest;
use crate::yaml::{MERGE, Value};

/// The fields of a map. A field that is unknown or has no value is reported and left out.
pub(crate) struct Fields<'n> {
    /// Where the map begins.
    pub(crate) place: Place,
    pub(crate) report: &'n Report<'n>,
    entries: Vec<(&'n str, Place, Item<'n>)>,
    /// Fields that were probably meant by unknown names: they are not reported as missing too.
    broken: Vec<&'n str>,
    /// An unknown field or a merge key may stand for any field, so none is reported as missing.
    partial: bool,
}

/// Where the fields of a map stand, for what is reported when the map is read already.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSpans {
    map: Place,
    fields: Vec<(String, Place, Place)>,
}

impl FieldSpans {
    /// A value that is no map, and so has no fields.
    pub(crate) fn scalar(place: Place) -> FieldSpans {
        FieldSpans {
            map: place,
            fields: Vec::new(),
        }
    }

    /// Where the value of a field stands; the map if the field is not there.
    pub(crate) fn at(&self, field: &str) -> Place {
        self.find(field).map_or(self.map, |(.., value)| *value)
    }

    /// Where the name of a field stands; the map if the field is not there.
    pub(crate) fn name_of(&self, field: &str) -> Place {
        self.find(field).map_or(self.map, |(_, name, _)| *name)
    }

    /// Is the field there?
    pub(crate) fn has(&self, field: &str) -> bool {
        self.find(field).is_some()
    }

    fn find(&self, field: &str) -> Option<&(String, Place, Place)> {
        self.fields.iter().find(|(name, ..)| name == field)
    }
}

impl<'n> Fields<'n> {
    /// The fields of `node`, which is called `what` in messages; only `known` ones may be there.
    pub(crate) fn open(node: Item<'n>, what: &str, known: &[&'static str]) -> Read<Fields<'n>> {
        Fields::open_with(node, what, known, |_| None)
    }

    /// The same, with `hint` for names that are unknown here but used elsewhere.
    pub(crate) fn open_with(
        node: Item<'n>,
        what: &str,
        known: &[&'static str],
        hint: impl Fn(&str) -> Option<String>,
    ) -> Read<Fields<'n>> {
        let mut fields = Fields {
            place: node.place,
            report: node.report,
            entries: Vec::new(),
            broken: Vec::new(),
            partial: node.field(MERGE).is_some(),
        };
        for (name, place, value) in node.entries(what)? {
            if known.contains(&name) {
                match value.present(name, place) {
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
                node.report.error(place, "unknown-field", message, hint);
                match near {
                    Some(near) => fields.broken.push(near),
                    None => fields.partial = true,
                }
            }
        }
        Ok(fields)
    }

    /// The value of a field, if it is there.
    pub(crate) fn get(&self, name: &str) -> Option<Item<'n>> {
        self.entry(name).map(|(_, value)| value)
    }

    /// Where the name of a field stands, if it is there.
    pub(crate) fn name_place(&self, name: &str) -> Option<Place> {
        self.entry(name).map(|(place, _)| place)
    }

    /// Where the value of a field stands; the map if the field is not there.
    pub(crate) fn at(&self, name: &str) -> Place {
        self.get(name).map_or(self.place, |node| node.place)
    }

    fn entry(&self, name: &str) -> Option<(Place, Item<'n>)> {
        let found = self.entries.iter().find(|(n, ..)| *n == name);
        found.map(|(_, place, value)| (*place, *value))
    }

    /// Reads a field, if it is there.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(Item<'n>) -> Read<T>,
    ) -> Read<Option<T>> {
        match self.get(name) {
            Some(node) => read(node).map(Some),
            None if self.partial || self.broken.contains(&name) => Err(Reported),
            None => Ok(None),
        }
    }

    /// Reads a field that has to be there: what is reported if it is not, and how to fix that.
    pub(crate) fn required<T>(
        &self,
        name: &str,
        (message, hint): (&str, &str),
        read: impl FnOnce(Item<'n>) -> Read<T>,
    ) -> Read<T> {
        self.read(name, read)?
            .ok_or_else(|| self.error("missing-field", message, hint))
    }

    /// Reads the value or each value of a field; nothing if it is not there.
    pub(crate) fn read_each<T>(
        &self,
        name: &str,
        read: impl FnMut(Item<'n>) -> Read<T>,
    ) -> Read<Vec<T>> {
        let items = self.get(name).map(Item::one_or_many);
        each(items.unwrap_or_default(), read)
    }

    /// Reports an error at the map.
    pub(crate) fn error(
        &self,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Reported {
        self.report.error(self.place, code, message, hint)
    }

    /// Where the fields stand.
    pub(crate) fn spans(&self) -> FieldSpans {
        let fields = self.entries.iter();
        FieldSpans {
            map: self.place,
            fields: fields
                .map(|(name, place, value)| ((*name).to_owned(), *place, value.place))
                .collect(),
        }
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
        .or_else(|| suggest(&spelt, all()))
        .or_else(|| all().find(part))
}

/// A list in the file.
pub(crate) struct Listed<'a> {
    /// Its field.
    pub(crate) name: &'a str,
    /// How to write it.
    pub(crate) hint: &'a str,
    /// How many items are read, and what to do about more.
    pub(crate) max: (usize, &'a str),
}

impl Listed<'_> {
    /// Reads each item with its number, from 1; all of them even if one is wrong.
    pub(crate) fn read<T>(
        &self,
        node: Item<'_>,
        mut item: impl FnMut(Item<'_>, usize) -> Read<T>,
    ) -> Read<Vec<T>> {
        let name = self.name;
        match node.value {
            Value::List(_) => {}
            Value::Bad => return Err(Reported),
            _ => {
                let message = format!("`{name}` is a list, but this is {}", node.kind());
                return Err(node.error("not-a-list", message, self.hint));
            }
        }
        let items = node.one_or_many();
        let (max, hint) = self.max;
        if let Some(first) = items.get(max) {
            let message = format!("there are {} {name}; the maximum is {max}", items.len());
            return Err(first.error("too-many", message, hint));
        }
        each(items.into_iter().zip(1..), |(node, number)| {
            item(node, number)
        })
    }
}

/// Reads each of these; all of them are read even if one is wrong.
pub(crate) fn each<N, T>(
    nodes: impl IntoIterator<Item = N>,
    read: impl FnMut(N) -> Read<T>,
) -> Read<Vec<T>> {
    let all: Vec<Read<T>> = nodes.into_iter().map(read).collect();
    all.into_iter().collect()
}
