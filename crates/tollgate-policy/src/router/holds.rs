//! Evaluates conditions on a request, and finds the values that they test.
//!
//! A header, a query parameter or an entry of a descriptor may occur several times. It is like a pattern if one of
//! its values is: a client cannot hide a value behind another one.
//!
//! [`ValueTest::Present`] on a header means the same as in a key: exactly once, and not blank. Otherwise a request
//! could match a limit by a header that its key then counts as missing. A query parameter is present also without
//! a value, because `?debug` is a common flag. [`ValueTest::Absent`] is the opposite of `Present`: each request
//! meets exactly one of the two.

use std::borrow::Cow;

use super::super::facts::{Facts, Headers};
use super::super::path::hex;
use super::super::pattern::TextPattern;
use super::super::rule::{Match, ValueTest};

impl Match {
    /// Whether all conditions hold. `path` is normalised.
    pub fn holds(&self, facts: &Facts<'_>, path: &str) -> bool {
        let method = |m: &String| m.eq_ignore_ascii_case(facts.method);
        (self.methods.is_empty() || self.methods.iter().any(method))
            && (self.paths.is_empty() || self.paths.iter().any(|p| p.matches(path)))
            && (self.hosts.is_empty() || with_host(facts.host, |host| any_like(&self.hosts, host)))
            && self.headers.iter().all(|(name, test)| {
                test.holds_for_header(|is_like| {
                    facts.headers.visit(name, &mut |value| is_like(value));
                })
            })
            && self.query.iter().all(|(name, test)| {
                test.holds(|is_like| {
                    raw_query_values(facts.query, name, &mut |raw| {
                        is_like(raw.as_bytes());
                        if let Cow::Owned(value) = decoded(raw) {
                            is_like(value.as_bytes());
                        }
                    });
                })
            })
            && (self.addresses.is_empty()
                || facts
                    .client
                    .is_some_and(|client| self.addresses.contains(client)))
            && self
                .domain
                .as_ref()
                .is_none_or(|d| d.matches(facts.domain.as_bytes()))
            && self.descriptor.iter().all(|(name, test)| {
                test.holds(|is_like| {
                    let own = facts.descriptor.iter().filter(|(key, _)| key == name);
                    own.for_each(|(_, value)| is_like(value.as_bytes()));
                })
            })
            && (self.entries.is_empty() || are_all(&self.entries, facts.descriptor))
    }
}

/// Whether these are all entries of the descriptor, in this order.
fn are_all(wanted: &[(String, ValueTest)], entries: &[(&str, &str)]) -> bool {
    wanted.len() == entries.len()
        && wanted
            .iter()
            .zip(entries)
            .all(|((name, test), (key, value))| {
                name == key && test.holds(|is_like| is_like(value.as_bytes()))
            })
}

impl ValueTest {
    /// Whether it holds for the values that `values` yields. One of them, blank or not, is present.
    fn holds(&self, values: impl FnOnce(&mut dyn FnMut(&[u8]))) -> bool {
        let mut is_there = false;
        let is_like = self.visit(values, |_| is_there = true);
        self.result(is_there, is_like)
    }

    /// The same for the values of a header, of which only a single non-blank one is present.
    fn holds_for_header(&self, values: impl FnOnce(&mut dyn FnMut(&[u8]))) -> bool {
        let (mut count, mut is_blank) = (0_usize, false);
        let is_like = self.visit(values, |value| {
            count += 1;
            is_blank = value.trim_ascii().is_empty();
        });
        self.result(count == 1 && !is_blank, is_like)
    }

    /// Calls `each` with each value. Returns whether one of them matches a pattern.
    fn visit(
        &self,
        values: impl FnOnce(&mut dyn FnMut(&[u8])),
        mut each: impl FnMut(&[u8]),
    ) -> bool {
        let mut is_like = false;
        values(&mut |value| {
            each(value);
            if let ValueTest::Like(patterns) = self {
                is_like = is_like || any_like(patterns, value);
            }
        });
        is_like
    }

    fn result(&self, is_present: bool, is_like: bool) -> bool {
        match self {
            ValueTest::Present => is_present,
            ValueTest::Absent => !is_present,
            ValueTest::Like(_) => is_like,
        }
    }
}

fn any_like(patterns: &[TextPattern], value: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(value))
}

/// A host without its port, brackets, and the dot that ends a full name. The case is as sent.
pub(crate) fn host_name(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    let name = match host.split_once(':') {
        // With more colons it is an IPv6 address.
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Calls `then` with a host name in lower case.
pub(super) fn with_host<T>(host: &str, then: impl FnOnce(&[u8]) -> T) -> T {
    let name = host_name(host).as_bytes();
    if !name.iter().any(u8::is_ascii_uppercase) {
        return then(name);
    }
    // No valid name is longer than 253.
    let mut buffer = [0; 256];
    match buffer.get_mut(..name.len()) {
        Some(low) => {
            low.copy_from_slice(name);
            low.make_ascii_lowercase();
            then(low)
        }
        None => then(&name.to_ascii_lowercase()),
    }
}

/// Calls `each` with every value of the parameter `name`, as sent. Pairs are split at `&` only.
pub(crate) fn raw_query_values<'a>(query: &'a str, name: &str, each: &mut dyn FnMut(&'a str)) {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (own, value) = pair.split_once('=').unwrap_or((pair, ""));
        if own == name || decoded(own) == name {
            each(value);
        }
    }
}

/// A name or value of a query, decoded: `+` is a space. Invalid UTF-8 is replaced; a `%` that begins no escape
/// stays.
pub(crate) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (*first, behind) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    rest = after;
                }
                _ => out.push(b'%'),
            },
            (byte, _) => out.push(byte),
        }
    }
    Cow::Owned(match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// The value of the cookie `name`, without quotes around it. `None` if several differ, because servers do not
/// agree on which one counts.
pub(crate) fn cookie_value<'a>(headers: &'a dyn Headers, name: &str) -> Option<&'a [u8]> {
    let (mut found, mut differ) = (None, false);
    headers.visit("cookie", &mut |line| {
        for pair in line.split(|b| *b == b';') {
            let Some(equals) = pair.iter().position(|b| *b == b'=') else {
                continue;
            };
            let (own, value) = pair.split_at(equals);
            if own.trim_ascii() == name.as_bytes() {
                let value = value.get(1..).unwrap_or_default().trim_ascii();
                let plain = value
                    .strip_prefix(b"\"")
                    .and_then(|v| v.strip_suffix(b"\""));
                let value = plain.unwrap_or(value);
                differ |= *found.get_or_insert(value) != value;
            }
        }
    });
    found.filter(|_| !differ)
}
