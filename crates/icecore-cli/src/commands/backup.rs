//! `icecore backup`: all that is kept of a tenant, a memory or everybody, in one file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use icecore::Memory;
use icecore::maintenance::{BackupOf, BackupReport, Doing, Moved};
use serde_json::{Value, json};

use super::import::watch_interrupt;
use crate::app::{builder, principal};
use crate::args::BackupArgs;
use crate::draw::{bytes, count, number};
use crate::failure::{Outcome, Status};
use crate::printer::Printer;
use crate::progress::Bar;
use crate::settings::Settings;

/// Writes a backup.
pub async fn run(args: BackupArgs, settings: &Settings, printer: &Printer) -> Outcome<Status> {
    let memory = builder(settings)?.embedder(None).open(&settings.data).await?;
    let of = chosen(&args, settings, &memory).await?;
    let bar = Arc::new(Bar::new(printer, "reading"));
    let report = memory.back_up(&of, &args.file, shown_on(&bar)).await?;
    drop(bar);
    if printer.is_json() {
        let mut value = as_json(&report);
        value["file"] = json!(args.file.display().to_string());
        printer.json(&value)?;
    } else {
        printer.line(&format!("Backed up {}", told(&report)))?;
        printer.line(&format!("{} in {}", bytes(report.bytes), args.file.display()))?;
    }
    printer.talk("The master key is not in it, and it cannot be restored without: keep a copy of that elsewhere");
    printer.talk("What is forgotten from now on stays in this file");
    Ok(Status::Done)
}

async fn chosen(args: &BackupArgs, settings: &Settings, memory: &Memory) -> Outcome<BackupOf> {
    if args.all {
        return Ok(BackupOf::Everything);
    }
    let principal = principal(settings)?;
    Ok(match &settings.memory {
        Some(name) => BackupOf::Memory(memory.scope(&principal, name).await?),
        None => BackupOf::Tenant(principal.tenant().clone()),
    })
}

/// Has a bar show how far it is, until Ctrl-C.
pub fn shown_on(bar: &Arc<Bar>) -> impl Fn(Moved) -> bool + Send + Sync + 'static {
    let (bar, interrupted) = (Arc::clone(bar), watch_interrupt());
    move |moved| {
        bar.doing(match moved.doing {
            Doing::Verifying => "verifying",
            Doing::Rows => "rows",
            Doing::Objects => "objects",
        });
        bar.at(moved.done, moved.total);
        !interrupted.load(Ordering::Relaxed)
    }
}

/// What a backup holds, as a person reads it.
pub fn told(report: &BackupReport) -> String {
    let whose = match (report.tenants.as_slice(), &report.memory) {
        ([(tenant, at)], Some(memory)) => {
            format!("memory {memory} of tenant {tenant} at position {}", number(at.0))
        }
        ([(tenant, at)], None) => format!("tenant {tenant} at position {}", number(at.0)),
        (tenants, _) => count(tenants.len() as u64, "tenant"),
    };
    format!(
        "{whose}: {}, {} in all, {}",
        count(report.rows_of("turns"), "turn"),
        count(report.row_count(), "row"),
        count(report.objects, "object")
    )
}

/// The same for programs.
pub fn as_json(report: &BackupReport) -> Value {
    let tenant =
        |(name, at): &(String, icecore::ids::Position)| json!({ "tenant": name, "position": at.0 });
    json!({
        "takenAt": report.created_at.to_rfc3339(),
        "memoryRef": report.memory,
        "tenants": report.tenants.iter().map(tenant).collect::<Vec<_>>(),
        "rows": report.rows,
        "objects": report.objects,
        "objectBytes": report.object_bytes,
        "bytes": report.bytes,
    })
}
