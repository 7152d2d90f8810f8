//! Outcomes of requests, so that a request that comes again gets the answer of the first.
//!
//! A write stores its outcome itself, in the same transaction: see
//! [`Claim`](icecore::ingest::Claim).

use icecore::ids::Position;
use icecore::{Memory, MemoryError, Tenant, extend};
use icecore_store::Store;
pub use icecore_store::{Erasures, NewOutcome, OutcomeBody, StoredOutcome};

type Result<T> = std::result::Result<T, MemoryError>;

/// The outcomes of all tenants' requests. Clones share everything.
#[derive(Clone)]
pub struct Outcomes {
    memory: Memory,
}

impl Outcomes {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory }
    }

    fn store(&self) -> &Store {
        extend::store(&self.memory)
    }

    /// The outcome of a request under a key of the caller's.
    pub async fn find(
        &self,
        tenant: &Tenant,
        operation: &str,
        key: &str,
    ) -> Result<Option<StoredOutcome>> {
        Ok(self.store().outcome(tenant, operation, key, self.memory.now()).await?)
    }

    /// Stores the outcome of a request that wrote nothing else. Secrets are hidden in it.
    pub async fn put(&self, tenant: &Tenant, outcome: NewOutcome) -> Result<()> {
        let redactor = self.memory.redactor(tenant).await?.redactor;
        let hide = |body: String| redactor.text(&body).into_string();
        let body = match outcome.body {
            OutcomeBody::Ids(body) => OutcomeBody::Ids(hide(body)),
            OutcomeBody::Text(body) => OutcomeBody::Text(hide(body)),
        };
        let outcome = NewOutcome { body, ..outcome };
        Ok(self.store().put_outcome(tenant, outcome, self.memory.now()).await?)
    }

    /// What was erased of a tenant since a position, and the version of its secrets: an
    /// answer from before either changed may say what it should not.
    pub async fn grounds(&self, tenant: &Tenant, after: Position) -> Result<(Erasures, u64)> {
        let erasures = self.store().erasures(tenant, after, self.memory.now()).await?;
        Ok((erasures, self.store().secrets_version(tenant).await?))
    }
}
