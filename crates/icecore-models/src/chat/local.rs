//! Model servers on this machine.

use std::time::Duration;

use icecore_domain::chat::Protocol;
use reqwest::Client;
use serde_json::Value;

use super::client::ChatClientConfig;

/// A server on this machine connects at once, or is not there.
const CONNECT: Duration = Duration::from_millis(500);

/// It may be busy with somebody else's answer.
const ANSWER: Duration = Duration::from_secs(3);

/// What a server says of itself has at most this many bytes (1 MiB).
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// What Ollama gives a model, whatever the model could take, unless it is told otherwise.
const OLLAMA_WINDOW: u64 = 4_096;

/// Of a window, the share for answers where nobody says.
const RESERVED: u64 = 4;

/// A model server on this machine, looked for at these addresses: the first that
/// answers, with the models it has and, where it says, its window.
pub async fn discover_local(addresses: &[String]) -> Option<ChatClientConfig> {
    for address in addresses {
        if let Some(found) = look_at(address).await {
            return Some(found);
        }
    }
    None
}

async fn look_at(address: &str) -> Option<ChatClientConfig> {
    icecore_http::authority(address)?;
    let root = address.trim_end_matches('/');
    let root = root.strip_suffix("/v1").unwrap_or(root);
    let client = icecore_http::client(root, CONNECT).ok()?;
    let models = get(&client, &format!("{root}/v1/models")).await?;
    let model = talking_model(&models)?;
    let window = match llama_window(&client, root).await {
        Some(window) => Some(window),
        None => ollama_window(&client, root, &model).await,
    };
    let mut config = ChatClientConfig::new(Protocol::OpenAi, format!("{root}/v1"), model);
    config.name = "local".to_owned();
    config.window = window;
    config.reserve = window.map_or(config.reserve, |window| (window / RESERVED).clamp(1, 1_024));
    // Both keep what they have read of the last request.
    config.caches_prefix = true;
    Some(config)
}

/// The first model that is not for embeddings alone.
fn talking_model(models: &Value) -> Option<String> {
    let models = models.get("data")?.as_array()?;
    let mut names = models.iter().filter_map(|model| model.get("id")?.as_str());
    let is_talking = |name: &&str| {
        let name = name.to_lowercase();
        !["embed", "rerank", "minilm", "bge-"].iter().any(|word| name.contains(word))
    };
    names.find(is_talking).map(str::to_owned)
}

/// llama.cpp says what one conversation may have.
async fn llama_window(client: &Client, root: &str) -> Option<u64> {
    let props = get(client, &format!("{root}/props")).await?;
    let window = props.pointer("/default_generation_settings/n_ctx").or_else(|| props.get("n_ctx"));
    window.and_then(Value::as_u64).filter(|window| *window > 0)
}

/// Ollama says what a loaded model runs with, and what one that is not would be given.
async fn ollama_window(client: &Client, root: &str, model: &str) -> Option<u64> {
    let running = get(client, &format!("{root}/api/ps")).await?;
    let running = running.get("models")?.as_array()?;
    let is_it = |one: &&Value| one.get("name").and_then(Value::as_str) == Some(model);
    let loaded = running.iter().find(is_it);
    if let Some(window) = loaded.and_then(|one| one.get("context_length")?.as_u64()) {
        return Some(window).filter(|window| *window > 0);
    }
    let asked = format!("{{\"model\":{}}}", icecore_domain::json::quote(model));
    let shown = client.post(format!("{root}/api/show")).body(asked);
    let told = json(shown).await.and_then(|shown| {
        let parameters = shown.get("parameters")?.as_str()?;
        let line = parameters.lines().find_map(|line| line.trim().strip_prefix("num_ctx"))?;
        line.trim().parse().ok()
    });
    Some(told.unwrap_or(OLLAMA_WINDOW)).filter(|window| *window > 0)
}

async fn get(client: &Client, url: &str) -> Option<Value> {
    json(client.get(url)).await
}

async fn json(request: reqwest::RequestBuilder) -> Option<Value> {
    let mut response = request.timeout(ANSWER).send().await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER_BYTES {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
}
