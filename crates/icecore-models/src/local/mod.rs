//! BERT-like encoders from files on this machine.
//!
//! A model comes as a folder: `model.safetensors`, `config.json`, `vocab.txt`
//! or `tokenizer.json`, and what says how it pools. Installing copies what is
//! needed into a folder of ours, and opening checks that it is still the same.
//! Or it comes as one `.hmsemb` file, with a vocabulary of byte pairs.
//!
//! Results are floating point: equal on one machine, and on another equal but
//! for the last bits, which rounding to int8 mostly hides.

mod bert;
mod bpe;
mod manifest;
mod pack;
mod safetensors;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use icecore_domain::embed::{EmbedError, Embedder, ModelId, Vector};
use sha2::{Digest as _, Sha256};

use crate::static_table::BUNDLED_MODEL;
use crate::wordpiece::{Pieces, WordPiece};
use bert::Bert;
use bpe::Bpe;
use manifest::{Kind, Manifest};
use pack::Pack;
use safetensors::Tensors;

const WEIGHTS: &str = "model.safetensors";
const VOCABULARY: &str = "vocab.txt";

/// Tokens that run through the encoder together: enough to keep a core busy,
/// few enough to stay in its cache.
const BATCH_TOKENS: usize = 512;

/// A word beyond it is no word, in BERT's reckoning.
const MAX_WORD_CHARS: usize = 100;

/// Why a local model cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalModelError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A file of settings says something else than it should.
    #[error("{} is not as expected", path.display())]
    Settings { path: PathBuf, source: serde_json::Error },
    /// The weights are damaged, or not those of the settings.
    #[error("the model's weights are wrong: {reason}")]
    Weights { reason: String },
    /// The vocabulary is damaged, or not that of the settings.
    #[error("the model's vocabulary is wrong: {reason}")]
    Vocabulary { reason: String },
    #[error("{what} is not supported")]
    Unsupported { what: String },
    #[error("the model `{name}` is damaged: {file} is not what was installed")]
    Damaged { name: String, file: &'static str },
    #[error("there is another model `{name}` already")]
    Taken { name: String },
}

/// A model on this machine, known but not loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalModel {
    pub id: ModelId,
    pub layers: usize,
    /// Tokens of a text that it reads; the rest is left out.
    pub max_tokens: usize,
    manifest: Manifest,
}

impl LocalModel {
    /// Looks at a model's folder, or at the weights in it, and tries whether it
    /// can be run. It is called `name`, or what its files suggest.
    pub fn inspect(path: &Path, name: Option<&str>) -> Result<Self, LocalModelError> {
        let source = Source::read(path, name)?;
        source.encoder()?;
        Ok(Self::of(source.manifest))
    }

    /// Copies a model to a folder of its name within `models`, where
    /// [`LocalEmbedder::open`] finds it. Installing it twice is no error.
    pub fn install(
        path: &Path,
        models: &Path,
        name: Option<&str>,
    ) -> Result<Self, LocalModelError> {
        let source = Source::read(path, name)?;
        source.encoder()?;
        let name = source.manifest.name.clone();
        if name == BUNDLED_MODEL {
            return Err(LocalModelError::Taken { name });
        }
        let home = models.join(&name);
        if home.exists() {
            let there = Manifest::open(&home)?;
            return if there == source.manifest {
                Ok(Self::of(there))
            } else {
                Err(LocalModelError::Taken { name })
            };
        }
        // Written aside and then renamed, so that a model is there whole or not at all.
        let aside = models.join(format!(".{name}.{}", std::process::id()));
        source.write(&aside)?;
        std::fs::rename(&aside, &home)
            .map_err(|source| LocalModelError::Write { path: home, source })?;
        Ok(Self::of(source.manifest))
    }

    /// The models installed in `models`, by name. What is no model is passed over.
    pub fn list(models: &Path) -> Vec<Self> {
        let folders = std::fs::read_dir(models).into_iter().flatten().flatten();
        let mut found: Vec<Self> = folders
            .filter_map(|folder| {
                // What an interrupted installation left has another name than its folder.
                let manifest = Manifest::open(&folder.path()).ok()?;
                (folder.file_name() == manifest.name.as_str()).then(|| Self::of(manifest))
            })
            .collect();
        found.sort_by(|one, other| one.id.name.cmp(&other.id.name));
        found
    }

    fn of(manifest: Manifest) -> Self {
        let id =
            ModelId { name: manifest.name.clone(), hash: manifest.hash(), dims: manifest.dims };
        Self { id, layers: manifest.layers, max_tokens: manifest.max_tokens, manifest }
    }
}

/// A model's files, read.
struct Source {
    manifest: Manifest,
    weights: Vec<u8>,
    vocabulary: Vec<u8>,
}

