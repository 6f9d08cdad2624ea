//! Who takes part: what each contestant is, how it is started and what it is asked.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::KEYS;
use super::cores::command_on;
use super::load::Question;
use super::request::Template;
use super::server::{Folder, Server, free_address, on_path};
use super::texts;
use crate::args::{BARE_CHILD, Doors};

/// Contestants that are asked the same in the same minutes, and the ratios that follow.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) contestants: &'static [Contestant],
    /// The first over the second.
    pub(crate) ratios: &'static [(Contestant, Contestant)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    Bare,
    Check,
    Direct,
    Throttlecrab,
    BareGet,
    Auth,
    Nginx,
    TenLimits,
    ThousandLimits,
}

/// A program that may not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Own,
    Tollgate,
    Throttlecrab,
    Nginx,
}

pub(crate) const GROUPS: [Group; 3] = [
    Group {
        title: "POST, JSON",
        contestants: &[
            Contestant::Bare,
            Contestant::Check,
            Contestant::Direct,
            Contestant::Throttlecrab,
        ],
        ratios: &[
            (Contestant::Check, Contestant::Bare),
            (Contestant::Check, Contestant::Throttlecrab),
            (Contestant::Direct, Contestant::Throttlecrab),
        ],
    },
    Group {
        title: "GET, headers",
        contestants: &[Contestant::BareGet, Contestant::Auth, Contestant::Nginx],
        ratios: &[
            (Contestant::Auth, Contestant::BareGet),
            (Contestant::Auth, Contestant::Nginx),
        ],
    },
    Group {
        title: "POST, JSON, by the size of the policy",
        contestants: &[Contestant::TenLimits, Contestant::ThousandLimits],
        ratios: &[(Contestant::ThousandLimits, Contestant::TenLimits)],
    },
];

impl Contestant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Check => "tollgate check",
            Self::Direct => "tollgate direct",
            Self::Throttlecrab => "throttlecrab",
            Self::BareGet => "bare-get",
            Self::Auth => "tollgate auth",
            Self::Nginx => "nginx limit_req",
            Self::TenLimits => "tollgate 10 limits",
            Self::ThousandLimits => "tollgate 1000 limits",
        }
    }

    fn program(self) -> Program {
        match self {
            Self::Bare | Self::BareGet => Program::Own,
            Self::Throttlecrab => Program::Throttlecrab,
            Self::Nginx => Program::Nginx,
            _ => Program::Tollgate,
        }
    }

    /// Is it ours, so that nothing has to be installed for it?
    pub(crate) fn is_ours(self) -> bool {
        matches!(self.program(), Program::Own | Program::Tollgate)
    }

    /// The program, or how to get it.
    pub(crate) fn find(self, wanted: &Doors) -> Result<PathBuf, String> {
        let program = self.program();
        let found = match program {
            Program::Own => std::env::current_exe().ok(),
            Program::Tollgate => wanted.tollgate.clone().or_else(beside_this_program),
            Program::Throttlecrab => {
                let flag = wanted.throttlecrab.clone();
                flag.or_else(|| on_path("throttlecrab-server"))
            }
            Program::Nginx => on_path("nginx"),
        };
        found
            .filter(|path| path.is_file())
            .ok_or_else(|| program.how_to_get().to_owned())
    }

    /// Starts it on a free port.
    pub(crate) fn start(
        self,
        program: &std::path::Path,
        core: Option<usize>,
        folder: &Folder,
    ) -> io::Result<Server> {
        let address = free_address()?;
        let port = address.port().to_string();
        let mut command = command_on(core, program);
        let mut stop = None;
        match self.program() {
            Program::Own => {
                command.args([BARE_CHILD, &port]);
            }
            Program::Tollgate => {
                let policy = match self {
                    Self::TenLimits => texts::many_limits(10),
                    Self::ThousandLimits => texts::many_limits(1000),
                    _ => texts::one_limit(),
                };
                let name = format!("{}.yaml", self.name().replace(' ', "-"));
                command
                    .arg("serve")
                    .arg("--policy")
                    .arg(folder.write(&name, &policy)?);
                command.args(["--listen", &address.to_string(), "--admin", "off"]);
            }
            Program::Throttlecrab => {
                command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &port]);
                command.args(["--log-level", "error"]);
            }
            Program::Nginx => {
                let config = folder.write("nginx.conf", &texts::nginx(address.port()))?;
                let place = |command: &mut Command| {
                    command.args(["-e", "stderr", "-p"]).arg(folder.path());
                    command.arg("-c").arg(&config);
                };
                place(&mut command);
                let mut ask = Command::new(program);
                place(&mut ask);
                ask.args(["-s", "stop"]);
                stop = Some(ask);
            }
        }
        Server::start(self.name(), command, stop, address, folder)
    }

    pub(crate) fn question(self) -> Question {
        let key = texts::KEY_HEADER;
        let check = |path: &str, belows: &[usize]| {
            let body = format!(
                r#"{{"method":"GET","path":"{path}","headers":{{"{key}":"k######"}},"ip":"203.0.113.7"}}"#
            );
            Template::post("/v1/check", &body, belows)
        };
        let key_line = format!("{key}: k######");
        let template = match self {
            Self::Bare | Self::Check => check("/api/rides", &[KEYS]),
            // A key has one path, so both policies count as many keys in all.
            Self::TenLimits => check("/api/p####/rides", &[10, KEYS]),
            Self::ThousandLimits => check("/api/p####/rides", &[1000, KEYS]),
            Self::Direct => {
                let body = format!(r#"{{"limit":"{}","key":"k######"}}"#, texts::LIMIT);
                Template::post("/v1/check", &body, &[KEYS])
            }
            Self::Throttlecrab => {
                let generous = texts::GENEROUS;
                let body = format!(
                    r#"{{"key":"k######","max_burst":{generous},"count_per_period":{generous},"period":1,"quantity":1}}"#
                );
                Template::post("/throttle", &body, &[KEYS])
            }
            Self::BareGet | Self::Auth => {
                let headers = [
                    "x-forwarded-method: GET",
                    "x-forwarded-uri: /api/rides",
                    "x-forwarded-for: 203.0.113.7",
                    &key_line,
                ];
                Template::get("/v1/auth", &headers, &[KEYS])
            }
            Self::Nginx => Template::get("/api/rides", &[&key_line], &[KEYS]),
        };
        let passes = match self {
            Self::Throttlecrab => r#""allowed":true"#,
            Self::BareGet | Self::Auth | Self::Nginx => "",
            _ => r#""verdict":"pass""#,
        };
        Question { template, passes }
    }
}

