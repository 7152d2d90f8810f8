//! Dreams: what is due, distilled under a hard budget of tokens.
//!
//! [`plan`] says what is read and how much may be written, [`distil`] makes of it what
//! a person can read, [`archive`] gives that its bytes and its address, and [`index`]
//! says in a workspace file where it is. None of them knows a clock, an id of a host
//! or an order of arrival: equal sources and budgets give equal bytes.

pub mod archive;
pub mod distil;
pub mod index;
pub mod model;
pub mod plan;

pub use archive::{Archive, ArchiveError, ArchiveSource, Checksum};
pub use distil::{Distillate, EXTRACTIVE, Line, Section, distil};
pub use index::{INDEX_PATH, IndexedArchive, MemoryIndex, MemorySection, Topic};
pub use model::{DistilPrompt, Reply, merge, read_reply};
pub use plan::{Due, Limits, Plan, Refusal, plan};

pub use crate::source::{Part, Source, SourceFact, SourceKind};
