//! One connection, used from one blocking thread at a time.
//!
//! It has a runtime of its own, on which nothing runs but this connection, and only while
//! a caller waits: a round trip changes no threads. What needs no answer yet is sent
//! ahead, and its answer is read with that of the next request.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::address::Address;
use super::tls::Tls;
use super::value::{array_of, type_of};
use super::walls::Role;
use super::{PostgresOptions, dialect, walls};
use crate::engine::notes::KEY_CHECK;
use crate::engine::{Kind, Owned, Value};
use crate::error::postgres::{Fault, PgError, Server};

type Driver = tokio_postgres::Error;
type Answer<T> = Result<T, PgError>;
type Ahead = Pin<Box<dyn Future<Output = Result<(), Driver>> + Send>>;

/// Requests that are under way at once, or asked about in one statement, at most.
const AT_ONCE: usize = 256;

/// Statements that a connection keeps prepared.
const STATEMENTS: usize = 2048;

/// Rows, and bytes in them, that one statement inserts at most.
const INSERTED_ROWS: usize = 8192;
const INSERTED_BYTES: usize = 8 << 20;

/// How much longer than the server itself we wait for its answer.
const GRACE_SECONDS: u64 = 5;

/// One connection to the database.
pub struct PgConnection {
    client: Arc<Client>,
    /// There until it is dropped.
    runtime: Option<Runtime>,
    /// Whether each transaction may run on another server connection: then statements have no
    /// names, and settings hold for a transaction.
    is_pooled: bool,
    /// What every transaction sets, if it is pooled.
    settings: String,
    /// By statement as it is written; few are run as both roles or with several kinds.
    statements: RefCell<HashMap<String, Vec<Prepared>>>,
    prepared: Cell<usize>,
    ahead: RefCell<VecDeque<Ahead>>,
    role: Cell<Role>,
    /// The number of the transaction's tenant, also of one that is not there yet.
    tenant: Cell<Option<i64>>,
    /// The first failure since it was last taken.
    failure: Cell<Option<Fault>>,
    is_broken: Cell<bool>,
    /// What it is called in `commits`.
    number: i64,
    opened: Instant,
    patience: Duration,
    server: Arc<Server>,
}

const HOLD: &str = "SELECT pg_advisory_xact_lock(?1)";
const HOLD_KEY: &str = "SELECT pg_advisory_xact_lock_shared(?1)";
const HOLD_NOTE: &str = "SELECT value FROM notes WHERE name = ?1 FOR SHARE";

struct Prepared {
    role: Role,
    kinds: Vec<Kind>,
    statement: Ready,
}

/// A statement as it goes to the server.
#[derive(Clone)]
enum Ready {
    /// Prepared there under a name.
    Named(Statement),
    /// Sent with its text and the types of its parameters each time.
    Unnamed(Arc<str>, Arc<[Type]>),
}

type Parameter<'a> = &'a (dyn ToSql + Sync);

impl Ready {
    async fn query(&self, c: &Client, values: &[Parameter<'_>]) -> Result<Vec<Row>, Driver> {
        match self {
            Ready::Named(statement) => c.query(statement, values).await,
            Ready::Unnamed(sql, types) => c.query_typed(sql, &typed(values, types)).await,
        }
    }

    async fn execute(&self, c: &Client, values: &[Parameter<'_>]) -> Result<u64, Driver> {
        match self {
            Ready::Named(statement) => c.execute(statement, values).await,
            Ready::Unnamed(sql, types) => c.execute_typed(sql, &typed(values, types)).await,
        }
    }
}

fn typed<'a>(values: &[Parameter<'a>], types: &[Type]) -> Vec<(Parameter<'a>, Type)> {
    values.iter().copied().zip(types.iter().cloned()).collect()
}

impl PgConnection {
    /// Connects, and leaves nothing that a stray statement could see or change. A connection
    /// without a number commits nothing.
    pub(super) fn open(
        address: &Address,
        tls: &Tls,
        options: &PostgresOptions,
        number: Option<i64>,
    ) -> Answer<Self> {
        let mut connection = Self::open_raw(address, tls, options)?;
        let mut sql = settings(address, options);
        if connection.is_pooled {
            connection.settings = sql.clone();
            sql.insert_str(0, "BEGIN; ");
        }
        if let Some(number) = number {
            connection.number = number;
            sql.push_str(&format!("INSERT INTO commits (connection, token) VALUES ({number}, 0);"));
        }
        sql.push_str(match connection.is_pooled {
            true => "COMMIT;",
            false => "SET default_transaction_read_only = on;",
        });
        connection.batch(&sql)?;
        Ok(connection)
    }

