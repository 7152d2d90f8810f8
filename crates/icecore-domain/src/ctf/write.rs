//! Writing version 2.

use std::collections::BTreeMap;

use super::escape::{push_item, push_json, push_list, push_optional, push_text};
use super::header::{self, Column};
use super::stamp::{MINUTE_BYTES, Stamp, write_seconds};
use crate::json::quote;
use crate::turn::{Content, RawTurn};

/// Encodes turns as CTF 2. Every field comes back from [`decode`](super::decode).
pub fn encode(turns: &[RawTurn]) -> String {
    let columns = columns_of(turns);
    let speakers = Speakers::of(turns);
    let clock = Clock::of(turns);

    let mut out = header::begin(text_bytes(turns));
    push_header(&mut out, turns.len(), &columns, &speakers, &clock);
    for nth in 0..turns.len() {
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                out.push('\t');
            }
            match column {
                Column::By => {
                    out.push_str(speakers.code(nth));
                    clock.push_time(&mut out, nth);
                }
                _ => push_cell(&mut out, *column, turns, nth),
            }
        }
        out.push('\n');
    }
    header::seal(out)
}

/// Roughly what will be written, so that the text is not copied as it grows.
fn text_bytes(turns: &[RawTurn]) -> usize {
    let contents: usize = turns.iter().map(|turn| turn.content.byte_count()).sum();
    256 + contents + contents / 32 + turns.len() * 16
}

/// Only what occurs becomes a column.
fn columns_of(turns: &[RawTurn]) -> Vec<Column> {
    let occurs = |column: &Column| match column {
        Column::By | Column::Content => true,
        Column::Id => turns.iter().any(|turn| turn.id.is_some()),
        Column::ParentIds => turns.iter().any(|turn| turn.parent_ids.is_some()),
        Column::Tags => turns.iter().any(|turn| turn.tags.is_some()),
        Column::Confidence => turns.iter().any(|turn| turn.confidence.is_some()),
        Column::ToolCallId => turns.iter().any(|turn| turn.tool_call_id.is_some()),
        Column::ToolCalls => turns.iter().any(|turn| turn.tool_calls.is_some()),
        Column::Extra => turns.iter().any(|turn| !turn.extra.is_empty()),
    };
    Column::ALL.into_iter().filter(occurs).collect()
}

fn push_header(
    out: &mut String,
    turn_count: usize,
    columns: &[Column],
    speakers: &Speakers<'_>,
    clock: &Clock<'_>,
) {
    out.push_str(&format!(" turns={turn_count}"));
    if let Some(step) = clock.step {
        out.push_str(&format!(" step={}", write_seconds(step)));
    }
    let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    out.push_str(&format!(" fields={}", names.join(",")));
    for (code, speaker) in speakers.codes.iter().zip(&speakers.distinct) {
        out.push('\t');
        out.push_str(code);
        out.push('=');
        speaker.push(out);
    }
    out.push('\n');
}

fn push_cell(out: &mut String, column: Column, turns: &[RawTurn], nth: usize) {
    let turn = &turns[nth];
    let json = match column {
        Column::Confidence => &turn.confidence,
        Column::ToolCalls => &turn.tool_calls,
        _ => &None,
    };
    match column {
        Column::By => {}
        Column::Id => push_optional(out, turn.id.as_deref()),
        Column::ToolCallId => push_optional(out, turn.tool_call_id.as_deref()),
        Column::ParentIds => push_parents(out, turns, nth),
        Column::Tags => turn.tags.iter().for_each(|tags| push_list(out, tags)),
        Column::Confidence | Column::ToolCalls => {
            json.iter().for_each(|json| push_json(out, json.as_str()));
        }
        Column::Extra => push_extra(out, turn),
        Column::Content => match &turn.content {
            Content::Text(text) => push_text(out, text),
            Content::Null => out.push_str("\\N"),
            Content::Parts(json) => {
                out.push_str("\\J");
                push_json(out, json.as_str());
            }
        },
    }
}

/// Most turns follow the one before them, and an id is long: `^` says so.
fn push_parents(out: &mut String, turns: &[RawTurn], nth: usize) {
    let Some(parents) = &turns[nth].parent_ids else { return };
    let before = nth.checked_sub(1).and_then(|before| turns[before].id.as_ref());
    match (parents.as_slice(), before) {
        ([only], Some(before)) if only == before => out.push('^'),
        _ => push_list(out, parents),
    }
}

/// The unknown fields as one object, in their order.
fn push_extra(out: &mut String, turn: &RawTurn) {
    if turn.extra.is_empty() {
        return;
    }
    for (nth, (key, value)) in turn.extra.iter().enumerate() {
        out.push(if nth == 0 { '{' } else { ',' });
        out.push_str(&quote(key));
        out.push(':');
        push_json(out, value.as_str());
    }
    out.push('}');
}

/// Who speaks: what is the same on every turn of one speaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Speaker<'a> {
    role: &'a str,
    name: Option<&'a str>,
    model: Option<&'a str>,
}

impl<'a> Speaker<'a> {
    fn of(turn: &'a RawTurn) -> Self {
        Self { role: &turn.role, name: turn.name.as_deref(), model: turn.model.as_deref() }
    }

    /// `user,Ana,gpt-4o`, without what is absent at the end.
    fn push(&self, out: &mut String) {
        push_item(out, self.role);
        for (part, is_last) in [(self.name, self.model.is_none()), (self.model, true)] {
            match part {
                Some(part) => {
                    out.push(',');
                    push_item(out, part);
                }
                None if is_last => {}
                None => out.push(','),
            }
            if is_last {
                break;
            }
        }
    }

