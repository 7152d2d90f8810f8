//! How the types of a memory lie in columns, and rows as tuples.

use icecore_domain::chunk::Level;
use icecore_domain::identity::Link;
use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo};
use icecore_domain::time::Millis;

use super::{Error, FromSql, Kind, Result, Row, ToSql, Value};

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

impl ToSql for Link {
    fn value(&self) -> Value<'_> {
        Value::from(self)
    }

    fn kind() -> Kind {
        Kind::Blob
    }
}

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

/// What a whole row becomes: the first column alone, or a tuple of columns.
pub(crate) trait FromRow: Sized {
    fn from_row(row: &Row<'_>) -> Result<Self>;
}

macro_rules! tuples_are_rows {
    ($(($($kind:ident $at:literal),+);)*) => {$(
        impl<$($kind: FromSql),+> FromRow for ($($kind,)+) {
            fn from_row(row: &Row<'_>) -> Result<Self> {
                Ok(($(row.get::<_, $kind>($at)?,)+))
            }
        }
    )*};
}

tuples_are_rows! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}

/// Reads a row as a tuple of its columns.
pub(crate) fn tuple<T: FromRow>(row: &Row<'_>) -> Result<T> {
    T::from_row(row)
}

/// Reads the first column of a row.
pub(crate) fn column<T: FromSql>(row: &Row<'_>) -> Result<T> {
    row.get(0)
}
