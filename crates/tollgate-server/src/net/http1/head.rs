//! Checks the bytes of an HTTP/1 request head.
//!
//! # Theory
//!
//! Two programs that parse one stream must agree where each request ends. Whatever leaves room for two readings is refused
//! here, before a parser chooses one: two lengths, a length beside an encoding, a bare line feed. hyper is more lenient. It
//! accepts a bare line feed, drops a length beside an encoding, and cuts a fragment off a target. So the bytes are checked
//! before hyper sees them.
//!
//! Where a head begins and ends in the stream is the task of [`super::framer`].

use hyper::StatusCode;

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 16 * 1024;
/// Bytes of a target.
pub(crate) const TARGET_BYTES: usize = 8 * 1024;
/// Fields of a head.
pub(crate) const FIELDS: usize = 100;

/// The body that follows a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// None: the next head follows.
    None,
    /// This many bytes, at least one.
    Length(u64),
    Chunks,
    /// None. Whether a head or a tunnel follows is decided by the response.
    MaybeTunnel,
}

/// A valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckedHead {
    pub(crate) body: BodyKind,
    /// HTTP/1.1 on a connection that stays open, with no field for this hop.
    pub(crate) is_plain: bool,
}

/// What is wrong with a head, or with the chunks behind it. The number stands for it in the path of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HeadError {
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
    BadChunks,
}

impl HeadError {
    const ALL: [HeadError; 20] = [
        HeadError::LineEnd,
        HeadError::Control,
        HeadError::Folded,
        HeadError::RequestLine,
        HeadError::Fragment,
        HeadError::TargetTooLong,
        HeadError::Version,
        HeadError::FieldName,
        HeadError::TooManyFields,
        HeadError::HeadTooLarge,
        HeadError::BadLength,
        HeadError::LengthTwice,
        HeadError::LengthAndEncoding,
        HeadError::Encoding,
        HeadError::EncodingInOldVersion,
        HeadError::NoHost,
        HeadError::HostTwice,
        HeadError::UpgradeTwice,
        HeadError::TunnelAndBody,
        HeadError::BadChunks,
    ];

    pub(crate) fn from_number(number: u8) -> Option<HeadError> {
        HeadError::ALL
            .into_iter()
            .find(|error| *error as u8 == number)
    }

    /// Status and detail of the response: what is wrong, and how to fix it.
    pub(crate) fn refusal(self) -> (StatusCode, &'static str) {
        let bad = StatusCode::BAD_REQUEST;
        let large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        match self {
            HeadError::LineEnd => (bad, "a line of the head does not end with CR LF; send both"),
            HeadError::Control => (
                bad,
                "the head has a control character; send it encoded or not at all",
            ),
            HeadError::Folded => (
                bad,
                "a field of the head goes over several lines; write it in one",
            ),
            HeadError::RequestLine => (
                bad,
                "the first line is not a method, a target and a version with one space between; fix the client",
            ),
            HeadError::Fragment => (
                bad,
                "the target has a fragment, which is for the client alone; cut it off at the `#`",
            ),
            HeadError::TargetTooLong => (
                StatusCode::URI_TOO_LONG,
                "the target is longer than 8 KiB; shorten it",
            ),
            HeadError::Version => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "the version is neither HTTP/1.1 nor HTTP/1.0; speak one of them, or HTTP/2 from the start",
            ),
            HeadError::FieldName => (
                bad,
                "a field's name is empty or has a character that no name has, perhaps a space before the colon; fix the client",
            ),
            HeadError::TooManyFields => (large, "the head has more than 100 fields; send fewer"),
            HeadError::HeadTooLarge => (
                large,
                "the head is larger than 16 KiB; send less, for example fewer cookies",
            ),
            HeadError::BadLength => (bad, "`Content-Length` is not a number; send digits alone"),
            HeadError::LengthTwice => (bad, "`Content-Length` is repeated; send it once"),
            HeadError::LengthAndEncoding => (
                bad,
                "the body has both `Content-Length` and `Transfer-Encoding`; send one of them",
            ),
            HeadError::Encoding => (
                bad,
                "`Transfer-Encoding` is something else than `chunked`, once; send that or `Content-Length`",
            ),
            HeadError::EncodingInOldVersion => (
                bad,
                "HTTP/1.0 has no `Transfer-Encoding`; send `Content-Length`",
            ),
            HeadError::NoHost => (bad, "`Host` is missing; send it"),
            HeadError::HostTwice => (bad, "`Host` is repeated; send it once"),
            HeadError::UpgradeTwice => (bad, "`Upgrade` is repeated; send it once"),
            HeadError::TunnelAndBody => (
                bad,
                "a request for a WebSocket has a body; send it without one",
            ),
            HeadError::BadChunks => (
                bad,
                "the chunks of the body are malformed; send each as its size in hexadecimal digits, CR LF, its bytes, CR LF",
            ),
        }
    }
}

