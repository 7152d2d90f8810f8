//! Reading version 2.

use std::collections::BTreeMap;

use memchr::{memchr, memchr_iter};

use super::CtfError;
use super::escape::{self, BadEscape, read_json, read_list, read_optional, read_text};
use super::header::{Column, Verified, clip};
use super::stamp::{MINUTE_BYTES, Stamp, read_seconds};
use crate::json::{JsonText, Token, unquote};
use crate::turn::{Content, RawTurn, Timestamp};

/// Room is made for at most so many turns at first: a turn takes a hundred times
/// the space of the shortest row, and a text may be hostile.
const ROOM_TURNS: u64 = 4096;

/// Decodes turns.
pub(super) fn decode_turns(text: &str) -> Result<Vec<RawTurn>, CtfError> {
    let verified = Verified::open(text, "turns")?;
    let schema = Schema::read(&verified)?;
    let mut turns: Vec<RawTurn> = Vec::with_capacity(verified.row_count.min(ROOM_TURNS) as usize);
    let mut time = Time { step: schema.step, before: None };
    for (row, line) in lines(verified.rows) {
        let mut turn = RawTurn::default();
        let mut cells = Cells { row, rest: Some(line), expected: schema.columns.len(), line };
        for column in &schema.columns {
            let cell = cells.next(*column == Column::Content)?;
            match column {
                Column::By => read_by(row, cell, &schema, &mut time, &mut turn)?,
                Column::ParentIds => turn.parent_ids = read_parents(row, cell, turns.last())?,
                _ => read_cell(row, *column, cell, &mut turn)?,
            }
        }
        turns.push(turn);
    }
    Ok(turns)
}

/// The rows with their numbers, from 1. Only `\n` ends one.
pub(super) fn lines(rows: &str) -> impl Iterator<Item = (u64, &str)> {
    let mut rest = rows;
    let mut row = 0;
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest.as_bytes())?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        row += 1;
        Some((row, line))
    })
}

/// Takes the cells of one row off its front.
pub(super) struct Cells<'a> {
    pub(super) row: u64,
    pub(super) rest: Option<&'a str>,
    pub(super) expected: usize,
    pub(super) line: &'a str,
}

impl<'a> Cells<'a> {
    /// The next cell; the last must be all that is left.
    pub(super) fn next(&mut self, is_last: bool) -> Result<&'a str, CtfError> {
        let Some(rest) = self.rest else { return Err(self.wrong_count()) };
        match (memchr(b'\t', rest.as_bytes()), is_last) {
            (Some(end), false) => {
                self.rest = Some(&rest[end + 1..]);
                Ok(&rest[..end])
            }
            (None, true) => {
                self.rest = None;
                Ok(rest)
            }
            _ => Err(self.wrong_count()),
        }
    }

    fn wrong_count(&self) -> CtfError {
        let found = memchr_iter(b'\t', self.line.as_bytes()).count() + 1;
        CtfError::Columns { row: self.row, expected: self.expected, found }
    }
}

/// What the header declares.
struct Schema<'a> {
    columns: Vec<Column>,
    speakers: BTreeMap<&'a str, Speaker>,
    step: Option<i128>,
}

struct Speaker {
    role: String,
    name: Option<String>,
    model: Option<String>,
}

impl<'a> Schema<'a> {
    fn read(verified: &Verified<'a>) -> Result<Self, CtfError> {
        let refuse = |reason: &str| CtfError::Header(reason.to_owned());
        let names: Vec<&str> = verified.words.iter().map(|(name, _)| *name).collect();
        if !matches!(names[..], ["turns", "fields"] | ["turns", "step", "fields"]) {
            return Err(refuse("expected `turns`, perhaps `step`, then `fields`"));
        }
        let step = match verified.word("step") {
            None => None,
            Some(step) => Some(read_seconds(step).ok_or_else(|| refuse("`step` must be seconds"))?),
        };
        let columns = Column::parse_all(verified.word("fields").unwrap_or_default())?;
        let mut speakers = BTreeMap::new();
        for cell in &verified.cells {
            let (code, speaker) = read_speaker(cell)?;
            if speakers.insert(code, speaker).is_some() {
                return Err(CtfError::Header(format!("code `{}` is declared twice", clip(code))));
            }
        }
        Ok(Self { columns, speakers, step })
    }
}

