//! `[models.NAME]`: models that talk, and which of them does what.

use icecore_domain::chat::{Prices, Protocol};
use toml::Value;

use super::{ConfigError, FileConfig, Shown, unknown, wrong};
use crate::models::{ModelSettings, SpendLimits};

/// The name of the model server on this machine: that of a `[models.local]` table, or
/// whichever is found.
pub const LOCAL_MODEL: &str = "local";

/// Who writes summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SummarizationStrategy {
    /// No model.
    #[default]
    Heuristic,
    /// A model; if it does not answer, one on this machine.
    Llm,
    /// A model on this machine.
    Local,
}

impl SummarizationStrategy {
    /// All there are.
    pub(super) const ALL: [Self; 3] = [Self::Heuristic, Self::Llm, Self::Local];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Heuristic => "heuristic",
            Self::Llm => "llm",
            Self::Local => "local",
        }
    }
}

/// The models there are, and which of them does what. An empty name is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoices {
    /// The `[models.NAME]` tables, by name.
    pub tables: Vec<ModelSettings>,
    /// `models.tokens_a_day` and `models.money_a_day`.
    pub limits: SpendLimits,
    /// `models.local_urls`: where a model server on this machine is looked for.
    pub local_urls: Vec<String>,
    /// `memory.summarization_strategy`.
    pub summaries: SummarizationStrategy,
    /// `memory.summarization_model`.
    pub summary_model: String,
    /// `sessions.distiller_model`.
    pub handoff_model: String,
    /// `dreams.model`.
    pub dream_model: String,
    /// `memory.consolidation_model`.
    pub consolidation_model: String,
    /// `chat.model`.
    pub chat_model: String,
}

impl Default for ModelChoices {
    fn default() -> Self {
        Self {
            tables: Vec::new(),
            limits: SpendLimits::default(),
            local_urls: ["http://127.0.0.1:11434", "http://127.0.0.1:8080"]
                .map(str::to_owned)
                .to_vec(),
            summaries: SummarizationStrategy::default(),
            summary_model: String::new(),
            handoff_model: String::new(),
            dream_model: String::new(),
            consolidation_model: String::new(),
            chat_model: String::new(),
        }
    }
}

impl ModelChoices {
    /// The table of a name.
    pub fn table(&self, name: &str) -> Option<&ModelSettings> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The model that summaries ask first; none without one.
    pub fn summary_choice(&self) -> &str {
        match self.summaries {
            SummarizationStrategy::Heuristic => "",
            _ if !self.summary_model.is_empty() => &self.summary_model,
            SummarizationStrategy::Local => LOCAL_MODEL,
            SummarizationStrategy::Llm => self.only_table().unwrap_or_default(),
        }
    }

    /// The model that a person chats with where none is named at the door: the one of
    /// `chat.model`, the only one there is, or the one that writes handoffs.
    pub fn chat_choice(&self) -> &str {
        let only = match self.tables.as_slice() {
            [only] => only.name.as_str(),
            _ => self.only_table().unwrap_or_default(),
        };
        let names = [self.chat_model.as_str(), only, &self.handoff_model];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
    }

    /// The one table that is not of this machine's server.
    fn only_table(&self) -> Option<&str> {
        let mut others = self.tables.iter().filter(|table| table.name != LOCAL_MODEL);
        let first = others.next()?;
        others.next().is_none().then_some(first.name.as_str())
    }

