//! The contract of a store, and the records that cross it.
//!
//! Every sentence here is a function in [`crate::contract`], which runs against
//! each implementation. No SQL shows in the signatures.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::cut::{CutPolicy, OpenTail};
use icecore_domain::dream::Checksum;
use icecore_domain::fact::{FactKey, RedactedFact, Verdict, normalise};
use icecore_domain::identity::{IdentityKey, Link, TurnIdentity};
use icecore_domain::ids::{
    Branch, Ordinal, Position, Scope, Seq, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{
    Hidden, RedactedSummary, RedactedText, RedactedTurn, Redactor, Secret, SecretName, TagKey,
};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};

pub use crate::api_keys::{
    ApiKeyRecord, KeyActor, KeyRevocation, KeyRotation, KeyState, RotatedKey,
};
pub use crate::bounds::{AllUsage, Bounds, DayUse, KeptBound, KeptBounds, Usage};
pub use crate::commitments::{
    CommitmentQuery, CommitmentRecord, CommitmentState, Condition, Fired, Fulfilled, Intention,
    Look, NewCommitment, Watch,
};
pub use crate::derivation::{
    Derivation, DerivationKind, Derived, DerivedEntry, EntryPlace, MakePayload, Replaced, Successor,
};
pub use crate::dreams::{
    ArchiveRecord, DreamDue, DreamFigures, DreamQuery, DreamRecord, DreamRun, DreamSpan,
    DreamState, DreamTrigger, Kept, KeptDream, Lease, NewArchive, NewDream, Undreamt,
};
use crate::error::StoreError;
pub use crate::handoffs::{
    HandoffEdit, HandoffRecord, HandoffTrigger, KeptHandoff, NewAnswer, NewHandoff, Spending,
    ViewUsage,
};
pub use crate::leases::Fence;
use crate::pack::PackKey;
pub use crate::runs::{
    EntryRef, ForkOf, NewFork, NewRun, NewRunEvent, RunError, RunEventRecord, RunFile, RunRecord,
    RunStatus, RunStep, RunValue, RunVariable, RunWrite,
};
pub use crate::schedules::{
    Claimed, MAX_BACKOFF_MILLIS, NewSchedule, NextTick, ScheduleRecord, ScheduleTask,
    ScheduleTiming, TakenOver, TickClaim, TickEnd, TickOutcome, TickRecord,
};
use crate::sql::Tables;
use crate::timings::StoreTimings;
pub use crate::workspace::{Expect, FileHead, FileRecord, NewFile};

/// Shorthand for what every call answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Durable home of the ground state.
///
/// Holds for every implementation:
///
/// - Once a write resolves it survives a crash. A write that fails, at whatever
///   instruction, left nothing behind.
/// - Positions of a tenant are given in the order in which they become visible:
///   a reader that has seen one is never shown a smaller new one.
/// - Nothing of one tenant is visible through a scope of another.
#[async_trait]
pub trait Store: Send + Sync {
    /// The tenant's key for identities; made on first use, the same ever after.
    async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey>;

    // Registered secrets

    /// Registers a secret of a tenant, which is made if it is not there, seals its
    /// value and logs `secret.added`. A name that is taken is
    /// [`StoreError::SecretExists`] unless `rotate`: then the value is added to the
    /// older ones of that name, which stay, for old text may still hold them. A
    /// value that the name has already changes nothing. A name that tells the value
    /// of another secret, whichever came first, is [`StoreError::NameTells`], and a
    /// value beyond [`MAX_SECRETS`] is [`StoreError::TooManySecrets`].
    ///
    /// [`MAX_SECRETS`]: icecore_domain::redact::MAX_SECRETS
    async fn put_secret(
        &self,
        tenant: &Tenant,
        secret: Secret,
        rotate: bool,
        now: Millis,
    ) -> Result<SecretRecord>;

    /// Deletes the sealed values of a name and logs `secret.removed`; false if there
    /// are none.
    async fn remove_secret(&self, tenant: &Tenant, name: &SecretName, now: Millis) -> Result<bool>;

    /// The tenant's secrets, opened, with the version that says whether they are
    /// still the same. A value that does not open is
    /// [`StoreError::SecretUnreadable`]: to hide less than was asked is no answer. A
    /// tenant that is not there has version 0, and is not made.
    async fn secrets(&self, tenant: &Tenant) -> Result<TenantSecrets>;

