//! Commands, flags and their help.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::Bench;
use crate::color::Color;
use crate::init::Init;
use crate::input::{self, AddressOrOff};
use crate::manual::{Completions, Man};
use crate::policy_test::Test;

const EXAMPLES: &str = "\
Examples:
  tollgate try 'allow: 5/s, burst: 10'               twice the burst at once, then one at a time
  tollgate try 'allow: 5/s, burst: 10' '0s*11' 200ms eleven at once, one more 200 ms later
  tollgate try 10/min 1s-20s/1s                      one every second
  tollgate limits                                    every algorithm, its bound and its use
  tollgate init                                      policies to start with
  tollgate serve                                     the decision service, on a built-in example
  tollgate gateway --upstream http://127.0.0.1:3000  a reverse proxy with limits, in front of an app
  tollgate explain --path /api/rides/request         which limits a request would meet
  tollgate check tollgate.yaml                       all errors in a policy, with hints
  tollgate test tollgate.yaml                        the cases of a policy: its unit tests
  tollgate doctor tollgate.yaml                      a check of the store of a policy
  tollgate bench resp://127.0.0.1:6379 --audit       measures a limiter, and whether it admits too much

`tollgate try --help` describes the notation of limits and arrivals.

Exit codes of all commands: 0 fine; 1 it ran and found problems (errors in a policy, a refusal, a failed case, too much
admitted); 2 it could not run (bad arguments, an unreadable file, a taken port).";

const TRY_EXAMPLES: &str = "\
LIMIT is one argument, so put it in quotes. It has the fields of a limit in the policy file that say how much:
  allow: 5/s, burst: 10                      token bucket; the burst defaults to the 5
  5/s                                        the same as allow: 5/s
  algorithm: gcra, allow: 10/s, tolerance: 250ms
  algorithm: leaky-bucket, allow: 3000/s, queue: 5000, max_wait: 2s
  algorithm: fixed-window, allow: 10/min
  algorithm: sliding-log, allow: 100/min
  algorithm: sliding-window, allow: 50/min   and: estimate: strict
  algorithm: burst-credits, allow: 10/s, times: 10, for: 30s
  algorithm: concurrency, allow: 20, ttl: 30s
                                             no permit is returned: each one expires

ARRIVALS are words, run in the order of their times:
  0s   100ms   1m30s                         one, at that time
  0s*11                                      eleven at once
  1s-20s/1s                                  one every second, from 1 s to 20 s inclusive
  0s*3,cost=5,key=alice                      three for the key alice, each taking 5
  -                                          read them from standard input, one on each line;
                                             empty lines and lines that start with # are skipped

Examples:
  tollgate try 'allow: 5/s, burst: 10' '0s*11' 200ms
  tollgate try 'algorithm: leaky-bucket, allow: 3000/s, queue: 5000' '0s*6000'
  tollgate try 'algorithm: fixed-window, allow: 10/min' '59s*10' '60s*10'
  tollgate try 'allow: 100/min, burst: 20' 0s,cost=15,key=alice 0s,cost=15,key=bob --json
  tollgate try 'algorithm: sliding-log, allow: 100/min' - < arrivals.txt

In the table, `… 8 more pass` stands for 8 further arrivals of the same word with the same verdict;
the numbers beside it are those after the last of them.";

