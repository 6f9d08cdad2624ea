//! Reads request bodies that hyper receives, bounded in size and time.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

/// Bounds of a request body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: usize,
    /// Until its last byte.
    pub(crate) time: Duration,
    /// Until the last byte of a body that is discarded, so that the connection can be kept.
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
pub(crate) enum BodyError {
    /// It exceeds [`BodyLimits::bytes`].
    TooLarge,
    /// It takes longer than [`BodyLimits::time`].
    TooSlow,
    /// The client disconnected, or its chunks are malformed.
    Broken,
}

/// Reads a whole body. One that arrived with its head is not copied.
pub(crate) async fn read_body(body: Incoming, limits: BodyLimits) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > limits.bytes as u64 {
        return Err(BodyError::TooLarge);
    }
    let collected = timeout(limits.time, Limited::new(body, limits.bytes).collect()).await;
    match collected {
        Err(_) => Err(BodyError::TooSlow),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Broken),
    }
}

/// Reads and discards a body. False if it exceeds its bounds: the connection cannot be kept.
pub(crate) async fn discard_body(body: Incoming, limits: BodyLimits) -> bool {
    if body.is_end_stream() {
        return true;
    }
    let limits = BodyLimits {
        time: limits.unwanted,
        ..limits
    };
    read_body(body, limits).await.is_ok()
}
