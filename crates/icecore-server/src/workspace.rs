//! Workspace files (OpenWOP RFC 0059): read, written and deleted by path.
//!
//! The caller's tenant comes from its key, so that no path leads to the files of
//! another. Two who write the same file keep apart by `If-Match`.

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use icecore::ids::Position;
use icecore::store::StoreError;
use icecore::{MemoryError, Millis, Tenant};
use icecore_host::outcomes::StoredOutcome;
use icecore_host::workspace::{FileInfo, FileMatch, FileWrite, WorkspaceError, WorkspaceFile};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Caller, Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{Params, Segment};
use crate::wire;

/// Who may read files, on a host that has any.
pub(crate) struct FileReader(Caller);

/// Who may write files, on a host that has any.
pub(crate) struct FileWriter(Caller);

impl FromRequestParts<Shared> for FileReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Reader(caller) = Reader::from_request_parts(parts, app).await?;
        match app.host.settings().read_only {
            true => Err(not_provided()),
            false => Ok(Self(caller)),
        }
    }
}

impl FromRequestParts<Shared> for FileWriter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        if app.host.settings().read_only {
            Reader::from_request_parts(parts, app).await?;
            return Err(not_provided());
        }
        let Writer(caller) = Writer::from_request_parts(parts, app).await?;
        Ok(Self(caller))
    }
}

/// A host has workspaces that can be written, or it has none: the protocol knows no
/// others, and what is not advertised is not provided.
fn not_provided() -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "capability_not_provided",
        "this host has no workspace files: it runs with `openwop.read_only`",
    )
}

const OPERATION: &str = "PUT /v1/host/workspace/files";

/// What a file shall hold.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct FileBody {
    /// The whole content. Secrets in it are hidden before it is written.
    content: String,
    /// A media type; `text/markdown` where none is named.
    content_type: Option<String>,
}

impl FileBody {
    fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        fields.only(&["content", "contentType"])?;
        let missing = || ApiError::invalid("field `content` is missing");
        Ok(Self {
            content: fields.text("content")?.ok_or_else(missing)?,
            content_type: fields.text("contentType")?,
        })
    }
}

/// A version of a file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WorkspaceFile)]
pub(crate) struct FileAnswer {
    #[serde(flatten)]
    row: FileRow,
    /// The whole content.
    content: String,
}

/// The last version of a file, without its content.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WorkspaceFileRow)]
pub(crate) struct FileRow {
    /// Where.
    #[schema(example = "behavior/style.md")]
    path: String,
    /// Its media type.
    content_type: String,
    /// 1 for the first of a path, one more with each write.
    #[schema(minimum = 1)]
    version: u64,
    /// What `If-Match` takes, quotes included.
    etag: String,
    /// When this version was written.
    #[schema(format = DateTime)]
    updated_at: String,
}

/// The files of a workspace.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkspaceFiles)]
pub(crate) struct FilesAnswer {
    /// By path.
    files: Vec<FileRow>,
}

impl From<FileInfo> for FileRow {
    fn from(info: FileInfo) -> Self {
        Self {
            path: info.path,
            content_type: info.content_type,
            version: info.version,
            etag: info.etag,
            updated_at: info.updated_at.to_rfc3339(),
        }
    }
}

impl From<Vec<FileInfo>> for FilesAnswer {
    fn from(files: Vec<FileInfo>) -> Self {
        Self { files: files.into_iter().map(FileRow::from).collect() }
    }
}

impl From<WorkspaceFile> for FileAnswer {
    fn from(file: WorkspaceFile) -> Self {
        Self { row: file.info.into(), content: file.content }
    }
}

