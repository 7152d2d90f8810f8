//! One compaction: read, plan, write, keep, if nothing has changed meanwhile.

use std::sync::Arc;

use icecore_domain::chat::ChatProfile;
use icecore_domain::handoff::{
    CompactionPlan, Effort, Handoff, HandoffLine, LEAST_HANDOFF_TOKENS, Message, PlanRequest,
    SessionWindow, extract, fresh_window, leading_system, plan,
};
use icecore_domain::ids::{Ordinal, Scope};
use icecore_domain::redact::{RedactedJson, RedactedText};
use icecore_store::{HandoffTrigger, KeptHandoff, NewHandoff};

use super::distil::Task;
use super::lines::{Frame, Lines, is_corrected};
use super::sources::{Sources, answered};
use super::view::Reading;
use super::{CompactRequest, Compacted};
use crate::error::{MemoryError, Result, off_thread};
use crate::knowledge::compaction::looked_at;
use crate::privacy::secrets::{TenantRedactor, swapped};
use crate::sessions::Sessions;

/// What wrote a handoff without a model.
const HEURISTIC: &str = "heuristic";

/// What wrote one that keeps nothing.
const FRESH: &str = "fresh";

/// What is to be compacted, and how.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) session: &'a str,
    pub(super) branch: Option<&'a str>,
    /// The branch is taken to end here.
    pub(super) end: Option<Ordinal>,
    pub(super) window: SessionWindow,
    pub(super) beside_tokens: u64,
    /// How many tokens the provider counts for a thousand of ours.
    pub(super) permille: u64,
    pub(super) effort: Effort,
    pub(super) trigger: HandoffTrigger,
    /// The model that goes on with the session, and the tools it has.
    pub(super) own: Option<&'a ChatProfile>,
    pub(super) tools: Option<&'a RedactedJson>,
}

/// What came of it.
pub(super) enum Step {
    Done(Box<Compacted>),
    /// There is nothing to distil.
    Nothing(Box<Reading>),
    /// The session changed meanwhile.
    Changed,
}

/// A handoff that was written and not kept yet.
pub(super) struct Draft {
    pub(super) text: RedactedText,
    pub(super) tokens: u64,
    pub(super) made_by: String,
    pub(super) notices: Vec<String>,
}

/// Looks whether a window is one.
pub(super) fn check_window(window: SessionWindow) -> Result<SessionWindow> {
    match window.trigger() {
        0 => Err(MemoryError::NoWindow { window: window.window, reserve: window.reserve }),
        _ => Ok(window),
    }
}

impl Sessions {
    pub(super) async fn compact_by_hand(
        &self,
        scope: &Scope,
        request: &CompactRequest,
    ) -> Result<Compacted> {
        let job = Job {
            session: &request.session,
            branch: request.branch.as_deref(),
            end: None,
            window: check_window(request.window.unwrap_or_else(|| self.session_window()))?,
            beside_tokens: request.beside_tokens,
            permille: 1_000,
            effort: Effort::First,
            trigger: HandoffTrigger::Hand,
            own: None,
            tools: None,
        };
        match self.compact_branch(scope, &job).await? {
            Step::Done(done) => Ok(*done),
            Step::Nothing(reading) => self.in_force_still(scope, *reading, request),
            Step::Changed => Err(self.changed(scope, &request.session)),
        }
    }

    /// What is answered where nothing is left to distil: the handoff in force, as it is,
    /// so that whoever asks again gets the same.
    fn in_force_still(
        &self,
        scope: &Scope,
        reading: Reading,
        request: &CompactRequest,
    ) -> Result<Compacted> {
        let Some(handoff) = reading.view.handoff else {
            let session = self.shown(scope.tenant(), &request.session).into_string();
            return Err(MemoryError::NothingToCompact { session });
        };
        Ok(Compacted {
            tokens_before: handoff.tokens_before,
            tokens_after: reading.view.tokens,
            handoff,
            effort: Effort::First,
            notices: vec!["nothing came since that could be distilled: it is as it was".to_owned()],
        })
    }

    pub(super) fn changed(&self, scope: &Scope, session: &str) -> MemoryError {
        MemoryError::SessionChanged { session: self.shown(scope.tenant(), session).into_string() }
    }

