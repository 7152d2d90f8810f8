//! What stands in a text: words, sentences, speakers, dates, cues and marks.
//!
//! Summaries, facts, dreams and handoffs are made of these; nothing here knows of
//! them. Every function reads one text, deterministically, and allocates no more than
//! what it returns.

mod cues;
pub mod dates;
mod fence;
mod grounds;
mod markers;
mod sentences;
mod speakers;
mod standing;
mod words;

pub use speakers::Said;
pub use standing::{Standing, standing};
pub use words::normalise;

pub(crate) use cues::{Cue, for_each_cue};
pub(crate) use fence::fence;
pub(crate) use grounds::{Grounds, bear_out, bear_out_but, carrying_stems, stems};
pub(crate) use markers::{MARKER, cuts_marker, says_something, whole_markers, without_markers};
pub(crate) use sentences::{
    ELLIPSIS, SentenceKind, cut_text, dump, ends_plainly, is_question, leans_on_before, one_line,
    sentences,
};
pub(crate) use speakers::{Voice, speaker_of, split_speaker, voice_of};
pub(crate) use standing::{
    instruction_strength, is_adverb, is_instruction, is_reaction, order_strength,
};
pub(crate) use words::{
    TermCounts, Token, Word, WordClass, class_of, compared_words, fold, for_each_word, is_unspaced,
    own_terms, shared_count, stem, term, tokens, turning_words, written_out,
};
