//! Extracts the parts of a key, the tier and the cost from a request.
//!
//! Values are borrowed from the request where possible. A value is missing if it is absent, empty, blank or
//! there more than once; a query value also if it holds a raw `;` or a control character. The rule decides what happens to a
//! request that lacks a part of its key.

use std::borrow::Cow;
use std::net::IpAddr;

use super::address::{masked, network_text};
use super::facts::{Facts, Headers};
use super::router::{cookie_value, decoded, host_name, raw_query_values};
use super::rule::{CostRule, KeyPart, LimitRule, Match, MissingKey, Source};
use crate::shared::{KeyKind, SharedKey};
use tollgate::{KeyHasher, Keyed};

pub use crate::shared::KEY_PARTS_MAX;

/// A request as limits read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) facts: &'a Facts<'a>,
    /// The normalised path.
    pub(super) path: &'a str,
}

impl<'a> Request<'a> {
    /// The text at `source`, unless it is missing; captures are those of `matches`.
    pub(super) fn text(&self, source: &Source, matches: &Match) -> Option<Cow<'a, [u8]>> {
        let facts = self.facts;
        let entry = |list: &[(&'a str, &'a str)], name: &str| {
            let found = list.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| Cow::Borrowed(value.as_bytes()))
        };
        let text = match source {
            Source::Address { v4, v6 } => {
                let text = network_text(facts.client?, *v4, *v6);
                Some(Cow::Owned(text.into_bytes()))
            }
            Source::Header(name) => only_value(facts.headers, name).map(Cow::Borrowed),
            Source::Cookie(name) => cookie_value(facts.headers, name).map(Cow::Borrowed),
            Source::Query(name) => {
                let mut values = Values::default();
                raw_query_values(facts.query, name, &mut |value| values.add(value));
                values.only().and_then(query_text).map(into_bytes)
            }
            Source::Path => Some(Cow::Borrowed(self.path.as_bytes())),
            Source::Capture(name) => {
                let mut captures = matches.paths.iter().map(|p| p.capture(name, self.path));
                captures.find_map(|c| c.map(|c| Cow::Borrowed(c.as_bytes())))
            }
            Source::Method => Some(Cow::Borrowed(facts.method.as_bytes())),
            Source::Host => Some(into_bytes(lowercase(Cow::Borrowed(host_name(facts.host))))),
            Source::Descriptor(name) => entry(facts.descriptor, name),
            Source::Field(name) => entry(facts.fields, name),
        };
        text.filter(|text| !text.trim_ascii().is_empty())
    }

    /// The key that a rule counts this request for. None if a part is missing and the rule refuses such
    /// requests.
    pub(super) fn key(&self, rule: &LimitRule) -> Option<RequestKey<'a>> {
        self.key_by(&rule.key, rule.missing_key, &rule.matches)
    }

    /// The key of a request by these parts; captures are those of `matches`.
    pub(super) fn key_by(
        &self,
        parts: &[KeyPart],
        missing: MissingKey,
        matches: &Match,
    ) -> Option<RequestKey<'a>> {
        let mut key = RequestKey::empty(KeyKind::Own);
        self.find_key(parts, missing, matches, &mut key)
            .then_some(key)
    }

    /// The same, written into `key`, which is empty: keys are large, and are not moved on the hot path. False
    /// if there is none.
    #[inline]
    pub(super) fn find_key(
        &self,
        parts: &[KeyPart],
        missing: MissingKey,
        matches: &Match,
        key: &mut RequestKey<'a>,
    ) -> bool {
        for part in parts {
            let found = match part.source {
                Source::Address { v4, v6 } => {
                    let address = self.facts.client.map(|client| masked(client, v4, v6));
                    address.map(Piece::Address)
                }
                _ => self
                    .text(&part.source, matches)
                    .map(|text| Piece::Text(part.fold(text))),
            };
            match found {
                Some(piece) => key.push(piece),
                None => {
                    let without = self.without(missing);
                    return without.map(|without| *key = without).is_some();
                }
            }
        }
        true
    }

    /// The key of a request that lacks a part.
    fn without(&self, missing: MissingKey) -> Option<RequestKey<'a>> {
        match (missing, self.facts.client) {
            (MissingKey::Deny, _) => None,
            (MissingKey::Address { v6 }, Some(client)) => {
                let mut key = RequestKey::empty(KeyKind::Address);
                key.push(Piece::Address(masked(client, 32, v6)));
                Some(key)
            }
            // Nothing identifies the client: such requests share one allowance.
            (MissingKey::Shared | MissingKey::Address { .. }, _) => {
                Some(RequestKey::empty(KeyKind::Shared))
            }
        }
    }

    /// The cost of the request.
    pub(super) fn cost(&self, rule: &LimitRule) -> u64 {
        self.cost_by(&rule.cost, &rule.matches)
    }

    /// The cost of the request by this rule; captures are those of `matches`.
    pub(super) fn cost_by(&self, cost: &CostRule, matches: &Match) -> u64 {
        match cost {
            CostRule::Asked => self.facts.cost.unwrap_or(1),
            CostRule::Constant(units) => *units,
            CostRule::Routes { routes, default } => {
                let is_route = |methods: &[String]| {
                    methods.is_empty()
                        || methods
                            .iter()
                            .any(|m| m.eq_ignore_ascii_case(self.facts.method))
                };
                let mut routes = routes.iter();
                routes
                    .find(|(methods, path, _)| is_route(methods) && path.matches(self.path))
                    .map_or(*default, |(_, _, units)| *units)
            }
            CostRule::From {
                source,
                default,
                least,
                most,
            } => match self.text(source, matches) {
                None if self.is_set(source) => *most,
                None => *default,
                Some(text) => units(&text).unwrap_or(*most).clamp(*least, *most),
            },
        }
    }
}

