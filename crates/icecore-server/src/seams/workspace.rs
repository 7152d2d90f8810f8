//! Workspace files as whatever owner the suite names.
//!
//! Each owner is a workspace of the caller's own tenant that is there for this alone, so
//! that the seam reaches neither another tenant nor the caller's own files.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use icecore::Principal;
use icecore_host::workspace::{FileMatch, FileWrite};
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
            let files = app.host.files.list(&owner, &prefix).await?;
            Ok(wire::ok(json!(FilesAnswer::from(files)).to_string()))
        }
        Some("get") => {
            let version = fields.limit("version", u32::MAX as usize, "version")?;
            let (path, version) = (path()?, version.map(|version| version as u64));
            let file = app.host.files.get(&owner, &path, version).await?;
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
            let written = app.host.files.put(&owner, file).await?;
            Ok(wire::ok(json!(FileAnswer::from(written)).to_string()))
        }
        Some("delete") => {
            app.host.files.delete(&owner, &path()?, &expect).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(ApiError::invalid("field `op` must be `list`, `get`, `put` or `delete`")),
    }
}

/// The workspace that stands for an owner. Its name is stored, and so goes through the
/// caller's redactor as every name does.
async fn owner(app: &App, caller: &Caller, fields: &Fields<'_>) -> Result<Principal, ApiError> {
    let redactor = app.memory.redactor(caller.tenant()).await?.redactor;
    let wrong = |name: &str| ApiError::invalid(format!("field `{name}` cannot be a name"));
    let in_workspace = |name: &str| caller.principal().clone().at_work_in(redactor.name(name));
    let named = |field: &str| {
        let missing = || ApiError::invalid(format!("field `{field}` is missing"));
        let given = fields.text(field)?.ok_or_else(missing)?;
        in_workspace(&given).map_err(|_| wrong(field))?;
        Ok::<_, ApiError>(given)
    };
    // As JSON, so that no two owners have the same name.
    let owner = json!([named("tenant")?, named("workspace")?]);
    in_workspace(&format!("conformance sample {owner}")).map_err(|_| wrong("workspace"))
}