/// `A=user,Ana,gpt-4o`
fn read_speaker(cell: &str) -> Result<(&str, Speaker), CtfError> {
    let refuse = || CtfError::Header(format!("`{}` declares no speaker", clip(cell)));
    let (code, parts) = cell.split_once('=').ok_or_else(refuse)?;
    let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    let parts = escape::raw_items(parts);
    if !is_code || parts.is_empty() || parts.len() > 3 {
        return Err(refuse());
    }
    let part = |nth: usize| match parts.get(nth) {
        Some(part) => read_optional(part).map_err(|_| refuse()),
        None => Ok(None),
    };
    let role = part(0)?.ok_or_else(refuse)?;
    Ok((code, Speaker { role, name: part(1)?, model: part(2)? }))
}

/// The clock while rows are read.
struct Time<'a> {
    step: Option<i128>,
    before: Option<Stamp<'a>>,
}

impl<'a> Time<'a> {
    /// Reads what follows the code: nothing, `-`, a difference, or a timestamp.
    fn read(&mut self, row: u64, written: Option<&'a str>) -> Result<Option<Timestamp>, CtfError> {
        let refuse = |reason: &str| CtfError::Value { row, field: "by", reason: reason.to_owned() };
        let now = match (self.step, written) {
            (None, None) | (Some(_), Some("-")) => return Ok(None),
            (None, Some(_)) => return Err(refuse("a time, and the header declares no `step`")),
            (Some(step), None) => self.after(step).map_err(refuse)?,
            (Some(_), Some(text)) if text.starts_with(['+', '-']) => {
                let difference = read_seconds(text.strip_prefix('+').unwrap_or(text));
                let difference =
                    difference.ok_or_else(|| refuse("the difference is not in seconds"))?;
                self.after(difference).map_err(refuse)?
            }
            (Some(_), Some(text)) if text.len() == MINUTE_BYTES => {
                self.at_minute(text).map_err(refuse)?
            }
            (Some(_), Some(text)) => {
                self.before = Stamp::parse(text);
                text.to_owned()
            }
        };
        Timestamp::parse(now).map(Some).map_err(|error| refuse(&error.to_string()))
    }

    fn after(&mut self, difference: i128) -> Result<String, &'static str> {
        let before = self.before.ok_or("a difference, and no time before it")?;
        let now = before.plus(difference).ok_or("the difference is out of range")?;
        self.before = Some(now);
        Ok(now.to_text())
    }

    /// The time at `minute` that goes on from there as the one before did.
    fn at_minute(&mut self, minute: &str) -> Result<String, &'static str> {
        let before = self.before.ok_or("a time to the minute, and no time before it")?;
        let now = format!("{minute}{}", &before.to_text()[MINUTE_BYTES..]);
        let since = Stamp::parse(&now).and_then(|stamp| stamp.since(&before));
        self.before = since.and_then(|since| before.plus(since));
        Ok(now)
    }
}

fn read_by<'a>(
    row: u64,
    cell: &'a str,
    schema: &Schema<'a>,
    time: &mut Time<'a>,
    turn: &mut RawTurn,
) -> Result<(), CtfError> {
    let (code, written) = match cell.split_once(' ') {
        Some((code, written)) => (code, Some(written)),
        None => (cell, None),
    };
    let unknown = || CtfError::UnknownCode { row, code: clip(code) };
    let speaker = schema.speakers.get(code).ok_or_else(unknown)?;
    turn.role.clone_from(&speaker.role);
    turn.name.clone_from(&speaker.name);
    turn.model.clone_from(&speaker.model);
    turn.timestamp = time.read(row, written)?;
    Ok(())
}

fn read_cell(row: u64, column: Column, cell: &str, turn: &mut RawTurn) -> Result<(), CtfError> {
    let escape = |error: BadEscape| bad_escape(row, column.name(), error);
    match column {
        Column::Id => turn.id = read_optional(cell).map_err(escape)?,
        Column::ToolCallId => turn.tool_call_id = read_optional(cell).map_err(escape)?,
        Column::Tags if cell.is_empty() => {}
        Column::Tags => turn.tags = Some(read_list(cell).map_err(escape)?),
        Column::Confidence => turn.confidence = optional_json(row, column, cell)?,
        Column::ToolCalls => turn.tool_calls = optional_json(row, column, cell)?,
        Column::Extra => turn.extra = read_extra(row, cell)?,
        Column::Content => turn.content = read_content(row, cell)?,
        Column::By | Column::ParentIds => {}
    }
    Ok(())
}

