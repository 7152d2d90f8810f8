//! From what was typed, set and written to what it means.
//!
//! Flags beat the environment, the environment beats the file, the file beats
//! the defaults. Below `main` nothing reads an environment variable. Settings that do not go
//! together are refused here, before a command opens, writes or listens.

mod models;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use icecore::MemorySettings;
use icecore::recall::IndexSettings;
use icecore::settings::RedactionSettings;
use icecore::store::{ObjectKeys, ObjectSettings, PostgresOptions};
use icecore_host::HostSettings;
use icecore_host::settings::BoundSettings;
use icecore_models::ApiKey;
use icecore_server::{Limits, ServerOptions};
use icecore_settings::{SettingError, rows, set, settings, variables};
use zeroize::Zeroizing;

use crate::args::Global;

pub use models::{EmbeddingProvider, EmbeddingSettings, LOCAL_MODEL, ModelChoices, ModelSettings};

settings! {
    /// The settings file, table by table.
    pub struct FileSettings {
        memory: MemorySettings => at "memory.";
        /// Where vectors come from.
        embedding: EmbeddingSettings => at "memory.embedding_";
        /// `icecore chat`, at a terminal.
        chat: ChatSettings => at "chat.";
        /// What a tenant may spend on models, and the models there are.
        models: ModelChoices => at "models.";
        /// Limits on the work and the memory of search.
        index: IndexSettings => at "index.";
        /// The database of `--store postgres://…`.
        postgres: PostgresOptions => at "postgres.";
        /// Credentials and registered secrets are always hidden. Personal data is hidden where its
        /// kinds are listed.
        redaction: RedactionSettings => at "redaction.";
        bounds: BoundSettings => at "bounds.";
        /// Where packs and archives are stored; see docs/object-storage.md. The keys for S3 come
        /// from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
        objects: ObjectSettings => at "objects.";
        /// `icecore serve`.
        server: ServerOptions => at "serve.";
        /// How the host behaves towards OpenWOP.
        host: HostSettings => at "openwop.";
        /// Where the host sends its traces.
        telemetry: TelemetrySettings => at "telemetry.";
    }

    /// How people chat at a terminal.
    pub struct ChatSettings {
        /// Tokens of memory that are sent along with a request; 0: none.
        recall_tokens: u32 = 800, 0..=100_000;
    }

    /// Where the host sends its traces.
    pub struct TelemetrySettings {
        /// A collector that speaks OTLP over HTTP, up to and without `/v1/traces`; empty: none.
        otlp_endpoint: String => env "OTEL_EXPORTER_OTLP_ENDPOINT";
        /// The environment variable that holds headers for it: `name=value,name=value`.
        otlp_headers_env: String;
        /// The host's name there.
        service_name: String = "icecore".to_owned() => env "OTEL_SERVICE_NAME";
        /// The share of requests that is sent.
        sample_percent: u32 = 100, 0..=100;
    }
}

impl FileSettings {
    /// Reads a file's text.
    #[cfg(test)]
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        let mut file = Self::default();
        let given = icecore_settings::read(&mut file, text)?;
        file.finish(|key| given.contains(key))?;
        Ok(file)
    }

    /// Fills in what depends on other settings, and refuses values that do not go together.
    fn finish(&mut self, is_given: impl Fn(&str) -> bool) -> Result<(), SettingError> {
        self.models.complete();
        let limits = &mut self.server.limits;
        if !is_given("advanced.serve.page_default") {
            limits.page_default = Limits::default().page_default.min(limits.page);
        }
        self.memory.check()?;
        self.embedding.check()?;
        self.models.check()?;
        self.objects.check()?;
        self.server.check()
    }
}

/// The environment, read once.
#[derive(Clone, Default)]
pub struct Env {
    /// `ICECORE_DATA`
    pub data: Option<PathBuf>,
    /// `ICECORE_STORE`
    pub store: Option<String>,
    /// `ICECORE_CONFIG`
    pub config: Option<PathBuf>,
    /// `ICECORE_MASTER_KEY`
    pub master_key: Option<String>,
    /// `ICECORE_NEW_MASTER_KEY`
    pub new_master_key: Option<String>,
    /// `ICECORE_LOG`
    pub log: Option<String>,
    /// `ICECORE_LOG_FORMAT`
    pub log_format: Option<String>,
    /// Variables that may give a setting.
    pub variables: BTreeMap<String, String>,
    /// `NO_COLOR`, set and not empty, or a terminal that knows none.
    pub no_color: bool,
    /// `CLICOLOR_FORCE`
    pub force_color: bool,
    /// `COLUMNS`
    pub columns: Option<usize>,
    /// Whether the locale is known not to be UTF-8.
    pub ascii: bool,
    /// Where data goes by default on this platform.
    pub data_home: Option<PathBuf>,
    /// Where settings lie by default on this platform.
    pub config_home: Option<PathBuf>,
}

