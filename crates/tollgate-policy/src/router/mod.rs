//! Finds the limits that may match a request, without testing each.
//!
//! # Theory
//!
//! Most conditions name something exact: a path with literal segments, a host, the value of a header, a network. A
//! request without it cannot match. So each condition is indexed by one exact feature that it requires, and a
//! request looks up its own features:
//!
//! ```text
//! paths:  /api ─ rides ─ {*} ─ cancel → 3        hosts:  api.example.com → 7, 12
//!              └ ** … login → 5                  x-plan: gold → 8
//!              └ **         → 1, 2               always: 0, 9
//! ```
//!
//! Of the features that a condition requires, the index uses the one that the fewest others require: a thousand
//! limits on one path are distinguished by their other conditions. A condition without an exact feature is always
//! a candidate.
//!
//! # Invariant
//!
//! Every condition that holds is a candidate: it is found under all values of its indexed feature, or always. A
//! candidate need not hold; [`Match::holds`] decides. Candidates come in rising order, once each.
//!
//! # Bounds
//!
//! A request costs its segments, plus one look-up for each kind of feature, header and length of network in the
//! index, not the number of conditions. Only patterns within a segment (`v*`) that share all segments before it
//! are tried one by one. Nothing is allocated while at most 32 candidates are found beside the permanent ones, and
//! names and values of the query have no escapes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use super::address::{Cidr, canonical};
use super::facts::Facts;
use super::pattern::TextPattern;
use super::rule::{Match, ValueTest};

mod holds;
mod trie;

use holds::with_host;
pub(super) use holds::{cookie_value, decoded, host_name, raw_query_values};
use trie::Trie;

/// From exact values to conditions.
type Map<K> = HashMap<K, Vec<usize>, BuildHasherDefault<Quick>>;
type Values = Map<Box<[u8]>>;

/// An index over conditions.
#[derive(Debug, Default)]
pub(super) struct Router {
    always: Vec<usize>,
    paths: Trie,
    hosts: Values,
    /// By name, like the next two.
    headers: Vec<(String, Values)>,
    descriptor: Vec<(String, Values)>,
    query: Vec<(String, Values)>,
    domains: Values,
    /// By the number of bits that count.
    networks: Vec<(u8, Map<IpAddr>)>,
}

/// One exact feature that a condition requires.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key<'m> {
    Path(&'m str),
    Host(&'m str),
    Header(&'m str, &'m str),
    Descriptor(&'m str, &'m str),
    Domain(&'m str),
    Query(&'m str, &'m str),
    Network(Cidr),
}

impl Router {
    /// An index over these conditions, which are identified by their index in the list.
    pub(super) fn new<'a>(matches: impl Iterator<Item = &'a Match>) -> Router {
        let matches: Vec<&Match> = matches.collect();
        let choices: Vec<Vec<Vec<Key<'_>>>> = matches.iter().map(|m| choices(m)).collect();
        let mut asked: HashMap<Key<'_>, usize> = HashMap::new();
        for key in choices.iter().flatten().flatten() {
            *asked.entry(*key).or_default() += 1;
        }
        let largest = |keys: &Vec<Key<'_>>| keys.iter().filter_map(|k| asked.get(k)).max().copied();
        let mut router = Router::default();
        for (id, (condition, choices)) in matches.iter().zip(&choices).enumerate() {
            // The first of equally good features: they are in order of look-up cost.
            match choices.iter().min_by_key(|keys| largest(keys)) {
                Some(keys) => keys.iter().for_each(|key| router.file(*key, condition, id)),
                None if condition.paths.is_empty() => router.always.push(id),
                // Patterns without a literal segment still separate paths from requests without one.
                None => condition
                    .paths
                    .iter()
                    .for_each(|p| router.paths.insert(p, id)),
            }
        }
        router
    }

    fn file(&mut self, key: Key<'_>, condition: &Match, id: usize) {
        let values = match key {
            Key::Path(text) => {
                let same = condition.paths.iter().filter(|p| p.as_str() == text);
                return same.for_each(|p| self.paths.insert(p, id));
            }
            Key::Network(network) => {
                let map = named(&mut self.networks, &network.bits());
                return put(map.entry(network.address()).or_default(), id);
            }
            Key::Host(_) => &mut self.hosts,
            Key::Domain(_) => &mut self.domains,
            Key::Header(name, _) => named(&mut self.headers, name),
            Key::Descriptor(name, _) => named(&mut self.descriptor, name),
            Key::Query(name, _) => named(&mut self.query, name),
        };
        if let Key::Host(value)
        | Key::Domain(value)
        | Key::Header(_, value)
        | Key::Descriptor(_, value)
        | Key::Query(_, value) = key
        {
            put(values.entry(value.as_bytes().into()).or_default(), id);
        }
    }

    /// Calls `found` with each condition that may hold, in rising order. `path` is normalised.
    pub(super) fn candidates(&self, facts: &Facts<'_>, path: &str, found: &mut dyn FnMut(usize)) {
        let mut ids = Ids::new();
        if !self.paths.is_empty() {
            self.paths.find(path, &mut ids);
        }
        if !self.hosts.is_empty() {
            with_host(facts.host, |host| ids.add_of(&self.hosts, host));
        }
        if !self.domains.is_empty() {
            ids.add_of(&self.domains, facts.domain.as_bytes());
        }
        for (name, values) in &self.headers {
            facts
                .headers
                .visit(name, &mut |value| ids.add_of(values, value));
        }
        for (name, values) in &self.descriptor {
            for (_, value) in facts.descriptor.iter().filter(|(key, _)| key == name) {
                ids.add_of(values, value.as_bytes());
            }
        }
        for (name, values) in &self.query {
            raw_query_values(facts.query, name, &mut |value| {
                ids.add_of(values, value.as_bytes());
                if let Cow::Owned(value) = decoded(value) {
                    ids.add_of(values, value.as_bytes());
                }
            });
        }
        if let Some(client) = facts.client.filter(|_| !self.networks.is_empty()) {
            let client = canonical(client);
            for (bits, networks) in &self.networks {
                let network = Cidr::containing(client, *bits).address();
                ids.add(networks.get(&network).map_or(&[], Vec::as_slice));
            }
        }
        // No condition is in both lists.
        let mut always = self.always.iter().peekable();
        let mut last = None;
        for id in ids.sorted() {
            while let Some(before) = always.next_if(|a| *a < id) {
                found(*before);
            }
            if last != Some(*id) {
                found(*id);
            }
            last = Some(*id);
        }
        always.for_each(|id| found(*id));
    }
}

/// The alternatives to index a condition: for each, all keys under which it must be found.
fn choices(condition: &Match) -> Vec<Vec<Key<'_>>> {
    let mut choices = Vec::new();
    let paths = &condition.paths;
    if !paths.is_empty() && paths.iter().all(trie::is_selective) {
        choices.push(paths.iter().map(|p| Key::Path(p.as_str())).collect());
    }
    if !condition.hosts.is_empty() {
        choices.extend(exact(&condition.hosts, Key::Host));
    }
    for (name, test) in &condition.headers {
        choices.extend(exact_values(test, |value| Key::Header(name, value)));
    }
    for (name, test) in &condition.descriptor {
        choices.extend(exact_values(test, |value| Key::Descriptor(name, value)));
    }
    // A descriptor with all entries has each of them.
    for (name, test) in &condition.entries {
        choices.extend(exact_values(test, |value| Key::Descriptor(name, value)));
    }
    if let Some(domain) = condition.domain.as_ref().and_then(TextPattern::exact) {
        choices.push(vec![Key::Domain(domain)]);
    }
    for (name, test) in &condition.query {
        choices.extend(exact_values(test, |value| Key::Query(name, value)));
    }
    if !condition.addresses.is_empty() {
        let networks = condition.addresses.networks().iter();
        choices.push(networks.map(|network| Key::Network(*network)).collect());
    }
    choices
}

