//! What can go wrong in a store, each with what to do about it.

mod database;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use icecore_domain::redact::MAX_SECRETS;
use std::path::PathBuf;

use icecore_domain::ids::{Position, Tenant, TurnId};
use icecore_domain::redact::SecretName;

pub use database::Error as DatabaseError;

/// What every operation answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An operation of the store that did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The id is known with another body.
    #[error("turn `{id}` is already stored in session `{session}` with another body")]
    Conflict {
        /// Its place in the batch.
        index: usize,
        /// The id.
        id: String,
        /// The session.
        session: String,
    },
    /// A parent that is not there.
    #[error("parent `{parent}` does not exist in session `{session}`")]
    NoParent {
        /// The turn's place in the batch.
        index: usize,
        /// The parent as named.
        parent: String,
        /// The session.
        session: String,
    },
    /// A turn that is its own ancestor.
    #[error("turn `{id}` is its own ancestor: its parents form a cycle")]
    Cycle {
        /// The turn's place in the batch.
        index: usize,
        /// The turn's id.
        id: String,
    },
    /// A parent that stands after its child.
    #[error("parent `{parent}` comes after its child in the same batch; put parents first")]
    ParentLater {
        /// The child's place in the batch.
        index: usize,
        /// The parent as named.
        parent: String,
    },
    /// An entry of that id is there.
    #[error("memory entry `{id}` is already there")]
    EntryExists {
        /// Its id.
        id: String,
    },
    /// A key whose tenant would be left without an admin.
    #[error("key `{id}` is the last valid admin key of its tenant")]
    LastAdminKey {
        /// Its id.
        id: String,
    },
    /// A key that is good for nothing any more.
    #[error("key `{id}` has expired or was revoked")]
    KeyEnded {
        /// Its id.
        id: String,
    },
    /// Entries of that time have been purged.
    #[error("entries can be read as of position {oldest} or later; what ended before was purged")]
    SnapshotGone {
        /// The oldest position that can still be read.
        oldest: Position,
    },
    /// A file is not what the caller expects it to be.
    #[error("the file is at version {current}, which is not what was expected")]
    FileConflict {
        /// Its last version; 0 where there is none.
        current: u64,
    },
    /// A workspace is full.
    #[error("a workspace has at most {most} files")]
    TooManyFiles {
        /// The most.
        most: u64,
    },
    /// A verdict on what quotes a turn that is not there.
    #[error("{turn}, which the fact quotes, is not there or was forgotten")]
    SourceGone {
        /// Which turn.
        turn: TurnId,
    },
    /// A secret of that name is registered.
    #[error("a secret `{name}` is registered already")]
    SecretExists {
        /// Its name.
        name: SecretName,
    },
    /// More values than a tenant may have.
    #[error("a tenant has at most {MAX_SECRETS} registered values")]
    TooManySecrets,
    /// A marker with that name would show a secret. Neither is told.
    #[error("the name of a secret would give away the value of a secret")]
    NameTells,
    /// A registered secret cannot be looked for.
    #[error("the sealed value of secret `{name}` does not open")]
    SecretUnreadable {
        /// Its name.
        name: String,
    },
    /// What is to be written was redacted with other secrets than those of now.
    #[error("a secret was added or removed while this was being written")]
    SecretsChanged,
    /// The caller's key was used at the same moment.
    #[error("this idempotency key has just been used by another request")]
    ClaimTaken,
    /// A run's id is taken.
    #[error("there is already a run `{id}`")]
    RunExists {
        /// Its id.
        id: String,
    },
    /// A run that would write where another tenant's memories are.
    #[error("a run writes into the memories of its own tenant alone")]
    OtherTenant,
    /// A commitment without an intention.
    #[error("there is no entry `{id}` in this memory to be committed to")]
    NoIntention {
        /// The entry's id.
        id: String,
    },
    /// What is written under a lease that another holds by now.
    #[error("another host has taken over `{name}`")]
    LeaseLost {
        /// The lease.
        name: String,
    },
    /// More runs than may be unfinished.
    #[error(
        "a tenant has at most {most} runs that have not ended (`runs_unfinished`); wait until one has, or cancel one"
    )]
    TooManyRuns {
        /// The most.
        most: u64,
    },
    /// More commitments than may be pending in a memory.
    #[error("a memory has at most {most} pending commitments (`commitments_pending`)")]
    TooManyCommitments {
        /// The most.
        most: u64,
    },
    /// More commitments than may be pending in all memories of a tenant.
    #[error("a tenant has at most {most} pending commitments (`commitments_pending_tenant`)")]
    TooManyTenantCommitments {
        /// The most.
        most: u64,
    },
    /// More schedules than a tenant may have.
    #[error("a tenant has at most {most} schedules (`schedules.per_tenant`)")]
    TooManySchedules {
        /// The most.
        most: u64,
    },
    /// A tenant that keeps as much as it may.
    #[error(
        "tenant `{tenant}` keeps {used} of {most} {bound} (`bounds.{bound}`), and this adds {more}"
    )]
    BoundReached {
        /// Whose.
        tenant: Tenant,
        /// Of what.
        bound: KeptBound,
        /// How much it may keep.
        most: u64,
        /// How much it keeps.
        used: u64,
        /// How much this would add.
        more: u64,
    },
    /// The store was written by a newer version.
    #[error("the store has schema version {found}, and this program knows up to {known}")]
    FromTheFuture {
        /// What is there.
        found: i64,
        /// What we know.
        known: i64,
    },
    /// Not our database.
    #[error("`{path}` is not an Icecore store")]
    NotAStore {
        /// Which file.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error("the store at `{path}` is damaged: {reason}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What the database says.
        reason: String,
    },
    /// Another process held the store too long.
    #[error("another process has been writing to the store for more than {seconds} s")]
    Busy {
        /// How long we waited.
        seconds: u64,
    },
    /// What was erased lies in a side file that others read.
    #[error("another process has been reading the store's side files for more than {seconds} s")]
    StillRead {
        /// How long we waited.
        seconds: u64,
    },
    /// No space left.
    #[error("the disk is full")]
    DiskFull,
    /// No space left where the database is, which may be another machine.
    #[error("the database at `{server}` has no room left: {reason}")]
    DatabaseFull {
        /// Where it is.
        server: String,
        /// What it says.
        reason: String,
    },
    /// No right to write.
    #[error("`{path}` cannot be written: it is read-only or belongs to another user")]
    ReadOnly {
        /// Which file or directory.
        path: PathBuf,
    },
    /// A directory that somebody else owns.
    #[error("the data directory `{path}` belongs to user {owner}, and this is user {user}")]
    ForeignOwner {
        /// Which.
        path: PathBuf,
        /// Its owner's id.
        owner: u32,
        /// Ours.
        user: u32,
    },
    /// A file system over the network, where locks cannot be trusted.
    #[error("the data directory `{path}` is on a network file system ({kind})")]
    NetworkFileSystem {
        /// Which.
        path: PathBuf,
        /// Which kind.
        kind: &'static str,
    },
    /// The master key's file is gone while sealed data exists.
    #[error("the master key `{path}` is missing, and the store was sealed with it")]
    NoMasterKey {
        /// Where it should be.
        path: PathBuf,
    },
    /// The master key does not fit.
    #[error("the master key from {origin} is not the one this store was sealed with")]
    WrongMasterKey {
        /// Where it came from.
        origin: String,
    },
    /// Somebody gave the store another master key meanwhile.
    #[error(
        "the store was given a new master key meanwhile, and the one from {origin} is the old one"
    )]
    MasterKeyReplaced {
        /// Where the old one came from.
        origin: String,
    },
    /// A key file that two stores have.
    #[error("a store in SQLite beside it may need the key in `{path}`, too")]
    SharedMasterKey {
        /// Which.
        path: PathBuf,
    },
    /// A store that several machines share, and no key for it.
    #[error("the database at `{server}` was sealed with a master key, and none was given")]
    MasterKeyNeeded {
        /// Where it is.
        server: String,
    },
    /// The master key cannot be read as one.
    #[error("the master key from {origin} is not 64 hexadecimal digits")]
    BadMasterKey {
        /// Where it came from.
        origin: String,
    },
    /// Somebody did not want to wait.
    #[error("interrupted")]
    Interrupted,
    /// A backup would take the place of a file.
    #[error("`{path}` is already there")]
    BackupExists {
        /// Which file.
        path: PathBuf,
    },
    /// There is nothing to back up.
    #[error("there is no {what} in this store")]
    NothingThere {
        /// What was asked for.
        what: String,
    },
    /// What is copied goes away again and again.
    #[error("the store changed {times} times while it was copied")]
    StillChanging {
        /// How often it was tried.
        times: u64,
    },
    /// A file that is no backup, or not a whole one.
    #[error("`{path}` is not a whole backup: {reason}")]
    BadBackup {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A backup that another version wrote.
    #[error("the backup `{path}` is from a newer version: {reason}")]
    BackupVersion {
        /// Which file.
        path: PathBuf,
        /// What is newer.
        reason: String,
    },
    /// None of the keys at hand sealed the backup.
    #[error("the backup `{path}` was sealed with another master key than those at hand")]
    WrongBackupKey {
        /// Which file.
        path: PathBuf,
    },
    /// Nothing is overwritten.
    #[error("{what} is not empty in this store")]
    NotEmpty {
        /// What is in the way.
        what: String,
    },
    /// A target that somebody uses.
    #[error("the target is not empty")]
    TargetNotEmpty,
    /// A number or an id of the backup is another's here.
    #[error("rows of `{table}` in the backup have numbers or ids that others have in this store")]
    Collides {
        /// The table.
        table: &'static str,
    },
    /// Something else happened at a position of the backup.
    #[error("tenant `{tenant}` has used positions of the backup for something else")]
    PositionsTaken {
        /// Whose log.
        tenant: String,
    },
    /// A store that is being filled from another.
    #[error("the store is being filled from {from}, and that has not ended")]
    HalfMoved {
        /// What it is filled from.
        from: String,
    },
    /// A target that another source has begun to fill.
    #[error("the target is being filled from {from}, and that has not ended")]
    OtherMigration {
        /// What it is filled from.
        from: String,
    },
    /// Another process goes on with the same migration.
    #[error("another process has taken this migration over")]
    TakenOver,
    /// What was read back is not what was written.
    #[error("`{table}` of tenant `{tenant}` is not the same in the target as in the source")]
    NotTheSame {
        /// The table.
        table: &'static str,
        /// Whose rows.
        tenant: String,
    },
    /// A memory that was sealed with another tenant's key.
    #[error("tenant `{tenant}` has another key in this store than in the backup")]
    OtherTenantKey {
        /// Which tenant.
        tenant: String,
    },
    /// A pack is not where it should be.
    #[error("pack `{name}` is missing")]
    PackMissing {
        /// Its name.
        name: String,
    },
    /// A pack does not hold what was written.
    #[error("pack `{name}` is damaged: {reason}")]
    PackDamaged {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A body in the store does not decode.
    #[error("the body of {chunk} is damaged: {reason}")]
    BodyDamaged {
        /// Which chunk.
        chunk: String,
        /// What is wrong.
        reason: String,
    },
    /// A file operation failed.
    #[error("cannot {action} `{path}`")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The object store failed.
    #[error("cannot {action} pack `{name}`")]
    Objects {
        /// What was tried.
        action: &'static str,
        /// On what.
        name: String,
        /// Why not.
        source: object_store::Error,
    },
    /// Objects are to lie where they cannot.
    #[error("`{url}` is no place for objects: {reason}")]
    ObjectsUrl {
        /// As it was given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// Nobody said who we are to the object storage.
    #[error("there are no credentials for the object storage `{place}`")]
    NoObjectKeys {
        /// Which.
        place: String,
    },
    /// The object storage cannot be reached, or did not answer in time.
    #[error("cannot {action} pack `{name}`: the object storage `{place}` does not answer")]
    ObjectsGone {
        /// What was tried.
        action: &'static str,
        /// On what.
        name: String,
        /// Where.
        place: String,
        /// Why not.
        source: Box<object_store::Error>,
    },
    /// The object storage does not want us.
    #[error("cannot {action} pack `{name}`: the object storage `{place}` refuses it")]
    ObjectsForbidden {
        /// What was tried.
        action: &'static str,
        /// On what.
        name: String,
        /// Where.
        place: String,
        /// Why not.
        source: Box<object_store::Error>,
    },
    /// The object storage answers with errors.
    #[error("cannot {action} pack `{name}`: the object storage `{place}` fails")]
    ObjectsFailing {
        /// What was tried.
        action: &'static str,
        /// On what.
        name: String,
        /// Where.
        place: String,
        /// Why not.
        source: Box<object_store::Error>,
    },
    /// There is nothing to put objects into.
    #[error("there is no bucket for `{place}`")]
    NoBucket {
        /// Where.
        place: String,
        /// The server's words.
        source: Box<object_store::Error>,
    },
    /// The objects of another store.
    #[error("the objects in `{place}` are those of another store")]
    ForeignObjects {
        /// Where.
        place: String,
    },
    /// The database failed in a way not named above.
    #[error("the database failed")]
    Database(#[from] DatabaseError),
    /// The address of a database that cannot be used as one.
    #[error("the store's URL cannot be used: {reason}")]
    BadStoreUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// A database that cannot be reached, or does not let us through for now.
    #[error("the database at `{server}` is not available: {reason}")]
    Unavailable {
        /// Where it is.
        server: String,
        /// What was seen last.
        reason: String,
    },
    /// A database that does not take us as we are.
    #[error("the database at `{server}` refused: {reason}")]
    DatabaseRefused {
        /// Where it is.
        server: String,
        /// What it says.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The roles that keep tenants apart are not there, and we may not make them.
    #[error(
        "the database at `{server}` has no roles for Icecore, and user `{user}` may not make them"
    )]
    NoRoles {
        /// Where it is.
        server: String,
        /// Who we are.
        user: String,
        /// What an administrator runs.
        sql: String,
    },
    /// A server that lacks what we need.
    #[error(
        "the database at `{server}` is PostgreSQL {found}, and {needed} is the oldest that will do"
    )]
    OldDatabase {
        /// Where it is.
        server: String,
        /// Its major version.
        found: u32,
        /// The oldest that will do.
        needed: u32,
    },
    /// All connections were in use.
    #[error(
        "all {connections} connections to the database (`postgres.connections`) were in use for {seconds} s (`postgres.wait_seconds`)"
    )]
    NoConnection {
        /// How many there may be.
        connections: u32,
        /// How long we waited.
        seconds: u64,
    },
    /// A statement that took too long.
    #[error(
        "a statement took longer than {seconds} s (`postgres.statement_seconds`) in the database at `{server}`"
    )]
    StatementTooSlow {
        /// Where it is.
        server: String,
        /// How long it may take.
        seconds: u64,
    },
    /// PostgreSQL failed in a way not named above.
    #[error("the database at `{server}` failed: {reason} (SQLSTATE {code})")]
    Postgres {
        /// Where it is.
        server: String,
        /// Its code for what happened.
        code: String,
        /// What it says.
        reason: String,
    },
    /// A commit that several writes shared did not work.
    #[error("the commit failed: {0}")]
    Commit(String),
    /// A fault that a test asked for.
    #[error("injected fault at write {0}")]
    Injected(u64),
    /// The code of an operation panicked; its transaction was rolled back.
    #[error("`{op}` failed inside the store; nothing was written")]
    Panicked {
        /// The operation.
        op: &'static str,
    },
    /// The store has been closed.
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
            SecretUnreadable { .. } => {
                "restore the store from a backup, or remove the secret and add it again; nothing is written until then".into()
            }
            SecretsChanged => "run it again; nothing was written".into(),
            TooManySchedules { .. } => "remove one that is not needed any more".into(),
            BoundReached { bound, .. } => format!(
                "forget what is not needed any more, or have `bounds.{bound}` raised; nothing was written, and reading, `forget` and `export` go on"
            ),
            FromTheFuture { .. } => "use the newer icecore that wrote it; nothing was changed".into(),
            NotAStore { .. } => "choose another directory with --data".into(),
            Damaged { .. } => "stop all icecore processes, keep a copy of the directory, run `icecore check`, and restore from a backup what it names".into(),
            Busy { .. } => "wait for the other process to finish, or stop it".into(),
            StillRead { .. } => "it is erased, but the side files may still hold it; stop the other process and run it again".into(),
            BadStoreUrl { .. } => "write it as `postgres://user:password@host:port/database`".into(),
            Unavailable { .. } => {
                "check that the server runs and can be reached, then try again; what was acknowledged is safe, and a retry with the same ids adds nothing twice".into()
            }
            DatabaseRefused { remedy, .. } => (*remedy).to_owned(),
            NoRoles { sql, .. } => format!("let an administrator of the database run: {sql}"),
            OldDatabase { .. } => "use a newer server; nothing was changed".into(),
            NoConnection { .. } => "try again; or raise the limit, if the server allows more connections".into(),
            StatementTooSlow { .. } => "try again when the database has less to do, or raise the limit".into(),
            DiskFull => "free some space and run the command again; what was acknowledged is safe".into(),
            DatabaseFull { .. } => {
                "free some space on the database's disk, then try again; nothing needs a restart, what was acknowledged is safe, and a retry with the same ids adds nothing twice".into()
            }
            ReadOnly { path } | ForeignOwner { path, .. } => {
                format!("run as the owner of `{}`, or choose another directory with --data", path.display())
            }
            NetworkFileSystem { .. } => "use a local directory, or PostgreSQL for more than one machine".into(),
            NoMasterKey { path } => format!(
                "put the file back at `{}` from your backup, or set ICECORE_MASTER_KEY; nothing was changed",
                path.display()
            ),
            WrongMasterKey { .. } => {
                "use the key that belongs to this store: the newest if it was rotated, from the file or ICECORE_MASTER_KEY or your backup; nothing was changed".into()
            }
            MasterKeyReplaced { .. } => {
                "put the new key into ICECORE_MASTER_KEY or the key file, and start again; nothing was changed".into()
            }
            SharedMasterKey { .. } => {
                "move the key file to a directory of its own and name that with --data, or give the keys in ICECORE_MASTER_KEY and ICECORE_NEW_MASTER_KEY; nothing was changed".into()
            }
            MasterKeyNeeded { .. } => {
                "set ICECORE_MASTER_KEY to the key of the other hosts, or copy their `master.key` into the data directory".into()
            }
            BadMasterKey { .. } => {
                "use the key that belongs to this store, from your backup; nothing was changed".into()
            }
            Interrupted => "run it again; what was written is whole, or nothing was".into(),
            BackupExists { .. } => "choose another name, or remove it first; nothing was changed".into(),
            NothingThere { .. } => "`--tenant` and `--memory` choose; `--all` takes every tenant".into(),
            StillChanging { .. } => "run it again when less is erased or rewritten, or stop the hosts of the store".into(),
            BadBackup { .. } => "use another copy of it; nothing was changed".into(),
            BackupVersion { .. } => "use the newer icecore that wrote it; nothing was changed".into(),
            WrongBackupKey { .. } => {
                "name the file of the key that it was taken with by --key-file, or set ICECORE_MASTER_KEY; nothing was changed".into()
            }
            HalfMoved { .. } => "run `icecore migrate` again as before, and it goes on".into(),
            OtherMigration { .. } => "migrate from there to end it, or choose an empty target; nothing was changed".into(),
            TakenOver => "wait for it; only one fills a store".into(),
            TargetNotEmpty => "nothing is overwritten: name an empty directory or database with --to; nothing was changed".into(),
            NotEmpty { .. } => "nothing is overwritten: restore into another directory with --data, or into an empty database; nothing was changed".into(),
            Collides { .. } | PositionsTaken { .. } | OtherTenantKey { .. } => {
                "restore into another directory with --data, or into an empty database; nothing was changed".into()
            }
            ObjectsUrl { .. } => "mend the `[objects]` table; `docs/object-storage.md` shows what it can say".into(),
            NoObjectKeys { .. } => "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".into(),
            ObjectsGone { .. } => {
                "see that it runs and that `objects.endpoint` leads to it; nothing is lost, and what was to be done stays due".into()
            }
            ObjectsForbidden { .. } => {
                "see that the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may read, write, list and delete there, and that this machine's clock is right".into()
            }
            ObjectsFailing { .. } => {
                "see what its own log says; nothing is lost, and what was to be done stays due".into()
            }
            NoBucket { .. } => "create the bucket, or mend `objects.url`".into(),
            ForeignObjects { .. } => {
                "give each store a prefix of its own in `objects.url`; nothing was removed".into()
            }
            PackMissing { .. } | PackDamaged { .. } => {
                "restore the file from a backup; `icecore check` lists every damaged pack".into()
            }
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

/// Something that is bounded in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptBound {
    /// [`KeptBounds::turns`].
    Turns,
    /// [`KeptBounds::bytes`].
    Bytes,
}

impl KeptBound {
    /// The word for it, which is also the name of the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            KeptBound::Turns => "turns",
            KeptBound::Bytes => "bytes",
        }
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
