//! Client addresses: networks, and the walk through proxies.
//!
//! # Theory
//!
//! An address is a number of 32 or 128 bits, a network is a range of numbers. A set of networks is sorted
//! and merged into ranges that do not touch, so asking it is one binary search however many there are.
//!
//! An IPv6 address may stand for an IPv4 address: mapped (`::ffff:192.0.2.1`), or translated by NAT64 under the
//! well-known prefix (`64:ff9b::192.0.2.1`, RFC 6052). `canonical` returns the IPv4 address before anything else:
//! 64 bits of either form are the same for all IPv4 clients. Networks written in the mapped form are IPv4 networks, too.
//!
//! The well-known prefix must not carry addresses that are not global (RFC 6052, 3.1). Those stay IPv6, so that no
//! client reaches a list entry for `127.0.0.0/8` through it.
//!
//! A client that owns one IPv6 address owns at least the 2^64 beside it. Limits therefore count a network, by
//! [`masked`].
//!
//! # Invariant
//!
//! All forms of one address are equal, and `::/0` holds no IPv4 address.
//!
//! # Limits
//!
//! An address is not a user: a carrier may put thousands of users behind one, and translators (NAT64) may use a
//! prefix of their own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

mod proxies;

pub use proxies::{ForwardedHeader, Proxies};

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// Why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CidrError {
    /// Not an address.
    Address,
    /// More bits than the address has, or no number.
    Bits,
    /// Bits are set that do not count.
    HostBits {
        /// The network that was probably meant.
        meant: String,
    },
}

impl Cidr {
    /// The network of the first `bits` of `address`.
    ///
    /// # Errors
    /// More bits than there are, or bits set behind those that count.
    pub fn new(address: IpAddr, bits: u8) -> Result<Cidr, CidrError> {
        if bits > width(address) {
            return Err(CidrError::Bits);
        }
        let plain = address.to_canonical();
        // A mapped network this wide holds more than IPv4, so it stays IPv6.
        let folds = plain.is_ipv4() && (address.is_ipv4() || bits >= 96);
        let network = match folds {
            true if address.is_ipv6() => Cidr::containing(plain, bits - 96),
            true => Cidr::containing(plain, bits),
            false => Cidr::containing(address, bits),
        };
        let given = if folds { plain } else { address };
        if network.address != given {
            return Err(CidrError::HostBits {
                meant: network.to_string(),
            });
        }
        Ok(network)
    }

    /// The network that `address` lies in, by its first `bits`.
    pub(super) fn containing(address: IpAddr, bits: u8) -> Cidr {
        Cidr {
            address: cut(address, bits),
            bits: bits.min(width(address)),
        }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits count.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Is the address in it?
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        address.is_ipv4() == self.address.is_ipv4() && cut(address, self.bits) == self.address
    }
}

/// The first 96 bits of a global IPv4 address that NAT64 translated (RFC 6052).
const NAT64: u128 = 0x0064_ff9b << 96;

/// The address itself: IPv4 if the IPv6 address stands for one.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let bits = v6.to_bits();
    if bits >> 32 == NAT64 >> 32 {
        let v4 = Ipv4Addr::from_bits(bits as u32);
        let is_global = !(v4.is_private()
            || v4.is_loopback()
            || v4.is_link_local()
            || v4.is_unspecified()
            || v4.is_broadcast()
            || v4.is_multicast());
        return if is_global { v4.into() } else { address };
    }
    address.to_canonical()
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with only its first `bits`.
fn cut(address: IpAddr, bits: u8) -> IpAddr {
    let lost = u32::from(width(address).saturating_sub(bits));
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(lost).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(lost).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    /// Reads `10.0.0.0/8`, `2001:db8::/32`, and an address alone as the network of only that address.
    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrError::Address)?;
        let bits = match bits {
            // A number may be read with a sign; a network has none.
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                bits.parse().map_err(|_| CidrError::Bits)?
            }
            Some(_) => return Err(CidrError::Bits),
            None => width(address),
        };
        Cidr::new(address, bits)
    }
}

impl fmt::Display for Cidr {
    /// As it is read; the bits only if not all of them count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.bits < width(self.address) {
            write!(f, "/{}", self.bits)?;
        }
        Ok(())
    }
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("this is not an IP address"),
            Self::Bits => f.write_str("the text after the `/` is not a number of bits"),
            Self::HostBits { .. } => {
                f.write_str("the address has bits set that do not count for the network")
            }
        }
    }
}

impl CidrError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Address => {
                "write an address or a network: `192.0.2.1`, `10.0.0.0/8`, `2001:db8::/32`".into()
            }
            Self::Bits => "write a whole number, at most 32 for IPv4 and 128 for IPv6".into(),
            Self::HostBits { meant } => {
                format!("write `{meant}` for the network, or the address without `/`")
            }
        }
    }
}

impl std::error::Error for CidrError {}

/// A set of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CidrSet {
    networks: Vec<Cidr>,
    /// First and last address of each range: rising, apart.
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl CidrSet {
    /// These networks.
    pub fn new(networks: Vec<Cidr>) -> CidrSet {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in &networks {
            let bits = u32::from(network.bits);
            match network.address {
                IpAddr::V4(first) => {
                    let hosts = u32::MAX.checked_shr(bits).unwrap_or(0);
                    v4.push((first.to_bits(), first.to_bits() | hosts));
                }
                IpAddr::V6(first) => {
                    let hosts = u128::MAX.checked_shr(bits).unwrap_or(0);
                    v6.push((first.to_bits(), first.to_bits() | hosts));
                }
            }
        }
        CidrSet {
            networks,
            v4: merged(v4, |last| last.checked_add(1)),
            v6: merged(v6, |last| last.checked_add(1)),
        }
    }

    /// Is the address in one of them?
    pub fn contains(&self, address: IpAddr) -> bool {
        match canonical(address) {
            IpAddr::V4(address) => in_ranges(&self.v4, address.to_bits()),
            IpAddr::V6(address) => in_ranges(&self.v6, address.to_bits()),
        }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// The networks.
    pub fn networks(&self) -> &[Cidr] {
        &self.networks
    }
}

impl FromIterator<Cidr> for CidrSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(networks: I) -> CidrSet {
        CidrSet::new(networks.into_iter().collect())
    }
}

fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>, next: fn(T) -> Option<T>) -> Box<[(T, T)]> {
    ranges.sort_unstable();
    let mut out: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match out.last_mut() {
            // Nothing is behind the last number, so what follows it lies within.
            Some(before) if next(before.1).is_none_or(|next| first <= next) => {
                before.1 = before.1.max(last);
            }
            _ => out.push((first, last)),
        }
    }
    out.into()
}

fn in_ranges<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let begun = ranges.partition_point(|(first, _)| *first <= address);
    let range = begun.checked_sub(1).and_then(|at| ranges.get(at));
    range.is_some_and(|(_, last)| address <= *last)
}

/// The address that is counted: IPv4 in its own form even if it came as IPv6, cut to the bits that count.
pub fn masked(address: IpAddr, v4: u8, v6: u8) -> IpAddr {
    let address = canonical(address);
    cut(address, if address.is_ipv4() { v4 } else { v6 })
}

/// The counted network as text: `203.0.113.7`, `2001:db8:1:2::/64`. The number of bits is written only if not all
/// of them count.
pub fn network_text(address: IpAddr, v4: u8, v6: u8) -> String {
    let address = canonical(address);
    Cidr::containing(address, if address.is_ipv4() { v4 } else { v6 }).to_string()
}

#[cfg(test)]
mod tests;
