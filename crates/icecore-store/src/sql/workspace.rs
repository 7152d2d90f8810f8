//! Files of workspaces, by path and version.

use std::collections::{BTreeMap, BTreeSet};

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::ids::Position;
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::{DEFAULT_CONTENT_TYPE, FilePath, Workspace};

use super::{Shared, dreams, log, rows, secrets, usage};
use crate::bounds::Change;
use crate::dreams::is_index;
use crate::error::StoreError;
use crate::runs::stored_path;
use crate::store::*;
use crate::told::{Again, add};
use crate::workspace::{digest, renamed, updated};

const HEAD: &str = "path, version, position, updated_at, content_type, digest";

/// A version that is the last of its path.
const IS_LAST: &str = "version = (SELECT max(g.version) FROM files g
    WHERE g.tenant = files.tenant AND g.workspace = files.workspace AND g.path = files.path)";

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    workspace: &Workspace,
    file: NewFile,
) -> Result<FileRecord> {
    secrets::refuse_changed(c, s, workspace.tenant(), file.secrets_seen)?;
    let (tenant, _) = rows::ensure_tenant(c, s, workspace.tenant())?;
    if let Some(claim) = &file.claim {
        log::refuse_taken(c, s, tenant, claim, file.now)?;
    }
    let last = last(c, s, tenant, workspace.name(), &file.path)?;
    refuse_unexpected(c, s, tenant, file.expect, last)?;
    if last.is_none() {
        refuse_crowd(c, s, tenant, workspace.name(), file.most_files)?;
    }
    let version = last.map_or(1, |(version, _)| version + 1);
    let hash = digest(file.content.as_str());
    let put = || {
        let payload = updated(file.path.as_str(), version);
        let position = log::record(c, tenant, None, "workspace.updated", &payload, file.now)?;
        c.prepare_cached(
            "INSERT INTO files (tenant, workspace, path, version, position, updated_at,
                                content_type, digest, hidden, content)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            tenant,
            workspace.name(),
            file.path.as_str(),
            rows::number(version),
            rows::number(position.0),
            file.now.0,
            file.content_type.as_str(),
            hash.as_slice(),
            serde_json::json!(file.hidden).to_string(),
            file.content.as_str().as_bytes(),
        ])?;
        let oldest = version.saturating_sub(file.versions_kept.max(1));
        let freed = usage::freed(
            c,
            "DELETE FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version <= ?4
             RETURNING length(content)",
            params![tenant, workspace.name(), file.path.as_str(), rows::number(oldest)],
        )?;
        if is_index(workspace, &file.path) {
            c.execute(
                "UPDATE tenants SET index_lost = 0 WHERE tenant = ?1 AND index_lost = 1",
                [tenant],
            )?;
        }
        Ok((position, freed))
    };
    let (position, freed) = put().map_err(|e: engine::Error| s.failed(e))?;
    let change = Change::bytes(file.content.as_str().len() as i64 - freed);
    match is_index(workspace, &file.path) {
        // A dream tells there what it came to.
        true => usage::change(c, tenant, change).map_err(|e| s.failed(e))?,
        false => usage::keep(c, s, (workspace.tenant(), tenant), change)?,
    }
    let NewFile { path, content, content_type, now, claim, .. } = file;
    let head = FileHead { path, version, content_type, digest: hash, position, updated_at: now };
    let record = FileRecord { head, content };
    if let Some(claim) = claim {
        log::put_outcome_of(c, s, tenant, &claim.outcome(&record), now)?;
    }
    Ok(record)
}

/// The last version of a path and where it was written.
fn last(
    c: &Connection,
    s: &Shared,
    tenant: i64,
    workspace: &str,
    path: &FilePath,
) -> Result<Option<(u64, Position)>> {
    c.prepare_cached(
        "SELECT version, position FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
         ORDER BY version DESC LIMIT 1",
    )
    .and_then(|mut q| {
        q.query_row(params![tenant, workspace, path.as_str()], |row| {
            Ok((row.get::<_, i64>(0)? as u64, Position(row.get::<_, i64>(1)? as u64)))
        })
        .optional()
    })
    .map_err(|e| s.failed(e))
}

fn refuse_unexpected(
    c: &Connection,
    s: &Shared,
    tenant: i64,
    expect: Expect,
    last: Option<(u64, Position)>,
) -> Result<()> {
    let lost = match expect {
        Expect::Unlost { .. } => dreams::losses(c, tenant).map_err(|e| s.failed(e))?,
        _ => 0,
    };
    match expect.holds(last.map(|(_, position)| position), lost) {
        true => Ok(()),
        false => Err(StoreError::FileConflict { current: last.map_or(0, |(version, _)| version) }),
    }
}

