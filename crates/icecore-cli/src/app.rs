//! What every command has at hand: the memory, whose it is, and the way out.

use std::sync::Arc;

use icecore::dreams::IndexFile;
use icecore::models::Models;
use icecore::{Memory, MemoryBuilder, Principal, Scope, Tenant};
use icecore_host::bounds::Bounds;
use icecore_host::settings::WorkspaceSettings;
use icecore_host::{Host, HostSettings};

use crate::failure::{Failure, Outcome};
use crate::hush;
use crate::models;
use crate::printer::Printer;
use crate::progress::Bar;
use crate::settings::Settings;

/// The memory's name where none is given.
pub const DEFAULT_MEMORY: &str = "default";

/// An opened memory with what was decided about it.
pub struct App {
    /// What was decided.
    pub settings: Settings,
    /// The memory.
    pub memory: Memory,
    /// What a host adds to it.
    pub host: Host,
    /// On whose behalf.
    pub principal: Principal,
    /// Which memory of theirs.
    pub scope: Scope,
    /// The way out.
    pub printer: Printer,
}

/// What a command asks models for. A large model or a far server is not waited for where
/// nothing is asked of it.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Vectors.
    pub vectors: bool,
    /// Texts.
    pub talk: Talk,
}

/// Whether models that talk are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// They are not.
    No,
    /// They are; where they cannot be, what needs none is enough. Nobody is kept from
    /// forgetting for want of a key.
    IfPossible,
    /// They are, or it is said why not.
    Yes,
}

/// On whose behalf a command works.
pub fn principal(settings: &Settings) -> Outcome<Principal> {
    let tenant = Tenant::new(settings.tenant.clone()).map_err(icecore::MemoryError::from)?;
    Ok(Principal::local_operator(tenant))
}

/// A memory as the settings want it, but for its models.
pub fn builder(settings: &Settings) -> Outcome<MemoryBuilder> {
    let redactor = settings.file.redaction.redactor().map_err(|unknown| {
        Failure::refused(unknown.to_string(), "`icecore config example` lists the kinds")
    })?;
    let builder = Memory::builder();
    #[cfg(feature = "postgres")]
    let builder = match &settings.database {
        Some(url) => builder.postgres(url, settings.file.postgres),
        None => builder,
    };
    Ok(builder
        .settings(settings.file.memory.clone())
        .index(settings.file.index)
        .index_file(index_file(&settings.file.host.workspace))
        .admission(Arc::new(Bounds::new(settings.file.bounds.clone())))
        .redactor(redactor)
        .logs(hush::logs())
        .objects(settings.file.objects.clone(), settings.object_keys.clone())
        .master_key(settings.master_key.clone()))
}

/// The index of a tenant's memories is a file of its workspace.
fn index_file(workspace: &WorkspaceSettings) -> Option<IndexFile> {
    let &WorkspaceSettings { enabled, file_bytes, files, versions } = workspace;
    enabled.then_some(IndexFile { bytes: file_bytes, files, versions })
}

impl App {
    /// Opens the memory that the settings name.
    pub async fn open(settings: Settings, printer: Printer, needs: Needs) -> Outcome<Self> {
        let principal = principal(&settings)?;
        let embedder = match needs.vectors {
            true => models::embedder(&settings, printer).await?,
            false => None,
        };
        let talking = match needs.talk {
            Talk::No => models::priced(&settings),
            Talk::Yes => models::talking(&settings, printer).await?,
            Talk::IfPossible => models::talking(&settings, printer).await.unwrap_or_else(|why| {
                printer.warn(&format!("{}; going on without models", why.message()));
                Models::default()
            }),
        };
        let builder = builder(&settings)?.embedder(embedder).models(talking);
        let memory = builder.open(&settings.data).await?;
        let name = settings.memory.as_deref().unwrap_or(DEFAULT_MEMORY);
        let scope = memory.scope(&principal, name).await?;
        // Only `serve` keeps writers out.
        let hosting = HostSettings { read_only: false, ..settings.file.host.clone() };
        let host = Host::new(memory.clone(), hosting);
        Ok(Self { settings, memory, host, principal, scope, printer })
    }

    /// What a person should know about an answer.
    pub fn notices(&self, notices: &[String]) {
        for notice in notices {
            self.printer.talk(&format!(
                "{} {notice}",
                self.printer.paint_talk(crate::printer::Tone::Note, "note:")
            ));
        }
    }

    /// The memory where one was named, else none: for what covers the tenant.
    pub fn named_memory(&self) -> Option<&str> {
        self.settings.memory.as_ref().map(|_| self.scope.memory())
    }

    /// Derives what is due after a change. May be interrupted at any point: the
    /// change itself is durable, and the next command goes on here.
    pub async fn settle(&self) -> Outcome<()> {
        // One long branch would leave a bar of branches at nothing.
        let bar = Bar::spinner(&self.printer, "settling");
        tokio::select! {
            settled = self.host.settle(|done, left| bar.at(done, done + left)) => {
                settled?;
                Ok(())
            }
            _ = tokio::signal::ctrl_c() => Err(Failure::refused(
                "interrupted while settling; what was given is stored",
                "the next command that adds something goes on with it, and so does `icecore reindex`",
            )),
        }
    }
}
