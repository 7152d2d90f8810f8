//! Making the next request fit: at most two compactions, each harder than the one before.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use icecore_domain::chat::ChatProfile;
use icecore_domain::handoff::{Effort, ExceedsWindow, SessionWindow};
use icecore_domain::ids::{Branch, Ordinal, Scope, SessionNo, Tenant};
use icecore_domain::redact::RedactedJson;
use icecore_domain::time::Millis;
use icecore_store::HandoffTrigger;

use super::Compacted;
use super::compact::{Job, Step, check_window, scaled};
use super::view::Reading;
use crate::error::{MemoryError, Result};
use crate::sessions::Sessions;

/// Compactions for one request.
pub(super) const MOST_COMPACTIONS: usize = 2;

/// A provider's count is believed if it is no more than so many times ours, and no less
/// than that part of it.
const PLAUSIBLE_TIMES: u64 = 4;

/// From so many tokens of ours a provider's count is taken for a share of them. With
/// fewer, what its template puts around them is most of it: that is added, not
/// multiplied.
const SHARED_TOKENS: u64 = 2_000;

/// What a template puts around messages is believed to have at most so many tokens.
const TEMPLATE_TOKENS: u64 = 2_000;

/// A window of so many tokens that a provider names is believed however much was sent.
const LEAST_NAMED_WINDOW: u64 = 512;

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

    fn learn(&self, tenant: &Tenant, model: &str, window: SessionWindow, now: Millis) {
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
    /// The branch is taken to end here.
    pub(super) end: Option<Ordinal>,
    pub(super) window: SessionWindow,
    pub(super) beside_tokens: u64,
    pub(super) model: Option<&'a str>,
    pub(super) own: Option<&'a ChatProfile>,
    pub(super) tools: Option<&'a RedactedJson>,
    /// Compactions that were made for the same request before.
    pub(super) made: usize,
}

/// What a provider said of a request that it did not take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Refusal {
    /// The window that it named, or 0.
    pub(super) limit: u64,
    /// What the request had by its count, perhaps with the room for the answer.
    pub(super) requested: Option<u64>,
    /// Whether a part of an answer had come.
    pub(super) is_midway: bool,
    /// Whether the same may be sent again with less room for its answer.
    pub(super) may_go_again: bool,
}

/// What was tried for one request, and what is known from that.
#[derive(Debug)]
pub(super) struct Tries {
    pub(super) compactions: Vec<Compacted>,
    /// Set when a provider refused the request as it is.
    pub(super) refused: Option<Refusal>,
    /// Whether the provider named a window that is smaller than was known.
    pub(super) is_named: bool,
    window: SessionWindow,
    at_least: Counting,
    is_sent_again: bool,
}

impl Tries {
    pub(super) fn new(window: SessionWindow) -> Self {
        Self {
            compactions: Vec::new(),
            refused: None,
            is_named: false,
            window,
            at_least: Counting::default(),
            is_sent_again: false,
        }
    }
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

impl Sessions {
    /// The window of a model that is declared so, as far as it is known.
    pub(crate) fn known_window(
        &self,
        scope: &Scope,
        model: Option<&str>,
        declared: SessionWindow,
    ) -> Result<SessionWindow> {
        let declared = check_window(declared)?;
        let Some(model) = model else { return Ok(declared) };
        Ok(self.learned_windows.of(scope.tenant(), model, declared, self.now()))
    }