    /// The tenant's secrets without their values, by name.
    async fn secret_records(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>>;

    /// 0 for a tenant that is not there, 1 for one that never had a secret; rises
    /// whenever a value is added or a name is removed.
    async fn secrets_version(&self, tenant: &Tenant) -> Result<u64>;

    // Turns

    /// Appends turns to a session, all or none, in one step with their cuts.
    ///
    /// The session begins with its first turn. `seq` is dense from 1 within it.
    /// A turn whose id is known with the same body, or whose body is already
    /// there as the same occurrence, is answered [`Outcome::Known`] and not added.
    /// A known id with another body is [`StoreError::Conflict`]. A turn that was
    /// erased is [`Outcome::Forgotten`] unless `insist`. A parent that is the
    /// head of a branch continues it, any other forks. Text that was redacted with
    /// secrets that are not those of now is [`StoreError::SecretsChanged`].
    ///
    /// A turn with a link is known by that alone, whatever its id, its parents, and
    /// `insist`: one that is in the session is [`Outcome::Known`], or
    /// [`Outcome::Forgotten`] if it was erased, and the link of one that is added is kept
    /// in the same step, for good. Turns of a batch with links are one path: each follows
    /// the one before it, whether that was there or not, and the first follows
    /// [`AppendBatch::after`], or begins a tree of its own. An `after` that the session
    /// does not have is [`StoreError::NoParent`].
    async fn append(&self, scope: &Scope, batch: AppendBatch) -> Result<Appended>;

    /// The session of that name, unless it never was or was forgotten whole.
    async fn session(&self, scope: &Scope, name: &SessionName) -> Result<Option<SessionRecord>>;

    /// The session of that number, if it is in this scope.
    async fn session_by_number(
        &self,
        scope: &Scope,
        no: SessionNo,
    ) -> Result<Option<SessionRecord>>;

    /// The sessions of these numbers, in the order asked; what is not in this scope
    /// is left out.
    async fn sessions_at(&self, scope: &Scope, nos: &[SessionNo]) -> Result<Vec<SessionRecord>>;

    /// Sessions of the scope by number, after `after`.
    async fn sessions(
        &self,
        scope: &Scope,
        after: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRecord>>;

    /// The sessions that were appended to last, latest first.
    async fn recent_sessions(&self, scope: &Scope, limit: usize) -> Result<Vec<SessionRecord>>;

    /// Rows of turns in order of `seq`; bodies only of those that are hot.
    async fn turns(&self, scope: &Scope, query: &TurnQuery) -> Result<Vec<TurnRow>>;

    /// The turns in a session that may have this client id, by its lookup.
    async fn turns_by_lookup(
        &self,
        scope: &Scope,
        session: SessionNo,
        lookup: i64,
    ) -> Result<Vec<TurnRow>>;

    /// Where a scope stands; zeros for one that is not, which stays so.
    async fn scope_head(&self, scope: &Scope) -> Result<ScopeHead>;

    /// Turns of the scope after a position, of whatever session, in order of
    /// position: tombstones and the expired too, bodies only of those that are hot.
    async fn turns_after(
        &self,
        scope: &Scope,
        after: Position,
        limit: usize,
    ) -> Result<Vec<TurnRow>>;

    /// The turns with these ids, in the order asked; what is not of this scope is
    /// left out. Bodies only of those that are hot.
    async fn turns_at(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>>;

    /// As [`Store::turns_at`], and as [`Store::bodies_at`] for those that lack theirs: all
    /// of one moment.
    async fn whole_turns_at(
        &self,
        scope: &Scope,
        ids: &[TurnId],
    ) -> Result<(Vec<TurnRow>, Vec<MicroBody>)>;

    /// The turns that have these links, in the order asked, those of one link by the
    /// newest session first, at most [`MOST_LINKED`] of it: of all sessions of the scope,
    /// or of one. Tombstones too.
    async fn linked(
        &self,
        scope: &Scope,
        links: &[Link],
        session: Option<SessionNo>,
    ) -> Result<Vec<LinkedTurn>>;

    /// Where these turns are, in the order asked, without their bodies; what is not of
    /// this scope is left out.
    async fn places(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnPlace>>;

    /// Keeps what memory puts before a message that is a turn of a session, unless there
    /// is something that still holds; answers whether it did. Not if the memory's epoch is
    /// another by now: it may tell of what is gone. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    ///
    /// It holds as long as the epoch stays, and goes with whatever is erased, rewritten or
    /// let go in its memory, with an entry that ends and with a fact that is rejected.
    async fn put_recalled(&self, scope: &Scope, recalled: NewRecalled) -> Result<bool>;

    /// What memory put before messages of a session, in the order asked.
    async fn recalled(
        &self,
        scope: &Scope,
        session: SessionNo,
        links: &[Link],
    ) -> Result<Vec<(Link, RedactedText)>>;

    // The pyramid

    /// Chunks of a branch at one level, in order; see [`ChunkQuery`].
    async fn chunks(&self, scope: &Scope, query: &ChunkQuery) -> Result<Vec<ChunkRecord>>;

    /// Where the bodies of the micros are that overlap `first..=last`, in order.
    async fn bodies(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Vec<MicroBody>>;

    /// Where the bodies of the micros are that hold any of these turns, by session,
    /// branch and ordinal; each once, in order, whatever the order asked. What lies
    /// between is not read.
    async fn bodies_at(
        &self,
        scope: &Scope,
        places: &[(SessionNo, Branch, Ordinal)],
    ) -> Result<Vec<MicroBody>>;

    /// Chunks by session, branch, level and first ordinal, in the order asked;
    /// what is not of this scope is left out.
    async fn chunks_at(
        &self,
        scope: &Scope,
        ids: &[(SessionNo, Branch, Level, Ordinal)],
    ) -> Result<Vec<ChunkRecord>>;

    /// Chunks of the scope that have summaries, by the number of the summary,
    /// after `after`.
    async fn summaries_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, ChunkRecord)>>;

    /// Branches, of any tenant, that changed since they were last found settled
    /// by an append, an erasure or dropped summaries. What the worker itself
    /// moves is no such change.
    async fn unsettled(&self, limit: usize) -> Result<Vec<DueBranch>>;

    /// As [`Store::unsettled`], of one tenant: the first that has any and is none of
    /// these.
    async fn unsettled_beside(&self, tenants: &[Tenant], limit: usize) -> Result<Vec<DueBranch>>;

    /// How many branches are unsettled: of one memory, one tenant, or all.
    async fn unsettled_count(&self, tenant: Option<&Tenant>, memory: Option<&str>) -> Result<u64>;

    /// The state by which the worker decides what is due in a branch.
    async fn branch(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
    ) -> Result<Option<BranchRecord>>;

    /// Marks a branch settled, unless it has changed since `seen`.
    async fn settle(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        seen: u64,
    ) -> Result<()>;

    /// Marks every branch unsettled, so that changed settings take effect.
    async fn unsettle_all(&self) -> Result<()>;

    /// Moves micros from rows to text. Answers false, having done nothing, when
    /// the branch is no longer as the caller saw it, or the micros do not follow
    /// each other from its watermark on.
    async fn demote_to_warm(&self, scope: &Scope, demotion: WarmDemotion) -> Result<bool>;

    /// Moves a macro's micros from text to wherever `body` says, with the same
    /// answer as [`Store::demote_to_warm`]. Macros go down in order.
    async fn demote_to_cold(&self, scope: &Scope, demotion: ColdDemotion) -> Result<bool>;

    /// Records summaries of chunks and moves the watermark of that level to
    /// `through`; or does nothing, when the watermark or the revision of one of
    /// the chunks is not the one given any more, so that they stay due. Each gets
    /// the scope's next number, also when it is written again. As with an append,
    /// it may be [`StoreError::SecretsChanged`].
    async fn put_summaries(&self, scope: &Scope, summaries: SummaryBatch) -> Result<()>;

    /// Drops every summary and fact of the scope, answers how many, marks its
    /// branches unsettled and has facts drawn from the first turn on. The epoch
    /// rises if anything was dropped. Numbers are not given again.
    async fn drop_derived(&self, scope: &Scope) -> Result<u64>;

    // Facts

    /// Records facts drawn from turns up to a position and moves the scope's
    /// watermark there. Answers false, having done nothing, when the watermark is
    /// not the one given any more or a source is not a turn of the scope that is
    /// there. Each fact gets the scope's next number. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    async fn put_facts(&self, scope: &Scope, batch: FactBatch) -> Result<bool>;

    /// Facts have been drawn from the turns up to here.
    async fn facts_through(&self, scope: &Scope) -> Result<Position>;

    /// All facts of the scope by number.
    async fn facts(&self, scope: &Scope) -> Result<Vec<FactRecord>>;

    /// Facts by number, after `after`.
    async fn facts_after(&self, scope: &Scope, after: u64, limit: usize)
    -> Result<Vec<FactRecord>>;

    /// The facts with these numbers, in the order asked; what is not there is left
    /// out.
    async fn facts_at(&self, scope: &Scope, numbers: &[u64]) -> Result<Vec<FactRecord>>;

    /// The facts that say the same, by number.
    async fn facts_of(&self, scope: &Scope, key: FactKey) -> Result<Vec<FactRecord>>;

    /// Records what a person thinks of a fact, in place of what was thought before,
    /// and logs `fact.added`, `fact.confirmed` or `fact.rejected`. A source that is
    /// not a turn of the scope, or was erased, is [`StoreError::SourceGone`]. It is
    /// ground: [`Store::drop_derived`] leaves it. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    async fn put_verdict(&self, scope: &Scope, verdict: NewVerdict) -> Result<Position>;

    /// What people think, in the order in which they said it.
    async fn verdicts(&self, scope: &Scope) -> Result<Vec<VerdictRecord>>;

    /// Erases facts and verdicts that a selector names, by subject, age or id, or
    /// that quote one of these turns; answers how many. [`Store::erase`] takes what
    /// quotes its turns by itself: this finds the rest, and counts ahead. Dreams that
    /// may have read them are lost; see [`Store::lost_dreams`].
    async fn erase_facts(
        &self,
        scope: &Scope,
        selector: &Selector,
        quoting: &[TurnId],
        dry_run: bool,
        now: Millis,
    ) -> Result<u64>;

    // Packs

    /// Packs written before `before`, oldest first.
    async fn packs_older_than(&self, before: Millis, limit: usize) -> Result<Vec<PackRecord>>;

    /// All packs of a tenant, or of all, by session.
    async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackRecord>>;

    /// Lets the body of a macro go for good: destroys the pack's key, marks its
    /// turns expired, logs `memory.expired`.
    async fn expire_pack(&self, pack: &PackRecord, now: Millis) -> Result<()>;

    // Erasure

    /// The turns that a selector names, by session, without the erased. A named
    /// session of which nothing but the name is left is selected with no turns.
    async fn select(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Selected>>;

    /// Erases turns of one session in one step: rows become tombstones, bodies
    /// and summaries that held them and facts and verdicts that quote them go, the
    /// given bodies take their place, the scope's epoch rises. Turns that are tombstones already, or not of this
    /// branch, are passed over. The session's name goes only with its last turn,
    /// so that one that came meanwhile is not hidden. Answers false, having done nothing, when a chunk
    /// was revised or moved since it was read, or a turn that goes lies in a
    /// closed micro that is not among those given.
    async fn erase(&self, scope: &Scope, erasure: Erasure) -> Result<bool>;

    // Rewriting

    /// Puts bodies of turns of one branch anew in one step, because something in
    /// them has to be hidden. The turns keep their place, time, speaker and
    /// identity; counts of tokens are set right. Chunks that hold them are revised
    /// and lose their summaries, all facts of the scope are drawn again, verdicts
    /// stay, the branch is unsettled and the scope's epoch rises. New packs take
    /// the place of old ones, whose keys go, and are as old as they were. Turns that
    /// are not there, or not of this branch, are passed over. Answers false, having
    /// done nothing, when [`Store::erase`] would, or when a turn's body is in its
    /// row and not given, or the other way round.
    async fn rewrite(&self, scope: &Scope, rewrite: Rewrite) -> Result<bool>;

    /// Puts everything else that a tenant has in words through a redactor, in one
    /// step: names of sessions and memories, entries, verdicts, all kept versions of
    /// files, runs, commitments, handoffs, the log, kept answers. A name that is taken gets a
    /// number; a file whose path holds a secret becomes `redacted-1`, or the next
    /// number that is free, also in runs, which leave out one that is not there any
    /// more; of verdicts that say the same now the last stands. Entries that were made of
    /// one whose content changes are dropped as with [`Store::erase_entries`], and what
    /// they stood for is in force again: they may hold a part of a secret, which nobody
    /// finds. So are handoffs that were made of one whose text changes; counts of its
    /// tokens stay. Where a summary or fact has something to hide, all that was derived in
    /// its scope is dropped as with [`Store::drop_derived`]. If anything of this changes
    /// but names of keys, the log and kept answers, all that models answered is dropped.
    /// Epochs of the scopes touched rise.
    async fn rewrite_told(
        &self,
        tenant: &Tenant,
        redactor: Arc<Redactor>,
        now: Millis,
    ) -> Result<Told>;

    /// Writes the record of something finished into the log.
    async fn log(
        &self,
        scope: &Scope,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position>;

    /// Writes a record into the log that is of a tenant and of none of its memories.
    async fn log_of_tenant(
        &self,
        tenant: &Tenant,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position>;

    // Entries

    /// Puts a long-term entry and logs `memory.written`. Without an id of the
    /// caller's it gets one of ours, which nothing else in the tenant has. An id
    /// that is there already, in force or not, is [`StoreError::EntryExists`]. Its
    /// claim is kept in the same step, and one that is taken is
    /// [`StoreError::ClaimTaken`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    async fn put_entry(&self, scope: &Scope, entry: NewEntry) -> Result<EntryRecord>;

    /// An entry by id, unless it was not in force as of `at` (default: now), has
    /// expired or never was. Now, one that another stands for is answered as well, and
    /// names that other. As with [`Store::entries`], it may be
    /// [`StoreError::SnapshotGone`].
    async fn entry(
        &self,
        scope: &Scope,
        id: &str,
        at: Option<Position>,
        now: Millis,
    ) -> Result<Option<EntryRecord>>;

    /// Entries that a filter keeps, in one look, newest first: by time, then by
    /// where they began. A position before which entries have been purged is
    /// [`StoreError::SnapshotGone`].
    async fn entries(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>>;

    /// Where all entries began that [`Store::entries`] would answer, in its order.
    async fn entry_places(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<Position>>;

    /// Entries by where they began, after `after`: those in force, and those that
    /// others stand for, which may be in force again.
    async fn entries_after(
        &self,
        scope: &Scope,
        after: Position,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>>;

    /// The entries that began at these positions and that [`Store::entries`] would
    /// answer, in the order asked.
    async fn entries_at(
        &self,
        scope: &Scope,
        began: &[Position],
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<EntryRecord>>;

    /// Ends an entry that [`Store::entry`] answers now and logs `memory.deleted`:
    /// nobody sees it from there on, and whoever reads as of an earlier position still
    /// does. What it stands for ends with it, unless it overtook that, and so does every
    /// entry that was made of any of these, each with its record; what those stood for
    /// besides is in force again, or is what their own successor stands for, where
    /// another stood for them. Where anything is in force again, the scope's epoch rises
    /// and no position before the last of these records can be read as of any more
    /// ([`StoreError::SnapshotGone`]): both would be seen there. Answers false, having
    /// done nothing, if there is none.
    async fn end_entry(&self, scope: &Scope, id: &str, now: Millis) -> Result<bool>;

    /// Memories, of any tenant, with entries that have expired or that ended at or
    /// before `ended_by`.
    async fn due_entries(&self, now: Millis, ended_by: Millis, limit: usize) -> Result<Vec<Scope>>;

    /// Deletes such entries of a memory, with what was counted of them, and logs how
    /// many as `memory.expired`; answers that. The scope's epoch rises if there were
    /// any. What such an entry stood for is in force for good, or is what its own
    /// successor stands for, where it had one. Pending commitments whose
    /// intention it was are void. Kept answers stay: none quotes an entry.
    async fn purge_entries(
        &self,
        scope: &Scope,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<u64>;

    /// Erases entries by id, tag or age; answers how many. With one by its id goes
    /// what it stands for now, unless it overtook that, and what it was made of, or
    /// ended with it for saying the same, that has ended or expired since; with any go
    /// the entries that were made of it, whether they still stand for it or not; and
    /// what these stood for besides is in force again, or is what their own successor
    /// stands for. The scope's epoch rises if there were any, and no
    /// position up to now can be read as of any more: it is
    /// [`StoreError::SnapshotGone`]. Commitments go with their intentions; so do those
    /// that wait for the tag, or are as old, by themselves. They are not counted.
    async fn erase_entries(
        &self,
        scope: &Scope,
        selector: &Selector,
        dry_run: bool,
        now: Millis,
    ) -> Result<u64>;

    // Derived entries

    /// Writes entries in place of others, all in one step, and logs `memory.written`
    /// for each, then the derivation once. Each output gets an id of ours, and quotes
    /// what it stands for, unless that was overtaken: it expires no later than any that
    /// it quotes. Each entry that is replaced is in force no more and names what stands
    /// for it, until that expires: then it is in force again, unless another stands for
    /// what expired, and as long as it does. Answers nothing, having done nothing, when one that is replaced or kept
    /// is not in force any more, which holds of one that is named as replaced twice,
    /// or as both. As with an append, it may be [`StoreError::SecretsChanged`].
    async fn derive_entries(
        &self,
        scope: &Scope,
        derivation: Derivation,
    ) -> Result<Option<Derived>>;

    /// The entries that this one stands for now, oldest first; those of a derived
    /// entry that is one of them are not among them.
    async fn sources_of(&self, scope: &Scope, id: &str, now: Millis) -> Result<Vec<EntryRecord>>;

    /// Memories, of any tenant, with at least `count` entries in force, none of which
    /// was put after `quiet_since`.
    async fn crowded_memories(
        &self,
        count: u64,
        quiet_since: Millis,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>>;

    /// Where the first `limit` entries in force now are in their order, oldest first,
    /// after a place in it: [`Store::entries`] read backwards, no more of it than is
    /// asked for.
    async fn oldest_places(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>>;

    // Dreams

    /// Takes or renews the lease to dream in a memory: false while another holder's
    /// is not past. Of a memory that is not there nothing is kept, and it stays so.
    async fn lease_dream(&self, scope: &Scope, lease: Lease, now: Millis) -> Result<bool>;

    /// Gives a lease back; of a holder that does not have it, nothing.
    async fn release_dream(&self, scope: &Scope, holder: &str) -> Result<()>;

    /// Where the first `limit` entries are that a dream would read, oldest first, after
    /// a place in their order: those in force that do not end by themselves, are no
    /// intentions and are not what the dream in force wrote.
    async fn undreamt_entries(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>>;

    /// Branches of a memory with turns that no dream has read, by session and branch,
    /// after one of them.
    async fn undreamt_branches(
        &self,
        scope: &Scope,
        after: Option<(SessionNo, Branch)>,
        limit: usize,
    ) -> Result<Vec<Undreamt>>;

    /// Keeps a dream, all in one step: the entry in place of others as with
    /// [`Store::derive_entries`], how far turns have been read, the archive, the index
    /// file as with [`Store::put_file`], the run, and the records `memory.written`,
    /// `memory.compacted` and `workspace.updated`. The dream before it is superseded. An
    /// archive of the memory that has the address already, with its key, stays as it is,
    /// and the new body is not used. It may be [`StoreError::FileConflict`],
    /// [`StoreError::TooManyFiles`] or, as with an append,
    /// [`StoreError::SecretsChanged`]; then too nothing was done.
    async fn keep_dream(&self, scope: &Scope, dream: NewDream) -> Result<Kept>;

    /// Takes back the dream in force: its entry ends, with its record; what it stands
    /// for is in force again, its turns count as unread, the one before it is in force, or
    /// is taken back too if its archive is gone;
    /// the index file is written where one is given. Its archive's key goes unless
    /// another dream in force or superseded came to the same. Positions before cannot
    /// be read as of any more, and the scope's epoch rises. Logs `dream.undone` with ids
    /// alone. Nothing is answered, and nothing done, when the run's dream is not the one
    /// in force. The archive of the one before may be past its retention.
    async fn undo_dream(
        &self,
        scope: &Scope,
        run: &str,
        index: Option<(Workspace, NewFile)>,
        now: Millis,
    ) -> Result<Option<DreamRecord>>;

    /// A dream of a tenant by its run.
    async fn dream(&self, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>>;

    /// Dreams of a tenant, newest first.
    async fn dreams(&self, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>>;

    /// Tokens that dreams of a tenant used, read and written together, since a moment.
    async fn dreamt_tokens(&self, tenant: &Tenant, since: Millis) -> Result<u64>;

    /// The archives of a tenant, or of all, newest first, also those that were erased
    /// or are past their retention.
    async fn archives(&self, tenant: Option<&Tenant>) -> Result<Vec<ArchiveRecord>>;

    /// The archives of a tenant with that address, at most one a memory.
    async fn archives_at(&self, tenant: &Tenant, checksum: Checksum) -> Result<Vec<ArchiveRecord>>;

    /// Destroys the key of an archive that is past its retention, which only one is that
    /// no dream in force came to; false otherwise, or if it has none.
    async fn expire_archive(&self, scope: &Scope, checksum: Checksum, now: Millis) -> Result<bool>;

    /// How many archives with a key would go if what a selector names of entries, facts
    /// and verdicts were erased, and these turns.
    async fn archives_lost_with(
        &self,
        scope: &Scope,
        selector: &Selector,
        turns: &[TurnId],
        now: Millis,
    ) -> Result<u64>;

    /// Memories, of any tenant, whose dreams were lost with something that was
    /// forgotten, deleted or rewritten. With these go: their entries, what those stood
    /// for being in force again; all dreams of the memory after the first that was
    /// touched; their archives' keys, unless a dream that stays came to the same; and the
    /// tenant's index file with all its versions. Their turns count as unread, the dream
    /// before them is in force, and `dream.lost` is logged. What touches a dream is: a
    /// turn that it read, or a fact drawn from one; an entry that it was made of, or that
    /// it wrote; a verdict that was there when it was kept; and what it tells itself,
    /// where that is redacted again.
    async fn lost_dreams(&self, limit: usize) -> Result<Vec<DreamDue>>;

    /// Notes that a memory has been dreamt anew, or has nothing to dream of; not if its
    /// epoch has risen, for then more may have been lost.
    async fn settle_lost_dreams(&self, due: &DreamDue) -> Result<()>;

    /// Notes that a memory is to be dreamt anew with this budget, or the larger one that
    /// was noted before.
    async fn note_lost_dreams(&self, scope: &Scope, budget: u64) -> Result<()>;

    /// How often dreams of a tenant were lost, with something that was forgotten or put
    /// anew. Whoever writes what dreams came to reads this first, and has the store
    /// compare it: see [`Expect::Unlost`].
    async fn dream_losses(&self, tenant: &Tenant) -> Result<u64>;

    /// Tenants whose index file went and has not been written again.
    async fn lost_indexes(&self, limit: usize) -> Result<Vec<Tenant>>;

    /// Notes that the index file of a tenant is not to be written again; not if dreams
    /// were lost since so many losses.
    async fn settle_lost_index(&self, tenant: &Tenant, losses: u64) -> Result<()>;

    // Handoffs and what models answered

    /// Keeps a handoff, if the branch's head, the handoff in force on its path, or on the
    /// path to where it reaches, and the memory's epoch are as they were read. It may reach no further than
    /// the branch; its number is one more than that of the one before. Logs `session.compacted` with ids
    /// and counts alone. As with an append, it may be [`StoreError::SecretsChanged`]; then
    /// too nothing was done.
    ///
    /// It goes when a turn that it covers is erased or rewritten, and with the one before
    /// it on its path; all of a session go with its last turn.
    async fn put_handoff(&self, scope: &Scope, handoff: NewHandoff) -> Result<KeptHandoff>;

    /// The handoff in force on a path: branches root first, each with the last ordinal
    /// of it that is on the path. The last branch with one that reaches no further than
    /// the path decides, and of its the one that reaches furthest, of these the newest.
    async fn handoff(
        &self,
        scope: &Scope,
        session: SessionNo,
        path: &[(Branch, Ordinal)],
    ) -> Result<Option<HandoffRecord>>;

    /// Handoffs of a session, oldest first, also those that later ones stand for.
    async fn handoffs(&self, scope: &Scope, session: SessionNo) -> Result<Vec<HandoffRecord>>;

    /// Changes what a handoff says, if nobody has meanwhile and it is in force on the
    /// branch still; a person made it from then on. Logs `session.handoff_edited` with ids alone. It may be
    /// [`StoreError::SecretsChanged`]; then too nothing was done.
    async fn edit_handoff(&self, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff>;

    /// How many handoffs would go if these turns were erased.
    async fn handoffs_lost_with(&self, scope: &Scope, turns: &[TurnId]) -> Result<u64>;

    /// Notes what a provider counted; one for each branch and model. It is passed over if
    /// the branch or the handoff is not there. All of a session go when any turn or
    /// handoff of it goes or is put anew, and those with a handoff when that is changed. One
    /// of a model whose name is hidden in part goes when what is told is rewritten.
    async fn put_usage(&self, scope: &Scope, usage: ViewUsage) -> Result<()>;

    /// What a provider counted last for a branch.
    async fn usage(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        model: &str,
    ) -> Result<Option<ViewUsage>>;

    /// Keeps a model's answer, so that it need not be asked again; the last of a key
    /// stands. It is passed over if its session is not there or the memory's epoch has
    /// risen, and it may be [`StoreError::SecretsChanged`]. Answers about a session go
    /// when any of its turns is erased. Those about none go when any turn, entry, fact or
    /// verdict of the memory is erased, or an entry deleted for good. All of a tenant's go
    /// when more of its texts are hidden. They stay when what is derived is dropped.
    async fn put_answer(&self, scope: &Scope, answer: NewAnswer) -> Result<()>;

    /// A kept answer.
    async fn answer(&self, scope: &Scope, key: &[u8; 32]) -> Result<Option<RedactedText>>;

    /// Adds to what was spent and saved in a memory, by day, purpose and model.
    async fn add_spending(&self, scope: &Scope, spent: Vec<Spending>) -> Result<()>;

    /// What was spent and saved since a day, of a memory or a tenant, summed up by day,
    /// purpose and model, in that order.
    async fn spending(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        since_day: i64,
    ) -> Result<Vec<Spending>>;

    // Runs

    /// Makes a run with its first events. It begins where the log stands, with the
    /// files that its workspace has then. An id that is taken is
    /// [`StoreError::RunExists`], one unfinished run too many
    /// [`StoreError::TooManyRuns`]. Its claim is kept in the same step, and one that is
    /// taken is [`StoreError::ClaimTaken`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    async fn create_run(&self, workspace: &Workspace, run: NewRun) -> Result<RunRecord>;

    /// Makes a run that repeats another of the same tenant, which has ended: its
    /// events with their times and payloads, its files, inputs, variables, owner and
    /// end. Nothing is answered, and nothing done, if that run is not there, has
    /// not ended or is past its retention. Claims and ids as with
    /// [`Store::create_run`].
    async fn fork_run(&self, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>>;

    /// A run by id, also one past its retention. It names entries and quotes none: what
    /// is erased elsewhere leaves it as it is.
    async fn run(&self, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>>;

    /// Does the next thing in a run: its writes, which are logged like all others and
    /// told in the run, its events, its variables and how it stands then. Answers
    /// nothing, having done nothing, when the run has other than the `seen` number of
    /// events, has ended or is not there. A write whose id is there already is
    /// [`StoreError::EntryExists`], one into another tenant's memory
    /// [`StoreError::OtherTenant`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    async fn step_run(&self, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>>;

    /// Events of a run after a number, in order; from the first without one.
    async fn run_events(
        &self,
        tenant: &Tenant,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunEventRecord>>;

    /// Runs, of any tenant, that have not ended: the oldest of each tenant, then the
    /// next of each, so that none waits for all of another's.
    async fn unfinished_runs(&self, limit: usize) -> Result<Vec<(Tenant, String)>>;

    /// Lets go of the events, inputs, files, variables and errors of runs, of any
    /// tenant, that ended at or before a moment; answers how many. What names them
    /// stays.
    async fn expire_runs(&self, ended_by: Millis, now: Millis, limit: usize) -> Result<u64>;

    /// Does the same for the ended runs of a tenant that were made before a moment, and
    /// for what repeats them; answers how many, or would where it is a dry run.
    async fn erase_runs(
        &self,
        tenant: &Tenant,
        before: Millis,
        now: Millis,
        dry_run: bool,
    ) -> Result<u64>;

    /// Lets go of runs, of any tenant, whose content was let go at or before a moment,
    /// name and all; answers how many.
    async fn purge_runs(&self, expired_by: Millis, limit: usize) -> Result<u64>;

    // Schedules

    /// Keeps a schedule. One more than a tenant may have of those that are still to
    /// come is [`StoreError::TooManySchedules`]; of those that are over as many are kept,
    /// the last. Its claim is kept in the same step, and one that is taken is
    /// [`StoreError::ClaimTaken`].
    async fn put_schedule(&self, scope: &Scope, schedule: NewSchedule) -> Result<ScheduleRecord>;

    /// A schedule of a tenant by id.
    async fn schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>>;

    /// Schedules of a tenant, or of one memory of it, oldest first.
    async fn schedules(&self, tenant: &Tenant, memory: Option<&str>)
    -> Result<Vec<ScheduleRecord>>;

    /// Removes a schedule and its ticks; false if there is none.
    async fn remove_schedule(&self, tenant: &Tenant, id: &str) -> Result<bool>;

    /// Lets a schedule rest: it is not due until it goes on. A tick that runs runs on.
    async fn pause_schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>>;

    /// Lets a schedule go on, as if every instant up to a moment was handled. One that
    /// does not rest stays as it is. Its failures are forgotten.
    async fn resume_schedule(
        &self,
        tenant: &Tenant,
        id: &str,
        handled_through: Millis,
        next: Option<NextTick>,
    ) -> Result<Option<ScheduleRecord>>;

    /// Schedules, of any tenant, that do not rest and fire `now` or before, or were
    /// handled by a clock that was wrong: the first of each tenant, then their second.
    async fn due_schedules(&self, now: Millis, limit: usize) -> Result<Vec<ScheduleRecord>>;

    /// Records in one step what is missed and what is to run, and what comes next, if
    /// the schedule is as it was seen. An instant that has a tick already keeps it.
    /// While another tick of the schedule runs it is [`TickOutcome::Overlapped`], and
    /// too soon after a failure [`TickOutcome::BackedOff`].
    async fn claim_ticks(&self, tenant: &Tenant, id: &str, claim: TickClaim) -> Result<Claimed>;

    /// Gives a sign for a tick that runs; false if it is not the holder's any more. A
    /// sign at moment 0 gives it up, so that whoever comes next takes it over.
    async fn beat_tick(
        &self,
        tenant: &Tenant,
        id: &str,
        at: Millis,
        holder: &str,
        now: Millis,
    ) -> Result<bool>;

    /// Ends a tick that runs; false if it is not the holder's any more.
    async fn end_tick(&self, tenant: &Tenant, id: &str, at: Millis, end: TickEnd) -> Result<bool>;

    /// Takes over a tick, of any tenant, whose holder gave no sign since a moment, the
    /// longest dead first. Those of a schedule that rests wait until it goes on.
    async fn take_over_tick(
        &self,
        holder: &str,
        dead_since: Millis,
        now: Millis,
    ) -> Result<Option<TakenOver>>;

    /// Ticks of a schedule, newest first.
    async fn ticks(&self, tenant: &Tenant, id: &str, limit: usize) -> Result<Vec<TickRecord>>;

    /// Deletes ticks, of any tenant, that ended at or before a moment, and schedules
    /// that are over and have none left; answers how many.
    async fn purge_ticks(&self, ended_by: Millis, limit: usize) -> Result<u64>;

    /// Deletes ticks that ended, of any schedule that has more than `most`: its oldest,
    /// so many in all at most; answers how many.
    async fn trim_ticks(&self, most: u64, limit: usize) -> Result<u64>;

    // Commitments

    /// Keeps a commitment and logs `commitment.made`, its intention put in the same
    /// step where that is a new entry. An intention that is not in force is
    /// [`StoreError::NoIntention`], one too many [`StoreError::TooManyCommitments`] or
    /// [`StoreError::TooManyTenantCommitments`].
    /// Its claim is kept in the same step, and one that is taken is
    /// [`StoreError::ClaimTaken`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    async fn put_commitment(
        &self,
        scope: &Scope,
        commitment: NewCommitment,
    ) -> Result<CommitmentRecord>;

    /// A commitment of a tenant by id. With its intention's erasure it is gone; with its
    /// intention's purge it is void.
    async fn commitment(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>>;

    /// Commitments of a tenant, newest first. Rows that are damaged are passed over,
    /// here and wherever several are read.
    async fn commitments(
        &self,
        tenant: &Tenant,
        query: &CommitmentQuery,
    ) -> Result<Vec<CommitmentRecord>>;

    /// Commitments, of any tenant, that are pending and whose moment is `now` or past:
    /// the first of each tenant by moment, then their second.
    async fn due_commitments(&self, now: Millis, limit: usize) -> Result<Vec<CommitmentRecord>>;

    /// Memories in which an entry has begun that was not compared with what pending
    /// commitments of theirs wait for. Of each tenant it is one, the one furthest
    /// behind that is not among `except`; the tenants as they came, those after
    /// `after` alone.
    async fn waiting_memories(
        &self,
        after: Option<&Tenant>,
        except: &[Scope],
        limit: usize,
    ) -> Result<Vec<Scope>>;

    /// What a memory's commitments wait for, as of one moment.
    async fn watch(&self, scope: &Scope) -> Result<Watch>;

    /// Fires what is fulfilled, as [`Store::fire_commitment`] does, and notes how far
    /// entries of the memory were looked at, in one step. Answers what fired.
    async fn look_through(&self, scope: &Scope, look: &Look) -> Result<Vec<Fired>>;

    /// Fires a commitment that is pending and logs `commitment.fired` with ids alone;
    /// `because` is the entry that fulfilled it. Nothing is answered, and nothing
    /// logged, when it is not pending; or when its intention is not there any more
    /// (ended or expired, not merely stood for by another): then it is void.
    async fn fire_commitment(
        &self,
        tenant: &Tenant,
        id: &str,
        because: Option<&str>,
        now: Millis,
    ) -> Result<Option<Fired>>;

    /// Calls off a commitment that is pending and logs `commitment.cancelled`; false
    /// if there is none.
    async fn cancel_commitment(&self, tenant: &Tenant, id: &str, now: Millis) -> Result<bool>;

    /// Deletes commitments, of any tenant, that were settled at or before a moment;
    /// answers how many.
    async fn purge_commitments(&self, settled_by: Millis, limit: usize) -> Result<u64>;

    // Workspace files

    /// Writes the next version of a file, the first of a path that has none, and
    /// logs `workspace.updated` with the path and the version alone. What is beyond
    /// `versions_kept` goes, oldest first. Where the last version is not the one
    /// expected it is [`StoreError::FileConflict`]; a path too many is
    /// [`StoreError::TooManyFiles`]. Its claim is kept in the same step, and one that
    /// is taken is [`StoreError::ClaimTaken`], whatever the file is like. As with an
    /// append, it may be [`StoreError::SecretsChanged`].
    async fn put_file(&self, workspace: &Workspace, file: NewFile) -> Result<FileRecord>;

    /// A version of a file that is kept, or its last; nothing of a path that has
    /// none or was deleted.
    async fn file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>>;

    /// The last version of every file whose path begins with `prefix`, by path.
    async fn files(&self, workspace: &Workspace, prefix: &str) -> Result<Vec<FileHead>>;

    /// Deletes a file with all its versions and logs `workspace.updated` with the
    /// version that would have been next; false if there is none. What is not as
    /// expected is [`StoreError::FileConflict`]. A file that is written at this path
    /// afterwards begins at version 1.
    async fn delete_file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        expect: Expect,
        now: Millis,
    ) -> Result<bool>;

    // Log

    /// Events of a tenant (and memory) after a position, in order.
    async fn events(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        after: Position,
        limit: usize,
    ) -> Result<Vec<EventRecord>>;

    /// The tenant's last position.
    async fn head(&self, tenant: &Tenant) -> Result<Position>;

    /// What has gone of a tenant. Whoever kept something that it read may show it
    /// again as long as this is the same, asked for with the same `after`, which is
    /// the head before it was read. It changes with every erasure, rewriting and
    /// purge, with every entry that is deleted or expires, and with every body that
    /// retention lets go; not with what is added.
    async fn erasures(&self, tenant: &Tenant, after: Position, now: Millis) -> Result<Erasures>;

    // Keys and retries

    /// Stores the hash of an API key, and says so in its tenant's log
    /// (`key.created`). An id or a hash that is there already is an error.
    async fn put_api_key(&self, key: ApiKeyRecord, hash: [u8; 32], by: KeyActor) -> Result<()>;

    /// The key with that hash, also one that expired or was revoked.
    async fn api_key(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>>;

    /// The keys of a tenant or of all, by tenant and oldest first; also those that
    /// expired or were revoked.
    async fn api_keys(&self, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>>;

    /// Takes a key back (`key.revoked`) and answers it as it is then; nothing if
    /// there is none of that id, or none of the tenant that was named. A key that
    /// is revoked stays as it was, and nothing is logged again. The last valid
    /// admin key of a tenant is [`StoreError::LastAdminKey`], where that is asked.
    async fn revoke_api_key(&self, revocation: KeyRevocation) -> Result<Option<ApiKeyRecord>>;

    /// Puts a new key in the place of one that is valid (`key.rotated`): same
    /// tenant, role and name, made for as long. The old one ends at once or after
    /// the overlap, in the same step. One that ended is [`StoreError::KeyEnded`];
    /// nothing is answered for one that is not there, as with a revocation.
    async fn rotate_api_key(&self, rotation: KeyRotation) -> Result<Option<RotatedKey>>;

    /// The final outcome of an earlier request under a caller's key.
    async fn outcome(
        &self,
        tenant: &Tenant,
        operation: &str,
        key: &str,
        now: Millis,
    ) -> Result<Option<StoredOutcome>>;

    /// Keeps the outcome of a request that wrote nothing else. Only callers' keys are
    /// kept here: what the host does once must not share their names.
    async fn put_outcome(&self, tenant: &Tenant, outcome: NewOutcome, now: Millis) -> Result<()>;

    /// Deletes the outcomes of all tenants that are no longer answered; answers how
    /// many there were.
    async fn purge_outcomes(&self, now: Millis) -> Result<u64>;

    // Leases

    /// Takes a lease until a moment, or renews it: nothing is answered while another's is
    /// not past. It has a number that rises whenever the holder changes, and stays the same
    /// for a holder that renews, also late, as long as nobody took it meanwhile. One that
    /// seems to be for longer than an hour was taken by a clock that was wrong, and is
    /// nobody's.
    async fn lease(
        &self,
        name: &str,
        holder: &str,
        until: Millis,
        now: Millis,
    ) -> Result<Option<Fence>>;

    /// Gives a lease back, and its number is good for nothing from then on; of one that
    /// is another's meanwhile, nothing.
    async fn release(&self, fence: &Fence) -> Result<()>;

    /// This store for whoever holds a lease: every write compares the number in its own
    /// step, and is [`StoreError::LeaseLost`], with nothing done, once it is another's.
    /// That the lease is past is no loss as long as nobody took it. Leases themselves,
    /// [`Store::tidy`] and [`Store::scrub`] go as without.
    fn fenced(&self, fence: Fence) -> Arc<dyn Store>;

    // Looking after it

    /// What is there, of one memory or of a tenant.
    async fn stats(&self, tenant: &Tenant, memory: Option<&str>, now: Millis)
    -> Result<StoreStats>;

    /// The memories of a tenant, by the names that are stored.
    async fn scopes(&self, tenant: &Tenant) -> Result<Vec<Scope>>;

    /// All tenants.
    async fn tenants(&self) -> Result<Vec<Tenant>>;

    /// Looks for broken invariants; an empty list is a clean bill.
    async fn check(&self) -> Result<Vec<String>>;

    /// What each tenant may keep from now on, as far as this handle adds to it; a store
    /// is opened without bounds. A write that a client asked for and that would go beyond
    /// is [`StoreError::BoundReached`]: turns, entries, files and intentions. What we
    /// derive ourselves counts and is not refused, and what takes away never is.
    fn set_bounds(&self, bounds: Bounds);

    /// What a tenant keeps, and what it used on a day: in days since 1970, in UTC.
    async fn tenant_usage(&self, tenant: &Tenant, day: i64) -> Result<Usage>;

    /// The same of all tenants together.
    async fn all_usage(&self, day: i64) -> Result<AllUsage>;

    /// Adds to what a tenant used on a day, and answers the sum. [`Store::spend`] adds
    /// the tokens of models by itself.
    async fn count_use(&self, tenant: &Tenant, day: i64, more: DayUse) -> Result<DayUse>;

    /// Counts anew what every tenant keeps, and answers for how many it was wrong.
    async fn recount_usage(&self) -> Result<u64>;

    /// Remembers a small setting of the store itself.
    async fn put_note(&self, name: &str, value: &str) -> Result<()>;

    /// As [`Store::put_note`], if there is none of that name. Answers the one that is
    /// there then: of many who note something at once, all get the same.
    async fn note_once(&self, name: &str, value: &str) -> Result<String>;

    /// Reads it.
    async fn note(&self, name: &str) -> Result<Option<String>>;

    /// Gives space back, and empties side files where that keeps nobody waiting;
    /// answers whether it did.
    async fn tidy(&self) -> Result<bool>;

    /// Nothing that was deleted is left in any file afterwards, or it is an
    /// error. Waits for readers, then answers [`StoreError::StillRead`].
    ///
    /// Takes time with the size of the store, during which writes wait. SQLite
    /// holds a copy of the database in memory meanwhile: a temporary file might
    /// be on another file system, and leave there what is to be erased here.
    async fn scrub(&self) -> Result<()>;

    /// Its rows, where they can be moved as they are: backed up, restored, copied to
    /// another store. A store that keeps nothing has none.
    fn tables(&self) -> Option<&dyn Tables> {
        None
    }

    /// How long its work took so far, in this process. Costs nothing to ask. The
    /// counts only grow; a store that keeps none answers with none.
    fn timings(&self) -> StoreTimings {
        StoreTimings::default()
    }
}

/// A tenant's registered secrets, opened. Wiped when dropped, never shown.
#[derive(Debug, Clone)]
pub struct TenantSecrets {
    /// Of which version they are; see [`Store::secrets_version`].
    pub version: u64,
    /// The tenant's key for tags.
    pub tag_key: TagKey,
    /// All values by name, older ones first.
    pub secrets: Vec<Secret>,
}

/// What came of a new master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// Tenants whose keys were sealed anew.
    pub tenants: u64,
    /// Where the new key lies; none if only the one who gave it has it.
    pub key_file: Option<std::path::PathBuf>,
}

/// A registered secret without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRecord {
    /// Its name.
    pub name: SecretName,
    /// How many values it has had that are still hidden.
    pub values: u32,
    /// When the first of them was added.
    pub created_at: Millis,
    /// When the last of them was added.
    pub updated_at: Millis,
}

/// What a caller may write into the log by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// An erasure is done.
    Forgotten,
    /// What was stored has been redacted again.
    Rescanned,
    /// A key was shown that may not do what was asked.
    Denied,
    /// A backup was restored.
    Restored,
}

impl LogKind {
    /// The event's kind.
    pub fn as_str(self) -> &'static str {
        match self {
            LogKind::Forgotten => "memory.forgotten",
            LogKind::Rescanned => "memory.rescanned",
            LogKind::Denied => "auth.denied",
            LogKind::Restored => "memory.restored",
        }
    }
}

/// An event's payload, with what was hidden if anything was.
pub(crate) fn payload_with(mut payload: serde_json::Value, hidden: &Hidden) -> String {
    if !hidden.is_empty() {
        payload["redacted"] = serde_json::json!(hidden);
    }
    payload.to_string()
}

/// Whether what is called `name` would tell `value` by its marker.
pub(crate) fn tells(name: &SecretName, value: &str) -> bool {
    format!("[REDACTED:{name}]").contains(value)
}

/// What an append is that follows a message which its session does not have.
pub(crate) fn no_earlier_message(session: &SessionName) -> StoreError {
    let (parent, session) = ("the message before", session.as_str().to_owned());
    StoreError::NoParent { index: 0, parent: parent.to_owned(), session }
}

/// A turn ready to be stored. What a client sent is not: this does not compile,
///
/// ```compile_fail,E0308
/// # fn with(other: icecore_store::NewTurn) {
/// use icecore_domain::turn::RawTurn;
/// let turn = icecore_store::NewTurn { turn: RawTurn::new("user", "hello"), ..other };
/// # }
/// ```
///
/// and what a redactor made of it is:
///
/// ```
/// # fn with(other: icecore_store::NewTurn) {
/// use icecore_domain::{redact::Redactor, turn::RawTurn};
/// let turn = Redactor::standard().turn(RawTurn::new("user", "hello"));
/// let turn = icecore_store::NewTurn { turn, ..other };
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct NewTurn {
    /// Its fields.
    pub turn: RedactedTurn,
    /// From its raw body.
    pub identity: TurnIdentity,
    /// Keyed hash of its raw `name`, by which a subject is found.
    pub speaker: Option<[u8; 16]>,
    /// Lookups of its raw `parentIds`.
    pub parents: Vec<ParentRef>,
    /// Tokens of its searchable text.
    pub tokens: u32,
    /// Its own timestamp, or the time of the append.
    pub at: Millis,
    /// For a turn without id: it is the nth with this body, counted by the
    /// caller. 0: it is a new turn whatever is there.
    pub occurrence: u32,
    /// Whether its line named the session.
    pub session_given: bool,
    /// What was hidden in it.
    pub hidden: Hidden,
    /// By what it is known in a client's history.
    pub link: Option<Link>,
    /// Whether it is an answer that went through us; of turns with a link.
    pub is_answer: bool,
    /// Whether it stands without words for a message that was forgotten; of turns with a
    /// link.
    pub is_hollow: bool,
}

/// A parent as named by a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentRef {
    /// How an error names it.
    pub shown: String,
    /// If it is a client's id.
    pub lookup: i64,
    /// If it is one of ours.
    pub ours: Option<TurnId>,
}

/// Turns for one session.
pub struct AppendBatch {
    /// Which.
    pub session: SessionName,
    /// What.
    pub turns: Vec<NewTurn>,
    /// What the first turn with a link follows; without, that begins a tree.
    pub after: Option<Link>,
    /// Adds turns even if they were forgotten.
    pub insist: bool,
    /// Sizes for the next macro.
    pub policy: CutPolicy,
    /// The time of the append.
    pub now: Millis,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim>,
    /// The version of the tenant's secrets with which name and turns were redacted.
    pub secrets_seen: u64,
}

/// A caller's `Idempotency-Key`, kept together with the effect, which is a `T`.
pub struct Claim<T = Appended> {
    /// Which routed operation.
    pub operation: String,
    /// The caller's key.
    pub key: String,
    /// Hash of the request's body.
    pub request: [u8; 32],
    /// Makes the answer's body from what was written.
    pub render: Arc<dyn Fn(&T) -> String + Send + Sync>,
}

impl<T> Claim<T> {
    /// The outcome to keep once the effect is known.
    pub(crate) fn outcome(&self, effect: &T) -> NewOutcome {
        NewOutcome {
            operation: self.operation.clone(),
            key: self.key.clone(),
            request: self.request,
            status: 201,
            body: (self.render)(effect),
        }
    }
}

impl<T> Clone for Claim<T> {
    fn clone(&self) -> Self {
        Self {
            operation: self.operation.clone(),
            key: self.key.clone(),
            request: self.request,
            render: Arc::clone(&self.render),
        }
    }
}

impl<T> std::fmt::Debug for Claim<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("operation", &self.operation).finish_non_exhaustive()
    }
}

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Added,
    /// It was there.
    Known,
    /// It was there, was erased, and stays so.
    Forgotten,
}

/// The answer to an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The session's number; 0 when an empty batch was for a session that is not.
    pub session: SessionNo,
    /// For each turn of the batch, in order.
    pub turns: Vec<AppendedTurn>,
    /// The last position given.
    pub position: Position,
}

/// One turn of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedTurn {
    /// What became of it.
    pub outcome: Outcome,
    /// Where it is.
    pub seq: Seq,
    /// On which branch.
    pub branch: Branch,
    /// Which of the branch's own turns it is.
    pub ordinal: Ordinal,
}

/// What memory puts before a message.
#[derive(Debug, Clone)]
pub struct NewRecalled {
    /// The session that holds the message.
    pub session: SessionNo,
    /// The message.
    pub link: Link,
    /// The memory's epoch as it was before anything was read that it tells of.
    pub epoch: u64,
    /// What it says.
    pub text: RedactedText,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
}

/// Of one link, turns of so many sessions are answered.
pub const MOST_LINKED: usize = 64;

/// Where a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnPlace {
    /// Session and `seq`.
    pub id: TurnId,
    /// Which branch it belongs to.
    pub branch: Branch,
    /// Which of the branch's own turns it is.
    pub ordinal: Ordinal,
    /// Whether it is there.
    pub state: TurnState,
}

/// A turn that was found by its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkedTurn {
    /// The link.
    pub link: Link,
    /// Where the turn is.
    pub place: TurnPlace,
    /// Whether it is the last of its branch.
    pub is_head: bool,
    /// Whether an answer of [`NewTurn::is_answer`] stands there or before, on this path or
    /// on another of the same messages.
    pub is_answered: bool,
    /// Whether it has no words, because they were forgotten elsewhere.
    pub is_hollow: bool,
}

/// A session as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub no: SessionNo,
    /// Its name; gone if it was forgotten.
    pub name: Option<SessionName>,
    /// Turns that are there.
    pub turns: u64,
    /// Their tokens.
    pub tokens: u64,
    /// The last `seq` given.
    pub last_seq: Seq,
    /// When it was last appended to.
    pub updated_at: Millis,
    /// The branch of the last turn, which the next continues.
    pub current: Branch,
    /// Its branches, main first.
    pub branches: Vec<BranchRecord>,
}

/// A branch and how far its layers have been derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchRecord {
    /// Which.
    pub branch: Branch,
    /// Where it forked off: the parent branch and the last turn shared.
    pub fork: Option<(Branch, Ordinal)>,
    /// Its end: what is open there.
    pub tail: OpenTail,
    /// The last turn's `seq`.
    pub head_seq: Seq,
    /// Micros ending here or before are warm or cold.
    pub warm_through: Ordinal,
    /// Micros ending here or before are cold.
    pub cold_through: Ordinal,
    /// Chunks of each level (micro, mini, macro) ending here or before have
    /// their summaries, or had nothing to summarise.
    pub summarized_through: [Ordinal; 3],
    /// Rises with every change.
    pub version: u64,
}

/// Which turns to read.
#[derive(Debug, Clone, Copy)]
pub struct TurnQuery {
    /// Of which session.
    pub session: SessionNo,
    /// Only of this branch's own turns.
    pub branch: Option<Branch>,
    /// Exclusive.
    pub after: Seq,
    /// Inclusive.
    pub through: Seq,
    /// Only what was there at this position.
    pub as_of: Option<Position>,
    /// The newest of them instead of the oldest; the answer is in order anyway.
    pub newest: bool,
    /// At most so many.
    pub limit: usize,
    /// No further ones, in the order they are looked for, once those found have so
    /// many bytes in their rows.
    pub bytes: usize,
}

impl TurnQuery {
    /// All turns of a session, up to `limit`.
    pub fn all(session: SessionNo, limit: usize) -> Self {
        Self {
            session,
            branch: None,
            after: Seq(0),
            through: Seq(u64::MAX >> 1),
            as_of: None,
            newest: false,
            limit,
            bytes: usize::MAX,
        }
    }

    /// Whether the rows so far, which have so many bytes, are all it wants; counts
    /// this one to them.
    pub(crate) fn is_full(&self, so_far: &mut usize, row: &TurnRow) -> bool {
        let full = *so_far >= self.bytes;
        *so_far = so_far.saturating_add(row.byte_count());
        full
    }
}

impl TurnRow {
    /// Where it is in its session.
    pub fn place(&self) -> (SessionNo, Branch, Ordinal) {
        (self.id.session, self.branch, self.ordinal)
    }

    /// Whether its body is elsewhere than in its row.
    pub fn lacks_body(&self) -> bool {
        self.body.is_none() && self.state == TurnState::Present
    }

    /// Bytes of the body in its row.
    pub fn byte_count(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.fields().byte_count())
    }
}

/// How a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    /// It is there.
    Present,
    /// A tombstone: forgotten on request.
    Erased,
    /// Its body was let go by retention.
    Expired,
}

/// A turn's row, with its body while that is hot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Session and `seq`.
    pub id: TurnId,
    /// In the tenant's log.
    pub position: Position,
    /// Which branch it belongs to.
    pub branch: Branch,
    /// Which of the branch's own turns it is.
    pub ordinal: Ordinal,
    /// Tokens of its searchable text.
    pub tokens: u32,
    /// Its own timestamp, or the time of the append.
    pub at: Millis,
    /// Identity of the raw body.
    pub identity: TurnIdentity,
    /// Whether the client gave an id.
    pub has_client_id: bool,
    /// Whether its line named the session.
    pub session_given: bool,
    /// Whether it is there.
    pub state: TurnState,
    /// Its fields, if they are in its row.
    pub body: Option<RedactedTurn>,
}

/// Where a scope stands: what an index compares itself with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeHead {
    /// Where it last got a turn, or an entry that has not been erased.
    pub position: Position,
    /// The last number given to a summary.
    pub summaries: u64,
    /// The last number given to a fact.
    pub facts: u64,
    /// Where the last verdict was put that has not been erased.
    pub verdicts: Position,
    /// Rises when anything is erased.
    pub epoch: u64,
}

/// Which chunks to read.
#[derive(Debug, Clone, Copy)]
pub struct ChunkQuery {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// Of which level.
    pub level: Level,
    /// Only chunks that begin at or after this ordinal.
    pub from: Ordinal,
    /// Only chunks that end at or before this ordinal.
    pub through: Ordinal,
    /// The newest of them instead of the oldest; the answer is in order anyway.
    pub newest: bool,
    /// At most so many.
    pub limit: usize,
}

impl ChunkQuery {
    /// All chunks of one level of a branch, up to `limit`.
    pub fn all(session: SessionNo, branch: Branch, level: Level, limit: usize) -> Self {
        let (from, through) = (Ordinal(0), Ordinal(u64::MAX >> 1));
        Self { session, branch, level, from, through, newest: false, limit }
    }
}

/// A chunk: its cut, and what was derived for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Its identity.
    pub id: ChunkId,
    /// `seq` of its first turn.
    pub first_seq: Seq,
    /// `seq` of its last turn.
    pub last_seq: Seq,
    /// The time of its first turn that is there.
    pub first_at: Millis,
    /// The time of its last turn that is there.
    pub last_at: Millis,
    /// Tokens of its turns that are there.
    pub tokens: u64,
    /// Turns of it that are there.
    pub turns: u64,
    /// Rises when erasure changes its body.
    pub revision: u32,
    /// What stands for it, once derived.
    pub summary: Option<RedactedSummary>,
}

/// The form of a body that is text in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// CTF 2.
    Ctf,
    /// Turn JSONL.
    Jsonl,
}

/// A body of a micro as text, made from turns that the store gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextBody {
    /// How to read it.
    pub format: TextFormat,
    /// The text.
    pub text: RedactedText,
}

/// Where a micro's body is.
#[derive(Debug, Clone)]
pub struct MicroBody {
    /// Which micro.
    pub id: ChunkId,
    /// Its revision.
    pub revision: u32,
    /// `seq` of its first turn.
    pub first_seq: Seq,
    /// `seq` of its last turn.
    pub last_seq: Seq,
    /// Where.
    pub place: BodyPlace,
}

/// The one place of a body.
#[derive(Debug, Clone)]
pub enum BodyPlace {
    /// In the turns' rows, also when all of them are tombstones.
    Rows,
    /// In the store, as text.
    Text(TextBody),
    /// In a pack, as the member of this micro.
    Pack(PackRecord),
    /// Let go by retention, or nothing of it is left.
    Gone,
}

/// A branch with work due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueBranch {
    /// Whose.
    pub scope: Scope,
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
}