const CHECK_EXAMPLES: &str = "\
A small policy:
  default: pass
  limits:
    - name: app-open
      match: { path: /api/rides/** }
      key: ip
      allow: 5/s
      burst: 10

Examples:
  tollgate check tollgate.yaml
  tollgate check tollgate.yaml --deny-warnings       for a build: warnings fail as well
  tollgate check - --json < tollgate.yaml            one JSON object for each problem, and a summary
  tollgate check tollgate.yaml --format github       annotations in a GitHub workflow; sarif for code scanning
  tollgate schema > tollgate.schema.json             for editors that complete and check YAML

Exit codes: 0 the policy can be used; 1 it cannot; 2 the file cannot be read.";

/// Rate limits: try them, check them, serve them, explain them.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES, max_term_width = 120)]
pub(crate) struct Cli {
    /// When output is coloured: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t = Color::Auto,
        global = true,
        hide_possible_values = true
    )]
    pub(crate) color: Color,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a limit decides for a sequence of arrivals, on a virtual clock
    Try(Try),
    /// List the algorithms: how to write each, what it admits, when to use it
    Limits {
        /// Print one JSON object for each algorithm
        #[arg(long)]
        json: bool,
    },
    /// Write a commented policy for a common case, with its tests
    Init(Init),
    /// Check a policy file: all errors and warnings, where they are, and how to fix them
    Check(Check),
    /// Run the cases that a policy has under `expect`, on a virtual clock
    Test(Test),
    /// Print the JSON Schema of the policy file
    Schema,
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page of a command, or write all pages
    Man(Man),
    /// Run the decision service
    Serve(Serve),
    /// Run the gateway: a reverse proxy with limits and fair queues
    Gateway(Gateway),
    /// Convert another rate limiter's files to a policy
    #[command(subcommand)]
    Convert(Convert),
    /// Explain the decision for one request: which limits apply, why, and for which key
    Explain(Explain),
    /// Have a running server forget what one key has used of a limit
    Reset(Reset),
    /// Check the store of a policy: connection, configuration, latency
    Doctor(Doctor),
    /// Put load on any limiter, and audit whether it admits more than it should
    Bench(Box<Bench>),
}

/// The formats that `tollgate convert` reads.
#[derive(Debug, Subcommand)]
pub(crate) enum Convert {
    /// Files of Envoy's rate limit service (envoyproxy/ratelimit)
    ///
    /// The policy goes to standard output. What it cannot express is a comment in it, and a problem on standard error.
    /// Names of response headers are settings of that service and not in its files; those of Tollgate are fixed.
    Envoy {
        /// The files; each has a different domain
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
        /// Merge files with the same domain, as with MERGE_DOMAIN_CONFIG of the service
        #[arg(long)]
        merge_domains: bool,
        /// Only count, as with SHADOW_MODE of the service
        #[arg(long)]
        shadow: bool,
        /// Fail if there is a warning: a part of a file that the policy cannot express
        #[arg(long)]
        deny_warnings: bool,
    },
    /// The limits file of Limitador
    Limitador {
        /// The file
        file: String,
        /// Fail if there is a warning: a part of the file that the policy cannot express
        #[arg(long)]
        deny_warnings: bool,
    },
}

/// At least one thread.
pub(crate) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  tollgate doctor tollgate.yaml
  tollgate doctor tollgate.yaml --json               one JSON object for each finding

It connects as the service does, and runs the scripts on a key of its own under the prefix, which expires.
It changes nothing else. The exit code is 0 without errors, 1 with errors, 2 if the file cannot be read or
has no store.";

/// Arguments of `tollgate doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct Doctor {
    /// The policy file that names the store
    pub(crate) file: String,
    /// Print one JSON object for each finding
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail on warnings as on errors
    #[arg(long)]
    pub(crate) deny_warnings: bool,
}

/// Arguments of `tollgate try`.
#[derive(Debug, Args)]
#[command(after_help = TRY_EXAMPLES)]
pub(crate) struct Try {
    /// The limit, such as 'allow: 5/s, burst: 10'
    pub(crate) limit: String,
    /// When requests come, such as 0s*11 200ms 1s-20s/1s; a demonstration if left out
    pub(crate) arrivals: Vec<String>,
    /// Print one JSON object for each arrival
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tollgate check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct Check {
    /// The policy file; `-` is standard input
    pub(crate) file: String,
    /// The format of the problems
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub(crate) format: CheckFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Fail on warnings as on errors
    #[arg(long)]
    pub(crate) deny_warnings: bool,
}

/// The formats of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// Text with the lines of the file
    Text,
    /// One JSON object for each problem, and a summary
    Json,
    /// Annotations of GitHub Actions
    Github,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  tollgate serve                                     the built-in example, in memory
  tollgate serve --policy tollgate.yaml              your own policy, reloaded when it changes
  tollgate serve --policy tollgate.yaml --state tollgate.state
                                                     counts and overrides survive a restart
  tollgate serve --policy tollgate.yaml --rls 127.0.0.1:8081
                                                     also for Envoy
  tollgate serve --listen 0.0.0.0:8080 --admin 127.0.0.1:9070
  tollgate serve --resp 127.0.0.1:6390               also for Redis clients: redis-cli -p 6390 CL.THROTTLE user:42 9 5 1

Signals: SIGHUP reloads the policy. SIGTERM and SIGINT finish the requests in flight and stop; a second one
stops at once.";

/// Arguments of `tollgate serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// The policy file; by default the built-in ride-hailing example
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_POLICY",
        help_heading = "Policy"
    )]
    pub(crate) policy: Option<PathBuf>,
    /// Instead of a policy: a folder with files of Envoy's rate limit service, reloaded when they change
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with = "policy",
        help_heading = "Policy"
    )]
    pub(crate) envoy_config: Option<PathBuf>,
    /// With --envoy-config: the store that several services share, such as redis://10.0.0.5
    #[arg(
        long,
        value_name = "URL",
        requires = "envoy_config",
        help_heading = "Policy"
    )]
    pub(crate) store: Option<String>,
    /// The address of the decision API
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOLLGATE_LISTEN",
        default_value = "127.0.0.1:8080",
        value_parser = input::address,
        help_heading = "Decisions"
    )]
    pub(crate) listen: SocketAddr,
    /// The address of Envoy's rate limit service, such as 127.0.0.1:8081; closed by default
    #[arg(long, value_name = "ADDRESS", env = "TOLLGATE_RLS", value_parser = input::address, help_heading = "Decisions")]
    pub(crate) rls: Option<SocketAddr>,
    /// Threads that serve decisions; one for each processor by default
    #[arg(long, value_name = "NUMBER", value_parser = threads(), help_heading = "Decisions")]
    pub(crate) threads: Option<usize>,
    /// The port for Redis clients.
    #[command(flatten)]
    pub(crate) resp: Resp,
    /// The address of the admin API (health, metrics, overrides), or `off`
    #[arg(
        long,
        value_name = "ADDRESS|off",
        env = "TOLLGATE_ADMIN",
        default_value = "127.0.0.1:9070",
        value_parser = input::address_or_off,
        help_heading = "Admin"
    )]
    pub(crate) admin: AddressOrOff,
    /// Admin port, state and log.
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

/// Settings of the port for Redis clients.
#[derive(Debug, Args)]
pub(crate) struct Resp {
    /// The address for Redis clients, such as 127.0.0.1:6390; closed by default
    #[arg(
        long = "resp",
        value_name = "ADDRESS",
        env = "TOLLGATE_RESP",
        value_parser = input::address,
        help_heading = "Redis clients"
    )]
    pub(crate) address: Option<SocketAddr>,
    /// A file with the password of Redis clients; required unless the address is loopback
    #[arg(
        long = "resp-password-file",
        value_name = "FILE",
        requires = "address",
        help_heading = "Redis clients"
    )]
    pub(crate) password_file: Option<PathBuf>,
    /// Accept only TOLLGATE.* commands: Redis clients cannot choose their own limits
    #[arg(
        long = "resp-policy-only",
        requires = "address",
        help_heading = "Redis clients"
    )]
    pub(crate) policy_only: bool,
    /// The maximum number of keys of CL.THROTTLE; when all are in use, new keys share one
    #[arg(
        long = "resp-max-keys",
        value_name = "NUMBER",
        default_value_t = tollgate_server::RESP_KEYS,
        requires = "address",
        help_heading = "Redis clients"
    )]
    pub(crate) max_keys: usize,
}

/// The flags of all servers.
#[derive(Debug, Args)]
pub(crate) struct CommonFlags {
    /// A file with the admin token; give it twice while one token replaces another
    #[arg(long, value_name = "FILE", help_heading = "Admin")]
    pub(crate) admin_token_file: Vec<PathBuf>,
    /// Another host name that the admin API accepts
    #[arg(long, value_name = "HOST", help_heading = "Admin")]
    pub(crate) admin_host: Vec<String>,
    /// Keep counts and overrides in this file, so that they survive a restart
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_STATE",
        help_heading = "State"
    )]
    pub(crate) state: Option<PathBuf>,
    /// How often the state is written; a crash loses at most this much
    #[arg(
        long,
        value_name = "SPAN",
        default_value = "5s",
        value_parser = input::state_interval,
        help_heading = "State"
    )]
    pub(crate) state_every: Duration,
    /// The format of the log
    #[arg(long, value_enum, default_value_t = LogForm::Text, help_heading = "Log")]
    pub(crate) log: LogForm,
    /// Log each request of the gateway, and method, path and client address of refused requests
    #[arg(long, help_heading = "Log")]
    pub(crate) access_log: bool,
    /// The log level
    #[arg(
        long,
        value_name = "LEVEL",
        env = "TOLLGATE_LOG_LEVEL",
        default_value = "info",
        value_parser = ["error", "warn", "info", "debug", "trace", "off"],
        help_heading = "Log"
    )]
    pub(crate) log_level: String,
}

const GATEWAY_EXAMPLES: &str = "\
Examples:
  tollgate gateway --upstream http://127.0.0.1:3000  one app, 100 requests a second from each address
  tollgate gateway --upstream http://127.0.0.1:3000 --policy tollgate.yaml
                                                     your own limits and queues
  tollgate gateway --policy tollgate.yaml            upstreams are in `gateway` of the policy
  tollgate gateway --upstream http://10.0.0.1:3000 --upstream http://10.0.0.2:3000
                                                     two servers of one app
  tollgate gateway --upstream http://127.0.0.1:3000 --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem

Signals: SIGHUP reloads the policy and the certificate. SIGTERM and SIGINT finish the requests in flight and
stop; a second one stops at once.";

/// Arguments of `tollgate gateway`.
#[derive(Debug, Args)]
#[command(after_help = GATEWAY_EXAMPLES)]
pub(crate) struct Gateway {
    /// A server of the app, such as http://127.0.0.1:3000; may be repeated
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_UPSTREAM",
        value_delimiter = ',',
        help_heading = "Policy"
    )]
    pub(crate) upstream: Vec<String>,
    /// The policy file; without one, 100 requests a second from each address
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_POLICY",
        help_heading = "Policy"
    )]
    pub(crate) policy: Option<PathBuf>,
    /// The address for clients
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOLLGATE_LISTEN",
        default_value = "127.0.0.1:8000",
        value_parser = input::address,
        help_heading = "Clients"
    )]
    pub(crate) listen: SocketAddr,
    /// A PEM file with the certificate of the gateway and its intermediate certificates
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Clients"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of the certificate
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Clients"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Threads that serve requests; one for each processor by default
    #[arg(long, value_name = "NUMBER", value_parser = threads(), help_heading = "Clients")]
    pub(crate) threads: Option<usize>,
    /// The address of the admin API (health, metrics, overrides), or `off`
    #[arg(
        long,
        value_name = "ADDRESS|off",
        env = "TOLLGATE_ADMIN",
        default_value = "127.0.0.1:9071",
        value_parser = input::address_or_off,
        help_heading = "Admin"
    )]
    pub(crate) admin: AddressOrOff,
    /// Admin port, state and log.
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// Lines of text.
    Text,
    /// An object on each line.
    Json,
}

/// What `tollgate reset` was asked.
#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// The name of the limit
    pub(crate) limit: String,
    /// The key: one argument for each of its parts
    pub(crate) key: Vec<String>,
    /// The admin address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9070")]
    pub(crate) server: String,
    /// A file with the admin token; else TOLLGATE_ADMIN_TOKEN is used
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print the answer as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tollgate explain tollgate.yaml --path /api/rides/request --header 'x-rider-id: 42'
  tollgate explain --method POST --path /api/drivers/location    with the built-in example
  tollgate explain --server http://127.0.0.1:9070 --path /admin/users --ip 203.0.113.7
                                                     with a running server and its state

No limit is charged. The exit code is 0 if the request would pass, now or after a wait, 1 if it would be
refused, 2 if there is no answer.";

/// Arguments of `tollgate explain`.
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct Explain {
    /// The policy file; the built-in example if left out
    #[arg(conflicts_with = "server")]
    pub(crate) file: Option<String>,
    /// The admin address of a running server, instead of a file
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) server: Option<String>,
    /// A file with the admin token; else TOLLGATE_ADMIN_TOKEN is used
    #[arg(
        long,
        value_name = "FILE",
        requires = "server",
        help_heading = "Server"
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// The method
    #[arg(long, default_value = "GET", help_heading = "Request")]
    pub(crate) method: String,
    /// The path, with its query if it has one
    #[arg(long, default_value = "/", help_heading = "Request")]
    pub(crate) path: String,
    /// The host
    #[arg(long, help_heading = "Request")]
    pub(crate) host: Option<String>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", help_heading = "Request")]
    pub(crate) ip: Option<IpAddr>,
    /// A header, such as 'x-rider-id: 42'
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Request")]
    pub(crate) header: Vec<String>,
    /// A field of a request to /v1/check, such as tokens=1200
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Request")]
    pub(crate) field: Vec<String>,
    /// The domain of an Envoy rate limit request
    #[arg(long, help_heading = "Request")]
    pub(crate) domain: Option<String>,
    /// An entry of an Envoy descriptor, such as remote_address=203.0.113.7
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Request")]
    pub(crate) descriptor: Vec<String>,
    /// The cost that the caller states
    #[arg(long, value_name = "UNITS", help_heading = "Request")]
    pub(crate) cost: Option<u64>,
    /// Print the explanation as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
