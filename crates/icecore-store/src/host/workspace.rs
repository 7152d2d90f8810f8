//! Files of workspaces, by path and version.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::dream::INDEX_PATH;
use icecore_domain::ids::Position;
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{DEFAULT_CONTENT_TYPE, FilePath, Workspace};
use sha2::{Digest as _, Sha256};

use crate::bounds::Change;
use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::error::{Result, StoreError};
use crate::host::runs::stored_path;
use crate::log::hidden;
use crate::outcomes::{self, Claim, Effect};
use crate::reredact::{Reredactor, RewriteCounts, add};
use crate::store::Store;
use crate::{engine, log, scopes, secrets, usage};

/// What must be there for a file to be written or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is.
    Anything,
    /// Some version.
    Present,
    /// Nothing.
    Absent,
    /// The version that was written at this position, as the last.
    At(Position),
    /// What was read when so many times dreams of the tenant had been lost, and nothing
    /// lost since: the version at this position, or none.
    Unlost {
        /// The last version's position.
        last: Option<Position>,
        /// [`Store::dream_losses`](crate::Store::dream_losses), read before all else.
        losses: u64,
    },
}

impl Expect {
    /// Whether this holds of the last version's position, so many losses of dreams later.
    pub(crate) fn holds(self, last: Option<Position>, lost: u64) -> bool {
        match self {
            Expect::Anything => true,
            Expect::Present => last.is_some(),
            Expect::Absent => last.is_none(),
            Expect::At(position) => last == Some(position),
            Expect::Unlost { last: read, losses } => last == read && lost == losses,
        }
    }
}

/// A file to write.
#[derive(Debug, Clone)]
pub struct NewFile {
    /// Where.
    pub path: FilePath,
    /// What it holds.
    pub content: RedactedText,
    /// Of which media type.
    pub content_type: RedactedText,
    /// What must be there.
    pub expect: Expect,
    /// So many versions are kept, this one among them; at least 1.
    pub versions_kept: u64,
    /// So many files a workspace may have.
    pub most_files: u64,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which its text was redacted.
    pub secrets_seen: u64,
    /// What was hidden in it.
    pub hidden: Hidden,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim>,
}

/// A version of a file, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHead {
    /// Where.
    pub path: FilePath,
    /// Which version: 1 for the first, also after the path's file was deleted.
    pub version: u64,
    /// Of which media type.
    pub content_type: RedactedText,
    /// SHA-256 of the content.
    pub digest: [u8; 32],
    /// Where in the log it was written. No two versions share one.
    pub position: Position,
    /// When it was written.
    pub updated_at: Millis,
}

/// A version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// All but its content.
    pub head: FileHead,
    /// What it holds.
    pub content: RedactedText,
}

impl Effect for FileRecord {
    fn ids(&self) -> Json {
        let FileHead { version, position, updated_at, .. } = &self.head;
        json!({ "version": version, "position": position.0, "updatedAt": updated_at.0 })
    }
}

/// SHA-256 of a file's content.
pub(crate) fn digest(content: &str) -> [u8; 32] {
    Sha256::digest(content.as_bytes()).into()
}

/// The payload of `workspace.updated`, which holds nothing else.
pub(crate) fn updated(path: &str, version: u64) -> String {
    serde_json::json!({ "path": path, "version": version }).to_string()
}

/// What a path becomes that turns out to hold a secret: the first such name that
/// is not `taken`.
pub(crate) fn renamed(mut is_taken: impl FnMut(&str) -> bool) -> String {
    let mut number = 1_u64;
    loop {
        let name = format!("redacted-{number}");
        if !is_taken(&name) {
            return name;
        }
        number += 1;
    }
}

const HEAD: &str = "path, version, position, updated_at, content_type, digest";

/// A version that is the last of its path.
const IS_LAST: &str = "version = (SELECT max(g.version) FROM files g
    WHERE g.tenant = files.tenant AND g.workspace = files.workspace AND g.path = files.path)";

