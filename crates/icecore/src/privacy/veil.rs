//! Hides on reading what a rescan has not yet hidden where it is stored.
//!
//! A secret that is registered today may stand in what was stored before. From
//! then on no reader and no model sees it; `Upkeep::rescan` takes it out of the
//! store, and after that reading costs nothing more.

use std::collections::BTreeMap;

use icecore_domain::fact::RedactedFact;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedText, RedactedTurn, Redactor};
use icecore_domain::summary::{RedactedSummary, Summary};
use icecore_store::{ChunkRecord, EntryRecord, EventRecord, SessionRecord, TurnRow};

use crate::base::pieces::in_pieces;
use crate::error::{Result, not_redacted};
use crate::privacy::Privacy;
use crate::privacy::secrets::TenantRedactor;
use crate::privacy::session_name;

/// A redactor over what was stored before its secrets were known.
pub(crate) struct Veil(Redactor);

impl Privacy {
    /// What must be hidden on reading, if anything must.
    pub(crate) async fn veil(&self, scope: &Scope) -> Result<Option<Veil>> {
        self.veil_of(scope.tenant()).await
    }

    /// The same, for what belongs to a tenant and no memory of it.
    pub(crate) async fn veil_of(&self, tenant: &Tenant) -> Result<Option<Veil>> {
        Ok(self.read_redactor(tenant).await?.map(Veil))
    }

    /// The redactor that stored text must go through when it is read, unless a rescan has
    /// already been through all of it.
    pub(crate) async fn read_redactor(&self, tenant: &Tenant) -> Result<Option<Redactor>> {
        let known = self.redactor(tenant).await?;
        let is_clean = self.is_rescanned(tenant, &known).await?;
        Ok((!is_clean).then_some(known.redactor))
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

    /// Tenants with secrets that what they have stored was not looked through for,
    /// and how many texts they have stored. `told` are those that were answered before, with
    /// the version of their secrets: each is answered once.
    pub(crate) async fn new_rescans(
        &self,
        told: &mut BTreeMap<Tenant, u64>,
    ) -> Result<Vec<(Tenant, u64)>> {
        let store = &self.store;
        let mut found = Vec::new();
        for (tenant, version) in store.tenants_with_new_secrets(RESCANNED).await? {
            if told.get(&tenant) == Some(&version) {
                continue;
            }
            told.insert(tenant.clone(), version);
            let stats = store.stats(&tenant, None, self.now()).await?;
            let texts = stats.turns + stats.entries + stats.verdicts + stats.files;
            if texts > 0 {
                found.push((tenant, texts));
            }
        }
        Ok(found)
    }

    /// The version of the tenant's secrets with which all that is stored was last
    /// looked through.
    async fn rescanned_with(&self, tenant: &Tenant) -> Result<u64> {
        if let Some(version) = self.redactors.rescanned_with(tenant) {
            return Ok(version);
        }
        let note = self.store.note(&note_of(tenant)).await?;
        let version = note.and_then(|note| note.parse().ok()).unwrap_or(0);
        self.redactors.note_rescanned(tenant, version);
        Ok(version)
    }

    /// Notes that nothing stored holds what was registered up to `version`.
    pub(crate) async fn note_rescanned(&self, tenant: &Tenant, version: u64) -> Result<()> {
        self.store.put_note(&note_of(tenant), &version.to_string()).await?;
        self.redactors.note_rescanned(tenant, version);
        Ok(())
    }

    /// Hides what is secret in turns that were read.
    pub(crate) async fn veil_turns(&self, scope: &Scope, rows: &mut [TurnRow]) -> Result<()> {
        let Some(Veil(redactor)) = self.veil(scope).await? else { return Ok(()) };
        let bodies = rows.iter_mut().filter_map(|row| row.body.as_mut());
        let size = |turn: &RedactedTurn| turn.fields().byte_count();
        in_pieces(bodies, size, move |turn| {
            *turn = redactor.turn(turn.fields().clone());
            Ok(())
        })
        .await
    }

    /// Hides what is secret in entries that were read.
    pub(crate) async fn veil_entries(
        &self,
        scope: &Scope,
        entries: impl Iterator<Item = &mut EntryRecord>,
    ) -> Result<()> {
        let Some(veil) = self.veil(scope).await? else { return Ok(()) };
        in_pieces(entries, entry_bytes, move |entry| {
            veil.entry(entry);
            Ok(())
        })
        .await
    }

    /// Hides what is secret in summaries that were read.
    pub(crate) async fn veil_chunks(
        &self,
        scope: &Scope,
        mut chunks: Vec<ChunkRecord>,
    ) -> Result<Vec<ChunkRecord>> {
        if let Some(veil) = self.veil(scope).await? {
            let summaries = chunks.iter_mut().filter_map(|chunk| chunk.summary.as_mut());
            in_pieces(summaries, summary_bytes, move |summary| {
                *summary = veil.summary(summary)?;
                Ok(())
            })
            .await?;
        }
        Ok(chunks)
    }
}

impl Veil {
    pub(crate) fn summary(&self, summary: &RedactedSummary) -> Result<RedactedSummary> {
        self.0.summary(summary.parts().clone()).map_err(not_redacted)
    }

