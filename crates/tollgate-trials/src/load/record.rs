//! The result of one request.

use std::time::Duration;

use serde_json::Value;

/// A request, and its answer if one came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The number of its client.
    pub client: usize,
    /// Its scheduled time, since the start of the load.
    pub scheduled: Duration,
    /// When it was sent: later than scheduled only on a busy machine.
    pub sent: Duration,
    /// When its answer arrived, if any.
    pub answered: Option<Duration>,
    /// The status; 0 without an answer.
    pub status: u16,
    /// Whether it may pass, now or after a wait.
    pub admitted: bool,
    /// Whether the service decided without its store.
    pub degraded: bool,
    /// The remaining units in the answer.
    pub remaining: Option<u64>,
}

impl Record {
    /// How long the answer took, from the scheduled time.
    pub fn latency(&self) -> Option<Duration> {
        self.answered.map(|at| at.saturating_sub(self.scheduled))
    }

    /// How late the load itself was.
    pub fn delay(&self) -> Duration {
        self.sent.saturating_sub(self.scheduled)
    }
}

/// A response of `/v1/check`.
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
        let json: Value = serde_json::from_slice(body).ok()?;
        let verdict = json.get("verdict")?.as_str()?;
        Some(CheckResponse {
            admitted: matches!(verdict, "pass" | "wait"),
            degraded: json.get("degraded").and_then(Value::as_bool) == Some(true),
            remaining: json.get("remaining").and_then(Value::as_u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_anything_else_is_none() {
        let body = br#"{"verdict":"pass","limit":"org","degraded":true,"remaining":7}"#;
        let expected = CheckResponse {
            admitted: true,
            degraded: true,
            remaining: Some(7),
        };
        assert_eq!(CheckResponse::read(body), Some(expected));
        let refused = CheckResponse::read(br#"{"verdict":"refuse","remaining":null}"#);
        assert_eq!(refused, Some(CheckResponse::default()));
        assert_eq!(CheckResponse::read(b"<html>"), None);
    }
}
