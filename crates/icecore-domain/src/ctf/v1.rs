//! Reading version 1, which is not written any more.
//!
//! Its own decoder skipped what it could not read and checked nothing; this one
//! reads the same rows and refuses the rest. `␉` and `␊` were its escapes for
//! tab and line feed, without a way to write them literally, so they are read
//! as what they most likely were.

use super::CtfError;
use super::header::{clip, parse_count, words};
use super::summaries::{SummaryRow, read_range};
use crate::turn::{Content, RawTurn, Timestamp};

const NULL: &str = "-";
const START: &str = "#CTF v1";

/// Decodes turns.
pub(super) fn decode_turns(text: &str) -> Result<Vec<RawTurn>, CtfError> {
    let table = Table::open(text, "turns", &["role", "content", "timestamp", "model"])?;
    for needed in ["role", "content"] {
        if !table.fields.contains(&needed) {
            return Err(CtfError::Header(format!("field `{needed}` is missing")));
        }
    }
    table.rows().map(|row| read_turn(&table, row?)).collect()
}

/// Decodes summaries.
pub(super) fn decode_summaries(text: &str) -> Result<Vec<SummaryRow>, CtfError> {
    let table = Table::open(text, "count", &["chunk_id", "turn_range", "summary", "themes"])?;
    if table.fields.len() != 4 {
        return Err(CtfError::Header("summaries have four fields".to_owned()));
    }
    table.rows().map(|row| read_summary(&table, row?)).collect()
}

struct Table<'a> {
    fields: Vec<&'a str>,
    lines: Vec<&'a str>,
}

struct Row<'a> {
    number: u64,
    cells: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// Checks header and row count. `count` is the word for the number of rows.
    fn open(text: &'a str, count: &str, known: &[&str]) -> Result<Self, CtfError> {
        let refuse = |reason: String| CtfError::Header(reason);
        // The encoder wrote no line end after the last row; one that an editor
        // put there is no row.
        let text = text.strip_suffix('\n').unwrap_or(text);
        let mut lines = text.split('\n');
        let header = lines.next().and_then(|line| line.strip_prefix(START)).unwrap_or_default();
        let words = words(header)?;
        let word = |name: &str| words.iter().find(|(word, _)| *word == name).map(|(_, v)| *v);
        let is_summaries = word("type") == Some("summaries");
        if is_summaries != (count == "count") {
            return Err(refuse("turns and summaries are different kinds of text".to_owned()));
        }
        let declared = word(count).and_then(parse_count);
        let declared = declared.ok_or_else(|| refuse(format!("`{count}` must be a row count")))?;
        let fields = word("fields").ok_or_else(|| refuse("`fields` is missing".to_owned()))?;
        let fields: Vec<&str> = fields.split(',').collect();
        for (nth, field) in fields.iter().enumerate() {
            if !known.contains(field) || fields[..nth].contains(field) {
                return Err(refuse(format!("field `{}` is unknown or repeated", clip(field))));
            }
        }
        let lines: Vec<&str> = lines.collect();
        let found = lines.len() as u64;
        match found.cmp(&declared) {
            std::cmp::Ordering::Less => Err(CtfError::Truncated { declared, found }),
            std::cmp::Ordering::Greater => Err(CtfError::ExtraRows { declared, found }),
            std::cmp::Ordering::Equal => Ok(Self { fields, lines }),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Result<Row<'a>, CtfError>> {
        let expected = self.fields.len();
        self.lines.iter().zip(1..).map(move |(line, number)| {
            let cells: Vec<&str> = line.split('\t').collect();
            if cells.len() == expected {
                Ok(Row { number, cells })
            } else {
                Err(CtfError::Columns { row: number, expected, found: cells.len() })
            }
        })
    }

    fn cell(&self, row: &Row<'a>, field: &str) -> Option<&'a str> {
        let at = self.fields.iter().position(|name| *name == field)?;
        row.cells.get(at).copied()
    }
}

fn read_turn(table: &Table<'_>, row: Row<'_>) -> Result<RawTurn, CtfError> {
    let cell = |field| table.cell(&row, field);
    let role = cell("role").unwrap_or_default();
    if role.is_empty() {
        let reason = "is empty".to_owned();
        return Err(CtfError::Value { row: row.number, field: "role", reason });
    }
    let mut turn = RawTurn::new(role, "");
    turn.content = Content::Text(unescape(cell("content").unwrap_or_default()));
    turn.model = cell("model").filter(|model| *model != NULL).map(str::to_owned);
    let timestamp = cell("timestamp").filter(|text| !text.is_empty());
    turn.timestamp = timestamp.map(|text| read_timestamp(row.number, text)).transpose()?;
    Ok(turn)
}

/// Version 1 wrote local times without an offset; they are taken as UTC.
fn read_timestamp(row: u64, text: &str) -> Result<Timestamp, CtfError> {
    let as_utc = || Timestamp::parse(format!("{text}Z"));
    Timestamp::parse(text)
        .or_else(|error| as_utc().map_err(|_| error))
        .map_err(|error| CtfError::Value { row, field: "timestamp", reason: error.to_string() })
}

fn read_summary(table: &Table<'_>, row: Row<'_>) -> Result<SummaryRow, CtfError> {
    let cell = |field| table.cell(&row, field).unwrap_or_default();
    let (first, last) = read_range(row.number, cell("turn_range"))?;
    let themes = cell("themes").split('|').filter(|_| !cell("themes").is_empty());
    Ok(SummaryRow {
        chunk_id: cell("chunk_id").to_owned(),
        first,
        last,
        summary: unescape(cell("summary")),
        themes: themes.map(str::to_owned).collect(),
    })
}

fn unescape(text: &str) -> String {
    text.replace('␉', "\t").replace('␊', "\n")
}