/// Micros that leave the hot tier, oldest first, without a gap.
#[derive(Debug, Clone)]
pub struct WarmDemotion {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// The watermark as the caller saw it.
    pub seen_through: Ordinal,
    /// The micros, with the revision that was read, and their text (none where
    /// every turn of it was erased).
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
}

/// A macro whose micros leave the warm tier.
#[derive(Debug, Clone)]
pub struct ColdDemotion {
    /// Which macro.
    pub id: ChunkId,
    /// The watermark as the caller saw it.
    pub seen_through: Ordinal,
    /// Its micros with the revisions that were read.
    pub micros: Vec<(ChunkId, u32)>,
    /// Where the body goes.
    pub body: ColdBody,
    /// When.
    pub now: Millis,
}

/// Where a cold body goes.
#[derive(Debug, Clone)]
pub enum ColdBody {
    /// Into this pack, already written and read back.
    Pack(NewPack),
    /// It stays as text in the store.
    StaysText,
    /// Nowhere: nothing is left of it, or it is not to be kept. What is left
    /// expires, as with [`Store::expire_pack`].
    Dropped,
}

/// A pack that was written.
#[derive(Debug, Clone)]
pub struct NewPack {
    /// Its random name.
    pub name: String,
    /// Its own key.
    pub key: PackKey,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of the object as it lies there.
    pub sha256: [u8; 32],
}

