//! Exchanges calls and replies on a link: which replies are valid, which count against the server, and when it is
//! marked down.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, Value};
use tokio::time::{Instant, timeout_at};
use tollgate_policy::shared::{FaultKind, StoreFault};

use super::connect::DownReason;
use super::{CallResult, Connected, LinkInner, connect};
use crate::error_action::{self, ErrorAction, LinkAction, ServerFault};
use crate::report::count;
use crate::script_call::ScriptCall;

/// Late replies, or intermittent errors, in a row: then the link is marked down.
const FAILURES_MAX: u32 = 3;

impl LinkInner {
    pub(super) fn down_reason(&self) -> DownReason {
        let reason = self.reason.lock();
        reason.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fault(&self, kind: FaultKind, message: &str) -> StoreFault {
        StoreFault::new(kind, format!("{}: {message}", self.name))
    }

    pub(super) fn is_down(&self) -> StoreFault {
        let reason = self.down_reason();
        self.fault(FaultKind::Away, &format!("the server is down: {reason}"))
    }

    /// Writes the calls at once and reads as many replies.
    pub(super) async fn exchange(
        &self,
        connected: &Connected,
        calls: &[&ScriptCall],
        asking: bool,
        deadline: Instant,
        whole: bool,
    ) -> Result<Vec<CallResult>, StoreFault> {
        if Instant::now() >= deadline {
            // This does not count against the server.
            return Err(StoreFault::new(FaultKind::Late, "the deadline has passed"));
        }
        let scripts = &self.context.scripts;
        let numbered = calls.iter().map(|call| {
            let number = self.context.next_number();
            (call.command(scripts, number, whole), number)
        });
        let (commands, numbers): (Vec<redis::Cmd>, Vec<u64>) = numbered.unzip();
        let mut connection = connected.connection.clone();
        let replies = match commands.as_slice() {
            [command] if !asking => {
                let sent = timeout_at(deadline, connection.send_packed_command(command));
                sent.await.map(|reply| reply.map(|value| vec![value]))
            }
            _ => {
                let mut pipeline = redis::pipe();
                for command in commands {
                    if asking {
                        pipeline.add_command(redis::cmd("ASKING"));
                    }
                    pipeline.add_command(command);
                }
                let expected = pipeline.len();
                let sent = connection.send_packed_commands(&pipeline, 0, expected);
                let step = if asking { 2 } else { 1 };
                let every = |values: Vec<Value>| values.into_iter().skip(step - 1).step_by(step);
                let replies = timeout_at(deadline, sent).await;
                replies.map(|replies| replies.map(|values| every(values).collect()))
            }
        };
        let replies = match replies {
            Err(_) => return Err(self.on_late(connected)),
            Ok(Err(error)) => return Err(self.on_client_error(connected, &error)),
            Ok(Ok(replies)) => replies,
        };
        if replies.len() != numbers.len() {
            return Err(self.on_bad_reply(connected, "unexpected number of replies"));
        }
        let results = replies.into_iter().zip(numbers);
        results
            .map(|(value, number)| self.classify(connected, value, number))
            .collect()
    }

    fn classify(
        &self,
        connected: &Connected,
        value: Value,
        number: u64,
    ) -> Result<CallResult, StoreFault> {
        let error = match value {
            Value::ServerError(error) => error,
            value if has_number(&value, number) => {
                reset(&self.late_in_row);
                reset(&self.failures_in_row);
                return Ok(CallResult::Ran(value));
            }
            _ => return Err(self.on_bad_reply(connected, "the reply to another call")),
        };
        let message = error_action::message(&error);
        match error_action::classify(&error) {
            ErrorAction::FindPrimary => {
                self.mark_down(connected, FaultKind::Unable, &message);
                Ok(CallResult::NotRun(ErrorAction::FindPrimary))
            }
            ErrorAction::Fail(fault) => Err(self.on_server_error(connected, &fault, &message)),
            // The server is up and in time.
            other => {
                reset(&self.late_in_row);
                Ok(CallResult::NotRun(other))
            }
        }
    }

    fn on_late(&self, connected: &Connected) -> StoreFault {
        // Relaxed here and below: a count that is off by one marks the link down one reply earlier or later.
        if self.late_in_row.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            self.mark_down(connected, FaultKind::Late, "three late replies in a row");
        }
        self.fault(FaultKind::Late, "no reply in time")
    }

