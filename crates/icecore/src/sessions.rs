//! Sessions as a model sees them: handoffs, and histories that clients send.

pub(crate) mod handoffs;
pub(crate) mod histories;

use std::sync::Arc;

use self::handoffs::LearnedWindows;
use self::histories::MessageCounts;
use crate::knowledge::Knowledge;

/// What a model is sent of a session.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) knowledge: Knowledge,
    pub(crate) learned_windows: Arc<LearnedWindows>,
    pub(crate) message_counts: Arc<MessageCounts>,
}

crate::base::over!(Sessions, knowledge: Knowledge);
