//! Where the proxy's requests go on to, and what bounds them.

use std::collections::BTreeMap;
use std::time::Duration;

use icecore::Principal;
use icecore::models::Protocol;
use icecore::settings::reserve_conflict;
use icecore_models::ApiKey;
use icecore_settings::{SettingError, http_host, settings};

settings! {
    /// How the proxy behaves. Limits on its bodies and streams are in
    /// [`Limits`](crate::Limits).
    pub struct ProxyOptions {
        /// Where chats go on to from /openai/v1 and /anthropic/v1. Clients show a key of ours.
        upstreams: TenantUpstreams => at "proxy.";
        /// Providers of one tenant; what its table leaves out is as above.
        tenants: BTreeMap<String, TenantUpstreams> => tables "proxy.tenants";
        /// Tokens of a request and its answer; 0: what `[models.NAME]` declares or is known of the
        /// model, else `sessions.window`.
        window: Option<u64> = None, 0..=1_000_000_000;
        /// Tokens of the window for the answer, where a request does not say; 0: as
        /// `sessions.reserve`.
        reserve: Option<u64> = None, 0..=1_000_000_000;
        /// Windows of models, by the name that a request has for them.
        windows: BTreeMap<String, u64> => none;
        /// Tokens of memory that may be put before a request; 0: none.
        recall_tokens: u32 = 0, 0..=1_000_000;
        /// Sends requests on untouched while the store fails.
        fail_open: bool = true;
        /// Hides secrets in what goes upstream, too.
        redact_upstream: bool = false;
        /// The most that is stored of one answer.
        kept_answer_bytes: usize = 1 << 20, 1 << 10..=1 << 20;
        /// The longest that making a request fit may take; then it is refused, and stored.
        compaction_seconds: u64 = 600, 1..=86_400;
        /// The longest that connecting to a provider may take.
        connect_seconds: u64 = 10, 1..=3_600 => advanced;
        /// The longest wait until an answer begins.
        first_byte_seconds: u64 = 600, 1..=86_400;
        /// The longest wait for the next piece of an answer.
        idle_seconds: u64 = 300, 1..=86_400;
    }

    /// One tenant's providers.
    pub struct TenantUpstreams {
        /// The one that speaks OpenAI's protocol.
        openai: UpstreamOptions => under "openai_";
        /// The one that speaks Anthropic's.
        anthropic: UpstreamOptions => under "anthropic_";
    }

    /// A provider.
    pub struct UpstreamOptions {
        /// The provider's address up to and with the version path, such as
        /// `https://api.openai.com/v1`.
        url: Option<String>;
        /// The environment variable that holds its key.
        key_env: String;
        /// The secret that is its key, registered by the caller's tenant.
        key_secret: String;
        /// What it is shown.
        key: UpstreamKey => none;
    }
}

impl TenantUpstreams {
    fn of(&self, protocol: Protocol) -> &UpstreamOptions {
        match protocol {
            Protocol::OpenAi => &self.openai,
            Protocol::Anthropic => &self.anthropic,
        }
    }

    /// Refuses values that do not go together; `at` is the table.
    fn check(&self, at: &str) -> Result<(), SettingError> {
        for (protocol, one) in [("openai", &self.openai), ("anthropic", &self.anthropic)] {
            if one.url.as_deref().is_some_and(|url| http_host(url).is_none()) {
                return Err(SettingError::conflict(
                    format!(
                        "`{at}.{protocol}_url` must be http:// or https:// with a host and without credentials"
                    ),
                    "give the provider's address up to and with the version path, such as \
                     \"https://api.openai.com/v1\"",
                ));
            }
            if !one.key_env.is_empty() && !one.key_secret.is_empty() {
                let key = format!("{at}.{protocol}");
                return Err(SettingError::conflict(
                    format!("both `{key}_key_env` and `{key}_key_secret` are set"),
                    "leave one of them out",
                ));
            }
        }
        Ok(())
    }
}

/// The key that a provider is shown.
#[derive(Debug, Clone, Default)]
pub enum UpstreamKey {
    /// None.
    #[default]
    Absent,
    /// The client's own: it goes on as it came, and is kept nowhere.
    Callers,
    /// This one.
    Given(ApiKey),
    /// The secret of this name that the caller's tenant has registered.
    Secret(String),
}