    /// Every setting that names a model, with the name.
    fn names(&self) -> [(&'static str, &str); 5] {
        [
            ("memory.summarization_model", &self.summary_model),
            ("sessions.distiller_model", &self.handoff_model),
            ("dreams.model", &self.dream_model),
            ("memory.consolidation_model", &self.consolidation_model),
            ("chat.model", &self.chat_model),
        ]
    }
}

/// The keys of a table, in the order in which they are shown.
const KEYS: [&str; 14] = [
    "protocol", "url", "model", "key_env", "key_secret", "window", "reserve", "input_price",
    "cached_input_price", "output_price", "timeout_seconds", "idle_seconds", "retries",
    "caches_prefix",
];

/// Reads the table `[models.NAME]`; gives the keys that it has.
pub(super) fn read(
    config: &mut FileConfig,
    name: &str,
    table: &toml::Table,
) -> Result<Vec<String>, ConfigError> {
    let mut model = ModelSettings {
        name: name.to_owned(),
        protocol: Protocol::OpenAi,
        url: String::new(),
        model: name.to_owned(),
        key_env: String::new(),
        key_secret: String::new(),
        window: 0,
        reserve: 0,
        prices: Prices::default(),
        timeout_seconds: 300,
        idle_seconds: 120,
        retries: 3,
        caches_prefix: false,
    };
    let mut cached_price = None;
    let mut given = Vec::new();
    for (key, value) in table {
        let full = format!("models.{name}.{key}");
        match key.as_str() {
            "protocol" => {
                let protocol = value.as_str().and_then(Protocol::parse);
                model.protocol =
                    protocol.ok_or_else(|| wrong(&full, "\"openai\" or \"anthropic\"", value))?;
            }
            "url" => model.url = text(&full, value)?,
            "model" => model.model = text(&full, value)?,
            "key_env" => model.key_env = text(&full, value)?,
            "key_secret" => model.key_secret = text(&full, value)?,
            "window" => model.window = number(&full, value, 1, MOST_TOKENS)?,
            "reserve" => model.reserve = number(&full, value, 1, MOST_TOKENS)?,
            "input_price" => model.prices.input = money(&full, value)?,
            "cached_input_price" => cached_price = Some(money(&full, value)?),
            "output_price" => model.prices.output = money(&full, value)?,
            "timeout_seconds" => model.timeout_seconds = number(&full, value, 1, 86_400)?,
            "idle_seconds" => model.idle_seconds = number(&full, value, 1, 86_400)?,
            "retries" => model.retries = number(&full, value, 0, 100)? as u32,
            "caches_prefix" => {
                model.caches_prefix =
                    value.as_bool().ok_or_else(|| wrong(&full, "`true` or `false`", value))?;
            }
            _ => {
                let known: Vec<String> =
                    KEYS.iter().map(|key| format!("models.{name}.{key}")).collect();
                return Err(unknown(&full, known.iter().map(String::as_str)));
            }
        }
        given.push(full);
    }
    // What nobody prices apart costs as much as the rest.
    model.prices.cached_input = cached_price.unwrap_or(model.prices.input);
    config.models.tables.push(model);
    Ok(given)
}

const MOST_TOKENS: u64 = 1_000_000_000;

fn text(key: &str, value: &Value) -> Result<String, ConfigError> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| wrong(key, "a string that is not empty", value))
}

fn number(key: &str, value: &Value, least: u64, most: u64) -> Result<u64, ConfigError> {
    let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| wrong(key, &format!("a whole number from {least} to {most}"), value))
}

/// A decimal number as millionths.
pub(super) fn money(key: &str, value: &Value) -> Result<u64, ConfigError> {
    let number = match value {
        Value::Integer(whole) => *whole as f64,
        Value::Float(number) => *number,
        _ => f64::NAN,
    };
    if !(0.0..=1e9).contains(&number) {
        return Err(wrong(key, "a number from 0 to 1000000000, such as 0.25", value));
    }
    Ok((number * 1e6).round() as u64)
}

/// Millionths as a decimal number.
pub(super) fn money_shown(millionths: u64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    let text = text.trim_end_matches('0');
    if text.ends_with('.') { format!("{text}0") } else { text.to_owned() }
}

/// The settings of a table.
pub(super) fn shown(model: &ModelSettings) -> Vec<Shown> {
    let text = |text: &str| Value::from(text).to_string();
    let known = |tokens: u64| if tokens == 0 { "absent".to_owned() } else { tokens.to_string() };
    let value = |key: &str| match key {
        "protocol" => text(model.protocol.as_str()),
        "url" => text(&model.url),
        "model" => text(&model.model),
        "key_env" => text(&model.key_env),
        "key_secret" => text(&model.key_secret),
        "window" => known(model.window),
        "reserve" => known(model.reserve),
        "input_price" => money_shown(model.prices.input),
        "cached_input_price" => money_shown(model.prices.cached_input),
        "output_price" => money_shown(model.prices.output),
        "timeout_seconds" => model.timeout_seconds.to_string(),
        "idle_seconds" => model.idle_seconds.to_string(),
        "retries" => model.retries.to_string(),
        _ => model.caches_prefix.to_string(),
    };
    let one = |key: &&str| Shown {
        key: format!("models.{}.{key}", model.name),
        value: value(key),
        given: false,
    };
    KEYS.iter().map(one).collect()
}

