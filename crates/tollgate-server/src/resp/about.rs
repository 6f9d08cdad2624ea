//! What the server tells about itself: its commands, its settings, its numbers.

use super::codec::Command;
use super::reply::{Reply, quoted};

/// The server that client libraries take us for.
pub(super) const VERSION: &str = "7.0.15";
/// Bytes of arguments that an unknown command is told with.
const SHOWN_BYTES: usize = 128;

/// The commands that we have: name, words at the least (negative) or exactly, whether the first is a key.
const COMMANDS: [(&str, i64, bool); 22] = [
    ("auth", -2, false),
    ("cl.throttle", -1, true),
    ("client", -2, false),
    ("command", -1, false),
    ("config", -2, false),
    ("discard", 1, false),
    ("echo", 2, false),
    ("exec", 1, false),
    ("hello", -1, false),
    ("info", -1, false),
    ("multi", 1, false),
    ("ping", -1, false),
    ("quit", -1, false),
    ("reset", 1, false),
    ("select", 2, false),
    ("throttle", -5, true),
    ("tollgate.check", -1, false),
    ("tollgate.explain", -1, false),
    ("tollgate.peek", -1, false),
    ("tollgate.settle", -3, false),
    ("unwatch", 1, false),
    ("watch", -2, false),
];

type Known = (&'static str, i64, bool);

fn known(name: &[u8]) -> Option<&'static Known> {
    let is = |known: &&Known| name.eq_ignore_ascii_case(known.0.as_bytes());
    COMMANDS.iter().find(is)
}

/// Is this a command that we have, with as many words as it takes? If not, that is answered.
pub(super) fn is_fit(command: &Command<'_>, reply: &mut Reply<'_>) -> bool {
    let Some((name, words, _)) = known(command.word(0)) else {
        unknown(command, reply);
        return false;
    };
    let count = i64::try_from(command.len()).unwrap_or(i64::MAX);
    let is_fit = match *words {
        least @ ..0 => count >= -least,
        exactly => count == exactly,
    };
    if !is_fit {
        arity(reply, name);
    }
    is_fit
}

pub(super) fn arity(reply: &mut Reply<'_>, name: &str) {
    reply.error(&format!(
        "ERR wrong number of arguments for '{name}' command"
    ));
}

pub(super) fn unknown(command: &Command<'_>, reply: &mut Reply<'_>) {
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

/// A part of a command that we do not have; `HELP` tells those that we have.
pub(super) fn no_such_part(reply: &mut Reply<'_>, of: &str, part: &[u8]) {
    let part = quoted(part);
    reply.error(&format!("ERR unknown subcommand '{part}'. Try {of} HELP."));
}

/// `HELP` of a command: each part, and what it does.
pub(super) fn help(reply: &mut Reply<'_>, of: &str, parts: &[(&str, &str)]) {
    reply.array(1 + 2 * parts.len());
    reply.simple(&format!("{of} <subcommand>. Subcommands are:"));
    for (part, does) in parts {
        reply.simple(part);
        reply.simple(&format!("    {does}"));
    }
}

/// `COMMAND`, of which clients want to know whether there is such a thing at all.
pub(super) fn commands(part: &[u8], command: &Command<'_>, reply: &mut Reply<'_>) {
    const PARTS: [(&str, &str); 5] = [
        ("(no subcommand)", "All commands."),
        ("COUNT", "How many commands there are."),
        (
            "DOCS [<name> ...]",
            "Nothing: the commands are described in docs/service.md.",
        ),
        ("INFO [<name> ...]", "These commands, or all."),
        ("LIST", "The names of all commands."),
    ];
    let one = |reply: &mut Reply<'_>, (name, arity, is_keyed): &Known| {
        reply.array(6);
        reply.text(name);
        reply.integer(*arity);
        reply.array(1);
        reply.simple(if *is_keyed { "write" } else { "fast" });
        for _ in 0..3 {
            reply.integer(i64::from(*is_keyed));
        }
    };
    match (part, command.len()) {
        (_, 1) | (b"info", 2) => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|each| one(reply, each));
        }
        (b"info", _) => {
            reply.array(command.len() - 2);
            for word in command.from(2) {
                match known(word) {
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
        (b"help", 2) => help(reply, "COMMAND", &PARTS),
        _ => no_such_part(reply, "COMMAND", command.word(1)),
    }
}

/// `CONFIG GET`, of which load tools want to know whether anything is written to disk.
pub(super) fn config(part: &[u8], command: &Command<'_>, reply: &mut Reply<'_>) {
    match (part, command.len()) {
        (_, 0 | 1) => arity(reply, "config"),
        (b"get", 2) => arity(reply, "config|get"),
        (b"get", _) => settings(command, reply),
        (b"help", 2) => help(
            reply,
            "CONFIG",
            &[(
                "GET <name> ...",
                "The settings `save` and `appendonly`: nothing is written.",
            )],
        ),
        _ => no_such_part(reply, "CONFIG", command.word(1)),
    }
}

fn settings(command: &Command<'_>, reply: &mut Reply<'_>) {
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

/// `INFO [section ...]`: the sections that are asked for, or all of them. There is nothing to tell of others.
pub(super) fn info(command: &Command<'_>, facts: &dyn Fn() -> String) -> String {
    let server = || {
        let ours = env!("CARGO_PKG_VERSION");
        format!("redis_version:{VERSION}\r\nredis_mode:standalone\r\ntollgate_version:{ours}\r\n")
    };
    let sections: [(&str, &dyn Fn() -> String); 4] = [
        ("Server", &server),
        ("Persistence", &|| "loading:0\r\n".into()),
        ("Replication", &|| {
            "role:master\r\nconnected_slaves:0\r\n".into()
        }),
        ("Tollgate", facts),
    ];
    let asked = |name: &str| {
        let is = |word: &[u8]| {
            ["all", "default", "everything", name]
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        };
        command.len() == 1 || command.from(1).any(is)
    };
    let told = sections.iter().filter(|(name, _)| asked(name));
    let told: Vec<String> = told
        .map(|(name, tell)| format!("# {name}\r\n{}", tell()))
        .collect();
    told.join("\r\n")
}