/// Checks a complete head, including the empty line that ends it.
pub(crate) fn check(head: &[u8]) -> Result<CheckedHead, HeadError> {
    let mut lines = head.split(|byte| *byte == b'\n').map(without_cr);
    let first = lines.next().unwrap_or(Err(HeadError::RequestLine))?;
    let (is_get, is_old) = request_line(first)?;
    let mut framing = FramingFields::default();
    for (number, line) in lines.enumerate() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if number >= FIELDS {
            return Err(HeadError::TooManyFields);
        }
        let (name, value) = field(line)?;
        framing.add(name, value)?;
    }
    Ok(CheckedHead {
        body: framing.body(is_get, is_old)?,
        is_plain: !is_old && !framing.is_for_this_hop,
    })
}

fn without_cr(line: &[u8]) -> Result<&[u8], HeadError> {
    match line {
        [] => Ok(line), // after the last line end
        [line @ .., b'\r'] => Ok(line),
        _ => Err(HeadError::LineEnd),
    }
}

/// Checks the request line: is the method GET, and is the version HTTP/1.0?
fn request_line(line: &[u8]) -> Result<(bool, bool), HeadError> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::RequestLine);
    };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) || target.is_empty() {
        return Err(HeadError::RequestLine);
    }
    if target.len() > TARGET_BYTES {
        return Err(HeadError::TargetTooLong);
    }
    if target.contains(&b'#') {
        return Err(HeadError::Fragment);
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(HeadError::Control);
    }
    // The usual form is a path; whatever else it is must at least be a target.
    let is_usual = target.starts_with(b"/") || target == b"*";
    if !is_usual && hyper::Uri::try_from(target).is_err() {
        return Err(HeadError::RequestLine);
    }
    match version {
        b"HTTP/1.1" => Ok((method == b"GET", false)),
        b"HTTP/1.0" => Ok((method == b"GET", true)),
        _ => Err(HeadError::Version),
    }
}

/// Splits a field into its name and its value.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), HeadError> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(HeadError::Folded);
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = colon
        .and_then(|at| line.split_at_checked(at))
        .ok_or(HeadError::FieldName)?;
    let value = value.get(1..).unwrap_or_default();
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(HeadError::FieldName);
    }
    let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    if value.iter().any(is_control) {
        return Err(HeadError::Control);
    }
    Ok((name, value))
}

/// The fields of a request that decide where it ends.
#[derive(Default)]
pub(crate) struct FramingFields {
    hosts: usize,
    length: Option<u64>,
    is_chunked: bool,
    upgrades: usize,
    is_websocket: bool,
    is_upgrade: bool,
    /// A field asks something of this hop, not of the final server.
    is_for_this_hop: bool,
}

impl FramingFields {
    /// Adds a field of the head.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        // Only the fields that matter here are compared with their names.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            6 if name.eq_ignore_ascii_case(b"expect") => self.is_for_this_hop = true,
            7 if name.eq_ignore_ascii_case(b"trailer") => self.is_for_this_hop = true,
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrades += 1;
                self.is_for_this_hop = true;
                self.is_websocket = value.trim_ascii().eq_ignore_ascii_case(b"websocket");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.is_for_this_hop |= !value.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                let mut words = value.split(|byte| *byte == b',');
                self.is_upgrade |=
                    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.add_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let is_chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                if !is_chunked || self.is_chunked {
                    return Err(HeadError::Encoding);
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn add_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.length.is_some() {
            return Err(HeadError::LengthTwice);
        }
        self.length = Some(content_length(value.trim_ascii()).ok_or(HeadError::BadLength)?);
        Ok(())
    }

    /// The length of the body if that is all there is to its framing, and nothing is for this hop.
    pub(crate) fn plain_length(&self) -> Option<u64> {
        let is_plain = !self.is_chunked && !self.is_for_this_hop;
        is_plain.then_some(self.length.unwrap_or(0))
    }

