//! A server of our own on a free port, in a folder of its own; both end with the test.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts `TOLLGATE_REDIS_SERVER`, or `redis-server` from the path.
    pub(crate) fn start() -> Server {
        // Somebody else may take the port between finding it and listening on it.
        let started = (0..10).find_map(|_| Server::try_start());
        started.unwrap_or_else(|| panic!("no server can be started: is every port taken?"))
    }

    #[expect(clippy::disallowed_methods, reason = "waits for another process")]
    fn try_start() -> Option<Server> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let program = std::env::var("TOLLGATE_REDIS_SERVER").unwrap_or("redis-server".into());
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tollgate-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let child = Command::new(&program)
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .args(["--bind", "127.0.0.1", "--dir"])
            .arg(&folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("`{program}` does not start ({e}): install redis-server or valkey-server, or name one in TOLLGATE_REDIS_SERVER"));
        let mut server = Server {
            port,
            child,
            folder,
        };
        for _ in 0..400 {
            let heard = TcpStream::connect(("127.0.0.1", port));
            // A connection to a port that nobody listens on can be answered by itself.
            let is_heard = heard.is_ok_and(|heard| heard.local_addr().unwrap().port() != port);
            if server.child.try_wait().unwrap().is_some() {
                return None;
            }
            if is_heard {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("`{program}` does not listen on {port}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
