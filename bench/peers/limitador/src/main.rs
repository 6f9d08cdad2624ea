//! Envoy's rate limit service, decided by the library of limitador with its counters in memory: `PROGRAM PORT KEYS`.
//!
//! One limit by the value of the first descriptor's entry, as one of its own examples has it, far away. A call is made into
//! what its server makes of it: a list of maps that the limit's expressions are evaluated on. What its server does besides
//! (metrics, traces, headers) is left out.

#[path = "../../../src/servers/floor/messages.rs"]
mod messages;
#[path = "../../../src/servers/floor/tonic.rs"]
mod serve;

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use tonic::Status;

use messages::RateLimitRequest;

/// Requests in a window, far more than any key makes, and its seconds.
const MANY: u64 = 1_000_000_000;
const SECONDS: u64 = 3_600;

#[derive(Clone)]
struct Limits(Arc<RateLimiter>);

impl serve::Decide for Limits {
    fn decide(&self, request: RateLimitRequest) -> Result<i32, Status> {
        let maps = request.descriptors.into_iter().map(|descriptor| {
            let pairs = descriptor.entries.into_iter();
            pairs.map(|entry| (entry.key, entry.value)).collect()
        });
        let maps: Vec<HashMap<String, String>> = maps.collect();
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), maps);
        let hits = u64::from(request.hits_addend.max(1));
        let domain = Namespace::from(request.domain);
        let checked = self.0.check_rate_limited_and_update(&domain, &context, hits);
        let checked = checked.map_err(|error| Status::internal(error.to_string()))?;
        if !checked.limited && checked.counters.is_empty() {
            // No limit took it: then its time is that of other work.
            return Err(Status::failed_precondition("no limit matches"));
        }
        Ok(if checked.limited { 2 } else { 1 })
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, keys] = words.as_slice() else {
        return Err("this takes a port and a number of keys".to_owned());
    };
    let port = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
    let keys = keys.parse().map_err(|_| format!("`{keys}` is not a number of keys"))?;
    let limiter = RateLimiter::new(keys);
    let variable = "descriptors[0]['key']".try_into();
    let variable = variable.map_err(|error| format!("{error:?}"))?;
    limiter.add_limit(Limit::new("bench", MANY, SECONDS, Vec::new(), vec![variable]));
    serve::serve(port, Limits(Arc::new(limiter))).map_err(|error| error.to_string())
}
