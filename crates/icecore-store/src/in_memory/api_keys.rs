//! API keys, by hash.

use std::collections::BTreeMap;

use icecore_domain::ids::Tenant;
use icecore_domain::redact::Redactor;

use super::state::State;
use crate::error::StoreError;
use crate::store::*;
use crate::told::{Again, add};

/// All keys by hash.
pub(super) type Keys = BTreeMap<[u8; 32], ApiKeyRecord>;

pub(super) fn put(
    state: &mut State,
    key: ApiKeyRecord,
    hash: [u8; 32],
    by: &KeyActor,
) -> Result<()> {
    refuse_known(&state.api_keys, &key.id, &hash)?;
    let (payload, at) = (key.created(by), key.created_at);
    state.ensure_tenant(&key.tenant).record(None, "key.created", payload, at);
    state.api_keys.insert(hash, key);
    Ok(())
}

fn refuse_known(keys: &Keys, id: &str, hash: &[u8; 32]) -> Result<()> {
    match keys.contains_key(hash) || keys.values().any(|key| key.id == id) {
        true => Err(StoreError::Commit(format!("an API key `{id}` is there already"))),
        false => Ok(()),
    }
}

pub(super) fn list(keys: &Keys, tenant: Option<&Tenant>) -> Vec<ApiKeyRecord> {
    let of_tenant = |key: &&ApiKeyRecord| tenant.is_none_or(|tenant| *tenant == key.tenant);
    let mut found: Vec<ApiKeyRecord> = keys.values().filter(of_tenant).cloned().collect();
    let order = |key: &ApiKeyRecord| (key.tenant.clone(), key.created_at, key.id.clone());
    found.sort_by_key(order);
    found
}

fn find(keys: &Keys, id: &str, tenant: Option<&Tenant>) -> Option<([u8; 32], ApiKeyRecord)> {
    let is_it = |key: &ApiKeyRecord| key.id == id && tenant.is_none_or(|t| *t == key.tenant);
    let found = keys.iter().find(|(_, key)| is_it(key));
    found.map(|(hash, key)| (*hash, key.clone()))
}

pub(super) fn revoke(
    state: &mut State,
    revocation: &KeyRevocation,
) -> Result<Option<ApiKeyRecord>> {
    let found = find(&state.api_keys, &revocation.id, revocation.tenant.as_ref());
    let Some((hash, key)) = found else { return Ok(None) };
    let keys = list(&state.api_keys, Some(&key.tenant));
    let Some(revoked) = revocation.of(&key, &keys)? else { return Ok(Some(key)) };
    state.api_keys.insert(hash, revoked.clone());
    let tenant = state.ensure_tenant(&revoked.tenant);
    tenant.record(None, "key.revoked", revoked.revoked(&revocation.by), revocation.at);
    Ok(Some(revoked))
}

pub(super) fn rotate(state: &mut State, rotation: &KeyRotation) -> Result<Option<RotatedKey>> {
    let found = find(&state.api_keys, &rotation.id, rotation.tenant.as_ref());
    let Some((hash, key)) = found else { return Ok(None) };
    let rotated = rotation.of(&key, &list(&state.api_keys, Some(&key.tenant)))?;
    refuse_known(&state.api_keys, &rotation.new_id, &rotation.new_hash)?;
    state.api_keys.insert(hash, rotated.old.clone());
    state.api_keys.insert(rotation.new_hash, rotated.new.clone());
    let tenant = state.ensure_tenant(&key.tenant);
    tenant.record(None, "key.rotated", rotated.rotated(&rotation.by), rotation.at);
    Ok(Some(rotated))
}

/// Puts the names of a tenant's keys through a redactor again.
pub(super) fn retell(keys: &mut Keys, tenant: &Tenant, redactor: &Redactor, told: &mut Told) {
    let again = Again(redactor);
    for key in keys.values_mut().filter(|key| key.tenant == *tenant) {
        let Some((name, hidden)) = key.name.as_ref().and_then(|name| again.text(name.as_str()))
        else {
            continue;
        };
        key.name = Some(name);
        add(&mut told.hidden, &hidden);
        told.keys += 1;
    }
}
