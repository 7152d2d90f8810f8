//! Archives of dreams: read back, verified, let go.

use icecore_domain::dream::Checksum;
use icecore_domain::ids::Tenant;
use icecore_store::ArchiveRecord;

use crate::error::Result;
use crate::memory::Memory;

/// How the archives are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArchiveReport {
    /// Archives whose bytes have their address.
    pub sound: u64,
    /// Archives that were erased.
    pub erased: u64,
    /// Archives past their retention.
    pub expired: u64,
    /// Bodies that nothing refers to, which a crash left.
    pub orphans: u64,
    /// What is wrong, by address.
    pub damaged: Vec<(Checksum, String)>,
}

impl Memory {
    /// The archives of a tenant, or of one of its memories, newest first, also those
    /// that were erased or are past their retention.
    pub async fn archives(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
    ) -> Result<Vec<ArchiveRecord>> {
        let _ = (tenant, memory);
        todo!()
    }

    /// The bytes of an archive, whose SHA-256 is its address. One that was erased or is
    /// past its retention, that is damaged or that holds what is a secret now, is an
    /// error that says so.
    pub async fn archive(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        checksum: Checksum,
    ) -> Result<Vec<u8>> {
        let _ = (tenant, memory, checksum);
        todo!()
    }

    /// Opens every archive, of one tenant or all, and compares its bytes with its
    /// address. `tell` hears how many are done, and of how many.
    pub async fn verify_archives(
        &self,
        tenant: Option<&Tenant>,
        tell: impl FnMut(u64, u64) + Send,
    ) -> Result<ArchiveReport> {
        let _ = (tenant, tell);
        todo!()
    }
}
