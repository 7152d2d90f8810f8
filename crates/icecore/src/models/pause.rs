//! Models that do not answer are left alone for a while, so that a server that is down
//! does not stall every piece of work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use icecore_domain::chat::{ChatError, ChatModel, ChatProfile};
use icecore_domain::time::Millis;

use crate::base::Purpose;

/// A model that does not answer, has no room, or does not let us in is left alone for so
/// many seconds, unless its server names another time.
pub const MODEL_PAUSE_SECONDS: u64 = 30;

/// A server that names a longer time is asked again after so many seconds.
pub const LONGEST_PAUSE_SECONDS: u64 = 600;

/// A model that answers, but so many times in a row nothing of use (it breaks off, refuses
/// the request, or writes what is no answer), is left alone too. One such answer may be
/// of one request alone, and is asked for again where it matters.
pub const FAILURES_IN_A_ROW: u32 = 3;

/// The models that are left alone, of this process.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    pauses: Mutex<BTreeMap<[u8; 32], Pause>>,
    /// Times in a row that models failed without being left alone for it.
    failures: Mutex<BTreeMap<[u8; 32], u32>>,
    /// What a person was told of: model, purpose and kind of failure.
    told: Mutex<BTreeSet<([u8; 32], Purpose, &'static str)>>,
}

#[derive(Debug)]
struct Pause {
    since: Millis,
    millis: u64,
    error: ChatError,
}

impl Pauses {
    /// Why a model is left alone at this moment, if it is.
    pub(super) fn of(&self, model: &dyn ChatModel, now: Millis) -> Option<ChatError> {
        let mut pauses = held(&self.pauses);
        let pause = pauses.get(&model.profile().identity)?;
        // A clock that was set back must not make it longer.
        if now.0.abs_diff(pause.since.0) < pause.millis {
            return Some(pause.error.clone());
        }
        pauses.remove(&model.profile().identity);
        None
    }

    /// Leaves a model alone if it failed so that it would fail again.
    pub(super) fn note(
        &self,
        model: &dyn ChatModel,
        purpose: Purpose,
        error: &ChatError,
        now: Millis,
    ) {
        let profile = model.profile();
        self.tell(profile, purpose, error);
        let Some(seconds) = pause_seconds(error).or_else(|| self.after_some(profile, error)) else {
            return;
        };
        tracing::warn!(
            model = profile.name,
            seconds,
            error = %error,
            "a model is left alone for a while; what it was wanted for is done without it"
        );
        let pause = Pause { since: now, millis: seconds * 1_000, error: error.clone() };
        held(&self.pauses).insert(profile.identity, pause);
    }

    /// Asks a model again, since it answered.
    pub(super) fn end(&self, model: &dyn ChatModel) {
        let identity = &model.profile().identity;
        held(&self.pauses).remove(identity);
        held(&self.failures).remove(identity);
        held(&self.told).retain(|(told, ..)| told != identity);
    }

    /// Says how a model failed, once for each way and purpose until it answers.
    fn tell(&self, profile: &ChatProfile, purpose: Purpose, error: &ChatError) {
        let kind = kind_of(error);
        if held(&self.told).insert((profile.identity, purpose, kind)) {
            tracing::warn!(
                model = profile.name,
                purpose = purpose.as_str(),
                kind,
                error = %error,
                "a model did not answer"
            );
        }
    }

    /// For how long, after some failures that may each be of one request alone.
    fn after_some(&self, profile: &ChatProfile, error: &ChatError) -> Option<u64> {
        // What is too large is made smaller, and asked again.
        if matches!(error, ChatError::Overflow { .. }) {
            return None;
        }
        let mut failures = held(&self.failures);
        let count = failures.entry(profile.identity).or_default();
        *count += 1;
        if *count < FAILURES_IN_A_ROW {
            return None;
        }
        failures.remove(&profile.identity);
        Some(MODEL_PAUSE_SECONDS)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word for a way to fail.
fn kind_of(error: &ChatError) -> &'static str {
    match error {
        ChatError::Overflow { .. } => "overflow",
        ChatError::Denied { .. } => "denied",
        ChatError::UnknownModel { .. } => "unknown model",
        ChatError::Busy { .. } => "busy",
        ChatError::Unavailable { .. } => "unavailable",
        ChatError::CutOff { .. } => "cut off",
        ChatError::Malformed { .. } => "malformed",
        ChatError::Refused { .. } => "refused",
        _ => "other",
    }
}

/// For how long; not at once if it may be this one request that it has no answer to.
fn pause_seconds(error: &ChatError) -> Option<u64> {
    match error {
        ChatError::Busy { retry_after: Some(wait), .. } => {
            Some(wait.as_secs().clamp(1, LONGEST_PAUSE_SECONDS))
        }
        ChatError::Busy { .. }
        | ChatError::Unavailable { .. }
        | ChatError::Denied { .. }
        | ChatError::UnknownModel { .. } => Some(MODEL_PAUSE_SECONDS),
        _ => None,
    }
}
