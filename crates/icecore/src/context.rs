//! Contexts: what bears on a question, within a budget of tokens.

pub(crate) mod building;
pub(crate) mod recollection;

pub use self::building::{Context, ContextRequest};
pub use icecore_domain::window::{WindowItem, WindowKind};

use crate::dreams::Dreams;

/// Builds contexts.
#[derive(Clone)]
pub struct Contexts {
    pub(crate) dreams: Dreams,
}

crate::base::over!(Contexts, dreams: Dreams);
