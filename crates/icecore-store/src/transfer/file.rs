//! The bytes of a backup. `docs/format-backup.md` specifies them.
//!
//! A line that says what it is, then blocks, each with its own checksum: a header, rows,
//! objects, an end that counts them, and a seal over all of it that only the master key
//! makes. What is read here is believed only once the seal was seen.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::row;
use super::row::Values;
use crate::keys::MasterKey;
use crate::tables;
use crate::tables::{Column, Table};

/// What the file begins with; the number is the version of the format.
pub(super) const MAGIC: &[u8] = b"icecore backup 1\n";

/// What the files of every version begin with.
const ANY_MAGIC: &[u8] = b"icecore backup ";

/// Bytes of rows in a block, before they are compressed; one row may be more.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// The most bytes that a block holds, compressed or not.
const MAX_BLOCK_BYTES: u32 = 512 << 20;

/// Rows are mostly words and numbers, and a backup is written while people wait.
const COMPRESSION: i32 = 3;

/// What the seal is made for.
const SEAL_LABEL: &[u8] = b"icecore backup v1";

const CHECKSUM_BYTES: usize = 32;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Header = b'H' as isize,
    Rows = b'R' as isize,
    Object = b'O' as isize,
    Data = b'D' as isize,
    End = b'E' as isize,
    Seal = b'S' as isize,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let kinds = [Kind::Header, Kind::Rows, Kind::Object, Kind::Data, Kind::End, Kind::Seal];
        kinds.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What a backup says of itself before anything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Header {
    /// The schema that its rows have.
    pub(super) schema: i64,
    /// When it was taken.
    pub(super) created_at: i64,
    /// The memory, where it is of one alone.
    pub(super) memory: Option<String>,
    /// Whether it is of every tenant.
    pub(super) everything: bool,
    /// Lets one tell whether a master key is the one that sealed the tenants' keys.
    pub(super) key_check: String,
    /// The tenants, with the position that it is consistent at.
    pub(super) tenants: Vec<HeaderTenant>,
    /// What the store knew of how it was derived.
    pub(super) notes: BTreeMap<String, String>,
    /// The columns of each table, in order.
    pub(super) tables: BTreeMap<String, Vec<String>>,
}

/// A tenant in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HeaderTenant {
    pub(super) name: String,
    pub(super) number: i64,
    pub(super) position: i64,
}

/// What is said of an object before its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Object {
    /// Whether it is the body of an archive, and else a pack.
    pub(super) is_archive: bool,
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// What there was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct End {
    /// Rows by table.
    pub(super) rows: BTreeMap<String, u64>,
    pub(super) objects: u64,
    pub(super) object_bytes: u64,
    /// Of every byte before this block.
    pub(super) sha256: String,
}

// Writing

/// Writes a backup, block by block.
pub(super) struct Writer<W> {
    out: W,
    hash: Sha256,
    end: End,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(out: W, header: &Header) -> std::io::Result<Self> {
        let mut writer = Self { out, hash: Sha256::new(), end: End::default(), bytes: 0 };
        writer.raw(MAGIC)?;
        writer.block(Kind::Header, &serde_json::to_vec(header)?)?;
        Ok(writer)
    }

    /// Rows of a table, encoded, as many as that.
    pub(super) fn rows(&mut self, table: &str, count: u32, rows: &[u8]) -> std::io::Result<()> {
        let mut plain = Vec::with_capacity(rows.len() + table.len() + 8);
        plain.push(table.len() as u8);
        plain.extend_from_slice(table.as_bytes());
        plain.extend_from_slice(&count.to_le_bytes());
        plain.extend_from_slice(rows);
        *self.end.rows.entry(table.to_owned()).or_default() += u64::from(count);
        let mut stored = (plain.len() as u32).to_le_bytes().to_vec();
        stored.extend(zstd::bulk::compress(&plain, COMPRESSION)?);
        self.block(Kind::Rows, &stored)
    }

    pub(super) fn object(&mut self, object: &Object, bytes: &[u8]) -> std::io::Result<()> {
        self.end.objects += 1;
        self.end.object_bytes += object.bytes;
        self.block(Kind::Object, &serde_json::to_vec(object)?)?;
        bytes.chunks(BLOCK_BYTES).try_for_each(|part| self.block(Kind::Data, part))
    }

