//! Reads a whole policy file: its top-level fields, and through other modules their contents.

use std::collections::HashMap;

use tollgate_policy::address::{CidrSet, ForwardedHeader, Proxies};
use tollgate_policy::path::PathRules;
use tollgate_policy::{AnswerStyle, DefaultAction, LimitRule, Policy, Privacy, XRateLimit};

use super::domains::{domains, reserved_name};
use super::expect::{check_names, expect};
use super::fields::{FieldSpans, Fields, Listed};
use super::gateway::{Gateway, gateway};
use super::item::Item;
use super::key::{V6_BITS, is_token};
use super::limit::{FileDefaults, default_limit, default_max_keys, limit};
use super::lists::list;
use super::matching::network;
use super::pressure::pressure;
use super::queue::queues;
use super::scalar::{boolean, choice, integer, percentage, text};
use super::sharing;
use super::store::{Store, store};
use super::store_error;
use super::tiers::{Tier, tiers};
use crate::expect::ExpectedCase;
use crate::problem::Place;
use crate::report::{Read, Report, quoted};
use crate::shape;
use crate::suggest::did_you_mean;
use crate::yaml::Value;

/// Limits in one file.
const LIMITS_MAX: usize = 10_000;

/// A policy and where its parts stand.
pub(crate) struct Draft {
    pub(crate) policy: Policy,
    pub(crate) store: Store,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) limits: Vec<FieldSpans>,
    pub(crate) allow: Vec<FieldSpans>,
    pub(crate) deny: Vec<FieldSpans>,
    pub(crate) default: Option<FieldSpans>,
    pub(crate) queues: Vec<FieldSpans>,
    pub(crate) pressure: FieldSpans,
    pub(crate) gateway: Gateway,
    pub(crate) expect: Vec<ExpectedCase>,
    pub(crate) file: FieldSpans,
    /// Headers that clients cannot set, in lower case.
    pub(crate) trusted_headers: Vec<String>,
    /// Trusted networks that are too wide to hold only proxies.
    pub(crate) wide_networks: Vec<Place>,
}

/// Reads the file.
pub(crate) fn file(root: Item<'_>) -> Read<Draft> {
    let fields = Fields::open_with(root, "a policy", shape::Policy::FIELDS, |name| match name {
        "limit" | "rules" | "descriptors" | "policies" => Some("did you mean `limits`?".into()),
        "name" | "match" | "key" | "algorithm" | "burst" => Some(format!(
            "`{name}` belongs to a limit: put it under `limits:`, in an item that begins with `- `"
        )),
        name if shape::Store::FIELDS.contains(&name) => Some(format!(
            "`{name}` belongs to the store: `store: {{ url: …, {name}: … }}`"
        )),
        "queue" | "at_once" | "flow" | "waiting" => Some(
            "write `queues:` with a list of queues, each of which begins with `- name: …`".into(),
        ),
        "upstream" | "proxy" => {
            Some("write `gateway: { upstreams: http://127.0.0.1:3000 }`".into())
        }
        name if shape::Gateway::FIELDS.contains(&name) => Some(format!(
            "`{name}` belongs to the gateway: `gateway: {{ {name}: … }}`"
        )),
        name if shape::Pressure::FIELDS.contains(&name) => Some(format!(
            "`{name}` belongs to `pressure`: `pressure: {{ {name}: … }}`"
        )),
        _ => None,
    })?;
    let version = fields.read("version", version);
    let store = fields.read("store", store);
    let on_store_error = store_error::on_store_error(&fields);
    let decided = store_error::check(root, &on_store_error);
    let sharing = sharing::sharing(&fields);
    let v6 = fields.read("ipv6_prefix", |n| integer(n, V6_BITS, "64"));
    let privacy = [("plain", Privacy::Plain), ("hashed", Privacy::Hashed)];
    let privacy = fields.read("key_privacy", |n| choice(n, "a way to show keys", &privacy));
    let (proxies, wide_networks) = proxies(&fields);
    let trusted_headers = fields.read_each("trusted_headers", header_name);
    let paths = fields.read("paths", paths);
    let answers = fields.read("headers", headers);
    let tiers = fields.read("tiers", tiers).map(Option::unwrap_or_default);
    let rules = paths.as_ref().ok().copied().flatten().unwrap_or_default();
    let allow = fields.read("allow", |n| list(n, "allow", rules));
    let deny = fields.read("deny", |n| list(n, "deny", rules));
    let defaults = FileDefaults {
        v6: v6.ok().flatten().unwrap_or(64),
        paths: rules,
        tiers: tiers.as_deref().ok(),
        on_store_error: on_store_error.ok().flatten(),
        sharing: sharing.ok().flatten(),
        max_keys: default_max_keys(root.items_of("limits").len() + 1),
    };
    let default = fields.read("default", |n| default(n, &defaults));
    let limits = fields.read("limits", |n| limits(n, &defaults));
    let follow = fields.read("domains", |n| {
        domains(n, defaults.max_keys, defaults.on_store_error)
    });
    let queues = fields.read("queues", |n| queues(n, &defaults));
    let pressure = fields.read("pressure", |n| pressure(n, defaults.tiers));
    let gateway = fields.read("gateway", |n| gateway(n, rules));
    let expect = fields.read("expect", expect);
    unique(root)?;
    version?;
    on_store_error?;
    sharing?;
    decided?;
    v6?;
    let (limits, limit_spans): (Vec<_>, Vec<_>) = limits?.unwrap_or_default().into_iter().unzip();
    check_replaced(&limits, &limit_spans, root.report)?;
    let (allow, allow_spans) = allow?.unwrap_or_default().into_iter().unzip();
    let (deny, deny_spans) = deny?.unwrap_or_default().into_iter().unzip();
    let (default, default_spans) = default?.unwrap_or_default();
    let (queues, queue_spans) = queues?.unwrap_or_default().into_iter().unzip();
    let (pressure, pressure_spans) = pressure?.unzip();
    let policy = Policy {
        limits,
        allow,
        deny,
        default,
        paths: paths?.unwrap_or_default(),
        proxies: proxies?,
        answers: answers?.unwrap_or_default(),
        privacy: privacy?.unwrap_or_default(),
        queues,
        pressure,
        follow: follow?.flatten(),
    };
    let expect = expect?.unwrap_or_default();
    check_names(root, &policy)?;
    Ok(Draft {
        policy,
        store: store?.unwrap_or_default(),
        tiers: tiers?,
        limits: limit_spans,
        allow: allow_spans,
        deny: deny_spans,
        default: default_spans,
        queues: queue_spans,
        pressure: pressure_spans.unwrap_or_default(),
        gateway: gateway?.unwrap_or_default(),
        expect,
        file: fields.spans(),
        trusted_headers: trusted_headers?,
        wide_networks,
    })
}

