//! The address of a server: `resp://host:port`, `http://host:port/path`, `grpc://host:port`, and with an `s` over TLS.

use std::fmt;

use crate::error::LoadError;

/// A server and its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The protocol.
    pub protocol: TargetProtocol,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// Name or address, and port.
    pub host: String,
    /// The path of an HTTP target. It may contain `{key}` and `{cost}`.
    pub path: String,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetProtocol {
    /// The Redis protocol.
    Resp,
    /// HTTP/1.1.
    Http,
    /// Envoy's rate limit service over gRPC.
    Grpc,
}

impl TargetProtocol {
    /// Its name in targets.
    pub const fn name(self) -> &'static str {
        match self {
            TargetProtocol::Resp => "resp",
            TargetProtocol::Http => "http",
            TargetProtocol::Grpc => "grpc",
        }
    }

    fn default_port(self, is_tls: bool) -> u16 {
        match self {
            TargetProtocol::Resp => 6379,
            TargetProtocol::Http if is_tls => 443,
            TargetProtocol::Http => 80,
            TargetProtocol::Grpc => 8081,
        }
    }
}

const SAMPLE: &str =
    "write `resp://127.0.0.1:6379`, `http://127.0.0.1:8080/path` or `grpc://127.0.0.1:8081`";

/// The longest name of a host.
const MAX_HOST: usize = 255;

impl Target {
    /// The name or address without port and brackets, as in certificates.
    pub(crate) fn name(&self) -> &str {
        let name = self
            .host
            .rsplit_once(':')
            .map_or(self.host.as_str(), |(name, _)| name);
        name.trim_matches(['[', ']'])
    }

    /// Parses a target.
    ///
    /// # Errors
    /// An unknown protocol, no host, or a path without HTTP.
    pub fn parse(text: &str) -> Result<Target, LoadError> {
        let wrong = |why: &str| LoadError::new(format!("`{}` {why}", clean(text)), SAMPLE);
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("names no protocol"));
        };
        let (protocol, is_tls) = match scheme {
            "resp" | "redis" => (TargetProtocol::Resp, false),
            "resps" | "rediss" => (TargetProtocol::Resp, true),
            "http" => (TargetProtocol::Http, false),
            "https" => (TargetProtocol::Http, true),
            "grpc" => (TargetProtocol::Grpc, false),
            "grpcs" => (TargetProtocol::Grpc, true),
            _ => return Err(wrong("names an unknown protocol")),
        };
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(split).unwrap_or((rest, ""));
        if host.contains('@') {
            return Err(LoadError::new(
                "the target contains a name or a password".to_owned(),
                "write the password into a file and name that: `--password-file FILE`",
            ));
        }
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        if host.is_empty() || host.len() > MAX_HOST || text.contains(is_odd) {
            return Err(wrong("has no valid host"));
        }
        let path = match (protocol, path) {
            (TargetProtocol::Http, "") => "/".to_owned(),
            (TargetProtocol::Http, path) if path.starts_with('?') => format!("/{path}"),
            (TargetProtocol::Http, path) => path.to_owned(),
            (_, "" | "/") => String::new(),
            (..) => return Err(wrong("has a path, which only `http://` has")),
        };
        Ok(Target {
            protocol,
            is_tls,
            host: with_port(host, protocol.default_port(is_tls))
                .ok_or_else(|| wrong("has an invalid port"))?,
            path,
        })
    }
}

fn with_port(host: &str, usual: u16) -> Option<String> {
    // The colons of an IPv6 address are in brackets.
    let after = host
        .rfind(']')
        .map_or(host, |end| host.get(end..).unwrap_or(host));
    match after.rsplit_once(':') {
        None => Some(format!("{host}:{}", usual)),
        Some((_, port)) => {
            let port = port.parse::<u16>().ok()?;
            (port > 0).then(|| host.to_owned())
        }
    }
}

/// Safe for a terminal.
fn clean(text: &str) -> String {
    let clean = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    clean.take(120).collect()
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, host, path) = (self.protocol.name(), &self.host, &self.path);
        let secure = if self.is_tls { "s" } else { "" };
        write!(f, "{name}{secure}://{host}{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_get_their_default_ports_and_print_completely() {
        for (text, printed) in [
            ("resp://localhost", "resp://localhost:6379"),
            ("redis://10.0.0.1:7000/", "resp://10.0.0.1:7000"),
            ("http://h", "http://h:80/"),
            ("http://h:8080/a/{key}?b=c", "http://h:8080/a/{key}?b=c"),
            ("http://h:8080?b=c", "http://h:8080/?b=c"),
            ("grpc://[::1]", "grpc://[::1]:8081"),
            ("grpc://[::1]:9", "grpc://[::1]:9"),
            ("https://h", "https://h:443/"),
            ("rediss://h", "resps://h:6379"),
            ("grpcs://h:1", "grpcs://h:1"),
        ] {
            assert_eq!(Target::parse(text).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn an_invalid_target_is_an_error_with_an_example() {
        for (text, why) in [
            ("127.0.0.1:6379", "no protocol"),
            ("ftp://h", "unknown protocol"),
            ("resp://", "no valid host"),
            ("http:///path", "no valid host"),
            ("http://h /a", "no valid host"),
            ("resp://h:0", "port"),
            ("resp://h:99999", "port"),
            ("resp://h:x", "port"),
            ("resp://h/a", "path"),
            ("resp://:secret@h", "password"),
        ] {
            let wrong = Target::parse(text).unwrap_err();
            assert!(wrong.problem.contains(why), "{text}: {wrong}");
            assert!(!wrong.to_string().contains("secret"));
        }
    }
}
