//! `icecore secret`: what a tenant wants hidden besides what the table knows.

use icecore::privacy::{AddedSecret, SecretRecord};
use icecore::store::StoreError;
use icecore::{Memory, MemoryError, Principal};
use serde_json::json;

use crate::app::{builder, principal};
use crate::args::{SecretAction, SecretAddArgs, SecretArgs};
use crate::draw::{count, number, table};
use crate::failure::{Failure, Outcome, Status};
use crate::json;
use crate::printer::{Printer, Tone};
use crate::secret_value;
use crate::settings::Settings;

/// Adds, lists or removes.
pub async fn run(args: SecretArgs, settings: &Settings, printer: &Printer) -> Outcome<Status> {
    let principal = principal(settings)?;
    let memory = builder(settings)?.embedder(None).open(&settings.data).await?;
    // So that no error repeats a secret. Where a sealed value no longer opens there is
    // no redactor, and removing it must still work.
    let _ = memory.redactor(principal.tenant()).await;
    match args.action {
        SecretAction::Add(args) => add(args, &memory, &principal, printer).await,
        SecretAction::List => list(&memory, &principal, printer).await,
        SecretAction::Remove { name } => remove(&name, &memory, &principal, printer).await,
    }
}

async fn add(
    args: SecretAddArgs,
    memory: &Memory,
    principal: &Principal,
    printer: &Printer,
) -> Outcome<Status> {
    let SecretAddArgs { name, from_env, rotate, typed } = args;
    if !typed.is_empty() {
        return Err(Failure::refused(
            "the value of a secret is never an argument: the shell keeps those, and other users see them",
            "pipe it in or name a variable with --from-env; and change the secret if that was it",
        ));
    }
    let value = match &from_env {
        Some(variable) => secret_value::from_env(variable)?,
        None => secret_value::from_stdin(&name)?,
    };
    let added = memory.add_secret(principal.tenant(), &name, value, rotate).await;
    let added = added.map_err(|error| match error {
        MemoryError::Store(StoreError::SecretExists { name }) => Failure::refused(
            format!("a secret `{name}` is registered already"),
            "add a newer value with --rotate; the older ones stay hidden too",
        ),
        error => error.into(),
    })?;
    if printer.is_json() {
        printer.json(&json::added_secret(&added))?;
    }
    tell(&added, printer);
    Ok(Status::Done)
}

fn tell(added: &AddedSecret, printer: &Printer) {
    let name = &added.record.name;
    printer.talk(&match added.record.values {
        1 => format!("`{name}` is hidden from now on, as [REDACTED:{name}]"),
        values => {
            format!("`{name}` has {} that are hidden from now on", count(values.into(), "value"))
        }
    });
    if added.is_common {
        printer.warn(&format!(
            "the value of `{name}` looks like words that people also write: they are hidden wherever they stand"
        ));
    }
    if added.has_earlier && !printer.is_json() {
        printer.talk("What was stored before may hold it: `icecore redact --rescan` rewrites that");
    }
}

async fn list(memory: &Memory, principal: &Principal, printer: &Printer) -> Outcome<Status> {
    let secrets = memory.secrets(principal.tenant()).await?;
    if printer.is_json() {
        printer.json(&json!({
            "secrets": secrets.iter().map(json::secret).collect::<Vec<_>>()
        }))?;
        return Ok(Status::Done);
    }
    if secrets.is_empty() {
        printer.talk("No secrets yet. `icecore secret add NAME` registers one.");
        return Ok(Status::Done);
    }
    let head = ["secret", "values", "added", "last change"].map(str::to_owned).to_vec();
    let row = |secret: &SecretRecord| {
        vec![
            secret.name.to_string(),
            number(secret.values.into()),
            secret.created_at.to_minute(),
            secret.updated_at.to_minute(),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(secrets.iter().map(row)).collect();
    for (at, line) in table(&rows, &[1]).iter().enumerate() {
        match at {
            0 => printer.line(&printer.paint(Tone::Dim, line))?,
            _ => printer.line(line)?,
        }
    }
    Ok(Status::Done)
}

async fn remove(
    name: &str,
    memory: &Memory,
    principal: &Principal,
    printer: &Printer,
) -> Outcome<Status> {
    memory.remove_secret(principal.tenant(), name).await?;
    if printer.is_json() {
        printer.json(&json!({ "removed": name }))?;
    }
    printer
        .talk(&format!("`{name}` is forgotten with all its values; what was hidden stays hidden"));
    Ok(Status::Done)
}