/// A pack as recorded.
#[derive(Debug, Clone)]
pub struct PackRecord {
    /// Whose.
    pub scope: Scope,
    /// The macro whose bodies it holds.
    pub id: ChunkId,
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: PackKey,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of the object as it lies there.
    pub sha256: [u8; 32],
    /// When it was written.
    pub created_at: Millis,
}

/// Summaries of one level of one branch.
#[derive(Debug, Clone)]
pub struct SummaryBatch {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Which level.
    pub level: Level,
    /// The watermark as the caller saw it.
    pub seen_through: Ordinal,
    /// The new watermark.
    pub through: Ordinal,
    /// The chunks, with the revision that was read.
    pub summaries: Vec<(ChunkId, u32, RedactedSummary)>,
    /// The version of the tenant's secrets that they were redacted with.
    pub secrets_seen: u64,
}

/// Facts drawn from turns.
#[derive(Debug, Clone)]
pub struct FactBatch {
    /// The watermark as the caller saw it.
    pub seen_through: Position,
    /// The new watermark.
    pub through: Position,
    /// The facts.
    pub facts: Vec<NewFact>,
    /// The version of the tenant's secrets that they were redacted with.
    pub secrets_seen: u64,
}

/// A fact to record.
#[derive(Debug, Clone)]
pub struct NewFact {
    /// What it says.
    pub fact: RedactedFact,
    /// The turn that it quotes.
    pub source: TurnId,
    /// That turn's time.
    pub at: Millis,
    /// Now.
    pub recorded_at: Millis,
}

