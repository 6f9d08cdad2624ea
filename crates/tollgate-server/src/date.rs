//! Formats the `Date` header field.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Length of a date in bytes.
pub(crate) const DATE_BYTES: usize = 29;

/// The date of a second since 1970. Each thread formats it once a second.
pub(crate) fn http_date(second: u64) -> [u8; DATE_BYTES] {
    thread_local! {
        static LAST: Cell<(u64, [u8; DATE_BYTES])> = const { Cell::new((u64::MAX, [0; DATE_BYTES])) };
    }
    let (last, text) = LAST.get();
    if last == second {
        return text;
    }
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
    let text = text
        .as_bytes()
        .try_into()
        .unwrap_or(*b"Thu, 01 Jan 1970 00:00:00 GMT");
    LAST.set((second, text));
    text
}

/// The current date.
#[expect(
    clippy::disallowed_methods,
    reason = "the date of a response is for caches; no decision depends on it"
)]
pub(crate) fn http_date_now() -> [u8; DATE_BYTES] {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    http_date(since.map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_has_the_form_of_rfc_9110() {
        assert_eq!(&http_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&http_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&http_date(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
