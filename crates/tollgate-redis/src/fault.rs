//! What an error of a server means: may the call be sent again, is the server still worth asking, and must
//! somebody change something?
//!
//! # Theory
//!
//! The first word of an error is its class; it is all that is relied on, except that `ERR` covers several things
//! and that servers before version 7 wrap the error of a command inside a script
//! (`ERR Error running script ...: -OOM ...`), where the class is looked for inside.
//!
//! | class | the call | the link | to the request | a warning |
//! |---|---|---|---|---|
//! | `NOSCRIPT` | sent again, whole | kept | nothing | – |
//! | `MOVED` `ASK` | sent again, elsewhere | kept | nothing | – |
//! | `TRYAGAIN` | sent again, charge by charge | kept | nothing | – |
//! | `READONLY` | sent again, to the new primary | given up | unable, if there is none in time | – |
//! | `LOADING` `MASTERDOWN` `BUSY` | not sent again | given up | unable | – |
//! | `CLUSTERDOWN` | not sent again | kept | unable; the map is read again | `cluster-down` |
//! | `OOM` `MISCONF` `NOREPLICAS` | not sent again | given up after three in a row | unable | yes |
//! | `NOAUTH` `WRONGPASS` | not sent again | given up | refused | yes |
//! | `NOPERM` | not sent again | kept | refused | yes |
//! | `CROSSSLOT` `WRONGTYPE` `TOLLGATE`, anything else | not sent again | kept | refused | yes |
//!
//! # Invariant
//!
//! No error is ever a pass. What this table does not know is refused, loudly.
//!
//! # What it does not know
//!
//! Which link it was, and what the policy makes of a request without an answer.

use redis::ServerError;
use tollgate_policy::shared::FaultKind;

/// What an error of the server means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The server does not know the script: it did not run.
    NoScript,
    /// The slot lives elsewhere: it did not run.
    Moved(Redirect),
    /// This key lives elsewhere already: it did not run.
    Ask(Redirect),
    /// Some keys of the call have moved and some have not: it did not run.
    TryAgain,
    /// The server is no primary any more: it did not run.
    ReadOnly,
    /// There is no answer.
    Fault(Fault),
}

/// Where to ask instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    /// Empty if it is the host that was asked.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// An error that answers nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) link: Then,
    /// Should the map of the cluster be read again?
    pub(crate) remap: bool,
    /// Did a script of ours complain, or could it not run?
    pub(crate) script: bool,
    /// What somebody should change: a code, and how to mend it.
    pub(crate) warning: Option<(&'static str, &'static str)>,
}

/// What becomes of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is still asked.
    Keep,
    /// It is given up if this is the third in a row.
    Strike,
    /// It is given up at once.
    GiveUp,
}

const fn unable(link: Then, warning: Option<(&'static str, &'static str)>) -> Fault {
    Fault {
        kind: FaultKind::Unable,
        link,
        remap: false,
        script: false,
        warning,
    }
}

const fn refused(link: Then, code: &'static str, mend: &'static str) -> Fault {
    Fault {
        kind: FaultKind::Refused,
        link,
        remap: false,
        script: false,
        warning: Some((code, mend)),
    }
}

/// What this error means.
pub(crate) fn meaning(error: &ServerError) -> Meaning {
    of(error.code(), error.details().unwrap_or_default())
}

fn of(code: &str, details: &str) -> Meaning {
    match code {
        "NOSCRIPT" => Meaning::NoScript,
        "MOVED" => redirect(details).map_or_else(unknown, Meaning::Moved),
        "ASK" => redirect(details).map_or_else(unknown, Meaning::Ask),
        "TRYAGAIN" => Meaning::TryAgain,
        "READONLY" | "REDIRECT" => Meaning::ReadOnly,
        "ERR" => err(details),
        other => Meaning::Fault(fault(other)),
    }
}

fn fault(code: &str) -> Fault {
    match code {
        "LOADING" | "MASTERDOWN" | "BUSY" | "UNKILLABLE" => unable(Then::GiveUp, None),
        "CLUSTERDOWN" => Fault {
            remap: true,
            ..unable(
                Then::Keep,
                Some((
                    "cluster-down",
                    "slots of the cluster are served by nobody: see `CLUSTER INFO` and its servers",
                )),
            )
        },
        "OOM" => unable(
            Then::Strike,
            Some((
                "out-of-memory",
                "give the server more memory (maxmemory), or find what else fills it",
            )),
        ),
        "MISCONF" => unable(
            Then::Strike,
            Some((
                "cannot-persist",
                "the server cannot write to its disk and takes no writes: see its log",
            )),
        ),
        "NOREPLICAS" => unable(
            Then::Strike,
            Some((
                "no-replicas",
                "fewer replicas follow than min-replicas-to-write asks for: bring them back",
            )),
        ),
        "NOAUTH" | "WRONGPASS" => refused(
            Then::GiveUp,
            "wrong-password",
            "set the user and the password of the store",
        ),
        "NOPERM" => refused(
            Then::Keep,
            "no-permission",
            "give the user of the store the access rule that the documentation of the store states",
        ),
        "CROSSSLOT" => refused(
            Then::Keep,
            "cross-slot",
            "the servers are a cluster: say so in the settings of the store",
        ),
        "WRONGTYPE" => refused(
            Then::Keep,
            "foreign-key",
            "another program writes below our prefix: choose another prefix",
        ),
        "TOLLGATE" => Fault {
            script: true,
            ..refused(
                Then::Keep,
                "foreign-key",
                "another program, or another version of this one, writes below our prefix: choose another prefix",
            )
        },
        "TOLLGATE-CLOCK" => refused(
            Then::Keep,
            "clock-differs",
            "the clock of this node and that of the store differ by more than a period of a calendar: run NTP on both",
        ),
        _ => Fault {
            script: true,
            ..refused(
                Then::Keep,
                "store-error",
                "the server gave an error that should not be: run the doctor",
            )
        },
    }
}

