//! What is read of servers, for the fuzz targets. No part of the interface: it may change at any time.

use crate::codec::{Answer, Step};
use crate::plan::Plan;
use crate::target::{Protocol, Target};

/// What was read of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// What each answer says, and which request it answers if that is told.
    pub answers: Vec<(Option<u64>, String)>,
    /// Why no more is read, if the stream makes no sense.
    pub wrong: Option<String>,
    /// Was this the last answer on the connection?
    pub is_last: bool,
    /// What was not read, because it is not whole.
    pub left: usize,
}

/// Reads answers as a connection does, of pieces that come one after the other. So many were asked before.
pub fn read<'a>(
    protocol: Protocol,
    asked: u64,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<Read> {
    let target = Target::parse(&format!("{}://h", protocol.name())).ok()?;
    let mut codec = Plan::new(Vec::new()).codec(&target).ok()?;
    let mut out = Vec::new();
    codec.greet(&mut out);
    (0..asked).for_each(|key| codec.ask(key, &mut out));
    let (mut bytes, mut all) = (Vec::new(), Read::default());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        let mut used = 0;
        while all.wrong.is_none() && !all.is_last && used < bytes.len() {
            let rest = bytes.get(used..).unwrap_or_default();
            match codec.read(rest, &mut out) {
                Ok(Step::More) => break,
                Ok(Step::Passed(size)) => used += size,
                Ok(Step::Answer(Answer {
                    len,
                    to,
                    verdict,
                    last,
                })) => {
                    all.answers.push((to, format!("{verdict:?}")));
                    (used, all.is_last) = (used + len, last);
                }
                Err(gibberish) => all.wrong = Some(gibberish.what),
            }
        }
        bytes.drain(..used.min(bytes.len()));
    }
    all.left = bytes.len();
    Some(all)
}
