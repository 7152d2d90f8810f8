//! `icecore restore`: what a backup holds, back where nothing of it is.

use std::sync::Arc;

use serde_json::json;

use super::backup::{as_json, shown_on, told};
use crate::app::builder;
use crate::args::RestoreArgs;
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Printer;
use crate::progress::Bar;
use crate::settings::Settings;

/// Verifies the file, then restores it.
pub async fn run(args: RestoreArgs, settings: &Settings, printer: &Printer) -> Outcome<Status> {
    if settings.flags.tenant.is_some() || settings.flags.memory.is_some() {
        return Err(Failure::refused(
            "a backup says itself whose it is",
            "leave --tenant and --memory out; nothing was changed",
        ));
    }
    let bar = Arc::new(Bar::new(printer, "verifying"));
    // Before a store is made that it would be restored into.
    let backup = icecore::maintenance::open_backup(
        &args.file,
        &settings.data,
        settings.master_key.as_deref(),
        args.key_file.as_deref(),
        shown_on(&bar),
    )
    .await?;
    let memory = builder(settings)?.embedder(None).open(&settings.data).await?;
    let restored = memory.restore(&backup, shown_on(&bar)).await?;
    drop(bar);
    let report = &restored.backup;
    if printer.is_json() {
        let mut value = as_json(report);
        value["memories"] = json!(
            restored.scopes.iter().map(|scope| scope.memory().to_owned()).collect::<Vec<_>>()
        );
        printer.json(&value)?;
    } else {
        printer.line(&format!("Restored {}", told(report)))?;
    }
    let taken = report.created_at.to_minute();
    printer.talk(&format!(
        "It is as it was at {taken}: what was forgotten and which keys were revoked since then is back"
    ));
    if report.memory.is_some() {
        printer
            .talk("Secrets, keys, files and runs are the tenant's and do not come with one memory");
    }
    printer.talk(
        "Hosts that have this store open should be started anew; `icecore check` verifies it",
    );
    Ok(Status::Done)
}
