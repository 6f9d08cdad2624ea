//! The contestants: names, requests, and the programs that they need.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tollgate_load::{AdmitRule, Codec, HttpTemplate, LoadPlan, Target, TargetProtocol, UnaryCall};
use tollgate_testkit::servers::Access;

use super::cases::Expected;
use super::files;
use crate::args::Servers;

/// A contestant: a server and its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    HttpNoop,
    /// `POST /v1/check` with the fields of a request.
    Check,
    /// `POST /v1/check` with a limit and a key.
    CheckNamed,
    CrabHttp,
    HttpNoopGet,
    Auth,
    Nginx,
    TenLimits,
    ThousandLimits,
    UpstreamAlone,
    NginxGateway,
    Gateway,
    RespNoop,
    Resp,
    Cell,
    Lua,
    CrabResp,
    RlsNoop,
    Rls,
    /// The same without header fields, which no peer sends.
    RlsNoFields,
    Limitador,
    CrabRls,
    EnvoyNoop,
    EnvoyOurs,
    EnvoyOursNoFields,
    EnvoyLimitador,
}

use Contestant::*;

/// A program that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Own,
    Tollgate,
    Redis,
    Cell,
    Crab,
    Limitador,
    Nginx,
    Envoy,
}

impl Program {
    /// Only the comparisons need it, and `tools/peers.sh` installs it.
    fn is_peer(self) -> bool {
        matches!(self, Program::Cell | Program::Crab | Program::Limitador)
    }
}

