//! The door for Redis clients without its sockets, for the fuzz targets.

use std::net::Ipv4Addr;

use tokio::sync::watch;

use super::*;
use crate::http::Service;
use crate::resp::codec::Bounds;
use crate::resp::{RespBind, RespDoor};

/// Bytes of answers that wait before more is read, and the most that one more command adds.
pub const KEPT_MOST: usize = 256 * 1024 + 192 * 1024;
/// Bytes of a command.
pub const COMMAND_MOST: usize = 128 * 1024;

/// What was read of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The words of each command.
    pub commands: Vec<Vec<Vec<u8>>>,
    /// Why no more is read, if the stream makes no sense.
    pub wrong: Option<String>,
    /// What was not read, because it is no whole command.
    pub left: usize,
    /// The most bytes of it that were waited for.
    pub needed: usize,
}

/// Reads commands as a connection does, of pieces that come one after the other.
pub fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, is_known: bool) -> Read {
    let bounds = match is_known {
        true => Bounds::KNOWN,
        false => Bounds::STRANGE,
    };
    let (mut words, mut bytes, mut needed) = (Words::default(), BytesMut::new(), 1);
    let mut all = Read::default();
    for piece in pieces {
        bytes.extend_from_slice(piece);
        while all.wrong.is_none() && bytes.len() >= needed {
            match words.find(&bytes, &bounds) {
                Ok(Found::Command(size)) => {
                    let command = words.command(&bytes);
                    let command = command.from(0).map(<[u8]>::to_vec).collect();
                    all.commands.push(command);
                    bytes.advance(size);
                    needed = 1;
                }
                Ok(Found::Nothing(size)) => {
                    bytes.advance(size);
                    needed = 1;
                }
                Ok(Found::Part(more)) => {
                    needed = more;
                    all.needed = all.needed.max(more);
                }
                Err(malformed) => all.wrong = Some(malformed.to_string()),
            }
        }
    }
    all.left = bytes.len();
    all
}

/// The front end without a listener.
#[derive(Debug)]
pub struct FrontEnd {
    shared: Arc<Shared>,
    // Dropping the sender is the shutdown signal.
    _stop: watch::Sender<bool>,
}

/// What a client was answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// All answers.
    pub bytes: Vec<u8>,
    /// Did the server end the connection?
    pub is_closed: bool,
    /// The most bytes of answers that waited for the client.
    pub kept: usize,
    /// The most bytes of questions that were kept unread.
    pub unread: usize,
}

impl FrontEnd {
    /// A front end with this policy. None if the policy is none, or the password cannot be one.
    pub fn new(policy: &str, password: Option<&str>) -> Option<FrontEnd> {
        let (stop, stopped) = watch::channel(false);
        let bind = RespBind {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            password: password.map(str::to_owned),
            keys: Some(1_000),
        };
        let service = Service::new(crate::engine::for_tests(policy), stopped);
        let shared = RespDoor::of(&bind).ok()?.opens(service).0;
        Some(FrontEnd {
            shared,
            _stop: stop,
        })
    }

    /// Answers one client that sends these pieces and reads whenever something waits for it. Pauses are left out.
    pub fn answer<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Answered {
        let mut connection = Connection::new(&self.shared, (Ipv4Addr::LOCALHOST, 0).into());
        let (mut read, mut needed) = (BytesMut::new(), 1);
        let mut all = Answered::default();
        for piece in pieces {
            read.extend_from_slice(piece);
            while !all.is_closed && (read.len() >= needed || connection.run.is_some()) {
                let stop = connection.answer_all(&mut read);
                all.kept = all.kept.max(connection.out.left());
                while !connection.out.is_empty() {
                    let sent = connection.out.next().len();
                    all.bytes.extend_from_slice(connection.out.next());
                    connection.out.sent(sent);
                }
                needed = match stop {
                    Stop::Needs(more) => more,
                    // There is no store to wait for.
                    Stop::Full | Stop::Pause(_) | Stop::Waits(_) => 1,
                    Stop::Close => {
                        all.is_closed = true;
                        break;
                    }
                };
                all.unread = all.unread.max(read.len());
            }
        }
        all
    }
}
