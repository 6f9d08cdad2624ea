//! The session of a client (protocol version, authentication, name, database), and the commands that client libraries
//! send when they connect.
//!
//! Replies are those of Redis 7, because client libraries choose their features by them. Nothing is claimed beyond what they
//! need.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::codec::{Bounds, Command};
use super::introspection::{self, VERSION, arity, help, unknown_subcommand};
use super::password::{AuthResult, FAILURE_DELAY, Password, USER};
use super::reply::{Reply, quoted};

/// Databases: each has keys of its own.
const DATABASES: u64 = 16;
/// Bytes of a client's name.
const NAME_BYTES: usize = 128;
/// Commands before authentication, after which the connection closes.
const MAX_UNAUTHENTICATED_COMMANDS: u32 = 32;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const RATE_LIMITED: &str =
    "ERR too many failed authentications from this address; try again in a few seconds";

/// The subcommands of `CLIENT`. There is no list of connections.
const CLIENT: [(&str, &str); 7] = [
    ("GETNAME", "The name of this connection."),
    ("ID", "The number of this connection."),
    ("INFO", "Information about this connection."),
    ("NO-EVICT (ON|OFF)", "No effect: no client is evicted."),
    ("NO-TOUCH (ON|OFF)", "No effect."),
    ("SETINFO <name> <value>", "No effect: not stored."),
    ("SETNAME <name>", "Names this connection."),
];

/// The session of one client.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    peer: SocketAddr,
    /// It negotiated RESP3.
    pub(super) is_resp3: bool,
    /// It may use limits.
    pub(super) is_authenticated: bool,
    name: Vec<u8>,
    /// The selected database.
    pub(super) database: u64,
    /// Commands sent before authentication.
    unauthenticated: u32,
}

/// What follows a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterReply {
    /// The next command.
    Continue,
    /// The connection closes.
    Close,
    /// The reply is sent after a delay.
    Delay(Duration),
}

impl Session {
    pub(super) fn new(id: u64, peer: SocketAddr, is_authenticated: bool) -> Session {
        Session {
            id,
            peer,
            is_resp3: false,
            is_authenticated,
            name: Vec::new(),
            database: 0,
            unauthenticated: 0,
        }
    }

    /// The address of the client.
    pub(super) fn peer(&self) -> IpAddr {
        self.peer.ip()
    }

