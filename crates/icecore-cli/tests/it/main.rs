//! The real binary on throw-away directories.

mod bad_input;
mod commands;
mod damage;
mod forget;
mod import;
mod run;
mod serve;
mod signals;
