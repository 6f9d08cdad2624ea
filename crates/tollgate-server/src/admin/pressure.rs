//! Scales all limits on request of an operator, for a limited time: `POST /pressure` and `DELETE /pressure`.

use std::net::IpAddr;

use serde::Deserialize;
use tollgate::{Scale, Span};

use super::response::{AdminResponse, ProblemDetails, json};
use crate::engine::Engine;

pub(super) const HINT: &str =
    r#"send {"scale": "50%", "for": "10m"}; "scale" from 0.01% to 100%, "for" from 1s to 24h"#;

const SHORTEST: Span = Span::from_secs(1);
/// A longer change belongs into the policy.
const LONGEST: Span = Span::from_secs(24 * 3600);

/// The body of `POST /pressure`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldBody {
    scale: String,
    #[serde(rename = "for")]
    lasts: String,
}

/// Holds the scale that the body requests for the time that it requests.
pub(super) fn hold(
    engine: &Engine,
    body: HoldBody,
    peer: IpAddr,
) -> Result<AdminResponse, ProblemDetails> {
    let HoldBody { scale, lasts } = body;
    let bad = |detail: String| ProblemDetails::bad_request("bad-pressure", detail, HINT);
    let wanted = share(&scale).ok_or_else(|| {
        bad(format!(
            "`{}` is not a share from 0.01% to 100%",
            scale.escape_debug()
        ))
    })?;
    let span: Span = lasts
        .parse()
        .map_err(|error| bad(format!("`{}`: {error}", lasts.escape_debug())))?;
    if !(SHORTEST..=LONGEST).contains(&span) {
        return Err(bad(format!(
            "`{}` is not from 1s to 24h",
            lasts.escape_debug()
        )));
    }
    let (before, pressure) = engine.hold_pressure(wanted, span);
    tracing::warn!(
        target: "tollgate::audit", actor = %peer, action = "pressure",
        old = %before, new = %pressure.scale, lasts = %span, "limits scaled by operator"
    );
    Ok(json(&pressure))
}

/// Ends a held scale: pressure control is automatic again.
pub(super) fn release(engine: &Engine, peer: IpAddr) -> AdminResponse {
    let (was_held, pressure) = engine.release_pressure();
    tracing::warn!(
        target: "tollgate::audit", actor = %peer, action = "pressure",
        old = if was_held { "held" } else { "automatic" }, new = "automatic", scale = %pressure.scale,
        "pressure control: automatic"
    );
    json(&pressure)
}

/// Parses a share from 0.01% to 100%, with at most two decimals.
fn share(text: &str) -> Option<Scale> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| {
        let is_number = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse::<u32>().ok()).flatten()
    };
    let hundredths = match part.len() {
        1 => digits(part)? * 10,
        2 => digits(part)?,
        _ => return None,
    };
    let share = digits(whole)? * 100 + hundredths;
    (1..=10_000)
        .contains(&share)
        .then(|| Scale::from_share(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_at_most_two_decimals_and_is_at_most_100_percent() {
        for (text, due) in [
            ("50%", Some(5_000)),
            ("12.5%", Some(1_250)),
            (" 0.01 %", Some(1)),
            ("100%", Some(10_000)),
            ("100.00%", Some(10_000)),
            ("0%", None),
            ("100.01%", None),
            ("101%", None),
            ("9999999999%", None),
            ("-5%", None),
            ("+5%", None),
            ("5", None),
            ("%", None),
            (".5%", None),
            ("5.%", None),
            ("5.125%", None),
            ("1e1%", None),
            ("٥٠%", None),
        ] {
            assert_eq!(share(text), due.map(Scale::from_share), "{text}");
        }
    }
}
