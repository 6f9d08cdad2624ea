//! Introspection commands: `COMMAND`, `CONFIG`, `INFO`.

use super::codec::Command;
use super::reply::{Reply, quoted};

/// The version of Redis reported to client libraries.
pub(super) const VERSION: &str = "7.0.15";
/// Most bytes of arguments in the error of an unknown command.
const MAX_ARGUMENT_BYTES: usize = 128;

/// The commands: name, number of arguments (at least, if negative), and whether the first argument is a key.
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

type CommandInfo = (&'static str, i64, bool);

fn find(name: &[u8]) -> Option<&'static CommandInfo> {
    let is = |info: &&CommandInfo| name.eq_ignore_ascii_case(info.0.as_bytes());
    COMMANDS.iter().find(is)
}

/// True for a known command with a valid number of arguments; otherwise an error is written.
pub(super) fn is_valid(command: &Command<'_>, reply: &mut Reply<'_>) -> bool {
    let Some((name, words, _)) = find(command.word(0)) else {
        unknown(command, reply);
        return false;
    };
    let count = i64::try_from(command.len()).unwrap_or(i64::MAX);
    let is_valid = match *words {
        least @ ..0 => count >= -least,
        exactly => count == exactly,
    };
    if !is_valid {
        arity(reply, name);
    }
    is_valid
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
        if text.len() - begin >= MAX_ARGUMENT_BYTES {
            break;
        }
        text.push('\'');
        text.push_str(&quoted(word));
        text.push_str("' ");
    }
    reply.error(&text);
}

/// The error of an unknown subcommand.
pub(super) fn unknown_subcommand(reply: &mut Reply<'_>, of: &str, part: &[u8]) {
    let part = quoted(part);
    reply.error(&format!("ERR unknown subcommand '{part}'. Try {of} HELP."));
}

/// `HELP` of a command: each subcommand and its effect.
pub(super) fn help(reply: &mut Reply<'_>, of: &str, parts: &[(&str, &str)]) {
    reply.array(1 + 2 * parts.len());
    reply.simple(&format!("{of} <subcommand>. Subcommands are:"));
    for (part, does) in parts {
        reply.simple(part);
        reply.simple(&format!("    {does}"));
    }
}

/// `COMMAND`: clients only check that it exists.
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
    let one = |reply: &mut Reply<'_>, (name, arity, is_keyed): &CommandInfo| {
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
                match find(word) {
                    Some(info) => one(reply, info),
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
        _ => unknown_subcommand(reply, "COMMAND", command.word(1)),
    }
}

/// `CONFIG GET`: load tools check whether anything is persisted.
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
        _ => unknown_subcommand(reply, "CONFIG", command.word(1)),
    }
}

fn settings(command: &Command<'_>, reply: &mut Reply<'_>) {
    const SETTINGS: [(&str, &str); 2] = [("save", ""), ("appendonly", "no")];
    let is_requested = |name: &str| {
        command
            .from(2)
            .any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let found = || SETTINGS.iter().filter(|(name, _)| is_requested(name));
    reply.map(found().count());
    for (name, value) in found() {
        reply.text(name);
        reply.text(value);
    }
}

/// `INFO [section ...]`: these sections, or all. Unknown ones are empty.
pub(super) fn info(command: &Command<'_>, counters: &dyn Fn() -> String) -> String {
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
        ("Tollgate", counters),
    ];
    let is_requested = |name: &str| {
        let is = |word: &[u8]| {
            ["all", "default", "everything", name]
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        };
        command.len() == 1 || command.from(1).any(is)
    };
    let sections = sections.iter().filter(|(name, _)| is_requested(name));
    let sections: Vec<String> = sections
        .map(|(name, write)| format!("# {name}\r\n{}", write()))
        .collect();
    sections.join("\r\n")
}