/// A fact as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRecord {
    /// Which of the scope's facts it is.
    pub number: u64,
    /// What it says.
    pub fact: RedactedFact,
    /// The turn that it quotes.
    pub source: TurnId,
    /// That turn's time.
    pub at: Millis,
    /// When it was drawn.
    pub recorded_at: Millis,
}

/// A verdict to record.
#[derive(Debug, Clone)]
pub struct NewVerdict {
    /// On what.
    pub fact: RedactedFact,
    /// What a person thinks of it.
    pub verdict: Verdict,
    /// The turn that the fact quotes, with which the verdict goes; none if the
    /// person told it.
    pub source: Option<TurnId>,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which the fact was redacted.
    pub secrets_seen: u64,
    /// What was hidden in it.
    pub hidden: Hidden,
}

/// A verdict as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictRecord {
    /// On what.
    pub fact: RedactedFact,
    /// What a person thinks of it.
    pub verdict: Verdict,
    /// The turn that the fact quotes.
    pub source: Option<TurnId>,
    /// When it was said.
    pub at: Millis,
    /// Where in the log.
    pub position: Position,
}

/// What to erase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// A whole session.
    Session(SessionName),
    /// Turns by the keyed hash of their `name`; entries by the tag `subject:NAME`;
    /// facts and verdicts by their subject, normalised as in their keys.
    Subject {
        /// Hash of the name as identities are hashed.
        hash: [u8; 16],
        /// The tag that an entry would have, redacted.
        tag: RedactedText,
    },
    /// Turns, entries, facts and verdicts whose own time is before this.
    Before(Millis),
    /// One entry; or, by a fact's id, all that say it.
    Entry(String),
}

