//! A handoff by a model, checked against what it was made of.
//!
//! The request is measured before it is sent, and shrunk until it fits. A model of the
//! session's own whose server has the view at hand is sent the view as it is, with one
//! message more; any other is sent a transcript.

use std::collections::BTreeSet;
use std::sync::Arc;

use icecore_domain::chat::{ChatError, ChatModel, ChatProfile, ChatRequest, Finish};
use icecore_domain::handoff::{
    Handoff, HandoffLine, HandoffPrompt, HandoffSection, INSTRUCTION, Message, message_tokens,
    read_reply, render, request_tokens, with_instructions,
};
use icecore_domain::ids::Scope;
use icecore_domain::redact::{RedactedTurn, Redactor};
use icecore_domain::tokens::TokenCounter;
use icecore_domain::turn::RawTurn;
use icecore_store::HandoffTrigger;

use super::compact::{Job, scaled};
use super::lines::Frame;
use super::sources::{Sources, Spoken};
use super::view::Reading;
use crate::base::Purpose;
use crate::error::{MemoryError, Result, off_thread};
use crate::models::Ask;
use crate::sessions::Sessions;

/// With less room than this no model is asked.
const LEAST_REPLY_TOKENS: u64 = 64;

/// A model is asked so often before the next one is: the second time for less.
const ATTEMPTS: u64 = 2;

/// What a tool put out is told by its first so many tokens where a transcript is too
/// long.
const TOOL_BODY_TOKENS: u32 = 120;

/// No turn takes more than this part of a transcript.
const LONG_TURN_PART: u64 = 4;

/// The handoff before takes at most this part of a transcript.
const PREVIOUS_PART: u64 = 2;

/// Where summaries stand for the oldest turns, they may have this part of a transcript.
const SUMMARY_PART: u64 = 4;

/// A model's own counts may be above ours, by so many percent of the window.
const SLACK_PERCENT: u64 = 5;

/// A view that is at hand is sent as it is if so many tokens are left for the answer,
/// or all that it may have.
const LEAST_AT_HAND_TOKENS: u64 = 1_024;

/// What a model is asked about.
pub(super) struct Task<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) reading: &'a Reading,
    pub(super) sources: &'a Arc<Sources>,
    /// The handoff without a model: that the request was answered, its instructions and
    /// what was recalled stand word for word in any.
    pub(super) heuristic: &'a Handoff,
    /// Places of the turns that it stands for.
    pub(super) distilled: &'a [usize],
    pub(super) frame: Frame,
    pub(super) redactor: &'a Redactor,
}

impl Sessions {
    /// Asks the models for a handoff, one after the other; none answered usably if
    /// there is none. Answers the lines, and which model wrote them.
    pub(super) async fn distil(
        &self,
        scope: &Scope,
        task: &Task<'_>,
        notices: &mut Vec<String>,
    ) -> Result<Option<(Vec<HandoffLine>, String)>> {
        let models = &self.models.handoffs.0;
        if models.is_empty() {
            return Ok(None);
        }
        let counter = self.counter.as_ref();
        let (number, turns) = (task.frame.number, task.frame.turns);
        let taken = render(&Handoff { lines: verbatim(task.heuristic) }, number, turns);
        let room = task.frame.tokens.saturating_sub(u64::from(counter.count(&taken)));
        // As the reply is measured, with a mark of its own.
        let mark = u64::from(counter.count(&render(&Handoff::default(), number, turns)));
        if room < LEAST_REPLY_TOKENS {
            notices.push("no model was asked for the handoff: there is too little room".to_owned());
            return Ok(None);
        }
        for model in models {
            let name = &model.profile().name;
            for attempt in 1..=ATTEMPTS {
                match self.asked_once(scope, task, model, (room, mark), attempt).await? {
                    Ok(written) => {
                        let (frame, heuristic) = (task.frame, task.heuristic);
                        let whole = with_instructions(
                            &written,
                            heuristic,
                            (number, turns),
                            frame.tokens,
                            counter,
                        );
                        return Ok(Some((whole.lines, name.clone())));
                    }
                    Err(failure) => {
                        notices.push(format!("the handoff is not by `{name}`: {}", failure.reason));
                        if !failure.is_worth_another {
                            break;
                        }
                    }
                }
            }
        }
        self.counters.fallback();
        Ok(None)
    }

