//! Everything that the server answers is in its OpenAPI document.

use serde_json::Value;

use super::client::{Reply, Server};

/// Statuses that precede routing.
const BEFORE_ROUTING: [u16; 3] = [400, 414, 431];

fn document() -> Value {
    serde_json::from_str(tollgate_server::http::OPENAPI).unwrap()
}

/// Holds an answer against the document.
pub(crate) fn check(method: &str, target: &str, reply: &Reply) {
    assert_ne!(reply.status, 500, "{method} {target}: {}", reply.body);
    let document = document();
    let path = target.split('?').next().unwrap();
    let Some(operations) = document["paths"].get(path) else {
        let is_known = reply.status == 404 || BEFORE_ROUTING.contains(&reply.status);
        return assert!(is_known, "{method} {target}: {}", reply.status);
    };
    let Some(operation) = operations.get(method.to_ascii_lowercase()) else {
        let is_known = reply.status == 405 || path.starts_with("/v1/auth");
        return assert!(is_known, "{method} {target}: {}", reply.status);
    };
    let status = reply.status.to_string();
    let Some(response) = operation["responses"].get(&status) else {
        panic!(
            "{method} {target}: {status} is not documented: {}",
            reply.body
        );
    };
    let response = match response["$ref"].as_str() {
        Some(reference) => {
            &document["components"]["responses"][reference.rsplit('/').next().unwrap()]
        }
        None => response,
    };
    for (name, value) in &reply.headers {
        let is_ours =
            name.contains("ratelimit") || name == "retry-after" || name.starts_with("x-tollgate");
        let documented = response["headers"].as_object();
        let is_known =
            documented.is_some_and(|known| known.keys().any(|k| k.eq_ignore_ascii_case(name)));
        assert!(
            !is_ours || is_known,
            "{method} {target} {status}: {name}: {value}"
        );
    }
    if let (false, Some(media)) = (reply.body.is_empty(), reply.header("content-type")) {
        let media = media.split(';').next().unwrap();
        let schema = &response["content"][media]["schema"];
        assert!(!schema.is_null(), "{method} {target} {status}: {media}");
        holds(
            &document,
            schema,
            &json_or_text(reply, media),
            &format!("{method} {target} {status}"),
        );
    }
}

fn json_or_text(reply: &Reply, media: &str) -> Value {
    if media.ends_with("json") {
        reply.json()
    } else {
        Value::String(reply.body.clone())
    }
}

/// The part of JSON Schema that the document uses for answers.
fn holds(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return holds(
            document,
            &document["components"]["schemas"][name],
            value,
            at,
        );
    }
    if let Some(any) = schema["anyOf"].as_array() {
        // Decisions and problems differ in a field that only one of them has.
        let chosen = usize::from(value.get("verdict").is_none());
        return holds(document, &any[chosen], value, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match &schema["type"] {
        Value::String(one) => assert_eq!(one, kind, "{at}: {value}"),
        Value::Array(several) => assert!(several.iter().any(|one| one == kind), "{at}: {value}"),
        _ => {}
    }
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{at}: {value}");
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(
            value.get(name.as_str().unwrap()).is_some(),
            "{at}: {name} is missing: {value}"
        );
    }
    if let (Some(known), Some(members)) = (schema["properties"].as_object(), value.as_object()) {
        for (name, member) in members {
            let Some(schema) = known.get(name) else {
                panic!("{at}: {name} is not documented: {value}");
            };
            holds(document, schema, member, &format!("{at}.{name}"));
        }
    }
    if let (Some(items), schema) = (value.as_array(), &schema["items"]) {
        items
            .iter()
            .for_each(|item| holds(document, schema, item, at));
    }
}

#[test]
fn the_document_is_served_as_it_is_committed() {
    let server = Server::start("default: pass\nlimits: []\n");
    let reply = server.get("/openapi.json");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body, tollgate_server::http::OPENAPI);
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    // Every path answers, and none answers as if it were not there.
    for path in document["paths"].as_object().unwrap().keys() {
        assert_ne!(server.get(path).status, 404, "{path}");
    }
}
