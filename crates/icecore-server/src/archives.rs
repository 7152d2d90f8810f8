//! Archives of dreams.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use icecore::dreams::Checksum;

use crate::app::Shared;
use crate::auth::Reader;
use crate::error::ApiError;
use crate::params::{InTenant, Params, Segment};
use crate::wire;
use crate::workspace::{has, tagged};

/// Archives of the caller's tenant that can be read, newest first.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/archives",
    operation_id = "listArchives",
    tag = "dreams",
    params(InTenant),
    responses((status = 200, description = "The archives", body = wire::Archives))
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let found = app.memory.archives(caller.tenant(), memory.as_deref()).await?;
    Ok(wire::ok(wire::text(&wire::Archives::of(&found))))
}

/// An archive: the canonical bytes, whose SHA-256 is its address and its `ETag`.
///
/// Its bytes never change, but it may be erased. So whoever keeps a copy asks each time
/// whether it still stands.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/archives/{checksum}",
    operation_id = "getArchive",
    tag = "dreams",
    params(
        ("checksum" = String, Path, description = "The archive's address."),
        InTenant,
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` that the caller has"),
    ),
    responses(
        (status = 200, description = "The archive, as `docs/format-archive.md` describes it", body = Object),
        (status = 304, description = "The caller has it already"),
        (status = 409, description = "It holds what is a secret now", body = crate::openapi::ErrorBody),
        (status = 410, description = "It was erased, taken back, or is past its retention", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn get(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(checksum): Segment,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let unknown = || ApiError::missing("there is no such archive");
    let checksum = Checksum::parse(&checksum).ok_or_else(unknown)?;
    let bytes = app.memory.archive(caller.tenant(), memory.as_deref(), checksum).await?;
    let etag = format!("\"{checksum}\"");
    let response = match has(&headers, &etag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => as_json(bytes),
    };
    let mut response = tagged(response, &etag);
    let kept = HeaderValue::from_static("private, no-cache");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    Ok(response)
}

fn as_json(bytes: Vec<u8>) -> Response {
    let mut response = Body::from(bytes).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
