//! What a client is to us: the version it speaks, whether it may ask, its name; and the commands that clients
//! send when they connect.
//!
//! Answers are those of Redis 7, because client libraries compare them: what they are told decides which
//! features they use. We claim no more than they need to go on.

use std::net::IpAddr;
use std::time::Duration;

use super::codec::{Bounds, Command};
use super::password::{PAUSE, Password, Shown};
use super::reply::{Reply, quoted};

/// The server that client libraries take us for.
const VERSION: &str = "7.0.15";
/// Databases: each has keys of its own.
const DATABASES: u64 = 16;
/// Bytes of a client's name.
const NAME_BYTES: usize = 128;
/// Bytes of arguments that an unknown command is told with.
const SHOWN_BYTES: usize = 128;

/// Commands that are answered with nothing but the wish for a password, before the connection ends.
const STRANGE_MOST: u32 = 32;

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const TOO_OFTEN: &str =
    "ERR too many wrong passwords came from this address; wait a few seconds and try again";

/// The commands that we have: name, words at the least (negative) or exactly, whether the first is a key.
const COMMANDS: [(&str, i64, bool); 17] = [
    ("auth", -2, false),
    ("cl.throttle", -1, true),
    ("client", -2, false),
    ("command", -1, false),
    ("config", -2, false),
    ("echo", 2, false),
    ("hello", -1, false),
    ("info", -1, false),
    ("ping", -1, false),
    ("quit", -1, false),
    ("reset", 1, false),
    ("select", 2, false),
    ("throttle", -5, true),
    ("tollgate.check", -1, false),
    ("tollgate.explain", -1, false),
    ("tollgate.peek", -1, false),
    ("tollgate.settle", -3, false),
];

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    peer: IpAddr,
    /// Does it speak the third version?
    pub(super) is_third: bool,
    /// May it ask?
    pub(super) is_known: bool,
    name: Vec<u8>,
    /// The database that it has selected.
    pub(super) database: u64,
    /// Commands that it sent without having shown its password.
    strange: u32,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The next command.
    Next,
    /// The end of the connection.
    Close,
    /// The answer is there, and goes out after a pause.
    Pause(Duration),
}

impl Session {
    pub(super) fn new(id: u64, peer: IpAddr, is_known: bool) -> Session {
        Session {
            id,
            peer,
            is_third: false,
            is_known,
            name: Vec::new(),
            database: 0,
            strange: 0,
        }
    }