    pub(crate) fn fact(&self, fact: &RedactedFact) -> Result<RedactedFact> {
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
        self.payload(&mut event.payload);
    }

    pub(crate) fn payload(&self, payload: &mut String) {
        *payload = match JsonText::parse(payload) {
            Ok(json) => self.0.json(&json).as_str().to_owned(),
            Err(_) => self.0.text(payload).into_string(),
        };
    }

    pub(crate) fn text_of(&self, text: &str) -> RedactedText {
        self.0.text(text)
    }
}

pub(crate) fn summary_bytes(summary: &RedactedSummary) -> usize {
    let Summary { text, themes, key_facts } = summary.parts();
    text.len() + themes.iter().chain(key_facts).map(String::len).sum::<usize>()
}

pub(crate) fn entry_bytes(entry: &EntryRecord) -> usize {
    entry.content.as_str().len() + entry.tags.iter().map(|tag| tag.as_str().len()).sum::<usize>()
}

pub(crate) fn fact_bytes(fact: &RedactedFact) -> usize {
    let RedactedFact { subject, attribute, value, text, quote, .. } = fact;
    [subject, attribute, value, text, quote].iter().map(|text| text.as_str().len()).sum()
}

/// Notes that begin with this end with a tenant's name, and hold the version of its secrets
/// with which all that is stored was last looked through.
const RESCANNED: &str = "rescanned ";

fn note_of(tenant: &Tenant) -> String {
    format!("{RESCANNED}{}", tenant.as_str())
}

#[cfg(test)]
mod tests {
    use icecore_domain::ids::Principal;
    use icecore_domain::turn::RawTurn;
    use icecore_store::{Packs, Store};

    use super::*;
    use crate::memory::MemoryBuilder;

    #[tokio::test]
    async fn a_rescan_that_is_due_is_told_of_once() {
        let store = Store::in_memory([1; 32]);
        let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
        let me = Principal::local_operator(Tenant::new("t").unwrap());
        let scope = memory.scope(&me, "m").await.unwrap();
        let mut told = BTreeMap::new();
        let turns = vec![RawTurn::new("user", "kumquat4711 and zebra4711")];
        memory.remember(&scope, "s", turns).await.unwrap();
        assert_eq!(memory.new_rescans(&mut told).await.unwrap(), []);

        for (name, value) in [("fruit", "kumquat4711"), ("animal", "zebra4711")] {
            memory.add_secret(me.tenant(), name, value.to_owned().into(), false).await.unwrap();
            let due = [(me.tenant().clone(), 1)];
            assert_eq!(memory.new_rescans(&mut told).await.unwrap(), due);
            assert_eq!(memory.new_rescans(&mut told).await.unwrap(), []);
        }
        memory.rescan(&me, false, |_, _| {}).await.unwrap();
        assert_eq!(memory.new_rescans(&mut BTreeMap::new()).await.unwrap(), []);
    }
}
