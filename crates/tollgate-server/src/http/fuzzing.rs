//! The JSON of decisions without its sockets, for the fuzz targets.

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http_body_util::BodyExt;

use super::ask::{Batch, Settle};
use super::*;

/// What stands in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One question.
    Ask,
    /// Several.
    Batch,
    /// The end of a reservation.
    Settle,
}

/// What was read of a body, as text.
///
/// # Errors
/// What is wrong with it.
pub fn read(kind: Kind, body: &[u8]) -> Result<String, String> {
    match kind {
        Kind::Ask => ask::read::<Ask<'_>>(body).map(|ask| format!("{ask:?}")),
        Kind::Batch => ask::read::<Batch<'_>>(body).map(|batch| format!("{batch:?}")),
        Kind::Settle => ask::read::<Settle<'_>>(body).map(|settle| format!("{settle:?}")),
    }
}

/// A door that nobody else comes through.
#[derive(Debug)]
pub struct Door {
    service: Service,
    // A door ends when nobody can stop it any more.
    _stop: watch::Sender<bool>,
}

impl Door {
    /// Opens one by this policy.
    pub fn open(policy: &str) -> Door {
        let (stop, stopped) = watch::channel(false);
        Door {
            service: Service::new(crate::engine::for_tests(policy), stopped),
            _stop: stop,
        }
    }

    /// The answer to a body: its status and its body. None if it would wait, which it must not without a shared store.
    pub fn answer(&self, kind: Kind, body: &[u8]) -> Option<(u16, Bytes)> {
        let door = &*self.service.0;
        let answered = async {
            let answer = match kind {
                Kind::Ask => door.check(body, true).await,
                Kind::Batch => door.check_batch(body).await,
                Kind::Settle => door.settle(body).await,
            };
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await;
            (status, body.map(|body| body.to_bytes()).unwrap_or_default())
        };
        let polled = pin!(answered).poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// The same question in the lane of common requests: what is written to the client, if it is answered there.
    pub fn answer_briskly(&self, body: &[u8]) -> Option<Vec<u8>> {
        let plain = Plain {
            method: "POST",
            target: "/v1/check",
            headers: &[],
            body,
        };
        let mut sheets = Sheets::default();
        match self
            .service
            .0
            .brisk(&plain, Ipv4Addr::LOCALHOST.into(), &mut sheets)
        {
            Brisk::Answered => Some(sheets.out),
            Brisk::Declined | Brisk::Later { .. } => None,
        }
    }
}
