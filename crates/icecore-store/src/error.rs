//! What can go wrong in a store, each with what to do about it.

mod database;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use icecore_domain::redact::MAX_SECRETS;
use std::path::PathBuf;

use icecore_domain::ids::{Position, Tenant, TurnId};
use icecore_domain::redact::SecretName;

use crate::words::words;
pub use database::Error as DatabaseError;

/// What every operation answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An operation of the store that did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("turn `{id}` is already stored in session `{session}` with another body")]
    Conflict { index: usize, id: String, session: String },
    #[error("parent `{parent}` does not exist in session `{session}`")]
    NoParent { index: usize, parent: String, session: String },
    #[error("turn `{id}` is its own ancestor: its parents form a cycle")]
    Cycle { index: usize, id: String },
    #[error("parent `{parent}` comes after its child in the same batch; put parents first")]
    ParentLater { index: usize, parent: String },
    #[error("memory entry `{id}` is already there")]
    EntryExists { id: String },
    #[error("key `{id}` is the last valid admin key of its tenant")]
    LastAdminKey { id: String },
    #[error("key `{id}` has expired or was revoked")]
    KeyEnded { id: String },
    #[error("entries can be read as of position {oldest} or later; what ended before was purged")]
    SnapshotGone { oldest: Position },
    #[error("the file is at version {current}, which is not what was expected")]
    FileConflict { current: u64 },
    #[error("a workspace has at most {most} files")]
    TooManyFiles { most: u64 },
    #[error("{turn}, which the fact quotes, is not there or was forgotten")]
    SourceGone { turn: TurnId },
    #[error("a secret `{name}` is registered already")]
    SecretExists { name: SecretName },
    #[error("a tenant has at most {MAX_SECRETS} registered values")]
    TooManySecrets,
    #[error("the name of a secret would give away the value of a secret")]
    NameTells,
    #[error("the sealed value of secret `{name}` does not open")]
    SecretUnreadable { name: String },
    #[error("a secret was added or removed while this was being written")]
    SecretsChanged,
    #[error("this idempotency key has just been used by another request")]
    ClaimTaken,
    #[error("there is already a run `{id}`")]
    RunExists { id: String },
    #[error("a run writes into the memories of its own tenant alone")]
    OtherTenant,
    #[error("there is no entry `{id}` in this memory to be committed to")]
    NoIntention { id: String },
    #[error("another host has taken over `{name}`")]
    LeaseLost { name: String },
    #[error(
        "a tenant has at most {most} runs that have not ended (`runs_unfinished`); wait until one has, or cancel one"
    )]
    TooManyRuns { most: u64 },
    #[error("a memory has at most {most} pending commitments (`commitments_pending`)")]
    TooManyCommitments { most: u64 },
    #[error("a tenant has at most {most} pending commitments (`commitments_pending_tenant`)")]
    TooManyTenantCommitments { most: u64 },
    #[error("a tenant has at most {most} schedules (`schedules.per_tenant`)")]
    TooManySchedules { most: u64 },
    #[error(
        "tenant `{tenant}` keeps {used} of {most} {bound} (`bounds.{bound}`), and this adds {more}"
    )]
    BoundReached { tenant: Tenant, bound: KeptBound, most: u64, used: u64, more: u64 },
    #[error("the store has schema version {found}, and this program knows up to {known}")]
    FromTheFuture { found: i64, known: i64 },
    #[error("`{path}` is not an Icecore store")]
    NotAStore { path: PathBuf },
    #[error("the store at `{path}` is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error("another process has been writing to the store for more than {seconds} s")]
    Busy { seconds: u64 },
    #[error("another process has been reading the store's side files for more than {seconds} s")]
    StillRead { seconds: u64 },
    #[error("the disk is full")]
    DiskFull,
    #[error("the database at `{server}` has no room left: {reason}")]
    DatabaseFull { server: String, reason: String },
    #[error("`{path}` cannot be written: it is read-only or belongs to another user")]
    ReadOnly { path: PathBuf },
    #[error("the data directory `{path}` belongs to user {owner}, and this is user {user}")]
    ForeignOwner { path: PathBuf, owner: u32, user: u32 },
    #[error("the data directory `{path}` is on a network file system ({kind})")]
    NetworkFileSystem { path: PathBuf, kind: &'static str },
    #[error("the master key `{path}` is missing, and the store was sealed with it")]
    NoMasterKey { path: PathBuf },
    #[error("the master key from {origin} is not the one this store was sealed with")]
    WrongMasterKey { origin: String },
    #[error(
        "the store was given a new master key meanwhile, and the one from {origin} is the old one"
    )]
    MasterKeyReplaced { origin: String },
    #[error("a store in SQLite beside it may need the key in `{path}`, too")]
    SharedMasterKey { path: PathBuf },
    #[error("the database at `{server}` was sealed with a master key, and none was given")]
    MasterKeyNeeded { server: String },
    #[error("the master key from {origin} is not 64 hexadecimal digits")]
    BadMasterKey { origin: String },
    #[error("interrupted")]
    Interrupted,
    #[error("`{path}` is already there")]
    BackupExists { path: PathBuf },
    #[error("there is no {what} in this store")]
    NothingThere { what: String },
    #[error("the store changed {times} times while it was copied")]
    StillChanging { times: u64 },
    #[error("`{path}` is not a whole backup: {reason}")]
    BadBackup { path: PathBuf, reason: String },
    #[error("the backup `{path}` is from a newer version: {reason}")]
    BackupVersion { path: PathBuf, reason: String },
    #[error("the backup `{path}` was sealed with another master key than those at hand")]
    WrongBackupKey { path: PathBuf },
    #[error("{what} is not empty in this store")]
    NotEmpty { what: String },
    #[error("the target is not empty")]
    TargetNotEmpty,
    #[error("rows of `{table}` in the backup have numbers or ids that others have in this store")]
    Collides { table: &'static str },
    #[error("tenant `{tenant}` has used positions of the backup for something else")]
    PositionsTaken { tenant: String },
    #[error("the store is being filled from {from}, and that has not ended")]
    HalfMoved { from: String },
    #[error("the target is being filled from {from}, and that has not ended")]
    OtherMigration { from: String },
    #[error("another process has taken this migration over")]
    TakenOver,
    #[error("`{table}` of tenant `{tenant}` is not the same in the target as in the source")]
    NotTheSame { table: &'static str, tenant: String },
    #[error("tenant `{tenant}` has another key in this store than in the backup")]
    OtherTenantKey { tenant: String },
    #[error("pack `{name}` is missing")]
    PackMissing { name: String },
    #[error("pack `{name}` is damaged: {reason}")]
    PackDamaged { name: String, reason: String },
    #[error("the body of {chunk} is damaged: {reason}")]
    BodyDamaged { chunk: String, reason: String },
    #[error("cannot {action} `{path}`")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot {action} pack `{name}`")]
    Objects { action: &'static str, name: String, source: object_store::Error },
    #[error("`{url}` is no place for objects: {reason}")]
    ObjectsUrl { url: String, reason: String },
    #[error("there are no credentials for the object storage `{place}`")]
    NoObjectKeys { place: String },
    #[error("cannot {action} pack `{name}`: the object storage `{place}` does not answer")]
    ObjectsGone {
        action: &'static str,
        name: String,
        place: String,
        source: Box<object_store::Error>,
    },
    #[error("cannot {action} pack `{name}`: the object storage `{place}` refuses it")]
    ObjectsForbidden {
        action: &'static str,
        name: String,
        place: String,
        source: Box<object_store::Error>,
    },
    #[error("cannot {action} pack `{name}`: the object storage `{place}` fails")]
    ObjectsFailing {
        action: &'static str,
        name: String,
        place: String,
        source: Box<object_store::Error>,
    },
    #[error("there is no bucket for `{place}`")]
    NoBucket { place: String, source: Box<object_store::Error> },
    #[error("the objects in `{place}` are those of another store")]
    ForeignObjects { place: String },
    #[error("the database failed")]
    Database(#[from] DatabaseError),
    #[error("the store's URL cannot be used: {reason}")]
    BadStoreUrl { reason: String },
    #[error("the database at `{server}` is not available: {reason}")]
    Unavailable { server: String, reason: String },
    #[error("the database at `{server}` refused: {reason}")]
    DatabaseRefused { server: String, reason: String, remedy: &'static str },
    #[error(
        "the database at `{server}` has no roles for Icecore, and user `{user}` may not make them"
    )]
    NoRoles { server: String, user: String, sql: String },
    #[error(
        "the database at `{server}` is PostgreSQL {found}, and {needed} is the oldest that will do"
    )]
    OldDatabase { server: String, found: u32, needed: u32 },
    #[error(
        "all {connections} connections to the database (`postgres.connections`) were in use for {seconds} s (`postgres.wait_seconds`)"
    )]
    NoConnection { connections: u32, seconds: u64 },
    #[error(
        "a statement took longer than {seconds} s (`postgres.statement_seconds`) in the database at `{server}`"
    )]
    StatementTooSlow { server: String, seconds: u64 },
    #[error("the database at `{server}` failed: {reason} (SQLSTATE {code})")]
    Postgres { server: String, code: String, reason: String },
    #[error("the commit failed: {0}")]
    Commit(String),
    #[error("injected fault at write {0}")]
    Injected(u64),
    #[error("`{op}` failed inside the store; nothing was written")]
    Panicked { op: &'static str },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// What a person can do about it, where something can be done.
    pub fn hint(&self) -> Option<String> {
        use StoreError::*;
        Some(match self {
            Conflict { .. } => "give the changed turn a new id; a stored turn is never rewritten".into(),
            NoParent { .. } => "add the parent first, or leave `parentIds` out to continue the branch".into(),
            LastAdminKey { .. } => "make another admin key first".into(),
            KeyEnded { .. } => "make a new key instead".into(),
            SecretExists { .. } => "rotate it to add a newer value; the older ones stay hidden too".into(),
            TooManySecrets => "remove those that are out of use".into(),
            NameTells => "choose a name that says what the secret is for; nothing was changed".into(),
            SecretUnreadable { .. } => "restore the store from a backup, or remove the secret and add it again; nothing is written until then".into(),
            SecretsChanged => "run it again; nothing was written".into(),
            TooManySchedules { .. } => "remove one that is not needed any more".into(),
            BoundReached { bound, .. } => format!(
                "forget what is not needed any more, or have `bounds.{bound}` raised; nothing was written, and reading, `forget` and `export` go on"
            ),
            FromTheFuture { .. } | BackupVersion { .. } => "use the newer icecore that wrote it; nothing was changed".into(),
            NotAStore { .. } => "choose another directory".into(),
            Damaged { .. } => "stop all processes that use it, keep a copy, check it, and restore from a backup what is damaged".into(),
            Busy { .. } => "wait for the other process to finish, or stop it".into(),
            StillRead { .. } => "it is erased, but the side files may still hold it; stop the other process and run it again".into(),
            BadStoreUrl { .. } => "write it as `postgres://user:password@host:port/database`".into(),
            Unavailable { .. } => "check that the server runs and can be reached, then try again; what was acknowledged is safe, and a retry with the same ids adds nothing twice".into(),
            DatabaseRefused { remedy, .. } => (*remedy).to_owned(),
            NoRoles { sql, .. } => format!("let an administrator of the database run: {sql}"),
            OldDatabase { .. } => "use a newer server; nothing was changed".into(),
            NoConnection { .. } => "try again; or raise the limit, if the server allows more connections".into(),
            StatementTooSlow { .. } => "try again when the database has less to do, or raise the limit".into(),
            DiskFull => "free some space and run the command again; what was acknowledged is safe".into(),
            DatabaseFull { .. } => "free some space on the database's disk, then try again; nothing needs a restart, what was acknowledged is safe, and a retry with the same ids adds nothing twice".into(),
            ReadOnly { path } | ForeignOwner { path, .. } => {
                format!("run as the owner of `{}`, or choose another directory", path.display())
            }
            NetworkFileSystem { .. } => "use a local directory, or PostgreSQL for more than one machine".into(),
            NoMasterKey { path } => format!(
                "put the file back at `{}` from your backup, or set ICECORE_MASTER_KEY; nothing was changed",
                path.display()
            ),
            WrongMasterKey { .. } => "use the key that belongs to this store: the newest if it was rotated, from the file or ICECORE_MASTER_KEY or your backup; nothing was changed".into(),
            MasterKeyReplaced { .. } => "put the new key into ICECORE_MASTER_KEY or the key file, and start again; nothing was changed".into(),
            SharedMasterKey { .. } => "move the key file to a directory of its own, or give both keys in the environment; nothing was changed".into(),
            MasterKeyNeeded { .. } => "set ICECORE_MASTER_KEY to the key of the other hosts, or copy their `master.key` into the data directory".into(),
            BadMasterKey { .. } => "use the key that belongs to this store, from your backup; nothing was changed".into(),
            Interrupted => "run it again; what was written is whole, or nothing was".into(),
            BackupExists { .. } => "choose another name, or remove it first; nothing was changed".into(),
            NothingThere { .. } => "choose another tenant or memory, or take all of them".into(),
            StillChanging { .. } => "run it again when less is erased or rewritten, or stop the hosts of the store".into(),
            BadBackup { .. } => "use another copy of it; nothing was changed".into(),
            WrongBackupKey { .. } => "give the key that it was taken with; nothing was changed".into(),
            HalfMoved { .. } => "run the same migration again, and it goes on".into(),
            OtherMigration { .. } => "migrate from there to end it, or choose an empty target; nothing was changed".into(),
            TakenOver => "wait for it; only one fills a store".into(),
            TargetNotEmpty => "nothing is overwritten: name an empty directory or database; nothing was changed".into(),
            NotEmpty { .. } => "nothing is overwritten: restore into another directory or an empty database; nothing was changed".into(),
            Collides { .. } | PositionsTaken { .. } | OtherTenantKey { .. } => "restore into another directory or an empty database; nothing was changed".into(),
            ObjectsUrl { .. } => "mend the `[objects]` table; `docs/object-storage.md` shows what it can say".into(),
            NoObjectKeys { .. } => "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".into(),
            ObjectsGone { .. } => "see that it runs and that `objects.endpoint` leads to it; nothing is lost, and what was to be done stays due".into(),
            ObjectsForbidden { .. } => "see that the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may read, write, list and delete there, and that this machine's clock is right".into(),
            ObjectsFailing { .. } => "see what its own log says; nothing is lost, and what was to be done stays due".into(),
            NoBucket { .. } => "create the bucket, or mend `objects.url`".into(),
            ForeignObjects { .. } => "give each store a prefix of its own in `objects.url`; nothing was removed".into(),
            PackMissing { .. } | PackDamaged { .. } => "restore the file from a backup; a check of the store lists every damaged pack".into(),
            _ => return None,
        })
    }

    /// Whether a body is not what was written, as opposed to a store that fails.
    pub fn is_damage(&self) -> bool {
        use StoreError::{BodyDamaged, PackDamaged, PackMissing};
        matches!(self, PackMissing { .. } | PackDamaged { .. } | BodyDamaged { .. })
    }

    /// Whether objects are out of reach now and may come back by themselves, or by a hand.
    pub fn is_out_of_reach(&self) -> bool {
        use StoreError::{NoBucket, ObjectsFailing, ObjectsForbidden, ObjectsGone};
        matches!(
            self,
            ObjectsGone { .. } | ObjectsForbidden { .. } | ObjectsFailing { .. } | NoBucket { .. }
        )
    }

    /// Whether the database is out of reach now, or too slow, and may come back by itself.
    pub fn is_database_away(&self) -> bool {
        use StoreError::{NoConnection, StatementTooSlow, Unavailable};
        matches!(self, Unavailable { .. } | NoConnection { .. } | StatementTooSlow { .. })
    }

    /// Whether the user, not we, can set it right.
    pub fn is_refusal(&self) -> bool {
        self.hint().is_some()
            || matches!(
                self,
                StoreError::Cycle { .. }
                    | StoreError::ParentLater { .. }
                    | StoreError::FileConflict { .. }
                    | StoreError::TooManyFiles { .. }
                    | StoreError::SourceGone { .. }
            )
    }
}

words! {
    /// A bound of a tenant; its word is also the name of the setting.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum KeptBound {
        Turns = "turns",
        Bytes = "bytes",
    }
}

impl std::fmt::Display for KeptBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        StoreError::Database(error.into())
    }
}

#[cfg(feature = "postgres")]
impl From<postgres::PgError> for StoreError {
    fn from(error: postgres::PgError) -> Self {
        StoreError::Database(error.into())
    }
}
