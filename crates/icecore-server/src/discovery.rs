//! `GET /.well-known/openwop`: what this host can do, worked out when it is asked.
//!
//! A family stands here only if its routes work. Families are at the root, where
//! the protocol reads them now, and once more under `capabilities`, where earlier
//! versions of it do.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::app::{App, Shared};
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
    /// None: envelopes belong to runs, and there are none yet.
    supported_envelopes: Vec<String>,
    schema_versions: Map<String, Value>,
    limits: ProtocolLimits,
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

/// What the host can do, by family; one that it cannot is left out.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Families {
    memory: MemoryFamily,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<WorkspaceFamily>,
}

/// Long-term entries.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MemoryFamily {
    supported: bool,
    writable: bool,
    max_entry_size_bytes: usize,
    ttl_supported: bool,
    search: SearchModes,
    retention: Retention,
    injection_budget: InjectionBudget,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct SearchModes {
    supported: bool,
    /// `semantic` needs a model that makes vectors.
    modes: Vec<&'static str>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct Retention {
    ttl: bool,
    forget: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct InjectionBudget {
    supported: bool,
    /// What a budget of entries is counted in.
    token_counter: &'static str,
}

/// Workspace files.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WorkspaceFamily {
    supported: bool,
    versioned: bool,
    max_file_bytes: usize,
    max_files: u64,
    max_versions: u64,
}

impl Discovery {
    fn of(app: &App) -> Self {
        let families = Families { memory: memory(app), workspace: workspace(app) };
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
            capabilities: families.clone(),
            families,
        }
    }
}

fn memory(app: &App) -> MemoryFamily {
    let entries = app.memory.entry_settings();
    let token_counter = app.memory.entry_budget_counter().as_str();
    let semantic = app.memory.model().map(|_| "semantic");
    MemoryFamily {
        supported: true,
        writable: true,
        max_entry_size_bytes: entries.bytes,
        ttl_supported: true,
        search: SearchModes {
            supported: true,
            modes: semantic.into_iter().chain(["filter"]).collect(),
        },
        retention: Retention { ttl: true, forget: true },
        injection_budget: InjectionBudget { supported: true, token_counter },
    }
}

fn workspace(app: &App) -> Option<WorkspaceFamily> {
    let settings = app.memory.workspace();
    settings.enabled.then(|| WorkspaceFamily {
        supported: true,
        versioned: settings.versions > 1,
        // A larger one could not arrive.
        max_file_bytes: settings.file_bytes.min(app.limits.body_bytes),
        max_files: settings.files,
        max_versions: settings.versions,
    })
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