fn unknown() -> Meaning {
    Meaning::Fault(fault(""))
}

/// `ERR` is several things.
fn err(details: &str) -> Meaning {
    if let Some((code, rest)) = inner(details) {
        return of(code, rest);
    }
    // A command inside a script: there the class is not said.
    if details.contains("user executing the script can't")
        || details.contains("ACL failure in script")
    {
        return of("NOPERM", details);
    }
    if details.starts_with("unknown command") || details.starts_with("Unknown Redis command") {
        return Meaning::Fault(refused(
            Then::Keep,
            "unknown-command",
            "the server lacks a command that is needed: it is too old, or the command was renamed",
        ));
    }
    if details.starts_with("max number of clients") {
        return Meaning::Fault(unable(
            Then::GiveUp,
            Some(("too-many-clients", "raise maxclients of the server")),
        ));
    }
    if details.contains("instance has cluster support disabled") {
        return Meaning::Fault(refused(
            Then::Keep,
            "no-cluster",
            "the servers are no cluster: say so in the settings of the store",
        ));
    }
    unknown()
}

/// The error of a command, inside that of the script that called it: `... @user_script: 7: -OOM command not ...`.
fn inner(details: &str) -> Option<(&str, &str)> {
    if !details.starts_with("Error running script") && !details.starts_with("user_script") {
        return None;
    }
    let (_, rest) = details.split_once(": -")?;
    let (code, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let is_code = code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    (is_code && code != "ERR").then_some((code, rest))
}

/// `3999 127.0.0.1:6381`; the host may be empty, a name, or an IPv6 address.
fn redirect(details: &str) -> Option<Redirect> {
    let (slot, address) = details.trim().split_once(' ')?;
    let address = address.split(' ').next()?;
    let (host, port) = address.rsplit_once(':')?;
    let slot: u16 = slot.parse().ok()?;
    let port: u16 = port.parse().ok()?;
    (slot < SLOTS).then(|| Redirect {
        slot,
        host: host.trim_matches(['[', ']']).to_owned(),
        port,
    })
}

/// An error in the words of the server, without the keys in it.
pub(crate) fn words(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    without_keys(&format!("{} {details}", error.code()))
}

/// What a server said, without the keys in it: they may be secrets of clients, and words end up in logs. Of the name of a key
/// the part stays that says which limit it belongs to.
pub(crate) fn without_keys(words: &str) -> String {
    let mut kept = String::with_capacity(words.len());
    let mut rest = words;
    while let Some((before, name)) = rest.split_once(":{") {
        kept.push_str(before);
        // Names are escaped: the first blank ends them.
        let end = name.find(char::is_whitespace).unwrap_or(name.len());
        rest = name.get(end..).unwrap_or_default();
    }
    kept.push_str(rest);
    kept
}

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, link, code of the warning.
    type Row = (
        &'static str,
        &'static str,
        FaultKind,
        Then,
        Option<&'static str>,
    );

    const TABLE: [Row; 22] = [
        (
            "LOADING",
            "Redis is loading the dataset in memory",
            FaultKind::Unable,
            Then::GiveUp,
            None,
        ),
        (
            "MASTERDOWN",
            "Link with MASTER is down",
            FaultKind::Unable,
            Then::GiveUp,
            None,
        ),
        (
            "BUSY",
            "Redis is busy running a script.",
            FaultKind::Unable,
            Then::GiveUp,
            None,
        ),
        ("UNKILLABLE", "Sorry", FaultKind::Unable, Then::GiveUp, None),
        (
            "CLUSTERDOWN",
            "The cluster is down",
            FaultKind::Unable,
            Then::Keep,
            Some("cluster-down"),
        ),
        (
            "OOM",
            "command not allowed",
            FaultKind::Unable,
            Then::Strike,
            Some("out-of-memory"),
        ),
        (
            "MISCONF",
            "Redis is configured to save",
            FaultKind::Unable,
            Then::Strike,
            Some("cannot-persist"),
        ),
        (
            "NOREPLICAS",
            "Not enough good replicas",
            FaultKind::Unable,
            Then::Strike,
            Some("no-replicas"),
        ),
        (
            "NOAUTH",
            "Authentication required.",
            FaultKind::Refused,
            Then::GiveUp,
            Some("wrong-password"),
        ),
        (
            "WRONGPASS",
            "invalid username-password pair",
            FaultKind::Refused,
            Then::GiveUp,
            Some("wrong-password"),
        ),
        (
            "NOPERM",
            "this user has no permissions",
            FaultKind::Refused,
            Then::Keep,
            Some("no-permission"),
        ),
        (
            "CROSSSLOT",
            "Keys in request don't hash",
            FaultKind::Refused,
            Then::Keep,
            Some("cross-slot"),
        ),
        (
            "WRONGTYPE",
            "Operation against a key",
            FaultKind::Refused,
            Then::Keep,
            Some("foreign-key"),
        ),
        (
            "TOLLGATE",
            "a foreign value",
            FaultKind::Refused,
            Then::Keep,
            Some("foreign-key"),
        ),
        (
            "TOLLGATE-CLOCK",
            "tg:quota~abc: another day",
            FaultKind::Refused,
            Then::Keep,
            Some("clock-differs"),
        ),
        (
            "ERR",
            "unknown command 'EVALSHA'",
            FaultKind::Refused,
            Then::Keep,
            Some("unknown-command"),
        ),
        (
            "ERR",
            "The user executing the script can't run this command or subcommand script: ab, on @user_script:5.",
            FaultKind::Refused,
            Then::Keep,
            Some("no-permission"),
        ),
        (
            "ERR",
            "ACL failure in script: User tollgate has no permissions to run the 'pttl' command script: on @user_script:8.",
            FaultKind::Refused,
            Then::Keep,
            Some("no-permission"),
        ),
        (
            "ERR",
            "max number of clients reached",
            FaultKind::Unable,
            Then::GiveUp,
            Some("too-many-clients"),
        ),
        (
            "ERR",
            "something new",
            FaultKind::Refused,
            Then::Keep,
            Some("store-error"),
        ),
        (
            "NEWWORD",
            "of a later version",
            FaultKind::Refused,
            Then::Keep,
            Some("store-error"),
        ),
        (
            "ERR",
            "Error running script (call to f_abc): @user_script:7: @user_script: 7: -OOM command not allowed",
            FaultKind::Unable,
            Then::Strike,
            Some("out-of-memory"),
        ),
    ];

    #[test]
    fn every_class_has_its_meaning() {
        for (code, details, kind, link, warning) in TABLE {
            let Meaning::Fault(fault) = of(code, details) else {
                panic!("{code} is no fault");
            };
            assert_eq!(fault.kind, kind, "{code} {details}");
            assert_eq!(fault.link, link, "{code} {details}");
            assert_eq!(
                fault.warning.map(|warning| warning.0),
                warning,
                "{code} {details}"
            );
        }
    }

    #[test]
    fn whoever_must_change_something_is_told() {
        for (code, details, kind, _, warning) in TABLE {
            if kind == FaultKind::Refused {
                assert!(warning.is_some(), "{code} {details} is silent");
            }
        }
    }

    #[test]
    fn what_did_not_run_may_be_sent_again() {
        assert_eq!(of("NOSCRIPT", "No matching script"), Meaning::NoScript);
        assert_eq!(of("TRYAGAIN", "Multiple keys"), Meaning::TryAgain);
        assert_eq!(of("READONLY", "You can't write"), Meaning::ReadOnly);
        let wrapped =
            "Error running script (call to f_1): @user_script:1: -READONLY You can't write";
        assert_eq!(of("ERR", wrapped), Meaning::ReadOnly);
        let there = |slot, host: &str, port| Redirect {
            slot,
            host: host.into(),
            port,
        };
        assert_eq!(
            of("MOVED", "3999 127.0.0.1:6381"),
            Meaning::Moved(there(3999, "127.0.0.1", 6381))
        );
        assert_eq!(of("ASK", "0 :6381"), Meaning::Ask(there(0, "", 6381)));
        assert_eq!(
            of("MOVED", "16383 2001:db8::1:7000"),
            Meaning::Moved(there(16383, "2001:db8::1", 7000))
        );
    }

    #[test]
    fn keys_are_left_out_of_what_a_server_said() {
        for (said, kept) in [
            ("nothing of the kind", "nothing of the kind"),
            (
                "TOLLGATE tg:login~5f0c1a:{s3cr3t}:bob or tg:x~12:{y} holds something",
                "TOLLGATE tg:login~5f0c1a or tg:x~12 holds something",
            ),
            (
                "ERR unknown command 'EVALSHA', with args beginning with: 'ab' '1' 'tg:login~5f0c1a:{s3cr3t' ",
                "ERR unknown command 'EVALSHA', with args beginning with: 'ab' '1' 'tg:login~5f0c1a ",
            ),
            ("tg:a:{", "tg:a"),
        ] {
            assert_eq!(without_keys(said), kept);
        }
    }

    #[test]
    fn a_redirect_to_nowhere_is_refused() {
        for details in ["", "1", "16384 a:1", "1 a", "1 a:99999", "x a:1"] {
            assert!(
                matches!(
                    of("MOVED", details),
                    Meaning::Fault(Fault {
                        kind: FaultKind::Refused,
                        ..
                    })
                ),
                "{details}"
            );
        }
    }
}
