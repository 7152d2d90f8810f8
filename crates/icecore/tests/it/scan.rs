//! Reads a data directory as a thief would who also has the keys: every file, every
//! column of the database, every pack opened, every word of the indexes.

use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
use icecore::Memory;
use icecore_store::PackReader;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// A shorter piece of a secret is met by chance.
const PIECE_BYTES: usize = 12;

/// Everything that can be read, with where it was found.
pub(crate) struct Findings(Vec<(String, Vec<u8>)>);

impl Findings {
    /// Reads the memory in `dir`.
    pub(crate) async fn of(dir: &Path, memory: &Memory) -> Self {
        let mut found = Self(Vec::new());
        let files = files(dir);
        for file in &files {
            let bytes = std::fs::read(file).unwrap();
            found.add(format!("the file {}", file.strip_prefix(dir).unwrap().display()), bytes);
            if file.ends_with("meta.json") {
                found.add_terms(file.parent().unwrap());
            }
        }
        found.add_columns(&dir.join("icecore.db"));
        found.add_packs(dir, memory).await;
        found
    }

    /// Where pieces of these secrets are.
    pub(crate) fn leaks(&self, secrets: &[String]) -> Vec<String> {
        let pieces: Vec<&[u8]> = secrets.iter().flat_map(|secret| pieces(secret)).collect();
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(&pieces).unwrap();
        let of = |(place, bytes): &(String, Vec<u8>)| {
            let hit = automaton.find(bytes)?;
            Some(format!("{place}: …{}…", String::from_utf8_lossy(pieces[hit.pattern()])))
        };
        self.0.iter().filter_map(of).collect()
    }

    /// How many places were read.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.iter().filter(|(place, _)| place.starts_with(what)).count()
    }

    fn add(&mut self, place: String, bytes: Vec<u8>) {
        self.0.push((place, bytes));
    }

    /// Every value of every table, unpacked where it is packed.
    fn add_columns(&mut self, database: &Path) {
        let connection =
            Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut tables = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            .unwrap();
        let tables: Vec<String> =
            tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        for table in tables {
            let mut all = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = all.column_count();
            let mut rows = all.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                for column in 0..columns {
                    let (ValueRef::Text(bytes) | ValueRef::Blob(bytes)) =
                        row.get_ref(column).unwrap()
                    else {
                        continue;
                    };
                    let place = format!("the table {table}, column {column}");
                    if let Ok(unpacked) = zstd::decode_all(bytes) {
                        self.add(format!("{place}, unpacked"), unpacked);
                    }
                    self.add(place, bytes.to_vec());
                }
            }
        }
    }

    async fn add_packs(&mut self, dir: &Path, memory: &Memory) {
        for pack in icecore::extend::store(memory).packs(None).await.unwrap() {
            let bytes =
                std::fs::read(dir.join("packs").join(format!("{}.icepack", pack.name))).unwrap();
            let reader = PackReader::open(&pack.name, &bytes, &pack.key).unwrap();
            for member in reader.members().unwrap() {
                self.add(format!("the pack of {}", member.id), member.text.into_bytes());
            }
        }
    }

    /// The words of an index, one a line.
    fn add_terms(&mut self, dir: &Path) {
        let index = tantivy::Index::open_in_dir(dir).unwrap();
        let reader = index.reader().unwrap();
        for segment in reader.searcher().segment_readers() {
            for (field, entry) in index.schema().fields().filter(|(_, entry)| entry.is_indexed()) {
                let inverted = segment.inverted_index(field).unwrap();
                let mut terms = inverted.terms().stream().unwrap();
                let mut all = Vec::new();
                while terms.advance() {
                    all.extend_from_slice(terms.key());
                    all.push(b'\n');
                }
                self.add(format!("the index's words of {}", entry.name()), all);
            }
        }
    }
}

/// The letters and digits of a secret in pieces of some length; what a word of
/// an index could hold of it too.
fn pieces(secret: &str) -> impl Iterator<Item = &[u8]> {
    let words = secret.split(|c: char| !c.is_ascii_alphanumeric());
    words.flat_map(|word| word.as_bytes().chunks_exact(PIECE_BYTES))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}