pub(crate) fn put(tx: &Tx<'_>, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
    secrets::refuse_changed(tx, workspace.tenant(), file.secrets_seen)?;
    let (tenant, _) = scopes::ensure_tenant(tx, workspace.tenant())?;
    outcomes::refuse_taken(tx, tenant, file.claim.as_ref(), file.now)?;
    let last = last(tx, tenant, workspace.name(), &file.path)?;
    refuse_unexpected(tx, tenant, file.expect, last)?;
    if last.is_none() {
        refuse_crowd(tx, tenant, workspace.name(), file.most_files)?;
    }
    let version = last.map_or(1, |(version, _)| version + 1);
    let hash = digest(file.content.as_str());
    let put = || -> Result<_> {
        let payload = updated(file.path.as_str(), version);
        let position = log::record(tx, tenant, None, "workspace.updated", &payload, file.now)?;
        tx.prepare_cached(
            "INSERT INTO files (tenant, workspace, path, version, position, updated_at,
                                content_type, digest, hidden, content)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            tenant,
            workspace.name(),
            file.path.as_str(),
            engine::number(version),
            engine::number(position.0),
            file.now.0,
            file.content_type.as_str(),
            hash.as_slice(),
            serde_json::json!(file.hidden).to_string(),
            file.content.as_str().as_bytes(),
        ])?;
        let oldest = version.saturating_sub(file.versions_kept.max(1));
        let freed = usage::freed(
            tx,
            "DELETE FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version <= ?4
             RETURNING length(content)",
            params![tenant, workspace.name(), file.path.as_str(), engine::number(oldest)],
        )?;
        if is_index(workspace, &file.path) {
            tx.execute(
                "UPDATE tenants SET index_lost = 0 WHERE tenant = ?1 AND index_lost = 1",
                [tenant],
            )?;
        }
        Ok((position, freed))
    };
    let (position, freed) = put()?;
    let change = Change::bytes(file.content.as_str().len() as i64 - freed);
    match is_index(workspace, &file.path) {
        // A dream tells there what it came to.
        true => usage::change(tx, tenant, change)?,
        false => usage::keep(tx, (workspace.tenant(), tenant), change)?,
    }
    let NewFile { path, content, content_type, now, claim, .. } = file;
    let head = FileHead { path, version, content_type, digest: hash, position, updated_at: now };
    let record = FileRecord { head, content };
    outcomes::put_claimed(tx, tenant, claim.as_ref(), &record, now)?;
    Ok(record)
}

/// The last version of a path and where it was written.
fn last(
    tx: &Tx<'_>,
    tenant: i64,
    workspace: &str,
    path: &FilePath,
) -> Result<Option<(u64, Position)>> {
    tx.prepare_cached(
        "SELECT version, position FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
         ORDER BY version DESC LIMIT 1",
    )
    .and_then(|mut q| {
        q.query_row(params![tenant, workspace, path.as_str()], |row| {
            Ok((row.get::<_, i64>(0)? as u64, Position(row.get::<_, i64>(1)? as u64)))
        })
        .optional()
    })
}

fn refuse_unexpected(
    tx: &Tx<'_>,
    tenant: i64,
    expect: Expect,
    last: Option<(u64, Position)>,
) -> Result<()> {
    let lost = match expect {
        Expect::Unlost { .. } => losses(tx, tenant)?,
        _ => 0,
    };
    match expect.holds(last.map(|(_, position)| position), lost) {
        true => Ok(()),
        false => Err(StoreError::FileConflict { current: last.map_or(0, |(version, _)| version) }),
    }
}

fn refuse_crowd(tx: &Tx<'_>, tenant: i64, workspace: &str, most: u64) -> Result<()> {
    let count: i64 = tx
        .prepare_cached(
            "SELECT count(DISTINCT path) FROM files WHERE tenant = ?1 AND workspace = ?2",
        )
        .and_then(|mut q| q.query_row(params![tenant, workspace], |row| row.get(0)))?;
    if count as u64 >= most { Err(StoreError::TooManyFiles { most }) } else { Ok(()) }
}

pub(crate) fn get(
    tx: &Tx<'_>,
    workspace: &Workspace,
    path: &FilePath,
    version: Option<u64>,
) -> Result<Option<FileRecord>> {
    let Some(tenant) = scopes::tenant_no(tx, workspace.tenant())? else { return Ok(None) };
    let version = version.map(engine::number);
    tx.prepare_cached(&format!(
        "SELECT {HEAD}, content FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
           AND (?4 IS NULL OR version = ?4) ORDER BY version DESC LIMIT 1"
    ))
    .and_then(|mut q| {
        let key = params![tenant, workspace.name(), path.as_str(), version];
        q.query_row(key, |row| Ok((head(row)?, content(row, 6)?))).optional()
    })?
    .map(|(head, content)| Ok(FileRecord { head: whole(tx, head)?, content }))
    .transpose()
}

