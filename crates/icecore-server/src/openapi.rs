//! The document that describes every route, made from the types that serve them.
//!
//! A handler says what it takes and answers in its `utoipa::path`; what all of
//! them share, the key, the headers and the refusals, is added here, so that no
//! handler can leave it out. Limits are filled in from where they are enforced.

mod bounds;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::app::Shared;
use crate::limits::Limits;
use crate::{
    agents, archives, commitments, consolidation, context, discovery, docs, dreams, entries,
    events, facts, forget, handoffs, health, history, key_routes, metrics, proxy, runs, schedules,
    search, turns, workspace,
};

/// What a refused caller is told.
#[derive(ToSchema)]
#[schema(as = Error)]
#[expect(dead_code, reason = "describes what `ApiError` writes")]
pub(crate) struct ErrorBody {
    /// A code for programs.
    #[schema(example = "not_found")]
    error: String,
    /// A sentence for people.
    message: String,
    /// More for programs: the limit that was passed, the index of a turn.
    #[schema(required = false, value_type = Object)]
    details: Option<Value>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Icecore",
        description = "Layered memory for AI agents. The tenant comes from the key; the memory \
                       is chosen by `memoryRef`. Errors are flat: a code, a sentence, details."
    ),
    paths(
        history::sessions,
        turns::add,
        turns::list,
        history::view,
        handoffs::compact,
        handoffs::get,
        handoffs::put,
        context::build,
        search::search,
        entries::add,
        entries::list,
        entries::get,
        entries::remove,
        entries::sources,
        consolidation::consolidate,
        history::chunks,
        history::chunk,
        history::expand,
        facts::list,
        facts::add,
        facts::confirm,
        facts::reject,
        commitments::add,
        commitments::list,
        commitments::get,
        commitments::cancel,
        dreams::dream,
        dreams::list,
        dreams::get,
        dreams::undo,
        archives::list,
        archives::get,
        schedules::add,
        schedules::list,
        schedules::get,
        schedules::remove,
        schedules::pause,
        schedules::resume,
        forget::forget,
        events::events,
        history::stats,
        key_routes::list,
        key_routes::create,
        key_routes::revoke,
        key_routes::rotate,
        agents::list,
        agents::get,
        workspace::list,
        workspace::read,
        workspace::put,
        workspace::delete,
        runs::create,
        runs::read,
        runs::cancel,
        runs::fork,
        runs::events,
        runs::poll,
        proxy::chat_completions,
        proxy::models,
        proxy::messages,
        proxy::count_tokens,
        discovery::document,
        metrics::metrics,
        health::healthz,
        health::readyz,
        document,
        docs::page,
        docs::welcome,
    ),
    components(schemas(ErrorBody, proxy::OpenAiError, proxy::AnthropicError)),
    security(("key" = [])),
    tags(
        (name = "sessions", description = "Conversations, turn by turn."),
        (name = "recall", description = "What a prompt needs to know."),
        (name = "entries", description = "Long-term memory, put by hand and read by tag or rank."),
        (name = "commitments", description = "Intentions that wait for their moment."),
        (name = "chunks", description = "Stretches of a session, and what stands for them."),
        (name = "facts", description = "What is known, and what people say of it."),
        (name = "dreams", description = "What is due, distilled under a budget, and its archives."),
        (name = "schedules", description = "What comes by itself, and when."),
        (name = "forgetting", description = "Erasure, with a receipt."),
        (name = "agents", description = "Who is installed, and what it has to do without."),
        (name = "workspace", description = "Small files that agents share, with versions."),
        (name = "runs", description = "Workflows that use memory, and what happened in them."),
        (name = "proxy", description = "The providers' own routes, with memory behind them."),
        (name = "keys", description = "Who may do what in the caller's tenant."),
        (name = "operations", description = "Events, counts and the host's health."),
        (name = "documents", description = "What you are reading."),
    ),
    modifiers(&Key)
)]
struct Document;

/// The document as it is served: made once, for it changes only with the limits.
pub(crate) struct Served {
    body: Bytes,
    etag: HeaderValue,
}

impl Served {
    pub(crate) fn of(limits: &Limits) -> Self {
        let body = described(limits).to_string();
        let etag = format!("\"{}\"", hex::encode(&Sha256::digest(&body)[..16]));
        // Hex between quotes is a fine header, so the other arm is never taken.
        let etag = HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("\"\""));
        Self { body: body.into(), etag }
    }
}

