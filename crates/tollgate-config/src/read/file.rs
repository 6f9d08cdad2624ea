//! The whole file.

use std::collections::HashMap;

use tollgate_policy::address::{CidrSet, ForwardedHeader, Proxies};
use tollgate_policy::path::PathRules;
use tollgate_policy::{AnswerStyle, Fallback, LimitRule, Policy, Privacy, XRateLimit};

use super::domains::{domains, taken_name};
use super::fields::{Fields, Listed, each, one_or_many};
use super::gateway::{Gateway, gateway};
use super::key::V6_BITS;
use super::limit::{Common, Spots, default_limit, limit, room_of};
use super::lists::list;
use super::matching::network;
use super::names::{FILE, GATEWAY, HEADERS, PATHS, PRESSURE, STORE};
use super::pressure::pressure;
use super::queue::queues;
use super::scalar::{choice, share, text, whole, yes};
use super::sharing;
use super::store::{Store, store};
use super::store_error;
use super::tiers::{Tier, tiers};
use crate::near::nearest;
use crate::problem::Place;
use crate::report::{Read, Report, quoted};
use crate::yaml::{Node, Value};

/// Limits in one file.
const LIMITS_MAX: usize = 10_000;

/// A policy and where its parts stand.
pub(crate) struct Draft {
    pub(crate) policy: Policy,
    pub(crate) store: Store,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) limits: Vec<Spots>,
    pub(crate) allow: Vec<Spots>,
    pub(crate) deny: Vec<Spots>,
    pub(crate) default: Option<Spots>,
    pub(crate) queues: Vec<Spots>,
    pub(crate) pressure: Spots,
    pub(crate) gateway: Gateway,
    pub(crate) file: Spots,
    /// Trusted networks that are wider than anybody's proxies.
    pub(crate) wide: Vec<Place>,
}

/// Reads the file.
pub(crate) fn file(root: &Node, report: &Report<'_>) -> Read<Draft> {
    let fields = Fields::open_with(root, "a policy", FILE, report, |name| match name {
        "limit" | "rules" | "descriptors" | "policies" => Some("did you mean `limits`?".into()),
        "name" | "match" | "key" | "algorithm" | "burst" => Some(format!(
            "`{name}` belongs to a limit: put it under `limits:`, in an item that begins with `- `"
        )),
        name if STORE.contains(&name) => Some(format!(
            "`{name}` belongs to the store: `store: {{ url: …, {name}: … }}`"
        )),
        "queue" | "at_once" | "flow" | "waiting" => Some(
            "write `queues:` with a list of queues, each of which begins with `- name: …`".into(),
        ),
        "upstream" | "proxy" => {
            Some("write `gateway: { upstreams: http://127.0.0.1:3000 }`".into())
        }
        name if GATEWAY.contains(&name) => Some(format!(
            "`{name}` belongs to the gateway: `gateway: {{ {name}: … }}`"
        )),
        name if PRESSURE.contains(&name) => Some(format!(
            "`{name}` belongs to `pressure`: `pressure: {{ {name}: … }}`"
        )),
        _ => None,
    })?;
    let version = fields.read("version", |n| version(n, report));
    let store = fields.read("store", |n| store(n, report));
    let on_store_error = store_error::on_store_error(&fields, report);
    let decided = store_error::check(root, &on_store_error, report);
    let sharing = sharing::sharing(&fields, report);
    let v6 = fields.read("ipv6_prefix", |n| {
        whole(n, *V6_BITS.start(), *V6_BITS.end(), "64", report)
    });
    let privacy = [("plain", Privacy::Plain), ("hashed", Privacy::Hashed)];
    let privacy = fields.read("key_privacy", |n| {
        choice(n, "a way to show keys", &privacy, report)
    });
    let (proxies, wide) = proxies(&fields, report);
    let paths = fields.read("paths", |n| paths(n, report));
    let answers = fields.read("headers", |n| headers(n, report));
    let tiers = fields
        .read("tiers", |n| tiers(n, report))
        .map(Option::unwrap_or_default);
    let rules = paths.as_ref().ok().copied().flatten().unwrap_or_default();
    let allow = fields.read("allow", |n| list(n, "allow", rules, report));
    let deny = fields.read("deny", |n| list(n, "deny", rules, report));
    let prefix = v6.as_ref().ok().copied().flatten().unwrap_or(64);
    let common = Common {
        v6: u8::try_from(prefix).unwrap_or(64),
        paths: rules,
        tiers: tiers.as_deref().ok(),
        on_store_error: on_store_error.ok().flatten(),
        sharing: sharing.ok().flatten(),
        room: room_of(match fields.get("limits").map(|node| &node.value) {
            Some(Value::List(limits)) => limits.len() + 1,
            _ => 1,
        }),
    };
    let default = fields.read("default", |n| default(n, &common, report));
    let limits = fields.read("limits", |n| limits(n, &common, report));
    let follow = fields.read("domains", |n| {
        domains(n, common.room, common.on_store_error, report)
    });
    let queues = fields.read("queues", |n| queues(n, &common, report));
    let pressure = fields.read("pressure", |n| pressure(n, common.tiers, report));
    let gateway = fields.read("gateway", |n| gateway(n, rules, report));
    unique(root, report)?;
    version?;
    on_store_error?;
    sharing?;
    decided?;
    v6?;
    let (limits, limit_spots): (Vec<_>, Vec<_>) = limits?.unwrap_or_default().into_iter().unzip();
    replaced_are_there(&limits, &limit_spots, report)?;
    let (allow, allow_spots) = allow?.unwrap_or_default().into_iter().unzip();
    let (deny, deny_spots) = deny?.unwrap_or_default().into_iter().unzip();
    let (default, default_spots) = default?.unwrap_or_default();
    let (queues, queue_spots) = queues?.unwrap_or_default().into_iter().unzip();
    let (pressure, pressure_spots) = pressure?.unzip();
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
    Ok(Draft {
        policy,
        store: store?.unwrap_or_default(),
        tiers: tiers?,
        limits: limit_spots,
        allow: allow_spots,
        deny: deny_spots,
        default: default_spots,
        queues: queue_spots,
        pressure: pressure_spots.unwrap_or_default(),
        gateway: gateway?.unwrap_or_default(),
        file: Spots::of(&fields),
        wide,
    })
}

