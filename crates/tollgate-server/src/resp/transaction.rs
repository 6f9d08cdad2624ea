//! `MULTI` … `EXEC`: commands that are kept until the client says to run them, or to forget them.
//!
//! # Theory
//!
//! Many libraries put every pipeline between `MULTI` and `EXEC`. What is kept are the bytes of the commands, as arrays,
//! one behind the other: a stream like the one that they came in. So running them is answering a second stream before
//! the rest of the first, by the same code and as fast; it stops where that would stop (answers that nobody reads, a
//! store that has to be waited for) and goes on there.
//!
//! # Invariant
//!
//! Nothing that is kept has run, and nothing runs unless all of it could be kept: after a command that there is not,
//! with too few words or too many, or beyond the bounds, `EXEC` runs nothing. Each command that is run writes one
//! answer, so the array that `EXEC` begins is as long as it says.
//!
//! # What it does not know
//!
//! Other connections: their commands may run between these, as between those of any pipeline. Whether the words of a
//! command make sense: that is found out when it runs, and is one of the answers.

use super::about;
use super::codec::Command;
use super::reply::{Reply, push_number};
use super::throttle::Form;

/// Commands that are kept at the most, and their bytes.
const COMMANDS_MOST: usize = 4096;
const BYTES_MOST: usize = 256 * 1024;

const TOO_MANY: &str = "ERR a transaction has at most 4096 commands of 256 KiB together; send several, or a \
                        pipeline without MULTI";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// Commands that are about transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

impl Step {
    /// The step by the name of its command.
    pub(super) fn of(name: &[u8]) -> Option<Step> {
        let is = |known: &Step| name.eq_ignore_ascii_case(known.name().as_bytes());
        let all = [
            Step::Multi,
            Step::Exec,
            Step::Discard,
            Step::Watch,
            Step::Unwatch,
        ];
        all.into_iter().find(is)
    }

    fn name(self) -> &'static str {
        match self {
            Step::Multi => "multi",
            Step::Exec => "exec",
            Step::Discard => "discard",
            Step::Watch => "watch",
            Step::Unwatch => "unwatch",
        }
    }

    fn fits(self, command: &Command<'_>) -> bool {
        match self {
            Step::Watch => command.len() >= 2,
            _ => command.len() == 1,
        }
    }

    /// Answers it where no transaction has begun. Does one begin?
    pub(super) fn outside(self, command: &Command<'_>, reply: &mut Reply<'_>) -> bool {
        match self {
            // As Redis has it: this one ends what is not there.
            Step::Exec if !self.fits(command) => reply.error(
                "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
            ),
            _ if !self.fits(command) => about::arity(reply, self.name()),
            Step::Exec => reply.error("ERR EXEC without MULTI"),
            Step::Discard => reply.error("ERR DISCARD without MULTI"),
            // Nobody but who asks changes a key, and what is asked looks at it itself: there is nothing to watch.
            Step::Multi | Step::Watch | Step::Unwatch => reply.simple("OK"),
        }
        self == Step::Multi && self.fits(command)
    }
}

/// What became of a transaction.
#[derive(Debug)]
pub(super) enum Then {
    /// It goes on.
    Open(Transaction),
    /// It is over, and nothing has run.
    Over,
    /// It is to be run; the head of its answers is written.
    Run(Run),
}

/// A transaction that has begun.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// Arrays, one behind the other.
    commands: Vec<u8>,
    count: usize,
    /// Was there an error, so that nothing may run?
    is_wrong: bool,
}

/// Commands that are run.
#[derive(Debug)]
pub(super) struct Run {
    commands: Vec<u8>,
    at: usize,
}

impl Run {
    /// What has not run yet.
    pub(super) fn left(&self) -> &[u8] {
        self.commands.get(self.at..).unwrap_or_default()
    }

    /// So many bytes more have run.
    pub(super) fn advance(&mut self, count: usize) {
        self.at += count;
    }
}