    /// Asks one model once, and looks at what it answers.
    async fn asked_once(
        &self,
        scope: &Scope,
        task: &Task<'_>,
        model: &Arc<dyn ChatModel>,
        (room, mark): (u64, u64),
        attempt: u64,
    ) -> Result<std::result::Result<Handoff, Failure>> {
        let asked = room / attempt;
        let Some(request) =
            self.distiller_request(scope, task, model.profile(), asked, attempt).await?
        else {
            return Ok(Err(Failure::last("its window has no room for what is to be distilled")));
        };
        let ask = Ask {
            scope,
            session: Some(task.reading.session.no),
            epoch: task.reading.epoch,
            purpose: Purpose::Handoff,
            model,
            request: &request,
        };
        let answered = match self.ask(&ask).await {
            Ok(answered) => answered,
            Err(MemoryError::Chat(error)) => return Ok(Err(Failure::of(&error))),
            Err(error @ MemoryError::ModelBudget { .. }) => {
                return Ok(Err(Failure::last(&error.to_string())));
            }
            Err(error) => return Err(error),
        };
        let text = answered.text.as_str().to_owned();
        let read = match answered.reply.finish {
            Finish::Length => Err("its answer is cut off".to_owned()),
            Finish::Filtered => Err("its answer was withheld".to_owned()),
            Finish::Stop | Finish::ToolCalls => self.read_handoff(task, text, room + mark).await?,
        };
        match read {
            Ok(handoff) => {
                self.keep_answer(&ask, &answered).await?;
                Ok(Ok(handoff))
            }
            Err(reason) => {
                self.note_useless(&ask, &answered);
                Ok(Err(Failure { reason, is_worth_another: true }))
            }
        }
    }

    async fn read_handoff(
        &self,
        task: &Task<'_>,
        text: String,
        room: u64,
    ) -> Result<std::result::Result<Handoff, String>> {
        let (sources, counter) = (Arc::clone(task.sources), Arc::clone(&self.counter));
        off_thread(move || {
            let read = read_reply(&text, &sources.texts(), room, counter.as_ref());
            read.map_err(|bad| bad.to_string())
        })
        .await
    }

    /// What a model is sent, within its window; nothing, if that holds nothing.
    async fn distiller_request(
        &self,
        scope: &Scope,
        task: &Task<'_>,
        profile: &ChatProfile,
        room: u64,
        attempt: u64,
    ) -> Result<Option<ChatRequest>> {
        let window = match profile.window {
            0 => self.settings.handoffs.window,
            window => window,
        };
        // Somewhat more, so that too long an answer is seen to be one.
        let max_tokens = room.saturating_add(room / 4);
        let slack = window / 100 * SLACK_PERCENT;
        let most = window.saturating_sub(max_tokens).saturating_sub(slack);
        if attempt == 1
            && let Some(left) = self.left_at_hand(task, window)
            && left >= max_tokens.min(LEAST_AT_HAND_TOKENS)
            && is_at_hand(task, profile).await?
        {
            let last = task.redactor.turn(RawTurn::new("user", INSTRUCTION));
            let messages = task.reading.view.messages().into_iter().chain([last]).collect();
            let (tools, max_tokens) = (task.job.tools.cloned(), max_tokens.min(left));
            return Ok(Some(ChatRequest { messages, tools, max_tokens }));
        }
        let counter = Arc::clone(&self.counter);
        let fixed = prompt_turns(&HandoffPrompt::new("", room), task.redactor);
        let told: u64 = fixed.iter().map(|turn| tokens_of(turn, counter.as_ref())).sum();
        let told = request_tokens(fixed.len() as u64, told);
        let Some(left) = (most / attempt).checked_sub(told) else { return Ok(None) };
        let sources = self.shrunk(scope, task, left).await?;
        let redactor = task.redactor.clone();
        off_thread(move || {
            let transcript = transcript(&sources, left, counter.as_ref())?;
            let messages = prompt_turns(&HandoffPrompt::new(&transcript, room), &redactor);
            Some(ChatRequest { messages, tools: None, max_tokens })
        })
        .await
    }

