//! Whose rows a transaction may see, and whom it keeps waiting.
//!
//! Rows are kept apart twice: by the statements, and by the database itself, which shows a
//! transaction the rows of one tenant alone. Writers of one memory go one after the other;
//! so do those who write about a whole tenant. Readers wait for nobody.

use icecore_domain::ids::Tenant;
use sha2::{Digest, Sha256};

use crate::engine::tx::Isolation;

/// Who runs a statement. Neither owns anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Sees one tenant.
    Tenant,
    /// Sees all.
    Sweeper,
}

impl Role {
    pub(super) const ALL: [Role; 2] = [Role::Tenant, Role::Sweeper];

    /// What the database calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Tenant => "icecore_tenant",
            Role::Sweeper => "icecore_sweeper",
        }
    }
}

/// The locks that a writer takes, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    /// With other writers of the tenant, and before others of the memory.
    Memory { tenant: i64, memory: i64 },
    /// Before all other writers of the tenant, and of the memory.
    NewTenant { tenant: i64, memory: i64 },
    /// Before all others of that key.
    Alone(i64),
    /// Before all others of both keys.
    MasterKey { everyone: i64, master: i64 },
}

/// The locks of a writer. A tenant that is not known yet may be new: then nobody else may
/// make it meanwhile.
pub(super) fn locks(of: &Isolation, is_known: bool) -> Locks {
    let of_tenant = |tenant: &Tenant| lock_key(&["tenant", tenant.as_str()]);
    match of {
        Isolation::Scope(scope) => {
            let tenant = of_tenant(scope.tenant());
            let memory = lock_key(&["memory", scope.tenant().as_str(), scope.memory()]);
            match is_known {
                true => Locks::Memory { tenant, memory },
                false => Locks::NewTenant { tenant, memory },
            }
        }
        Isolation::Tenant(tenant) => Locks::Alone(of_tenant(tenant)),
        Isolation::Lease(name) => Locks::Alone(lock_key(&["lease", name])),
        Isolation::Global => Locks::Alone(everyone()),
        Isolation::MasterKey => Locks::MasterKey { everyone: everyone(), master: master_key() },
    }
}

fn everyone() -> i64 {
    lock_key(&["everyone"])
}

/// Held together by those who seal with the master key, and alone by who replaces it.
pub(super) fn master_key() -> i64 {
    lock_key(&["master key"])
}

/// A number for a name. Two names with one number would only wait for each other.
pub(super) fn lock_key(names: &[&str]) -> i64 {
    let mut hash = Sha256::new_with_prefix(b"icecore lock");
    for name in names {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
    }
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_told_apart_by_all_of_their_names() {
        let keys = [
            lock_key(&["tenant", "a"]),
            lock_key(&["memory", "a", "b"]),
            lock_key(&["memory", "ab", ""]),
            lock_key(&["memory", "", "ab"]),
            lock_key(&["memory", "b", "a"]),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[at + 1..].contains(key));
        }
        // Hosts of all versions must agree on them.
        assert_eq!(lock_key(&["memory", "a", "b"]), keys[1]);
    }
}
