//! Finds where requests begin and end in the bytes of a connection.
//!
//! # Theory
//!
//! A [`RequestFramer`] is fed with what a client sends and hands out what the parser behind it may see: complete heads that
//! [`head::check`] accepts, and bodies exactly as long as their heads state. After the first error it hands out nothing
//! more of the client.
//!
//! An invalid head is replaced by a request of the framer's own, with a method that no client can use: a client that sends
//! it is refused in the same way. So the response to an error follows the responses to all earlier requests.
//!
//! Malformed chunks are an error inside a request. While nothing of that request was handed out, it is replaced as a
//! whole: the response is 400, and neither a limit nor an upstream sees it. Later, only the connection can fail: the
//! request was admitted and charged, and an upstream may have seen a part of it.
//!
//! # Invariant
//!
//! What was handed out is a sequence of complete requests and at most one incomplete one.

use bytes::{Buf, BytesMut};

use super::head::{self, BodyKind, HEAD_BYTES, HeadError};

/// Method of the request that stands for an error. Its path is the number of the error.
pub(crate) const BAD_REQUEST_METHOD: &str = "TOLLGATE-BAD-REQUEST";

/// Bytes of the line before a chunk.
const CHUNK_LINE_BYTES: usize = 256;
/// Bytes of all lines after the last chunk.
const TRAILER_BYTES: usize = 8 * 1024;

/// Frames the requests of one connection.
#[derive(Debug)]
pub(crate) struct RequestFramer {
    state: State,
    /// Checked bytes that the parser has not read yet.
    pub(crate) ready: BytesMut,
    /// Bytes of the current request that were put into `ready`.
    request_bytes: usize,
    /// An incomplete head, or what follows a request that may begin a tunnel.
    held: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// This many bytes of a body are missing.
    Length(u64),
    Chunks(ChunkState),
    /// Whether this is a tunnel is decided by the response.
    Held,
    Tunnel,
    /// Further bytes are discarded.
    Over,
}

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// In the digits of a size: its value and number of digits so far.
    Size(u64, u8),
    /// In an extension: the size, and the bytes of the extension so far.
    Extension(u64, usize),
    /// Before the LF that ends the line of a size.
    SizeEnd(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk; bytes of such lines so far.
    Trailer(usize),
    TrailerLine(usize),
    TrailerLf(usize),
    LastLf,
}

/// The chunks of a body are malformed, and a part of the request was handed out.
#[derive(Debug)]
pub(crate) struct BadChunks;

impl RequestFramer {
    pub(crate) fn new() -> RequestFramer {
        RequestFramer {
            state: State::Head,
            ready: BytesMut::new(),
            request_bytes: 0,
            held: BytesMut::new(),
        }
    }

    /// Does it wait for [`RequestFramer::decide`]?
    pub(crate) fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Is there room for bytes that arrive before the decision?
    pub(crate) fn has_room(&self) -> bool {
        self.held.len() < HEAD_BYTES
    }

    /// Is the connection a tunnel?
    pub(crate) fn is_tunnel(&self) -> bool {
        self.state == State::Tunnel
    }

    /// Are further bytes discarded?
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Decides whether the last request began a tunnel.
    pub(crate) fn decide(&mut self, is_tunnel: bool) -> Result<(), BadChunks> {
        if self.state != State::Held {
            return Ok(());
        }
        self.state = if is_tunnel {
            State::Tunnel
        } else {
            State::Head
        };
        let held = std::mem::take(&mut self.held);
        self.feed(&held)
    }

