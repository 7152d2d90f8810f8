//! Limits on what a tenant may take in: the seam for whoever sets them.
//!
//! A memory asks its [`Admission`] before it stores text, and reports afterwards how much of
//! that was new. Without one everything is admitted.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use icecore_domain::ids::Tenant;
use icecore_domain::time::Clock;
use icecore_store::{Store, StoreError};

use crate::base::Base;
use crate::base::INLINE_BYTES;
use crate::error::{MemoryError, Result, off_thread};

/// A future that an [`Admission`] returns.
pub type Reserving<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Decides whether a tenant may take in more tokens.
pub trait Admission: Any + Send + Sync {
    /// Called once for each memory that is opened with this value, before anything is
    /// written.
    fn opened(&self, store: &Store, clock: &Arc<dyn Clock>);

    /// Reserves tokens for a write that follows, or refuses with
    /// [`MemoryError::DayBoundReached`].
    fn reserve<'a>(&'a self, tenant: &'a Tenant, tokens: u64) -> Reserving<'a>;

    /// Ends a reservation: `stored` of the `reserved` tokens were new and were stored.
    fn release(&self, tenant: &Tenant, reserved: u64, stored: u64);

    /// Called with each error with which the store answered an admitted write.
    fn refused(&self, error: &MemoryError);
}

/// Tokens that were admitted. Dropped without [`Admitted::store`], they count as not stored.
pub struct Admitted {
    admission: Option<Arc<dyn Admission>>,
    tenant: Tenant,
    reserved: u64,
    stored: u64,
}

impl Admitted {
    /// Says that so many of the tokens were stored.
    pub fn store(mut self, tokens: u64) {
        self.stored = tokens;
    }

    /// Says that all of them were stored.
    pub fn store_all(mut self) {
        self.stored = self.reserved;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(admission) = &self.admission {
            admission.release(&self.tenant, self.reserved, self.stored);
        }
    }
}

impl Base {
    /// Reserves tokens for a write that follows.
    pub(crate) async fn admit(&self, tenant: &Tenant, tokens: u64) -> Result<Admitted> {
        let admission = self.admission.clone();
        if let Some(admission) = &admission {
            admission.reserve(tenant, tokens).await?;
        }
        Ok(Admitted { admission, tenant: tenant.clone(), reserved: tokens, stored: 0 })
    }

    /// As [`Base::admit`], with the tokens of a text.
    pub(crate) async fn admit_text(&self, tenant: &Tenant, text: &str) -> Result<Admitted> {
        let tokens = if self.admission.is_none() {
            0
        } else if text.len() <= INLINE_BYTES {
            self.counter.count(text)
        } else {
            let (inner, text) = (self.clone(), text.to_owned());
            off_thread(move || inner.counter.count(&text)).await?
        };
        self.admit(tenant, u64::from(tokens)).await
    }

    /// The result of an admitted write, reported if the store refused it.
    pub(crate) fn written<T>(&self, written: std::result::Result<T, StoreError>) -> Result<T> {
        let written = written.map_err(MemoryError::from);
        written.inspect_err(|error| {
            if let Some(admission) = &self.admission {
                admission.refused(error);
            }
        })
    }
}
