//! The signals of candidates: what leaving one out costs, and a file of them for
//! `training/rank.py`.
//!
//! Candidates are the first turns that the engine finds with all its signals,
//! far more than are measured, so ranking them again without a signal is nearly
//! what the engine would do without it.

use std::io::Write;
use std::time::Duration;

use icecore::Hit;
use icecore::recall::{Mode, Signal};
use serde_json::json;

use crate::Result;
use crate::data::{Dataset, Question};
use crate::measures::{Record, Task, search_scores};
use crate::recall::Loaded;

/// Candidates looked at for a question.
const CANDIDATES: usize = 200;

/// A question with its candidates, best first.
pub struct Ranking<'a> {
    conversation: usize,
    question: &'a Question,
    candidates: Vec<Candidate>,
}

struct Candidate {
    id: String,
    signals: Vec<f32>,
}

/// Finds the candidates of every question.
pub async fn rankings<'a>(
    dataset: &'a Dataset,
    loaded: &Loaded,
    sample: Option<usize>,
) -> Result<Vec<Ranking<'a>>> {
    let mut found = Vec::new();
    for (conversation, asked) in dataset.conversations.iter().enumerate() {
        let scope = &loaded.scopes[conversation];
        for question in asked.asked(sample) {
            let (hits, _) =
                loaded.engine.search(scope, &question.question, Mode::Hybrid, CANDIDATES).await?;
            let candidates = hits.into_iter().map(Candidate::from).collect();
            found.push(Ranking { conversation, question, candidates });
        }
    }
    Ok(found)
}

impl From<Hit> for Candidate {
    fn from(hit: Hit) -> Self {
        let value = |signal: Signal| {
            let told = hit.signals.iter().find(|(name, _)| *name == signal.as_str());
            told.map_or(0.0, |(_, value)| *value)
        };
        Self { signals: Signal::ALL.map(value).to_vec(), id: hit.id.clone() }
    }
}

impl Candidate {
    fn score(&self, without: Option<Signal>) -> f32 {
        let weight = |signal: Signal| if Some(signal) == without { 0.0 } else { signal.weight() };
        Signal::ALL
            .into_iter()
            .zip(&self.signals)
            .map(|(signal, value)| weight(signal) * value)
            .sum()
    }
}

/// How the candidates do, ranked without a signal.
pub fn without(rankings: &[Ranking<'_>], signal: Option<Signal>) -> Vec<Record> {
    let one = |ranking: &Ranking<'_>| {
        let mut order: Vec<&Candidate> = ranking.candidates.iter().collect();
        order.sort_by(|a, b| b.score(signal).total_cmp(&a.score(signal)));
        let ids: Vec<&str> = order.iter().map(|candidate| candidate.id.as_str()).collect();
        Record {
            system: signal.map_or("all signals", Signal::as_str),
            task: Task::Search,
            conversation: ranking.conversation,
            category: ranking.question.category.clone(),
            scores: search_scores(&ids, ranking.question),
            took: Duration::ZERO,
        }
    };
    rankings.iter().map(one).collect()
}

/// Writes a line for each question: its candidates' signals, which of them are
/// evidence, and how much evidence there is in all.
pub fn dump(dataset: &Dataset, rankings: &[Ranking<'_>], out: &mut impl Write) -> Result<()> {
    for ranking in rankings {
        let (evidence, candidates) = (&ranking.question.evidence, &ranking.candidates);
        let is_gold = |candidate: &Candidate| u8::from(evidence.contains(&candidate.id));
        let line = json!({
            "dataset": dataset.name,
            "conversation": dataset.conversations[ranking.conversation].memory_ref,
            "question": ranking.question.id,
            "category": ranking.question.category,
            "evidence": evidence.len(),
            "names": Signal::ALL.map(Signal::as_str),
            "weights": Signal::ALL.map(Signal::weight),
            "gold": candidates.iter().map(is_gold).collect::<Vec<_>>(),
            "signals": candidates.iter().map(|c| c.signals.as_slice()).collect::<Vec<_>>(),
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}