fn refuse_crowd(c: &Connection, s: &Shared, tenant: i64, workspace: &str, most: u64) -> Result<()> {
    let count: i64 = c
        .prepare_cached(
            "SELECT count(DISTINCT path) FROM files WHERE tenant = ?1 AND workspace = ?2",
        )
        .and_then(|mut q| q.query_row(params![tenant, workspace], |row| row.get(0)))
        .map_err(|e| s.failed(e))?;
    if count as u64 >= most { Err(StoreError::TooManyFiles { most }) } else { Ok(()) }
}

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    workspace: &Workspace,
    path: &FilePath,
    version: Option<u64>,
) -> Result<Option<FileRecord>> {
    let Some(tenant) = rows::tenant_no(c, s, workspace.tenant())? else { return Ok(None) };
    let version = version.map(rows::number);
    c.prepare_cached(&format!(
        "SELECT {HEAD}, content FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
           AND (?4 IS NULL OR version = ?4) ORDER BY version DESC LIMIT 1"
    ))
    .and_then(|mut q| {
        let key = params![tenant, workspace.name(), path.as_str(), version];
        q.query_row(key, |row| Ok((head(row)?, content(row, 6)?))).optional()
    })
    .map_err(|e| s.failed(e))?
    .map(|(head, content)| Ok(FileRecord { head: whole(s, head)?, content }))
    .transpose()
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    workspace: &Workspace,
    prefix: &str,
) -> Result<Vec<FileHead>> {
    let Some(tenant) = rows::tenant_no(c, s, workspace.tenant())? else { return Ok(Vec::new()) };
    let heads: Vec<Option<FileHead>> = c
        .prepare_cached(&format!(
            "SELECT {HEAD} FROM files WHERE tenant = ?1 AND workspace = ?2
               AND substr(path, 1, length(?3)) = ?3 AND {IS_LAST} ORDER BY path"
        ))
        .and_then(|mut q| q.query_map(params![tenant, workspace.name(), prefix], head)?.collect())
        .map_err(|e| s.failed(e))?;
    heads.into_iter().map(|head| whole(s, head)).collect()
}

pub(super) fn delete(
    c: &Connection,
    s: &Shared,
    workspace: &Workspace,
    path: &FilePath,
    expect: Expect,
    now: Millis,
) -> Result<bool> {
    let Some(tenant) = rows::tenant_no(c, s, workspace.tenant())? else {
        return match expect.holds(None, 0) {
            true => Ok(false),
            false => Err(StoreError::FileConflict { current: 0 }),
        };
    };
    let last = last(c, s, tenant, workspace.name(), path)?;
    refuse_unexpected(c, s, tenant, expect, last)?;
    let Some((version, _)) = last else { return Ok(false) };
    let delete = || {
        let freed = usage::freed(
            c,
            "DELETE FROM files WHERE tenant = ?1 AND workspace = ?2 AND path = ?3
             RETURNING length(content)",
            params![tenant, workspace.name(), path.as_str()],
        )?;
        usage::change(c, tenant, Change::bytes(-freed))?;
        let payload = updated(path.as_str(), version + 1);
        log::record(c, tenant, None, "workspace.updated", &payload, now)
    };
    delete().map(|_| true).map_err(|e| s.failed(e))
}

