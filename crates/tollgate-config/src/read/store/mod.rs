//! `store`: in this process, or one that a fleet shares.
//!
//! # What is read
//!
//! A word or an address, or a map with the address as `url` and what does not belong into an address.
//! What is said twice (a password in the address and in a variable) and what has no effect (a CA without
//! TLS) are errors: with credentials nobody should have to guess which one counts.
//!
//! It does not know what is wise; that is for [`crate::lint`]. It opens no file and reads no variable: a
//! policy is checked on machines that have neither.

mod address;

use std::path::PathBuf;

use tollgate::Span;

use self::address::Address;
use super::fields::Fields;
use super::limit::Spots;
use super::names::STORE;
use super::scalar::{span, text, whole};
use crate::problem::Place;
use crate::report::{Read, Report, Reported, quoted};
use crate::store::{SecretSpec, SharedSpec, StoreSpec, TlsFiles, Topology};
use crate::yaml::{Node, Value};

/// Nodes that can share a store, as far as it is written.
const NODES_MAX: u64 = 1000;
const DEADLINE_LEAST: Span = Span::from_millis(1);
const DEADLINE_MOST: Span = Span::from_secs(1);
/// Characters of a prefix: every key has them.
const PREFIX_MAX: usize = 32;
/// Characters of the name of a user or a variable.
const NAME_MAX: usize = 256;
/// Characters of a path.
const PATH_MAX: usize = 4096;

/// A store and where its parts stand.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) spec: StoreSpec,
    pub(crate) spots: Spots,
}

/// Is a store meant that several processes share? Asked of the tree, so that one that is wrong counts as well.
pub(super) fn is_shared(node: &Node) -> bool {
    match &node.value {
        Value::Map(_) => true,
        Value::Scalar { text, .. } => text.contains("://"),
        _ => false,
    }
}

/// Reads the store.
pub(super) fn store(node: &Node, report: &Report<'_>) -> Read<Store> {
    match &node.value {
        Value::Map(_) => long(node, report),
        Value::List(_) => Err(report.error(
            node.place,
            "not-a-value",
            "there is one store, but this is a list",
            "write several hosts in one address: `redis+sentinel://s1,s2,s3/mymaster` or `redis+cluster://c1,c2,c3`",
        )),
        _ => short(node, report),
    }
}

fn short(node: &Node, report: &Report<'_>) -> Read<Store> {
    let spots = Spots::whole(node.place);
    if text(node, report)? == "memory" {
        let spec = StoreSpec::Memory;
        return Ok(Store { spec, spots });
    }
    let address = address_of(node, report)?;
    let spec = SharedSpec {
        tls: address.tls.then(TlsFiles::default),
        username: address.username,
        password: address.password.map(SecretSpec::Text),
        sentinel_username: None,
        sentinel_password: None,
        topology: address.topology,
        database: address.database,
        deadline: SharedSpec::DEADLINE,
        prefix: SharedSpec::PREFIX.to_owned(),
        nodes: None,
    };
    let spec = StoreSpec::Shared(Box::new(spec));
    Ok(Store { spec, spots })
}

/// The address that a node holds.
fn address_of(node: &Node, report: &Report<'_>) -> Read<Address> {
    let text = text(node, report)?;
    let parsed = address::parse(text);
    hide_user(node.place, text, report);
    parsed.map_err(|faults| {
        for fault in faults {
            if let Some(secret) = fault.veil {
                hide_text(node.place, &secret, report);
            }
            report.error(node.place, fault.code, fault.message, fault.hint);
        }
        Reported
    })
}

/// What is between `://` and `@` is hidden by its look; where it does not look like that, all of it is.
pub(super) fn hide_user(place: Place, text: &str, report: &Report<'_>) {
    let looks = |text: &str| {
        let rest = text.split_once("://").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.contains('@'))
    };
    if text.contains('@') && !(looks(text) && looks(report.line(place.line))) {
        report.hide(place);
    }
    hide_next_lines(place, text, report);
}

