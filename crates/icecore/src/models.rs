//! Models that talk, in the service of the memory: which is asked for what, what of
//! it is spent, and what need not be asked again.
//!
//! Whatever is sent has been redacted, and so is whatever comes back. An answer that was
//! of use is kept under the hash of what was asked and of the model's identity.

mod accounts;
mod ask;
mod chain;
mod distiller;
mod dreams;
mod judging;
mod pause;
mod pressing;
mod spend;
mod summaries;
mod tally;

pub use crate::base::Purpose;
pub use icecore_domain::chat::{
    Answering, ChatError, ChatModel, ChatProfile, ChatReply, ChatRequest, Finish, Prices, Protocol,
    Usage,
};
pub use icecore_domain::embed::{EmbedError, Embedder, ModelId, Vector};
pub use icecore_domain::tokens::TokenCounter;
pub use icecore_store::Spending;

use std::sync::Arc;

use crate::privacy::Privacy;
pub use accounts::{BreakEven, ModelStats};

pub use self::distiller::{Distiller, DistillerError};
pub(crate) use ask::{Answered, Ask, Asking};
pub(crate) use chain::About;
pub use judging::MAX_JUDGED_PAIRS;
pub(crate) use judging::Pair;
pub use pause::{FAILURES_IN_A_ROW, LONGEST_PAUSE_SECONDS, MODEL_PAUSE_SECONDS};
pub(crate) use summaries::Made;
pub use summaries::SUMMARIES_AT_ONCE;
pub use tally::spending;

/// A part of a model's window that is left free, since its server counts otherwise than
/// we do: one in so many.
const FREE_PART: u64 = 10;

/// Asks models, within what tenants may spend.
#[derive(Clone)]
pub struct ModelCalls {
    pub(crate) privacy: Privacy,
    pub(crate) models: Arc<Models>,
    pub(crate) asking: Arc<Asking>,
}

crate::base::over!(ModelCalls, privacy: Privacy);

/// Models in the order in which they are asked. Behind the last stands what needs none.
#[derive(Debug, Clone, Default)]
pub struct ModelChain(pub Vec<Arc<dyn ChatModel>>);

/// Which models are asked for what.
#[derive(Debug, Clone, Default)]
pub struct Models {
    /// For summaries of chunks.
    pub summaries: ModelChain,
    /// For handoffs.
    pub handoffs: ModelChain,
    /// For dreams.
    pub dreams: ModelChain,
    /// For consolidation.
    pub consolidation: ModelChain,
    /// What may be spent.
    pub limits: SpendLimits,
    /// What the model costs that sessions are compacted for, where none is set up here to
    /// be asked.
    pub reading_price: Option<Prices>,
}

/// What a tenant may spend on models; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpendLimits {
    /// `tokens_a_day`: tokens read and written.
    pub tokens_a_day: u64,
    /// `money_a_day`: millionths of the currency.
    pub cost_a_day: u64,
}
