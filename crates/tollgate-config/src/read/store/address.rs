//! The address of a shared store: `scheme://user:password@host:port,…/what`.
//!
//! # What is read
//!
//! The scheme says what is there (one server, sentinels, a cluster) and whether TLS is spoken. Behind the
//! hosts stands the number of a database, and for sentinels the name of the service before it. Nothing
//! else: a query string would be a second way to say what the fields of `store` say, and one that nobody
//! checks.
//!
//! # Invariant
//!
//! No message repeats anything from before the last `@`. That is why the user is split off first and by
//! the last `@`: a password with a `/` or an `@` in it, which should have been escaped, is still all in there.
//!
//! It does not know the file; whoever does says where the address stands.

use std::net::Ipv6Addr;

use crate::near::nearest;
use crate::report::{list, quoted};
use crate::store::Topology;

/// What an address says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) topology: Topology,
    pub(super) tls: bool,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

/// What is wrong with an address and how to mend it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: String,
    /// What might be a password although no `@` follows, with the sign before it: not to be shown in the line
    /// either.
    pub(super) veil: Option<String>,
}

/// Why an address is none: everything at once.
type Parsed<T> = Result<T, Vec<Fault>>;

/// What is behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Standalone,
    Sentinel,
    Cluster,
}

/// Every scheme, what is behind it, and whether TLS is spoken.
const SCHEMES: &[(&str, Shape, bool)] = &[
    ("redis", Shape::Standalone, false),
    ("rediss", Shape::Standalone, true),
    ("redis+sentinel", Shape::Sentinel, false),
    ("rediss+sentinel", Shape::Sentinel, true),
    ("redis+cluster", Shape::Cluster, false),
    ("rediss+cluster", Shape::Cluster, true),
    ("valkey", Shape::Standalone, false),
    ("valkeys", Shape::Standalone, true),
    ("valkey+sentinel", Shape::Sentinel, false),
    ("valkeys+sentinel", Shape::Sentinel, true),
    ("valkey+cluster", Shape::Cluster, false),
    ("valkeys+cluster", Shape::Cluster, true),
];

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// Hosts in one address: those that are asked first; the others are learnt from them.
const HOSTS_MAX: usize = 64;
/// The longest name that the domain name system has.
const HOST_MAX: usize = 253;
/// The longest name of a service, user or password.
const WORD_MAX: usize = 256;
/// The servers count their databases in an `int`.
const DATABASE_MAX: u32 = 2_147_483_647;

/// How addresses are written, for whoever wrote none.
const SAMPLE: &str = "write `memory`, or an address such as `redis://10.0.0.5:6379/0`, \
    `redis+sentinel://s1,s2,s3/mymaster` or `redis+cluster://c1,c2,c3`";

fn unknown(message: impl Into<String>, hint: impl Into<String>) -> Fault {
    Fault {
        code: "unknown-store",
        message: message.into(),
        hint: hint.into(),
        veil: None,
    }
}

fn bad(message: impl Into<String>, hint: impl Into<String>) -> Fault {
    Fault {
        code: "bad-store-address",
        message: message.into(),
        hint: hint.into(),
        veil: None,
    }
}

/// Reads an address.
pub(super) fn parse(text: &str) -> Parsed<Address> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(vec![no_scheme(text)]);
    };
    let Some((_, shape, tls)) = SCHEMES.iter().find(|(name, ..)| *name == scheme) else {
        return Err(vec![unknown_scheme(text, scheme)]);
    };
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    let mut faults = Vec::new();
    let user = user.map(credentials).unwrap_or(Ok((None, None)));
    let user = user.map_err(|fault| faults.push(fault)).ok();
    let rest = match rest.find(['?', '#']) {
        Some(at) => {
            // Some tools read a password from there.
            faults.push(Fault {
                veil: rest.get(at..).map(str::to_owned),
                ..bad(
                    "what stands behind a `?` or `#` in the address of a store is not read",
                    "leave it out; other settings are fields: `store: { url: …, deadline: 8ms }`",
                )
            });
            rest.get(..at).unwrap_or_default()
        }
        None => rest,
    };
    let (hosts, path) = match rest.split_once('/') {
        Some((hosts, path)) => (hosts, path),
        None => (rest, ""),
    };
    let hosts = servers(hosts, *shape, &mut faults);
    let place = path_of(path, scheme, *shape);
    let place = place.map_err(|fault| faults.push(fault)).ok();
    let (Some((username, password)), Some((service, database)), []) =
        (user, place, faults.as_slice())
    else {
        return Err(faults);
    };
    let topology = match shape {
        Shape::Standalone => match hosts.into_iter().next() {
            Some(server) => Topology::Standalone { server },
            None => return Err(vec![no_host()]),
        },
        Shape::Sentinel => Topology::Sentinel {
            sentinels: hosts,
            service,
        },
        Shape::Cluster => Topology::Cluster { servers: hosts },
    };
    Ok(Address {
        topology,
        tls: *tls,
        username,
        password,
        database,
    })
}

