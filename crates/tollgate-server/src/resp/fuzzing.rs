//! The front end for Redis clients without sockets, for the fuzz targets.

use std::net::Ipv4Addr;

use tokio::sync::watch;

use bytes::{Buf, BytesMut};

use super::codec::{Bounds, Found, Words};
use super::connection::{Connection, Stop};
use super::*;

/// Most unsent output: what may wait, and the reply to one more command.
pub const MAX_OUTPUT_BYTES: usize = 256 * 1024 + 192 * 1024;
/// Largest command.
pub const MAX_COMMAND_BYTES: usize = 128 * 1024;

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
pub fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, is_authenticated: bool) -> Read {
    let bounds = match is_authenticated {
        true => Bounds::AUTHENTICATED,
        false => Bounds::UNAUTHENTICATED,
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
                Ok(Found::Empty(size)) => {
                    bytes.advance(size);
                    needed = 1;
                }
                Ok(Found::Partial(more)) => {
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

/// What a connection did with the bytes of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// All output.
    pub bytes: Vec<u8>,
    /// The server closed the connection.
    pub is_closed: bool,
    /// The most unsent output.
    pub kept: usize,
    /// The most input kept.
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
        let service = HttpApi::new(crate::engine::for_tests(policy), stopped);
        let shared = RespConfig::new(&bind).ok()?.build(service).0;
        Some(FrontEnd {
            shared,
            _stop: stop,
        })
    }

    /// Answers one client that sends these pieces and reads whenever something waits for it. Pauses are left out.
    pub fn answer<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Exchange {
        let mut connection = Connection::new(&self.shared, (Ipv4Addr::LOCALHOST, 0).into());
        let (mut read, mut needed) = (BytesMut::new(), 1);
        let mut all = Exchange::default();
        for piece in pieces {
            read.extend_from_slice(piece);
            while !all.is_closed && (read.len() >= needed || connection.is_executing()) {
                let stop = connection.reply_all(&mut read);
                all.kept = all.kept.max(connection.output.unsent());
                while !connection.output.is_empty() {
                    let sent = connection.output.next().len();
                    all.bytes.extend_from_slice(connection.output.next());
                    connection.output.consume(sent);
                }
                needed = match stop {
                    Stop::NeedsBytes(more) => more,
                    // There is no store to wait for.
                    Stop::Full | Stop::Delay(_) | Stop::Pending(_) => 1,
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
