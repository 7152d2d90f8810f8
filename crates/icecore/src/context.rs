//! The context for a prompt: what is recent verbatim, what is older by summary.

use icecore_domain::chunk::Level;
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq};
use icecore_domain::window::{self, Candidate, WindowItem, WindowKind};
use icecore_store::{BranchRecord, ChunkQuery, ChunkRecord, SessionRecord, TurnQuery, TurnState};

use crate::error::Result;
use crate::history::{StoredTurn, lineage, tier_of};
use crate::memory::Memory;

/// What a context is wanted for.
#[derive(Debug, Clone, Default)]
pub struct ContextRequest {
    /// The session to continue; without one, the most recent.
    pub session: Option<String>,
    /// Its branch; without one, the one last appended to.
    pub branch: Option<String>,
    /// What is asked; summaries that share its words come first.
    pub query: Option<String>,
    /// Tokens that the text may have.
    pub budget: u32,
}

impl ContextRequest {
    /// The context to continue a session with.
    pub fn of_session(session: &str, budget: u32) -> Self {
        Self { session: Some(session.to_owned()), budget, ..Self::default() }
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

impl Memory {
    /// Builds a context that never exceeds its budget.
    pub async fn context(&self, scope: &Scope, request: ContextRequest) -> Result<Context> {
        let sessions = match &request.session {
            Some(session) => vec![self.session_record(scope, session).await?],
            None => self.inner.store.recent_sessions(scope, MAX_SESSIONS).await?,
        };
        let words = request.query.as_deref().map(query_words).unwrap_or_default();
        let mut turns = Vec::new();
        let mut summaries = Vec::new();
        let mut wanted = u64::from(request.budget);
        for (age, session) in sessions.iter().enumerate() {
            if wanted == 0 && age > 0 {
                break;
            }
            let branch = match request.branch.as_deref().filter(|_| request.session.is_some()) {
                Some(name) => self.branch_of(
                    session,
                    request.session.as_deref().unwrap_or_default(),
                    Some(name),
                )?,
                None => session.current,
            };
            let rank = (sessions.len() - age) as u64;
            let path = Path { scope, session, rank, branches: lineage(session, branch) };
            turns.extend(self.newest_turns(&path, &mut wanted).await?);
            summaries.extend(self.newest_summaries(&path, &words, request.budget).await?);
        }
        let counter = std::sync::Arc::clone(&self.inner.counter);
        let budget = request.budget;
        let window = crate::error::off_thread(move || {
            window::pack(turns, summaries, budget, counter.as_ref())
        })
        .await?;
        Ok(Context { text: window.text, tokens: window.tokens, budget, items: window.items })
    }

    /// The newest turns along a path, newest first, until `wanted` tokens.
    async fn newest_turns(&self, path: &Path<'_>, wanted: &mut u64) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        for (branch, through) in path.branches.iter().rev() {
            let mut before = self.last_seq(path, *branch, *through).await?;
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
                let mut rows = self.inner.store.turns(path.scope, &query).await?;
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
                found.extend(turns.into_iter().rev().map(|turn| turn_candidate(path.rank, turn)));
            }
        }
        Ok(found)
    }

    /// A `seq` at or soon after that of a branch's ordinal, so that reading
    /// backwards from a fork does not begin at the far end of its parent.
    async fn last_seq(&self, path: &Path<'_>, branch: Branch, ordinal: Ordinal) -> Result<Seq> {
        let record = path.session.branches.iter().find(|record| record.branch == branch);
        let end = Seq(u64::MAX >> 1);
        let Some(tail) = record.map(|record| &record.tail).filter(|tail| ordinal.0 < tail.length)
        else {
            return Ok(end);
        };
        let query = ChunkQuery {
            through: Ordinal(ordinal.0 + u64::from(tail.policy.micro_turns)),
            newest: true,
            ..ChunkQuery::all(path.session.no, branch, Level::Micro, 1)
        };
        let found = self.inner.store.chunks(path.scope, &query).await?;
        let reaches = |chunk: &&ChunkRecord| chunk.id.last >= ordinal;
        Ok(found.first().filter(reaches).map_or(end, |chunk| chunk.last_seq))
    }

    /// Summaries along a path, the newest of each level: no more than could fit,
    /// unless a query chooses among them.
    async fn newest_summaries(
        &self,
        path: &Path<'_>,
        words: &[String],
        budget: u32,
    ) -> Result<Vec<Candidate>> {
        let limit = match words {
            [] => (budget as usize / SUMMARY_TOKENS).clamp(MIN_SUMMARIES, MAX_SUMMARIES),
            _ => MAX_SUMMARIES,
        };
        let mut found = Vec::new();
        for (branch, through) in &path.branches {
            let Some(record) = path.session.branches.iter().find(|b| b.branch == *branch) else {
                continue;
            };
            for level in Level::ALL {
                let query = ChunkQuery {
                    through: *through,
                    newest: true,
                    ..ChunkQuery::all(path.session.no, *branch, level, limit)
                };
                let chunks = self.inner.store.chunks(path.scope, &query).await?;
                found.extend(
                    chunks
                        .iter()
                        .filter_map(|chunk| summary_candidate(path.rank, record, chunk, words)),
                );
            }
        }
        Ok(found)
    }
}

/// A branch with its ancestors.
struct Path<'a> {
    scope: &'a Scope,
    session: &'a SessionRecord,
    /// Grows with how recent the session is.
    rank: u64,
    branches: Vec<(Branch, Ordinal)>,
}

fn turn_candidate(rank: u64, turn: StoredTurn) -> Candidate {
    let fields = turn.turn.as_ref().map(|turn| turn.fields());
    let speaker = fields.map(|fields| fields.name.clone().unwrap_or_else(|| fields.role.clone()));
    Candidate {
        kind: WindowKind::Turn,
        tier: turn.tier.as_str(),
        role: fields.map(|fields| fields.role.clone()),
        label: speaker.unwrap_or_default(),
        text: fields.map(|fields| fields.content.text().into_owned()).unwrap_or_default(),
        known_tokens: turn.tokens,
        at: turn.at,
        group: rank,
        span: (turn.seq.0, turn.seq.0),
        sources: vec![turn.id.clone()],
        id: turn.id,
        score: 0.0,
        reason: "recent".to_owned(),
    }
}

fn summary_candidate(
    rank: u64,
    branch: &BranchRecord,
    chunk: &ChunkRecord,
    words: &[String],
) -> Option<Candidate> {
    let summary = chunk.summary.as_ref()?.parts();
    let text = summary.text.to_lowercase();
    let shared = words.iter().filter(|word| text.contains(word.as_str())).count();
    let reason = match shared {
        0 => "stands for older turns".to_owned(),
        1 => "stands for older turns; shares a word with the query".to_owned(),
        _ => format!("stands for older turns; shares {shared} words with the query"),
    };
    Some(Candidate {
        kind: WindowKind::Summary,
        id: chunk.id.to_string(),
        tier: tier_of(branch, chunk.id.last).as_str(),
        role: None,
        label: summary_label(chunk),
        text: summary.text.clone(),
        known_tokens: 0,
        at: chunk.first_at,
        group: rank,
        span: (chunk.first_seq.0, chunk.last_seq.0),
        sources: vec![chunk.id.to_string()],
        score: shared as f64,
        reason,
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

/// Words of a query that can tell summaries apart.
fn query_words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() > 3)
        .take(64)
        .map(str::to_lowercase)
        .collect();
    words.sort();
    words.dedup();
    words
}
