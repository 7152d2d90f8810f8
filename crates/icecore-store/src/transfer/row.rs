//! A row as bytes: the same for the same values, whichever engine they came from.
//!
//! Each value is a byte that says its type, then a number in eight bytes, or a length in
//! four and that many bytes. Numbers are little-endian.

use crate::engine;
use crate::engine::{Kind, Owned, Row, Value};
use crate::error::Result;
use crate::tables::{Column, Table};

impl Table {
    /// The value of a column in a row of this table.
    pub(crate) fn value<'r>(&self, row: &'r [Owned], column: &str) -> Option<&'r Owned> {
        self.at(column).and_then(|at| row.get(at))
    }

    /// Sets a column in a row of this table, if the table has that column.
    pub(crate) fn set(&self, row: &mut [Owned], column: &str, value: Owned) {
        if let Some(place) = self.at(column).and_then(|at| row.get_mut(at)) {
            *place = value;
        }
    }

    /// The values of the primary key in a row of this table.
    pub(crate) fn key_of(&self, row: &[Owned]) -> Vec<Owned> {
        self.key.iter().filter_map(|column| self.value(row, column).cloned()).collect()
    }
}

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const TEXT: u8 = 2;
const BLOB: u8 = 3;

/// Values in the order of a table's columns.
pub(super) type Values = Vec<Owned>;

/// Reads a row with these columns. Fails if a value is not of its column's kind.
pub(super) fn read(row: &Row<'_>, columns: &[Column]) -> Result<Values> {
    let value = |(at, column): (usize, &Column)| match (row.get_ref(at)?, column.kind) {
        (Value::Null(_), kind) => Ok(Owned::Null(kind)),
        (Value::Integer(number), Kind::Integer) => Ok(Owned::Integer(number)),
        (Value::Text(text), Kind::Text) => Ok(Owned::Text(text.to_owned())),
        (Value::Blob(bytes), Kind::Blob) => Ok(Owned::Blob(bytes.to_vec())),
        _ => Err(engine::Error::broken(at, format!("`{}` is of another kind", column.name))),
    };
    columns.iter().enumerate().map(value).collect()
}

/// Appends the bytes of a row.
pub(super) fn encode(values: &[Owned], out: &mut Vec<u8>) {
    for value in values {
        match value {
            Owned::Null(_) => out.push(NULL),
            Owned::Integer(number) => {
                out.push(INTEGER);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Owned::Text(text) => put_bytes(TEXT, text.as_bytes(), out),
            Owned::Blob(bytes) => put_bytes(BLOB, bytes, out),
        }
    }
}

fn put_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    // A column holds less than SQLite's billion bytes.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Takes a row off the front of `input`; `None` if the bytes do not fit these columns.
pub(super) fn decode(input: &mut &[u8], columns: &[Column]) -> Option<Values> {
    columns.iter().map(|column| decode_value(input, column.kind)).collect()
}

fn decode_value(input: &mut &[u8], kind: Kind) -> Option<Owned> {
    let (&tag, rest) = input.split_first()?;
    *input = rest;
    match (tag, kind) {
        (NULL, _) => Some(Owned::Null(kind)),
        (INTEGER, Kind::Integer) => {
            let (number, rest) = input.split_first_chunk()?;
            *input = rest;
            Some(Owned::Integer(i64::from_le_bytes(*number)))
        }
        (TEXT, Kind::Text) => {
            let bytes = take_bytes(input)?.to_vec();
            String::from_utf8(bytes).ok().map(Owned::Text)
        }
        (BLOB, Kind::Blob) => take_bytes(input).map(|bytes| Owned::Blob(bytes.to_vec())),
        _ => None,
    }
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = input.split_first_chunk()?;
    let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *input = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tables::TABLES;

    fn value(kind: Kind) -> BoxedStrategy<Owned> {
        let some = match kind {
            Kind::Integer => any::<i64>().prop_map(Owned::Integer).boxed(),
            Kind::Text => "[\\x00-\\x03]{0,3}|\\PC{0,9}".prop_map(Owned::Text).boxed(),
            Kind::Blob => prop::collection::vec(any::<u8>(), 0..9).prop_map(Owned::Blob).boxed(),
        };
        prop_oneof![4 => some, 1 => Just(Owned::Null(kind))].boxed()
    }

    fn rows() -> impl Strategy<Value = (usize, Vec<Values>)> {
        (0..TABLES.len()).prop_flat_map(|at| {
            let row: Vec<_> = TABLES[at].columns.iter().map(|column| value(column.kind)).collect();
            (Just(at), prop::collection::vec(row, 0..4))
        })
    }

    proptest! {
        #[test]
        fn rows_come_back((at, rows) in rows()) {
            let columns = &TABLES[at].columns;
            let mut bytes = Vec::new();
            rows.iter().for_each(|row| encode(row, &mut bytes));
            let mut input = bytes.as_slice();
            for row in &rows {
                prop_assert_eq!(&decode(&mut input, columns).unwrap(), row);
            }
            prop_assert!(input.is_empty());
            prop_assert!(decode(&mut input, columns).is_none());
        }

        #[test]
        fn nothing_stops_it(at in 0..TABLES.len(), bytes in prop::collection::vec(0_u8..5, 0..99)) {
            let mut input = bytes.as_slice();
            while decode(&mut input, &TABLES[at].columns).is_some() && !input.is_empty() {}
        }
    }
}
