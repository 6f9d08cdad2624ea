//! A response body that holds guards until it ends.
//!
//! # Invariant
//!
//! The guard is dropped when the body ends, fails or is dropped: whichever comes first, and only once. Frames, lengths
//! and errors are those of the inner body.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// What a response holds until its end: permits of concurrency limits, or of a queue.
pub(crate) type Guard = Box<dyn Any + Send + Sync>;

pin_project! {
    /// The body of a response that went through a layer: the inner service's, or a text of the layer in its place.
    ///
    /// It is a [`Body`] if the inner body's data can be made from bytes (`B::Data: From<Bytes>`), as with the bodies of axum,
    /// tonic and hyper.
    #[must_use = "dropping the body releases what the response holds"]
    pub struct GuardedBody<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<B> {
        Inner {
            #[pin]
            body: B,
            guard: Option<Guard>,
        },
        Text {
            text: Bytes,
        },
    }
}

impl<B> fmt::Debug for GuardedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedBody").finish_non_exhaustive()
    }
}

impl<B: Body> GuardedBody<B> {
    /// The inner body. If it has ended already, the guard is dropped at once.
    pub(crate) fn new(body: B, guard: Option<Guard>) -> GuardedBody<B> {
        let guard = guard.filter(|_| !body.is_end_stream());
        GuardedBody {
            state: State::Inner { body, guard },
        }
    }
}

impl<B> From<Bytes> for GuardedBody<B> {
    fn from(text: Bytes) -> GuardedBody<B> {
        GuardedBody {
            state: State::Text { text },
        }
    }
}

impl<B> Body for GuardedBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().state.project() {
            Projected::Text { text } if text.is_empty() => Poll::Ready(None),
            Projected::Text { text } => {
                let text = std::mem::take(text);
                Poll::Ready(Some(Ok(Frame::data(text.into()))))
            }
            Projected::Inner { mut body, guard } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                let has_ended = match &frame {
                    None | Some(Err(_)) => true,
                    Some(Ok(_)) => body.is_end_stream(),
                };
                if has_ended {
                    *guard = None;
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Inner { body, .. } => body.is_end_stream(),
            State::Text { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Inner { body, .. } => body.size_hint(),
            State::Text { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
