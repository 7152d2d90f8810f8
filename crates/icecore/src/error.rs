//! What can go wrong in a memory.

use icecore_domain::ids::{NameError, Position, Tenant};
use icecore_domain::redact::SecretError;
use icecore_domain::time::Millis;
use icecore_domain::turn::TurnError;
use icecore_index::IndexError;
use icecore_store::StoreError;

/// An operation that did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A turn that cannot be taken.
    #[error("turn {}: {source}", index + 1)]
    Turn {
        /// Its place in the batch, from 0.
        index: usize,
        /// Why.
        source: TurnError,
    },
    /// What was asked for has more bytes than the caller wants at once.
    #[error("this has more than {bytes} bytes")]
    TooMuch {
        /// The most that was wanted.
        bytes: usize,
    },
    /// No turns were given.
    #[error("no turns were given")]
    NoTurns,
    /// The session is not there.
    #[error("there is no session `{session}` in memory `{memory}`")]
    NoSession {
        /// Its name.
        session: String,
        /// Where it was looked for.
        memory: String,
    },
    /// The branch is not there.
    #[error("session `{session}` has no branch `{branch}`")]
    NoBranch {
        /// The session.
        session: String,
        /// The branch.
        branch: String,
    },
    /// Nothing has this id.
    #[error("nothing in memory `{memory}` has the id `{id}`")]
    NotFound {
        /// What was looked for.
        id: String,
        /// Where.
        memory: String,
    },
    /// A body was let go by retention.
    #[error(
        "the turns of {chunk} have expired: its body was let go by `cold_retention_days` or `archive_cold_content`"
    )]
    Expired {
        /// Which chunk.
        chunk: String,
    },
    /// A line of an import.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// A file to import cannot be read.
    #[error("cannot read `{file}`: {reason}")]
    File {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// Nothing was asked.
    #[error("the query is empty")]
    EmptyQuery,
    /// A number of hits that cannot be.
    #[error("`limit` must be from 1 to {most}, not {limit}")]
    HitLimit {
        /// What was asked for.
        limit: usize,
        /// The most.
        most: usize,
    },
    /// A search by meaning alone, without vectors.
    #[error("there are no vectors to search by: {reason}")]
    EmbedderUnavailable {
        /// Why.
        reason: String,
    },
    /// A fact that says nothing, or too much.
    #[error("a fact has 1 to {most} characters, not {chars}")]
    FactLength {
        /// What it has.
        chars: usize,
        /// The most.
        most: usize,
    },
    /// An entry or a question for entries that cannot be.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The index failed. It is derived: `reindex` makes it anew.
    #[error("the index failed: {0}")]
    Index(#[from] IndexError),
    /// A secret that cannot be registered.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// No secret is registered under a name.
    #[error("no secret is called `{name}`")]
    NoSecret {
        /// The name.
        name: String,
    },
    /// Derived text could not be redacted, so nothing was written.
    #[error("compaction_redaction_failed: {reason}; nothing was written")]
    CompactionRedactionFailed {
        /// Why; without the text.
        reason: String,
    },
    /// Entries were put together again and again, and each time one had gone meanwhile.
    #[error("the entries of this memory change too fast to be put together; nothing was written")]
    EntriesChanged,
    /// What must stay of a session does not fit the window; nothing was sent or written.
    #[error("{0}")]
    RequestExceedsWindow(icecore_domain::handoff::ExceedsWindow),
    /// A window that is none.
    #[error("a window of {window} tokens with {reserve} kept free for the answer leaves no room")]
    NoWindow {
        /// The window.
        window: u64,
        /// What is kept free.
        reserve: u64,
    },
    /// A session of which nothing can be distilled.
    #[error("session `{session}` has nothing to compact: all of it is what must stay")]
    NothingToCompact {
        /// The session.
        session: String,
    },
    /// Turns came, or somebody else compacted, each time that it was tried.
    #[error("session `{session}` changed while it was compacted; nothing was written, try again")]
    SessionChanged {
        /// The session.
        session: String,
    },
    /// A session that has no handoff.
    #[error("session `{session}` has no handoff: compact it first")]
    NoHandoff {
        /// The session.
        session: String,
    },
    /// A correction of a handoff that other branches have too.
    #[error("the handoff of session `{session}` is of branch `{branch}`: correct it there")]
    HandoffElsewhere {
        /// The session.
        session: String,
        /// The branch that it was made on.
        branch: String,
    },
    /// A correction that has no room.
    #[error("a handoff here may have {most} tokens, and this has {tokens}")]
    HandoffTooLong {
        /// What it has.
        tokens: u64,
        /// The most.
        most: u64,
    },
    /// A model did not answer.
    #[error(transparent)]
    Chat(#[from] icecore_domain::chat::ChatError),
    /// What models may cost today is spent.
    #[error("models may use {limit} {unit} a day, and that is used up until tomorrow")]
    ModelBudget {
        /// The limit.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// A tenant that has had all it may use on a day.
    #[error(
        "tenant `{tenant}` has used {used} of {most} {unit} today (`{setting}`), and this takes {more}"
    )]
    DayBoundReached {
        /// Whose.
        tenant: Tenant,
        /// Of what: requests or tokens.
        unit: &'static str,
        /// The setting that says how much.
        setting: &'static str,
        /// How much it may use.
        most: u64,
        /// How much it has used, by all that this host knows.
        used: u64,
        /// How much this would take.
        more: u64,
        /// When the next day begins.
        ends_at: Millis,
        /// How long that is from now.
        wait_millis: u64,
    },
    /// A dream whose budget covers too little; nothing was written.
    #[error(
        "a budget of {budget} tokens covers too little of what is due in memory `{memory}`: it takes at least {minimum}{}",
        beyond(*minimum, *most)
    )]
    TokenBudgetExceeded {
        /// The memory.
        memory: String,
        /// What was given.
        budget: u64,
        /// The smallest budget that would do.
        minimum: u64,
        /// The most that any dream may have.
        most: u64,
    },
    /// A budget that is none.
    #[error("a dream's budget is at least 1 token, not {budget}")]
    NoBudget {
        /// What was given.
        budget: i64,
    },
    /// A memory with nothing to dream of.
    #[error("memory `{memory}` holds nothing to distil: give it turns or entries first")]
    NothingToDream {
        /// The memory.
        memory: String,
    },
    /// Another dream of the memory is under way.
    #[error("a dream of memory `{memory}` is under way; try again when it has ended")]
    DreamUnderWay {
        /// The memory.
        memory: String,
    },
    /// A dream over chosen entries where another one is in force.
    #[error(
        "memory `{memory}` has a dream in force: undo dream `{run}` first, since a dream over chosen entries begins a chain of its own"
    )]
    DreamInForce {
        /// The memory.
        memory: String,
        /// The run of the dream in force.
        run: String,
    },
    /// A dream over what the last dream wrote.
    #[error(
        "entry `{id}` is what the dream in force in memory `{memory}` came to: name what it was made of instead"
    )]
    OwnOutput {
        /// The entry.
        id: String,
        /// The memory.
        memory: String,
    },
    /// No dream of that run.
    #[error("there is no dream `{run}`")]
    NoDream {
        /// The run.
        run: String,
    },
    /// A dream that cannot be taken back.
    #[error("dream `{run}` cannot be undone: {reason}")]
    NotUndone {
        /// The run.
        run: String,
        /// Why, and what to do.
        reason: String,
    },
    /// No archive of that address.
    #[error("there is no archive `{checksum}`")]
    NoArchive {
        /// The address.
        checksum: String,
    },
    /// An archive whose body is gone for good.
    #[error("archive `{checksum}` is gone: {reason}")]
    ArchiveGone {
        /// The address.
        checksum: String,
        /// Whether it was erased, taken back or past its retention.
        reason: &'static str,
    },
    /// An archive whose bytes are not those of its address.
    #[error("archive `{checksum}` is damaged: {reason}")]
    ArchiveDamaged {
        /// The address.
        checksum: String,
        /// What is wrong.
        reason: String,
    },
    /// An archive that holds what is a secret now.
    #[error(
        "archive `{checksum}` holds what has been registered as a secret since; `icecore redact --rescan` distils it anew"
    )]
    ArchiveTells {
        /// The address.
        checksum: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A task of ours ended badly.
    #[error("an internal task failed: {0}")]
    Internal(String),
}