/// Looks at what no single setting shows.
pub(super) fn check(config: &FileConfig) -> Result<(), ConfigError> {
    let choices = &config.models;
    let sessions = &config.memory.handoffs;
    if sessions.reserve >= sessions.window {
        return Err(ConfigError::Reserve {
            key: "sessions.reserve".to_owned(),
            reserve: sessions.reserve,
            window: sessions.window,
        });
    }
    for table in &choices.tables {
        if table.url.is_empty() {
            return Err(ConfigError::NoUrl { name: table.name.clone() });
        }
        if !table.key_env.is_empty() && !table.key_secret.is_empty() {
            return Err(ConfigError::TwoKeys { name: table.name.clone() });
        }
        if table.window > 0 && table.reserve >= table.window {
            return Err(ConfigError::Reserve {
                key: format!("models.{}.reserve", table.name),
                reserve: table.reserve,
                window: table.window,
            });
        }
    }
    for (key, name) in choices.names() {
        if !name.is_empty() && name != LOCAL_MODEL && choices.table(name).is_none() {
            return Err(ConfigError::NoSuchModel {
                key: key.to_owned(),
                name: name.to_owned(),
                known: choices.tables.iter().map(|table| table.name.clone()).collect(),
            });
        }
    }
    if choices.summaries == SummarizationStrategy::Llm && choices.summary_choice().is_empty() {
        return Err(ConfigError::NoSummaryModel { count: choices.tables.len() });
    }
    // One that is left over from another strategy must not be sent anything.
    let name = choices.summary_model.as_str();
    if choices.summaries == SummarizationStrategy::Local
        && name != LOCAL_MODEL
        && let Some(table) = choices.table(name).filter(|table| !is_loopback(&table.url))
    {
        let (name, url) = (table.name.clone(), table.url.clone());
        return Err(ConfigError::NotLocal { name, url });
    }
    if let Some(url) = choices.local_urls.iter().find(|url| host_of(url).is_none()) {
        return Err(ConfigError::LocalUrl { url: url.clone() });
    }
    Ok(())
}

/// The host of an address that is `http://` or `https://` and holds no credentials.
pub(super) fn host_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?.0,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    let is_host = !host.is_empty() && !authority.contains(['@', '\\', ' ']);
    is_host.then_some(host)
}

/// Whether an address is of this machine.
fn is_loopback(url: &str) -> bool {
    host_of(url).is_some_and(|host| {
        let address = host.parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<FileConfig, ConfigError> {
        FileConfig::parse(text)
    }

    #[test]
    fn a_local_strategy_sends_nothing_off_the_machine() {
        let settings = |url: &str| {
            format!(
                "[memory]\nsummarization_strategy = \"local\"\nsummarization_model = \"far\"\n\
                 [models.far]\nurl = \"{url}\"\n"
            )
        };
        for here in [
            "http://127.0.0.1:8080/v1", "http://127.9.0.1/v1", "https://LOCALHOST:1/v1",
            "http://[::1]:8080/v1",
        ] {
            assert_eq!(parsed(&settings(here)).unwrap().models.summary_choice(), "far", "{here}");
        }
        for far in [
            "https://api.example.com/v1",
            "http://127.0.0.1.example.com/v1",
            "http://localhost.example.com/v1",
            "http://127.0.0.1:80@example.com/v1",
            "http://10.0.0.1/v1",
            "http://[fe80::1]/v1",
        ] {
            let error = parsed(&settings(far)).unwrap_err();
            assert!(matches!(error, ConfigError::NotLocal { .. }), "{far}: {error}");
            for key in ["memory.summarization_strategy", "memory.summarization_model"] {
                assert!(error.to_string().contains(key), "{error}");
            }
            assert!(error.hint().is_some());
        }
        // It may stay where another strategy is meant.
        let far = settings("https://api.example.com/v1").replace("\"local\"", "\"llm\"");
        assert_eq!(parsed(&far).unwrap().models.summary_choice(), "far");
    }

    #[test]
    fn the_model_to_chat_with_is_the_named_the_only_or_the_distiller() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parsed(text).unwrap().models.chat_choice(), expected, "{text}");
        };
        let table = |name: &str| format!("[models.{name}]\nurl = \"http://127.0.0.1:1/v1\"\n");
        let (one, two) = (table("one"), table("two"));
        check("", "");
        check(&one, "one");
        check(&table("local"), "local");
        check(&format!("{one}{}", table("local")), "one");
        check(&format!("{one}{two}"), "");
        check(&format!("{one}{two}[sessions]\ndistiller_model = \"two\""), "two");
        check(&format!("{one}[sessions]\ndistiller_model = \"local\""), "one");
        check(&format!("{one}{two}[chat]\nmodel = \"one\""), "one");
        check("[chat]\nmodel = \"local\"", "local");
        let error = parsed(&format!("{one}[chat]\nmodel = \"on\"")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`chat.model` names the model `on`, and there is no `[models.on]`"
        );
        assert_eq!(error.hint().unwrap(), "did you mean `one`?");
        let chat = parsed("[chat]\nrecall_tokens = 0").unwrap().chat;
        assert_eq!((chat.recall_tokens, FileConfig::default().chat.recall_tokens), (0, 800));
    }

    #[test]
    fn an_address_that_cannot_be_looked_at_is_refused() {
        for wrong in ["", "127.0.0.1:8080", "file:///etc", "http://", "http://me:pw@127.0.0.1/"] {
            let error = parsed(&format!("[models]\nlocal_urls = [\"{wrong}\"]\n")).unwrap_err();
            assert!(matches!(error, ConfigError::LocalUrl { .. }), "{wrong}: {error}");
            assert!(!error.to_string().contains("pw"), "{error}");
        }
        assert!(parsed("[models]\nlocal_urls = [\"http://gpu.lan:8080\"]\n").is_ok());
    }
}
