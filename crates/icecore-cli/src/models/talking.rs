//! From what the settings say of models that talk to clients of them.
//!
//! Each is asked in turn: the one that is named, then the one on this machine, if one is
//! declared or named, or the settings say where to look; behind them stands what needs no
//! model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use icecore::Tenant;
use icecore::models::{ChatModel, ModelChain, Models};
use icecore_models::{ApiKey, ChatClient, ChatClientConfig, discover_local, known_window};

use crate::app;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::settings::{LOCAL_MODEL, ModelChoices, ModelSettings, Settings};

/// Of a window, at most this share is kept free for answers where the settings do not
/// say how much.
const RESERVED_SHARE: u64 = 4;

/// The models that are asked for anything. One that does not answer now is not refused:
/// there is always something behind it.
pub async fn talking(settings: &Settings, printer: Printer) -> Outcome<Models> {
    let choices = &settings.file.models;
    let mut models = Models { limits: choices.limits(), ..Models::default() };
    let names = used(choices);
    if names.iter().all(|(_, name)| name.is_empty()) {
        return Ok(models);
    }
    let mut made = BTreeMap::new();
    for (_, name) in &names {
        if let Some(table) = choices.table(name).filter(|_| !made.contains_key(*name)) {
            made.insert(*name, client(settings, table).await?);
        }
    }
    let is_named = names.iter().any(|(_, name)| *name == LOCAL_MODEL);
    // Whoever listens at the usual ports is asked nothing unless somebody wants it so.
    let is_wanted =
        is_named || choices.table(LOCAL_MODEL).is_some() || settings.is_given("models.local_urls");
    if is_wanted
        && !made.contains_key(LOCAL_MODEL)
        && let Some(local) = local(settings).await?
    {
        made.insert(LOCAL_MODEL, local);
    }
    if is_named && !made.contains_key(LOCAL_MODEL) {
        printer.warn(&format!(
            "no model server was found on this machine at {}; going on without one",
            choices.local_urls.join(" or ")
        ));
    }
    let chain = |name: &str| {
        let Some(first) = made.get(name) else { return ModelChain::default() };
        // The one on this machine may be the very same.
        let is_other =
            |local: &&Arc<dyn ChatModel>| local.profile().identity != first.profile().identity;
        let behind = made.get(LOCAL_MODEL).filter(is_other);
        ModelChain(std::iter::once(first).chain(behind).cloned().collect())
    };
    models.summaries = chain(choices.summary_choice());
    models.handoffs = chain(&choices.handoff_model);
    models.dreams = chain(&choices.dream_model);
    models.consolidation = chain(&choices.memory.consolidation_model);
    Ok(models)
}

/// The model that a person chats with: the one that was named, or the one that the
/// settings choose; none where there is none.
pub async fn chatting(
    settings: &Settings,
    named: Option<&str>,
) -> Outcome<Option<Arc<dyn ChatModel>>> {
    let choices = &settings.file.models;
    let name = named.unwrap_or_else(|| choices.chat_choice());
    if let Some(table) = choices.table(name) {
        return client(settings, table).await.map(Some);
    }
    // As above: whoever listens at the usual ports is asked nothing unless it is wanted.
    let is_found = match name {
        LOCAL_MODEL => true,
        "" => settings.is_given("models.local_urls"),
        _ => return Err(no_model(name, choices)),
    };
    let found = if is_found { local(settings).await? } else { None };
    match (found, named) {
        (None, Some(_)) => Err(Failure::refused(
            format!(
                "no model server was found on this machine at {}",
                choices.local_urls.join(" or ")
            ),
            "start one, say where it is with `models.local_urls`, or declare a `[models.NAME]`",
        )),
        (found, _) => Ok(found),
    }
}

fn no_model(name: &str, choices: &ModelChoices) -> Failure {
    let known: Vec<&str> = choices.tables.keys().map(String::as_str).collect();
    let hint = match known.is_empty() {
        true => format!("declare it in the settings file: `[models.{name}]` with its `url`"),
        false => format!("declared are {}", known.join(", ")),
    };
    Failure::refused(format!("there is no `[models.{name}]` in the settings"), hint)
}

