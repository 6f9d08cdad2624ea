//! Who takes part: its name, what it is asked, and the programs that it needs or how to get them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tollgate_load::{Plan, Protocol, Rule, Speaker, Target, UnaryCall};

use super::texts;
use crate::args::Speed;
use crate::doors::lineup::beside_this_program;
use crate::doors::server::on_path;

/// A contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    BareResp,
    Resp,
    Cell,
    Lua,
    CrabResp,
    BareRls,
    Rls,
    /// The same, told not to send header fields, which no peer sends.
    RlsPlain,
    Limitador,
    CrabRls,
    Auth,
    Nginx,
    EnvoyBare,
    EnvoyOurs,
    EnvoyOursPlain,
    EnvoyLimitador,
}

/// A program that may not be there.
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

/// What is asked about each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A limit that is far away and comes back slowly, so that every key stays in use.
    Pass,
    /// A few at once and one more in a day, so that all that follows is refused.
    Refuse,
}

impl Who {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BareResp => "constant RESP",
            Self::Resp => "tollgate RESP",
            Self::Cell => "redis-cell",
            Self::Lua => "redis, Lua bucket",
            Self::CrabResp => "throttlecrab RESP",
            Self::BareRls => "bare tonic",
            Self::Rls => "tollgate RLS",
            Self::RlsPlain => "tollgate RLS, no fields",
            Self::Limitador => "limitador (library behind tonic)",
            Self::CrabRls => "throttlecrab gRPC",
            Self::Auth => "tollgate auth",
            Self::Nginx => "nginx limit_req",
            Self::EnvoyBare => "Envoy, bare tonic",
            Self::EnvoyOurs => "Envoy, tollgate",
            Self::EnvoyOursPlain => "Envoy, tollgate, no fields",
            Self::EnvoyLimitador => "Envoy, limitador (library behind tonic)",
        }
    }

    pub(crate) fn needs(self) -> &'static [Program] {
        match self {
            Self::BareResp | Self::BareRls => &[Program::Own],
            Self::Resp | Self::Rls | Self::RlsPlain | Self::Auth => &[Program::Tollgate],
            Self::Cell => &[Program::Redis, Program::Cell],
            Self::Lua => &[Program::Redis],
            Self::CrabResp | Self::CrabRls => &[Program::Crab],
            Self::Limitador => &[Program::Limitador],
            Self::Nginx => &[Program::Nginx],
            Self::EnvoyBare => &[Program::Envoy, Program::Own],
            Self::EnvoyOurs | Self::EnvoyOursPlain => {
                &[Program::Envoy, Program::Tollgate, Program::Own]
            }
            Self::EnvoyLimitador => &[Program::Envoy, Program::Limitador, Program::Own],
        }
    }

    /// Does it need nothing that the tests do not need?
    pub(crate) fn is_ours(self) -> bool {
        let ours = [Program::Own, Program::Tollgate, Program::Envoy];
        self.needs().iter().all(|program| ours.contains(program))
    }

    /// Why it cannot take part, and how to mend that.
    pub(crate) fn missing(self, wanted: &Speed) -> Option<String> {
        let mut missing = self.needs().iter().filter_map(|&program| {
            let found = find(program, wanted);
            found.err().map(|error| error.to_string())
        });
        missing.next()
    }

    fn protocol(self) -> Protocol {
        match self {
            Self::BareResp | Self::Resp | Self::Cell | Self::Lua | Self::CrabResp => Protocol::Resp,
            Self::BareRls | Self::Rls | Self::RlsPlain | Self::Limitador | Self::CrabRls => {
                Protocol::Grpc
            }
            _ => Protocol::Http,
        }
    }

    /// Does it write every answer by itself, and leave it to its kernel when to send it?
    pub(crate) fn stalls_in_pipelines(self) -> bool {
        self == Self::CrabResp
    }

    /// What one connection to it says. Keys have 14 bytes if there are up to a million of them.
    pub(crate) fn speaker(self, asked: Asked, keys: u64, to: SocketAddr) -> io::Result<Speaker> {
        let target = Target {
            is_tls: false,
            protocol: self.protocol(),
            host: to.to_string(),
            path: match self {
                Self::Auth => "/v1/auth".to_owned(),
                _ => texts::PATH.to_owned(),
            },
        };
        let mut plan = Plan::new(Vec::new());
        plan.keys = keys;
        let digits = keys.saturating_sub(1).to_string().len();
        plan.key_prefix = "account-key-:"
            .get(..texts::KEY_BYTES.saturating_sub(digits))
            .unwrap_or("account-key-:")
            .to_owned();
        let (burst, count, seconds) = match asked {
            Asked::Pass => (texts::BURST, 1, texts::SECONDS),
            // Not fewer: throttlecrab takes a burst of 0 for a mistake, and refuses nothing at 1.
            Asked::Refuse => (2, 1, 86_400),
        };
        plan.command = match self {
            Self::CrabResp => format!("THROTTLE {{key}} {burst} {count} {seconds}"),
            Self::Lua => {
                plan.rule = Some(Rule::NonZero);
                let (script, burst) = (sha1_of_script(to)?, burst + 1);
                format!("EVALSHA {script} 1 {{key}} {burst} {count} {seconds} 1")
            }
            _ => format!("CL.THROTTLE {{key}} {burst} {count} {seconds}"),
        };
        plan.grpc.domain = texts::DOMAIN.to_owned();
        plan.http.headers = texts::headers(self == Self::Auth);
        if self == Self::CrabRls {
            let call = throttle_call(burst, count, seconds);
            return Ok(Speaker::calling(&call, &plan, &target.host));
        }
        Speaker::of(&plan, &target).map_err(io::Error::other)
    }
}

