//! Workspace files as whatever owner the suite names.
//!
//! The owners live in tenants that are there for this alone, so that the seam does not
//! reach the files of those who have keys.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use icecore::{FileMatch, FileWrite, Principal, Tenant};
use serde_json::json;

use crate::app::{App, Shared};
use crate::auth::{Caller, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::wire;
use crate::workspace::{FileAnswer, FilesAnswer};

/// One operation on a file, or the list of files.
pub(super) async fn operate(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let owner = owner(&app, &caller, &fields).await?;
    let path = || fields.text("path")?.ok_or_else(|| ApiError::invalid("field `path` is missing"));
    let expect = match fields.text("ifMatch")? {
        Some(tag) if tag == "*" => FileMatch::Present,
        Some(tag) => FileMatch::Tags(vec![tag]),
        None => FileMatch::Anything,
    };
    match fields.text("op")?.as_deref() {
        Some("list") => {
            let prefix = fields.text("prefix")?.unwrap_or_default();
            let files = app.memory.files(&owner, &prefix).await?;
            Ok(wire::ok(json!(FilesAnswer::from(files)).to_string()))
        }
        Some("get") => {
            let version = fields.limit("version", u32::MAX as usize, "version")?;
            let (path, version) = (path()?, version.map(|version| version as u64));
            let file = app.memory.file(&owner, &path, version).await?;
            Ok(wire::ok(json!(FileAnswer::from(file)).to_string()))
        }
        Some("put") => {
            let missing = || ApiError::invalid("field `content` is missing");
            let file = FileWrite {
                path: path()?,
                content: fields.text("content")?.ok_or_else(missing)?,
                content_type: fields.text("contentType")?,
                expect,
                claim: None,
            };
            let written = app.memory.put_file(&owner, file).await?;
            Ok(wire::ok(json!(FileAnswer::from(written)).to_string()))
        }
        Some("delete") => {
            app.memory.delete_file(&owner, &path()?, &expect).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(ApiError::invalid("field `op` must be `list`, `get`, `put` or `delete`")),
    }
}

/// Whoever the suite means, in a tenant that is there for this alone. What it is called
/// is stored, and so goes through the caller's redactor as every name does.
async fn owner(app: &App, caller: &Caller, fields: &Fields<'_>) -> Result<Principal, ApiError> {
    let redactor = app.memory.redactor(caller.tenant()).await?.redactor;
    let named = |name: &str| match fields.text(name)? {
        Some(given) => Ok(redactor.name(&given)),
        None => Err(ApiError::invalid(format!("field `{name}` is missing"))),
    };
    let wrong = |name: &str| ApiError::invalid(format!("field `{name}` cannot be a name"));
    let tenant = format!("conformance sample {}", named("tenant")?.as_str());
    let tenant = Tenant::new(tenant).map_err(|_| wrong("tenant"))?;
    // Whoever runs the host may call a tenant as they like.
    if !app.memory.api_keys(Some(&tenant)).await?.is_empty() {
        let message = "this tenant has keys of its own";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let workspace = named("workspace")?;
    Principal::key_holder(tenant).at_work_in(workspace).map_err(|_| wrong("workspace"))
}
