//! Where the load goes: `resp://host:port`, `http://host:port/path`, `grpc://host:port`.

use std::fmt;

use crate::wrong::Wrong;

/// A server, and what is spoken with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is spoken.
    pub protocol: Protocol,
    /// Name or address, and port.
    pub host: String,
    /// What comes after it; only HTTP has it. It may have `{key}` and `{cost}` in it.
    pub path: String,
}

/// What is spoken with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The Redis protocol.
    Resp,
    /// HTTP/1.1.
    Http,
    /// Envoy's rate limit service over gRPC.
    Grpc,
}

impl Protocol {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Resp => "resp",
            Protocol::Http => "http",
            Protocol::Grpc => "grpc",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Protocol::Resp => 6379,
            Protocol::Http => 80,
            Protocol::Grpc => 8081,
        }
    }
}

const SAMPLE: &str =
    "write `resp://127.0.0.1:6379`, `http://127.0.0.1:8080/path` or `grpc://127.0.0.1:8081`";

/// No name of a host is longer.
const HOST_MAX: usize = 255;

impl Target {
    /// Reads a target.
    ///
    /// # Errors
    /// A protocol that is not spoken, no host, or a path where none can be.
    pub fn parse(text: &str) -> Result<Target, Wrong> {
        let wrong = |why: &str| Wrong::new(format!("`{}` {why}", clean(text)), SAMPLE);
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("does not say what is spoken there"));
        };
        let protocol = match scheme {
            "resp" | "redis" => Protocol::Resp,
            "http" => Protocol::Http,
            "grpc" => Protocol::Grpc,
            "https" | "rediss" | "grpcs" => {
                return Err(Wrong::new(
                    format!("`{}` needs TLS, which is not spoken here", clean(text)),
                    "name the plain port of the server, or put the load before what ends TLS",
                ));
            }
            _ => return Err(wrong("names a protocol that is not spoken here")),
        };
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(split).unwrap_or((rest, ""));
        if host.contains('@') {
            return Err(Wrong::new(
                "the target has a name or a password in it".to_owned(),
                "send it as part of the request, or name a port that needs none",
            ));
        }
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        if host.is_empty() || host.len() > HOST_MAX || text.contains(is_odd) {
            return Err(wrong("has no host that can be read"));
        }
        let path = match (protocol, path) {
            (Protocol::Http, "") => "/".to_owned(),
            (Protocol::Http, path) if path.starts_with('?') => format!("/{path}"),
            (Protocol::Http, path) => path.to_owned(),
            (_, "" | "/") => String::new(),
            (..) => return Err(wrong("has a path, which only `http://` has")),
        };
        Ok(Target {
            protocol,
            host: with_port(host, protocol).ok_or_else(|| wrong("has a port that is none"))?,
            path,
        })
    }
}

fn with_port(host: &str, protocol: Protocol) -> Option<String> {
    // An address of version 6 has colons of its own, in brackets.
    let after = host
        .rfind(']')
        .map_or(host, |end| host.get(end..).unwrap_or(host));
    match after.rsplit_once(':') {
        None => Some(format!("{host}:{}", protocol.default_port())),
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
        write!(f, "{}://{}{}", self.protocol.name(), self.host, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_with_their_usual_ports_and_printed_whole() {
        for (text, printed) in [
            ("resp://localhost", "resp://localhost:6379"),
            ("redis://10.0.0.1:7000/", "resp://10.0.0.1:7000"),
            ("http://h", "http://h:80/"),
            ("http://h:8080/a/{key}?b=c", "http://h:8080/a/{key}?b=c"),
            ("http://h:8080?b=c", "http://h:8080/?b=c"),
            ("grpc://[::1]", "grpc://[::1]:8081"),
            ("grpc://[::1]:9", "grpc://[::1]:9"),
        ] {
            assert_eq!(Target::parse(text).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_target_is_told_with_one_that_is() {
        for (text, why) in [
            ("127.0.0.1:6379", "what is spoken"),
            ("ftp://h", "not spoken here"),
            ("https://h", "TLS"),
            ("resp://", "no host"),
            ("http:///path", "no host"),
            ("http://h /a", "no host"),
            ("resp://h:0", "port"),
            ("resp://h:99999", "port"),
            ("resp://h:x", "port"),
            ("resp://h/a", "path"),
            ("resp://:secret@h", "password"),
        ] {
            let wrong = Target::parse(text).unwrap_err();
            assert!(wrong.what.contains(why), "{text}: {wrong}");
            assert!(!wrong.to_string().contains("secret"));
        }
    }
}