impl Selector {
    /// The subject as facts and verdicts have it, if there is one.
    pub(crate) fn subject(&self) -> Option<String> {
        let Selector::Subject { tag, .. } = self else { return None };
        let name = tag.as_str().strip_prefix("subject:")?;
        Some(normalise(name)).filter(|name| !name.is_empty())
    }
}

/// Turns of one session that are to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Whose.
    pub scope: Scope,
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// The turns, in order.
    pub turns: Vec<(Seq, Ordinal)>,
    /// Whether that is the whole session, name and all.
    pub whole_session: bool,
}

/// An erasure in one branch of a session.
#[derive(Debug, Clone)]
pub struct Erasure {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Which turns.
    pub seqs: Vec<Seq>,
    /// Ranges of ordinals of which nothing is left afterwards.
    pub emptied: Vec<(Ordinal, Ordinal)>,
    /// Also forget the session's name, if no turn of it is left.
    pub forget_name: bool,
    /// Micros that hold any of them, with revision as read and, for those whose
    /// body is text, the text without them.
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
    /// Macros whose pack held any of them: the old pack's name and the new pack,
    /// if anything is left.
    pub packs: Vec<(ChunkId, String, Option<NewPack>)>,
    /// When.
    pub now: Millis,
}

impl Erasure {
    /// Whether every turn of the range goes, as far as the caller knows.
    pub fn covers(&self, first: Ordinal, last: Ordinal) -> bool {
        self.seen().covers(first, last)
    }

    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen {
            session: self.session,
            branch: self.branch,
            seqs: self.seqs.clone(),
            micros: &self.micros,
            packs: self.packs.iter().map(|(id, old, _)| (id, old.as_str())).collect(),
            emptied: &self.emptied,
        }
    }
}

