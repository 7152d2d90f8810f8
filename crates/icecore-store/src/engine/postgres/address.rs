//! Where the database is, from its URL.
//!
//! `postgres://user:password@host:port/database`, as `psql` takes it, with these options
//! of our own:
//!
//! | option | meaning |
//! |---|---|
//! | `schema` | the schema of our tables, `icecore` by default |
//! | `sslmode` | `disable`, `prefer` (default), `require`, `verify-ca`, `verify-full` |
//! | `sslrootcert` | a file of certificates to trust |
//! | `pooler` | `transaction` behind a pooler that hands out server connections by transaction |
//! | `direct` | `host:port` of the server behind that pooler, for notifications |
//! | `replica` | `host:port` of a streaming replica that may serve reads; may be repeated |

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::PostgresOptions;
use crate::error::{Result, StoreError};

/// The schema that our tables are in, unless the URL names another.
const SCHEMA: &str = "icecore";

/// Questions without an answer after which the other side is gone.
const UNANSWERED: u32 = 3;

/// Where the database is, and how to talk to it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    /// Where notifications go. `None` where none can be received: behind a pooler.
    pub(super) listener: Option<Config>,
    pub(super) trust: Trust,
    pub(super) schema: String,
    /// Whether each transaction may run on another server connection.
    pub(super) is_pooled: bool,
    pub(super) replicas: Vec<Address>,
    /// Host, port and database: what may be shown.
    pub(super) shown: String,
}

/// Whose certificate is good enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trust {
    /// There is no TLS.
    Plain,
    /// Anybody's: what is sent is hidden from those who only listen.
    Anybody,
    /// One that an authority signed, for whatever host.
    Signed(Option<PathBuf>),
    /// One that an authority signed for this host.
    Named(Option<PathBuf>),
}

impl Address {
    /// Reads a URL. What it refuses it names, but for the password.
    pub(super) fn parse(url: &str, options: &PostgresOptions) -> Result<Self> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        if !["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme)) {
            return Err(refused("it does not begin with `postgres://`"));
        }
        let mut own = Own::default();
        let passed: Vec<&str> =
            query.split('&').filter(|option| !option.is_empty() && !own.takes(option)).collect();
        let (mode, trust) = own.trust()?;
        let connecting_to = |place: Option<&String>| {
            let address = place.map_or(address.to_owned(), |place| with_place(address, place));
            let plain = format!("{address}?{}", passed.join("&"));
            let mut config: Config = plain.parse().map_err(|error| refused(&reason(&error)))?;
            config.ssl_mode(mode);
            let name = config.get_application_name().unwrap_or("icecore").to_owned();
            config.application_name(name);
            config.connect_timeout(Duration::from_secs(options.connect_seconds));
            // The kernel reports a host that vanished.
            config.keepalives_idle(Duration::from_secs(options.keepalive_seconds));
            config.keepalives_interval(Duration::from_secs(options.keepalive_seconds));
            config.keepalives_retries(UNANSWERED);
            let silent = options.keepalive_seconds.saturating_mul(UNANSWERED.into());
            config.tcp_user_timeout(Duration::from_secs(silent));
            if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
                return Err(refused("it names no host"));
            }
            Ok(config)
        };
        let schema = own.schema.as_deref().unwrap_or(SCHEMA).to_owned();
        if schema.is_empty() || schema.contains('\0') {
            return Err(refused("`schema` is empty"));
        }
        let is_pooled = own.is_pooled()?;
        let config = connecting_to(None)?;
        let listener = match &own.direct {
            Some(place) => Some(connecting_to(Some(place))?),
            None => (!is_pooled).then(|| config.clone()),
        };
        let mut address = Self {
            shown: shown(&config),
            config,
            listener,
            trust,
            schema,
            is_pooled,
            replicas: Vec::new(),
        };
        for place in &own.replicas {
            let mut config = connecting_to(Some(place))?;
            config.target_session_attrs(TargetSessionAttrs::Any);
            let replica =
                Self { shown: shown(&config), config, is_pooled: false, ..address.clone() };
            address.replicas.push(Self { replicas: Vec::new(), ..replica });
        }
        Ok(address)
    }

    /// The user that we log in as, if the URL names one.
    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("CURRENT_USER")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shown)
    }
}

/// The options that are ours to understand.
#[derive(Default)]
struct Own {
    schema: Option<String>,
    mode: Option<String>,
    authorities: Option<PathBuf>,
    pooler: Option<String>,
    direct: Option<String>,
    replicas: Vec<String>,
}

