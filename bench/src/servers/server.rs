//! A server as a child process: started on a free port, stopped on drop.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::cores::Tree;

/// How long a server may take until it listens.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A directory for policies, configurations and logs, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> io::Result<Self> {
        tempfile::tempdir().map(Self)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Stops the server, where killing it would leave its children behind.
    stop: Option<Command>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts `command` and waits until the address is ready.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        stop: Option<Command>,
        address: SocketAddr,
        folder: &Folder,
        is_ready: fn(SocketAddr) -> bool,
    ) -> io::Result<Self> {
        let log = format!("{}.log", name.replace([' ', '/'], "-"));
        let log = folder.path().join(log);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .map_err(|error| io::Error::other(format!("`{name}` does not start: {error}")))?;
        let mut server = Self {
            child,
            stop,
            address,
        };
        server.wait_until(is_ready).map_err(|error| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            io::Error::other(format!("`{name}`: {error}\n{}", said.trim_end()))
        })?;
        Ok(server)
    }

    fn wait_until(&mut self, is_ready: fn(SocketAddr) -> bool) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("exited with {status}")));
            }
            if is_ready(self.address) {
                return Ok(());
            }
            if begin.elapsed() > READY_TIMEOUT {
                let message = format!("does not listen within {READY_TIMEOUT:?}");
                return Err(io::Error::other(message));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// All processes of the server. `None` where there is no `/proc`.
    pub(crate) fn tree(&self) -> Option<Tree> {
        Tree::of(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = &mut self.stop {
            let stopped = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
            let begin = Instant::now();
            while stopped.is_ok() && begin.elapsed() < STOP_TIMEOUT {
                if matches!(self.child.try_wait(), Ok(Some(_))) {
                    return;
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A free address on the loopback.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_exits_at_once_is_reported_with_its_log() {
        let folder = Folder::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo the policy is wrong >&2; exit 3"]);
        let address = free_address().unwrap();
        let never = |_| false;
        let error =
            Server::start("short lived", command, None, address, &folder, never).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("`short lived`: exited with"),
            "{message}"
        );
        assert!(message.ends_with("the policy is wrong"), "{message}");
    }
}
