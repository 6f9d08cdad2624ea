//! The Redis protocol, as a client sees it: commands as arrays of bulk strings, replies of any kind in order.
//!
//! Of a reply two things are kept: its first number (the reply itself, or the first element of an array however deep it lies),
//! and what stands by the name `verdict` in the outermost map. That is where limiters that answer over this protocol
//! say yes or no ([`Rule`]). The second version of the protocol has no maps: names and values stand one after the other
//! in an array.
//!
//! # What it does not know
//!
//! Pushes and streamed replies of RESP3: they come only to clients that ask for them, and this one does not.

use std::fmt;

use crate::codec::{Answer, Codec, Failure, Gibberish, Step, Verdict, shown};
use crate::rule::{Marks, Rule};
use crate::template::{Spelling, Template};

/// Deeper, or with more elements, and it is no answer of a limiter.
const ELEMENTS_MAX: u64 = 1 << 20;

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
    /// How replies are judged; not at all without it.
    rule: Option<Rule>,
    /// Shows the password; empty if there is none.
    login: Vec<u8>,
    /// Is the answer to that still to come?
    is_strange: bool,
}

impl Resp {
    pub(crate) fn new(
        words: &[String],
        rule: Option<Rule>,
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
            None => match self.rule {
                Some(rule) => rule.judge(reply.marks),
                None => Verdict::Answered,
            },
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
    marks: Marks<'a>,
    error: Option<&'a [u8]>,
}

/// Names and values of the outermost array or map, while they are read.
///
/// An element is one of them if nothing is still to come but them: then whatever lies deeper has been read. So depth
/// needs no stack, and a reply that is very deep costs nothing.
#[derive(Debug, Default)]
struct Fields {
    /// Elements of the outermost array or map that are still to come.
    left: u64,
    /// Is the next of them a value, and the one before it its name?
    is_value: bool,
    /// Was the last name `verdict`?
    is_verdict: bool,
}

impl Fields {
    /// Looks at an element, and its text if it is one; with it so many are still to come, at any depth. Gives the verdict, if
    /// this is it.
    fn see<'a>(&mut self, to_come: u64, text: Option<&'a [u8]>) -> Option<&'a [u8]> {
        if self.left != to_come {
            return None;
        }
        self.left = self.left.saturating_sub(1);
        self.is_value = !self.is_value;
        // If the next one is a value, this one is its name.
        if self.is_value {
            self.is_verdict = text == Some(b"verdict");
            return None;
        }
        text.filter(|_| self.is_verdict)
    }
}

/// The reply at the beginning, if all of it is there.
fn whole(bytes: &[u8]) -> Result<Option<Reply<'_>>, Gibberish> {
    let mut reply = Reply::default();
    let mut fields = Fields::default();
    let mut left = 1_u64;
    let mut is_first = true;
    while left > 0 {
        let is_outermost = reply.len == 0;
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
        let to_come = left;
        left -= 1;
        let text = match kind {
            b'*' | b'~' | b'>' | b'%' => {
                let count = number(line).ok_or_else(|| foreign(bytes))?.max(0);
                let each = if kind == b'%' { 2 } else { 1 };
                left = left.saturating_add(count.unsigned_abs().saturating_mul(each));
                if left > ELEMENTS_MAX {
                    return Err(foreign(bytes));
                }
                None
            }
            b'$' | b'=' | b'!' => {
                let len = number(line).ok_or_else(|| foreign(bytes))?;
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
                    reply.marks.number = text.and_then(number);
                    reply.error = text.filter(|_| kind == b'!');
                }
                is_first = false;
                text
            }
            _ => {
                if is_first {
                    reply.error = (kind == b'-').then_some(line);
                    reply.marks.number = match (kind, line) {
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
            true => fields.left = left,
            false => {
                let verdict = fields.see(to_come, text);
                reply.marks.verdict = reply.marks.verdict.or(verdict);
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

    fn read(rule: impl Into<Option<Rule>>, bytes: &[u8]) -> Result<Step<'_>, Gibberish> {
        let mut resp = Resp::new(&[], rule.into(), &Spelling::new("", 1, 1), None);
        resp.read(bytes, &mut Vec::new())
    }

    fn verdict(rule: impl Into<Option<Rule>>, bytes: &[u8]) -> Verdict<'_> {
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
        let mut resp = Resp::new(&words, None, &Spelling::new("k", 100, 12), None);
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
        let mut resp = Resp::new(&words, None, &Spelling::new("", 1, 1), Some(&login));
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
        let unjudged = Verdict::Failed(Failure::Unjudged(Rule::Zero));
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
    fn our_own_answer_by_policy_is_judged_by_its_verdict_in_both_versions() {
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
            ("pass", Verdict::Admitted),
            ("wait", Verdict::Admitted),
            ("refuse", Verdict::Refused),
            ("never", Verdict::Refused),
        ] {
            let third = third(word);
            let second = third.replace("%7", "*14").replace("%3", "*6");
            let second = second.replace("_\r\n", "$-1\r\n");
            for reply in [third, second] {
                assert_eq!(
                    verdict(Rule::Verdict, reply.as_bytes()),
                    judged,
                    "{reply:?}"
                );
            }
        }
    }

    #[test]
    fn a_verdict_is_found_wherever_it_stands_outermost_and_nowhere_else() {
        for (reply, judged) in [
            // Behind values that are arrays, maps, empty or nothing.
            (
                "%4\r\n+a\r\n*2\r\n*1\r\n:1\r\n%1\r\n+verdict\r\n+pass\r\n+b\r\n*0\r\n+c\r\n_\r\n+verdict\r\n+refuse\r\n",
                Some(Verdict::Refused),
            ),
            ("*2\r\n+verdict\r\n$4\r\npass\r\n", Some(Verdict::Admitted)),
            // The first counts.
            (
                "*4\r\n+verdict\r\n+never\r\n+verdict\r\n+pass\r\n",
                Some(Verdict::Refused),
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
            let judged = judged.unwrap_or(Verdict::Failed(Failure::Unjudged(Rule::Verdict)));
            assert_eq!(
                verdict(Rule::Verdict, reply.as_bytes()),
                judged,
                "{reply:?}"
            );
        }
    }

    #[test]
    fn without_a_rule_an_answer_is_neither_yes_nor_no_and_an_error_is_still_one() {
        for reply in [&b":0\r\n"[..], b"+OK\r\n", b"$-1\r\n", b"*0\r\n"] {
            assert_eq!(verdict(None, reply), Verdict::Answered);
        }
        let error = Verdict::Failed(Failure::Said(b"ERR no"));
        assert_eq!(verdict(None, b"-ERR no\r\n"), error);
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
