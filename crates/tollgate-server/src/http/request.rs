//! Parses JSON requests: a check, a batch, a settlement.
//!
//! Borrowed from the body wherever JSON wrote it without escapes. Everything that is not understood is an
//! error with its place: a misspelt field that was ignored would be a limit that is not enforced.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tollgate_policy::KEY_PARTS_MAX;

use super::pairs::{Descriptor, FieldPairs, HeaderPairs, Pairs};

/// Requests in one batch.
pub(super) const BATCH_MAX: usize = 256;

/// One question.
#[derive(Debug, Default)]
pub(crate) struct CheckRequest<'a> {
    pub(crate) method: Cow<'a, str>,
    pub(crate) path: Cow<'a, str>,
    pub(crate) host: Cow<'a, str>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) headers: Pairs<'a>,
    pub(crate) fields: Pairs<'a>,
    pub(crate) domain: Cow<'a, str>,
    pub(crate) descriptor: Pairs<'a>,
    /// One limit, instead of facts.
    pub(crate) limit: Option<Cow<'a, str>>,
    pub(crate) key: Vec<Cow<'a, str>>,
    pub(crate) cost: Option<u64>,
    pub(crate) reserve: bool,
}

/// Several requests, decided in order.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) requests: Vec<CheckRequest<'a>>,
}

/// How a reservation ends.
#[derive(Debug)]
pub(super) struct Settle<'a> {
    pub(super) reservation: Cow<'a, str>,
    pub(super) actual: Option<u64>,
    pub(super) cancel: bool,
}

/// Reads a body.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    if body.is_empty() {
        return Err("the body is empty; send a JSON object, such as `{\"path\":\"/\"}`".into());
    }
    // Checked once for the body, not for each text in it.
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        format!("the body is not UTF-8 from byte {at} on; JSON is always UTF-8")
    })?;
    serde_json::from_str(text).map_err(|error| format!("the body is invalid: {error}"))
}

/// The fields of an object, each at most once.
pub(super) struct FieldSet<const N: usize> {
    names: [&'static str; N],
    seen: u32,
}

impl<const N: usize> FieldSet<N> {
    pub(super) fn new(names: [&'static str; N]) -> FieldSet<N> {
        FieldSet { names, seen: 0 }
    }

    /// The position of the field in the list.
    pub(super) fn place<E: Error>(&mut self, name: &str) -> Result<usize, E> {
        let Some(at) = self.names.iter().position(|known| *known == name) else {
            return Err(self.unknown(name));
        };
        if self.seen & 1 << at != 0 {
            return Err(E::custom(format_args!("the field `{name}` is repeated")));
        }
        self.seen |= 1 << at;
        Ok(at)
    }

    fn saw(&self, name: &str) -> bool {
        let at = self.names.iter().position(|known| *known == name);
        at.is_some_and(|at| self.seen & 1 << at != 0)
    }

    #[cold]
    fn unknown<E: Error>(&self, name: &str) -> E {
        let shown: String = name.chars().take(64).collect();
        let meant = tollgate_config::suggest::suggest(name, self.names);
        let hint = match meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known fields are `{}`", self.names.join("`, `")),
        };
        E::custom(format_args!("unknown field {shown:?}; {hint}"))
    }
}

const FIELDS: [&str; 12] = [
    "method",
    "path",
    "host",
    "ip",
    "headers",
    "fields",
    "domain",
    "descriptor",
    "limit",
    "key",
    "cost",
    "reserve",
];
/// A client that forgets its fields would otherwise match no limit and pass.
pub(crate) const NO_FACTS: &str = "the request has no facts; send some of `method`, `path`, `host`, `ip`, `headers`, `fields`, `domain`, `descriptor`, or `limit` with its `key`";
/// The first of these are facts of a request.
const FACTS: usize = 8;

impl<'de: 'a, 'a> Deserialize<'de> for CheckRequest<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = CheckRequest<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object that describes a request")
            }

            fn visit_map<M: MapAccess<'de>>(
                self,
                mut map: M,
            ) -> Result<CheckRequest<'de>, M::Error> {
                let mut ask = CheckRequest::default();
                let mut once = FieldSet::new(FIELDS);
                while let Some(Text(name)) = map.next_key()? {
                    match once.place(&name)? {
                        0 => ask.method = map.next_value::<Text<'de>>()?.0,
                        1 => ask.path = map.next_value::<Text<'de>>()?.0,
                        2 => ask.host = map.next_value::<Text<'de>>()?.0,
                        3 => ask.client = Some(map.next_value::<Address>()?.0),
                        4 => ask.headers = map.next_value::<HeaderPairs<'de>>()?.0,
                        5 => ask.fields = map.next_value::<FieldPairs<'de>>()?.0,
                        6 => ask.domain = map.next_value::<Text<'de>>()?.0,
                        7 => ask.descriptor = map.next_value::<Descriptor<'de>>()?.0,
                        8 => ask.limit = Some(map.next_value::<Text<'de>>()?.0),
                        9 => ask.key = map.next_value::<Key<'de>>()?.0,
                        10 => ask.cost = Some(map.next_value::<Units>()?.0),
                        _ => ask.reserve = map.next_value()?,
                    }
                }
                if ask.limit.is_none() && once.saw("key") {
                    return Err(Error::custom(
                        "`key` needs `limit`; add it, or describe the request by its facts",
                    ));
                }
                if ask.limit.is_some() && once.seen & ((1 << FACTS) - 1) != 0 {
                    return Err(Error::custom(
                        "`limit` excludes facts of a request; with it, send only `key`, `cost` and `reserve`, or omit it",
                    ));
                }
                if ask.limit.is_none() && once.seen & ((1 << FACTS) - 1) == 0 {
                    return Err(Error::custom(NO_FACTS));
                }
                Ok(ask)
            }
        }
        from.deserialize_map(Reader)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Batch<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Batch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with `requests`")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Batch<'de>, M::Error> {
                let mut requests = None;
                let mut once = FieldSet::new(["requests"]);
                while let Some(Text(name)) = map.next_key()? {
                    once.place::<M::Error>(&name)?;
                    requests = Some(map.next_value::<Bounded<CheckRequest<'de>, BATCH_MAX>>()?.0);
                }
                match requests {
                    Some(requests) => Ok(Batch { requests }),
                    None => Err(Error::custom("`requests` is missing: a list of requests")),
                }
            }
        }
        from.deserialize_map(Reader)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Settle<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Settle<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with `reservation`")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Settle<'de>, M::Error> {
                let (mut reservation, mut actual, mut cancel) = (None, None, false);
                let mut once = FieldSet::new(["reservation", "actual", "cancel"]);
                while let Some(Text(name)) = map.next_key()? {
                    match once.place(&name)? {
                        0 => reservation = Some(map.next_value::<Text<'de>>()?.0),
                        1 => actual = Some(map.next_value::<Units>()?.0),
                        _ => cancel = map.next_value()?,
                    }
                }
                if cancel && actual.is_some() {
                    return Err(Error::custom(
                        "`actual` and `cancel` exclude each other; send one of them",
                    ));
                }
                match reservation {
                    Some(reservation) => Ok(Settle {
                        reservation,
                        actual,
                        cancel,
                    }),
                    None => Err(Error::custom(
                        "`reservation` is missing; send that of the response of the check",
                    )),
                }
            }
        }
        from.deserialize_map(Reader)
    }
}