/// This document. Needs no key, for it says nothing of anybody.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    operation_id = "getDocument",
    tag = "documents",
    security(()),
    responses((status = 200, description = "The document", body = Object))
)]
pub(crate) async fn document(State(app): State<Shared>, headers: HeaderMap) -> Response {
    let served = app.document.get_or_init(|| Served::of(&app.limits));
    let known = headers.get(header::IF_NONE_MATCH) == Some(&served.etag);
    let mut response = match known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Body::from(served.body.clone()).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, served.etag.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if !known {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

/// The whole document, with these limits.
fn described(limits: &Limits) -> Value {
    let mut document = json!(Document::openapi());
    for (method, operation) in operations(&mut document) {
        plain_parameters(operation);
        plain_body(operation);
        if operation["tags"] == json!([PROXY]) {
            add_their_refusals(operation);
            continue;
        }
        add_headers(&method, operation);
        add_refusals(&method, operation);
    }
    bounds::fill(&mut document, limits);
    document
}

/// Every operation with its method.
fn operations(document: &mut Value) -> Vec<(String, &mut Value)> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let methods = paths.filter_map(|(_, item)| item.as_object_mut()).flatten();
    let methods = methods.filter(|(method, _)| METHODS.contains(&method.as_str()));
    methods.map(|(method, operation)| (method.clone(), operation)).collect()
}

/// The parameters of an operation, of which there may be none.
fn parameters(operation: &mut Value) -> impl Iterator<Item = &mut Value> {
    // An index would put a null there.
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    parameters.into_iter().flatten()
}

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// A parameter may be left out, but there is no null to send for it.
fn plain_parameters(operation: &mut Value) {
    for parameter in parameters(operation) {
        let Some(kind) = parameter.pointer_mut("/schema/type") else { continue };
        let only = kind.as_array().and_then(|kinds| kinds.iter().find(|kind| *kind != "null"));
        if let Some(only) = only.cloned() {
            *kind = only;
        }
    }
}

/// A body may be left out, but `null` is not one either.
fn plain_body(operation: &mut Value) {
    let schema = operation.pointer_mut("/requestBody/content/application~1json/schema");
    let Some(schema) = schema else { return };
    let mut branches = schema["oneOf"].as_array().into_iter().flatten();
    if let Some(only) = branches.find(|branch| branch.get("$ref").is_some()).cloned() {
        *schema = only;
    }
}

fn add_headers(method: &str, operation: &mut Value) {
    let text =
        |description: &str| json!({"description": description, "schema": {"type": "string"}});
    if method == "post" {
        let key = json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "The same key and request again get the same answer, once done.",
            "schema": {"type": "string"},
        });
        match operation.get_mut("parameters").and_then(Value::as_array_mut) {
            Some(parameters) => parameters.push(key),
            None => operation["parameters"] = json!([key]),
        }
    }
    let replayed = text("`true` where the answer was given before, under the same key.");
    let id = text("Names this request in the host's log.");
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for (status, response) in responses.into_iter().flatten() {
        response["headers"]["X-Request-Id"] = id.clone();
        if method == "post" && status.starts_with('2') {
            response["headers"]["openwop-Idempotent-Replay"] = replayed.clone();
        }
    }
}

struct Key;

impl Modify for Key {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A key from `icecore key create`; the tenant comes from it."));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme.build()));
    }
}

/// The refusals of every route, by status.
const REFUSED: [(&str, &str); 4] = [
    ("400", "The request is malformed; the message names the field."),
    ("403", "The key may not do this, or the request comes from a page of another origin."),
    ("500", "The host failed; its log says why under the correlation id."),
    ("503", "Not now; `Retry-After` says when to ask again."),
];

/// The further refusals of a route that takes a key.
const REFUSED_KEY: [(&str, &str); 4] = [
    ("401", "No key, or one that is unknown, expired or revoked."),
    ("404", "There is no such thing in the caller's tenant."),
    ("410", "It was there, and its time is over."),
    ("429", "The key asks too often; `Retry-After` says when it may again."),
];

/// The further refusals of a route that takes a body.
const REFUSED_BODY: [(&str, &str); 6] = [
    ("408", "The body took longer to come than `body_seconds`."),
    ("409", "Something of that name is there, or the `Idempotency-Key` was used otherwise."),
    ("413", "Larger than a limit, which the message names."),
    ("415", "The body is not `application/json`."),
    ("422", "Understood, and cannot be done."),
    ("507", "The disk is full; nothing was written."),
];

