//! What a request head of HTTP/1 must be, byte by byte.
//!
//! # Theory
//!
//! Two programs that read one stream of bytes must agree where each request ends. Whatever leaves room for
//! two opinions (two lengths, a length beside an encoding, a line that ends with half a line end) is
//! refused here, before anybody has an opinion. The parser behind is more lenient: it takes a bare line feed
//! for a line's end, drops a length beside an encoding, and cuts a fragment off a target, all without a
//! word. So the bytes are looked at before it sees them.
//!
//! # What it does not know
//!
//! Where a head begins and ends in the stream; that is [`super::frames`].

use hyper::StatusCode;

/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 16 * 1024;
/// Bytes of a target.
pub(super) const TARGET_BYTES: usize = 8 * 1024;
/// Fields of a head.
pub(super) const FIELDS: usize = 100;

/// What follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// The next head.
    Nothing,
    /// So many bytes, at least one.
    Length(u64),
    /// Chunks.
    Chunks,
    /// Nothing, until it is known whether the connection becomes a tunnel.
    PerhapsTunnel,
}

/// What was found of a head that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) follows: Follows,
    /// HTTP/1.1 on a connection that stays, with nothing that is asked of this hop.
    pub(super) is_plain: bool,
}

/// What is wrong with a head, or with the chunks behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    LineEnd = 1,
    Control,
    Folded,
    RequestLine,
    Fragment,
    TargetTooLong,
    Version,
    FieldName,
    TooManyFields,
    HeadTooLarge,
    BadLength,
    LengthTwice,
    LengthAndEncoding,
    Encoding,
    EncodingInOldVersion,
    NoHost,
    HostTwice,
    UpgradeTwice,
    TunnelAndBody,
}

impl Fault {
    const ALL: [Fault; 19] = [
        Fault::LineEnd,
        Fault::Control,
        Fault::Folded,
        Fault::RequestLine,
        Fault::Fragment,
        Fault::TargetTooLong,
        Fault::Version,
        Fault::FieldName,
        Fault::TooManyFields,
        Fault::HeadTooLarge,
        Fault::BadLength,
        Fault::LengthTwice,
        Fault::LengthAndEncoding,
        Fault::Encoding,
        Fault::EncodingInOldVersion,
        Fault::NoHost,
        Fault::HostTwice,
        Fault::UpgradeTwice,
        Fault::TunnelAndBody,
    ];

    /// The fault with this number.
    pub(super) fn numbered(number: u8) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| *fault as u8 == number)
    }

    /// What is answered: the status, and what is wrong and how to mend it.
    pub(crate) fn told(self) -> (StatusCode, &'static str) {
        let bad = StatusCode::BAD_REQUEST;
        let large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        match self {
            Fault::LineEnd => (bad, "a line of the head does not end with CR LF; send both"),
            Fault::Control => (
                bad,
                "the head has a control character; send it encoded or not at all",
            ),
            Fault::Folded => (
                bad,
                "a field of the head goes over several lines; write it in one",
            ),
            Fault::RequestLine => (
                bad,
                "the first line is not a method, a target and a version with one space between; mend the client",
            ),
            Fault::Fragment => (
                bad,
                "the target has a fragment, which is for the client alone; cut it off at the `#`",
            ),
            Fault::TargetTooLong => (
                StatusCode::URI_TOO_LONG,
                "the target is longer than 8 KiB; shorten it",
            ),
            Fault::Version => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "the version is neither HTTP/1.1 nor HTTP/1.0; speak one of them, or HTTP/2 from the start",
            ),
            Fault::FieldName => (
                bad,
                "a field's name is empty or has a character that no name has, perhaps a space before the colon; mend the client",
            ),
            Fault::TooManyFields => (large, "the head has more than 100 fields; send fewer"),
            Fault::HeadTooLarge => (
                large,
                "the head is larger than 16 KiB; send less, for example fewer cookies",
            ),
            Fault::BadLength => (bad, "`Content-Length` is not a number; send digits alone"),
            Fault::LengthTwice => (
                bad,
                "`Content-Length` is there more than once; send it once",
            ),
            Fault::LengthAndEncoding => (
                bad,
                "the body has both `Content-Length` and `Transfer-Encoding`; send one of them",
            ),
            Fault::Encoding => (
                bad,
                "`Transfer-Encoding` is something else than `chunked`, once; send that or `Content-Length`",
            ),
            Fault::EncodingInOldVersion => (
                bad,
                "HTTP/1.0 has no `Transfer-Encoding`; send `Content-Length`",
            ),
            Fault::NoHost => (bad, "`Host` is missing; send it"),
            Fault::HostTwice => (bad, "`Host` is there more than once; send it once"),
            Fault::UpgradeTwice => (bad, "`Upgrade` is there more than once; send it once"),
            Fault::TunnelAndBody => (
                bad,
                "a request for a WebSocket has a body; send it without one",
            ),
        }
    }
}

