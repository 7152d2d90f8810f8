//! What 40% of the tokens keep: memories of a hundred turns, and contexts of two
//! fifths of what these turns cost whole.

use icecore::models::TokenCounter;
use icecore_models::O200k;

use crate::Result;
use crate::data::{Conversation, Dataset, Question, Session, Turn};
use crate::engine::Engine;
use crate::measures::{Means, Record, Task, context_scores};
use crate::recall::{Measured, OURS, contents};

const TURNS: usize = 100;
const PERCENT: u32 = 40;

/// What was kept, and of how much.
pub struct Kept {
    pub stretches: usize,
    pub raw_tokens: u64,
    pub means: Means,
}

/// Asks each full stretch of a hundred turns what lies wholly inside it.
pub async fn kept(dataset: &Dataset, checks: &mut Measured) -> Result<Kept> {
    let (engine, counter) = (Engine::new().await?, O200k::default());
    let (mut records, mut raw_tokens, mut stretches) = (Vec::new(), 0, 0);
    for (number, conversation) in dataset.conversations.iter().enumerate() {
        for (at, sessions) in stretches_of(conversation).into_iter().enumerate() {
            let turns: Vec<&Turn> = sessions.iter().flat_map(|session| &session.turns).collect();
            let content = contents(&turns);
            let is_inside = |question: &&Question| {
                question.evidence.iter().all(|id| content.contains_key(id.as_str()))
            };
            let asked: Vec<&Question> =
                conversation.asked(None).into_iter().filter(is_inside).collect();
            if asked.is_empty() {
                continue;
            }
            let raw: u32 = turns.iter().map(|turn| counter.count(&turn.content)).sum();
            let budget = raw * PERCENT / 100;
            (stretches, raw_tokens) = (stretches + 1, raw_tokens + u64::from(raw));
            let scope = engine.remember(&format!("stretch-{number}-{at}"), &sessions).await?;
            engine.settle().await?;
            for question in asked {
                let (context, took) = engine.context(&scope, &question.question, budget).await?;
                checks.check(&context.text, context.tokens, budget);
                let scores = context_scores(&context.text, context.tokens, question, &content);
                let category = question.category.clone();
                let task = Task::Context(budget);
                records.push(Record {
                    system: OURS,
                    task,
                    conversation: number,
                    category,
                    scores,
                    took,
                });
            }
        }
    }
    Ok(Kept { stretches, raw_tokens, means: Means::of(records.iter()) })
}

/// The conversation's turns, a hundred at a time, with their sessions.
fn stretches_of(conversation: &Conversation) -> Vec<Vec<Session>> {
    let named: Vec<(&str, &Turn)> = conversation
        .sessions
        .iter()
        .flat_map(|session| session.turns.iter().map(|turn| (session.session.as_str(), turn)))
        .collect();
    let one = |turns: &[(&str, &Turn)]| {
        let sessions = turns.chunk_by(|a, b| a.0 == b.0);
        let session = |turns: &[(&str, &Turn)]| Session {
            session: turns[0].0.to_owned(),
            turns: turns.iter().map(|(_, turn)| (*turn).clone()).collect(),
        };
        sessions.map(session).collect()
    };
    named.chunks_exact(TURNS).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_full_and_keep_their_sessions() {
        let turn = |n: usize| Turn {
            id: n.to_string(),
            role: "user".to_owned(),
            name: None,
            content: format!("turn {n}"),
            timestamp: None,
        };
        let session = |name: &str, turns: std::ops::Range<usize>| Session {
            session: name.to_owned(),
            turns: turns.map(turn).collect(),
        };
        let conversation = Conversation {
            memory_ref: "c".to_owned(),
            sessions: vec![session("a", 0..60), session("b", 60..230)],
            questions: Vec::new(),
        };
        let found = stretches_of(&conversation);
        let sizes: Vec<Vec<(&str, usize)>> = found
            .iter()
            .map(|s| s.iter().map(|s| (s.session.as_str(), s.turns.len())).collect())
            .collect();
        assert_eq!(sizes, [vec![("a", 60), ("b", 40)], vec![("b", 100)]]);
    }
}
