//! The memory as a program uses it, over a real store.

mod faults;
mod forgetting;
mod layers;
mod seed_wrongs;
mod support;
mod workspace;
