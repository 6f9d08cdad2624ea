//! Another policy in the place of the one in force.

mod faults;
mod load;
mod ways;

use tollgate_testkit::tollgate::Tollgate;

/// A policy that can be told from others by its number.
fn numbered(number: u64) -> String {
    format!("default: pass\nlimits:\n  - {{ name: one, allow: 1/h, burst: {number} }}\n")
}

/// The number of the policy in force.
fn number(server: &Tollgate) -> Option<u64> {
    let mut client = server.client();
    let peeked = client.post("/v1/peek", r#"{"path":"/"}"#);
    peeked.header("x-ratelimit-limit")?.parse().ok()
}
