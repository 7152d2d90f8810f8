//! Sessions as a model sees them: handoffs, and histories that clients send.

pub(crate) mod handoffs;
pub(crate) mod histories;

pub use self::handoffs::{
    ApiView, CompactRequest, Compacted, ExchangeRequest, Exchanged, FitRequest, Fitted,
    HandoffInfo, Reminder,
};
pub use self::histories::{
    ClientMessage, FittedHistory, FollowRequest, Followed, HistoryFit, ProviderCount,
};
pub use icecore_domain::follow::Following;
pub use icecore_domain::handoff::{
    Effort, ExceedsWindow, HANDOFF_MARK, PINNED_TAG, RECALL_MARK, SessionWindow,
};
pub use icecore_store::HandoffTrigger;

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
