//! The meaning of a server's error: may the call be sent again, is the server still usable, and must an operator act?
//!
//! # Theory
//!
//! The first word of an error is its class. Only the class matters, except that `ERR` covers several cases and that servers
//! before version 7 wrap the error of a command inside a script (`ERR Error running script ...: -OOM ...`), where the class is
//! found inside.
//!
//! | class | the call | the link | the request | a warning |
//! |---|---|---|---|---|
//! | `NOSCRIPT` | sent again with the script's text | kept | – | – |
//! | `MOVED` `ASK` | sent again to another server | kept | – | – |
//! | `TRYAGAIN` | sent again charge by charge | kept | – | – |
//! | `READONLY` | sent again to the new primary | closed | unable, if there is none in time | – |
//! | `LOADING` `MASTERDOWN` `BUSY` | not sent again | closed | unable | – |
//! | `CLUSTERDOWN` | not sent again | kept | unable; the slot map is read again | `cluster-down` |
//! | `OOM` `MISCONF` `NOREPLICAS` | not sent again | closed after three in a row | unable | yes |
//! | `NOAUTH` `WRONGPASS` | not sent again | closed | refused | yes |
//! | `NOPERM` | not sent again | kept | refused | yes |
//! | `CROSSSLOT` `WRONGTYPE` `TOLLGATE`, any other | not sent again | kept | refused | yes |
//!
//! # Invariant
//!
//! No error ever admits a request. An unknown error is refused with a warning.
//!
//! # What it does not know
//!
//! The link, and how the policy decides a request without an answer.

use redis::ServerError;
use tollgate_policy::shared::FaultKind;

/// The reaction to an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorAction {
    /// The server does not have the script: send its text. The call did not run.
    SendScript,
    /// The slot is on another server. The call did not run.
    Moved(Redirect),
    /// This key is on another server already. The call did not run.
    Ask(Redirect),
    /// Some keys of the call have moved and some have not: send its charges one by one. The call did not run.
    SplitKeys,
    /// The server is a replica now: find the primary. The call did not run.
    FindPrimary,
    /// There is no answer.
    Fail(ServerFault),
}

/// The server to send to instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    /// Empty for the host of the redirecting server.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// An error without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerFault {
    pub(crate) kind: FaultKind,
    pub(crate) link: LinkAction,
    /// Whether the slot map of the cluster must be read again.
    pub(crate) remap: bool,
    /// Whether a script reported it, or could not run.
    pub(crate) script: bool,
    pub(crate) warning: Option<Hint>,
}

/// A warning code, and the remedy.
pub(crate) type Hint = (&'static str, &'static str);

/// The consequence for the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkAction {
    /// The link stays up.
    Keep,
    /// The link is marked down at the third such error in a row.
    CountFailure,
    /// The link is marked down at once.
    MarkDown,
}

/// Classes, what the request gets, what the link does, and the warning.
type FaultRow = (&'static [&'static str], FaultKind, LinkAction, Option<Hint>);

use FaultKind::{Refused, Unable};
use LinkAction::{CountFailure, Keep, MarkDown};

#[rustfmt::skip]
const FAULTS: [FaultRow; 11] = [
    (&["LOADING", "MASTERDOWN", "BUSY", "UNKILLABLE"], Unable, MarkDown, None),
    (&["CLUSTERDOWN"], Unable, Keep, Some(("cluster-down",
        "no server serves some slots of the cluster: see `CLUSTER INFO` and its servers"))),
    (&["OOM"], Unable, CountFailure, Some(("out-of-memory",
        "give the server more memory (maxmemory), or find what else fills it"))),
    (&["MISCONF"], Unable, CountFailure, Some(("cannot-persist",
        "the server cannot write to its disk and rejects writes: see its log"))),
    (&["NOREPLICAS"], Unable, CountFailure, Some(("no-replicas",
        "fewer replicas are connected than min-replicas-to-write requires: bring them back"))),
    (&["NOAUTH", "WRONGPASS"], Refused, MarkDown, Some(WRONG_PASSWORD)),
    (&["NOPERM"], Refused, Keep, Some(("no-permission",
        "give the user of the store the access rule that the documentation of the store states"))),
    (&["CROSSSLOT"], Refused, Keep, Some(("cross-slot",
        "the servers are a cluster: configure the store as a cluster"))),
    (&["WRONGTYPE"], Refused, Keep, Some(("foreign-key",
        "another program writes below the key prefix: choose another prefix"))),
    (&["TOLLGATE"], Refused, Keep, Some(("foreign-key",
        "another program, or another version of this one, writes below the key prefix: choose another prefix"))),
    (&["TOLLGATE-CLOCK"], Refused, Keep, Some(("clock-differs",
        "the clocks of this node and of the store differ by more than a period of a calendar: run NTP on both"))),
];