/// Bodies of one branch of a session to be put anew.
#[derive(Debug, Clone)]
pub struct Rewrite {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Which turns, each once.
    pub turns: Vec<RewrittenTurn>,
    /// Micros that hold any of them, with revision as read and, for those whose
    /// body is text, the new text.
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
    /// Macros whose pack held any of them: the old pack's name and the new pack.
    pub packs: Vec<(ChunkId, String, NewPack)>,
    /// When.
    pub now: Millis,
}

/// A turn in which more is hidden than was.
#[derive(Debug, Clone)]
pub struct RewrittenTurn {
    /// Which.
    pub seq: Seq,
    /// Tokens of its searchable text now.
    pub tokens: u32,
    /// What is hidden now and was not; added to its counts.
    pub hidden: Hidden,
    /// Its fields, if they are in its row.
    pub body: Option<RedactedTurn>,
}

impl Rewrite {
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen {
            session: self.session,
            branch: self.branch,
            seqs: self.turns.iter().map(|turn| turn.seq).collect(),
            micros: &self.micros,
            packs: self.packs.iter().map(|(id, old, _)| (id, old.as_str())).collect(),
            emptied: &[],
        }
    }
}

/// What a change to bodies of one branch was put together from.
pub(crate) struct Seen<'a> {
    pub(crate) session: SessionNo,
    pub(crate) branch: Branch,
    /// The turns that change.
    pub(crate) seqs: Vec<Seq>,
    pub(crate) micros: &'a [(ChunkId, u32, Option<TextBody>)],
    /// The macros whose packs change, with the packs' names.
    pub(crate) packs: Vec<(&'a ChunkId, &'a str)>,
    /// Ranges of ordinals of which nothing is left afterwards.
    pub(crate) emptied: &'a [(Ordinal, Ordinal)],
}

