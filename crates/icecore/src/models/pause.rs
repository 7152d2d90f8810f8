//! Models that do not answer are left alone for a while, so that a server that is down
//! does not stall every piece of work.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use icecore_domain::chat::{ChatError, ChatModel};
use icecore_domain::time::Millis;

/// A model that does not answer, has no room, or does not let us in is left alone for so
/// many seconds, unless its server names another time.
pub const MODEL_PAUSE_SECONDS: u64 = 30;

/// A server that names a longer time is asked again after so many seconds.
pub const LONGEST_PAUSE_SECONDS: u64 = 600;

/// The models that are left alone, of this process.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<BTreeMap<[u8; 32], Pause>>);

#[derive(Debug)]
struct Pause {
    since: Millis,
    millis: u64,
    error: ChatError,
}

impl Pauses {
    /// Why a model is left alone at this moment, if it is.
    pub(super) fn of(&self, model: &dyn ChatModel, now: Millis) -> Option<ChatError> {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = pauses.get(&model.profile().identity)?;
        // A clock that was set back must not make it longer.
        if now.0.abs_diff(pause.since.0) < pause.millis {
            return Some(pause.error.clone());
        }
        pauses.remove(&model.profile().identity);
        None
    }

    /// Leaves a model alone if it failed so that it would fail again.
    pub(super) fn note(&self, model: &dyn ChatModel, error: &ChatError, now: Millis) {
        let Some(seconds) = pause_seconds(error) else { return };
        let profile = model.profile();
        tracing::warn!(
            model = profile.name,
            seconds,
            error = %error,
            "a model is left alone for a while; what it was wanted for is done without it"
        );
        let pause = Pause { since: now, millis: seconds * 1_000, error: error.clone() };
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.insert(profile.identity, pause);
    }

    /// Asks a model again, since it answered.
    pub(super) fn end(&self, model: &dyn ChatModel) {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.remove(&model.profile().identity);
    }
}

/// For how long; not at all if it is this one request that it has no answer to.
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
