//! The line between a host and the store, and all that can happen on it.

use std::any::Any;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use icecore::store::StoreError;
use icecore_store::hooks::{Call, Hook};
use icecore_store::{Isolation, Store};
use tokio::sync::Notify;

use super::dice::Dice;
use super::plant::Planted;
use super::referee::Referee;
use super::story::Story;

/// No history that comes to rest takes so many calls.
const MOST_CALLS: u64 = 60_000;

/// How bad it gets, in parts of a million calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// A call does not arrive.
    pub lost: u64,
    /// A call arrives, and its answer does not.
    pub unanswered: u64,
    /// A call, or its answer, takes some milliseconds.
    pub slow: u64,
    /// One takes seconds.
    pub stuck: u64,
    /// The host dies at this very call.
    pub deadly: u64,
    /// The host stands still for longer than its leases last, just before it writes
    /// under one.
    pub untimely: u64,
}

/// What is written under a lease, or by the holder of something like one.
const UNDER_LEASE: [&str; 6] =
    ["keep_dream", "end_tick", "put_facts", "demote_to_warm", "put_summaries", "settle"];

/// How a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Up,
    /// It stands still, as a machine that is suspended does.
    Stopped,
    /// It runs, and reaches no store.
    CutOff,
    Dead,
}

/// One host's line; with the host it dies.
pub struct Line {
    me: Weak<Line>,
    pub name: String,
    health: Mutex<Health>,
    /// Wakes in the order of waiting, which a `watch` does not.
    changed: Notify,
    weather: Mutex<Weather>,
    dice: Mutex<Dice>,
    story: Arc<Story>,
    referee: Arc<Referee>,
    planted: Planted,
    /// The store itself.
    store: Store,
}

impl Line {
    pub fn new(
        name: String,
        weather: Weather,
        dice: Dice,
        story: Arc<Story>,
        referee: Arc<Referee>,
        planted: Planted,
        store: Store,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            name,
            health: Mutex::new(Health::Up),
            changed: Notify::new(),
            weather: Mutex::new(weather),
            dice: Mutex::new(dice),
            story,
            referee,
            planted,
            store,
        })
    }

    /// From now on nothing goes wrong.
    pub fn calm(&self) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = Weather::default();
    }

    fn health(&self) -> Health {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the host is as it should be; answers how.
    async fn until(&self, is_meant: impl Fn(Health) -> bool) -> Health {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = self.health();
            if is_meant(now) {
                return now;
            }
            changed.await;
        }
    }

    /// Changes how the host is, if it is as expected.
    pub fn change(&self, is_expected: impl Fn(Health) -> bool, health: Health) {
        let mut now = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if is_expected(*now) {
            *now = health;
            drop(now);
            self.changed.notify_waiters();
        }
    }

    /// Is stopped or cut off for a while.
    pub fn stand_still(&self, health: Health, time: Duration) {
        self.change(|now| now == Health::Up, health);
        let me = self.me.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(line) = me.upgrade() {
                line.recover();
            }
        });
    }

    /// Goes on, unless it is dead.
    pub fn recover(&self) {
        self.change(|now| now != Health::Dead, Health::Up);
    }

    /// Resolves when the host is dead.
    pub async fn died(&self) {
        self.until(|health| health == Health::Dead).await;
    }

    /// Dies, at once.
    pub fn die(&self, why: &str) {
        self.story.tell(format_args!("{} dies {why}", self.name));
        self.change(|_| true, Health::Dead);
    }

    /// What happens on the way, in one of the directions.
    async fn travel(&self, call: Call<'_>, is_back: bool) -> Result<(), StoreError> {
        let weather = *self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        let (delay, is_lost, is_deadly) = {
            let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            let is_of_dream = call.op.starts_with("undreamt") && weather.slow > 0;
            let delay = match (dice.chance(weather.slow), dice.chance(weather.stuck)) {
                (_, true) => dice.within(500..9_000),
                // Dreams take their time, as with a model that is asked.
                _ if is_of_dream => dice.within(1..2_500),
                (true, false) => dice.within(1..40),
                (false, false) => 0,
            };
            let lost = if is_back { weather.unanswered } else { weather.lost };
            (delay, dice.chance(lost), dice.chance(weather.deadly))
        };
        if is_deadly {
            self.die(if is_back { "before the answer" } else { "at a call" });
        }
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if !is_back && UNDER_LEASE.contains(&call.op) {
            self.stand_still_untimely(weather, call.op);
        }
        let is_cut_off = self.arrives().await;
        if is_lost || is_cut_off {
            let what = if is_back { "the answer to" } else { "the call" };
            self.story.tell(format_args!("{} loses {what} {}", self.name, call.op));
            return Err(StoreError::Injected(0));
        }
        Ok(())
    }

    /// Is suspended at the worst of moments, now and then.
    fn stand_still_untimely(&self, weather: Weather, method: &str) {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        // There are few dreams.
        let times = if method == "keep_dream" { 10 } else { 1 };
        if dice.chance(weather.untimely * times) {
            let millis = dice.within(4_000..9_000);
            self.story.tell(format_args!("{} stands still before {method}", self.name));
            self.stand_still(Health::Stopped, Duration::from_millis(millis));
        }
    }

    /// Waits until the host goes on; for ever, if it is dead. True if it reaches nobody.
    async fn arrives(&self) -> bool {
        match self.until(|health| health != Health::Stopped).await {
            Health::CutOff => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.health() != Health::Dead || pending().await
            }
            Health::Dead => pending().await,
            Health::Up | Health::Stopped => false,
        }
    }
}

#[async_trait]
impl Hook for Line {
    async fn before(&self, call: Call<'_>, args: &mut (dyn Any + Send)) -> Result<(), StoreError> {
        if self.story.count() > MOST_CALLS {
            self.story.break_promise(format_args!("hosts run in circles"));
            pending::<()>().await;
        }
        self.travel(call, false).await?;
        self.story.tell(format_args!("{} {}", self.name, call.op));
        self.planted.before(call, args, &self.store).await
    }

    fn answered(&self, call: Call<'_>, args: &dyn Any, answer: &mut dyn Any) {
        self.planted.answered(call, args, answer);
        self.referee.see(call, args, answer);
    }

    async fn after(&self, call: Call<'_>) -> Result<(), StoreError> {
        self.travel(call, true).await
    }

    fn keeps_fences(&self) -> bool {
        self.planted.keeps_fences()
    }

    fn reads_of(&self, _op: &'static str, of: Isolation) -> Isolation {
        self.planted.reads_of(of)
    }
}
