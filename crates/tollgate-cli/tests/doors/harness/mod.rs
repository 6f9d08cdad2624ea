//! What every test needs: a running `tollgate`, a client, proxies and an upstream, on free ports and gone
//! when the test ends, however it ends.

mod client;
mod gateway;
pub(crate) mod grpc;
mod process;
mod proxies;
mod scratch;
mod server;
mod time;
mod upstream;

pub(crate) use client::{Client, Reply};
pub(crate) use gateway::{Gateway, Nginx};
pub(crate) use process::{Process, free_port, program, run_to_end};
pub(crate) use proxies::{Proxy, caddy, envoy, nginx, nginx_with};
pub(crate) use scratch::Scratch;
pub(crate) use server::{Door, Start, TOKEN, Tollgate, bench, binary, policy_with};
pub(crate) use time::{Stopwatch, until, within};
pub(crate) use upstream::Upstream;
