//! A client, a server, and the two directions between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_sim::property::dice::Dice;

use super::pipe::{End, Pipe};
use super::shaper::Shaper;
use super::sky::Sky;
use super::tally::Tally;
use super::weather::Way;

/// How long the server may take to accept.
const PATIENCE: Duration = Duration::from_secs(10);

/// Carries one connection until it ends.
pub(super) async fn carry(
    client: TcpStream,
    upstream: SocketAddr,
    sky: Arc<Sky>,
    tally: Arc<Tally>,
    seed: u64,
) {
    let watch = sky.watch();
    let first = *watch.borrow();
    let Ok(Ok(server)) = timeout(PATIENCE, TcpStream::connect(upstream)).await else {
        // The client would have been refused; it is too late for that.
        reset(&client);
        return;
    };
    // Small pieces shall go when they are due. What does not work here shows when it is used.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let pipe = |way, ends, seed| {
        let shaper = Shaper::new(way, Arc::clone(&sky), Arc::clone(&tally), Dice::new(seed));
        Pipe::new(way, ends, watch.clone(), first, shaper, Dice::new(seed ^ 1))
    };
    let up = pipe(Way::ToServer, (&client, &server), seed).run();
    let down = pipe(Way::ToClient, (&server, &client), seed ^ 2).run();
    if both(up, down).await == End::Reset {
        reset(&client);
        reset(&server);
    }
}

/// How the whole ends: with the first direction that ends it, or with both of them.
async fn both(up: impl Future<Output = End>, down: impl Future<Output = End>) -> End {
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
        if end != End::Closed {
            return end;
        }
    }
    End::Closed
}

/// Makes the close that follows a reset.
fn reset(stream: &TcpStream) {
    // A connection that is gone already cannot be reset.
    let _ = stream.set_zero_linger();
}