    /// Reads the view for the next request, and compacts as often as it takes and may
    /// still be done.
    ///
    /// An estimate of what a provider counts makes for a compaction, but it refuses
    /// nothing: what fits as we count is sent, and the provider says.
    pub(super) async fn fitted(
        &self,
        scope: &Scope,
        need: &Need<'_>,
        tries: &mut Tries,
    ) -> Result<Fit> {
        let mut is_plain = false;
        loop {
            let reading =
                self.read_branch_to(scope, need.session, need.branch, need.end, usize::MAX).await?;
            let counted = reading.request_tokens(need.beside_tokens);
            let (session, branch) = (reading.session.no, reading.branch);
            let known = self.provider_counts(scope, session, branch, need.model).await?;
            let refused = tries.refused.take();
            let sent = known.tokens(counted);
            let is_room = refused.is_some_and(|refusal| {
                self.learn_window(scope, need.model, tries, &refusal, sent, counted)
            });
            let window = tries.window;
            let counting = match is_plain {
                true => Counting::PLAIN,
                false => known.larger(tries.at_least, counted),
            };
            let tokens = counting.tokens(counted);
            let fits = tokens <= window.trigger();
            let fit = Fit { reading, tokens, counted, window };
            let goes_again = is_room && fits && !tries.is_sent_again;
            let goes = match &refused {
                None => fits,
                Some(refusal) => goes_again && refusal.may_go_again,
            };
            if goes {
                tries.is_sent_again |= refused.is_some();
                return Ok(self.noted(scope, fit));
            }
            let goes_anyway = refused.is_none() && counted <= window.trigger();
            let exceeds = MemoryError::RequestExceedsWindow(ExceedsWindow {
                floor: tokens,
                window: window.window,
                reserve: window.reserve,
            });
            let made = need.made.saturating_add(tries.compactions.len());
            if made >= MOST_COMPACTIONS {
                return if goes_anyway { Ok(self.noted(scope, fit)) } else { Err(exceeds) };
            }
            let mut job = Job {
                session: need.session,
                branch: need.branch,
                end: need.end,
                window,
                beside_tokens: need.beside_tokens.saturating_add(counting.more),
                permille: counting.permille,
                effort: Effort::First,
                trigger: match refused {
                    Some(_) => HandoffTrigger::Overflow,
                    None => HandoffTrigger::Window,
                },
                own: need.own,
                tools: need.tools,
            };
            job.effort = match (made, refused.is_some()) {
                (0, true) if tries.is_sent_again => Effort::Escalated,
                (0, _) => Effort::First,
                // There is no third: it must do.
                (_, true) => Effort::Fresh,
                (_, false) => self.second_effort(&job, &fit.reading, tokens),
            };
            let step = match self.compact_branch(scope, &job).await {
                Err(MemoryError::RequestExceedsWindow(_)) if counting != Counting::PLAIN => {
                    is_plain = true;
                    let beside_tokens = need.beside_tokens;
                    let job = Job { permille: Counting::PLAIN.permille, beside_tokens, ..job };
                    self.compact_branch(scope, &job).await?
                }
                step => step?,
            };
            match step {
                Step::Done(compacted) => tries.compactions.push(*compacted),
                Step::Nothing(_) if goes_anyway => return Ok(self.noted(scope, fit)),
                // All of it must stay, but the answer may be shorter.
                Step::Nothing(_) if goes_again => {
                    tries.is_sent_again = true;
                    return Ok(self.noted(scope, fit));
                }
                // All of it is floor, and yet the provider does not take it.
                Step::Nothing(_) if refused.is_some() => return Err(exceeds),
                Step::Nothing(_) | Step::Changed => {
                    return Err(self.changed(scope, need.session));
                }
            }
        }
    }

    /// Notes what a handoff saves the request.
    fn noted(&self, scope: &Scope, fit: Fit) -> Fit {
        let made = fit.reading.handoff.as_ref();
        let saved = made.map(|made| made.tokens_before.saturating_sub(made.tokens_after));
        self.note_saved(scope, saved.unwrap_or(0));
        fit
    }

    /// Learns from a refusal. Answers whether the room for the answer may be all that was
    /// too much.
    fn learn_window(
        &self,
        scope: &Scope,
        model: Option<&str>,
        tries: &mut Tries,
        refusal: &Refusal,
        sent: u64,
        counted: u64,
    ) -> bool {
        let learned = learned(tries.window, refusal, sent, counted);
        if learned.is_named && learned.window.window < tries.window.window {
            tries.is_named = true;
            if let Some(model) = model {
                let known = &self.learned_windows;
                known.learn(scope.tenant(), model, learned.window, self.now());
            }
        }
        tries.window = learned.window;
        tries.at_least = learned.at_least;
        learned.is_room
    }

    /// How hard to try the second time: harder, and where that would leave nearly as
    /// much, with a fresh window.
    fn second_effort(&self, job: &Job<'_>, reading: &Reading, tokens: u64) -> Effort {
        let effort = Effort::Escalated;
        let planned = self.planned(&Job { effort, ..*job }, reading, &reading.messages());
        match planned.is_ok_and(|planned| planned.target_tokens < tokens / 10 * 9) {
            true => effort,
            false => Effort::Fresh,
        }
    }

