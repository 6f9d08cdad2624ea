//! The Redis protocol, as a client sees it: commands as arrays of bulk strings, replies of any kind in order.
//!
//! A reply is judged by its first number: the reply itself, or the first element of an array however deep it lies. That
//! is where every limiter that answers over this protocol says yes or no ([`Rule`]).
//!
//! # What it does not know
//!
//! Pushes and streamed replies of RESP3: they come only to clients that ask for them, and this one does not.

use std::fmt;

use crate::codec::{Answer, Codec, Failure, Gibberish, Step, Verdict, shown};
use crate::template::{Spelling, Template};

/// Deeper, or with more elements, and it is no answer of a limiter.
const ELEMENTS_MAX: u64 = 1 << 20;

/// How a reply says yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Its first number is 0, as that of `CL.THROTTLE` (which tells whether the key *is limited*).
    Zero,
    /// Its first number is not 0, as that of throttlecrab's `THROTTLE` and of most scripts.
    NonZero,
    /// Its first number is at most this, as that of `INCR` against a limit.
    AtMost(i64),
    /// Whatever is no error.
    Any,
}

impl Rule {
    /// The rule for a command, if it is one that is known.
    pub(crate) fn of(command: &str) -> Option<Rule> {
        match command.to_ascii_uppercase().as_str() {
            "CL.THROTTLE" => Some(Rule::Zero),
            "THROTTLE" => Some(Rule::NonZero),
            _ => None,
        }
    }

    fn judge(self, number: Option<i64>) -> Verdict<'static> {
        let admitted = match (self, number) {
            (Rule::Any, _) => true,
            (Rule::Zero, Some(number)) => number == 0,
            (Rule::NonZero, Some(number)) => number != 0,
            (Rule::AtMost(most), Some(number)) => number <= most,
            (_, None) => return Verdict::Failed(Failure::Unjudged),
        };
        match admitted {
            true => Verdict::Admitted,
            false => Verdict::Refused,
        }
    }
}

/// What a client shows before it asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Its name; the default one if there is none.
    pub user: Option<String>,
    /// Its password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("Login");
        told.field("user", &self.user).finish_non_exhaustive()
    }
}

/// Commands out, replies in.
#[derive(Clone, Debug)]
pub(crate) struct Resp {
    request: Template,
    rule: Rule,
    /// Shows the password; empty if there is none.
    login: Vec<u8>,
    /// Is the answer to that still to come?
    is_strange: bool,
}

impl Resp {
    pub(crate) fn new(
        words: &[String],
        rule: Rule,
        spelling: &Spelling,
        login: Option<&Login>,
    ) -> Resp {
        let mut request = Template::fixed(format!("*{}\r\n", words.len()));
        for word in words {
            let word = Template::typed(word, spelling);
            request.push(format!("${}\r\n", word.len()).as_bytes());
            request.append(&word);
            request.push(b"\r\n");
        }
        Resp {
            request,
            rule,
            login: login.map_or_else(Vec::new, shows),
            is_strange: false,
        }
    }
}

/// The command that shows a password.
fn shows(login: &Login) -> Vec<u8> {
    let words = ["AUTH"].into_iter().chain(login.user.as_deref());
    let words: Vec<&str> = words.chain([login.password.as_str()]).collect();
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    command.into_bytes()
}

impl Codec for Resp {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.login);
        self.is_strange = !self.login.is_empty();
    }

    fn may_ask(&self, _: usize) -> bool {
        !self.is_strange
    }

    fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        self.request.write(key, out);
    }

    fn read<'a>(&mut self, bytes: &'a [u8], _: &mut Vec<u8>) -> Result<Step<'a>, Gibberish> {
        let Some(reply) = whole(bytes)? else {
            return Ok(Step::More);
        };
        if self.is_strange {
            if let Some(error) = reply.error {
                let what = format!("the server does not take the password: `{}`", shown(error));
                return Err(Gibberish::new(
                    what,
                    "see what stands in the file of `--password-file`, and `--user`",
                ));
            }
            self.is_strange = false;
            return Ok(Step::Passed(reply.len));
        }
        let verdict = match reply.error {
            Some(text) => Verdict::Failed(Failure::Said(text)),
            None => self.rule.judge(reply.number),
        };
        Ok(Step::Answer(Answer {
            len: reply.len,
            to: None,
            verdict,
            last: false,
        }))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Reply<'a> {
    len: usize,
    /// Of the first element that is neither an array nor a map, if it is a number.
    number: Option<i64>,
    error: Option<&'a [u8]>,
}

