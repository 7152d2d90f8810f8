//! What can be typed. Types without behaviour.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::lifetime;

/// Layered memory for AI agents: every turn kept, a context within a budget,
/// each token traced to its source.
#[derive(Debug, Parser)]
#[command(name = "icecore", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "Example:\n  icecore demo                       see what it does, in a throw-away store\n  icecore import chat.jsonl          put a conversation in\n  icecore search \"when do we leave\"  find the turns that matter\n  icecore context --budget 2000      get the context for a prompt out"
)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that stand before or after the command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Where the memory lies [env: ICECORE_DATA] [default: the platform's data directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The store, as sqlite:DIR or postgres://… [env: ICECORE_STORE] [default: SQLite in the data directory]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// The settings file [env: ICECORE_CONFIG] [default: icecore/config.toml in the platform's
    /// config directory, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Whose memory [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Which memory of the tenant [default: default]
    #[arg(long, global = true, value_name = "REF")]
    pub memory: Option<String>,
    /// Print JSON: one document, or one a line where a command streams
    #[arg(long, global = true)]
    pub json: bool,
    /// Say nothing but results and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// How logs are written to stderr; ICECORE_LOG says how much, like warn or info
    /// [env: ICECORE_LOG_FORMAT] [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// No colour [env: NO_COLOR]
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// See the main job end to end in a throw-away store: offline, under a minute
    #[command(after_help = "Example:\n  icecore demo")]
    Demo,
    /// Add one turn, or turn JSONL from standard input
    #[command(
        after_help = "Examples:\n  icecore add --session trip \"We leave on 4 May.\"\n  echo '{\"role\":\"assistant\",\"content\":\"Noted.\"}' | icecore add --session trip"
    )]
    Add(AddArgs),
    /// Put conversations in; running it twice adds nothing twice
    #[command(
        after_help = "Examples:\n  icecore import chat.jsonl\n  icecore import old/*.jsonl.gz --session archive"
    )]
    Import(ImportArgs),
    /// Get turn JSONL out; `import` of it gives the same memory
    #[command(after_help = "Example:\n  icecore export --session trip > trip.jsonl")]
    Export(ExportArgs),
    /// Build the context for a prompt, never over its budget
    #[command(
        after_help = "Examples:\n  icecore context --session trip --budget 2000\n  icecore context --query \"when do we leave\" --budget 800 --explain"
    )]
    Context(ContextArgs),
    /// List what is known, tell a fact, or judge one
    #[command(
        after_help = "Examples:\n  icecore learn\n  icecore learn add \"I prefer tabs.\"\n  icecore learn reject fact-0123456789abcdef"
    )]
    Learn(LearnArgs),
    /// Find turns, summaries, entries and facts, best first
    #[command(
        after_help = "Examples:\n  icecore search \"when do we leave\"\n  icecore search \"allergy\" --kind turn --after 2024-05-01 --explain"
    )]
    Search(SearchArgs),
    /// Show a turn, a chunk with its turns, an entry, or an archive
    #[command(
        after_help = "Examples:\n  icecore show turn-1.42\n  icecore show micro-1.0.1-10 --ctf"
    )]
    Show(ShowArgs),
    /// List the sessions of a memory
    #[command(after_help = "Example:\n  icecore sessions")]
    Sessions,
    /// Draw the layers: tiers, chunks, tokens, bytes
    #[command(
        after_help = "Examples:\n  icecore stats --memory ops\n  icecore stats --plot dreams.svg"
    )]
    Stats(StatsArgs),
    /// Show a session as a person or a model sees it
    #[command(
        after_help = "Examples:\n  icecore view --session trip --branch fork-1\n  icecore view --session trip --view api"
    )]
    View(ViewArgs),
    /// Let a session go on in less room: a handoff for the model, all of it for people
    #[command(
        after_help = "Examples:\n  icecore compact --session trip\n  icecore compact --session trip --window 32000 --reserve 4000\n  icecore compact --session trip --edit"
    )]
    Compact(CompactArgs),
    /// Talk to a model at the terminal, with this memory behind it
    #[command(
        after_help = "Examples:\n  icecore chat --session trip\n  icecore chat --model local"
    )]
    Chat(ChatArgs),
    /// Read the event log
    #[command(after_help = "Example:\n  icecore events --after 100 --follow")]
    Events(EventsArgs),
    /// Erase for good, with a receipt
    #[command(
        after_help = "Examples:\n  icecore forget --session trip --dry-run\n  icecore forget --subject \"Ana\"\n  icecore forget --before 2024-01-01"
    )]
    Forget(ForgetArgs),
    /// Distil what is due under a budget of tokens, or take that back
    #[command(
        after_help = "Examples:\n  icecore dream --budget 8000 --dry-run\n  icecore dream --budget 8000\n  icecore dream undo dream-0123456789abcdef"
    )]
    Dream(DreamArgs),
    /// List, show and verify what dreams came to, and packs
    #[command(
        after_help = "Examples:\n  icecore archive list\n  icecore archive show\n  icecore archive verify"
    )]
    Archive(ArchiveArgs),
    /// List, make, pause and remove what comes by itself: dreams by a cron line or after a delay
    #[command(
        after_help = "Examples:\n  icecore schedule add \"30 3 * * *\" --timezone Europe/Berlin --budget 8000\n  icecore schedule add --delay 3600000\n  icecore schedule next s-0123456789abcdef0123\n  icecore schedule list"
    )]
    Schedule(ScheduleArgs),
    /// Write a tenant, one memory or everything to a file; the host may go on writing
    #[command(
        after_help = "Examples:\n  icecore backup monday.icebackup\n  icecore backup ops.icebackup --memory ops\n  icecore backup all.icebackup --all"
    )]
    Backup(BackupArgs),
    /// Put back what a backup holds, where nothing of it is: all of it or nothing
    #[command(
        after_help = "Examples:\n  icecore restore monday.icebackup --data ./restored\n  icecore restore monday.icebackup --key-file old/master.key"
    )]
    Restore(RestoreArgs),
    /// Move everything to another store, say from SQLite to PostgreSQL; run it again if it is
    /// cut off
    #[command(
        after_help = "Examples:\n  icecore migrate --from sqlite:./data --to postgres://icecore@db.example/icecore --data ./cache\n  icecore migrate --from postgres://icecore@db.example/icecore --to sqlite:./data"
    )]
    Migrate(MigrateArgs),
    /// Verify every invariant of the store and every body
    #[command(after_help = "Example:\n  icecore check --repair")]
    Check(CheckArgs),
    /// Drop and rebuild all that is derived
    #[command(after_help = "Example:\n  icecore reindex --memory ops")]
    Reindex,
    /// Register secrets that are hidden wherever they occur, besides what is known by its shape
    #[command(
        after_help = "Examples:\n  pass show prod-db | icecore secret add prod-db\n  icecore secret add ci-token --from-env CI_TOKEN\n  icecore secret list"
    )]
    Secret(SecretArgs),
    /// Make, list, replace and take back the keys of the host's callers
    #[command(
        after_help = "Examples:\n  icecore key create --tenant acme --role writer --name \"deploy job\" --expires 90d\n  icecore key list\n  icecore key rotate key-0123456789abcdef --overlap 1h"
    )]
    Key(KeyArgs),
    /// Hide secrets in text from standard input, or again in what is stored
    #[command(
        after_help = "Examples:\n  icecore redact < app.log > clean.log\n  icecore redact --rescan --dry-run\n  icecore redact --rescan"
    )]
    Redact(RedactArgs),
    /// List embedding models, or install one from a file
    #[command(
        after_help = "Examples:\n  icecore model list\n  icecore model add all-MiniLM-L6-v2/model.safetensors"
    )]
    Model(ModelArgs),
    /// Serve the memory over HTTP
    #[command(after_help = "Example:\n  icecore serve --listen 127.0.0.1:7433")]
    Serve(ServeArgs),
    /// Put memory and endless sessions in front of a model: a proxy for one person, on loopback
    #[command(
        after_help = "Examples:\n  icecore proxy --upstream https://api.openai.com/v1\n  OPENAI_BASE_URL=http://127.0.0.1:7434/openai/v1 your-agent\n  icecore proxy --upstream https://api.anthropic.com/v1 --window 200000\n  ANTHROPIC_BASE_URL=http://127.0.0.1:7434/anthropic your-agent"
    )]
    Proxy(ProxyArgs),
    /// Ask a host whether it is well
    #[command(after_help = "Example:\n  icecore health --url http://127.0.0.1:7433")]
    Health(HealthArgs),
    /// Show the effective settings, or an example file
    #[command(after_help = "Example:\n  icecore config example > ~/.config/icecore/config.toml")]
    Config(ConfigArgs),
    /// Print completions for a shell
    #[command(
        after_help = "Example:\n  icecore completions bash > ~/.local/share/bash-completion/completions/icecore"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// `health`
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// The host's address [default: where `serve` listens]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Whether it can be given work, rather than whether it lives
    #[arg(long)]
    pub ready: bool,
}

