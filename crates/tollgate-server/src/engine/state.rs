//! The format of the state file.
//!
//! ```text
//! "TOLLGATE"  version: u32  written: u64 (ns since 1970)
//! kind: u32  length: u64  bytes        changes by operators, as JSON
//! kind: u32  length: u64  bytes        usage, in the format of the gate
//! BLAKE3 of everything before: 32 bytes
//! ```
//!
//! Numbers are little-endian.
//!
//! # Invariant
//!
//! A file is used completely or not at all. A file that differs in any byte from what was written is refused with
//! an error and a hint. A start with a part of the state would silently forget usage.
//!
//! This module does no I/O.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tollgate::Moment;

const MAGIC: &[u8; 8] = b"TOLLGATE";
const VERSION: u32 = 3;
const HEAD: usize = MAGIC.len() + 4 + 8;
const CHECKSUM: usize = blake3::OUT_LEN;
/// Maximum size. The file is read into memory, and no valid file is larger.
pub(super) const FILE_MAX: u64 = 4 << 30;

/// The kinds of sections.
const CHANGED: u32 = 1;
const COUNTED: u32 = 2;

/// What survives a restart.
#[derive(Debug, PartialEq)]
pub(super) struct State {
    pub(super) written: Moment,
    pub(super) changed: Changed,
    /// As the gate saved it.
    pub(super) counted: Vec<u8>,
}

/// Changes that operators made at run time, and the secret for hashed keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changed {
    pub(super) switched_off: bool,
    pub(super) secret: [u8; 32],
    pub(super) overrides: Vec<SavedOverride>,
}

/// An override as it was sent. Its meaning depends on the active policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedOverride {
    pub(super) limit: String,
    pub(super) key: Vec<String>,
    pub(super) body: String,
    /// When it ends, in nanoseconds since 1970.
    pub(super) expires: Option<u64>,
    /// When it was made, in nanoseconds since 1970.
    pub(super) made: u64,
}

/// Why bytes are no state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Foreign,
    Version(u32),
    Truncated,
    Damaged,
    TooLarge(u64),
    Contents(String),
}

/// Why a state file is refused.
#[derive(Debug)]
#[non_exhaustive]
pub struct StateError {
    path: PathBuf,
    what: String,
    hint: &'static str,
}

impl StateError {
    pub(super) fn flawed(path: &Path, flaw: &Flaw) -> StateError {
        const AWAY: &str = "move it away to start without usage, or name another file";
        let (what, hint) = match flaw {
            Flaw::Foreign => (
                "it is not a state file of Tollgate".into(),
                "name another file; this one is left as it is",
            ),
            Flaw::Version(version) => (
                format!("its format is version {version}, and this build reads version {VERSION}"),
                "run the build that wrote it, or move the file away to start without usage",
            ),
            Flaw::Truncated => ("it ends too early".into(), AWAY),
            Flaw::Damaged => (
                "its checksum is wrong, so it was changed or damaged".into(),
                AWAY,
            ),
            Flaw::TooLarge(bytes) => (
                format!("it has {bytes} bytes, more than any state file"),
                "name another file; this one is left as it is",
            ),
            Flaw::Contents(what) => (what.clone(), AWAY),
        };
        StateError {
            path: path.into(),
            what,
            hint,
        }
    }

    pub(super) fn taken(path: &Path) -> StateError {
        StateError {
            path: path.into(),
            what: "another server uses it".into(),
            hint: "stop the other server first, or give each server its own file",
        }
    }

    pub(super) fn unwritable(path: &Path, cause: &std::io::Error) -> StateError {
        StateError {
            path: path.into(),
            what: format!("its directory is not writable: {cause}"),
            hint: "create the directory and grant this process write permission",
        }
    }

