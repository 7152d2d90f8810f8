//! Files of workspaces, by path and version.

use std::collections::BTreeMap;

use icecore_domain::dream::INDEX_PATH;
use icecore_domain::ids::Position;
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{DEFAULT_CONTENT_TYPE, FilePath, Workspace};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::bounds::Change;
use crate::engine::tx::Tx;
use crate::engine::{Error, Row, column, fields, params, tuple};
use crate::error::{Result, StoreError};
use crate::host::unless_damaged;
use crate::log::hidden::read_hidden;
use crate::outcomes::{self, Claim, Effect};
use crate::reredact::{Reredactor, RewriteCounts, add};
use crate::store::Store;
use crate::{log, scopes, secrets, usage};

/// What a path must hold for a file to be written or deleted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Present,
    Absent,
    /// The version written at this position, as the last.
    At(Position),
    /// The version written at `last`, or none, and no dream of the tenant lost since it
    /// was read.
    Unlost {
        last: Option<Position>,
        /// [`Store::dream_losses`], read before all else.
        losses: u64,
    },
}

#[derive(Debug, Clone)]
pub struct NewFile {
    pub path: FilePath,
    pub content: RedactedText,
    pub content_type: RedactedText,
    pub expect: Expect,
    /// How many versions to keep, this one included; at least 1.
    pub versions_kept: u64,
    pub most_files: u64,
    pub now: Millis,
    /// The version of the tenant's secrets with which the file was redacted.
    pub secrets_seen: u64,
    pub hidden: Hidden,
    pub claim: Option<Claim>,
}

/// A version of a file, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHead {
    pub path: FilePath,
    /// From 1, also for a file written where another was deleted.
    pub version: u64,
    pub content_type: RedactedText,
    pub digest: [u8; 32],
    /// Where in the log it was written. No two versions share one.
    pub position: Position,
    pub updated_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    pub head: FileHead,
    pub content: RedactedText,
}

impl Effect for FileRecord {
    fn ids(&self) -> Json {
        let FileHead { version, position, updated_at, .. } = &self.head;
        json!({ "version": version, "position": position.0, "updatedAt": updated_at.0 })
    }
}

impl Store {
    /// Writes the next version of a file, or the first at its path, and logs
    /// `workspace.updated` with the path and the version alone. The oldest versions beyond
    /// `versions_kept` are deleted. May fail with [`StoreError::FileConflict`],
    /// [`StoreError::TooManyFiles`], before these with [`StoreError::ClaimTaken`], and, as an
    /// append, with [`StoreError::SecretsChanged`].
    pub async fn put_file(&self, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
        let place = workspace.clone();
        self.write(workspace.tenant(), "put_file", move |tx| put(tx, &place, file.clone())).await
    }

    /// A stored version of a file, or its last; `None` if the path never had a file or it
    /// was deleted.
    pub async fn file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>> {
        let (name, path) = (workspace.name().to_owned(), path.clone());
        self.read(workspace.tenant(), "file", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(None) };
            let sql = format!(
                "SELECT {HEAD}, content FROM files WHERE tenant = ?1 AND workspace = ?2
                   AND path = ?3 AND (?4 IS NULL OR version = ?4)
                 ORDER BY version DESC LIMIT 1"
            );
            tx.first(&sql, params![tenant, name, path.as_str(), version], |row| {
                Ok(FileRecord { head: read_head(tx, row)?, content: read_content(row, 6)? })
            })
        })
        .await
    }

    /// The last version of every file whose path begins with `prefix`, by path.
    pub async fn files(&self, workspace: &Workspace, prefix: &str) -> Result<Vec<FileHead>> {
        let (name, prefix) = (workspace.name().to_owned(), prefix.to_owned());
        self.read(workspace.tenant(), "files", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(Vec::new()) };
            list(tx, tenant, &name, &prefix)
        })
        .await
    }

    /// Deletes a file with all its versions and logs `workspace.updated` with the version
    /// that would have been next; false if there is no file. Fails with
    /// [`StoreError::FileConflict`]. The next file at this path begins at version 1.
    pub async fn delete_file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        expect: Expect,
        now: Millis,
    ) -> Result<bool> {
        let (place, path) = (workspace.clone(), path.clone());
        self.write(workspace.tenant(), "delete_file", move |tx| {
            delete(tx, &place, &path, expect, now)
        })
        .await
    }
}

