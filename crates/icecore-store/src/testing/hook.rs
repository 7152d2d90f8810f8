//! What can be done around the calls of a store.

use std::future::{Future, ready};

use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;

use crate::store::*;

/// A call of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its name.
    pub method: &'static str,
    /// Whether it may change something.
    pub writes: bool,
}

/// Something that has happened in the store, told before anything else can.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// A write worked, of whoever holds a lease, or needs none.
    Wrote {
        /// The lease.
        fence: Option<&'a Fence>,
        /// Which.
        method: &'static str,
    },
    /// A lease was taken or renewed.
    Leased(&'a Fence),
    /// A lease was given back, if it was that one's.
    Released(&'a Fence),
    /// Somebody may dream.
    DreamLeased {
        /// In which memory.
        scope: &'a Scope,
        /// Who.
        holder: &'a str,
    },
    /// A dream was kept.
    DreamKept {
        /// In which memory.
        scope: &'a Scope,
        /// Whose.
        holder: &'a str,
    },
    /// A tick is somebody's to run.
    TickClaimed {
        /// Of which schedule.
        schedule: &'a str,
        /// Which instant.
        at: Millis,
        /// Whose.
        holder: &'a str,
    },
    /// A tick was taken over.
    TickTakenOver {
        /// Of which schedule.
        schedule: &'a str,
        /// Which instant.
        at: Millis,
        /// Whose it is now.
        holder: &'a str,
    },
    /// A tick has ended.
    TickEnded {
        /// Of which schedule.
        schedule: &'a str,
        /// Which instant.
        at: Millis,
        /// Who ended it.
        holder: &'a str,
    },
}

/// What is done around calls.
pub trait Hook: Send + Sync + 'static {
    /// Before a write; an error keeps it from happening.
    fn before_write(&self) -> Result<()> {
        Ok(())
    }

    /// After a write that worked; an error hides that it did.
    fn after_write(&self) -> Result<()> {
        Ok(())
    }

    /// After a read that answered `rows` rows.
    fn after_read(&self, _method: &'static str, _rows: usize) {}

    /// Before any call, for as long as it takes to get there; an error keeps it from
    /// happening.
    fn before(&self, _call: Call) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    /// After any call that worked, for as long as the answer takes; an error hides it.
    fn after(&self, _call: Call) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    /// Hears what happens.
    fn see(&self, _seen: Seen<'_>) {}

    // What a test gets wrong on purpose, to see whether anybody notices.

    /// Whether writes compare their lease.
    fn keeps_fences(&self) -> bool {
        true
    }

    /// What is appended instead.
    fn append(&self, batch: AppendBatch) -> AppendBatch {
        batch
    }

    /// Whose entries and turns are read instead.
    fn reads_of(&self, scope: &Scope) -> Scope {
        scope.clone()
    }

    /// What the head of a memory is said to be.
    fn scope_head(&self, _scope: &Scope, head: ScopeHead) -> ScopeHead {
        head
    }

    /// What the log is said to hold.
    fn events(&self, events: Vec<EventRecord>) -> Vec<EventRecord> {
        events
    }

    /// Whether a dream is kept only of whoever has the lease.
    fn checks_dreamers(&self) -> bool {
        true
    }

    /// What is said to come of a claim; asked twice for each.
    fn claimed(&self, _schedule: &str, _claim: &TickClaim, claimed: Claimed) -> Claimed {
        claimed
    }
}
