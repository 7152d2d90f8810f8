//! From what the settings say of models to something that embeds, and to models that
//! talk.

mod talking;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use icecore::models::Embedder;
use icecore_models::{ApiKey, EndpointConfig, EndpointEmbedder, EndpointError};

use crate::failure::{Failure, Outcome, with_causes};
use crate::printer::Printer;
use crate::settings::{EmbeddingProvider, EmbeddingSettings, Settings};

pub use talking::{chatting, priced, reserve, talking, used, window};

/// Where models are installed.
pub fn models_dir(data: &Path) -> PathBuf {
    data.join("models")
}

/// What makes vectors, or none if the settings want none. A model that cannot be
/// loaded is refused; a server that does not answer now is not, since words find
/// things too.
pub async fn embedder(settings: &Settings, printer: Printer) -> Outcome<Option<Arc<dyn Embedder>>> {
    if !settings.file.memory.auto_embed {
        return Ok(None);
    }
    let wanted = settings.file.embedding.clone();
    let (models, key) = (models_dir(&settings.data), settings.embedding_key.clone());
    // Loading and asking take their time, and both block.
    let made = tokio::task::spawn_blocking(move || match wanted.provider {
        EmbeddingProvider::Local => local(&wanted, &models).map(Some),
        EmbeddingProvider::Endpoint => endpoint(&wanted, key, &printer),
    });
    made.await.map_err(|error| Failure::Broken(error.to_string()))?
}

#[cfg(feature = "local-models")]
fn local(wanted: &EmbeddingSettings, models: &Path) -> Outcome<Arc<dyn Embedder>> {
    use icecore_models::registry::{OpenError, open};
    let threads = match wanted.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    open(&wanted.model, models, threads).map_err(|error| match error {
        OpenError::Unknown(error) => unknown(&error.to_string()),
        error => Failure::refused(
            with_causes(&error),
            "install it again with `icecore model add FILE`, or choose another `embedding_model`",
        ),
    })
}

#[cfg(not(feature = "local-models"))]
fn local(wanted: &EmbeddingSettings, _: &Path) -> Outcome<Arc<dyn Embedder>> {
    icecore_models::registry::by_name(&wanted.model).map_err(|error| unknown(&error.to_string()))
}

fn unknown(message: &str) -> Failure {
    Failure::refused(message, "`memory.embedding_model` in the settings file names the model")
}

fn endpoint(
    wanted: &EmbeddingSettings,
    key: Option<ApiKey>,
    printer: &Printer,
) -> Outcome<Option<Arc<dyn Embedder>>> {
    if !wanted.key_env.is_empty() && key.is_none() {
        return Err(Failure::refused(
            format!("the environment variable `{}` is not set", wanted.key_env),
            "`memory.embedding_key_env` says that it holds the key of the embeddings endpoint",
        ));
    }
    let config = EndpointConfig {
        api_key: key,
        dims: (wanted.dims > 0).then_some(wanted.dims),
        timeout: Duration::from_secs(wanted.timeout_seconds),
        batch_texts: wanted.batch_texts,
        text_chars: wanted.text_chars,
        ..EndpointConfig::new(wanted.url.as_str(), wanted.model.as_str())
    };
    match EndpointEmbedder::connect(config) {
        Ok(embedder) => Ok(Some(Arc::new(embedder))),
        Err(EndpointError::Probe(error)) => {
            printer.warn(&format!(
                "{error}; there are no new vectors until it does (with `embedding_dims` given it is asked again later)"
            ));
            Ok(None)
        }
        Err(error) => Err(Failure::refused(
            error.to_string(),
            "mend `memory.embedding_url` and what stands beside it in the settings file",
        )),
    }
}
