//! Embedding by a table: the weighted sum of a text's pieces.
//!
//! Integers from beginning to end, so every machine gives the same bytes.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use icecore_domain::embed::{EmbedError, Embedder, ModelId, Vector};

use crate::model_file::{ModelFile, ModelFileError};
use crate::wordpiece::{Pieces, WordPiece};

/// The name of the model inside the binary.
pub const BUNDLED_MODEL: &str = "icecore-static-1";

static BUNDLED: &[u8] = include_bytes!("../models/icecore-static-1.icemodel");

/// Pieces summed in 32 bits before their sums are set aside: this many of the
/// largest weight and component cannot overflow.
const BLOCK_PIECES: usize = 256;
const _: () = assert!(BLOCK_PIECES as i64 * u16::MAX as i64 * 128 <= i32::MAX as i64 + 1);

/// A static embedding table.
pub struct StaticEmbedder {
    file: ModelFile,
    /// Made when a text is embedded first.
    pieces: OnceLock<WordPiece>,
    id: ModelId,
}

/// What the table says of one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenVector<'a> {
    /// How much it counts in a sum: little when the piece is common.
    pub weight: u16,
    row: &'a [u8],
}

impl<'a> TokenVector<'a> {
    pub fn components(self) -> impl ExactSizeIterator<Item = i8> + 'a {
        self.row.iter().map(|byte| byte.cast_signed())
    }
}

impl StaticEmbedder {
    /// The model inside the binary, the same one each time.
    ///
    /// Its checksum is not looked at, since that would cost more than all else
    /// at start; a test does.
    pub fn bundled() -> Arc<Self> {
        static SHARED: OnceLock<Arc<StaticEmbedder>> = OnceLock::new();
        let make = || {
            let file = ModelFile::trusted(Cow::Borrowed(BUNDLED));
            Arc::new(Self::trusted(file.expect("the model in the binary is well formed")))
        };
        SHARED.get_or_init(make).clone()
    }

    /// Size of the model inside the binary.
    pub(crate) fn bundled_bytes() -> usize {
        BUNDLED.len()
    }

    /// Reads and checks the model in a file.
    pub fn open(path: &Path) -> Result<Self, ModelFileError> {
        Self::new(ModelFile::open(path)?)
    }

    /// Checks and takes a model's bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ModelFileError> {
        Self::new(ModelFile::checked(Cow::Owned(bytes))?)
    }

    fn new(file: ModelFile) -> Result<Self, ModelFileError> {
        let new = Self::trusted(file);
        let (found, vocab) = (new.pieces().len(), new.file.header.vocab);
        if found != vocab {
            let reason = format!("{found} pieces, not {vocab}");
            return Err(ModelFileError::Header { reason });
        }
        Ok(new)
    }

    fn trusted(file: ModelFile) -> Self {
        let (name, dims) = (file.header.name.clone(), file.header.dims);
        let id = ModelId { name, hash: file.digest(), dims };
        Self { file, pieces: OnceLock::new(), id }
    }

    fn pieces(&self) -> &WordPiece {
        let make = || WordPiece::new(self.file.vocabulary(), self.file.header.max_word_chars);
        self.pieces.get_or_init(make)
    }

    /// The numbers of the pieces that a text is embedded by.
    pub fn tokenize(&self, text: &str) -> Vec<u32> {
        let mut found = Pieces::default();
        self.find_pieces(text, &mut found);
        found.numbers
    }

    /// The row of a piece, if there is such a number.
    pub fn token_vector(&self, number: u32) -> Option<TokenVector<'_>> {
        let piece = number as usize;
        (piece < self.file.header.vocab)
            .then(|| TokenVector { weight: self.file.weight(piece), row: self.file.row(piece) })
    }

    /// The vector of one text. It never fails: text without a known word gives zeros.
    pub fn embed_one(&self, text: &str) -> Vector {
        self.embed_with(text, &mut Workspace::new(self.id.dims))
    }

    fn embed_with(&self, text: &str, work: &mut Workspace) -> Vector {
        self.find_pieces(text, &mut work.pieces);
        work.sums.fill(0);
        for block in work.pieces.numbers.chunks(BLOCK_PIECES) {
            work.block.fill(0);
            for number in block {
                let piece = *number as usize;
                add_row(&mut work.block, self.file.row(piece), self.file.weight(piece));
            }
            for (sum, part) in work.sums.iter_mut().zip(&work.block) {
                *sum += i64::from(*part);
            }
        }
        Vector::new(to_int8(&work.sums))
    }

    fn find_pieces(&self, text: &str, found: &mut Pieces) {
        self.pieces().pieces(self.file.vocabulary(), text, self.file.header.max_tokens, found);
    }
}

impl Embedder for StaticEmbedder {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
        let mut work = Workspace::new(self.id.dims);
        Ok(texts.iter().map(|text| self.embed_with(text, &mut work)).collect())
    }
}

impl fmt::Debug for StaticEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StaticEmbedder").field(&self.id).finish()
    }
}

/// Room to work, kept from text to text.
struct Workspace {
    pieces: Pieces,
    block: Vec<i32>,
    sums: Vec<i64>,
}

impl Workspace {
    fn new(dims: usize) -> Self {
        Self { pieces: Pieces::default(), block: vec![0; dims], sums: vec![0; dims] }
    }
}

fn add_row(sums: &mut [i32], row: &[u8], weight: u16) {
    let weight = i32::from(weight);
    for (sum, byte) in sums.iter_mut().zip(row) {
        *sum += weight * i32::from(byte.cast_signed());
    }
}

/// Scales so that the largest component is 127 in size; halves go away from zero.
fn to_int8(sums: &[i64]) -> Vec<i8> {
    let largest = sums.iter().map(|sum| sum.unsigned_abs()).max().unwrap_or(0);
    if largest == 0 {
        return vec![0; sums.len()];
    }
    let scale = |sum: &i64| {
        let size = (2 * 127 * sum.unsigned_abs() + largest) / (2 * largest);
        if *sum < 0 { -(size as i8) } else { size as i8 }
    };
    sums.iter().map(scale).collect()
}

#[cfg(test)]
#[path = "static_table_tests.rs"]
mod tests;
