//! What is still to do, where it is marked as that.

use std::collections::BTreeSet;

use super::HandoffSource;
use crate::handoff::{HandoffLine, HandoffSection};
use crate::text::{Said, Voice, normalise, voice_of};

/// So many are named.
const MAX_TASKS: usize = 12;
/// A longer line is no task.
const MAX_TASK_BYTES: usize = 240;
/// Turns that are looked through, the newest.
const MAX_TURNS: usize = 200;
/// Of a turn only so many lines are.
const MAX_LINES: usize = 400;

/// Open boxes and what is said to be still to do, the newest first; then what the handoff
/// before has, but for what is done. What tools print is nobody's task.
pub(super) fn tasks(source: &HandoffSource<'_>) -> Vec<HandoffLine> {
    let mut done: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    let add = |text: &str, done: &BTreeSet<String>, open: &mut Vec<String>| {
        let is_known = open.iter().any(|other| normalise(other) == normalise(text));
        if open.len() < MAX_TASKS && !is_known && !done.contains(&normalise(text)) {
            open.push(text.to_owned());
        }
    };
    let is_person_or_model = |said: &&Said<'_>| voice_of(said) != Voice::Machine;
    for said in source.said.iter().rev().filter(is_person_or_model).take(MAX_TURNS) {
        let lines: Vec<&str> = said.text.lines().take(MAX_LINES).collect();
        for line in lines.into_iter().rev() {
            let item = line.trim().trim_start_matches(['-', '*', '•']).trim_start();
            if item.len() > MAX_TASK_BYTES {
                continue;
            }
            let boxed = |mark: &str| item.strip_prefix(mark).map(str::trim);
            if let Some(text) = boxed("[x]").or_else(|| boxed("[X]")) {
                done.insert(normalise(text));
            } else if let Some(text) = boxed("[ ]").or_else(|| boxed("TODO:")) {
                add(text, &done, &mut open);
            }
        }
    }
    for text in source.previous.into_iter().flat_map(|one| one.of(HandoffSection::Tasks)) {
        add(text, &done, &mut open);
    }
    open.iter().map(|text| HandoffLine::new(HandoffSection::Tasks, text)).collect()
}
