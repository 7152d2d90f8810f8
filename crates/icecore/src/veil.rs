//! Hides on reading what a rescan has not yet hidden where it is stored.
//!
//! A secret that is registered today may stand in what was stored before. From
//! then on no reader and no model sees it; [`Memory::rescan`] takes it out of the
//! store, and after that reading costs nothing more.

use icecore_domain::fact::RedactedFact;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedSummary, RedactedText, Redactor};
use icecore_store::{ChunkRecord, EntryRecord, EventRecord, SessionRecord, TurnRow};

use crate::error::{Result, not_redacted};
use crate::indexing::Item;
use crate::memory::{Memory, session_name};
use crate::secrets::TenantRedactor;

/// A redactor over what was stored before its secrets were known.
pub(crate) struct Veil(Redactor);

impl Memory {
    /// What must be hidden on reading, if anything must.
    pub(crate) async fn veil(&self, scope: &Scope) -> Result<Option<Veil>> {
        self.veil_of(scope.tenant()).await
    }

    /// The same, for what belongs to a tenant and no memory of it.
    pub(crate) async fn veil_of(&self, tenant: &Tenant) -> Result<Option<Veil>> {
        let known = self.redactor(tenant).await?;
        match self.is_rescanned(tenant, &known).await? {
            true => Ok(None),
            false => Ok(Some(Veil(known.redactor))),
        }
    }

    /// Whether all that is stored was looked through with these secrets.
    pub(crate) async fn is_rescanned(
        &self,
        tenant: &Tenant,
        known: &TenantRedactor,
    ) -> Result<bool> {
        let has_secrets = known.redactor.has_registered();
        Ok(!has_secrets || self.rescanned_with(tenant).await? == known.version)
    }

    /// The version of the tenant's secrets with which all that is stored was last
    /// looked through.
    async fn rescanned_with(&self, tenant: &Tenant) -> Result<u64> {
        if let Some(version) = self.inner.redactors.rescanned_with(tenant) {
            return Ok(version);
        }
        let note = self.inner.store.note(&note_of(tenant)).await?;
        let version = note.and_then(|note| note.parse().ok()).unwrap_or(0);
        self.inner.redactors.note_rescanned(tenant, version);
        Ok(version)
    }

    /// Notes that nothing stored holds what was registered up to `version`.
    pub(crate) async fn note_rescanned(&self, tenant: &Tenant, version: u64) -> Result<()> {
        self.inner.store.put_note(&note_of(tenant), &version.to_string()).await?;
        self.inner.redactors.note_rescanned(tenant, version);
        Ok(())
    }

    /// Hides what is secret in turns that were read.
    pub(crate) async fn veil_turns(&self, scope: &Scope, rows: &mut [TurnRow]) -> Result<()> {
        if let Some(Veil(redactor)) = self.veil(scope).await? {
            for body in rows.iter_mut().filter_map(|row| row.body.as_mut()) {
                *body = redactor.turn(body.fields().clone());
            }
        }
        Ok(())
    }

    /// Hides what is secret in whatever was read but turns, which are veiled as
    /// they are read.
    pub(crate) async fn veil_items(
        &self,
        scope: &Scope,
        items: impl Iterator<Item = &mut Item>,
    ) -> Result<()> {
        let Some(veil) = self.veil(scope).await? else { return Ok(()) };
        for item in items {
            match item {
                Item::Turn(_) => {}
                Item::Summary(chunk) => {
                    chunk.summary =
                        chunk.summary.as_ref().map(|summary| veil.summary(summary)).transpose()?;
                }
                Item::Entry(entry) => veil.entry(entry),
                Item::Fact(record) => record.fact = veil.fact(&record.fact)?,
                Item::Told(record) => record.fact = veil.fact(&record.fact)?,
            }
        }
        Ok(())
    }

    /// Hides what is secret in summaries that were read.
    pub(crate) async fn veil_chunks(
        &self,
        scope: &Scope,
        mut chunks: Vec<ChunkRecord>,
    ) -> Result<Vec<ChunkRecord>> {
        if let Some(veil) = self.veil(scope).await? {
            for summary in chunks.iter_mut().filter_map(|chunk| chunk.summary.as_mut()) {
                *summary = veil.summary(summary)?;
            }
        }
        Ok(chunks)
    }
}

impl Veil {
    fn summary(&self, summary: &RedactedSummary) -> Result<RedactedSummary> {
        self.0.summary(summary.parts().clone()).map_err(not_redacted)
    }

    fn fact(&self, fact: &RedactedFact) -> Result<RedactedFact> {
        self.0.fact(fact.clone().into_fact()).map_err(not_redacted)
    }

    pub(crate) fn entry(&self, entry: &mut EntryRecord) {
        entry.content = self.text(&entry.content);
        entry.tags = entry.tags.iter().map(|tag| self.text(tag)).collect();
    }

    pub(crate) fn text(&self, text: &RedactedText) -> RedactedText {
        self.text_of(text.as_str())
    }

    /// Hides what is secret in the name of a session.
    pub(crate) fn session(&self, record: &mut SessionRecord) -> Result<()> {
        if let Some(name) = &mut record.name {
            *name = session_name(&self.0, name.as_str())?;
        }
        Ok(())
    }

    /// Hides what is secret in what an event says.
    pub(crate) fn event(&self, event: &mut EventRecord) {
        event.payload = match JsonText::parse(&event.payload) {
            Ok(json) => self.0.json(&json).as_str().to_owned(),
            Err(_) => self.0.text(&event.payload).into_string(),
        };
    }

    pub(crate) fn text_of(&self, text: &str) -> RedactedText {
        self.0.text(text)
    }
}

fn note_of(tenant: &Tenant) -> String {
    format!("rescanned {}", tenant.as_str())
}
