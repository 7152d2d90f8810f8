//! The bytes of a backup. `docs/format-backup.md` specifies them.
//!
//! A line with the version, then blocks, each with its own checksum: a header, rows, objects,
//! an end that counts them, and a seal over all of it that only the master key makes. What is
//! read here is trusted only after the seal was checked.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::row;
use super::row::Values;
use crate::engine::Owned;
use crate::error::{Result, StoreError};
use crate::files::write_error;
use crate::keys::MasterKey;
use crate::tables;
use crate::tables::Table;

/// What the file begins with; the number is the version of the format.
const MAGIC: &[u8] = b"icecore backup 1\n";

/// What the files of every version begin with.
const ANY_MAGIC: &[u8] = b"icecore backup ";

/// Bytes of rows in a block, before they are compressed; one row may be more.
const BLOCK_BYTES: usize = 1 << 20;

/// The most bytes that a block holds, compressed or not.
const MAX_BLOCK_BYTES: u32 = 512 << 20;

/// Rows are mostly words and numbers, and a backup is written while people wait.
const COMPRESSION: i32 = 3;

/// What the seal is made for.
const SEAL_LABEL: &[u8] = b"icecore backup v1";

const CHECKSUM_BYTES: usize = 32;

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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Header {
    pub(super) schema: i64,
    pub(super) created_at: i64,
    /// The memory, if the backup is of one alone.
    pub(super) memory: Option<String>,
    pub(super) everything: bool,
    /// The check value of the master key that sealed the tenants' keys.
    pub(super) key_check: String,
    pub(super) tenants: Vec<HeaderTenant>,
    pub(super) notes: BTreeMap<String, String>,
    /// The columns of each table, in order.
    pub(super) tables: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HeaderTenant {
    pub(super) name: String,
    pub(super) number: i64,
    /// The position at which the backup is consistent.
    pub(super) position: i64,
}

/// A pack or the body of an archive; precedes its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Object {
    pub(super) is_archive: bool,
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct End {
    pub(super) rows: BTreeMap<String, u64>,
    pub(super) objects: u64,
    pub(super) object_bytes: u64,
    /// Of every byte before this block.
    pub(super) sha256: String,
}

// Writing

pub(super) struct Writer {
    path: PathBuf,
    out: BufWriter<File>,
    hash: Sha256,
    end: End,
    bytes: u64,
    /// Encoded rows of one table that do not fill a block yet, and how many they are.
    rows: Vec<u8>,
    row_count: u32,
}

impl Writer {
    /// Begins the file anew if it is there.
    pub(super) fn create(path: &Path, header: &Header) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path).map_err(|source| write_error("create", path, source))?;
        let mut writer = Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(1 << 18, file),
            hash: Sha256::new(),
            end: End::default(),
            bytes: 0,
            rows: Vec::new(),
            row_count: 0,
        };
        writer.raw(MAGIC)?;
        writer.json(Kind::Header, header)?;
        Ok(writer)
    }

    /// Adds a row. The rows of a table come together and end with [`Writer::end_rows`].
    pub(super) fn row(&mut self, table: &Table, values: &[Owned]) -> Result<()> {
        row::encode(values, &mut self.rows);
        self.row_count += 1;
        if self.rows.len() >= BLOCK_BYTES { self.end_rows(table) } else { Ok(()) }
    }

    pub(super) fn end_rows(&mut self, table: &Table) -> Result<()> {
        if self.row_count == 0 {
            return Ok(());
        }
        let mut plain = vec![table.name.len() as u8];
        plain.extend_from_slice(table.name.as_bytes());
        plain.extend_from_slice(&self.row_count.to_le_bytes());
        plain.append(&mut self.rows);
        *self.end.rows.entry(table.name.to_owned()).or_default() += u64::from(self.row_count);
        self.row_count = 0;
        let mut stored = (plain.len() as u32).to_le_bytes().to_vec();
        let packed = zstd::bulk::compress(&plain, COMPRESSION);
        stored.extend(packed.map_err(|source| self.failed(source))?);
        self.block(Kind::Rows, &stored)
    }

    pub(super) fn object(&mut self, object: &Object, bytes: &[u8]) -> Result<()> {
        self.end.objects += 1;
        self.end.object_bytes += object.bytes;
        self.json(Kind::Object, object)?;
        bytes.chunks(BLOCK_BYTES).try_for_each(|part| self.block(Kind::Data, part))
    }

    /// Ends the file, durably. Returns what it holds and its size.
    pub(super) fn finish(mut self, master: &MasterKey) -> Result<(End, u64)> {
        self.end.sha256 = hex::encode(self.hash.clone().finalize());
        let end = self.end.clone();
        self.json(Kind::End, &end)?;
        self.block(Kind::Seal, &seal(master, &self.hash))?;
        let durable = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        durable.map_err(|source| self.failed(source))?;
        Ok((end, self.bytes))
    }

    fn json(&mut self, kind: Kind, value: &impl Serialize) -> Result<()> {
        let payload = serde_json::to_vec(value).map_err(|error| self.failed(error.into()))?;
        self.block(kind, &payload)
    }

    fn block(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).ok().filter(|length| *length <= MAX_BLOCK_BYTES);
        let too_large = || self.failed(std::io::Error::other("a row is too large"));
        let head = head(kind, length.ok_or_else(too_large)?);
        self.raw(&head)?;
        self.raw(payload)?;
        self.raw(&checksum(&head, payload))
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> StoreError {
        write_error("write", &self.path, source)
    }
}

