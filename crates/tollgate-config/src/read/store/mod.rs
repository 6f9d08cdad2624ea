//! `store`: memory, or a store that a fleet shares.
//!
//! The field is a word, an address, or a map with the address as `url`. Settings that contradict each other (a password in
//! the address and in a variable) or have no effect (a CA without TLS) are errors, so that no reader has to guess which
//! credentials are used.
//!
//! Reading a policy opens no file and reads no variable: a policy can be checked on any machine.

mod address;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use tollgate::Span;

use self::address::Address;
use super::fields::{FieldSpans, Fields};
use super::item::Item;
use super::redact::{redact_text, redact_unknown_fields, redact_user};
use super::scalar::{integer, span_within, text};
use crate::report::{Read, Reported, quoted};
use crate::shape;
use crate::store::{SecretSpec, SharedSpec, StoreSpec, TlsFiles, Topology};
use crate::yaml::Value;

/// The largest `nodes`.
const NODES_MAX: u64 = 1000;
const DEADLINES: RangeInclusive<Span> = Span::from_millis(1)..=Span::from_secs(1);
/// Bytes of a prefix, which every key has.
const PREFIX_MAX: usize = 32;
/// Characters of the name of a user or a variable.
const NAME_MAX: usize = 256;
/// Characters of a path.
const PATH_MAX: usize = 4096;

/// A store and where its fields stand.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) spec: StoreSpec,
    pub(crate) spans: FieldSpans,
}

/// Is this a shared store, even if there is an error in it?
pub(super) fn is_shared(node: Item<'_>) -> bool {
    match &node.value {
        Value::Map(_) => true,
        Value::Scalar { text, .. } => text.contains("://"),
        _ => false,
    }
}

/// Reads the store.
pub(super) fn store(node: Item<'_>) -> Read<Store> {
    match &node.value {
        Value::Map(_) => long(node),
        Value::List(_) => Err(node.error("not-a-value",
            "there is one store, but this is a list",
            "write several hosts in one address: `redis+sentinel://s1,s2,s3/mymaster` or `redis+cluster://c1,c2,c3`",
        )),
        _ => short(node),
    }
}

fn short(node: Item<'_>) -> Read<Store> {
    let spec = match text(node)? {
        "memory" => StoreSpec::Memory,
        _ => {
            let address = address_of(node)?;
            StoreSpec::Shared(Box::new(SharedSpec {
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
            }))
        }
    };
    let spans = FieldSpans::scalar(node.place);
    Ok(Store { spec, spans })
}

/// Reads the address in a value.
fn address_of(node: Item<'_>) -> Read<Address> {
    let text = text(node)?;
    let parsed = address::parse(text);
    redact_user(node, text);
    parsed.map_err(|errors| {
        for error in errors {
            if let Some(secret) = error.secret {
                redact_text(node, &secret);
            }
            node.error(error.code, error.message, error.hint);
        }
        Reported
    })
}

fn long(node: Item<'_>) -> Read<Store> {
    redact_unknown_fields(node);
    let fields = Fields::open_with(node, "the store", shape::Store::FIELDS, hint)?;
    let hint = "add `url: redis://10.0.0.5:6379/0`, or write `store: memory`";
    let url = fields.required("url", ("the store has no address", hint), url);
    let found = url.as_ref().ok();
    let username = login(&fields, "username", found);
    let password = secret(&fields, "password", found);
    let sentinel_username = login(&fields, "sentinel_username", None);
    let sentinel_password = secret(&fields, "sentinel_password", None);
    let sentinels = only_for_sentinels(&fields, found);
    let tls = tls(&fields, found);
    let deadline = fields.read("deadline", |n| span_within(n, DEADLINES, "8ms"));
    let prefix = fields.read("prefix", prefix);
    let nodes = fields.read("nodes", |n| integer(n, 1..=NODES_MAX, "4"));
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
        nodes: nodes?,
    };
    Ok(Store {
        spec: StoreSpec::Shared(Box::new(spec)),
        spans: fields.spans(),
    })
}

