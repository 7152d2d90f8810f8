//! `GET /.well-known/openwop`: what this host can do, worked out when it is asked.
//!
//! What that is, [`Capabilities`](icecore_host::capabilities::Capabilities) decides; here it gets
//! its place on the wire. Families are at the root, where the protocol reads them now,
//! and once more under `capabilities`, where earlier versions of it do.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use icecore_host::capabilities::Families;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::routes::PREFIX;
use crate::wire;
use crate::workspace::{has, tagged};

/// The version of OpenWOP that is spoken here.
const PROTOCOL_VERSION: &str = "1.0";

const CAPABILITIES_ETAG: HeaderName = HeaderName::from_static("capabilities-etag");

/// What the host says of itself.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Discovery)]
pub(crate) struct Discovery {
    protocol_version: &'static str,
    implementation: Implementation,
    supported_transports: Vec<&'static str>,
    /// None: no run of this host speaks in envelopes.
    supported_envelopes: Vec<String>,
    schema_versions: Map<String, Value>,
    limits: ProtocolLimits,
    /// The fixture workflows of the conformance suite, in a conformance run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fixtures: Vec<String>,
    #[serde(rename = "x-host-icecore-memory-query")]
    memory_query: MemoryQuery,
    #[serde(flatten)]
    families: Families,
    /// The same families, for those who look here.
    capabilities: Families,
}

/// Who answers.
#[derive(Debug, Serialize, ToSchema)]
struct Implementation {
    name: &'static str,
    version: &'static str,
}

/// The limits that the protocol names.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ProtocolLimits {
    clarification_rounds: u32,
    schema_rounds: u32,
    envelopes_per_turn: u32,
    /// The largest request body.
    max_request_body_bytes: usize,
}

/// The routes by which this host's memory is asked. The protocol has none.
#[derive(Debug, Serialize, ToSchema)]
struct MemoryQuery {
    supported: bool,
    entries: String,
    search: String,
    context: String,
}

impl Discovery {
    fn of(app: &App) -> Self {
        let able = app.host.capabilities(app.limits.body_bytes);
        Self {
            protocol_version: PROTOCOL_VERSION,
            implementation: Implementation { name: "icecore", version: env!("CARGO_PKG_VERSION") },
            supported_transports: vec!["rest"],
            supported_envelopes: Vec::new(),
            schema_versions: Map::new(),
            limits: ProtocolLimits {
                clarification_rounds: 0,
                schema_rounds: 0,
                envelopes_per_turn: 0,
                max_request_body_bytes: app.limits.body_bytes,
            },
            fixtures: able.fixtures().to_vec(),
            memory_query: MemoryQuery {
                supported: true,
                entries: format!("{PREFIX}/entries"),
                search: format!("{PREFIX}/search"),
                context: format!("{PREFIX}/context"),
            },
            capabilities: able.families().clone(),
            families: able.families().clone(),
        }
    }
}

/// What this host can do. Needs no key, and is the same with one.
#[utoipa::path(
    get,
    path = "/.well-known/openwop",
    operation_id = "discover",
    tag = "operations",
    security(()),
    security(()),
    params(("If-None-Match" = Option<String>, Header, description = "The `ETag` that the caller has")),
    responses(
        (status = 200, description = "The discovery document", body = Discovery),
        (status = 304, description = "The caller has it already"),
    )
)]
pub(crate) async fn document(State(app): State<Shared>, headers: HeaderMap) -> Response {
    let body = json!(Discovery::of(&app)).to_string();
    let etag = format!("\"{}\"", hex::encode(&Sha256::digest(body.as_bytes())[..16]));
    let response = match has(&headers, &etag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => wire::ok(body),
    };
    let mut response = tagged(response, &etag);
    let answered = response.headers_mut();
    // It says nothing of anybody, so that it may be kept on the way.
    let kept = HeaderValue::from_static("public, max-age=300");
    answered.insert(header::CACHE_CONTROL, kept);
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        answered.insert(CAPABILITIES_ETAG, etag);
    }
    response
}
