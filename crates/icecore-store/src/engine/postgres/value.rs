//! Values on their way in and out.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::text;
use crate::engine;
use crate::engine::{Kind, Value};

type Failed = Box<dyn Error + Sync + Send>;

/// The type that a parameter of that kind has.
pub(super) fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Integer => Type::INT8,
        Kind::Text => Type::TEXT,
        Kind::Blob => Type::BYTEA,
    }
}

/// The type of many of them.
pub(super) fn array_of(kind: Kind) -> Type {
    match kind {
        Kind::Integer => Type::INT8_ARRAY,
        Kind::Text => Type::TEXT_ARRAY,
        Kind::Blob => Type::BYTEA_ARRAY,
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Failed> {
        match self {
            Value::Null(_) => Ok(IsNull::Yes),
            Value::Integer(number) => number.to_sql(ty, out),
            Value::Text(text) => text::stored(text).as_ref().to_sql(ty, out),
            Value::Blob(bytes) => bytes.to_sql(ty, out),
        }
    }

    /// A statement is prepared for the kinds of its values.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Text comes as it is stored; [`PgRow`] undoes that.
impl<'a> FromSql<'a> for Value<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Failed> {
        Ok(match *ty {
            Type::INT8 => Value::Integer(i64::from_sql(ty, raw)?),
            Type::INT4 => Value::Integer(i32::from_sql(ty, raw)?.into()),
            Type::INT2 => Value::Integer(i16::from_sql(ty, raw)?.into()),
            Type::BOOL => Value::Integer(bool::from_sql(ty, raw)?.into()),
            Type::NUMERIC => Value::Integer(integral(raw)?),
            Type::BYTEA => Value::Blob(raw),
            _ => Value::Text(str::from_utf8(raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Failed> {
        Ok(Value::Null(Kind::Text))
    }

    fn accepts(ty: &Type) -> bool {
        const KNOWN: [Type; 10] = [
            Type::INT8,
            Type::INT4,
            Type::INT2,
            Type::BOOL,
            Type::NUMERIC,
            Type::BYTEA,
            Type::TEXT,
            Type::VARCHAR,
            Type::NAME,
            Type::UNKNOWN,
        ];
        KNOWN.contains(ty)
    }
}

/// A row that the database found.
#[derive(Debug)]
pub(crate) struct PgRow {
    row: Row,
    /// The texts that are stored otherwise than they are; nearly always none.
    unlike: Vec<(usize, String)>,
}

impl PgRow {
    /// Reads a row.
    pub(crate) fn new(row: Row) -> engine::Result<Self> {
        let mut unlike = Vec::new();
        for (at, column) in row.columns().iter().enumerate() {
            if *column.type_() == Type::TEXT
                && let Ok(Value::Text(stored)) = row.try_get(at)
            {
                let broken = || engine::Error::broken(at, "a text has a broken escape");
                if let Cow::Owned(text) = text::original(stored).ok_or_else(broken)? {
                    unlike.push((at, text));
                }
            }
        }
        Ok(Self { row, unlike })
    }

    /// The value of a column, counted from 0. Truth is 0 or 1.
    pub(crate) fn value(&self, column: usize) -> engine::Result<Value<'_>> {
        if let Some((_, text)) = self.unlike.iter().find(|(at, _)| *at == column) {
            return Ok(Value::Text(text));
        }
        self.row.try_get(column).map_err(|error| {
            let cause = error.source().map(ToString::to_string);
            engine::Error::broken(column, cause.unwrap_or_else(|| error.to_string()))
        })
    }
}

/// A numeric without a fraction, such as the sum of numbers, that fits.
///
/// On the wire it is a count of digits to the base 10,000, the weight of the first, the
/// sign, how many decimals are shown, and the digits.
fn integral(raw: &[u8]) -> Result<i64, Failed> {
    const NEGATIVE: u16 = 0x4000;
    let words: Vec<u16> = raw.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
    let [count, weight, sign, _, digits @ ..] = words.as_slice() else {
        return Err("a numeric is cut off".into());
    };
    let weight = i32::from(*weight as i16);
    if digits.len() != usize::from(*count) || (*sign != 0 && *sign != NEGATIVE) {
        return Err("a numeric is no number".into());
    }
    let mut number: i128 = 0;
    for (place, digit) in (0..).zip(digits) {
        let power = u32::try_from(weight - place).map_err(|_| "a numeric has a fraction")?;
        let unit = 10_000_i128.checked_pow(power);
        let part = unit.and_then(|unit| unit.checked_mul(i128::from(*digit)));
        let sum = part.and_then(|part| number.checked_add(part));
        number = sum.ok_or("a numeric is too large")?;
    }
    let signed = if *sign == NEGATIVE { -number } else { number };
    i64::try_from(signed).map_err(|_| "a numeric is too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A numeric as it comes over the wire.
    fn numeric(weight: i16, sign: u16, digits: &[u16]) -> Vec<u8> {
        let head = [digits.len() as u16, weight as u16, sign, 0];
        head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn sums_are_numbers() {
        let check = |raw: Vec<u8>, expected: i64| assert_eq!(integral(&raw).unwrap(), expected);
        check(numeric(0, 0, &[]), 0);
        check(numeric(0, 0, &[7]), 7);
        check(numeric(1, 0, &[1]), 10_000);
        check(numeric(2, 0x4000, &[1, 2, 3]), -100_020_003);
        check(numeric(4, 0, &[922, 3372, 368, 5477, 5807]), i64::MAX);
        check(numeric(4, 0x4000, &[922, 3372, 368, 5477, 5808]), i64::MIN);
    }

    #[test]
    fn other_numerics_are_refused() {
        let refused = |raw: &[u8]| assert!(integral(raw).is_err(), "{raw:?}");
        refused(&numeric(-1, 0, &[5000]));
        refused(&numeric(0, 0, &[1, 5000]));
        refused(&numeric(0, 0xC000, &[]));
        refused(&numeric(4, 0, &[922, 3372, 368, 5477, 5808]));
        refused(&numeric(100, 0, &[1]));
        refused(&[0, 1, 0]);
        refused(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
