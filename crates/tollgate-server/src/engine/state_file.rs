//! The state file: written to a new file, which then replaces the old one.
//!
//! # Invariant
//!
//! At every moment the old file or the new one is complete and on the disk under its name: the bytes are synced before the
//! rename, the directory after it. A failed write (a full disk) leaves the old file unchanged.
//!
//! Writes are serialised, and each reads the state when it begins, so no file is older than the one before it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::health::{HealthFault, StateHealth};
use super::state::{Changed, FILE_MAX, Flaw, State, StateError};
use super::{Engine, locked, seconds};

/// The state file of an engine.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    every: Duration,
    /// Held during a write.
    writing: Mutex<()>,
    health: Mutex<StateHealth>,
    /// Locked for as long as it is open, so that no other process keeps the same file.
    _lock: File,
}

/// Locks a file beside the state file for this process. Two servers that write one state file would each lose the counts
/// of the other.
///
/// The lock file must be a regular file: a link could make this process create or lock a file elsewhere.
pub(super) fn take(path: &Path) -> Result<File, StateError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".lock");
    let beside = path.with_file_name(name);
    let unwritable = |cause| StateError::unwritable(path, &cause);
    let mut options = OpenOptions::new();
    options.write(true);
    let lock = match options.clone().create_new(true).open(&beside) {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
            if !beside.symlink_metadata().map_err(unwritable)?.is_file() {
                let cause = format!("{} is not a file", beside.display());
                return Err(unwritable(io::Error::other(cause)));
            }
            options.open(&beside)
        }
        opened => opened,
    };
    let lock = lock.map_err(unwritable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StateError::taken(path)),
        Err(TryLockError::Error(cause)) => Err(StateError::unwritable(path, &cause)),
    }
}

impl StateFile {
    pub(super) fn new(path: PathBuf, every: Duration, lock: File) -> StateFile {
        StateFile {
            path,
            every: every.max(Duration::from_millis(10)),
            writing: Mutex::new(()),
            health: Mutex::default(),
            _lock: lock,
        }
    }

    pub(super) fn health(&self) -> StateHealth {
        locked(&self.health).clone()
    }
}

/// Reads a state file. None if there is none.
pub(super) fn load(path: &Path) -> Result<Option<State>, StateError> {
    let unreadable = |cause| StateError::unreadable(path, &cause);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(unreadable(cause)),
    };
    let size = file.metadata().map_err(unreadable)?.len();
    let flawed = |flaw| StateError::flawed(path, &flaw);
    if size > FILE_MAX {
        return Err(flawed(Flaw::TooLarge(size)));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    State::from_bytes(&bytes).map(Some).map_err(flawed)
}

impl Engine {
    /// Writes the state file, if there is one to be written. A failure is reported in the log and in
    /// [`Engine::health`]. Blocks until it is on the disk.
    pub fn persist(&self) -> bool {
        let Some(state_file) = &self.state_file else {
            return false;
        };
        let _writing = locked(&state_file.writing);
        let state = {
            let state = self.state();
            let gate = &self.active().gate;
            State {
                written: self.now(),
                changed: Changed {
                    switched_off: gate.is_switched_off(),
                    secret: self.secret,
                    overrides: state.overrides.iter().map(|o| o.saved()).collect(),
                },
                counted: Vec::new(),
            }
        };
        // Outside the lock: it takes longest, and changes should not wait for it.
        let counted = self.active().gate.save();
        let written = state.written;
        let bytes = State { counted, ..state }.to_bytes();
        let outcome = match bytes {
            Ok(bytes) => replace(&state_file.path, &bytes).map(|()| bytes.len()),
            Err(cause) => Err(cause.into()),
        };
        let path = state_file.path.display();
        let mut health = locked(&state_file.health);
        match outcome {
            Ok(bytes) => {
                if health.last_error.take().is_some() {
                    tracing::info!(target: "tollgate::state", %path, "state file written again");
                }
                health.written_at = Some(seconds(written));
                health.bytes = bytes as u64;
                true
            }
            Err(cause) => {
                if health.last_error.is_none() {
                    tracing::error!(
                        target: "tollgate::state", %path, error = %cause,
                        "state file cannot be written; decisions continue, a restart would restore \
                         the last written state"
                    );
                    let message = format!("it cannot be written: {cause}");
                    health.last_error = Some(HealthFault::new("state-write", message, written));
                }
                false
            }
        }
    }
}

/// Writes the state file at its interval until `stop`. Returns at once if there is none.
pub(crate) async fn write_every(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    let Some(every) = engine
        .state_file
        .as_ref()
        .map(|state_file| state_file.every)
    else {
        return;
    };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = &mut stop => return,
        }
        let engine = Arc::clone(&engine);
        let write = tokio::task::spawn_blocking(move || engine.persist());
        let _ = write.await;
    }
}

/// Puts `bytes` in the place of a file.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut new_name = std::ffi::OsString::from(".");
    new_name.push(name);
    new_name.push(".new");
    let new = directory.join(new_name);
    // What a killed process left behind; never written through, it could be a link to somewhere else.
    let _ = fs::remove_file(&new);
    let outcome = write_new(&new, bytes).and_then(|()| fs::rename(&new, path));
    if outcome.is_err() {
        let _ = fs::remove_file(&new);
    }
    outcome?;
    // The rename is on the disk once the directory is.
    #[cfg(unix)]
    File::open(directory)?.sync_all()?;
    Ok(())
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // It holds the secret of the keys.
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use tollgate_testkit::Directory;

    #[test]
    fn the_lock_file_is_not_opened_through_a_link() {
        let folder = Directory::new();
        let (state, target) = (folder.file("state"), folder.file("elsewhere"));
        std::os::unix::fs::symlink(&target, folder.file("state.lock")).unwrap();
        assert!(take(&state).is_err());
        assert!(!target.exists());
        std::fs::write(&target, "").unwrap();
        assert!(take(&state).is_err());
        std::fs::remove_file(folder.file("state.lock")).unwrap();
        let lock = take(&state).unwrap();
        assert!(take(&state).is_err(), "it is locked");
        drop(lock);
        take(&state).unwrap();
    }
}