    /// Where it comes from.
    pub(super) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// How much it may send at once.
    pub(super) fn bounds(&self) -> &'static Bounds {
        match self.is_known {
            true => &Bounds::KNOWN,
            false => &Bounds::STRANGE,
        }
    }

    /// Answers what is not a question about limits.
    pub(super) fn answer(
        &mut self,
        command: &Command<'_>,
        password: Option<&Password>,
        out: &mut Vec<u8>,
        facts: &dyn Fn() -> String,
    ) -> Then {
        let mut reply = Reply {
            out,
            is_third: self.is_third,
        };
        let mut name = [0; 16];
        let name = lower(command.word(0), &mut name);
        match name {
            b"quit" => {
                reply.simple("OK");
                return Then::Close;
            }
            b"reset" => {
                *self = Session::new(self.id, self.peer, password.is_none());
                reply.simple("RESET");
            }
            b"hello" => return self.hello(command, password, reply.out),
            b"auth" => return self.auth(command, password, &mut reply),
            _ if !self.is_known => {
                reply.error("NOAUTH Authentication required.");
                self.strange += 1;
                if self.strange >= STRANGE_MOST {
                    return Then::Close;
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
            b"command" => commands(command, &mut reply),
            b"config" => match lower(command.word(1), &mut [0; 16]) {
                _ if command.len() < 2 => arity(&mut reply, "config"),
                b"get" if command.len() < 3 => arity(&mut reply, "config|get"),
                b"get" => config(command, &mut reply),
                _ => no_such_part(&mut reply, "CONFIG", command.word(1)),
            },
            b"info" => reply.text(&info(&facts())),
            _ => unknown(command, &mut reply),
        }
        Then::Next
    }

    fn auth(
        &mut self,
        command: &Command<'_>,
        password: Option<&Password>,
        reply: &mut Reply<'_>,
    ) -> Then {
        let (user, offered) = match command.len() {
            2 if password.is_none() => {
                reply.error(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                );
                return Then::Next;
            }
            2 => (&b"default"[..], command.word(1)),
            3 => (command.word(1), command.word(2)),
            _ => {
                match command.len() {
                    1 => arity(reply, "auth"),
                    _ => reply.error("ERR syntax error"),
                }
                return Then::Next;
            }
        };
        match self.show(user, offered, password) {
            Ok(()) => {
                reply.simple("OK");
                Then::Next
            }
            Err((told, then)) => {
                reply.error(told);
                then
            }
        }
    }

    /// Lets the client in if this is the password.
    fn show(
        &mut self,
        user: &[u8],
        offered: &[u8],
        password: Option<&Password>,
    ) -> Result<(), (&'static str, Then)> {
        let shown = match password {
            None if user == b"default" => Shown::Right,
            None => Shown::Wrong,
            Some(password) => match password.shown(offered, self.peer) {
                Shown::Right if user != b"default" => Shown::Wrong,
                shown => shown,
            },
        };
        match shown {
            Shown::Right => {
                self.is_known = true;
                Ok(())
            }
            Shown::Wrong => Err((WRONG, Then::Pause(PAUSE))),
            Shown::TooOften => Err((TOO_OFTEN, Then::Close)),
        }
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    fn hello(
        &mut self,
        command: &Command<'_>,
        password: Option<&Password>,
        out: &mut Vec<u8>,
    ) -> Then {
        let mut reply = Reply {
            out,
            is_third: self.is_third,
        };
        let mut version = None;
        if command.len() > 1 {
            let text = std::str::from_utf8(command.word(1)).ok();
            match text.and_then(|text| text.parse::<i64>().ok()) {
                Some(2) => version = Some(false),
                Some(3) => version = Some(true),
                Some(_) => {
                    reply.error("NOPROTO unsupported protocol version");
                    return Then::Next;
                }
                None => {
                    reply.error("ERR Protocol version is not an integer or out of range");
                    return Then::Next;
                }
            }
        }
        let (mut at, mut name) = (2, None);
        while at < command.len() {
            let behind = command.len() - at - 1;
            match lower(command.word(at), &mut [0; 16]) {
                b"auth" if behind >= 2 => {
                    let (user, offered) = (command.word(at + 1), command.word(at + 2));
                    if let Err((told, then)) = self.show(user, offered, password) {
                        reply.error(told);
                        return then;
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
                    return Then::Next;
                }
            }
        }
        if !self.is_known {
            reply.error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                 select the RESP protocol version at the same time",
            );
            return Then::Next;
        }
        if let Some(name) = name
            && !self.take_name(name)
        {
            bad_name(&mut reply);
            return Then::Next;
        }
        self.is_third = version.unwrap_or(self.is_third);
        reply.is_third = self.is_third;
        reply.map(7);
        reply.text("server");
        reply.text("redis");
        reply.text("version");
        reply.text(VERSION);
        reply.text("proto");
        reply.integer(if self.is_third { 3 } else { 2 });
        reply.text("id");
        reply.count(self.id);
        reply.text("mode");
        reply.text("standalone");
        reply.text("role");
        reply.text("master");
        reply.text("modules");
        reply.array(0);
        Then::Next
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
            (b"setname", 3) => match self.take_name(command.word(2)) {
                true => reply.simple("OK"),
                false => bad_name(reply),
            },
            (b"getname", 2) => match self.name.is_empty() {
                true => reply.nil(),
                false => reply.bulk(&self.name),
            },
            (b"id", 2) => reply.count(self.id),
            (
                part @ (b"setinfo" | b"setname" | b"getname" | b"id" | b"no-evict" | b"no-touch"),
                _,
            ) => {
                let part = String::from_utf8_lossy(part);
                arity(reply, &format!("client|{part}"));
            }
            _ => no_such_part(reply, "CLIENT", command.word(1)),
        }
    }

    fn take_name(&mut self, name: &[u8]) -> bool {
        let is_name = name.len() <= NAME_BYTES && name.iter().all(u8::is_ascii_graphic);
        if is_name {
            self.name = name.to_vec();
        }
        is_name
    }
}

/// The word in lower case; a longer one than all that we know is as good as none.
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

fn arity(reply: &mut Reply<'_>, name: &str) {
    reply.error(&format!(
        "ERR wrong number of arguments for '{name}' command"
    ));
}

fn bad_name(reply: &mut Reply<'_>) {
    reply.error("ERR Client names cannot contain spaces, newlines or special characters.");
}

fn no_such_part(reply: &mut Reply<'_>, of: &str, part: &[u8]) {
    let part = quoted(part);
    reply.error(&format!("ERR unknown subcommand '{part}'. Try {of} HELP."));
}

fn unknown(command: &Command<'_>, reply: &mut Reply<'_>) {
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        quoted(command.word(0))
    );
    let begin = text.len();
    for word in command.from(1) {
        if text.len() - begin >= SHOWN_BYTES {
            break;
        }
        text.push('\'');
        text.push_str(&quoted(word));
        text.push_str("' ");
    }
    reply.error(&text);
}

/// `COMMAND`, of which clients want to know whether there is such a thing at all.
fn commands(command: &Command<'_>, reply: &mut Reply<'_>) {
    let one = |reply: &mut Reply<'_>, (name, arity, is_keyed): &(&str, i64, bool)| {
        reply.array(6);
        reply.text(name);
        reply.integer(*arity);
        reply.array(1);
        reply.simple(if *is_keyed { "write" } else { "fast" });
        for _ in 0..3 {
            reply.integer(i64::from(*is_keyed));
        }
    };
    match (lower(command.word(1), &mut [0; 16]), command.len()) {
        (_, 1) | (b"info", 2) => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|each| one(reply, each));
        }
        (b"info", _) => {
            reply.array(command.len() - 2);
            for word in command.from(2) {
                let is = |known: &&(&str, i64, bool)| word.eq_ignore_ascii_case(known.0.as_bytes());
                match COMMANDS.iter().find(is) {
                    Some(known) => one(reply, known),
                    None => reply.nil(),
                }
            }
        }
        (b"count", 2) => reply.count(COMMANDS.len() as u64),
        (b"docs", _) => reply.map(0),
        (b"list", 2) => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|(name, ..)| reply.text(name));
        }
        _ => no_such_part(reply, "COMMAND", command.word(1)),
    }
}

/// `CONFIG GET`, of which load tools want to know whether anything is written to disk.
fn config(command: &Command<'_>, reply: &mut Reply<'_>) {
    const SETTINGS: [(&str, &str); 2] = [("save", ""), ("appendonly", "no")];
    let asked = |name: &str| {
        command
            .from(2)
            .any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let found = || SETTINGS.iter().filter(|(name, _)| asked(name));
    reply.map(found().count());
    for (name, value) in found() {
        reply.text(name);
        reply.text(value);
    }
}

fn info(facts: &str) -> String {
    format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\n\
         tollgate_version:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Tollgate\r\n{facts}",
        env!("CARGO_PKG_VERSION")
    )
}
