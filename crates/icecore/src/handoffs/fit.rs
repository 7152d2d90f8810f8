//! Making the next request fit: at most two compactions, each harder than the one before.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use icecore_domain::chat::ChatProfile;
use icecore_domain::handoff::{Effort, ExceedsWindow, SessionWindow};
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::RedactedJson;
use icecore_domain::time::Millis;
use icecore_store::HandoffTrigger;

use super::Compacted;
use super::compact::{Job, Step, check_window, scaled};
use super::view::Reading;
use crate::error::{MemoryError, Result};
use crate::memory::Memory;

/// Compactions for one request.
pub(super) const MOST_COMPACTIONS: usize = 2;

/// A provider's count is believed if it is no more than so many times ours, and no less
/// than that part of it.
const PLAUSIBLE_TIMES: u64 = 4;

/// Where a provider says that its window is smaller than declared, this part of it is
/// kept free for the answer, unless less is.
const LEARNED_RESERVE_PART: u64 = 4;

/// For so long a window that a provider named is taken for true.
const LEARNED_MILLIS: i64 = 3_600_000;

/// So many are remembered.
const MOST_LEARNED: usize = 1_000;

/// Windows that turned out to be smaller than declared, of this process.
#[derive(Debug, Default)]
pub(crate) struct LearnedWindows(Mutex<BTreeMap<(Tenant, String), (SessionWindow, Millis)>>);

impl LearnedWindows {
    /// The window of a model, if it is known to be smaller than declared.
    pub(super) fn of(
        &self,
        tenant: &Tenant,
        model: &str,
        declared: SessionWindow,
        now: Millis,
    ) -> SessionWindow {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let learned = known.get(&(tenant.clone(), model.to_owned()));
        // A clock that was set back must not make it last.
        let is_fresh = |(_, at): &&(_, Millis)| now.0.abs_diff(at.0) < LEARNED_MILLIS as u64;
        match learned.filter(is_fresh) {
            Some((window, _)) if window.trigger() < declared.trigger() => *window,
            _ => declared,
        }
    }

    /// Remembers a window.
    pub(super) fn learn(&self, tenant: &Tenant, model: &str, window: SessionWindow, now: Millis) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_LEARNED {
            known.clear();
        }
        known.insert((tenant.clone(), model.to_owned()), (window, now));
    }
}

/// What the next request needs.
#[derive(Clone, Copy)]
pub(super) struct Need<'a> {
    pub(super) session: &'a str,
    pub(super) branch: Option<&'a str>,
    pub(super) window: SessionWindow,
    pub(super) beside_tokens: u64,
    pub(super) model: Option<&'a str>,
    pub(super) own: Option<&'a ChatProfile>,
    pub(super) tools: Option<&'a RedactedJson>,
}

/// A view that fits.
pub(super) struct Fit {
    pub(super) reading: Reading,
    /// Tokens of the request, by the best count there is.
    pub(super) tokens: u64,
    /// Tokens of it, as we count.
    pub(super) counted: u64,
    /// The window that it fits.
    pub(super) window: SessionWindow,
}

impl Memory {
    /// Reads the view for the next request, and compacts as often as it takes and may
    /// still be done. `overflowed` is set when a provider refused the request as it is.
    pub(super) async fn fitted(
        &self,
        scope: &Scope,
        need: &Need<'_>,
        mut overflowed: Option<u64>,
        done: &mut Vec<Compacted>,
    ) -> Result<Fit> {
        let declared = check_window(need.window)?;
        let model = need.model.unwrap_or_default();
        let mut window = self.inner.learned_windows.of(scope.tenant(), model, declared, self.now());
        let mut is_remembered = window != declared && overflowed.is_none();
        let mut at_least = 0;
        loop {
            let reading = self.read_branch(scope, need.session, need.branch, usize::MAX).await?;
            let counted = reading.request_tokens(need.beside_tokens);
            let mut permille = self.provider_permille(scope, &reading, need.model).await?;
            if let Some(limit) = overflowed {
                let sent = scaled(counted, permille);
                (window, at_least) = learned(window, limit, sent, counted);
                // Where none is named, it is remembered once a request went through.
                if at_least > 0 && need.model.is_some() {
                    self.inner.learned_windows.learn(scope.tenant(), model, window, self.now());
                }
            }
            permille = permille.max(at_least);
            let tokens = scaled(counted, permille);
            if overflowed.is_none() && tokens <= window.trigger() {
                let made = reading.handoff.as_ref();
                let saved = made.map(|made| made.tokens_before.saturating_sub(made.tokens_after));
                self.note_saved(scope, saved.unwrap_or(0));
                return Ok(Fit { reading, tokens, counted, window });
            }
            let mut job = Job {
                session: need.session,
                branch: need.branch,
                window,
                beside_tokens: need.beside_tokens,
                permille,
                effort: Effort::First,
                trigger: match overflowed {
                    Some(_) => HandoffTrigger::Overflow,
                    None => HandoffTrigger::Window,
                },
                own: need.own,
                tools: need.tools,
            };
            job.effort = match self.effort(&job, &reading, tokens, done.len()) {
                // What was learned earlier may not hold any more: the provider decides.
                Err(MemoryError::RequestExceedsWindow(_)) if is_remembered => {
                    (window, is_remembered) = (declared, false);
                    continue;
                }
                effort => effort?,
            };
            let exceeds =
                ExceedsWindow { floor: tokens, window: window.window, reserve: window.reserve };
            if done.len() >= MOST_COMPACTIONS {
                return Err(MemoryError::RequestExceedsWindow(exceeds));
            }
            match self.compact_branch(scope, &job).await? {
                Step::Done(compacted) => done.push(*compacted),
                // All of it is floor, and yet the provider does not take it.
                Step::Nothing(_) if overflowed.is_some() => {
                    return Err(MemoryError::RequestExceedsWindow(exceeds));
                }
                Step::Nothing(_) | Step::Changed => {
                    return Err(self.changed(scope, need.session));
                }
            }
            overflowed = None;
        }
    }