/// Looks at a whole head, with the empty line that ends it, and says what follows.
pub(super) fn check(head: &[u8]) -> Result<Checked, Fault> {
    let mut lines = head.split(|byte| *byte == b'\n').map(without_cr);
    let first = lines.next().unwrap_or(Err(Fault::RequestLine))?;
    let (is_get, is_old) = request_line(first)?;
    let mut seen = Seen::default();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        seen.field(line)?;
    }
    Ok(Checked {
        follows: seen.follows(is_get, is_old)?,
        is_plain: !is_old && !seen.asks_this_hop,
    })
}

fn without_cr(line: &[u8]) -> Result<&[u8], Fault> {
    match line {
        [] => Ok(line), // behind the last line's end
        [line @ .., b'\r'] => Ok(line),
        _ => Err(Fault::LineEnd),
    }
}

/// Is it GET, and is it HTTP/1.0?
fn request_line(line: &[u8]) -> Result<(bool, bool), Fault> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Fault::RequestLine);
    };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) || target.is_empty() {
        return Err(Fault::RequestLine);
    }
    if target.len() > TARGET_BYTES {
        return Err(Fault::TargetTooLong);
    }
    if target.contains(&b'#') {
        return Err(Fault::Fragment);
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(Fault::Control);
    }
    // The usual form is a path; whatever else it is must at least be a target.
    let is_usual = target.starts_with(b"/") || target == b"*";
    if !is_usual && hyper::Uri::try_from(target).is_err() {
        return Err(Fault::RequestLine);
    }
    match version {
        b"HTTP/1.1" => Ok((method == b"GET", false)),
        b"HTTP/1.0" => Ok((method == b"GET", true)),
        _ => Err(Fault::Version),
    }
}

/// What was seen of the fields that say where a request ends.
#[derive(Default)]
struct Seen {
    fields: usize,
    hosts: usize,
    length: Option<u64>,
    is_chunked: bool,
    upgrades: usize,
    is_websocket: bool,
    is_upgrade: bool,
    /// Is something asked of whoever reads this, and not of whom it is for?
    asks_this_hop: bool,
}

impl Seen {
    fn field(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.fields += 1;
        if self.fields > FIELDS {
            return Err(Fault::TooManyFields);
        }
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(Fault::Folded);
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = colon
            .and_then(|at| line.split_at_checked(at))
            .ok_or(Fault::FieldName)?;
        let value = value.get(1..).unwrap_or_default();
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(Fault::FieldName);
        }
        let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
        if value.iter().any(is_control) {
            return Err(Fault::Control);
        }
        // Only the fields that matter here are compared with their names.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            6 if name.eq_ignore_ascii_case(b"expect") => self.asks_this_hop = true,
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrades += 1;
                self.asks_this_hop = true;
                self.is_websocket = value.trim_ascii().eq_ignore_ascii_case(b"websocket");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.asks_this_hop |= !value.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                let mut words = value.split(|byte| *byte == b',');
                self.is_upgrade |=
                    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.has_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let is_chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                if !is_chunked || self.is_chunked {
                    return Err(Fault::Encoding);
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn has_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.length.is_some() {
            return Err(Fault::LengthTwice);
        }
        let digits = value.trim_ascii();
        // One digit fewer than the largest number has: no sum with it can overflow.
        if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
            return Err(Fault::BadLength);
        }
        let length = digits.iter().fold(0, |sum: u64, digit| {
            sum * 10 + u64::from(digit.wrapping_sub(b'0'))
        });
        self.length = Some(length);
        Ok(())
    }

    fn follows(&self, is_get: bool, is_old: bool) -> Result<Follows, Fault> {
        if self.is_chunked && self.length.is_some() {
            return Err(Fault::LengthAndEncoding);
        }
        if self.is_chunked && is_old {
            return Err(Fault::EncodingInOldVersion);
        }
        match self.hosts {
            0 if !is_old => return Err(Fault::NoHost),
            0 | 1 => {}
            _ => return Err(Fault::HostTwice),
        }
        if self.upgrades > 1 {
            return Err(Fault::UpgradeTwice);
        }
        // The same as `check::asks_for_tunnel` says of the parsed head.
        let asks_for_tunnel = is_get && !is_old && self.is_websocket && self.is_upgrade;
        match self.length {
            _ if self.is_chunked && asks_for_tunnel => Err(Fault::TunnelAndBody),
            Some(1..) if asks_for_tunnel => Err(Fault::TunnelAndBody),
            _ if self.is_chunked => Ok(Follows::Chunks),
            Some(length @ 1..) => Ok(Follows::Length(length)),
            _ if asks_for_tunnel => Ok(Follows::PerhapsTunnel),
            _ => Ok(Follows::Nothing),
        }
    }
}