/// Checks that every limit that another one replaces exists.
fn check_replaced(limits: &[LimitRule], spans: &[FieldSpans], report: &Report<'_>) -> Read<()> {
    let mut done = Ok(());
    let names = || limits.iter().map(|rule| &*rule.name);
    for (rule, spans) in limits.iter().zip(spans) {
        for name in &rule.replaces {
            if names().any(|known| known == &**name) {
                continue;
            }
            let hint = did_you_mean(name, names());
            let hint = hint.unwrap_or_else(|| "name a limit of this file".to_owned());
            let message = format!("there is no limit {} to replace", quoted(name));
            done = Err(report.error(spans.at("replaces"), "unknown-limit", message, hint));
        }
    }
    done
}

fn version(node: Item<'_>) -> Read<()> {
    match text(node)? {
        "1" => Ok(()),
        other => Err(node.error(
            "bad-version",
            format!(
                "{} is not a known version of the policy file",
                quoted(other)
            ),
            "write `version: 1`, or remove it",
        )),
    }
}

/// Reads the name of a header.
fn header_name(node: Item<'_>) -> Read<String> {
    let name = text(node)?;
    if is_token(name) {
        return Ok(name.to_ascii_lowercase());
    }
    Err(node.error(
        "bad-name",
        format!("{} is not the name of a header", quoted(name)),
        "write letters, digits and hyphens, such as `x-api-key`",
    ))
}

/// Reads the trusted proxies, and which of them are suspiciously wide networks. By default none is trusted.
fn proxies(fields: &Fields<'_>) -> (Read<Proxies>, Vec<Place>) {
    let mut wide_networks = Vec::new();
    let trusted = fields.read_each("trusted_proxies", |node| {
        let found = network(node)?;
        if found.bits() == 0 {
            return Err(node.error(
                "trust-all",
                format!("`{found}` trusts all clients, so each could choose its own address"),
                "write the networks of your own proxies, such as `10.0.0.0/8`",
            ));
        }
        let usual = if found.address().is_ipv4() { 8 } else { 16 };
        if found.bits() < usual {
            wide_networks.push(node.place);
        }
        Ok(found)
    });
    let words = [
        ("x-forwarded-for", ForwardedHeader::XForwardedFor),
        ("forwarded", ForwardedHeader::Forwarded),
        ("x-real-ip", ForwardedHeader::XRealIp),
    ];
    let header = fields.read("client_address", |n| {
        choice(n, "a header that names the client", &words)
    });
    let proxies = trusted.and_then(|trusted| {
        Ok(Proxies {
            trusted: CidrSet::new(trusted),
            header: header?.unwrap_or_default(),
        })
    });
    (proxies, wide_networks)
}

fn paths(node: Item<'_>) -> Read<PathRules> {
    let fields = Fields::open(node, "`paths`", shape::Paths::FIELDS)?;
    let ignore_case = fields.read("ignore_case", boolean);
    let words = [("ignore", false), ("keep", true)];
    let keep = fields.read("trailing_slash", |n| {
        choice(n, "a way to treat a slash at the end", &words)
    });
    Ok(PathRules {
        ignore_case: ignore_case?.unwrap_or(false),
        keep_trailing_slash: keep?.unwrap_or(false),
    })
}

