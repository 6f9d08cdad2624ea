//! A response's body that holds something until it ends.
//!
//! # Invariant
//!
//! What is held is let go of when the body says that it ends, fails, or is dropped: whichever comes first,
//! and only once. Frames, lengths and errors are those of the body inside.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::held::Permit;
use crate::turnstile::Turn;

/// The body of a response that went through a [`crate::LimitLayer`].
pub type LimitBody<B> = HeldBody<B, Permit>;

/// The body of a response that went through a [`crate::QueueLayer`].
pub type QueueBody<B> = HeldBody<B, Turn>;

pin_project! {
    /// The inner service's body, or a text of ours in its place.
    ///
    /// It is a [`Body`] if texts can be given as what the inner body is made of: `B::Data: From<Bytes>`, as
    /// it is for the bodies of axum, tonic and hyper.
    #[derive(Debug)]
    pub struct HeldBody<B, H> {
        #[pin]
        state: State<B, H>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = Projected]
    enum State<B, H> {
        Inner {
            #[pin]
            body: B,
            holds: Option<H>,
        },
        Own {
            text: Bytes,
        },
    }
}

impl<B: Body, H> HeldBody<B, H> {
    /// The inner body. If it has ended already, what it would hold is let go of at once.
    pub(crate) fn inner(body: B, holds: Option<H>) -> HeldBody<B, H> {
        let holds = holds.filter(|_| !body.is_end_stream());
        HeldBody {
            state: State::Inner { body, holds },
        }
    }
}

impl<B, H> HeldBody<B, H> {
    /// A text of ours.
    pub(crate) fn own(text: Bytes) -> HeldBody<B, H> {
        HeldBody {
            state: State::Own { text },
        }
    }
}

impl<B, H> Body for HeldBody<B, H>
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
            Projected::Own { text } if text.is_empty() => Poll::Ready(None),
            Projected::Own { text } => {
                let text = std::mem::take(text);
                Poll::Ready(Some(Ok(Frame::data(text.into()))))
            }
            Projected::Inner { mut body, holds } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                let is_over = match &frame {
                    None | Some(Err(_)) => true,
                    Some(Ok(_)) => body.is_end_stream(),
                };
                if is_over {
                    *holds = None;
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Inner { body, .. } => body.is_end_stream(),
            State::Own { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Inner { body, .. } => body.size_hint(),
            State::Own { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