impl MemoryError {
    /// The code under which it is recorded and told; what has none of its own is an
    /// `internal_error`.
    pub fn code(&self) -> &'static str {
        match self {
            MemoryError::TokenBudgetExceeded { .. } => "token_budget_exceeded",
            MemoryError::CompactionRedactionFailed { .. } => "compaction_redaction_failed",
            MemoryError::EntriesChanged => "entries_changed",
            MemoryError::NothingToDream { .. } => "nothing_to_distill",
            MemoryError::DreamUnderWay { .. } => "dream_under_way",
            MemoryError::NotUndone { .. } => "dream_not_undone",
            MemoryError::ArchiveGone { .. } => "archive_gone",
            MemoryError::ArchiveDamaged { .. } => "archive_damaged",
            MemoryError::ArchiveTells { .. } => "archive_holds_secret",
            MemoryError::EmbedderUnavailable { .. } => "embedder_unavailable",
            MemoryError::DayBoundReached { .. } => "bound_reached",
            MemoryError::Store(error) => match error {
                StoreError::DiskFull | StoreError::DatabaseFull { .. } => "disk_full",
                StoreError::Busy { .. } => "store_busy",
                StoreError::SecretsChanged => "secrets_changed",
                StoreError::PackMissing { .. }
                | StoreError::PackDamaged { .. }
                | StoreError::BodyDamaged { .. } => "data_damaged",
                StoreError::TooManyRuns { .. } => "too_many_runs",
                StoreError::BoundReached { .. } => "bound_reached",
                error if error.is_out_of_reach() => "objects_unavailable",
                error if error.is_database_away() => "store_unavailable",
                _ => "internal_error",
            },
            _ => "internal_error",
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            MemoryError::NoSession { .. } => Some("`icecore sessions` lists what is there".to_owned()),
            MemoryError::NoBranch { .. } => {
                Some("branches are named main, fork-1, fork-2 and so on; `icecore sessions --json` lists them".to_owned())
            }
            MemoryError::NotFound { id, .. } if id.starts_with("fact-") => {
                Some("`icecore learn list --all` shows the ids of facts".to_owned())
            }
            MemoryError::NotFound { .. } => {
                Some("`icecore export --all` shows the ids of turns, `icecore context --explain` those of chunks".to_owned())
            }
            MemoryError::Turn { source: TurnError::ContentTooLarge { .. }, .. } => {
                Some("split it into several turns, or keep the text in a file and name that".to_owned())
            }
            MemoryError::Line { .. } => Some("nothing of this file was imported; mend the line and run it again".to_owned()),
            MemoryError::File { .. } => {
                Some("name files of turn JSONL, plain or as .gz or .zst, that this user can read".to_owned())
            }
            MemoryError::Name(_) => {
                Some("a name has 1 to 512 bytes and no control characters; that of a memory is no path".to_owned())
            }
            MemoryError::EmptyQuery => Some("say in words what is looked for".to_owned()),
            MemoryError::EmbedderUnavailable { .. } => {
                Some("search with `--mode lexical`, or by both with `--mode hybrid`".to_owned())
            }
            MemoryError::Secret(SecretError::TooShort { .. }) => {
                Some("a short value would be hidden within ordinary words; change it for a longer one".to_owned())
            }
            MemoryError::Secret(SecretError::TooLong { .. }) => {
                Some("register the part of the file that is secret, such as its private key".to_owned())
            }
            MemoryError::Secret(SecretError::BadName) => {
                Some("say in a word or two what it is for, like `prod-db`".to_owned())
            }
            MemoryError::Secret(SecretError::NameTells { .. }) => {
                Some("choose a name that says what the secret is for; nothing was changed".to_owned())
            }
            MemoryError::Secret(SecretError::InMarker) => {
                Some("it could not be told from what stands in its place; change it for another".to_owned())
            }
            MemoryError::NoSecret { .. } => Some("`icecore secret list` shows what there is".to_owned()),
            MemoryError::CompactionRedactionFailed { .. } => {
                Some("it is tried again by itself; `icecore check` tells whether secrets can be read".to_owned())
            }
            MemoryError::TokenBudgetExceeded { minimum, most, .. } if minimum > most => Some(
                "raise `dreams.max_token_budget` or lower `dreams.min_coverage_percent`; nothing was written".to_owned()
            ),
            MemoryError::TokenBudgetExceeded { minimum, .. } => Some(format!(
                "`icecore dream --budget {minimum}` is the least; nothing was written"
            )),
            MemoryError::NothingToDream { .. } => {
                Some("`icecore import` and `icecore add` put turns in; `icecore sessions` lists what is there".to_owned())
            }
            MemoryError::NoDream { .. } | MemoryError::NotUndone { .. } => {
                Some("`icecore archive list` shows the dreams by their archives, newest first".to_owned())
            }
            MemoryError::NoArchive { .. } | MemoryError::ArchiveGone { .. } => {
                Some("`icecore archive list` shows what there is".to_owned())
            }
            MemoryError::ArchiveDamaged { .. } => {
                Some("restore its file from a backup, or take its dream back with `icecore dream undo`; `icecore archive verify` says which others are whole".to_owned())
            }
            MemoryError::RequestExceedsWindow(_) => Some(
                "nothing was sent or written; name a larger window, unpin turns, or shorten the system prompt or the request".to_owned()
            ),
            MemoryError::NoWindow { .. } => {
                Some("`sessions.window` and `sessions.reserve`, or `--window` and `--reserve`, say what a request may have".to_owned())
            }
            MemoryError::NothingToCompact { .. } => {
                Some("`icecore view --view api` shows what a model is sent".to_owned())
            }
            MemoryError::SessionChanged { .. } => {
                Some("`icecore compact` shows the handoff as it is now".to_owned())
            }
            MemoryError::NoHandoff { .. } => Some("`icecore compact --session S` makes one".to_owned()),
            MemoryError::HandoffElsewhere { .. } => {
                Some("or compact this branch, and correct the handoff that it has then".to_owned())
            }
            MemoryError::HandoffTooLong { .. } => Some("shorten it; nothing was changed".to_owned()),
            MemoryError::ModelBudget { .. } => {
                Some("`models.tokens_a_day` and `models.money_a_day` are the limits; `icecore stats` shows what was spent".to_owned())
            }
            MemoryError::DayBoundReached { setting, most, more, .. } if more > most => Some(format!(
                "it is more than a whole day's: give it in parts, or have `{setting}` raised; nothing was written"
            )),
            MemoryError::DayBoundReached { setting, ends_at, .. } => Some(format!(
                "try again after {ends_at}, or have `{setting}` raised; nothing was written"
            )),
            MemoryError::EntriesChanged => Some("try again when fewer are deleted".to_owned()),
            MemoryError::Index(_) => {
                Some("it is derived from the turns; `icecore reindex` makes it anew".to_owned())
            }
            MemoryError::Store(error) => error.hint(),
            _ => None,
        }
    }

    /// Whether the user, not we, can set it right.
    pub fn is_refusal(&self) -> bool {
        match self {
            MemoryError::Store(error) => error.is_refusal(),
            MemoryError::Internal(_)
            | MemoryError::CompactionRedactionFailed { .. }
            | MemoryError::ArchiveDamaged { .. } => false,
            _ => true,
        }
    }
}

