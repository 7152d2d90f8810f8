//! What a failure of the database means, and what is to be done about it.

use std::error::Error;
use std::sync::Arc;
use std::{fmt, io};

use tokio_postgres::error::{DbError, Severity, SqlState};

use super::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is gone, or was never made.
    Gone,
    /// Another transaction was in the way: a serialization failure or a deadlock.
    Conflict,
    /// Somebody else was faster to take a unique place.
    Taken,
    /// The server has no room for another connection.
    Crowded,
    /// The server takes no writes: it is a standby, or becoming one.
    Standby,
    /// The tables have changed under a prepared statement.
    Stale,
    DiskFull,
    LockTimeout,
    StatementTimeout,
    Permission,
    Password,
    NoDatabase,
    Tls,
    /// The server connection has changed under a session: there is a pooler in between.
    Pooled,
    Other,
}

impl Fault {
    /// Whether the same may work a moment later.
    pub(crate) fn is_passing(self) -> bool {
        use Fault::*;
        matches!(self, Gone | Conflict | Taken | Crowded | Standby | Stale)
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn is_fatal(self) -> bool {
        matches!(self, Fault::Gone | Fault::Stale | Fault::Standby)
    }
}

#[derive(Debug)]
pub struct PgError {
    fault: Fault,
    /// What happened, in the server's words or in ours. Never what a row holds.
    reason: String,
    code: Option<SqlState>,
    is_final: bool,
    server: Arc<Server>,
}

#[derive(Debug)]
pub(crate) struct Server {
    /// Host, port and database.
    pub(crate) name: String,
    pub(crate) lock_seconds: u64,
    pub(crate) statement_seconds: u64,
}

impl PgError {
    /// Reads what the driver says.
    pub(crate) fn new(error: &tokio_postgres::Error, server: &Arc<Server>) -> Self {
        let fault = fault_of(error);
        let is_final = error.as_db_error().is_some_and(is_final);
        let code = error.code().cloned();
        Self { fault, reason: reason(error), code, is_final, server: Arc::clone(server) }
    }

    /// A failure that we saw ourselves.
    pub(crate) fn ours(fault: Fault, reason: &str, server: &Arc<Server>) -> Self {
        let server = Arc::clone(server);
        Self { fault, reason: reason.to_owned(), code: None, is_final: false, server }
    }

    pub(crate) fn fault(&self) -> Fault {
        self.fault
    }

    /// Whether the connection is of no use any more, and what it was doing may or may not
    /// have happened.
    pub(crate) fn ends_connection(&self) -> bool {
        self.is_final || self.fault.is_fatal()
    }

    /// What it means to the store's users.
    pub(crate) fn into_store(self) -> StoreError {
        let server = self.server.name.clone();
        let refused = |remedy: &'static str| StoreError::DatabaseRefused {
            server: self.server.name.clone(),
            reason: self.reason.clone(),
            remedy,
        };
        match self.fault {
            Fault::Crowded => StoreError::Unavailable {
                server,
                reason: format!("it has no place for another connection: {}", self.reason),
            },
            Fault::Gone | Fault::Conflict | Fault::Taken | Fault::Stale => {
                StoreError::Unavailable { server, reason: self.reason }
            }
            Fault::Standby => refused(
                "name the primary in the URL, or add `target_session_attrs=read-write` and name all hosts; add `pooler=transaction` if a pooler stands before it",
            ),
            Fault::DiskFull => StoreError::DatabaseFull { server, reason: self.reason },
            Fault::LockTimeout => StoreError::Busy { seconds: self.server.lock_seconds },
            Fault::StatementTimeout => {
                StoreError::StatementTooSlow { server, seconds: self.server.statement_seconds }
            }
            Fault::Permission => refused(
                "the user of the URL must own the schema, or be a member of `icecore_tenant` and `icecore_sweeper`",
            ),
            Fault::Password => refused("check the user and the password in the URL"),
            Fault::NoDatabase => refused("create it, or name another in the URL"),
            Fault::Tls => {
                refused("check `sslmode` and `sslrootcert` in the URL and the server's certificate")
            }
            Fault::Pooled => {
                refused("a pooler stands before the database: add `pooler=transaction` to the URL")
            }
            Fault::Other => {
                let code = self.code.map(|code| code.code().to_owned()).unwrap_or_default();
                StoreError::Postgres { server, code, reason: self.reason }
            }
        }
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the database at `{}` failed: {}", self.server.name, self.reason)
    }
}