    fn body(&self, is_get: bool, is_old: bool) -> Result<BodyKind, HeadError> {
        if self.is_chunked && self.length.is_some() {
            return Err(HeadError::LengthAndEncoding);
        }
        if self.is_chunked && is_old {
            return Err(HeadError::EncodingInOldVersion);
        }
        match self.hosts {
            0 if !is_old => return Err(HeadError::NoHost),
            0 | 1 => {}
            _ => return Err(HeadError::HostTwice),
        }
        if self.upgrades > 1 {
            return Err(HeadError::UpgradeTwice);
        }
        // Must agree with `gateway::check::asks_for_tunnel`, which sees the parsed head.
        let asks_for_tunnel = is_get && !is_old && self.is_websocket && self.is_upgrade;
        match self.length {
            _ if self.is_chunked && asks_for_tunnel => Err(HeadError::TunnelAndBody),
            Some(1..) if asks_for_tunnel => Err(HeadError::TunnelAndBody),
            _ if self.is_chunked => Ok(BodyKind::Chunks),
            Some(length @ 1..) => Ok(BodyKind::Length(length)),
            _ if asks_for_tunnel => Ok(BodyKind::MaybeTunnel),
            _ => Ok(BodyKind::None),
        }
    }
}

/// A length in digits and nothing else, of so few that no sum with it can overflow.
pub(crate) fn content_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0, |sum: u64, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(sum * 10 + u64::from(digit))
    })
}

/// May this byte stand in a field name (RFC 9110, 5.6.2)?
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(fields: &str) -> Result<BodyKind, HeadError> {
        check(format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes())
            .map(|checked| checked.body)
    }

    #[test]
    fn the_body_is_what_the_head_states() {
        assert_eq!(checked(""), Ok(BodyKind::None));
        assert_eq!(checked("Content-Length: 0\r\n"), Ok(BodyKind::None));
        assert_eq!(
            checked("content-length:  12 \r\n"),
            Ok(BodyKind::Length(12))
        );
        assert_eq!(
            checked("Transfer-Encoding: Chunked\r\n"),
            Ok(BodyKind::Chunks)
        );
        let asks = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let checked = check(asks.as_bytes()).unwrap();
        assert_eq!(checked.body, BodyKind::MaybeTunnel);
        assert!(!checked.is_plain);
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        for (fields, error) in [
            (
                "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                HeadError::LengthAndEncoding,
            ),
            (
                "Content-Length: 1\r\nContent-Length: 1\r\n",
                HeadError::LengthTwice,
            ),
            ("Content-Length: 1, 1\r\n", HeadError::BadLength),
            ("Content-Length: +1\r\n", HeadError::BadLength),
            ("Content-Length: 0x1\r\n", HeadError::BadLength),
            (
                "Content-Length: 9999999999999999999\r\n",
                HeadError::BadLength,
            ),
            ("Content-Length:\r\n", HeadError::BadLength),
            ("Transfer-Encoding: gzip, chunked\r\n", HeadError::Encoding),
            ("Transfer-Encoding: xchunked\r\n", HeadError::Encoding),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                HeadError::Encoding,
            ),
            ("Transfer-Encoding : chunked\r\n", HeadError::FieldName),
            ("Host: b\r\n", HeadError::HostTwice),
            ("Upgrade: a\r\nUpgrade: a\r\n", HeadError::UpgradeTwice),
            (": a\r\n", HeadError::FieldName),
            ("no colon\r\n", HeadError::FieldName),
            ("a: b\r\n c\r\n", HeadError::Folded),
            ("a: b\0c\r\n", HeadError::Control),
            ("a: b\rc\r\n", HeadError::Control),
            ("a: b\n", HeadError::LineEnd),
        ] {
            assert_eq!(checked(fields), Err(error), "{fields:?}");
        }
        for (head, error) in [
            ("GET / HTTP/1.1\r\n\r\n", HeadError::NoHost),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\n",
                HeadError::TunnelAndBody,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n",
                HeadError::TunnelAndBody,
            ),
            (
                "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                HeadError::EncodingInOldVersion,
            ),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::RequestLine),
            ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", HeadError::RequestLine),
            ("GET /\r\nHost: a\r\n\r\n", HeadError::RequestLine),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", HeadError::Version),
            ("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Fragment),
            (
                "GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n",
                HeadError::Control,
            ),
        ] {
            assert_eq!(check(head.as_bytes()), Err(error), "{head:?}");
        }
    }

    #[test]
    fn every_error_is_found_by_its_number() {
        for error in HeadError::ALL {
            assert_eq!(HeadError::from_number(error as u8), Some(error));
        }
    }
}