impl Source {
    fn read(path: &Path, name: Option<&str>) -> Result<Self, LocalModelError> {
        if path.extension().is_some_and(|extension| extension == "hmsemb") {
            return Self::read_pack(path, name);
        }
        let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
        let file = if path.is_dir() { path.join(WEIGHTS) } else { path.to_owned() };
        let weights = read(&file)?;
        let mut manifest = Manifest::gather(dir, name)?;
        let vocabulary = read_vocabulary(dir)?;
        manifest.weights_sha256 = hex(&weights);
        manifest.vocabulary_sha256 = hex(&vocabulary);
        Ok(Self { manifest, weights, vocabulary })
    }

    fn read_pack(path: &Path, name: Option<&str>) -> Result<Self, LocalModelError> {
        let weights = read(path)?;
        let pack = Pack::read(&weights)?;
        let mut manifest = pack.manifest(name)?;
        let vocabulary = pack.tokenizer().to_vec();
        manifest.weights_sha256 = hex(&weights);
        manifest.vocabulary_sha256 = hex(&vocabulary);
        Ok(Self { manifest, weights, vocabulary })
    }

    fn installed(dir: &Path) -> Result<Self, LocalModelError> {
        let manifest = Manifest::open(dir)?;
        let [weights_file, vocabulary_file] = manifest.kind.files();
        let (weights, vocabulary) =
            (read(&dir.join(weights_file))?, read(&dir.join(vocabulary_file))?);
        let damaged = |file| LocalModelError::Damaged { name: manifest.name.clone(), file };
        if hex(&weights) != manifest.weights_sha256 {
            return Err(damaged(weights_file));
        }
        if hex(&vocabulary) != manifest.vocabulary_sha256 {
            return Err(damaged(vocabulary_file));
        }
        Ok(Self { manifest, weights, vocabulary })
    }

    fn encoder(&self) -> Result<(Bert, Tokens), LocalModelError> {
        let tokens = Tokens::new(&self.vocabulary, &self.manifest)?;
        let bert = match self.manifest.kind {
            Kind::Bert => Bert::load(&Tensors::read(&self.weights)?, &self.manifest)?,
            Kind::Pack => Bert::unpack(&Pack::read(&self.weights)?, &self.manifest)?,
        };
        Ok((bert, tokens))
    }

    fn write(&self, dir: &Path) -> Result<(), LocalModelError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| LocalModelError::Write { path, source }
        };
        std::fs::create_dir_all(dir).map_err(failed(dir))?;
        let manifest =
            serde_json::to_vec_pretty(&self.manifest).expect("a manifest is always JSON");
        let [weights, vocabulary] = self.manifest.kind.files();
        let files =
            [(weights, &self.weights), (vocabulary, &self.vocabulary), (Manifest::FILE, &manifest)];
        for (name, bytes) in files {
            let path = dir.join(name);
            std::fs::write(&path, bytes).map_err(failed(&path))?;
        }
        Ok(())
    }
}

/// The way from text to the numbers that an encoder reads.
struct Tokens {
    cutter: Cutter,
    first: u32,
    last: u32,
    max_tokens: usize,
}

enum Cutter {
    Words { vocabulary: Vec<u8>, pieces: WordPiece },
    Bytes(Bpe),
}

impl Tokens {
    fn new(vocabulary: &[u8], about: &Manifest) -> Result<Self, LocalModelError> {
        let (cutter, first, last) = match about.kind {
            Kind::Bert => words(vocabulary, about.vocab)?,
            Kind::Pack => {
                let bpe = Bpe::read(vocabulary, about.vocab)?;
                let (first, last) = (bpe.special("<s>")?, bpe.special("</s>")?);
                (Cutter::Bytes(bpe), first, last)
            }
        };
        Ok(Self { cutter, first, last, max_tokens: about.max_tokens })
    }

    fn of(&self, text: &str, found: &mut Pieces) -> Vec<u32> {
        let limit = self.max_tokens - 2;
        match &self.cutter {
            Cutter::Words { vocabulary, pieces } => pieces.pieces(vocabulary, text, limit, found),
            Cutter::Bytes(bpe) => bpe.pieces(text, limit, &mut found.numbers),
        }
        let mut tokens = Vec::with_capacity(found.numbers.len() + 2);
        tokens.push(self.first);
        tokens.extend(&found.numbers);
        tokens.push(self.last);
        tokens
    }
}

/// Word pieces, with the numbers that frame a text.
fn words(vocabulary: &[u8], rows: usize) -> Result<(Cutter, u32, u32), LocalModelError> {
    let wrong = |reason: String| LocalModelError::Vocabulary { reason };
    let vocabulary = vocabulary.strip_suffix(b"\n").unwrap_or(vocabulary);
    let pieces = WordPiece::new(vocabulary, MAX_WORD_CHARS).with_unknown(vocabulary, "[UNK]");
    if pieces.len() > rows {
        return Err(wrong(format!("{} pieces for {rows} rows", pieces.len())));
    }
    let special = |piece: &str| {
        pieces.number(vocabulary, piece).ok_or_else(|| wrong(format!("it has no {piece}")))
    };
    let (first, last) = (special("[CLS]")?, special("[SEP]")?);
    Ok((Cutter::Words { vocabulary: vocabulary.to_vec(), pieces }, first, last))
}