/// Is there every limit that another one replaces?
fn replaced_are_there(limits: &[LimitRule], spots: &[Spots], report: &Report<'_>) -> Read<()> {
    let mut done = Ok(());
    let names = || limits.iter().map(|rule| &*rule.name);
    for (rule, spots) in limits.iter().zip(spots) {
        for gone in rule
            .replaces
            .iter()
            .filter(|r| !names().any(|n| n == &***r))
        {
            let hint = match nearest(gone, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "name a limit of this file".to_owned(),
            };
            let message = format!("there is no limit {} to replace", quoted(gone));
            done = Err(report.error(spots.at("replaces"), "unknown-limit", message, hint));
        }
    }
    done
}

fn version(node: &Node, report: &Report<'_>) -> Read<()> {
    match text(node, report)? {
        "1" => Ok(()),
        other => Err(report.error(
            node.place,
            "bad-version",
            format!(
                "{} is not a version of the policy file that this build knows",
                quoted(other)
            ),
            "write `version: 1`, or leave it out",
        )),
    }
}

/// Whose word about the client is taken. Nobody's, unless it is written; never everybody's.
fn proxies(fields: &Fields<'_>, report: &Report<'_>) -> (Read<Proxies>, Vec<Place>) {
    let nodes = fields
        .get("trusted_proxies")
        .map(one_or_many)
        .unwrap_or_default();
    let mut wide = Vec::new();
    let trusted = each(nodes, |node| {
        let found = network(node, report)?;
        if found.bits() == 0 {
            return Err(report.error(
                node.place,
                "trust-everybody",
                format!("`{found}` trusts everybody, so every client could choose its own address"),
                "write the networks of your own proxies, such as `10.0.0.0/8`",
            ));
        }
        let usual = if found.address().is_ipv4() { 8 } else { 16 };
        if found.bits() < usual {
            wide.push(node.place);
        }
        Ok(found)
    });
    let words = [
        ("x-forwarded-for", ForwardedHeader::XForwardedFor),
        ("forwarded", ForwardedHeader::Forwarded),
        ("x-real-ip", ForwardedHeader::XRealIp),
    ];
    let header = fields.read("client_address", |n| {
        choice(
            n,
            "a header that proxies name the client in",
            &words,
            report,
        )
    });
    let proxies = trusted.and_then(|trusted| {
        Ok(Proxies {
            trusted: CidrSet::new(trusted),
            header: header?.unwrap_or_default(),
        })
    });
    (proxies, wide)
}

fn paths(node: &Node, report: &Report<'_>) -> Read<PathRules> {
    let fields = Fields::open(node, "`paths`", PATHS, report)?;
    let ignore_case = fields.read("ignore_case", |n| yes(n, report));
    let words = [("ignore", false), ("keep", true)];
    let keep = fields.read("trailing_slash", |n| {
        choice(n, "a way to treat a slash at the end", &words, report)
    });
    Ok(PathRules {
        ignore_case: ignore_case?.unwrap_or(false),
        keep_trailing_slash: keep?.unwrap_or(false),
    })
}

