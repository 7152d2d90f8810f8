//! `icecore migrate`: everything from one store to another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore::Memory;
use icecore::maintenance::MigrationReport;
use icecore::store::ObjectPlace;
use serde_json::json;
use zeroize::Zeroizing;

use super::backup::shown_on;
use super::config::without_password;
use crate::app::builder;
use crate::args::MigrateArgs;
use crate::draw::{bytes, count, number};
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Printer;
use crate::progress::Bar;
use crate::settings::{Settings, StoreUrl};

/// Moves everything, or goes on with it.
pub async fn run(args: MigrateArgs, settings: &Settings, printer: &Printer) -> Outcome<Status> {
    let from = Side::decide(&args.from, args.from_objects, settings)?;
    let to = Side::decide(&args.to, args.to_objects, settings)?;
    from.refuse_to_be(&to)?;
    from.must_be_there()?;
    let key = from.own_key(args.from_key_file.as_deref(), settings)?;
    let source = from.open(key.as_ref().map(|key| key.as_str()), false).await?;
    let target = to.open(settings.master_key.as_deref(), true).await?;
    let bar = Arc::new(Bar::new(printer, "reading"));
    let report =
        icecore::maintenance::migrate(&source, &target, &from.name, shown_on(&bar)).await?;
    drop(bar);
    match printer.is_json() {
        true => printer.json(&as_json(&report, &from, &to))?,
        false => tell(&report, &to, printer)?,
    }
    if !to.is_database() {
        return Ok(Status::Done);
    }
    printer.talk(
        "Every host needs the same ICECORE_MASTER_KEY and ICECORE_STORE, or --store, from now on",
    );
    Ok(Status::Done)
}

/// One of the two stores.
struct Side {
    /// What a person calls it: without a password.
    name: String,
    settings: Settings,
}

impl Side {
    fn decide(url: &str, objects: Option<String>, settings: &Settings) -> Outcome<Self> {
        let mut settings = settings.clone();
        let name = match StoreUrl::parse(url)? {
            StoreUrl::Postgres => {
                settings.database = Some(url.to_owned());
                without_password(url)
            }
            StoreUrl::Sqlite(dir) => {
                settings.data = dir.unwrap_or(settings.data);
                settings.database = None;
                // Those of the settings are where the database's lie.
                settings.file.objects.url = String::new();
                format!("sqlite:{}", whole(&settings.data).display())
            }
        };
        if let Some(url) = objects {
            settings.file.objects.url = url;
        }
        Ok(Self { name, settings })
    }

    fn is_database(&self) -> bool {
        self.settings.database.is_some()
    }

    /// Two stores that share objects would take each other's for left over.
    fn refuse_to_be(&self, other: &Side) -> Outcome<()> {
        if self.name == other.name {
            return Err(Failure::refused(
                format!("{} would be moved to itself", self.name),
                "name another store with --to; nothing was changed",
            ));
        }
        if self.objects_at()? == other.objects_at()? {
            return Err(Failure::refused(
                "both stores would keep their packs and archives at the same place",
                "name another directory with --data, or a place with --to-objects; nothing was changed",
            ));
        }
        Ok(())
    }

    fn objects_at(&self) -> Outcome<ObjectPlace> {
        let place = self.settings.file.objects.place().map_err(|reason| {
            Failure::refused(
                reason,
                "`[objects]` and --to-objects take a place like s3://bucket/prefix",
            )
        })?;
        Ok(match place {
            ObjectPlace::Beside => ObjectPlace::Directory(whole(&self.settings.data)),
            ObjectPlace::Directory(dir) => ObjectPlace::Directory(whole(&dir)),
            bucket => bucket,
        })
    }

    /// Nothing is made where something is to be read.
    fn must_be_there(&self) -> Outcome<()> {
        match self.is_database() || self.settings.data.join("icecore.db").exists() {
            true => Ok(()),
            false => Err(Failure::refused(
                format!("there is no store in `{}`", self.settings.data.display()),
                "name the directory of one with --from sqlite:DIR; nothing was changed",
            )),
        }
    }

    /// The key in the file that was named, or else in its directory, or else in the
    /// environment.
    fn own_key(
        &self,
        file: Option<&Path>,
        settings: &Settings,
    ) -> Outcome<Option<Zeroizing<String>>> {
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::refused(
                    format!("cannot read `{}`: {error}", path.display()),
                    "name the file of the source's master key",
                )
            })?;
            let text = Zeroizing::new(text);
            return Ok(Some(Zeroizing::new(text.trim().to_owned())));
        }
        let has_file = !self.is_database() && self.settings.data.join("master.key").exists();
        Ok(settings.master_key.clone().filter(|_| !has_file).map(Zeroizing::new))
    }

    async fn open(&self, key: Option<&str>, may_be_half_moved: bool) -> Outcome<Memory> {
        let builder = builder(&self.settings)?.embedder(None).master_key(key.map(str::to_owned));
        let builder = if may_be_half_moved { builder.half_moved() } else { builder };
        Ok(builder.open(&self.settings.data).await?)
    }
}

/// The same for every way to say it.
fn whole(dir: &Path) -> PathBuf {
    let whole = dir.canonicalize().or_else(|_| std::path::absolute(dir));
    whole.unwrap_or_else(|_| dir.to_owned())
}

fn tell(report: &MigrationReport, to: &Side, printer: &Printer) -> Outcome<()> {
    printer.line(&format!(
        "Moved {} to {}: {}, {} in all, {} of {}",
        count(report.tenants.len() as u64, "tenant"),
        to.name,
        count(report.rows_of("turns"), "turn"),
        count(report.row_count(), "row"),
        count(report.objects, "object"),
        bytes(report.object_bytes),
    ))?;
    for (tenant, at) in &report.tenants {
        printer.line(&format!("  {tenant} at position {}", number(at.0)))?;
    }
    printer.line("All of it was read back and is the same; the source is as it was")?;
    if report.rounds > 1 {
        printer.talk("The source was written to meanwhile, and that was caught up with");
    }
    printer.talk(
        "What is written to the source from now on stays there: point every host at the target",
    );
    Ok(())
}

fn as_json(report: &MigrationReport, from: &Side, to: &Side) -> serde_json::Value {
    let tenant =
        |(name, at): &(String, icecore::ids::Position)| json!({ "tenant": name, "position": at.0 });
    json!({
        "from": from.name,
        "to": to.name,
        "tenants": report.tenants.iter().map(tenant).collect::<Vec<_>>(),
        "rows": report.rows,
        "objects": report.objects,
        "objectBytes": report.object_bytes,
        "resumed": report.was_resumed,
        "rounds": report.rounds,
    })
}