    /// Ends the file; answers where it was written to, what there was and how many bytes
    /// it has.
    pub(super) fn finish(mut self, master: &MasterKey) -> std::io::Result<(W, End, u64)> {
        self.end.sha256 = hex::encode(self.hash.clone().finalize());
        let end = serde_json::to_vec(&self.end)?;
        self.block(Kind::End, &end)?;
        let seal = seal(master, &self.hash);
        self.block(Kind::Seal, &seal)?;
        self.out.flush()?;
        Ok((self.out, self.end, self.bytes))
    }

    fn block(&mut self, kind: Kind, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).ok().filter(|length| *length <= MAX_BLOCK_BYTES);
        let length = length.ok_or_else(|| std::io::Error::other("a row is too large"))?;
        let head = head(kind as u8, length);
        let checksum = checksum(&head, payload);
        self.raw(&head)?;
        self.raw(payload)?;
        self.raw(&checksum)
    }

    fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

fn head(kind: u8, length: u32) -> [u8; 5] {
    let [a, b, c, d] = length.to_le_bytes();
    [kind, a, b, c, d]
}

fn checksum(head: &[u8], payload: &[u8]) -> [u8; CHECKSUM_BYTES] {
    Sha256::new().chain_update(head).chain_update(payload).finalize().into()
}

fn seal(master: &MasterKey, hash: &Sha256) -> [u8; 32] {
    master.tag(SEAL_LABEL, &hash.clone().finalize())
}

// Reading

/// Why a file is not read on.
#[derive(Debug)]
pub(super) enum Flaw {
    /// The disk.
    Io(std::io::Error),
    /// The file is of another version of the format.
    Version(String),
    /// It is no backup, or not a whole one.
    Bad(String),
}

impl From<std::io::Error> for Flaw {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => bad("it is cut off"),
            _ => Flaw::Io(error),
        }
    }
}

pub(super) fn bad(reason: impl Into<String>) -> Flaw {
    Flaw::Bad(reason.into())
}

/// What reading answers.
pub(super) type Looked<T> = Result<T, Flaw>;

/// A piece of a backup.
pub(super) enum Piece {
    Rows(&'static Table, Vec<Column>, Vec<Values>),
    Object(Object),
    Data(Vec<u8>),
    End(Box<End>),
}

/// Reads a backup, block by block.
pub(super) struct Reader<R> {
    input: R,
    hash: Sha256,
    columns: BTreeMap<String, (&'static Table, Vec<Column>)>,
    bytes: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub(super) fn begin(input: R) -> Looked<(Self, Header)> {
        let mut reader = Self { input, hash: Sha256::new(), columns: BTreeMap::new(), bytes: 0 };
        reader.magic()?;
        let header = reader.expect(Kind::Header)?;
        let header: Header = parse(&header, "header")?;
        if header.schema > tables::SCHEMA {
            return Err(Flaw::Version(format!(
                "its rows have schema {}, and this program knows up to {}",
                header.schema,
                tables::SCHEMA
            )));
        }
        reader.columns = known_columns(&header)?;
        Ok((reader, header))
    }

    /// Goes on in the middle of a file, at a block that is not of rows.
    pub(super) fn resume(input: R) -> Self {
        Self { input, hash: Sha256::new(), columns: BTreeMap::new(), bytes: 0 }
    }

    /// Bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Their checksum.
    pub(super) fn sha256(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }

    fn magic(&mut self) -> Looked<()> {
        let mut found = vec![0; MAGIC.len()];
        let is_ours = self.input.read_exact(&mut found).is_ok() && found.starts_with(ANY_MAGIC);
        if !is_ours {
            return Err(bad("it does not begin like one"));
        }
        if found != MAGIC {
            return Err(Flaw::Version("its format is of another version".to_owned()));
        }
        self.hash.update(&found);
        self.bytes += found.len() as u64;
        Ok(())
    }

    /// The next piece, up to the end.
    pub(super) fn next(&mut self) -> Looked<Piece> {
        let before = self.hash.clone();
        let (kind, payload) = self.block()?;
        match kind {
            Kind::Rows => self.rows(&payload),
            Kind::Object => Ok(Piece::Object(parse(&payload, "object")?)),
            Kind::Data => Ok(Piece::Data(payload)),
            Kind::End => {
                let end: End = parse(&payload, "end")?;
                match end.sha256 == hex::encode(before.finalize()) {
                    true => Ok(Piece::End(Box::new(end))),
                    false => Err(bad("its checksum is wrong")),
                }
            }
            Kind::Header | Kind::Seal => Err(bad("its blocks are out of order")),
        }
    }

    /// What only a holder of the master key writes, and nothing after it. Answers how
    /// many bytes there are, and their checksum.
    pub(super) fn seal(mut self, master: &MasterKey) -> Looked<(u64, [u8; 32])> {
        let expected = seal(master, &self.hash);
        let found = self.expect(Kind::Seal)?;
        if found != expected {
            return Err(bad("its seal was not made with the master key that it names"));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok((self.bytes, self.hash.finalize().into())),
            Ok(_) => Err(bad("something follows its end")),
            Err(error) => Err(Flaw::Io(error)),
        }
    }

    fn expect(&mut self, expected: Kind) -> Looked<Vec<u8>> {
        match self.block()? {
            (kind, payload) if kind == expected => Ok(payload),
            _ => Err(bad("its blocks are out of order")),
        }
    }

    fn block(&mut self) -> Looked<(Kind, Vec<u8>)> {
        let mut head = [0; 5];
        self.input.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length);
        let kind = Kind::of(kind).filter(|_| length <= MAX_BLOCK_BYTES);
        let kind = kind.ok_or_else(|| bad("it has a block that is none"))?;
        // Not all at once: the length may be a lie.
        let mut payload = Vec::new();
        let taken = (&mut self.input).take(u64::from(length)).read_to_end(&mut payload)?;
        let mut found = [0; CHECKSUM_BYTES];
        self.input.read_exact(&mut found)?;
        if taken != length as usize || found != checksum(&head, &payload) {
            return Err(bad("a block has another checksum"));
        }
        self.hash.update(head);
        self.hash.update(&payload);
        self.hash.update(found);
        self.bytes += (head.len() + payload.len() + found.len()) as u64;
        Ok((kind, payload))
    }