/// No model, but what the one costs that would be read with: what was saved is worth that.
pub fn priced(settings: &Settings) -> Models {
    let choices = &settings.file.models;
    let names = [choices.handoff_model.as_str(), choices.summary_choice()];
    let table = names.into_iter().find_map(|name| choices.table(name));
    let reading_price = table.map(ModelSettings::prices);
    Models { limits: choices.limits(), reading_price, ..Models::default() }
}

/// What models are asked for, and which.
pub fn used(choices: &ModelChoices) -> [(&'static str, &str); 4] {
    [
        ("summaries", choices.summary_choice()),
        ("handoffs", &choices.handoff_model),
        ("dreams", &choices.dream_model),
        ("consolidation", &choices.memory.consolidation_model),
    ]
}

/// Tokens of a request and its answer together: what the model's table declares, else
/// what `[sessions]` does, else what is known of it.
pub fn window(settings: &Settings, table: &ModelSettings) -> u64 {
    let declared = settings.file.memory.handoffs.window;
    match table.window {
        0 if settings.is_given("sessions.window") => declared,
        0 => known_window(&table.model).unwrap_or(declared),
        window => window,
    }
}

/// Tokens of it that are kept free for the answer.
pub fn reserve(settings: &Settings, table: &ModelSettings) -> u64 {
    match table.reserve {
        0 => {
            let most = (window(settings, table) / RESERVED_SHARE).max(1);
            settings.file.memory.handoffs.reserve.min(most)
        }
        reserve => reserve,
    }
}

async fn client(settings: &Settings, table: &ModelSettings) -> Outcome<Arc<dyn ChatModel>> {
    let config = ChatClientConfig {
        name: table.name.clone(),
        api_key: key(settings, table).await?,
        window: Some(window(settings, table)),
        reserve: reserve(settings, table),
        prices: table.prices(),
        caches_prefix: table.caches_prefix,
        timeout: Duration::from_secs(table.timeout_seconds),
        idle: Duration::from_secs(table.idle_seconds),
        retries: table.retries,
        ..ChatClientConfig::new(table.protocol.into(), table.url.as_str(), table.model.as_str())
    };
    made(config, &table.name)
}

fn made(config: ChatClientConfig, name: &str) -> Outcome<Arc<dyn ChatModel>> {
    match ChatClient::new(config) {
        Ok(client) => Ok(Arc::new(client)),
        Err(error) => Err(Failure::refused(
            error.to_string(),
            format!("mend `[models.{name}]` in the settings file"),
        )),
    }
}

/// The model server on this machine: the one that has a table, or the first that is
/// found.
async fn local(settings: &Settings) -> Outcome<Option<Arc<dyn ChatModel>>> {
    let choices = &settings.file.models;
    if let Some(table) = choices.table(LOCAL_MODEL) {
        return client(settings, table).await.map(Some);
    }
    match discover_local(&choices.local_urls).await {
        Some(found) => made(found, LOCAL_MODEL).map(Some),
        None => Ok(None),
    }
}

/// A model's key: from the environment, or one of the tenant's registered secrets.
async fn key(settings: &Settings, table: &ModelSettings) -> Outcome<Option<ApiKey>> {
    let name = &table.name;
    if !table.key_env.is_empty() {
        return match settings.model_keys.get(name) {
            Some(key) => Ok(Some(key.clone())),
            None => Err(Failure::refused(
                format!("the environment variable `{}` is not set", table.key_env),
                format!("`models.{name}.key_env` says that it holds the key of the model"),
            )),
        };
    }
    if table.key_secret.is_empty() {
        return Ok(None);
    }
    let tenant = Tenant::new(settings.tenant.clone()).map_err(icecore::MemoryError::from)?;
    let secret = app::builder(settings)?.secret(&settings.data, &tenant, &table.key_secret).await?;
    match secret {
        Some(value) => Ok(Some(ApiKey::new(value.as_str()))),
        None => Err(Failure::refused(
            format!("there is no registered secret `{}`", table.key_secret),
            format!(
                "`models.{name}.key_secret` says that it is the key of the model; register it with `icecore secret add {}`",
                table.key_secret
            ),
        )),
    }
}