    /// How the provider counts, as far as it has said.
    pub(crate) async fn provider_counts(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        model: Option<&str>,
    ) -> Result<Counting> {
        let Some(model) = model else { return Ok(Counting::PLAIN) };
        let usage = self.store.usage(scope, session, branch, model).await?;
        Ok(usage.map_or(Counting::PLAIN, |usage| Counting::of(usage.tokens, usage.counted)))
    }
}

/// How a provider's tokens follow from ours: so many for a thousand, and so many more.
/// One of both is as if it were not there. The default says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counting {
    permille: u64,
    more: u64,
}

impl Counting {
    /// As we count.
    pub(crate) const PLAIN: Self = Self { permille: 1_000, more: 0 };

    /// From what a provider counted, if that can be.
    fn of(tokens: u64, counted: u64) -> Self {
        if counted < SHARED_TOKENS {
            let is_plausible = tokens <= most_of_few(counted);
            let more = if is_plausible { tokens.saturating_sub(counted) } else { 0 };
            return Self { more, ..Self::PLAIN };
        }
        let is_plausible = tokens <= counted.saturating_mul(PLAUSIBLE_TIMES)
            && counted <= tokens.saturating_mul(PLAUSIBLE_TIMES);
        match is_plausible {
            true => Self { permille: permille(tokens, counted), more: 0 },
            false => Self::PLAIN,
        }
    }

    /// From what a provider must have counted at least.
    fn at_least(tokens: u64, counted: u64) -> Self {
        let most = match counted < SHARED_TOKENS {
            true => most_of_few(counted),
            false => counted.saturating_mul(PLAUSIBLE_TIMES),
        };
        Self::of(tokens.clamp(counted, most), counted)
    }

    pub(crate) fn tokens(self, counted: u64) -> u64 {
        scaled(counted, self.permille).saturating_add(self.more)
    }

    /// The one that counts more of this.
    fn larger(self, other: Self, counted: u64) -> Self {
        if other.tokens(counted) > self.tokens(counted) { other } else { self }
    }
}

/// The most that a provider may count for so few tokens.
fn most_of_few(counted: u64) -> u64 {
    counted.saturating_mul(PLAUSIBLE_TIMES).saturating_add(TEMPLATE_TOKENS)
}

fn permille(tokens: u64, counted: u64) -> u64 {
    let permille = (u128::from(tokens) * 1_000).div_ceil(u128::from(counted.max(1)));
    u64::try_from(permille).unwrap_or(u64::MAX)
}

/// What is known once a provider refused a request.
#[derive(Debug, PartialEq, Eq)]
struct Learned {
    window: SessionWindow,
    /// Whether the provider named it.
    is_named: bool,
    /// Whether it may be that only the room for the answer was too much.
    is_room: bool,
    /// How the provider counts at least.
    at_least: Counting,
}

/// What is known once a provider refused a request of so many tokens, of which we
/// counted so many. What was kept free for its answer is a part of what it refused.
///
/// A window that it names is taken for true if it is of the size of what was sent;
/// else the window is less than all that, and the plan halves the request.
fn learned(known: SessionWindow, refusal: &Refusal, sent: u64, counted: u64) -> Learned {
    let (limit, answer) = (refusal.limit, known.reserve);
    let all = sent.saturating_add(answer);
    let is_named = limit > 0
        && limit <= sent.saturating_mul(PLAUSIBLE_TIMES).saturating_add(answer)
        && (limit >= LEAST_NAMED_WINDOW || sent <= limit.saturating_mul(PLAUSIBLE_TIMES));
    let window = if is_named { limit } else { all }.min(known.window);
    let reserve = match is_named && window == known.window {
        true => answer,
        false => answer.min(window / LEARNED_RESERVE_PART),
    };
    let is_answers = match is_named {
        true => all > limit,
        false => answer >= sent && !refusal.is_midway,
    };
    let at_least = match (is_named, refusal.requested) {
        (false, _) => Counting::default(),
        (true, Some(requested)) => Counting::of(prompt_of(requested, answer, sent), counted),
        // It counts more than we do, or this would have fit.
        (true, None) if all <= limit => Counting::at_least(limit - answer + 1, counted),
        (true, None) => Counting::default(),
    };
    Learned {
        window: SessionWindow { window, reserve },
        is_named,
        is_room: reserve < answer && is_answers,
        at_least,
    }
}

