//! CTF, the Compact Turn Format: a header that declares the schema, then one
//! row a turn, tab separated.

use crate::turn::RawTurn;

/// Encodes turns as CTF 2.
pub fn encode(_turns: &[RawTurn]) -> String {
    String::new()
}

/// Decodes CTF 1 or 2.
pub fn decode(_text: &str) -> Result<Vec<RawTurn>, CtfError> {
    Ok(Vec::new())
}

/// Why CTF text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CtfError {
    /// Not CTF.
    #[error("not CTF: {0}")]
    Header(String),
}
