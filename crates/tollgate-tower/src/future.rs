//! The future of all layers: runs the inner service, then what follows its response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

/// What follows the response of an inner service, of type `T`.
pub trait Complete<T> {
    /// What the layer responds.
    type Output;

    /// Records the response and adds what belongs to it.
    fn complete(self, response: T) -> Self::Output;
}

pin_project! {
    /// The response of a layer's service. The documentation of [`limit`](crate::limit), [`queue`](crate::queue) and
    /// [`pacing`](crate::pacing) describes the effect of dropping it.
    pub struct LayerFuture<F, A, T> {
        #[pin]
        state: State<F, A, T>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, A, T> {
        /// The inner service was called.
        Calling {
            #[pin]
            future: F,
            after: Option<A>,
        },
        /// The layer has responded itself.
        Ready { response: Option<T> },
        /// The request has to wait before the service is called. Boxed: requests that need not wait have a small future.
        Deferred { future: Pin<Box<dyn Future<Output = T> + Send>> },
    }
}

impl<F, A, T> fmt::Debug for LayerFuture<F, A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerFuture").finish_non_exhaustive()
    }
}

impl<F, A, T> LayerFuture<F, A, T> {
    pub(crate) fn calling(future: F, after: A) -> Self {
        let after = Some(after);
        LayerFuture {
            state: State::Calling { future, after },
        }
    }

    pub(crate) fn ready(response: T) -> Self {
        let response = Some(response);
        LayerFuture {
            state: State::Ready { response },
        }
    }

    pub(crate) fn deferred(future: impl Future<Output = T> + Send + 'static) -> Self {
        let future = Box::pin(future);
        LayerFuture {
            state: State::Deferred { future },
        }
    }
}

impl<F, A, T> Future for LayerFuture<F, A, T>
where
    F: Future,
    A: Complete<F::Output, Output = T>,
{
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let response = match self.project().state.project() {
            Projected::Calling { future, after } => {
                let response = ready!(future.poll(context));
                after.take().map(|after| after.complete(response))
            }
            Projected::Ready { response } => response.take(),
            Projected::Deferred { future } => return future.as_mut().poll(context),
        };
        // A future must not be polled after completion.
        response.map_or(Poll::Pending, Poll::Ready)
    }
}
