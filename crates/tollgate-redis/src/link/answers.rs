//! What a link makes of answers: which are right, which count against the server, and when it is given up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, Value};
use tokio::time::{Instant, timeout_at};
use tollgate_policy::shared::{FaultKind, StoreFault};

use super::rise::Low;
use super::{Core, Reply, Up, rise};
use crate::call::Call;
use crate::fault::{self, Fault, Meaning, Then};
use crate::report::count;

/// Late answers, or errors of a kind that may pass, in a row: then the link is given up.
const STRIKES: u32 = 3;

impl Core {
    pub(super) fn low(&self) -> Low {
        self.low
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn away(&self) -> StoreFault {
        StoreFault::new(
            FaultKind::Away,
            format!("{} is not asked: {}", self.name, self.low()),
        )
    }

    /// Writes the calls at once and reads as many answers.
    pub(super) async fn exchange(
        &self,
        up: &Arc<Up>,
        calls: &[&Call],
        asking: bool,
        deadline: Instant,
        whole: bool,
    ) -> Result<Vec<Reply>, StoreFault> {
        if Instant::now() >= deadline {
            // Not the server's fault: it was not asked.
            return Err(StoreFault::new(FaultKind::Late, "no time was left to ask"));
        }
        let mut numbers = Vec::with_capacity(calls.len());
        let mut command = |call: &Call| {
            let number = self.context.number();
            numbers.push(number);
            self.command(call, number, whole)
        };
        let mut connection = up.connection.clone();
        let values = match calls {
            [call] if !asking => {
                let command = command(call);
                let sent = connection.send_packed_command(&command);
                timeout_at(deadline, sent)
                    .await
                    .map(|answer| answer.map(|value| vec![value]))
            }
            _ => {
                let mut pipeline = redis::pipe();
                for call in calls {
                    if asking {
                        pipeline.add_command(redis::cmd("ASKING"));
                    }
                    pipeline.add_command(command(call));
                }
                let expected = pipeline.len();
                let sent = connection.send_packed_commands(&pipeline, 0, expected);
                timeout_at(deadline, sent).await.map(|answer| {
                    answer.map(|values| {
                        let step = if asking { 2 } else { 1 };
                        values.into_iter().skip(step - 1).step_by(step).collect()
                    })
                })
            }
        };
        let values = match values {
            Err(_) => return Err(self.was_late(up)),
            Ok(Err(error)) => return Err(self.was_broken(up, &error)),
            Ok(Ok(values)) => values,
        };
        if values.len() != calls.len() {
            return Err(self.was_garbled(up, "another number of answers than of questions"));
        }
        let mut replies = Vec::with_capacity(values.len());
        for (value, number) in values.into_iter().zip(numbers) {
            replies.push(self.judge(up, value, number)?);
        }
        Ok(replies)
    }

    fn command(&self, call: &Call, number: u64, whole: bool) -> redis::Cmd {
        let scripts = &self.context.scripts;
        let mut command = if whole {
            let mut command = redis::cmd("EVAL");
            command.arg(scripts.text(call.script));
            command
        } else {
            let mut command = redis::cmd("EVALSHA");
            command.arg(scripts.sha(call.script));
            command
        };
        command.arg(call.keys.len());
        for key in call.keys.iter() {
            command.arg(key);
        }
        command.arg(number);
        for arg in call.args.iter() {
            command.arg(arg);
        }
        command
    }

    fn judge(&self, up: &Arc<Up>, value: Value, number: u64) -> Result<Reply, StoreFault> {
        let error = match value {
            Value::ServerError(error) => error,
            value if is_numbered(&value, number) => {
                self.was_answered();
                return Ok(Reply::Ran(value));
            }
            _ => return Err(self.was_garbled(up, "an answer to another question")),
        };
        let words = fault::words(&error);
        match fault::meaning(&error) {
            Meaning::ReadOnly => {
                self.give_up(up, FaultKind::Unable, &words);
                Ok(Reply::NotRun(Meaning::ReadOnly))
            }
            Meaning::Fault(fault) => Err(self.was_error(up, &fault, &words)),
            // Whoever says so is there and in time.
            other => {
                reset(&self.late_in_row);
                Ok(Reply::NotRun(other))
            }
        }
    }

    fn was_answered(&self) {
        reset(&self.late_in_row);
        reset(&self.strikes);
    }

    fn was_late(&self, up: &Arc<Up>) -> StoreFault {
        let words = "no answer in time";
        // Relaxed here and below: a count that is off by one opens the breaker one answer earlier or later.
        if self.late_in_row.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES {
            self.give_up(up, FaultKind::Late, "three answers in a row were late");
        }
        StoreFault::new(FaultKind::Late, format!("{}: {words}", self.name))
    }

    fn was_broken(&self, up: &Arc<Up>, error: &RedisError) -> StoreFault {
        if error.kind() == ErrorKind::Parse {
            return self.was_garbled(up, &error.to_string());
        }
        let words = error.to_string();
        if ends_the_connection(error) {
            self.give_up(up, FaultKind::Broken, &words);
            return StoreFault::new(FaultKind::Broken, format!("{}: {words}", self.name));
        }
        // The client would not send it: that says nothing of the server, and nothing of other requests.
        let warnings = &self.context.warnings;
        let told = format!("a request could not be sent: {words}; this is a fault of this program");
        warnings.mention("not-sent", &self.name, told);
        StoreFault::new(FaultKind::Unable, format!("{}: {words}", self.name))
    }

    fn was_garbled(&self, up: &Arc<Up>, words: &str) -> StoreFault {
        self.give_up(up, FaultKind::Garbled, words);
        StoreFault::new(FaultKind::Garbled, format!("{}: {words}", self.name))
    }

    fn was_error(&self, up: &Arc<Up>, fault: &Fault, words: &str) -> StoreFault {
        let context = &self.context;
        reset(&self.late_in_row);
        if fault.script {
            count(&context.counters.script_errors);
        }
        if let Some((code, mend)) = fault.warning {
            let words = format!("{words}; {mend}");
            context.warnings.mention(code, &self.name, words);
        }
        if fault.remap {
            context.look_again.notify_one();
        }
        let given_up = match fault.link {
            Then::Keep => false,
            Then::Strike => self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES,
            Then::GiveUp => true,
        };
        if given_up {
            self.give_up(up, fault.kind, words);
        }
        StoreFault::new(fault.kind, format!("{}: {words}", self.name))
    }

    pub(super) fn give_up(&self, up: &Arc<Up>, kind: FaultKind, words: &str) {
        {
            let mut low = self.low.lock().unwrap_or_else(PoisonError::into_inner);
            let is_this = |state: &Option<Arc<Up>>| {
                state
                    .as_ref()
                    .is_some_and(|now| now.generation == up.generation)
            };
            let gave_up = self.state.send_if_modified(|state| {
                let gave_up = is_this(state);
                if gave_up {
                    *state = None;
                }
                gave_up
            });
            if !gave_up {
                return;
            }
            *low = Low {
                kind,
                words: words.to_owned(),
                warning: None,
            };
        }
        count(&self.broken);
        self.context.look_again.notify_one();
        tracing::warn!(server = %self.name, kind = kind.name(), "given up: {words}");
    }

    /// The server forgot the scripts: it is taught again in the background, once at a time.
    pub(super) fn teach_again(self: &Arc<Self>, up: &Arc<Up>) {
        if self.is_teaching.swap(true, Ordering::Relaxed) {
            return;
        }
        let (core, up) = (self.clone(), up.clone());
        self.context.runtime.spawn(async move {
            let mut connection = up.connection.clone();
            if let Err(low) = rise::teach(&core.context, &mut connection).await {
                tracing::debug!(server = %core.name, "scripts could not be loaded: {low}");
            }
            core.is_teaching.store(false, Ordering::Relaxed);
        });
    }

    /// It was tried and cannot be asked.
    pub(super) fn stay_down(&self, low: Low) {
        let mut kept = self.low.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((code, _)) = kept.warning
            && low.warning.is_none_or(|(other, _)| other != code)
        {
            self.context.warnings.take_back(code, &self.name);
        }
        if let Some((code, mend)) = low.warning {
            self.context
                .warnings
                .raise(code, &self.name, format!("{}; {mend}", low.words));
        }
        if kept.words != low.words {
            tracing::warn!(server = %self.name, kind = low.kind.name(), "cannot be asked: {low}");
        }
        *kept = low;
    }

    pub(super) fn bring_up(&self, connection: MultiplexedConnection) {
        let generation = self.connected.fetch_add(1, Ordering::Relaxed) + 1;
        self.context.warnings.take_back_all(&self.name);
        reset(&self.late_in_row);
        reset(&self.strikes);
        self.state.send_replace(Some(Arc::new(Up {
            connection,
            generation,
        })));
        tracing::info!(server = %self.name, "connected");
    }
}

/// Is there no connection any more?
fn ends_the_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped()
}

/// Sets it to nothing, and does not write if it is.
fn reset(counter: &AtomicU32) {
    if counter.load(Ordering::Relaxed) != 0 {
        counter.store(0, Ordering::Relaxed);
    }
}

fn is_numbered(value: &Value, number: u64) -> bool {
    let Value::Array(items) = value else {
        return false;
    };
    match items.first() {
        Some(Value::Int(first)) => u64::try_from(*first) == Ok(number),
        Some(Value::BulkString(first)) => {
            std::str::from_utf8(first).is_ok_and(|text| text.parse() == Ok(number))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_connection_ends_it() {
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(ends_the_connection(&broken.into()));
        let ours = RedisError::from((ErrorKind::Client, "empty command"));
        assert!(!ends_the_connection(&ours));
    }
}