pub(super) fn bad_escape(row: u64, field: &'static str, BadEscape(escape): BadEscape) -> CtfError {
    CtfError::Escape { row, field, escape }
}

fn read_parents(
    row: u64,
    cell: &str,
    before: Option<&RawTurn>,
) -> Result<Option<Vec<String>>, CtfError> {
    let field = Column::ParentIds.name();
    match cell {
        "" => Ok(None),
        "^" => match before.and_then(|turn| turn.id.clone()) {
            Some(id) => Ok(Some(vec![id])),
            None => Err(CtfError::Value {
                row,
                field,
                reason: "`^`, and the row before has no id".to_owned(),
            }),
        },
        cell => Ok(Some(read_list(cell).map_err(|error| bad_escape(row, field, error))?)),
    }
}

fn read_content(row: u64, cell: &str) -> Result<Content, CtfError> {
    if cell == "\\N" {
        return Ok(Content::Null);
    }
    if let Some(json) = cell.strip_prefix("\\J") {
        return Ok(Content::Parts(json_cell(row, Column::Content, json)?));
    }
    let text = read_text(cell).map_err(|error| bad_escape(row, Column::Content.name(), error))?;
    Ok(Content::Text(text.into_owned()))
}

fn optional_json(row: u64, column: Column, cell: &str) -> Result<Option<JsonText>, CtfError> {
    (!cell.is_empty()).then(|| json_cell(row, column, cell)).transpose()
}

fn json_cell(row: u64, column: Column, cell: &str) -> Result<JsonText, CtfError> {
    JsonText::parse(&read_json(cell)).map_err(|error| CtfError::Value {
        row,
        field: column.name(),
        reason: error.to_string(),
    })
}

/// The members of the object, each value in its own spelling. A parser of
/// objects would drop repeated keys or reorder them.
fn read_extra(row: u64, cell: &str) -> Result<Vec<(String, JsonText)>, CtfError> {
    if cell.is_empty() {
        return Ok(Vec::new());
    }
    let refuse = |reason: String| CtfError::Value { row, field: Column::Extra.name(), reason };
    let text = read_json(cell);
    // One level deeper than its values may be, so each of them is checked below.
    serde_json::from_str::<&serde_json::value::RawValue>(&text)
        .map_err(|error| refuse(format!("not valid JSON: {error}")))?;
    if !text.starts_with('{') {
        return Err(refuse("must be an object".to_owned()));
    }
    let mut members = Members::default();
    for token in crate::json::tokens(&text) {
        members.take(token);
    }
    let parse = |(key, value): (String, String)| match JsonText::parse(&value) {
        Ok(value) => Ok((key, value)),
        Err(error) => Err(refuse(error.to_string())),
    };
    members.done.into_iter().map(parse).collect()
}

/// Splits an object's tokens into members.
#[derive(Default)]
struct Members {
    depth: usize,
    key: Option<String>,
    value: String,
    done: Vec<(String, String)>,
}

impl Members {
    fn take(&mut self, token: Token<'_>) {
        let text = match token {
            Token::Blank(text) | Token::Other(text) => text,
            Token::Text { literal, .. } => literal,
        };
        match token {
            Token::Text { literal, is_key: true } if self.depth == 1 => {
                self.key = Some(unquote(literal));
                return;
            }
            Token::Other(":") if self.depth == 1 => return,
            Token::Other("," | "}") if self.depth == 1 => {
                let value = std::mem::take(&mut self.value);
                self.done.extend(self.key.take().map(|key| (key, value)));
                return;
            }
            Token::Other("{" | "[") => {
                self.depth += 1;
                if self.depth == 1 {
                    return;
                }
            }
            Token::Other("}" | "]") => self.depth -= 1,
            _ => {}
        }
        self.value.push_str(text);
    }
}
