//! What a compaction must leave as it is.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Links, is_model, is_request};
use super::{Message, is_pinned};
use crate::turn::RawTurn;

/// Places of messages in a view that stay byte for byte, each in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floor {
    /// The system prompt: turns of the role `system` or `developer` before any other of
    /// the history.
    pub system: Vec<usize>,
    /// Pinned turns, the last request of a person, and the open group of tool calls:
    /// the last calls, if a model has not gone on since, with all their results. No
    /// call without its results that are there, no result without its call.
    ///
    /// Calls that were answered before a person went on are not open: or a result that
    /// fills a window could never be left behind.
    pub kept: Vec<usize>,
    /// The last request of a person. It is among `kept`.
    pub request: Option<usize>,
    /// The last answer in words to it, if it has one and nothing is open.
    pub answer: Option<usize>,
    /// What stands behind the last request and no model or tool has spoken since, such as a
    /// word of the system. It is a part of what is asked now. Worth keeping where there is
    /// room.
    pub asked: Vec<usize>,
    /// Results that came in before the last request and that no model has seen: these
    /// calls and results. Worth keeping where there is room.
    pub unread: Vec<usize>,
}

/// The floor of a whole history: its system prompt is what of that role stands first.
pub fn floor(messages: &[Message]) -> Floor {
    floor_after(messages, leading_system(messages))
}

/// How many messages of the role `system` or `developer` stand before all others.
pub fn leading_system(messages: &[Message]) -> usize {
    let is_system =
        |message: &&Message| matches!(message.turn.fields().role.as_str(), "system" | "developer");
    messages.iter().take_while(is_system).count()
}

/// The floor of a view whose first so many messages are the system prompt. Where a
/// handoff stands behind these, a later turn of that role may come next that is none of
/// it.
///
/// A result whose call is not in the view is in no floor, even if it is pinned: a
/// provider would refuse it.
pub fn floor_after(messages: &[Message], system: usize) -> Floor {
    let pairs = Pairs::of(messages);
    let system = system.min(messages.len());
    let request = (system..messages.len()).rev().find(|at| messages[*at].is_request());
    let mut seeds: Vec<usize> = (system..messages.len())
        .filter(|at| is_pinned(messages[*at].turn.fields()) && !pairs.is_orphan(*at))
        .collect();
    seeds.extend(request);
    let last_calls = last_calls(messages, &pairs, system);
    let is_open = last_calls.last().is_some_and(|last| {
        request.is_none_or(|request| *last > request)
            || last_calls.iter().any(|at| pairs.is_pending(*at))
    });
    if is_open {
        seeds.extend(&last_calls);
    }
    let kept = pairs.with_groups(seeds, system);
    let is_heard =
        |at: &usize| is_model(&messages[*at].turn.fields().role) || !pairs.links[*at].is_empty();
    let heard = (system..messages.len()).rev().find(is_heard).map_or(system, |at| at + 1);
    let asked = (heard.max(request.map_or(0, |at| at + 1))..messages.len()).collect();
    let unread = if is_open { Vec::new() } else { pairs.with_groups(last_calls, system) };
    let answer = request.filter(|_| !is_open).and_then(|request| {
        let is_words = |at: &usize| messages[*at].is_words(&pairs.links[*at]);
        (request + 1..messages.len()).rev().find(is_words)
    });
    Floor { system: (0..system).collect(), kept, request, answer, asked, unread }
}

/// Places of results whose calls are not in the view, or come after them, and that hold
/// nothing else: no provider takes them.
pub fn unpaired(messages: &[Message]) -> Vec<usize> {
    let turns: Vec<&RawTurn> = messages.iter().map(|message| message.turn.fields()).collect();
    unpaired_turns(&turns)
}

/// The same of turns that a client sent.
pub fn unpaired_turns(turns: &[&RawTurn]) -> Vec<usize> {
    let pairs = Pairs::of_links(turns.iter().map(|turn| Links::of(turn)).collect());
    (0..turns.len()).filter(|at| pairs.is_orphan(*at) && !is_request(turns[*at])).collect()
}

/// The messages that call last, one after the other, if no model has spoken since; with
/// those whose results came among theirs.
fn last_calls(messages: &[Message], pairs: &Pairs, system: usize) -> Vec<usize> {
    let is_models = |at: &usize| {
        is_model(&messages[*at].turn.fields().role) || !pairs.links[*at].calls.is_empty()
    };
    let Some(last) = (system..messages.len()).rev().find(is_models) else { return Vec::new() };
    if !pairs.links[last].has_open_call() {
        return Vec::new();
    }
    let mut calls: Vec<usize> = (system..=last)
        .rev()
        .take_while(|at| {
            let answered_after = pairs.results[*at].iter().any(|result| *result > last);
            pairs.links[*at].has_open_call()
                && (*at == last || answered_after || pairs.is_pending(*at))
        })
        .collect();
    // Results after the last call may be of calls further up.
    calls.extend((last + 1..messages.len()).flat_map(|at| pairs.calls[at].iter().copied()));
    calls.sort_unstable();
    calls.dedup();
    calls
}

/// Which results belong to which calls.
struct Pairs {
    links: Vec<Links>,
    /// Of each message, the messages whose calls it answers.
    calls: Vec<Vec<usize>>,
    /// Of each message, the messages that answer its calls.
    results: Vec<Vec<usize>>,
    /// Whether each has calls that nothing answers.
    pending: Vec<bool>,
}

impl Pairs {
    /// A result belongs to the last call of its id that has no result yet, else to the
    /// last one.
    fn of(messages: &[Message]) -> Self {
        Self::of_links(messages.iter().map(|message| Links::of(message.turn.fields())).collect())
    }

    fn of_links(links: Vec<Links>) -> Self {
        let mut calls = vec![Vec::new(); links.len()];
        let mut results = vec![Vec::new(); links.len()];
        let mut pending = vec![0_usize; links.len()];
        // Of each id, where it was called last, and whether that was answered.
        let mut last: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
        for (at, link) in links.iter().enumerate() {
            let mut own: BTreeSet<&str> = link.calls.iter().map(String::as_str).collect();
            for id in &link.answers {
                let caller = match last.get_mut(id.as_str()) {
                    Some((caller, is_answered)) if !*is_answered || !own.contains(id.as_str()) => {
                        if !*is_answered {
                            pending[*caller] = pending[*caller].saturating_sub(1);
                        }
                        *is_answered = true;
                        *caller
                    }
                    _ if own.remove(id.as_str()) => {
                        last.insert(id, (at, true));
                        at
                    }
                    _ => continue,
                };
                calls[at].push(caller);
                results[caller].push(at);
            }
            for id in own {
                last.insert(id, (at, false));
                pending[at] += 1;
            }
        }
        let pending = pending.into_iter().map(|count| count > 0).collect();
        Self { links, calls, results, pending }
    }

    fn is_pending(&self, at: usize) -> bool {
        self.pending[at]
    }

    /// Whether it answers something, and all of that is not there.
    fn is_orphan(&self, at: usize) -> bool {
        !self.links[at].answers.is_empty() && self.calls[at].is_empty()
    }

    /// These, and all that belongs to them by calls and results, in order. The system
    /// prompt stands elsewhere.
    fn with_groups(&self, seeds: Vec<usize>, system: usize) -> Vec<usize> {
        let mut kept = BTreeSet::new();
        let mut left = seeds;
        while let Some(at) = left.pop() {
            if at >= system && kept.insert(at) {
                left.extend(&self.calls[at]);
                left.extend(&self.results[at]);
            }
        }
        kept.into_iter().collect()
    }
}