impl Error for PgError {}

fn fault_of(error: &tokio_postgres::Error) -> Fault {
    if let Some(error) = error.as_db_error() {
        return said_by_server(error);
    }
    let kind = error.to_string();
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match (kind.as_str(), cause.map(io::Error::kind)) {
        // A handshake that broke off is no disagreement.
        (TLS, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)) => Fault::Gone,
        (TLS, _) => Fault::Tls,
        (AUTHENTICATION | CONFIGURATION, _) => Fault::Password,
        (_, Some(_)) => Fault::Gone,
        _ if error.is_closed() || kind == TIMEOUT => Fault::Gone,
        _ => Fault::Other,
    }
}

// The driver tells these apart by their names alone.
const TLS: &str = "error performing TLS handshake";
const AUTHENTICATION: &str = "authentication error";
const CONFIGURATION: &str = "invalid configuration";
const TIMEOUT: &str = "timeout waiting for server";

fn is_final(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

fn said_by_server(error: &DbError) -> Fault {
    let says = |words: &str| error.message().contains(words);
    match error.code().code() {
        "40001" | "40P01" => Fault::Conflict,
        "23505" => Fault::Taken,
        "53300" | "53400" | "53200" => Fault::Crowded,
        "53100" => Fault::DiskFull,
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "40003" => Fault::Gone,
        "25006" => Fault::Standby,
        "42501" => Fault::Permission,
        "28P01" | "28000" => Fault::Password,
        "3D000" => Fault::NoDatabase,
        // A prepared statement that is missing, or there twice.
        "26000" | "42P05" => Fault::Pooled,
        "57014" if says("statement timeout") => Fault::StatementTimeout,
        "55P03" => Fault::LockTimeout,
        "0A000" if says("cached plan") => Fault::Stale,
        code if code.starts_with("08") => Fault::Gone,
        _ if is_final(error) => Fault::Gone,
        _ => Fault::Other,
    }
}

/// What happened, without what a row or a parameter holds: the server quotes those in its
/// details, and in its messages about values that it cannot read.
fn reason(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) if error.code().code().starts_with("22") => {
            format!("a value does not fit (SQLSTATE {})", error.code().code())
        }
        (Some(error), _) => error.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_tried_again_and_the_rest_is_not() {
        use Fault::*;
        let all = [
            Gone, Conflict, Taken, Crowded, Standby, Stale, DiskFull, LockTimeout,
            StatementTimeout, Permission, Password, NoDatabase, Tls, Pooled, Other,
        ];
        let passing: Vec<Fault> = all.into_iter().filter(|fault| fault.is_passing()).collect();
        assert_eq!(passing, [Gone, Conflict, Taken, Crowded, Standby, Stale]);
        let fatal: Vec<Fault> = all.into_iter().filter(|fault| fault.is_fatal()).collect();
        assert_eq!(fatal, [Gone, Standby, Stale]);
    }

    #[test]
    fn what_a_person_can_mend_comes_with_a_hint() {
        let name = "h:1/d".to_owned();
        let server = Arc::new(Server { name, lock_seconds: 3, statement_seconds: 4 });
        let mended =
            [Fault::Permission, Fault::Password, Fault::NoDatabase, Fault::Tls, Fault::Pooled];
        for fault in mended {
            let error = PgError::ours(fault, "no", &server).into_store();
            assert!(error.hint().is_some(), "{error}");
        }
        let error = PgError::ours(Fault::LockTimeout, "no", &server).into_store();
        assert!(matches!(error, StoreError::Busy { seconds: 3 }));
        let error = PgError::ours(Fault::StatementTimeout, "no", &server).into_store();
        assert!(error.to_string().contains("4 s"), "{error}");
    }
}
