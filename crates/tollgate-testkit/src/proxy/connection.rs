//! One connection through the proxy: a client, a server, and the two directions between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::counters::Counters;
use super::faults::Direction;
use super::pipe::{Pipe, PipeEnd};
use super::shaper::Shaper;
use super::state::FaultState;

/// How long the server may take to accept.
const DEADLINE: Duration = Duration::from_secs(10);

/// Forwards one connection until it ends.
pub(super) async fn forward(
    client: TcpStream,
    upstream: SocketAddr,
    state: Arc<FaultState>,
    counters: Arc<Counters>,
    seed: u64,
) {
    let watch = state.watch();
    let first = *watch.borrow();
    let Ok(Ok(server)) = timeout(DEADLINE, TcpStream::connect(upstream)).await else {
        // The client would have been refused; it is too late for that.
        reset(&client);
        return;
    };
    // Small pieces go when they are due. An error here shows again at the first write.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let pipe = |direction, ends, seed| {
        let shaper = Shaper::new(
            direction,
            Arc::clone(&state),
            Arc::clone(&counters),
            Rng::with_seed(seed),
        );
        Pipe::new(
            direction,
            ends,
            watch.clone(),
            first,
            shaper,
            Rng::with_seed(seed ^ 1),
        )
    };
    let up = pipe(Direction::ToServer, (&client, &server), seed).run();
    let down = pipe(Direction::ToClient, (&server, &client), seed ^ 2).run();
    if both(up, down).await == PipeEnd::Reset {
        reset(&client);
        reset(&server);
    }
}

/// How the whole ends: with the first direction that ends it, or with both of them.
async fn both(up: impl Future<Output = PipeEnd>, down: impl Future<Output = PipeEnd>) -> PipeEnd {
    tokio::pin!(up, down);
    let (mut up_open, mut down_open) = (true, true);
    while up_open || down_open {
        let end = tokio::select! {
            end = &mut up, if up_open => {
                up_open = false;
                end
            }
            end = &mut down, if down_open => {
                down_open = false;
                end
            }
        };
        if end != PipeEnd::Closed {
            return end;
        }
    }
    PipeEnd::Closed
}

/// Makes the close that follows a reset.
fn reset(stream: &TcpStream) {
    // A connection that is gone already cannot be reset.
    let _ = stream.set_zero_linger();
}
