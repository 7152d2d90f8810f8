//! One file a command, one function a file.

pub mod add;
pub mod archive;
pub mod check;
pub mod completions;
pub mod config;
pub mod context;
pub mod demo;
pub mod dream;
pub mod events;
pub mod export;
pub mod forget;
pub mod health;
pub mod import;
pub mod key;
pub mod learn;
pub mod model;
pub mod redact;
pub mod reindex;
pub mod schedule;
pub mod search;
pub mod secret;
pub mod serve;
pub mod sessions;
pub mod show;
pub mod stats;
pub mod view;
