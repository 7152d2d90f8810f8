//! The first line: version, checksum, row count, schema.

use std::fmt::Write as _;

use memchr::{memchr, memchr_iter};

use super::CtfError;

const MAGIC: &str = "#CTF v";
const V2_START: &str = "#CTF v2 crc=";
/// Where the checksum's eight digits end, and what it covers begins.
const V2_COVERED: usize = V2_START.len() + 8;

/// The versions we read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// What version `text` says it is.
pub(super) fn version(text: &str) -> Result<Version, CtfError> {
    let rest = text.strip_prefix(MAGIC).ok_or(CtfError::NotCtf)?;
    let end = rest.find([' ', '\t', '\n']).unwrap_or(rest.len());
    match &rest[..end] {
        "1" => Ok(Version::One),
        "2" => Ok(Version::Two),
        other => Err(CtfError::UnknownVersion(other.chars().take(16).collect())),
    }
}

/// Opens a version 2 text with room for the checksum.
pub(super) fn begin(capacity: usize) -> String {
    let mut out = String::with_capacity(capacity);
    out.push_str(V2_START);
    out.push_str("00000000");
    out
}

/// Puts in the checksum of everything after it.
pub(super) fn seal(mut text: String) -> String {
    let crc = crc32fast::hash(&text.as_bytes()[V2_COVERED..]);
    let mut digits = String::with_capacity(8);
    // Writing to a string cannot fail.
    let _ = write!(digits, "{crc:08x}");
    text.replace_range(V2_START.len()..V2_COVERED, &digits);
    text
}

/// A version 2 text whose count and checksum hold.
pub(super) struct Verified<'a> {
    /// The words of the first header cell after the checksum, and the value of
    /// each: `("step", "60")`.
    pub(super) words: Vec<(&'a str, &'a str)>,
    pub(super) cells: Vec<&'a str>,
    /// What follows the header, each row with its line end.
    pub(super) rows: &'a str,
    pub(super) row_count: u64,
}

impl<'a> Verified<'a> {
    /// Checks all of `text` but the cells. `count` is the word for the number of
    /// rows, which comes first.
    pub(super) fn open(text: &'a str, count: &str) -> Result<Self, CtfError> {
        let header_error = |reason: &str| CtfError::Header(reason.to_owned());
        let after = text
            .strip_prefix(V2_START)
            .ok_or_else(|| header_error("version 2 must go on with ` crc=`"))?;
        let declared = after.get(..8).and_then(read_crc);
        let declared = declared.ok_or_else(|| header_error("`crc` must be 8 hex digits"))?;
        let Some(line_end) = memchr(b'\n', after.as_bytes()) else {
            return Err(header_error("the line does not end"));
        };
        let mut cells = after[8..line_end].split('\t');
        let words = words(cells.next().unwrap_or_default())?;
        let row_count = match words.first() {
            Some((word, value)) if *word == count => parse_count(value),
            _ => None,
        };
        let row_count =
            row_count.ok_or_else(|| CtfError::Header(format!("`{count}` must be a row count")))?;
        let rows = &after[line_end + 1..];
        check_row_count(rows, row_count)?;
        let found = crc32fast::hash(&text.as_bytes()[V2_COVERED..]);
        if found != declared {
            return Err(CtfError::Checksum { declared, found });
        }
        Ok(Self { words, cells: cells.collect(), rows, row_count })
    }

    /// The value of a word.
    pub(super) fn word(&self, name: &str) -> Option<&'a str> {
        self.words.iter().find(|(word, _)| *word == name).map(|(_, value)| *value)
    }
}

/// ` turns=3 step=60` as pairs.
pub(super) fn words(cell: &str) -> Result<Vec<(&str, &str)>, CtfError> {
    let pairs = cell.split(' ').skip(1).map(|word| word.split_once('='));
    pairs
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| CtfError::Header("expected words like `turns=3`".to_owned()))
}

/// A count in plain digits.
pub(super) fn parse_count(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

fn check_row_count(rows: &str, declared: u64) -> Result<(), CtfError> {
    let found = memchr_iter(b'\n', rows.as_bytes()).count() as u64;
    let is_whole = rows.is_empty() || rows.ends_with('\n');
    if found < declared {
        Err(CtfError::Truncated { declared, found })
    } else if found > declared || !is_whole {
        let found = if is_whole { found } else { found + 1 };
        Err(CtfError::ExtraRows { declared, found })
    } else {
        Ok(())
    }
}

/// Exactly as we write it, so that no other spelling passes for the same.
fn read_crc(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// The columns of version 2, in the order they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    By,
    Id,
    ParentIds,
    Tags,
    Confidence,
    ToolCallId,
    ToolCalls,
    Extra,
    Content,
}

impl Column {
    pub(super) const ALL: [Column; 9] = [
        Column::By,
        Column::Id,
        Column::ParentIds,
        Column::Tags,
        Column::Confidence,
        Column::ToolCallId,
        Column::ToolCalls,
        Column::Extra,
        Column::Content,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Column::By => "by",
            Column::Id => "id",
            Column::ParentIds => "parentIds",
            Column::Tags => "tags",
            Column::Confidence => "confidence",
            Column::ToolCallId => "toolCallId",
            Column::ToolCalls => "toolCalls",
            Column::Extra => "extra",
            Column::Content => "content",
        }
    }

    /// Reads `by,id,content`: each at most once, `by` first and `content` last.
    pub(super) fn parse_all(list: &str) -> Result<Vec<Column>, CtfError> {
        let refuse = |reason: String| CtfError::Header(reason);
        let mut columns = Vec::new();
        for name in list.split(',') {
            let column = Column::ALL.into_iter().find(|column| column.name() == name);
            let column = column.ok_or_else(|| refuse(format!("unknown field `{}`", clip(name))))?;
            if columns.contains(&column) {
                return Err(refuse(format!("field `{name}` stands there twice")));
            }
            columns.push(column);
        }
        if columns.first() != Some(&Column::By) || columns.last() != Some(&Column::Content) {
            return Err(refuse("fields must begin with `by` and end with `content`".to_owned()));
        }
        Ok(columns)
    }
}

/// A piece of damaged text short enough for a message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}
