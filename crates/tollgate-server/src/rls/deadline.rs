//! How long a caller waits: the header `grpc-timeout`, up to eight digits and a unit.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// How long the caller waits, if it says so in a way that is understood.
pub(super) fn read(of: &MetadataMap) -> Option<Duration> {
    parse(of.get("grpc-timeout")?.to_str().ok()?)
}

/// The same of the text itself.
pub(super) fn parse(text: &str) -> Option<Duration> {
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
        assert_eq!(parse("20m"), Some(Duration::from_millis(20)));
        assert_eq!(parse("5000u"), Some(Duration::from_millis(5)));
        assert_eq!(parse("2S"), Some(Duration::from_secs(2)));
        for wrong in ["", "m", "20", "-5m", "+5m", "123456789m", "5ms", "5é", "é"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
