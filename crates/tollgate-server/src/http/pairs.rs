//! Names and values in a request body: headers, fields, entries of a descriptor.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tollgate_policy::Headers;

use super::request::{FieldSet, Text, bounded};

/// Maximum of pairs in a list, and of values of a header.
const MOST: usize = 128;

/// Names and values.
pub(crate) type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Headers of the request that the body describes.
pub(super) struct HeaderList<'a>(pub(super) &'a Pairs<'a>);

impl Headers for HeaderList<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        for (n, value) in self.0 {
            if n.eq_ignore_ascii_case(name) {
                each(value.as_bytes());
            }
        }
    }
}

/// An object whose values are one text or several.
pub(super) struct HeaderPairs<'a>(pub(super) Pairs<'a>);
/// An object whose values are texts or whole numbers.
pub(super) struct FieldPairs<'a>(pub(super) Pairs<'a>);
/// An object with texts, or a list of objects with `key` and `value`.
pub(super) struct Descriptor<'a>(pub(super) Pairs<'a>);

/// Reads an object; `value` puts the values of each name behind the others.
fn object<'de, M: MapAccess<'de>>(
    mut map: M,
    mut value: impl FnMut(&mut M, Cow<'de, str>, &mut Pairs<'de>) -> Result<(), M::Error>,
) -> Result<Pairs<'de>, M::Error> {
    let mut pairs = Pairs::new();
    while let Some(Text(name)) = map.next_key()? {
        if pairs.iter().any(|(known, _)| *known == name) {
            let shown: String = name.chars().take(64).collect();
            return Err(Error::custom(format_args!("{shown:?} is repeated")));
        }
        value(&mut map, name, &mut pairs)?;
        if pairs.len() > MOST {
            return Err(Error::custom(format_args!("more than {MOST} values")));
        }
    }
    Ok(pairs)
}

macro_rules! read_as {
    ($type:ident, $expecting:literal, { $($visit:item)* }) => {
        impl<'de: 'a, 'a> Deserialize<'de> for $type<'a> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Reader;
                impl<'de> Visitor<'de> for Reader {
                    type Value = $type<'de>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    $($visit)*
                }
                from.deserialize_any(Reader)
            }
        }
    };
}

read_as!(HeaderPairs, "an object of headers", {
    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<HeaderPairs<'de>, M::Error> {
        let pairs = object(map, |map, name, pairs| {
            let OneOrMore(values) = map.next_value()?;
            pairs.extend(values.into_iter().map(|value| (name.clone(), value)));
            Ok(())
        });
        pairs.map(HeaderPairs)
    }
});

read_as!(FieldPairs, "an object of texts and whole numbers", {
    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<FieldPairs<'de>, M::Error> {
        let pairs = object(map, |map, name, pairs| {
            pairs.push((name, map.next_value::<TextOrNumber<'de>>()?.0));
            Ok(())
        });
        pairs.map(FieldPairs)
    }
});

read_as!(
    Descriptor,
    "an object of texts, or a list of objects with `key` and `value`",
    {
        fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Descriptor<'de>, M::Error> {
            let pairs = object(map, |map, name, pairs| {
                pairs.push((name, map.next_value::<Text<'de>>()?.0));
                Ok(())
            });
            pairs.map(Descriptor)
        }

        fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Descriptor<'de>, S::Error> {
            let entries = bounded::<S, Entry<'de>>(seq, MOST)?;
            Ok(Descriptor(
                entries
                    .into_iter()
                    .map(|Entry(key, value)| (key, value))
                    .collect(),
            ))
        }
    }
);

/// One text, or a list of them.
struct OneOrMore<'a>(Vec<Cow<'a, str>>);

read_as!(OneOrMore, "a text, or a list of texts", {
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<OneOrMore<'de>, E> {
        Ok(OneOrMore(vec![Cow::Borrowed(text)]))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore<'de>, E> {
        Ok(OneOrMore(vec![Cow::Owned(text.to_owned())]))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<OneOrMore<'de>, S::Error> {
        let texts = bounded::<S, Text<'de>>(seq, MOST)?;
        Ok(OneOrMore(
            texts.into_iter().map(|Text(text)| text).collect(),
        ))
    }
});

/// A text, or a whole number in digits.
struct TextOrNumber<'a>(Cow<'a, str>);

read_as!(TextOrNumber, "a text or a whole number", {
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<TextOrNumber<'de>, E> {
        Ok(TextOrNumber(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TextOrNumber<'de>, E> {
        Ok(TextOrNumber(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<TextOrNumber<'de>, E> {
        Ok(TextOrNumber(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<TextOrNumber<'de>, E> {
        Ok(TextOrNumber(Cow::Owned(number.to_string())))
    }
});

/// One entry of a descriptor.
struct Entry<'a>(Cow<'a, str>, Cow<'a, str>);

read_as!(Entry, "an object with `key` and `value`", {
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entry<'de>, M::Error> {
        let (mut key, mut value) = (None, None);
        let mut once = FieldSet::new(["key", "value"]);
        while let Some(Text(name)) = map.next_key()? {
            let part = if once.place::<M::Error>(&name)? == 0 {
                &mut key
            } else {
                &mut value
            };
            *part = Some(map.next_value::<Text<'de>>()?.0);
        }
        match (key, value) {
            (Some(key), Some(value)) => Ok(Entry(key, value)),
            _ => Err(Error::custom(
                "an entry of a descriptor needs a `key` and a `value`",
            )),
        }
    }
});