pub(crate) fn list(tx: &Tx<'_>, workspace: &Workspace, prefix: &str) -> Result<Vec<FileHead>> {
    let Some(tenant) = scopes::tenant_no(tx, workspace.tenant())? else { return Ok(Vec::new()) };
    let heads: Vec<Option<FileHead>> = tx
        .prepare_cached(&format!(
            "SELECT {HEAD} FROM files WHERE tenant = ?1 AND workspace = ?2
               AND substr(path, 1, length(?3)) = ?3 AND {IS_LAST} ORDER BY path"
        ))
        .and_then(|mut q| {
            q.query_map(params![tenant, workspace.name(), prefix], head)?.collect()
        })?;
    heads.into_iter().map(|head| whole(tx, head)).collect()
}

pub(crate) fn delete(
    tx: &Tx<'_>,
    workspace: &Workspace,
    path: &FilePath,
    expect: Expect,
    now: Millis,
) -> Result<bool> {
    let Some(tenant) = scopes::tenant_no(tx, workspace.tenant())? else {
        return match expect.holds(None, 0) {
            true => Ok(false),
            false => Err(StoreError::FileConflict { current: 0 }),
        };
    };
    let last = last(tx, tenant, workspace.name(), path)?;
    refuse_unexpected(tx, tenant, expect, last)?;
    let Some((version, _)) = last else { return Ok(false) };
    let delete = || {
        let freed = usage::freed(
            tx,
            "DELETE FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
             RETURNING length(content)",
            params![tenant, workspace.name(), path.as_str()],
        )?;
        usage::change(tx, tenant, Change::bytes(-freed))?;
        let payload = updated(path.as_str(), version + 1);
        log::record(tx, tenant, None, "workspace.updated", &payload, now)
    };
    delete().map(|_| true)
}

/// None where a row is not what was written.
#[expect(clippy::disallowed_methods, reason = "files come from our own rows")]
fn head(row: &Row<'_>) -> Result<Option<FileHead>> {
    let (path, digest): (String, Vec<u8>) = (row.get(0)?, row.get(5)?);
    let (Ok(path), Ok(digest)) =
        (FilePath::new(RedactedText::read_back(path)), <[u8; 32]>::try_from(digest))
    else {
        return Ok(None);
    };
    Ok(Some(FileHead {
        path,
        version: row.get::<_, i64>(1)? as u64,
        position: Position(row.get::<_, i64>(2)? as u64),
        updated_at: Millis(row.get(3)?),
        content_type: RedactedText::read_back(row.get(4)?),
        digest,
    }))
}

fn whole(tx: &Tx<'_>, head: Option<FileHead>) -> Result<FileHead> {
    head.ok_or_else(|| tx.damaged("the row of a workspace file is not valid"))
}

#[expect(clippy::disallowed_methods, reason = "files come from our own rows")]
fn content(row: &Row<'_>, column: usize) -> Result<RedactedText> {
    let content: Vec<u8> = row.get(column)?;
    Ok(RedactedText::read_back(String::from_utf8_lossy(&content).into_owned()))
}

// Rewriting