    /// Connects as the user of the URL, for what is done before there are tables.
    pub(super) fn open_raw(
        address: &Address,
        tls: &Tls,
        options: &PostgresOptions,
    ) -> Answer<Self> {
        let server = Arc::new(Server {
            name: address.shown.clone(),
            lock_seconds: options.lock_seconds,
            statement_seconds: options.statement_seconds,
        });
        let ours = |reason: &str| PgError::ours(Fault::Gone, reason, &server);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ours(&error.to_string()))?;
        // Names are looked up on another thread, so the driver's own limit is not enough.
        let limit = Duration::from_secs(options.connect_seconds);
        let connected = runtime.block_on(async {
            tokio::time::timeout(limit, address.config.connect(tls.clone())).await
        });
        let (client, driver) = connected
            .map_err(|_| ours(&format!("no answer within {} s", limit.as_secs())))?
            .map_err(|error| PgError::new(&error, &server))?;
        runtime.spawn(async move {
            // Whoever waits for an answer is told, too.
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        let seconds = options.statement_seconds + options.lock_seconds + GRACE_SECONDS;
        Ok(Self {
            client: Arc::new(client),
            runtime: Some(runtime),
            is_pooled: address.is_pooled,
            settings: String::new(),
            statements: RefCell::default(),
            prepared: Cell::new(0),
            ahead: RefCell::default(),
            role: Cell::new(Role::Tenant),
            tenant: Cell::new(None),
            failure: Cell::new(None),
            is_broken: Cell::new(false),
            number: 0,
            opened: Instant::now(),
            patience: Duration::from_secs(seconds),
            server,
        })
    }

    /// The rows of a statement.
    pub(crate) fn query(&self, sql: &str, values: &[Value<'_>]) -> Answer<Vec<Row>> {
        let statement = self.statement(sql, values)?;
        self.run(statement.query(&self.client, &parameters(values)))
    }

    /// Runs a statement, and answers how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, values: &[Value<'_>]) -> Answer<u64> {
        let statement = self.statement(sql, values)?;
        self.run(statement.execute(&self.client, &parameters(values)))
    }

    /// As [`PgConnection::query`] for each of many, all of the same kinds, in one statement:
    /// each costs the server a look into an index, and no statement of its own.
    pub(crate) fn query_each(&self, sql: &str, each: &[Vec<Value<'_>>]) -> Answer<Vec<Vec<Row>>> {
        let [first, _, ..] = each else {
            return each.iter().map(|values| self.query(sql, values)).collect();
        };
        let kinds: Vec<Kind> = first.iter().map(|value| value.kind()).collect();
        let statement = self.prepared(&dialect::for_each(sql, &kinds), &kinds, array_of)?;
        let mut answers = Vec::with_capacity(each.len());
        for portion in each.chunks(AT_ONCE) {
            let arrays = as_columns(kinds.len(), portion);
            let from = answers.len();
            answers.resize_with(from + portion.len(), Vec::new);
            for row in self.run(statement.query(&self.client, &parameters(&arrays)))? {
                // Its last column tells which of them it answers, counted from 1.
                let number: i64 = row.get(row.len() - 1);
                answers[from + number as usize - 1].push(row);
            }
        }
        Ok(answers)
    }

    /// As [`PgConnection::execute`] for each of many, without waiting in between.
    pub(crate) fn execute_each(&self, sql: &str, each: &[Vec<Value<'_>>]) -> Answer<()> {
        for portion in each.chunks(AT_ONCE) {
            let mut requests = Vec::with_capacity(portion.len());
            for values in portion {
                let statement = self.statement(sql, values)?;
                requests.push(Box::pin(async move {
                    statement.execute(&self.client, &parameters(values)).await
                }));
            }
            self.run(in_order(requests))?;
        }
        Ok(())
    }

    /// Inserts rows, all of the same kinds.
    pub(crate) fn insert_all<const N: usize>(
        &self,
        table: &str,
        columns: &[&str; N],
        rows: &[[Value<'_>; N]],
    ) -> Answer<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let kinds: Vec<Kind> = first.iter().map(|value| value.kind()).collect();
        let sql = insertion(table, columns, &kinds);
        let statement = self.prepared(&sql, &kinds, array_of)?;
        for rows in portions(rows) {
            let arrays = as_columns(N, rows);
            self.run(statement.execute(&self.client, &parameters(&arrays)))?;
        }
        Ok(())
    }

    /// Runs statements without parameters, in PostgreSQL's own spelling.
    pub(crate) fn batch(&self, sql: &str) -> Answer<()> {
        self.run(self.client.batch_execute(sql))
    }

    /// The number that a tenant gets who is made in this transaction.
    pub(crate) fn new_tenant_number(&self) -> i64 {
        let number = self.tenant.get().unwrap_or_else(tenant_number);
        self.tenant.set(Some(number));
        number
    }

    /// Keeps the master key what it is until the transaction ends.
    ///
    /// A tenant's transaction may change no note, so it holds a lock that whoever rotates
    /// takes alone, and sees afterwards what was committed before. One that sweeps has gone
    /// by a snapshot since before it had its own lock: it locks the note, which fails where
    /// the note has changed since, and so is run again.
    pub(crate) fn hold_master_key(&self) -> Answer<()> {
        match self.role.get() {
            Role::Tenant => self.execute(HOLD_KEY, &[Value::Integer(walls::master_key())]),
            Role::Sweeper => self.execute(HOLD_NOTE, &[Value::Text(KEY_CHECK)]),
        }
        .map(drop)
    }

    /// Keeps others from numbering memories of this tenant until the transaction ends.
    pub(crate) fn hold_scopes(&self, tenant: i64) -> Answer<()> {
        let key = walls::lock_key(&["scopes", &tenant.to_string()]);
        self.execute(HOLD, &[Value::Integer(key)]).map(drop)
    }

    pub(super) fn tenant(&self) -> &Cell<Option<i64>> {
        &self.tenant
    }

    pub(super) fn number(&self) -> i64 {
        self.number
    }

    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// A failure that the server did not report, and that another server may not have.
    pub(super) fn fails(&self, reason: &str) -> PgError {
        PgError::ours(Fault::Conflict, reason, &self.server)
    }

    /// Whether it has failed for good.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.get() || self.client.is_closed()
    }

    /// The first failure since this was last asked.
    pub(super) fn take_failure(&self) -> Option<Fault> {
        self.failure.take()
    }

    /// The role that statements are run, and so prepared, as.
    pub(super) fn set_role(&self, role: Role) {
        self.role.set(role);
    }

    /// Begins a transaction, without waiting for the answer.
    pub(super) fn begin(&self, how: &'static str) -> Answer<()> {
        if !self.is_pooled {
            return self.send_ahead(how, vec![]);
        }
        let (client, sql) = (Arc::clone(&self.client), format!("{how}; {}", self.settings));
        self.push_ahead(Box::pin(async move { client.batch_execute(&sql).await }));
        Ok(())
    }

    /// Sends a statement without waiting for its answer, which is read with that of the
    /// next request. It must be one that is always run as the same role.
    pub(super) fn send_ahead(&self, sql: &'static str, values: Vec<Owned>) -> Answer<()> {
        let borrowed: Vec<Value<'_>> = values.iter().map(Owned::borrowed).collect();
        let statement = self.statement(sql, &borrowed)?;
        let client = Arc::clone(&self.client);
        self.push_ahead(Box::pin(async move {
            let values: Vec<Value<'_>> = values.iter().map(Owned::borrowed).collect();
            statement.execute(&client, &parameters(&values)).await.map(drop)
        }));
        Ok(())
    }

    fn push_ahead(&self, mut request: Ahead) {
        // Polled once, it is on its way to the connection.
        let request = match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => request,
            Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
        };
        self.ahead.borrow_mut().push_back(request);
    }

    /// Waits for the answers to all that was sent ahead.
    pub(super) fn settle(&self) -> Answer<()> {
        self.run(std::future::ready(Ok(())))
    }

    /// Lets what was sent ahead go out, and waits for no answer.
    pub(super) fn flush(&self) {
        if let Some(runtime) = &self.runtime {
            // The first turn wakes the connection, the second lets it write.
            runtime.block_on(async {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            });
        }
    }

    fn statement(&self, sql: &str, values: &[Value<'_>]) -> Answer<Ready> {
        let kinds: Vec<Kind> = values.iter().map(|value| value.kind()).collect();
        self.prepared(sql, &kinds, type_of)
    }

    /// A statement that is ready to run. A plan holds for one role, since other rows are seen
    /// by another: so each has its own.
    fn prepared(&self, sql: &str, kinds: &[Kind], type_of: fn(Kind) -> Type) -> Answer<Ready> {
        let role = self.role.get();
        if let Some(known) = self.statements.borrow().get(sql)
            && let Some(found) = known.iter().find(|k| k.role == role && k.kinds == kinds)
        {
            return Ok(found.statement.clone());
        }
        let translated = dialect::translated(sql);
        let types: Vec<Type> = kinds.iter().map(|kind| type_of(*kind)).collect();
        #[cfg(test)]
        super::tests::distribution::record(&self.server.name, role, &translated, &types);
        let statement = match self.is_pooled {
            true => Ready::Unnamed(translated.into(), types.into()),
            false => Ready::Named(self.run(self.client.prepare_typed(&translated, &types))?),
        };
        let mut statements = self.statements.borrow_mut();
        if self.prepared.get() >= STATEMENTS {
            statements.clear();
            self.prepared.set(0);
        }
        self.prepared.set(self.prepared.get() + 1);
        let prepared = Prepared { role, kinds: kinds.to_vec(), statement: statement.clone() };
        statements.entry(sql.to_owned()).or_default().push(prepared);
        Ok(statement)
    }

    /// Sends a request, reads what is still to be answered before it, then its answer.
    fn run<T>(&self, request: impl Future<Output = Result<T, Driver>>) -> Answer<T> {
        let before = std::mem::take(&mut *self.ahead.borrow_mut());
        let work = async {
            let mut request = pin!(request);
            if before.is_empty() {
                return request.await;
            }
            let first = poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await;
            for earlier in before {
                earlier.await?;
            }
            match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => request.await,
            }
        };
        let gone = |reason: &str| PgError::ours(Fault::Gone, reason, &self.server);
        let Some(runtime) = &self.runtime else { return Err(gone("the connection is closed")) };
        let answer = runtime.block_on(async { tokio::time::timeout(self.patience, work).await });
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| PgError::new(&error, &self.server)),
            Err(_) => Err(gone(&format!("no answer for {} s", self.patience.as_secs()))),
        };
        answer.inspect_err(|error| self.note(error))
    }

