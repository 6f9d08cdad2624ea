//! Views of a policy and its limits: the public one (`/v1/limits`), and the one for operators (`/policy` of the admin
//! listener), which contains the public one.
//!
//! Fields and values are named as in the policy file. The public view has no keys, no overrides and no values of headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tollgate::Moment;
use tollgate_policy::{
    DefaultAction, LimitRule, ListRule, Match, MissingKey, Mode, Privacy, Quota, REQUEST_LIMITS,
    Source, ValueTest, WhenOver,
};

use crate::engine::{ActivePolicy, Engine};

/// The limits of a policy.
#[derive(Serialize)]
pub(crate) struct LimitsView<'a> {
    policy_version: u64,
    limits: Vec<LimitView<'a>>,
}

impl<'a> LimitsView<'a> {
    pub(crate) fn new(policy: &'a ActivePolicy) -> LimitsView<'a> {
        let follows = policy.gate.policy().follow.is_some();
        let limit = |rule: &'a LimitRule| {
            let mut view = LimitView::new(rule);
            if follows && *rule.name == *REQUEST_LIMITS {
                view.description = "fixed window with the numbers that the request sends".into();
            }
            view
        };
        LimitsView {
            policy_version: policy.version,
            limits: policy.gate.rules().map(limit).collect(),
        }
    }
}

/// A limit.
#[derive(Serialize)]
struct LimitView<'a> {
    name: &'a str,
    description: String,
    mode: &'static str,
    r#match: BTreeMap<&'static str, Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    except: Vec<BTreeMap<&'static str, Vec<String>>>,
    key: Vec<String>,
    tiers: Vec<TierView<'a>>,
    /// In seconds since 1970.
    expires_at: Option<u64>,
    owner: Option<&'a str>,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct TierView<'a> {
    name: &'a str,
    weight: u32,
    description: String,
}

impl<'a> LimitView<'a> {
    fn new(rule: &'a LimitRule) -> LimitView<'a> {
        let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
        LimitView {
            name: &rule.name,
            description: rule.quota.to_string(),
            mode: match rule.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Off => "off",
            },
            r#match: match_view(&rule.matches),
            except: rule.except.iter().map(match_view).collect(),
            key: rule.key.iter().map(|part| source(&part.source)).collect(),
            tiers: tiers
                .map(|tier| TierView {
                    name: &tier.name,
                    weight: tier.weight,
                    description: tier.quota.to_string(),
                })
                .collect(),
            expires_at: rule.expires.map(seconds),
            owner: rule.owner.as_deref(),
            reason: rule.reason.as_deref(),
        }
    }
}

/// The conditions that are there, by their names.
fn match_view(matches: &Match) -> BTreeMap<&'static str, Vec<String>> {
    let names = |tests: &[(String, ValueTest)]| -> Vec<String> {
        tests.iter().map(|(name, _)| name.clone()).collect()
    };
    let paths = matches.paths.iter().map(|p| p.as_str().into());
    let hosts = matches.hosts.iter().map(|h| h.as_str().into());
    let domain = matches.domain.iter().map(|d| d.as_str().into());
    let conditions = [
        ("methods", matches.methods.clone()),
        ("paths", paths.collect()),
        ("hosts", hosts.collect()),
        ("headers", names(&matches.headers)),
        ("query", names(&matches.query)),
        ("domain", domain.collect()),
        ("descriptor", names(&matches.descriptor)),
        ("entries", matches.entries.iter().map(entry).collect()),
    ];
    let mut conditions = BTreeMap::from(conditions);
    conditions.retain(|_, values| !values.is_empty());
    conditions
}

/// An entry of a descriptor with the values that it may have.
fn entry((name, test): &(String, ValueTest)) -> String {
    match test {
        ValueTest::Like(texts) => {
            let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
            format!("{name}={}", texts.join("|"))
        }
        ValueTest::Absent => format!("!{name}"),
        ValueTest::Present => name.clone(),
    }
}

/// The source of a part of a key.
fn source(source: &Source) -> String {
    match source {
        Source::Address { v4: 32, v6: 64 } => "ip".into(),
        Source::Address { v4: 32, v6 } => format!("ip/{v6}"),
        Source::Address { v4, v6 } => format!("ip/{v4}/{v6}"),
        Source::Header(name) => format!("header.{name}"),
        Source::Query(name) => format!("query.{name}"),
        Source::Cookie(name) => format!("cookie.{name}"),
        Source::Path => "path".into(),
        Source::Capture(name) => format!("path.{name}"),
        Source::Method => "method".into(),
        Source::Host => "host".into(),
        Source::Descriptor(name) => format!("descriptor.{name}"),
        Source::Field(name) => format!("field.{name}"),
    }
}