pub(crate) fn put(tx: &Tx<'_>, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
    secrets::refuse_changed(tx, workspace.tenant(), file.secrets_seen)?;
    let (tenant, _) = scopes::ensure_tenant(tx, workspace.tenant())?;
    outcomes::refuse_taken(tx, tenant, file.claim.as_ref(), file.now)?;
    let (name, path, text) = (workspace.name(), file.path.as_str(), file.content.as_str());
    let last = last(tx, Some(tenant), name, &file.path)?;
    refuse_unexpected(tx, Some(tenant), file.expect, last)?;
    if last.is_none() {
        let count = "SELECT count(DISTINCT path) FROM files WHERE tenant = ?1 AND workspace = ?2";
        if tx.one(count, params![tenant, name], column::<u64>)? >= file.most_files {
            return Err(StoreError::TooManyFiles { most: file.most_files });
        }
    }
    let version = last.map_or(1, |(version, _)| version + 1);
    let position = log_update(tx, tenant, path, version, file.now)?;
    let (digest, now) = (digest(text), file.now);
    tx.insert(
        "files",
        fields! {
            tenant, workspace: name, path, version, position, updated_at: now,
            content_type: file.content_type, digest, hidden: json!(file.hidden).to_string(),
            content: text.as_bytes(),
        },
    )?;
    let oldest = version.saturating_sub(file.versions_kept.max(1));
    let freed = usage::freed(
        tx,
        "DELETE FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version <= ?4
         RETURNING length(content)",
        params![tenant, name, path, oldest],
    )?;
    let change = Change::bytes(text.len() as i64 - freed);
    if name == Workspace::DEFAULT && path == INDEX_PATH {
        tx.run("UPDATE tenants SET index_lost = 0 WHERE tenant = ?1 AND index_lost = 1", [tenant])?;
        // Dreams write the index, and bounds refuse only what clients write.
        usage::change(tx, tenant, change)?;
    } else {
        usage::keep(tx, (workspace.tenant(), tenant), change)?;
    }
    let NewFile { path, content, content_type, claim, .. } = file;
    let head = FileHead { path, version, content_type, digest, position, updated_at: now };
    let record = FileRecord { head, content };
    outcomes::put_claimed(tx, tenant, claim.as_ref(), &record, now)?;
    Ok(record)
}

pub(crate) fn delete(
    tx: &Tx<'_>,
    workspace: &Workspace,
    path: &FilePath,
    expect: Expect,
    now: Millis,
) -> Result<bool> {
    let (no, name) = (scopes::tenant_no(tx, workspace.tenant())?, workspace.name());
    let last = last(tx, no, name, path)?;
    refuse_unexpected(tx, no, expect, last)?;
    let (Some(tenant), Some((version, _))) = (no, last) else { return Ok(false) };
    let freed = usage::freed(
        tx,
        "DELETE FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
         RETURNING length(content)",
        params![tenant, name, path.as_str()],
    )?;
    usage::change(tx, tenant, Change::bytes(-freed))?;
    log_update(tx, tenant, path.as_str(), version + 1, now)?;
    Ok(true)
}

/// The last version at a path and where in the log it was written.
fn last(
    tx: &Tx<'_>,
    tenant: Option<i64>,
    workspace: &str,
    path: &FilePath,
) -> Result<Option<(u64, Position)>> {
    tx.first(
        "SELECT version, position FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
         ORDER BY version DESC LIMIT 1",
        params![tenant, workspace, path.as_str()],
        tuple,
    )
}

fn refuse_unexpected(
    tx: &Tx<'_>,
    tenant: Option<i64>,
    expect: Expect,
    last: Option<(u64, Position)>,
) -> Result<()> {
    let (version, position) = last.unzip();
    let is_expected = match expect {
        Expect::Anything => true,
        Expect::Present => position.is_some(),
        Expect::Absent => position.is_none(),
        Expect::At(expected) => position == Some(expected),
        Expect::Unlost { last, losses: seen } => position == last && losses(tx, tenant)? == seen,
    };
    let current = version.unwrap_or(0);
    if is_expected { Ok(()) } else { Err(StoreError::FileConflict { current }) }
}

fn log_update(tx: &Tx<'_>, tenant: i64, path: &str, version: u64, now: Millis) -> Result<Position> {
    let payload = json!({ "path": path, "version": version }).to_string();
    log::record(tx, tenant, None, "workspace.updated", &payload, now)
}

fn digest(content: &str) -> [u8; 32] {
    Sha256::digest(content.as_bytes()).into()
}

/// How many dreams of a tenant were lost; none of a tenant without rows.
pub(crate) fn losses(tx: &Tx<'_>, tenant: impl Into<Option<i64>>) -> Result<u64> {
    let sql = "SELECT dream_losses FROM tenants WHERE tenant = ?1";
    Ok(tx.first(sql, [tenant.into()], column)?.unwrap_or(0))
}

/// The files of a tenant's workspace that dreams write.
pub(crate) const INDEX_FILES: [&str; 2] = [INDEX_PATH, "MEMORY-INDEX.md"];