/// What a request had without the room for its answer. Some providers count that in and
/// some do not: the one that is nearer to what we sent.
fn prompt_of(requested: u64, answer: u64, sent: u64) -> u64 {
    match requested.checked_sub(answer) {
        Some(without) if without.abs_diff(sent) < requested.abs_diff(sent) => without,
        _ => requested,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(permille: u64) -> Counting {
        Counting { permille, more: 0 }
    }

    fn more(more: u64) -> Counting {
        Counting { permille: 1_000, more }
    }

    #[test]
    fn a_count_is_believed_within_a_quarter_and_four_times() {
        assert_eq!(Counting::of(3_000, 2_000), shared(1_500));
        assert_eq!(Counting::of(8_000, 2_000), shared(4_000));
        assert_eq!(Counting::of(8_001, 2_000), Counting::PLAIN);
        assert_eq!(Counting::of(500, 2_000), shared(250));
        assert_eq!(Counting::of(499, 2_000), Counting::PLAIN);
        assert_eq!(Counting::of(u64::MAX, u64::MAX), Counting::PLAIN);
    }

    #[test]
    fn what_a_template_adds_to_few_tokens_is_added() {
        assert_eq!(Counting::of(36, 11), more(25));
        assert_eq!(Counting::of(36, 11).tokens(45_000), 45_025);
        assert_eq!(Counting::of(2_044, 11), more(2_033));
        assert_eq!(Counting::of(2_045, 11), Counting::PLAIN);
        assert_eq!(Counting::of(1, 1_999), Counting::PLAIN);
        assert_eq!(Counting::of(0, 0), Counting::PLAIN);
        assert_eq!(Counting::of(2_500, 1_999), more(501));
    }

    fn refusal(limit: u64, requested: Option<u64>) -> Refusal {
        Refusal { limit, requested, ..Refusal::default() }
    }

    #[test]
    fn a_refusal_tells_of_the_window() {
        let declared = SessionWindow { window: 128_000, reserve: 8_192 };
        // It names a smaller one, which is reason enough: nothing is said of how it counts.
        let told = learned(declared, &refusal(16_000, None), 20_000, 20_000);
        assert_eq!(told.window, SessionWindow { window: 16_000, reserve: 4_000 });
        assert_eq!((told.is_named, told.at_least), (true, Counting::default()));
        // Much smaller.
        let told = learned(declared, &refusal(4_096, None), 100_000, 100_000);
        assert_eq!(told.window, SessionWindow { window: 4_096, reserve: 1_024 });
        // It names none, or one that cannot be: less than it was.
        for limit in [0, 7, 9_000_000] {
            let told = learned(declared, &refusal(limit, None), 20_000, 20_000);
            assert_eq!(told.window, SessionWindow { window: 28_192, reserve: 7_048 });
            assert_eq!((told.is_named, told.at_least), (false, Counting::default()));
            assert!(!told.is_room);
        }
        // It counts more than we do.
        let told = learned(declared, &refusal(128_000, None), 60_000, 60_000);
        assert_eq!((told.window, told.at_least), (declared, shared(1_997)));
        let told = learned(declared, &refusal(128_000, Some(138_192)), 60_000, 60_000);
        assert_eq!((told.window, told.at_least), (declared, shared(2_167)));
        let told = learned(declared, &refusal(128_000, Some(130_000)), 120_000, 100_000);
        assert_eq!(told.at_least, shared(1_219));
    }

    #[test]
    fn the_room_for_an_answer_is_a_part_of_what_was_refused() {
        let declared = SessionWindow { window: 128_000, reserve: 8_192 };
        for (sent, requested) in [(300, None), (300, Some(8_492)), (1_500, None)] {
            let told = learned(declared, &refusal(4_096, requested), sent, sent);
            assert_eq!(told.window, SessionWindow { window: 4_096, reserve: 1_024 }, "{sent}");
            assert!(told.is_named && told.is_room, "{sent}");
            assert_eq!(told.at_least.larger(Counting::PLAIN, sent).tokens(sent), sent);
        }
        // Where none is named, too, if it is most of it.
        let told = learned(declared, &refusal(0, None), 300, 300);
        assert_eq!(told.window, SessionWindow { window: 8_492, reserve: 2_123 });
        assert!(told.is_room && !told.is_named);
        let midway = Refusal { is_midway: true, ..Refusal::default() };
        assert!(!learned(declared, &midway, 300, 300).is_room);
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