/// An encoder, loaded.
pub struct LocalEmbedder {
    id: ModelId,
    bert: Bert,
    tokens: Tokens,
    threads: usize,
}

impl LocalEmbedder {
    /// Loads the model `name` installed in `models`, to run on that many threads.
    pub fn open(models: &Path, name: &str, threads: usize) -> Result<Self, LocalModelError> {
        Self::new(&Source::installed(&models.join(name))?, threads)
    }

    /// Loads a model from where it came.
    pub fn load(path: &Path, threads: usize) -> Result<Self, LocalModelError> {
        Self::new(&Source::read(path, None)?, threads)
    }

    fn new(source: &Source, threads: usize) -> Result<Self, LocalModelError> {
        let (bert, tokens) = source.encoder()?;
        let id = LocalModel::of(source.manifest.clone()).id;
        Ok(Self { id, bert, tokens, threads: threads.max(1) })
    }

    /// Encodes batch after batch, on this thread and as many others as allowed.
    fn encode_all(&self, texts: &[Vec<u32>]) -> Vec<Option<Vector>> {
        let batches = batches(texts);
        let next = AtomicUsize::new(0);
        let vectors = Mutex::new(vec![None; texts.len()]);
        let work = || {
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let batch_texts: Vec<&[u32]> =
                    batch.iter().map(|at| texts[*at].as_slice()).collect();
                let rows = self.bert.encode(&batch_texts);
                let mut vectors = vectors.lock().expect("no thread panics with the lock held");
                for (at, row) in batch.iter().zip(&rows) {
                    vectors[*at] = row.as_slice().and_then(Vector::from_floats);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.min(batches.len()) {
                scope.spawn(work);
            }
            work();
        });
        vectors.into_inner().expect("no thread panics with the lock held")
    }
}

impl Embedder for LocalEmbedder {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
        let mut found = Pieces::default();
        let tokens: Vec<Vec<u32>> =
            texts.iter().map(|text| self.tokens.of(text, &mut found)).collect();
        let vectors = self.encode_all(&tokens).into_iter().zip(&tokens).map(|(vector, tokens)| {
            // A text without a word is nothing but the model's frame around it.
            if tokens.len() == 2 { Some(Vector::new(vec![0; self.id.dims])) } else { vector }
        });
        vectors.collect::<Option<_>>().ok_or_else(|| EmbedError::Wrong {
            model: self.id.name.clone(),
            reason: "a component that is no number".to_owned(),
        })
    }
}

impl fmt::Debug for LocalEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalEmbedder").field(&self.id).finish()
    }
}

/// Places of texts, by length, in groups of so many tokens or a single text.
fn batches(texts: &[Vec<u32>]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|at| texts[*at].len());
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for at in order {
        let length = texts[at].len();
        match batches.last_mut() {
            Some(batch) if length <= room => batch.push(at),
            _ => {
                batches.push(vec![at]);
                room = BATCH_TOKENS.max(length);
            }
        }
        room -= length;
    }
    batches
}

/// `vocab.txt`, or the same made from `tokenizer.json`.
fn read_vocabulary(dir: &Path) -> Result<Vec<u8>, LocalModelError> {
    let plain = dir.join(VOCABULARY);
    if plain.exists() {
        return read(&plain);
    }
    let path = dir.join("tokenizer.json");
    let tokenizer: serde_json::Value = serde_json::from_slice(&read(&path)?)
        .map_err(|source| LocalModelError::Settings { path, source })?;
    let wrong = |reason: &str| LocalModelError::Vocabulary { reason: reason.to_owned() };
    if tokenizer.pointer("/model/type").and_then(|kind| kind.as_str()) != Some("WordPiece") {
        return Err(wrong("it is not of word pieces"));
    }
    let pieces = tokenizer.pointer("/model/vocab").and_then(|vocab| vocab.as_object());
    let pieces = pieces.ok_or_else(|| wrong("it has no list of pieces"))?;
    let mut lines = vec![None; pieces.len()];
    for (piece, number) in pieces {
        let place = number.as_u64().and_then(|number| lines.get_mut(number as usize));
        *place.ok_or_else(|| wrong("its numbers have gaps"))? = Some(piece.as_str());
    }
    let lines: Option<Vec<&str>> = lines.into_iter().collect();
    Ok(lines.ok_or_else(|| wrong("its numbers have gaps"))?.join("\n").into_bytes())
}

fn read(path: &Path) -> Result<Vec<u8>, LocalModelError> {
    std::fs::read(path).map_err(|source| LocalModelError::Read { path: path.to_owned(), source })
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
