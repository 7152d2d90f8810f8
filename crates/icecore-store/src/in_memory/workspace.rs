//! Files of workspaces.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;
use icecore_domain::workspace::{DEFAULT_CONTENT_TYPE, FilePath, Workspace};

use super::secrets::refuse_changed;
use super::state::{State, TenantState, stored_text};
use crate::bounds::Change;
use crate::dreams::is_index;
use crate::error::StoreError;
use crate::store::*;
use crate::told::{Again, add};
use crate::workspace::{digest, renamed, updated};

/// A version of a file.
#[derive(Clone)]
pub(super) struct StoredFile {
    workspace: String,
    record: FileRecord,
    hidden: Hidden,
}

impl StoredFile {
    pub(super) fn bytes(&self) -> i64 {
        self.record.content.as_str().len() as i64
    }

    fn is_of(&self, workspace: &Workspace, path: &FilePath) -> bool {
        self.workspace == workspace.name() && self.record.head.path == *path
    }
}

fn versions<'a>(
    state: &'a State,
    workspace: &'a Workspace,
    path: &'a FilePath,
) -> impl DoubleEndedIterator<Item = &'a FileRecord> {
    let files = state.tenant(workspace.tenant()).map_or(&[][..], |tenant| &tenant.files);
    files.iter().filter(move |file| file.is_of(workspace, path)).map(|file| &file.record)
}

fn losses(state: &State, workspace: &Workspace) -> u64 {
    state.tenant(workspace.tenant()).map_or(0, |tenant| tenant.dream_losses)
}

fn refuse_unexpected(expect: Expect, last: Option<&FileRecord>, lost: u64) -> Result<()> {
    match expect.holds(last.map(|last| last.head.position), lost) {
        true => Ok(()),
        false => {
            let current = last.map_or(0, |last| last.head.version);
            Err(StoreError::FileConflict { current })
        }
    }
}

pub(super) fn put(state: &mut State, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
    refuse_changed(state, workspace.tenant(), file.secrets_seen)?;
    let is_taken = |claim: &Claim<FileRecord>| {
        let tenant = state.tenant(workspace.tenant());
        tenant.is_some_and(|t| t.outcome(&claim.operation, &claim.key, file.now).is_some())
    };
    if file.claim.as_ref().is_some_and(is_taken) {
        return Err(StoreError::ClaimTaken);
    }
    let last = versions(state, workspace, &file.path).next_back();
    refuse_unexpected(file.expect, last, losses(state, workspace))?;
    if last.is_none() && list(state, workspace, "").len() as u64 >= file.most_files {
        return Err(StoreError::TooManyFiles { most: file.most_files });
    }
    let version = last.map_or(1, |last| last.head.version + 1);
    refuse_beyond(state, workspace, &file, version)?;
    let tenant = state.ensure_tenant(workspace.tenant());
    let payload = updated(file.path.as_str(), version);
    let position = tenant.record(None, "workspace.updated", payload, file.now);
    let oldest = oldest_gone(&file, version);
    tenant
        .files
        .retain(|known| !known.is_of(workspace, &file.path) || known.record.head.version > oldest);
    let NewFile { path, content, content_type, now, hidden, claim, .. } = file;
    let digest = digest(content.as_str());
    let head = FileHead { path, version, content_type, digest, position, updated_at: now };
    let record = FileRecord { head, content };
    let is_the_index = is_index(workspace, &record.head.path);
    let workspace = workspace.name().to_owned();
    tenant.files.push(StoredFile { workspace, record: record.clone(), hidden });
    if is_the_index {
        tenant.index_lost = false;
    }
    if let Some(claim) = claim {
        tenant.put_outcome(claim.outcome(&record), now);
    }
    Ok(record)
}

/// The last version that goes when another is kept.
fn oldest_gone(file: &NewFile, version: u64) -> u64 {
    version.saturating_sub(file.versions_kept.max(1))
}

fn refuse_beyond(state: &State, workspace: &Workspace, file: &NewFile, version: u64) -> Result<()> {
    // A dream tells there what it came to.
    if is_index(workspace, &file.path) {
        return Ok(());
    }
    let going = versions(state, workspace, &file.path)
        .filter(|known| known.head.version <= oldest_gone(file, version))
        .map(|known| known.content.as_str().len() as i64);
    let bytes = file.content.as_str().len() as i64 - going.sum::<i64>();
    state.refuse_beyond(workspace.tenant(), || Change::bytes(bytes))
}

pub(super) fn get(
    state: &State,
    workspace: &Workspace,
    path: &FilePath,
    version: Option<u64>,
) -> Option<FileRecord> {
    let mut found = versions(state, workspace, path).rev();
    found.find(|file| version.is_none_or(|version| file.head.version == version)).cloned()
}

