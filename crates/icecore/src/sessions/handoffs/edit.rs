//! A handoff as a person corrects it.

use std::sync::Arc;

use icecore_domain::handoff::{Effort, MESSAGE_TOKENS, parse, render};
use icecore_domain::ids::Scope;
use icecore_store::{HandoffEdit, KeptHandoff};

use super::Compacted;
use super::lines::corrected;
use super::view::Reading;
use crate::error::{MemoryError, Result, off_thread};
use crate::knowledge::compaction::looked_at;
use crate::privacy::secrets::write_redacted;
use crate::sessions::Sessions;

/// A correction is not read if it has more bytes than this for each token that it may
/// have.
const BYTES_A_TOKEN: u64 = 64;

/// What a person saw, and what they put in its place.
#[derive(Clone, Copy)]
pub(super) struct Correction<'a> {
    pub(super) session: &'a str,
    pub(super) branch: Option<&'a str>,
    pub(super) id: &'a str,
    pub(super) version: u64,
    pub(super) text: &'a str,
}

impl Sessions {
    /// Corrects a handoff, redacting again if secrets come meanwhile.
    pub(super) async fn correct(
        &self,
        scope: &Scope,
        correction: &Correction<'_>,
    ) -> Result<Compacted> {
        write_redacted(|| self.correct_once(scope, correction)).await
    }

    async fn correct_once(&self, scope: &Scope, wanted: &Correction<'_>) -> Result<Compacted> {
        let secrets = self.deriving_redactor(scope).await?;
        let reading = self.read_branch(scope, wanted.session, wanted.branch, usize::MAX).await?;
        let Some(record) = &reading.handoff else {
            return Err(self.no_handoff(scope, wanted.session));
        };
        if (record.id.as_str(), record.version) != (wanted.id, wanted.version) {
            return Err(self.changed(scope, wanted.session));
        }
        // What another branch has is not ours to change.
        if record.branch != reading.branch {
            let session = self.shown(scope.tenant(), wanted.session).into_string();
            let branch = record.branch.to_string();
            return Err(MemoryError::HandoffElsewhere { session, branch });
        }
        let most = self.handoff_room(&reading);
        let most_bytes = most.saturating_mul(BYTES_A_TOKEN);
        if wanted.text.len() as u64 > most_bytes {
            let tokens = (wanted.text.len() as u64).div_ceil(BYTES_A_TOKEN);
            return Err(MemoryError::HandoffTooLong { tokens, most });
        }
        let (words, number, turns) = (wanted.text.to_owned(), record.number, stood_for(&reading));
        let (redactor, counter) = (secrets.redactor.clone(), Arc::clone(&self.counter));
        let before = record.text.as_str().to_owned();
        let written = off_thread(move || {
            let text = render(&corrected(&parse(&before), parse(&words)), number, turns);
            let (text, _) = looked_at(&text, |text| redactor.derived_text(text))?;
            let tokens = u64::from(counter.count(text.as_str()));
            Ok::<_, MemoryError>((text, tokens))
        });
        let (text, tokens) = written.await??;
        if tokens > most {
            return Err(MemoryError::HandoffTooLong { tokens, most });
        }
        let tokens_after = reading.view.tokens - reading.handoff_tokens() + tokens;
        let edit = HandoffEdit {
            session: reading.session.no,
            branch: reading.branch,
            id: record.id.clone(),
            seen_version: record.version,
            text,
            tokens,
            tokens_after,
            secrets_seen: secrets.version,
            now: self.now(),
        };
        match self.store.edit_handoff(scope, edit).await? {
            KeptHandoff::Changed => Err(self.changed(scope, wanted.session)),
            KeptHandoff::Done(record) => Ok(Compacted {
                tokens_before: record.tokens_before,
                tokens_after: record.tokens_after,
                handoff: self.handoff_info(&record),
                effort: Effort::First,
                notices: Vec::new(),
            }),
        }
    }

    /// Tokens that the handoff of a view may have.
    fn handoff_room(&self, reading: &Reading) -> u64 {
        let beside = match reading.handoff_tokens() {
            0 => reading.request_tokens(0),
            tokens => reading.request_tokens(0) - tokens - MESSAGE_TOKENS,
        };
        let left = self.session_window().trigger().saturating_sub(beside);
        left.saturating_sub(MESSAGE_TOKENS).min(self.settings.handoffs.handoff_tokens)
    }

    pub(super) fn no_handoff(&self, scope: &Scope, session: &str) -> MemoryError {
        MemoryError::NoHandoff { session: self.shown(scope.tenant(), session).into_string() }
    }
}

/// How many turns the handoff of a view stands for.
fn stood_for(reading: &Reading) -> u64 {
    let Some(handoff) = &reading.handoff else { return 0 };
    let before = reading.path.iter().take_while(|(branch, _)| *branch != handoff.branch);
    let covered = before.map(|(_, through)| through.0).sum::<u64>() + handoff.through.0;
    covered.saturating_sub((reading.view.system.len() + handoff.kept.len()) as u64)
}
