//! `icecore key`: the keys that callers of the host show, and the one that seals
//! everything else.

mod master;

use std::time::Duration;

use icecore::store::StoreError;
use icecore::{Memory, Millis, Tenant};
use icecore_host::keys::{ApiKeyRecord, KeyActor, KeyRevocation, KeyState};
use icecore_server::{KeyTerms, MAX_OVERLAP_SECONDS, NewKey, Role, ServeError};
use serde_json::json;

use crate::app::{builder, principal};
use crate::args::{KeyAction, KeyArgs, KeyCreateArgs, KeyRole};
use crate::draw::{clip, table};
use crate::failure::{Failure, Outcome, Status};
use crate::json;
use crate::printer::{Printer, Tone};
use crate::settings::Settings;

/// Makes, lists, replaces or takes back keys, or looks after the master key.
pub async fn run(args: KeyArgs, settings: &Settings, printer: &Printer) -> Outcome<Status> {
    if let KeyAction::RotateMaster = args.action {
        return master::rotate(settings, printer).await;
    }
    let principal = principal(settings)?;
    let memory = builder(settings)?.embedder(None).open(&settings.data).await?;
    // Without a word about whose, keys are looked for among all.
    let named = settings.flags.tenant.as_ref().map(|_| principal.tenant().clone());
    let keys = icecore_host::keys::Keys::new(memory.clone());
    let keys = Keys { memory, keys, named, settings, printer };
    match args.action {
        KeyAction::Create(args) => keys.create(args, principal.tenant()).await,
        KeyAction::List => keys.list().await,
        KeyAction::Revoke { id } => keys.revoke(id).await,
        KeyAction::Rotate { id, overlap } => keys.rotate(&id, overlap.unwrap_or_default()).await,
        KeyAction::RotateMaster => Ok(Status::Done),
    }
}

impl From<KeyRole> for Role {
    fn from(role: KeyRole) -> Self {
        match role {
            KeyRole::Reader => Role::Reader,
            KeyRole::Writer => Role::Writer,
            KeyRole::Admin => Role::Admin,
        }
    }
}

/// The keys of a store, or of the tenant that was named.
struct Keys<'a> {
    memory: Memory,
    keys: icecore_host::keys::Keys,
    named: Option<Tenant>,
    settings: &'a Settings,
    printer: &'a Printer,
}

