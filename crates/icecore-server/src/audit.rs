//! What is told of denials: counted always; where the key is known, written into its
//! tenant's log as `auth.denied`; where it is not, a line of our own log.
//!
//! A caller that is denied again and again fills no log: of one key and reason there is
//! at most one event a minute, with the routes and the count of those that it stands
//! for; of strangers, one line a minute and reason.
//! Nothing here makes an answer wait, and nothing holds what was presented.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::http::request::Parts;
use icecore::{Millis, Tenant};
use icecore_host::keys::ApiKeyRecord;
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
    strangers: Mutex<Strangers>,
    news: Notify,
}

/// Notes that a request was denied; `key` is the one it showed, if there is one.
pub(crate) fn deny(app: &App, parts: &Parts, reason: Reason, key: Option<&ApiKeyRecord>) {
    let Some(key) = key else { return deny_stranger(app, reason) };
    app.denials.count(reason);
    // The template, not the path: a session's name is the user's own.
    let route = parts.extensions.get::<MatchedPath>().map_or("unknown", MatchedPath::as_str);
    let route = Route { method: known_method(&parts.method), route: route.to_owned() };
    let slot = Slot { tenant: key.tenant.clone(), key_id: key.id.clone(), reason };
    match app.audit.folding().deny(slot, route, app.memory.now()) {
        Noted::ToWrite => app.audit.news.notify_one(),
        Noted::Folded => {}
        Noted::NoRoom => {
            app.denials.unlogged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Notes that somebody of no tenant was denied.
pub(crate) fn deny_stranger(app: &App, reason: Reason) {
    app.denials.count(reason);
    let told = app.audit.strangers().deny(reason, app.memory.now());
    tell_of_strangers(told.map(|count| (reason, count)));
}

fn tell_of_strangers(told: impl IntoIterator<Item = (Reason, u64)>) {
    for (reason, count) in told {
        let reason = reason.as_str();
        tracing::warn!(target: "icecore::audit", reason, count, "denied to strangers");
    }
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
        let now = app.memory.now();
        tell_of_strangers(app.audit.strangers().take(now));
        let due = app.audit.folding().take(now);
        write(&app, due).await;
    }
}

/// Writes what is left, and says how many denials there were.
pub(crate) async fn finish(app: &App) {
    tell_of_strangers(app.audit.strangers().take_all());
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
        let Denied { slot, asked, at } = denied;
        let routes = asked.routes.iter().map(|(Route { method, route }, count)| {
            json!({ "method": method, "route": route, "count": count })
        });
        let count = asked.count;
        let payload = json!({
            "keyId": slot.key_id,
            "reason": slot.reason.as_str(),
            "count": count,
            "routes": routes.collect::<Vec<_>>(),
        });
        let payload = payload.to_string();
        let written = app.host.keys.log_denied(&slot.tenant, &payload, at).await;
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

    fn strangers(&self) -> std::sync::MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What denials have in common that are told as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    tenant: Tenant,
    key_id: String,
    reason: Reason,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    method: &'static str,
    route: String,
}

/// How much was asked for in vain, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Asked {
    count: u64,
    /// The first few routes that were met; `count` counts the others too.
    routes: BTreeMap<Route, u64>,
}

/// The most routes that one event names.
const MOST_ROUTES: usize = 16;

impl Asked {
    fn add(&mut self, route: Route) {
        self.count += 1;
        if self.routes.len() < MOST_ROUTES || self.routes.contains_key(&route) {
            *self.routes.entry(route).or_default() += 1;
        }
    }
}

/// Denials to write as one event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Denied {
    slot: Slot,
    asked: Asked,
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
    folded: Asked,
}

const MINUTE: i64 = 60_000;

/// The most slots that are counted at once, and the most events that wait.
const MOST: usize = 4_096;

/// The most of either that are one tenant's, so that others find room.
const MOST_OF_TENANT: usize = 256;