/// Says that no budget will do.
fn beyond(minimum: u64, most: u64) -> String {
    match minimum > most {
        true => format!(
            ", more than the {most} of `dreams.max_token_budget`: raise that, or lower `dreams.min_coverage_percent`"
        ),
        false => String::new(),
    }
}

/// Derived text that could not be redacted.
pub(crate) fn not_redacted(why: impl std::fmt::Display) -> MemoryError {
    MemoryError::CompactionRedactionFailed { reason: why.to_string() }
}

pub(crate) type Result<T> = std::result::Result<T, MemoryError>;

/// Runs work that would hold up the async threads somewhere else.
pub async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    #[cfg(all(debug_assertions, feature = "testing"))]
    if icecore_store::testing::is_one_thread() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| MemoryError::Internal(error.to_string()))
}

/// Characters of a query that entries are ranked by.
pub const MAX_ENTRY_QUERY_CHARS: usize = 4_096;

/// An entry or a question for entries that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Too much content.
    #[error("field `content` has {bytes} bytes as UTF-8, and may have {most} (`entry_bytes`)")]
    ContentTooLarge {
        /// What it has.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
    /// Too many tags.
    #[error("field `tags` has {count} different tags, and may have {most} (`entry_tags`)")]
    TooManyTags {
        /// What it has.
        count: usize,
        /// What it may have.
        most: usize,
    },
    /// A tag of too many characters.
    #[error(
        "field `tags[{index}]` has {chars} characters, and may have {most} (`entry_tag_chars`)"
    )]
    TagTooLong {
        /// Which tag.
        index: usize,
        /// What it has.
        chars: usize,
        /// What it may have.
        most: usize,
    },
    /// It would be gone before it is there.
    #[error("field `expiresAt` is not in the future")]
    Expired,
    /// A tag to look for that no entry can have.
    #[error("parameter `tag` must have 1 to {most} characters (`entry_tag_chars`)")]
    BadTag {
        /// The most.
        most: usize,
    },
    /// A ranking by nothing, or by too much.
    #[error(
        "`rank=relevance` needs a parameter `query` of 1 to {MAX_ENTRY_QUERY_CHARS} characters"
    )]
    BadQuery,
    /// A position that the log has not reached.
    #[error("parameter `at` is {at}, and the log goes to {head}")]
    Ahead {
        /// What was asked for.
        at: Position,
        /// The last there is.
        head: Position,
    },
    /// A budget for nothing.
    #[error("parameter `tokenBudget` must be at least 1")]
    NoBudget,
}