impl Contestant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            HttpNoop => "bare hyper, POST",
            Check => "tollgate check",
            CheckNamed => "tollgate check, named limit",
            CrabHttp => "throttlecrab HTTP",
            HttpNoopGet => "bare hyper, GET",
            Auth => "tollgate auth",
            Nginx => "nginx limit_req",
            TenLimits => "tollgate, 10 limits",
            ThousandLimits => "tollgate, 1000 limits",
            UpstreamAlone => "upstream alone",
            NginxGateway => "nginx proxy, limit_req",
            Gateway => "tollgate gateway",
            RespNoop => "constant RESP",
            Resp => "tollgate RESP",
            Cell => "redis-cell",
            Lua => "redis, Lua bucket",
            CrabResp => "throttlecrab RESP",
            RlsNoop => "bare tonic",
            Rls => "tollgate RLS",
            RlsNoFields => "tollgate RLS, no fields",
            Limitador => "limitador (library behind tonic)",
            CrabRls => "throttlecrab gRPC",
            EnvoyNoop => "Envoy, bare tonic",
            EnvoyOurs => "Envoy, tollgate",
            EnvoyOursNoFields => "Envoy, tollgate, no fields",
            EnvoyLimitador => "Envoy, limitador (library behind tonic)",
        }
    }

    pub(crate) fn needs(self) -> &'static [Program] {
        match self {
            HttpNoop | HttpNoopGet | RespNoop | RlsNoop => &[Program::Own],
            Check | CheckNamed | Auth | TenLimits | ThousandLimits | Resp | Rls | RlsNoFields => {
                &[Program::Tollgate]
            }
            Nginx | UpstreamAlone | NginxGateway => &[Program::Nginx],
            Gateway => &[Program::Tollgate, Program::Nginx],
            Cell => &[Program::Redis, Program::Cell],
            Lua => &[Program::Redis],
            CrabHttp | CrabResp | CrabRls => &[Program::Crab],
            Limitador => &[Program::Limitador],
            EnvoyNoop => &[Program::Envoy, Program::Own],
            EnvoyOurs | EnvoyOursNoFields => &[Program::Envoy, Program::Tollgate, Program::Own],
            EnvoyLimitador => &[Program::Envoy, Program::Limitador, Program::Own],
        }
    }

    pub(crate) fn needs_peers(self) -> bool {
        self.needs().iter().any(|program| program.is_peer())
    }

    /// Whether Tollgate is what is measured.
    pub(crate) fn is_ours(self) -> bool {
        self.needs().contains(&Program::Tollgate)
    }

    /// Why it cannot take part, and the remedy.
    pub(crate) fn missing(self, args: &Servers) -> Option<String> {
        let mut missing = self.needs().iter().filter_map(|&program| {
            let found = find(program, args);
            found.err().map(|error| error.to_string())
        });
        missing.next()
    }

    fn protocol(self) -> TargetProtocol {
        match self {
            RespNoop | Resp | Cell | Lua | CrabResp => TargetProtocol::Resp,
            RlsNoop | Rls | RlsNoFields | Limitador | CrabRls => TargetProtocol::Grpc,
            _ => TargetProtocol::Http,
        }
    }

    pub(crate) fn has_streams(self) -> bool {
        self.protocol() == TargetProtocol::Grpc
    }

    /// Whether it writes every answer by itself and does not ask its kernel to send at once.
    pub(crate) fn stalls_in_pipelines(self) -> bool {
        self == CrabResp
    }

    /// The requests of one connection. Keys have 14 bytes if there are up to a million of them.
    pub(crate) fn codec(
        self,
        expected: Expected,
        keys: u64,
        to: SocketAddr,
    ) -> io::Result<Box<dyn Codec>> {
        let (path, http) = self.http();
        let target = Target {
            is_tls: false,
            protocol: self.protocol(),
            host: to.to_string(),
            path,
        };
        let mut plan = LoadPlan::new(Vec::new());
        plan.http = http;
        plan.keys = keys;
        let digits = keys.saturating_sub(1).to_string().len();
        plan.key_prefix = "account-key-:"
            .get(..files::KEY_BYTES.saturating_sub(digits))
            .unwrap_or("account-key-:")
            .to_owned();
        let (burst, count, seconds) = match expected {
            Expected::Admitted => (files::BURST, 1, files::SECONDS),
            // Not fewer: throttlecrab rejects a burst of 0, and refuses nothing at 1.
            Expected::Refused => (2, 1, 86_400),
        };
        plan.command = match self {
            CrabResp => format!("THROTTLE {{key}} {burst} {count} {seconds}"),
            Lua => {
                plan.admit_rule = Some(AdmitRule::NonZero);
                let (script, burst) = (load_script(to)?, burst + 1);
                format!("EVALSHA {script} 1 {{key}} {burst} {count} {seconds} 1")
            }
            _ => format!("CL.THROTTLE {{key}} {burst} {count} {seconds}"),
        };
        plan.grpc.domain = files::DOMAIN.to_owned();
        if self == CrabRls {
            let call = throttle_call(burst, count, seconds);
            return Ok(plan.unary_codec(&call, &target.host));
        }
        plan.codec(&target).map_err(io::Error::other)
    }

    /// The path and the rest of a request over HTTP.
    fn http(self) -> (String, HttpTemplate) {
        let key_header = files::KEY_HEADER;
        let post = |path: &str, body: String, admitted_body: &str| {
            let ask = HttpTemplate {
                method: "POST".into(),
                body,
                admitted_body: admitted_body.into(),
                ..HttpTemplate::default()
            };
            (path.to_owned(), ask)
        };
        let check = |path: &str| {
            let body = format!(
                r#"{{"method":"GET","path":"{path}","headers":{{"{key_header}":"{{key}}"}},"ip":"203.0.113.7"}}"#
            );
            post("/v1/check", body, r#""verdict":"pass""#)
        };
        let get = |path: &str, fields: &[(&str, &str)]| {
            let all = [&[(key_header, "{key}")], fields].concat();
            let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            let ask = HttpTemplate {
                headers: all.into_iter().map(own).collect(),
                ..HttpTemplate::default()
            };
            (path.to_owned(), ask)
        };
        match self {
            HttpNoop | Check => check(files::PATH),
            // A key has one path, so both policies count as many keys in all.
            TenLimits => check("/api/p{key%10}/rides"),
            ThousandLimits => check("/api/p{key%1000}/rides"),
            CheckNamed => {
                let body = format!(r#"{{"limit":"{}","key":"{{key}}"}}"#, files::LIMIT);
                post("/v1/check", body, r#""verdict":"pass""#)
            }
            CrabHttp => {
                let (burst, seconds) = (files::BURST, files::SECONDS);
                let body = format!(
                    r#"{{"key":"{{key}}","max_burst":{burst},"count_per_period":1,"period":{seconds},"quantity":1}}"#
                );
                post("/throttle", body, r#""allowed":true"#)
            }
            HttpNoopGet | Auth => get(
                "/v1/auth",
                &[
                    ("x-forwarded-method", "GET"),
                    ("x-forwarded-uri", files::PATH),
                    ("x-forwarded-for", "203.0.113.7"),
                ],
            ),
            _ => get(files::PATH, &[]),
        }
    }
}

/// throttlecrab's message: a key of 14 bytes, then four numbers.
fn throttle_call(burst: u64, count: u64, seconds: u64) -> UnaryCall {
    let mut after_key = Vec::new();
    for (field, number) in [(2, burst), (3, count), (4, seconds), (5, 1)] {
        prost::encoding::int64::encode(field, &(number as i64), &mut after_key);
    }
    UnaryCall {
        path: "/throttlecrab.RateLimiter/Throttle".to_owned(),
        before_key: vec![1 << 3 | 2, files::KEY_BYTES as u8],
        after_key,
    }
}

/// Loads the script into a Redis and returns its SHA-1.
fn load_script(redis: SocketAddr) -> io::Result<String> {
    let access = Access::plain(redis.port());
    let loaded = access.ask(&["SCRIPT", "LOAD", files::TOKEN_BUCKET]);
    match loaded.map_err(io::Error::other)? {
        redis::Value::BulkString(sha1) => Ok(String::from_utf8_lossy(&sha1).into_owned()),
        other => Err(io::Error::other(format!("SCRIPT LOAD returned {other:?}"))),
    }
}

/// Finds a program.
///
/// # Errors
/// It is missing; the message has the way to get it.
pub(crate) fn find(program: Program, args: &Servers) -> io::Result<PathBuf> {
    // Where `tools/peers.sh` installs.
    let peer = |path: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../target/tools/peers")
            .join(path)
    };
    let installed = |name: &str| tollgate_testkit::program(name).ok();
    let found = match program {
        Program::Own => std::env::current_exe().ok(),
        Program::Tollgate => {
            let flag = args.tollgate.clone();
            flag.or_else(|| tollgate_testkit::tollgate::binary().ok())
        }
        Program::Redis => installed("redis-server"),
        Program::Nginx => installed("nginx"),
        Program::Cell => {
            let flag = args.cell.clone();
            flag.or_else(|| Some(peer("lib/libredis_cell.so")))
        }
        Program::Crab => {
            let flag = args.throttlecrab.clone();
            let usual = Some(peer("bin/throttlecrab-server")).filter(|path| path.is_file());
            flag.or(usual).or_else(|| installed("throttlecrab-server"))
        }
        Program::Limitador => {
            let flag = args.limitador.clone();
            flag.or_else(|| Some(peer("bin/tollgate-peer-limitador")))
        }
        Program::Envoy => args.envoy.clone().or_else(|| installed("envoy")),
    };
    found.filter(|path| path.is_file()).ok_or_else(|| {
        io::Error::other(match program {
            Program::Own => "this program is not where it was started from",
            Program::Tollgate => "not built: cargo build --release -p tollgate-cli",
            Program::Redis => "redis-server is not installed: apt-get install redis-server",
            Program::Nginx => "nginx is not installed: apt-get install nginx-light",
            Program::Cell => "the module of redis-cell is not built: tools/peers.sh",
            Program::Crab => "throttlecrab-server is not installed: tools/peers.sh",
            Program::Limitador => "the library of limitador is not built: tools/peers.sh",
            Program::Envoy => "Envoy is not installed: make setup",
        })
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn request(contestant: Contestant, expected: Expected, keys: u64) -> String {
        let address = SocketAddr::from(([127, 0, 0, 1], 4711));
        let mut codec = contestant.codec(expected, keys, address).unwrap();
        let mut out = Vec::new();
        codec.write_request(7, &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn keys_have_fourteen_bytes_whatever_their_number() {
        for keys in [1, 10_000, 1_000_000, 1_002_000] {
            let request = request(Resp, Expected::Admitted, keys);
            assert!(request.contains(r"\r\n$14\r\naccount"), "{keys}: {request}");
        }
        let refused = request(Cell, Expected::Refused, 1);
        assert!(
            refused.ends_with(r"\r\n$1\r\n2\r\n$1\r\n1\r\n$5\r\n86400\r\n"),
            "{refused}"
        );
    }

    #[test]
    fn a_call_of_throttlecrab_has_the_length_of_its_key_and_its_numbers() {
        let call = throttle_call(300, 1, 60);
        assert_eq!(call.before_key, [0x0a, 14]);
        assert_eq!(
            call.after_key,
            [0x10, 0xac, 0x02, 0x18, 1, 0x20, 60, 0x28, 1]
        );
    }

    #[test]
    fn a_key_has_one_path_however_often_it_comes() {
        let request = request(TenLimits, Expected::Admitted, 100_000);
        assert!(request.contains("/api/p7/rides"), "{request}");
        assert!(request.contains("00007"), "{request}");
    }

    #[test]
    fn a_missing_program_is_reported_with_the_way_to_get_it() {
        let line = "tollgate-bench servers --cell /no/such --limitador /no/such --envoy /no/such";
        let Command::Servers(options) = Cli::parse_from(line.split(' ')).command else {
            unreachable!("`{line}` is `servers`")
        };
        let missing = |contestant: Contestant| contestant.missing(&options).unwrap_or_default();
        assert!(missing(Limitador).ends_with("tools/peers.sh"));
        assert!(missing(EnvoyOurs).ends_with("make setup"));
        assert!(find(Program::Cell, &options).is_err());
        assert_eq!(missing(RespNoop), "");
        assert!(!Rls.needs_peers() && !EnvoyOurs.needs_peers() && Cell.needs_peers());
    }
}
