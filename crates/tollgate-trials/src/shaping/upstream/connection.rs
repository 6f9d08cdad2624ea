//! One connection of the upstream: records each request, and answers it as its path demands.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{ReceivedRequest, Shared};
use crate::http::{Head, HttpConnection};

/// The pieces of an answer that streams.
const PIECES: usize = 8;
const PIECE: usize = 1024;
const PAUSE: Duration = Duration::from_millis(3);
/// The longest response time that a path may request.
const WORK_MAX: u64 = 60_000;

/// Answers requests until the peer closes.
pub(super) async fn serve(mut connection: HttpConnection, shared: &Shared) -> io::Result<()> {
    while let Some(head) = connection.head().await? {
        record(&head, shared);
        let closes = head.is_last();
        if is_websocket(&head) {
            return echo(connection, &head).await;
        }
        let body = connection.request_body(&head).await?.len();
        let target = head.target();
        match target.split('/').nth(1).unwrap_or_default() {
            "pool" => {
                let done = shared.workers().take(shared.start.elapsed());
                match done {
                    Some(done) => {
                        sleep_until((shared.start + done).into()).await;
                        connection.send(&answer("200 OK", "done\n")).await?;
                    }
                    None => {
                        connection
                            .send(&answer("503 Service Unavailable", "the backlog is full\n"))
                            .await?;
                    }
                }
            }
            "work" => {
                let requested = target.split('/').nth(2);
                let time: Option<u64> = requested.and_then(|ms| ms.parse().ok());
                sleep(Duration::from_millis(
                    time.unwrap_or_default().min(WORK_MAX),
                ))
                .await;
                connection.send(&answer("200 OK", "done\n")).await?;
            }
            "stream" => stream(&mut connection).await?,
            _ => {
                connection
                    .send(&answer("200 OK", &format!("{body} bytes received\n")))
                    .await?;
            }
        }
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

fn record(head: &Head, shared: &Shared) {
    let value = |name| head.value(name).unwrap_or_default().to_owned();
    shared.seen().push(ReceivedRequest {
        at: shared.start.elapsed(),
        id: value("x-id"),
        plan: value("x-plan"),
    });
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn stream(connection: &mut HttpConnection) -> io::Result<()> {
    connection
        .send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    let mut piece = String::new();
    // Writing to a string cannot fail.
    let _ = write!(piece, "{PIECE:x}\r\n{:x<PIECE$}\r\n", "");
    for _ in 0..PIECES {
        connection.send(piece.as_bytes()).await?;
        sleep(PAUSE).await;
    }
    connection.send(b"0\r\n\r\n").await
}

fn is_websocket(head: &Head) -> bool {
    let upgrade = head.value("upgrade").unwrap_or_default();
    upgrade.eq_ignore_ascii_case("websocket") && head.target().starts_with("/echo")
}

/// Echoes every message until the peer closes.
async fn echo(mut connection: HttpConnection, head: &Head) -> io::Result<()> {
    use tokio_tungstenite::tungstenite::Message;
    let key = head.value("sec-websocket-key").unwrap_or_default();
    let accept = derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {accept}\r\n\r\n"
    );
    connection.send(head.as_bytes()).await?;
    let mut socket =
        WebSocketStream::from_raw_socket(connection.into_stream(), Role::Server, None).await;
    loop {
        match next(&mut socket).await {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                send(&mut socket, message).await?;
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Ok(()),
        }
    }
}

type Socket = WebSocketStream<tokio::net::TcpStream>;
type Received =
    Result<tokio_tungstenite::tungstenite::Message, tokio_tungstenite::tungstenite::Error>;

async fn next(socket: &mut Socket) -> Option<Received> {
    futures_util::StreamExt::next(socket).await
}

async fn send(
    socket: &mut Socket,
    message: tokio_tungstenite::tungstenite::Message,
) -> io::Result<()> {
    futures_util::SinkExt::send(socket, message)
        .await
        .map_err(io::Error::other)
}
