//! Everything that reads bytes of strangers, fed with bytes that nobody wrote.
//!
//! # Theory
//!
//! A target is a function of some bytes that panics if something is not as it must be. Each states what must hold beyond "it
//! does not panic": that a stream means the same however it is cut, that what was read and is written again is read as the same,
//! that two readers of one language agree, that memory stays within what was promised.
//!
//! The same targets are driven in two ways. [`mutate`] changes the seeds of the corpus at random, always in the same way: a
//! short check that takes seconds, in every run of the suite. libFuzzer sees which branches an input takes and keeps what is
//! new: that finds what nobody thought of, and takes as long as it is given (`make fuzz`).
//!
//! # Layout
//!
//! `targets` has one file for each target, `corpus` one folder of seeds for each. `cut` cuts streams, `replies` is a reader of
//! the Redis protocol of its own, `memory` says how much was allocated.
//!
//! # What it does not know
//!
//! Time and sockets: slow clients, half-open connections and deadlines are tried by the tests of the doors.

pub mod cut;
pub mod memory;
pub mod mutate;
pub mod replies;
pub mod targets;

/// Something that reads bytes of strangers.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its file and of its folder of seeds.
    pub name: &'static str,
    /// What must hold.
    pub holds: &'static str,
    /// Reads the bytes, and panics if it does not hold.
    pub run: fn(&[u8]),
    /// Words of the language, to be put into seeds.
    pub words: &'static [&'static str],
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
