//! From what was typed, set and written to what it means.
//!
//! Flags beat the environment, the environment beats the file, the file beats
//! the defaults. Below `main` nothing reads an environment variable.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use icecore::config::{ConfigError, FileConfig};
use icecore::{ObjectKeys, ObjectSettings};
use icecore_models::ApiKey;
use zeroize::Zeroizing;

use crate::args::Global;

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
    /// `ICECORE_OBJECTS`
    pub objects: Option<String>,
    /// `AWS_ACCESS_KEY_ID`
    pub aws_key_id: Option<String>,
    /// `AWS_SECRET_ACCESS_KEY`
    pub aws_secret: Option<String>,
    /// `AWS_SESSION_TOKEN`
    pub aws_token: Option<String>,
    /// `AWS_REGION`, or `AWS_DEFAULT_REGION`
    pub aws_region: Option<(&'static str, String)>,
    /// `AWS_ENDPOINT_URL_S3`, or `AWS_ENDPOINT_URL`
    pub aws_endpoint: Option<(&'static str, String)>,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`
    pub otlp_endpoint: Option<String>,
    /// `OTEL_SERVICE_NAME`
    pub otel_service: Option<String>,
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
        let first_of = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| text(name).map(|value| (name, value)))
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
            objects: text("ICECORE_OBJECTS"),
            aws_key_id: text("AWS_ACCESS_KEY_ID"),
            aws_secret: text("AWS_SECRET_ACCESS_KEY"),
            aws_token: text("AWS_SESSION_TOKEN"),
            aws_region: first_of(["AWS_REGION", "AWS_DEFAULT_REGION"]),
            aws_endpoint: first_of(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
            otlp_endpoint: text("OTEL_EXPORTER_OTLP_ENDPOINT"),
            otel_service: text("OTEL_SERVICE_NAME"),
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

impl Env {
    /// A variable that a setting names.
    pub fn named(name: &str) -> Option<String> {
        let may_be_one = !name.is_empty() && !name.contains(['=', '\0']);
        std::env::var(name).ok().filter(|value| may_be_one && !value.is_empty())
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was typed.
    Flag,
    /// It is set.
    Env(&'static str),
    /// It is written.
    File,
    /// Nobody said.
    Default,
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
    /// What it says.
    pub file: FileConfig,
    /// Whose memory.
    pub tenant: String,
    /// Which memory, where one was named.
    pub memory: Option<String>,
    /// Who we are to the object storage, where the environment says so.
    pub object_keys: Option<ObjectKeys>,
    /// Settings of the file that the environment overrules, with what did.
    pub overruled: BTreeMap<&'static str, &'static str>,
    /// The master key, where the environment has it.
    pub master_key: Option<String>,
    /// The master key to come, where the environment has one.
    pub new_master_key: Option<String>,
    /// The key of the embeddings endpoint, where one is named and set.
    pub embedding_key: Option<ApiKey>,
    /// Keys of models that talk, by the model's name, where one is named and set.
    pub model_keys: BTreeMap<String, ApiKey>,
    /// Keys of providers, by the variable that the settings name, where it is set.
    pub upstream_keys: BTreeMap<String, ApiKey>,
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
    File(PathBuf, ConfigError),
    /// No place for the data is known.
    NoHome,
    /// A store that this build does not have.
    Store(String),
    /// Two places at once.
    Places,
    /// The environment names no place for objects.
    Objects(String),
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
            Self::Objects(reason) => {
                format!("the environment names no place for objects: {reason}")
            }
            Self::Places => "--data and --store name two different directories".to_owned(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(_, error) => error.hint(),
            Self::Unreadable(..) => {
                Some("`icecore config example` prints one to begin with".to_owned())
            }
            Self::NoHome => Some("name one with --data DIR".to_owned()),
            Self::Store(_) => {
                Some("leave --store out, or use sqlite:DIR or postgres://…".to_owned())
            }
            Self::Objects(_) => Some(
                "see ICECORE_OBJECTS and AWS_ENDPOINT_URL_S3, and `[objects]` in the file"
                    .to_owned(),
            ),
            Self::Places => Some("give one of them".to_owned()),
        }
    }
}

/// Decides everything, once.
pub fn resolve(
    flags: Global,
    env: &Env,
    file: Option<FileConfig>,
) -> Result<Settings, SettingsError> {
    let (config, config_origin) = config_path(&flags, env);
    let (data, data_origin) = data_dir(&flags, env)?;
    let (database, store_origin) = database(&flags, env)?;
    let is_read = file.is_some();
    let mut file = file.unwrap_or_default();
    let overruled = overrule_objects(&mut file.objects, env)?;
    Ok(Settings {
        data,
        data_origin,
        database,
        store_origin,
        config: config.filter(|_| is_read),
        config_origin,
        file,
        tenant: flags.tenant.clone().unwrap_or_else(|| "default".to_owned()),
        memory: flags.memory.clone(),
        object_keys: object_keys(env),
        overruled,
        master_key: env.master_key.clone(),
        new_master_key: env.new_master_key.clone(),
        embedding_key: None,
        model_keys: BTreeMap::new(),
        upstream_keys: BTreeMap::new(),
        flags,
    })
}

/// Puts what the environment says of objects in the place of what the file does.
fn overrule_objects(
    objects: &mut ObjectSettings,
    env: &Env,
) -> Result<BTreeMap<&'static str, &'static str>, SettingsError> {
    let url = env.objects.as_ref().map(|url| ("ICECORE_OBJECTS", url));
    let endpoint = env.aws_endpoint.as_ref().map(|(by, url)| (*by, url));
    let region = env.aws_region.as_ref().map(|(by, region)| (*by, region));
    let said = [
        ("objects.url", &mut objects.url, url),
        ("objects.endpoint", &mut objects.endpoint, endpoint),
        ("objects.region", &mut objects.region, region),
    ];
    let mut overruled = BTreeMap::new();
    for (key, setting, said) in said {
        if let Some((by, value)) = said {
            value.clone_into(setting);
            overruled.insert(key, by);
        }
    }
    match objects.place() {
        Ok(_) => Ok(overruled),
        Err(reason) => Err(SettingsError::Objects(reason)),
    }
}

/// Both halves of a key, or none.
fn object_keys(env: &Env) -> Option<ObjectKeys> {
    let secret = |secret: &String| Zeroizing::new(secret.clone());
    Some(ObjectKeys {
        id: env.aws_key_id.clone()?,
        secret: env.aws_secret.as_ref().map(secret)?,
        token: env.aws_token.as_ref().map(secret),
    })
}

/// Reads the settings file: the one named, or the default one if it is there.
pub fn read_file(flags: &Global, env: &Env) -> Result<Option<FileConfig>, SettingsError> {
    let (Some(path), origin) = config_path(flags, env) else { return Ok(None) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if origin == Origin::Default && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(SettingsError::Unreadable(path, error)),
    };
    FileConfig::parse(&text).map(Some).map_err(|error| SettingsError::File(path, error))
}

fn config_path(flags: &Global, env: &Env) -> (Option<PathBuf>, Origin) {
    if let Some(path) = &flags.config {
        return (Some(path.clone()), Origin::Flag);
    }
    if let Some(path) = &env.config {
        return (Some(path.clone()), Origin::Env("ICECORE_CONFIG"));
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
        return Ok((data.clone(), Origin::Env("ICECORE_DATA")));
    }
    if let Some(store) = env_store {
        return Ok((store, Origin::Env("ICECORE_STORE")));
    }
    let home = env.data_home.as_ref().ok_or(SettingsError::NoHome)?;
    Ok((home.join("icecore"), Origin::Default))
}

/// The database that is asked for, if it is not SQLite.
fn database(flags: &Global, env: &Env) -> Result<(Option<String>, Origin), SettingsError> {
    let (url, origin) = match (&flags.store, &env.store) {
        (Some(url), _) => (url, Origin::Flag),
        (None, Some(url)) => (url, Origin::Env("ICECORE_STORE")),
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
mod tests {
    use super::*;

    fn env() -> Env {
        Env { data_home: Some("/home/data".into()), ..Env::default() }
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_default() {
        let check = |flags: Global, env: Env, expected: &str| {
            let settings = resolve(flags, &env, None).unwrap();
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
            aws_key_id: Some("id".to_owned()),
            aws_secret: Some(secret.to_owned()),
            aws_token: Some(secret.to_owned()),
            ..env()
        };
        let mut settings = resolve(Global::default(), &env, None).unwrap();
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
        let settings = resolve(Global::default(), &set, None).unwrap();
        assert_eq!(settings.database.as_ref(), Some(&url));
        assert_eq!(settings.store_origin, Origin::Env("ICECORE_STORE"));
        assert_eq!(settings.data, Path::new("/home/data/icecore"));
        assert!(!format!("{settings:?}").contains(&password));
        let flags = Global { store: Some("sqlite:".into()), ..Global::default() };
        assert_eq!(resolve(flags, &set, None).unwrap().database, None);
    }

    #[test]
    fn the_environment_says_where_objects_are_and_who_asks_for_them() {
        let file = || {
            let text = "[objects]\nurl = \"s3://file\"\nregion = \"file\"\nallow_http = true";
            Some(FileConfig::parse(text).unwrap())
        };
        let settings = resolve(Global::default(), &env(), file()).unwrap();
        assert_eq!(settings.file.objects.url, "s3://file");
        assert!(settings.object_keys.is_none() && settings.overruled.is_empty());

        let text = |text: &str| Some(text.to_owned());
        let set = Env {
            objects: text("s3://env/p"),
            aws_key_id: text("id"),
            aws_secret: text("key-of-tests"),
            aws_region: Some(("AWS_REGION", "here".to_owned())),
            aws_endpoint: Some(("AWS_ENDPOINT_URL", "http://127.0.0.1:9".to_owned())),
            ..env()
        };
        let settings = resolve(Global::default(), &set, file()).unwrap();
        let ObjectSettings { url, region, endpoint, .. } = &settings.file.objects;
        assert_eq!((&**url, &**region, &**endpoint), ("s3://env/p", "here", "http://127.0.0.1:9"));
        assert_eq!(settings.overruled["objects.endpoint"], "AWS_ENDPOINT_URL");
        assert_eq!(settings.object_keys.unwrap().id, "id");

        // Half a key is none, and plain HTTP is allowed by the file alone.
        let half = Env { aws_secret: None, ..set.clone() };
        assert!(resolve(Global::default(), &half, file()).unwrap().object_keys.is_none());
        let refused = resolve(Global::default(), &set, None).unwrap_err();
        assert!(refused.message().contains("`objects.allow_http`"), "{}", refused.message());
    }

    #[test]
    fn the_file_beats_the_defaults() {
        let file = FileConfig::parse("[memory]\nhot_chunks = 9").unwrap();
        let settings = resolve(Global::default(), &env(), Some(file)).unwrap();
        assert_eq!(settings.file.memory.hot_chunks, 9);
        let settings = resolve(Global::default(), &env(), None).unwrap();
        assert_eq!(settings.file.memory.hot_chunks, 2);
    }

    #[test]
    fn a_store_that_is_not_there_is_refused_without_its_password() {
        let url = format!("mongodb://me:{}@host/db", "hunter".repeat(2));
        let flags = Global { store: Some(url), ..Global::default() };
        let message = resolve(flags, &env(), None).unwrap_err().message();
        assert_eq!(message, "a store of the kind `mongodb` is not in this build");
        assert!(matches!(
            resolve(Global::default(), &Env::default(), None),
            Err(SettingsError::NoHome)
        ));
    }
}