/// `backup`
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to write, which must not be there yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Every tenant, not the one that --tenant names
    #[arg(long, conflicts_with_all = ["tenant", "memory"])]
    pub all: bool,
}

/// `restore`
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A file that `icecore backup` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The master key that it was taken with, where the store has another: its tenants' keys
    /// are sealed anew
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// `migrate`
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The store to read, as sqlite:DIR or postgres://…
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// The store to fill, which must be empty or filled by this before
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// Where packs and archives lie now [default: for SQLite its directory, else as the settings
    /// say]
    #[arg(long, value_name = "URL")]
    pub from_objects: Option<String>,
    /// Where they go [default: for SQLite its directory, else as the settings say]
    #[arg(long, value_name = "URL")]
    pub to_objects: Option<String>,
    /// The source's master key [default: the one in its directory, else ICECORE_MASTER_KEY]
    #[arg(long, value_name = "FILE")]
    pub from_key_file: Option<PathBuf>,
}

/// `add`
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The session to add to
    #[arg(long, value_name = "S", default_value = "default")]
    pub session: String,
    /// Who speaks: user, assistant, system, tool or another word
    #[arg(long, default_value = "user")]
    pub role: String,
    /// The speaker's name
    #[arg(long)]
    pub name: Option<String>,
    /// What was said; without it, turn JSONL is read from standard input
    pub text: Option<String>,
}