/// A text that is no address at all.
fn no_scheme(text: &str) -> Fault {
    // Without `://` nothing tells where a password might begin.
    let shown = quoted(&behind_at(text));
    let scheme = text.split([':', '/']).next().unwrap_or_default();
    let known = SCHEMES.iter().any(|(name, ..)| *name == scheme);
    let hint = match nearest(text, ["memory"]) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known => format!("write `{scheme}://` before the host"),
        None => SAMPLE.to_owned(),
    };
    unknown(format!("{shown} is not a store"), hint)
}

/// What stands behind the last `@`.
fn behind_at(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => text.to_owned(),
    }
}

fn unknown_scheme(text: &str, scheme: &str) -> Fault {
    let names = || SCHEMES.iter().map(|(name, ..)| *name);
    let shown = if scheme.contains('@') {
        quoted(&behind_at(text))
    } else {
        quoted(text)
    };
    let spelt = scheme.to_lowercase().replace(['-', '_', '.'], "+");
    let hint = match spelt.as_str() {
        "redis+tls" | "redis+ssl" | "tls" | "ssl" => "did you mean `rediss://`?".to_owned(),
        "sentinel" => "did you mean `redis+sentinel://`?".to_owned(),
        "cluster" => "did you mean `redis+cluster://`?".to_owned(),
        "unix" | "redis+unix" | "redis+socket" => {
            "sockets of the file system are not spoken: write `redis://127.0.0.1:6379`".to_owned()
        }
        _ => match names()
            .find(|name| *name == spelt)
            .or_else(|| nearest(&spelt, names()))
        {
            Some(near) => format!("did you mean `{near}://`?"),
            None => format!("write `memory`, or an address with {}", list(names())),
        },
    };
    unknown(
        format!("{shown} is not a store that this build knows"),
        hint,
    )
}

fn no_host() -> Fault {
    bad(
        "the address of the store names no host",
        "write one behind the `//`, such as `redis://10.0.0.5:6379`",
    )
}

/// The user and the password from before the `@`, without ever repeating either.
fn credentials(text: &str) -> Result<(Option<String>, Option<String>), Fault> {
    const BETTER: &str =
        "or keep the password out of the file: `password_env: TOLLGATE_STORE_PASSWORD`";
    let unescaped = |c: char| "/?#@[]".contains(c) || c.is_whitespace() || c.is_control();
    if text.contains(unescaped) {
        return Err(bad(
            "the user or password in the address has a character that must be escaped",
            format!("write `%2F` for `/`, `%40` for `@`, `%3F` for `?`, `%23` for `#`; {BETTER}"),
        ));
    }
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    let decoded = |text: &str| {
        let text = unescape(text).ok_or_else(|| {
            bad(
                "the user or password in the address has a `%` that escapes nothing",
                format!("write `%25` for `%`; {BETTER}"),
            )
        })?;
        if text.len() > WORD_MAX {
            return Err(bad(
                format!("the user or password in the address is longer than {WORD_MAX} bytes"),
                "write a shorter one",
            ));
        }
        Ok(text)
    };
    let user = decoded(user)?;
    let password = password.map(decoded).transpose()?;
    if password.as_deref() == Some("") {
        return Err(bad(
            "the password in the address is empty",
            "leave out the `:` before the `@` if there is no password",
        ));
    }
    Ok(((!user.is_empty()).then_some(user), password))
}

/// `%XX` for a byte; none if an escape is broken or the bytes are no text.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.contains('\0')).then_some(text)
}

