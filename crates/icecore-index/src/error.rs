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
    /// A file could not be read or written.
    #[error("cannot {action} `{}` of the index", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// The text index failed.
    #[error("the text index failed")]
    Text(#[from] tantivy::TantivyError),
    /// The batch is of another epoch: start anew first.
    #[error("the index is of epoch {have}, the batch of epoch {given}")]
    Epoch {
        /// The index's.
        have: u64,
        /// The batch's.
        given: u64,
    },
    /// The batch ends before it begins.
    #[error("a batch may not move a watermark backwards")]
    Backwards,
    /// The vectors are of another model than those that are kept.
    #[error("the index has vectors of {}, not of {}", told(have), told(given))]
    OtherModel {
        /// Whose vectors the index keeps.
        have: Option<Box<ModelId>>,
        /// Whose vectors were given.
        given: Option<Box<ModelId>>,
    },
    /// Vectors of nobody.
    #[error("vectors were given without their model")]
    NoModel,
    /// A vector that the model cannot have made.
    #[error("a vector has {found} components where the model makes {expected}")]
    Dimensions {
        /// As the model says.
        expected: usize,
        /// As given.
        found: usize,
    },
    /// Vectors come in the order of documents, without gaps.
    #[error("vectors are due for {due} next, not for {given}")]
    VectorOrder {
        /// The first document without.
        due: Doc,
        /// The first document given.
        given: Doc,
    },
    /// More documents than numbers for them.
    #[error("an index holds at most {} documents", u32::MAX)]
    Full,
}

fn told(model: &Option<Box<ModelId>>) -> String {
    model.as_ref().map_or_else(|| "no model".to_owned(), |model| format!("`{model}`"))
}
