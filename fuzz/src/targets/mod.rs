//! One file for each target, with its properties.

#![expect(clippy::panic, reason = "a target panics if a property does not hold")]

mod convert;
mod gateway_requests;
mod http_fast_path;
mod http_json;
mod load_responses;
mod policy;
mod redis_replies;
mod resp_commands;
mod resp_session;
mod retry_hints;
mod rls;
mod rls_frames;
mod upstream_responses;

use crate::Target;

/// All of them.
pub const ALL: [Target; 13] = [
    resp_commands::TARGET,
    resp_session::TARGET,
    rls::TARGET,
    rls_frames::TARGET,
    http_json::TARGET,
    http_fast_path::TARGET,
    gateway_requests::TARGET,
    upstream_responses::TARGET,
    policy::TARGET,
    convert::TARGET,
    retry_hints::TARGET,
    redis_replies::TARGET,
    load_responses::TARGET,
];

/// A policy with most features.
const POLICY: &str = include_str!("../policy.yaml");
