//! Registered secrets.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::{MAX_SECRETS, Secret, SecretName};
use icecore_domain::time::Millis;

use super::state::State;
use crate::error::StoreError;
use crate::store::*;

/// A tenant's secrets, by name, older values first.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) version: u64,
    values: Vec<(Secret, Millis)>,
}

impl Default for Registered {
    fn default() -> Self {
        Self { version: 1, values: Vec::new() }
    }
}

impl Registered {
    pub(super) fn opened(&self) -> Vec<Secret> {
        self.values.iter().map(|(secret, _)| secret.clone()).collect()
    }

    pub(super) fn records(&self) -> Vec<SecretRecord> {
        let by_name = self.values.chunk_by(|(a, _), (b, _)| a.name() == b.name());
        let record = |values: &[(Secret, Millis)]| SecretRecord {
            name: values[0].0.name().clone(),
            values: values.len() as u32,
            created_at: values[0].1,
            updated_at: values[values.len() - 1].1,
        };
        by_name.map(record).collect()
    }

    fn named(&self, name: &SecretName) -> impl Iterator<Item = &Secret> {
        self.values.iter().map(|(secret, _)| secret).filter(move |secret| secret.name() == name)
    }

    /// Whether the value is new; or why it cannot be added.
    fn admit(&self, secret: &Secret, rotate: bool) -> Result<bool> {
        if self.named(secret.name()).any(|known| known.value() == secret.value()) {
            return Ok(false);
        }
        if !rotate && self.named(secret.name()).next().is_some() {
            return Err(StoreError::SecretExists { name: secret.name().clone() });
        }
        let is_told = self.values.iter().any(|(known, _)| {
            tells(secret.name(), known.value()) || tells(known.name(), secret.value())
        });
        match is_told {
            true => Err(StoreError::NameTells),
            false if self.values.len() >= MAX_SECRETS => Err(StoreError::TooManySecrets),
            false => Ok(true),
        }
    }
}

pub(super) fn put(
    state: &mut State,
    tenant: &Tenant,
    secret: Secret,
    rotate: bool,
    now: Millis,
) -> Result<SecretRecord> {
    let admitted = match state.tenant(tenant) {
        Some(known) => known.secrets.admit(&secret, rotate)?,
        None => true,
    };
    let tenant = state.ensure_tenant(tenant);
    let name = secret.name().clone();
    if admitted {
        tenant.secrets.version += 1;
        let at = tenant.secrets.values.partition_point(|(known, _)| *known.name() <= name);
        tenant.secrets.values.insert(at, (secret, now));
        tenant.record(None, "secret.added", named(&name), now);
    }
    let mut records = tenant.secrets.records();
    records.retain(|record| record.name == name);
    records.pop().ok_or(StoreError::Closed)
}

pub(super) fn remove(state: &mut State, tenant: &Tenant, name: &SecretName, now: Millis) -> bool {
    let Some(tenant) = state.tenant_mut(tenant) else { return false };
    let before = tenant.secrets.values.len();
    tenant.secrets.values.retain(|(secret, _)| secret.name() != name);
    let is_removed = tenant.secrets.values.len() < before;
    if is_removed {
        tenant.secrets.version += 1;
        tenant.record(None, "secret.removed", named(name), now);
    }
    is_removed
}

fn named(name: &SecretName) -> String {
    serde_json::json!({ "name": name.as_str() }).to_string()
}

/// Refuses what was redacted with other secrets than those of now.
pub(super) fn refuse_changed(state: &State, tenant: &Tenant, seen: u64) -> Result<()> {
    let is_same = match state.tenant(tenant) {
        Some(known) => known.secrets.version == seen,
        // It is about to be made, and has no secrets yet.
        None => seen <= 1,
    };
    if is_same { Ok(()) } else { Err(StoreError::SecretsChanged) }
}