    /// What comes after the first failure of a transaction only follows from it.
    fn note(&self, error: &PgError) {
        if error.ends_connection() {
            self.is_broken.set(true);
        }
        self.failure.set(Some(self.failure.get().unwrap_or(error.fault())));
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        // Otherwise a runtime may not end where others run.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Sets what holds for all of a connection, or for one transaction of a pooled one. Whatever
/// runs outside a transaction of ours sees nothing and changes nothing.
fn settings(address: &Address, options: &PostgresOptions) -> String {
    let milliseconds = |seconds: u64| seconds.saturating_mul(1000).min(i32::MAX as u64);
    let set = if address.is_pooled { "SET LOCAL" } else { "SET" };
    let keepalives = match address.is_pooled {
        // The server's client is the pooler.
        true => String::new(),
        false => format!(
            "SET tcp_keepalives_idle = {seconds};
             SET tcp_keepalives_interval = {seconds};
             SET tcp_keepalives_count = 3;",
            seconds = options.keepalive_seconds
        ),
    };
    format!(
        "{set} search_path = {schema};
         {set} client_min_messages = error;
         {set} statement_timeout = {statement};
         {set} lock_timeout = {lock};
         {set} idle_in_transaction_session_timeout = {idle};
         {keepalives}
         {set} jit = off;
         {set} enable_seqscan = off;
         {set} enable_hashjoin = off;
         {set} enable_mergejoin = off;
         {set} enable_material = off;
         {set} plan_cache_mode = force_generic_plan;
         {set} max_parallel_workers_per_gather = 0;
         SELECT set_config('synchronous_commit', 'on', {is_local})
             WHERE current_setting('synchronous_commit') = 'off';
         {set} ROLE {role};",
        schema = quoted(&address.schema),
        statement = milliseconds(options.statement_seconds),
        lock = milliseconds(options.lock_seconds),
        idle = milliseconds(options.transaction_seconds),
        is_local = address.is_pooled,
        role = Role::Tenant.name(),
    )
}

/// A name as SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A number for a tenant: nobody counts them, and later ones are mostly larger. Microseconds
/// and a few random bits; a clash is refused by the database.
#[expect(clippy::disallowed_methods, reason = "it orders tenants and tells nobody the time")]
pub(super) fn tenant_number() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros() as i64);
    ((micros << 12) & i64::MAX) | (random_number() & 0xfff)
}

