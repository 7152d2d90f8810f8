//! Layered memory for AI agents.
//!
//! Give it every turn; ask what answers a question, or for a context that fits a
//! token budget. What was said
//! is kept whole, pressed layer by layer, and can be read back.
//!
//! ```
//! use icecore::{ContextRequest, Memory, Principal, RawTurn, SearchRequest, Tenant};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let memory = Memory::in_memory();
//! let scope = memory.scope(&Principal::local_operator(Tenant::new("me")?), "notes").await?;
//! memory.remember(&scope, "trip", vec![RawTurn::new("user", "We leave on 4 May.")]).await?;
//! let found = memory.search(&scope, &SearchRequest::new("When do we leave?")).await?;
//! let context = memory.context(&scope, ContextRequest::of_session("trip", 200)).await?;
//! assert_eq!(found.hits[0].text, "We leave on 4 May.");
//! assert!(context.text.contains("4 May") && context.tokens <= 200);
//! # Ok(())
//! # }
//! ```
//!
//! Knows how memory behaves, and no SQL and no wire format.

mod base;
pub mod context;
pub mod dreams;
mod error;
#[doc(hidden)]
pub mod extend;
mod facts;
pub mod formats;
pub mod ids;
pub mod ingest;
pub mod knowledge;
pub mod layers;
pub mod maintenance;
mod memory;
pub mod models;
pub mod privacy;
pub mod recall;
pub mod sessions;
pub mod settings;
pub mod store;

pub use context::{Context, ContextRequest};
pub use error::MemoryError;
pub use ids::{Clock, Millis, Principal, Scope, Seq, SystemClock, Tenant};
pub use ingest::{Append, RawTurn, Remembered, TurnInput};
pub use layers::{StoredTurn, View};
pub use maintenance::{ForgetRequest, Receipt};
pub use memory::{Memory, MemoryBuilder};
pub use recall::{Hit, Hits, SearchRequest};
pub use settings::MemorySettings;
