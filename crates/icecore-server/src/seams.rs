//! The seams through which a conformance suite looks at what no route shows.
//!
//! They are there only with `serve --conformance`, need a key of a writer, and drive
//! the same engine as everything else: nothing is canned. Where the suite asks for
//! something that it did not seed, a real corpus is planted first.

mod commitments;
mod distillation;
mod identity;
mod memory;
mod scheduling;
mod workspace;

use axum::Router;
use axum::routing::{get, post};

use crate::app::Shared;

/// The seams, for the whole server to merge.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/v1/test/memory/seed", post(memory::seed))
        .route("/v1/test/memory/compact", post(memory::compact))
        .route("/v1/host/sample/memory/consolidate", post(memory::consolidate))
        .route("/v1/host/sample/memory/distill", post(distillation::distil))
        .route("/v1/host/sample/commitment/fire", post(commitments::fire))
        .route("/v1/host/sample/scheduling/tick", post(scheduling::tick))
        .route("/v1/host/sample/workspace/op", post(workspace::operate))
        .route("/v1/host/sample/identity/owned-run", get(identity::owned_run))
        .route("/v1/host/sample/identity/cross-workspace-read", post(identity::cross_read))
}
