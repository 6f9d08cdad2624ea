//! The `grpc-timeout` header: up to eight digits and a unit.

use std::time::Duration;

/// Parses a `grpc-timeout` value. Returns `None` for anything malformed, which callers treat as no timeout, as tonic
/// does.
pub(crate) fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = is_number.then(|| digits.parse().ok())??;
    match unit {
        "H" => Some(Duration::from_secs(count.checked_mul(3_600)?)),
        "M" => Some(Duration::from_secs(count.checked_mul(60)?)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        assert_eq!(parse_timeout("20m"), Some(Duration::from_millis(20)));
        assert_eq!(parse_timeout("5000u"), Some(Duration::from_millis(5)));
        assert_eq!(parse_timeout("2S"), Some(Duration::from_secs(2)));
        for malformed in ["", "m", "20", "-5m", "+5m", "123456789m", "5ms", "5é", "é"] {
            assert_eq!(parse_timeout(malformed), None, "{malformed}");
        }
    }
}