    /// How hard to try: the second time harder, and where that would leave nearly as
    /// much, with a fresh window.
    fn effort(&self, job: &Job<'_>, reading: &Reading, tokens: u64, done: usize) -> Result<Effort> {
        let effort = match done {
            0 => Effort::First,
            _ => Effort::Escalated,
        };
        let planned = self.planned(&Job { effort, ..*job }, reading, &reading.messages())?;
        let is_enough = planned.target_tokens < tokens / 10 * 9;
        Ok(if done == 0 || is_enough { effort } else { Effort::Fresh })
    }

    /// How many tokens the provider counts for a thousand of ours.
    async fn provider_permille(
        &self,
        scope: &Scope,
        reading: &Reading,
        model: Option<&str>,
    ) -> Result<u64> {
        let Some(model) = model else { return Ok(1_000) };
        let (session, branch) = (reading.session.no, reading.branch);
        let usage = self.inner.store.usage(scope, session, branch, model).await?;
        Ok(usage.map_or(1_000, |usage| permille(usage.tokens, usage.counted)))
    }
}

/// A provider's tokens for a thousand of ours; as many where its count cannot be.
fn permille(tokens: u64, counted: u64) -> u64 {
    let is_plausible = counted > 0
        && tokens <= counted.saturating_mul(PLAUSIBLE_TIMES)
        && counted <= tokens.saturating_mul(PLAUSIBLE_TIMES);
    match is_plausible {
        true => (u128::from(tokens) * 1_000).div_ceil(u128::from(counted)) as u64,
        false => 1_000,
    }
}

/// What is known once a provider refused a request of so many tokens, of which we
/// counted so many: the window, and how many tokens at least it counts for a thousand
/// of ours.
///
/// A window that it names is taken for true if it is of the size of what was sent;
/// else the request is to be less than it was, and the plan halves it.
fn learned(declared: SessionWindow, limit: u64, sent: u64, counted: u64) -> (SessionWindow, u64) {
    let is_plausible = limit <= sent.saturating_mul(PLAUSIBLE_TIMES)
        && sent <= limit.saturating_mul(PLAUSIBLE_TIMES);
    if limit == 0 || !is_plausible {
        let window = SessionWindow {
            window: sent.saturating_add(declared.reserve).min(declared.window),
            ..declared
        };
        return (window, 0);
    }
    let window = limit.min(declared.window);
    let reserve = match window == declared.window {
        true => declared.reserve,
        false => declared.reserve.min(window / LEARNED_RESERVE_PART),
    };
    let most = 1_000 * PLAUSIBLE_TIMES;
    let at_least = (u128::from(window) * 1_000).div_ceil(u128::from(counted.max(1)));
    let at_least = u64::try_from(at_least).unwrap_or(most).min(most);
    (SessionWindow { window, reserve }, at_least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_believed_within_a_quarter_and_four_times() {
        assert_eq!(permille(1_500, 1_000), 1_500);
        assert_eq!(permille(4_000, 1_000), 4_000);
        assert_eq!(permille(4_001, 1_000), 1_000);
        assert_eq!(permille(250, 1_000), 250);
        assert_eq!(permille(249, 1_000), 1_000);
        assert_eq!(permille(0, 0), 1_000);
        assert_eq!(permille(u64::MAX, u64::MAX), 1_000);
    }

    #[test]
    fn a_refusal_tells_of_the_window() {
        let declared = SessionWindow { window: 128_000, reserve: 8_192 };
        // It names a smaller one: the request counts as what did not fit it.
        let (window, at_least) = learned(declared, 16_000, 20_000, 20_000);
        assert_eq!(window, SessionWindow { window: 16_000, reserve: 4_000 });
        assert_eq!(at_least, 800);
        // It names none, or one that cannot be: less than it was.
        for limit in [0, 7, 9_000_000] {
            let (window, at_least) = learned(declared, limit, 20_000, 20_000);
            assert_eq!(window, SessionWindow { window: 28_192, reserve: 8_192 });
            assert_eq!(at_least, 0);
        }
        // It counts more than we do.
        let (window, at_least) = learned(declared, 128_000, 60_000, 60_000);
        assert_eq!((window, at_least), (declared, 2_134));
    }

    #[test]
    fn a_window_that_was_learned_holds_for_an_hour() {
        let known = LearnedWindows::default();
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let declared = SessionWindow { window: 1_000, reserve: 100 };
        let smaller = SessionWindow { window: 500, reserve: 100 };
        known.learn(&tenant("a"), "m", smaller, Millis(0));
        let of =
            |name: &str, model: &str, at: i64| known.of(&tenant(name), model, declared, Millis(at));
        assert_eq!(of("a", "m", LEARNED_MILLIS - 1), smaller);
        assert_eq!(of("a", "m", LEARNED_MILLIS), declared);
        assert_eq!(of("b", "m", 0), declared);
        assert_eq!(of("a", "n", 0), declared);
        known.learn(&tenant("a"), "m", SessionWindow { window: 5_000, reserve: 0 }, Millis(0));
        assert_eq!(of("a", "m", 0), declared);
    }
}