/// The files of the caller's workspace.
#[utoipa::path(
    get,
    path = "/v1/host/workspace/files",
    operation_id = "listFiles",
    tag = "workspace",
    params(("prefix" = Option<String>, Query, description = "Only paths that begin so")),
    responses(
        (status = 200, description = "The files, without their contents", body = FilesAnswer),
        (status = 501, description = "The host keeps no workspace files", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    FileReader(caller): FileReader,
    params: Params,
) -> Result<Response, ApiError> {
    let prefix = params.text("prefix")?.unwrap_or_default();
    let files = app.host.files.list(caller.principal(), prefix).await?;
    Ok(wire::ok(json!(FilesAnswer::from(files)).to_string()))
}

/// One file, or an earlier version of it.
#[utoipa::path(
    get,
    path = "/v1/host/workspace/files/{path}",
    operation_id = "readFile",
    tag = "workspace",
    params(
        ("path" = String, Path, description = "The file's path, with its slashes or percent-encoded"),
        ("version" = Option<u64>, Query, description = "Which version; the last where none is named"),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` that the caller has"),
    ),
    responses(
        (status = 200, description = "The file", body = FileAnswer),
        (status = 304, description = "The caller has it already"),
        (status = 501, description = "The host keeps no workspace files", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn read(
    State(app): State<Shared>,
    FileReader(caller): FileReader,
    Segment(path): Segment,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let version = params.number("version")?;
    let file = app.host.files.get(caller.principal(), &path, version).await?;
    if has(&headers, &file.info.etag) {
        return Ok(tagged(StatusCode::NOT_MODIFIED.into_response(), &file.info.etag));
    }
    Ok(answer(file))
}

/// Writes the next version of a file.
#[utoipa::path(
    put,
    path = "/v1/host/workspace/files/{path}",
    operation_id = "putFile",
    tag = "workspace",
    params(
        ("path" = String, Path, description = "The file's path, with its slashes or percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The `ETag` that is to be replaced; `*` replaces any, but makes none"),
        ("If-None-Match" = Option<String>, Header, description = "`*` makes a file, but replaces none"),
    ),
    request_body(content = FileBody, example = json!({"content": "# Plan"})),
    responses(
        (status = 200, description = "The file as it is stored", body = FileAnswer),
        (status = 409, description = "The file is at another version, which `details.currentVersion` tells", body = crate::openapi::ErrorBody),
        (status = 501, description = "The host keeps no workspace files", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn put(
    State(app): State<Shared>,
    FileWriter(caller): FileWriter,
    Segment(path): Segment,
    headers: HeaderMap,
    posted: Posted,
) -> Result<Response, ApiError> {
    let FileBody { content, content_type } = FileBody::read(&Fields::parse(&posted.bytes)?)?;
    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    let mut write =
        FileWrite { path, content, content_type, expect: expected(&headers), claim: None };
    if let Some(attempt) = &attempt {
        if let Some(outcome) = attempt.earlier(&app).await? {
            return replay_put(&app, caller.tenant(), &write, &outcome).await;
        }
        write.claim = Some(attempt.claim());
    }
    match (app.host.files.put(caller.principal(), write.clone()).await, attempt) {
        (Ok(file), _) => Ok(answer(file)),
        // Another process was faster under the same key.
        (
            Err(WorkspaceError::Memory(MemoryError::Store(StoreError::ClaimTaken))),
            Some(attempt),
        ) => {
            let outcome = attempt.of_another(&app).await?;
            replay_put(&app, caller.tenant(), &write, &outcome).await
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// What is kept of an answer for retries: nothing that a file holds, nor where.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    version: u64,
    position: Option<u64>,
    /// In the place of `position` in outcomes of version 0.1.
    etag: Option<String>,
    updated_at: i64,
}

/// A kept answer, with what the file held put back from the request.
async fn replay_put(
    app: &App,
    tenant: &Tenant,
    write: &FileWrite,
    outcome: &StoredOutcome,
) -> Result<Response, ApiError> {
    let Kept { version, position, etag, updated_at } = serde_json::from_str(&outcome.body)
        .map_err(|_| ApiError::internal(&"a kept outcome cannot be read"))?;
    let written = Position(position.unwrap_or_default());
    let etag = etag.unwrap_or_else(|| FileInfo::etag_of(version, written));
    let (content, content_type) = app.host.files.shown(tenant, write).await?;
    let path = app.memory.shown(tenant, &write.path).into_string();
    let content_type = content_type.into_string();
    let updated_at = Millis(updated_at);
    let info = FileInfo { path, content_type, version, etag: etag.clone(), updated_at };
    let file = WorkspaceFile { info, content: content.into_string() };
    let body = json!(FileAnswer::from(file)).to_string();
    Ok(tagged(replay(StatusCode::OK.as_u16(), body), &etag))
}

/// Deletes a file with all its versions.
#[utoipa::path(
    delete,
    path = "/v1/host/workspace/files/{path}",
    operation_id = "deleteFile",
    tag = "workspace",
    params(
        ("path" = String, Path, description = "The file's path, with its slashes or percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The `ETag` that is to go"),
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 409, description = "The file is at another version, which `details.currentVersion` tells", body = crate::openapi::ErrorBody),
        (status = 501, description = "The host keeps no workspace files", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn delete(
    State(app): State<Shared>,
    FileWriter(caller): FileWriter,
    Segment(path): Segment,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let expect = match expected(&headers) {
        // To delete what is not there is refused in any case.
        FileMatch::Absent => FileMatch::Anything,
        expect => expect,
    };
    app.host.files.delete(caller.principal(), &path, &expect).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn answer(file: WorkspaceFile) -> Response {
    let etag = file.info.etag.clone();
    tagged(wire::ok(json!(FileAnswer::from(file)).to_string()), &etag)
}

/// The response with its entity tag.
pub(crate) fn tagged(mut response: Response, etag: &str) -> Response {
    if let Ok(etag) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// Whether the caller says that it has what goes by this tag.
pub(crate) fn has(headers: &HeaderMap, etag: &str) -> bool {
    // To read, a weak tag is as good as a strong one.
    let strong = |tag: &String| tag.strip_prefix("W/").unwrap_or(tag) == etag;
    let tags = tags(headers, &header::IF_NONE_MATCH);
    tags.iter().any(|tag| tag == "*" || strong(tag))
}

/// What the caller expects to be there.
fn expected(headers: &HeaderMap) -> FileMatch {
    if headers.contains_key(header::IF_MATCH) {
        let tags = tags(headers, &header::IF_MATCH);
        // What cannot be read as a tag matches no file.
        return match tags.iter().any(|tag| tag == "*") {
            true => FileMatch::Present,
            false => FileMatch::Tags(tags),
        };
    }
    match tags(headers, &header::IF_NONE_MATCH).iter().any(|tag| tag == "*") {
        true => FileMatch::Absent,
        false => FileMatch::Anything,
    }
}

/// The tags of a header, as they stand there.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let tags = values.flat_map(|value| value.split(',')).map(|tag| tag.trim().to_owned());
    tags.filter(|tag| !tag.is_empty()).collect()
}

impl From<WorkspaceError> for ApiError {
    fn from(error: WorkspaceError) -> Self {
        let message = error.to_string();
        match error {
            WorkspaceError::Off => {
                Self::new(StatusCode::NOT_IMPLEMENTED, "capability_not_provided", message)
            }
            WorkspaceError::TooLarge { bytes, most } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "workspace_too_large", message).with(
                    json!({ "limit": "workspace.file_bytes", "limitBytes": most, "bytes": bytes }),
                )
            }
            WorkspaceError::TooMany { most } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "workspace_too_large", message)
                    .with(json!({ "limit": "workspace.files", "most": most }))
            }
            WorkspaceError::NotFound { .. } => {
                Self::new(StatusCode::NOT_FOUND, "not_found", message)
            }
            WorkspaceError::Conflict { current } => {
                Self::new(StatusCode::CONFLICT, "workspace_conflict", message)
                    .with(json!({ "currentVersion": current }))
            }
            WorkspaceError::Memory(error) => error.into(),
            _ => Self::invalid(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        let parse = |(name, value): &(HeaderName, &str)| {
            (name.clone(), HeaderValue::from_str(value).unwrap())
        };
        lines.iter().map(parse).collect()
    }

    #[test]
    fn conditions_are_read_as_http_means_them() {
        use header::{IF_MATCH, IF_NONE_MATCH};
        let tags = |tags: &[&str]| FileMatch::Tags(tags.iter().map(|&t| t.to_owned()).collect());
        let check = |lines: &[(HeaderName, &str)], wanted| {
            assert_eq!(expected(&headers(lines)), wanted, "{lines:?}");
        };
        check(&[], FileMatch::Anything);
        check(&[(IF_MATCH, "\"a\"")], tags(&["\"a\""]));
        check(&[(IF_MATCH, " \"a\" , \"b\"")], tags(&["\"a\"", "\"b\""]));
        check(&[(IF_MATCH, "*")], FileMatch::Present);
        check(&[(IF_MATCH, "")], tags(&[]));
        check(&[(IF_MATCH, "W/\"a\"")], tags(&["W/\"a\""]));
        check(&[(IF_NONE_MATCH, "*")], FileMatch::Absent);
        check(&[(IF_NONE_MATCH, "\"a\"")], FileMatch::Anything);
    }

    #[test]
    fn a_caller_has_what_it_names() {
        let check = |value: &str, wanted| {
            let sent = headers(&[(header::IF_NONE_MATCH, value)]);
            assert_eq!(has(&sent, "\"a\""), wanted, "{value}");
        };
        check("\"a\"", true);
        check("\"b\", \"a\"", true);
        check("W/\"a\"", true);
        check("*", true);
        check("\"b\"", false);
        check("a", false);
        check("", false);
        assert!(!has(&HeaderMap::new(), "\"a\""));
    }
}
