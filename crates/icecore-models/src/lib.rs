//! Implementations of the domain's ports.
//!
//! Tokenizers and embedders. Knows nothing of storage or serving.

mod model_file;
mod o200k;
pub mod registry;
mod static_table;
mod wordpiece;
mod words;

pub use model_file::ModelFileError;
pub use o200k::O200k;
pub use static_table::{BUNDLED_MODEL, StaticEmbedder, TokenVector};
