//! `MULTI` … `EXEC`: commands queued until the client executes or discards them.
//!
//! # Theory
//!
//! Many libraries send every pipeline between `MULTI` and `EXEC`. The queue holds the bytes of the commands as arrays, a
//! stream like the one that they came in. So executing them is answering a second stream before the rest of the first, by
//! the same code and as fast. It stops where the first would stop (unread output, a pending decision) and continues there.
//!
//! # Invariant
//!
//! Nothing runs unless all commands were queued: after an unknown command, a wrong number of arguments, or a
//! command beyond the bounds, `EXEC` runs nothing. Each command writes one reply, so the array that `EXEC` begins has the length
//! that it announces.
//!
//! # Limits
//!
//! Commands of other connections may run in between, as in any pipeline. Whether the arguments of a command are valid is found
//! when it runs, and is one of the replies.

use bytes::Bytes;

use super::codec::Command;
use super::introspection;
use super::reply::{Reply, push_integer};
use super::throttle::Dialect;

/// Most queued commands, and their bytes.
const MAX_COMMANDS: usize = 4096;
const MAX_BYTES: usize = 256 * 1024;

const TOO_MANY: &str = "ERR a transaction has at most 4096 commands of 256 KiB together; send several, or a \
                        pipeline without MULTI";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// A command that controls a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionCommand {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

impl TransactionCommand {
    pub(super) fn from_name(name: &[u8]) -> Option<TransactionCommand> {
        let is = |known: &TransactionCommand| name.eq_ignore_ascii_case(known.name().as_bytes());
        let all = [
            TransactionCommand::Multi,
            TransactionCommand::Exec,
            TransactionCommand::Discard,
            TransactionCommand::Watch,
            TransactionCommand::Unwatch,
        ];
        all.into_iter().find(is)
    }

    fn name(self) -> &'static str {
        match self {
            TransactionCommand::Multi => "multi",
            TransactionCommand::Exec => "exec",
            TransactionCommand::Discard => "discard",
            TransactionCommand::Watch => "watch",
            TransactionCommand::Unwatch => "unwatch",
        }
    }

    fn has_valid_arity(self, command: &Command<'_>) -> bool {
        match self {
            TransactionCommand::Watch => command.len() >= 2,
            _ => command.len() == 1,
        }
    }

    /// Replies to it where no transaction is open. Returns true if one begins.
    pub(super) fn reply_outside(self, command: &Command<'_>, reply: &mut Reply<'_>) -> bool {
        match self {
            // As in Redis.
            TransactionCommand::Exec if !self.has_valid_arity(command) => reply.error(
                "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
            ),
            _ if !self.has_valid_arity(command) => introspection::arity(reply, self.name()),
            TransactionCommand::Exec => reply.error("ERR EXEC without MULTI"),
            TransactionCommand::Discard => reply.error("ERR DISCARD without MULTI"),
            // No command depends on what another client changed, so there is nothing to watch.
            TransactionCommand::Multi | TransactionCommand::Watch | TransactionCommand::Unwatch => reply.simple("OK"),
        }
        self == TransactionCommand::Multi && self.has_valid_arity(command)
    }
}

/// The state of a transaction after a command.
#[derive(Debug)]
pub(super) enum TransactionState {
    Open(Transaction),
    /// Closed without effect.
    Closed,
    /// To be executed: the commands. The header of the replies is written.
    Execute(Bytes),
}

/// An open transaction.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The commands as arrays.
    commands: Vec<u8>,
    count: usize,
    /// An error occurred, so nothing may run.
    is_aborted: bool,
}