    /// Tokens that a window has left behind the view and one instruction more, counted as
    /// the session's own requests are. None is left where its provider just refused it.
    fn left_at_hand(&self, task: &Task<'_>, window: u64) -> Option<u64> {
        let job = task.job;
        let told = u64::from(self.counter.count(INSTRUCTION));
        let counted = task.reading.request_tokens(job.beside_tokens);
        let sent = scaled(counted.saturating_add(request_tokens(1, told)), job.permille);
        let left = window.min(job.window.window).checked_sub(sent)?;
        (job.trigger != HandoffTrigger::Overflow).then_some(left)
    }

    /// The sources, with summaries in place of the oldest turns if all have no room, even
    /// with what tools put out cut.
    async fn shrunk(&self, scope: &Scope, task: &Task<'_>, room: u64) -> Result<Arc<Sources>> {
        let (sources, counter) = (Arc::clone(task.sources), Arc::clone(&self.counter));
        let is_whole = off_thread(move || size(&sources, room, counter.as_ref()) <= room).await?;
        if is_whole {
            return Ok(Arc::clone(task.sources));
        }
        let most = room / SUMMARY_PART * (SUMMARY_PART - 1);
        let (summaries, spoken) = self.stretch(scope, task.reading, task.distilled, most).await?;
        Ok(Arc::new(Sources { summaries, spoken, ..Sources::clone(task.sources) }))
    }
}

/// Why there is no handoff from a model.
struct Failure {
    reason: String,
    /// Whether it may do better if it is asked for less.
    is_worth_another: bool,
}

impl Failure {
    fn last(reason: &str) -> Self {
        Self { reason: reason.to_owned(), is_worth_another: false }
    }

    fn of(error: &ChatError) -> Self {
        let is_worth_another = matches!(
            error,
            ChatError::Overflow { .. } | ChatError::CutOff { .. } | ChatError::Malformed { .. }
        );
        Self { reason: error.to_string(), is_worth_another }
    }
}

/// What stands in any handoff word for word.
fn verbatim(heuristic: &Handoff) -> Vec<HandoffLine> {
    let is_verbatim = |line: &&HandoffLine| {
        line.is_answered()
            || matches!(line.section, HandoffSection::Instructions | HandoffSection::Recalled)
    };
    heuristic.lines.iter().filter(is_verbatim).cloned().collect()
}

/// Whether a model's server has the view at hand: it is the model that the session is
/// had with, it keeps beginnings, and no call waits for its result.
async fn is_at_hand(task: &Task<'_>, profile: &ChatProfile) -> Result<bool> {
    let answered = task.reading.view.turns.iter().rev().filter_map(|turn| turn.turn.as_ref());
    let last_model = answered.filter_map(|turn| turn.fields().model.as_deref()).next();
    let is_own = match task.job.own {
        Some(own) => own.identity == profile.identity,
        None => last_model.is_some_and(|model| model == profile.model || model == profile.name),
    };
    if !profile.caches_prefix || !is_own {
        return Ok(false);
    }
    let messages = task.reading.messages();
    off_thread(move || {
        let answered: BTreeSet<String> = messages.iter().flat_map(Message::answers).collect();
        messages.iter().flat_map(Message::calls).all(|call| answered.contains(&call))
    })
    .await
}

fn prompt_turns(prompt: &HandoffPrompt, redactor: &Redactor) -> Vec<RedactedTurn> {
    let system = redactor.turn(RawTurn::new("system", prompt.instructions.as_str()));
    let user = redactor.turn(RawTurn::new("user", prompt.transcript.as_str()));
    vec![system, user]
}

fn tokens_of(turn: &RedactedTurn, counter: &dyn TokenCounter) -> u64 {
    message_tokens(turn.fields(), counter)
}