impl Transaction {
    /// Answers a command after `MULTI`, which stands in `bytes` unless it is a line. `RESET` and `QUIT` do not come here.
    /// `throttles`: may callers choose their own limits?
    pub(super) fn answer(
        mut self,
        command: &Command<'_>,
        bytes: &[u8],
        throttles: bool,
        reply: &mut Reply<'_>,
    ) -> Then {
        match Step::of(command.word(0)) {
            Some(step @ Step::Exec) if !step.fits(command) => {
                reply.error("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
                return Then::Over;
            }
            Some(step) if !step.fits(command) => {
                self.is_wrong = true;
                about::arity(reply, step.name());
            }
            Some(Step::Exec) if self.is_wrong => {
                reply.error(ABORTED);
                return Then::Over;
            }
            Some(Step::Exec) => {
                reply.array(self.count);
                return Then::Run(Run {
                    commands: self.commands,
                    at: 0,
                });
            }
            Some(Step::Discard) => {
                reply.simple("OK");
                return Then::Over;
            }
            // As in Redis, these two do not harm the transaction.
            Some(Step::Multi) => reply.error("ERR MULTI calls can not be nested"),
            Some(Step::Watch) => reply.error("ERR WATCH inside MULTI is not allowed"),
            Some(Step::Unwatch) | None => match self.put(command, bytes, throttles, reply) {
                true => reply.simple("QUEUED"),
                false => {
                    self.is_wrong = true;
                    // What cannot run any more need not be kept.
                    self.commands = Vec::new();
                }
            },
        }
        Then::Open(self)
    }

    /// Keeps a command; false if it cannot be, which is answered then.
    fn put(
        &mut self,
        command: &Command<'_>,
        bytes: &[u8],
        throttles: bool,
        reply: &mut Reply<'_>,
    ) -> bool {
        let name = command.word(0);
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if let Some(form) = Form::of(name) {
            let wrong = match throttles {
                true => form.wrong_count(command),
                false => Some(Form::OFF.into()),
            };
            if let Some(wrong) = wrong {
                reply.error(&wrong);
                return false;
            }
        } else if is("auth") || is("hello") {
            // They may end the connection, which would leave the array of answers without its end.
            reply.error("ERR AUTH and HELLO are not allowed inside MULTI");
            return false;
        } else if !about::is_fit(command, reply) {
            return false;
        }
        if self.is_wrong {
            return true;
        }
        if self.count >= COMMANDS_MOST {
            reply.error(TOO_MANY);
            return false;
        }
        let begin = self.commands.len();
        match command.is_line {
            false => self.commands.extend_from_slice(bytes),
            true => push_array(&mut self.commands, command),
        }
        if self.commands.len() > BYTES_MOST {
            self.commands.truncate(begin);
            reply.error(TOO_MANY);
            return false;
        }
        self.count += 1;
        true
    }
}

/// A command that was typed on a line, as libraries send it.
fn push_array(out: &mut Vec<u8>, command: &Command<'_>) {
    let size = |out: &mut Vec<u8>, kind: u8, size: usize| {
        out.push(kind);
        push_number(out, i64::try_from(size).unwrap_or(i64::MAX));
        out.extend_from_slice(b"\r\n");
    };
    size(out, b'*', command.len());
    for word in command.from(0) {
        size(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Bounds, Found, Words};
    use super::*;

    /// Answers a line in a transaction.
    fn answered(open: Transaction, line: &str) -> (Then, String) {
        let mut words = Words::default();
        let line = format!("{line}\n");
        words.find(line.as_bytes(), &Bounds::KNOWN).unwrap();
        let command = words.command(line.as_bytes());
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            is_third: false,
        };
        let then = open.answer(&command, b"", true, &mut reply);
        (then, String::from_utf8(out).unwrap())
    }

    #[track_caller]
    fn goes_on(open: Transaction, line: &str, answer: &str) -> Transaction {
        match answered(open, line) {
            (Then::Open(open), told) if told == answer => open,
            (then, told) => panic!("{then:?} {told}"),
        }
    }

    #[test]
    fn what_is_typed_is_kept_as_the_array_that_it_means() {
        let open = goes_on(Transaction::default(), r#"ECHO "a b\n" '' x"#, {
            "-ERR wrong number of arguments for 'echo' command\r\n"
        });
        assert!(open.is_wrong && open.commands.is_empty());
        let open = goes_on(Transaction::default(), r#"ECHO "a b\r\n""#, "+QUEUED\r\n");
        assert_eq!(open.commands, b"*2\r\n$4\r\nECHO\r\n$5\r\na b\r\n\r\n");
        let found = Words::default().find(&open.commands, &Bounds::KNOWN);
        assert_eq!(found, Ok(Found::Command(open.commands.len())));
    }

    #[test]
    fn what_is_kept_is_bounded_in_count_and_in_bytes() {
        let mut open = Transaction::default();
        for _ in 0..COMMANDS_MOST {
            open = goes_on(open, "PING", "+QUEUED\r\n");
        }
        let told = format!("-{TOO_MANY}\r\n");
        open = goes_on(open, "PING", &told);
        assert_eq!(open.commands.capacity(), 0, "what cannot run is not kept");
        let (then, told) = answered(open, "EXEC");
        assert!(matches!(then, Then::Over));
        assert_eq!(told, format!("-{ABORTED}\r\n"));

        let (mut open, mut count) = (Transaction::default(), 0);
        let line = format!("ECHO {}", "x".repeat(60_000));
        let told = loop {
            match answered(open, &line) {
                (Then::Open(more), told) if told == "+QUEUED\r\n" => open = more,
                (Then::Open(more), told) => {
                    open = more;
                    break told;
                }
                (then, told) => panic!("{then:?} {told}"),
            }
            assert!(open.commands.len() <= BYTES_MOST);
            count += 1;
        };
        assert_eq!((count, told), (4, format!("-{TOO_MANY}\r\n")));
        // What follows is looked at, and not kept.
        open = goes_on(open, "PING", "+QUEUED\r\n");
        assert_eq!(open.commands.capacity(), 0);
    }

    #[test]
    fn the_bounds_are_told_as_they_are() {
        assert!(TOO_MANY.contains(&format!("{COMMANDS_MOST} commands")));
        assert!(TOO_MANY.contains(&format!("{} KiB", BYTES_MOST / 1024)));
    }
}
