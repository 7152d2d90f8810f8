//! What is told of denials: counted always; where the key is known, written into its
//! tenant's log as `auth.denied`; where it is not, one line of our own log.
//!
//! A caller that is denied again and again fills no log: of one key, reason and route
//! there is at most one event a minute, with the count of those that it stands for.
//! Nothing here makes an answer wait, and nothing holds what was presented.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::http::Method;
use axum::http::request::Parts;
use icecore::{ApiKeyRecord, LogKind, Millis, Tenant};
use serde_json::json;
use tokio::sync::Notify;

use crate::app::{App, Shared};
use crate::metrics::known_method;
use crate::serve::closed;

/// Why somebody was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// No key was shown.
    NoKey,
    /// What was shown is not of the form of a key.
    Malformed,
    /// Nobody has this key.
    Unknown,
    /// It is over.
    Expired,
    /// It was taken back.
    Revoked,
    /// Its role is too small.
    Role,
    /// The request is for another host, or from a page of another origin.
    Elsewhere,
}

impl Reason {
    const ALL: [Reason; 7] = [
        Reason::NoKey,
        Reason::Malformed,
        Reason::Unknown,
        Reason::Expired,
        Reason::Revoked,
        Reason::Role,
        Reason::Elsewhere,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Reason::NoKey => "no_key",
            Reason::Malformed => "malformed",
            Reason::Unknown => "unknown",
            Reason::Expired => "expired",
            Reason::Revoked => "revoked",
            Reason::Role => "role",
            Reason::Elsewhere => "elsewhere",
        }
    }
}

/// Denials since the start, by reason.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    by_reason: [AtomicU64; Reason::ALL.len()],
    /// Denials of known keys for which there was no room in the log.
    unlogged: AtomicU64,
}

