//! How we treat the database, in numbers.

/// Bounds of the work with a database. Each is a setting under `postgres`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Connections that this host opens at most, beside one that listens.
    pub connections: u32,
    /// Connections that stay open however long nobody uses them.
    pub idle_connections: u32,
    /// After how long an unused connection beyond those is closed.
    pub idle_seconds: u64,
    /// How long a request waits for a connection.
    pub wait_seconds: u64,
    /// How long it may take to connect.
    pub connect_seconds: u64,
    /// How long a statement may take.
    pub statement_seconds: u64,
    /// How long a lock is waited for.
    pub lock_seconds: u64,
    /// How long a transaction may lie still before the server ends it.
    pub transaction_seconds: u64,
    /// How long what failed in passing is tried again.
    pub retry_seconds: u64,
    /// After how long of silence the other side is asked whether it is still there.
    pub keepalive_seconds: u64,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 16,
            idle_connections: 4,
            idle_seconds: 300,
            wait_seconds: 30,
            connect_seconds: 10,
            statement_seconds: 60,
            lock_seconds: 30,
            transaction_seconds: 60,
            retry_seconds: 30,
            keepalive_seconds: 10,
        }
    }
}
