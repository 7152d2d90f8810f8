//! Tenants and their memories, and the numbers that tables refer to them by.

use icecore_domain::ids::{Principal, Scope, Tenant};
use icecore_domain::redact::RedactedText;

use crate::engine::prelude::*;
use crate::keys::TenantKey;
use crate::store::Store;

impl Store {
    pub async fn scopes(&self, tenant: &Tenant) -> Result<Vec<Scope>> {
        self.read(tenant, "scopes", |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(Vec::new()) };
            let sql = "SELECT tenant, scope FROM scopes WHERE tenant = ?1 ORDER BY memory";
            find_scopes(tx, sql, [no])
        })
        .await
    }

    pub async fn tenants(&self) -> Result<Vec<Tenant>> {
        self.read(Isolation::Global, "tenants", |tx| {
            let names = tx.all("SELECT name FROM tenants ORDER BY name", [], column::<String>)?;
            Ok(names.into_iter().filter_map(|name| Tenant::new(name).ok()).collect())
        })
        .await
    }
}

impl Tx<'_> {
    pub(crate) fn scope(&self) -> Result<&Scope> {
        match self.of() {
            Isolation::Scope(scope) => Ok(scope),
            other => Err(self.damaged(&format!("a memory's rows were asked for of {other:?}"))),
        }
    }

    pub(crate) fn tenant(&self) -> Result<&Tenant> {
        let none = || self.damaged(&format!("a tenant's rows were asked for of {:?}", self.of()));
        self.of().tenant().ok_or_else(none)
    }

    /// The numbers of the transaction's memory, if it exists.
    pub(crate) fn scope_no(&self) -> Result<Option<ScopeNo>> {
        if self.numbers.get().is_none() {
            self.numbers.set(scope_no(self, self.scope()?)?);
        }
        Ok(self.numbers.get())
    }

    /// The numbers of the transaction's memory, which is made if it does not exist.
    pub(crate) fn ensure_scope(&self) -> Result<ScopeNo> {
        let no = ensure_scope(self, self.scope()?)?;
        self.numbers.set(Some(no));
        Ok(no)
    }

    /// The number of the transaction's tenant, if it exists.
    pub(crate) fn tenant_no(&self) -> Result<Option<i64>> {
        tenant_no(self, self.tenant()?)
    }

    /// The number and the key of the transaction's tenant, which is made if it does not exist.
    pub(crate) fn ensure_tenant(&self) -> Result<(i64, TenantKey)> {
        ensure_tenant(self, self.tenant()?)
    }
}

pub(crate) fn tenant_no(tx: &Tx<'_>, tenant: &Tenant) -> Result<Option<i64>> {
    tx.first("SELECT tenant FROM tenants WHERE name = ?1", [tenant.as_str()], column)
}

pub(crate) fn tenant_key(tx: &Tx<'_>, tenant: &Tenant) -> Result<Option<TenantKey>> {
    Ok(find_tenant(tx, tenant)?.map(|(_, key)| key))
}

/// A tenant's number and opened key, if it exists.
pub(crate) fn find_tenant(tx: &Tx<'_>, tenant: &Tenant) -> Result<Option<(i64, TenantKey)>> {
    let sql = "SELECT tenant, sealed_key FROM tenants WHERE name = ?1";
    let Some((number, sealed)) = tx.first(sql, [tenant.as_str()], tuple)? else { return Ok(None) };
    Ok(Some((number, tx.keys().open(tx, tenant, sealed)?)))
}

pub(crate) fn ensure_tenant(tx: &Tx<'_>, tenant: &Tenant) -> Result<(i64, TenantKey)> {
    if let Some(found) = find_tenant(tx, tenant)? {
        return Ok(found);
    }
    let key = TenantKey::random();
    let sealed = tx.keys().seal(tx, &key)?;
    let number = tx.new_tenant_number()?;
    let row = fields! { tenant: number, name: tenant.as_str(), sealed_key: sealed };
    tx.insert("tenants", row)?;
    Ok((number, key))
}

record! {
    ScopeNo { tenant, scope }
}

pub(crate) fn scope_no(tx: &Tx<'_>, scope: &Scope) -> Result<Option<ScopeNo>> {
    tx.first(
        "SELECT t.tenant, s.scope FROM tenants t JOIN scopes s ON s.tenant = t.tenant
         WHERE t.name = ?1 AND s.memory = ?2",
        [scope.tenant().as_str(), scope.memory()],
        tuple,
    )
}

pub(crate) fn ensure_scope(tx: &Tx<'_>, scope: &Scope) -> Result<ScopeNo> {
    if let Some(found) = scope_no(tx, scope)? {
        return Ok(found);
    }
    let (tenant, _) = ensure_tenant(tx, scope.tenant())?;
    tx.hold_scopes(tenant)?;
    let scope = tx.one(
        "INSERT INTO scopes (tenant, scope, memory)
         SELECT ?1, coalesce(max(scope), 0) + 1, ?2 FROM scopes WHERE tenant = ?1 RETURNING scope",
        params![tenant, scope.memory()],
        column,
    )?;
    Ok(ScopeNo { tenant, scope })
}

/// Reserves the next `count` numbers of a scope's counter. Returns the last number that
/// was in use before.
pub(crate) fn take_numbers(tx: &Tx<'_>, no: ScopeNo, counter: &str, count: usize) -> Result<i64> {
    let sql = format!(
        "UPDATE scopes SET {counter} = {counter} + ?3 WHERE tenant = ?1 AND scope = ?2 RETURNING {counter} - ?3"
    );
    tx.one(&sql, params![no.tenant, no.scope, count], column)
}

pub(crate) fn field<T: FromSql>(tx: &Tx<'_>, no: ScopeNo, name: &str) -> Result<T> {
    let sql = format!("SELECT {name} FROM scopes WHERE tenant = ?1 AND scope = ?2");
    tx.one(&sql, [no.tenant, no.scope], column)
}

pub(crate) fn scope_of(tx: &Tx<'_>, tenant: i64, scope: i64) -> Result<Scope> {
    tx.one(
        "SELECT t.name, s.memory FROM tenants t JOIN scopes s ON s.tenant = t.tenant
         WHERE t.tenant = ?1 AND s.scope = ?2",
        [tenant, scope],
        tuple,
    )
}

/// The scopes whose numbers, tenant and scope, a statement selects, in its order.
pub(crate) fn find_scopes(tx: &Tx<'_>, sql: &str, params: impl Params) -> Result<Vec<Scope>> {
    let found: Vec<(i64, i64)> = tx.all(sql, params, tuple)?;
    found.into_iter().map(|(tenant, scope)| scope_of(tx, tenant, scope)).collect()
}

impl FromSql for Tenant {
    fn from_value(value: Value<'_>) -> Result<Self> {
        Self::new(value.as_str()?.to_owned())
            .map_err(|_| Error::broken(0, "the name of a tenant is not valid"))
    }
}

/// The names of a tenant and of its memory.
impl FromColumns for Scope {
    fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
        let (tenant, memory): (Tenant, RedactedText) = columns.get()?;
        Principal::local_operator(tenant)
            .scope(memory)
            .map_err(|_| Error::broken(0, "the name of a memory is not valid"))
    }
}
