//! `icecore key rotate-master`: the key that seals everything else.

use icecore::maintenance::Rotated;
use serde_json::json;
use zeroize::Zeroizing;

use crate::app::builder;
use crate::draw::count;
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Printer;
use crate::settings::Settings;

/// Seals every tenant's key with a new master key, which seals the rest.
pub async fn rotate(settings: &Settings, printer: &Printer) -> Outcome<Status> {
    if settings.master_key.is_some() && settings.new_master_key.is_none() {
        return Err(Failure::refused(
            "the master key comes from ICECORE_MASTER_KEY, and no new one is given",
            "give 64 hexadecimal digits in ICECORE_NEW_MASTER_KEY, say from `openssl rand -hex 32`",
        ));
    }
    let is_key = |key: &String| key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit());
    if !settings.new_master_key.as_ref().is_none_or(is_key) {
        return Err(Failure::refused(
            "the key in ICECORE_NEW_MASTER_KEY is not 64 hexadecimal digits",
            "make one with `openssl rand -hex 32`; nothing was changed",
        ));
    }
    let new = settings.new_master_key.clone().map(Zeroizing::new);
    let rotated = builder(settings)?.rotate_master_key(&settings.data, new).await?;
    if printer.is_json() {
        printer.json(&json!({
            "tenants": rotated.tenants,
            "keyFile": rotated.key_file.as_ref().map(|path| path.display().to_string()),
        }))?;
    }
    let is_shared = settings.database.is_some();
    tell(&rotated, is_shared, printer);
    if !is_shared {
        scrub(&rotated, settings, printer).await;
    }
    Ok(Status::Done)
}

fn tell(rotated: &Rotated, is_shared: bool, printer: &Printer) {
    printer.talk(&format!(
        "The store has a new master key; {} sealed anew",
        match rotated.tenants {
            1 => "the key of 1 tenant was".to_owned(),
            tenants => format!("the keys of {} were", count(tenants, "tenant")),
        }
    ));
    match &rotated.key_file {
        Some(path) => printer.talk(&format!(
            "It is in {}: keep a copy elsewhere, for without it nothing can be read",
            path.display()
        )),
        None => printer.talk(
            "Put it into ICECORE_MASTER_KEY now and keep a copy: without it nothing can be read",
        ),
    }
    if is_shared {
        printer.talk(
            "Start every host again with it: until then they serve only the tenants they have met",
        );
    }
    printer.talk("Backups from before need the old key: keep it with them");
}

/// Leaves nothing in the files that the old key opens.
async fn scrub(rotated: &Rotated, settings: &Settings, printer: &Printer) {
    let present = match rotated.key_file {
        Some(_) => None,
        None => settings.new_master_key.clone(),
    };
    let scrubbed = async {
        let memory = builder(settings)?.embedder(None).master_key(present);
        let memory = memory.open(&settings.data).await?;
        memory.scrub().await?;
        Ok::<_, Failure>(())
    };
    if let Err(failure) = scrubbed.await {
        printer.warn(&format!(
            "the files may still hold keys that the old one opens: {}",
            failure.message()
        ));
        printer.hint("stop the other processes of this store and run `icecore redact --rescan`");
    }
}