/// The reply at the beginning, if all of it is there.
fn whole(bytes: &[u8]) -> Result<Option<Reply<'_>>, Gibberish> {
    let mut reply = Reply::default();
    let mut left = 1_u64;
    let mut is_first = true;
    while left > 0 {
        let rest = bytes.get(reply.len..).unwrap_or_default();
        let Some(&kind) = rest.first() else {
            return Ok(None);
        };
        if !b"+-:$*_#,(!=%~>".contains(&kind) {
            return Err(foreign(bytes));
        }
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            // No header of a reply is that long, but an error text may be.
            let too_long = rest.len() > 4096;
            return if too_long {
                Err(foreign(bytes))
            } else {
                Ok(None)
            };
        };
        let line = rest.get(1..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        reply.len += end + 1;
        left -= 1;
        match kind {
            b'*' | b'~' | b'>' | b'%' => {
                let count = number(line).ok_or_else(|| foreign(bytes))?.max(0);
                let each = if kind == b'%' { 2 } else { 1 };
                left = left.saturating_add(count.unsigned_abs().saturating_mul(each));
                if left > ELEMENTS_MAX {
                    return Err(foreign(bytes));
                }
            }
            b'$' | b'=' | b'!' => {
                let len = number(line).ok_or_else(|| foreign(bytes))?;
                let Ok(len) = usize::try_from(len) else {
                    // Nil.
                    is_first = false;
                    continue;
                };
                let until = reply.len.saturating_add(len);
                let Some(text) = bytes.get(reply.len..until) else {
                    return Ok(None);
                };
                if bytes.len() < until.saturating_add(2) {
                    return Ok(None);
                }
                reply.len = until + 2;
                if is_first {
                    reply.number = number(text);
                    reply.error = (kind == b'!').then_some(text);
                }
                is_first = false;
            }
            _ => {
                if is_first {
                    reply.error = (kind == b'-').then_some(line);
                    reply.number = match (kind, line) {
                        (b'#', b"t") => Some(1),
                        (b'#', b"f") => Some(0),
                        _ => number(line),
                    };
                }
                is_first = false;
            }
        }
    }
    Ok(Some(reply))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn foreign(bytes: &[u8]) -> Gibberish {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let hint = if bytes.starts_with(b"HTTP/") {
        "this server speaks HTTP: write `http://` before its address"
    } else if bytes.starts_with(&[0, 0]) {
        "this server may speak HTTP/2: write `grpc://` before its address"
    } else {
        "name a server that speaks the Redis protocol; if it wants TLS, write `resps://`"
    };
    Gibberish::new(format!("no reply of Redis: `{}`", shown(line)), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rule: Rule, bytes: &[u8]) -> Result<Step<'_>, Gibberish> {
        Resp::new(&[], rule, &Spelling::new("", 1, 1), None).read(bytes, &mut Vec::new())
    }

    fn verdict(rule: Rule, bytes: &[u8]) -> Verdict<'_> {
        match read(rule, bytes) {
            Ok(Step::Answer(answer)) => {
                assert_eq!(answer.len, bytes.len());
                answer.verdict
            }
            other => panic!("{}: {other:?}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn a_command_is_an_array_of_its_words() {
        let words = ["INCRBY", "a{key}", "{cost}"].map(str::to_owned);
        let mut resp = Resp::new(&words, Rule::Any, &Spelling::new("k", 100, 12), None);
        let mut out = Vec::new();
        resp.ask(7, &mut out);
        assert_eq!(out, b"*3\r\n$6\r\nINCRBY\r\n$4\r\nak07\r\n$2\r\n12\r\n");
    }

    #[test]
    fn nothing_is_asked_before_the_password_was_taken() {
        let login = Login {
            user: Some("ann".into()),
            password: "sesame".into(),
        };
        let words = ["PING".to_owned()];
        let mut resp = Resp::new(&words, Rule::Any, &Spelling::new("", 1, 1), Some(&login));
        for _ in 0..2 {
            let mut out = Vec::new();
            resp.greet(&mut out);
            assert_eq!(out, b"*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$6\r\nsesame\r\n");
            assert!(!resp.may_ask(0));
            assert_eq!(resp.read(b"+OK\r\n", &mut out), Ok(Step::Passed(5)));
            assert!(resp.may_ask(0));
        }
        resp.greet(&mut Vec::new());
        let refused = resp
            .read(b"-WRONGPASS no\r\n", &mut Vec::new())
            .unwrap_err();
        assert!(refused.what.contains("WRONGPASS"), "{refused:?}");
        assert!(!format!("{login:?}").contains("sesame"));
    }

    #[test]
    fn the_first_number_of_a_reply_says_yes_or_no() {
        let cell_yes = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
        let cell_no = b"*5\r\n:1\r\n:16\r\n:0\r\n:2\r\n:32\r\n";
        assert_eq!(verdict(Rule::Zero, cell_yes), Verdict::Admitted);
        assert_eq!(verdict(Rule::Zero, cell_no), Verdict::Refused);
        assert_eq!(verdict(Rule::NonZero, cell_no), Verdict::Admitted);
        assert_eq!(verdict(Rule::AtMost(5), b":5\r\n"), Verdict::Admitted);
        assert_eq!(verdict(Rule::AtMost(5), b":6\r\n"), Verdict::Refused);
        assert_eq!(verdict(Rule::NonZero, b"$1\r\n1\r\n"), Verdict::Admitted);
        assert_eq!(
            verdict(Rule::NonZero, b"*1\r\n*2\r\n:0\r\n:9\r\n"),
            Verdict::Refused
        );
        assert_eq!(verdict(Rule::NonZero, b"#t\r\n"), Verdict::Admitted);
        assert_eq!(verdict(Rule::Any, b"+PONG\r\n"), Verdict::Admitted);
    }

    #[test]
    fn an_error_is_told_in_its_words_and_what_cannot_be_judged_is_no_yes() {
        let error = Verdict::Failed(Failure::Said(b"ERR no"));
        for rule in [Rule::Zero, Rule::NonZero, Rule::Any] {
            assert_eq!(verdict(rule, b"-ERR no\r\n"), error);
        }
        let unjudged = Verdict::Failed(Failure::Unjudged);
        for bytes in [
            &b"+OK\r\n"[..],
            b"$-1\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*2\r\n$-1\r\n:0\r\n",
        ] {
            assert_eq!(verdict(Rule::Zero, bytes), unjudged);
        }
    }

    #[test]
    fn a_reply_is_waited_for_at_every_split_and_what_follows_is_not_part_of_it() {
        let reply = b"*3\r\n:0\r\n$5\r\nhello\r\n%1\r\n+a\r\n*1\r\n:3\r\n";
        for len in 0..reply.len() {
            assert_eq!(
                read(Rule::Zero, &reply[..len]),
                Ok(Step::More),
                "after {len}"
            );
        }
        let two = [&reply[..], &reply[..]].concat();
        match read(Rule::Zero, &two) {
            Ok(Step::Answer(answer)) => assert_eq!(answer.len, reply.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_protocols_and_absurd_sizes_are_told_and_not_waited_for() {
        for (bytes, hint) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "http://"),
            (b"\x00\x00\x12\x04\x00", "grpc://"),
            (b"*99999999999\r\n", "Redis"),
            (b"$x\r\n", "Redis"),
            (b"SSH-2.0-OpenSSH\r\n", "Redis"),
        ] {
            let gibberish = read(Rule::Any, bytes).unwrap_err();
            assert!(gibberish.hint.contains(hint), "{gibberish:?}");
        }
    }
}
