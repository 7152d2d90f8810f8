//! The context for a prompt: what is recent verbatim, what is older by summary.

use std::collections::BTreeMap;
use std::sync::Arc;

use icecore_domain::chunk::Level;
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo};
use icecore_domain::window::{self, Candidate, Offer, WindowItem, WindowKind};
use icecore_index::{DocKind, Mode, Plan, Ranked, Source};
use icecore_store::{BranchRecord, ChunkQuery, ChunkRecord, SessionRecord, TurnQuery, TurnState};

use crate::base::pieces::in_pieces;
use crate::context::Contexts;
use crate::context::recollection::Recollection;
use crate::error::{MemoryError, Result};
use crate::layers::history::{StoredTurn, lineage, stored_turn, tier_of};
use crate::recall::indexing::{CaughtUp, Item};
use crate::recall::search::{Filter, Ranking};

/// What a context is wanted for.
#[derive(Debug, Clone, Default)]
pub struct ContextRequest {
    /// The session to continue; without one, the most recent.
    pub session: Option<String>,
    /// Its branch; without one, the one last appended to.
    pub branch: Option<String>,
    /// What is asked; what answers it gets most of the budget.
    pub query: Option<String>,
    /// Tokens that the text may have.
    pub budget: u32,
}

impl ContextRequest {
    /// The context to continue a session with.
    pub fn of_session(session: &str, budget: u32) -> Self {
        Self { session: Some(session.to_owned()), budget, ..Self::default() }
    }

    /// What is asked, if anything is.
    fn asked(&self) -> Option<&str> {
        self.query.as_deref().filter(|query| !query.trim().is_empty())
    }
}

/// A context.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    /// The text.
    pub text: String,
    /// Its tokens; at most the budget.
    pub tokens: u32,
    /// What was asked for.
    pub budget: u32,
    /// What it is made of, in order.
    pub items: Vec<WindowItem>,
    /// What a person should know about it, such as missing vectors.
    pub notices: Vec<String>,
}

/// Turns read at once while looking for the newest: enough for a window of
/// short ones, so that a pack is opened once.
const TURN_PAGE: std::ops::RangeInclusive<usize> = 32..=512;

/// A short turn has about this many tokens.
const TURN_TOKENS: u64 = 16;

/// Turns considered at most.
const MAX_TURNS: usize = 4_000;

/// Summaries considered at most, of each level of a branch.
const MAX_SUMMARIES: usize = 128;

/// Summaries considered at least: enough to reach past the newest turns.
const MIN_SUMMARIES: usize = 16;

/// A summary has seldom fewer tokens than this.
const SUMMARY_TOKENS: usize = 20;

/// Without a session given, this many of the most recent are drawn from.
const MAX_SESSIONS: usize = 16;

/// Of the budget, the newest turns may take this much while there are summaries
/// of what is older.
const RECENT_PERCENT: u8 = 75;

/// And this much if something is asked: most of it is for what answers.
const RECENT_PERCENT_ASKED: u8 = 20;

/// Turns that a query ranks at most for a window.
const MAX_RELEVANT: usize = 500;

/// And at least.
const MIN_RELEVANT: usize = 200;

/// If a query describes somebody, the best so many turns may tell who it is.
const DESCRIBED_IN: usize = 3;

/// Names that are taken from them.
const MAX_NAMES: usize = 4;

/// What is said of them may stand far down, so several budgets are read.
const SECOND_HOP_DEPTH: u32 = 4;

/// Turns about those names that come next.
const SECOND_HOP: usize = 5;

/// What the logarithm of a turn's tokens is held against its score.
const LENGTH_COST: f32 = 0.7;

/// Tokens of a turn, from its content terms, as far as the index can tell.
const TOKENS_A_TERM: f32 = 2.6;

/// Tokens around a turn's text: who speaks, the end of the line.
const LINE_TOKENS: f32 = 4.0;

/// A turn that would take more than this share of the budget may have to be cut.
const LONG_SHARE: u32 = 4;

/// Turns are read for somewhat more than the budget, since that is an estimate.
const READ_BEYOND: f32 = 1.5;