impl Transaction {
    /// Replies to a command after `MULTI` whose array is `bytes`, unless it is inline. `RESET` and `QUIT` do not come here.
    /// `allows_throttle`: callers may send limits.
    pub(super) fn reply(
        mut self,
        command: &Command<'_>,
        bytes: &[u8],
        allows_throttle: bool,
        reply: &mut Reply<'_>,
    ) -> TransactionState {
        match TransactionCommand::from_name(command.word(0)) {
            Some(control @ TransactionCommand::Exec) if !control.has_valid_arity(command) => {
                reply.error("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
                return TransactionState::Closed;
            }
            Some(control) if !control.has_valid_arity(command) => {
                self.is_aborted = true;
                introspection::arity(reply, control.name());
            }
            Some(TransactionCommand::Exec) if self.is_aborted => {
                reply.error(ABORTED);
                return TransactionState::Closed;
            }
            Some(TransactionCommand::Exec) => {
                reply.array(self.count);
                return TransactionState::Execute(self.commands.into());
            }
            Some(TransactionCommand::Discard) => {
                reply.simple("OK");
                return TransactionState::Closed;
            }
            // As in Redis, these two do not harm the transaction.
            Some(TransactionCommand::Multi) => reply.error("ERR MULTI calls can not be nested"),
            Some(TransactionCommand::Watch) => reply.error("ERR WATCH inside MULTI is not allowed"),
            Some(TransactionCommand::Unwatch) | None => {
                match self.queue(command, bytes, allows_throttle, reply) {
                    true => reply.simple("QUEUED"),
                    false => {
                        self.is_aborted = true;
                        // Nothing of it will run.
                        self.commands = Vec::new();
                    }
                }
            }
        }
        TransactionState::Open(self)
    }

    /// Queues a command. Returns false, with an error written, if it cannot be queued.
    fn queue(
        &mut self,
        command: &Command<'_>,
        bytes: &[u8],
        allows_throttle: bool,
        reply: &mut Reply<'_>,
    ) -> bool {
        let name = command.word(0);
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if let Some(dialect) = Dialect::from_name(name) {
            let wrong = match allows_throttle {
                true => dialect.wrong_count(command),
                false => Some(Dialect::OFF.into()),
            };
            if let Some(wrong) = wrong {
                reply.error(&wrong);
                return false;
            }
        } else if is("auth") || is("hello") {
            // They may close the connection, which would leave the array of replies incomplete.
            reply.error("ERR AUTH and HELLO are not allowed inside MULTI");
            return false;
        } else if !introspection::is_valid(command, reply) {
            return false;
        }
        if self.is_aborted {
            return true;
        }
        if self.count >= MAX_COMMANDS {
            reply.error(TOO_MANY);
            return false;
        }
        let begin = self.commands.len();
        match command.is_line {
            false => self.commands.extend_from_slice(bytes),
            true => push_array(&mut self.commands, command),
        }
        if self.commands.len() > MAX_BYTES {
            self.commands.truncate(begin);
            reply.error(TOO_MANY);
            return false;
        }
        self.count += 1;
        true
    }
}

/// Writes an inline command as an array.
fn push_array(out: &mut Vec<u8>, command: &Command<'_>) {
    let size = |out: &mut Vec<u8>, kind: u8, size: usize| {
        out.push(kind);
        push_integer(out, i64::try_from(size).unwrap_or(i64::MAX));
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

    /// Replies to an inline command in a transaction.
    fn replied(open: Transaction, line: &str) -> (TransactionState, String) {
        let mut words = Words::default();
        let line = format!("{line}\n");
        words.find(line.as_bytes(), &Bounds::AUTHENTICATED).unwrap();
        let command = words.command(line.as_bytes());
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            is_resp3: false,
        };
        let then = open.reply(&command, b"", true, &mut reply);
        (then, String::from_utf8(out).unwrap())
    }

    #[track_caller]
    fn stays_open(open: Transaction, line: &str, expected: &str) -> Transaction {
        match replied(open, line) {
            (TransactionState::Open(open), reply) if reply == expected => open,
            (state, reply) => panic!("{state:?} {reply}"),
        }
    }

    #[test]
    fn an_inline_command_is_queued_as_an_array() {
        let open = stays_open(Transaction::default(), r#"ECHO "a b\n" '' x"#, {
            "-ERR wrong number of arguments for 'echo' command\r\n"
        });
        assert!(open.is_aborted && open.commands.is_empty());
        let open = stays_open(Transaction::default(), r#"ECHO "a b\r\n""#, "+QUEUED\r\n");
        assert_eq!(open.commands, b"*2\r\n$4\r\nECHO\r\n$5\r\na b\r\n\r\n");
        let found = Words::default().find(&open.commands, &Bounds::AUTHENTICATED);
        assert_eq!(found, Ok(Found::Command(open.commands.len())));
    }

    #[test]
    fn the_queue_is_bounded_in_commands_and_bytes() {
        let mut open = Transaction::default();
        for _ in 0..MAX_COMMANDS {
            open = stays_open(open, "PING", "+QUEUED\r\n");
        }
        let expected = format!("-{TOO_MANY}\r\n");
        open = stays_open(open, "PING", &expected);
        assert_eq!(
            open.commands.capacity(),
            0,
            "an aborted transaction keeps nothing"
        );
        let (then, expected) = replied(open, "EXEC");
        assert!(matches!(then, TransactionState::Closed));
        assert_eq!(expected, format!("-{ABORTED}\r\n"));

        let (mut open, mut count) = (Transaction::default(), 0);
        let line = format!("ECHO {}", "x".repeat(60_000));
        let expected = loop {
            match replied(open, &line) {
                (TransactionState::Open(more), expected) if expected == "+QUEUED\r\n" => {
                    open = more;
                }
                (TransactionState::Open(more), expected) => {
                    open = more;
                    break expected;
                }
                (state, reply) => panic!("{state:?} {reply}"),
            }
            assert!(open.commands.len() <= MAX_BYTES);
            count += 1;
        };
        assert_eq!((count, expected), (4, format!("-{TOO_MANY}\r\n")));
        // Later commands are checked and not queued.
        open = stays_open(open, "PING", "+QUEUED\r\n");
        assert_eq!(open.commands.capacity(), 0);
    }

    #[test]
    fn the_error_names_the_bounds() {
        assert!(TOO_MANY.contains(&format!("{MAX_COMMANDS} commands")));
        assert!(TOO_MANY.contains(&format!("{} KiB", MAX_BYTES / 1024)));
    }
}
