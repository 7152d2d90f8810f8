//! `GET /v1/agents`: the agents that are installed, and what each has to do without
//! here (OpenWOP RFC 0072, 0080 and 0092).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore_host::agents::AgentEntry;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::Reader;
use crate::error::ApiError;
use crate::params::Segment;
use crate::wire;

/// The agents of this host.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AgentInventory)]
pub(crate) struct Inventory {
    /// By id.
    agents: Vec<AgentEntry>,
    /// How many.
    total: usize,
}

/// Every agent that is installed. `memoryDegraded` and `degraded` say what an agent
/// asks for and this host has not.
#[utoipa::path(
    get,
    path = "/v1/agents",
    operation_id = "listAgents",
    tag = "agents",
    responses(
        (status = 200, description = "The agents, by id", body = Inventory),
        (status = 501, description = "No agents are installed", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
) -> Result<Response, ApiError> {
    installed(&app)?;
    let able = app.host.capabilities(app.limits.body_bytes);
    let agents = app.host.inventory(caller.tenant(), &able).await?;
    Ok(wire::ok(wire::text(&Inventory { total: agents.len(), agents })))
}

/// One agent.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}",
    operation_id = "getAgent",
    tag = "agents",
    params(("id" = String, Path, description = "Its `agentId`")),
    responses(
        (status = 200, description = "The agent", body = AgentEntry),
        (status = 501, description = "No agents are installed", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn get(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    installed(&app)?;
    let able = app.host.capabilities(app.limits.body_bytes);
    let agent = app.host.agent(&id, caller.tenant(), &able).await?;
    let agent = agent.ok_or_else(|| ApiError::missing("no agent has that id"))?;
    Ok(wire::ok(wire::text(&agent)))
}

/// Without agents there is no inventory, rather than an empty one: so it is advertised.
fn installed(app: &App) -> Result<(), ApiError> {
    match app.host.agents().count() {
        0 => Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "capability_not_provided",
            "this host has no agents: `openwop.agents` names no directory of manifests",
        )),
        _ => Ok(()),
    }
}