/// A window of short turns holds about one for so many tokens.
const RELEVANT_TOKENS: u32 = 14;

impl Contexts {
    /// Builds a context that never exceeds its budget.
    #[tracing::instrument(skip_all, fields(budget = request.budget))]
    pub async fn context(&self, scope: &Scope, request: ContextRequest) -> Result<Context> {
        let index = async {
            match request.asked() {
                Some(_) => self.caught_up(scope).await.map(Some),
                None => Ok(None),
            }
        };
        // What is new is read while it is asked what must be hidden.
        let (sight, index) = tokio::try_join!(self.sight_of(scope.tenant()), index)?;
        let mut seeing = self.clone();
        seeing.sight = sight;
        seeing.seen_context(scope, request, index).await
    }

    async fn seen_context(
        &self,
        scope: &Scope,
        request: ContextRequest,
        index: Option<CaughtUp>,
    ) -> Result<Context> {
        let query = request.asked();
        // A query may go to a model, which no secret may reach.
        let redacted = match query {
            Some(query) => Some(self.redactor(scope.tenant()).await?.redactor.text(query)),
            None => None,
        };
        let asked = redacted.as_ref().map(|query| query.as_str());
        let mut offer = Offer::default();
        let mut notices = Vec::new();
        let mut stood_for = BTreeMap::new();
        // None of them waits for another.
        let (sessions, relevant, distilled) = tokio::join!(
            self.drawn_from(scope, &request),
            self.relevant(scope, index, asked, request.budget),
            async {
                match request.session {
                    Some(_) => Ok(None),
                    None => self.recollection(scope, asked).await.map(Some),
                }
            }
        );
        let sessions = match sessions {
            // One that begins now has what was distilled of those before it.
            Err(error @ MemoryError::NoSession { .. }) => {
                match self.recollect(scope, asked, &mut offer, &mut notices).await? {
                    true => Vec::new(),
                    false => return Err(error),
                }
            }
            found => found?,
        };
        let (relevant, found) = relevant?;
        offer.relevant = relevant;
        notices.extend(found);
        let distilled = distilled?;
        offer.recent_percent = match (query, &request.session) {
            (None, _) => RECENT_PERCENT,
            (Some(_), Some(_)) => RECENT_PERCENT_ASKED,
            (Some(_), None) => 0,
        };
        let told: u64 = offer.relevant.iter().map(|item| u64::from(item.known_tokens) + 4).sum();
        let mut wanted = u64::from(request.budget).saturating_sub(told);
        wanted = wanted.max(u64::from(request.budget) * u64::from(offer.recent_percent) / 100);
        for (age, session) in sessions.iter().enumerate() {
            if wanted == 0 && age > 0 {
                break;
            }
            let branch = match request.branch.as_deref().filter(|_| request.session.is_some()) {
                Some(name) => self.branch_of(
                    scope,
                    session,
                    request.session.as_deref().unwrap_or_default(),
                    Some(name),
                )?,
                None => session.current,
            };
            let path = Path { scope, session, branches: lineage(session, branch) };
            let budget = wanted.min(u64::from(request.budget)) as u32;
            let (summaries, turns) = tokio::try_join!(
                self.newest_summaries(&path, budget, &mut stood_for),
                self.newest_turns(&path, &mut wanted)
            )?;
            offer.summaries.extend(summaries);
            offer.recent.extend(turns);
        }
        if offer.summaries.is_empty() && query.is_none() {
            offer.recent_percent = 100;
        }
        // A session that has turns enough for the budget needs nothing else.
        offer.distilled.is_first = request.session.is_none() || offer.recent.is_empty();
        if let Some(distilled) = distilled {
            self.offer_distilled(distilled, &mut offer, &mut notices);
        } else if offer.distilled.percent == 0 && (offer.distilled.is_first || wanted > 0) {
            self.recollect(scope, asked, &mut offer, &mut notices).await?;
        }
        let counter = Arc::clone(&self.counter);
        let budget = request.budget;
        let _place = self.ranking_place().await;
        let window =
            crate::error::off_thread(move || window::pack(offer, budget, counter.as_ref())).await?;
        self.counters.context(window.tokens);
        // What a summary stands for would have had to be there instead of it.
        let saved = |item: &WindowItem| {
            let tokens = stood_for.get(&item.id).copied().unwrap_or(0);
            tokens.saturating_sub(u64::from(item.tokens))
        };
        self.note_saved(scope, window.items.iter().map(saved).sum());
        Ok(Context {
            text: window.text,
            tokens: window.tokens,
            budget,
            items: window.items,
            notices,
        })
    }

