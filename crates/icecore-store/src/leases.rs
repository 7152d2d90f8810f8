//! Leases, as they cross the store's contract: who does what none but one host may do.
//!
//! A lease ends by the clock, and clocks are wrong: whoever holds one may have lost it
//! without knowing. So each has a number that rises whenever another holds it, and what
//! is written under it is compared with that number in the step that writes.

/// Proof of having taken a lease, by which what is written under it is told from what a
/// former holder writes. See [`Store::fenced`].
///
/// [`Store::fenced`]: crate::Store::fenced
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Which lease.
    pub name: String,
    /// Rises whenever its holder changes.
    pub token: u64,
}