fn headers(node: Item<'_>) -> Read<AnswerStyle> {
    let fields = Fields::open(node, "`headers`", shape::Headers::FIELDS)?;
    let usual = AnswerStyle::default();
    let flag = |name: &str| fields.read(name, boolean);
    let (retry_after, ratelimit, problem) =
        (flag("retry_after"), flag("ratelimit"), flag("problem"));
    let jitter = fields.read("jitter", |n| match percentage(n)? {
        share if share % 100 != 0 => Err(n.error(
            "bad-share",
            "`jitter` is a percentage without decimals",
            "write one such as `20%`",
        )),
        share => Ok(share / 100),
    });
    let words = [
        ("seconds", XRateLimit::Seconds),
        ("epoch", XRateLimit::Epoch),
        ("unprefixed", XRateLimit::Unprefixed),
        ("off", XRateLimit::Off),
        ("true", XRateLimit::Seconds),
        ("false", XRateLimit::Off),
    ];
    let x_ratelimit = fields.read("x_ratelimit", |n| {
        choice(n, "a way to report the reset", &words)
    });
    Ok(AnswerStyle {
        retry_after: retry_after?.unwrap_or(usual.retry_after),
        jitter_percent: jitter?.unwrap_or(usual.jitter_percent),
        x_ratelimit: x_ratelimit?.unwrap_or(usual.x_ratelimit),
        ratelimit: ratelimit?.unwrap_or(usual.ratelimit),
        problem: problem?.unwrap_or(usual.problem),
    })
}

fn default(
    node: Item<'_>,
    defaults: &FileDefaults<'_>,
) -> Read<(DefaultAction, Option<FieldSpans>)> {
    if let Value::Map(_) = node.value {
        let (rule, spans) = default_limit(node, defaults)?;
        return Ok((DefaultAction::Limit(Box::new(rule)), Some(spans)));
    }
    match text(node)? {
        "pass" => Ok((DefaultAction::Pass, None)),
        "refuse" => Ok((DefaultAction::Refuse, None)),
        other => Err(node.error(
            "unknown-word",
            format!("{} is not what can happen by default", quoted(other)),
            "write `pass`, `refuse` or a limit: `default: { key: ip, allow: 100/s }`",
        )),
    }
}

fn limits(node: Item<'_>, defaults: &FileDefaults<'_>) -> Read<Vec<(LimitRule, FieldSpans)>> {
    let listed = Listed {
        name: "limits",
        hint: "begin every limit with `- name: …`",
        max: (
            LIMITS_MAX,
            "use a `key` or `overrides` where limits differ only in their clients",
        ),
    };
    listed.read(node, |node, number| limit(node, number, defaults))
}

/// A name that no limit can have: the name, what it stands for, and what to do.
type ReservedName = (&'static str, &'static str, &'static str);

/// Checks that names are unique: of limits and list entries, of queues, of upstreams, of domains.
///
/// It checks the tree, so that an item with another error counts as well.
fn unique(root: Item<'_>) -> Read<()> {
    let limits = ["limits", "allow", "deny"].map(|list| root.items_of(list));
    let default = (
        "default",
        "is the name of the default limit",
        "choose another name, or write it as `default:` at the top",
    );
    let of_requests = reserved_name(root).map(|name| {
        let what = "is the name of the limits that requests carry";
        (name, what, "choose another name")
    });
    let reserved: Vec<ReservedName> = std::iter::once(default).chain(of_requests).collect();
    let gateway = root.field("gateway");
    let upstreams = gateway.map(|gateway| gateway.items_of("upstreams"));
    let done = [
        distinct(&limits.concat(), &reserved),
        distinct(&root.items_of("domains"), &[]),
        distinct(&root.items_of("queues"), &[]),
        distinct(&upstreams.unwrap_or_default(), &[]),
    ];
    done.into_iter().collect()
}

/// Checks that the items have different names, none of them `reserved`.
fn distinct(items: &[Item<'_>], reserved: &[ReservedName]) -> Read<()> {
    let mut names: Vec<Item<'_>> = items.iter().filter_map(|item| item.field("name")).collect();
    names.sort_by_key(|name| name.place);
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut done = Ok(());
    for node in names {
        let Value::Scalar { text: name, .. } = &node.node.value else {
            continue;
        };
        let taken = reserved.iter().find(|(reserved, ..)| reserved == name);
        let (message, hint) = match (taken, seen.get(name.as_str())) {
            (Some((_, what, hint)), _) => (format!("`{name}` {what}"), (*hint).to_owned()),
            (None, Some(line)) => (
                format!("{} is the name of another item already", quoted(name)),
                format!("choose another name; the first is in line {line}"),
            ),
            (None, None) => {
                seen.insert(name, node.place.line);
                continue;
            }
        };
        done = Err(node.error("duplicate-name", message, hint));
    }
    done
}
