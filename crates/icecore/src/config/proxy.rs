//! `[proxy]` and `[proxy.tenants.NAME]`: where chats go on to, and what bounds them.

use std::collections::BTreeMap;

use toml::Value;

use super::model_tables::host_of;
use super::{ConfigError, FileConfig, Shown, unknown, wrong};

/// How the compacting proxy behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySettings {
    /// Providers of everybody.
    pub upstreams: UpstreamSettings,
    /// The `[proxy.tenants.NAME]` tables, by name.
    pub tenants: BTreeMap<String, UpstreamSettings>,
    /// `window`: tokens of a request and its answer, whatever the model; 0 leaves it to the
    /// model.
    pub window: u64,
    /// `reserve`: tokens of it for the answer, where a request does not say; 0 leaves it to
    /// `sessions.reserve`.
    pub reserve: u64,
    /// `recall_tokens`: tokens of memory that may be put before a request; 0 is none.
    pub recall_tokens: u32,
    /// `fail_open`: whether a request goes on untouched where the store fails.
    pub fail_open: bool,
    /// `redact_upstream`: whether secrets are hidden in what goes upstream too.
    pub redact_upstream: bool,
    /// `body_bytes`: the largest request body.
    pub body_bytes: usize,
    /// `kept_answer_bytes`: the most that is kept of one answer.
    pub kept_answer_bytes: usize,
    /// `streams`: requests that are with their providers at once.
    pub streams: usize,
    /// `compaction_seconds`: time to make a request fit.
    pub compaction_seconds: u64,
    /// `connect_seconds`: time to reach a provider.
    pub connect_seconds: u64,
    /// `first_byte_seconds`: time until an answer begins.
    pub first_byte_seconds: u64,
    /// `idle_seconds`: time between two pieces of an answer.
    pub idle_seconds: u64,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            upstreams: UpstreamSettings::default(),
            tenants: BTreeMap::new(),
            window: 0,
            reserve: 0,
            recall_tokens: 0,
            fail_open: true,
            redact_upstream: false,
            body_bytes: 32 << 20,
            kept_answer_bytes: 1 << 20,
            streams: 512,
            compaction_seconds: 600,
            connect_seconds: 10,
            first_byte_seconds: 600,
            idle_seconds: 300,
        }
    }
}

impl ProxySettings {
    /// The environment variables that hold keys of providers.
    pub fn key_variables(&self) -> Vec<&str> {
        let all = std::iter::once(&self.upstreams).chain(self.tenants.values());
        let named = all.flat_map(|one| [&one.openai_key_env, &one.anthropic_key_env]);
        named.filter(|name| !name.is_empty()).map(String::as_str).collect()
    }
}

/// The providers of everybody, or of one tenant. What is empty is not said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamSettings {
    /// `openai_url`: up to and with the version path.
    pub openai_url: String,
    /// `openai_key_env`: the environment variable that holds the key.
    pub openai_key_env: String,
    /// `openai_key_secret`: the secret of the caller's tenant that is the key.
    pub openai_key_secret: String,
    /// `anthropic_url`.
    pub anthropic_url: String,
    /// `anthropic_key_env`.
    pub anthropic_key_env: String,
    /// `anthropic_key_secret`.
    pub anthropic_key_secret: String,
}

/// The keys of a tenant's table, in the order in which they are shown.
const KEYS: [&str; 6] = [
    "openai_url", "openai_key_env", "openai_key_secret", "anthropic_url", "anthropic_key_env",
    "anthropic_key_secret",
];

impl UpstreamSettings {
    fn slot(&mut self, key: &str) -> Option<&mut String> {
        Some(match key {
            "openai_url" => &mut self.openai_url,
            "openai_key_env" => &mut self.openai_key_env,
            "openai_key_secret" => &mut self.openai_key_secret,
            "anthropic_url" => &mut self.anthropic_url,
            "anthropic_key_env" => &mut self.anthropic_key_env,
            "anthropic_key_secret" => &mut self.anthropic_key_secret,
            _ => return None,
        })
    }

    /// What is wrong with it, if anything is; `at` is the table.
    fn check(&self, at: &str) -> Result<(), ConfigError> {
        let protocols = [
            ("openai", &self.openai_url, &self.openai_key_env, &self.openai_key_secret),
            ("anthropic", &self.anthropic_url, &self.anthropic_key_env, &self.anthropic_key_secret),
        ];
        for (protocol, url, env, secret) in protocols {
            if !url.is_empty() && host_of(url).is_none() {
                return Err(ConfigError::UpstreamUrl { key: format!("{at}.{protocol}_url") });
            }
            if !env.is_empty() && !secret.is_empty() {
                let key = format!("{at}.{protocol}");
                return Err(ConfigError::TwoUpstreamKeys { key });
            }
        }
        Ok(())
    }
}

