//! The client side of the Redis protocol: commands as arrays of bulk strings, replies of any kind in order.
//!
//! Two things are kept of a reply: its first number (the reply itself, or the first element of an array at any depth), and the
//! value of `verdict` in the outermost map. Limiters on this protocol put their decision there ([`AdmitRule`]). RESP2 has no
//! maps: names and values alternate in an array.
//!
//! # Limits
//!
//! Pushes and streamed replies of RESP3 are not read: only clients that request them get them.

use std::fmt;

use crate::admit_rule::{AdmitRule, ReplyFields};
use crate::codec::{Codec, Event, Failure, Judgement, Response, sanitized};
use crate::error::LoadError;
use crate::template::{KeyFormat, Template};

/// The most elements of a reply, at any depth.
const MAX_ELEMENTS: u64 = 1 << 20;

/// The credentials of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user; the default user if there is none.
    pub user: Option<String>,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct("Credentials");
        output.field("user", &self.user).finish_non_exhaustive()
    }
}

/// The codec.
#[derive(Clone, Debug)]
pub(crate) struct Resp {
    request: Template,
    /// Judges replies; without it they are unjudged.
    rule: Option<AdmitRule>,
    /// The AUTH command; empty without credentials.
    auth: Vec<u8>,
    /// The reply to AUTH has not arrived.
    is_unauthenticated: bool,
}

impl Resp {
    pub(crate) fn new(
        words: &[String],
        rule: Option<AdmitRule>,
        key_format: &KeyFormat,
        credentials: Option<&Credentials>,
    ) -> Resp {
        let mut request = Template::fixed(format!("*{}\r\n", words.len()));
        for word in words {
            let word = Template::parse(word, key_format);
            request.push(format!("${}\r\n", word.len()).as_bytes());
            request.append(&word);
            request.push(b"\r\n");
        }
        Resp {
            request,
            rule,
            auth: credentials.map_or_else(Vec::new, auth_command),
            is_unauthenticated: false,
        }
    }
}

/// The AUTH command.
fn auth_command(credentials: &Credentials) -> Vec<u8> {
    let words = ["AUTH"].into_iter().chain(credentials.user.as_deref());
    let words: Vec<&str> = words.chain([credentials.password.as_str()]).collect();
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    command.into_bytes()
}

impl Codec for Resp {
    fn start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.auth);
        self.is_unauthenticated = !self.auth.is_empty();
    }

    fn can_send(&self, _: usize) -> bool {
        !self.is_unauthenticated
    }

    fn write_request(&mut self, key: u64, out: &mut Vec<u8>) {
        self.request.write(key, out);
    }

    fn read<'a>(&mut self, bytes: &'a [u8], _: &mut Vec<u8>) -> Result<Event<'a>, LoadError> {
        let Some(reply) = Reply::read(bytes)? else {
            return Ok(Event::Incomplete);
        };
        if self.is_unauthenticated {
            if let Some(error) = reply.error {
                let problem = format!("the server rejects the password: `{}`", sanitized(error));
                let hint = "check the content of `--password-file`, and `--user`";
                return Err(LoadError::new(problem, hint));
            }
            self.is_unauthenticated = false;
            return Ok(Event::Skip(reply.len));
        }
        let judgement = match reply.error {
            Some(text) => Judgement::Failed(Failure::ServerError(text)),
            None => match self.rule {
                Some(rule) => rule.judge(reply.fields),
                None => Judgement::Unjudged,
            },
        };
        Ok(Event::Response(Response {
            len: reply.len,
            request: None,
            judgement,
            is_last: false,
        }))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Reply<'a> {
    len: usize,
    fields: ReplyFields<'a>,
    error: Option<&'a [u8]>,
}

/// Names and values of the outermost array or map, while they are read.
///
/// An element is one of them if nothing is still to come but them: then whatever lies deeper has been read. So depth
/// needs no stack, and a reply that is very deep costs nothing.
#[derive(Debug, Default)]
struct VerdictScan {
    /// Outermost elements that remain.
    remaining: u64,
    /// The next one is a value.
    is_value: bool,
    /// The last name was `verdict`.
    is_verdict: bool,
}

