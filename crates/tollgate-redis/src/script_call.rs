//! A script with its keys and arguments, ready to be sent.

use std::fmt::Display;
use std::io::Write;

use crate::script::Scripts;

/// The scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ScriptName {
    /// One token bucket: most requests.
    OneBucket,
    /// Two token buckets, all or none.
    TwoBuckets,
    /// Three token buckets, all or none.
    ThreeBuckets,
    /// Four token buckets, all or none.
    FourBuckets,
    /// Any number of token buckets, all enforced.
    Buckets,
    /// Any number of limits of any kind, all or none.
    AnyLimits,
    /// Corrects one charge: refunds it, or charges usage that is known afterwards.
    Settle,
    /// Moves a key's usage from the former numbers of its limit to the present ones.
    Migrate,
    /// Reports that this node is alive, and returns how many are and the secret that they share.
    Heartbeat,
    /// Records that an identifier is used, once.
    RecordUse,
    /// Forgets what is counted for a key.
    Forget,
}

impl ScriptName {
    /// All of them.
    pub(crate) const ALL: [ScriptName; 11] = [
        ScriptName::OneBucket,
        ScriptName::TwoBuckets,
        ScriptName::ThreeBuckets,
        ScriptName::FourBuckets,
        ScriptName::Buckets,
        ScriptName::AnyLimits,
        ScriptName::Settle,
        ScriptName::Migrate,
        ScriptName::Heartbeat,
        ScriptName::RecordUse,
        ScriptName::Forget,
    ];
}

/// One call. All its keys are in one slot.
///
/// The first argument of a script is the number of the call, which is not among `args`. The first element of the reply is that
/// number, so a reply can never be taken for another's.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) script: ScriptName,
    pub(crate) keys: Arguments,
    pub(crate) args: Arguments,
}

impl ScriptCall {
    /// The command that runs the script under this number: by its hash, or by its whole text.
    pub(crate) fn command(&self, scripts: &Scripts, number: u64, whole: bool) -> redis::Cmd {
        let mut command = redis::cmd(if whole { "EVAL" } else { "EVALSHA" });
        command.arg(if whole {
            scripts.text(self.script)
        } else {
            scripts.sha(self.script)
        });
        command.arg(self.keys.len());
        for key in self.keys.iter() {
            command.arg(key);
        }
        command.arg(number);
        for arg in self.args.iter() {
            command.arg(arg);
        }
        command
    }
}

/// Texts in one buffer: a call has a dozen short ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Arguments {
    /// Adds a text.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.end();
    }

    /// Adds a number in digits.
    pub(crate) fn push_number(&mut self, number: impl Display) {
        // Writing to a vector does not fail.
        let _ = write!(self.bytes, "{number}");
        self.end();
    }

    /// Adds numbers in one text, eight bytes each, the least significant first.
    pub(crate) fn push_packed(&mut self, numbers: &[i64]) {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        self.bytes.extend(bytes);
        self.end();
    }

    fn end(&mut self) {
        let end = u32::try_from(self.bytes.len());
        self.ends.push(end.unwrap_or(u32::MAX));
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
    fn arguments_are_returned_in_order() {
        let mut arguments = Arguments::default();
        arguments.push(b"tg:{a}");
        arguments.push(b"");
        for number in [0, -7, 10, i128::from(u64::MAX)] {
            arguments.push_number(number);
        }
        let all: Vec<&[u8]> = arguments.iter().collect();
        assert_eq!(
            all,
            [
                &b"tg:{a}"[..],
                b"",
                b"0",
                b"-7",
                b"10",
                b"18446744073709551615"
            ]
        );
        assert_eq!(arguments.len(), 6);
    }
}
