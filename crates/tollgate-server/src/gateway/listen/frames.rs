//! Where requests begin and end in the bytes of a connection.
//!
//! # Theory
//!
//! [`Frames`] is fed with what a client sends and gives out what the parser behind it may see: whole heads
//! that [`head::check`] has passed, and bodies exactly as long as their heads say. After the first thing
//! that is wrong nothing of the client is given out any more.
//!
//! A wrong head is replaced by a request of our own, whose method no client can send (one who sends it is
//! refused by the same way). So it is answered in its turn, behind the answers to what came before it.
//! Wrong chunks are inside a request that has begun: there the connection fails.
//!
//! # Invariant
//!
//! What was given out is a sequence of whole requests and at most one that is incomplete.

use bytes::{Buf, BytesMut};

use super::head::{self, Fault, Follows, HEAD_BYTES};

/// The method of the request that stands for a wrong head. Its path is the number of what is wrong.
pub(super) const WRONG: &str = "TOLLGATE-WRONG";

/// Bytes of a line before a chunk, and of all lines behind the last one.
const CHUNK_LINE_BYTES: usize = 256;
const TRAILER_BYTES: usize = 8 * 1024;

/// What may be given out so far, and where the stream stands.
#[derive(Debug)]
pub(super) struct Frames {
    state: State,
    /// What was checked and waits for the parser to read it.
    pub(super) ready: BytesMut,
    /// A head that is not whole yet, or what came behind one that perhaps begins a tunnel.
    held: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of a body are to come.
    Length(u64),
    Chunks(Chunks),
    /// Somebody else decides whether this is a tunnel.
    Held,
    Tunnel,
    /// What comes is thrown away.
    Over,
}

/// Where a body in chunks stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// In the digits of a size: so far, and how many there were.
    Size(u64, u8),
    /// Behind the size, up to the line's end; so many bytes of it were seen.
    Extension(u64, usize),
    /// Before the LF that ends the line of a size.
    SizeEnd(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the beginning of a line behind the last chunk; so many bytes of such lines were seen.
    Trailer(usize),
    TrailerLine(usize),
    TrailerLf(usize),
    LastLf,
}

/// A body whose chunks make no sense.
#[derive(Debug)]
pub(super) struct WrongChunks;

impl Frames {
    pub(super) fn new() -> Frames {
        Frames {
            state: State::Head,
            ready: BytesMut::new(),
            held: BytesMut::new(),
        }
    }

    /// Is a decision about a tunnel awaited?
    pub(super) fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Is there room for what comes while the decision is awaited?
    pub(super) fn has_room(&self) -> bool {
        self.held.len() < HEAD_BYTES
    }

    /// Has the connection become a tunnel?
    pub(super) fn is_tunnel(&self) -> bool {
        self.state == State::Tunnel
    }

    /// Is nothing of the client read any more?
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The decision: is it a tunnel?
    pub(super) fn decide(&mut self, is_tunnel: bool) -> Result<(), WrongChunks> {
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
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), WrongChunks> {
        while !bytes.is_empty() {
            match self.state {
                State::Head => bytes = self.feed_head(bytes),
                State::Length(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let (body, rest) = bytes.split_at(most.min(bytes.len()));
                    self.ready.extend_from_slice(body);
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
                    self.ready.extend_from_slice(bytes);
                    return Ok(());
                }
                State::Over => return Ok(()),
            }
        }
        Ok(())
    }