/// `import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Files of turn JSONL, also .gz and .zst
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// What the files hold
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub format: Format,
    /// The session of lines that name none
    #[arg(long, value_name = "S", default_value = "default")]
    pub session: String,
    /// Add turns also if they were forgotten on request
    #[arg(long)]
    pub insist: bool,
}

/// Formats of conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Recognise it.
    Auto,
    /// Turn JSONL.
    Jsonl,
}

/// `export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Only this session
    #[arg(long, value_name = "S")]
    pub session: Option<String>,
    /// Also what was given by default: session, id, seq, branch, timestamp
    #[arg(long)]
    pub all: bool,
}

/// `context`
#[derive(Debug, Args)]
pub struct ContextArgs {
    /// The session to continue [default: the most recent ones]
    #[arg(long, value_name = "S")]
    pub session: Option<String>,
    /// Its branch [default: the one last added to]
    #[arg(long, value_name = "B", requires = "session")]
    pub branch: Option<String>,
    /// What is asked
    #[arg(long, value_name = "Q")]
    pub query: Option<String>,
    /// Tokens that the text may have
    #[arg(long, value_name = "N")]
    pub budget: u32,
    /// Also draw where each token went and why (on stderr)
    #[arg(long)]
    pub explain: bool,
}

/// `learn`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LearnArgs {
    /// What to do [default: list]
    #[command(subcommand)]
    pub action: Option<LearnAction>,
    /// Which facts.
    #[command(flatten)]
    pub which: LearnWhich,
}

