//! A server on a free port, and a client that does not use hyper.

use std::net::{IpAddr, SocketAddr, TcpStream};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_testkit::http::{connect, raw};

pub(crate) use tollgate_testkit::http::Reply;

use super::openapi;

/// A running server; it stops when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: watch::Sender<bool>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Server {
    pub(crate) fn start(policy: &str) -> Server {
        Server::on("127.0.0.1:0", policy)
    }

    pub(crate) fn on(bind: &str, policy: &str) -> Server {
        let engine = tollgate_server::engine::for_tests(policy);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(bind)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(tollgate_server::http::serve(listener, engine, stopped));
        Server {
            address,
            stop,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.send(true).unwrap();
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address).unwrap()
    }

    /// Sends bytes as they are and reads to the end.
    pub(crate) fn raw(&self, sent: &[u8]) -> Vec<u8> {
        raw(self.address, sent).unwrap()
    }

    /// Sends a request and checks that its answer is documented.
    pub(crate) fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut sent = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n").into_bytes();
        if !headers.iter().any(|(name, _)| *name == "host") {
            sent.extend_from_slice(b"host: tollgate\r\n");
        }
        for (name, value) in headers {
            sent.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !body.is_empty() {
            sent.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        sent.extend_from_slice(b"\r\n");
        sent.extend_from_slice(body);
        let reply = Reply::read_for(method, &mut self.raw(&sent).as_slice()).unwrap();
        openapi::check(method, target, &reply);
        reply
    }

    pub(crate) fn post(&self, target: &str, body: &str) -> Reply {
        self.send("POST", target, &[], body.as_bytes())
    }

    pub(crate) fn check(&self, body: &str) -> Reply {
        self.post("/v1/check", body)
    }

    pub(crate) fn get(&self, target: &str) -> Reply {
        self.send("GET", target, &[], b"")
    }
}

/// Reads one answer whose connection was closed behind it.
pub(crate) fn parse(mut bytes: &[u8]) -> Reply {
    Reply::read(&mut bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"))
}

/// An address of this machine that is not loopback, if it has one.
pub(crate) fn other_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: this only asks which address would be used.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