    fn rows(&self, stored: &[u8]) -> Looked<Piece> {
        let broken = || bad("a block of rows does not decode");
        let (length, packed) = stored.split_first_chunk().ok_or_else(broken)?;
        let length = u32::from_le_bytes(*length);
        if length > MAX_BLOCK_BYTES {
            return Err(broken());
        }
        let plain = zstd::bulk::decompress(packed, length as usize).map_err(|_| broken())?;
        let (name, mut rest) = named(&plain).ok_or_else(broken)?;
        let (table, columns) = self.columns.get(name).ok_or_else(broken)?;
        let (count, input) = rest.split_first_chunk().ok_or_else(broken)?;
        let count = u32::from_le_bytes(*count);
        rest = input;
        let mut rows = Vec::new();
        for _ in 0..count {
            rows.push(row::decode(&mut rest, columns).ok_or_else(broken)?);
        }
        match rest.is_empty() {
            true => Ok(Piece::Rows(table, columns.clone(), rows)),
            false => Err(broken()),
        }
    }
}

fn named(plain: &[u8]) -> Option<(&str, &[u8])> {
    let (&length, rest) = plain.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    Some((std::str::from_utf8(name).ok()?, rest))
}

fn parse<T: for<'a> Deserialize<'a>>(payload: &[u8], what: &str) -> Looked<T> {
    serde_json::from_slice(payload).map_err(|_| bad(format!("its {what} does not read")))
}

/// The tables of a backup, with those of our columns that it has.
fn known_columns(header: &Header) -> Looked<BTreeMap<String, (&'static Table, Vec<Column>)>> {
    let known = |(name, columns): (&String, &Vec<String>)| {
        let table = tables::table(name)?;
        let column = |name: &String| table.at(name).map(|at| table.columns[at]);
        let columns: Option<Vec<_>> = columns.iter().map(column).collect();
        let columns = columns?;
        // Without its key a row is none.
        let has_key = table.key.iter().all(|key| columns.iter().any(|c| c.name == *key));
        has_key.then(|| (name.clone(), (table, columns)))
    };
    let tables: Option<_> = header.tables.iter().map(known).collect();
    tables.ok_or_else(|| bad("it has a table or a column that is unknown here"))
}

/// A backup with the seal of another.
#[cfg(test)]
pub(super) fn forged(whole: &[u8], master: &MasterKey) -> Vec<u8> {
    let before = &whole[..whole.len() - (5 + 32 + CHECKSUM_BYTES)];
    let hash = Sha256::new().chain_update(before);
    let mut writer =
        Writer { out: before.to_vec(), hash: hash.clone(), end: End::default(), bytes: 0 };
    writer.block(Kind::Seal, &seal(master, &hash)).unwrap();
    writer.out
}
