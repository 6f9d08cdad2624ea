//! Handles `/v1/settle`, and ends the reservations that it settles.

use bytes::Bytes;
use hyper::StatusCode;
use tollgate::{Algorithm, Clock, Span};
use tollgate_policy::shared::{SharedStore, StoreFault};
use tollgate_policy::{Op, PolicyDecision, Quota, Reservation, Settlement};

use super::problems::{Problem, problem};
use super::request::{Settle, read};
use super::reservations::token::Token;
use super::reservations::{LIFE, new_name, read_name};
use super::{HttpApi, write_json};
use crate::decision_view::Reserved;
use crate::engine::ActivePolicy;
use crate::net::http1::fast_path::PendingResponse;
use crate::net::http1::response::ResponseBuffer;

/// How long the store records that a reservation is settled: longer than [`LIFE`], because the clocks of two nodes differ.
const SETTLED_FOR: Span = Span::from_secs(660);

/// Why a reservation is not settled.
#[derive(Debug)]
pub(crate) enum SettleError {
    /// It is not known at this node, and no node of the fleet issued it for all.
    Unknown,
    /// It was settled before.
    Settled,
    /// It is too old.
    Expired,
    /// The store cannot record that it is settled.
    Store(Option<StoreFault>),
}

impl SettleError {
    /// Status and explanation.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            SettleError::Unknown => (
                StatusCode::NOT_FOUND,
                "there is no such reservation: it was settled already, is older than ten minutes, or was made at another node"
                    .into(),
            ),
            SettleError::Settled => (
                StatusCode::CONFLICT,
                "this reservation was settled already".into(),
            ),
            SettleError::Expired => (
                StatusCode::GONE,
                "this reservation is older than ten minutes; what it took stays taken".into(),
            ),
            SettleError::Store(fault) => {
                let cause = match fault {
                    Some(fault) => format!("the store does not respond ({fault})"),
                    None => "this node has not reached the store yet".into(),
                };
                let detail = format!("{cause}, and a reservation is settled there; try again");
                (StatusCode::SERVICE_UNAVAILABLE, detail)
            }
        }
    }
}

impl HttpApi {
    /// `/v1/settle`.
    pub(super) fn settle_body(&self, body: Bytes) -> PendingResponse {
        let service = self.clone();
        Box::pin(async move {
            let settle: Settle<'_> = match read(&body) {
                Ok(settle) => settle,
                Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
            };
            let how = match (settle.cancel, settle.actual) {
                (true, _) => Settlement::Cancelled,
                (false, Some(actual)) => Settlement::Actual(actual),
                (false, None) => Settlement::Done,
            };
            let unpaid = match service.settle(&settle.reservation, how).await {
                Ok(unpaid) => unpaid,
                Err(error) => {
                    let (status, detail) = error.problem();
                    return problem(status, &detail);
                }
            };
            let mut response = ResponseBuffer::default();
            response.set_media("application/json");
            write_json(&mut response, &serde_json::json!({ "unpaid": unpaid }));
            response
        })
    }

    /// Settles a reservation. Returns what could not be taken.
    ///
    /// # Errors
    /// It is unknown, settled or too old, or the store cannot be asked.
    pub(crate) async fn settle(&self, text: &str, how: Settlement) -> Result<u64, SettleError> {
        let now = self.engine().active().gate.clock().now();
        if let Some(name) = read_name(text) {
            let reservation = self.0.reservations.take(name, now);
            return Ok(finish(reservation.ok_or(SettleError::Unknown)?, how).await);
        }
        let store = self.engine().active().gate.store().cloned();
        let store = store.ok_or(SettleError::Unknown)?;
        let secret = store.fleet_secret().ok_or(SettleError::Store(None))?;
        let token = Token::decode(text, &secret).ok_or(SettleError::Unknown)?;
        if now >= token.expires {
            return Err(SettleError::Expired);
        }
        let service = self.clone();
        // Runs to its end although the caller leaves: what is recorded as settled cannot be settled again.
        let settled = tokio::spawn(async move { service.settle_token(&*store, token, how).await });
        settled.await.unwrap_or(Err(SettleError::Store(None)))
    }

    async fn settle_token(
        &self,
        store: &dyn SharedStore,
        token: Token,
        how: Settlement,
    ) -> Result<u64, SettleError> {
        let recorded = store.record_use(token.id, SETTLED_FOR).await;
        if !recorded.map_err(|fault| SettleError::Store(Some(fault)))? {
            return Err(SettleError::Settled);
        }
        let policy = self.engine().active_owned();
        let now = policy.gate.clock().now();
        let reservation = match self.0.reservations.take(token.id, now) {
            Some(reservation) => reservation,
            None => policy.gate.restore_reservation(token.taken),
        };
        Ok(finish(reservation, how).await)
    }

    /// Makes a reservation if the caller requested one, or if the charges include a permit, which only the caller can release.
    pub(crate) fn reserve(
        &self,
        policy: &ActivePolicy,
        is_wanted: bool,
        answer: &PolicyDecision,
        op: Op,
    ) -> Reserved {
        let gate = &policy.gate;
        let is_permit =
            |quota: &Quota| matches!(quota.limit.algorithm(), Algorithm::Concurrency { .. });
        let has_permit = || {
            let mut quotas = answer.charges.iter().filter_map(|c| gate.quota(c.limit));
            quotas.any(is_permit)
        };
        let is_taken = op == Op::Charge && answer.is_admitted();
        match (is_wanted, is_taken) {
            (true, false) => return Reserved::Nothing,
            (false, false) => return Reserved::NotRequested,
            (false, true) if !has_permit() => return Reserved::NotRequested,
            (_, true) => {}
        }
        let reservation = gate.reserve(answer);
        if reservation.is_empty() {
            return Reserved::Nothing;
        }
        let Some(name) = new_name() else {
            return Reserved::Full;
        };
        let now = answer.issued;
        let token = token(policy, name, &reservation);
        let reservations = &self.0.reservations;
        match reservations.insert(name, reservation, token.is_some(), now) || token.is_some() {
            true => Reserved::Stored(name, token),
            false => Reserved::Full,
        }
    }
}

/// The token of a reservation, if a store that the fleet shares has taken anything for it.
fn token(policy: &ActivePolicy, id: u128, reservation: &Reservation) -> Option<Box<str>> {
    let secret = policy.gate.store()?.fleet_secret()?;
    let taken = policy.gate.taken_units(reservation);
    let expires = policy.gate.clock().now().plus(LIFE);
    let token = Token { id, expires, taken };
    let text = (!token.taken.is_empty()).then(|| token.encode(&secret))?;
    text.map(String::into_boxed_str)
}

async fn finish(reservation: Reservation, how: Settlement) -> u64 {
    match reservation.is_shared() {
        true => reservation.settle_everywhere(how).await,
        false => reservation.settle(how),
    }
}
