//! Reads the values of flags and the files that they name.

use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use tollgate::Span;
use tollgate_config::FILE_MAX;

use crate::fault::Stop;

/// The file that cannot be read, and why.
fn unreadable(name: &str) -> impl Fn(std::io::Error) -> Stop {
    let name = name.to_owned();
    move |cause| Stop::File {
        name: name.clone(),
        cause,
    }
}

/// The bytes of a file, at most one more than a policy may have: enough to refuse it.
pub(crate) fn file(name: &str) -> Result<Vec<u8>, Stop> {
    let file = File::open(name).map_err(unreadable(name))?;
    bounded(file).map_err(unreadable(name))
}

/// The bytes of a policy, `-` being standard input, and its name in messages.
pub(crate) fn policy(name: &str) -> Result<(String, Vec<u8>), Stop> {
    Ok(match name {
        "-" => {
            let bytes = bounded(std::io::stdin().lock()).map_err(Stop::Read)?;
            ("standard input".to_owned(), bytes)
        }
        name => (name.to_owned(), file(name)?),
    })
}

/// The same from a stream.
pub(crate) fn bounded(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let max = u64::try_from(FILE_MAX + 1).unwrap_or(u64::MAX);
    from.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Checks that a file that is named by a flag can be opened, so that every command reports it in the same way.
pub(crate) fn check_file(path: Option<&Path>) -> Result<(), Stop> {
    let Some(path) = path else {
        return Ok(());
    };
    let opened = File::open(path).map_err(unreadable(&path.display().to_string()));
    opened.map(|_| ())
}

/// Reads an address to listen on: `127.0.0.1:8080`, `localhost:8080`, `:8080` for all interfaces, or `8080` for this
/// machine alone.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    const HINT: &str =
        "write an address and a port such as `127.0.0.1:8080`, or `:8080` for all interfaces";
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse::<u16>) {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    }
    let found: Vec<SocketAddr> = match text.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(cause) => return Err(format!("{cause}\nhint: {HINT}")),
    };
    // `localhost` often has both; IPv4 is what clients try first.
    let found = found.iter().find(|a| a.is_ipv4()).or(found.first());
    found
        .copied()
        .ok_or_else(|| format!("the name has no address\nhint: {HINT}"))
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AddressOrOff {
    At(SocketAddr),
    Off,
}

/// Reads an address or `off`.
pub(crate) fn address_or_off(text: &str) -> Result<AddressOrOff, String> {
    match text {
        "off" => Ok(AddressOrOff::Off),
        text => address(text).map(AddressOrOff::At),
    }
}

/// Reads the interval of the state file, from 100 ms to an hour.
pub(crate) fn state_interval(text: &str) -> Result<Duration, String> {
    let span: Span = text
        .parse()
        .map_err(|e: tollgate::SpanError| format!("{e}\nhint: {}", e.hint()))?;
    let every = Duration::from_nanos(span.as_nanos());
    match every {
        every if every < Duration::from_millis(100) || every > Duration::from_secs(3600) => {
            Err("it is out of range\nhint: write a span from 100ms to 1h, such as `5s`".into())
        }
        every => Ok(every),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_or_only_a_port() {
        for (text, expected) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("8080", "127.0.0.1:8080"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), expected, "{text}");
        }
        for text in [
            "",
            "localhost",
            "127.0.0.1",
            ":",
            ":70000",
            "70000",
            "http://h:80",
        ] {
            let error = address(text).unwrap_err();
            assert!(error.contains("hint: write an address"), "{text}: {error}");
        }
    }

    #[test]
    fn the_interval_of_the_state_file_is_bounded() {
        assert_eq!(state_interval("5s"), Ok(Duration::from_secs(5)));
        for text in ["99ms", "61m", "5", "x"] {
            assert!(
                state_interval(text).unwrap_err().contains("hint: "),
                "{text}"
            );
        }
    }
}
