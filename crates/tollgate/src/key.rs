//! From a key to 64 bits that nobody outside can steer.
//!
//! # Theory
//!
//! The memory store keeps no keys, only their hashes: identity is decided by the hash, so a collision
//! would make two keys share one allowance. The hash is therefore not a mixer with a good reputation
//! but a *universal family*. The message is read as pairs of 64-bit words (a number is a pair with its
//! own two halves swapped), and with secret random `k1, k2, …`
//!
//! ```text
//! sum  = (m1 + k1)*(m2 + k2) + (m3 + k3)*(m4 + k4) + …                   mod 2^128
//! hash = (c0 + c1*low(sum) + c2*high(sum)) mod 2^128, the upper 64 bits  (c are 128 bits wide)
//! ```
//!
//! For two different messages of one type, however chosen, the sums agree with probability at most 2^-63
//! over the choice of the secrets: where two words differ, a given difference of the products fixes one
//! `k`; where lengths differ, other secrets are used, and two independent products seldom agree. For two
//! different sums the hashes are independent and uniform. Together: any two keys collide with
//! probability at most 2^-62, and no pattern in the keys shows in their places. Messages that need more
//! secrets than there are are folded block by block, which adds as much for each. The secrets come from
//! the operating system, anew for each limiter.
//!
//! # Why not SipHash
//!
//! It is what `std` uses and a fine choice against the same attacker; on the short keys that rate
//! limiters see it takes several times as many steps. Why not a fast unkeyed hash: an attacker who knows
//! it can choose keys that share a bucket with a victim.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

use crate::snapshot::{RestoreError, SnapshotReader, SnapshotWriter};

/// Secrets of a block; a message that needs more is folded into one word.
const BLOCK: usize = 256;
/// Secrets that a call for a few bytes sets aside: a pair for each length that it may have.
const BYTES_STRIDE: usize = 32;

/// The secrets of one hash function.
#[derive(Clone, Debug)]
pub struct KeySecret {
    secrets: Arc<Secrets>,
}

#[derive(Clone)]
struct Secrets {
    c: [u128; 3],
    k: [u64; BLOCK],
}

impl fmt::Debug for Secrets {
    /// Says that they are there, and not what they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secrets")
    }
}

impl Default for KeySecret {
    fn default() -> KeySecret {
        KeySecret::random()
    }
}

impl KeySecret {
    /// Fresh secrets from the operating system.
    pub fn random() -> KeySecret {
        // `RandomState` is seeded by the operating system; SipHash stretches that seed.
        let source = RandomState::new();
        let mut i = 0u64;
        KeySecret::stretched(|| {
            i += 1;
            source.hash_one(i)
        })
    }

    /// The same secrets for the same seed, so that a simulation can be replayed. Whoever knows the
    /// seed can choose keys that collide: never use it where strangers choose the keys.
    pub fn from_seed(seed: u64) -> KeySecret {
        let mut state = seed;
        KeySecret::stretched(|| {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        })
    }

    fn stretched(mut next: impl FnMut() -> u64) -> KeySecret {
        let c = [(); 3].map(|()| u128::from(next()) << 64 | u128::from(next()));
        let k = [(); BLOCK].map(|()| next());
        KeySecret {
            secrets: Arc::new(Secrets { c, k }),
        }
    }

    /// Writes the secret for a state that outlives the process. Keep it secret: it lets a reader choose keys that collide.
    pub fn save(&self, to: &mut SnapshotWriter) {
        for c in self.secrets.c {
            to.number(c as u64);
            to.number((c >> 64) as u64);
        }
        self.secrets.k.iter().for_each(|k| to.number(*k));
    }

    /// Reads what [`KeySecret::save`] wrote.
    ///
    /// # Errors
    /// The bytes end too early.
    pub fn restored(from: &mut SnapshotReader<'_>) -> Result<KeySecret, RestoreError> {
        let mut c = [0; 3];
        for c in &mut c {
            *c = u128::from(from.number()?) | u128::from(from.number()?) << 64;
        }
        let mut k = [0; BLOCK];
        for k in &mut k {
            *k = from.number()?;
        }
        Ok(KeySecret {
            secrets: Arc::new(Secrets { c, k }),
        })
    }

    /// The hash of a key.
    #[inline(always)]
    pub fn hash<K: Keyed + ?Sized>(&self, key: &K) -> u64 {
        let mut hasher = KeyHasher {
            secrets: &self.secrets,
            sum: 0,
            at: 0,
        };
        key.feed(&mut hasher);
        hasher.done()
    }
}

