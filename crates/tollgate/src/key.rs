//! Hashes keys to 64 bits that untrusted clients cannot control.
//!
//! # Theory
//!
//! The table stores no keys. The hash is the identity of a key, so two keys that collide share one allowance.
//! Therefore the hash is a *strongly universal family* and not an unproven mixer. The message is a list of 64-bit
//! words, taken one at a time or in pairs. With secret random 128-bit numbers `k1, k2, …` and `c`:
//!
//! ```text
//! sum  = (k1 + a)*(k2 + b)  for a pair,  + k3*(m + 1)  for a single word,  + …      mod 2^128
//! hash = the upper 64 bits of (c + sum) mod 2^128, then a fixed bijection that spreads sequences
//! ```
//!
//! # Bound
//!
//! Two different messages of one type, however chosen, have the same hash with probability at most `2^-63` over the
//! choice of the secrets. The hashes agree only if the sums differ by less than `2^64`, and `c` makes the
//! probability for a difference `D` equal to `1 - |D|/2^64`.
//!
//! | the messages differ | why `D` is spread out | probability |
//! |---|---|---|
//! | in a word of a pair | `D = k*d + rest`, where `d != 0` is below `2^64` and `rest` does not depend on `k`. With `d = 2^t * odd`, `D` is uniform on one coset of the multiples of `2^t` | `2^-64` |
//! | in a single word | the same | `2^-64` |
//! | in their shape: one has a single word where the other has none | `D = k*(m + 1) + rest`, and `m + 1` is at most `2^64` | `2^-64` |
//! | in their shape: one has a pair where the other has none | for a factor `2^t * odd`, whose probability is `2^-(t+1)`, the product is uniform on the multiples of `2^t` | below `2^-63` |
//!
//! Every hash by itself is uniform, and so are two of them together: no pattern in the keys shows in their places.
//! The secrets come from the operating system, anew for each limiter.
//!
//! A message of more than [`BLOCK`] secrets (2 KiB of text) is folded into one word, block by block, with the same
//! secrets. The bound is proven for the first block only.
//!
//! # Why not another hash
//!
//! | alternative | why not |
//! |---|---|
//! | SipHash, as in `std` | several times as many steps for the short keys of rate limiters |
//! | a fast hash without a key | an attacker can choose keys that share a slot with a victim |
//! | a universal sum with a finaliser | two multiplications more than one pair with wide secrets |

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
/// Secrets that a call for a few bytes reserves: a pair for each possible length.
const BYTES_STRIDE: usize = 32;

/// The secrets of one hash function.
#[derive(Clone, Debug)]
pub struct KeySecret {
    secrets: Arc<Secrets>,
}

#[derive(Clone)]
struct Secrets {
    c: u128,
    k: [u128; BLOCK],
}

impl fmt::Debug for Secrets {
    /// Does not print the secrets.
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

    /// The same secrets for the same seed, so that a simulation can be replayed. A client that knows the
    /// seed can choose keys that collide: never use it where untrusted clients choose the keys.
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
        let mut wide = || u128::from(next()) << 64 | u128::from(next());
        let c = wide();
        let k = [(); BLOCK].map(|()| wide());
        KeySecret {
            secrets: Arc::new(Secrets { c, k }),
        }
    }

    /// Writes the secret for a state that outlives the process. Keep it secret: it lets a reader choose keys that collide.
    pub fn save(&self, to: &mut SnapshotWriter) {
        let Secrets { c, k } = &*self.secrets;
        for secret in std::iter::once(c).chain(k) {
            to.number(*secret as u64);
            to.number((secret >> 64) as u64);
        }
    }

    /// Reads what [`KeySecret::save`] wrote.
    ///
    /// # Errors
    /// The bytes end too early.
    pub fn restored(from: &mut SnapshotReader<'_>) -> Result<KeySecret, RestoreError> {
        let mut wide = || Ok(u128::from(from.number()?) | u128::from(from.number()?) << 64);
        let c = wide()?;
        let mut k = [0; BLOCK];
        for k in &mut k {
            *k = wide()?;
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
            state: HashState { sum: 0, at: 0 },
        };
        key.feed(&mut hasher);
        hasher.done()
    }
}

/// The hasher that a key feeds; see [`Keyed`].
#[derive(Debug)]
pub struct KeyHasher<'a> {
    secrets: &'a Secrets,
    state: HashState,
}

/// What has been fed so far. A value: functions that are not inlined take and return it, so that it stays in
/// registers everywhere else.
#[derive(Clone, Copy, Debug)]
struct HashState {
    sum: u128,
    /// Secrets of this block that were used.
    at: usize,
}

