//! Models that talk, behind HTTP: OpenAI's `chat/completions` and Anthropic's `messages`.
//!
//! Whatever a server does ends in a reply or in a [`ChatError`] within the timeouts. The
//! key is in no error and no `Debug`.
//!
//! [`ChatError`]: icecore_domain::chat::ChatError

mod anthropic;
mod catalogue;
mod client;
mod draft;
mod local;
mod messages;
mod openai;
mod overflow;
mod parts;
mod refusal;
mod sse;

#[cfg(test)]
#[cfg(feature = "testing")]
mod client_tests;
#[cfg(test)]
#[cfg(feature = "testing")]
mod messages_tests;
#[cfg(test)]
mod render_tests;

pub use catalogue::known_window;
pub use client::{ChatClient, ChatClientConfig, ChatClientError, UNKNOWN_WINDOW};
pub use local::discover_local;
pub use overflow::{Overflow, overflow_of};
pub use sse::{Event, EventReader, NotText};
