//! `[models]`, `[models.NAME]` and the settings that name a model.

use std::collections::BTreeMap;

use icecore::models::{Prices, Protocol, SpendLimits};
use icecore::settings::reserve_conflict;
use icecore_settings::{MOST, Money, SettingError, choice, http_host, settings};

/// The name of the model server on this machine: that of a `[models.local]` table, or
/// of the one that is found.
pub const LOCAL_MODEL: &str = "local";

choice! {
    /// The writer of summaries.
    pub enum SummarizationStrategy {
        /// No model.
        Heuristic = "heuristic",
        /// A model; if it does not answer, one on this machine.
        Llm = "llm",
        /// A model on this machine.
        Local = "local",
    }
}

choice! {
    /// The protocol of a model server.
    pub enum ModelProtocol {
        /// Most servers speak it.
        OpenAi = "openai",
        /// Anthropic's.
        Anthropic = "anthropic",
    }
}

impl From<ModelProtocol> for Protocol {
    fn from(protocol: ModelProtocol) -> Self {
        match protocol {
            ModelProtocol::OpenAi => Self::OpenAi,
            ModelProtocol::Anthropic => Self::Anthropic,
        }
    }
}

choice! {
    /// The maker of vectors.
    pub enum EmbeddingProvider {
        /// This process.
        Local = "local",
        /// A server that speaks OpenAI's `POST /embeddings`.
        Endpoint = "endpoint",
    }
}

settings! {
    /// The models there are, and which of them does what. An empty name is none.
    #[derive(PartialEq, Eq)]
    pub struct ModelChoices {
        /// Models that work on the memory.
        memory: MemoryModels => at "memory.";
        /// The model that writes handoffs; empty: none.
        handoff_model: String => key "sessions.distiller_model";
        /// The model that dreams ask; empty: none.
        dream_model: String => key "dreams.model";
        /// The model that `icecore chat` talks to; empty: the only one, or the one that writes
        /// handoffs.
        chat_model: String => key "chat.model";
        /// Tokens that a tenant's models may read and write from midnight UTC; 0: no limit.
        tokens_a_day: u64 = 0, 0..=MOST;
        /// What they may cost on that day, in the currency of the prices; 0: no limit.
        money_a_day: Money;
        /// Where a model server on this machine is looked for.
        local_urls: Vec<String> =
            ["http://127.0.0.1:11434", "http://127.0.0.1:8080"].map(str::to_owned).to_vec();
        /// A table for every model that talks. NAME is what the settings call it; `local` is the
        /// server on this machine.
        tables: BTreeMap<String, ModelSettings> => tables "models";
    }

    /// The models that work on the memory.
    #[derive(PartialEq, Eq)]
    pub struct MemoryModels {
        /// The writer of summaries: heuristic (no model), llm (a model that is declared, and if it
        /// does not answer, one on this machine), or local (one on this machine).
        summarization_strategy: SummarizationStrategy;
        /// The model that writes summaries; may be left out where there is one.
        summarization_model: String;
        /// The model that consolidates entries; empty: none.
        consolidation_model: String;
    }

    /// A model that talks.
    #[derive(PartialEq, Eq)]
    pub struct ModelSettings {
        /// NAME.
        name: String => none;
        /// The protocol of the server: openai or anthropic.
        protocol: ModelProtocol;
        /// The server's address up to and with the version path, such as
        /// `http://127.0.0.1:8080/v1`.
        url: String;
        /// The server's name for the model; left out: NAME.
        model: String;
        /// The environment variable that holds its key.
        key_env: String;
        /// The registered secret that is its key.
        key_secret: String;
        /// Tokens of a request and its answer; left out: what is known of the model, or
        /// `sessions.window`.
        window: u64 = 0, 1..=1_000_000_000;
        /// Tokens of the window that are kept free for the answer; left out: `sessions.reserve`.
        reserve: u64 = 0, 1..=1_000_000_000;
        /// The price of a million tokens read.
        input_price: Money;
        /// The same for tokens that the server has in its cache; left out: `input_price`.
        cached_input_price: Option<Money>;
        /// The price of a million tokens written.
        output_price: Money;
        /// The longest that an answer may take, retries included.
        timeout_seconds: u64 = 300, 1..=86_400;
        /// The longest wait for the next piece of an answer.
        idle_seconds: u64 = 120, 1..=86_400;
        /// How often a failed request is retried.
        retries: u32 = 3, 0..=100;
        /// Tells that the server caches the beginning of a request.
        caches_prefix: bool = false;
    }

    /// Where vectors come from.
    #[derive(PartialEq, Eq)]
    pub struct EmbeddingSettings {
        /// Vectors come from this program (local) or from a server that speaks OpenAI's
        /// `POST /embeddings` (endpoint).
        provider: EmbeddingProvider;
        /// The model: one that `icecore model list` shows, or the endpoint's name for its own.
        model: String = "icecore-static-1".to_owned();
        /// The endpoint's address up to and without `/embeddings`.
        url: String;
        /// The environment variable that holds the endpoint's key; empty: no key.
        key_env: String;
        /// Threads of an installed model; 0: all cores.
        threads: usize = 0, 0..=1_024 => advanced;
        /// The length of the endpoint's vectors. 0 asks it at the start, so give it where the server
        /// may be away then.
        dims: usize = 0, 0..=65_536;
        /// The longest that one request to the endpoint may take.
        timeout_seconds: u64 = 30, 1..=3_600 => advanced;
        /// Texts in one request to the endpoint.
        batch_texts: usize = 64, 1..=10_000 => advanced;
        /// Characters of a text that are sent to the endpoint.
        text_chars: usize = 8_000, 1..=1_000_000 => advanced;
    }
}