/// Without what may be secret.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Env");
        shown.field("data", &self.data).field("config", &self.config).finish_non_exhaustive()
    }
}

impl Env {
    /// Reads the process's environment.
    pub fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let path = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let is_set = |name: &str| text(name).is_some_and(|value| value != "0");
        let home = path("HOME");
        let under_home = |rest: &str| home.as_ref().map(|home| home.join(rest));
        let (data_home, config_home) = if cfg!(target_os = "macos") {
            let support = under_home("Library/Application Support");
            (support.clone(), support)
        } else {
            (
                path("XDG_DATA_HOME").or_else(|| under_home(".local/share")),
                path("XDG_CONFIG_HOME").or_else(|| under_home(".config")),
            )
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(text);
        Self {
            data: path("ICECORE_DATA"),
            store: text("ICECORE_STORE"),
            config: path("ICECORE_CONFIG"),
            master_key: text("ICECORE_MASTER_KEY"),
            new_master_key: text("ICECORE_NEW_MASTER_KEY"),
            log: text("ICECORE_LOG"),
            log_format: text("ICECORE_LOG_FORMAT"),
            variables: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .filter(|(name, value)| is_ours(name) && !value.is_empty())
                .collect(),
            no_color: text("NO_COLOR").is_some() || text("TERM").as_deref() == Some("dumb"),
            force_color: is_set("CLICOLOR_FORCE"),
            columns: text("COLUMNS").and_then(|columns| columns.parse().ok()),
            // No locale at all says nothing; one that names another charset does.
            ascii: locale.is_some_and(|locale| {
                let locale = locale.to_lowercase();
                !locale.contains("utf-8")
                    && !locale.contains("utf8")
                    && locale != "c"
                    && locale != "posix"
            }),
            data_home,
            config_home,
        }
    }
}

/// Whether a variable may give a setting.
fn is_ours(name: &str) -> bool {
    ["ICECORE_", "AWS_", "OTEL_"].iter().any(|prefix| name.starts_with(prefix))
}