pub(super) fn list(state: &State, workspace: &Workspace, prefix: &str) -> Vec<FileHead> {
    let files = state.tenant(workspace.tenant()).map_or(&[][..], |tenant| &tenant.files);
    let paths: BTreeSet<&FilePath> = files
        .iter()
        .filter(|file| file.workspace == workspace.name())
        .map(|file| &file.record.head.path)
        .filter(|path| path.as_str().starts_with(prefix))
        .collect();
    let last = |path| versions(state, workspace, path).next_back();
    paths.into_iter().filter_map(last).map(|file| file.head.clone()).collect()
}

pub(super) fn delete(
    state: &mut State,
    workspace: &Workspace,
    path: &FilePath,
    expect: Expect,
    now: Millis,
) -> Result<bool> {
    let last = versions(state, workspace, path).next_back();
    refuse_unexpected(expect, last, losses(state, workspace))?;
    let Some(version) = last.map(|last| last.head.version) else { return Ok(false) };
    let tenant = state.ensure_tenant(workspace.tenant());
    tenant.files.retain(|file| !file.is_of(workspace, path));
    tenant.record(None, "workspace.updated", updated(path.as_str(), version + 1), now);
    Ok(true)
}

/// Deletes a file of the default workspace; false if there is none.
pub(super) fn delete_all(tenant: &mut TenantState, path: &str, now: Millis) -> bool {
    let is_it = |file: &StoredFile| {
        file.workspace == Workspace::DEFAULT && file.record.head.path.as_str() == path
    };
    let last = tenant.files.iter().rfind(|file| is_it(file));
    let Some(version) = last.map(|last| last.record.head.version) else { return false };
    tenant.files.retain(|file| !is_it(file));
    tenant.record(None, "workspace.updated", updated(path, version + 1), now);
    true
}

/// Adds the files of a tenant to what is counted of it.
pub(super) fn add_to(files: &[StoredFile], stats: &mut StoreStats) {
    let paths: BTreeSet<_> =
        files.iter().map(|file| (&file.workspace, &file.record.head.path)).collect();
    stats.files = paths.len() as u64;
    files.iter().for_each(|file| add(&mut stats.hidden, &file.hidden));
}

/// Puts every version through a redactor, and then the paths; answers the new path of
/// each old one, by workspace.
pub(super) fn rewrite(
    tenant: &mut TenantState,
    again: &Again<'_>,
    told: &mut Told,
) -> BTreeMap<(String, String), FilePath> {
    let mut new_paths = BTreeMap::new();
    let mut changed = BTreeSet::new();
    for (at, file) in tenant.files.iter_mut().enumerate() {
        let FileRecord { head, content } = &mut file.record;
        if let Some((clean, hidden)) = again.text(content.as_str()) {
            (*content, head.digest) = (clean.clone(), digest(clean.as_str()));
            add(&mut file.hidden, &hidden);
            add(&mut told.hidden, &hidden);
            changed.insert(at);
        }
        if let Some((_, hidden)) = again.text(head.content_type.as_str()) {
            head.content_type = stored_text(DEFAULT_CONTENT_TYPE);
            add(&mut file.hidden, &hidden);
            add(&mut told.hidden, &hidden);
            changed.insert(at);
        }
    }
    let paths: BTreeSet<(String, FilePath)> = tenant
        .files
        .iter()
        .map(|file| (file.workspace.clone(), file.record.head.path.clone()))
        .collect();
    for (workspace, old) in paths {
        let Some((_, hidden)) = again.text(old.as_str()) else { continue };
        let is_taken = |name: &str| {
            let is_same = |file: &StoredFile| file.record.head.path.as_str() == name;
            let mut files = tenant.files.iter().filter(|file| file.workspace == workspace);
            files.any(is_same) || again.text(name).is_some()
        };
        let Ok(new) = FilePath::new(stored_text(&renamed(is_taken))) else { continue };
        for (at, file) in tenant.files.iter_mut().enumerate() {
            if file.workspace == workspace && file.record.head.path == old {
                file.record.head.path = new.clone();
                changed.insert(at);
            }
        }
        add(&mut told.hidden, &hidden);
        told.events += rename_in_log(tenant, &old, &new);
        new_paths.insert((workspace, old.as_str().to_owned()), new);
    }
    told.files += changed.len() as u64;
    new_paths
}

fn rename_in_log(tenant: &mut TenantState, old: &FilePath, new: &FilePath) -> u64 {
    let mut renamed = 0;
    let records = tenant.log.iter_mut().map(|record| &mut record.event);
    for event in records.filter(|event| event.kind == "workspace.updated") {
        let payload: serde_json::Value = serde_json::from_str(&event.payload).unwrap_or_default();
        if payload["path"] == old.as_str() {
            event.payload = updated(new.as_str(), payload["version"].as_u64().unwrap_or_default());
            renamed += 1;
        }
    }
    renamed
}
