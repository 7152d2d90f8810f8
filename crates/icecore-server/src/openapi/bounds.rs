//! The limits and choices in the document, from where they are enforced.
//!
//! A number written into an attribute would be true until somebody configures
//! another, so none stands there.

use icecore::ids::MAX_NAME_BYTES;
use icecore::knowledge::{FactKind, FactStatus, MAX_FACT_CHARS};
use icecore::layers::{Level, Tier};
use icecore::recall::{DocKind, Mode};
use serde_json::{Value, json};

use super::{operations, parameters};
use crate::limits::Limits;
use crate::params::MAX_NUMBER;
use crate::search::{most_hits, usual_hits};

pub(super) fn fill(document: &mut Value, limits: &Limits) {
    for (schema, property, bounds) in properties(limits) {
        let at = format!("/components/schemas/{schema}/properties/{property}");
        put(document, &at, bounds);
    }
    for (schema, rules) in schemas() {
        put(document, &format!("/components/schemas/{schema}"), rules);
    }
    for schema in request_schemas(document) {
        let reads = READING_BODIES.contains(&schema.as_str());
        for property in ["memoryRef", "session"].into_iter().skip(usize::from(reads)) {
            let at = format!("/components/schemas/{schema}/properties/{property}");
            if document.pointer(&at).is_some() {
                put(document, &at, name());
            }
        }
    }
    for (method, operation) in operations(document) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        let schema = schema.as_str().and_then(|to| to.rsplit('/').next()).unwrap_or_default();
        let reads = method == "get" || READING_BODIES.contains(&schema);
        fill_parameters(operation, limits, reads);
    }
}

/// Bodies of posts that only read. Who reads of a memory that cannot be finds nothing,
/// as of one that is not, so any text may name it.
const READING_BODIES: [&str; 2] = ["ContextBody", "SearchBody"];

/// What a session or a memory may be called.
fn name() -> Value {
    json!({
        "minLength": 1,
        "maxLength": MAX_NAME_BYTES,
        "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$",
    })
}

/// More than blanks.
const SAYS_SOMETHING: &str = r"\S";

/// What holds for properties of requests and answers.
fn properties(limits: &Limits) -> Vec<(&'static str, &'static str, Value)> {
    let modes = Mode::ALL.map(Mode::as_str);
    let doc_kinds = DocKind::ALL.map(DocKind::as_str);
    let fact_kinds = FactKind::ALL.map(FactKind::as_str);
    let levels = Level::ALL.map(|level| level.as_str());
    let tiers = Tier::ALL.map(|tier| tier.as_str());
    let usual_hits = usual_hits(limits);
    vec![
        ("ContextBody", "budget", json!({"minimum": 0, "maximum": limits.context_tokens})),
        ("SearchBody", "query", json!({"minLength": 1, "pattern": SAYS_SOMETHING})),
        (
            "SearchBody",
            "limit",
            json!({"minimum": 1, "maximum": most_hits(limits), "default": usual_hits}),
        ),
        (
            "SearchBody",
            "mode",
            json!({"enum": or_null(&modes), "default": Mode::default().as_str()}),
        ),
        ("SearchBody", "kinds", json!({"items": {"type": "string", "enum": doc_kinds}})),
        ("TurnsBody", "turns", json!({"minItems": 1, "maxItems": limits.turns_per_request})),
        ("NewTurn", "id", name()),
        (
            "FactBody",
            "text",
            json!({"minLength": 1, "maxLength": MAX_FACT_CHARS, "pattern": SAYS_SOMETHING}),
        ),
        ("FactBody", "kind", json!({"enum": or_null(&fact_kinds)})),
        ("ForgetBody", "subject", json!({"minLength": 1})),
        ("Turn", "tier", json!({"enum": tiers})),
        ("Chunk", "tier", json!({"enum": tiers})),
        ("Chunk", "level", json!({"enum": levels})),
        ("Hit", "kind", json!({"enum": doc_kinds})),
        ("Fact", "kind", json!({"enum": fact_kinds})),
        ("Fact", "status", json!({"enum": FactStatus::ALL.map(FactStatus::as_str)})),
    ]
}

/// What holds for whole objects.
fn schemas() -> Vec<(&'static str, Value)> {
    let given = |name: &str| json!({"required": [name], "properties": {name: {"type": "string"}}});
    let one = ["session", "subject", "before", "entry"].map(given);
    vec![
        ("NewTurn", json!({"additionalProperties": true})),
        ("Turn", json!({"additionalProperties": true})),
        ("ContextBody", json!({"if": given("branch"), "then": given("session")})),
        ("ForgetBody", json!({"additionalProperties": false, "oneOf": one})),
    ]
}