/// What a key feeds itself into; see [`Keyed`].
#[derive(Debug)]
pub struct KeyHasher<'a> {
    secrets: &'a Secrets,
    sum: u128,
    /// Secrets of this block that are used up.
    at: usize,
}

impl KeyHasher<'_> {
    /// Sets aside `count` secrets and returns where they begin. A message that needs more than there
    /// are goes on with what it has come to so far as its first word.
    #[inline(always)]
    fn set_aside(&mut self, count: usize) -> usize {
        if self.at + count > BLOCK {
            self.fold();
        }
        let begin = self.at;
        self.at += count;
        begin
    }

    #[inline(always)]
    fn add(&mut self, at: usize, a: u64, b: u64) {
        // `at` is in range; the masks only tell the compiler so.
        let ka = self.secrets.k[at & (BLOCK - 1)];
        let kb = self.secrets.k[(at + 1) & (BLOCK - 1)];
        let product = u128::from(a.wrapping_add(ka)) * u128::from(b.wrapping_add(kb));
        self.sum = self.sum.wrapping_add(product);
    }

    #[inline(always)]
    fn pair(&mut self, a: u64, b: u64) {
        let at = self.set_aside(2);
        self.add(at, a, b);
    }

    #[inline(always)]
    fn word(&mut self, m: u64) {
        self.pair(m, m.rotate_left(32));
    }

    #[cold]
    #[inline(never)]
    fn fold(&mut self) {
        let so_far = self.done();
        self.sum = 0;
        self.at = 2;
        self.add(0, so_far, so_far.rotate_left(32));
    }

    /// Fewer bytes than a word, or more than two.
    #[inline(never)]
    fn short_or_long(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        if let Some(last) = bytes.last_chunk::<16>() {
            let (pairs, rest) = bytes.as_chunks::<16>();
            for pair in pairs {
                self.pair(low(pair), high(pair));
            }
            if !rest.is_empty() {
                // The rest by the last 16 bytes: some come a second time, which does no harm.
                self.pair(low(last), high(last));
            }
        } else {
            let few = bytes
                .iter()
                .rev()
                .fold(0, |m, byte| m << 8 | u64::from(*byte));
            self.word(few);
        }
    }
}

#[inline(always)]
fn low(bytes: &[u8; 16]) -> u64 {
    bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

#[inline(always)]
fn high(bytes: &[u8; 16]) -> u64 {
    bytes.last_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

impl KeyHasher<'_> {
    #[inline(always)]
    fn done(&self) -> u64 {
        let [c0, c1, c2] = self.secrets.c;
        let hash = c0
            .wrapping_add(c1.wrapping_mul(u128::from(self.sum as u64)))
            .wrapping_add(c2.wrapping_mul(u128::from((self.sum >> 64) as u64)));
        (hash >> 64) as u64
    }

    /// Feeds some bytes, and how many they are.
    #[inline(always)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        // From one word to two, which most keys are: two overlapping reads. How far they overlap is
        // told by the secrets: each length has its own.
        let at = self.set_aside(BYTES_STRIDE);
        if bytes.len() <= 16
            && let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk())
        {
            let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
            self.add(at + 2 * (bytes.len() - 8), first, last);
        } else {
            self.short_or_long(bytes);
        }
    }

    /// Feeds a number.
    #[inline(always)]
    pub fn number(&mut self, number: u64) {
        self.word(number);
    }
}

/// Something that can be a key: it feeds what tells it from others of its type.
///
/// Strings, bytes, numbers, addresses and tuples of them are keys. For a type of your own, feed its
/// parts, or wrap it in [`Hashed`] if it implements `Hash`.
///
/// ```
/// use tollgate::{Hashed, KeyHasher, Keyed, Limit, Limiter};
///
/// struct Tenant { id: u64, region: String }
///
/// impl Keyed for Tenant {
///     fn feed(&self, into: &mut KeyHasher<'_>) {
///         (self.id, &self.region).feed(into);
///     }
/// }
///
/// #[derive(Hash)]
/// enum Plan { Free, Paid }
///
/// let limiter = Limiter::new(Limit::token_bucket("5/s".parse()?, 10)?)?;
/// limiter.check(&Tenant { id: 7, region: "eu".into() });
/// limiter.check(&("GET", Hashed(Plan::Paid)));
/// # let _ = Plan::Free;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Why not `Hash` itself: the compiler does not inline the hashing of a string through it, which shows in
/// the time of a decision, and what it feeds is no promise of the standard library.
pub trait Keyed {
    /// Feeds the key. Two keys that differ must feed something different.
    fn feed(&self, into: &mut KeyHasher<'_>);
}

impl Keyed for str {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.bytes(self.as_bytes());
    }
}