impl Own {
    /// Whether it is one of them.
    fn takes(&mut self, option: &str) -> bool {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = decoded(value);
        match name {
            "schema" => self.schema = Some(value),
            "sslmode" => self.mode = Some(value),
            "sslrootcert" => self.authorities = Some(value.into()),
            "pooler" => self.pooler = Some(value),
            "direct" => self.direct = Some(value),
            "replica" => self.replicas.push(value),
            _ => return false,
        }
        true
    }

    fn is_pooled(&self) -> Result<bool> {
        match self.pooler.as_deref() {
            None | Some("none" | "session") => Ok(false),
            Some("transaction") => Ok(true),
            Some(_) => Err(refused("`pooler` is none of none, session, transaction")),
        }
    }

    fn trust(&self) -> Result<(SslMode, Trust)> {
        let authorities = || self.authorities.clone();
        Ok(match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Trust::Plain),
            "prefer" => (SslMode::Prefer, Trust::Anybody),
            "require" => (SslMode::Require, Trust::Anybody),
            "verify-ca" => (SslMode::Require, Trust::Signed(authorities())),
            "verify-full" => (SslMode::Require, Trust::Named(authorities())),
            _ => {
                return Err(refused(
                    "`sslmode` is none of disable, prefer, require, verify-ca, verify-full",
                ));
            }
        })
    }
}

/// Undoes `%2F` and the like; what is no escape stays.
fn decoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A URL without options, for another `host:port`.
fn with_place(address: &str, place: &str) -> String {
    let begin = address.find("://").map_or(0, |at| at + 3);
    let end = address[begin..].find('/').map_or(address.len(), |at| begin + at);
    let user = address[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    format!("{}{place}{}", &address[..user], &address[end..])
}

fn shown(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let addresses = config.get_hostaddrs().iter().map(|address| address.to_string());
    let names: Vec<String> = match config.get_hosts().is_empty() {
        false => hosts.collect(),
        true => addresses.collect(),
    };
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let port = if ports.is_empty() { "5432".to_owned() } else { ports.join(",") };
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{}:{port}/{database}", names.join(","))
}

fn refused(reason: &str) -> StoreError {
    StoreError::BadStoreUrl { reason: reason.to_owned() }
}

/// What the parser says, which names options and never their values.
fn reason(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address> {
        Address::parse(url, &PostgresOptions::default())
    }

    #[test]
    fn what_is_shown_has_no_password() {
        let address =
            parse("postgres://me:hunter2@db.example:6543/memory?connect_timeout=3").unwrap();
        assert_eq!(format!("{address:?}"), "db.example:6543/memory");
        assert_eq!((address.schema.as_str(), address.user()), ("icecore", "me"));
    }

    #[test]
    fn options_of_our_own_are_understood() {
        let url = "postgresql://h/d?sslmode=verify-full&schema=other&sslrootcert=%2Fetc%2Fca.pem";
        let address = parse(url).unwrap();
        assert_eq!(address.trust, Trust::Named(Some("/etc/ca.pem".into())));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address.schema, "other");
        assert_eq!(parse("postgres://h/d?sslmode=disable").unwrap().trust, Trust::Plain);
        assert_eq!(parse("postgres://h/d").unwrap().trust, Trust::Anybody);
    }

    #[test]
    fn other_servers_differ_in_their_place_alone() {
        let url = "postgres://me:a%40b@h:6432/d?pooler=transaction&direct=h:5432&replica=r1&replica=r2:99";
        let address = parse(url).unwrap();
        let ports = |config: &Config| config.get_ports().to_vec();
        assert!(address.is_pooled);
        assert_eq!(
            (ports(&address.config), ports(&address.listener.unwrap())),
            (vec![6432], vec![5432])
        );
        let replicas: Vec<&str> = address.replicas.iter().map(|r| r.shown.as_str()).collect();
        assert_eq!(replicas, ["r1:5432/d", "r2:99/d"]);
        assert!(address.replicas.iter().all(|r| r.config.get_password() == Some(b"a@b")));
        assert!(parse("postgres://h/d?pooler=transaction").unwrap().listener.is_none());
        assert!(parse("postgres://h/d").unwrap().listener.is_some());
    }

    #[test]
    fn what_is_wrong_is_named_without_its_secret() {
        let check = |url: &str, expected: &str| {
            let error = parse(url).err().unwrap();
            let said = error.to_string();
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains("hunter2") && error.hint().is_some());
        };
        check("mysql://me:hunter2@h/d", "postgres://");
        check("postgres://me:hunter2@h/d?sslmode=perhaps", "sslmode");
        check("postgres://me:hunter2@h/d?colour=red", "colour");
        check("postgres://me:hunter2@h:port/d", "port");
        check("postgres:///d", "no host");
        check("postgres://h/d?pooler=statement", "pooler");
    }
}