/// May it stand in a name (RFC 9110, 5.6.2)?
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(fields: &str) -> Result<Follows, Fault> {
        check(format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes())
            .map(|checked| checked.follows)
    }

    #[test]
    fn what_follows_is_what_the_head_says() {
        assert_eq!(checked(""), Ok(Follows::Nothing));
        assert_eq!(checked("Content-Length: 0\r\n"), Ok(Follows::Nothing));
        assert_eq!(checked("content-length:  12 \r\n"), Ok(Follows::Length(12)));
        assert_eq!(
            checked("Transfer-Encoding: Chunked\r\n"),
            Ok(Follows::Chunks)
        );
        let asks = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let checked = check(asks.as_bytes()).unwrap();
        assert_eq!(checked.follows, Follows::PerhapsTunnel);
        assert!(!checked.is_plain);
    }

    #[test]
    fn whatever_leaves_room_for_two_opinions_is_refused() {
        for (fields, fault) in [
            (
                "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                Fault::LengthAndEncoding,
            ),
            (
                "Content-Length: 1\r\nContent-Length: 1\r\n",
                Fault::LengthTwice,
            ),
            ("Content-Length: 1, 1\r\n", Fault::BadLength),
            ("Content-Length: +1\r\n", Fault::BadLength),
            ("Content-Length: 0x1\r\n", Fault::BadLength),
            ("Content-Length: 9999999999999999999\r\n", Fault::BadLength),
            ("Content-Length:\r\n", Fault::BadLength),
            ("Transfer-Encoding: gzip, chunked\r\n", Fault::Encoding),
            ("Transfer-Encoding: xchunked\r\n", Fault::Encoding),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                Fault::Encoding,
            ),
            ("Transfer-Encoding : chunked\r\n", Fault::FieldName),
            ("Host: b\r\n", Fault::HostTwice),
            ("Upgrade: a\r\nUpgrade: a\r\n", Fault::UpgradeTwice),
            (": a\r\n", Fault::FieldName),
            ("no colon\r\n", Fault::FieldName),
            ("a: b\r\n c\r\n", Fault::Folded),
            ("a: b\0c\r\n", Fault::Control),
            ("a: b\rc\r\n", Fault::Control),
            ("a: b\n", Fault::LineEnd),
        ] {
            assert_eq!(checked(fields), Err(fault), "{fields:?}");
        }
        for (head, fault) in [
            ("GET / HTTP/1.1\r\n\r\n", Fault::NoHost),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\n",
                Fault::TunnelAndBody,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n",
                Fault::TunnelAndBody,
            ),
            (
                "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                Fault::EncodingInOldVersion,
            ),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::RequestLine),
            ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Fault::RequestLine),
            ("GET /\r\nHost: a\r\n\r\n", Fault::RequestLine),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", Fault::Version),
            ("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Fragment),
            ("GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Control),
        ] {
            assert_eq!(check(head.as_bytes()), Err(fault), "{head:?}");
        }
    }

    #[test]
    fn every_fault_is_found_by_its_number() {
        for fault in Fault::ALL {
            assert_eq!(Fault::numbered(fault as u8), Some(fault));
        }
    }
}
