//! The metadata of a model: sizes, name, pooling.
//!
//! Gathered from the files that such models come with, and kept as one
//! `icecore.json` beside the weights once installed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{LocalModelError, read};

/// Sizes beyond these are damage, not large models.
const MAX_HIDDEN: usize = 8192;
const MAX_LAYERS: usize = 128;

/// How the states of a text become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pooling {
    Mean,
    First,
}

/// In what form a model's files come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// A folder with safetensors and word pieces.
    Bert,
    /// One file, with a byte-level vocabulary.
    Pack,
}

impl Kind {
    /// Under which names weights and vocabulary are installed.
    pub(super) fn files(self) -> [&'static str; 2] {
        match self {
            Self::Bert => ["model.safetensors", "vocab.txt"],
            Self::Pack => ["model.hmsemb", "tokenizer.json"],
        }
    }
}

/// All that decides what the weights mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) dims: usize,
    pub(super) inner: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) vocab: usize,
    pub(super) positions: usize,
    /// Where a text's first token stands.
    pub(super) first_position: usize,
    pub(super) segments: usize,
    pub(super) layer_norm_eps: f32,
    pub(super) max_tokens: usize,
    pub(super) pooling: Pooling,
    /// SHA-256 of the weights, in hex.
    pub(super) weights_sha256: String,
    /// SHA-256 of the vocabulary, in hex.
    pub(super) vocabulary_sha256: String,
}

#[derive(Deserialize)]
struct Config {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    layer_norm_eps: f32,
    hidden_act: String,
    #[serde(default, rename = "_name_or_path")]
    origin: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sentences {
    max_seq_length: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pools {
    pooling_mode_cls_token: bool,
    pooling_mode_max_tokens: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Casing {
    do_lower_case: Option<bool>,
}

impl Manifest {
    pub(super) const FILE: &'static str = "icecore.json";
    pub(super) const FORMAT: u32 = 1;

    /// Reads what a model's own files say.
    pub(super) fn gather(dir: &Path, name: Option<&str>) -> Result<Self, LocalModelError> {
        let config: Config = parse(&dir.join("config.json"))?;
        let sentences: Sentences = parse_if_there(&dir.join("sentence_bert_config.json"))?;
        let pools: Pools = parse_if_there(&dir.join("1_Pooling/config.json"))?;
        let casing: Casing = parse_if_there(&dir.join("tokenizer_config.json"))?;
        let unsupported = |what: &str| Err(LocalModelError::Unsupported { what: what.to_owned() });
        if config.model_type != "bert" {
            return unsupported(&format!("a model of type `{}`", config.model_type));
        }
        if config.hidden_act != "gelu" {
            return unsupported(&format!("the activation `{}`", config.hidden_act));
        }
        if pools.pooling_mode_max_tokens {
            return unsupported("pooling by the largest");
        }
        if casing.do_lower_case == Some(false) {
            return unsupported("a vocabulary with capitals");
        }
        let max_tokens = sentences.max_seq_length.unwrap_or(config.max_position_embeddings);
        let manifest = Self {
            format: Self::FORMAT,
            kind: Kind::Bert,
            name: plain_name(name.unwrap_or(&own_name(dir, &config.origin))),
            dims: config.hidden_size,
            inner: config.intermediate_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            vocab: config.vocab_size,
            positions: config.max_position_embeddings,
            first_position: 0,
            segments: config.type_vocab_size,
            layer_norm_eps: config.layer_norm_eps,
            max_tokens: max_tokens.min(config.max_position_embeddings),
            pooling: if pools.pooling_mode_cls_token { Pooling::First } else { Pooling::Mean },
            weights_sha256: String::new(),
            vocabulary_sha256: String::new(),
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// Reads the manifest of an installed model.
    pub(super) fn open(dir: &Path) -> Result<Self, LocalModelError> {
        let manifest: Self = parse(&dir.join(Self::FILE))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The model's identity: a change of any part is another model.
    pub(super) fn hash(&self) -> [u8; 32] {
        let text = serde_json::to_vec(self).expect("a manifest is always JSON");
        Sha256::digest(text).into()
    }

    pub(super) fn check(&self) -> Result<(), LocalModelError> {
        let fits = self.format == Self::FORMAT
            && (1..=MAX_HIDDEN).contains(&self.dims)
            && (1..=4 * MAX_HIDDEN).contains(&self.inner)
            && (1..=MAX_LAYERS).contains(&self.layers)
            && (1..=self.dims).contains(&self.heads)
            && self.dims.is_multiple_of(self.heads)
            && self.segments > 0
            && (3..=self.positions.saturating_sub(self.first_position)).contains(&self.max_tokens)
            && self.name == plain_name(&self.name);
        if fits {
            return Ok(());
        }
        Err(LocalModelError::Unsupported { what: "a model of such sizes".to_owned() })
    }
}

/// What the model is called when nobody says: its folder, unless that is as
/// good as none.
fn own_name(dir: &Path, origin: &str) -> String {
    let folder = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let of_origin = origin.rsplit('/').next().unwrap_or_default();
    let chosen = if matches!(folder, "" | "model") { of_origin } else { folder };
    if chosen.is_empty() { "local".to_owned() } else { chosen.to_owned() }
}

/// A name that is safe as a folder's and in a setting.
pub(super) fn plain_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|char| match char.to_ascii_lowercase() {
            char @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => char,
            _ => '-',
        })
        .take(64)
        .collect();
    let plain = plain.trim_matches(['.', '-']);
    if plain.is_empty() { "local".to_owned() } else { plain.to_owned() }
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, LocalModelError> {
    serde_json::from_slice(&read(path)?)
        .map_err(|source| LocalModelError::Settings { path: PathBuf::from(path), source })
}

fn parse_if_there<T: serde::de::DeserializeOwned + Default>(
    path: &Path,
) -> Result<T, LocalModelError> {
    if path.exists() { parse(path) } else { Ok(T::default()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_safe() {
        assert_eq!(plain_name("All MiniLM/L6_v2"), "all-minilm-l6_v2");
        assert_eq!(plain_name("../.."), "local");
        assert_eq!(own_name(Path::new("a/model"), "who/MiniLM"), "MiniLM");
        assert_eq!(own_name(Path::new("a/bge-small"), "who/MiniLM"), "bge-small");
    }
}
