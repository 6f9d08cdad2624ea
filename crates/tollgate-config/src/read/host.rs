//! `host`, `host:port`, `[v6]` or `[v6]:port`, in the address of an upstream or of a store.

use std::net::Ipv6Addr;

use crate::report::quoted;

/// The longest name of the domain name system.
pub(super) const HOST_MAX: usize = 253;

/// Why a text is not a host with an optional port.
pub(super) enum HostError {
    /// What follows a `[` is not an IPv6 address in brackets.
    Brackets,
    /// An IPv6 address without brackets.
    NoBrackets,
    /// Text between the bracket and the port.
    AfterBracket,
}

impl HostError {
    /// What is wrong in `text`, and how to fix it; `sample` is an address in brackets. None for [`HostError::AfterBracket`].
    pub(super) fn describe(&self, text: &str, sample: &str) -> Option<(String, String)> {
        match self {
            HostError::Brackets => Some((
                format!("{} is not an IPv6 address in brackets", quoted(text)),
                format!("write one such as `{sample}`"),
            )),
            HostError::NoBrackets => Some((
                format!("the IPv6 address {} has no brackets", quoted(text)),
                format!("write `[{text}]`"),
            )),
            HostError::AfterBracket => None,
        }
    }
}

/// Splits a text into its host, whether that is an IPv6 address in brackets, and its port.
pub(super) fn split(text: &str) -> Result<(&str, bool, Option<&str>), HostError> {
    let Some(rest) = text.strip_prefix('[') else {
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(HostError::NoBrackets);
        }
        return Ok(match text.split_once(':') {
            Some((host, port)) => (host, false, Some(port)),
            None => (text, false, None),
        });
    };
    let (host, rest) = rest.split_once(']').ok_or(HostError::Brackets)?;
    if host.parse::<Ipv6Addr>().is_err() {
        return Err(HostError::Brackets);
    }
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, true, Some(port))),
        None if rest.is_empty() => Ok((host, true, None)),
        None => Err(HostError::AfterBracket),
    }
}

/// The port that digits alone represent; not 0.
pub(super) fn port(text: &str) -> Option<u16> {
    let all_digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| *port > 0 && all_digits)
}
