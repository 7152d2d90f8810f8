//! What tests elsewhere need: a real PostgreSQL, one thread, seeded names.
//!
//! Faults and fences hang on [`crate::hooks`].

#[cfg(debug_assertions)]
mod counting;
mod one_thread;
#[cfg(feature = "postgres")]
pub mod postgres;
mod seeded;

#[cfg(debug_assertions)]
pub use counting::{Counting, ReadCount};
pub use one_thread::{OneThread, is_one_thread};
pub use seeded::SeededNames;
pub(crate) use seeded::draw;
