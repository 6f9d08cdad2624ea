//! The address of a server: `http://host:port` or `https://host:port`.
//!
//! There is no path, because every proxy that joins it with the path of a request has different rules. There is no user
//! and no password, because credentials come from the client.
//!
//! # Invariant
//!
//! No message repeats text that stands before an `@`.

use std::net::Ipv4Addr;

use super::super::host::{self, HOST_MAX};
use crate::gateway::ServerSpec;
use crate::report::quoted;
use crate::suggest::suggest;

/// The longest label of a name.
const LABEL_MAX: usize = 63;

/// What is wrong and how to fix it.
pub(crate) type Problem = (String, String);

const SAMPLE: &str = "write one such as `http://127.0.0.1:3000` or `https://app.internal:8443`";

/// Reads an address.
pub(crate) fn server_address(text: &str) -> Result<ServerSpec, Problem> {
    let Some((scheme, rest)) = text.split_once("://") else {
        let hint = match server(text, false) {
            Ok(_) => format!("write `http://{text}`"),
            Err(_) => SAMPLE.to_owned(),
        };
        let shown = match text.contains('@') {
            true => "this".to_owned(),
            false => quoted(text),
        };
        return Err((format!("{shown} has no scheme"), hint));
    };
    if rest.contains('@') {
        return Err((
            "the address of a server has no user or password".into(),
            "remove what stands before the `@`: credentials come from clients and are passed on"
                .into(),
        ));
    }
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return Err(unknown_scheme(scheme, rest)),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, more) = (
        rest.get(..end).unwrap_or_default(),
        rest.get(end..).unwrap_or_default(),
    );
    if !more.is_empty() {
        let what = match more.as_bytes().first() {
            Some(b'/') => "path",
            Some(b'?') => "query",
            _ => "fragment",
        };
        return Err((
            format!(
                "the address of a server has no {what}, but this has {}",
                quoted(more)
            ),
            format!("write `{scheme}://{authority}`: paths are passed on as they come"),
        ));
    }
    server(authority, tls)
}

fn unknown_scheme(scheme: &str, rest: &str) -> Problem {
    let near = match scheme.to_lowercase().as_str() {
        "h2c" | "grpc" | "ws" => Some("http"),
        "h2" | "grpcs" | "wss" => Some("https"),
        other => suggest(other, ["http", "https"]),
    };
    let hint = match (near, scheme) {
        (Some(near), "h2c" | "h2" | "grpc" | "grpcs") => {
            format!("write `{near}` in the address, and `protocol: http2` beside `servers`")
        }
        (Some(near), _) if rest.chars().count() <= 60 => {
            format!("did you mean `{near}://{rest}`?")
        }
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, _) => SAMPLE.to_owned(),
    };
    (
        format!("{} is not a scheme of a server", quoted(scheme)),
        hint,
    )
}

/// Reads the host and the port.
fn server(text: &str, tls: bool) -> Result<ServerSpec, Problem> {
    if text.is_empty() {
        return Err(("the address names no host".into(), SAMPLE.into()));
    }
    let (host, is_v6, port) = host::split(text).map_err(|error| {
        let described = error.describe(text, "http://[2001:db8::5]:3000");
        described.unwrap_or_else(|| bad_host(text))
    })?;
    if !is_v6 && !is_name(host) {
        return Err(bad_host(host));
    }
    let port = match port {
        None if tls => 443,
        None => 80,
        Some(port) => host::port(port).ok_or_else(|| {
            (
                format!("{} is not a port", quoted(port)),
                "write a number from 1 to 65535, or remove the colon".into(),
            )
        })?,
    };
    Ok(ServerSpec {
        tls,
        host: host.to_ascii_lowercase(),
        port,
    })
}

/// Can this be the name of a server? A name that ends in a number must be an IPv4 address.
fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let label =
        |label: &str| !label.is_empty() && label.len() <= LABEL_MAX && label.chars().all(plain);
    let numeric = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    host.len() <= HOST_MAX
        && host.split('.').all(label)
        && (!numeric || host.parse::<Ipv4Addr>().is_ok())
}