impl Request<'_> {
    /// Whether there is any value at `source`, even if it is blank or repeated.
    fn is_set(&self, source: &Source) -> bool {
        let mut found = false;
        match source {
            Source::Header(name) => self.facts.headers.visit(name, &mut |_| found = true),
            Source::Query(name) => raw_query_values(self.facts.query, name, &mut |_| found = true),
            _ => {}
        }
        found
    }
}

/// A whole number in digits, saturated at the largest number.
fn units(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    };
    all_digits.then(|| digits.iter().fold(0, add))
}

/// The value of a query parameter, decoded. `None` if servers read it differently: some end a value at a `;`, some
/// at a zero byte, and some drop control characters. Each such value would be a key of its own for this limit and
/// one user for the server behind it.
fn query_text(raw: &str) -> Option<Cow<'_, str>> {
    let text = decoded(raw);
    let is_plain = !raw.contains(';') && !text.chars().any(char::is_control);
    is_plain.then_some(text)
}

/// The value of a header. Repeated headers count as missing: a client that sends two values could be counted by
/// one while the backend uses the other.
fn only_value<'a>(headers: &'a dyn Headers, name: &str) -> Option<&'a [u8]> {
    let mut values = Values::default();
    headers.visit(name, &mut |value| values.add(value));
    values.only()
}

/// Values of one name; only a single value counts.
struct Values<T> {
    first: Option<T>,
    count: usize,
}

impl<T> Default for Values<T> {
    fn default() -> Values<T> {
        Values {
            first: None,
            count: 0,
        }
    }
}

impl<T> Values<T> {
    fn add(&mut self, value: T) {
        self.first.get_or_insert(value);
        self.count += 1;
    }

    fn only(self) -> Option<T> {
        self.first.filter(|_| self.count == 1)
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

fn lowercase(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.chars().any(char::is_uppercase) {
        Cow::Owned(text.to_lowercase())
    } else {
        text
    }
}

impl KeyPart {
    /// A part without folding.
    pub fn new(source: Source) -> KeyPart {
        KeyPart {
            source,
            trim: false,
            lowercase: false,
        }
    }

    /// The text in its counted form.
    pub fn fold<'a>(&self, text: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        let text = match text {
            Cow::Borrowed(text) if self.trim => Cow::Borrowed(text.trim_ascii()),
            Cow::Owned(text) if self.trim => Cow::Owned(text.trim_ascii().to_vec()),
            text => text,
        };
        if !self.lowercase {
            return text;
        }
        match std::str::from_utf8(&text) {
            Ok(valid) if valid.chars().any(char::is_uppercase) => {
                Cow::Owned(valid.to_lowercase().into_bytes())
            }
            Ok(_) => text,
            Err(_) => Cow::Owned(text.to_ascii_lowercase()),
        }
    }
}