impl Denials {
    fn count(&self, reason: Reason) {
        self.by_reason[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were of each reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |reason: &Reason| self.by_reason[*reason as usize].load(Ordering::Relaxed);
        Reason::ALL.iter().map(move |reason| (reason.as_str(), count(reason)))
    }

    /// How many are in no log.
    pub(crate) fn unlogged(&self) -> u64 {
        self.unlogged.load(Ordering::Relaxed)
    }
}

/// Denials on their way into the logs of tenants.
#[derive(Default)]
pub(crate) struct Audit {
    folding: Mutex<Folding>,
    news: Notify,
}

/// Notes that a request was denied; `key` is the one it showed, if there is one.
pub(crate) fn deny(app: &App, parts: &Parts, reason: Reason, key: Option<&ApiKeyRecord>) {
    let Some(key) = key else { return deny_stranger(app, &parts.method, reason) };
    app.denials.count(reason);
    // The template, not the path: a session's name is the user's own.
    let route = parts.extensions.get::<MatchedPath>().map_or("unknown", MatchedPath::as_str);
    let slot = Slot {
        tenant: key.tenant.clone(),
        key_id: key.id.clone(),
        reason,
        method: known_method(&parts.method),
        route: route.to_owned(),
    };
    match app.audit.folding().deny(slot, app.memory.now()) {
        Noted::ToWrite => app.audit.news.notify_one(),
        Noted::Folded => {}
        Noted::NoRoom => {
            app.denials.unlogged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Notes that somebody of no tenant was denied.
pub(crate) fn deny_stranger(app: &App, method: &Method, reason: Reason) {
    app.denials.count(reason);
    let (reason, method) = (reason.as_str(), known_method(method));
    tracing::info!(target: "icecore::audit", reason, method, "denied");
}

/// How often we look whether a minute is over.
const LOOK: Duration = Duration::from_secs(5);

/// The end waits only this long for the log.
const GRACE: Duration = Duration::from_secs(2);

/// Writes denials into the logs of tenants until the door closes.
pub(crate) async fn keep_log(app: Shared) {
    let closing = closed(app.closing.clone());
    tokio::pin!(closing);
    loop {
        tokio::select! {
            () = app.audit.news.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
            () = &mut closing => return,
        }
        let due = app.audit.folding().take(app.memory.now());
        write(&app, due).await;
    }
}

/// Writes what is left, and says how many denials there were.
pub(crate) async fn finish(app: &App) {
    let left = app.audit.folding().take_all(app.memory.now());
    if tokio::time::timeout(GRACE, write(app, left)).await.is_err() {
        tracing::warn!("some denials could not be written into the log in time");
    }
    let unlogged = ("unlogged", app.denials.unlogged());
    for (reason, count) in app.denials.counts().chain([unlogged]).filter(|(_, n)| *n > 0) {
        tracing::info!(target: "icecore::audit", reason, count, "denied since the start");
    }
}

async fn write(app: &App, denied: Vec<Denied>) {
    for denied in denied {
        let Denied { slot, count, at } = denied;
        let payload = json!({
            "keyId": slot.key_id,
            "reason": slot.reason.as_str(),
            "method": slot.method,
            "route": slot.route,
            "count": count,
        });
        let store = app.memory.store();
        let payload = payload.to_string();
        let written = store.log_of_tenant(&slot.tenant, LogKind::Denied, payload, at).await;
        if let Err(error) = written {
            app.denials.unlogged.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(%error, "a denial could not be written into the log");
        }
    }
}

impl Audit {
    fn folding(&self) -> std::sync::MutexGuard<'_, Folding> {
        self.folding.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What denials have in common that are told as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    tenant: Tenant,
    key_id: String,
    reason: Reason,
    method: &'static str,
    route: String,
}

/// Denials to write as one event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Denied {
    slot: Slot,
    count: u64,
    at: Millis,
}

/// What became of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    /// There is an event to write.
    ToWrite,
    /// It is counted, and told with others.
    Folded,
    /// Too much goes on already.
    NoRoom,
}

/// Decides which denials are told when. The first is told at once; those of the
/// minute that follows are told together when it is over.
#[derive(Debug, Default)]
struct Folding {
    minutes: BTreeMap<Slot, Minute>,
    waiting: Vec<Denied>,
}

/// What came since the last event of a slot.
#[derive(Debug)]
struct Minute {
    since: Millis,
    folded: u64,
}

const MINUTE: i64 = 60_000;

/// The most slots that are counted at once, and the most events that wait.
const MOST: usize = 4_096;

impl Minute {
    /// A clock that was set back ends it too.
    fn is_over(&self, now: Millis) -> bool {
        !(0..MINUTE).contains(&now.0.saturating_sub(self.since.0))
    }
}

impl Folding {
    fn deny(&mut self, slot: Slot, now: Millis) -> Noted {
        let is_full = self.waiting.len() >= MOST;
        let has_room = !is_full && self.minutes.len() < MOST;
        match self.minutes.get_mut(&slot) {
            Some(minute) if is_full || !minute.is_over(now) => {
                minute.folded += 1;
                Noted::Folded
            }
            Some(minute) => {
                let count = minute.folded + 1;
                *minute = Minute { since: now, folded: 0 };
                self.waiting.push(Denied { slot, count, at: now });
                Noted::ToWrite
            }
            None if !has_room => Noted::NoRoom,
            None => {
                self.minutes.insert(slot.clone(), Minute { since: now, folded: 0 });
                self.waiting.push(Denied { slot, count: 1, at: now });
                Noted::ToWrite
            }
        }
    }

    /// What is to be written now.
    fn take(&mut self, now: Millis) -> Vec<Denied> {
        let mut due = std::mem::take(&mut self.waiting);
        self.minutes.retain(|slot, minute| {
            if !minute.is_over(now) {
                return true;
            }
            let count = minute.folded;
            *minute = Minute { since: now, folded: 0 };
            if count > 0 {
                due.push(Denied { slot: slot.clone(), count, at: now });
            }
            count > 0
        });
        due
    }

    /// What is to be written when there is no later.
    fn take_all(&mut self, now: Millis) -> Vec<Denied> {
        let mut due = std::mem::take(&mut self.waiting);
        for (slot, minute) in std::mem::take(&mut self.minutes) {
            if minute.folded > 0 {
                due.push(Denied { slot, count: minute.folded, at: now });
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(key_id: &str, reason: Reason, route: &str) -> Slot {
        let (key_id, route) = (key_id.to_owned(), route.to_owned());
        Slot { tenant: Tenant::new("t").unwrap(), key_id, reason, method: "POST", route }
    }

    fn forget(key_id: &str) -> Slot {
        slot(key_id, Reason::Role, "/forget")
    }

    /// Events as `key count at`.
    fn shown(denied: Vec<Denied>) -> Vec<String> {
        denied.iter().map(|d| format!("{} {} {}", d.slot.key_id, d.count, d.at.0)).collect()
    }

    #[test]
    fn one_event_a_minute_stands_for_all() {
        let mut folding = Folding::default();
        assert_eq!(folding.deny(forget("a"), Millis(1_000)), Noted::ToWrite);
        assert_eq!(shown(folding.take(Millis(1_000))), ["a 1 1000"]);
        for at in 1_001..1_101 {
            assert_eq!(folding.deny(forget("a"), Millis(at)), Noted::Folded);
        }
        assert_eq!(shown(folding.take(Millis(60_999))), [""; 0]);
        assert_eq!(shown(folding.take(Millis(61_000))), ["a 100 61000"]);
        // The next minute begins with that event.
        assert_eq!(folding.deny(forget("a"), Millis(61_001)), Noted::Folded);
        assert_eq!(folding.deny(forget("a"), Millis(121_000)), Noted::ToWrite);
        assert_eq!(shown(folding.take(Millis(121_000))), ["a 2 121000"]);
        // A quiet minute is told by nothing, and takes no room.
        assert_eq!(shown(folding.take(Millis(181_000))), [""; 0]);
        assert!(folding.minutes.is_empty());
    }

    #[test]
    fn keys_reasons_and_routes_are_told_apart() {
        let mut folding = Folding::default();
        let others = [
            forget("a"),
            forget("b"),
            slot("a", Reason::Expired, "/forget"),
            slot("a", Reason::Role, "/facts"),
            Slot { method: "PUT", ..forget("a") },
            Slot { tenant: Tenant::new("u").unwrap(), ..forget("a") },
        ];
        for slot in others {
            assert_eq!(folding.deny(slot.clone(), Millis(0)), Noted::ToWrite);
            assert_eq!(folding.deny(slot, Millis(0)), Noted::Folded);
        }
        assert_eq!(folding.take(Millis(0)).len(), 6);
    }

    #[test]
    fn nothing_is_left_out_at_the_end() {
        let mut folding = Folding::default();
        for _ in 0..5 {
            folding.deny(forget("a"), Millis(0));
        }
        folding.deny(forget("b"), Millis(7));
        assert_eq!(shown(folding.take_all(Millis(9))), ["a 1 0", "b 1 7", "a 4 9"]);
        assert_eq!(folding.take_all(Millis(9)), []);
    }

    #[test]
    fn a_log_that_is_not_written_bounds_what_waits() {
        let mut folding = Folding::default();
        for number in 0..MOST {
            assert_eq!(folding.deny(forget(&number.to_string()), Millis(0)), Noted::ToWrite);
        }
        assert_eq!(folding.deny(forget("more"), Millis(0)), Noted::NoRoom);
        // A minute later nothing was taken: what comes is counted, and not lost.
        assert_eq!(folding.deny(forget("0"), Millis(MINUTE)), Noted::Folded);
        assert_eq!(folding.waiting.len(), MOST);
        assert_eq!(folding.take(Millis(MINUTE)).len(), MOST + 1);
        assert_eq!(folding.deny(forget("more"), Millis(MINUTE)), Noted::ToWrite);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_minute_open() {
        let mut folding = Folding::default();
        folding.deny(forget("a"), Millis(1_000_000));
        folding.deny(forget("a"), Millis(1_000_001));
        folding.take(Millis(1_000_001));
        assert_eq!(folding.deny(forget("a"), Millis(5)), Noted::ToWrite);
        assert_eq!(shown(folding.take(Millis(5))), ["a 2 5"]);
    }

    #[test]
    fn invented_methods_are_not_repeated() {
        assert_eq!(known_method(&Method::DELETE), "DELETE");
        assert_eq!(known_method(&Method::from_bytes(b"HUSH").unwrap()), "other");
    }
}