/// Positive, and below 2^62.
pub(super) fn random_number() -> i64 {
    let mut bytes = [0; 8];
    // Without randomness there would be no keys either; a clash is refused by the database.
    let _ = getrandom::fill(&mut bytes);
    (i64::from_le_bytes(bytes) & ((1 << 62) - 1)).max(1)
}

fn parameters<T: ToSql + Sync>(values: &[T]) -> Vec<Parameter<'_>> {
    values.iter().map(|value| value as Parameter<'_>).collect()
}

/// All are begun, in order, before the first is waited for. All are waited for, so that no
/// answer is left over; the first that failed is the one that tells why.
async fn in_order<T, F>(mut requests: Vec<Pin<Box<F>>>) -> Result<Vec<T>, Driver>
where
    F: Future<Output = Result<T, Driver>>,
{
    let mut begun = Vec::with_capacity(requests.len());
    for request in &mut requests {
        begun.push(poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await);
    }
    let mut answers = Vec::with_capacity(requests.len());
    for (request, first) in requests.into_iter().zip(begun) {
        answers.push(match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => request.await,
        });
    }
    answers.into_iter().collect()
}

fn insertion(table: &str, columns: &[&str], kinds: &[Kind]) -> String {
    let arrays: Vec<String> = (1..)
        .zip(kinds)
        .map(|(number, kind)| format!("${number}::{}[]", type_of(*kind).name()))
        .collect();
    let columns = columns.join(", ");
    format!("INSERT INTO {table} ({columns}) SELECT * FROM UNNEST({})", arrays.join(", "))
}

