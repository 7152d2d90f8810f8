//! Implementations of the domain's ports.
//!
//! Tokenizers and embedders. Knows nothing of storage or serving.

#[cfg(feature = "chat")]
mod chat;
#[cfg(feature = "endpoint")]
mod endpoint;
#[cfg(feature = "endpoint")]
mod endpoint_wire;
#[cfg(feature = "local-models")]
mod local;
mod model_file;
mod o200k;
pub mod registry;
mod static_table;
#[cfg(feature = "testing")]
pub mod testing;
mod wordpiece;
mod words;

#[cfg(feature = "chat")]
pub use chat::{
    ChatClient, ChatClientConfig, ChatClientError, Event, EventReader, NotText, Overflow,
    UNKNOWN_WINDOW, discover_local, known_window, overflow_of,
};
#[cfg(feature = "endpoint")]
pub use endpoint::{ApiKey, EndpointConfig, EndpointEmbedder, EndpointError};
#[cfg(feature = "local-models")]
pub use local::{LocalEmbedder, LocalModel, LocalModelError};
pub use model_file::ModelFileError;
pub use o200k::O200k;
pub use static_table::{BUNDLED_MODEL, StaticEmbedder, TokenVector};
