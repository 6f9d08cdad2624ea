//! A program that runs: its folder, its log, and signals to it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::nursery;
use crate::patience::{Look, wait_until};
use crate::trouble::{Outcome, Trouble};

/// How much of a log an error quotes.
const LOG_TAIL: u64 = 4096;
/// The names of the files in the folder.
pub(crate) const CONFIG: &str = "server.conf";
const LOG: &str = "server.log";

/// A server's process, which ends when this is dropped.
///
/// All methods take a shared reference, because a test breaks a server while others use it.
#[derive(Debug)]
pub(crate) struct Process {
    /// How errors call it.
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    /// Nothing before the first start.
    child: Mutex<Option<Child>>,
    /// Last, so that it is removed after `drop` has ended the child that writes in it.
    folder: TempDir,
}

impl Process {
    /// A program that is not started yet. It runs in a folder of its own, where its configuration is [`CONFIG`].
    pub(crate) fn prepare(name: String, program: PathBuf, arguments: &[&str]) -> Outcome<Process> {
        let folder = tempfile::Builder::new()
            .prefix("tollgate-trial-")
            .tempdir()
            .map_err(Trouble::system("make a temporary folder"))?;
        Ok(Process {
            name,
            program,
            arguments: arguments.iter().map(|&a| a.into()).collect(),
            child: Mutex::new(None),
            folder,
        })
    }

    /// Where the server works.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the configuration.
    pub(crate) fn configure(&self, text: &str) -> Outcome<()> {
        fs::write(self.folder().join(CONFIG), text)
            .map_err(Trouble::system("write the configuration of a server"))
    }

    /// Starts it, or starts it anew if it was stopped. What it says goes to the end of the log.
    pub(crate) fn start(&self) -> Outcome<()> {
        let mut child = self.child();
        end(&mut child);
        let log = self.log_file()?;
        let again = log.try_clone().map_err(Trouble::system("share the log"))?;
        let mut command = nursery::mortal(&self.program);
        command
            .args(&self.arguments)
            .current_dir(self.folder())
            .stdout(log)
            .stderr(again);
        *child = Some(nursery::start(command)?);
        Ok(())
    }

    /// Its number; none if it is not running.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// An error if it ended by itself.
    pub(crate) fn check(&self) -> Outcome<()> {
        let mut child = self.child();
        let ended = match child.as_mut() {
            Some(child) => child
                .try_wait()
                .map_err(Trouble::system("look after a server"))?
                .is_some(),
            None => true,
        };
        if !ended {
            return Ok(());
        }
        *child = None;
        drop(child);
        Err(Trouble::Ended {
            who: self.name.clone(),
            log: self.log(),
        })
    }

    /// Waits until it ends by itself, and says whether it was content.
    pub(crate) fn wait(&self, patience: Duration) -> Outcome<bool> {
        let waited_for = format!("{} ends", self.name);
        wait_until(
            &waited_for,
            patience,
            || self.log(),
            || {
                let mut child = self.child();
                let Some(running) = child.as_mut() else {
                    return Err(Trouble::Impossible(format!("{} is not running", self.name)));
                };
                let status = running
                    .try_wait()
                    .map_err(Trouble::system("look after a program"))?;
                Ok(match status {
                    Some(status) => {
                        *child = None;
                        Look::There(status.success())
                    }
                    None => Look::NotYet("it runs".into()),
                })
            },
        )
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub(crate) fn kill9(&self) {
        end(&mut self.child());
    }

    /// Stops its clockwork: it stays alive and does nothing.
    pub(crate) fn freeze(&self) -> Outcome<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) -> Outcome<()> {
        self.signal(Signal::CONT)
    }

    /// The end of what it said.
    pub(crate) fn log(&self) -> String {
        tail(&self.folder().join(LOG)).unwrap_or_else(|error| format!("(no log: {error})"))
    }

    /// How errors call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Forgets what was said so far.
    pub(crate) fn clear_log(&self) {
        // A log that is not there is as empty as it gets.
        let _ = fs::remove_file(self.folder().join(LOG));
    }

    fn signal(&self, signal: Signal) -> Outcome<()> {
        // The lock is held meanwhile, so that the number still belongs to the child.
        let child = self.child();
        let pid = child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok())
            .and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Trouble::Impossible(format!("{} is not running", self.name)));
        };
        kill_process(pid, signal)
            .map_err(|error| Trouble::system("send a signal to a server")(error.into()))
    }

    fn log_file(&self) -> Outcome<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder().join(LOG))
            .map_err(Trouble::system("open the log of a server"))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Ends a child and waits for it. A frozen one dies of it too.
fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        // It may have ended by itself; then there is nothing to end.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