impl Keyed for String {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.bytes(self.as_bytes());
    }
}

impl Keyed for [u8] {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.bytes(self);
    }
}

impl Keyed for Vec<u8> {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.bytes(self);
    }
}

impl<const N: usize> Keyed for [u8; N] {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.bytes(self);
    }
}

macro_rules! numbers_are_keys {
    ($($number:ty),*) => {$(
        impl Keyed for $number {
            #[inline(always)]
            fn feed(&self, into: &mut KeyHasher<'_>) {
                into.number(*self as u64);
            }
        }
    )*};
}
numbers_are_keys!(
    u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, bool, char
);

impl Keyed for u128 {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.pair(*self as u64, (*self >> 64) as u64);
    }
}

impl Keyed for Ipv4Addr {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.number(u64::from(self.to_bits()));
    }
}

impl Keyed for Ipv6Addr {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        self.to_bits().feed(into);
    }
}

impl Keyed for IpAddr {
    /// An IPv4 address and its IPv4-mapped IPv6 form are one key.
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        match self.to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().feed(into),
            IpAddr::V6(v6) => v6.feed(into),
        }
    }
}

impl Keyed for () {
    #[inline(always)]
    fn feed(&self, _into: &mut KeyHasher<'_>) {}
}

impl<K: Keyed> Keyed for Option<K> {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.number(u64::from(self.is_some()));
        if let Some(key) = self {
            key.feed(into);
        }
    }
}

macro_rules! pointers_are_keys {
    ($($pointer:ty),*) => {$(
        impl<K: Keyed + ?Sized> Keyed for $pointer {
            #[inline(always)]
            fn feed(&self, into: &mut KeyHasher<'_>) {
                (**self).feed(into);
            }
        }
    )*};
}
pointers_are_keys!(&K, &mut K, Box<K>, Rc<K>, Arc<K>);

impl<K: Keyed + ToOwned + ?Sized> Keyed for Cow<'_, K> {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        (**self).feed(into);
    }
}

macro_rules! tuples_are_keys {
    ($($part:ident)+) => {
        impl<$($part: Keyed),+> Keyed for ($($part,)+) {
            #[inline(always)]
            #[allow(non_snake_case, reason = "the parts are named like their types")]
            fn feed(&self, into: &mut KeyHasher<'_>) {
                let ($($part,)+) = self;
                $($part.feed(into);)+
            }
        }
    };
}
tuples_are_keys!(A);
tuples_are_keys!(A B);
tuples_are_keys!(A B C);
tuples_are_keys!(A B C D);
tuples_are_keys!(A B C D E);
tuples_are_keys!(A B C D E F);

/// Any `Hash` type as a key, by what it feeds to a hasher.
#[derive(Clone, Copy, Debug)]
pub struct Hashed<T>(pub T);

impl<T: Hash> Keyed for Hashed<T> {
    #[inline]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        self.0.hash(into);
    }
}

impl Hasher for KeyHasher<'_> {
    #[inline]
    fn finish(&self) -> u64 {
        self.done()
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
    }

    #[inline(always)]
    fn write_u8(&mut self, i: u8) {
        self.word(u64::from(i));
    }
    #[inline(always)]
    fn write_u16(&mut self, i: u16) {
        self.word(u64::from(i));
    }
    #[inline(always)]
    fn write_u32(&mut self, i: u32) {
        self.word(u64::from(i));
    }
    #[inline(always)]
    fn write_u64(&mut self, i: u64) {
        self.word(i);
    }
    #[inline(always)]
    fn write_u128(&mut self, i: u128) {
        self.pair(i as u64, (i >> 64) as u64);
    }
    #[inline(always)]
    fn write_usize(&mut self, i: usize) {
        self.word(i as u64);
    }
}

/// A key made of several parts, each framed by its length: `("a", "bc")` is never `("ab", "c")`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Vec<u8>);

impl Key {
    /// A key of these parts, in this order. Any bytes will do, none at all too.
    pub fn from_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Key {
        let mut bytes = Vec::new();
        for part in parts {
            let part = part.as_ref();
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Key(bytes)
    }

    /// The framed bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Keyed for Key {
    #[inline(always)]
    fn feed(&self, into: &mut KeyHasher<'_>) {
        into.bytes(&self.0);
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key::from_parts([text])
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key::from_parts([bytes])
    }
}

#[cfg(test)]
mod tests;