    /// Returns what stands behind the head, if it ends here.
    fn feed_head<'b>(&mut self, mut bytes: &'b [u8]) -> &'b [u8] {
        if self.held.is_empty() {
            // Empty lines before a request are of clients that end bodies with one. They mean nothing.
            while let [b'\r', b'\n', rest @ ..] = bytes {
                bytes = rest;
            }
            match end_of_head(bytes, 0) {
                Ok(Some(end)) if end <= HEAD_BYTES => {
                    let (head, rest) = bytes.split_at(end.min(bytes.len()));
                    match head::check(head) {
                        Ok(checked) => {
                            self.ready.extend_from_slice(head);
                            self.state = State::behind(checked.follows);
                        }
                        Err(fault) => self.refuse(fault),
                    }
                    return rest;
                }
                Ok(Some(_)) => self.refuse(Fault::HeadTooLarge),
                Ok(None) => self.hold_head(bytes),
                Err(fault) => self.refuse(fault),
            }
            return &[];
        }
        let before = self.held.len();
        self.held.extend_from_slice(bytes);
        if before == 1 && self.held.starts_with(b"\r\n") {
            self.held.advance(2);
            let held = std::mem::take(&mut self.held);
            // At most once: nothing is held any more. The rest is within `bytes`.
            let rest = bytes.len() - held.len();
            return bytes.get(rest..).unwrap_or_default();
        }
        // The line that ends the head may have begun before.
        match end_of_head(&self.held, before.saturating_sub(3)) {
            Ok(Some(end)) if end <= HEAD_BYTES => {
                let head = self.held.split_to(end);
                let rest = self.held.len();
                self.held.clear();
                match head::check(&head) {
                    Ok(checked) => {
                        self.ready.extend_from_slice(&head);
                        self.state = State::behind(checked.follows);
                    }
                    Err(fault) => self.refuse(fault),
                }
                let rest = bytes.len().saturating_sub(rest);
                return bytes.get(rest..).unwrap_or_default();
            }
            Ok(Some(_)) => self.refuse(Fault::HeadTooLarge),
            Ok(None) if self.held.len() >= HEAD_BYTES => self.refuse(Fault::HeadTooLarge),
            Ok(None) => {}
            Err(fault) => self.refuse(fault),
        }
        &[]
    }

    fn hold_head(&mut self, bytes: &[u8]) {
        if bytes.len() >= HEAD_BYTES {
            self.refuse(Fault::HeadTooLarge);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn refuse(&mut self, fault: Fault) {
        let number = fault as u8;
        let wrong = format!("{WRONG} /{number} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        self.ready.extend_from_slice(wrong.as_bytes());
        self.held = BytesMut::new();
        self.state = State::Over;
    }

    fn feed_chunks<'b>(
        &mut self,
        mut at: Chunks,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], WrongChunks> {
        let mut read = 0;
        while let Some(byte) = bytes.get(read) {
            if let Chunks::Data(left) = at {
                let most = usize::try_from(left).unwrap_or(usize::MAX);
                let taken = most.min(bytes.len() - read);
                read += taken;
                at = match left - taken as u64 {
                    0 => Chunks::DataCr,
                    left => Chunks::Data(left),
                };
                continue;
            }
            read += 1;
            let Some(next) = at.step(*byte) else {
                self.state = State::Over;
                return Err(WrongChunks);
            };
            match next {
                Step::Goes(next) => at = next,
                Step::Ends => {
                    let (body, rest) = bytes.split_at(read);
                    self.ready.extend_from_slice(body);
                    self.state = State::Head;
                    return Ok(rest);
                }
            }
        }
        self.ready.extend_from_slice(bytes);
        self.state = State::Chunks(at);
        Ok(&[])
    }
}

impl State {
    fn behind(follows: Follows) -> State {
        match follows {
            Follows::Nothing => State::Head,
            Follows::Length(length) => State::Length(length),
            Follows::Chunks => State::Chunks(Chunks::Size(0, 0)),
            Follows::PerhapsTunnel => State::Held,
        }
    }
}

enum Step {
    Goes(Chunks),
    Ends,
}

impl Chunks {
    /// What one byte leads to; None if it may not stand here.
    fn step(self, byte: u8) -> Option<Step> {
        let goes = |next| Some(Step::Goes(next));
        match (self, byte) {
            (Chunks::Size(size, digits @ 0..15), byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16)?;
                goes(Chunks::Size(size << 4 | u64::from(digit), digits + 1))
            }
            (Chunks::Size(size, 1..), b'\r') => goes(Chunks::SizeEnd(size)),
            (Chunks::Size(size, 1..), b';') => goes(Chunks::Extension(size, 1)),
            (Chunks::Extension(size, _), b'\r') => goes(Chunks::SizeEnd(size)),
            (Chunks::Extension(size, seen), byte)
                if seen < CHUNK_LINE_BYTES && (byte == b'\t' || (b' '..0x7f).contains(&byte)) =>
            {
                goes(Chunks::Extension(size, seen + 1))
            }
            (Chunks::SizeEnd(0), b'\n') => goes(Chunks::Trailer(0)),
            (Chunks::SizeEnd(size), b'\n') => goes(Chunks::Data(size)),
            (Chunks::DataCr, b'\r') => goes(Chunks::DataLf),
            (Chunks::DataLf, b'\n') => goes(Chunks::Size(0, 0)),
            (Chunks::Trailer(_), b'\r') => goes(Chunks::LastLf),
            // A name, or it is no line of a trailer.
            (Chunks::Trailer(seen), byte) if head::is_token(byte) => {
                goes(Chunks::TrailerLine(seen + 1))
            }
            (Chunks::TrailerLine(seen), b'\r') => goes(Chunks::TrailerLf(seen)),
            (Chunks::TrailerLine(seen), byte)
                if seen < TRAILER_BYTES && (byte == b'\t' || (byte >= b' ' && byte != 0x7f)) =>
            {
                goes(Chunks::TrailerLine(seen + 1))
            }
            (Chunks::TrailerLf(seen), b'\n') => goes(Chunks::Trailer(seen)),
            (Chunks::LastLf, b'\n') => Some(Step::Ends),
            _ => None,
        }
    }
}

