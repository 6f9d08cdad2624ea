//! Asks a running server for an explanation: one request over a plain socket.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::fault::{Stop, shown};

const TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_TOKEN";
const TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than any explanation.
const ANSWER_MAX: u64 = 16 << 20;

/// The token from a file, or else from the environment.
pub(crate) fn token(file: Option<&Path>) -> Result<Option<String>, Stop> {
    let token = match file {
        Some(file) => Some(std::fs::read_to_string(file).map_err(|cause| Stop::File {
            name: file.display().to_string(),
            cause,
        })?),
        None => std::env::var(TOKEN_VARIABLE).ok(),
    };
    Ok(token.map(|token| token.trim().to_owned()))
}

/// Sends a request to the admin port and returns the answer.
pub(crate) fn server(
    server: &str,
    token: Option<&str>,
    (method, path): (&str, &str),
    request: &Value,
) -> Result<Value, Stop> {
    let host = server
        .strip_prefix("http://")
        .unwrap_or(server)
        .trim_end_matches('/');
    let stop = |what: String, hint: &str| Stop::Other {
        what: format!("{} cannot be asked: {what}", shown(server)),
        hint: hint.to_owned(),
    };
    if host.contains(['/', '\r', '\n', ' ']) {
        return Err(stop(
            "it is no address".into(),
            "write `http://127.0.0.1:9070`",
        ));
    }
    let unreachable = |cause: std::io::Error| {
        let hint = "name the admin port of a server that runs, such as `http://127.0.0.1:9070`";
        stop(cause.to_string(), hint)
    };
    let mut addresses = host.to_socket_addrs().map_err(unreachable)?;
    let address = addresses
        .next()
        .ok_or_else(|| stop("no such host".into(), "write `http://127.0.0.1:9070`"))?;
    let mut socket = TcpStream::connect_timeout(&address, TIMEOUT).map_err(unreachable)?;
    socket
        .set_read_timeout(Some(TIMEOUT))
        .map_err(unreachable)?;
    let body = request.to_string();
    let authorization = token.map_or(String::new(), |t| format!("Authorization: Bearer {t}\r\n"));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}Content-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    socket
        .write_all(head.as_bytes())
        .and_then(|()| socket.write_all(body.as_bytes()))
        .and_then(|()| socket.take(ANSWER_MAX).read_to_end(&mut answer))
        .map_err(unreachable)?;
    let answer = String::from_utf8_lossy(&answer);
    let garbled = || {
        stop(
            "its response is not an explanation".into(),
            "check that this is the admin port",
        )
    };
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(garbled)?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    let response: Value = serde_json::from_str(body).map_err(|_| garbled())?;
    match status {
        "200" => Ok(response),
        "401" | "403" => Err(stop(
            detail(&response),
            "set TOLLGATE_ADMIN_TOKEN, or give `--token-file FILE`",
        )),
        _ => Err(stop(detail(&response), "see the log of the server")),
    }
}

fn detail(problem: &Value) -> String {
    let text = |name: &str| problem.get(name).and_then(Value::as_str).map(shown);
    text("detail").or_else(|| text("title")).unwrap_or_default()
}
