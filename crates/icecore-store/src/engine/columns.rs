//! How the types of a memory lie in columns, and rows as tuples.

use icecore_domain::chunk::Level;
use icecore_domain::cut::CutPolicy;
use icecore_domain::dream::Checksum;
use icecore_domain::identity::{Link, TurnIdentity};
use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo, TurnId};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use super::{Error, FromSql, Kind, Result, Row, ToSql, Value, misfit};

/// A number as a column has it; one beyond all others stays that.
pub(crate) fn number(number: u64) -> i64 {
    number.min(i64::MAX as u64) as i64
}

/// What lies in a column as a number.
macro_rules! numbers {
    ($($kind:ty: $into:expr, $from:expr;)*) => {$(
        impl From<$kind> for Value<'_> {
            fn from(it: $kind) -> Self {
                let into: fn($kind) -> i64 = $into;
                Value::Integer(into(it))
            }
        }

        impl ToSql for $kind {
            fn value(&self) -> Value<'_> {
                Value::from(*self)
            }

            fn kind() -> Kind {
                Kind::Integer
            }
        }

        impl FromSql for $kind {
            fn from_value(value: Value<'_>) -> Result<Self> {
                let from: fn(i64) -> Option<$kind> = $from;
                let number = value.as_integer()?;
                from(number).ok_or_else(|| Error::broken(0, format!("{number} is out of range")))
            }
        }
    )*};
}

numbers! {
    i64: |it| it, Some;
    i32: i64::from, |n| n.try_into().ok();
    u32: i64::from, |n| n.try_into().ok();
    u16: i64::from, |n| n.try_into().ok();
    u8: i64::from, |n| n.try_into().ok();
    bool: i64::from, |n| Some(n != 0);
    u64: number, |n| u64::try_from(n).ok();
    usize: |n| number(n as u64), |n| usize::try_from(n).ok();
    SessionNo: |it| number(it.0), |n| u64::try_from(n).ok().map(SessionNo);
    Seq: |it| number(it.0), |n| u64::try_from(n).ok().map(Seq);
    Ordinal: |it| number(it.0), |n| u64::try_from(n).ok().map(Ordinal);
    Position: |it| number(it.0), |n| u64::try_from(n).ok().map(Position);
    Branch: |it| it.0.into(), |n| u32::try_from(n).ok().map(Branch);
    Millis: |it| it.0, |n| Some(Millis(n));
    Level: |it| it as i64, |n| Level::ALL.get(usize::try_from(n).ok()?).copied();
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Blob(bytes)
    }
}

impl<'a> From<&'a Link> for Value<'a> {
    fn from(link: &'a Link) -> Self {
        Value::Blob(link.as_bytes())
    }
}

/// What goes into a column as text or bytes that it holds.
macro_rules! borrowed {
    ($($kind:ty: $variant:ident, $borrow:expr;)*) => {$(
        impl ToSql for $kind {
            fn value(&self) -> Value<'_> {
                let borrow: fn(&$kind) -> &_ = $borrow;
                Value::$variant(borrow(self))
            }

            fn kind() -> Kind {
                Kind::$variant
            }
        }
    )*};
}

borrowed! {
    Link: Blob, |it| it.as_bytes();
    Checksum: Blob, |it| &it.0;
    RedactedText: Text, |it| it.as_str();
}

impl FromSql for Checksum {
    fn from_value(value: Value<'_>) -> Result<Self> {
        <[u8; 32]>::from_value(value).map(Checksum)
    }
}

/// Text that is stored was redacted before.
impl FromSql for RedactedText {
    #[expect(clippy::disallowed_methods, reason = "it comes from our own rows")]
    fn from_value(value: Value<'_>) -> Result<Self> {
        match value {
            Value::Text(text) => Ok(Self::read_back(text.to_owned())),
            Value::Blob(bytes) => Ok(Self::read_back(String::from_utf8_lossy(bytes).into_owned())),
            other => Err(misfit("a text", other)),
        }
    }
}

/// Texts as a JSON array; damaged ones are none.
impl FromSql for Vec<RedactedText> {
    #[expect(clippy::disallowed_methods, reason = "they come from our own rows")]
    fn from_value(value: Value<'_>) -> Result<Self> {
        let texts: Vec<String> = serde_json::from_str(value.as_str()?).unwrap_or_default();
        Ok(texts.into_iter().map(RedactedText::read_back).collect())
    }
}