impl VerdictScan {
    /// Visits an element, with its text if it is one; `remaining` elements of any depth remain, including this one. Returns the
    /// verdict if this is it.
    fn visit<'a>(&mut self, remaining: u64, text: Option<&'a [u8]>) -> Option<&'a [u8]> {
        if self.remaining != remaining {
            return None;
        }
        self.remaining = self.remaining.saturating_sub(1);
        self.is_value = !self.is_value;
        // This is a name.
        if self.is_value {
            self.is_verdict = text == Some(b"verdict");
            return None;
        }
        text.filter(|_| self.is_verdict)
    }
}

impl Reply<'_> {
    /// The first reply, if it is complete.
    fn read(bytes: &[u8]) -> Result<Option<Reply<'_>>, LoadError> {
        let mut reply = Reply::default();
        let mut scan = VerdictScan::default();
        let mut left = 1_u64;
        let mut is_first = true;
        while left > 0 {
            let is_outermost = reply.len == 0;
            let rest = bytes.get(reply.len..).unwrap_or_default();
            let Some(&kind) = rest.first() else {
                return Ok(None);
            };
            if !b"+-:$*_#,(!=%~>".contains(&kind) {
                return Err(not_resp(bytes));
            }
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                // No header of a reply is that long; an error text may be.
                let too_long = rest.len() > 4096;
                return if too_long {
                    Err(not_resp(bytes))
                } else {
                    Ok(None)
                };
            };
            let line = rest.get(1..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            reply.len += end + 1;
            let remaining = left;
            left -= 1;
            let text = match kind {
                b'*' | b'~' | b'>' | b'%' => {
                    let count = number(line).ok_or_else(|| not_resp(bytes))?.max(0);
                    let each = if kind == b'%' { 2 } else { 1 };
                    left = left.saturating_add(count.unsigned_abs().saturating_mul(each));
                    if left > MAX_ELEMENTS {
                        return Err(not_resp(bytes));
                    }
                    None
                }
                b'$' | b'=' | b'!' => {
                    let len = number(line).ok_or_else(|| not_resp(bytes))?;
                    let text = match usize::try_from(len) {
                        // Nil.
                        Err(_) => None,
                        Ok(len) => {
                            let until = reply.len.saturating_add(len);
                            let Some(text) = bytes.get(reply.len..until) else {
                                return Ok(None);
                            };
                            if bytes.len() < until.saturating_add(2) {
                                return Ok(None);
                            }
                            reply.len = until + 2;
                            Some(text)
                        }
                    };
                    if is_first {
                        reply.fields.number = text.and_then(number);
                        reply.error = text.filter(|_| kind == b'!');
                    }
                    is_first = false;
                    text
                }
                _ => {
                    if is_first {
                        reply.error = (kind == b'-').then_some(line);
                        reply.fields.number = match (kind, line) {
                            (b'#', b"t") => Some(1),
                            (b'#', b"f") => Some(0),
                            _ => number(line),
                        };
                    }
                    is_first = false;
                    (kind == b'+').then_some(line)
                }
            };
            match is_outermost {
                true => scan.remaining = left,
                false => {
                    let verdict = scan.visit(remaining, text);
                    reply.fields.verdict = reply.fields.verdict.or(verdict);
                }
            }
        }
        Ok(Some(reply))
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn not_resp(bytes: &[u8]) -> LoadError {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let hint = if bytes.starts_with(b"HTTP/") {
        "this server uses HTTP: write `http://` before its address"
    } else if bytes.starts_with(&[0, 0]) {
        "this server may speak HTTP/2: write `grpc://` before its address"
    } else {
        "name a server with the Redis protocol; if it requires TLS, write `resps://`"
    };
    LoadError::new(
        format!("no reply of the Redis protocol: `{}`", sanitized(line)),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rule: impl Into<Option<AdmitRule>>, bytes: &[u8]) -> Result<Event<'_>, LoadError> {
        let mut resp = Resp::new(&[], rule.into(), &KeyFormat::new("", 1, 1), None);
        resp.read(bytes, &mut Vec::new())
    }

    fn judgement(rule: impl Into<Option<AdmitRule>>, bytes: &[u8]) -> Judgement<'_> {
        match read(rule, bytes) {
            Ok(Event::Response(response)) => {
                assert_eq!(response.len, bytes.len());
                response.judgement
            }
            other => panic!("{}: {other:?}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn a_command_is_an_array_of_its_words() {
        let words = ["INCRBY", "a{key}", "{cost}"].map(str::to_owned);
        let mut resp = Resp::new(&words, None, &KeyFormat::new("k", 100, 12), None);
        let mut out = Vec::new();
        resp.write_request(7, &mut out);
        assert_eq!(out, b"*3\r\n$6\r\nINCRBY\r\n$4\r\nak07\r\n$2\r\n12\r\n");
    }

    #[test]
    fn no_request_is_sent_before_the_password_is_accepted() {
        let credentials = Credentials {
            user: Some("ann".into()),
            password: "sesame".into(),
        };
        let words = ["PING".to_owned()];
        let mut resp = Resp::new(&words, None, &KeyFormat::new("", 1, 1), Some(&credentials));
        for _ in 0..2 {
            let mut out = Vec::new();
            resp.start(&mut out);
            assert_eq!(out, b"*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$6\r\nsesame\r\n");
            assert!(!resp.can_send(0));
            assert_eq!(resp.read(b"+OK\r\n", &mut out), Ok(Event::Skip(5)));
            assert!(resp.can_send(0));
        }
        resp.start(&mut Vec::new());
        let refused = resp
            .read(b"-WRONGPASS no\r\n", &mut Vec::new())
            .unwrap_err();
        assert!(refused.problem.contains("WRONGPASS"), "{refused:?}");
        assert!(!format!("{credentials:?}").contains("sesame"));
    }

    #[test]
    fn the_first_number_of_a_reply_decides() {
        let cell_yes = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
        let cell_no = b"*5\r\n:1\r\n:16\r\n:0\r\n:2\r\n:32\r\n";
        assert_eq!(judgement(AdmitRule::Zero, cell_yes), Judgement::Admitted);
        assert_eq!(judgement(AdmitRule::Zero, cell_no), Judgement::Refused);
        assert_eq!(judgement(AdmitRule::NonZero, cell_no), Judgement::Admitted);
        assert_eq!(
            judgement(AdmitRule::AtMost(5), b":5\r\n"),
            Judgement::Admitted
        );
        assert_eq!(
            judgement(AdmitRule::AtMost(5), b":6\r\n"),
            Judgement::Refused
        );
        assert_eq!(
            judgement(AdmitRule::NonZero, b"$1\r\n1\r\n"),
            Judgement::Admitted
        );
        assert_eq!(
            judgement(AdmitRule::NonZero, b"*1\r\n*2\r\n:0\r\n:9\r\n"),
            Judgement::Refused
        );
        assert_eq!(
            judgement(AdmitRule::NonZero, b"#t\r\n"),
            Judgement::Admitted
        );
        assert_eq!(judgement(AdmitRule::Any, b"+PONG\r\n"), Judgement::Admitted);
    }

    #[test]
    fn an_error_keeps_its_text_and_an_unjudged_reply_is_not_admitted() {
        let error = Judgement::Failed(Failure::ServerError(b"ERR no"));
        for rule in [AdmitRule::Zero, AdmitRule::NonZero, AdmitRule::Any] {
            assert_eq!(judgement(rule, b"-ERR no\r\n"), error);
        }
        let unjudged = Judgement::Failed(Failure::Unjudged(AdmitRule::Zero));
        for bytes in [
            &b"+OK\r\n"[..],
            b"$-1\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*2\r\n$-1\r\n:0\r\n",
        ] {
            assert_eq!(judgement(AdmitRule::Zero, bytes), unjudged);
        }
    }

    #[test]
    fn a_reply_by_policy_is_judged_by_its_verdict_in_resp2_and_resp3() {
        // As the service writes it: the number that comes first is no verdict.
        let third = |word: &str| {
            format!(
                "%7\r\n$7\r\nverdict\r\n${}\r\n{word}\r\n$5\r\nlimit\r\n$3\r\norg\r\n$6\r\nreason\r\n$5\r\nlimit\r\n\
                 $9\r\nremaining\r\n:0\r\n$14\r\nreset_after_ms\r\n:9\r\n$6\r\nlimits\r\n*1\r\n%3\r\n$4\r\nname\r\n_\r\n\
                 $4\r\nrole\r\n$8\r\nenforced\r\n$4\r\ncost\r\n:1\r\n$14\r\npolicy_version\r\n:1\r\n",
                word.len()
            )
        };
        for (word, judged) in [
            ("pass", Judgement::Admitted),
            ("wait", Judgement::Admitted),
            ("refuse", Judgement::Refused),
            ("never", Judgement::Refused),
        ] {
            let third = third(word);
            let second = third.replace("%7", "*14").replace("%3", "*6");
            let second = second.replace("_\r\n", "$-1\r\n");
            for reply in [third, second] {
                assert_eq!(
                    judgement(AdmitRule::VerdictField, reply.as_bytes()),
                    judged,
                    "{reply:?}"
                );
            }
        }
    }

    #[test]
    fn a_verdict_is_found_in_the_outermost_map_only() {
        for (reply, judged) in [
            // Behind values that are arrays, maps, empty or nothing.
            (
                "%4\r\n+a\r\n*2\r\n*1\r\n:1\r\n%1\r\n+verdict\r\n+pass\r\n+b\r\n*0\r\n+c\r\n_\r\n+verdict\r\n+refuse\r\n",
                Some(Judgement::Refused),
            ),
            (
                "*2\r\n+verdict\r\n$4\r\npass\r\n",
                Some(Judgement::Admitted),
            ),
            // The first counts.
            (
                "*4\r\n+verdict\r\n+never\r\n+verdict\r\n+pass\r\n",
                Some(Judgement::Refused),
            ),
            // A value, not a name.
            ("*4\r\n+reason\r\n+verdict\r\n+pass\r\n+pass\r\n", None),
            // Within something else.
            ("%1\r\n+a\r\n%1\r\n+verdict\r\n+pass\r\n", None),
            ("*1\r\n*2\r\n+verdict\r\n+pass\r\n", None),
            // No text, or none at all.
            ("*2\r\n+verdict\r\n:1\r\n", None),
            ("*2\r\n+verdict\r\n*1\r\n+pass\r\n", None),
            ("*1\r\n+verdict\r\n", None),
            ("+pass\r\n", None),
            ("*0\r\n", None),
        ] {
            let judged = judged.unwrap_or(Judgement::Failed(Failure::Unjudged(
                AdmitRule::VerdictField,
            )));
            assert_eq!(
                judgement(AdmitRule::VerdictField, reply.as_bytes()),
                judged,
                "{reply:?}"
            );
        }
    }

    #[test]
    fn without_a_rule_a_reply_is_unjudged_and_an_error_stays_one() {
        for reply in [&b":0\r\n"[..], b"+OK\r\n", b"$-1\r\n", b"*0\r\n"] {
            assert_eq!(judgement(None, reply), Judgement::Unjudged);
        }
        let error = Judgement::Failed(Failure::ServerError(b"ERR no"));
        assert_eq!(judgement(None, b"-ERR no\r\n"), error);
    }

    #[test]
    fn a_reply_is_incomplete_at_every_split_and_ends_before_the_next() {
        let reply = b"*3\r\n:0\r\n$5\r\nhello\r\n%1\r\n+a\r\n*1\r\n:3\r\n";
        for len in 0..reply.len() {
            assert_eq!(
                read(AdmitRule::Zero, &reply[..len]),
                Ok(Event::Incomplete),
                "after {len}"
            );
        }
        let two = [&reply[..], &reply[..]].concat();
        match read(AdmitRule::Zero, &two) {
            Ok(Event::Response(response)) => assert_eq!(response.len, reply.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_protocols_and_absurd_sizes_are_rejected_at_once() {
        for (bytes, hint) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "http://"),
            (b"\x00\x00\x12\x04\x00", "grpc://"),
            (b"*99999999999\r\n", "Redis"),
            (b"$x\r\n", "Redis"),
            (b"SSH-2.0-OpenSSH\r\n", "Redis"),
        ] {
            let error = read(AdmitRule::Any, bytes).unwrap_err();
            assert!(error.hint.contains(hint), "{error:?}");
        }
    }
}