/// Which facts to list.
#[derive(Debug, Args)]
pub struct LearnWhich {
    /// Only of this kind: identity, preference, decision, constraint, instruction, plan, event
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Only about this subject
    #[arg(long, value_name = "NAME")]
    pub subject: Option<String>,
    /// Only those that have these words
    #[arg(long, value_name = "WORDS")]
    pub query: Option<String>,
    /// Also what was superseded or rejected
    #[arg(long)]
    pub all: bool,
}

/// `learn …`
#[derive(Debug, Subcommand)]
pub enum LearnAction {
    /// List facts with what supports them
    #[command(after_help = "Example:\n  icecore learn list --kind preference")]
    List(LearnWhich),
    /// Tell a fact
    #[command(after_help = "Example:\n  icecore learn add \"I live in Lisbon.\" --subject Ana")]
    Add {
        /// The fact as a sentence
        text: String,
        /// What kind [default: by its form]
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Whom it is about [default: user]
        #[arg(long, value_name = "NAME")]
        subject: Option<String>,
    },
    /// Agree with a fact
    #[command(after_help = "Example:\n  icecore learn confirm fact-0123456789abcdef")]
    Confirm {
        /// Its id
        id: String,
    },
    /// Disagree with a fact: it does not come back
    #[command(after_help = "Example:\n  icecore learn reject fact-0123456789abcdef")]
    Reject {
        /// Its id
        id: String,
    },
}

/// `search`
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What is looked for
    #[arg(value_name = "QUERY")]
    pub query: String,
    /// At most so many hits
    #[arg(long, value_name = "N", default_value_t = icecore::recall::DEFAULT_HITS)]
    pub limit: usize,
    /// By words, by meaning, or both
    #[arg(long, value_enum, default_value_t = How::Hybrid)]
    pub mode: How,
    /// Only this kind; may be given more than once
    #[arg(long, value_enum, value_name = "KIND")]
    pub kind: Vec<What>,
    /// Only this session
    #[arg(long, value_name = "S")]
    pub session: Option<String>,
    /// Only turns of this role
    #[arg(long, value_name = "R")]
    pub role: Option<String>,
    /// Only from this date or RFC 3339 time on
    #[arg(long, value_name = "T")]
    pub after: Option<String>,
    /// Only before this date or RFC 3339 time
    #[arg(long, value_name = "T")]
    pub before: Option<String>,
    /// Also show what speaks for each hit
    #[arg(long)]
    pub explain: bool,
}

/// Ways to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// Both, and what a conversation offers.
    Hybrid,
    /// Words alone.
    Lexical,
    /// Vectors alone.
    Semantic,
}

/// Kinds of things to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// What somebody said.
    Turn,
    /// What stands for a chunk.
    Summary,
    /// What was written down.
    Entry,
    /// What was learnt.
    Fact,
}

/// `model`
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ModelAction,
}

/// `model …`
#[derive(Debug, Subcommand)]
pub enum ModelAction {
    /// List the models that `embedding_model` may name
    #[command(after_help = "Example:\n  icecore model list")]
    List,
    /// Check a model's files and install them in the data directory
    #[command(
        after_help = "Examples:\n  icecore model add all-MiniLM-L6-v2/model.safetensors\n  icecore model add granite-30m.hmsemb --name granite"
    )]
    Add {
        /// A folder with model.safetensors, config.json and a tokenizer, the weights in it, or
        /// one .hmsemb
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What to call it [default: what its files say]
        #[arg(long)]
        name: Option<String>,
    },
}

/// `secret`
#[derive(Debug, Args)]
pub struct SecretArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: SecretAction,
}

