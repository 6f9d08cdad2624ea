//! Programs that are started, listened to and ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use super::time::eventually;

/// What a program has printed so far.
type Printed = Arc<Mutex<String>>;

/// A program that is killed when this value goes.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    out: Printed,
    err: Printed,
}

impl Process {
    /// Starts it and listens to what it prints.
    pub(crate) fn start(command: &mut Command) -> Process {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let out = collect(child.stdout.take());
        let err = collect(child.stderr.take());
        Process { child, out, err }
    }

    /// Standard output so far.
    pub(crate) fn out(&self) -> String {
        kept(&self.out).clone()
    }

    /// Standard error so far.
    pub(crate) fn err(&self) -> String {
        kept(&self.err).clone()
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has it ended?
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        eventually("the program ends", || self.ended())
    }

    /// Sends it a signal: `TERM`, `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        self.aim(name).fire();
    }

    /// A signal that is sent without delay once it is wanted.
    pub(crate) fn aim(&self, name: &str) -> Signal {
        // The shell's own `kill`: a small system has no other.
        let line = format!("read go; kill -s {name} {}", self.child.id());
        let shell = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .spawn();
        Signal(shell.expect("a shell"))
    }

    /// Ends it without a word, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A signal that waits for the word.
#[derive(Debug)]
pub(crate) struct Signal(Child);

impl Signal {
    /// Sends it.
    pub(crate) fn fire(mut self) {
        let mut go = self.0.stdin.take().expect("piped");
        go.write_all(b"go\n").expect("the shell reads");
        drop(go);
        let sent = self.0.wait().expect("the shell ends");
        assert!(sent.success(), "the signal was not sent: {sent}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What is behind a lock, even if a thread that held it has failed: that failure is told by its test.
fn kept<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> Printed {
    let printed = Printed::default();
    let keep = Arc::clone(&printed);
    let mut pipe = BufReader::new(pipe.expect("piped"));
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while let Ok(1..) = pipe.read_until(b'\n', &mut line) {
            kept(&keep).push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    printed
}

/// Runs a program to its end.
pub(crate) fn run_to_end(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
}

/// Where a program of the system is. A test that needs one that is missing fails, and says the mend.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let places = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let mut found = places.map(|place| Path::new(place).join(name));
    found.find(|file| file.is_file()).unwrap_or_else(|| {
        let package = match name {
            "nginx" => "nginx-light",
            "node" => "nodejs",
            other => other,
        };
        panic!("`{name}` is missing: run `make setup`, or `apt-get install {package}`")
    })
}

/// A port that nobody listens to just now.
pub(crate) fn free_port() -> u16 {
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    socket.local_addr().expect("an address").port()
}