/// The end of something in seconds since 1970, rounded up.
fn seconds(end: Moment) -> u64 {
    end.as_nanos().div_ceil(1_000_000_000)
}

/// The active policy for operators.
#[derive(Serialize)]
pub(crate) struct PolicyView<'a> {
    version: u64,
    source: String,
    content: String,
    loaded_at: u64,
    default: DefaultView<'a>,
    key_privacy: &'static str,
    allow: Vec<ListView<'a>>,
    deny: Vec<ListView<'a>>,
    limits: Vec<OperatorLimitView<'a>>,
    follow_request_limits: Option<&'a Vec<Arc<str>>>,
}

/// What happens to a request that no limit matches.
#[derive(Serialize)]
#[serde(untagged)]
enum DefaultView<'a> {
    Verdict(&'static str),
    Limit(Box<OperatorLimitView<'a>>),
}

/// An entry of the allow or deny list.
#[derive(Serialize)]
struct ListView<'a> {
    name: &'a str,
    reason: Option<&'a str>,
    expires_at: Option<u64>,
}

impl<'a> PolicyView<'a> {
    pub(crate) fn new(engine: &Engine, active: &'a ActivePolicy) -> PolicyView<'a> {
        let health = engine.health().policy;
        let policy = active.gate.policy();
        let list = |rules: &'a [ListRule]| {
            let entry = |rule: &'a ListRule| ListView {
                name: &rule.name,
                reason: rule.reason.as_deref(),
                expires_at: rule.expires.map(seconds),
            };
            rules.iter().map(entry).collect()
        };
        PolicyView {
            version: active.version,
            source: health.source,
            content: health.content,
            loaded_at: health.loaded_at,
            default: match &policy.default {
                DefaultAction::Unset | DefaultAction::Pass => DefaultView::Verdict("pass"),
                DefaultAction::Refuse => DefaultView::Verdict("refuse"),
                DefaultAction::Limit(rule) => {
                    DefaultView::Limit(OperatorLimitView::new(rule).into())
                }
            },
            key_privacy: match policy.privacy {
                Privacy::Plain => "plain",
                Privacy::Hashed => "hashed",
            },
            allow: list(&policy.allow),
            deny: list(&policy.deny),
            limits: policy.limits.iter().map(OperatorLimitView::new).collect(),
            follow_request_limits: policy.follow.as_ref().map(|follow| &follow.domains),
        }
    }
}

/// A limit with what only operators may read.
#[derive(Serialize)]
struct OperatorLimitView<'a> {
    #[serde(flatten)]
    limit: LimitView<'a>,
    quota: QuotaView<'a>,
    candidate: Option<QuotaView<'a>>,
    missing_key: &'static str,
    when_over: &'static str,
    /// What a key can owe at the most, with `when_over: owe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_debt: Option<u64>,
    enforced_ten_thousandths: u32,
    max_keys: usize,
    tier_from: Option<String>,
    /// How many keys have a quota of their own in the policy.
    overrides: usize,
}

#[derive(Serialize)]
struct QuotaView<'a> {
    text: String,
    units: u64,
    per_seconds: u64,
    calendar: Option<&'a str>,
}

impl<'a> OperatorLimitView<'a> {
    fn new(rule: &'a LimitRule) -> OperatorLimitView<'a> {
        let max_debt = rule.quota.limit.max_debt();
        OperatorLimitView {
            limit: LimitView::new(rule),
            quota: QuotaView::new(&rule.quota),
            candidate: rule.candidate.as_ref().map(QuotaView::new),
            missing_key: match rule.missing_key {
                MissingKey::Address { .. } => "ip",
                MissingKey::Shared => "shared",
                MissingKey::Deny => "deny",
            },
            when_over: match rule.when_over {
                _ if max_debt > 0 => "owe",
                WhenOver::ChargeNothing => "take-nothing",
                WhenOver::ChargeRemaining => "take-rest",
            },
            max_debt: (max_debt > 0).then_some(max_debt),
            enforced_ten_thousandths: rule.enforced,
            max_keys: rule.quota.limit.max_keys(),
            tier_from: rule.tiers.as_ref().map(|tiers| source(&tiers.source)),
            overrides: rule.overrides.len(),
        }
    }
}

impl<'a> QuotaView<'a> {
    fn new(quota: &'a Quota) -> QuotaView<'a> {
        let (units, per) = quota.advertised();
        QuotaView {
            text: quota.to_string(),
            units,
            per_seconds: per.as_secs_ceil(),
            calendar: quota.periods.as_ref().map(|periods| periods.name()),
        }
    }
}