/// `secret …`
#[derive(Debug, Subcommand)]
pub enum SecretAction {
    /// Hide a value from now on; it is read from standard input and never shown
    #[command(
        after_help = "Examples:\n  icecore secret add prod-db                     asks for the value\n  icecore secret add prod-db < value.txt\n  icecore secret add prod-db --from-env DB_PASSWORD --rotate"
    )]
    Add(SecretAddArgs),
    /// List the registered secrets, without their values
    #[command(after_help = "Example:\n  icecore secret list")]
    List,
    /// Forget a secret with all its values; what was hidden stays hidden
    #[command(after_help = "Example:\n  icecore secret remove prod-db")]
    Remove {
        /// What it is called
        name: String,
    },
}

/// `secret add`
#[derive(Debug, Args)]
pub struct SecretAddArgs {
    /// What to call it: it becomes [REDACTED:NAME]
    // Even a slip such as `--value=…` must not come back in an error.
    #[arg(allow_hyphen_values = true)]
    pub name: String,
    /// Take the value from this environment variable
    #[arg(long, value_name = "VAR")]
    pub from_env: Option<std::ffi::OsString>,
    /// Add a newer value to a name that is there; the older ones stay hidden too
    #[arg(long)]
    pub rotate: bool,
    /// Values that were typed, so that they can be refused without being repeated.
    #[arg(hide = true, allow_hyphen_values = true)]
    pub typed: Vec<std::ffi::OsString>,
}

/// `key`
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// `key …`
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Make a key for a tenant; it is printed this once
    #[command(
        after_help = "Examples:\n  icecore key create --role admin\n  icecore key create --tenant acme --role reader --name dashboard --expires 90d"
    )]
    Create(KeyCreateArgs),
    /// List keys: those of all tenants, unless --tenant names one
    #[command(after_help = "Example:\n  icecore key list --tenant acme")]
    List,
    /// Take a key back for good
    #[command(after_help = "Example:\n  icecore key revoke key-0123456789abcdef")]
    Revoke {
        /// Its id, as `key list` shows it
        id: String,
    },
    /// Put a new key in the place of one: same tenant, role and name, made for as long
    #[command(after_help = "Example:\n  icecore key rotate key-0123456789abcdef --overlap 1h")]
    Rotate {
        /// Its id, as `key list` shows it
        id: String,
        /// How long the old one still works, like 1h or 7d [default: not at all]
        #[arg(long, value_name = "TIME", value_parser = lifetime::span)]
        overlap: Option<std::time::Duration>,
    },
    /// Seal everything with a new master key [env: ICECORE_NEW_MASTER_KEY] [default: a random one]
    #[command(
        after_help = "Examples:\n  icecore key rotate-master                  a new key, in the key's file\n  ICECORE_NEW_MASTER_KEY=$(openssl rand -hex 32) icecore key rotate-master"
    )]
    RotateMaster,
}

/// `key create`
#[derive(Debug, Args)]
pub struct KeyCreateArgs {
    /// What it allows
    #[arg(long, value_enum, value_name = "ROLE")]
    pub role: KeyRole,
    /// What to call it
    #[arg(long, value_name = "LABEL")]
    pub name: Option<String>,
    /// When it ends: after a time like 90d, or at a moment like 2030-01-01T00:00:00Z [default: never]
    #[arg(long, value_name = "WHEN", value_parser = lifetime::ends)]
    pub expires: Option<lifetime::Ends>,
}

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyRole {
    /// To read.
    Reader,
    /// To write too, and to forget.
    Writer,
    /// Everything, the keys of its tenant among it.
    Admin,
}

/// `redact`
#[derive(Debug, Args)]
pub struct RedactArgs {
    /// Apply today's secrets and patterns to all that the tenant has stored
    #[arg(long)]
    pub rescan: bool,
    /// Only say what would be rewritten
    #[arg(long, requires = "rescan")]
    pub dry_run: bool,
}

/// `show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The id of a turn, chunk or entry, or the checksum of an archive
    pub id: String,
    /// Print the turns of a chunk as Compact Turn Format
    #[arg(long)]
    pub ctf: bool,
}

