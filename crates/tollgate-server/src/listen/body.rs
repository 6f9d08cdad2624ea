//! Bodies: bounded in size and in time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};
use tokio::time::timeout;

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// Its size.
    pub(crate) bytes: usize,
    /// How long its parts may take, all together.
    pub(crate) time: Duration,
    /// How long a body that nobody wants is read, so that the connection can be kept.
    pub(crate) unwanted: Duration,
}

impl Default for BodyLimits {
    fn default() -> BodyLimits {
        BodyLimits {
            bytes: 64 * 1024,
            time: Duration::from_secs(10),
            unwanted: Duration::from_secs(1),
        }
    }
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// It is larger than it may be.
    TooLarge,
    /// It takes longer than it may.
    TooSlow,
    /// The client broke off, or its chunks make no sense.
    Broken,
}

/// The whole body. One that came with its head is not copied, and no timer is made for it.
pub(crate) async fn read_body(mut body: Incoming, limits: BodyLimits) -> Result<Bytes, BodyFault> {
    if body.size_hint().lower() > limits.bytes as u64 {
        return Err(BodyFault::TooLarge);
    }
    let mut whole = Bytes::new();
    // What is there already.
    loop {
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
        match polled {
            Poll::Ready(None) => return Ok(whole),
            Poll::Ready(Some(frame)) => append(&mut whole, frame, limits)?,
            Poll::Pending if body.is_end_stream() => return Ok(whole),
            Poll::Pending => break,
        }
    }
    let rest = async {
        let mut gathered = BytesMut::from(whole);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|_| BodyFault::Broken)?;
            if let Ok(part) = frame.into_data() {
                if gathered.len() + part.len() > limits.bytes {
                    return Err(BodyFault::TooLarge);
                }
                gathered.extend_from_slice(&part);
            }
        }
        Ok(gathered.freeze())
    };
    timeout(limits.time, rest)
        .await
        .unwrap_or(Err(BodyFault::TooSlow))
}

fn append(
    whole: &mut Bytes,
    frame: Result<Frame<Bytes>, hyper::Error>,
    limits: BodyLimits,
) -> Result<(), BodyFault> {
    let Ok(part) = frame.map_err(|_| BodyFault::Broken)?.into_data() else {
        return Ok(());
    };
    if whole.len() + part.len() > limits.bytes {
        return Err(BodyFault::TooLarge);
    }
    if whole.is_empty() {
        *whole = part;
    } else {
        let mut joined = BytesMut::from(std::mem::take(whole));
        joined.extend_from_slice(&part);
        *whole = joined.freeze();
    }
    Ok(())
}

/// Reads a body that nobody wants. False if there is too much of it: the connection cannot be kept.
pub(crate) async fn throw_away(body: Incoming, limits: BodyLimits) -> bool {
    if body.is_end_stream() {
        return true;
    }
    let limits = BodyLimits {
        time: limits.unwanted,
        ..limits
    };
    read_body(body, limits).await.is_ok()
}