/// Rows in portions that one statement may insert.
fn portions<'a, 'v, const N: usize>(rows: &'a [[Value<'v>; N]]) -> Vec<&'a [[Value<'v>; N]]> {
    let mut portions = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, row) in rows.iter().enumerate() {
        let size: usize = row.iter().map(size).sum();
        if at > from && (at - from >= INSERTED_ROWS || bytes + size > INSERTED_BYTES) {
            portions.push(&rows[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += size;
    }
    portions.push(&rows[from..]);
    portions
}

fn size(value: &Value<'_>) -> usize {
    match value {
        Value::Null(_) => 4,
        Value::Integer(_) => 12,
        Value::Text(text) => text.len() + 4,
        Value::Blob(bytes) => bytes.len() + 4,
    }
}

/// Rows as columns, each of which is sent as an array.
fn as_columns<'v>(width: usize, rows: &[impl AsRef<[Value<'v>]>]) -> Vec<Vec<Value<'v>>> {
    (0..width).map(|at| rows.iter().map(|row| row.as_ref()[at]).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_in_portions_that_are_not_too_large() {
        let body = vec![0_u8; INSERTED_BYTES / 2];
        let large = [Value::Integer(1), Value::Blob(&body)];
        let small = [Value::Integer(1), Value::Blob(b"x")];
        let sizes = |rows: &[[Value<'_>; 2]]| -> Vec<usize> {
            portions(rows).iter().map(|portion| portion.len()).collect()
        };
        assert_eq!(sizes(&[small, small]), [2]);
        assert_eq!(sizes(&[large, small, large, small]), [2, 2]);
        assert_eq!(sizes(&vec![small; INSERTED_ROWS + 1]), [INSERTED_ROWS, 1]);
    }

    #[test]
    fn an_insertion_names_the_kinds_of_its_columns() {
        let kinds = [Kind::Integer, Kind::Text, Kind::Blob];
        assert_eq!(
            insertion("t", &["a", "b", "c"], &kinds),
            "INSERT INTO t (a, b, c) SELECT * FROM UNNEST($1::int8[], $2::text[], $3::bytea[])"
        );
    }

    #[test]
    fn a_name_cannot_end_early() {
        assert_eq!(quoted("a\"; DROP"), "\"a\"\"; DROP\"");
    }
}
