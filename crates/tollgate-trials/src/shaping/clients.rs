//! Real programs through the gateway: curl over HTTP/1.1, over HTTP/2 with prior knowledge and over TLS, nginx in
//! front, h2load with many streams, and a WebSocket echo.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use super::gateway::{self, Tls, before};
use super::nginx::plain_nginx;
use super::runtime;
use super::upstream::Upstream;
use crate::trials::TrialOptions;
use crate::verdicts::Verdicts;
use tollgate_testkit::certificates::Certificates;
use tollgate_testkit::program;
use tollgate_testkit::{Directory, now};
use tollgate_testkit::{Error, Result};
use tollgate_testkit::{HOST, Process};

/// How long one program may run.
const DEADLINE: Duration = Duration::from_secs(60);
/// A body that fits into no buffer.
const BODY: usize = 3_000_000;
/// Messages over the WebSocket.
const MESSAGES: usize = 100;

pub(crate) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let upstream = Upstream::quick(now())?;
    let policy = policy(upstream.port());
    let plain = gateway::start(&policy)?;
    let folder = Directory::new();
    let certificates = Certificates::make(folder.path())?;
    let secret = gateway::start_with_tls(
        &policy,
        Tls {
            cert: &certificates.server_cert_file,
            key: &certificates.server_key_file,
        },
    )?;
    let nginx = plain_nginx(plain.port())?;
    let body = folder.path().join("body");
    std::fs::write(&body, vec![b'x'; BODY]).map_err(Error::io("write a body"))?;

    let (open, fronted) = (url("http", plain.port()), url("http", nginx.port()));
    let secret_url = url("https", secret.port());
    let ca = certificates.ca_file.display().to_string();
    let data = format!("@{}", body.display());
    let checks: [(&str, &[&str], &str); 7] = [
        (
            "curl, HTTP/1.1",
            &["--http1.1", &open],
            "200 1.1 0 bytes received",
        ),
        (
            "curl, HTTP/2 with prior knowledge",
            &["--http2-prior-knowledge", &open],
            "200 2 0 bytes received",
        ),
        (
            "curl, TLS, HTTP/2 by ALPN",
            &["--cacert", &ca, &secret_url],
            "200 2 0 bytes received",
        ),
        (
            "curl, TLS, HTTP/1.1",
            &["--cacert", &ca, "--http1.1", &secret_url],
            "200 1.1 0 bytes received",
        ),
        (
            "curl, a large body over HTTP/1.1",
            &["--http1.1", "--data-binary", &data, &open],
            "200 1.1 3000000 bytes received",
        ),
        (
            "curl, a large body over HTTP/2",
            &["--http2-prior-knowledge", "--data-binary", &data, &open],
            "200 2 3000000 bytes received",
        ),
        (
            "curl, nginx in front",
            &["--http1.1", &fronted],
            "200 1.1 0 bytes received",
        ),
    ];
    for (name, arguments, expected) in checks {
        let result = curl(arguments)?;
        verdicts.promise(
            &format!("{name}: `{expected}`"),
            result == expected,
            format!("`{result}`"),
        );
    }
    let requests = options.quick_or_full(2_000, 100_000);
    for (name, url) in [("h2load", &open), ("h2load over TLS", &secret_url)] {
        let (succeeded, summary) = h2load(url, requests)?;
        verdicts.promise(
            &format!(
                "{name}: all of {requests} requests over 4 connections, 20 streams each, succeed"
            ),
            succeeded == Some(requests),
            summary,
        );
    }
    for (name, port) in [
        ("WebSocket", plain.port()),
        ("WebSocket, nginx in front", nginx.port()),
    ] {
        let echoed = runtime()?.block_on(echo(port));
        verdicts.promise(
            &format!("{name}: every message is echoed"),
            echoed == Ok(MESSAGES),
            echoed.map_or_else(|why| why, |count| format!("{count} of {MESSAGES}")),
        );
    }
    plain.is_running()?;
    secret.is_running()
}

fn policy(upstream: u16) -> String {
    format!(
        "version: 1\ndefault: pass\nqueues:\n  - {{ name: app, at_once: 100, waiting: 1000, waiting_per_flow: 1000 }}\n{}",
        before(upstream)
    )
}

fn url(scheme: &str, port: u16) -> String {
    format!("{scheme}://{HOST}:{port}/hello")
}

/// Status, version and body, or the error of curl.
fn curl(arguments: &[&str]) -> Result<String> {
    let common = [
        "-sS",
        "--max-time",
        "30",
        "-o",
        "body",
        "-w",
        "%{http_code} %{http_version}",
    ];
    let all: Vec<&str> = common.iter().chain(arguments).copied().collect();
    let (process, said) = run_program("curl", &all)?;
    let body = std::fs::read_to_string(process.directory().join("body")).unwrap_or_default();
    Ok(format!("{} {}", said.trim(), body.trim()).trim().to_owned())
}

/// How many requests succeeded, and the line of the summary.
fn h2load(url: &str, requests: usize) -> Result<(Option<usize>, String)> {
    let count = requests.to_string();
    let (_, said) = run_program("h2load", &["-n", &count, "-c", "4", "-m", "20", url])?;
    let line = said.lines().find(|line| line.starts_with("requests:"));
    let line = line.unwrap_or(&said).to_owned();
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let succeeded = pairs
        .find(|(_, word)| **word == "succeeded,")
        .map(|(count, _)| count);
    // Only answers of the upstream count: `succeeded` is any below 400.
    Ok((succeeded.and_then(|count| count.parse().ok()), line))
}

/// Runs a program to its end and returns its output. The exit code is not checked: curl fails on purpose in some
/// cases.
fn run_program(name: &str, arguments: &[&str]) -> Result<(Process, String)> {
    let process = Process::prepare(name, &program(name)?, arguments)?;
    process.start()?;
    process.wait(DEADLINE)?;
    let said = process.log();
    Ok((process, said))
}

/// How many messages were echoed unchanged.
async fn echo(port: u16) -> std::result::Result<usize, String> {
    let text = |error: tokio_tungstenite::tungstenite::Error| error.to_string();
    let talk = async {
        let stream = TcpStream::connect((HOST, port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let url = format!("ws://{HOST}:{port}/echo");
        let (mut socket, _) = client_async(url, stream).await.map_err(text)?;
        let mut echoed = 0;
        for place in 0..MESSAGES {
            // From a few bytes to more than one buffer.
            let message = Message::text(format!("{place} {}", "x".repeat(place * place * 10)));
            socket.send(message.clone()).await.map_err(text)?;
            match socket.next().await {
                Some(Ok(back)) => echoed += usize::from(back == message),
                Some(Err(error)) => return Err(text(error)),
                None => return Ok(echoed),
            }
        }
        socket.close(None).await.map_err(text)?;
        Ok(echoed)
    };
    match timeout(DEADLINE, talk).await {
        Ok(echoed) => echoed,
        Err(_) => Err("no answer in time".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gateway_every_message_is_echoed_too() {
        let upstream = Upstream::quick(now()).unwrap();
        let nginx = plain_nginx(upstream.port()).unwrap();
        for port in [upstream.port(), nginx.port()] {
            assert_eq!(runtime().unwrap().block_on(echo(port)), Ok(MESSAGES));
        }
        assert_eq!(upstream.count(), 2);
    }
}
