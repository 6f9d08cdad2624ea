//! Futures that are waited for together.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Waits for all of them at the same time.
pub(crate) async fn join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Joined<F>> = futures
        .map(|future| Joined::Waits(Box::pin(future)))
        .collect();
    poll_fn(|context| {
        let mut is_waiting = false;
        for joined in &mut waiting {
            if let Joined::Waits(future) = joined {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *joined = Joined::Done(output),
                    Poll::Pending => is_waiting = true,
                }
            }
        }
        if is_waiting {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    let done = waiting.into_iter().filter_map(|joined| match joined {
        Joined::Done(output) => Some(output),
        Joined::Waits(_) => None,
    });
    done.collect()
}

enum Joined<F: Future> {
    Waits(Pin<Box<F>>),
    Done(F::Output),
}
