//! The codecs, for the fuzz targets. Not part of the interface: it may change at any time.

use crate::codec::{Event, Response};
use crate::plan::LoadPlan;
use crate::target::{Target, TargetProtocol};

/// The content of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Each response, with the number of its request if the protocol has one.
    pub responses: Vec<(Option<u64>, String)>,
    /// The protocol violation that ended reading.
    pub error: Option<String>,
    /// The last response was the last of the connection.
    pub is_last: bool,
    /// Bytes of an incomplete message.
    pub remaining: usize,
}

/// Reads a stream like a connection, in pieces, after this many requests.
pub fn read<'a>(
    protocol: TargetProtocol,
    requests: u64,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<Read> {
    let target = Target::parse(&format!("{}://h", protocol.name())).ok()?;
    let mut codec = LoadPlan::new(Vec::new()).codec(&target).ok()?;
    let mut out = Vec::new();
    codec.start(&mut out);
    (0..requests).for_each(|key| codec.write_request(key, &mut out));
    let (mut bytes, mut all) = (Vec::new(), Read::default());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        let mut used = 0;
        while all.error.is_none() && !all.is_last && used < bytes.len() {
            let rest = bytes.get(used..).unwrap_or_default();
            match codec.read(rest, &mut out) {
                Ok(Event::Incomplete) => break,
                Ok(Event::Skip(size)) => used += size,
                Ok(Event::Response(Response {
                    len,
                    request,
                    judgement,
                    is_last,
                })) => {
                    all.responses.push((request, format!("{judgement:?}")));
                    (used, all.is_last) = (used + len, is_last);
                }
                Err(error) => all.error = Some(error.problem),
            }
        }
        bytes.drain(..used.min(bytes.len()));
    }
    all.remaining = bytes.len();
    Some(all)
}