    fn on_client_error(&self, connected: &Connected, error: &RedisError) -> StoreFault {
        let message = error.to_string();
        if error.kind() == ErrorKind::Parse {
            return self.on_bad_reply(connected, &message);
        }
        if ends_the_connection(error) {
            self.mark_down(connected, FaultKind::Broken, &message);
            return self.fault(FaultKind::Broken, &message);
        }
        // The client library rejected the request. That depends neither on the server nor on other requests.
        let text = format!("a request could not be sent: {message}; this is a fault of Tollgate");
        self.context
            .warnings
            .raise_briefly("not-sent", &self.name, text);
        self.fault(FaultKind::Unable, &message)
    }

    fn on_bad_reply(&self, connected: &Connected, message: &str) -> StoreFault {
        self.mark_down(connected, FaultKind::Garbled, message);
        self.fault(FaultKind::Garbled, message)
    }

    fn on_server_error(
        &self,
        connected: &Connected,
        fault: &ServerFault,
        message: &str,
    ) -> StoreFault {
        let context = &self.context;
        reset(&self.late_in_row);
        if fault.script {
            count(&context.counters.script_errors);
        }
        if let Some((code, hint)) = fault.warning {
            let text = format!("{message}; {hint}");
            context.warnings.raise_briefly(code, &self.name, text);
        }
        if fault.remap {
            context.topology_changed.notify_one();
        }
        let is_down = match fault.link {
            LinkAction::Keep => false,
            LinkAction::CountFailure => {
                self.failures_in_row.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX
            }
            LinkAction::MarkDown => true,
        };
        if is_down {
            self.mark_down(connected, fault.kind, message);
        }
        self.fault(fault.kind, message)
    }

    /// Marks the link down, unless it has another connection by now.
    pub(super) fn mark_down(&self, connected: &Connected, kind: FaultKind, message: &str) {
        {
            let mut reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
            let was_up = self.state.send_if_modified(|state| {
                let is_same = |now: &Arc<Connected>| now.generation == connected.generation;
                let is_same = state.as_ref().is_some_and(is_same);
                if is_same {
                    *state = None;
                }
                is_same
            });
            if !was_up {
                return;
            }
            *reason = DownReason::new(kind, message);
        }
        count(&self.broken);
        self.context.topology_changed.notify_one();
        tracing::warn!(server = %self.name, kind = kind.name(), "server down: {message}");
    }

    /// Marks the link down, whatever its connection.
    pub(super) fn mark_down_now(&self, kind: FaultKind, message: &str) {
        let connected = self.state.borrow().clone();
        if let Some(connected) = connected {
            self.mark_down(&connected, kind, message);
        }
    }

    /// Loads the scripts again in the background, once at a time: the server lost them.
    pub(super) fn reload_scripts(self: &Arc<Self>, connected: &Connected) {
        if self.is_loading_scripts.swap(true, Ordering::Relaxed) {
            return;
        }
        let (link, mut connection) = (self.clone(), connected.connection.clone());
        self.context.runtime.spawn(async move {
            let loaded = connect::load_scripts(&link.context, &mut connection).await;
            if let Err(reason) = loaded {
                tracing::debug!(server = %link.name, "loading scripts failed: {reason}");
            }
            link.is_loading_scripts.store(false, Ordering::Relaxed);
        });
    }

    /// Records why a connection attempt failed.
    pub(super) fn stay_down(&self, reason: DownReason) {
        let mut last = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let warnings = &self.context.warnings;
        if !last.code().is_empty() && last.code() != reason.code() {
            warnings.clear(last.code(), &self.name);
        }
        if !reason.code().is_empty() {
            warnings.raise(reason.code(), &self.name, reason.to_string());
        }
        if last.message != reason.message {
            tracing::warn!(server = %self.name, kind = reason.kind.name(), "server down: {reason}");
        }
        *last = reason;
    }

    pub(super) fn mark_up(&self, connection: MultiplexedConnection) {
        let generation = self.connected.fetch_add(1, Ordering::Relaxed) + 1;
        self.context.warnings.clear_lasting(&self.name);
        reset(&self.late_in_row);
        reset(&self.failures_in_row);
        self.state.send_replace(Some(Arc::new(Connected {
            connection,
            generation,
        })));
        tracing::info!(server = %self.name, "connected");
    }
}

/// Whether there is no connection any more.
fn ends_the_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped()
}

/// Sets it to zero, without a write if it is.
fn reset(counter: &AtomicU32) {
    if counter.load(Ordering::Relaxed) != 0 {
        counter.store(0, Ordering::Relaxed);
    }
}

fn has_number(value: &Value, number: u64) -> bool {
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
