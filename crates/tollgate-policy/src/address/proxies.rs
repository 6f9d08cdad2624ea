//! Finds the client's address behind trusted proxies.
//!
//! # Theory
//!
//! Each proxy appends the address that it was called from to a header. The rightmost entry was written by the
//! peer, so it is trusted as far as the peer is. If that entry is a trusted proxy too, it wrote the entry to its
//! left, and so on. The first address that is not trusted is the client. Everything to its left is unverified
//! input of the client.
//!
//! ```text
//! X-Forwarded-For: 6.6.6.6, 203.0.113.7, 10.0.0.2        peer 10.0.0.1, trusted 10.0.0.0/8
//!                  |        |            a proxy: continue
//!                  |        not a proxy: the client
//!                  whatever the client wrote
//! ```
//!
//! # Invariant
//!
//! A peer that is not trusted is the client, whatever the headers say. An entry that is not an address ends the
//! walk at the last address, so that a malformed entry gives a client no new identity. Lists are read from their
//! right end, also through quotes, so the client's entries at the left cannot change how the entries of proxies
//! are read.
//!
//! # Bounds
//!
//! At most 64 entries are read. Nothing is allocated.

use std::net::{IpAddr, Ipv6Addr};

use super::super::facts::Headers;
use super::{CidrSet, canonical};

/// Entries of a list that are read, from the right.
const MOST: usize = 64;

/// The proxies whose client address is trusted, and the header that gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// The proxies.
    pub trusted: CidrSet,
    /// The header in which they name the client.
    pub header: ForwardedHeader,
}

/// The header in which proxies name the client. Only this one is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Real-IP`: one address, written by the peer.
    XRealIp,
}

impl Proxies {
    /// The client of a request that came from `peer`.
    pub fn client(&self, peer: IpAddr, headers: &dyn Headers) -> IpAddr {
        let peer = canonical(peer);
        if !self.trusts(peer) {
            return peer;
        }
        // The last lines, in a ring. Every line has an entry, if only an empty one, so no entry that
        // may be looked at is in a line that was overwritten.
        let mut lines: [&[u8]; MOST] = [&[]; MOST];
        let mut count = 0;
        headers.visit(self.header.name(), &mut |line| {
            if let Some(place) = lines.get_mut(count % MOST) {
                *place = line;
            }
            count += 1;
        });
        let last_lines = (count.saturating_sub(MOST)..count)
            .rev()
            .filter_map(|at| lines.get(at % MOST).copied());
        match self.header {
            ForwardedHeader::XRealIp if count == 1 => {
                lines.first().copied().and_then(node).unwrap_or(peer)
            }
            ForwardedHeader::XRealIp => peer,
            ForwardedHeader::XForwardedFor => {
                let entries = last_lines.flat_map(|line| line.rsplit(|b| *b == b','));
                self.walk(peer, entries.map(<[u8]>::trim_ascii), node)
            }
            ForwardedHeader::Forwarded => {
                let entries = last_lines.flat_map(|line| Elements { rest: Some(line) });
                self.walk(peer, entries.map(<[u8]>::trim_ascii), forwarded_for)
            }
        }
    }

    /// Whether the peer is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.contains(peer)
    }

    fn walk<'h>(
        &self,
        peer: IpAddr,
        entries: impl Iterator<Item = &'h [u8]>,
        read: fn(&[u8]) -> Option<IpAddr>,
    ) -> IpAddr {
        let mut last = peer;
        // Lists may have empty entries, which say nothing.
        for entry in entries.take(MOST).filter(|entry| !entry.is_empty()) {
            match read(entry) {
                Some(address) if self.trusts(address) => last = address,
                Some(address) => return address,
                None => return last,
            }
        }
        last
    }
}

impl ForwardedHeader {
    /// The header's name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
            ForwardedHeader::XRealIp => "x-real-ip",
        }
    }
}

/// The elements of a list from the right, with commas in quotes left alone.
struct Elements<'h> {
    rest: Option<&'h [u8]>,
}

impl<'h> Iterator for Elements<'h> {
    type Item = &'h [u8];

    fn next(&mut self) -> Option<&'h [u8]> {
        let rest = self.rest?;
        let mut quoted = false;
        for (at, byte) in rest.iter().enumerate().rev() {
            match byte {
                b'"' if quoted => {
                    let before = rest.get(..at).unwrap_or_default();
                    let slashes = before.iter().rev().take_while(|b| **b == b'\\').count();
                    // An odd number of them: the quote is part of the text.
                    quoted = slashes % 2 == 1;
                }
                b'"' => quoted = true,
                b',' if !quoted => {
                    self.rest = rest.get(..at);
                    return rest.get(at + 1..);
                }
                _ => {}
            }
        }
        self.rest = None;
        Some(rest)
    }
}

/// The address in an element of `Forwarded`: `for="[2001:db8::1]:4711";proto=https`.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let mut quoted = false;
        let mut escaped = false;
        let end = rest.iter().position(|byte| {
            let ends = *byte == b';' && !quoted;
            if *byte == b'"' && !escaped {
                quoted = !quoted;
            }
            escaped = quoted && *byte == b'\\' && !escaped;
            ends
        });
        let end = end.unwrap_or(rest.len());
        let pair = rest.get(..end).unwrap_or_default().trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        let Some(equals) = pair.iter().position(|b| *b == b'=') else {
            continue;
        };
        let (name, value) = (pair.get(..equals)?, pair.get(equals + 1..)?);
        if !name.trim_ascii().eq_ignore_ascii_case(b"for") {
            continue;
        }
        if found.is_some() {
            // A repeated parameter is ambiguous and ignored.
            return None;
        }
        let value = value.trim_ascii();
        let plain = value
            .strip_prefix(b"\"")
            .and_then(|v| v.strip_suffix(b"\""));
        found = Some(node(plain.unwrap_or(value))?);
    }
    found
}

/// An address as proxies write it: perhaps with brackets, a port or a zone.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    if let Some(inner) = text.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        let port_is_one = port.is_empty() || is_port(port.strip_prefix(':')?);
        return v6(address).filter(|_| port_is_one);
    }
    match text.split_once(':') {
        None => text.parse().ok().map(IpAddr::V4),
        Some((address, port)) if !port.contains(':') => {
            let address = address.parse().ok().map(IpAddr::V4);
            address.filter(|_| is_port(port))
        }
        Some(_) => v6(text),
    }
}

/// An IPv6 address, whose zone only its sender understands.
fn v6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _)) => address,
        None => text,
    };
    let address: Ipv6Addr = address.parse().ok()?;
    Some(canonical(IpAddr::V6(address)))
}

/// A number, or a word that stands for one (RFC 7239 allows it).
fn is_port(text: &str) -> bool {
    let hidden = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    match text.strip_prefix('_') {
        Some(word) => !word.is_empty() && word.bytes().all(hidden),
        None => text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
