//! What of a history is sent.
//!
//! Most requests fit. Then no turn is read: a handoff and where it stands are all that is
//! needed, and the messages are there. Only what must be compacted is kept first and read
//! as a session.

use std::collections::BTreeSet;

use icecore_domain::handoff::{
    ExceedsWindow, MESSAGE_TOKENS, SessionWindow, request_tokens, unpaired_turns,
};
use icecore_domain::identity::Link;
use icecore_domain::ids::{Scope, TurnId};
use icecore_domain::redact::RedactedText;
use icecore_domain::turn::RawTurn;
use icecore_store::{HandoffRecord, LinkedTurn, TurnState};

use super::path::HistoryPath;
use super::recall::{NewRecall, Recall, Sent};
use super::{ClientMessage, FittedHistory, Followed, HistoryFit};
use crate::error::{MemoryError, Result};
use crate::sessions::Sessions;
use crate::sessions::handoffs::{Counting, FitRequest, FittedBranch};

/// A history as it would be sent.
struct Standing {
    handoff: Option<HandoffRecord>,
    /// Places of the messages that are sent.
    shown: Vec<usize>,
    /// Tokens of each of them.
    counts: Vec<u64>,
    /// The place of the first message that no handoff stands for.
    from: usize,
    /// What memory adds.
    recalled: Vec<Recall>,
}

impl Sessions {
    pub(super) async fn fitted_history(
        &self,
        scope: &Scope,
        followed: &mut Followed,
        messages: &[ClientMessage],
        fit: &HistoryFit,
    ) -> Result<FittedHistory> {
        followed.check(messages)?;
        let model = match &fit.model {
            Some(model) => self.model_name(scope, model).await?,
            None => None,
        };
        let fit = &HistoryFit { model, ..fit.clone() };
        let declared = fit.window.unwrap_or_else(|| self.session_window());
        let window = self.known_window(scope, fit.model.as_deref(), declared)?;
        let path = self.path_of(scope, followed).await?;
        let mut standing = self.standing(scope, followed, messages, path.as_ref()).await?;
        if fit.recall_tokens > 0 {
            let after = standing.shown.iter().copied().filter(|at| *at >= standing.from);
            standing.recalled = self.recalled_before(scope, followed, messages, after).await?;
        }
        if fit.overflowed.is_none() {
            let counting = self.counting_of(scope, followed, fit).await?;
            let is_fitting = |counted: u64| counting.tokens(counted) <= window.trigger();
            let counted = standing.counted(fit.beside_tokens);
            if is_fitting(counted) {
                let sent = Sent { shown: &standing.shown, path: path.as_ref() };
                let new = match fit.recall_tokens {
                    0 => None,
                    most => self.recall_for(scope, followed, messages, &sent, most).await,
                };
                // What memory adds is no reason to compact.
                let with = |new: &NewRecall| counted + new.recall.tokens + MESSAGE_TOKENS;
                followed.recall = new.filter(|new| is_fitting(with(new)));
                standing.recalled.extend(followed.recall.as_ref().map(|new| new.recall.clone()));
                self.note_standing(scope, followed, &standing);
                let counted = standing.counted(fit.beside_tokens);
                return Ok(standing.fitted(counted, counting.tokens(counted), window));
            }
        }
        // Its handoff tells what bears on the request.
        followed.recall = None;
        self.kept_history(scope, followed, messages).await?;
        self.fitted_anew(scope, followed, messages, fit, window, &standing).await
    }

    /// The path to the last message that the session holds.
    async fn path_of(&self, scope: &Scope, followed: &Followed) -> Result<Option<HistoryPath>> {
        let Some(place) = followed.place else { return Ok(None) };
        if let Some(path) = &followed.path {
            return Ok(Some(path.clone()));
        }
        let record = self.store.session_by_number(scope, place.id.session).await?;
        Ok(record.map(|record| HistoryPath::to(&record, &place, followed.known)))
    }

