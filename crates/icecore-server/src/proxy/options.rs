//! Where the proxy's requests go on to, and what bounds them.

use std::collections::BTreeMap;
use std::time::Duration;

use icecore::{Principal, Protocol};
use icecore_models::ApiKey;

/// How the proxy behaves. What bounds its bodies and streams is in
/// [`Limits`](crate::Limits).
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// Where requests go on to.
    pub upstreams: TenantUpstreams,
    /// The same, by tenant; what a tenant does not name is everybody's.
    pub tenants: BTreeMap<String, TenantUpstreams>,
    /// `window`: tokens of a request and its answer together, whatever the model.
    pub window: Option<u64>,
    /// `reserve`: tokens of it that are kept free for the answer, where a request does not
    /// say.
    pub reserve: Option<u64>,
    /// Windows of models, by the name that a request has for them.
    pub windows: BTreeMap<String, u64>,
    /// `recall_tokens`: tokens of memory that may be put before a request; 0 is none.
    pub recall_tokens: u32,
    /// `fail_open`: whether a request goes on untouched where our store fails.
    pub fail_open: bool,
    /// `redact_upstream`: whether secrets are hidden in what goes upstream too.
    pub redact_upstream: bool,
    /// `kept_answer_bytes`: the most that is kept of one answer. Default 1 MiB.
    pub kept_answer_bytes: usize,
    /// `compaction_seconds`: time to make a request fit. Default 600.
    pub compaction_seconds: u64,
    /// `connect_seconds`: time to reach the provider. Default 10.
    pub connect_seconds: u64,
    /// `first_byte_seconds`: time until an answer begins. Default 600.
    pub first_byte_seconds: u64,
    /// `idle_seconds`: time between two pieces of an answer. Default 300.
    pub idle_seconds: u64,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            upstreams: TenantUpstreams::default(),
            tenants: BTreeMap::new(),
            window: None,
            reserve: None,
            windows: BTreeMap::new(),
            recall_tokens: 0,
            fail_open: true,
            redact_upstream: false,
            kept_answer_bytes: 1 << 20,
            compaction_seconds: 600,
            connect_seconds: 10,
            first_byte_seconds: 600,
            idle_seconds: 300,
        }
    }
}

/// One tenant's providers.
#[derive(Debug, Clone, Default)]
pub struct TenantUpstreams {
    /// Who speaks OpenAI's protocol.
    pub openai: UpstreamOptions,
    /// Who speaks Anthropic's.
    pub anthropic: UpstreamOptions,
}

impl TenantUpstreams {
    fn of(&self, protocol: Protocol) -> &UpstreamOptions {
        match protocol {
            Protocol::OpenAi => &self.openai,
            Protocol::Anthropic => &self.anthropic,
        }
    }
}

/// A provider.
#[derive(Debug, Clone, Default)]
pub struct UpstreamOptions {
    /// Its address up to and with the version path, such as `https://api.openai.com/v1`.
    pub url: Option<String>,
    /// What it is shown.
    pub key: UpstreamKey,
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
            (None, key) => UpstreamOptions { url: usual.url.clone(), key: key.clone() },
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
        let named = |url: Option<&str>, key| UpstreamOptions { url: url.map(str::to_owned), key };
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
