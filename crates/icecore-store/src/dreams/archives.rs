//! Archives of what dreams read, by address, with the keys of their bodies.

use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::time::Millis;

use super::COUNTS;
use crate::engine::tx::{ScopeNo, Tx};
use crate::engine::{Row, params};
use crate::error::{Result, StoreError};
use crate::pack::PackKey;
use crate::scopes;
use crate::store::Store;

/// What a sealed key is bound to.
const ARCHIVE_KEY: &str = "icecore archive key";

/// An archive whose body has been written.
#[derive(Debug, Clone)]
pub struct NewArchive {
    /// Its address: the SHA-256 of the plaintext.
    pub checksum: Checksum,
    /// The random name of the body.
    pub name: String,
    /// The body's own key.
    pub key: PackKey,
    /// Bytes of the plaintext.
    pub bytes: u64,
    /// Bytes of the body.
    pub stored_bytes: u64,
    /// SHA-256 of the body.
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
                 WHERE tenant = ?1 AND checksum = ?2 ORDER BY scope"
            );
            tx.all(&sql, params![no, checksum.0], |row| read(tx, row))
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

/// Why the key of an archive is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Something in it was forgotten.
    Erased,
    /// Its dream was taken back.
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
    Ok(tx.run(&sql, params![no.tenant, no.scope, checksum.0, now])? > 0)
}

/// Stores the archive of a dream. One that has its key already only gets the new run.
pub(super) fn keep(
    tx: &Tx<'_>,
    no: ScopeNo,
    run: &str,
    archive: &NewArchive,
    now: Millis,
) -> Result<()> {
    let checksum = archive.checksum.0;
    let known = tx.run(
        "UPDATE archives SET run = ?4
         WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3 AND sealed_key IS NOT NULL",
        params![no.tenant, no.scope, checksum, run],
    )?;
    if known > 0 {
        return Ok(());
    }
    let (_, key) = tx.ensure_tenant()?;
    tx.run(
        "INSERT INTO archives (tenant, scope, checksum, run, name, sealed_key, bytes,
                               stored_bytes, sha256, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (tenant, scope, checksum) DO UPDATE
           SET run = excluded.run, name = excluded.name, sealed_key = excluded.sealed_key,
             bytes = excluded.bytes, stored_bytes = excluded.stored_bytes,
             sha256 = excluded.sha256, created_at = excluded.created_at,
             erased_at = NULL, expired_at = NULL",
        params![
            no.tenant,
            no.scope,
            checksum,
            run,
            archive.name,
            key.seal(ARCHIVE_KEY, archive.key.as_bytes()),
            archive.bytes,
            archive.stored_bytes,
            archive.sha256,
            now,
        ],
    )?;
    Ok(())
}

/// Whether an archive has its key.
pub(crate) fn has_key(tx: &Tx<'_>, no: ScopeNo, checksum: &[u8]) -> Result<bool> {
    tx.finds(
        "SELECT 1 FROM archives
         WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3 AND sealed_key IS NOT NULL",
        params![no.tenant, no.scope, checksum],
    )
}

const COLUMNS: &str = "a.tenant, a.scope, a.checksum, a.run, a.name, a.sealed_key, a.bytes,
    a.stored_bytes, a.sha256, a.created_at, a.erased_at, a.expired_at";

fn read(tx: &Tx<'_>, row: &Row<'_>) -> Result<ArchiveRecord> {
    let scope = scopes::scope_of(tx, row.get(0)?, row.get(1)?)?;
    let tenant_key = scopes::tenant_key(tx, scope.tenant())?
        .ok_or_else(|| tx.damaged("an archive is of no tenant"))?;
    let name: String = row.get(4)?;
    let damaged =
        |reason: &str| StoreError::PackDamaged { name: name.clone(), reason: reason.to_owned() };
    let open = |sealed: Vec<u8>| {
        let key = tenant_key.open(ARCHIVE_KEY, &sealed)?;
        Some(PackKey::from_bytes(key.try_into().ok()?))
    };
    let key = match row.get(5)? {
        Some(sealed) => Some(open(sealed).ok_or_else(|| damaged("its sealed key does not open"))?),
        None => None,
    };
    let checksum = row.get::<_, Vec<u8>>(2)?.try_into();
    let checksum = Checksum(checksum.map_err(|_| damaged("its address is not valid"))?);
    Ok(ArchiveRecord {
        scope,
        checksum,
        run: row.get(3)?,
        name,
        key,
        bytes: row.get(6)?,
        stored_bytes: row.get(7)?,
        sha256: row.get::<_, Vec<u8>>(8)?.try_into().unwrap_or_default(),
        created_at: row.get(9)?,
        erased_at: row.get(10)?,
        expired_at: row.get(11)?,
    })
}