    /// What is sent of a history as it stands: all, or a handoff, what that left standing
    /// and what came after.
    async fn standing(
        &self,
        scope: &Scope,
        followed: &Followed,
        messages: &[ClientMessage],
        path: Option<&HistoryPath>,
    ) -> Result<Standing> {
        let handoff = match followed.place.zip(path) {
            Some((place, path)) => self.handoff_on(scope, place.id.session, &path.branches).await?,
            None => None,
        };
        let mark = handoff.as_ref().zip(path);
        let from = mark.map_or(0, |(made, path)| path.after(made.branch, made.through));
        let shown = match mark {
            None => (0..messages.len()).collect(),
            Some((handoff, path)) => {
                let id = |seq| TurnId { session: handoff.session, seq };
                let kept: Vec<TurnId> = handoff.kept.iter().copied().map(id).collect();
                let kept = match kept.is_empty() {
                    true => Vec::new(),
                    false => self.store.places(scope, &kept).await?,
                };
                let kept = kept.iter().filter_map(|one| path.message(one.branch, one.ordinal));
                // A handoff may stand for the last message too, if that was forgotten: it is
                // what is asked all the same.
                let last = messages.len().checked_sub(1);
                paired(messages, kept.chain(from..messages.len()).chain(last).collect())
            }
        };
        let (links, sent) = chosen(followed, messages, &shown);
        let counts = self.message_counts(&links, &sent).await?;
        Ok(Standing { handoff, shown, counts, from, recalled: Vec::new() })
    }

    /// How the provider counts, as far as it has said.
    async fn counting_of(
        &self,
        scope: &Scope,
        followed: &Followed,
        fit: &HistoryFit,
    ) -> Result<Counting> {
        let Some(place) = followed.place else { return Ok(Counting::PLAIN) };
        let (session, model) = (place.id.session, fit.model.as_deref());
        self.provider_counts(scope, session, place.branch, model).await
    }

    fn note_standing(&self, scope: &Scope, followed: &mut Followed, standing: &Standing) {
        followed.handoff = standing.handoff.as_ref().map(|handoff| handoff.id.clone());
        let made = standing.handoff.as_ref();
        let saved = made.map(|made| made.tokens_before.saturating_sub(made.tokens_after));
        self.note_saved(scope, saved.unwrap_or(0));
    }

    /// Makes a history fit that is kept.
    async fn fitted_anew(
        &self,
        scope: &Scope,
        followed: &mut Followed,
        messages: &[ClientMessage],
        fit: &HistoryFit,
        window: SessionWindow,
        standing: &Standing,
    ) -> Result<FittedHistory> {
        let path = self.path_of(scope, followed).await?;
        let Some((place, path)) = followed.place.zip(path) else {
            // All of it was forgotten: there is nothing that could stand for it.
            return Err(standing.exceeds(fit.beside_tokens, window));
        };
        let missing = self.missing(scope, followed, &path, standing).await?;
        // The last message is what is asked: without it nothing is sent.
        let last = messages.len().checked_sub(1);
        let asked: BTreeSet<usize> =
            missing.iter().copied().filter(|at| Some(*at) == last).collect();
        let missing_tokens = standing.tokens_of(&missing);
        let asked_tokens = standing.tokens_of(&asked);
        let recalled_tokens = standing.recalled_tokens();
        let beside_tokens = fit.beside_tokens.saturating_add(recalled_tokens);
        let request = FitRequest {
            session: followed.session.clone(),
            branch: Some(place.branch.to_string()),
            window: fit.window,
            beside_tokens: beside_tokens.saturating_add(missing_tokens),
            model: fit.model.clone(),
            overflowed: fit.overflowed,
            attempts: fit.attempts,
        };
        // What came behind it meanwhile is another's.
        let end = Some(place.ordinal);
        let is_more = missing_tokens.saturating_add(recalled_tokens) > asked_tokens;
        let (done, sent, mut recalled) = match self.fit_branch(scope, &request, end).await {
            // What memory has forgotten or added is the first to go.
            Err(MemoryError::RequestExceedsWindow(_)) if is_more => {
                let beside_tokens = fit.beside_tokens.saturating_add(asked_tokens);
                let request = FitRequest { beside_tokens, ..request };
                let done = self.fit_branch(scope, &request, end).await?;
                (done, asked, Vec::new())
            }
            done => (done?, missing.clone(), standing.recalled.clone()),
        };
        let FittedBranch { fitted, counted, mark } = done;
        let turns = fitted.view.turns.iter();
        let there = turns.filter_map(|turn| path.message(turn.branch, turn.ordinal));
        let there = there.filter(|at| !missing.contains(at));
        let from = mark.map_or(0, |(branch, through)| path.after(branch, through));
        let sent = sent.into_iter().filter(|at| *at >= from || Some(*at) == last);
        recalled.retain(|recall| recall.at >= from);
        let shown: BTreeSet<usize> = there.chain(sent).collect();
        let shown = match mark.is_some() {
            true => paired(messages, shown),
            false => shown.into_iter().collect(),
        };
        followed.handoff = fitted.view.handoff.as_ref().map(|handoff| handoff.id.clone());
        let handoff = fitted.view.handoff.map(|handoff| handoff.text);
        Ok(FittedHistory {
            handoff: handoff.filter(|text| !text.is_empty()),
            shown,
            recalled: told(recalled),
            counted,
            request_tokens: fitted.request_tokens,
            compactions: fitted.compactions,
            window: fitted.window,
        })
    }

