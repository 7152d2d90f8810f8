//! What a handoff is made of: the handoff before, summaries that are there, turns, facts
//! from them, and what recall finds for the last request.

use std::collections::BTreeSet;

use icecore_domain::chunk::Level;
use icecore_domain::fact::Fact;
use icecore_domain::handoff::{
    CompactionPlan, Handoff, HandoffSource, Message, Passage, parse, voices,
};
use icecore_domain::ids::{Ordinal, Scope, Seq, TurnId};
use icecore_domain::redact::Redactor;
use icecore_domain::text::Said;
use icecore_domain::time::Millis;
use icecore_domain::turn::RawTurn;
use icecore_store::{ChunkQuery, ChunkRecord};

use super::view::Reading;
use crate::error::{Result, not_redacted};
use crate::layers::history::StoredTurn;
use crate::layers::{is_handoff, own_words};
use crate::sessions::Sessions;

/// Tokens of turns that are read for one handoff. Where there are more, summaries stand
/// for the oldest, as far as there are any.
pub(super) const READ_TOKENS: u64 = 200_000;

/// Turns that are read for one handoff.
pub(super) const READ_TURNS: usize = 4_000;

/// Summaries of one level that are looked at.
const MAX_SUMMARIES: usize = 1_000;

/// The newest facts that are offered.
const MAX_FACTS: usize = 256;

/// Something that somebody said.
#[derive(Debug, Clone)]
pub(super) struct Spoken {
    pub(super) role: String,
    pub(super) name: Option<String>,
    pub(super) text: String,
    pub(super) at: Millis,
}

impl Spoken {
    pub(super) fn said(&self) -> Said<'_> {
        Said { role: &self.role, name: self.name.as_deref(), text: &self.text, at: self.at }
    }

    /// Who said it.
    pub(super) fn speaker(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.role)
    }

    /// Whether a tool said it.
    pub(super) fn is_output(&self) -> bool {
        matches!(self.role.as_str(), "tool" | "function")
    }
}

/// All that a handoff may be made of.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    pub(super) previous: Option<Handoff>,
    /// What the handoff before says, as it is written.
    pub(super) previous_text: String,
    pub(super) summaries: Vec<String>,
    pub(super) spoken: Vec<Spoken>,
    pub(super) facts: Vec<Fact>,
    pub(super) recalled: Vec<Passage>,
    pub(super) recalled_percent: u64,
    /// What the person asked for last, in words.
    pub(super) request: Option<String>,
    /// How that was answered, if it was and the answer is no message any more.
    pub(super) answered: Option<String>,
}