fn exact_values<'m>(test: &'m ValueTest, key: impl Fn(&'m str) -> Key<'m>) -> Option<Vec<Key<'m>>> {
    match test {
        ValueTest::Like(patterns) => exact(patterns, key),
        ValueTest::Present | ValueTest::Absent => None,
    }
}

/// The keys of these texts, if all of them are exact.
fn exact<'m>(texts: &'m [TextPattern], key: impl Fn(&'m str) -> Key<'m>) -> Option<Vec<Key<'m>>> {
    texts.iter().map(|text| text.exact().map(&key)).collect()
}

/// The map of this name, added if there is none.
fn named<'l, N, Q, V: Default>(list: &'l mut Vec<(N, V)>, name: &Q) -> &'l mut V
where
    N: std::borrow::Borrow<Q>,
    Q: PartialEq + ToOwned<Owned = N> + ?Sized,
{
    let at = list.iter().position(|(n, _)| n.borrow() == name);
    let at = at.unwrap_or(list.len());
    if at == list.len() {
        list.push((name.to_owned(), V::default()));
    }
    let (_, value) = &mut list[at];
    value
}

/// Adds a condition, once.
fn put(ids: &mut Vec<usize>, id: usize) {
    if ids.last() != Some(&id) {
        ids.push(id);
    }
}

/// The candidates: on the stack while they are few.
struct Ids {
    few: [usize; 32],
    count: usize,
    many: Vec<usize>,
}

impl Ids {
    fn new() -> Ids {
        Ids {
            few: [0; 32],
            count: 0,
            many: Vec::new(),
        }
    }

    fn add(&mut self, ids: &[usize]) {
        for id in ids {
            match self.few.get_mut(self.count) {
                Some(place) => {
                    *place = *id;
                    self.count += 1;
                }
                None => self.many.push(*id),
            }
        }
    }

    fn add_of(&mut self, values: &Values, value: &[u8]) {
        self.add(values.get(value).map_or(&[], Vec::as_slice));
    }

    fn sorted(&mut self) -> &[usize] {
        let few = self.few.get_mut(..self.count).unwrap_or_default();
        if self.many.is_empty() {
            few.sort_unstable();
            return few;
        }
        self.many.extend_from_slice(few);
        self.many.sort_unstable();
        &self.many
    }
}

/// A hash for maps that only operators fill. Clients choose the look-ups but not the entries, so they cannot make
/// a look-up slow; speed is all that matters.
#[derive(Clone, Copy, Debug, Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let last = rest
            .iter()
            .rev()
            .fold(0, |word, b| word << 8 | u64::from(*b));
        self.write_u64(last);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The upper bits are well mixed, and tables use the lower ones.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests;
