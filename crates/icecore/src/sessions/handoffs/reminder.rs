//! What a request is reminded of: what other sessions say about it, and what of its own
//! no model is sent any more.

use std::collections::BTreeSet;

use icecore_domain::handoff::{MESSAGE_TOKENS, Passage, is_marked, render_recall};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, TurnId};
use icecore_domain::redact::{RedactedText, RedactedTurn};
use icecore_index::DocKind;

use super::recall::asked;
use super::view::Reading;
use crate::error::{MemoryError, Result};
use crate::recall::search::{Hit, SearchRequest, matched_words};
use crate::sessions::Sessions;

/// Hits that are looked at.
const LOOKED_AT: usize = 40;

/// A hit that is worth less than this part of the best one is left out.
const LEAST_SHARE: f32 = 0.5;

/// Of one turn, at most so many tokens are quoted.
const QUOTED_TOKENS: u32 = 160;

/// Of a long turn, so many bytes are quoted before the first word that was asked for.
const LEAD_BYTES: usize = 120;

/// Lines of a reminder before what it reminds of.
const HEAD_LINES: usize = 2;

/// What is put before a request from elsewhere in the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reminder {
    text: RedactedText,
    tokens: u64,
    turns: usize,
    facts: usize,
}

impl Reminder {
    /// What it says, with its mark.
    pub fn text(&self) -> &RedactedText {
        &self.text
    }

    /// Tokens of that.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Turns that it quotes.
    pub fn turns(&self) -> usize {
        self.turns
    }

    /// Facts that it tells.
    pub fn facts(&self) -> usize {
        self.facts
    }

    /// Tokens of it as a message.
    pub(super) fn cost(&self) -> u64 {
        self.tokens.saturating_add(MESSAGE_TOKENS)
    }

    /// The message that it is.
    pub(super) fn message(&self) -> RedactedTurn {
        RedactedTurn::saying("user", self.text.clone())
    }
}

impl Sessions {
    /// What bears on a request that a session is about to get, within so many tokens:
    /// turns and facts of other sessions, and of this one what its API view has not. None
    /// where nothing does.
    pub async fn reminder(
        &self,
        scope: &Scope,
        session: &str,
        request: &str,
        tokens: u32,
    ) -> Result<Option<Reminder>> {
        let query = asked(request);
        if tokens == 0 || query.trim().is_empty() {
            return Ok(None);
        }
        let reading = match self.read_branch(scope, session, None, usize::MAX).await {
            Ok(reading) => Some(reading),
            Err(MemoryError::NoSession { .. }) => None,
            Err(error) => return Err(error),
        };
        let kinds = vec![DocKind::Turn, DocKind::Fact];
        let search = SearchRequest { limit: LOOKED_AT, kinds, ..SearchRequest::new(&query) };
        let mut hits = self.search(scope, &search).await?.hits;
        hits.retain(|hit| !is_marked(&hit.text));
        if let Some(reading) = &reading {
            hits = self.not_in_view(scope, reading, hits).await?;
        }
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        let best = hits.first().map_or(0.0, |hit| hit.score);
        let counter = self.counter.as_ref();
        let mut passages = Vec::new();
        let mut found: Option<Reminder> = None;
        for hit in hits.iter().filter(|hit| hit.score >= best * LEAST_SHARE) {
            let Some(first) = first_shared(&query, hit) else { continue };
            passages.push(passage(hit, counter.prefix(from(&hit.text, first), QUOTED_TOKENS)));
            let text = render_recall(&passages, u64::from(tokens), counter);
            let text = redactor.text(&text);
            let count = u64::from(counter.count(text.as_str()));
            // What is hidden may have another length.
            let is_told = text.lines().count() == passages.len() + HEAD_LINES;
            if !is_told || count > u64::from(tokens) {
                passages.pop();
                continue;
            }
            let (turns, facts) = found.map_or((0, 0), |found| (found.turns, found.facts));
            let is_fact = hit.kind == DocKind::Fact;
            found = Some(Reminder {
                text,
                tokens: count,
                turns: turns + usize::from(!is_fact),
                facts: facts + usize::from(is_fact),
            });
        }
        Ok(found)
    }

    /// Hits that a view does not hold. Of its own session only what a handoff stands for:
    /// other branches are what was taken back.
    async fn not_in_view(
        &self,
        scope: &Scope,
        reading: &Reading,
        mut hits: Vec<Hit>,
    ) -> Result<Vec<Hit>> {
        let name = reading.session.name.as_ref().map(|name| name.as_str());
        let is_own = |hit: &Hit| name.is_some() && hit.session.as_deref() == name;
        let in_view: BTreeSet<Seq> = reading.turns().map(|turn| turn.seq).collect();
        let own = hits.iter().filter(|hit| is_own(hit)).filter_map(|hit| hit.seq);
        let own = own.filter(|seq| !in_view.contains(seq));
        let ids: Vec<TurnId> = own.map(|seq| TurnId { session: reading.session.no, seq }).collect();
        let places = match ids.is_empty() {
            true => Vec::new(),
            false => self.store.places(scope, &ids).await?,
        };
        let is_on = |branch: Branch, ordinal: Ordinal| {
            reading.path.iter().any(|(on, through)| *on == branch && ordinal <= *through)
        };
        let covered = places.iter().filter(|place| is_on(place.branch, place.ordinal));
        let covered: BTreeSet<Seq> = covered.map(|place| place.id.seq).collect();
        hits.retain(|hit| !is_own(hit) || hit.seq.is_some_and(|seq| covered.contains(&seq)));
        Ok(hits)
    }
}

/// Where a hit has its first word of the query; none if it has too few. One word alone
/// says little, unless there are hardly more to share or a fact has it.
fn first_shared(query: &str, hit: &Hit) -> Option<usize> {
    let places = matched_words(query, &hit.text);
    let words: BTreeSet<String> =
        places.iter().map(|place| hit.text[place.clone()].to_lowercase()).collect();
    let is_long = query.split_whitespace().nth(2).is_some();
    let least = if is_long && hit.kind != DocKind::Fact { 2 } else { 1 };
    places.first().filter(|_| words.len() >= least).map(|place| place.start)
}

/// What is quoted of a hit, with who said it and where.
fn passage(hit: &Hit, quoted: &str) -> Passage {
    let who = match (hit.kind, &hit.name, &hit.role) {
        (DocKind::Fact, ..) => "fact",
        (_, Some(name), _) => name,
        (_, None, Some(role)) => role,
        (_, None, None) => "somebody",
    };
    let speaker = match &hit.session {
        Some(session) => format!("{who} in {session}"),
        None => who.to_owned(),
    };
    Passage { speaker, text: quoted.to_owned(), at: Some(hit.at) }
}

/// A text from a little before what was asked for.
fn from(text: &str, first: usize) -> &str {
    if first <= LEAD_BYTES * 2 {
        return text;
    }
    let near = text.floor_char_boundary(first - LEAD_BYTES);
    let word = text[near..first].find(char::is_whitespace).map_or(near, |blank| near + blank);
    text[word..].trim_start()
}
