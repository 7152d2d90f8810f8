//! What the host says of itself.

use serde::Serialize;
use utoipa::ToSchema;

/// Whether the host lives, or can be given work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok` or `ready`.
    #[schema(example = "ok")]
    pub(crate) status: &'static str,
}

/// Where to look next.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Welcome {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// A page to read and try the routes.
    pub(crate) docs: &'static str,
    /// The document that describes them.
    pub(crate) openapi: &'static str,
}

/// Archives, of which there are none before the first dream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Archives {
    pub(crate) archives: Vec<Archive>,
}

/// A sealed archive.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Archive {
    /// SHA-256 of its bytes, in hex.
    checksum: String,
    /// The dream that wrote it.
    run_id: String,
    memory_ref: String,
    #[schema(format = DateTime)]
    created_at: String,
    bytes: u64,
}