impl Program {
    fn how_to_get(self) -> &'static str {
        match self {
            Self::Own => "this program cannot be found where it was started from",
            Self::Tollgate => "not built: cargo build --release -p tollgate-cli",
            Self::Throttlecrab => {
                "not installed: cargo install throttlecrab-server@0.4.40 (needs protoc)"
            }
            Self::Nginx => "not installed: apt-get install nginx",
        }
    }
}

/// The `tollgate` that was built into the same folder as this program.
pub(crate) fn beside_this_program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let name = format!("tollgate{}", std::env::consts::EXE_SUFFIX);
    Some(own.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ratio_is_of_contestants_in_its_group() {
        for group in &GROUPS {
            for (first, second) in group.ratios {
                assert!(group.contestants.contains(first), "{first:?}");
                assert!(group.contestants.contains(second), "{second:?}");
            }
        }
    }

    #[test]
    fn a_contestant_that_is_missing_says_how_to_get_it() {
        let wanted = Doors {
            tollgate: Some("/no/such/tollgate".into()),
            throttlecrab: Some("/no/such/throttlecrab".into()),
            ..Doors::default()
        };
        let message = |contestant: Contestant| contestant.find(&wanted).unwrap_err();
        assert_eq!(
            message(Contestant::Check),
            "not built: cargo build --release -p tollgate-cli"
        );
        assert_eq!(
            message(Contestant::Throttlecrab),
            "not installed: cargo install throttlecrab-server@0.4.40 (needs protoc)"
        );
        assert!(Contestant::Bare.find(&wanted).is_ok());
    }

    #[test]
    fn the_check_that_is_asked_is_the_one_in_the_documentation() {
        let mut question = Contestant::Check.question();
        let request = String::from_utf8(question.template.with(123).to_vec()).unwrap();
        let body = r#"{"method":"GET","path":"/api/rides","headers":{"x-rider-id":"k000123"},"ip":"203.0.113.7"}"#;
        assert!(request.ends_with(body), "{request}");
    }

    #[test]
    fn a_key_has_one_path_however_often_it_comes() {
        let mut question = Contestant::TenLimits.question();
        let request = String::from_utf8(question.template.with(123).to_vec()).unwrap();
        assert!(request.contains("/api/p0003/rides") && request.contains("k000123"));
    }
}