fn or_null(words: &[&str]) -> Value {
    words.iter().map(|word| json!(word)).chain([Value::Null]).collect()
}

/// Adds members to the object at a place, which must be there.
fn put(document: &mut Value, at: &str, bounds: Value) {
    let place = document.pointer_mut(at).and_then(Value::as_object_mut);
    debug_assert!(place.is_some(), "the document has no {at}");
    if let (Some(place), Value::Object(bounds)) = (place, bounds) {
        place.extend(bounds);
    }
}

/// The names of the schemas of request bodies.
fn request_schemas(document: &mut Value) -> Vec<String> {
    let bodies = operations(document).into_iter().map(|(_, operation)| {
        operation["requestBody"]["content"]["application/json"]["schema"].to_string()
    });
    let named = |schema: String| {
        let (_, rest) = schema.split_once("#/components/schemas/")?;
        Some(rest.split('"').next()?.to_owned())
    };
    bodies.filter_map(named).collect()
}

fn fill_parameters(operation: &mut Value, limits: &Limits, reads: bool) {
    let goes_by_number = |parameter: &Value| {
        parameter["name"] == "after" && parameter["schema"]["type"] == "integer"
    };
    // No limit is 0 there, and more than a page is a page.
    let is_any = operation["operationId"] == "listEntries";
    let by_number = parameters(operation).any(|parameter| goes_by_number(parameter));
    for parameter in parameters(operation) {
        let place = parameter["in"].as_str().unwrap_or_default().to_owned();
        let named = parameter["name"].as_str().unwrap_or_default().to_owned();
        let bounds = match (place.as_str(), named.as_str()) {
            ("query", "limit") if by_number => {
                json!({"minimum": 1, "maximum": limits.page, "default": limits.page_default})
            }
            ("query", "limit") if is_any => json!({"default": limits.page_default}),
            ("query", "limit") => json!({"minimum": 1, "maximum": limits.page}),
            ("query", "after") if by_number => json!({"maximum": MAX_NUMBER}),
            ("header", "Last-Event-ID") => json!({"maximum": MAX_NUMBER}),
            ("query", "memoryRef") if reads => continue,
            ("query", "memoryRef") | ("query" | "path", "session") => name(),
            ("query", "view") => json!({"enum": ["display", "api"], "default": "display"}),
            ("query", "status") => json!({"enum": FactStatus::ALL.map(FactStatus::as_str)}),
            ("query", "kind") => json!({"enum": FactKind::ALL.map(FactKind::as_str)}),
            ("header", "Idempotency-Key") => json!({
                "minLength": 1,
                "maxLength": limits.idempotency_key_bytes,
                "pattern": "^[!-~]+$",
            }),
            _ => continue,
        };
        put(parameter, "/schema", bounds);
    }
}

#[cfg(test)]
mod tests {
    use super::super::described;
    use super::*;

    #[test]
    fn limits_are_those_of_the_host() {
        let limits = Limits {
            page: 7,
            page_default: 3,
            context_tokens: 99,
            turns_per_request: 5,
            idempotency_key_bytes: 11,
            ..Limits::default()
        };
        let document = described(&limits);
        let property = |schema: &str, name: &str| {
            document["components"]["schemas"][schema]["properties"][name].clone()
        };
        assert_eq!(property("ContextBody", "budget")["maximum"], 99);
        assert_eq!(property("SearchBody", "limit")["maximum"], 7);
        assert_eq!(property("SearchBody", "limit")["default"], 7);
        assert_eq!(property("TurnsBody", "turns")["maxItems"], 5);
        assert_eq!(property("TurnsBody", "memoryRef")["maxLength"], 512);
        let parameter = |path: &str, method: &str, name: &str| {
            let operation = &document["paths"][format!("/v1/host/icecore{path}")][method];
            let parameters = operation["parameters"].as_array().unwrap();
            parameters.iter().find(|one| one["name"] == name).unwrap()["schema"].clone()
        };
        assert_eq!(parameter("/events", "get", "limit")["maximum"], 7);
        assert_eq!(parameter("/events", "get", "limit")["default"], 3);
        assert_eq!(parameter("/sessions", "get", "limit").get("default"), None);
        assert_eq!(parameter("/search", "post", "Idempotency-Key")["maxLength"], 11);
    }
}