impl EmbeddingSettings {
    /// Refuses values that do not go together.
    pub fn check(&self) -> Result<(), SettingError> {
        match (self.provider, self.url.as_str()) {
            (EmbeddingProvider::Endpoint, "") => Err(SettingError::conflict(
                "`memory.embedding_provider = \"endpoint\"` needs `memory.embedding_url`",
                "give the server's address, up to and without `/embeddings`: \
                 `embedding_url = \"http://127.0.0.1:8080/v1\"`",
            )),
            _ => Ok(()),
        }
    }
}

impl ModelSettings {
    /// What it costs, in millionths.
    pub fn prices(&self) -> Prices {
        let Money(input) = self.input_price;
        let Money(cached_input) = self.cached_input_price.unwrap_or(self.input_price);
        Prices { input, cached_input, output: self.output_price.0 }
    }

    fn check(&self) -> Result<(), SettingError> {
        let Self { name, url, window, reserve, .. } = self;
        if url.is_empty() {
            return Err(SettingError::conflict(
                format!("`[models.{name}]` needs `url`"),
                "give the server's address, up to and with the version path: \
                 `url = \"http://127.0.0.1:8080/v1\"`",
            ));
        }
        if !self.key_env.is_empty() && !self.key_secret.is_empty() {
            return Err(SettingError::conflict(
                format!("`[models.{name}]` has both `key_env` and `key_secret`"),
                "leave one of them out",
            ));
        }
        if *window > 0 && reserve >= window {
            return Err(reserve_conflict(&format!("models.{name}.reserve"), *reserve, *window));
        }
        Ok(())
    }
}

impl ModelChoices {
    /// The table of a name.
    pub fn table(&self, name: &str) -> Option<&ModelSettings> {
        self.tables.get(name)
    }

    /// What a tenant may spend.
    pub fn limits(&self) -> SpendLimits {
        SpendLimits { tokens_a_day: self.tokens_a_day, cost_a_day: self.money_a_day.0 }
    }

    /// The model that summaries ask first; empty for none.
    pub fn summary_choice(&self) -> &str {
        match self.memory.summarization_strategy {
            SummarizationStrategy::Heuristic => "",
            _ if !self.memory.summarization_model.is_empty() => &self.memory.summarization_model,
            SummarizationStrategy::Local => LOCAL_MODEL,
            SummarizationStrategy::Llm => self.only_table().unwrap_or_default(),
        }
    }

    /// The model that a person chats with unless a flag names one: that of `chat.model`, the
    /// only one there is, or the one that writes handoffs.
    pub fn chat_choice(&self) -> &str {
        let only = match self.tables.keys().collect::<Vec<_>>().as_slice() {
            [only] => only.as_str(),
            _ => self.only_table().unwrap_or_default(),
        };
        let names = [self.chat_model.as_str(), only, &self.handoff_model];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
    }

    /// The one table that is not of this machine's server.
    fn only_table(&self) -> Option<&str> {
        let mut others = self.tables.keys().filter(|name| *name != LOCAL_MODEL);
        let first = others.next()?;
        others.next().is_none().then_some(first.as_str())
    }

