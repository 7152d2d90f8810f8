//! For crates that keep more in a memory's store than memories, such as `icecore-host`: the
//! store itself, and the rules under which text is written to it and read from it.
//!
//! Not for programs that embed a memory. It changes without notice.

use std::sync::Arc;

use icecore_domain::ids::Tenant;
use icecore_domain::redact::Redactor;
use icecore_domain::time::{Clock, Millis};
use icecore_store::{NewEntry, Store, StoreError};

use crate::error::Result;
use crate::knowledge::entries::NewEntryRequest;
use crate::memory::Memory;
use crate::privacy::secrets::TenantRedactor;

pub use crate::base::INLINE_BYTES;
pub use crate::base::admission::{Admission, Admitted, Reserving};
pub use crate::base::pieces::in_pieces;
pub use crate::error::off_thread;
pub use crate::privacy::secrets::{SecretsChanged, write_redacted};

/// The store under a memory. Writes are refused once a memory given by [`under_lease`] has
/// lost its lease.
pub fn store(memory: &Memory) -> &Store {
    &memory.store
}

/// The redactor that stored text of a tenant must go through when it is read; `None` if a
/// rescan has already been through all of it.
pub async fn read_redactor(memory: &Memory, tenant: &Tenant) -> Result<Option<Redactor>> {
    memory.read_redactor(tenant).await
}

/// An entry as it is stored: checked, its secrets hidden.
pub async fn redacted_entry(
    memory: &Memory,
    known: &TenantRedactor,
    request: &NewEntryRequest,
    now: Millis,
) -> Result<NewEntry> {
    memory.redacted_entry(known, request, now).await
}

/// Reserves the tokens of a text that is about to be stored.
pub async fn admit_text(memory: &Memory, tenant: &Tenant, text: &str) -> Result<Admitted> {
    memory.admit_text(tenant, text).await
}

/// The result of a write that was admitted.
pub fn written<T>(memory: &Memory, written: std::result::Result<T, StoreError>) -> Result<T> {
    memory.written(written)
}

/// The clock that a memory goes by.
pub fn clock(memory: &Memory) -> &Arc<dyn Clock> {
    &memory.clock
}

/// What decides on admission, if anything does.
pub fn admission(memory: &Memory) -> Option<Arc<dyn Admission>> {
    memory.admission.clone()
}

/// Has upkeep look for work at once: entries were stored.
pub fn wake(memory: &Memory) {
    memory.wake.notify_one();
}

/// Runs `work` under the lease `name` and renews it. Returns `None` if another process
/// holds it or takes it over.
pub async fn under_lease<T, W>(
    memory: &Memory,
    name: &str,
    work: impl FnOnce(Memory) -> W,
) -> Result<Option<T>>
where
    W: Future<Output = Result<T>>,
{
    memory.on_duty(name, |upkeep| work(Memory { upkeep })).await
}
