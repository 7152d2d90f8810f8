//! `icecore model`: the models that `embedding_model` may name, and those that talk.

use std::path::Path;

use icecore::models::ModelId;
use icecore_models::registry;
use serde_json::{Value, json};

use crate::args::{ModelAction, ModelArgs};
use crate::draw::{bytes, number, table};
use crate::failure::{Failure, Outcome, Status};
use crate::hush;
use crate::models::{models_dir, reserve, used, window};
use crate::printer::{Printer, Tone};
use crate::settings::{EmbeddingProvider, LOCAL_MODEL, ModelChoices, ModelSettings, Settings};

/// A model that can be used by name.
struct Known {
    id: ModelId,
    bytes: u64,
    is_bundled: bool,
}

/// Lists or installs.
pub fn run(args: ModelArgs, settings: &Settings, printer: &Printer) -> Outcome<Status> {
    match args.action {
        ModelAction::List => list(settings, printer),
        ModelAction::Add { file, name } => {
            add(&file, name.as_deref(), &models_dir(&settings.data), printer)
        }
    }
}

fn list(settings: &Settings, printer: &Printer) -> Outcome<Status> {
    let wanted = &settings.file.embedding;
    let is_local = settings.file.memory.auto_embed && wanted.provider == EmbeddingProvider::Local;
    let in_use = |model: &Known| is_local && model.id.name == wanted.model;
    let known = known(&models_dir(&settings.data));
    if printer.is_json() {
        let models: Vec<Value> = known.iter().map(|model| to_json(model, in_use(model))).collect();
        printer.json(&json!({ "models": models, "talking": talking_json(settings) }))?;
        return Ok(Status::Done);
    }
    let head = ["", "model", "identity", "dims", "size", "where"].map(str::to_owned).to_vec();
    let row = |model: &Known| {
        vec![
            if in_use(model) { "*" } else { "" }.to_owned(),
            model.id.name.clone(),
            hex::encode(&model.id.hash[..8]),
            number(model.id.dims as u64),
            bytes(model.bytes),
            if model.is_bundled { "in the program" } else { "installed" }.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(known.iter().map(row)).collect();
    for (at, line) in table(&rows, &[3, 4]).iter().enumerate() {
        match at {
            0 => printer.line(&printer.paint(Tone::Dim, line))?,
            _ => printer.line(line)?,
        }
    }
    printer.talk(&said(settings, known.iter().any(in_use)));
    list_talking(settings, printer)?;
    Ok(Status::Done)
}

/// The models that talk, with what they are asked for.
fn list_talking(settings: &Settings, printer: &Printer) -> Outcome<()> {
    let choices = &settings.file.models;
    let is_local_found =
        choices.table(LOCAL_MODEL).is_none() && !uses(choices, LOCAL_MODEL).is_empty();
    if choices.tables.is_empty() && !is_local_found {
        printer.talk("No model that talks is declared; `[models.NAME]` in the settings file does");
        return Ok(());
    }
    let head = ["talks", "protocol", "server", "model", "window", "asked for"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for table in choices.tables.values() {
        rows.push(vec![
            table.name.clone(),
            table.protocol.as_str().to_owned(),
            hush::said(&table.url).into_owned(),
            table.model.clone(),
            number(window(settings, table)),
            asked_for(&uses(choices, &table.name)),
        ]);
    }
    if is_local_found {
        let server = format!("looked for at {}", choices.local_urls.join(" or "));
        let uses = asked_for(&uses(choices, LOCAL_MODEL));
        let row = [
            LOCAL_MODEL.to_owned(),
            "openai".to_owned(),
            server,
            String::new(),
            String::new(),
            uses,
        ];
        rows.push(row.to_vec());
    }
    for (at, line) in table(&rows, &[4]).iter().enumerate() {
        match at {
            0 => printer.line(&printer.paint(Tone::Dim, line))?,
            _ => printer.line(line)?,
        }
    }
    Ok(())
}

fn uses(choices: &ModelChoices, name: &str) -> Vec<&'static str> {
    let chat = ("chat", choices.chat_model.as_str());
    let all = used(choices).into_iter().chain([chat]);
    all.filter(|(_, one)| *one == name).map(|(what, _)| what).collect()
}

fn asked_for(uses: &[&str]) -> String {
    if uses.is_empty() { "nothing".to_owned() } else { uses.join(", ") }
}

fn talking_json(settings: &Settings) -> Vec<Value> {
    let choices = &settings.file.models;
    let one = |table: &ModelSettings| {
        json!({
            "name": table.name,
            "protocol": table.protocol.as_str(),
            "url": hush::said(&table.url),
            "model": table.model,
            "window": window(settings, table),
            "reserve": reserve(settings, table),
            "usedFor": uses(choices, &table.name),
        })
    };
    choices.tables.values().map(one).collect()
}

/// What is in use, in words.
fn said(settings: &Settings, is_known: bool) -> String {
    let wanted = &settings.file.embedding;
    match (settings.file.memory.auto_embed, wanted.provider) {
        (false, _) => "None is in use: `memory.auto_embed` is false".to_owned(),
        (true, EmbeddingProvider::Endpoint) => {
            format!("In use: `{}` at {}", wanted.model, wanted.url)
        }
        (true, EmbeddingProvider::Local) if is_known => {
            "* is in use; `memory.embedding_model` in the settings file chooses".to_owned()
        }
        (true, EmbeddingProvider::Local) => {
            format!("`memory.embedding_model` names `{}`, which is not there", wanted.model)
        }
    }
}

fn to_json(model: &Known, in_use: bool) -> Value {
    json!({
        "name": model.id.name,
        "identity": hex::encode(model.id.hash),
        "dims": model.id.dims,
        "bytes": model.bytes,
        "bundled": model.is_bundled,
        "inUse": in_use,
    })
}

/// The models inside the program, then those in the folder.
fn known(models: &Path) -> Vec<Known> {
    let bundled = registry::known_models().into_iter().filter_map(|name| {
        let id = registry::by_name(name).ok()?.model().clone();
        Some(Known { id, bytes: registry::bundled_bytes(name)? as u64, is_bundled: true })
    });
    bundled.chain(installed(models)).collect()
}

#[cfg(feature = "local-models")]
fn installed(models: &Path) -> Vec<Known> {
    let known = |model: icecore_models::LocalModel| {
        let bytes = bytes_below(&models.join(&model.id.name));
        Known { id: model.id, bytes, is_bundled: false }
    };
    icecore_models::LocalModel::list(models).into_iter().map(known).collect()
}

#[cfg(not(feature = "local-models"))]
fn installed(_: &Path) -> Vec<Known> {
    Vec::new()
}

#[cfg(feature = "local-models")]
fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
}

#[cfg(feature = "local-models")]
fn add(file: &Path, name: Option<&str>, models: &Path, printer: &Printer) -> Outcome<Status> {
    use icecore_models::LocalModel;
    let failed = |error: icecore_models::LocalModelError| {
        Failure::refused(
            format!("cannot install `{}`: {}", file.display(), crate::failure::with_causes(&error)),
            "give a folder with model.safetensors, config.json and vocab.txt or tokenizer.json, or one .hmsemb",
        )
    };
    let bar = crate::progress::Bar::spinner(printer, "installing");
    std::fs::create_dir_all(models).map_err(|error| {
        Failure::refused(
            format!("cannot write `{}`: {error}", models.display()),
            "choose another data directory with --data",
        )
    })?;
    let model = LocalModel::install(file, models, name).map_err(failed)?;
    drop(bar);
    let known =
        Known { bytes: bytes_below(&models.join(&model.id.name)), id: model.id, is_bundled: false };
    if printer.is_json() {
        printer.json(&to_json(&known, false))?;
        return Ok(Status::Done);
    }
    printer.line(&format!(
        "Installed {}: {} dimensions, {}",
        known.id.name,
        number(known.id.dims as u64),
        bytes(known.bytes)
    ))?;
    printer.talk(&format!(
        "To use it, set `embedding_model = \"{}\"` under [memory] in the settings file",
        known.id.name
    ));
    Ok(Status::Done)
}

#[cfg(not(feature = "local-models"))]
fn add(file: &Path, _: Option<&str>, _: &Path, _: &Printer) -> Outcome<Status> {
    Err(Failure::refused(
        format!("cannot install `{}`: this build runs no models from files", file.display()),
        "build it with the feature `local-models`, or use an embeddings endpoint",
    ))
}
