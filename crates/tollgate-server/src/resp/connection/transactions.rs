//! Transactions of a connection: what begins one, goes into it, and runs it.

use super::super::transaction::Then;
use super::*;

impl Connection<'_> {
    /// Answers a command about transactions where none has begun.
    pub(super) fn step(&mut self, step: Step, command: &Command<'_>) {
        if step.outside(command, &mut self.reply()) {
            self.open = Some(Transaction::default());
            // A call that is known by its pattern would be decided at once.
            self.pattern = None;
        }
    }

    /// Answers a command in a transaction.
    #[cold]
    pub(super) fn answer_open(
        &mut self,
        open: Transaction,
        command: &Command<'_>,
        bytes: &[u8],
    ) -> Option<Stop> {
        let name = command.word(0);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        // These end it, and nothing of it runs.
        if is(b"RESET") || is(b"QUIT") || command.is_line && is_http(name) {
            return self.answer_other(command);
        }
        let throttles = self.shared.throttle.is_some();
        match open.answer(command, bytes, throttles, &mut self.reply()) {
            Then::Open(open) => self.open = Some(open),
            Then::Over => {}
            Then::Run(run) => {
                self.run = Some(run);
                // Nothing more of what was read, until that is done.
                return Some(Stop::Needs(1));
            }
        }
        None
    }

    /// Runs what a transaction has kept. None if nothing of it is left.
    pub(super) fn run(&mut self, words: &mut Words) -> Option<Stop> {
        let mut run = self.run.take()?;
        let (stop, at) = self.answer_bytes(run.left(), words);
        if let Stop::Needs(_) = stop {
            return None;
        }
        run.advance(at);
        self.run = Some(run);
        Some(stop)
    }
}