/// Hides a text but its first character in the line of a place, or the whole place if it is not found there:
/// it may be written with escapes.
fn hide_text(place: Place, secret: &str, report: &Report<'_>) {
    let line = report.line(place.line);
    let mut found = false;
    for (at, _) in line.match_indices(secret) {
        found = true;
        let before = line.get(..at).unwrap_or_default().chars().count();
        report.hide(Place {
            line: place.line,
            column: before + 2,
            length: secret.chars().count().saturating_sub(1),
        });
    }
    if !found {
        report.hide(place);
    }
}

/// An address in quotes may go on in the next lines, and so may the password in it, up to its `@`.
fn hide_next_lines(place: Place, text: &str, report: &Report<'_>) {
    if place.length != usize::MAX || !text.contains('@') {
        return;
    }
    report.hide(place);
    let lines = text.chars().count();
    for line in place.line.saturating_add(1)..=place.line.saturating_add(lines) {
        report.hide(Place {
            line,
            column: 1,
            length: usize::MAX,
        });
        if report.line(line).contains('@') {
            return;
        }
    }
}

fn long(node: &Node, report: &Report<'_>) -> Read<Store> {
    hide_secrets(node, report);
    let fields = Fields::open_with(node, "the store", STORE, report, hint)?;
    let url = match fields.read("url", |n| url(n, report)) {
        Ok(None) => Err(report.error(
            fields.place,
            "missing-field",
            "the store has no address",
            "add `url: redis://10.0.0.5:6379/0`, or write `store: memory`",
        )),
        Ok(Some(address)) => Ok(address),
        Err(reported) => Err(reported),
    };
    let found = url.as_ref().ok();
    let username = login(&fields, "username", found, report);
    let password = secret(&fields, "password", found, report);
    let sentinel_username = login(&fields, "sentinel_username", None, report);
    let sentinel_password = secret(&fields, "sentinel_password", None, report);
    let sentinels = only_for_sentinels(&fields, found, report);
    let tls = tls(&fields, found, report);
    let deadline = fields.read("deadline", |n| deadline(n, report));
    let prefix = fields.read("prefix", |n| prefix(n, report));
    let nodes = fields.read("nodes", |n| whole(n, 1, NODES_MAX, "4", report));
    sentinels?;
    let address = url?;
    let in_address = address.password.map(SecretSpec::Text);
    let spec = SharedSpec {
        topology: address.topology,
        tls: tls?,
        username: username?.or(address.username),
        password: password?.or(in_address),
        sentinel_username: sentinel_username?,
        sentinel_password: sentinel_password?,
        database: address.database,
        deadline: deadline?.unwrap_or(SharedSpec::DEADLINE),
        prefix: prefix?.unwrap_or_else(|| SharedSpec::PREFIX.to_owned()),
        nodes: nodes?.and_then(|nodes| u32::try_from(nodes).ok()),
    };
    Ok(Store {
        spec: StoreSpec::Shared(Box::new(spec)),
        spots: Spots::of(&fields),
    })
}

/// Hides the values of fields that are not there but sound as if a password stood in them.
fn hide_secrets(node: &Node, report: &Report<'_>) {
    let Value::Map(entries) = &node.value else {
        return;
    };
    for (key, value) in entries {
        let name = key.text.to_lowercase();
        let sounds = ["pass", "pw", "secret", "auth", "cred", "token"];
        let is_scalar = matches!(value.value, Value::Scalar { .. });
        if is_scalar && !STORE.contains(&name.as_str()) && sounds.iter().any(|s| name.contains(s)) {
            report.hide(value.place);
        }
    }
}

