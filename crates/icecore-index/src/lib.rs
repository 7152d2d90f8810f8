//! What recall looks things up in: the words, columns and vectors of a scope.
//!
//! An index is derived: it can be dropped at any time and fed again from the
//! store. It keeps no text. What it does not know: where documents come from,
//! what a query means, and how signals become a rank.
//!
//! | module | idea |
//! |---|---|
//! | [`analysis`] | text as terms, the same for documents and queries |
//! | [`document`] | what is fed in, and what of it is kept |
//! | [`index`] | all scopes of a data directory; a few are open |
//! | [`scope`] | one scope: feeding, committing, starting anew |
//! | [`snapshot`] | what a query may ask of a scope |
//! | `columns`, `tail`, `segments`, `rows` | the parts: facts by document, postings in memory and on disk, vectors |
//! | `disk`, `payload` | which files there are, and what is trusted of them |
//!
//! A [`Snapshot`] numbers its documents in the order in which they were fed,
//! whether they are committed or not, so a [`Doc`] means the same before and
//! after a commit, a merge of segments and a restart.
//!
//! ```
//! use icecore_index::{Batch, Document, Field, Index, IndexSettings, Push, Role, Source};
//! use icecore_domain::ids::{Branch, Principal, Seq, SessionNo, Tenant};
//! use icecore_domain::{redact::Redactor, time::Millis};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let person = Principal::local_operator(Tenant::new("local")?);
//! let scope = person.scope(Redactor::standard().text("ops"))?;
//!
//! let index = Index::open(None, IndexSettings::default());
//! let open = index.scope(&scope)?;
//! let source = Source::Turn { session: SessionNo(1), seq: Seq(1), branch: Branch::MAIN };
//! let turn = Document { source, at: Millis(0), role: Role::User, speaker: None, signs: 0,
//!     text: "The backups ran at night".into(), vectors: vec![] };
//! let from = open.watermark();
//! let pushed = open.push(Batch { from, to: from, model: None, documents: vec![turn] })?;
//! assert_eq!(pushed, Push::Done);
//!
//! let mut found = Vec::new();
//! open.read().visit("backup", Field::Content, |doc, count| found.push((doc, count)))?;
//! assert_eq!(found, [(0, 1)]);
//! # Ok(()) }
//! ```

pub mod analysis;
mod codec;
mod columns;
mod disk;
pub mod document;
mod error;
pub mod index;
mod kernels;
mod lemma;
mod matches;
mod payload;
mod plan;
mod rank;
mod rows;
pub mod scope;
#[cfg(test)]
mod scope_tests;
mod segments;
mod settings;
mod signals;
mod signs;
pub mod snapshot;
mod tail;
mod watermark;
mod weights;

pub use analysis::passages;
pub use document::{Doc, DocKind, Document, Field, Role, Source, SpeakerNo};
pub use error::IndexError;
pub use index::{Index, Shrunk};
pub use plan::Plan;
pub use rank::{Wanted, rank, sort};
pub use scope::{Batch, Commit, Push, ScopeIndex};
pub use settings::IndexSettings;
pub use signals::Ranked;
pub use signs::{Signs, signs};
pub use snapshot::Snapshot;
pub use watermark::Watermark;
pub use weights::{Mode, SIGNALS, Signal};