/// A clock that was set back ends a minute too.
fn is_over(since: Millis, now: Millis) -> bool {
    !(0..MINUTE).contains(&now.0.saturating_sub(since.0))
}

impl Minute {
    fn is_over(&self, now: Millis) -> bool {
        is_over(self.since, now)
    }

    /// Ends, and begins anew; answers what came.
    fn turn(&mut self, now: Millis) -> Asked {
        self.since = now;
        std::mem::take(&mut self.folded)
    }
}

/// Decides which denials of nobody's keys are told when: of each reason the first at
/// once, and those of the minute that follows together when it is over.
#[derive(Debug, Default)]
struct Strangers([Option<Crowd>; Reason::ALL.len()]);

/// What came since the last line of a reason.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    since: Millis,
    folded: u64,
}

impl Strangers {
    /// How many are to be told now, this one among them.
    fn deny(&mut self, reason: Reason, now: Millis) -> Option<u64> {
        let crowd = &mut self.0[reason as usize];
        match crowd {
            Some(crowd) if !is_over(crowd.since, now) => {
                crowd.folded += 1;
                None
            }
            _ => {
                let before = crowd.replace(Crowd { since: now, folded: 0 });
                Some(before.map_or(0, |crowd| crowd.folded) + 1)
            }
        }
    }

    /// What is to be told now.
    fn take(&mut self, now: Millis) -> Vec<(Reason, u64)> {
        let due = Reason::ALL.into_iter().filter_map(|reason| {
            let crowd = &mut self.0[reason as usize];
            let ended = crowd.take_if(|crowd| is_over(crowd.since, now))?;
            if ended.folded == 0 {
                return None;
            }
            *crowd = Some(Crowd { since: now, folded: 0 });
            Some((reason, ended.folded))
        });
        due.collect()
    }

    /// What is to be told when there is no later.
    fn take_all(&mut self) -> Vec<(Reason, u64)> {
        let crowds = Reason::ALL.into_iter().zip(std::mem::take(self).0);
        let left = crowds.filter_map(|(reason, crowd)| Some((reason, crowd?.folded)));
        left.filter(|(_, folded)| *folded > 0).collect()
    }
}

impl Folding {
    fn deny(&mut self, slot: Slot, route: Route, now: Millis) -> Noted {
        let is_full = self.waiting.len() >= MOST || self.waiting_of(&slot) >= MOST_OF_TENANT;
        let has_room = self.minutes.len() < MOST && self.minutes_of(&slot) < MOST_OF_TENANT;
        match self.minutes.get_mut(&slot) {
            Some(minute) => {
                minute.folded.add(route);
                if is_full || !minute.is_over(now) {
                    return Noted::Folded;
                }
                let asked = minute.turn(now);
                self.waiting.push(Denied { slot, asked, at: now });
                Noted::ToWrite
            }
            None if is_full || !has_room => Noted::NoRoom,
            None => {
                let mut asked = Asked::default();
                asked.add(route);
                let minute = Minute { since: now, folded: Asked::default() };
                self.minutes.insert(slot.clone(), minute);
                self.waiting.push(Denied { slot, asked, at: now });
                Noted::ToWrite
            }
        }
    }

    /// How many slots of the tenant are counted.
    fn minutes_of(&self, slot: &Slot) -> usize {
        // Slots are in order of their tenants, and this is the first that one can have.
        let first = Slot { key_id: String::new(), reason: Reason::NoKey, ..slot.clone() };
        let from = self.minutes.range(first..);
        from.take_while(|(other, _)| other.tenant == slot.tenant).count()
    }

    /// How many events of the tenant wait.
    fn waiting_of(&self, slot: &Slot) -> usize {
        self.waiting.iter().filter(|denied| denied.slot.tenant == slot.tenant).count()
    }

    /// What is to be written now.
    fn take(&mut self, now: Millis) -> Vec<Denied> {
        let mut due = std::mem::take(&mut self.waiting);
        self.minutes.retain(|slot, minute| {
            if !minute.is_over(now) {
                return true;
            }
            let asked = minute.turn(now);
            let any = asked.count > 0;
            if any {
                due.push(Denied { slot: slot.clone(), asked, at: now });
            }
            any
        });
        due
    }

