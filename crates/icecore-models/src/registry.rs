//! Embedding models by name: what `embedding_model` may say.

use std::sync::Arc;

use icecore_domain::embed::Embedder;

use crate::static_table::{BUNDLED_MODEL, StaticEmbedder};

/// A name that is no model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no embedding model `{name}`; there is {}", choices.join(", "))]
pub struct UnknownModel {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub choices: Vec<String>,
}

/// The names of the models that need nothing but this program.
pub fn known_models() -> Vec<&'static str> {
    vec![BUNDLED_MODEL]
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
