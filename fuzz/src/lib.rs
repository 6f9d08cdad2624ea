//! Fuzz targets: every parser of untrusted bytes, with random input.
//!
//! # Theory
//!
//! A target is a function of some bytes that panics if a property does not hold. Each states a property beyond "it does not
//! panic": a stream means the same however it is split, a value that was read and is written again reads as the same, two
//! parsers of one format agree, memory stays within its bound.
//!
//! The same targets run in two ways. [`mutate`] changes the seeds of the corpus at random and repeatably: a
//! short check that takes seconds, in every run of the suite. libFuzzer follows the branches that an input takes and keeps
//! new ones: it finds more, and takes as long as it is given (`make fuzz`).
//!
//! # Layout
//!
//! `targets` has one file for each target, `corpus` one folder of seeds and `dictionaries` one file of words for each. `split`
//! splits streams, `replies` is an independent reader of the Redis protocol, `memory` measures allocations.
//!
//! # What it does not know
//!
//! Time and sockets: slow clients, half-open connections and deadlines have tests at each front end.

pub mod memory;
pub mod mutate;
pub mod replies;
pub mod split;
pub mod targets;

/// A parser of untrusted bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its file, of its folder of seeds and of its dictionary.
    pub name: &'static str,
    /// The properties.
    pub holds: &'static str,
    /// Parses the bytes, and panics if a property does not hold.
    pub run: fn(&[u8]),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The target of this name.
pub fn named(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}