    pub(super) fn unreadable(path: &Path, cause: &std::io::Error) -> StateError {
        StateError {
            path: path.into(),
            what: format!("it cannot be read: {cause}"),
            hint: "grant this process read permission, or name another file",
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(
            f,
            "the state file `{path}` is refused: {}\nhint: {}",
            self.what, self.hint
        )
    }
}

impl std::error::Error for StateError {}

impl State {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let changed = serde_json::to_vec(&self.changed)?;
        let mut bytes =
            Vec::with_capacity(HEAD + 2 * 12 + changed.len() + self.counted.len() + CHECKSUM);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.written.as_nanos().to_le_bytes());
        for (kind, section) in [(CHANGED, &changed), (COUNTED, &self.counted)] {
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&(section.len() as u64).to_le_bytes());
            bytes.extend_from_slice(section);
        }
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        Ok(bytes)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<State, Flaw> {
        let mut rest = bytes;
        let magic = rest
            .split_off(..MAGIC.len().min(rest.len()))
            .unwrap_or_default();
        if !MAGIC.starts_with(magic) {
            return Err(Flaw::Foreign);
        }
        let version = u32::from_le_bytes(taken(&mut rest)?);
        if version != VERSION {
            return Err(Flaw::Version(version));
        }
        let written = Moment::from_nanos(u64::from_le_bytes(taken(&mut rest)?));
        let changed = section(&mut rest, CHANGED)?;
        let counted = section(&mut rest, COUNTED)?;
        let checksum: [u8; CHECKSUM] = taken(&mut rest)?;
        let summed = bytes.len() - rest.len() - CHECKSUM;
        let right = blake3::hash(bytes.get(..summed).unwrap_or_default());
        if !rest.is_empty() || right != checksum {
            return Err(Flaw::Damaged);
        }
        let changed = serde_json::from_slice(changed?)
            .map_err(|e| Flaw::Contents(format!("its section of overrides is malformed: {e}")))?;
        Ok(State {
            written,
            changed,
            counted: counted?.to_vec(),
        })
    }
}

fn taken<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Flaw> {
    let (taken, left) = rest.split_first_chunk::<N>().ok_or(Flaw::Truncated)?;
    *rest = left;
    Ok(*taken)
}

/// The next section. The inner error, a section of another kind, is reported only after the checksum was verified.
fn section<'a>(rest: &mut &'a [u8], kind: u32) -> Result<Result<&'a [u8], Flaw>, Flaw> {
    let found = u32::from_le_bytes(taken(rest)?);
    let length = u64::from_le_bytes(taken(rest)?);
    let length = usize::try_from(length).map_err(|_| Flaw::Truncated)?;
    let (section, left) = rest.split_at_checked(length).ok_or(Flaw::Truncated)?;
    *rest = left;
    let wrong =
        || Flaw::Contents("its sections are not in the order in which they are written".into());
    Ok((found == kind).then_some(section).ok_or_else(wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            written: Moment::from_nanos(7),
            changed: Changed {
                switched_off: true,
                secret: [9; 32],
                overrides: vec![SavedOverride {
                    limit: "a".into(),
                    key: vec!["k".into()],
                    body: "{}".into(),
                    expires: Some(u64::MAX),
                    made: 3,
                }],
            },
            counted: (0..=255).collect(),
        }
    }

    #[test]
    fn a_state_survives_a_round_trip() {
        let bytes = state().to_bytes().unwrap();
        assert_eq!(State::from_bytes(&bytes).unwrap(), state());
    }

    #[test]
    fn every_shorter_file_is_truncated() {
        let bytes = state().to_bytes().unwrap();
        for length in 0..bytes.len() {
            assert_eq!(
                State::from_bytes(&bytes[..length]),
                Err(Flaw::Truncated),
                "{length}"
            );
        }
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let bytes = state().to_bytes().unwrap();
        for at in 0..bytes.len() {
            for flip in [1, 0x80] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                assert!(State::from_bytes(&bytes).is_err(), "{at}");
            }
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(State::from_bytes(&longer), Err(Flaw::Damaged));
    }

    #[test]
    fn a_foreign_file_and_another_version_have_different_errors() {
        assert_eq!(
            State::from_bytes(b"limits:\n  - name: a"),
            Err(Flaw::Foreign)
        );
        let mut bytes = state().to_bytes().unwrap();
        for version in [VERSION - 1, VERSION + 1] {
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            assert_eq!(State::from_bytes(&bytes), Err(Flaw::Version(version)));
        }
    }

    #[test]
    fn a_refusal_names_the_file_the_fault_and_the_remedy() {
        let error = StateError::flawed(Path::new("/var/lib/t.state"), &Flaw::Damaged).to_string();
        assert_eq!(
            error,
            "the state file `/var/lib/t.state` is refused: its checksum is wrong, so it was changed or damaged\n\
             hint: move it away to start without usage, or name another file"
        );
    }
}
