//! The rules of layered memory, as pure functions.
//!
//! This crate knows no clock, disk, network, async runtime or SQL. Time and ids
//! come in as arguments, maps are ordered, and so equal inputs give equal bytes.
//!
//! | module | idea |
//! |---|---|
//! | [`ids`] | who and where: tenants, scopes, sessions, branches, positions |
//! | [`turn`], [`turn_jsonl`] | one message, and the line it travels in |
//! | [`json`] | JSON text kept in its own spelling |
//! | [`identity`] | when two turns are the same turn |
//! | [`redact`] | text whose secrets were looked for |
//! | [`tokens`] | counting, by a named counter |
//! | [`cut`], [`chunk`] | where micros, minis and macros end, and what they are |
//! | [`ctf`] | the Compact Turn Format |
//! | [`compaction`], [`consolidation`] | many entries pressed into one; the same said once |
//! | [`chat`] | a model that talks: what it is asked, how it fails |
//! | [`handoff`] | two views of a session: what a model still sees of it |
//! | [`follow`] | which session a client's history goes on with |
//! | [`dream`] | what is due, distilled under a hard budget |
//! | [`schedule`] | when something is done by itself |
//! | [`summary`] | extractive summaries, themes, key facts |
//! | [`fact`] | what is worth knowing by itself, and what a person thinks of it |
//! | [`embed`] | text as a point in meaning, by a model with an identity |
//! | [`tier`] | what stays hot |
//! | [`when`] | dates in running text, resolved against a moment |
//! | [`window`] | the context for one prompt within a budget |
//! | [`workspace`] | files beside the memory: whose, and under which paths |

pub mod chat;
pub mod chunk;
pub mod ctf;
pub mod cut;
pub mod dream;
pub mod embed;
pub mod entries;
pub mod fact;
pub mod follow;
pub mod handoff;
pub mod identity;
pub mod ids;
pub mod json;
pub mod redact;
pub mod schedule;
pub mod source;
pub mod summary;
pub mod text;
pub mod tier;
pub mod time;
pub mod tokens;
pub mod turn;
pub mod turn_jsonl;
pub mod window;
pub mod workspace;