// Rows

const HEAD: &str = "path, version, position, updated_at, content_type, digest";

/// The last version of every file whose path begins with `prefix`, by path.
pub(crate) fn list(
    tx: &Tx<'_>,
    tenant: i64,
    workspace: &str,
    prefix: &str,
) -> Result<Vec<FileHead>> {
    let sql = format!(
        "SELECT {HEAD} FROM files WHERE tenant = ?1 AND workspace = ?2
           AND substr(path, 1, length(?3)) = ?3 AND version =
             (SELECT max(g.version) FROM files g WHERE g.tenant = files.tenant
                AND g.workspace = files.workspace AND g.path = files.path)
         ORDER BY path"
    );
    tx.all(&sql, params![tenant, workspace, prefix], |row| read_head(tx, row))
}

#[expect(clippy::disallowed_methods, reason = "files come from our own rows")]
fn read_head(tx: &Tx<'_>, row: &Row<'_>) -> Result<FileHead> {
    let damaged = || tx.damaged("the row of a workspace file is not valid");
    Ok(FileHead {
        path: stored_path(row.get(0)?).ok_or_else(damaged)?,
        version: row.get(1)?,
        position: row.get(2)?,
        updated_at: row.get(3)?,
        content_type: RedactedText::read_back(row.get(4)?),
        digest: row.get::<_, Vec<u8>>(5)?.try_into().map_err(|_| damaged())?,
    })
}

#[expect(clippy::disallowed_methods, reason = "files come from our own rows")]
fn read_content(row: &Row<'_>, column: usize) -> Result<RedactedText> {
    let content: Vec<u8> = row.get(column)?;
    Ok(RedactedText::read_back(String::from_utf8_lossy(&content).into_owned()))
}

#[expect(clippy::disallowed_methods, reason = "paths come from our own rows")]
pub(crate) fn stored_path(path: String) -> Option<FilePath> {
    FilePath::new(RedactedText::read_back(path)).ok()
}

// Rewriting

/// Redacts all versions of a tenant's files again. Returns the new path of each file whose old
/// one contained a secret, by workspace and old path.
pub(crate) fn rewrite(
    tx: &Tx<'_>,
    tenant: i64,
    again: &Reredactor<'_>,
    told: &mut RewriteCounts,
) -> Result<BTreeMap<(String, String), FilePath>> {
    let mut files: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    let sql = "SELECT workspace, path, version FROM files WHERE tenant = ?1";
    for (workspace, path, version) in tx.all(sql, [tenant], tuple)? {
        files.entry((workspace, path)).or_default().push(version);
    }
    let mut new_paths = BTreeMap::new();
    for (file, versions) in files {
        let mut changed = 0;
        for version in &versions {
            changed += u64::from(rewrite_version(tx, tenant, &file, *version, again, told)?);
        }
        if let Some((_, hidden)) = again.text(&file.1) {
            changed = versions.len() as u64;
            add(&mut told.hidden, &hidden);
            let new = rename(tx, tenant, &file, again, told)?;
            new_paths.extend(stored_path(new).map(|new| (file, new)));
        }
        told.files += changed;
    }
    Ok(new_paths)
}

/// Redacts one version; answers whether that changed it.
fn rewrite_version(
    tx: &Tx<'_>,
    tenant: i64,
    (workspace, path): &(String, String),
    version: u64,
    again: &Reredactor<'_>,
    told: &mut RewriteCounts,
) -> Result<bool> {
    let (text, kind, mut counts) = tx.one(
        "SELECT content, content_type, hidden FROM files
         WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version = ?4",
        params![tenant, workspace, path, version],
        |row| Ok((read_content(row, 0)?, row.get::<_, String>(1)?, read_hidden(row, 2)?)),
    )?;
    let (clean, clean_kind) = (again.text(text.as_str()), again.text(&kind));
    if clean.is_none() && clean_kind.is_none() {
        return Ok(false);
    }
    let before = text.as_str().len() as i64;
    let (text, in_text) = clean.unwrap_or((text, Hidden::new()));
    let (kind, in_kind) = match clean_kind {
        // What is left of a redacted media type is no media type.
        Some((_, hidden)) => (DEFAULT_CONTENT_TYPE.to_owned(), hidden),
        None => (kind, Hidden::new()),
    };
    usage::change(tx, tenant, Change::bytes(text.as_str().len() as i64 - before))?;
    for hidden in [in_kind, in_text] {
        add(&mut counts, &hidden);
        add(&mut told.hidden, &hidden);
    }
    let (content, hidden) = (text.as_str().as_bytes(), json!(counts).to_string());
    tx.run(
        "UPDATE files SET content = ?5, content_type = ?6, digest = ?7, hidden = ?8
         WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version = ?4",
        params![tenant, workspace, path, version, content, kind, digest(text.as_str()), hidden],
    )?;
    Ok(true)
}