    /// The sessions that a context is drawn from.
    async fn drawn_from(
        &self,
        scope: &Scope,
        request: &ContextRequest,
    ) -> Result<Vec<SessionRecord>> {
        match &request.session {
            Some(session) => Ok(vec![self.session_record(scope, session).await?]),
            None => Ok(self.store.recent_sessions(scope, MAX_SESSIONS).await?),
        }
    }

    /// Adds what dreams came to; false where there is nothing of the kind.
    async fn recollect(
        &self,
        scope: &Scope,
        query: Option<&str>,
        offer: &mut Offer,
        notices: &mut Vec<String>,
    ) -> Result<bool> {
        let found = self.recollection(scope, query).await?;
        Ok(self.offer_distilled(found, offer, notices))
    }

    fn offer_distilled(
        &self,
        found: Recollection,
        offer: &mut Offer,
        notices: &mut Vec<String>,
    ) -> bool {
        offer.distilled.lines = found.lines;
        offer.distilled.percent = self.settings.dreams.context_percent;
        notices.extend(found.notice);
        found.is_there
    }

    /// What a query finds, in the order in which it is worth its tokens.
    async fn relevant(
        &self,
        scope: &Scope,
        index: Option<CaughtUp>,
        query: Option<&str>,
        budget: u32,
    ) -> Result<(Vec<Candidate>, Vec<String>)> {
        let (Some(index), Some(query)) = (index, query) else { return Ok(Default::default()) };
        let limit = ((budget / RELEVANT_TOKENS) as usize + MIN_RELEVANT).min(MAX_RELEVANT);
        let (plan, mut found, notices) = self.readable(scope, &index, query, limit, budget).await?;
        if plan.describes() {
            self.add_second_hop(scope, &index, query, &plan, &mut found, limit, budget).await?;
        }
        Ok((found, notices))
    }

