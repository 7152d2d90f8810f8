//! Implementations of the domain's ports.
//!
//! Tokenizers for now. Knows nothing of storage or serving.

mod o200k;

pub use o200k::O200k;