fn headers(node: &Node, report: &Report<'_>) -> Read<AnswerStyle> {
    let fields = Fields::open(node, "`headers`", HEADERS, report)?;
    let usual = AnswerStyle::default();
    let flag = |name: &str| fields.read(name, |n| yes(n, report));
    let (retry_after, ratelimit, problem) =
        (flag("retry_after"), flag("ratelimit"), flag("problem"));
    let jitter = fields.read("jitter", |n| {
        let share = share(n, report)?;
        if share % 100 != 0 {
            return Err(report.error(
                n.place,
                "bad-share",
                "jitter is a whole number of hundredths",
                "write one such as `20%`",
            ));
        }
        Ok(share / 100)
    });
    let words = [
        ("seconds", XRateLimit::Seconds),
        ("epoch", XRateLimit::Epoch),
        ("off", XRateLimit::Off),
        ("true", XRateLimit::Seconds),
        ("false", XRateLimit::Off),
    ];
    let x_ratelimit = fields.read("x_ratelimit", |n| {
        choice(n, "a way to tell the reset", &words, report)
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
    node: &Node,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<(Fallback, Option<Spots>)> {
    if let Value::Map(_) = node.value {
        let (rule, spots) = default_limit(node, common, report)?;
        return Ok((Fallback::Limit(Box::new(rule)), Some(spots)));
    }
    match text(node, report)? {
        "pass" => Ok((Fallback::Pass, None)),
        "refuse" => Ok((Fallback::Refuse, None)),
        other => Err(report.error(
            node.place,
            "unknown-word",
            format!("{} is not what can happen by default", quoted(other)),
            "write `pass`, `refuse` or a limit: `default: { key: ip, allow: 100/s }`",
        )),
    }
}

fn limits(node: &Node, common: &Common<'_>, report: &Report<'_>) -> Read<Vec<(LimitRule, Spots)>> {
    let listed = Listed {
        name: "limits",
        is: "a list",
        hint: "begin every limit with `- name: …`",
        most: Some((
            LIMITS_MAX,
            "use a key or overrides where limits differ only in whom they are for",
        )),
    };
    listed.read(node, report, |node, number| {
        limit(node, number, common, report)
    })
}

/// Has every limit and every entry of a list a name of its own, and so every queue and every upstream among
/// its kind? Asked of the tree, so that what is wrong in another way counts as well.
fn unique(root: &Node, report: &Report<'_>) -> Read<()> {
    let limits = ["limits", "allow", "deny"].map(|list| items(root, list));
    let upstreams = field(root, "gateway").map_or(&[][..], |gateway| items(gateway, "upstreams"));
    let default = (
        "default",
        "is the name of what no limit matches",
        "choose another name, or write it as `default:` at the top",
    );
    let brought = taken_name(root).map(|name| {
        (
            name,
            "is the name of the limits that requests bring along",
            "choose another name",
        )
    });
    let limit_names: Vec<_> = std::iter::once(default).chain(brought).collect();
    let done = [
        distinct(limits.into_iter().flatten(), &limit_names, report),
        distinct(items(root, "domains"), &[], report),
        distinct(items(root, "queues"), &[], report),
        distinct(upstreams, &[], report),
    ];
    done.into_iter().collect()
}

/// Has each of these a name of its own, and none one that is `taken`? With those stand what they are and what
/// to do.
fn distinct<'n>(
    items: impl IntoIterator<Item = &'n Node>,
    taken: &[(&str, &str, &str)],
    report: &Report<'_>,
) -> Read<()> {
    let mut names: Vec<(&str, Place)> = Vec::new();
    for item in items {
        if let Some(Node {
            value: Value::Scalar { text, .. },
            place,
        }) = field(item, "name")
        {
            names.push((text, *place));
        }
    }
    names.sort_by_key(|(_, place)| *place);
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut done = Ok(());
    for (name, place) in names {
        let first = seen.get(name).copied();
        let known = taken.iter().find(|(taken, ..)| *taken == name);
        let (message, hint) = match (known, first) {
            (Some((_, is, hint)), _) => (format!("`{name}` {is}"), (*hint).to_owned()),
            (None, Some(line)) => (
                format!("{} is the name of something else already", quoted(name)),
                format!("choose another name; the first is in line {line}"),
            ),
            (None, None) => {
                seen.insert(name, place.line);
                continue;
            }
        };
        done = Err(report.error(place, "duplicate-name", message, hint));
    }
    done
}

/// A field of a map, if it is one and has it.
pub(super) fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let found = entries.iter().find(|(key, _)| key.text == name);
    found.map(|(_, value)| value)
}

/// The items of a list in a map, such as the file itself.
pub(super) fn items<'n>(root: &'n Node, name: &str) -> &'n [Node] {
    match field(root, name).map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}