/// The message of throttlecrab: a key of 14 bytes, then four numbers.
fn throttle_call(burst: u64, count: u64, seconds: u64) -> UnaryCall {
    let mut after_key = Vec::new();
    for (field, mut number) in [(2_u8, burst), (3, count), (4, seconds), (5, 1)] {
        after_key.push(field << 3);
        while number >= 0x80 {
            after_key.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        after_key.push(number as u8);
    }
    UnaryCall {
        path: "/throttlecrab.RateLimiter/Throttle".to_owned(),
        before_key: vec![1 << 3 | 2, texts::KEY_BYTES as u8],
        after_key,
    }
}

/// Gives the script to a Redis, which tells by what name it may be called.
fn sha1_of_script(redis: SocketAddr) -> io::Result<String> {
    use std::io::{BufRead, BufReader, Write};
    let script = texts::TOKEN_BUCKET;
    let mut stream = std::net::TcpStream::connect(redis)?;
    let len = script.len();
    write!(
        stream,
        "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${len}\r\n{script}\r\n"
    )?;
    let mut lines = BufReader::new(stream).lines();
    let head = lines.next().transpose()?.unwrap_or_default();
    let name = lines.next().transpose()?.unwrap_or_default();
    match head.as_str() {
        "$40" => Ok(name),
        _ => Err(io::Error::other(format!(
            "redis-server does not take the script: {head}"
        ))),
    }
}

/// Where `tools/peers.sh` and `make setup` put what they install.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools")
}

/// Where a program is.
///
/// # Errors
/// It is not there; the message says how to get it.
pub(crate) fn find(program: Program, wanted: &Speed) -> io::Result<PathBuf> {
    let peer = |name: &str| tools().join("peers/bin").join(name);
    let found = match program {
        Program::Own => std::env::current_exe().ok(),
        Program::Tollgate => wanted.tollgate.clone().or_else(beside_this_program),
        Program::Redis => on_path("redis-server"),
        Program::Nginx => on_path("nginx").or_else(|| Some("/usr/sbin/nginx".into())),
        Program::Cell => {
            let usual = tools().join("peers/lib/libredis_cell.so");
            Some(wanted.cell.clone().unwrap_or(usual))
        }
        Program::Crab => {
            let usual = Some(peer("throttlecrab-server")).filter(|path| path.is_file());
            let flag = wanted.throttlecrab.clone();
            flag.or(usual).or_else(|| on_path("throttlecrab-server"))
        }
        Program::Limitador => {
            let usual = peer("tollgate-peer-limitador");
            Some(wanted.limitador.clone().unwrap_or(usual))
        }
        Program::Envoy => wanted
            .envoy
            .clone()
            .or_else(envoy)
            .or_else(|| on_path("envoy")),
    };
    found.filter(|path| path.is_file()).ok_or_else(|| {
        io::Error::other(match program {
            Program::Own => "this program cannot be found where it was started from",
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

/// It comes with a Python package: one folder for each version of Python.
fn envoy() -> Option<PathBuf> {
    let pythons = std::fs::read_dir(tools().join("venv/lib")).ok()?.flatten();
    let mut programs = pythons.map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    programs.find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(who: Who, asked: Asked, keys: u64) -> String {
        let address = SocketAddr::from(([127, 0, 0, 1], 4711));
        let mut speaker = who.speaker(asked, keys, address).unwrap();
        let mut out = Vec::new();
        speaker.ask(7, &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn keys_have_fourteen_bytes_whatever_their_number() {
        for keys in [1, 10_000, 1_000_000, 1_002_000] {
            let said = said(Who::Resp, Asked::Pass, keys);
            assert!(said.contains(r"\r\n$14\r\naccount"), "{keys}: {said}");
        }
        let refuse = said(Who::Cell, Asked::Refuse, 1);
        assert!(
            refuse.ends_with(r"\r\n$1\r\n2\r\n$1\r\n1\r\n$5\r\n86400\r\n"),
            "{refuse}"
        );
    }

    #[test]
    fn a_call_of_throttlecrab_says_how_long_its_key_is_and_its_numbers() {
        let call = throttle_call(300, 1, 60);
        assert_eq!(call.before_key, [0x0a, 14]);
        assert_eq!(
            call.after_key,
            [0x10, 0xac, 0x02, 0x18, 1, 0x20, 60, 0x28, 1]
        );
    }

    #[test]
    fn who_is_missing_is_told_with_the_way_to_get_it() {
        let wanted = Speed {
            cell: Some("/no/such/module.so".into()),
            limitador: Some("/no/such/limitador".into()),
            envoy: Some("/no/such/envoy".into()),
            ..Speed::default()
        };
        let missing = |who: Who| who.missing(&wanted).unwrap_or_default();
        assert!(missing(Who::Limitador).ends_with("tools/peers.sh"));
        assert!(missing(Who::EnvoyOurs).ends_with("make setup"));
        assert!(find(Program::Cell, &wanted).is_err());
        assert_eq!(missing(Who::BareResp), "");
        assert!(Who::Rls.is_ours() && Who::EnvoyOurs.is_ours() && !Who::Cell.is_ours());
    }
}
