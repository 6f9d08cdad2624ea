//! What became of one request.

use std::time::Duration;

use serde_json::Value;

/// A request, and its answer if one came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whose it is: the number of the client.
    pub client: usize,
    /// When it was to be sent, since the load began.
    pub scheduled: Duration,
    /// When the load got to it: later than that only on a busy machine.
    pub sent: Duration,
    /// When its answer was there; none if none came.
    pub answered: Option<Duration>,
    /// The status; 0 without an answer.
    pub status: u16,
    /// Whether it may pass, now or after a wait.
    pub admitted: bool,
    /// Whether the service decided without its store.
    pub degraded: bool,
    /// What was told to be left.
    pub remaining: Option<u64>,
}

impl Record {
    /// How long the answer took, from when the request was to be sent.
    pub fn latency(&self) -> Option<Duration> {
        self.answered.map(|at| at.saturating_sub(self.scheduled))
    }

    /// How late the load itself was.
    pub fn delay(&self) -> Duration {
        self.sent.saturating_sub(self.scheduled)
    }
}

/// What an answer of `/v1/check` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckResponse {
    /// Whether the request may pass, now or after a wait.
    pub admitted: bool,
    /// Whether it was decided without the store.
    pub degraded: bool,
    /// What is left.
    pub remaining: Option<u64>,
}

impl CheckResponse {
    /// Reads the body of an answer; nothing if it is none.
    pub fn read(body: &[u8]) -> Option<CheckResponse> {
        let said: Value = serde_json::from_slice(body).ok()?;
        let verdict = said.get("verdict")?.as_str()?;
        Some(CheckResponse {
            admitted: matches!(verdict, "pass" | "wait"),
            degraded: said.get("degraded").and_then(Value::as_bool) == Some(true),
            remaining: said.get("remaining").and_then(Value::as_u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_anything_else_is_none() {
        let body = br#"{"verdict":"pass","limit":"org","degraded":true,"remaining":7}"#;
        let told = CheckResponse {
            admitted: true,
            degraded: true,
            remaining: Some(7),
        };
        assert_eq!(CheckResponse::read(body), Some(told));
        let refused = CheckResponse::read(br#"{"verdict":"refuse","remaining":null}"#);
        assert_eq!(refused, Some(CheckResponse::default()));
        assert_eq!(CheckResponse::read(b"<html>"), None);
    }
}
