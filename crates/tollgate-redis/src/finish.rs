//! Work that is done to its end, whatever becomes of whoever asked for it.
//!
//! A client may hang up at any moment, and then the future of its request is dropped where it stands. What must not be left half
//! done runs as a task of its own.
//!
//! # Invariant
//!
//! So much is under way at once and not more: clients that ask and hang up do not make tasks without end.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A bound on tasks.
#[derive(Debug)]
pub(crate) struct Finishing {
    under_way: AtomicUsize,
    most: usize,
}

impl Finishing {
    pub(crate) fn new(most: usize) -> Arc<Finishing> {
        Arc::new(Finishing {
            under_way: AtomicUsize::new(0),
            most,
        })
    }

    /// Begins it on this runtime; none if too much is under way. It goes on if what is returned is dropped.
    pub(crate) fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Handle,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        let place = self.place()?;
        Some(runtime.spawn(async move {
            let done = work.await;
            drop(place);
            done
        }))
    }

    fn place(self: &Arc<Self>) -> Option<Place> {
        // Relaxed: a bound, and nothing else hangs on it.
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.clone());
        (before < self.most).then_some(place)
    }
}

/// Given back when it is dropped, also with a task that was broken off.
struct Place(Arc<Finishing>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_begun_is_ended_and_only_so_much_is_begun() {
        let finishing = Finishing::new(2);
        let runtime = Handle::current();
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let (say, mut said) = tokio::sync::mpsc::channel(4);
        let work = |number: u32| {
            let (gate, say) = (gate.clone(), say.clone());
            async move {
                let _ = gate.acquire().await.map(|permit| permit.forget());
                let _ = say.send(number).await;
            }
        };
        // Nobody waits for the first.
        drop(finishing.begin(&runtime, work(1)));
        let second = finishing.begin(&runtime, work(2)).unwrap();
        assert!(finishing.begin(&runtime, work(3)).is_none());
        gate.add_permits(2);
        second.await.unwrap();
        assert_eq!((said.recv().await, said.recv().await), (Some(1), Some(2)));
        tokio::task::yield_now().await;
        assert!(finishing.begin(&runtime, work(4)).is_some());
    }
}