    /// The best turns tell who it is that the query describes: what else is said of
    /// them comes right behind the best.
    #[expect(
        clippy::too_many_arguments,
        reason = "one step of `relevant`, with what it has at hand"
    )]
    async fn add_second_hop(
        &self,
        scope: &Scope,
        index: &CaughtUp,
        query: &str,
        plan: &Plan,
        found: &mut Vec<Candidate>,
        limit: usize,
        budget: u32,
    ) -> Result<()> {
        let mut best: Vec<&Candidate> = found.iter().collect();
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        best.truncate(DESCRIBED_IN);
        let names: Vec<String> =
            best.iter().flat_map(|turn| plan.new_names(&turn.text)).take(MAX_NAMES).collect();
        if names.is_empty() {
            return Ok(());
        }
        let best: Vec<String> = best.iter().map(|turn| turn.id.clone()).collect();
        let query = format!("{query} {}", names.join(" "));
        let deep = budget.saturating_mul(SECOND_HOP_DEPTH);
        let (_, further, _) = self.readable(scope, index, &query, limit, deep).await?;
        let is_named =
            |turn: &Candidate| names.iter().any(|name| turn.text.contains(name.as_str()));
        let further = further.into_iter().filter(|turn| is_named(turn) && !best.contains(&turn.id));
        let mut further: Vec<Candidate> = further.take(SECOND_HOP).collect();
        for turn in &mut further {
            turn.reason = format!("about whom the query describes; {}", turn.reason);
        }
        // The best keep their place at the front.
        let (mut front, rest): (Vec<_>, Vec<_>) = std::mem::take(found)
            .into_iter()
            .filter(|turn| !further.iter().any(|other| other.id == turn.id))
            .partition(|turn| best.contains(&turn.id));
        front.extend(further);
        front.extend(rest);
        *found = front;
        Ok(())
    }

    /// What a query ranks, read, in the order in which it is worth its tokens.
    async fn readable(
        &self,
        scope: &Scope,
        index: &CaughtUp,
        query: &str,
        limit: usize,
        budget: u32,
    ) -> Result<(Plan, Vec<Candidate>, Vec<String>)> {
        let filter = Filter { kinds: vec![DocKind::Turn], ..Filter::default() };
        let Ranking { plan, ranked, notices } =
            self.rank(index, query, Mode::Hybrid, limit, filter).await?;
        let chosen = worth_reading(ranked, budget);
        let sources: Vec<Source> = chosen.iter().map(|ranked| ranked.source).collect();
        let (mut items, sessions) =
            tokio::try_join!(self.fetch(scope, &sources), self.sessions_of(scope, &sources))?;
        self.veil_items(scope, items.values_mut()).await?;
        let mut found = Vec::with_capacity(chosen.len());
        for ranked in chosen {
            let Some(Item::Turn(row)) = items.get(&ranked.source) else { continue };
            let Some(session) = sessions.get(&row.id.session) else { continue };
            found.push((ranked, turn_candidate(session.no, stored_turn(session, row.clone()))));
        }
        let understood = plan.clone();
        let size = |(_, candidate): &(Ranked, Candidate)| candidate.text.len();
        in_pieces(&mut found, size, move |(ranked, candidate)| {
            ranked.read(&understood, &candidate.text);
            candidate.score = f64::from(ranked.score);
            candidate.reason = ranked.reason();
            if candidate.known_tokens > budget / LONG_SHARE {
                candidate.focus = understood.focus(&candidate.text);
            }
            Ok(())
        })
        .await?;
        let value = |(ranked, candidate): &(Ranked, Candidate)| {
            worth(ranked.score, candidate.known_tokens as f32)
        };
        found.sort_by(|a, b| value(b).total_cmp(&value(a)).then(b.0.source.cmp(&a.0.source)));
        let found = found.into_iter().map(|(_, candidate)| candidate).collect();
        Ok((plan, found, notices))
    }

    /// The newest turns along a path, newest first, until `wanted` tokens.
    async fn newest_turns(&self, path: &Path<'_>, wanted: &mut u64) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        for (branch, through) in path.branches.iter().rev() {
            let mut before = self.last_seq(path.scope, path.session, *branch, *through).await?;
            while *wanted > 0 && found.len() < MAX_TURNS {
                let page = (*wanted / TURN_TOKENS) as usize;
                let query = TurnQuery {
                    branch: Some(*branch),
                    through: before,
                    newest: true,
                    ..TurnQuery::all(
                        path.session.no,
                        page.clamp(*TURN_PAGE.start(), *TURN_PAGE.end()),
                    )
                };
                let mut rows = self.store.turns(path.scope, &query).await?;
                let Some(first) = rows.first() else { break };
                before = Seq(first.id.seq.0 - 1);
                rows.retain(|row| row.ordinal <= *through && row.state == TurnState::Present);
                // Only as many as can still matter are read from their tier.
                let mut needed = rows.len();
                for (taken, row) in rows.iter().rev().enumerate() {
                    if *wanted == 0 {
                        needed = taken;
                        break;
                    }
                    *wanted = wanted.saturating_sub(u64::from(row.tokens) + 1);
                }
                let rows = rows.split_off(rows.len() - needed);
                let turns = self.stored(path.scope, path.session, rows).await?;
                found.extend(
                    turns.into_iter().rev().map(|turn| turn_candidate(path.session.no, turn)),
                );
            }
        }
        Ok(found)
    }

    /// Summaries along a path, the newest of each level, no more than could fit.
    async fn newest_summaries(
        &self,
        path: &Path<'_>,
        budget: u32,
        stood_for: &mut BTreeMap<String, u64>,
    ) -> Result<Vec<Candidate>> {
        if budget == 0 {
            return Ok(Vec::new());
        }
        let limit = (budget as usize / SUMMARY_TOKENS).clamp(MIN_SUMMARIES, MAX_SUMMARIES);
        let mut found = Vec::new();
        for (branch, through) in &path.branches {
            let Some(record) = path.session.branches.iter().find(|b| b.branch == *branch) else {
                continue;
            };
            let ask = |level| {
                let query = ChunkQuery {
                    through: *through,
                    newest: true,
                    ..ChunkQuery::all(path.session.no, *branch, level, limit)
                };
                async move { self.store.chunks(path.scope, &query).await }
            };
            let [low, middle, high] = Level::ALL;
            let (low, middle, high) = tokio::try_join!(ask(low), ask(middle), ask(high))?;
            for chunks in [low, middle, high] {
                let chunks = self.veil_chunks(path.scope, chunks).await?;
                stood_for.extend(chunks.iter().map(|chunk| (chunk.id.to_string(), chunk.tokens)));
                found.extend(chunks.iter().filter_map(|chunk| summary_candidate(record, chunk)));
            }
        }
        Ok(found)
    }
}