fn add_refusals(method: &str, operation: &mut Value) {
    let is_open = operation["security"] == json!([{}]);
    let key = if is_open { &[][..] } else { &REFUSED_KEY };
    let body = if matches!(method, "get" | "delete") { &[][..] } else { &REFUSED_BODY };
    let conflict = if method == "delete" { &REFUSED_BODY[1..2] } else { &[][..] };
    for (status, why) in REFUSED.iter().chain(key).chain(body).chain(conflict) {
        let responses = &mut operation["responses"];
        // An operation may know better what a status means.
        if responses.get(status).is_none() {
            responses[*status] = refusal(status, why);
        }
    }
}

/// The tag of the providers' own routes.
const PROXY: &str = "proxy";

/// What those routes answer beside the provider's own: in the provider's words.
const THEIR_REFUSALS: [(&str, &str); 12] = [
    ("400", "The request is malformed, or what must stay of it does not fit the model's window."),
    ("401", "No key, or one that is unknown, expired or revoked; of ours, or of the provider's."),
    ("403", "The key may not do this, or the request comes from a page of another origin."),
    ("404", "The provider does not know it."),
    ("408", "The body took longer to come than `body_seconds`."),
    ("413", "Larger than a limit, which the message names."),
    ("422", "The provider understood it, and cannot do it."),
    ("429", "Too often; `Retry-After` says when it may be asked again."),
    ("500", "The host or the provider failed."),
    ("502", "The provider cannot be reached, or broke off."),
    ("503", "No provider is set up, or not now."),
    ("504", "The provider took too long."),
];

/// These routes have errors of their own form, and take no `Idempotency-Key` of ours.
fn add_their_refusals(operation: &mut Value) {
    let id = operation["operationId"].as_str().unwrap_or_default();
    let form = match id {
        "chatCompletions" | "listModels" => "OpenAiError",
        _ => "AnthropicError",
    };
    for (status, why) in THEIR_REFUSALS {
        let mut told = refusal(status, why);
        told["content"]["application/json"]["schema"] =
            json!({"$ref": format!("#/components/schemas/{form}")});
        operation["responses"][status] = told;
    }
    let text = json!({"description": "Names this request.", "schema": {"type": "string"}});
    operation["responses"]["200"]["headers"]["X-Request-Id"] = text;
}

fn refusal(status: &str, why: &str) -> Value {
    let text =
        |description: &str| json!({"description": description, "schema": {"type": "string"}});
    let mut headers = json!({"X-Request-Id": text("Names this request in the host's log.")});
    match status {
        "401" => headers["WWW-Authenticate"] = text("`Bearer`."),
        "429" | "503" => headers["Retry-After"] = text("Seconds to wait."),
        _ => {}
    }
    let schema = json!({"schema": {"$ref": "#/components/schemas/Error"}});
    json!({"description": why, "headers": headers, "content": {"application/json": schema}})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn document() -> Value {
        described(&Limits::default())
    }

    #[test]
    fn every_operation_tells_its_refusals() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let operation = &document["paths"]["/v1/host/icecore/context"]["post"];
        assert!(operation["responses"]["401"]["content"].is_object(), "{operation}");
        assert!(operation["responses"]["415"]["content"].is_object(), "{operation}");
        assert!(operation["responses"]["503"]["headers"]["Retry-After"].is_object());
        assert!(operation["requestBody"].is_object(), "{operation}");
        let open = &document["paths"]["/healthz"]["get"];
        assert!(open["responses"].get("401").is_none(), "{open}");
    }

    #[test]
    fn operations_have_names_of_their_own_and_known_tags() {
        let mut document = document();
        let tags: BTreeSet<String> = document["tags"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tag| tag["name"].as_str().unwrap().to_owned())
            .collect();
        let mut names = BTreeSet::new();
        for (_, operation) in operations(&mut document) {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
            assert!(tags.contains(operation["tags"][0].as_str().unwrap()), "{name}");
            assert!(names.insert(name.clone()), "{name} stands there twice");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(to) = members.get("$ref").and_then(Value::as_str) {
                        assert!(document.pointer(&to[1..]).is_some(), "{to}");
                    }
                    members.values().for_each(|value| walk(value, document));
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }
}
