//! What is spoken, without a loop around it: for a load that has a loop of its own.
//!
//! [`run()`](crate::run()) asks from as many connections and threads as one likes, by the clock or not, and survives servers that close.
//! A comparison of servers on one core wants less: one thread, no timers, nothing between a readable socket and the next
//! request. It takes from here what goes over the wire, and does the rest itself.
//!
//! # What it does not know
//!
//! Sockets, time, and how many requests are under way.

use crate::codec::{Codec, Gibberish, Step, Verdict};
use crate::grpc::Grpc;
use crate::plan::Plan;
use crate::target::Target;
use crate::template::Template;
use crate::wrong::Wrong;

/// One connection's side of a protocol: requests into bytes, bytes into answers.
pub struct Speaker(Box<dyn Codec>);

impl std::fmt::Debug for Speaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Speaker").finish_non_exhaustive()
    }
}

/// What stands at the beginning of what has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Not yet a whole thing.
    More,
    /// So many bytes that answer no request.
    Passed(usize),
    /// An answer.
    Answer {
        /// Bytes up to its end.
        len: usize,
        /// Which request it answers, numbered from 0; the oldest one if the protocol keeps the order.
        to: Option<u64>,
        /// Yes or no; what it says instead, if it is neither.
        said: Result<bool, String>,
    },
}

/// A unary call other than Envoy's, whose answer has a yes as field 1: `true`, or 1.
#[derive(Clone, Debug)]
pub struct UnaryCall {
    /// Service and method.
    pub path: String,
    /// The message up to the key.
    pub before_key: Vec<u8>,
    /// The message after it.
    pub after_key: Vec<u8>,
}

impl Speaker {
    /// What a plan asks of one of its targets.
    ///
    /// # Errors
    /// A command that makes no sense.
    pub fn of(plan: &Plan, target: &Target) -> Result<Speaker, Wrong> {
        plan.codec(target).map(Speaker)
    }

    /// Calls over gRPC that are not Envoy's, with the keys of a plan.
    pub fn calling(call: &UnaryCall, plan: &Plan, host: &str) -> Speaker {
        let mut message = Template::fixed(call.before_key.as_slice());
        message.append(&Template::typed("{key}", &plan.spelling()));
        message.push(&call.after_key);
        Speaker(Box::new(Grpc::calling(&call.path, &message, (host, false))))
    }

    /// Writes what comes before any request.
    pub fn greet(&mut self, out: &mut Vec<u8>) {
        self.0.greet(out);
    }

    /// May one more be asked, with so many under way?
    pub fn may_ask(&self, under_way: usize) -> bool {
        self.0.may_ask(under_way) && self.0.ends_before().is_none()
    }

    /// Writes a request for the key with this number.
    pub fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        self.0.ask(key, out);
    }

    /// Looks at what has come; may write what the protocol itself has to answer.
    ///
    /// # Errors
    /// Bytes that will never be an answer.
    pub fn read(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Heard, Wrong> {
        let foreign = |gibberish: Gibberish| Wrong::new(gibberish.what, gibberish.hint);
        Ok(match self.0.read(bytes, out).map_err(foreign)? {
            Step::More => Heard::More,
            Step::Passed(len) => Heard::Passed(len),
            Step::Answer(answer) => Heard::Answer {
                len: answer.len,
                to: answer.to,
                said: match answer.verdict {
                    Verdict::Admitted => Ok(true),
                    Verdict::Refused => Ok(false),
                    Verdict::Answered => Err("how this command says yes is not known".into()),
                    Verdict::Failed(failure) => Err(failure.to_string()),
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(Vec::new())
    }

    #[test]
    fn what_a_plan_asks_is_what_is_spoken_and_understood() {
        let target = Target::parse("resp://127.0.0.1:6379").unwrap();
        let mut speaker = Speaker::of(&plan(), &target).unwrap();
        let mut out = Vec::new();
        speaker.ask(7, &mut out);
        assert!(out.starts_with(b"*6\r\n$11\r\nCL.THROTTLE\r\n$9\r\nbench-007\r\n"));
        let yes = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
        let heard = speaker.read(yes, &mut out).unwrap();
        let len = yes.len();
        let said = Ok(true);
        assert_eq!(
            heard,
            Heard::Answer {
                len,
                to: None,
                said
            }
        );
        let error = speaker.read(b"-ERR no\r\n", &mut out).unwrap();
        assert!(matches!(error, Heard::Answer { said: Err(what), .. } if what == "ERR no"));
    }

    #[test]
    fn another_call_is_spelt_with_its_path_and_its_message() {
        let call = UnaryCall {
            path: "/a.B/C".into(),
            before_key: b"\x0a\x09".to_vec(),
            after_key: b"\x10\x01".to_vec(),
        };
        let mut speaker = Speaker::calling(&call, &plan(), "localhost:1");
        let mut out = Vec::new();
        speaker.ask(7, &mut out);
        let has = |part: &[u8]| out.windows(part.len()).any(|window| window == part);
        assert!(has(b"/a.B/C"));
        assert!(has(b"\0\0\0\0\x0d\x0a\x09bench-007\x10\x01"));
    }
}