impl Seen<'_> {
    /// Whether nothing of the range is left afterwards.
    pub(crate) fn covers(&self, first: Ordinal, last: Ordinal) -> bool {
        self.emptied.iter().any(|(from, to)| *from <= first && last <= *to)
    }
}

/// What [`Store::rewrite_told`] changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// Sessions with a new name.
    pub sessions: u64,
    /// Memories with a new name, by the old.
    pub memories: Vec<String>,
    /// Entries.
    pub entries: u64,
    /// Verdicts.
    pub verdicts: u64,
    /// Versions of files.
    pub files: u64,
    /// Runs, each with its events.
    pub runs: u64,
    /// Commitments.
    pub commitments: u64,
    /// Handoffs.
    pub handoffs: u64,
    /// Records of the log.
    pub events: u64,
    /// Names of API keys.
    pub keys: u64,
    /// Kept answers.
    pub outcomes: u64,
    /// Summaries, facts, and entries and handoffs made of others that were dropped.
    pub derived: u64,
    /// What was hidden in names, entries, verdicts, files and handoffs.
    pub hidden: Hidden,
    /// Where anything but runs, commitments, the log and kept answers changed, by the
    /// names of now.
    pub touched: Vec<Scope>,
}

/// An entry to put.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// Its id, where the caller chose one.
    pub id: Option<String>,
    /// What it says.
    pub content: RedactedText,
    /// Its tags.
    pub tags: Vec<RedactedText>,
    /// When it ends by itself.
    pub expires_at: Option<Millis>,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which its text was redacted.
    pub secrets_seen: u64,
    /// What was hidden in it.
    pub hidden: Hidden,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim<EntryRecord>>,
}

/// The id of an entry whose caller chose none. It tells neither the tenant nor how
/// much there is, and follows from where the entry began.
pub(crate) fn entry_id(key: &IdentityKey, began: Position) -> String {
    let hash = key.hash_name("entry", &began.to_string());
    format!("e-{}", hex::encode(&hash[..10]))
}

/// Which entries to read. Those that have expired are never among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryFilter {
    /// Only what was in force at this position: had begun and not ended, or had an
    /// entry stand for it that has expired.
    pub at: Option<Position>,
    /// Only what has this tag.
    pub tag: Option<RedactedText>,
    /// Ids of entries that are seen although they began after `at`.
    pub own: Vec<String>,
}

/// An entry as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    /// Its id.
    pub id: String,
    /// What it says.
    pub content: RedactedText,
    /// Its tags.
    pub tags: Vec<RedactedText>,
    /// When it was put.
    pub created_at: Millis,
    /// When it ends by itself.
    pub expires_at: Option<Millis>,
    /// Where it began.
    pub began: Position,
    /// Whether it was made of others.
    pub derived: bool,
    /// The entry that stands for it; then it is not in force.
    pub successor: Option<String>,
}

/// A record of the log as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its number.
    pub position: Position,
    /// When it was written.
    pub at: Millis,
    /// For example `turn.appended`.
    pub kind: String,
    /// Content-free JSON object.
    pub payload: String,
}

/// What has gone of a tenant; only good to be compared. See [`Store::erasures`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erasures {
    /// The sum of the epochs of its memories.
    pub epoch: u64,
    /// Records of the log that tell of something deleted or let go.
    pub ended: u64,
    /// Entries that have expired and are not purged.
    pub expired: u64,
}

/// Kinds of records that tell that something is not shown any more.
pub(crate) const ENDING: [&str; 2] = ["memory.deleted", "memory.expired"];

/// The outcome of a finished request, to be kept.
#[derive(Debug, Clone)]
pub struct NewOutcome {
    /// Which routed operation.
    pub operation: String,
    /// The caller's key.
    pub key: String,
    /// Hash of the request's body.
    pub request: [u8; 32],
    /// HTTP status.
    pub status: u16,
    /// The answer.
    pub body: String,
}

/// A kept outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutcome {
    /// Hash of the request's body.
    pub request: [u8; 32],
    /// HTTP status.
    pub status: u16,
    /// The answer.
    pub body: String,
}

/// Operations whose outcomes hold ids and counts alone.
const IDS_ONLY: [&str; 16] = [
    "/commitments",
    "/consolidate",
    "/turns",
    "/entries",
    "/facts",
    "/facts/confirm",
    "/facts/reject",
    "/forget",
    "/files",
    "/keys",
    "/keys/rotate",
    "/runs",
    "/schedules",
    "/schedules/pause",
    "/schedules/resume",
    "/fork",
];

/// Whether a kept outcome of the operation may quote what is erased later.
pub(crate) fn may_quote(operation: &str) -> bool {
    !IDS_ONLY.iter().any(|path| operation.ends_with(path))
}

/// Outcomes are kept this long.
pub const OUTCOME_KEPT_MILLIS: i64 = 24 * 3600 * 1000;

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Sessions with turns.
    pub sessions: u64,
    /// Branches of them.
    pub branches: u64,
    /// Turns that are there, the expired among them.
    pub turns: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Tombstones.
    pub erased: u64,
    /// Turns let go by retention.
    pub expired: u64,
    /// Turns by tier: hot (the open tail included), warm, cold (the expired
    /// included). They add up to `turns`, as tokens do.
    pub tier_turns: [u64; 3],
    /// Tokens by tier.
    pub tier_tokens: [u64; 3],
    /// Bytes of bodies by tier, as they are kept.
    pub tier_bytes: [u64; 3],
    /// Turns in open tails that are there.
    pub open_turns: u64,
    /// Chunks by level.
    pub chunks: [u64; 3],
    /// Summaries by level.
    pub summaries: [u64; 3],
    /// Bytes of summaries.
    pub summary_bytes: u64,
    /// Packs.
    pub packs: u64,
    /// Entries in force.
    pub entries: u64,
    /// Facts.
    pub facts: u64,
    /// Facts on which a person gave a verdict.
    pub verdicts: u64,
    /// The scope's epoch, or the sum of them.
    pub epoch: u64,
    /// Files of workspaces; a memory has none.
    pub files: u64,
    /// Secrets that were hidden in turns, entries, verdicts and kept versions of
    /// files that are there.
    pub hidden: Hidden,
}
