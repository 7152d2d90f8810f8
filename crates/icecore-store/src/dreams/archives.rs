//! Archives of dreams by their addresses, with the keys of their bodies.

use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::time::Millis;

use super::COUNTS;
use crate::dreams::{ArchiveRecord, NewArchive};
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::error::{Result, StoreError};
use crate::keys::TenantKey;
use crate::pack::PackKey;
use crate::store::Store;
use crate::{engine, scopes};

/// What the key of an archive is sealed for.
const ARCHIVE_KEY: &str = "icecore archive key";

/// Why the key of an archive goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Something in it was forgotten.
    Erased,
    /// Its dream was taken back.
    Undone,
}

/// Keeps the archive of a dream. One that is there with its key stays as it is, but for
/// the run.
pub(crate) fn keep(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    run: &str,
    archive: &NewArchive,
    now: Millis,
) -> Result<()> {
    let checksum = archive.checksum.0.as_slice();
    let is_there = tx
        .prepare_cached(
            "UPDATE archives SET run = ?4
             WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3 AND sealed_key IS NOT NULL",
        )
        .and_then(|mut q| q.execute(params![no.tenant, no.scope, checksum, run]))?;
    if is_there > 0 {
        return Ok(());
    }
    let (_, key) = scopes::ensure_tenant(tx, scope.tenant())?;
    tx.prepare_cached(
        "INSERT INTO archives (tenant, scope, checksum, run, name, sealed_key, bytes,
                               stored_bytes, sha256, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (tenant, scope, checksum) DO UPDATE
           SET run = excluded.run, name = excluded.name, sealed_key = excluded.sealed_key,
             bytes = excluded.bytes, stored_bytes = excluded.stored_bytes,
             sha256 = excluded.sha256, created_at = excluded.created_at,
             erased_at = NULL, expired_at = NULL",
    )
    .and_then(|mut q| {
        q.execute(params![
            no.tenant,
            no.scope,
            checksum,
            run,
            archive.name,
            key.seal(ARCHIVE_KEY, archive.key.as_bytes()),
            engine::number(archive.bytes),
            engine::number(archive.stored_bytes),
            archive.sha256.as_slice(),
            now.0,
        ])
    })
    .map(|_| ())
}

/// Destroys the key of an archive, unless a dream that counts came to it.
pub(crate) fn let_go(
    tx: &Tx<'_>,
    no: ScopeNo,
    checksum: &Checksum,
    why: Why,
    now: Millis,
) -> Result<()> {
    let column = match why {
        Why::Erased => "erased_at",
        Why::Undone => "expired_at",
    };
    tx.prepare_cached(&format!(
        "UPDATE archives SET sealed_key = NULL, {column} = ?4
         WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3 AND sealed_key IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM dreams INDEXED BY dreams_by_archive
             WHERE tenant = ?1 AND scope = ?2 AND archive = ?3 AND {COUNTS})"
    ))?
    .execute(params![no.tenant, no.scope, checksum.0.as_slice(), now.0])?;
    Ok(())
}

pub(crate) fn expire(tx: &Tx<'_>, scope: &Scope, checksum: Checksum, now: Millis) -> Result<bool> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(false) };
    tx.prepare_cached(
        "UPDATE archives SET sealed_key = NULL, expired_at = ?4
         WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3 AND sealed_key IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM dreams INDEXED BY dreams_by_archive
             WHERE tenant = ?1 AND scope = ?2 AND archive = ?3 AND state = 'in-force')",
    )
    .and_then(|mut q| q.execute(params![no.tenant, no.scope, checksum.0.as_slice(), now.0]))
    .map(|expired| expired > 0)
}

// Records

const COLUMNS: &str = "a.tenant, a.scope, a.checksum, a.run, a.name, a.sealed_key, a.bytes,
    a.stored_bytes, a.sha256, a.created_at, a.erased_at, a.expired_at";

/// An archive's row, before its key is opened.
struct ArchiveRow {
    tenant: i64,
    scope: i64,
    checksum: Vec<u8>,
    run: String,
    name: String,
    sealed_key: Option<Vec<u8>>,
    bytes: u64,
    stored_bytes: u64,
    sha256: Vec<u8>,
    created_at: Millis,
    erased_at: Option<Millis>,
    expired_at: Option<Millis>,
}

