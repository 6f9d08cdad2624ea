//! One aborted request over HTTP/2: its stream is reset, or its connection is closed with it.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_sim::rng::Rng;

use crate::http::HttpConnection;
use tollgate_testkit::http2::{self as frames, DATA, END_HEADERS, END_STREAM, HEADERS, NONE};

pub(super) async fn give_up(port: u16, rng: &mut Rng) {
    let Ok(mut connection) = HttpConnection::open(port).await else {
        sleep(Duration::from_millis(5)).await;
        return;
    };
    let _ = talk(&mut connection, rng).await;
    if rng.one_in(2) {
        connection.reset();
    }
}

async fn talk(connection: &mut HttpConnection, rng: &mut Rng) -> std::io::Result<()> {
    let mut bytes = frames::hello(&[]);
    bytes.extend_from_slice(&frames::settings_ack());
    let path = if rng.one_in(2) { "/work/10" } else { "/stream" };
    match rng.below(3) {
        // Its body never ends.
        0 => {
            let block = frames::request_block("POST", "/sink", &[]);
            bytes.extend_from_slice(&frames::frame(HEADERS, END_HEADERS, 1, &block));
            bytes.extend_from_slice(&frames::frame(DATA, NONE, 1, &[b'x'; 5_000]));
        }
        // Its head never ends.
        1 => {
            let block = frames::request_block("GET", path, &[]);
            bytes.extend_from_slice(&frames::frame(HEADERS, END_STREAM, 1, &block));
        }
        _ => {
            let block = frames::request_block("GET", path, &[]);
            let flags = END_HEADERS | END_STREAM;
            bytes.extend_from_slice(&frames::frame(HEADERS, flags, 1, &block));
        }
    }
    connection.send(&bytes).await?;
    sleep(Duration::from_millis(rng.below(40))).await;
    if rng.one_in(4) {
        // The connection closes without a reset of the stream.
        return Ok(());
    }
    connection.send(&frames::reset(1)).await?;
    sleep(Duration::from_millis(rng.below(5))).await;
    Ok(())
}