    /// Takes what the client sent.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), BadChunks> {
        while !bytes.is_empty() {
            match self.state {
                State::Head => bytes = self.feed_head(bytes),
                State::Length(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let (body, rest) = bytes.split_at(most.min(bytes.len()));
                    self.hand_out(body);
                    let left = left - body.len() as u64;
                    self.state = if left == 0 {
                        State::Head
                    } else {
                        State::Length(left)
                    };
                    bytes = rest;
                }
                State::Chunks(chunks) => bytes = self.feed_chunks(chunks, bytes)?,
                State::Held => {
                    self.held.extend_from_slice(bytes);
                    return Ok(());
                }
                State::Tunnel => {
                    self.hand_out(bytes);
                    return Ok(());
                }
                State::Over => return Ok(()),
            }
        }
        Ok(())
    }

    /// Puts checked bytes of the current request where the parser reads them.
    fn hand_out(&mut self, bytes: &[u8]) {
        self.ready.extend_from_slice(bytes);
        self.request_bytes = self.request_bytes.saturating_add(bytes.len());
    }

    /// Returns what follows the head, if it ends here.
    fn feed_head<'b>(&mut self, mut bytes: &'b [u8]) -> &'b [u8] {
        if self.held.is_empty() {
            // Some clients end bodies with an empty line. It means nothing.
            while let [b'\r', b'\n', rest @ ..] = bytes {
                bytes = rest;
            }
            match end_of_head(bytes, 0) {
                Ok(Some(end)) if end <= HEAD_BYTES => {
                    let (head, rest) = bytes.split_at(end.min(bytes.len()));
                    self.end_head(head);
                    return rest;
                }
                Ok(Some(_)) => self.refuse(HeadError::HeadTooLarge),
                Ok(None) => self.hold_head(bytes),
                Err(error) => self.refuse(error),
            }
            return &[];
        }
        let before = self.held.len();
        self.held.extend_from_slice(bytes);
        if before == 1 && self.held.starts_with(b"\r\n") {
            self.held.advance(2);
            let held = std::mem::take(&mut self.held);
            // Nothing is held any more, and the rest lies within `bytes`.
            let rest = bytes.len() - held.len();
            return bytes.get(rest..).unwrap_or_default();
        }
        // The last line may have begun before.
        match end_of_head(&self.held, before.saturating_sub(3)) {
            Ok(Some(end)) if end <= HEAD_BYTES => {
                let head = self.held.split_to(end);
                let rest = self.held.len();
                self.held.clear();
                self.end_head(&head);
                let rest = bytes.len().saturating_sub(rest);
                return bytes.get(rest..).unwrap_or_default();
            }
            Ok(Some(_)) => self.refuse(HeadError::HeadTooLarge),
            Ok(None) if self.held.len() >= HEAD_BYTES => self.refuse(HeadError::HeadTooLarge),
            Ok(None) => {}
            Err(error) => self.refuse(error),
        }
        &[]
    }

    fn hold_head(&mut self, bytes: &[u8]) {
        if bytes.len() >= HEAD_BYTES {
            self.refuse(HeadError::HeadTooLarge);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    /// Checks a complete head.
    fn end_head(&mut self, head: &[u8]) {
        self.request_bytes = 0;
        match head::check(head) {
            Ok(checked) => {
                self.hand_out(head);
                self.state = State::after(checked.body);
            }
            Err(error) => self.refuse(error),
        }
    }

    /// Hands out a request that stands for the error, and nothing more.
    fn refuse(&mut self, error: HeadError) {
        let number = error as u8;
        let refused = format!(
            "{BAD_REQUEST_METHOD} /{number} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        );
        self.ready.extend_from_slice(refused.as_bytes());
        self.held = BytesMut::new();
        self.state = State::Over;
    }

    /// Replaces the current request, or fails if a part of it was handed out.
    fn refuse_chunks(&mut self) -> Result<(), BadChunks> {
        self.state = State::Over;
        match self.ready.len().checked_sub(self.request_bytes) {
            Some(earlier) => {
                self.ready.truncate(earlier);
                self.refuse(HeadError::BadChunks);
                Ok(())
            }
            None => Err(BadChunks),
        }
    }

    fn feed_chunks<'b>(
        &mut self,
        mut at: ChunkState,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], BadChunks> {
        let mut read = 0;
        while let Some(byte) = bytes.get(read) {
            if let ChunkState::Data(left) = at {
                let most = usize::try_from(left).unwrap_or(usize::MAX);
                let taken = most.min(bytes.len() - read);
                read += taken;
                at = match left - taken as u64 {
                    0 => ChunkState::DataCr,
                    left => ChunkState::Data(left),
                };
                continue;
            }
            read += 1;
            let Some(next) = at.step(*byte) else {
                return self.refuse_chunks().map(|()| -> &[u8] { &[] });
            };
            match next {
                ChunkStep::Next(next) => at = next,
                ChunkStep::End => {
                    let (body, rest) = bytes.split_at(read);
                    self.hand_out(body);
                    self.state = State::Head;
                    return Ok(rest);
                }
            }
        }
        self.hand_out(bytes);
        self.state = State::Chunks(at);
        Ok(&[])
    }
}

impl State {
    fn after(body: BodyKind) -> State {
        match body {
            BodyKind::None => State::Head,
            BodyKind::Length(length) => State::Length(length),
            BodyKind::Chunks => State::Chunks(ChunkState::Size(0, 0)),
            BodyKind::MaybeTunnel => State::Held,
        }
    }
}

enum ChunkStep {
    Next(ChunkState),
    End,
}

impl ChunkState {
    /// The position after one byte; `None` if it is not allowed here.
    fn step(self, byte: u8) -> Option<ChunkStep> {
        let next = |state| Some(ChunkStep::Next(state));
        match (self, byte) {
            (ChunkState::Size(size, digits @ 0..15), byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16)?;
                next(ChunkState::Size(size << 4 | u64::from(digit), digits + 1))
            }
            (ChunkState::Size(size, 1..), b'\r') => next(ChunkState::SizeEnd(size)),
            (ChunkState::Size(size, 1..), b';') => next(ChunkState::Extension(size, 1)),
            (ChunkState::Extension(size, _), b'\r') => next(ChunkState::SizeEnd(size)),
            (ChunkState::Extension(size, seen), byte)
                if seen < CHUNK_LINE_BYTES && (byte == b'\t' || (b' '..0x7f).contains(&byte)) =>
            {
                next(ChunkState::Extension(size, seen + 1))
            }
            (ChunkState::SizeEnd(0), b'\n') => next(ChunkState::Trailer(0)),
            (ChunkState::SizeEnd(size), b'\n') => next(ChunkState::Data(size)),
            (ChunkState::DataCr, b'\r') => next(ChunkState::DataLf),
            (ChunkState::DataLf, b'\n') => next(ChunkState::Size(0, 0)),
            (ChunkState::Trailer(_), b'\r') => next(ChunkState::LastLf),
            // A field name comes first.
            (ChunkState::Trailer(seen), byte) if head::is_token(byte) => {
                next(ChunkState::TrailerLine(seen + 1))
            }
            (ChunkState::TrailerLine(seen), b'\r') => next(ChunkState::TrailerLf(seen)),
            (ChunkState::TrailerLine(seen), byte)
                if seen < TRAILER_BYTES && (byte == b'\t' || (byte >= b' ' && byte != 0x7f)) =>
            {
                next(ChunkState::TrailerLine(seen + 1))
            }
            (ChunkState::TrailerLf(seen), b'\n') => next(ChunkState::Trailer(seen)),
            (ChunkState::LastLf, b'\n') => Some(ChunkStep::End),
            _ => None,
        }
    }
}