impl HashState {
    /// Reserves `count` secrets and returns the index of the first. A message that needs more secrets continues
    /// with the hash of its start as its first word.
    #[inline(always)]
    fn set_aside(&mut self, secrets: &Secrets, count: usize) -> usize {
        if self.at + count > BLOCK {
            *self = self.folded(secrets);
        }
        let begin = self.at;
        self.at += count;
        begin
    }

    /// Adds a pair of words, with the secrets at `at`.
    #[inline(always)]
    fn add_pair(&mut self, secrets: &Secrets, at: usize, a: u64, b: u64) {
        // `at` is in range; the masks show that to the compiler.
        let ka = secrets.k[at & (BLOCK - 1)].wrapping_add(u128::from(a));
        let kb = secrets.k[(at + 1) & (BLOCK - 1)].wrapping_add(u128::from(b));
        self.sum = self.sum.wrapping_add(ka.wrapping_mul(kb));
    }

    #[inline(always)]
    fn pair(&mut self, secrets: &Secrets, a: u64, b: u64) {
        let at = self.set_aside(secrets, 2);
        self.add_pair(secrets, at, a, b);
    }

    #[inline(always)]
    fn word(&mut self, secrets: &Secrets, m: u64) {
        let k = secrets.k[self.set_aside(secrets, 1) & (BLOCK - 1)];
        // One more than the word, so that a word of zero differs from no word.
        let product = k.wrapping_mul(u128::from(m)).wrapping_add(k);
        self.sum = self.sum.wrapping_add(product);
    }

    #[inline(always)]
    fn done(self, secrets: &Secrets) -> u64 {
        // Keys that count up have hashes in steps of one number, which would fill lines and segments unevenly. The steps
        // after the sum are a bijection, so what is proven of pairs stays true.
        let hash = (secrets.c.wrapping_add(self.sum) >> 64) as u64;
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }

    #[cold]
    #[inline(never)]
    fn folded(self, secrets: &Secrets) -> HashState {
        let mut next = HashState { sum: 0, at: 0 };
        next.word(secrets, self.done(secrets));
        next
    }

    /// Fewer bytes than a word, or more than two.
    #[inline(never)]
    fn short_or_long(mut self, secrets: &Secrets, bytes: &[u8]) -> HashState {
        self.word(secrets, bytes.len() as u64);
        if let Some(last) = bytes.last_chunk::<16>() {
            let (pairs, rest) = bytes.as_chunks::<16>();
            for pair in pairs {
                self.pair(secrets, low(pair), high(pair));
            }
            if !rest.is_empty() {
                // The rest by the last 16 bytes: some come a second time, which does no harm.
                self.pair(secrets, low(last), high(last));
            }
        } else {
            let few = bytes
                .iter()
                .rev()
                .fold(0, |m, byte| m << 8 | u64::from(*byte));
            self.word(secrets, few);
        }
        self
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
        self.state.done(self.secrets)
    }

    /// Feeds some bytes, and how many they are.
    #[inline(always)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        // From one word to two, which most keys are: two overlapping reads. The secrets encode how far they
        // overlap: each length has its own.
        let at = self.state.set_aside(self.secrets, BYTES_STRIDE);
        if bytes.len() <= 16
            && let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk())
        {
            let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
            let at = at + 2 * (bytes.len() - 8);
            self.state.add_pair(self.secrets, at, first, last);
        } else {
            self.state = self.state.short_or_long(self.secrets, bytes);
        }
    }

    /// Feeds a number.
    #[inline(always)]
    pub fn number(&mut self, number: u64) {
        self.state.word(self.secrets, number);
    }

    #[inline(always)]
    fn pair(&mut self, a: u64, b: u64) {
        self.state.pair(self.secrets, a, b);
    }
}

/// A key: feeds what distinguishes it from other keys of its type.
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
/// Why not `Hash` itself: the compiler does not inline the hashing of a string through it, which shows in the time
/// of a decision, and the standard library does not guarantee what it feeds.
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
        self.number(u64::from(i));
    }
    #[inline(always)]
    fn write_u16(&mut self, i: u16) {
        self.number(u64::from(i));
    }
    #[inline(always)]
    fn write_u32(&mut self, i: u32) {
        self.number(u64::from(i));
    }
    #[inline(always)]
    fn write_u64(&mut self, i: u64) {
        self.number(i);
    }
    #[inline(always)]
    fn write_u128(&mut self, i: u128) {
        self.pair(i as u64, (i >> 64) as u64);
    }
    #[inline(always)]
    fn write_usize(&mut self, i: usize) {
        self.number(i as u64);
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