    /// Gives tables what they leave out.
    pub fn complete(&mut self) {
        for (name, table) in &mut self.tables {
            table.name.clone_from(name);
            if table.model.is_empty() {
                table.model.clone_from(name);
            }
            table.cached_input_price.get_or_insert(table.input_price);
        }
    }

    /// Refuses values that do not go together.
    pub fn check(&self) -> Result<(), SettingError> {
        self.tables.values().try_for_each(ModelSettings::check)?;
        let names = [
            ("memory.summarization_model", &self.memory.summarization_model),
            ("sessions.distiller_model", &self.handoff_model),
            ("dreams.model", &self.dream_model),
            ("memory.consolidation_model", &self.memory.consolidation_model),
            ("chat.model", &self.chat_model),
        ];
        let is_missing =
            |name: &str| !name.is_empty() && name != LOCAL_MODEL && self.table(name).is_none();
        if let Some((key, name)) = names.into_iter().find(|(_, name)| is_missing(name)) {
            return Err(self.missing(key, name));
        }
        if self.memory.summarization_strategy == SummarizationStrategy::Llm
            && self.summary_choice().is_empty()
        {
            return Err(self.no_summary_model());
        }
        self.check_local()?;
        match self.local_urls.iter().any(|url| http_host(url).is_none()) {
            false => Ok(()),
            true => Err(SettingError::conflict(
                "`models.local_urls` has an address that is not http:// or https:// with a host \
                 and without credentials",
                "give addresses without the version path: \
                 `local_urls = [\"http://127.0.0.1:11434\"]`",
            )),
        }
    }

    fn missing(&self, key: &str, name: &str) -> SettingError {
        let known = self.tables.keys().map(String::as_str);
        let hint = match SettingError::unknown(name, known).hint() {
            Some(hint) => hint,
            None => format!("declare it: `[models.{name}]` with its `url`"),
        };
        let message =
            format!("`{key}` names the model `{name}`, and there is no `[models.{name}]`");
        SettingError::conflict(message, hint)
    }

    fn no_summary_model(&self) -> SettingError {
        let (trouble, hint) = match self.tables.len() {
            0 => (
                "none is declared".to_owned(),
                "declare one: `[models.NAME]` with its `url`; `icecore config example` shows it",
            ),
            count => (
                format!("it is not said which of {count}"),
                "name it with `memory.summarization_model`",
            ),
        };
        let message =
            format!("`memory.summarization_strategy = \"llm\"` needs a model, and {trouble}");
        SettingError::conflict(message, hint)
    }

    /// A model that is left over from another strategy must not be sent anything.
    fn check_local(&self) -> Result<(), SettingError> {
        let name = self.memory.summarization_model.as_str();
        let table =
            self.table(name).filter(|table| name != LOCAL_MODEL && !is_loopback(&table.url));
        match table.filter(|_| self.memory.summarization_strategy == SummarizationStrategy::Local) {
            None => Ok(()),
            Some(table) => Err(SettingError::conflict(
                format!(
                    "`memory.summarization_strategy = \"local\"`, but \
                     `memory.summarization_model = \"{name}\"` is not on this machine: \
                     `models.{name}.url` is `{}`",
                    table.url
                ),
                "leave `summarization_model` out, name a model at 127.0.0.1, or say \
                 `summarization_strategy = \"llm\"`",
            )),
        }
    }
}

/// Whether an address is of this machine.
fn is_loopback(url: &str) -> bool {
    http_host(url).is_some_and(|host| {
        let address = host.parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::FileSettings;

    fn parsed(text: &str) -> Result<FileSettings, SettingError> {
        FileSettings::parse(text)
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
            assert!(error.to_string().contains("is not on this machine"), "{far}: {error}");
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
        assert_eq!((chat.recall_tokens, FileSettings::default().chat.recall_tokens), (0, 800));
    }

    #[test]
    fn an_address_that_cannot_be_looked_at_is_refused() {
        for wrong in ["", "127.0.0.1:8080", "file:///etc", "http://", "http://me:pw@127.0.0.1/"] {
            let error = parsed(&format!("[models]\nlocal_urls = [\"{wrong}\"]\n")).unwrap_err();
            assert!(
                error.to_string().starts_with("`models.local_urls` has an"),
                "{wrong}: {error}"
            );
            assert!(!error.to_string().contains("pw"), "{error}");
        }
        assert!(parsed("[models]\nlocal_urls = [\"http://gpu.lan:8080\"]\n").is_ok());
    }
}