/// What there is to distil as one text within so many tokens. Where not all has room,
/// what tools put out and very long turns are cut, then the oldest are left out. The
/// handoff before stays.
fn transcript(sources: &Sources, most: u64, counter: &dyn TokenCounter) -> Option<String> {
    let (previous, request) = fixed(sources, most, counter);
    let taken = line_tokens(&previous, counter) + line_tokens(&request, counter);
    let mut room = most.checked_sub(taken)?;
    let turns = turns(sources, room, counter);
    let mut lines = Vec::new();
    // The newest first, as far as there is room.
    for line in turns.iter().rev().chain(sources.summaries.iter().rev()) {
        let tokens = line_tokens(line, counter);
        if tokens > room {
            break;
        }
        room -= tokens;
        lines.push(line.as_str());
    }
    if lines.is_empty() && previous.is_empty() {
        return None;
    }
    lines.reverse();
    let parts = [previous.as_str()].into_iter().chain(lines).chain([request.as_str()]);
    Some(parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n"))
}

/// Tokens of a transcript of so many with all turns in it, as short as they get.
fn size(sources: &Sources, most: u64, counter: &dyn TokenCounter) -> u64 {
    let (previous, request) = fixed(sources, most, counter);
    let taken = line_tokens(&previous, counter) + line_tokens(&request, counter);
    let turns = turns(sources, most.saturating_sub(taken), counter);
    let lines = turns.iter().chain(&sources.summaries);
    lines.fold(taken, |sum, line| sum.saturating_add(line_tokens(line, counter)))
}

/// The handoff before, and the request that stays.
fn fixed(sources: &Sources, most: u64, counter: &dyn TokenCounter) -> (String, String) {
    let request = sources.request.as_ref();
    let is_answered = sources.answered.is_some();
    let request = request.map(|text| match is_answered {
        true => format!("The request that stays as it is, and was answered already: {text}"),
        false => format!("The request that stays as it is: {text}"),
    });
    (
        cut(&sources.previous_text, most / PREVIOUS_PART, counter),
        cut(&request.unwrap_or_default(), most / LONG_TURN_PART, counter),
    )
}

/// The turns of a transcript: whole where so many tokens hold them, else cut.
fn turns(sources: &Sources, most: u64, counter: &dyn TokenCounter) -> Vec<String> {
    let whole: Vec<String> =
        sources.spoken.iter().map(|spoken| told(spoken, &spoken.text)).collect();
    let all = whole.iter().chain(&sources.summaries);
    if all.map(|line| line_tokens(line, counter)).sum::<u64>() <= most {
        return whole;
    }
    let short = |spoken: &Spoken| {
        let most = match spoken.is_output() {
            true => u64::from(TOOL_BODY_TOKENS),
            false => most / LONG_TURN_PART,
        };
        told(spoken, &cut(&spoken.text, most, counter))
    };
    sources.spoken.iter().map(short).collect()
}

fn told(spoken: &Spoken, text: &str) -> String {
    format!("{}, {}: {text}", spoken.speaker(), spoken.at.to_date())
}

/// A text and the end of its line.
fn line_tokens(text: &str, counter: &dyn TokenCounter) -> u64 {
    u64::from(counter.count(text)) + 1
}

fn cut(text: &str, most: u64, counter: &dyn TokenCounter) -> String {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    let kept = counter.prefix(text, most);
    match kept.len() == text.len() {
        true => text.to_owned(),
        false => format!("{}…", counter.prefix(text, most.saturating_sub(1))),
    }
}

#[cfg(test)]
mod tests {
    use icecore_domain::time::Millis;
    use icecore_domain::tokens::CharCounter;

    use super::*;

    fn spoken(role: &str, text: &str) -> Spoken {
        Spoken { role: role.to_owned(), name: None, text: text.to_owned(), at: Millis(0) }
    }

    #[test]
    fn a_transcript_fits_whatever_the_room() {
        let sources = Sources {
            previous_text: "[icecore handoff 1]\n- the goal".to_owned(),
            summaries: vec!["Ann spoke of plums.".to_owned(), "Ann spoke of figs.".to_owned()],
            spoken: vec![
                spoken("user", &"long ".repeat(100)),
                spoken("tool", &"output ".repeat(1_000)),
                spoken("assistant", "Done."),
            ],
            request: Some("What now?".to_owned()),
            ..Sources::default()
        };
        let whole = transcript(&sources, 100_000, &CharCounter).unwrap();
        assert!(whole.contains("plums") && whole.contains("What now?"));
        assert!(whole.contains(&"output ".repeat(1_000)));
        let mut last = 0;
        for room in 0..9_000 {
            let Some(text) = transcript(&sources, room, &CharCounter) else { continue };
            assert!(text.chars().count() as u64 <= room, "{room}");
            last = last.max(text.len());
            if room > 200 {
                assert!(text.contains("the goal") && text.contains("Done."), "{room}: {text}");
            }
        }
        assert!(last > 7_000);
    }
}
