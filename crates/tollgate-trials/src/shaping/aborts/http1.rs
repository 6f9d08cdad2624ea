//! One aborted request over HTTP/1.1.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_sim::rng::Rng;

use crate::http::{HttpConnection, get};

/// How much of a body is announced.
const BODY: usize = 40_000;
/// How long the first piece of an answer is waited for.
const FIRST_PIECE: Duration = Duration::from_millis(500);

/// When the client aborts.
#[derive(Clone, Copy, Debug, Default)]
enum AbortPoint {
    #[default]
    InTheHead,
    AfterTheHead,
    InTheBody,
    /// While it waits in the queue or is in flight at the upstream.
    Later,
    InTheAnswer,
}

const ABORT_POINTS: [AbortPoint; 5] = [
    AbortPoint::InTheHead,
    AbortPoint::AfterTheHead,
    AbortPoint::InTheBody,
    AbortPoint::Later,
    AbortPoint::InTheAnswer,
];

/// Sends a part of a request, or all of it, and aborts. Errors are expected.
pub(super) async fn give_up(port: u16, rng: &mut Rng) {
    let Ok(mut connection) = HttpConnection::open(port).await else {
        // Too many connections: others have to close first.
        sleep(Duration::from_millis(5)).await;
        return;
    };
    let _ = talk(&mut connection, rng).await;
    // Half of them reset the connection, the others close it.
    if rng.one_in(2) {
        connection.reset();
    }
}

async fn talk(connection: &mut HttpConnection, rng: &mut Rng) -> std::io::Result<()> {
    match rng.pick(&ABORT_POINTS) {
        AbortPoint::InTheHead => {
            let head = get("/work/5", &[("x-id", "partial")]);
            let most = u64::try_from(head.len()).unwrap_or(1).saturating_sub(1);
            let part = usize::try_from(rng.between(1, most)).unwrap_or(1);
            connection.send(head.get(..part).unwrap_or_default()).await
        }
        AbortPoint::AfterTheHead => connection.send(&get("/work/5", &[])).await,
        AbortPoint::InTheBody => {
            let head =
                format!("POST /sink HTTP/1.1\r\nhost: app.test\r\ncontent-length: {BODY}\r\n\r\n");
            connection.send(head.as_bytes()).await?;
            let part = usize::try_from(rng.below(30_000)).unwrap_or_default();
            connection.send(&vec![b'x'; part]).await?;
            sleep(Duration::from_millis(rng.below(10))).await;
            Ok(())
        }
        AbortPoint::Later => {
            connection.send(&get("/work/10", &[])).await?;
            sleep(Duration::from_millis(rng.below(40))).await;
            Ok(())
        }
        AbortPoint::InTheAnswer => {
            connection.send(&get("/stream", &[])).await?;
            let _ = timeout(FIRST_PIECE, connection.piece()).await;
            sleep(Duration::from_millis(rng.below(15))).await;
            Ok(())
        }
    }
}
