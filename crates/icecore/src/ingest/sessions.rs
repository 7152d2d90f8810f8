//! Finding a session by the name that a client gave.

use icecore_domain::ids::{Scope, SessionName};
use icecore_domain::redact::Redactor;
use icecore_store::SessionRecord;

use crate::error::{MemoryError, Result};
use crate::ingest::Ingest;
use crate::privacy::session_name;

/// Sessions read at once.
const PAGE: usize = 1_000;

/// How what stands for a secret begins.
const MARKER: &str = "[REDACTED:";

impl Ingest {
    /// The session's record, or a clear error.
    pub(crate) async fn session_record(
        &self,
        scope: &Scope,
        session: &str,
    ) -> Result<SessionRecord> {
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        let name = session_name(&redactor, session)?;
        let found = match self.session_called(scope, &name, session).await? {
            None => self.store.session(scope, &name).await?,
            found => found,
        };
        found.ok_or_else(|| MemoryError::NoSession {
            session: name.as_str().to_owned(),
            memory: scope.memory().to_owned(),
        })
    }

    /// The session's name as it is stored: as it was given, where that was before
    /// it was known to be secret and no rescan has come since.
    pub(crate) async fn session_to_append(
        &self,
        scope: &Scope,
        redactor: &Redactor,
        session: &str,
    ) -> Result<SessionName> {
        let name = session_name(redactor, session)?;
        let stored = self.session_called(scope, &name, session).await?;
        Ok(stored.and_then(|record| record.name).unwrap_or(name))
    }

    /// The session that is stored under the name `session` itself, though today it
    /// would be `redacted`; or one that is shown as `redacted` until a rescan comes.
    async fn session_called(
        &self,
        scope: &Scope,
        redacted: &SessionName,
        name: &str,
    ) -> Result<Option<SessionRecord>> {
        // Most names never told anything, and are asked for as they are stored.
        if redacted.as_str() == name && !name.contains(MARKER) {
            return Ok(None);
        }
        let Some(veil) = self.veil(scope).await? else { return Ok(None) };
        let stored_as_given = self.identity_key(scope.tenant()).await?.hash_name("session", name);
        let store = &self.store;
        if let Some(found) = store.session_by_hash(scope, stored_as_given).await? {
            return Ok(Some(found));
        }
        if let Some(found) = store.session(scope, redacted).await? {
            return Ok(Some(found));
        }
        // Names are hidden behind tags, so no two are shown alike.
        let is_called = |record: &SessionRecord| {
            let mut shown = record.clone();
            veil.session(&mut shown).is_ok() && shown.name.as_ref() == Some(redacted)
        };
        let mut after = None;
        loop {
            let page = store.sessions(scope, after, PAGE).await?;
            after = page.last().map(|record| record.no);
            let is_last = page.len() < PAGE;
            let found = page.into_iter().find(is_called);
            if found.is_some() || is_last {
                return Ok(found);
            }
        }
    }
}
