//! The rules of layered memory, as pure functions.
//!
//! This crate knows no clock, disk, network, async runtime or SQL. Time and ids
//! come in as arguments, maps are ordered, and so equal inputs give equal bytes.
//!
//! | module | idea |
//! |---|---|
//! | [`ids`], [`time`], [`tokens`] | who and where, when, how much |
//! | [`turn`], [`turn_jsonl`], [`json`], [`identity`] | one message, the line it travels in, JSON in its own spelling, when two turns are the same |
//! | [`redact`] | text whose secrets were looked for |
//! | [`text`] | words, sentences, speakers, dates, cues, what a text bears out |
//! | [`cut`], [`chunk`], [`tier`], [`ctf`] | where micros, minis and macros end, what stays hot, the Compact Turn Format |
//! | [`source`] | what summaries and dreams are made from |
//! | [`fact`] | what is worth knowing by itself, and what a person says of it |
//! | [`summary`] | extractive summaries, themes, key facts |
//! | [`entries`] | many entries compacted into one; the same said once |
//! | [`dream`] | what is due, distilled within a budget of tokens |
//! | [`handoff`], [`follow`] | what a model still sees of a session; which session a client's history goes on with |
//! | [`chat`], [`embed`] | a model that talks; text as a point in meaning |
//! | [`window`] | the context for one prompt within a budget |
//! | [`schedule`], [`retry`], [`workspace`] | when something is done by itself, and again; files beside the memory |

pub mod chat;
pub mod chunk;
pub mod ctf;
pub mod cut;
pub mod dream;
pub mod embed;
pub mod entries;
mod enum_words;
pub mod fact;
pub mod follow;
pub mod handoff;
pub mod identity;
pub mod ids;
pub mod json;
pub mod redact;
pub mod retry;
pub mod schedule;
pub mod source;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod tier;
pub mod time;
pub mod tokens;
pub mod turn;
pub mod turn_jsonl;
pub mod window;
pub mod workspace;
