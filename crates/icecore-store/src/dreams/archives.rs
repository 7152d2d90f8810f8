//! Archives of what dreams read, by address, with the keys of their bodies.

use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::time::Millis;

use super::COUNTS;
use crate::engine::prelude::*;
use crate::layers;
use crate::pack::PackKey;
use crate::store::Store;

const ARCHIVE_KEY: &str = "icecore archive key";

/// An archive whose body has been written.
#[derive(Debug, Clone)]
pub struct NewArchive {
    /// Its address: the SHA-256 of the plaintext.
    pub checksum: Checksum,
    /// The random name of the body.
    pub name: String,
    pub key: PackKey,
    pub bytes: u64,
    pub stored_bytes: u64,
    pub sha256: [u8; 32],
}

/// A stored archive. Its fields mean what they do in [`NewArchive`].
#[derive(Debug, Clone)]
pub struct ArchiveRecord {
    pub scope: Scope,
    pub checksum: Checksum,
    /// The run of the last dream with this archive.
    pub run: String,
    pub name: String,
    /// `None` once the archive was erased or has expired.
    pub key: Option<PackKey>,
    pub bytes: u64,
    pub stored_bytes: u64,
    pub sha256: [u8; 32],
    /// When a body was first written, or written again after its key was destroyed.
    pub created_at: Millis,
    /// When its key was destroyed because something in it was forgotten.
    pub erased_at: Option<Millis>,
    /// When its key was destroyed after its retention, or with a dream that was undone.
    pub expired_at: Option<Millis>,
}

impl Store {
    /// The archives of a tenant, or of all, newest first; also those without a key.
    pub async fn archives(&self, tenant: Option<&Tenant>) -> Result<Vec<ArchiveRecord>> {
        self.read(tenant, "archives", |tx| {
            let sql = format!(
                "SELECT {COLUMNS} FROM archives a JOIN tenants t ON t.tenant = a.tenant
                 WHERE (?1 IS NULL OR t.name = ?1)
                 ORDER BY a.created_at DESC, a.tenant, a.scope, a.checksum"
            );
            tx.all(&sql, [tx.of().tenant().map(Tenant::as_str)], |row| read(tx, row))
        })
        .await
    }

    /// The archives of a tenant with an address, at most one for each memory.
    pub async fn archives_at(
        &self,
        tenant: &Tenant,
        checksum: Checksum,
    ) -> Result<Vec<ArchiveRecord>> {
        self.read(tenant, "archives_at", move |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(Vec::new()) };
            let sql = format!(
                "SELECT {COLUMNS} FROM archives a INDEXED BY archives_by_address
                 JOIN tenants t ON t.tenant = a.tenant
                 WHERE a.tenant = ?1 AND a.checksum = ?2 ORDER BY a.scope"
            );
            tx.all(&sql, params![no, checksum], |row| read(tx, row))
        })
        .await
    }

    /// Destroys the key of an archive after its retention. Returns `false` if it has none,
    /// or the dream in force has this archive.
    pub async fn expire_archive(
        &self,
        scope: &Scope,
        checksum: Checksum,
        now: Millis,
    ) -> Result<bool> {
        self.write(scope, "expire_archive", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(false) };
            destroy_key(tx, no, &checksum, ("expired_at", "state = 'in-force'"), now)
        })
        .await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Erased,
    Undone,
}

/// Destroys the key of an archive, unless a dream that counts has this archive.
pub(crate) fn let_go(
    tx: &Tx<'_>,
    no: ScopeNo,
    checksum: &Checksum,
    why: Why,
    now: Millis,
) -> Result<()> {
    let noted_in = match why {
        Why::Erased => "erased_at",
        Why::Undone => "expired_at",
    };
    destroy_key(tx, no, checksum, (noted_in, COUNTS), now)?;
    Ok(())
}

/// Destroys the key of an archive and sets a column to now, unless the archive has no key
/// or a dream with it meets a condition.
fn destroy_key(
    tx: &Tx<'_>,
    no: ScopeNo,
    checksum: &Checksum,
    (noted_in, unless): (&str, &str),
    now: Millis,
) -> Result<bool> {
    let sql = format!(
        "UPDATE archives SET sealed_key = NULL, {noted_in} = ?4
         WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3 AND sealed_key IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM dreams INDEXED BY dreams_by_archive
             WHERE tenant = ?1 AND scope = ?2 AND archive = ?3 AND {unless})"
    );
    Ok(tx.run(&sql, params![no.tenant, no.scope, checksum, now])? > 0)
}

/// Stores the archive of a dream. One that has its key already only gets the new run.
pub(super) fn keep(
    tx: &Tx<'_>,
    no: ScopeNo,
    run: &str,
    archive: &NewArchive,
    now: Millis,
) -> Result<()> {
    if has_key(tx, no, &archive.checksum)? {
        return tx.change(
            "UPDATE archives SET run = ?4 WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3",
            params![no.tenant, no.scope, archive.checksum, run],
        );
    }
    let (_, key) = tx.ensure_tenant()?;
    let row = fields! {
        tenant: no.tenant,
        scope: no.scope,
        checksum: archive.checksum,
        run: run,
        name: archive.name,
        sealed_key: key.seal(ARCHIVE_KEY, archive.key.as_bytes()),
        bytes: archive.bytes,
        stored_bytes: archive.stored_bytes,
        sha256: archive.sha256,
        created_at: now,
        erased_at: None::<Millis>,
        expired_at: None::<Millis>,
    };
    tx.upsert("archives", 3, row)
}

pub(crate) fn has_key(tx: &Tx<'_>, no: ScopeNo, checksum: &Checksum) -> Result<bool> {
    tx.finds(
        "SELECT 1 FROM archives
         WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3 AND sealed_key IS NOT NULL",
        params![no.tenant, no.scope, checksum],
    )
}

const COLUMNS: &str = "t.name,
    (SELECT memory FROM scopes s WHERE s.tenant = a.tenant AND s.scope = a.scope),
    t.sealed_key, a.sealed_key, a.name, a.checksum, a.run, a.bytes, a.stored_bytes, a.sha256,
    a.created_at, a.erased_at, a.expired_at";

fn read(tx: &Tx<'_>, row: &Row<'_>) -> Result<ArchiveRecord> {
    let mut columns = Columns::of(row);
    let (scope, tenant_key): (Scope, Vec<u8>) = columns.get()?;
    let tenant_key = tx.keys().open(tx, scope.tenant(), tenant_key)?;
    let (sealed, name): (Option<Vec<u8>>, String) = columns.get()?;
    let key = sealed.map(|sealed| layers::open_key(&tenant_key, ARCHIVE_KEY, &sealed, &name));
    Ok(ArchiveRecord {
        scope,
        key: key.transpose()?,
        name,
        checksum: columns.get()?,
        run: columns.get()?,
        bytes: columns.get()?,
        stored_bytes: columns.get()?,
        sha256: columns.get()?,
        created_at: columns.get()?,
        erased_at: columns.get()?,
        expired_at: columns.get()?,
    })
}