impl Keys<'_> {
    async fn create(&self, args: KeyCreateArgs, tenant: &Tenant) -> Outcome<Status> {
        let KeyCreateArgs { role, name, expires } = args;
        let expires_at = expires.map(|ends| ends.moment(self.memory.now()));
        let terms = KeyTerms { role: role.into(), name, expires_at };
        let made = icecore_server::create_key_with(&self.memory, tenant, terms).await;
        let made = made.map_err(failure)?;
        self.show(&made)?;
        let record = &made.record;
        self.printer.talk(&format!(
            "{} is a key of tenant `{}` with the role {}{}",
            record.id,
            record.tenant,
            record.role,
            record.expires_at.map(|at| format!(", until {}", at.to_minute())).unwrap_or_default(),
        ));
        self.printer.talk("It is shown this once: only its hash is stored");
        Ok(Status::Done)
    }

    /// The key is the result, and the only thing on stdout.
    fn show(&self, made: &NewKey) -> Outcome<()> {
        match self.printer.is_json() {
            true => self.printer.json(&json::new_key(made)),
            false => self.printer.line(&made.key),
        }
    }

    async fn list(&self) -> Outcome<Status> {
        let keys = self.keys.list(self.named.as_ref()).await?;
        if self.printer.is_json() {
            let keys: Vec<_> = keys.iter().map(json::key).collect();
            self.printer.json(&json!({ "keys": keys }))?;
            return Ok(Status::Done);
        }
        if keys.is_empty() {
            self.printer.talk("No keys yet. `icecore key create --role reader` makes one.");
            return Ok(Status::Done);
        }
        let now = self.memory.now();
        let head = ["key", "tenant", "role", "name", "made", "expires", "state"];
        let head = head.map(str::to_owned).to_vec();
        let rows = keys.iter().map(|key| row(key, now));
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        for (at, line) in table(&rows, &[]).iter().enumerate() {
            match at {
                0 => self.printer.line(&self.printer.paint(Tone::Dim, line))?,
                _ => self.printer.line(line)?,
            }
        }
        Ok(Status::Done)
    }

    async fn revoke(&self, id: String) -> Outcome<Status> {
        let at = self.memory.now();
        let (tenant, keeps_an_admin) = (self.named.clone(), false);
        let revocation =
            KeyRevocation { id: id.clone(), tenant, keeps_an_admin, by: KeyActor::Operator, at };
        let revoked = self.keys.revoke(revocation).await?.ok_or_else(|| unknown(&id))?;
        if self.printer.is_json() {
            self.printer.json(&json::key(&revoked))?;
        }
        let since = revoked.revoked_at.map(Millis::to_minute).unwrap_or_default();
        self.printer.talk(&format!(
            "{id} is revoked since {since}; a running host refuses it within five seconds"
        ));
        self.warn_of_file(&id, "was revoked").await;
        self.warn_of_no_admin(&revoked).await?;
        Ok(Status::Done)
    }

    async fn rotate(&self, id: &str, overlap: Duration) -> Outcome<Status> {
        if overlap.as_secs() > MAX_OVERLAP_SECONDS {
            return Err(Failure::refused(
                "an overlap is at most 30 days",
                "rotate with a shorter one; nothing was changed",
            ));
        }
        let rotated =
            icecore_server::rotate_key(&self.memory, id, self.named.as_ref(), overlap).await;
        let (made, old) = rotated.map_err(failure)?.ok_or_else(|| unknown(id))?;
        self.show(&made)?;
        let ends = match old.revoked_at {
            Some(_) => "is revoked".to_owned(),
            None => {
                format!("works until {}", old.expires_at.map(Millis::to_minute).unwrap_or_default())
            }
        };
        self.printer.talk(&format!("{} takes the place of {id}, which {ends}", made.record.id));
        self.printer.talk("It is shown this once: only its hash is stored");
        self.warn_of_file(id, "was replaced").await;
        Ok(Status::Done)
    }

    /// `admin.key` is read by people and scripts, and cannot know.
    async fn warn_of_file(&self, id: &str, fate: &str) {
        let found = icecore_server::admin_key_id(&self.memory, &self.settings.data).await;
        if found.is_ok_and(|found| found.as_deref() == Some(id)) {
            self.printer
                .warn(&format!("`admin.key` in the data directory holds a key that {fate}"));
            self.printer
                .hint("write another admin key into it, or remove it: `serve` makes a new one");
        }
    }

    async fn warn_of_no_admin(&self, revoked: &ApiKeyRecord) -> Outcome<()> {
        let (tenant, now) = (&revoked.tenant, self.memory.now());
        let keys = self.keys.list(Some(tenant)).await?;
        let admin = Role::Admin.as_str();
        let is_admin = |key: &ApiKeyRecord| key.role == admin && key.state(now) == KeyState::Valid;
        if revoked.role == admin && !keys.iter().any(is_admin) {
            self.printer.warn(&format!("tenant `{tenant}` has no valid admin key left"));
        }
        Ok(())
    }
}

fn row(key: &ApiKeyRecord, now: Millis) -> Vec<String> {
    vec![
        key.id.clone(),
        key.tenant.to_string(),
        key.role.clone(),
        key.name.as_ref().map(|name| clip(name.as_str(), 30)).unwrap_or_default(),
        key.created_at.to_minute(),
        key.expires_at.map_or_else(|| "never".to_owned(), Millis::to_minute),
        key.state(now).as_str().to_owned(),
    ]
}

fn unknown(id: &str) -> Failure {
    let message = match id.starts_with("ice_") {
        // Somebody's key, and so not to be repeated.
        true => "that is a key and not the id of one".to_owned(),
        false => format!("there is no key `{id}`"),
    };
    Failure::refused(
        message,
        "`icecore key list` shows the ids; without --tenant it shows those of all tenants",
    )
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::KeyName { .. } => {
            Failure::refused(error.to_string(), "give another with --name")
        }
        ServeError::KeyExpiry => {
            Failure::refused(error.to_string(), "give --expires a time like 90d or a later moment")
        }
        ServeError::Memory(icecore::MemoryError::Store(StoreError::KeyEnded { id })) => {
            Failure::refused(
                format!("key `{id}` has expired or was revoked, and cannot be rotated"),
                "make a new one with `icecore key create`",
            )
        }
        ServeError::Memory(error) => Failure::Memory(error),
        other => Failure::Broken(other.to_string()),
    }
}