    /// Messages that would be sent and that memory does not have: they were forgotten, or
    /// retention let them go.
    async fn missing(
        &self,
        scope: &Scope,
        followed: &Followed,
        path: &HistoryPath,
        standing: &Standing,
    ) -> Result<BTreeSet<usize>> {
        let Some(place) = followed.place else { return Ok(BTreeSet::new()) };
        let links: Vec<Link> = standing.shown.iter().map(|at| followed.links[*at]).collect();
        let found = self.store.linked(scope, &links, Some(place.id.session)).await?;
        let is_there =
            |turn: &&LinkedTurn| turn.place.state == TurnState::Present && !turn.is_hollow;
        let there: BTreeSet<Link> = found.iter().filter(is_there).map(|turn| turn.link).collect();
        let is_missing = |at: &usize| *at < path.before || !there.contains(&followed.links[*at]);
        Ok(standing.shown.iter().copied().filter(is_missing).collect())
    }
}

impl Standing {
    /// Tokens of the request, as we count.
    fn counted(&self, beside_tokens: u64) -> u64 {
        let told = self.handoff.as_ref().filter(|handoff| !handoff.text.is_empty());
        let messages = self.shown.len() + usize::from(told.is_some());
        let beside_tokens = beside_tokens.saturating_add(self.recalled_tokens());
        let tokens = told.map_or(0, |handoff| handoff.tokens);
        let tokens = self.counts.iter().fold(tokens, |sum, count| sum.saturating_add(*count));
        request_tokens(messages as u64, tokens).saturating_add(beside_tokens)
    }

    /// Tokens of what memory adds.
    fn recalled_tokens(&self) -> u64 {
        self.recalled.iter().map(|recall| recall.tokens.saturating_add(MESSAGE_TOKENS)).sum()
    }

    /// Tokens of some of the messages.
    fn tokens_of(&self, places: &BTreeSet<usize>) -> u64 {
        let all = self.shown.iter().zip(&self.counts);
        let some = all.filter(|(at, _)| places.contains(at));
        some.map(|(_, count)| count.saturating_add(MESSAGE_TOKENS)).sum()
    }

    fn fitted(self, counted: u64, request_tokens: u64, window: SessionWindow) -> FittedHistory {
        let text = self.handoff.map(|handoff| handoff.text);
        FittedHistory {
            handoff: text.filter(|text| !text.is_empty()),
            shown: self.shown,
            recalled: told(self.recalled),
            counted,
            request_tokens,
            compactions: Vec::new(),
            window,
        }
    }

    fn exceeds(&self, beside_tokens: u64, window: SessionWindow) -> MemoryError {
        MemoryError::RequestExceedsWindow(ExceedsWindow {
            floor: self.counted(beside_tokens),
            window: window.window,
            reserve: window.reserve,
        })
    }
}

/// What memory adds, as it is sent.
fn told(recalled: Vec<Recall>) -> Vec<(usize, RedactedText)> {
    recalled.into_iter().map(|recall| (recall.at, recall.text)).collect()
}

/// The messages at some places, and their links.
fn chosen<'a>(
    followed: &Followed,
    messages: &'a [ClientMessage],
    places: &[usize],
) -> (Vec<Link>, Vec<&'a ClientMessage>) {
    places.iter().map(|at| (followed.links[*at], &messages[*at])).unzip()
}

/// Places without those of results whose calls a handoff stands for: no provider takes
/// them.
fn paired(messages: &[ClientMessage], places: BTreeSet<usize>) -> Vec<usize> {
    let places: Vec<usize> = places.into_iter().collect();
    let turns: Vec<&RawTurn> = places.iter().map(|at| &messages[*at].turn).collect();
    let left_out: BTreeSet<usize> = unpaired_turns(&turns).into_iter().collect();
    let stays = places.iter().enumerate().filter(|(at, _)| !left_out.contains(at));
    stays.map(|(_, place)| *place).collect()
}
