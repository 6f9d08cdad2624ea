//! Sizes: `65536`, `10MB`, `64KiB`.

use super::super::item::Item;
use super::super::scalar::{NotDigits, plain_digits, text};
use crate::report::{Read, quoted};

/// The largest size that is read: a TiB.
const SIZE_MAX: u64 = 1 << 40;

/// Units and what they stand for.
const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
    ("", 1),
];

/// Reads a number of bytes, at least 1.
pub(super) fn size(node: Item<'_>) -> Read<u64> {
    let text = text(node)?;
    let wrong = |message: String, hint: &str| node.error("bad-size", message, hint);
    const SAMPLE: &str = "write bytes, or a whole number with `KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB` behind it, such as `10MB`";
    let number = text
        .trim_end_matches(|c: char| c.is_alphabetic())
        .trim_end();
    let unit = text.get(number.len()..).unwrap_or_default().trim_start();
    let Some((_, times)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let spelt = |(name, _): &&(&str, u64)| {
            name.eq_ignore_ascii_case(unit)
                || name
                    .strip_suffix('B')
                    .is_some_and(|short| !short.is_empty() && short.eq_ignore_ascii_case(unit))
        };
        return Err(match UNITS.iter().find(spelt) {
            // Bits and bytes, and decimal and binary units, are easily mistaken: the reader asks instead of guessing.
            Some((near, _)) => wrong(
                format!("{} is not a unit of size", quoted(unit)),
                &format!("did you mean `{number}{near}`?"),
            ),
            None => wrong(format!("{} is not a size", quoted(text)), SAMPLE),
        });
    };
    let bytes = match plain_digits(number) {
        Ok(number) => number.checked_mul(*times),
        Err(NotDigits::TooLarge) => None,
        Err(_) => return Err(wrong(format!("{} is not a size", quoted(text)), SAMPLE)),
    };
    match bytes {
        Some(0) => Err(wrong(
            "a size of 0 would refuse every body".into(),
            "write at least `1`, or leave it out for any size",
        )),
        Some(bytes) if bytes <= SIZE_MAX => Ok(bytes),
        _ => Err(wrong(
            format!("{} is above 1024GiB", quoted(text)),
            "write a smaller size, or leave it out for any size",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Place;
    use crate::report::Report;
    use crate::yaml::{Node, Value};

    fn read(text: &str) -> Result<u64, &'static str> {
        let report = Report::new(text);
        let node = Node {
            place: Place::FILE,
            value: Value::Scalar {
                text: text.into(),
                plain: true,
            },
        };
        let found = size(Item::new(&node, &report));
        found.map_err(|_| report.finish("x").iter().next().unwrap().code)
    }

    #[test]
    fn decimal_and_binary_units_differ() {
        for (text, bytes) in [
            ("1", 1),
            ("65_536", 65_536),
            ("7B", 7),
            ("10KB", 10_000),
            ("10KiB", 10_240),
            ("10MB", 10_000_000),
            ("10 MiB", 10_485_760),
            ("2GB", 2_000_000_000),
            ("1024GiB", 1 << 40),
        ] {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "MB",
            "0",
            "0GB",
            "-1",
            "1.5MB",
            "1e6",
            "10mb",
            "10M",
            "10TB",
            "1025GiB",
            "99999999999999999999",
            "18446744073709551615GB",
            "10 0MB",
            "10MB/s",
            "é",
            "_1",
        ] {
            assert_eq!(read(text), Err("bad-size"), "{text}");
        }
    }
}
