//! What tests elsewhere need: a real PostgreSQL, one thread, seeded names.
//!
//! Faults and fences hang on [`crate::hooks`]. What changes how a store works exists in debug
//! builds alone: features are joined over a whole build, so a release binary may be linked
//! with `testing` because something else in the workspace asks for it.

#[cfg(debug_assertions)]
mod counting;
#[cfg(debug_assertions)]
mod failing;
#[cfg(debug_assertions)]
mod one_thread;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(debug_assertions)]
mod seeded;

#[cfg(debug_assertions)]
pub use counting::{Counting, ReadCount};
#[cfg(debug_assertions)]
pub use failing::Failing;
#[cfg(debug_assertions)]
pub use one_thread::{OneThread, is_one_thread};
#[cfg(debug_assertions)]
pub use seeded::SeededNames;
#[cfg(debug_assertions)]
pub(crate) use seeded::draw;
