//! The JSON Schema of the policy file, for editors.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::shape;

/// The JSON Schema, as text. The repository has it as `tollgate.schema.json`; an editor finds it by
/// `# yaml-language-server: $schema=…` in the first line of a policy.
///
/// A file that the schema accepts may still have errors that only [`parse`](crate::parse) finds.
pub fn schema() -> String {
    let settings = SchemaSettings::draft07();
    let schema = settings
        .into_generator()
        .into_root_schema_for::<shape::Policy>();
    let mut schema = serde_json::to_value(&schema).unwrap_or_default();
    without_null(&mut schema);
    let definitions = &mut schema["definitions"];
    let quota = definitions["Candidate"]["properties"].clone();
    let nothing: &[&str] = &[];
    add_properties(&mut definitions["Limit"], &quota, nothing);
    add_properties(
        &mut definitions["Override"],
        &quota,
        shape::FIXED_IN_OVERRIDES,
    );
    let limit = definitions["Limit"]["properties"].clone();
    add_properties(
        &mut definitions["DefaultLimit"],
        &limit,
        shape::NOT_IN_DEFAULT,
    );
    format!("{schema:#}\n")
}

/// Adds to a definition the properties of another one, except for those in `without`.
fn add_properties(definition: &mut Value, properties: &Value, without: &[&str]) {
    let properties = properties.as_object().into_iter().flatten();
    for (name, property) in properties.filter(|(name, _)| !without.contains(&name.as_str())) {
        definition["properties"][name] = property.clone();
    }
}