    /// The bounds of its commands.
    pub(super) fn bounds(&self) -> &'static Bounds {
        match self.is_authenticated {
            true => &Bounds::AUTHENTICATED,
            false => &Bounds::UNAUTHENTICATED,
        }
    }

    /// Replies to a command that is not about limits.
    pub(super) fn reply(
        &mut self,
        command: &Command<'_>,
        password: Option<&Password>,
        out: &mut Vec<u8>,
        counters: &dyn Fn() -> String,
    ) -> AfterReply {
        let mut reply = Reply {
            out,
            is_resp3: self.is_resp3,
        };
        let mut name = [0; 16];
        let name = lower(command.word(0), &mut name);
        if !self.is_authenticated {
            // `RESET` counts, too.
            self.unauthenticated += 1;
            if self.unauthenticated > MAX_UNAUTHENTICATED_COMMANDS {
                reply.error("NOAUTH Authentication required.");
                return AfterReply::Close;
            }
        }
        match name {
            b"quit" => {
                reply.simple("OK");
                return AfterReply::Close;
            }
            b"reset" => {
                *self = Session {
                    unauthenticated: self.unauthenticated,
                    ..Session::new(self.id, self.peer, password.is_none())
                };
                reply.simple("RESET");
            }
            b"hello" => return self.hello(command, password, reply.out),
            b"auth" => return self.auth(command, password, &mut reply),
            _ if !self.is_authenticated => {
                reply.error("NOAUTH Authentication required.");
                if self.unauthenticated >= MAX_UNAUTHENTICATED_COMMANDS {
                    return AfterReply::Close;
                }
            }
            b"ping" => match command.len() {
                1 => reply.simple("PONG"),
                2 => reply.bulk(command.word(1)),
                _ => arity(&mut reply, "ping"),
            },
            b"echo" => match command.len() {
                2 => reply.bulk(command.word(1)),
                _ => arity(&mut reply, "echo"),
            },
            b"select" => self.select(command, &mut reply),
            b"client" => self.client(command, &mut reply),
            b"command" => {
                introspection::commands(lower(command.word(1), &mut [0; 16]), command, &mut reply);
            }
            b"config" => {
                introspection::config(lower(command.word(1), &mut [0; 16]), command, &mut reply);
            }
            b"info" => reply.text(&introspection::info(command, counters)),
            _ => introspection::unknown(command, &mut reply),
        }
        AfterReply::Continue
    }

    fn auth(
        &mut self,
        command: &Command<'_>,
        password: Option<&Password>,
        reply: &mut Reply<'_>,
    ) -> AfterReply {
        let (user, offered) = match command.len() {
            2 if password.is_none() => {
                reply.error(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                );
                return AfterReply::Continue;
            }
            2 => (USER, command.word(1)),
            3 => (command.word(1), command.word(2)),
            _ => {
                match command.len() {
                    1 => arity(reply, "auth"),
                    _ => reply.error("ERR syntax error"),
                }
                return AfterReply::Continue;
            }
        };
        match self.authenticate(user, offered, password) {
            Ok(()) => {
                reply.simple("OK");
                AfterReply::Continue
            }
            Err((error, after)) => {
                reply.error(error);
                after
            }
        }
    }

    /// Authenticates the client by user and password.
    fn authenticate(
        &mut self,
        user: &[u8],
        offered: &[u8],
        password: Option<&Password>,
    ) -> Result<(), (&'static str, AfterReply)> {
        let result = match password {
            None if user == USER => AuthResult::Valid,
            None => AuthResult::Wrong,
            Some(password) => password.verify(user, offered, self.peer.ip()),
        };
        match result {
            AuthResult::Valid => {
                (self.is_authenticated, self.unauthenticated) = (true, 0);
                Ok(())
            }
            AuthResult::Wrong => Err((WRONG_PASSWORD, AfterReply::Delay(FAILURE_DELAY))),
            AuthResult::RateLimited => Err((RATE_LIMITED, AfterReply::Close)),
        }
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    fn hello(
        &mut self,
        command: &Command<'_>,
        password: Option<&Password>,
        out: &mut Vec<u8>,
    ) -> AfterReply {
        let mut reply = Reply {
            out,
            is_resp3: self.is_resp3,
        };
        let mut version = None;
        if command.len() > 1 {
            let text = std::str::from_utf8(command.word(1)).ok();
            match text.and_then(|text| text.parse::<i64>().ok()) {
                Some(2) => version = Some(false),
                Some(3) => version = Some(true),
                Some(_) => {
                    reply.error("NOPROTO unsupported protocol version");
                    return AfterReply::Continue;
                }
                None => {
                    reply.error("ERR Protocol version is not an integer or out of range");
                    return AfterReply::Continue;
                }
            }
        }
        let (mut at, mut name) = (2, None);
        while at < command.len() {
            let behind = command.len() - at - 1;
            match lower(command.word(at), &mut [0; 16]) {
                b"auth" if behind >= 2 => {
                    let (user, offered) = (command.word(at + 1), command.word(at + 2));
                    if let Err((error, after)) = self.authenticate(user, offered, password) {
                        reply.error(error);
                        return after;
                    }
                    at += 3;
                }
                b"setname" if behind >= 1 => {
                    name = Some(command.word(at + 1));
                    at += 2;
                }
                _ => {
                    let option = quoted(command.word(at));
                    reply.error(&format!("ERR Syntax error in HELLO option '{option}'"));
                    return AfterReply::Continue;
                }
            }
        }
        if !self.is_authenticated {
            reply.error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                 select the RESP protocol version at the same time",
            );
            return AfterReply::Continue;
        }
        if let Some(name) = name
            && !self.set_name(name)
        {
            bad_name(&mut reply);
            return AfterReply::Continue;
        }
        self.is_resp3 = version.unwrap_or(self.is_resp3);
        reply.is_resp3 = self.is_resp3;
        reply.map(7);
        reply.text("server");
        reply.text("redis");
        reply.text("version");
        reply.text(VERSION);
        reply.text("proto");
        reply.integer(if self.is_resp3 { 3 } else { 2 });
        reply.text("id");
        reply.count(self.id);
        reply.text("mode");
        reply.text("standalone");
        reply.text("role");
        reply.text("master");
        reply.text("modules");
        reply.array(0);
        AfterReply::Continue
    }

    fn select(&mut self, command: &Command<'_>, reply: &mut Reply<'_>) {
        if command.len() != 2 {
            return arity(reply, "select");
        }
        let text = std::str::from_utf8(command.word(1)).ok();
        match text
            .and_then(|text| text.parse::<i64>().ok())
            .map(u64::try_from)
        {
            Some(Ok(database)) if database < DATABASES => {
                self.database = database;
                reply.simple("OK");
            }
            Some(_) => reply.error("ERR DB index is out of range"),
            None => reply.error("ERR value is not an integer or out of range"),
        }
    }

    fn client(&mut self, command: &Command<'_>, reply: &mut Reply<'_>) {
        match (lower(command.word(1), &mut [0; 16]), command.len()) {
            (_, 0 | 1) => arity(reply, "client"),
            (b"setinfo", 4) | (b"no-evict" | b"no-touch", 3) => reply.simple("OK"),
            (b"setname", 3) => match self.set_name(command.word(2)) {
                true => reply.simple("OK"),
                false => bad_name(reply),
            },
            (b"getname", 2) => match self.name.is_empty() {
                true => reply.nil(),
                false => reply.bulk(&self.name),
            },
            (b"id", 2) => reply.count(self.id),
            (b"info", 2) => reply.text(&self.info()),
            (b"help", 2) => help(reply, "CLIENT", &CLIENT),
            (
                part @ (b"setinfo" | b"setname" | b"getname" | b"id" | b"info" | b"help"
                | b"no-evict" | b"no-touch"),
                _,
            ) => {
                let part = String::from_utf8_lossy(part);
                arity(reply, &format!("client|{part}"));
            }
            _ => unknown_subcommand(reply, "CLIENT", command.word(1)),
        }
    }

    /// The line of `CLIENT INFO`.
    fn info(&self) -> String {
        format!(
            "id={} addr={} name={} db={} user=default resp={}\n",
            self.id,
            self.peer,
            String::from_utf8_lossy(&self.name),
            self.database,
            if self.is_resp3 { 3 } else { 2 }
        )
    }

    fn set_name(&mut self, name: &[u8]) -> bool {
        let is_name = name.len() <= NAME_BYTES && name.iter().all(u8::is_ascii_graphic);
        if is_name {
            self.name = name.to_vec();
        }
        is_name
    }
}

/// An argument in lower case. One that is longer than every known name becomes an unknown name.
fn lower<'a>(word: &[u8], room: &'a mut [u8; 16]) -> &'a [u8] {
    match room.get_mut(..word.len()) {
        Some(room) => {
            room.copy_from_slice(word);
            room.make_ascii_lowercase();
            room
        }
        None => b"?",
    }
}

fn bad_name(reply: &mut Reply<'_>) {
    reply.error("ERR Client names cannot contain spaces, newlines or special characters.");
}