/// None where a row is not what was written.
#[expect(clippy::disallowed_methods, reason = "files come from our own rows")]
fn head(row: &Row<'_>) -> engine::Result<Option<FileHead>> {
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

fn whole(s: &Shared, head: Option<FileHead>) -> Result<FileHead> {
    head.ok_or_else(|| rows::damaged(s, "the row of a workspace file is not valid"))
}

#[expect(clippy::disallowed_methods, reason = "files come from our own rows")]
fn content(row: &Row<'_>, column: usize) -> engine::Result<RedactedText> {
    let content: Vec<u8> = row.get(column)?;
    Ok(RedactedText::read_back(String::from_utf8_lossy(&content).into_owned()))
}

// Rewriting

/// Puts the files of a tenant through a redactor: every version that is kept. Answers
/// the new path of each old one, by workspace.
pub(super) fn rewrite(
    c: &Connection,
    tenant: i64,
    again: &Again<'_>,
    told: &mut Told,
) -> engine::Result<BTreeMap<(String, String), FilePath>> {
    let kept: Vec<(String, String, i64)> = c
        .prepare("SELECT workspace, path, version FROM files WHERE tenant = ?1")?
        .query_map([tenant], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<engine::Result<_>>()?;
    let (mut changed, mut new_paths) = (BTreeSet::new(), BTreeMap::new());
    for at in &kept {
        if rewrite_version(c, tenant, at, again, told)? {
            changed.insert(at.clone());
        }
    }
    let mut paths: Vec<(String, String)> =
        kept.iter().map(|(workspace, path, _)| (workspace.clone(), path.clone())).collect();
    paths.sort();
    paths.dedup();
    for (workspace, path) in paths {
        let Some((_, hidden)) = again.text(&path) else { continue };
        let new = rename(c, tenant, &workspace, &path, again, told)?;
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
    c: &Connection,
    tenant: i64,
    (workspace, path, version): &(String, String, i64),
    again: &Again<'_>,
    told: &mut Told,
) -> engine::Result<bool> {
    let key = params![tenant, workspace, path, version];
    let (text, kind, mut counts) = c
        .prepare_cached(
            "SELECT content, content_type, hidden FROM files
             WHERE tenant = ?1 AND workspace = ?2 AND path = ?3 AND version = ?4",
        )?
        .query_row(key, |row| {
            Ok((content(row, 0)?, row.get::<_, String>(1)?, secrets::read_hidden(row, 2)?))
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
    usage::change(c, tenant, Change::bytes(text.as_str().len() as i64 - before))?;
    for hidden in found.iter().chain([&more]) {
        add(&mut counts, hidden);
        add(&mut told.hidden, hidden);
    }
    c.prepare_cached(
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
    c: &Connection,
    tenant: i64,
    workspace: &str,
    old: &str,
    again: &Again<'_>,
    told: &mut Told,
) -> engine::Result<String> {
    let mut taken = c.prepare_cached(
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
    c.execute(
        "UPDATE files SET path = ?4 WHERE tenant = ?1 AND workspace = ?2 AND path = ?3",
        params![tenant, workspace, old, new],
    )?;
    told.events += rename_in_log(c, tenant, old, &new)?;
    Ok(new)
}

/// Has the log name a file by its new path; answers how many records it changed.
fn rename_in_log(c: &Connection, tenant: i64, old: &str, new: &str) -> engine::Result<u64> {
    let told: Vec<(i64, String)> = c
        .prepare(
            "SELECT position, payload FROM log
             WHERE tenant = ?1 AND kind = 'workspace.updated'
               AND json_extract(payload, '$.path') = ?2",
        )?
        .query_map(params![tenant, old], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<engine::Result<_>>()?;
    let mut update =
        c.prepare_cached("UPDATE log SET payload = ?3 WHERE tenant = ?1 AND position = ?2")?;
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
pub(super) fn check(c: &Connection, s: &Shared) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let look = |findings: &mut Vec<String>| {
        let mut query = c.prepare(&format!("SELECT {HEAD}, content FROM files"))?;
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
    look(&mut findings).map_err(|e: engine::Error| s.failed(e))?;
    Ok(findings)
}

/// How many files a tenant has.
pub(super) fn count(c: &Connection, tenant: i64) -> engine::Result<u64> {
    let count: i64 = c.query_row(
        "SELECT count(*) FROM (SELECT DISTINCT workspace, path FROM files WHERE tenant = ?1) f",
        [tenant],
        |row| row.get(0),
    )?;
    Ok(count as u64)
}

/// Adds what was hidden in versions that are kept.
pub(super) fn add_hidden(
    c: &Connection,
    tenant: i64,
    sum: &mut icecore_domain::redact::Hidden,
) -> engine::Result<()> {
    let mut query = c.prepare("SELECT hidden FROM files WHERE tenant = ?1 AND hidden != '{}'")?;
    let mut found = query.query([tenant])?;
    while let Some(row) = found.next()? {
        add(sum, &secrets::read_hidden(&row, 0)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::sql::Wall;
    use crate::sql::engine::Connection;
    use icecore_domain::ids::Principal;

    use crate::SqliteStore;
    use crate::contract::fixtures::*;
    use crate::contract::new_file;
    use crate::store::*;

    #[tokio::test]
    async fn a_damaged_file_is_found() {
        let check = async |change: &'static str, finding: &str| {
            let dir = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(dir.path(), None).unwrap();
            let workspace = Principal::local_operator(tenant("acme")).workspace();
            for n in 1..4 {
                let file = new_file("a.md", &format!("text {n}"));
                store.put_file(&workspace, file).await.unwrap();
            }
            clean(&store).await;
            let change = move |c: &Connection, s: &super::Shared| {
                c.execute_batch(change).map_err(|e| s.failed(e))
            };
            store.write(Wall::Everyone, change).await.unwrap();
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
