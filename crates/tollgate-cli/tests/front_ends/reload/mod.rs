//! Reloads of the policy.

mod faults;
mod file_replacement;
mod load;

use tollgate_testkit::tollgate::Tollgate;

/// A policy that its number identifies.
fn numbered(number: u64) -> String {
    format!("default: pass\nlimits:\n  - {{ name: one, allow: 1/h, burst: {number} }}\n")
}

/// The number of the active policy.
fn number(server: &Tollgate) -> Option<u64> {
    let mut client = server.client();
    let peeked = client.post("/v1/peek", r#"{"path":"/"}"#);
    peeked.header("x-ratelimit-limit")?.parse().ok()
}