/// A text, borrowed if it can be.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(Reader)
    }
}

/// A whole number that is not negative.
struct Units(u64);

impl<'de> Deserialize<'de> for Units {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Units;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of units, 0 or more")
            }

            fn visit_u64<E: Error>(self, units: u64) -> Result<Units, E> {
                Ok(Units(units))
            }
        }
        from.deserialize_u64(Reader)
    }
}

struct Address(IpAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(from)?;
        let address = text.parse().map_err(|_| {
            let shown: String = text.chars().take(64).collect();
            Error::custom(format_args!("`ip` is {shown:?}, which is no IP address; write one such as \"203.0.113.7\", or omit it"))
        });
        address.map(Address)
    }
}

/// A key: one text, or one for each part.
struct Key<'a>(Vec<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of texts")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(vec![Cow::Borrowed(text)]))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(vec![Cow::Owned(text.to_owned())]))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Key<'de>, S::Error> {
                let parts = bounded::<S, Text<'de>>(seq, KEY_PARTS_MAX)?;
                Ok(Key(parts.into_iter().map(|Text(part)| part).collect()))
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A list with at most `N` items.
pub(super) struct Bounded<T, const N: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Bounded<T, N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T, const N: usize>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Reader<T, N> {
            type Value = Bounded<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {N}")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Bounded<T, N>, S::Error> {
                bounded(seq, N).map(Bounded)
            }
        }
        from.deserialize_seq(Reader(std::marker::PhantomData))
    }
}

/// The items of a list, at most `most`.
pub(super) fn bounded<'de, S: SeqAccess<'de>, T: Deserialize<'de>>(
    mut seq: S,
    most: usize,
) -> Result<Vec<T>, S::Error> {
    let mut items = Vec::new();
    while let Some(item) = seq.next_element()? {
        if items.len() == most {
            return Err(Error::custom(format_args!(
                "the list has more than {most} items"
            )));
        }
        items.push(item);
    }
    Ok(items)
}
