//! What can be typed after `tollgate bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

const EXAMPLES: &str = "\
TARGET is a server and what is spoken with it; several share the load:
  resp://127.0.0.1:6379                      Redis protocol: redis-cell, throttlecrab, any script, `tollgate serve --resp`
  http://127.0.0.1:8080/path                 HTTP/1.1: 2xx admits, 429 refuses
  grpc://127.0.0.1:8081                      Envoy's rate limit service: ShouldRateLimit
  resps://, https://, grpcs://               the same over TLS

`{key}` stands for the key and `{cost}` for the cost, in the command, the path, headers, the body and descriptors.

Examples:
  tollgate bench resp://127.0.0.1:6379 --connections 50 --pipeline 32 --keys 1000000 --zipf 0.99
  tollgate bench resp://127.0.0.1:6379 --keys 1 --audit          is more admitted than CL.THROTTLE was told to allow?
  tollgate bench resp://127.0.0.1:6379 --command 'INCR {key}' --admitted at-most:100
  tollgate bench resp://127.0.0.1:6390 --command 'TOLLGATE.CHECK path /api header.x-api-key {key}' --allow 5/s --burst 10
  tollgate bench http://127.0.0.1:8080/v1/check --method POST \\
      --body '{\"path\":\"/api\",\"headers\":{\"x-api-key\":\"{key}\"}}' --allow 5/s --burst 10
  tollgate bench http://127.0.0.1/ --header 'x-api-key: {key}' --refused-status 429,503 --rate 10000/s
  tollgate bench grpc://127.0.0.1:8081 --domain edge --descriptor 'user={key}' --pipeline 16 --json

Ctrl-C ends it and reports what was measured so far; once more ends it at once.

A target that dies is told with everything that was measured; the others are asked to the end.

The exit code is 0 if it ran, 1 if the audit found too much admitted, a target was lost or nothing was answered, 2 if it
could not run, 130 if it was broken off.";

/// What `tollgate bench` was asked.
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
    /// Requests under way on each connection at once; for gRPC, streams
    #[arg(
        long,
        short = 'P',
        value_name = "NUMBER",
        default_value_t = 1,
        help_heading = "Load"
    )]
    pub(super) pipeline: usize,
    /// Threads of the load; one for 32 connections if left out, and never more than processors
    #[arg(long, value_name = "NUMBER", help_heading = "Load")]
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
    /// What every key begins with
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "bench-",
        help_heading = "Keys"
    )]
    pub(super) key_prefix: String,
    /// Keys by Zipf's law with this exponent; all alike if left out
    #[arg(long, value_name = "EXPONENT", help_heading = "Keys")]
    pub(super) zipf: Option<f64>,
    /// Units that each request takes
    #[arg(long, value_name = "UNITS", default_value_t = 1, help_heading = "Keys")]
    pub(super) cost: u64,
    /// How long it goes on; 10s if neither this nor --requests is said
    #[arg(long, short = 'd', value_name = "SPAN", help_heading = "Load")]
    pub(super) duration: Option<String>,
    /// How many requests are sent
    #[arg(long, short = 'n', value_name = "NUMBER", help_heading = "Load")]
    pub(super) requests: Option<u64>,
    /// Requests by the clock, such as 10000/s, whether answers come or not; as fast as they come if left out
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    pub(super) rate: Option<String>,
    /// Goes on for this long before anything is counted (the audit counts from the first request)
    #[arg(long, value_name = "SPAN", default_value = "0s", help_heading = "Load")]
    pub(super) warm_up: String,
    /// How long a server may say nothing
    #[arg(long, value_name = "SPAN", default_value = "5s", help_heading = "Load")]
    pub(super) timeout: String,
    /// The command for resp:// [default: CL.THROTTLE {key} 99 100 1 {cost}]
    #[arg(long, value_name = "COMMAND", help_heading = "Request")]
    pub(super) command: Option<String>,
    /// How its reply says yes, if that is not known: by its first number zero (as CL.THROTTLE), nonzero (as THROTTLE) or
    /// at-most:N; by its field verdict (as TOLLGATE.CHECK); any if it is no error
    #[arg(long, value_name = "RULE", help_heading = "Request")]
    pub(super) admitted: Option<String>,
    /// A file with the password that is shown to resp://
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub(super) password_file: Option<PathBuf>,
    /// The name that is shown with the password [default: that of the default user]
    #[arg(
        long,
        value_name = "NAME",
        requires = "password_file",
        help_heading = "Request"
    )]
    pub(super) user: Option<String>,
    /// Speaks TLS with all targets, as if each were written with an s
    #[arg(long, help_heading = "TLS")]
    pub(super) tls: bool,
    /// A file with the certificates that are believed over TLS; those of the system if left out
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
    /// Statuses that refuse, for http:// [default: 429]
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
    /// Hold what is admitted against what CL.THROTTLE was told to allow, or against --allow
    #[arg(long, help_heading = "Audit")]
    pub(super) audit: bool,
    /// What the limiter is said to allow each key, such as 5/s
    #[arg(long, value_name = "RATE", help_heading = "Audit")]
    pub(super) allow: Option<String>,
    /// What may come at once: the burst of a token bucket (as many as the rate has if left out), the queue of a leaky one
    #[arg(long, value_name = "UNITS", requires = "allow", help_heading = "Audit")]
    pub(super) burst: Option<u64>,
    /// How the limiter is said to count
    #[arg(long, value_enum, default_value_t = Counting::TokenBucket, requires = "allow", help_heading = "Audit")]
    pub(super) algorithm: Counting,
    /// How much longer the limiter's clock may say that a window was, such as 1ms
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
    /// Show no progress
    #[arg(long, short = 'q')]
    pub(super) quiet: bool,
}

/// How a limiter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Counting {
    /// A burst at once, then the rate; GCRA is the same
    TokenBucket,
    /// A queue that leaves at the rate
    LeakyBucket,
    /// So many in each window of the clock
    FixedWindow,
    /// Exactly so many in any window
    SlidingLog,
    /// About so many in any window
    SlidingWindow,
}
