//! A script with its keys and arguments, ready to be sent.

/// Which script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    /// One token bucket: most requests.
    One,
    /// Two of them, all or none.
    Two,
    /// Three.
    Three,
    /// Four.
    Four,
    /// Any number of token buckets, all enforced.
    Buckets,
    /// Any number of limits of any kind, all or none.
    Any,
    /// Corrects one charge: gives back, or takes what was used already.
    Settle,
    /// Moves a key's usage from the limit that it was to the one that it is.
    Move,
    /// Tells that this node is alive, and how many are.
    Beat,
}

impl Which {
    /// All of them.
    pub(crate) const ALL: [Which; 9] = [
        Which::One,
        Which::Two,
        Which::Three,
        Which::Four,
        Which::Buckets,
        Which::Any,
        Which::Settle,
        Which::Move,
        Which::Beat,
    ];
}

/// One call. All its keys are in one slot.
///
/// The first argument that a script gets is a number that the link makes up (it is not among `args`); the
/// first element of its reply is that number, so that a reply can never be taken for another's.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: Which,
    pub(crate) keys: Texts,
    pub(crate) args: Texts,
}

/// Texts in one buffer: a call has a dozen short ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    /// Adds one that `write` appends.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    /// Adds one.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(text));
    }

    /// Adds a number in digits.
    pub(crate) fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let (mut at, mut left) = (digits.len(), number);
        loop {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + (left % 10) as u8;
            }
            left /= 10;
            if left == 0 || at == 0 {
                break;
            }
        }
        self.push(digits.get(at..).unwrap_or_default());
    }

    /// Adds numbers in one text, eight bytes each, the least first.
    pub(crate) fn push_packed(&mut self, numbers: &[i64]) {
        self.push_with(|bytes| {
            for number in numbers {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        });
    }

    /// Adds a number that may be below zero.
    pub(crate) fn push_signed(&mut self, number: i128) {
        use std::io::Write;
        self.push_with(|bytes| {
            // Writing to a vector does not fail.
            let _ = write!(bytes, "{number}");
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends.iter().map(move |end| {
            let end = *end as usize;
            let text = self.bytes.get(from..end).unwrap_or_default();
            from = end;
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_out_as_they_went_in() {
        let mut texts = Texts::default();
        texts.push(b"tg:{a}");
        texts.push(b"");
        for number in [0, 7, 10, u64::MAX] {
            texts.push_number(number);
        }
        let out: Vec<&[u8]> = texts.iter().collect();
        assert_eq!(
            out,
            [
                &b"tg:{a}"[..],
                b"",
                b"0",
                b"7",
                b"10",
                b"18446744073709551615"
            ]
        );
        assert_eq!(texts.len(), 6);
    }
}
