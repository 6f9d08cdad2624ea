//! Memory of connections whose heads never end. It is a test program of its own, because it measures the memory of the
//! process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(clippy::expect_used, reason = "a test that cannot run has failed")]
#![allow(clippy::panic, reason = "a test that cannot run has failed")]

use std::io::Write;

#[path = "gateway/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the gateway")]
mod support;
#[path = "gateway/upstream.rs"]
#[allow(dead_code, reason = "shared with the tests of the gateway")]
mod upstream;

use support::{TestGateway, pause};
use upstream::Upstream;

const POLICY: &str = "default: pass\nlimits:\n  - { name: all, allow: 1000000/s, burst: 1000000 }\ngateway:\n  accept: { per_address: 10000 }\n  timeouts: { head: 60s }\n";
/// Each is two descriptors of this program, which may have 1024 without being asked.
const CONNECTIONS: usize = 400;

/// Memory of this program, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

#[test]
fn memory_of_an_endless_head_is_bounded() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(POLICY, upstream.port);
    let dribble = |count: usize| {
        let mut streams: Vec<_> = (0..count).map(|_| gateway.connect()).collect();
        for part in ["GET / HTTP/1.1\r\n", "Host: a\r\n", "X-Dribble: a"] {
            for stream in &mut streams {
                stream.write_all(part.as_bytes()).unwrap();
            }
            pause(100);
        }
        streams
    };
    // What is there once and for all is there after this.
    assert_eq!(gateway.get("/").status, 200);
    let _first = dribble(20);
    let before = resident();
    let _streams = dribble(CONNECTIONS);
    let each = resident().saturating_sub(before) / CONNECTIONS;
    assert!(each <= 12 * 1024, "{each} bytes for each connection");
}