fn head(kind: Kind, length: u32) -> [u8; 5] {
    let [a, b, c, d] = length.to_le_bytes();
    [kind as u8, a, b, c, d]
}

fn checksum(head: &[u8], payload: &[u8]) -> [u8; CHECKSUM_BYTES] {
    Sha256::new().chain_update(head).chain_update(payload).finalize().into()
}

fn seal(master: &MasterKey, hash: &Sha256) -> [u8; 32] {
    master.tag(SEAL_LABEL, &hash.clone().finalize())
}

// Reading

/// The file at `path` is no backup, or not a whole one.
pub(super) fn bad(path: &Path, reason: &str) -> StoreError {
    StoreError::BadBackup { path: path.to_owned(), reason: reason.to_owned() }
}

pub(super) enum Piece {
    /// Rows of a table, which has the columns that the file has of it.
    Rows(Arc<Table>, Vec<Values>),
    /// An object whose bytes have the checksum that it names.
    Object(Object, Vec<u8>),
    End(End),
}

/// How many bytes of a file were read, and their checksum.
pub(super) type Mark = (u64, [u8; 32]);

pub(super) struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    hash: Sha256,
    bytes: u64,
    tables: BTreeMap<String, Arc<Table>>,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<(Self, Header)> {
        let mut reader = Self::open_at(path, 0)?;
        reader.magic()?;
        let header = reader.expect(Kind::Header)?;
        let header: Header = reader.parse(&header, "header")?;
        if header.schema > tables::SCHEMA {
            return Err(reader.other_version(format!(
                "its rows have schema {}, and this program knows up to {}",
                header.schema,
                tables::SCHEMA
            )));
        }
        for (name, columns) in &header.tables {
            let known = known_table(name, columns)
                .ok_or_else(|| reader.bad("it has a table or a column that is unknown here"))?;
            reader.tables.insert(name.clone(), Arc::new(known));
        }
        Ok((reader, header))
    }

    /// Opens a file at the beginning of an object.
    pub(super) fn open_at(path: &Path, at: u64) -> Result<Self> {
        let file = File::open(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => bad(path, "there is no such file"),
            _ => StoreError::Io { action: "open", path: path.to_owned(), source },
        })?;
        let mut reader = Self {
            path: path.to_owned(),
            input: BufReader::new(file),
            hash: Sha256::new(),
            bytes: 0,
            tables: BTreeMap::new(),
        };
        reader.input.seek(SeekFrom::Start(at)).map_err(|source| reader.failed(source))?;
        Ok(reader)
    }

    pub(super) fn mark(&self) -> Mark {
        (self.bytes, self.hash.clone().finalize().into())
    }

    pub(super) fn bad(&self, reason: &str) -> StoreError {
        bad(&self.path, reason)
    }

    /// The next piece, up to the end.
    pub(super) fn next(&mut self) -> Result<Piece> {
        let (_, before) = self.mark();
        let (kind, payload) = self.block()?;
        match kind {
            Kind::Rows => {
                let rows = self.rows(&payload);
                let (table, rows) =
                    rows.ok_or_else(|| self.bad("a block of rows does not decode"))?;
                Ok(Piece::Rows(table, rows))
            }
            Kind::Object => {
                let object = self.parse(&payload, "object")?;
                let bytes = self.data(&object)?;
                Ok(Piece::Object(object, bytes))
            }
            Kind::End => {
                let end: End = self.parse(&payload, "end")?;
                if end.sha256 != hex::encode(before) {
                    return Err(self.bad("its checksum is wrong"));
                }
                Ok(Piece::End(end))
            }
            Kind::Header | Kind::Data | Kind::Seal => Err(self.out_of_order()),
        }
    }

    /// Checks the seal, which nothing follows. Returns the size of the file.
    pub(super) fn finish(mut self, master: &MasterKey) -> Result<u64> {
        let expected = seal(master, &self.hash);
        if self.expect(Kind::Seal)? != expected {
            return Err(self.bad("its seal was not made with the master key that it names"));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(self.bytes),
            Ok(_) => Err(self.bad("something follows its end")),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn magic(&mut self) -> Result<()> {
        let mut found = vec![0; MAGIC.len()];
        let is_ours = self.input.read_exact(&mut found).is_ok() && found.starts_with(ANY_MAGIC);
        if !is_ours {
            return Err(self.bad("it does not begin like one"));
        }
        if found != MAGIC {
            return Err(self.other_version("its format is of another version".to_owned()));
        }
        self.hash.update(&found);
        self.bytes += found.len() as u64;
        Ok(())
    }

    fn expect(&mut self, expected: Kind) -> Result<Vec<u8>> {
        match self.block()? {
            (kind, payload) if kind == expected => Ok(payload),
            _ => Err(self.out_of_order()),
        }
    }

    fn block(&mut self) -> Result<(Kind, Vec<u8>)> {
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length);
        let kind = Kind::of(kind).filter(|_| length <= MAX_BLOCK_BYTES);
        let kind = kind.ok_or_else(|| self.bad("it has a block of an unknown kind or length"))?;
        // Not all at once: the length may be a lie.
        let mut payload = Vec::new();
        let taken = (&mut self.input).take(u64::from(length)).read_to_end(&mut payload);
        let taken = taken.map_err(|source| self.failed(source))?;
        let mut found = [0; CHECKSUM_BYTES];
        self.fill(&mut found)?;
        if taken != length as usize || found != checksum(&head, &payload) {
            return Err(self.bad("a block has another checksum"));
        }
        for part in [&head[..], &payload, &found] {
            self.hash.update(part);
            self.bytes += part.len() as u64;
        }
        Ok((kind, payload))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.input.read_exact(bytes).map_err(|source| self.failed(source))
    }

    fn rows(&self, stored: &[u8]) -> Option<(Arc<Table>, Vec<Values>)> {
        let (length, packed) = stored.split_first_chunk()?;
        let length = u32::from_le_bytes(*length);
        if length > MAX_BLOCK_BYTES {
            return None;
        }
        let plain = zstd::bulk::decompress(packed, length as usize).ok()?;
        let (&name_length, rest) = plain.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(name_length))?;
        let table = self.tables.get(std::str::from_utf8(name).ok()?)?;
        let (count, mut rest) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(*count);
        let rows = (0..count).map(|_| row::decode(&mut rest, &table.columns));
        let rows = rows.collect::<Option<_>>()?;
        rest.is_empty().then(|| (Arc::clone(table), rows))
    }

    /// The bytes of an object, from the blocks that follow it.
    fn data(&mut self, object: &Object) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < object.bytes {
            bytes.extend(self.expect(Kind::Data)?);
        }
        let is_whole = bytes.len() as u64 == object.bytes;
        if !is_whole || hex::encode(Sha256::digest(&bytes)) != object.sha256 {
            return Err(self.bad("an object has another checksum"));
        }
        Ok(bytes)
    }

    fn parse<T: for<'a> Deserialize<'a>>(&self, payload: &[u8], what: &str) -> Result<T> {
        let parsed = serde_json::from_slice(payload);
        parsed.map_err(|_| self.bad(&format!("its {what} does not read")))
    }

    fn out_of_order(&self) -> StoreError {
        self.bad("its blocks are out of order")
    }

    fn other_version(&self, reason: String) -> StoreError {
        StoreError::BackupVersion { path: self.path.clone(), reason }
    }

    fn failed(&self, source: std::io::Error) -> StoreError {
        match source.kind() {
            ErrorKind::UnexpectedEof => self.bad("it is cut off"),
            _ => StoreError::Io { action: "read", path: self.path.clone(), source },
        }
    }
}

/// A table with those of its columns that a file has, or `None` if the file has others.
fn known_table(name: &str, columns: &[String]) -> Option<Table> {
    let mut table = tables::table(name)?.clone();
    let column = |name: &String| table.at(name).map(|at| table.columns[at]);
    let columns: Vec<_> = columns.iter().map(column).collect::<Option<_>>()?;
    table.columns = columns;
    let has_key = table.key.iter().all(|column| table.at(column).is_some());
    has_key.then_some(table)
}

/// A backup with the seal of another.
#[cfg(test)]
pub(super) fn forged(whole: &[u8], master: &MasterKey) -> Vec<u8> {
    let before = &whole[..whole.len() - (5 + 32 + CHECKSUM_BYTES)];
    let seal = seal(master, &Sha256::new().chain_update(before));
    let head = head(Kind::Seal, seal.len() as u32);
    [before, &head, &seal, &checksum(&head, &seal)].concat()
}