    /// The letter a reader would expect.
    fn initial(&self) -> Option<char> {
        let words = self.name.into_iter().chain([self.role]);
        let mut initials = words.filter_map(|word| word.chars().next());
        initials.find(char::is_ascii_alphabetic).map(|c| c.to_ascii_uppercase())
    }
}

/// The speakers of a batch, each with a short code.
struct Speakers<'a> {
    distinct: Vec<Speaker<'a>>,
    codes: Vec<String>,
    of_turn: Vec<usize>,
}

impl<'a> Speakers<'a> {
    fn of(turns: &'a [RawTurn]) -> Self {
        let mut known: BTreeMap<Speaker<'a>, usize> = BTreeMap::new();
        let mut distinct: Vec<Speaker<'a>> = Vec::new();
        let mut of_turn = Vec::with_capacity(turns.len());
        for turn in turns {
            let speaker = Speaker::of(turn);
            let nth = *known.entry(speaker).or_insert(distinct.len());
            if nth == distinct.len() {
                distinct.push(speaker);
            }
            of_turn.push(nth);
        }
        let codes = choose_codes(&distinct);
        Self { distinct, codes, of_turn }
    }

    fn code(&self, nth: usize) -> &str {
        &self.codes[self.of_turn[nth]]
    }
}

/// One letter for the first 52, the initial where it is free; then two and more.
fn choose_codes(speakers: &[Speaker<'_>]) -> Vec<String> {
    let mut free: Vec<char> = ('A'..='Z').chain('a'..='z').collect();
    let mut codes = Vec::with_capacity(speakers.len());
    for (nth, speaker) in speakers.iter().enumerate() {
        let initial = speaker.initial();
        let wanted = |c: &char| Some(*c) == initial;
        let lower = |c: &char| Some(*c) == initial.map(|c| c.to_ascii_lowercase());
        let at = free.iter().position(wanted).or_else(|| free.iter().position(lower)).unwrap_or(0);
        codes.push(if free.is_empty() { long_code(nth) } else { free.remove(at).to_string() });
    }
    codes
}

/// `AA`, `AB`, … for the 53rd speaker and those after.
fn long_code(nth: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = nth;
    // Like counting with 52 digits none of which is nothing, so that codes of
    // different length never meet.
    loop {
        let digit = (rest % 52) as u8;
        letters.push(char::from(if digit < 26 { b'A' + digit } else { b'a' + digit - 26 }));
        if rest < 52 {
            break;
        }
        rest = rest / 52 - 1;
    }
    letters.iter().rev().collect()
}

/// The timestamps of a batch, and the step that is too common to be written.
struct Clock<'a> {
    stamps: Vec<Time<'a>>,
    step: Option<i128>,
}

#[derive(Clone, Copy)]
struct Time<'a> {
    text: Option<&'a str>,
    stamp: Option<Stamp<'a>>,
    /// Since the timestamp before, where both have the same form.
    since: Option<i128>,
    is_same_day: bool,
    /// Whether what follows the minute is as before.
    is_same_second: bool,
}

impl<'a> Clock<'a> {
    fn of(turns: &'a [RawTurn]) -> Self {
        let mut stamps: Vec<Time<'a>> = Vec::with_capacity(turns.len());
        let mut before: Option<Time<'a>> = None;
        for turn in turns {
            let text = turn.timestamp.as_ref().map(|timestamp| timestamp.as_str());
            let stamp = text.and_then(Stamp::parse);
            let mut time =
                Time { text, stamp, since: None, is_same_day: false, is_same_second: false };
            if let (Some(now), Some(Time { stamp: Some(then), text: then_text, .. })) =
                (stamp, before)
            {
                time.since = now.since(&then);
                let then_text = then_text.unwrap_or_default();
                time.is_same_day = text.map(day) == Some(day(then_text));
                time.is_same_second = text.and_then(after_minute) == after_minute(then_text);
            }
            if text.is_some() {
                before = Some(time);
            }
            stamps.push(time);
        }
        let has_times = before.is_some();
        let step = has_times.then(|| most_common(stamps.iter().filter_map(|time| time.since)));
        Self { stamps, step }
    }

    /// Appends the time of a turn, nothing where it is the usual step. A new day
    /// is written with its date: a reader wants it, and it is rare.
    fn push_time(&self, out: &mut String, nth: usize) {
        let Some(step) = self.step else { return };
        let time = self.stamps[nth];
        match (time.text, time.since) {
            (None, _) => out.push_str(" -"),
            (Some(_), Some(since)) if since == step => {}
            (Some(_), Some(since)) if time.is_same_day => {
                out.push_str(if since < 0 { " " } else { " +" });
                out.push_str(&write_seconds(since));
            }
            (Some(text), Some(_)) if time.is_same_second => {
                out.push(' ');
                out.push_str(&text[..MINUTE_BYTES]);
            }
            (Some(text), _) => {
                out.push(' ');
                out.push_str(text);
            }
        }
    }
}

fn day(text: &str) -> &str {
    text.get(..10).unwrap_or_default()
}

fn after_minute(text: &str) -> Option<&str> {
    text.get(MINUTE_BYTES..)
}

/// The value that occurs most; the smallest of several, 0 of none.
fn most_common(values: impl Iterator<Item = i128>) -> i128 {
    let mut values: Vec<i128> = values.collect();
    values.sort_unstable();
    let mut best = (0, 0);
    for run in values.chunk_by(|a, b| a == b) {
        if run.len() > best.0 {
            best = (run.len(), run[0]);
        }
    }
    best.1
}