/// Puts the files of a tenant through a redactor: every version that is kept. Answers
/// the new path of each old one, by workspace.
pub(crate) fn rewrite(
    tx: &Tx<'_>,
    tenant: i64,
    again: &Reredactor<'_>,
    told: &mut RewriteCounts,
) -> Result<BTreeMap<(String, String), FilePath>> {
    let kept: Vec<(String, String, i64)> = tx
        .prepare("SELECT workspace, path, version FROM files WHERE tenant = ?1")?
        .query_map([tenant], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_>>()?;
    let (mut changed, mut new_paths) = (BTreeSet::new(), BTreeMap::new());
    for at in &kept {
        if rewrite_version(tx, tenant, at, again, told)? {
            changed.insert(at.clone());
        }
    }
    let mut paths: Vec<(String, String)> =
        kept.iter().map(|(workspace, path, _)| (workspace.clone(), path.clone())).collect();
    paths.sort();
    paths.dedup();
    for (workspace, path) in paths {
        let Some((_, hidden)) = again.text(&path) else { continue };
        let new = rename(tx, tenant, &workspace, &path, again, told)?;
        add(&mut told.hidden, &hidden);
        let versions = kept.iter().filter(|at| at.0 == workspace && at.1 == path);
        changed.extend(versions.cloned());
        new_paths.extend(stored_path(&new).map(|new| ((workspace, path), new)));
    }
    told.files += changed.len() as u64;
    Ok(new_paths)
}

/// Rewrites one version, if there is something to hide in it.
fn rewrite_version(
    tx: &Tx<'_>,
    tenant: i64,
    (workspace, path, version): &(String, String, i64),
    again: &Reredactor<'_>,
    told: &mut RewriteCounts,
) -> Result<bool> {
    let key = params![tenant, workspace, path, version];
    let (text, kind, mut counts) = tx
        .prepare_cached(
            "SELECT content, content_type, hidden FROM files
             WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version = ?4",
        )?
        .query_row(key, |row| {
            Ok((content(row, 0)?, row.get::<_, String>(1)?, hidden::read_hidden(row, 2)?))
        })?;
    let (clean, clean_kind) = (again.text(text.as_str()), again.text(&kind));
    if clean.is_none() && clean_kind.is_none() {
        return Ok(false);
    }
    // What is left of a media type is none.
    let kind = if clean_kind.is_some() { DEFAULT_CONTENT_TYPE.to_owned() } else { kind };
    let found = clean_kind.map(|(_, hidden)| hidden);
    let before = text.as_str().len() as i64;
    let (text, more) = clean.unwrap_or((text, Default::default()));
    usage::change(tx, tenant, Change::bytes(text.as_str().len() as i64 - before))?;
    for hidden in found.iter().chain([&more]) {
        add(&mut counts, hidden);
        add(&mut told.hidden, hidden);
    }
    tx.prepare_cached(
        "UPDATE files SET content = ?5, content_type = ?6, digest = ?7, hidden = ?8
         WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version = ?4",
    )?
    .execute(params![
        tenant,
        workspace,
        path,
        version,
        text.as_str().as_bytes(),
        kind,
        digest(text.as_str()).as_slice(),
        serde_json::json!(counts).to_string(),
    ])?;
    Ok(true)
}

/// Gives a file whose path tells a secret another, also where the log names it, and
/// answers that.
fn rename(
    tx: &Tx<'_>,
    tenant: i64,
    workspace: &str,
    old: &str,
    again: &Reredactor<'_>,
    told: &mut RewriteCounts,
) -> Result<String> {
    let mut taken = tx.prepare_cached(
        "SELECT 1 FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 LIMIT 1",
    )?;
    let mut failed = None;
    let new = renamed(|name| {
        let is_there = taken.exists(params![tenant, workspace, name]);
        let is_there = is_there.unwrap_or_else(|error| {
            failed = Some(error);
            false
        });
        is_there || again.text(name).is_some()
    });
    if let Some(error) = failed {
        return Err(error);
    }
    tx.execute(
        "UPDATE files SET path = ?4 WHERE tenant = ?1 AND workspace = ?2 AND path = ?3",
        params![tenant, workspace, old, new],
    )?;
    told.events += rename_in_log(tx, tenant, old, &new)?;
    Ok(new)
}

/// Has the log name a file by its new path; answers how many records it changed.
fn rename_in_log(tx: &Tx<'_>, tenant: i64, old: &str, new: &str) -> Result<u64> {
    let told: Vec<(i64, String)> = tx
        .prepare(
            "SELECT position, payload FROM log
             WHERE tenant = ?1 AND kind = 'workspace.updated'
               AND json_extract(payload, '$.path') = ?2",
        )?
        .query_map(params![tenant, old], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    let mut update =
        tx.prepare_cached("UPDATE log SET payload = ?3 WHERE tenant = ?1 AND position = ?2")?;
    for (position, payload) in &told {
        let mut payload: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(payload).map_err(|error| engine::Error::broken(1, error))?;
        payload.insert("path".to_owned(), new.into());
        update.execute(params![tenant, position, serde_json::json!(payload).to_string()])?;
    }
    Ok(told.len() as u64)
}

// Looking after them

/// Files whose content or path is not what was written.
pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let look = |findings: &mut Vec<String>| -> Result<_> {
        let mut query = tx.prepare(&format!("SELECT {HEAD}, content FROM files"))?;
        let mut found = query.query([])?;
        while let Some(row) = found.next()? {
            let version: i64 = row.get(1)?;
            let position: i64 = row.get(2)?;
            let bytes = row.get_ref(6)?.as_blob().unwrap_or_default();
            let is_whole = head(&row)?.is_some_and(|head| {
                std::str::from_utf8(bytes).is_ok_and(|text| digest(text) == head.digest)
            });
            if !is_whole {
                findings.push(format!(
                    "a workspace file is damaged: version {version} at position {position}"
                ));
            }
        }
        Ok(())
    };
    look(&mut findings)?;
    Ok(findings)
}

/// How many files a tenant has.
pub(crate) fn count(tx: &Tx<'_>, tenant: i64) -> Result<u64> {
    let count: i64 = tx.query_row(
        "SELECT count(*) FROM (SELECT DISTINCT workspace, path FROM files WHERE tenant = ?1) f",
        [tenant],
        |row| row.get(0),
    )?;
    Ok(count as u64)
}

/// Adds what was hidden in versions that are kept.
pub(crate) fn add_hidden(tx: &Tx<'_>, tenant: i64, sum: &mut Hidden) -> Result<()> {
    let mut query = tx.prepare("SELECT hidden FROM files WHERE tenant = ?1 AND hidden != '{}'")?;
    let mut found = query.query([tenant])?;
    while let Some(row) = found.next()? {
        add(sum, &hidden::read_hidden(&row, 0)?);
    }
    Ok(())
}

impl Store {
    /// Writes the next version of a file, the first of a path that has none, and
    /// logs `workspace.updated` with the path and the version alone. What is beyond
    /// `versions_kept` goes, oldest first. Where the last version is not the one
    /// expected it is [`StoreError::FileConflict`]; a path too many is
    /// [`StoreError::TooManyFiles`]. Its claim is kept in the same step, and one that
    /// is taken is [`StoreError::ClaimTaken`], whatever the file is like. As with an
    /// append, it may be [`StoreError::SecretsChanged`].
    pub async fn put_file(&self, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
        let workspace = workspace.clone();
        self.write(Isolation::from(workspace.tenant()), "put_file", move |tx| {
            put(tx, &workspace, file.clone())
        })
        .await
    }

    /// A version of a file that is kept, or its last; nothing of a path that has
    /// none or was deleted.
    pub async fn file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>> {
        let (workspace, path) = (workspace.clone(), path.clone());
        self.read(Isolation::from(workspace.tenant()), "file", move |tx| {
            get(tx, &workspace, &path, version)
        })
        .await
    }

    /// The last version of every file whose path begins with `prefix`, by path.
    pub async fn files(&self, workspace: &Workspace, prefix: &str) -> Result<Vec<FileHead>> {
        let (workspace, prefix) = (workspace.clone(), prefix.to_owned());
        self.read(Isolation::from(workspace.tenant()), "files", move |tx| {
            list(tx, &workspace, &prefix)
        })
        .await
    }

    /// Deletes a file with all its versions and logs `workspace.updated` with the
    /// version that would have been next; false if there is none. What is not as
    /// expected is [`StoreError::FileConflict`]. A file that is written at this path
    /// afterwards begins at version 1.
    pub async fn delete_file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        expect: Expect,
        now: Millis,
    ) -> Result<bool> {
        let (workspace, path) = (workspace.clone(), path.clone());
        self.write(Isolation::from(workspace.tenant()), "delete_file", move |tx| {
            delete(tx, &workspace, &path, expect, now)
        })
        .await
    }
}

/// How often dreams of a tenant were lost.
pub(crate) fn losses(tx: &Tx<'_>, tenant: i64) -> Result<u64> {
    tx.prepare_cached("SELECT dream_losses FROM tenants WHERE tenant = ?1")?
        .query_row([tenant], |row| row.get::<_, i64>(0))
        .map(|losses| losses as u64)
}

/// The files that tell of dreams, in the workspace of a tenant.
pub(crate) const INDEX_FILES: [&str; 2] = [INDEX_PATH, "MEMORY-INDEX.md"];

/// Whether a file is the one that says where the memory of a tenant is.
pub(crate) fn is_index(workspace: &Workspace, path: &FilePath) -> bool {
    workspace.name() == Workspace::DEFAULT && path.as_str() == INDEX_PATH
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