/// Hints for names that other tools use.
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
        "cluster" => "the scheme sets it: `url: redis+cluster://c1,c2,c3`",
        "tls" | "ssl" => "the scheme sets it: `url: rediss://…`",
        "timeout" | "response_timeout" => "did you mean `deadline`?",
        "user" => "did you mean `username`?",
        "key_prefix" | "namespace" => "did you mean `prefix`?",
        "on_store_error" | "on_error" => {
            "`on_store_error` belongs at the top of the file, or in a limit"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn url(node: Item<'_>) -> Read<Address> {
    if text(node)? == "memory" {
        return Err(node.error(
            "bad-store-address",
            "`memory` has no address",
            "write `store: memory`",
        ));
    }
    address_of(node)
}

/// Reports credentials that are in the address and in a field, or in two fields.
fn given_twice(fields: &Fields<'_>, name: &str, what: &str) -> Reported {
    fields.report.error(
        fields.name_place(name).unwrap_or(fields.place),
        "said-twice",
        format!("{what} is given twice"),
        "keep one of the two; do not keep the password in the file",
    )
}

/// Reads the name of a user that the address does not have as well.
fn login(fields: &Fields<'_>, name: &str, address: Option<&Address>) -> Read<Option<String>> {
    fields.read(name, |node| {
        let user = text(node)?;
        let is_blank = |c: char| c.is_whitespace() || c.is_control();
        if user.is_empty() || user.chars().count() > NAME_MAX || user.contains(is_blank) {
            return Err(node.error(
                "bad-username",
                format!("{} cannot be the name of a user", quoted(user)),
                format!("write at most {NAME_MAX} characters without blanks"),
            ));
        }
        if address.is_some_and(|address| address.username.is_some()) {
            return Err(given_twice(fields, name, "the user"));
        }
        Ok(user.to_owned())
    })
}

/// Reads where a password is: in a variable or in a file, but not in both.
fn secret(fields: &Fields<'_>, name: &str, address: Option<&Address>) -> Read<Option<SecretSpec>> {
    let [env, file] = [format!("{name}_env"), format!("{name}_file")];
    let (variable, path) = (fields.read(&env, variable), fields.read(&file, path));
    let in_address = address.is_some_and(|address| address.password.is_some());
    let secret = match (variable?, path?) {
        (Some(_), Some(_)) => return Err(given_twice(fields, &file, "the password")),
        (Some(name), None) => SecretSpec::Env(name),
        (None, Some(path)) => SecretSpec::File(path),
        (None, None) => return Ok(None),
    };
    if in_address {
        let field = if matches!(secret, SecretSpec::Env(_)) {
            env
        } else {
            file
        };
        return Err(given_twice(fields, &field, "the password"));
    }
    Ok(Some(secret))
}

/// Reads the name of an environment variable.
///
/// A value that does not look like one may be the password itself. It is redacted.
fn variable(node: Item<'_>) -> Read<String> {
    const SAMPLE: &str =
        "write the name of the variable that holds the password, such as `TOLLGATE_STORE_PASSWORD`";
    let name = text(node)?;
    let is_first = |c: char| c.is_ascii_uppercase() || c == '_';
    let is_usual =
        name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit());
    if !is_usual {
        node.report.redact(node.place);
    }
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_name = first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || name.len() > NAME_MAX {
        let hint = match name.strip_prefix('$') {
            Some(_) => "remove the `$`: write `TOLLGATE_STORE_PASSWORD`",
            None => SAMPLE,
        };
        let message = "this is not the name of an environment variable";
        return Err(node.error("bad-variable", message, hint));
    }
    if !is_usual {
        let message = "this does not look like the name of an environment variable";
        node.warn("unusual-variable", message, SAMPLE);
    }
    Ok(name.to_owned())
}

/// Reads the path of a file that is opened later.
pub(super) fn path(node: Item<'_>) -> Read<PathBuf> {
    let path = text(node)?;
    if path.is_empty() || path.chars().count() > PATH_MAX || path.chars().any(char::is_control) {
        return Err(node.error(
            "bad-file",
            format!("{} cannot be the name of a file", quoted(path)),
            "write its path, such as `/run/secrets/store`",
        ));
    }
    Ok(PathBuf::from(path))
}

/// Reports fields that have no effect with this address.
fn without_effect(fields: &Fields<'_>, names: &[&str], why: &str, hint: &str) -> Read<()> {
    let mut done = Ok(());
    for name in names {
        if let Some(place) = fields.name_place(name) {
            let message = format!("`{name}` is for {why}");
            let report = fields.report;
            done = Err(report.error(place, "field-without-effect", message, hint));
        }
    }
    done
}

/// Reports fields for sentinels if the address names none.
fn only_for_sentinels(fields: &Fields<'_>, address: Option<&Address>) -> Read<()> {
    match address.map(|address| &address.topology) {
        None | Some(Topology::Sentinel { .. }) => Ok(()),
        Some(_) => without_effect(
            fields,
            &[
                "sentinel_username",
                "sentinel_password_env",
                "sentinel_password_file",
            ],
            "sentinels, and the address names none",
            "remove it, or write `redis+sentinel://…/mymaster`",
        ),
    }
}

/// Reads the files for TLS; none if the address does not use TLS.
fn tls(fields: &Fields<'_>, address: Option<&Address>) -> Read<Option<TlsFiles>> {
    const NAMES: [&str; 3] = ["ca_file", "cert_file", "key_file"];
    let [ca_file, cert_file, key_file] = NAMES.map(|name| fields.read(name, path));
    let mut done = Ok(());
    for (set, required) in [("cert_file", "key_file"), ("key_file", "cert_file")] {
        if let (Some(place), Ok(None)) = (fields.name_place(set), fields.read(required, |_| Ok(())))
        {
            done = Err(fields.report.error(
                place,
                "missing-field",
                format!("`{set}` needs `{required}` beside it"),
                format!("add `{required}: …`: a certificate is used with its key"),
            ));
        }
    }
    let has_tls = address.map(|address| address.tls);
    if has_tls == Some(false) {
        let hint = "write `rediss` or `valkeys` in the scheme for TLS, or remove it";
        let why = "TLS, which the scheme of the address does not use";
        without_effect(fields, &NAMES, why, hint)?;
    }
    done?;
    let files = TlsFiles {
        ca_file: ca_file?,
        cert_file: cert_file?,
        key_file: key_file?,
    };
    Ok(has_tls.unwrap_or(false).then_some(files))
}

fn prefix(node: Item<'_>) -> Read<String> {
    let prefix = text(node)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !prefix.is_empty() && prefix.len() <= PREFIX_MAX && prefix.chars().all(is_plain) {
        return Ok(prefix.to_owned());
    }
    let hint = format!(
        "write 1 to {PREFIX_MAX} letters, digits, `-`, `_` and `.`, such as `tg`; a `:` follows it"
    );
    let message = format!("{} cannot be a prefix", quoted(prefix));
    Err(node.error("bad-prefix", message, hint))
}