/// What is known about fields that are not there.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "password" | "pass" | "auth" | "requirepass" | "secret" => {
            "keep it out of the file: `password_env: TOLLGATE_STORE_PASSWORD` or `password_file: /run/secrets/store`"
        }
        "sentinel_password" | "sentinel_pass" | "sentinel_auth" => {
            "keep it out of the file: `sentinel_password_env: …` or `sentinel_password_file: …`"
        }
        "host" | "hosts" | "port" | "address" | "addresses" | "addr" | "endpoint" | "server"
        | "servers" | "uri" => "it is part of the address: `url: redis://10.0.0.5:6379/0`",
        "database" | "db" => "the database is part of the address: `url: redis://10.0.0.5:6379/0`",
        "service" | "master" | "master_name" | "sentinels" => {
            "it is part of the address: `url: redis+sentinel://s1,s2,s3/mymaster`"
        }
        "cluster" => "the scheme says so: `url: redis+cluster://c1,c2,c3`",
        "tls" | "ssl" => "the scheme says so: `url: rediss://…`",
        "timeout" | "response_timeout" => "did you mean `deadline`?",
        "user" => "did you mean `username`?",
        "key_prefix" | "namespace" => "did you mean `prefix`?",
        "on_store_error" | "on_error" => {
            "`on_store_error` stands at the top of the file, or in a limit"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn url(node: &Node, report: &Report<'_>) -> Read<Address> {
    if text(node, report)? == "memory" {
        return Err(report.error(
            node.place,
            "bad-store-address",
            "`memory` has no address",
            "write `store: memory`",
        ));
    }
    address_of(node, report)
}

/// Something is said twice about a user, or in two ways.
fn twice(place: Place, what: &str, report: &Report<'_>) -> Reported {
    report.error(
        place,
        "said-twice",
        format!("{what} is given twice"),
        "keep one of the two; a password is best kept out of the file",
    )
}

/// The name of a user, unless the address has one as well.
fn login(
    fields: &Fields<'_>,
    name: &str,
    address: Option<&Address>,
    report: &Report<'_>,
) -> Read<Option<String>> {
    fields.read(name, |node| {
        let user = text(node, report)?;
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if user.is_empty() || user.chars().count() > NAME_MAX || user.contains(odd) {
            return Err(report.error(
                node.place,
                "bad-username",
                format!("{} cannot be the name of a user", quoted(user)),
                format!("write at most {NAME_MAX} characters, none of them blank"),
            ));
        }
        if address.is_some_and(|address| address.username.is_some()) {
            return Err(twice(node.place, "the user", report));
        }
        Ok(user.to_owned())
    })
}

/// Where a password is: in a variable or in a file, and only in one of them.
fn secret(
    fields: &Fields<'_>,
    name: &str,
    address: Option<&Address>,
    report: &Report<'_>,
) -> Read<Option<SecretSpec>> {
    let [env, file] = [format!("{name}_env"), format!("{name}_file")];
    let variable = fields.read(&env, |n| variable(n, report));
    let path = fields.read(&file, |n| path(n, report));
    let place = fields
        .name_place(&file)
        .or_else(|| fields.name_place(&env))
        .unwrap_or(fields.place);
    let in_address = address.is_some_and(|address| address.password.is_some());
    match (variable?, path?) {
        (Some(_), Some(_)) => Err(twice(place, "the password", report)),
        (Some(_), None) | (None, Some(_)) if in_address => {
            Err(twice(place, "the password", report))
        }
        (Some(name), None) => Ok(Some(SecretSpec::Env(name))),
        (None, Some(path)) => Ok(Some(SecretSpec::File(path))),
        (None, None) => Ok(None),
    }
}

/// The name of a variable of the environment. What is not one may be the password itself, so it is not shown.
fn variable(node: &Node, report: &Report<'_>) -> Read<String> {
    let name = text(node, report)?;
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if first && rest && name.len() <= NAME_MAX {
        return Ok(name.to_owned());
    }
    report.hide(node.place);
    let hint = match name.strip_prefix('$') {
        Some(_) => "leave out the `$`: write `TOLLGATE_STORE_PASSWORD`",
        None => {
            "write the name of the variable that holds the password, such as `TOLLGATE_STORE_PASSWORD`"
        }
    };
    Err(report.error(
        node.place,
        "bad-variable",
        "this is not the name of a variable of the environment",
        hint,
    ))
}

/// A path of a file that is read when the store is opened.
pub(super) fn path(node: &Node, report: &Report<'_>) -> Read<PathBuf> {
    let path = text(node, report)?;
    if path.is_empty() || path.chars().count() > PATH_MAX || path.chars().any(char::is_control) {
        return Err(report.error(
            node.place,
            "bad-file",
            format!("{} cannot be the name of a file", quoted(path)),
            "write its path, such as `/run/secrets/store`",
        ));
    }
    Ok(PathBuf::from(path))
}

/// Nothing is said about sentinels where there are none.
fn only_for_sentinels(
    fields: &Fields<'_>,
    address: Option<&Address>,
    report: &Report<'_>,
) -> Read<()> {
    let sentinel = |address: &Address| matches!(address.topology, Topology::Sentinel { .. });
    if address.is_none_or(sentinel) {
        return Ok(());
    }
    let mut done = Ok(());
    for name in [
        "sentinel_username",
        "sentinel_password_env",
        "sentinel_password_file",
    ] {
        if let Some(place) = fields.name_place(name) {
            done = Err(report.error(
                place,
                "field-without-effect",
                format!("`{name}` is for sentinels, and the address names none"),
                "leave it out, or write `redis+sentinel://…/mymaster`",
            ));
        }
    }
    done
}

/// The files for TLS, if the address says that it is spoken.
fn tls(
    fields: &Fields<'_>,
    address: Option<&Address>,
    report: &Report<'_>,
) -> Read<Option<TlsFiles>> {
    let [ca_file, cert_file, key_file] =
        ["ca_file", "cert_file", "key_file"].map(|name| fields.read(name, |n| path(n, report)));
    let mut done = Ok(());
    for (have, need) in [("cert_file", "key_file"), ("key_file", "cert_file")] {
        if let (Some(place), Ok(None)) = (fields.name_place(have), fields.read(need, |_| Ok(()))) {
            done = Err(report.error(
                place,
                "missing-field",
                format!("`{have}` needs `{need}` beside it"),
                format!("add `{need}: …`: a certificate is shown with its key, or not at all"),
            ));
        }
    }
    if address.is_some_and(|address| !address.tls) {
        for name in ["ca_file", "cert_file", "key_file"] {
            if let Some(place) = fields.name_place(name) {
                done = Err(report.error(
                    place,
                    "field-without-effect",
                    format!("`{name}` is for TLS, which the scheme of the address does not speak"),
                    "write `rediss` or `valkeys` in the scheme for TLS, or leave it out",
                ));
            }
        }
    }
    done?;
    let files = TlsFiles {
        ca_file: ca_file?,
        cert_file: cert_file?,
        key_file: key_file?,
    };
    Ok(address.is_some_and(|address| address.tls).then_some(files))
}

fn deadline(node: &Node, report: &Report<'_>) -> Read<Span> {
    let found = span(node, report)?;
    if (DEADLINE_LEAST..=DEADLINE_MOST).contains(&found) {
        return Ok(found);
    }
    let side = if found < DEADLINE_LEAST {
        "below"
    } else {
        "above"
    };
    let bound = found.clamp(DEADLINE_LEAST, DEADLINE_MOST);
    Err(report.error(
        node.place,
        "bad-span",
        format!("a deadline of {found} is {side} {bound}"),
        format!("write one from {DEADLINE_LEAST} to {DEADLINE_MOST}, such as `8ms`"),
    ))
}

fn prefix(node: &Node, report: &Report<'_>) -> Read<String> {
    let prefix = text(node, report)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !prefix.is_empty() && prefix.len() <= PREFIX_MAX && prefix.chars().all(plain) {
        return Ok(prefix.to_owned());
    }
    Err(report.error(
        node.place,
        "bad-prefix",
        format!("{} cannot be a prefix", quoted(prefix)),
        format!("write 1 to {PREFIX_MAX} letters, digits, `-`, `_` and `.`, such as `tg`; a `:` is put behind it"),
    ))
}