impl Env {
    /// A variable that a setting names.
    pub fn named(name: &str) -> Option<String> {
        let may_be_one = !name.is_empty() && !name.contains(['=', '\0']);
        std::env::var(name).ok().filter(|value| may_be_one && !value.is_empty())
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag.
    Flag,
    /// This environment variable.
    Env(String),
    /// The settings file.
    File,
    /// The default.
    Default,
}

impl Origin {
    fn env(name: &str) -> Self {
        Self::Env(name.to_owned())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Env(name) => write!(f, "environment {name}"),
            Origin::File => f.write_str("file"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// Everything that was decided before a command runs.
#[derive(Clone)]
pub struct Settings {
    /// Where the memory lies.
    pub data: PathBuf,
    /// Where that comes from.
    pub data_origin: Origin,
    /// The database, where it is not SQLite in that directory. It may hold a password.
    pub database: Option<String>,
    /// Where that comes from.
    pub store_origin: Origin,
    /// The settings file that was read.
    pub config: Option<PathBuf>,
    /// Where its name comes from.
    pub config_origin: Origin,
    /// The settings.
    pub file: FileSettings,
    /// Where those come from that are not defaults, by name.
    pub origins: BTreeMap<String, Origin>,
    /// Whose memory.
    pub tenant: String,
    /// Which memory, where one was named.
    pub memory: Option<String>,
    /// Who we are to the object storage, where the environment says so.
    pub object_keys: Option<ObjectKeys>,
    /// The master key, where the environment has it.
    pub master_key: Option<String>,
    /// The master key to come, where the environment has one.
    pub new_master_key: Option<String>,
    /// The key of the embeddings endpoint, where one is named and set.
    pub embedding_key: Option<ApiKey>,
    /// Keys of models that talk, by the model's name, where one is named and set.
    pub model_keys: BTreeMap<String, ApiKey>,
    /// A variable that is named to hold a provider's key and is not set.
    pub missing_upstream_key: Option<String>,
    /// The global flags as typed.
    pub flags: Global,
}

/// Without what may be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown.field("data", &self.data).field("config", &self.config);
        shown.field("tenant", &self.tenant).field("memory", &self.memory);
        shown.field("model_keys", &self.model_keys).finish_non_exhaustive()
    }
}

/// Settings that cannot be used.
#[derive(Debug)]
pub enum SettingsError {
    /// A settings file that was named cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// What it says is wrong.
    File(PathBuf, SettingError),
    /// What a variable says is wrong.
    Variable(SettingError),
    /// A flag or a variable does not go together with something else. These variables are among
    /// what it names.
    Together(SettingError, Vec<String>),
    /// No place for the data is known.
    NoHome,
    /// A store that this build does not have.
    Store(String),
    /// Two places at once.
    Places,
}

impl SettingsError {
    /// What is wrong.
    pub fn message(&self) -> String {
        match self {
            Self::Unreadable(path, error) => {
                format!("cannot read the settings file `{}`: {error}", path.display())
            }
            Self::File(path, error) => format!("in `{}`: {error}", path.display()),
            Self::NoHome => "no data directory is known: HOME is not set".to_owned(),
            Self::Store(kind) => format!("a store of the kind `{kind}` is not in this build"),
            Self::Variable(error) => format!("in the environment: {error}"),
            Self::Together(error, variables) if variables.is_empty() => error.to_string(),
            Self::Together(error, variables) => {
                format!("{error} (given by {})", variables.join(", "))
            }
            Self::Places => "--data and --store name two different directories".to_owned(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(_, error) | Self::Variable(error) | Self::Together(error, _) => {
                error.hint().or_else(|| match error {
                    SettingError::Unknown { .. } | SettingError::Value { .. } => {
                        Some("`icecore config example` shows every setting".to_owned())
                    }
                    _ => None,
                })
            }
            Self::Unreadable(..) => {
                Some("`icecore config example` prints one to begin with".to_owned())
            }
            Self::NoHome => Some("name one with --data DIR".to_owned()),
            Self::Store(_) => {
                Some("leave --store out, or use sqlite:DIR or postgres://…".to_owned())
            }
            Self::Places => Some("give one of them".to_owned()),
        }
    }
}

impl Settings {
    /// Whether somebody gave a setting, such as `sessions.window`.
    pub fn is_given(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }

    /// Every setting of the file: its name, its value and where that comes from.
    pub fn rows(&self) -> Vec<(String, String, Origin)> {
        let origin = |name: &str| self.origins.get(name).cloned().unwrap_or(Origin::Default);
        let rows = rows(&mut self.file.clone()).into_iter();
        rows.map(|row| (row.name(), origin(&row.name()), row.value))
            .map(|(name, origin, value)| (name, value, origin))
            .collect()
    }
}

/// Decides everything, once. `typed` are flags that give a setting of the file.
pub fn resolve(
    flags: Global,
    typed: &[(&str, String)],
    env: &Env,
    text: Option<&str>,
) -> Result<Settings, SettingsError> {
    let (config, config_origin) = config_path(&flags, env);
    let (data, data_origin) = data_dir(&flags, env)?;
    let (database, store_origin) = database(&flags, env)?;
    let config = config.filter(|_| text.is_some());
    let mut file = FileSettings::default();
    let mut origins = BTreeMap::new();
    if let Some(text) = text {
        let wrong = |error| SettingsError::File(config.clone().unwrap_or_default(), error);
        let given = icecore_settings::read(&mut file, text).map_err(wrong)?;
        file.finish(|key| given.contains(key)).map_err(wrong)?;
        origins.extend(given.into_iter().map(|key| (key, Origin::File)));
    }
    origins.extend(read_variables(&mut file, &env.variables).map_err(SettingsError::Variable)?);
    for (key, text) in typed {
        set(&mut file, key, text).map_err(|error| SettingsError::Together(error, Vec::new()))?;
        origins.insert((*key).to_owned(), Origin::Flag);
    }
    file.finish(|key| origins.contains_key(key)).map_err(|error| {
        let named = |key: &String| error.to_string().contains(key.as_str());
        let variables =
            origins.iter().filter(|(key, _)| named(key)).filter_map(|(_, by)| match by {
                Origin::Env(name) => Some(name.clone()),
                _ => None,
            });
        SettingsError::Together(error.clone(), variables.collect())
    })?;
    Ok(Settings {
        data,
        data_origin,
        database,
        store_origin,
        config,
        config_origin,
        file,
        origins,
        tenant: flags.tenant.clone().unwrap_or_else(|| "default".to_owned()),
        memory: flags.memory.clone(),
        object_keys: object_keys(env),
        master_key: env.master_key.clone(),
        new_master_key: env.new_master_key.clone(),
        embedding_key: None,
        model_keys: BTreeMap::new(),
        missing_upstream_key: None,
        flags,
    })
}

/// Puts what the environment says in the place of what the file does.
fn read_variables(
    file: &mut FileSettings,
    given: &BTreeMap<String, String>,
) -> Result<Vec<(String, Origin)>, SettingError> {
    let settings = variables(file);
    refuse_unknown(&settings, given)?;
    let mut origins = Vec::new();
    for (key, names) in settings {
        let Some((name, text)) = names.iter().find_map(|name| given.get_key_value(name)) else {
            continue;
        };
        set(file, &key, text).map_err(|error| match error {
            SettingError::Value { expected, found, .. } => {
                SettingError::Value { key: name.clone(), expected, found }
            }
            other => other,
        })?;
        origins.push((key, Origin::env(name)));
    }
    Ok(origins)
}

/// A variable that begins like those of a table, and is none of them, was misspelt.
fn refuse_unknown(
    settings: &[(String, Vec<String>)],
    given: &BTreeMap<String, String>,
) -> Result<(), SettingError> {
    let known = || settings.iter().flat_map(|(_, names)| names.iter().map(String::as_str));
    let tables: BTreeSet<&str> = known()
        .filter_map(|name| name.strip_prefix("ICECORE_")?.split_once('_'))
        .map(|(table, _)| table)
        .collect();
    let is_unknown = |name: &&String| {
        let rest = name.strip_prefix("ICECORE_").and_then(|rest| rest.split_once('_'));
        rest.is_some_and(|(table, _)| tables.contains(table))
            && !known().any(|known| known == name.as_str())
    };
    match given.keys().find(is_unknown) {
        Some(name) => Err(SettingError::unknown(name, known())),
        None => Ok(()),
    }
}

/// Both halves of a key, or none.
fn object_keys(env: &Env) -> Option<ObjectKeys> {
    let secret = |secret: &String| Zeroizing::new(secret.clone());
    Some(ObjectKeys {
        id: env.variables.get("AWS_ACCESS_KEY_ID")?.clone(),
        secret: env.variables.get("AWS_SECRET_ACCESS_KEY").map(secret)?,
        token: env.variables.get("AWS_SESSION_TOKEN").map(secret),
    })
}

/// Reads the text of the settings file: the one named, or the default one if it is there.
pub fn read_file(flags: &Global, env: &Env) -> Result<Option<String>, SettingsError> {
    let (Some(path), origin) = config_path(flags, env) else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if origin == Origin::Default && error.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(SettingsError::Unreadable(path, error)),
    }
}

fn config_path(flags: &Global, env: &Env) -> (Option<PathBuf>, Origin) {
    if let Some(path) = &flags.config {
        return (Some(path.clone()), Origin::Flag);
    }
    if let Some(path) = &env.config {
        return (Some(path.clone()), Origin::env("ICECORE_CONFIG"));
    }
    (env.config_home.as_ref().map(|home| home.join("icecore/config.toml")), Origin::Default)
}

fn data_dir(flags: &Global, env: &Env) -> Result<(PathBuf, Origin), SettingsError> {
    let dir = |url: &Option<String>| url.as_deref().map(StoreUrl::parse).transpose();
    let dir = |url| Ok(dir(url)?.and_then(StoreUrl::dir));
    let (flag_store, env_store) = (dir(&flags.store)?, dir(&env.store)?);
    match (&flags.data, flag_store) {
        (Some(data), Some(store)) if *data != store => return Err(SettingsError::Places),
        (Some(data), _) => return Ok((data.clone(), Origin::Flag)),
        (None, Some(store)) => return Ok((store, Origin::Flag)),
        (None, None) => {}
    }
    if let Some(data) = &env.data {
        return Ok((data.clone(), Origin::env("ICECORE_DATA")));
    }
    if let Some(store) = env_store {
        return Ok((store, Origin::env("ICECORE_STORE")));
    }
    let home = env.data_home.as_ref().ok_or(SettingsError::NoHome)?;
    Ok((home.join("icecore"), Origin::Default))
}

/// The database that is asked for, if it is not SQLite.
fn database(flags: &Global, env: &Env) -> Result<(Option<String>, Origin), SettingsError> {
    let (url, origin) = match (&flags.store, &env.store) {
        (Some(url), _) => (url, Origin::Flag),
        (None, Some(url)) => (url, Origin::env("ICECORE_STORE")),
        (None, None) => return Ok((None, Origin::Default)),
    };
    match StoreUrl::parse(url)? {
        StoreUrl::Postgres => Ok((Some(url.clone()), origin)),
        StoreUrl::Sqlite(_) => Ok((None, origin)),
    }
}

/// Which store a URL names.
pub enum StoreUrl {
    /// SQLite; in which directory, if it says so.
    Sqlite(Option<PathBuf>),
    /// PostgreSQL, which takes the URL as it is.
    Postgres,
}

impl StoreUrl {
    /// What a URL names, as far as this build has it.
    pub fn parse(url: &str) -> Result<Self, SettingsError> {
        // Only the kind is repeated to the user: the rest may hold a password.
        match url.split(':').next().unwrap_or_default() {
            "sqlite" => {
                let path = url.trim_start_matches("sqlite:").trim_start_matches("//");
                Ok(Self::Sqlite((!path.is_empty()).then(|| Path::new(path).to_owned())))
            }
            "postgres" | "postgresql" if cfg!(feature = "postgres") => Ok(Self::Postgres),
            other => Err(SettingsError::Store(other.chars().take(32).collect())),
        }
    }

