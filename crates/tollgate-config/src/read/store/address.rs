//! The address of a shared store: `scheme://user:password@host:port,…/what`.
//!
//! The scheme sets the topology (one server, sentinels, a cluster) and TLS. After the hosts follows the number of a
//! database, and for sentinels the name of the service before it. There is no query string: other settings are fields of
//! `store`.
//!
//! # Invariant
//!
//! No message repeats text that stands before the last `@`. So the user is split off first, and by the last `@`: an
//! unescaped `/` or `@` in a password stays in that part.

use super::super::host::{self, HOST_MAX};
use crate::report::{list, quoted};
use crate::store::Topology;
use crate::suggest::suggest;

/// The parts of an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) topology: Topology,
    pub(super) tls: bool,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

/// An error in an address: what is wrong, and how to fix it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AddressError {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: String,
    /// A part that may be a password although no `@` follows, with the character before it. The line is shown without it.
    pub(super) secret: Option<String>,
}

/// An address, or all errors in it.
type Parsed<T> = Result<T, Vec<AddressError>>;

/// The topology that a scheme names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Standalone,
    Sentinel,
    Cluster,
}

/// Every scheme, its topology, and whether it uses TLS.
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
/// Hosts in one address. The client discovers the others from these.
const HOSTS_MAX: usize = 64;
/// Bytes of the name of a service, of a user or a password.
const WORD_MAX: usize = 256;
/// Servers number their databases with an `int`.
const DATABASE_MAX: u32 = 2_147_483_647;

const SAMPLE: &str = "write `memory`, or an address such as `redis://10.0.0.5:6379/0`, \
    `redis+sentinel://s1,s2,s3/mymaster` or `redis+cluster://c1,c2,c3`";

fn unknown(message: impl Into<String>, hint: impl Into<String>) -> AddressError {
    AddressError {
        code: "unknown-store",
        message: message.into(),
        hint: hint.into(),
        secret: None,
    }
}