/// A proxy without keys of ours, for one person on this machine.
#[derive(Debug, Clone)]
pub struct Alone {
    /// On whose behalf.
    pub principal: Principal,
    /// The memory of requests that name none.
    pub memory: String,
}

impl ProxyOptions {
    /// Refuses values that do not go together.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        self.upstreams.check("proxy")?;
        for (name, upstreams) in &self.tenants {
            upstreams.check(&format!("proxy.tenants.{name}"))?;
        }
        match (self.window, self.reserve) {
            (Some(window), Some(reserve)) if reserve >= window => {
                Err(reserve_conflict("proxy.reserve", reserve, window))
            }
            _ => Ok(()),
        }
    }

    /// Gives every provider its key: `find` looks a variable up.
    ///
    /// Fails with the name of the first variable that is missing.
    pub fn find_keys(&mut self, find: impl Fn(&str) -> Option<ApiKey>) -> Result<(), String> {
        let all = std::iter::once(&mut self.upstreams).chain(self.tenants.values_mut());
        for one in all.flat_map(|tenant| [&mut tenant.openai, &mut tenant.anthropic]) {
            one.key = match (one.key_env.as_str(), one.key_secret.as_str()) {
                ("", "") => UpstreamKey::Absent,
                ("", secret) => UpstreamKey::Secret(secret.to_owned()),
                (variable, _) => {
                    UpstreamKey::Given(find(variable).ok_or_else(|| variable.to_owned())?)
                }
            };
        }
        Ok(())
    }

    /// A tenant's provider for a protocol. Where a tenant names an address of its own, the
    /// key is its own too: everybody's is not shown elsewhere.
    pub(crate) fn upstream(&self, tenant: &str, protocol: Protocol) -> UpstreamOptions {
        let usual = self.upstreams.of(protocol);
        let Some(own) = self.tenants.get(tenant).map(|own| own.of(protocol)) else {
            return usual.clone();
        };
        match (&own.url, &own.key) {
            (Some(_), _) => own.clone(),
            (None, UpstreamKey::Absent) => usual.clone(),
            (None, key) => {
                UpstreamOptions { url: usual.url.clone(), key: key.clone(), ..Default::default() }
            }
        }
    }

    pub(crate) fn compaction_time(&self) -> Duration {
        Duration::from_secs(self.compaction_seconds)
    }

    pub(crate) fn connect_time(&self) -> Duration {
        Duration::from_secs(self.connect_seconds)
    }

    pub(crate) fn first_byte_time(&self) -> Duration {
        Duration::from_secs(self.first_byte_seconds)
    }

    pub(crate) fn idle_time(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(options: &UpstreamOptions) -> String {
        let key = match &options.key {
            UpstreamKey::Absent => "none",
            UpstreamKey::Callers => "callers",
            UpstreamKey::Given(_) => "given",
            UpstreamKey::Secret(name) => name,
        };
        format!("{} with {key}", options.url.as_deref().unwrap_or("nowhere"))
    }

    #[test]
    fn a_tenants_address_never_sees_everybodys_key() {
        let named = |url: Option<&str>, key| {
            let url = url.map(str::to_owned);
            UpstreamOptions { url, key, ..Default::default() }
        };
        let openai = |openai| TenantUpstreams { openai, ..TenantUpstreams::default() };
        let options = ProxyOptions {
            upstreams: openai(named(Some("usual"), UpstreamKey::Given(ApiKey::new("k")))),
            tenants: BTreeMap::from([
                ("own-key".to_owned(), openai(named(None, UpstreamKey::Secret("mine".to_owned())))),
                ("own-place".to_owned(), openai(named(Some("there"), UpstreamKey::Absent))),
                ("nothing".to_owned(), TenantUpstreams::default()),
            ]),
            ..ProxyOptions::default()
        };
        let check = |tenant: &str, expected: &str| {
            assert_eq!(told(&options.upstream(tenant, Protocol::OpenAi)), expected, "{tenant}");
        };
        check("anybody", "usual with given");
        check("nothing", "usual with given");
        check("own-key", "usual with mine");
        check("own-place", "there with none");
        assert_eq!(told(&options.upstream("anybody", Protocol::Anthropic)), "nowhere with none");
    }
}