fn read(row: &Row<'_>) -> Result<ArchiveRow> {
    let millis = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Millis));
    Ok(ArchiveRow {
        tenant: row.get(0)?,
        scope: row.get(1)?,
        checksum: row.get(2)?,
        run: row.get(3)?,
        name: row.get(4)?,
        sealed_key: row.get(5)?,
        bytes: row.get::<_, i64>(6)? as u64,
        stored_bytes: row.get::<_, i64>(7)? as u64,
        sha256: row.get(8)?,
        created_at: Millis(row.get(9)?),
        erased_at: millis(10)?,
        expired_at: millis(11)?,
    })
}

impl ArchiveRow {
    fn open(self, scope: Scope, key: &TenantKey) -> Result<ArchiveRecord> {
        let damaged = |reason: &str| StoreError::PackDamaged {
            name: self.name.clone(),
            reason: reason.to_owned(),
        };
        let opened = |sealed: &Vec<u8>| {
            let opened = key.open(ARCHIVE_KEY, sealed);
            let bytes = opened.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
            bytes.map(PackKey::from_bytes).ok_or_else(|| damaged("its sealed key does not open"))
        };
        let key = self.sealed_key.as_ref().map(opened).transpose()?;
        let checksum = <[u8; 32]>::try_from(self.checksum.as_slice());
        Ok(ArchiveRecord {
            scope,
            checksum: Checksum(checksum.map_err(|_| damaged("its address is not valid"))?),
            run: self.run,
            name: self.name,
            key,
            bytes: self.bytes,
            stored_bytes: self.stored_bytes,
            sha256: self.sha256.try_into().unwrap_or_default(),
            created_at: self.created_at,
            erased_at: self.erased_at,
            expired_at: self.expired_at,
        })
    }
}

pub(crate) fn list(tx: &Tx<'_>, tenant: Option<&Tenant>) -> Result<Vec<ArchiveRecord>> {
    let found: Vec<ArchiveRow> = tx
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM archives a JOIN tenants t ON t.tenant = a.tenant
             WHERE (?1 IS NULL OR t.name = ?1)
             ORDER BY a.created_at DESC, a.tenant, a.scope, a.checksum"
        ))
        .and_then(|mut q| q.query_map([tenant.map(Tenant::as_str)], read)?.collect())?;
    open_all(tx, found)
}

pub(crate) fn at(tx: &Tx<'_>, tenant: &Tenant, checksum: Checksum) -> Result<Vec<ArchiveRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let found: Vec<ArchiveRow> = tx
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM archives a INDEXED BY archives_by_address
             WHERE tenant = ?1 AND checksum = ?2 ORDER BY scope"
        ))
        .and_then(|mut q| q.query_map(params![no, checksum.0.as_slice()], read)?.collect())?;
    open_all(tx, found)
}

fn open_all(tx: &Tx<'_>, found: Vec<ArchiveRow>) -> Result<Vec<ArchiveRecord>> {
    let open = |row: ArchiveRow| {
        let scope = scopes::scope_of(tx, row.tenant, row.scope)?;
        let key = scopes::tenant_key(tx, scope.tenant())?;
        let key = key.ok_or_else(|| tx.damaged("an archive is of no tenant"))?;
        row.open(scope, &key)
    };
    found.into_iter().map(open).collect()
}

/// Whether an archive has its key.
pub(crate) fn has_key(tx: &Tx<'_>, no: ScopeNo, checksum: &[u8]) -> Result<bool> {
    tx.prepare_cached(
        "SELECT sealed_key IS NOT NULL FROM archives
         WHERE tenant = ?1 AND scope = ?2 AND checksum = ?3",
    )?
    .query_row(params![no.tenant, no.scope, checksum], |row| row.get(0))
    .optional()
    .map(Option::unwrap_or_default)
}

impl Store {
    /// The archives of a tenant, or of all, newest first, also those that were erased
    /// or are past their retention.
    pub async fn archives(&self, tenant: Option<&Tenant>) -> Result<Vec<ArchiveRecord>> {
        let tenant = tenant.cloned();
        self.read(Isolation::from(tenant.as_ref()), "archives", move |tx| list(tx, tenant.as_ref()))
            .await
    }

    /// The archives of a tenant with that address, at most one a memory.
    pub async fn archives_at(
        &self,
        tenant: &Tenant,
        checksum: Checksum,
    ) -> Result<Vec<ArchiveRecord>> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "archives_at", move |tx| at(tx, &tenant, checksum))
            .await
    }

    /// Destroys the key of an archive that is past its retention, which only one is that
    /// no dream in force came to; false otherwise, or if it has none.
    pub async fn expire_archive(
        &self,
        scope: &Scope,
        checksum: Checksum,
        now: Millis,
    ) -> Result<bool> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "expire_archive", move |tx| {
            expire(tx, &scope, checksum, now)
        })
        .await
    }
}