/// Reads the tables `[proxy.tenants.NAME]`; gives the keys that they have.
pub(super) fn read_tenants(
    config: &mut FileConfig,
    tables: &toml::Table,
) -> Result<Vec<String>, ConfigError> {
    let mut given = Vec::new();
    for (name, table) in tables {
        let at = format!("proxy.tenants.{name}");
        let Value::Table(table) = table else { return Err(wrong(&at, "a table", table)) };
        let mut upstreams = UpstreamSettings::default();
        for (key, value) in table {
            let full = format!("{at}.{key}");
            let Some(slot) = upstreams.slot(key) else {
                let known: Vec<String> = KEYS.iter().map(|key| format!("{at}.{key}")).collect();
                return Err(unknown(&full, known.iter().map(String::as_str)));
            };
            let text = value.as_str().filter(|text| !text.is_empty());
            text.ok_or_else(|| wrong(&full, "a string that is not empty", value))?.clone_into(slot);
            given.push(full);
        }
        config.proxy.tenants.insert(name.clone(), upstreams);
    }
    Ok(given)
}

/// The settings of the tenants' tables.
pub(super) fn shown(proxy: &ProxySettings) -> Vec<Shown> {
    let one = |(name, upstreams): (&String, &UpstreamSettings)| {
        let mut upstreams = upstreams.clone();
        KEYS.map(|key| Shown {
            key: format!("proxy.tenants.{name}.{key}"),
            value: Value::from(upstreams.slot(key).cloned().unwrap_or_default()).to_string(),
            given: false,
        })
    };
    proxy.tenants.iter().flat_map(one).collect()
}

/// Looks at what no single setting shows.
pub(super) fn check(proxy: &ProxySettings) -> Result<(), ConfigError> {
    proxy.upstreams.check("proxy")?;
    for (name, upstreams) in &proxy.tenants {
        upstreams.check(&format!("proxy.tenants.{name}"))?;
    }
    if proxy.window > 0 && proxy.reserve >= proxy.window {
        return Err(ConfigError::Reserve {
            key: "proxy.reserve".to_owned(),
            reserve: proxy.reserve,
            window: proxy.window,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_set_by_name_and_by_tenant() {
        let config = FileConfig::parse(
            "[proxy]\nopenai_url = \"https://a/v1\"\nopenai_key_env = \"K\"\nwindow = 9000\n\
             reserve = 900\nrecall_tokens = 7\nfail_open = false\nredact_upstream = true\n\
             body_bytes = 2048\nkept_answer_bytes = 1024\nstreams = 3\ncompaction_seconds = 5\n\
             connect_seconds = 1\n\
             first_byte_seconds = 2\nidle_seconds = 4\n\
             [proxy.tenants.acme]\nanthropic_url = \"http://b/v1\"\nanthropic_key_secret = \"s\"",
        )
        .unwrap();
        let acme = UpstreamSettings {
            anthropic_url: "http://b/v1".to_owned(),
            anthropic_key_secret: "s".to_owned(),
            ..UpstreamSettings::default()
        };
        let expected = ProxySettings {
            upstreams: UpstreamSettings {
                openai_url: "https://a/v1".to_owned(),
                openai_key_env: "K".to_owned(),
                ..UpstreamSettings::default()
            },
            tenants: BTreeMap::from([("acme".to_owned(), acme)]),
            window: 9_000,
            reserve: 900,
            recall_tokens: 7,
            fail_open: false,
            redact_upstream: true,
            body_bytes: 2_048,
            kept_answer_bytes: 1_024,
            streams: 3,
            compaction_seconds: 5,
            connect_seconds: 1,
            first_byte_seconds: 2,
            idle_seconds: 4,
        };
        assert_eq!(config.proxy, expected);
        let shown = config.settings();
        let one = shown.iter().find(|one| one.key == "proxy.tenants.acme.anthropic_url").unwrap();
        assert_eq!((one.value.as_str(), one.given), ("\"http://b/v1\"", true));
        assert!(config.is_given("proxy.window"));
    }

    #[test]
    fn mistakes_about_providers_are_named() {
        let check = |text: &str, expected: &str| {
            let error = FileConfig::parse(text).unwrap_err();
            let told = format!("{error} ({})", error.hint().unwrap_or_default());
            assert!(told.contains(expected), "{text}: {told}");
        };
        check("[proxy]\nopenai_url = \"api.example.com\"", "`proxy.openai_url` must be");
        check("[proxy]\nopenai_url = \"https://me:pw@h/v1\"", "without credentials");
        check(
            "[proxy]\nopenai_key_env = \"A\"\nopenai_key_secret = \"b\"",
            "leave one of them out",
        );
        check("[proxy]\nwindow = 10\nreserve = 10", "`proxy.reserve` (10) leaves nothing");
        check("[proxy.tenants.a]\nopenai_ur = \"x\"", "did you mean `proxy.tenants.a.openai_url`?");
        check("[proxy.tenants.a]\nopenai_url = \"\"", "a string that is not empty");
        check("[proxy.tenants]\na = 1", "`proxy.tenants.a` must be a table");
        check("[proxy]\nstream = 1", "did you mean `proxy.streams`?");
    }
}
