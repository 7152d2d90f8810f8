//! The `[postgres]` table.

use icecore_settings::settings;

settings! {
    /// Limits on the work with a database.
    #[derive(PartialEq, Eq, Copy)]
    pub struct PostgresOptions {
        /// The most connections of this host, beside one that listens.
        connections: u32 = 16, 1..=1_000;
        /// Connections that stay open while nothing uses them.
        idle_connections: u32 = 4, 0..=1_000 => advanced;
        /// After this long an unused connection beyond those is closed.
        idle_seconds: u64 = 300, 1..=86_400 => advanced;
        /// The longest that a request waits for a connection.
        wait_seconds: u64 = 30, 1..=3_600;
        /// The longest that connecting may take.
        connect_seconds: u64 = 10, 1..=3_600 => advanced;
        /// The longest that a statement may take.
        statement_seconds: u64 = 60, 1..=86_400;
        /// The longest wait for a lock.
        lock_seconds: u64 = 30, 1..=3_600 => advanced;
        /// The longest that a transaction may be idle before the server ends it.
        transaction_seconds: u64 = 60, 1..=86_400 => advanced;
        /// How long a passing failure is retried.
        retry_seconds: u64 = 30, 0..=3_600 => advanced;
        /// After this much silence the server is asked whether it is still there.
        keepalive_seconds: u64 = 10, 1..=3_600 => advanced;
    }
}
