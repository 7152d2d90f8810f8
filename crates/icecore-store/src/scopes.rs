//! Tenants and their memories, and the numbers that stand for them in tables.

use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::RedactedText;

pub(crate) use crate::engine::tx::ScopeNo;
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, params};
use crate::error::Result;
use crate::keys::TenantKey;
use crate::store::Store;

pub(crate) fn tenant_no(tx: &Tx<'_>, tenant: &Tenant) -> Result<Option<i64>> {
    tx.prepare_cached("SELECT tenant FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get(0)).optional())
}

pub(crate) fn tenant_key(tx: &Tx<'_>, tenant: &Tenant) -> Result<Option<TenantKey>> {
    let sealed: Option<Vec<u8>> = tx
        .prepare_cached("SELECT sealed_key FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get(0)).optional())?;
    sealed.map(|sealed| tx.keys().open(tx, tenant, sealed)).transpose()
}

pub(crate) fn ensure_tenant(tx: &Tx<'_>, tenant: &Tenant) -> Result<(i64, TenantKey)> {
    if let Some(key) = tenant_key(tx, tenant)? {
        let number = tenant_no(tx, tenant)?.unwrap_or_default();
        return Ok((number, key));
    }
    let key = TenantKey::random();
    let sealed = tx.keys().seal(tx, &key)?;
    let insert = || -> Result<_> {
        let number = tx.new_tenant_number()?;
        tx.prepare_cached("INSERT INTO tenants (tenant, name, sealed_key) VALUES (?1, ?2, ?3)")?
            .execute(params![number, tenant.as_str(), sealed])?;
        Ok(number)
    };
    Ok((insert()?, key))
}

pub(crate) fn scope_no(tx: &Tx<'_>, scope: &Scope) -> Result<Option<ScopeNo>> {
    tx.prepare_cached(
        "SELECT t.tenant, s.scope FROM tenants t JOIN scopes s ON s.tenant = t.tenant
         WHERE t.name = ?1 AND s.memory = ?2",
    )
    .and_then(|mut q| {
        q.query_row([scope.tenant().as_str(), scope.memory()], |row| {
            Ok(ScopeNo { tenant: row.get(0)?, scope: row.get(1)? })
        })
        .optional()
    })
}

pub(crate) fn ensure_scope(tx: &Tx<'_>, scope: &Scope) -> Result<ScopeNo> {
    if let Some(found) = scope_no(tx, scope)? {
        return Ok(found);
    }
    let (tenant, _) = ensure_tenant(tx, scope.tenant())?;
    tx.hold_scopes(tenant)?;
    tx.query_row(
        "INSERT INTO scopes (tenant, scope, memory)
         SELECT ?1, coalesce(max(scope), 0) + 1, ?2 FROM scopes WHERE tenant = ?1 RETURNING scope",
        params![tenant, scope.memory()],
        |row| Ok(ScopeNo { tenant, scope: row.get(0)? }),
    )
}

/// Gives out the next `count` numbers of a scope's counter and answers the last
/// that was given before.
pub(crate) fn take_numbers(tx: &Tx<'_>, no: ScopeNo, counter: &str, count: usize) -> Result<i64> {
    tx.prepare_cached(&format!(
        "UPDATE scopes SET {counter} = {counter} + ?3 WHERE tenant = ?1 AND scope = ?2 RETURNING {counter} - ?3"
    ))?
    .query_row(params![no.tenant, no.scope, count as i64], |row| row.get(0))
}

/// The scope behind its numbers.
pub(crate) fn scope_of(tx: &Tx<'_>, tenant: i64, scope: i64) -> Result<Scope> {
    let (name, memory): (String, String) = tx
        .prepare_cached(
            "SELECT t.name, s.memory FROM tenants t JOIN scopes s ON s.tenant = t.tenant
             WHERE t.tenant = ?1 AND s.scope = ?2",
        )
        .and_then(|mut q| q.query_row([tenant, scope], |row| Ok((row.get(0)?, row.get(1)?))))?;
    stored_scope(name, memory)
        .ok_or_else(|| tx.damaged("a stored name of a tenant or memory is not valid"))
}

#[expect(clippy::disallowed_methods, reason = "the name comes from our own rows")]
pub(crate) fn stored_scope(tenant: String, memory: String) -> Option<Scope> {
    use icecore_domain::ids::Principal;
    let tenant = Tenant::new(tenant).ok()?;
    Principal::local_operator(tenant).scope(RedactedText::read_back(memory)).ok()
}

pub(crate) fn scopes(tx: &Tx<'_>, tenant: &Tenant) -> Result<Vec<Scope>> {
    let Some(no) = tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let numbers: Vec<i64> = tx
        .prepare_cached("SELECT scope FROM scopes WHERE tenant = ?1 ORDER BY memory")
        .and_then(|mut q| q.query_map([no], |row| row.get(0))?.collect())?;
    numbers.into_iter().map(|scope| scope_of(tx, no, scope)).collect()
}

pub(crate) fn tenants(tx: &Tx<'_>) -> Result<Vec<Tenant>> {
    let names: Vec<String> = tx
        .prepare_cached("SELECT name FROM tenants ORDER BY name")
        .and_then(|mut q| q.query_map([], |row| row.get(0))?.collect())?;
    Ok(names.into_iter().filter_map(|name| Tenant::new(name).ok()).collect())
}

impl Store {
    /// The memories of a tenant, by the names that are stored.
    pub async fn scopes(&self, tenant: &Tenant) -> Result<Vec<Scope>> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "scopes", move |tx| scopes(tx, &tenant)).await
    }

    /// All tenants.
    pub async fn tenants(&self) -> Result<Vec<Tenant>> {
        self.read(Isolation::Global, "tenants", tenants).await
    }
}

impl Tx<'_> {
    /// The memory that the transaction is about.
    pub(crate) fn scope(&self) -> Result<&Scope> {
        match self.of() {
            Isolation::Scope(scope) => Ok(scope),
            other => Err(self.damaged(&format!("a memory's rows were asked for of {other:?}"))),
        }
    }

    /// The tenant that the transaction is about.
    pub(crate) fn tenant(&self) -> Result<&Tenant> {
        let none = || self.damaged(&format!("a tenant's rows were asked for of {:?}", self.of()));
        self.of().tenant().ok_or_else(none)
    }

    /// The numbers of the memory that the transaction is about, if it has rows.
    pub(crate) fn scope_no(&self) -> Result<Option<ScopeNo>> {
        if self.numbers.get().is_none() {
            self.numbers.set(scope_no(self, self.scope()?)?);
        }
        Ok(self.numbers.get())
    }

    /// The numbers of the memory that the transaction is about, which writes.
    pub(crate) fn ensure_scope(&self) -> Result<ScopeNo> {
        let no = ensure_scope(self, self.scope()?)?;
        self.numbers.set(Some(no));
        Ok(no)
    }

    /// The number of the tenant that the transaction is about, if it has rows.
    pub(crate) fn tenant_no(&self) -> Result<Option<i64>> {
        tenant_no(self, self.tenant()?)
    }

    /// The number and the key of the tenant that the transaction is about, which writes.
    pub(crate) fn ensure_tenant(&self) -> Result<(i64, TenantKey)> {
        ensure_tenant(self, self.tenant()?)
    }
}