/// A part of a key as found in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(Cow<'a, [u8]>),
    /// Cut to the bits that count.
    Address(IpAddr),
}

/// The key that a request is counted for.
#[derive(Clone, Debug)]
pub(super) struct RequestKey<'a> {
    kind: KeyKind,
    pieces: [Option<Piece<'a>>; KEY_PARTS_MAX],
    count: usize,
}

impl<'a> RequestKey<'a> {
    pub(super) fn empty(kind: KeyKind) -> RequestKey<'a> {
        RequestKey {
            kind,
            pieces: [const { None }; KEY_PARTS_MAX],
            count: 0,
        }
    }

    /// A key of these texts.
    pub(super) fn from_texts<const N: usize>(texts: [&'a str; N]) -> RequestKey<'a> {
        let mut key = RequestKey::empty(KeyKind::Own);
        for text in texts {
            key.push(Piece::Text(Cow::Borrowed(text.as_bytes())));
        }
        key
    }

    /// A key that a caller names by its parts, read as the rule would read them in a request.
    pub(super) fn named(rule: &LimitRule, texts: &'a [&'a str]) -> RequestKey<'a> {
        let mut key = RequestKey::empty(KeyKind::Own);
        for (i, text) in texts.iter().enumerate() {
            let plain = || Piece::Text(Cow::Borrowed(text.as_bytes()));
            key.push(match rule.key.get(i) {
                Some(part) => match part.source {
                    Source::Address { v4, v6 } => text
                        .split('/')
                        .next()
                        .and_then(|address| address.parse().ok())
                        .map_or_else(plain, |address| Piece::Address(masked(address, v4, v6))),
                    _ => Piece::Text(part.fold(Cow::Borrowed(text.as_bytes()))),
                },
                None => plain(),
            });
        }
        key
    }

    /// A key as a shared store knows it.
    pub(super) fn from_shared(rule: &LimitRule, shared: &'a SharedKey) -> RequestKey<'a> {
        let mut key = RequestKey::empty(shared.kind());
        for (at, part) in shared.parts().enumerate() {
            let source = rule.key.get(at).map(|part| &part.source);
            let is_address = match shared.kind() {
                KeyKind::Own => matches!(source, Some(Source::Address { .. })),
                KeyKind::Address => true,
                KeyKind::Shared => false,
            };
            let address = std::str::from_utf8(part).ok().filter(|_| is_address);
            key.push(match address.and_then(|text| text.parse().ok()) {
                Some(address) => Piece::Address(address),
                None => Piece::Text(Cow::Borrowed(part)),
            });
        }
        key
    }

    fn push(&mut self, piece: Piece<'a>) {
        if let Some(place) = self.pieces.get_mut(self.count) {
            *place = Some(piece);
            self.count += 1;
        }
    }

    /// The parts as text.
    pub(super) fn texts(&self, rule: &LimitRule) -> Vec<String> {
        self.texts_by(&rule.key, rule.missing_key)
    }

    /// The same, of a key that was found by these parts.
    pub(super) fn texts_by(&self, parts: &[KeyPart], missing: MissingKey) -> Vec<String> {
        let text = |(i, piece): (usize, &Piece<'_>)| match piece {
            Piece::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Piece::Address(address) => match parts.get(i).map(|part| &part.source) {
                Some(Source::Address { v4, v6 }) if self.kind == KeyKind::Own => {
                    network_text(*address, *v4, *v6)
                }
                _ => match missing {
                    MissingKey::Address { v6 } => network_text(*address, 32, v6),
                    _ => address.to_string(),
                },
            },
        };
        self.pieces.iter().flatten().enumerate().map(text).collect()
    }

    pub(super) fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The key in the form that all nodes share.
    pub(super) fn shared(&self) -> SharedKey {
        let mut key = SharedKey::new(self.kind);
        for piece in self.pieces.iter().flatten() {
            match piece {
                Piece::Text(text) => key.push(text),
                Piece::Address(address) => key.push(address.to_string().as_bytes()),
            }
        }
        key
    }
}

impl Keyed for RequestKey<'_> {
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.number(self.kind as u64);
        for piece in self.pieces.iter().flatten() {
            match piece {
                Piece::Text(text) => {
                    into.number(0);
                    into.bytes(text);
                }
                Piece::Address(address) => {
                    into.number(1);
                    address.feed(into);
                }
            }
        }
    }
}