/// The words by which the variants of an enum are stored and shown.
macro_rules! words {
    ($kind:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $kind {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }

            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }

        impl $crate::engine::ToSql for $kind {
            fn value(&self) -> $crate::engine::Value<'_> {
                $crate::engine::Value::Text(self.as_str())
            }

            fn kind() -> $crate::engine::Kind {
                $crate::engine::Kind::Text
            }
        }

        impl $crate::engine::FromSql for $kind {
            fn from_value(value: $crate::engine::Value<'_>) -> $crate::error::Result<Self> {
                let word = value.as_str()?;
                Self::parse(word).ok_or_else(|| {
                    $crate::engine::Error::broken(0, concat!("not a word of ", stringify!($kind)))
                })
            }
        }
    };
}
pub(crate) use words;

impl FromSql for Link {
    fn from_value(value: Value<'_>) -> Result<Self> {
        <[u8; 16]>::from_value(value).map(Link::new)
    }
}

/// The values of one of the runs of a statement, of any kinds.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::engine::Value::from($value)),*]
    };
}
pub(crate) use values;

/// What one column or several of a row become, read from left to right.
pub(crate) trait FromColumns: Sized {
    fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self>;
}

/// The columns of a row that are not read yet.
pub(crate) struct Columns<'a, 'r> {
    row: &'a Row<'r>,
    next: usize,
}

impl<'a, 'r> Columns<'a, 'r> {
    pub(crate) fn of(row: &'a Row<'r>) -> Self {
        Self { row, next: 0 }
    }

    pub(crate) fn get<T: FromColumns>(&mut self) -> Result<T> {
        T::from_columns(self)
    }
}

impl<T: FromSql> FromColumns for T {
    fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
        let at = columns.next;
        columns.next += 1;
        columns.row.get(at)
    }
}

macro_rules! tuples_are_columns {
    ($(($($kind:ident),+);)*) => {$(
        impl<$($kind: FromColumns),+> FromColumns for ($($kind,)+) {
            fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
                Ok(($(columns.get::<$kind>()?,)+))
            }
        }
    )*};
}

tuples_are_columns! {
    (A);
    (A, B);
    (A, B, C);
    (A, B, C, D);
    (A, B, C, D, E);
    (A, B, C, D, E, F);
}

macro_rules! three_columns {
    ($($kind:ty),*) => {$(
        impl FromColumns for [$kind; 3] {
            fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
                Ok([columns.get()?, columns.get()?, columns.get()?])
            }
        }
    )*};
}

three_columns!(u64, Ordinal, Seq);

/// Two columns that are both null or neither.
impl<A: FromSql, B: FromSql> FromColumns for Option<(A, B)> {
    fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
        let (a, b): (Option<A>, Option<B>) = columns.get()?;
        Ok(a.zip(b))
    }
}

/// Says in which order the columns of a record are read into its fields, of which some are
/// records themselves.
macro_rules! record {
    ($($record:path { $($field:ident),* $(,)? })*) => {$(
        impl $crate::engine::FromColumns for $record {
            fn from_columns(
                columns: &mut $crate::engine::Columns<'_, '_>,
            ) -> $crate::error::Result<Self> {
                Ok(Self { $($field: columns.get()?),* })
            }
        }
    )*};
}
pub(crate) use record;

record! {
    CutPolicy { micro_turns, mini_turns, macro_turns, micro_max_tokens }
    TurnId { session, seq }
    TurnIdentity { lookup, body }
}

/// Reads a row as a record or a tuple.
pub(crate) fn tuple<T: FromColumns>(row: &Row<'_>) -> Result<T> {
    Columns::of(row).get()
}

/// Reads the first column of a row.
pub(crate) fn column<T: FromSql>(row: &Row<'_>) -> Result<T> {
    row.get(0)
}

/// The columns of a row to insert with their values: `fields! { tenant: no.tenant, name }`.
macro_rules! fields {
    (@ $value:ident) => {
        &$value as &dyn $crate::engine::ToSql
    };
    (@ $column:ident $value:expr) => {
        &$value as &dyn $crate::engine::ToSql
    };
    ($($column:ident $(: $value:expr)?),* $(,)?) => {
        &[$((stringify!($column), $crate::engine::fields!(@ $column $($value)?))),*]
    };
}
pub(crate) use fields;