/// Cases of `ERR`: a part of the text, and the fault.
#[rustfmt::skip]
const ERR_FAULTS: [(&str, FaultKind, LinkAction, Hint); 4] = [
    ("unknown command", Refused, Keep, ("unknown-command",
        "the server lacks a command: it is too old, or the command was renamed")),
    ("Unknown Redis command", Refused, Keep, ("unknown-command",
        "the server lacks a command: it is too old, or the command was renamed")),
    ("max number of clients", Unable, MarkDown, ("too-many-clients",
        "raise maxclients of the server")),
    ("This instance has cluster support disabled", Refused, Keep, ("no-cluster",
        "the servers are not a cluster: configure the store without one")),
];

pub(crate) const WRONG_PASSWORD: Hint = (
    "wrong-password",
    "set the user and the password of the store",
);

const UNKNOWN: Hint = (
    "store-error",
    "unexpected error of the server: run the doctor",
);

/// The reaction to this error.
pub(crate) fn classify(error: &ServerError) -> ErrorAction {
    classify_text(error.code(), error.details().unwrap_or_default())
}

fn classify_text(code: &str, details: &str) -> ErrorAction {
    let moved = match code {
        "NOSCRIPT" => return ErrorAction::SendScript,
        "TRYAGAIN" => return ErrorAction::SplitKeys,
        "READONLY" | "REDIRECT" => return ErrorAction::FindPrimary,
        "ERR" => return classify_err(details),
        "MOVED" => redirect(details).map(ErrorAction::Moved),
        "ASK" => redirect(details).map(ErrorAction::Ask),
        _ => None,
    };
    moved.unwrap_or_else(|| ErrorAction::Fail(fault(code)))
}

fn fault(code: &str) -> ServerFault {
    let known = FAULTS.iter().find(|(codes, ..)| codes.contains(&code));
    let (kind, link, warning) = known.map_or(
        (Refused, Keep, Some(UNKNOWN)),
        |(_, kind, link, warning)| (*kind, *link, *warning),
    );
    ServerFault {
        kind,
        link,
        remap: code == "CLUSTERDOWN",
        script: known.is_none() || code == "TOLLGATE",
        warning,
    }
}

