//! A server as a child process: started on a free port, waited for, ended with this value.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::cores::Tree;

/// How long a server may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// How long a server that was asked to end may take.
const END_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// A folder for policies, configurations and logs, gone with this value.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> io::Result<Self> {
        let name = format!("tollgate-bench-doors-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and tells where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over lies where such things are swept up.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Asks the server to end, where killing it would leave its children behind.
    stop: Option<Command>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts `command` and waits until the address answers `GET /health`.
    pub(crate) fn start(
        name: &str,
        command: Command,
        stop: Option<Command>,
        address: SocketAddr,
        folder: &Folder,
    ) -> io::Result<Self> {
        Self::start_when(name, command, stop, address, folder, is_healthy)
    }

    /// Starts `command` and waits until the address is found to be ready.
    pub(crate) fn start_when(
        name: &str,
        mut command: Command,
        stop: Option<Command>,
        address: SocketAddr,
        folder: &Folder,
        is_ready: fn(SocketAddr) -> bool,
    ) -> io::Result<Self> {
        let log = folder
            .path()
            .join(format!("{}.log", name.replace(' ', "-")));
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
                return Err(io::Error::other(format!("it ended with {status}")));
            }
            if is_ready(self.address) {
                return Ok(());
            }
            if begin.elapsed() > READY_WITHIN {
                let message = format!("it does not answer within {READY_WITHIN:?}");
                return Err(io::Error::other(message));
            }
            thread::sleep(PAUSE);
        }
    }

    /// All processes of the server, to read their time. `None` where the system does not tell.
    pub(crate) fn tree(&self) -> Option<Tree> {
        Tree::of(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = &mut self.stop {
            let asked = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
            let begin = Instant::now();
            while asked.is_ok() && begin.elapsed() < END_WITHIN {
                if matches!(self.child.try_wait(), Ok(Some(_))) {
                    return;
                }
                thread::sleep(PAUSE);
            }
        }
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_healthy(address: SocketAddr) -> bool {
    let ask = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, PAUSE)?;
        stream.set_read_timeout(Some(END_WITHIN))?;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut status = vec![0; "HTTP/1.1 200".len()];
        stream.read_exact(&mut status)?;
        Ok(status)
    };
    ask().is_ok_and(|status| status.ends_with(b" 200"))
}

/// An address that nobody listens on just now.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Where a program of this name is, by `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_and_a_missing_one_is_not() {
        assert!(on_path("sh").is_some());
        assert!(on_path("no-such-program-as-this").is_none());
    }

    #[test]
    fn a_server_that_ends_at_once_is_told_with_what_it_said() {
        let folder = Folder::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo the policy is wrong >&2; exit 3"]);
        let address = free_address().unwrap();
        let error = Server::start("short lived", command, None, address, &folder).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("`short lived`: it ended with"),
            "{message}"
        );
        assert!(message.ends_with("the policy is wrong"), "{message}");
    }
}
