//! Arguments of `tollgate bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

const EXAMPLES: &str = "\
TARGET is a server and its protocol; several share the load:
  resp://127.0.0.1:6379                      Redis protocol: redis-cell, throttlecrab, any script, `tollgate serve --resp`
  http://127.0.0.1:8080/path                 HTTP/1.1: 2xx admits, 429 refuses
  grpc://127.0.0.1:8081                      Envoy's rate limit service: ShouldRateLimit
  resps://, https://, grpcs://               the same over TLS

`{key}` and `{cost}` are replaced by the key and the cost, in the command, the path, headers, the body and descriptors.

Examples:
  tollgate bench resp://127.0.0.1:6379 --connections 50 --pipeline 32 --keys 1000000 --zipf 0.99
  tollgate bench resp://127.0.0.1:6379 --keys 1 --audit          audit against the limit in CL.THROTTLE
  tollgate bench resp://127.0.0.1:6379 --command 'INCR {key}' --admitted at-most:100
  tollgate bench resp://127.0.0.1:6390 --command 'TOLLGATE.CHECK path /api header.x-api-key {key}' --allow 5/s --burst 10
  tollgate bench http://127.0.0.1:8080/v1/check --method POST \\
      --body '{\"path\":\"/api\",\"headers\":{\"x-api-key\":\"{key}\"}}' --allow 5/s --burst 10
  tollgate bench http://127.0.0.1/ --header 'x-api-key: {key}' --refused-status 429,503 --rate 10000/s
  tollgate bench grpc://127.0.0.1:8081 --domain edge --descriptor 'user={key}' --pipeline 16 --json

Ctrl-C ends it and reports what was measured so far; once more ends it at once.

A target that dies is reported with its results so far; the load on the others continues to the end.

The exit code is 0 if it ran, 1 if the audit found too much admitted, a target was lost or nothing was answered, 2 if it
could not run, 130 if it was interrupted.";

/// Arguments of `tollgate bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    /// Where the load goes, such as resp://127.0.0.1:6379
    #[arg(required = true, value_name = "TARGET")]
    pub(super) targets: Vec<String>,
    /// Connections in all
    #[arg(
        long,
        short = 'c',
        value_name = "NUMBER",
        default_value_t = 50,
        help_heading = "Load"
    )]
    pub(super) connections: usize,
    /// Requests in flight on each connection; for gRPC, streams
    #[arg(
        long,
        short = 'P',
        value_name = "NUMBER",
        default_value_t = 1,
        help_heading = "Load"
    )]
    pub(super) pipeline: usize,
    /// Threads of the load; by default one for 32 connections, and never more than processors
    #[arg(long, value_name = "NUMBER", value_parser = crate::cli::threads(), help_heading = "Load")]
    pub(super) threads: Option<usize>,
    /// Different keys
    #[arg(
        long,
        short = 'k',
        value_name = "NUMBER",
        default_value_t = 1000,
        help_heading = "Keys"
    )]
    pub(super) keys: u64,
    /// Prefix of every key
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "bench-",
        help_heading = "Keys"
    )]
    pub(super) key_prefix: String,
    /// Zipf exponent of the distribution of keys; uniform if left out
    #[arg(long, value_name = "EXPONENT", help_heading = "Keys")]
    pub(super) zipf: Option<f64>,
    /// Cost of each request
    #[arg(long, value_name = "UNITS", default_value_t = 1, help_heading = "Keys")]
    pub(super) cost: u64,
    /// Duration; 10s if neither this nor --requests is given
    #[arg(long, short = 'd', value_name = "SPAN", help_heading = "Load")]
    pub(super) duration: Option<String>,
    /// Number of requests to send
    #[arg(long, short = 'n', value_name = "NUMBER", help_heading = "Load")]
    pub(super) requests: Option<u64>,
    /// Requests at a fixed rate, such as 10000/s, whether answers come or not; as fast as possible if left out
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    pub(super) rate: Option<String>,
    /// Warm-up before anything is counted (the audit counts from the first request)
    #[arg(long, value_name = "SPAN", default_value = "0s", help_heading = "Load")]
    pub(super) warm_up: String,
    /// Longest time without an answer from a server
    #[arg(long, value_name = "SPAN", default_value = "5s", help_heading = "Load")]
    pub(super) timeout: String,
    /// The command for resp:// [default: CL.THROTTLE {key} 99 100 1 {cost}]
    #[arg(long, value_name = "COMMAND", help_heading = "Request")]
    pub(super) command: Option<String>,
    /// How its reply admits, if that is unknown: by its first number zero (as CL.THROTTLE), nonzero (as THROTTLE) or
    /// at-most:N; by its field verdict (as TOLLGATE.CHECK); any if it is not an error
    #[arg(long, value_name = "RULE", help_heading = "Request")]
    pub(super) admitted: Option<String>,
    /// A file with the password for resp://
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub(super) password_file: Option<PathBuf>,
    /// The user name for the password [default: that of the default user]
    #[arg(
        long,
        value_name = "NAME",
        requires = "password_file",
        help_heading = "Request"
    )]
    pub(super) user: Option<String>,
    /// Use TLS with all targets, as if each had the scheme with an s
    #[arg(long, help_heading = "TLS")]
    pub(super) tls: bool,
    /// A file with trusted certificates for TLS; those of the system if left out
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(super) ca: Option<PathBuf>,
    /// The method for http:// [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD", help_heading = "Request")]
    pub(super) method: Option<String>,
    /// A header for http://, such as 'x-api-key: {key}'
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Request")]
    pub(super) header: Vec<String>,
    /// The body for http://
    #[arg(long, value_name = "TEXT", help_heading = "Request")]
    pub(super) body: Option<String>,
    /// Statuses that count as refused, for http:// [default: 429]
    #[arg(
        long,
        value_name = "STATUS",
        value_delimiter = ',',
        help_heading = "Request"
    )]
    pub(super) refused_status: Vec<u16>,
    /// The domain for grpc:// [default: bench]
    #[arg(long, value_name = "NAME", help_heading = "Request")]
    pub(super) domain: Option<String>,
    /// An entry of the descriptor for grpc:// [default: key={key}]
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Request")]
    pub(super) descriptor: Vec<String>,
    /// Compare admissions with the limit in CL.THROTTLE, or with --allow
    #[arg(long, help_heading = "Audit")]
    pub(super) audit: bool,
    /// The limit that the target should enforce for each key, such as 5/s
    #[arg(long, value_name = "RATE", help_heading = "Audit")]
    pub(super) allow: Option<String>,
    /// The burst of a token bucket (the units of the rate if left out), or the queue of a leaky bucket
    #[arg(long, value_name = "UNITS", requires = "allow", help_heading = "Audit")]
    pub(super) burst: Option<u64>,
    /// The algorithm that the target should use
    #[arg(long, value_enum, default_value_t = Counting::TokenBucket, requires = "allow", help_heading = "Audit")]
    pub(super) algorithm: Counting,
    /// Tolerance of the limiter's clock when a window is measured, such as 1ms
    #[arg(
        long,
        value_name = "SPAN",
        default_value = "0s",
        help_heading = "Audit"
    )]
    pub(super) slack: String,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Hide the progress line
    #[arg(long, short = 'q')]
    pub(super) quiet: bool,
}

/// The algorithm of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Counting {
    /// A burst at once, then the rate; GCRA is the same
    TokenBucket,
    /// A queue that drains at the rate
    LeakyBucket,
    /// A fixed number in each window of the clock
    FixedWindow,
    /// Exactly this number in any window
    SlidingLog,
    /// About this number in any window
    SlidingWindow,
}