/// `view`
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// The session
    #[arg(long, value_name = "S")]
    pub session: String,
    /// Whose eyes: a person's or the model's
    #[arg(long, value_enum, default_value_t = Eyes::Display)]
    pub view: Eyes,
    /// Its branch [default: the one last added to]
    #[arg(long, value_name = "B")]
    pub branch: Option<String>,
}

/// `chat`
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// The session to go on with
    #[arg(long, value_name = "S", default_value = "default")]
    pub session: String,
    /// Whom to talk to: a `[models.NAME]` of the settings, or `local` for a server on this
    /// machine [default: `chat.model`, the only one there is, or the distiller]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
}

/// `compact`
#[derive(Debug, Args)]
pub struct CompactArgs {
    /// The session
    #[arg(long, value_name = "S")]
    pub session: String,
    /// Its branch [default: the one last added to]
    #[arg(long, value_name = "B")]
    pub branch: Option<String>,
    /// Tokens of a request and its answer [default: `sessions.window`]
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<u64>,
    /// Tokens of it that are kept free for the answer [default: `sessions.reserve`]
    #[arg(long, value_name = "TOKENS")]
    pub reserve: Option<u64>,
    /// Correct the handoff in VISUAL or EDITOR; one is made first where there is none
    #[arg(long)]
    pub edit: bool,
    /// Take the corrected text from this file instead, - is standard input
    #[arg(long, value_name = "FILE", requires = "edit")]
    pub from: Option<PathBuf>,
}

/// The two views of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Eyes {
    /// Every turn, in order.
    Display,
    /// What the model is sent.
    Api,
}

/// `events`
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub after: u64,
    /// Wait for more until interrupted
    #[arg(long, short)]
    pub follow: bool,
}

/// `forget`
#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// What to forget.
    #[command(flatten)]
    pub what: ForgetWhat,
    /// Only say what would be erased
    #[arg(long)]
    pub dry_run: bool,
}

/// One of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ForgetWhat {
    /// A whole session
    #[arg(long, value_name = "S")]
    pub session: Option<String>,
    /// Turns that this name spoke and entries tagged subject:NAME, in every memory of the tenant
    /// unless --memory is given
    #[arg(long, value_name = "NAME")]
    pub subject: Option<String>,
    /// Turns and entries from before this date or RFC 3339 time, in every memory of the tenant
    /// and with what its ended runs hold, unless --memory is given
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// One entry
    #[arg(long, value_name = "ID")]
    pub entry: Option<String>,
}

/// `stats`
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Also draw the dreams into this file, as SVG: tokens used of the budget, and sizes before
    /// and after
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// `dream`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DreamArgs {
    /// What to do [default: dream]
    #[command(subcommand)]
    pub action: Option<DreamAction>,
    /// How.
    #[command(flatten)]
    pub how: DreamHow,
}

/// How to dream.
#[derive(Debug, Args)]
pub struct DreamHow {
    /// Tokens to read and write together [default: max_token_budget, which is also the most]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub budget: Option<i64>,
    /// Only show the distillate, what differs from the last one, and the tokens
    #[arg(long)]
    pub dry_run: bool,
}

/// `dream …`
#[derive(Debug, Subcommand)]
pub enum DreamAction {
    /// Take back the dream in force: what it stood for is in force again
    #[command(after_help = "Example:\n  icecore dream undo dream-0123456789abcdef")]
    Undo {
        /// Its run, as `icecore dream` told it
        run: String,
    },
}

/// `schedule`
#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ScheduleAction,
}

