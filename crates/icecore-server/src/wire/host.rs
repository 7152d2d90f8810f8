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