    /// Compacts a branch, reading it again if it changes meanwhile.
    #[tracing::instrument(skip_all, fields(trigger = job.trigger.as_str()))]
    pub(super) async fn compact_branch(&self, scope: &Scope, job: &Job<'_>) -> Result<Step> {
        let done = swapped!(async {
            let secrets = self.deriving_redactor(scope).await?;
            let reading =
                self.read_branch_to(scope, job.session, job.branch, job.end, usize::MAX).await?;
            Ok(match self.compact_read(scope, job, reading, &secrets).await? {
                Step::Changed => None,
                done => Some(done),
            })
        });
        Ok(done?.unwrap_or(Step::Changed))
    }

    async fn compact_read(
        &self,
        scope: &Scope,
        job: &Job<'_>,
        reading: Reading,
        secrets: &TenantRedactor,
    ) -> Result<Step> {
        let is_by_hand = job.trigger == HandoffTrigger::Hand;
        let messages = reading.messages();
        let fits =
            scaled(reading.request_tokens(job.beside_tokens), job.permille) <= job.window.trigger();
        let is_new = reading.handoff.is_none() || reading.later > 0;
        if is_by_hand && fits && !is_new {
            return Ok(Step::Nothing(Box::new(reading)));
        }
        let planned = self.planned(job, &reading, &messages)?;
        if planned.distilled.is_empty() && (is_by_hand || reading.handoff_tokens() == 0) {
            return Ok(Step::Nothing(Box::new(reading)));
        }
        let draft = self.handoff_draft(scope, job, &reading, &messages, &planned, secrets).await?;
        // Turns would be given up for nothing.
        if is_by_hand && draft.tokens == 0 {
            return Ok(Step::Nothing(Box::new(reading)));
        }
        self.keep(scope, job, &reading, &planned, draft, secrets.version).await
    }

    /// What a compaction of what was read leaves standing.
    pub(super) fn planned(
        &self,
        job: &Job<'_>,
        reading: &Reading,
        messages: &[Message],
    ) -> Result<CompactionPlan> {
        let system = reading.view.system.len();
        let plan = self.plan_with(job, reading.handoff_tokens(), messages, system)?;
        // Under half of what the view counts, and not only of what the request does.
        let stays = plan.system.iter().chain(&plan.kept).map(|at| reading.counts[*at]).sum();
        let half = reading.view.tokens.saturating_sub(1) / 2;
        let room = half.saturating_sub(stays);
        match room >= LEAST_HANDOFF_TOKENS {
            true => Ok(plan.within(room)),
            false => Ok(plan),
        }
    }

    /// What a compaction leaves standing of messages with a handoff before them.
    pub(super) fn plan_of(
        &self,
        job: &Job<'_>,
        handoff_tokens: u64,
        messages: &[Message],
    ) -> Result<CompactionPlan> {
        self.plan_with(job, handoff_tokens, messages, leading_system(messages))
    }

    /// The same where the first so many messages are the system prompt: what comes after
    /// a handoff is none of it, whatever its role.
    fn plan_with(
        &self,
        job: &Job<'_>,
        handoff_tokens: u64,
        messages: &[Message],
        system: usize,
    ) -> Result<CompactionPlan> {
        let settings = &self.settings.handoffs;
        plan(&PlanRequest {
            messages,
            system,
            handoff_tokens,
            beside_tokens: job.beside_tokens,
            window: job.window,
            provider_permille: job.permille,
            most_handoff_tokens: settings.handoff_tokens,
            instructions_percent: settings.instructions_percent,
            effort: job.effort,
        })
        .map_err(MemoryError::RequestExceedsWindow)
    }

