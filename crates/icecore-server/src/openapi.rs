//! The document that describes every route, made from the types that serve them.
//!
//! A handler says what it takes and answers in its `utoipa::path`; what all of
//! them share, the key and the refusals, is added here, so that no handler can
//! leave it out.

use axum::response::Response;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::{context, discovery, entries, key_routes, metrics, wire, workspace};

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
    details: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Icecore", description = "Layered memory for AI agents."),
    paths(
        context::build,
        key_routes::list,
        key_routes::create,
        key_routes::revoke,
        key_routes::rotate,
        entries::add,
        entries::list,
        entries::get,
        entries::remove,
        metrics::metrics,
        discovery::document,
        workspace::list,
        workspace::read,
        workspace::put,
        workspace::delete,
    ),
    components(schemas(ErrorBody)),
    security(("key" = [])),
    modifiers(&Key, &Refusals)
)]
struct Document;

/// `GET /v1/openapi.json`: needs no key, for it says nothing of anybody.
pub(crate) async fn document() -> Response {
    wire::ok(Document::openapi().to_json().unwrap_or_default())
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

/// The refusals of every route that takes a key, by status.
const REFUSED: [(&str, &str); 7] = [
    ("400", "The request is malformed; the message names the field."),
    ("401", "No key, or one that is unknown, expired or revoked."),
    ("403", "The key may not do this, or the request comes from a page of another origin."),
    ("404", "There is no such thing in the caller's tenant."),
    ("429", "The key asks too often; `Retry-After` says when it may again."),
    ("500", "The host failed; its log says why under the correlation id."),
    ("503", "Not now; `Retry-After` says when to ask again."),
];

/// The further refusals of a route that takes a body.
const REFUSED_BODY: [(&str, &str); 5] = [
    ("409", "Something of that name is there, or the `Idempotency-Key` was used otherwise."),
    ("413", "Larger than a limit, which the message names."),
    ("415", "The body is not `application/json`."),
    ("422", "Understood, and cannot be done."),
    ("507", "The disk is full; nothing was written."),
];

struct Refusals;

impl Modify for Refusals {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let PathItem { get, post, put, delete, .. } = item;
            [get, delete].into_iter().flatten().for_each(|operation| refuse(operation, &REFUSED));
            for operation in [post, put].into_iter().flatten() {
                refuse(operation, &REFUSED);
                refuse(operation, &REFUSED_BODY);
            }
        }
    }
}

/// Adds refusals that the operation does not describe itself.
fn refuse(operation: &mut Operation, refusals: &[(&str, &str)]) {
    for (status, why) in refusals {
        let schema = Ref::from_schema_name("Error");
        let response = ResponseBuilder::new()
            .description(*why)
            .content("application/json", ContentBuilder::new().schema(Some(schema)).build());
        let responses = &mut operation.responses.responses;
        responses.entry((*status).to_owned()).or_insert_with(|| RefOr::T(response.build()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_tells_its_refusals() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        let operation = &document["paths"]["/v1/host/icecore/context"]["post"];
        assert!(operation["responses"]["401"]["content"].is_object(), "{operation}");
        assert!(operation["responses"]["415"]["content"].is_object(), "{operation}");
        assert!(operation["requestBody"].is_object(), "{operation}");
    }
}