/// The hosts and their ports.
fn servers(text: &str, shape: Shape, faults: &mut Vec<Fault>) -> Vec<(String, u16)> {
    let usual = match shape {
        Shape::Sentinel => SENTINEL_PORT,
        _ => PORT,
    };
    if text.is_empty() {
        faults.push(no_host());
        return Vec::new();
    }
    let count = text.split(',').count();
    if count > HOSTS_MAX {
        faults.push(bad(
            format!("the address names {count} hosts; {HOSTS_MAX} are read"),
            "name a few: they tell of the others",
        ));
        return Vec::new();
    }
    if shape == Shape::Standalone && count > 1 {
        faults.push(bad(
            format!("one server has one host, but {count} are named"),
            "write `redis+sentinel://…/mymaster` or `redis+cluster://…` for several, or keep one",
        ));
    }
    let mut all = Vec::new();
    for part in text.split(',') {
        match server(part, usual) {
            Ok(server) if all.contains(&server) => faults.push(bad(
                format!("{} is named twice", quoted(part)),
                "keep one of the two",
            )),
            Ok(server) => all.push(server),
            Err(fault) => faults.push(fault),
        }
    }
    all
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn server(text: &str, usual: u16) -> Result<(String, u16), Fault> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => {
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(bad_host(text)),
                }
            }
            _ => {
                return Err(bad(
                    format!("{} is not an IPv6 address in brackets", quoted(text)),
                    "write one such as `[2001:db8::5]:6379`",
                ));
            }
        },
        None if text.parse::<Ipv6Addr>().is_ok() => {
            return Err(bad(
                format!("the IPv6 address {} has no brackets", quoted(text)),
                format!("write `[{text}]`"),
            ));
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = !host.is_empty() && host.len() <= HOST_MAX && host.chars().all(plain);
    if !text.starts_with('[') && !is_name {
        return Err(bad_host(text));
    }
    let port = match port {
        None => usual,
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => return Err(bad_port(host, port, usual)),
        },
    };
    Ok((host.to_owned(), port))
}

/// Whoever forgets the host writes `redis://user:password`, so only digits are repeated.
fn bad_port(host: &str, port: &str, usual: u16) -> Fault {
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let message = if digits {
        format!("{} is not a port", quoted(port))
    } else {
        format!("the port of {} is not a number", quoted(host))
    };
    Fault {
        veil: (!digits).then(|| format!(":{port}")),
        ..bad(
            message,
            format!("write a number from 1 to 65535, such as `{host}:{usual}`"),
        )
    }
}

fn bad_host(text: &str) -> Fault {
    match text {
        "" => bad(
            "there is a comma too many between the hosts of the store",
            "write `s1,s2,s3`",
        ),
        text => bad(
            format!("{} is not a host", quoted(text)),
            "write a name or an address and a port, such as `10.0.0.5:6379`; no blanks between hosts",
        ),
    }
}

/// What stands behind the hosts: the service, if there are sentinels, and the database.
fn path_of(path: &str, scheme: &str, shape: Shape) -> Result<(String, u32), Fault> {
    let mut parts = path.split('/');
    let first = parts.next().unwrap_or_default();
    let service = match shape {
        Shape::Sentinel => first,
        Shape::Standalone | Shape::Cluster => "",
    };
    let database = match shape {
        Shape::Sentinel => parts.next().unwrap_or_default(),
        Shape::Standalone | Shape::Cluster => first,
    };
    if parts.any(|part| !part.is_empty()) {
        let sample = match shape {
            Shape::Standalone => format!("{scheme}://host:6379/0"),
            Shape::Sentinel => format!("{scheme}://s1,s2,s3/mymaster/0"),
            Shape::Cluster => format!("{scheme}://c1,c2,c3"),
        };
        return Err(bad(
            format!("{} is more than is read behind the hosts", quoted(path)),
            format!("write `{sample}`"),
        ));
    }
    if shape == Shape::Sentinel {
        check_service(service, scheme)?;
    }
    let number = match database {
        "" => 0,
        digits => match digits.parse::<u32>() {
            Ok(number) if number <= DATABASE_MAX && digits.bytes().all(|b| b.is_ascii_digit()) => {
                number
            }
            _ => {
                return Err(bad(
                    format!("{} is not the number of a database", quoted(digits)),
                    "write a number such as `0`, or leave it out with the slash before it",
                ));
            }
        },
    };
    if shape == Shape::Cluster && number != 0 {
        return Err(bad(
            format!("a cluster has no database {number}"),
            "leave it out: a cluster has only database 0; `prefix` keeps applications apart",
        ));
    }
    Ok((service.to_owned(), number))
}

fn check_service(service: &str, scheme: &str) -> Result<(), Fault> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if service.is_empty() {
        return Err(bad(
            "the address does not say what the sentinels call the primary",
            format!("add the name of the service: `{scheme}://s1,s2,s3/mymaster`"),
        ));
    }
    if !service.chars().all(plain) || service.len() > WORD_MAX {
        return Err(bad(
            format!("{} cannot be the name of a service", quoted(service)),
            "write what `SENTINEL MASTERS` shows: letters, digits, `-`, `_` and `.`",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