fn bad_host(text: &str) -> Problem {
    let hint = if text.is_ascii() {
        "write a name or an address, such as `app.internal` or `10.0.0.5`"
    } else {
        "write the name as the name servers know it, in ASCII: `xn--…`"
    };
    (format!("{} is not a host", quoted(text)), hint.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_scheme_host_and_port() {
        for (text, tls, host, port) in [
            ("http://127.0.0.1:3000", false, "127.0.0.1", 3000),
            ("http://app", false, "app", 80),
            ("https://App.Internal", true, "app.internal", 443),
            ("https://app.internal:8443", true, "app.internal", 8443),
            ("http://[::1]:3000", false, "::1", 3000),
            ("https://[2001:DB8::5]", true, "2001:db8::5", 443),
            ("http://my_app-1.svc.:65535", false, "my_app-1.svc.", 65535),
        ] {
            let expected = ServerSpec {
                tls,
                host: host.into(),
                port,
            };
            assert_eq!(server_address(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_what_to_write() {
        for (text, hint) in [
            ("", SAMPLE),
            ("127.0.0.1:3000", "write `http://127.0.0.1:3000`"),
            ("app.internal", "write `http://app.internal`"),
            ("http//app", SAMPLE),
            ("htp://app", "did you mean `http://app`?"),
            ("HTTP://app", "did you mean `http://app`?"),
            ("wss://app", "did you mean `https://app`?"),
            (
                "h2c://app",
                "write `http` in the address, and `protocol: http2` beside `servers`",
            ),
            ("ftp://app", SAMPLE),
            ("unix:///run/app.sock", SAMPLE),
            ("http://", SAMPLE),
            (
                "http://:80",
                "write a name or an address, such as `app.internal` or `10.0.0.5`",
            ),
            (
                "http://app/",
                "write `http://app`: paths are passed on as they come",
            ),
            (
                "http://app:1/api",
                "write `http://app:1`: paths are passed on as they come",
            ),
            (
                "http://app?x=1",
                "write `http://app`: paths are passed on as they come",
            ),
            (
                "http://app#x",
                "write `http://app`: paths are passed on as they come",
            ),
            ("http://::1", "write `[::1]`"),
            (
                "http://[::1",
                "write one such as `http://[2001:db8::5]:3000`",
            ),
            (
                "http://[fe80::1%eth0]",
                "write one such as `http://[2001:db8::5]:3000`",
            ),
            (
                "http://[::1]3000",
                "write a name or an address, such as `app.internal` or `10.0.0.5`",
            ),
            (
                "http://app:0",
                "write a number from 1 to 65535, or remove the colon",
            ),
            (
                "http://app:",
                "write a number from 1 to 65535, or remove the colon",
            ),
            (
                "http://app:+80",
                "write a number from 1 to 65535, or remove the colon",
            ),
            (
                "http://app:65536",
                "write a number from 1 to 65535, or remove the colon",
            ),
            (
                "http://a:1:2",
                "write a number from 1 to 65535, or remove the colon",
            ),
            (
                "http://10.0.0.256",
                "write a name or an address, such as `app.internal` or `10.0.0.5`",
            ),
            (
                "http://a b",
                "write a name or an address, such as `app.internal` or `10.0.0.5`",
            ),
            (
                "http://a..b",
                "write a name or an address, such as `app.internal` or `10.0.0.5`",
            ),
            (
                "http://münchen",
                "write the name as the name servers know it, in ASCII: `xn--…`",
            ),
        ] {
            assert_eq!(server_address(text).unwrap_err().1, hint, "{text}");
        }
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        for text in [
            "http://u:hunter2@app",
            "http://hunter2@app:x/y",
            "ftp://u:hunter2@app",
            "u:hunter2@app",
        ] {
            let (message, hint) = server_address(text).unwrap_err();
            assert!(!message.contains("hunter2"), "{message}");
            assert!(!hint.contains("hunter2"), "{hint}");
        }
    }
}
