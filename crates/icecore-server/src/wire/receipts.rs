//! Receipts of erasures.

use serde::Serialize;
use utoipa::ToSchema;

/// Proof of an erasure, without what was erased.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt<'a> {
    receipt_id: &'a str,
    erased: Erased,
    kind: &'a str,
    /// SHA-256 of `statement`, in hex.
    sha256: &'a str,
    /// What was done, in a line.
    statement: String,
    #[schema(format = DateTime)]
    at: String,
    /// Memories that were distilled anew without it.
    distilled_anew: u64,
    /// Whether it only says what would be erased.
    dry_run: bool,
}

/// How much was erased.
#[derive(Debug, Serialize, ToSchema)]
struct Erased {
    turns: u64,
    entries: u64,
    /// Chunks whose body and summary held any of them.
    chunks: u64,
    facts: u64,
    /// Turns whose vectors were in the index.
    vectors: u64,
    /// Packs that were rewritten or deleted.
    packs: u64,
    /// Runs whose inputs, variables and events went.
    runs: u64,
    /// Archives of dreams that had read any of it: their keys were destroyed.
    archives: u64,
    /// Handoffs that had covered any of it.
    handoffs: u64,
}

impl<'a> From<&'a icecore::Receipt> for Receipt<'a> {
    fn from(receipt: &'a icecore::Receipt) -> Self {
        Self {
            receipt_id: &receipt.id,
            erased: Erased::from(receipt.erased),
            kind: receipt.kind,
            sha256: &receipt.sha256,
            statement: receipt.statement(),
            at: receipt.at.to_rfc3339(),
            distilled_anew: receipt.distilled_anew,
            dry_run: receipt.dry_run,
        }
    }
}

impl From<icecore::maintenance::Erased> for Erased {
    fn from(erased: icecore::maintenance::Erased) -> Self {
        Self {
            turns: erased.turns,
            entries: erased.entries,
            chunks: erased.chunks,
            facts: erased.facts,
            vectors: erased.vectors,
            packs: erased.packs,
            runs: erased.runs,
            archives: erased.archives,
            handoffs: erased.handoffs,
        }
    }
}
