//! How the columns' file spells a document: some fifteen bytes.
//!
//! Numbers are variable in length, and those that grow are told as steps from
//! the document before. A name is spelled where it first occurs.
//!
//! ```text
//! head        kind (bits 0–1), role (2–4), speaker: none, known, new (5–6)
//! speaker     its number, or its name after its length
//! signs, length
//! at          step
//! turn        session (step), seq (step), branch
//! summary     session (step), branch, level, first
//! entry       position    fact   number
//! ```

use icecore_domain::chunk::Level;
use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo};
use icecore_domain::time::Millis;

use crate::columns::{Columns, Record};
use crate::document::{Doc, Role, Source};

/// What the next document's steps are counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    at: i64,
    session: u64,
    seq: u64,
    names: u32,
}

/// The documents of `columns` from `first` to before `end`.
pub(crate) fn encode(columns: &Columns, first: Doc, end: Doc, cursor: &mut Cursor) -> Vec<u8> {
    let mut bytes = Vec::new();
    (first..end).for_each(|doc| encode_one(columns, doc, cursor, &mut bytes));
    bytes
}

fn encode_one(columns: &Columns, doc: Doc, cursor: &mut Cursor, out: &mut Vec<u8>) {
    let source = columns.source(doc);
    let speaker = columns.speaker(doc);
    let known = match speaker {
        None => 0,
        Some(number) if number < cursor.names => 1,
        Some(_) => 2,
    };
    out.push(kind(source) | (columns.role(doc) as u8) << 2 | known << 5);
    match speaker {
        Some(number) if known == 1 => put(out, u64::from(number)),
        Some(number) => {
            let name = &columns.names()[number as usize];
            put(out, name.len() as u64);
            out.extend(name.as_bytes());
            cursor.names += 1;
        }
        None => {}
    }
    put(out, u64::from(columns.signs(doc)));
    put(out, u64::from(columns.length(doc)));
    put_step(out, &mut cursor.at, columns.at(doc).0);
    match source {
        Source::Turn { session, seq, branch } => {
            put_number_step(out, &mut cursor.session, session.0);
            put_number_step(out, &mut cursor.seq, seq.0);
            put(out, u64::from(branch.0));
        }
        Source::Summary { session, branch, level, first } => {
            put_number_step(out, &mut cursor.session, session.0);
            put(out, u64::from(branch.0));
            put(out, level as u64);
            put(out, first.0);
        }
        Source::Entry { began } => put(out, began.0),
        Source::Fact { number } => put(out, number),
    }
}

fn kind(source: Source) -> u8 {
    match source {
        Source::Turn { .. } => 0,
        Source::Summary { .. } => 1,
        Source::Entry { .. } => 2,
        Source::Fact { .. } => 3,
    }
}

/// Adds the documents that `bytes` spell; `None` where they spell none.
pub(crate) fn decode(bytes: &[u8], columns: &mut Columns, cursor: &mut Cursor) -> Option<()> {
    let mut input = Input(bytes);
    while !input.0.is_empty() {
        let record = decode_one(&mut input, columns, cursor)?;
        columns.push(record);
    }
    Some(())
}

fn decode_one(input: &mut Input<'_>, columns: &Columns, cursor: &mut Cursor) -> Option<Record> {
    let head = *input.bytes(1)?.first()?;
    let role = *Role::ALL.get(usize::from(head >> 2 & 7))?;
    let speaker = match head >> 5 {
        0 => None,
        1 => Some(columns.names().get(input.size()?)?.clone()),
        2 => {
            let length = input.size()?;
            cursor.names += 1;
            Some(std::str::from_utf8(input.bytes(length)?).ok()?.to_owned())
        }
        _ => return None,
    };
    let signs = input.small()?;
    let length = input.small()?;
    let at = Millis(input.step(&mut cursor.at)?);
    let source = match head & 3 {
        0 => Source::Turn {
            session: SessionNo(input.number_step(&mut cursor.session)?),
            seq: Seq(input.number_step(&mut cursor.seq)?),
            branch: Branch(input.small()?),
        },
        1 => Source::Summary {
            session: SessionNo(input.number_step(&mut cursor.session)?),
            branch: Branch(input.small()?),
            level: *Level::ALL.get(input.size()?)?,
            first: Ordinal(input.number()?),
        },
        2 => Source::Entry { began: Position(input.number()?) },
        _ => Source::Fact { number: input.number()? },
    };
    Some(Record { source, at, role, speaker, signs, length })
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Steps wrap around, so that any number follows any other.
fn put_step(out: &mut Vec<u8>, from: &mut i64, to: i64) {
    let step = to.wrapping_sub(*from);
    put(out, (step << 1 ^ step >> 63) as u64);
    *from = to;
}

fn put_number_step(out: &mut Vec<u8>, from: &mut u64, to: u64) {
    let mut signed = *from as i64;
    put_step(out, &mut signed, to as i64);
    *from = to;
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes(1)?.first()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn size(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn step(&mut self, from: &mut i64) -> Option<i64> {
        let coded = self.number()?;
        *from = from.wrapping_add((coded >> 1) as i64 ^ -((coded & 1) as i64));
        Some(*from)
    }

    fn number_step(&mut self, from: &mut u64) -> Option<u64> {
        let mut signed = *from as i64;
        *from = self.step(&mut signed)? as u64;
        Some(*from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Record> {
        let source = prop_oneof![
            (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(a, b, c)| Source::Turn {
                session: SessionNo(a),
                seq: Seq(b),
                branch: Branch(c)
            }),
            (0..5_u64, 0..3_usize, any::<u64>()).prop_map(|(a, level, b)| Source::Summary {
                session: SessionNo(a),
                branch: Branch::MAIN,
                level: Level::ALL[level],
                first: Ordinal(b)
            }),
            any::<u64>().prop_map(|began| Source::Entry { began: Position(began) }),
            any::<u64>().prop_map(|number| Source::Fact { number }),
        ];
        let speaker = proptest::option::of("[a-cé]{0,2}");
        (source, any::<i64>(), 0..6_usize, speaker, any::<u32>(), any::<u32>()).prop_map(
            |(source, at, role, speaker, signs, length)| {
                let (at, role) = (Millis(at), Role::ALL[role]);
                Record { source, at, role, speaker, signs, length }
            },
        )
    }

    proptest! {
        #[test]
        fn columns_come_back_in_any_number_of_parts(
            records in proptest::collection::vec(record(), 0..30),
            middle in 0..30_usize,
        ) {
            let mut columns = Columns::default();
            records.iter().for_each(|record| { columns.push(record.clone()); });
            let middle = middle.min(records.len()) as Doc;
            let (mut write, mut read) = (Cursor::default(), Cursor::default());
            let first = encode(&columns, 0, middle, &mut write);
            let second = encode(&columns, middle, records.len() as Doc, &mut write);

            let mut back = Columns::default();
            prop_assert!(decode(&first, &mut back, &mut read).is_some());
            prop_assert!(decode(&second, &mut back, &mut read).is_some());
            prop_assert_eq!(write, read);
            let found: Vec<Record> = (0..back.len() as Doc).map(|doc| back.record(doc)).collect();
            prop_assert_eq!(&found, &records);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            decode(&bytes, &mut Columns::default(), &mut Cursor::default());
        }
    }
}
