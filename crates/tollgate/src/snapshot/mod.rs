//! Snapshots: state as bytes that outlive the process.
//!
//! A snapshot holds the words as they are, with their slots and the secret of the key hash. Nothing is converted,
//! so nothing is lost or gained. Restore it under the same clock: one that counts from 1970, or the words change
//! their meaning ([`crate::MonotonicClock::with_unix_time`]).
//!
//! The caller protects the bytes against corruption, for example with a checksum. Restoring checks for values that
//! could break the store, not for changed values.

use std::fmt;

mod limiter;

pub use limiter::RestoredLimiter;

/// Why bytes are not a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreError {
    /// They end too early.
    Short,
    /// A value that is never written.
    Malformed,
    /// The limits in it could not allocate the memory that they had.
    NoMemory,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the saved state ends too early",
            Self::Malformed => "the saved state holds something that is never written",
            Self::NoMemory => "there is not enough memory for the saved limits",
        })
    }
}

impl std::error::Error for RestoreError {}

/// Bytes that are being written.
#[derive(Debug, Default)]
pub struct SnapshotWriter {
    bytes: Vec<u8>,
}

impl SnapshotWriter {
    /// Writes a number.
    pub fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a size.
    pub fn size(&mut self, size: usize) {
        self.number(size as u64);
    }

    /// Writes a byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Writes a length and these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Room for a number that is only known later.
    pub(crate) fn later(&mut self) -> Later {
        self.number(0);
        Later(self.bytes.len() - 8)
    }

    pub(crate) fn fill(&mut self, later: &Later, size: usize) {
        if let Some(room) = self.bytes.get_mut(later.0..later.0 + 8) {
            room.copy_from_slice(&(size as u64).to_le_bytes());
        }
    }

    /// The bytes written so far.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A place in the bytes for a number that is only known later.
#[derive(Debug)]
pub(crate) struct Later(usize);

/// Bytes that are being read.
#[derive(Clone, Debug)]
pub struct SnapshotReader<'a> {
    rest: &'a [u8],
}

impl<'a> SnapshotReader<'a> {
    /// Reads these bytes from their start.
    pub fn new(bytes: &'a [u8]) -> SnapshotReader<'a> {
        SnapshotReader { rest: bytes }
    }

    /// The next number.
    ///
    /// # Errors
    /// The bytes end before it.
    pub fn number(&mut self) -> Result<u64, RestoreError> {
        let (number, rest) = self.rest.split_first_chunk().ok_or(RestoreError::Short)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// The next size.
    ///
    /// # Errors
    /// The bytes end before it, or it does not fit.
    pub fn size(&mut self) -> Result<usize, RestoreError> {
        usize::try_from(self.number()?).map_err(|_| RestoreError::Malformed)
    }

    /// The next size, at most `most`.
    ///
    /// # Errors
    /// The bytes end before it, or it is larger.
    pub fn size_up_to(&mut self, most: usize) -> Result<usize, RestoreError> {
        self.size().and_then(|size| {
            (size <= most)
                .then_some(size)
                .ok_or(RestoreError::Malformed)
        })
    }

    /// The next byte.
    ///
    /// # Errors
    /// The bytes end before it.
    pub fn byte(&mut self) -> Result<u8, RestoreError> {
        let (byte, rest) = self.rest.split_first().ok_or(RestoreError::Short)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// The next run of bytes.
    ///
    /// # Errors
    /// The bytes end before it does.
    pub fn bytes(&mut self) -> Result<&'a [u8], RestoreError> {
        let size = self.size()?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(size)
            .ok_or(RestoreError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The next run of bytes as text.
    ///
    /// # Errors
    /// The bytes end before it does, or are not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, RestoreError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| RestoreError::Malformed)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// There are bytes left.
    pub fn end(&self) -> Result<(), RestoreError> {
        self.rest
            .is_empty()
            .then_some(())
            .ok_or(RestoreError::Malformed)
    }
}