/// `schedule …`
#[derive(Debug, Subcommand)]
pub enum ScheduleAction {
    /// List schedules, with what came last of each
    #[command(after_help = "Example:\n  icecore schedule list")]
    List,
    /// Make one
    #[command(
        after_help = "Examples:\n  icecore schedule add \"30 3 * * *\" --timezone Europe/Berlin\n  icecore schedule add @hourly --task consolidate --jitter 60000\n  icecore schedule add --delay 3600000 --budget 8000"
    )]
    Add(ScheduleAddArgs),
    /// Remove one, with its ticks
    #[command(after_help = "Example:\n  icecore schedule remove s-0123456789abcdef0123")]
    Remove {
        /// Its id
        id: String,
    },
    /// Show its next ten times
    #[command(after_help = "Example:\n  icecore schedule next s-0123456789abcdef0123")]
    Next {
        /// Its id
        id: String,
    },
    /// Let it rest
    #[command(after_help = "Example:\n  icecore schedule pause s-0123456789abcdef0123")]
    Pause {
        /// Its id
        id: String,
    },
    /// Let it go on
    #[command(after_help = "Example:\n  icecore schedule resume s-0123456789abcdef0123")]
    Resume {
        /// Its id
        id: String,
    },
}

/// `schedule add`
#[derive(Debug, Args)]
pub struct ScheduleAddArgs {
    /// Minute, hour, day of month, month, day of week, with the second before them if there are
    /// six; or @hourly, @daily, @weekly, @monthly, @yearly
    #[arg(value_name = "CRON", required_unless_present = "delay")]
    pub cron: Option<String>,
    /// Once, so many milliseconds from now, instead of a cron line
    #[arg(long, value_name = "MS", conflicts_with_all = ["cron", "timezone"])]
    pub delay: Option<u64>,
    /// The IANA time zone of the line [default: UTC]
    #[arg(long, value_name = "TZ")]
    pub timezone: Option<String>,
    /// Tokens that a dream may read and write together
    #[arg(long, value_name = "N")]
    pub budget: Option<u64>,
    /// What it does
    #[arg(long, value_enum, default_value = "dream")]
    pub task: ScheduleWhat,
    /// What is done about missed times: the last of them once, or nothing
    #[arg(long, value_enum, default_value = "once")]
    pub catch_up: ScheduleCatchUp,
    /// Fire up to so many milliseconds later
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub jitter: u64,
}

/// What a schedule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScheduleWhat {
    /// Distil what is due.
    Dream,
    /// Say once what entries say twice.
    Consolidate,
    /// Fire commitments that are due.
    Commitments,
}

/// What is done about missed times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScheduleCatchUp {
    /// The last of them, once.
    Once,
    /// Nothing.
    Skip,
}

/// `archive`
#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ArchiveAction,
}

/// `archive …`
#[derive(Debug, Subcommand)]
pub enum ArchiveAction {
    /// List archives and packs
    #[command(after_help = "Example:\n  icecore archive list")]
    List,
    /// Show what an archive says; with --json its bytes, whose SHA-256 is its checksum
    #[command(after_help = "Example:\n  icecore archive show 3f6b1c09a2e4")]
    Show {
        /// Its checksum or the beginning of it, or a pack [default: the newest archive]
        id: Option<String>,
    },
    /// Read, re-hash and decode archives and packs
    #[command(after_help = "Example:\n  icecore archive verify")]
    Verify {
        /// Only this archive, by its checksum, or pack, by its name or the chunk it holds
        id: Option<String>,
    },
}

/// `check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Also remove what a crash left behind and nothing points to
    #[arg(long)]
    pub repair: bool,
}

/// `serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port (port 0 takes a free one), or unix:PATH [default: 127.0.0.1:7433]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// For a conformance run: also serve its fixtures and test seams
    #[arg(long)]
    pub conformance: bool,
}

/// `proxy`
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// The provider, up to and with the version path; clients' own keys go there
    #[arg(long, value_name = "URL")]
    pub upstream: String,
    /// Address and port on loopback (port 0 takes a free one) [default: 127.0.0.1:7434]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Tokens of a request and its answer together [default: what is known of the model]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub window: Option<u64>,
    /// Tokens of it that are kept free for the answer, where a request does not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub reserve: Option<u64>,
}

/// `config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// `config …`
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Print each setting with its value and where it comes from
    #[command(after_help = "Example:\n  icecore config show")]
    Show,
    /// Print a commented settings file with every default
    #[command(after_help = "Example:\n  icecore config example > config.toml")]
    Example,
}