/// A branch with its ancestors.
struct Path<'a> {
    scope: &'a Scope,
    session: &'a SessionRecord,
    branches: Vec<(Branch, Ordinal)>,
}

fn turn_candidate(session: SessionNo, turn: StoredTurn) -> Candidate {
    let fields = turn.turn.as_ref().map(|turn| turn.fields());
    let speaker = fields.map(|fields| fields.name.clone().unwrap_or_else(|| fields.role.clone()));
    Candidate {
        kind: WindowKind::Turn,
        tier: turn.tier.as_str(),
        role: fields.map(|fields| fields.role.clone()),
        label: speaker.unwrap_or_default(),
        text: fields.map(|fields| fields.content.text().into_owned()).unwrap_or_default(),
        focus: 0,
        known_tokens: turn.tokens,
        at: turn.at,
        group: session.0,
        span: (turn.seq.0, turn.seq.0),
        sources: vec![turn.id.clone()],
        id: turn.id,
        score: 0.0,
        reason: "recent".to_owned(),
    }
}

fn summary_candidate(branch: &BranchRecord, chunk: &ChunkRecord) -> Option<Candidate> {
    let summary = chunk.summary.as_ref()?.parts();
    Some(Candidate {
        kind: WindowKind::Summary,
        id: chunk.id.to_string(),
        tier: tier_of(branch, chunk.id.last).as_str(),
        role: None,
        label: summary_label(chunk),
        text: summary.text.clone(),
        focus: 0,
        known_tokens: 0,
        at: chunk.first_at,
        group: chunk.id.session.0,
        span: (chunk.first_seq.0, chunk.last_seq.0),
        sources: vec![chunk.id.to_string()],
        score: 0.0,
        reason: "stands for older turns".to_owned(),
    })
    .filter(|candidate| !candidate.text.is_empty())
}

/// Which turns a summary stands for, and until when, if that is another day.
fn summary_label(chunk: &ChunkRecord) -> String {
    let turns = format!("Summary of turns {} to {}", chunk.first_seq, chunk.last_seq);
    match chunk.last_at.to_date() {
        last if last == chunk.first_at.to_date() => turns,
        last => format!("{turns}, until {last}"),
    }
}

/// What a turn is worth in a window. It falls with its length, but slowly: a
/// long one that answers is better than two short ones that do not.
fn worth(score: f32, tokens: f32) -> f32 {
    score - LENGTH_COST * (tokens + LINE_TOKENS).ln()
}

/// Ranked turns in the order in which they are worth their tokens, as far as the
/// index can tell, and somewhat more of them than could fit.
fn worth_reading(mut ranked: Vec<Ranked>, budget: u32) -> Vec<Ranked> {
    let tokens = |ranked: &Ranked| ranked.length as f32 * TOKENS_A_TERM;
    let worth = |ranked: &Ranked| worth(ranked.score, tokens(ranked));
    ranked.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(b.source.cmp(&a.source)));
    let mut room = budget as f32 * READ_BEYOND;
    let mut fits = |ranked: &Ranked| {
        let is_within = room > 0.0;
        room -= tokens(ranked) + LINE_TOKENS;
        is_within
    };
    let count = ranked.iter().take_while(|ranked| fits(ranked)).count();
    ranked.truncate(count);
    ranked
}