    /// Writes a handoff that fits.
    async fn handoff_draft(
        &self,
        scope: &Scope,
        job: &Job<'_>,
        reading: &Reading,
        messages: &[Message],
        plan: &CompactionPlan,
        secrets: &TenantRedactor,
    ) -> Result<Draft> {
        let stays = (plan.system.len() + plan.kept.len()) as u64;
        let frame = Frame {
            number: reading.handoff.as_ref().map_or(0, |handoff| handoff.number) + 1,
            turns: reading.length().saturating_sub(stays),
            tokens: plan.handoff_tokens,
        };
        let is_answered = answered(reading, messages, plan).is_some();
        if job.effort == Effort::Fresh {
            return self.fresh(frame, is_answered, secrets, Vec::new());
        }
        let sources =
            self.handoff_sources(scope, reading, messages, plan, &secrets.redactor).await?;
        let sources = Arc::new(sources);
        let first = person_lines(&sources);
        let heuristic = self.extracted(&sources, plan, frame).await?;
        let mut notices = Vec::new();
        let task = Task {
            job,
            reading,
            sources: &sources,
            heuristic: &heuristic,
            distilled: &plan.distilled,
            frame,
            redactor: &secrets.redactor,
        };
        let (lines, made_by) = match self.distil(scope, &task, &mut notices).await? {
            Some((lines, model)) => (lines, format!("model:{model}")),
            None => (heuristic.lines, HEURISTIC.to_owned()),
        };
        let (redactor, counter) = (secrets.redactor.clone(), Arc::clone(&self.counter));
        let written = off_thread(move || {
            Lines::new(first, lines).written(frame, &redactor, counter.as_ref())
        });
        match written.await?? {
            Some((text, tokens)) => Ok(Draft { text, tokens, made_by, notices }),
            None => self.fresh(frame, is_answered, secrets, notices),
        }
    }

    /// What says only that all can be found; nothing, where there is no room for that.
    fn fresh(
        &self,
        frame: Frame,
        is_answered: bool,
        secrets: &TenantRedactor,
        notices: Vec<String>,
    ) -> Result<Draft> {
        let counter = self.counter.as_ref();
        let Frame { number, turns, tokens } = frame;
        let text = fresh_window(number, turns, is_answered, tokens, counter);
        let (text, _) = looked_at(&text, |text| secrets.redactor.derived_text(text))?;
        let tokens = u64::from(counter.count(text.as_str()));
        let (text, tokens) = match tokens <= frame.tokens {
            true => (text, tokens),
            false => (secrets.redactor.text(""), 0),
        };
        Ok(Draft { text, tokens, made_by: FRESH.to_owned(), notices })
    }

    /// The handoff without a model.
    async fn extracted(
        &self,
        sources: &Arc<Sources>,
        plan: &CompactionPlan,
        frame: Frame,
    ) -> Result<Handoff> {
        let (sources, plan) = (Arc::clone(sources), plan.clone());
        let counter = Arc::clone(&self.counter);
        off_thread(move || {
            sources
                .with(|source| extract(source, &plan, frame.number, frame.turns, counter.as_ref()))
        })
        .await
    }

    async fn keep(
        &self,
        scope: &Scope,
        job: &Job<'_>,
        reading: &Reading,
        plan: &CompactionPlan,
        draft: Draft,
        secrets_seen: u64,
    ) -> Result<Step> {
        let turns: Vec<_> = reading.turns().collect();
        let stays = plan.system.iter().chain(&plan.kept);
        let tokens_after = stays.map(|at| reading.counts[*at]).sum::<u64>() + draft.tokens;
        let handoff = NewHandoff {
            session: reading.session.no,
            branch: reading.branch,
            seen_head: reading.head,
            seen_previous: reading.handoff.as_ref().map(|handoff| handoff.id.clone()),
            epoch: reading.epoch,
            through: reading.through(),
            kept: plan.kept.iter().map(|at| turns[*at].seq).collect(),
            text: draft.text,
            tokens: draft.tokens,
            tokens_before: reading.view.tokens,
            tokens_after,
            made_by: draft.made_by,
            trigger: job.trigger,
            secrets_seen,
            now: self.now(),
        };
        match self.store.put_handoff(scope, handoff).await? {
            KeptHandoff::Changed => Ok(Step::Changed),
            KeptHandoff::Done(record) => {
                for notice in &draft.notices {
                    tracing::warn!(%scope, notice, "a handoff was written otherwise than asked");
                }
                Ok(Step::Done(Box::new(Compacted {
                    tokens_before: record.tokens_before,
                    tokens_after: record.tokens_after,
                    handoff: self.handoff_info(&record),
                    effort: job.effort,
                    notices: draft.notices,
                })))
            }
        }
    }
}

/// Tokens as a provider counts them that has so many for a thousand of ours.
pub(super) fn scaled(tokens: u64, permille: u64) -> u64 {
    let scaled = (u128::from(tokens) * u128::from(permille)).div_ceil(1_000);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// What a person wrote into a handoff before: it stands before all else.
fn person_lines(sources: &Sources) -> Vec<HandoffLine> {
    let lines = sources.previous.iter().flat_map(|one| &one.lines);
    lines.filter(|line| is_corrected(line)).cloned().collect()
}
