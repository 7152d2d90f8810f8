//! Embedding models by name: what `embedding_model` may say.

#[cfg(feature = "local-models")]
use std::path::Path;
use std::sync::Arc;

use icecore_domain::embed::Embedder;

#[cfg(feature = "local-models")]
use crate::local::{LocalEmbedder, LocalModel, LocalModelError};
use crate::static_table::{BUNDLED_MODEL, StaticEmbedder};

/// A name that is no model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no embedding model `{name}`; there is {}", choices.join(", "))]
pub struct UnknownModel {
    pub name: String,
    pub choices: Vec<String>,
}

/// The names of the models that need nothing but this program.
pub fn known_models() -> Vec<&'static str> {
    vec![BUNDLED_MODEL]
}

/// How large a model inside this program is.
pub fn bundled_bytes(name: &str) -> Option<usize> {
    (name == BUNDLED_MODEL).then(StaticEmbedder::bundled_bytes)
}

/// The model of that name.
pub fn by_name(name: &str) -> Result<Arc<dyn Embedder>, UnknownModel> {
    match name {
        BUNDLED_MODEL => Ok(StaticEmbedder::bundled()),
        _ => Err(UnknownModel {
            name: name.to_owned(),
            choices: known_models().into_iter().map(str::to_owned).collect(),
        }),
    }
}

/// Why a model could not be had by its name.
#[cfg(feature = "local-models")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    #[error("cannot load the embedding model `{name}`")]
    Local { name: String, source: LocalModelError },
}

/// The model of that name, inside the program or installed in `models`. One
/// that is installed runs on so many threads.
#[cfg(feature = "local-models")]
pub fn open(name: &str, models: &Path, threads: usize) -> Result<Arc<dyn Embedder>, OpenError> {
    let mut unknown = match by_name(name) {
        Ok(model) => return Ok(model),
        Err(unknown) => unknown,
    };
    let installed = LocalModel::list(models);
    if !installed.iter().any(|model| model.id.name == name) {
        unknown.choices.extend(installed.into_iter().map(|model| model.id.name));
        return Err(unknown.into());
    }
    LocalEmbedder::open(models, name, threads)
        .map(|model| Arc::new(model) as Arc<dyn Embedder>)
        .map_err(|source| OpenError::Local { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_a_model_of_that_name() {
        for name in known_models() {
            assert_eq!(by_name(name).unwrap().model().name, name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_choices() {
        let error = by_name("word2vec").err().unwrap();
        let expected = "there is no embedding model `word2vec`; there is icecore-static-1";
        assert_eq!(error.to_string(), expected);
    }
}