    /// What is to be written when there is no later.
    fn take_all(&mut self, now: Millis) -> Vec<Denied> {
        let mut due = std::mem::take(&mut self.waiting);
        for (slot, minute) in std::mem::take(&mut self.minutes) {
            if minute.folded.count > 0 {
                due.push(Denied { slot, asked: minute.folded, at: now });
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;

    fn slot(key_id: &str) -> Slot {
        let tenant = Tenant::new("t").unwrap();
        Slot { tenant, key_id: key_id.to_owned(), reason: Reason::Role }
    }

    fn route(method: &'static str, route: &str) -> Route {
        Route { method, route: route.to_owned() }
    }

    impl Folding {
        fn forget(&mut self, slot: Slot, now: i64) -> Noted {
            self.deny(slot, route("POST", "/forget"), Millis(now))
        }
    }

    /// Events as `key count at`.
    fn shown(denied: Vec<Denied>) -> Vec<String> {
        denied.iter().map(|d| format!("{} {} {}", d.slot.key_id, d.asked.count, d.at.0)).collect()
    }

    #[test]
    fn one_event_a_minute_stands_for_all() {
        let mut folding = Folding::default();
        assert_eq!(folding.forget(slot("a"), 1_000), Noted::ToWrite);
        assert_eq!(shown(folding.take(Millis(1_000))), ["a 1 1000"]);
        for at in 1_001..1_101 {
            assert_eq!(folding.forget(slot("a"), at), Noted::Folded);
        }
        assert_eq!(shown(folding.take(Millis(60_999))), [""; 0]);
        assert_eq!(shown(folding.take(Millis(61_000))), ["a 100 61000"]);
        // The next minute begins with that event.
        assert_eq!(folding.forget(slot("a"), 61_001), Noted::Folded);
        assert_eq!(folding.forget(slot("a"), 121_000), Noted::ToWrite);
        assert_eq!(shown(folding.take(Millis(121_000))), ["a 2 121000"]);
        // A quiet minute is told by nothing, and takes no room.
        assert_eq!(shown(folding.take(Millis(181_000))), [""; 0]);
        assert!(folding.minutes.is_empty());
    }

    #[test]
    fn keys_and_reasons_are_told_apart() {
        let mut folding = Folding::default();
        let others = [
            slot("a"),
            slot("b"),
            Slot { reason: Reason::Expired, ..slot("a") },
            Slot { tenant: Tenant::new("u").unwrap(), ..slot("a") },
        ];
        for slot in others {
            assert_eq!(folding.forget(slot.clone(), 0), Noted::ToWrite);
            assert_eq!(folding.forget(slot, 0), Noted::Folded);
        }
        assert_eq!(folding.take(Millis(0)).len(), 4);
    }

    #[test]
    fn one_event_names_the_first_routes_and_counts_all() {
        let mut folding = Folding::default();
        folding.forget(slot("a"), 0);
        for number in 0..2 * MOST_ROUTES {
            for method in ["GET", "PUT"] {
                let route = route(method, &format!("/{:02}", number % 20));
                assert_eq!(folding.deny(slot("a"), route, Millis(1)), Noted::Folded);
            }
        }
        let told = folding.take(Millis(MINUTE));
        assert_eq!(shown(told.clone()), ["a 1 0", "a 64 60000"]);
        assert_eq!(told[0].asked.routes, BTreeMap::from([(route("POST", "/forget"), 1)]));
        assert_eq!(told[1].asked.routes.len(), MOST_ROUTES);
        assert_eq!(told[1].asked.routes[&route("PUT", "/07")], 2);
        assert!(!told[1].asked.routes.contains_key(&route("PUT", "/08")));
    }

    #[test]
    fn no_tenant_takes_the_room_of_others() {
        let mut folding = Folding::default();
        for number in 0..MOST_OF_TENANT {
            assert_eq!(folding.forget(slot(&number.to_string()), 0), Noted::ToWrite);
        }
        assert_eq!(folding.forget(slot("more"), 0), Noted::NoRoom);
        let other = Slot { tenant: Tenant::new("u").unwrap(), ..slot("more") };
        assert_eq!(folding.forget(other, 0), Noted::ToWrite);
        // Nothing was written for a minute: nor does it take more of what waits.
        assert_eq!(folding.forget(slot("0"), MINUTE), Noted::Folded);
        assert_eq!(folding.waiting.len(), MOST_OF_TENANT + 1);
    }

    #[test]
    fn strangers_are_told_of_once_a_minute() {
        let mut strangers = Strangers::default();
        assert_eq!(strangers.deny(Reason::Unknown, Millis(0)), Some(1));
        for at in 1..500 {
            assert_eq!(strangers.deny(Reason::Unknown, Millis(at)), None);
        }
        assert_eq!(strangers.deny(Reason::NoKey, Millis(500)), Some(1));
        assert_eq!(strangers.take(Millis(MINUTE - 1)), []);
        assert_eq!(strangers.take(Millis(MINUTE)), [(Reason::Unknown, 499)]);
        // The next minute begins with that line; a later denial brings it to its end.
        assert_eq!(strangers.deny(Reason::Unknown, Millis(MINUTE + 1)), None);
        assert_eq!(strangers.deny(Reason::Unknown, Millis(2 * MINUTE)), Some(2));
        assert_eq!(strangers.deny(Reason::Unknown, Millis(2 * MINUTE + 9)), None);
        assert_eq!(strangers.take_all(), [(Reason::Unknown, 1)]);
        assert_eq!(strangers.take_all(), []);
        // A clock that is set back keeps no minute open.
        assert_eq!(strangers.deny(Reason::Role, Millis(MINUTE)), Some(1));
        assert_eq!(strangers.deny(Reason::Role, Millis(0)), Some(1));
    }

    #[test]
    fn nothing_is_left_out_at_the_end() {
        let mut folding = Folding::default();
        for _ in 0..5 {
            folding.forget(slot("a"), 0);
        }
        folding.forget(slot("b"), 7);
        assert_eq!(shown(folding.take_all(Millis(9))), ["a 1 0", "b 1 7", "a 4 9"]);
        assert_eq!(folding.take_all(Millis(9)), []);
    }

    #[test]
    fn a_log_that_is_not_written_bounds_what_waits() {
        let mut folding = Folding::default();
        let slot = |number: usize| {
            let tenant = Tenant::new(format!("t{}", number / MOST_OF_TENANT)).unwrap();
            Slot { tenant, ..slot(&number.to_string()) }
        };
        for number in 0..MOST {
            assert_eq!(folding.forget(slot(number), 0), Noted::ToWrite);
        }
        assert_eq!(folding.forget(slot(MOST), 0), Noted::NoRoom);
        // A minute later nothing was taken: what comes is counted, and not lost.
        assert_eq!(folding.forget(slot(0), MINUTE), Noted::Folded);
        assert_eq!(folding.waiting.len(), MOST);
        assert_eq!(folding.take(Millis(MINUTE)).len(), MOST + 1);
        assert_eq!(folding.forget(slot(MOST), MINUTE), Noted::ToWrite);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_minute_open() {
        let mut folding = Folding::default();
        folding.forget(slot("a"), 1_000_000);
        folding.forget(slot("a"), 1_000_001);
        folding.take(Millis(1_000_001));
        assert_eq!(folding.forget(slot("a"), 5), Noted::ToWrite);
        assert_eq!(shown(folding.take(Millis(5))), ["a 2 5"]);
    }

    #[test]
    fn invented_methods_are_not_repeated() {
        assert_eq!(known_method(&Method::DELETE), "DELETE");
        assert_eq!(known_method(&Method::from_bytes(b"HUSH").unwrap()), "other");
    }
}
