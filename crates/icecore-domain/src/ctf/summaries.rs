//! Chunk summaries as rows.

use super::CtfError;
use super::escape::{push_list, push_text, read_list, read_text};
use super::header::{self, Verified};
use super::read::{Cells, bad_escape, lines};

/// One chunk's summary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SummaryRow {
    pub chunk_id: String,
    pub first: u64,
    /// The last turn it covers, or, from version 1, the number written there.
    pub last: u64,
    pub summary: String,
    pub themes: Vec<String>,
}

const FIELDS: &str = "chunk,turns,themes,summary";

/// Encodes summaries as CTF 2.
pub fn encode_summaries(rows: &[SummaryRow]) -> String {
    let mut out = header::begin(rows.iter().map(|row| row.summary.len() + 64).sum::<usize>() + 64);
    out.push_str(&format!(" summaries={} fields={FIELDS}\n", rows.len()));
    for row in rows {
        push_text(&mut out, &row.chunk_id);
        out.push_str(&format!("\t{}-{}\t", row.first, row.last));
        push_list(&mut out, &row.themes);
        out.push('\t');
        push_text(&mut out, &row.summary);
        out.push('\n');
    }
    header::seal(out)
}

/// Decodes summaries from CTF 2.
pub(super) fn decode(text: &str) -> Result<Vec<SummaryRow>, CtfError> {
    let verified = Verified::open(text, "summaries")?;
    if verified.words.len() != 2 || verified.word("fields") != Some(FIELDS) {
        return Err(CtfError::Header(format!("summaries have the fields `{FIELDS}`")));
    }
    if !verified.cells.is_empty() {
        return Err(CtfError::Header("summaries declare no codes".to_owned()));
    }
    lines(verified.rows).map(|(row, line)| read_row(row, line)).collect()
}

fn read_row(row: u64, line: &str) -> Result<SummaryRow, CtfError> {
    let mut cells = Cells { row, rest: Some(line), expected: 4, line };
    let chunk_id = cells.next(false)?;
    let range = cells.next(false)?;
    let themes = cells.next(false)?;
    let summary = cells.next(true)?;
    let (first, last) = read_range(row, range)?;
    Ok(SummaryRow {
        chunk_id: read_text(chunk_id).map_err(|e| bad_escape(row, "chunk", e))?.into_owned(),
        first,
        last,
        summary: read_text(summary).map_err(|e| bad_escape(row, "summary", e))?.into_owned(),
        themes: read_list(themes).map_err(|e| bad_escape(row, "themes", e))?,
    })
}

/// `0-10`
pub(super) fn read_range(row: u64, cell: &str) -> Result<(u64, u64), CtfError> {
    let numbers = cell
        .split_once('-')
        .and_then(|(first, last)| Some((header::parse_count(first)?, header::parse_count(last)?)));
    numbers.ok_or_else(|| CtfError::Value {
        row,
        field: "turns",
        reason: format!("`{}` is not a range like 0-10", header::clip(cell)),
    })
}