/// Removes `null`: the derive allows it for every optional field, but the reader does not.
fn without_null(part: &mut Value) {
    if let Value::Object(fields) = part {
        if let Some(Value::Array(kinds)) = fields.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [only] = kinds.as_slice() {
                let only = only.clone();
                fields.insert("type".into(), only);
            }
        }
        for name in ["enum", "anyOf", "oneOf"] {
            if let Some(Value::Array(all)) = fields.get_mut(name) {
                all.retain(|one| !one.is_null() && one["type"] != "null");
            }
        }
        fields.values_mut().for_each(without_null);
    } else if let Value::Array(parts) = part {
        parts.iter_mut().for_each(without_null);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::report::Report;
    use crate::yaml::{self, Node, Value as Tree};

    fn parsed() -> Value {
        serde_json::from_str(&schema()).unwrap()
    }

    #[test]
    fn the_schema_in_the_repository_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tollgate.schema.json");
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == schema(),
            "write it again: cargo run -p tollgate-cli -- schema > tollgate.schema.json"
        );
    }

    #[test]
    fn sections_take_no_other_fields() {
        let schema = parsed();
        let definitions = schema["definitions"].as_object().unwrap();
        for (name, part) in definitions.iter().chain([(&"Policy".to_owned(), &schema)]) {
            assert_eq!(part["additionalProperties"], Value::Bool(false), "{name}");
        }
        let fields = |name: &str| {
            let properties = &schema["definitions"][name]["properties"];
            let names = properties.as_object().unwrap().keys().cloned();
            names.collect::<BTreeSet<String>>()
        };
        let (limit, default) = (fields("Limit"), fields("DefaultLimit"));
        let missing: Vec<&String> = limit.difference(&default).collect();
        assert_eq!(missing, ["except", "match", "name", "replaces"]);
        assert!(default.is_subset(&limit) && fields("Candidate").is_subset(&default));
        assert!(fields("Override").contains("burst") && !fields("Override").contains("calendar"));
    }

    #[test]
    fn no_field_may_be_null() {
        assert!(!schema().contains("null"));
    }

    #[test]
    fn every_field_is_described() {
        let schema = parsed();
        let definitions = schema["definitions"].as_object().unwrap().values();
        for part in definitions.chain([&schema]) {
            for (name, field) in part["properties"].as_object().into_iter().flatten() {
                assert!(field["description"].is_string(), "{name}: {field}");
            }
        }
    }

    /// Whether the value has the form that the schema describes. Implements only the keywords that our schema uses.
    fn fits(value: &Value, part: &Value, root: &Value) -> bool {
        if let Some(name) = part["$ref"].as_str() {
            let name = name.trim_start_matches("#/definitions/");
            return fits(value, &root["definitions"][name], root);
        }
        let any = |name: &str| {
            let all = part[name].as_array();
            all.is_none_or(|all| all.iter().any(|one| fits(value, one, root)))
        };
        let every = |name: &str| {
            let all = part[name].as_array();
            all.is_none_or(|all| all.iter().all(|one| fits(value, one, root)))
        };
        let is = |kind: &Value| match kind.as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("integer") => value.is_u64() || value.is_i64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            _ => false,
        };
        let kind = match &part["type"] {
            Value::Null => true,
            Value::Array(kinds) => kinds.iter().any(is),
            kind => is(kind),
        };
        let addressed = part["pattern"]
            .as_str()
            .is_some_and(|p| p.starts_with("^(redis"));
        let addressed = !addressed || value.as_str().is_none_or(|text| text.contains("://"));
        // Numbers and addresses are the only alternatives that differ by pattern alone.
        let digits = part["pattern"]
            .as_str()
            .is_some_and(|p| p.starts_with("^[0-9]"));
        let listed = !digits
            || value
                .as_str()
                .is_none_or(|text| text.starts_with(char::is_numeric));
        let listed = listed
            && addressed
            && part["enum"]
                .as_array()
                .is_none_or(|all| all.contains(value));
        let fields = value.as_object().is_none_or(|fields| {
            let needed = part["required"].as_array().into_iter().flatten();
            let mut needed = needed.filter_map(Value::as_str);
            let known = |(name, value): (&String, &Value)| match &part["properties"][name] {
                Value::Null => match &part["additionalProperties"] {
                    Value::Bool(allowed) => *allowed,
                    Value::Null => true,
                    more => fits(value, more, root),
                },
                field => fits(value, field, root),
            };
            needed.all(|name| fields.contains_key(name)) && fields.iter().all(known)
        });
        let items = value.as_array().is_none_or(|items| {
            part["items"].is_null() || items.iter().all(|item| fits(item, &part["items"], root))
        });
        kind && listed && fields && items && any("anyOf") && any("oneOf") && every("allOf")
    }

    /// A tree as JSON, as an editor parses the file.
    fn json(node: &Node) -> Value {
        match &node.value {
            Tree::Map(entries) => entries
                .iter()
                .map(|(key, value)| (key.text.clone(), json(value)))
                .collect(),
            Tree::List(items) => items.iter().map(json).collect(),
            Tree::Scalar { text, plain: true } => match text.as_str() {
                "true" => true.into(),
                "false" => false.into(),
                text => serde_json::from_str::<serde_json::Number>(text)
                    .map_or_else(|_| text.into(), Value::Number),
            },
            Tree::Scalar { text, .. } => text.as_str().into(),
            Tree::Nothing | Tree::Bad => Value::Null,
        }
    }

    fn read(text: &str) -> Value {
        json(&yaml::tree(text, &Report::new(text)).unwrap())
    }

    #[test]
    fn the_examples_have_the_shape_of_the_schema() {
        let schema = parsed();
        assert!(fits(&read(crate::EXAMPLE), &schema, &schema));
        let fleet = include_str!("../../../examples/fleet/tollgate.yaml");
        assert!(fits(&read(fleet), &schema, &schema));
        let gateway = include_str!("../../../examples/gateway/tollgate.yaml");
        assert!(fits(&read(gateway), &schema, &schema));
    }

    #[test]
    fn what_is_misspelt_has_not() {
        let schema = parsed();
        for text in [
            "defualt: pass",
            "default: drop",
            "limits: { a: 1 }",
            "limits: [{ name: a, brust: 1 }]",
            "limits: [{ allow: 5/s }]",
            "limits: [{ name: a, match: { paths: /a } }]",
            "limits: [{ name: a, cost: { from: header.x } }]",
            "limits: [{ name: a, algorithm: sponge }]",
            "store: memroy",
            "store: { username: a }",
            "store: { url: redis://h, password: a }",
            "on_store_error: pass",
            "limits: [{ name: a, allow: 5/s, on_store_error: pass }]",
            "queues: { a: 1 }",
            "queues: [{ at_once: 5 }]",
            "queues: [{ name: a, at_once: { min: 5 } }]",
            "queues: [{ name: a, at_once: { adaptive: sponge } }]",
            "queues: [{ name: a, at_once: { adaptive: vegas } }]",
            "queues: [{ name: a, missing_key: deny }]",
            "queues: [{ name: a, shuffle: {} }]",
            "pressure: { cpu: [90%] }",
            "pressure: { load: 90% }",
            "gateway: { upstreams: [http://a] }",
            "gateway: { upstreams: [{ name: a }] }",
            "gateway: { upstreams: [{ name: a, servers: http://a, protocol: h2 }] }",
            "gateway: { upstreams: [{ name: a, servers: http://a, health: { every: 5s } }] }",
        ] {
            assert!(!fits(&read(text), &schema, &schema), "{text}");
        }
        for text in [
            "default: { key: ip, allow: 5/s }",
            "limits: [{ name: a, allow: 5/s, burst: 30s, cost: { from: header.x, max: 1_000 } }]",
            "tiers: { a: { times: 2.5 }, b: {} }",
            "store: memory",
            "store: rediss+cluster://a,b",
            "store: { url: redis://h, deadline: 8ms, nodes: 4, prefix: tg, password_env: P }",
            "default: { key: ip, allow: 5/s, on_store_error: deny }",
            "queues: [{ name: a, at_once: 5, at_once_per_flow: 2, flow: [ip, path], burst: 1_000 }]",
            "queues: [{ name: a, at_once: { adaptive: aimd, min: 1 }, cost: { from: header.x, max: 5 } }]",
            "pressure: {}",
            "gateway: { upstreams: 'http://a', max_body: 65536 }",
            "gateway: { max_body: 10MB, accept: {}, timeouts: { head: 5s } }",
            "gateway: { upstreams: [{ name: a, servers: [http://a, https://b], health: /h }] }",
            "limits: [{ name: a, cost: { \"POST /x\": 3, default: 1 }, except: [{ ip: 10.0.0.0/8 }] }]",
        ] {
            assert!(fits(&read(text), &schema, &schema), "{text}");
        }
    }
}
