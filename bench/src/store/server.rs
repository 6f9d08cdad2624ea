//! A redis-server of our own, on a free port, gone with this value.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::servers::cores::{Tree, command_on};

const READY_WITHIN: Duration = Duration::from_secs(5);

/// The server.
pub(crate) struct Redis {
    child: Child,
    port: u16,
    tree: Option<Tree>,
}

impl Redis {
    pub(crate) fn start(core: Option<usize>) -> io::Result<Redis> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let child = command_on(core, Path::new("redis-server"))
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| {
                io::Error::other(format!(
                    "redis-server does not start: {error}; `make setup` installs it"
                ))
            })?;
        let mut redis = Redis {
            child,
            port,
            tree: None,
        };
        let begin = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = redis.child.try_wait()? {
                return Err(io::Error::other(format!(
                    "redis-server ended with {status}"
                )));
            }
            if begin.elapsed() > READY_WITHIN {
                return Err(io::Error::other("redis-server does not listen"));
            }
            std::thread::yield_now();
        }
        redis.tree = Tree::of(redis.child.id());
        Ok(redis)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The time that it has run.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        let time = self.tree.as_ref().and_then(Tree::time);
        time.ok_or_else(|| io::Error::other("the system does not tell what a process used"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