/// Behind the empty line that ends a head, if it is there. Lines are looked at from `from` on.
pub(super) fn end_of_head(bytes: &[u8], from: usize) -> Result<Option<usize>, Fault> {
    let mut at = from;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|b| b.iter().position(|b| *b == b'\n'))
    {
        let end = at + found;
        let before = bytes.get(..end).unwrap_or_default();
        if !before.ends_with(b"\r") {
            return Err(Fault::LineEnd);
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

    /// Feeds `bytes` in parts of this size; what was given out.
    fn given(bytes: &[u8], part: usize) -> (String, bool) {
        let mut frames = Frames::new();
        let failed = bytes.chunks(part).any(|part| frames.feed(part).is_err());
        (String::from_utf8_lossy(&frames.ready).into_owned(), failed)
    }

    #[test]
    fn whole_requests_are_given_out_as_they_are_however_they_are_cut() {
        let all = [GET, POST, CHUNKED, GET, CHUNKED, POST].concat();
        for part in 1..all.len() {
            assert_eq!(given(all.as_bytes(), part), (all.clone(), false), "{part}");
        }
    }

    #[test]
    fn empty_lines_between_requests_are_left_out_however_they_are_cut() {
        let sent = format!("\r\n{POST}\r\n\r\n{GET}");
        for part in 1..sent.len() {
            assert_eq!(
                given(sent.as_bytes(), part),
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
            let (given, failed) = given(sent.as_bytes(), part);
            assert!(given.starts_with(&format!("{POST}{WRONG} /17 ")), "{part}");
            assert!(given.ends_with("connection: close\r\n\r\n"), "{part}");
            assert!(!failed);
        }
    }

    #[test]
    fn a_head_that_does_not_end_is_refused_at_its_bound() {
        let sent = format!("GET / HTTP/1.1\r\na: {}", "x".repeat(HEAD_BYTES));
        for part in [1, 1000, sent.len()] {
            let (given, _) = given(sent.as_bytes(), part);
            assert!(given.starts_with(&format!("{WRONG} /10 ")), "{given}");
        }
    }

    #[test]
    fn chunks_that_make_no_sense_end_the_connection() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for chunks in [
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
        ] {
            let sent = format!("{head}{chunks}");
            for part in 1..sent.len() {
                assert!(given(sent.as_bytes(), part).1, "{chunks:?} by {part}");
            }
        }
    }

    #[test]
    fn what_is_behind_a_request_for_a_tunnel_waits_for_the_decision() {
        let asks = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        for (is_tunnel, then) in [(true, "\x01\x02 anything"), (false, GET)] {
            let mut frames = Frames::new();
            frames.feed(format!("{asks}{then}").as_bytes()).unwrap();
            assert_eq!(frames.ready, asks.as_bytes());
            assert!(frames.is_held());
            frames.decide(is_tunnel).unwrap();
            assert_eq!(frames.ready, format!("{asks}{then}").as_bytes());
        }
    }
}