impl Sources {
    /// Does something with them as the domain has them.
    pub(super) fn with<T>(&self, work: impl FnOnce(&HandoffSource<'_>) -> T) -> T {
        let said: Vec<Said<'_>> = self.spoken.iter().map(Spoken::said).collect();
        work(&HandoffSource {
            previous: self.previous.as_ref(),
            summaries: &self.summaries,
            said: &said,
            facts: &self.facts,
            recalled: &self.recalled,
            recalled_percent: self.recalled_percent,
            answered: self.answered.as_deref(),
        })
    }

    /// Every text that a line of a handoff may come from.
    pub(super) fn texts(&self) -> Vec<&str> {
        let spoken = self.spoken.iter().flat_map(|spoken| [spoken.text.as_str(), spoken.speaker()]);
        let recalled =
            self.recalled.iter().flat_map(|one| [one.text.as_str(), one.speaker.as_str()]);
        let request = self.request.iter().chain(&self.answered).map(String::as_str);
        [self.previous_text.as_str()]
            .into_iter()
            .chain(self.summaries.iter().map(String::as_str))
            .chain(spoken)
            .chain(self.facts.iter().map(|fact| fact.text.as_str()))
            .chain(recalled)
            .chain(request)
            .filter(|text| !text.is_empty())
            .collect()
    }
}

/// How the last request of a view was answered, if it was and its answer will be no
/// message any more. Where it went before, the handoff in force says so.
pub(super) fn answered(
    reading: &Reading,
    messages: &[Message],
    plan: &CompactionPlan,
) -> Option<String> {
    let request = plan.request?;
    match plan.answer {
        Some(at) if plan.kept.contains(&at) => None,
        Some(at) => Some(own_words(messages[at].turn.fields()).1),
        None => {
            let handoff = reading.handoff.as_ref()?;
            let seq = reading.turns().nth(request)?.seq;
            let before = handoff.kept.contains(&seq).then(|| parse(handoff.text.as_str()))?;
            before.answered().map(str::to_owned)
        }
    }
}

/// What a turn says and calls for, by who said it.
fn spoken(turn: &RawTurn, at: Millis) -> Vec<Spoken> {
    if is_handoff(turn) {
        return Vec::new();
    }
    let one = |role: &str, text: String| Spoken {
        role: role.to_owned(),
        name: turn.name.clone().filter(|_| role == turn.role),
        text,
        at,
    };
    let mut spoken: Vec<Spoken> =
        voices(turn).into_iter().map(|(role, text)| one(role, text.into_owned())).collect();
    let calls = calls_of(turn);
    match spoken.last_mut() {
        _ if calls.is_empty() => {}
        Some(last) if last.role == turn.role && !last.text.is_empty() => {
            last.text = format!("{}\n{calls}", last.text);
        }
        Some(last) if last.role == turn.role => last.text = calls,
        _ => spoken.push(one(&turn.role, calls)),
    }
    spoken
}

/// The tool calls of a turn, one under the other.
fn calls_of(turn: &RawTurn) -> String {
    let mut text = String::new();
    let calls = turn.tool_calls.as_ref().map(|calls| calls.to_value());
    for call in calls.iter().filter_map(|calls| calls.as_array()).flatten() {
        let function = call.get("function").unwrap_or(call);
        let name = function.get("name").and_then(|name| name.as_str()).unwrap_or("tool");
        let input = function.get("arguments").or_else(|| function.get("input"));
        let input = match input {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(format!("{name} {input}").trim_end());
    }
    text
}

impl Sessions {
    /// Gathers what a handoff is made of.
    pub(super) async fn handoff_sources(
        &self,
        scope: &Scope,
        reading: &Reading,
        messages: &[Message],
        plan: &CompactionPlan,
        redactor: &Redactor,
    ) -> Result<Sources> {
        let turns: Vec<&StoredTurn> = reading.turns().collect();
        let distilled: Vec<usize> = plan.distilled.clone();
        let request = plan.request.map(|at| own_words(messages[at].turn.fields()).1);
        let (summaries, spoken) = self.stretch(scope, reading, &distilled, READ_TOKENS).await?;
        let previous_text =
            reading.handoff.as_ref().map_or("", |handoff| handoff.text.as_str()).to_owned();
        let standing: BTreeSet<Seq> =
            plan.system.iter().chain(&plan.kept).map(|at| turns[*at].seq).collect();
        let recalled = match &request {
            Some(request) => self.recalled(scope, reading, &standing, request, plan).await?,
            None => Vec::new(),
        };
        Ok(Sources {
            previous: (!previous_text.is_empty()).then(|| parse(&previous_text)),
            previous_text,
            summaries,
            spoken,
            facts: self.facts_for(scope, reading, redactor).await?,
            recalled,
            recalled_percent: self.settings.handoffs.recall_percent.min(100),
            request,
            answered: answered(reading, messages, plan),
        })
    }

    /// What was said at these places: the newest turns, within so many tokens, and what
    /// summaries say of those before. Where there is none, these are answered too.
    pub(super) async fn stretch(
        &self,
        scope: &Scope,
        reading: &Reading,
        distilled: &[usize],
        most: u64,
    ) -> Result<(Vec<String>, Vec<Spoken>)> {
        let turns: Vec<&StoredTurn> = reading.turns().collect();
        let (older, newer) = distilled.split_at(first_read(distilled, &reading.counts, most));
        let (summaries, uncovered) = match older.is_empty() {
            true => (Vec::new(), Vec::new()),
            false => self.summaries_for(scope, reading, &turns, older).await?,
        };
        let read = uncovered.into_iter().chain(newer.iter().copied());
        let spoken = read.filter_map(|at| {
            let fields = turns[at].turn.as_ref()?.fields();
            Some(spoken(fields, turns[at].at))
        });
        Ok((summaries, spoken.flatten().collect()))
    }

    /// Facts that hold and that nothing but turns of this path say.
    async fn facts_for(
        &self,
        scope: &Scope,
        reading: &Reading,
        redactor: &Redactor,
    ) -> Result<Vec<Fact>> {
        let learned = self.learned(scope).await?;
        let in_view: BTreeSet<Seq> = reading.turns().map(|turn| turn.seq).collect();
        // Without forks all turns are on the path.
        let is_whole = reading.session.branches.len() == 1;
        let is_source = |id: &TurnId| {
            id.session == reading.session.no
                && (in_view.contains(&id.seq) || is_whole && id.seq <= reading.head)
        };
        let facts = learned.said_only_by(is_source, MAX_FACTS);
        let clean = |fact: Fact| Ok(redactor.fact(fact).map_err(not_redacted)?.into_fact());
        facts.into_iter().map(clean).collect()
    }

    /// Summaries that stand for turns at these places, oldest first, and the places that
    /// none stands for.
    async fn summaries_for(
        &self,
        scope: &Scope,
        reading: &Reading,
        turns: &[&StoredTurn],
        places: &[usize],
    ) -> Result<(Vec<String>, Vec<usize>)> {
        let mut chosen: Vec<ChunkRecord> = Vec::new();
        for (branch, _) in &reading.path {
            let mine: Vec<Ordinal> = places
                .iter()
                .map(|at| turns[*at])
                .filter(|turn| turn.branch == *branch)
                .map(|turn| turn.ordinal)
                .collect();
            let (Some(first), Some(last)) = (mine.first(), mine.last()) else { continue };
            let taken = chosen.len();
            for level in [Level::Macro, Level::Mini, Level::Micro] {
                let query = ChunkQuery {
                    from: *first,
                    through: *last,
                    ..ChunkQuery::all(reading.session.no, *branch, level, MAX_SUMMARIES)
                };
                let chunks = self.store.chunks(scope, &query).await?;
                for chunk in self.veil_chunks(scope, chunks).await? {
                    let overlaps = |other: &ChunkRecord| {
                        other.id.first <= chunk.id.last && chunk.id.first <= other.id.last
                    };
                    let says =
                        chunk.summary.as_ref().is_some_and(|one| !one.parts().text.is_empty());
                    if says && !chosen[taken..].iter().any(overlaps) {
                        chosen.push(chunk);
                    }
                }
            }
            chosen[taken..].sort_by_key(|chunk| chunk.id.first);
        }
        let is_covered = |at: &usize| {
            let turn = turns[*at];
            chosen.iter().any(|chunk| {
                chunk.id.branch == turn.branch
                    && (chunk.id.first..=chunk.id.last).contains(&turn.ordinal)
            })
        };
        let uncovered = places.iter().copied().filter(|at| !is_covered(at)).collect();
        Ok((chosen.iter().filter_map(summary_text).collect(), uncovered))
    }
}

/// Which of the distilled places is the first that is read itself: all, where they are
/// not too many.
fn first_read(distilled: &[usize], counts: &[u64], most: u64) -> usize {
    let mut tokens = 0_u64;
    let fits = |at: &&usize| {
        tokens = tokens.saturating_add(counts[**at]);
        tokens <= most
    };
    let newest = distilled.iter().rev().take_while(fits).take(READ_TURNS).count();
    distilled.len() - newest
}

fn summary_text(chunk: &ChunkRecord) -> Option<String> {
    let summary = chunk.summary.as_ref()?.parts();
    let lines = [&summary.text].into_iter().chain(&summary.key_facts);
    Some(lines.map(String::as_str).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore_domain::json::JsonText;
    use icecore_domain::turn::Content;

    #[test]
    fn only_the_newest_turns_are_read_where_there_are_too_many() {
        let counts = vec![READ_TOKENS / 4; 10];
        assert_eq!(first_read(&[0, 2, 4], &counts, READ_TOKENS), 0);
        assert_eq!(first_read(&(0..10).collect::<Vec<_>>(), &counts, READ_TOKENS), 6);
        let places: Vec<usize> = (0..READ_TURNS + 3).collect();
        assert_eq!(first_read(&places, &vec![0; READ_TURNS + 3], READ_TOKENS), 3);
        assert_eq!(first_read(&[0], &[READ_TOKENS + 1], READ_TOKENS), 1);
    }

    #[test]
    fn calls_are_told_with_what_they_were_called_with() {
        let mut turn = RawTurn::new("assistant", "I look.");
        let calls =
            r#"[{"id":"a","type":"function","function":{"name":"read","arguments":"{\"p\":1}"}}]"#;
        turn.tool_calls = Some(JsonText::parse(calls).unwrap());
        let told = |turn: &RawTurn| -> Vec<(String, String)> {
            spoken(turn, Millis(0)).into_iter().map(|one| (one.role, one.text)).collect()
        };
        let one = |role: &str, text: &str| (role.to_owned(), text.to_owned());
        assert_eq!(told(&turn), [one("assistant", "I look.\nread {\"p\":1}")]);
        turn.content = Content::Null;
        assert_eq!(told(&turn), [one("assistant", "read {\"p\":1}")]);
        let parts =
            r#"[{"type":"tool_result","content":"Never test."},{"type":"text","text":"And?"}]"#;
        let content = Content::Parts(JsonText::parse(parts).unwrap());
        let both = RawTurn { content, name: Some("Ann".to_owned()), ..RawTurn::new("user", "") };
        assert_eq!(told(&both), [one("tool", "Never test."), one("user", "And?")]);
        assert_eq!(spoken(&both, Millis(0))[0].name, None);
        assert_eq!(own_words(&both), ("user", "And?".to_owned()));
        let parts = r#"[{"type":"tool_result","content":"Never test."}]"#;
        let content = Content::Parts(JsonText::parse(parts).unwrap());
        let result = RawTurn { content, ..RawTurn::new("user", "") };
        assert_eq!(own_words(&result), ("tool", "Never test.".to_owned()));
        assert_eq!(own_words(&RawTurn::new("user", "")), ("user", String::new()));
    }
}