fn bad(message: impl Into<String>, hint: impl Into<String>) -> AddressError {
    AddressError {
        code: "bad-store-address",
        message: message.into(),
        hint: hint.into(),
        secret: None,
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
    let mut errors = Vec::new();
    let user = user.map(credentials).unwrap_or(Ok((None, None)));
    let user = user.map_err(|error| errors.push(error)).ok();
    let rest = match rest.find(['?', '#']) {
        Some(at) => {
            // Some tools read a password from there.
            errors.push(AddressError {
                secret: rest.get(at..).map(str::to_owned),
                ..bad(
                    "the address of a store has no query and no fragment",
                    "remove it; other settings are fields: `store: { url: …, deadline: 8ms }`",
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
    let hosts = servers(hosts, *shape, &mut errors);
    let place = path_of(path, scheme, *shape);
    let place = place.map_err(|error| errors.push(error)).ok();
    let (Some((username, password)), Some((service, database)), []) =
        (user, place, errors.as_slice())
    else {
        return Err(errors);
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

/// The error in a text without a scheme.
fn no_scheme(text: &str) -> AddressError {
    // Without `://` the start of a password is unknown.
    let shown = quoted(&behind_at(text));
    let scheme = text.split([':', '/']).next().unwrap_or_default();
    let known = SCHEMES.iter().any(|(name, ..)| *name == scheme);
    let hint = match suggest(text, ["memory"]) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known => format!("write `{scheme}://` before the host"),
        None => SAMPLE.to_owned(),
    };
    unknown(format!("{shown} is not a store"), hint)
}

/// The part after the last `@`.
fn behind_at(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => text.to_owned(),
    }
}

fn unknown_scheme(text: &str, scheme: &str) -> AddressError {
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
            "Unix sockets are not supported: write `redis://127.0.0.1:6379`".to_owned()
        }
        _ => match names()
            .find(|name| *name == spelt)
            .or_else(|| suggest(&spelt, names()))
        {
            Some(near) => format!("did you mean `{near}://`?"),
            None => format!("write `memory`, or an address with {}", list(names())),
        },
    };
    unknown(format!("{shown} is not a supported store"), hint)
}

fn no_host() -> AddressError {
    bad(
        "the address of the store names no host",
        "write one after the `//`, such as `redis://10.0.0.5:6379`",
    )
}

/// Reads the user and the password. No message repeats them.
fn credentials(text: &str) -> Result<(Option<String>, Option<String>), AddressError> {
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
                "the user or password in the address has a `%` without two hexadecimal digits",
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
            "remove the `:` before the `@` if there is no password",
        ));
    }
    Ok(((!user.is_empty()).then_some(user), password))
}

/// Decodes `%XX`. None if an escape is broken or the result is not text.
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

/// Reads the hosts and their ports.
fn servers(text: &str, shape: Shape, errors: &mut Vec<AddressError>) -> Vec<(String, u16)> {
    let usual = match shape {
        Shape::Sentinel => SENTINEL_PORT,
        _ => PORT,
    };
    if text.is_empty() {
        errors.push(no_host());
        return Vec::new();
    }
    let count = text.split(',').count();
    if count > HOSTS_MAX {
        errors.push(bad(
            format!("the address names {count} hosts; the maximum is {HOSTS_MAX}"),
            "name a few: the others are discovered",
        ));
        return Vec::new();
    }
    if shape == Shape::Standalone && count > 1 {
        errors.push(bad(
            format!("this scheme is for one server, but the address names {count}"),
            "write `redis+sentinel://…/mymaster` or `redis+cluster://…` for several, or keep one",
        ));
    }
    let mut all = Vec::new();
    for part in text.split(',') {
        match server(part, usual) {
            Ok(server) if all.contains(&server) => errors.push(bad(
                format!("{} is named twice", quoted(part)),
                "keep one of the two",
            )),
            Ok(server) => all.push(server),
            Err(error) => errors.push(error),
        }
    }
    all
}

/// Reads one host and its port.
fn server(text: &str, default_port: u16) -> Result<(String, u16), AddressError> {
    let (host, is_v6, port) = host::split(text).map_err(|error| {
        let described = error.describe(text, "[2001:db8::5]:6379");
        described.map_or_else(|| bad_host(text), |(message, hint)| bad(message, hint))
    })?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = !host.is_empty() && host.len() <= HOST_MAX && host.chars().all(is_plain);
    if !is_v6 && !is_name {
        return Err(bad_host(text));
    }
    let port = match port {
        None => default_port,
        Some(text) => host::port(text).ok_or_else(|| bad_port(host, text, default_port))?,
    };
    Ok((host.to_owned(), port))
}

/// The error in a port. Without a host, `redis://user:password` has a password there, so only digits are repeated.
fn bad_port(host: &str, port: &str, usual: u16) -> AddressError {
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let message = if digits {
        format!("{} is not a port", quoted(port))
    } else {
        format!("the port of {} is not a number", quoted(host))
    };
    AddressError {
        secret: (!digits).then(|| format!(":{port}")),
        ..bad(
            message,
            format!("write a number from 1 to 65535, such as `{host}:{usual}`"),
        )
    }
}

fn bad_host(text: &str) -> AddressError {
    match text {
        "" => bad(
            "there is an empty host between two commas",
            "write `s1,s2,s3`",
        ),
        text => bad(
            format!("{} is not a host", quoted(text)),
            "write a name or an address and a port, such as `10.0.0.5:6379`; without blanks between hosts",
        ),
    }
}

/// Reads what follows the hosts: the service of sentinels, and the database.
fn path_of(path: &str, scheme: &str, shape: Shape) -> Result<(String, u32), AddressError> {
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
            format!("{} is not expected after the hosts", quoted(path)),
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
                    "write a number such as `0`, or remove it with the slash before it",
                ));
            }
        },
    };
    if shape == Shape::Cluster && number != 0 {
        return Err(bad(
            format!("a cluster has no database {number}"),
            "remove it: a cluster has only database 0; use `prefix` to separate applications",
        ));
    }
    Ok((service.to_owned(), number))
}

fn check_service(service: &str, scheme: &str) -> Result<(), AddressError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if service.is_empty() {
        return Err(bad(
            "the address has no name of a service",
            format!(
                "add the name that the sentinels have for the primary: `{scheme}://s1,s2,s3/mymaster`"
            ),
        ));
    }
    if !service.chars().all(plain) || service.len() > WORD_MAX {
        return Err(bad(
            format!("{} cannot be the name of a service", quoted(service)),
            "write the name that `SENTINEL MASTERS` shows: letters, digits, `-`, `_` and `.`",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