    fn dir(self) -> Option<PathBuf> {
        match self {
            Self::Sqlite(dir) => dir,
            Self::Postgres => None,
        }
    }
}

#[cfg(test)]
mod file_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(given: &[(&str, &str)]) -> BTreeMap<String, String> {
        given.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn env() -> Env {
        Env { data_home: Some("/home/data".into()), ..Env::default() }
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_default() {
        let check = |flags: Global, env: Env, expected: &str| {
            let settings = resolve(flags, &[], &env, None).unwrap();
            assert_eq!(
                format!("{} by {}", settings.data.display(), settings.data_origin),
                expected
            );
        };
        let flag = Global { data: Some("/flag".into()), ..Global::default() };
        let set = Env { data: Some("/env".into()), ..env() };
        check(flag.clone(), set.clone(), "/flag by flag");
        check(Global::default(), set, "/env by environment ICECORE_DATA");
        check(Global::default(), env(), "/home/data/icecore by default");
        let store = Global { store: Some("sqlite:/there".into()), ..Global::default() };
        check(store, env(), "/there by flag");
    }

    #[test]
    fn no_key_is_shown() {
        let secret = "a-key-of-tests";
        let env = Env {
            master_key: Some(secret.to_owned()),
            new_master_key: Some(secret.to_owned()),
            variables: variables(&[
                ("AWS_ACCESS_KEY_ID", "id"),
                ("AWS_SECRET_ACCESS_KEY", secret),
                ("AWS_SESSION_TOKEN", secret),
            ]),
            ..env()
        };
        let mut settings = resolve(Global::default(), &[], &env, None).unwrap();
        settings.embedding_key = Some(ApiKey::new(secret));
        settings.model_keys.insert("talker".to_owned(), ApiKey::new(secret));
        let shown = format!("{settings:?}");
        assert!(shown.contains("\"talker\": ApiKey(…)"), "{shown}");
        assert!(!shown.contains(secret) && !format!("{env:?}").contains(secret), "{shown}");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_database_is_beside_the_directory() {
        let password = "hunter".repeat(2);
        let url = format!("postgres://me:{password}@host/db");
        let set = Env { store: Some(url.clone()), ..env() };
        let settings = resolve(Global::default(), &[], &set, None).unwrap();
        assert_eq!(settings.database.as_ref(), Some(&url));
        assert_eq!(settings.store_origin, Origin::env("ICECORE_STORE"));
        assert_eq!(settings.data, Path::new("/home/data/icecore"));
        assert!(!format!("{settings:?}").contains(&password));
        let flags = Global { store: Some("sqlite:".into()), ..Global::default() };
        assert_eq!(resolve(flags, &[], &set, None).unwrap().database, None);
    }

    #[test]
    fn the_environment_says_where_objects_are_and_who_asks_for_them() {
        let text = "[objects]\nurl = \"s3://file\"\nregion = \"file\"\nallow_http = true";
        let resolved = |env: &Env, text| resolve(Global::default(), &[], env, text);
        let settings = resolved(&env(), Some(text)).unwrap();
        assert_eq!(settings.file.objects.url, "s3://file");
        assert!(settings.object_keys.is_none());

        let mut given = variables(&[
            ("ICECORE_OBJECTS", "s3://env/p"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key-of-tests"),
            ("AWS_REGION", "here"),
            ("AWS_DEFAULT_REGION", "there"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ]);
        let set = Env { variables: given.clone(), ..env() };
        let settings = resolved(&set, Some(text)).unwrap();
        let ObjectSettings { url, region, endpoint, .. } = &settings.file.objects;
        assert_eq!((&**url, &**region, &**endpoint), ("s3://env/p", "here", "http://127.0.0.1:9"));
        assert_eq!(settings.origins["objects.endpoint"], Origin::env("AWS_ENDPOINT_URL"));
        assert_eq!(settings.object_keys.unwrap().id, "id");

        // Half a key is none, and plain HTTP is allowed by the file alone.
        let refused = resolved(&set, None).unwrap_err();
        assert!(refused.message().contains("`objects.allow_http`"), "{}", refused.message());
        given.remove("AWS_SECRET_ACCESS_KEY");
        let half = Env { variables: given, ..env() };
        assert!(resolved(&half, Some(text)).unwrap().object_keys.is_none());
    }

    /// The value of a setting and its origin.
    fn one(
        key: &str,
        typed: &[(&str, String)],
        given: &[(&str, &str)],
        text: Option<&str>,
    ) -> String {
        let env = Env { variables: variables(given), ..env() };
        match resolve(Global::default(), typed, &env, text) {
            Ok(settings) => {
                let mut rows = settings.rows().into_iter();
                let (_, value, origin) = rows.find(|(name, ..)| name == key).unwrap();
                format!("{value} by {origin}")
            }
            Err(error) => format!("{}; {}", error.message(), error.hint().unwrap_or_default()),
        }
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_file_which_beats_the_defaults() {
        let (key, flag) = ("serve.listen", [("serve.listen", "127.0.0.1:1".to_owned())]);
        let variable = [("ICECORE_SERVE_LISTEN", "127.0.0.1:2")];
        let file = Some("[serve]\nlisten = \"127.0.0.1:3\"");
        assert_eq!(one(key, &flag, &variable, file), "\"127.0.0.1:1\" by flag");
        assert_eq!(
            one(key, &[], &variable, file),
            "\"127.0.0.1:2\" by environment ICECORE_SERVE_LISTEN"
        );
        assert_eq!(one(key, &[], &[], file), "\"127.0.0.1:3\" by file");
        assert_eq!(one(key, &[], &[], None), "\"127.0.0.1:7433\" by default");
    }

    #[test]
    fn a_variable_gives_any_setting_or_is_refused() {
        let check = |key: &str, name: &str, text: &str, expected: &str| {
            assert_eq!(one(key, &[], &[(name, text)], None), expected, "{name}={text}");
        };
        let key = "serve.allowed_hosts";
        let by = format!("[\"a\", \"b\"] by environment {}", "ICECORE_SERVE_ALLOWED_HOSTS");
        check(key, "ICECORE_SERVE_ALLOWED_HOSTS", "a, b", &by);
        let key = "advanced.serve.page_bytes";
        check(key, "ICECORE_SERVE_PAGE_BYTES", "9", "9 by environment ICECORE_SERVE_PAGE_BYTES");
        check(
            "memory.auto_embed",
            "ICECORE_MEMORY_AUTO_EMBED",
            "false",
            "false by environment ICECORE_MEMORY_AUTO_EMBED",
        );
        check(
            "serve.page",
            "ICECORE_SERVE_PAGE",
            "many",
            "in the environment: `ICECORE_SERVE_PAGE` must be a whole number from 1 to 10000, not \"many\"; `icecore config example` shows every setting",
        );
        check(
            "serve.page",
            "ICECORE_SERVE_PAG",
            "5",
            "in the environment: there is no setting `ICECORE_SERVE_PAG`; did you mean `ICECORE_SERVE_PAGE`?",
        );
        // Others may have variables of their own under our name.
        check("serve.page", "ICECORE_TEST_POSTGRES", "x", "500 by default");
    }

    #[test]
    fn a_store_that_is_not_there_is_refused_without_its_password() {
        let url = format!("mongodb://me:{}@host/db", "hunter".repeat(2));
        let flags = Global { store: Some(url), ..Global::default() };
        let message = resolve(flags, &[], &env(), None).unwrap_err().message();
        assert_eq!(message, "a store of the kind `mongodb` is not in this build");
        assert!(matches!(
            resolve(Global::default(), &[], &Env::default(), None),
            Err(SettingsError::NoHome)
        ));
    }
}
