//! A running program: its directory, its output, and signals to it.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::spawner;
use crate::wait::{Check, wait_for};

/// How much of each output an error quotes.
const LOG_TAIL: u64 = 4096;
/// Name of the configuration in the directory.
pub const CONFIG: &str = "server.conf";
const OUT: &str = "standard-output.log";
const ERR: &str = "standard-error.log";

/// A program, killed when this is dropped.
///
/// All methods take a shared reference, because a test breaks a server while others use it.
#[derive(Debug)]
pub struct Process {
    /// Name in errors.
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, PathBuf)>,
    /// `None` before the first start.
    child: Mutex<Option<Child>>,
    /// Last, so that it is removed after `drop` has killed the child that writes to it.
    directory: TempDir,
}

impl Process {
    /// A program that is not started yet. It runs in a directory of its own.
    pub fn prepare<A: AsRef<str>>(name: &str, program: &Path, arguments: &[A]) -> Result<Process> {
        let directory = tempfile::Builder::new()
            .prefix("tollgate-")
            .tempdir()
            .map_err(Error::io("make a temporary directory"))?;
        Ok(Process {
            name: name.into(),
            program: program.into(),
            arguments: arguments.iter().map(|a| a.as_ref().into()).collect(),
            environment: Vec::new(),
            child: Mutex::new(None),
            directory,
        })
    }

    /// Sets variables of its environment to its directory.
    #[must_use]
    pub fn with_directory_as(mut self, variables: &[&str]) -> Process {
        for name in variables {
            let directory = self.directory().to_path_buf();
            self.environment.push(((*name).into(), directory));
        }
        self
    }

    /// Directory that it runs in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file to its directory.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory().join(name);
        fs::write(&path, text).map_err(Error::io("write a file of a program"))?;
        Ok(path)
    }

    /// Starts it, or starts it again. Output is appended to that of earlier runs.
    pub fn start(&self) -> Result<()> {
        let mut child = self.child();
        kill(&mut child);
        let mut command: Command = spawner::command(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory())
            .stdout(self.open(OUT)?)
            .stderr(self.open(ERR)?);
        *child = Some(spawner::spawn(command)?);
        Ok(())
    }

    /// Its process id; `None` if it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// How it exited by itself; `None` while it runs, or if it was killed.
    pub fn exited(&self) -> Result<Option<ExitStatus>> {
        let mut child = self.child();
        let Some(running) = child.as_mut() else {
            return Ok(None);
        };
        let status = running.try_wait().map_err(Error::io("watch a program"))?;
        if status.is_some() {
            *child = None;
        }
        Ok(status)
    }

    /// An error if it does not run.
    pub fn check(&self) -> Result<()> {
        if self.exited()?.is_none() && self.child().is_some() {
            return Ok(());
        }
        Err(Error::Exited {
            name: self.name.clone(),
            log: self.log(),
        })
    }

    /// Waits until it exits by itself.
    pub fn wait(&self, deadline: Duration) -> Result<ExitStatus> {
        let what = format!("{} exits", self.name);
        let log = || self.log();
        if self.pid().is_none() {
            return Err(Error::Invalid(format!("{} does not run", self.name)));
        }
        wait_for(&what, deadline, log, || {
            Ok(match self.exited()? {
                Some(status) => Check::Ready(status),
                None => Check::Pending("it runs".into()),
            })
        })
    }

    /// Kills it, as a crash would, and waits until it is gone.
    pub fn kill(&self) {
        kill(&mut self.child());
    }

    /// Stops it (SIGSTOP): it stays alive and does nothing.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues it after [`Process::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The lock is held meanwhile, so that the number still belongs to the child.
        let child = self.child();
        let pid = child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok())
            .and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Error::Invalid(format!("{} does not run", self.name)));
        };
        kill_process(pid, signal)
            .map_err(|error| Error::io("send a signal to a program")(error.into()))
    }

    /// Standard output so far.
    pub fn out(&self) -> String {
        read(&self.directory().join(OUT), 0)
    }

    /// Standard error so far.
    pub fn err(&self) -> String {
        read(&self.directory().join(ERR), 0)
    }

    /// The ends of both outputs.
    pub fn log(&self) -> String {
        let tail = |name| {
            let path = self.directory().join(name);
            let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            read(&path, length.saturating_sub(LOG_TAIL))
        };
        tail(OUT) + &tail(ERR)
    }

    /// Name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the output so far. Only for a program that does not run.
    pub(crate) fn clear_log(&self) {
        // A file that is not there is empty.
        let _ = fs::remove_file(self.directory().join(OUT));
        let _ = fs::remove_file(self.directory().join(ERR));
    }

    fn open(&self, name: &str) -> Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory().join(name))
            .map_err(Error::io("open the output of a program"))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a program printed, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
}

impl Ran {
    /// Standard output; fails unless the program succeeded.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }
}

/// Runs a program to its end with this standard input.
pub fn run(command: &mut Command, input: &[u8]) -> Result<Ran> {
    let starting = Error::io(format!("start {command:?}"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(starting)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops at the first mistake does not read the rest.
        let _ = stdin.write_all(input);
    }
    let output = child
        .wait_with_output()
        .map_err(Error::io("read the output of a program"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ran {
        out: text(&output.stdout),
        err: text(&output.stderr),
        code: output.status.code(),
    })
}

/// The command without the `TOLLGATE_` variables of this process: a program is configured by its arguments.
pub(crate) fn without_settings(mut command: Command) -> Command {
    let names = env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command
}

/// Kills a child and waits for it. A stopped one dies of it too.
fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        // It may have exited by itself; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The text of a file from this byte on; what cannot be read is empty.
fn read(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path)
        && file.seek(SeekFrom::Start(from)).is_ok()
    {
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