/// The length of the head, if its last line is there. Scans lines from `from` on.
pub(crate) fn end_of_head(bytes: &[u8], from: usize) -> Result<Option<usize>, HeadError> {
    let mut at = from;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|b| b.iter().position(|b| *b == b'\n'))
    {
        let end = at + found;
        let before = bytes.get(..end).unwrap_or_default();
        if !before.ends_with(b"\r") {
            return Err(HeadError::LineEnd);
        }
        if before.ends_with(b"\r\n\r") {
            return Ok(Some(end + 1));
        }
        at = end + 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n";

    /// Feeds `bytes` in parts of this size: what was handed out, and whether it failed.
    fn framed(bytes: &[u8], part: usize) -> (String, bool) {
        let mut framer = RequestFramer::new();
        let failed = bytes.chunks(part).any(|part| framer.feed(part).is_err());
        (String::from_utf8_lossy(&framer.ready).into_owned(), failed)
    }

    #[test]
    fn whole_requests_are_given_out_as_they_are_however_they_are_cut() {
        let all = [GET, POST, CHUNKED, GET, CHUNKED, POST].concat();
        for part in 1..all.len() {
            assert_eq!(framed(all.as_bytes(), part), (all.clone(), false), "{part}");
        }
    }

    #[test]
    fn empty_lines_between_requests_are_left_out_however_they_are_cut() {
        let sent = format!("\r\n{POST}\r\n\r\n{GET}");
        for part in 1..sent.len() {
            assert_eq!(
                framed(sent.as_bytes(), part),
                (format!("{POST}{GET}"), false),
                "{part}"
            );
        }
    }

    #[test]
    fn a_wrong_head_is_replaced_and_nothing_behind_it_is_read() {
        let wrong = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        let sent = format!("{POST}{wrong}{GET}");
        for part in 1..sent.len() {
            let (framed, failed) = framed(sent.as_bytes(), part);
            assert!(
                framed.starts_with(&format!("{POST}{BAD_REQUEST_METHOD} /17 ")),
                "{part}"
            );
            assert!(framed.ends_with("connection: close\r\n\r\n"), "{part}");
            assert!(!failed);
        }
    }

    #[test]
    fn a_head_that_does_not_end_is_refused_at_its_bound() {
        let sent = format!("GET / HTTP/1.1\r\na: {}", "x".repeat(HEAD_BYTES));
        for part in [1, 1000, sent.len()] {
            let (framed, _) = framed(sent.as_bytes(), part);
            assert!(
                framed.starts_with(&format!("{BAD_REQUEST_METHOD} /10 ")),
                "{framed}"
            );
        }
    }

    const BAD_CHUNKS: [&str; 18] = [
        "x\r\n",
        "\r\n",
        ";a\r\n",
        " 1\r\n",
        "1 \r\n",
        "+1\r\n",
        "0x1\r\n",
        "1\n",
        "1\r\r",
        "1\r\nab",
        "1\r\na\n",
        "1\r\na\rx",
        "1000000000000000\r\n",
        "0\r\n :\r\n",
        "0\r\n\n",
        "0\r\na: \0\r\n",
        "1;\n\r\n",
        "-1\r\n",
    ];
    const CHUNKED_HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn a_request_with_malformed_chunks_is_replaced_while_nothing_of_it_was_handed_out() {
        for chunks in BAD_CHUNKS {
            let sent = format!("{POST}{CHUNKED_HEAD}{chunks}{GET}");
            for part in 1..sent.len() {
                let (framed, failed) = framed(sent.as_bytes(), part);
                let refused = format!("{POST}{BAD_REQUEST_METHOD} /20 ");
                assert!(framed.starts_with(&refused), "{chunks:?} by {part}");
                assert!(framed.ends_with("connection: close\r\n\r\n"));
                assert!(!failed);
            }
        }
    }

    #[test]
    fn malformed_chunks_fail_the_connection_once_a_part_of_the_request_was_handed_out() {
        for chunks in BAD_CHUNKS {
            let mut framer = RequestFramer::new();
            framer.feed(CHUNKED_HEAD.as_bytes()).unwrap();
            framer.ready.advance(1);
            assert!(framer.feed(chunks.as_bytes()).is_err(), "{chunks:?}");
            assert!(framer.is_over());
        }
    }

    #[test]
    fn what_is_behind_a_request_for_a_tunnel_waits_for_the_decision() {
        let asks = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        for (is_tunnel, then) in [(true, "\x01\x02 anything"), (false, GET)] {
            let mut framer = RequestFramer::new();
            framer.feed(format!("{asks}{then}").as_bytes()).unwrap();
            assert_eq!(framer.ready, asks.as_bytes());
            assert!(framer.is_held());
            framer.decide(is_tunnel).unwrap();
            assert_eq!(framer.ready, format!("{asks}{then}").as_bytes());
        }
    }
}