/// `ERR` covers several cases.
fn classify_err(details: &str) -> ErrorAction {
    if let Some((code, rest)) = inner(details) {
        return classify_text(code, rest);
    }
    // A command inside a script: there the class is missing.
    if details.contains("user executing the script can't")
        || details.contains("ACL failure in script")
    {
        return ErrorAction::Fail(fault("NOPERM"));
    }
    let found = ERR_FAULTS
        .iter()
        .find(|(text, ..)| details.starts_with(text));
    ErrorAction::Fail(found.map_or_else(
        || fault(""),
        |(_, kind, link, hint)| ServerFault {
            kind: *kind,
            link: *link,
            remap: false,
            script: false,
            warning: Some(*hint),
        },
    ))
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

/// The text of an error, without the keys in it.
pub(crate) fn message(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    without_keys(&format!("{} {details}", error.code()))
}

/// The text of a server, without the keys in it: they may be secrets of clients, and errors go to logs. Of the name of a key the
/// part stays that names the limit.
pub(crate) fn without_keys(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
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
        LinkAction,
        Option<&'static str>,
    );

    const TABLE: [Row; 22] = [
        (
            "LOADING",
            "Redis is loading the dataset in memory",
            FaultKind::Unable,
            LinkAction::MarkDown,
            None,
        ),
        (
            "MASTERDOWN",
            "Link with MASTER is down",
            FaultKind::Unable,
            LinkAction::MarkDown,
            None,
        ),
        (
            "BUSY",
            "Redis is busy running a script.",
            FaultKind::Unable,
            LinkAction::MarkDown,
            None,
        ),
        (
            "UNKILLABLE",
            "Sorry",
            FaultKind::Unable,
            LinkAction::MarkDown,
            None,
        ),
        (
            "CLUSTERDOWN",
            "The cluster is down",
            FaultKind::Unable,
            LinkAction::Keep,
            Some("cluster-down"),
        ),
        (
            "OOM",
            "command not allowed",
            FaultKind::Unable,
            LinkAction::CountFailure,
            Some("out-of-memory"),
        ),
        (
            "MISCONF",
            "Redis is configured to save",
            FaultKind::Unable,
            LinkAction::CountFailure,
            Some("cannot-persist"),
        ),
        (
            "NOREPLICAS",
            "Not enough good replicas",
            FaultKind::Unable,
            LinkAction::CountFailure,
            Some("no-replicas"),
        ),
        (
            "NOAUTH",
            "Authentication required.",
            FaultKind::Refused,
            LinkAction::MarkDown,
            Some("wrong-password"),
        ),
        (
            "WRONGPASS",
            "invalid username-password pair",
            FaultKind::Refused,
            LinkAction::MarkDown,
            Some("wrong-password"),
        ),
        (
            "NOPERM",
            "this user has no permissions",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("no-permission"),
        ),
        (
            "CROSSSLOT",
            "Keys in request don't hash",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("cross-slot"),
        ),
        (
            "WRONGTYPE",
            "Operation against a key",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("foreign-key"),
        ),
        (
            "TOLLGATE",
            "a foreign value",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("foreign-key"),
        ),
        (
            "TOLLGATE-CLOCK",
            "tg:quota~abc: another day",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("clock-differs"),
        ),
        (
            "ERR",
            "unknown command 'EVALSHA'",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("unknown-command"),
        ),
        (
            "ERR",
            "The user executing the script can't run this command or subcommand script: ab, on @user_script:5.",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("no-permission"),
        ),
        (
            "ERR",
            "ACL failure in script: User tollgate has no permissions to run the 'pttl' command script: on @user_script:8.",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("no-permission"),
        ),
        (
            "ERR",
            "max number of clients reached",
            FaultKind::Unable,
            LinkAction::MarkDown,
            Some("too-many-clients"),
        ),
        (
            "ERR",
            "something new",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("store-error"),
        ),
        (
            "NEWWORD",
            "of a later version",
            FaultKind::Refused,
            LinkAction::Keep,
            Some("store-error"),
        ),
        (
            "ERR",
            "Error running script (call to f_abc): @user_script:7: @user_script: 7: -OOM command not allowed",
            FaultKind::Unable,
            LinkAction::CountFailure,
            Some("out-of-memory"),
        ),
    ];

    #[test]
    fn every_class_has_its_action() {
        for (code, details, kind, link, warning) in TABLE {
            let ErrorAction::Fail(fault) = classify_text(code, details) else {
                panic!("{code} is not a fault");
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
    fn every_refusal_has_a_warning() {
        for (code, details, kind, _, warning) in TABLE {
            if kind == FaultKind::Refused {
                assert!(warning.is_some(), "{code} {details} has no warning");
            }
        }
    }

    #[test]
    fn calls_that_did_not_run_are_sent_again() {
        assert_eq!(
            classify_text("NOSCRIPT", "No matching script"),
            ErrorAction::SendScript
        );
        assert_eq!(
            classify_text("TRYAGAIN", "Multiple keys"),
            ErrorAction::SplitKeys
        );
        assert_eq!(
            classify_text("READONLY", "You can't write"),
            ErrorAction::FindPrimary
        );
        let wrapped =
            "Error running script (call to f_1): @user_script:1: -READONLY You can't write";
        assert_eq!(classify_text("ERR", wrapped), ErrorAction::FindPrimary);
        let there = |slot, host: &str, port| Redirect {
            slot,
            host: host.into(),
            port,
        };
        assert_eq!(
            classify_text("MOVED", "3999 127.0.0.1:6381"),
            ErrorAction::Moved(there(3999, "127.0.0.1", 6381))
        );
        assert_eq!(
            classify_text("ASK", "0 :6381"),
            ErrorAction::Ask(there(0, "", 6381))
        );
        assert_eq!(
            classify_text("MOVED", "16383 2001:db8::1:7000"),
            ErrorAction::Moved(there(16383, "2001:db8::1", 7000))
        );
    }

    #[test]
    fn keys_are_removed_from_errors() {
        for (text, kept) in [
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
            assert_eq!(without_keys(text), kept);
        }
    }

    #[test]
    fn an_invalid_redirect_is_refused() {
        for details in ["", "1", "16384 a:1", "1 a", "1 a:99999", "x a:1"] {
            assert!(
                matches!(
                    classify_text("MOVED", details),
                    ErrorAction::Fail(ServerFault {
                        kind: FaultKind::Refused,
                        ..
                    })
                ),
                "{details}"
            );
        }
    }
}
