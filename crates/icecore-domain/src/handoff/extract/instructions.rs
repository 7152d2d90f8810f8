//! Standing instructions and constraints, word for word.

use std::borrow::Cow;

use super::HandoffSource;
use crate::dream::distil::read::order_strength;
use crate::fact::{FactKind, MAX_READ_CHARS, normalise, read_back};
use crate::handoff::{HandoffLine, HandoffSection};
use crate::summary::choose::cuts_marker;
use crate::summary::facts::Voice;
use crate::summary::sentence::{Kind, sentences};
use crate::summary::{Said, voice_of};
use crate::time::Millis;

/// How surely an order must be a standing one where people talk to each other.
const SURE_ORDER: u8 = 70;
/// The same where somebody talks to a model: `Never push to main.` is an order.
const LIKELY_ORDER: u8 = 50;

/// Those of the handoff before first, then what is known, then what else was said. Where
/// a newer fact says otherwise of the same, the older goes.
pub(super) fn instructions(source: &HandoffSource<'_>) -> Vec<HandoffLine> {
    let known = || {
        let kinds = [FactKind::Instruction, FactKind::Constraint];
        source.facts.iter().filter(move |fact| kinds.contains(&fact.kind))
    };
    let is_overtaken = |line: &str| {
        read_back(line, Millis(0)).is_some_and(|old| {
            !old.attribute.is_empty()
                && source.facts.iter().any(|fact| {
                    (&fact.subject, &fact.attribute) == (&old.subject, &old.attribute)
                        && normalise(&fact.value) != normalise(&old.value)
                })
        })
    };
    let carried = source.previous.into_iter().flat_map(|one| one.of(HandoffSection::Instructions));
    let mut texts: Vec<Cow<'_, str>> =
        carried.filter(|line| !is_overtaken(line)).map(Cow::Borrowed).collect();
    texts.extend(known().map(|fact| Cow::Borrowed(fact.quote.as_str())));
    texts.extend(source.said.iter().flat_map(stated));
    texts.iter().map(|text| HandoffLine::new(HandoffSection::Instructions, text)).collect()
}

/// The sentences of a turn that tell how to go on from now on.
fn stated<'a>(said: &Said<'a>) -> Vec<Cow<'a, str>> {
    if voice_of(said) != Voice::Person || said.role == "assistant" {
        return Vec::new();
    }
    let least = if said.name.is_some() { SURE_ORDER } else { LIKELY_ORDER };
    let limit = said.text.char_indices().nth(MAX_READ_CHARS).map_or(said.text.len(), |(at, _)| at);
    let text = &said.text[..limit];
    let mut found = sentences(text);
    found.retain(|sentence| {
        matches!(sentence.kind, Kind::Prose | Kind::Fragment)
            && !cuts_marker(text, &sentence.text)
            && order_strength(&sentence.text) >= least
    });
    found.into_iter().map(|sentence| sentence.text).collect()
}
