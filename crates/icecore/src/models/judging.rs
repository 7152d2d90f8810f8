//! What models say of entries that are near.
//!
//! What was said of two entries is kept for these two alone, whatever else was asked
//! about with them, so that it is asked once.

use icecore_domain::entries::consolidate::model::{
    JudgePrompt, PAIRS_A_QUESTION, Verdict, read_verdicts,
};
use icecore_domain::redact::Redactor;
use icecore_store::{NewAnswer, StoreError};

use super::chain::{About, Prompt, Told};
use crate::error::Result;
use crate::models::ModelCalls;

/// Pairs of entries that one consolidation asks models about. Those that it was told of
/// before count for nothing.
pub const MAX_JUDGED_PAIRS: usize = 200;

/// The older and the newer of two entries, and what a model says of them.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) older: String,
    pub(crate) newer: String,
    pub(crate) verdict: Option<Verdict>,
}

impl ModelCalls {
    /// Whether models are asked about entries.
    pub(crate) fn has_consolidation_models(&self) -> bool {
        !self.models.consolidation.0.is_empty()
    }

    /// Gives each pair its verdict, as far as it is known or may be asked for. `left` are
    /// the pairs that may still be asked about.
    pub(crate) async fn judge_pairs(
        &self,
        about: About<'_>,
        redactor: (&Redactor, u64),
        pairs: &mut [Pair],
        left: &mut usize,
    ) -> Result<()> {
        let mut unknown = Vec::new();
        for (place, pair) in pairs.iter_mut().enumerate() {
            let key = self.pair_key(about, pair).await?;
            let kept = self.store.answer(about.scope, &key).await?;
            pair.verdict = kept.and_then(|word| Verdict::parse(word.as_str()));
            if pair.verdict.is_none() {
                unknown.push((place, key));
            }
        }
        unknown.truncate(*left);
        for some in unknown.chunks(PAIRS_A_QUESTION) {
            let texts: Vec<(&str, &str)> = some
                .iter()
                .map(|(place, _)| (pairs[*place].older.as_str(), pairs[*place].newer.as_str()))
                .collect();
            *left -= some.len();
            let JudgePrompt { instructions, pairs: data, max_tokens } = JudgePrompt::new(&texts);
            let size = self.counter.count(&data) + self.counter.count(&instructions);
            let prompt = |profile: &icecore_domain::chat::ChatProfile| {
                let fits = u64::from(size) + max_tokens + 64 <= profile.window;
                let (instructions, data) = (instructions.clone(), data.clone());
                fits.then_some(Prompt { instructions, data, max_tokens })
            };
            let read = |answer: &str| read_verdicts(answer, texts.len());
            let chain = &self.models.consolidation;
            let verdicts = match self.told_by_chain(chain, about, prompt, read).await? {
                Told::Taken(verdicts) => verdicts,
                // These are left as they are; others may do better.
                Told::Useless => continue,
                // None answers: the rest waits for another time.
                Told::Silence => break,
            };
            for ((place, key), verdict) in some.iter().zip(verdicts) {
                pairs[*place].verdict = Some(verdict);
                self.keep_verdict(about, redactor, *key, verdict).await?;
            }
        }
        Ok(())
    }

    async fn keep_verdict(
        &self,
        about: About<'_>,
        (redactor, secrets_seen): (&Redactor, u64),
        key: [u8; 32],
        verdict: Verdict,
    ) -> Result<()> {
        let answer = NewAnswer {
            key,
            session: None,
            epoch: about.epoch,
            text: redactor.text(verdict.as_str()),
            secrets_seen,
            now: self.now(),
        };
        match self.store.put_answer(about.scope, answer).await {
            Err(StoreError::SecretsChanged) => Ok(()),
            done => Ok(done?),
        }
    }

    /// What is said of two entries is kept for the models that are asked.
    async fn pair_key(&self, about: About<'_>, pair: &Pair) -> Result<[u8; 32]> {
        let models = self.models.consolidation.0.iter();
        let identities: Vec<u8> = models.flat_map(|model| model.profile().identity).collect();
        let parts = [&identities[..], pair.older.as_bytes(), pair.newer.as_bytes()];
        self.keyed_hash(about.scope.tenant(), "verdict", &parts).await
    }
}
