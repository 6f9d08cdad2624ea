//! One file for each target, with what must hold.

#![expect(clippy::panic, reason = "a target panics if what must hold does not")]

mod brisk;
mod convert;
mod hints;
mod http_json;
mod lane;
mod load_answers;
mod policy;
mod redis_replies;
mod resp_commands;
mod resp_session;
mod rls;
mod rls_frames;
mod upstream;

use crate::Target;

/// All of them.
pub const ALL: [Target; 13] = [
    resp_commands::TARGET,
    resp_session::TARGET,
    rls::TARGET,
    rls_frames::TARGET,
    http_json::TARGET,
    brisk::TARGET,
    lane::TARGET,
    upstream::TARGET,
    policy::TARGET,
    convert::TARGET,
    hints::TARGET,
    redis_replies::TARGET,
    load_answers::TARGET,
];

/// A policy with most of what can be asked about.
const POLICY: &str = include_str!("../policy.yaml");