/// Gives a file a new path, also in the log, and answers it: the first free
/// `redacted-NUMBER`.
fn rename(
    tx: &Tx<'_>,
    tenant: i64,
    (workspace, old): &(String, String),
    again: &Reredactor<'_>,
    told: &mut RewriteCounts,
) -> Result<String> {
    let is_taken = "SELECT 1 FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 LIMIT 1";
    let mut number = 1_u64;
    let new = loop {
        let new = format!("redacted-{number}");
        if again.text(&new).is_none() && !tx.finds(is_taken, params![tenant, workspace, new])? {
            break new;
        }
        number += 1;
    };
    tx.run(
        "UPDATE files SET path = ?4 WHERE tenant = ?1 AND workspace = ?2 AND path = ?3",
        params![tenant, workspace, old, new],
    )?;
    let records: Vec<(Position, String)> = tx.all(
        "SELECT position, payload FROM log
         WHERE tenant = ?1 AND kind = 'workspace.updated' AND json_extract(payload, '$.path') = ?2",
        params![tenant, old],
        tuple,
    )?;
    for (position, payload) in &records {
        let mut payload: Json =
            serde_json::from_str(payload).map_err(|error| Error::broken(1, error))?;
        payload["path"] = new.as_str().into();
        tx.run(
            "UPDATE log SET payload = ?3 WHERE tenant = ?1 AND position = ?2",
            params![tenant, position, payload.to_string()],
        )?;
    }
    told.events += records.len() as u64;
    Ok(new)
}

// Checks and counts

pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let findings = tx.all(&format!("SELECT {HEAD}, content FROM files"), [], |row| {
        let content = str::from_utf8(row.get_ref(6)?.as_blob().unwrap_or_default());
        let head = unless_damaged(read_head(tx, row))?;
        if head.is_some_and(|head| content.is_ok_and(|text| digest(text) == head.digest)) {
            return Ok(None);
        }
        let (version, position): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(Some(format!("a workspace file is damaged: version {version} at position {position}")))
    })?;
    Ok(findings.into_iter().flatten().collect())
}

pub(crate) fn count(tx: &Tx<'_>, tenant: i64) -> Result<u64> {
    let sql =
        "SELECT count(*) FROM (SELECT DISTINCT workspace, path FROM files WHERE tenant = ?1) f";
    tx.one(sql, [tenant], column)
}

/// Adds what was hidden in the stored versions of a tenant's files.
pub(crate) fn add_hidden(tx: &Tx<'_>, tenant: i64, sum: &mut Hidden) -> Result<()> {
    let sql = "SELECT hidden FROM files WHERE tenant = ?1 AND hidden != '{}'";
    let counts = tx.all(sql, [tenant], |row| read_hidden(row, 0))?;
    counts.iter().for_each(|hidden| add(sum, hidden));
    Ok(())
}

#[cfg(test)]
mod tests {

    use crate::engine::tx::Isolation;
    use icecore_domain::ids::Principal;

    use super::Tx;
    use crate::contract::fixtures::*;
    use crate::contract::new_file;

    use crate::store::Store;

    #[tokio::test]
    async fn a_damaged_file_is_found() {
        let check = async |change: &'static str, finding: &str| {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), None).unwrap();
            let workspace = Principal::local_operator(tenant("acme")).workspace();
            for n in 1..4 {
                let file = new_file("a.md", &format!("text {n}"));
                store.put_file(&workspace, file).await.unwrap();
            }
            clean(&store).await;
            let change = move |tx: &Tx<'_>| tx.execute_batch(change);
            store.write(Isolation::Global, "test", change).await.unwrap();
            let findings = store.check().await.unwrap();
            assert!(findings.iter().any(|found| found == finding), "{finding}: {findings:?}");
        };
        check(
            "UPDATE files SET content = x'74' WHERE version = 2",
            "a workspace file is damaged: version 2 at position 2",
        )
        .await;
        check(
            "UPDATE files SET digest = x'00' WHERE version = 3",
            "a workspace file is damaged: version 3 at position 3",
        )
        .await;
        check("DELETE FROM files WHERE version = 2", "a file's versions are not dense: position 3")
            .await;
        check(
            "UPDATE files SET path = '../a.md' WHERE version = 1",
            "a workspace file is damaged: version 1 at position 1",
        )
        .await;
        check(
            "UPDATE files SET path = 'b.md' WHERE version = 1",
            "a file is not where the log says: position 1",
        )
        .await;
    }
}
