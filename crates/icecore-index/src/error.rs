//! Why an index could not do as asked.

use std::path::PathBuf;

use icecore_domain::embed::ModelId;

use crate::document::Doc;

/// Why an index could not do as asked.
///
/// None of these loses anything: an index is derived, and what it lacks is fed
/// again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    #[error("cannot {action} `{}` of the index", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the text index failed")]
    Text(#[from] tantivy::TantivyError),
    #[error("the index is of epoch {have}, the batch of epoch {given}")]
    Epoch { have: u64, given: u64 },
    #[error("a batch may not move a watermark backwards")]
    Backwards,
    /// The vectors are of another model than those in the index.
    #[error("the index has vectors of {}, not of {}", named(have), named(given))]
    OtherModel { have: Option<Box<ModelId>>, given: Option<Box<ModelId>> },
    #[error("vectors were given without their model")]
    NoModel,
    #[error("a vector has {found} components where the model makes {expected}")]
    Dimensions {
        /// As the model says.
        expected: usize,
        found: usize,
    },
    #[error("vectors are due for {due} next, not for {given}")]
    VectorOrder { due: Doc, given: Doc },
    #[error("an index holds at most {} documents", u32::MAX)]
    Full,
}

fn named(model: &Option<Box<ModelId>>) -> String {
    model.as_ref().map_or_else(|| "no model".to_owned(), |model| format!("`{model}`"))
}
