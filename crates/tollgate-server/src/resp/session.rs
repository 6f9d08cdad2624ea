//! What a client is to us: the version it speaks, whether it may ask, its name; and the commands that clients
//! send when they connect.
//!
//! Answers are those of Redis 7, because client libraries compare them: what they are told decides which
//! features they use. We claim no more than they need to go on.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::about::{self, VERSION, arity, help, no_such_part};
use super::codec::{Bounds, Command};
use super::password::{PAUSE, Password, Shown, USER};
use super::reply::{Reply, quoted};

/// Databases: each has keys of its own.
const DATABASES: u64 = 16;
/// Bytes of a client's name.
const NAME_BYTES: usize = 128;
/// Commands that are answered with nothing but the wish for a password, before the connection ends.
const STRANGE_MOST: u32 = 32;

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const TOO_OFTEN: &str =
    "ERR too many wrong passwords came from this address; wait a few seconds and try again";

/// The parts of `CLIENT`. Connections do not know each other, so there is no list of them.
const CLIENT: [(&str, &str); 7] = [
    ("GETNAME", "The name of this connection."),
    ("ID", "The number of this connection."),
    ("INFO", "What is known of this connection."),
    ("NO-EVICT (ON|OFF)", "Nothing: nobody is evicted."),
    ("NO-TOUCH (ON|OFF)", "Nothing: asking is what uses a key."),
    ("SETINFO <name> <value>", "Nothing: it is not kept."),
    ("SETNAME <name>", "Names this connection."),
];

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    peer: SocketAddr,
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
    pub(super) fn new(id: u64, peer: SocketAddr, is_known: bool) -> Session {
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
        self.peer.ip()
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
        if !self.is_known {
            // Whatever it says: who only begins anew has not shown its password either.
            self.strange += 1;
            if self.strange > STRANGE_MOST {
                reply.error("NOAUTH Authentication required.");
                return Then::Close;
            }
        }
        match name {
            b"quit" => {
                reply.simple("OK");
                return Then::Close;
            }
            b"reset" => {
                *self = Session {
                    strange: self.strange,
                    ..Session::new(self.id, self.peer, password.is_none())
                };
                reply.simple("RESET");
            }
            b"hello" => return self.hello(command, password, reply.out),
            b"auth" => return self.auth(command, password, &mut reply),
            _ if !self.is_known => {
                reply.error("NOAUTH Authentication required.");
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
            b"command" => {
                about::commands(lower(command.word(1), &mut [0; 16]), command, &mut reply);
            }
            b"config" => about::config(lower(command.word(1), &mut [0; 16]), command, &mut reply),
            b"info" => reply.text(&about::info(command, facts)),
            _ => about::unknown(command, &mut reply),
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
            2 => (USER, command.word(1)),
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
            None if user == USER => Shown::Right,
            None => Shown::Wrong,
            Some(password) => password.shown(user, offered, self.peer.ip()),
        };
        match shown {
            Shown::Right => {
                (self.is_known, self.strange) = (true, 0);
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
            (b"info", 2) => reply.text(&self.told()),
            (b"help", 2) => help(reply, "CLIENT", &CLIENT),
            (
                part @ (b"setinfo" | b"setname" | b"getname" | b"id" | b"info" | b"help"
                | b"no-evict" | b"no-touch"),
                _,
            ) => {
                let part = String::from_utf8_lossy(part);
                arity(reply, &format!("client|{part}"));
            }
            _ => no_such_part(reply, "CLIENT", command.word(1)),
        }
    }

    /// What we know of the client, in the words of Redis.
    fn told(&self) -> String {
        format!(
            "id={} addr={} name={} db={} user=default resp={}\n",
            self.id,
            self.peer,
            String::from_utf8_lossy(&self.name),
            self.database,
            if self.is_third { 3 } else { 2 }
        )
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

fn bad_name(reply: &mut Reply<'_>) {
    reply.error("ERR Client names cannot contain spaces, newlines or special characters.");
}
