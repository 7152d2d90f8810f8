//! Transactions: who sees what in them, when they are run again, and what becomes of one
//! whose commit was never answered.
//!
//! A write begins with a random number in the row of its connection in `commits`. Who loses
//! the connection between sending COMMIT and reading the answer looks there from another
//! one: the row is locked until the lost transaction has ended, and holds the number if
//! and only if it was committed. It must be in that row before COMMIT is sent: a server
//! that is slow reads the last words of a lost connection after we have looked. Its own
//! numbers of transactions would not do: after a crash they are given again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use icecore_domain::ids::Tenant;

use super::connection::{PgConnection, random_number, tenant_number};
use super::pool::Pool;
use super::replicas::wait_for;
use super::walls;
use super::walls::{Locks, Role};
use crate::engine::tx::{Context, Isolation, Tx};
use crate::engine::{Connection, Owned, Value};
use crate::error::postgres::{Fault, PgError};
use crate::error::{Result, StoreError};

/// How often a write is tried again whose place was taken. More often, and it is not
/// somebody else's haste.
const TAKEN_TRIES: u32 = 8;

/// The first pause before another try, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Tenants whose numbers are remembered.
const KNOWN_TENANTS: usize = 100_000;

const WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const SWEEP: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE";
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

const AS_TENANT: &str = "SELECT set_config('role', 'icecore_tenant', true),
    set_config('icecore.tenant', ?1, true), set_config('icecore.tenant_name', ?2, true)";
const AS_WRITER: &str = "SELECT set_config('role', 'icecore_tenant', true),
    set_config('icecore.tenant', ?1, true), set_config('icecore.tenant_name', ?2, true),
    pg_advisory_xact_lock_shared(?3), pg_advisory_xact_lock(?4)";
const AS_MAKER: &str = "SELECT set_config('role', 'icecore_tenant', true),
    set_config('icecore.tenant', ?1, true), set_config('icecore.tenant_name', ?2, true),
    pg_advisory_xact_lock(?3), pg_advisory_xact_lock(?4)";
const AS_ONLY_WRITER: &str = "SELECT set_config('role', 'icecore_tenant', true),
    set_config('icecore.tenant', ?1, true), set_config('icecore.tenant_name', ?2, true),
    pg_advisory_xact_lock(?3)";
const AS_READER_OF_ALL: &str = "SELECT set_config('role', 'icecore_sweeper', true)";
const AS_SWEEPER: &str = "SELECT set_config('role', 'icecore_sweeper', true),
    pg_advisory_xact_lock(?1)";

const AS_ROTATOR: &str = "SELECT set_config('role', 'icecore_sweeper', true),
    pg_advisory_xact_lock(?1), pg_advisory_xact_lock(?2)";

const NUMBER_OF: &str = "SELECT tenant FROM tenants WHERE name = ?1";
const IN_TENANT: &str = "SELECT set_config('icecore.tenant', ?1, true)";
const WITNESS: &str = "UPDATE commits SET token = ?2, at = now() WHERE connection = ?1";
const WITNESSED: &str = "SELECT token FROM commits WHERE connection = ?1 FOR UPDATE";

type Answer<T> = std::result::Result<T, PgError>;

/// Runs transactions on the connections of a pool.
pub(super) struct Transactions {
    pub(super) pool: Pool,
    /// Numbers of tenants, which never change.
    tenants: Mutex<BTreeMap<Tenant, i64>>,
}

/// What a try came to.
enum Tried<T> {
    Done(Result<T>),
    /// It was not committed, and why.
    Failed(Fault, StoreError),
    /// It may have been committed: on which connection, and with which token.
    Unanswered(T, i64, i64),
}

impl Transactions {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, tenants: Mutex::default() }
    }

    /// Runs `act` in a transaction that is durable when this answers. It may run several
    /// times; what it did is kept once.
    pub(super) fn write<T>(
        &self,
        of: &Isolation,
        context: &Context,
        act: &impl Fn(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut patience = self.patience();
        loop {
            match self.try_write(of, context, act) {
                Tried::Done(answer) => return answer,
                Tried::Failed(fault, error) => patience.wait(fault, error)?,
                Tried::Unanswered(answer, connection, token) => {
                    if self.was_committed(connection, token, &mut patience)? {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    /// Runs `act` over one snapshot, in which it can change nothing.
    pub(super) fn read<T>(
        &self,
        of: &Isolation,
        context: &Context,
        act: &impl Fn(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut patience = self.patience();
        loop {
            match self.try_read(of, context, None, act) {
                Ok(answer) => return answer,
                Err((fault, error)) => patience.wait(fault, error)?,
            }
        }
    }

    /// The number of a tenant, if it has been met.
    pub(super) fn number_of(&self, tenant: &Tenant) -> Option<i64> {
        self.tenants().get(tenant).copied()
    }

    fn try_write<T>(
        &self,
        of: &Isolation,
        context: &Context,
        act: &impl Fn(&Tx<'_>) -> Result<T>,
    ) -> Tried<T> {
        let token = random_number();
        let begun = |c: &PgConnection| {
            self.begin_write(c, of)?;
            c.send_ahead(WITNESS, vec![Owned::Integer(c.number()), Owned::Integer(token)])
        };
        match self.run(begun, (context, of), act) {
            Err((fault, error)) => Tried::Failed(fault, error),
            Ok((connection, Err(error))) => {
                self.end(connection, ROLLBACK);
                Tried::Done(Err(error))
            }
            Ok((connection, Ok(answer))) => self.commit(connection, token, answer),
        }
    }

    /// Runs `act` once; on a replica, when it has reached that position of the primary.
    pub(super) fn try_read<T>(
        &self,
        of: &Isolation,
        context: &Context,
        position: Option<&str>,
        act: &impl Fn(&Tx<'_>) -> Result<T>,
    ) -> std::result::Result<Result<T>, (Fault, StoreError)> {
        let begun = |c: &PgConnection| {
            position.map_or(Ok(()), |position| wait_for(c, position))?;
            self.begin_read(c, of)
        };
        let (connection, answer) = self.run(begun, (context, of), act)?;
        // Nothing depends on how a read ends.
        self.end(connection, COMMIT);
        Ok(answer)
    }

    /// Begins a transaction and runs `act` in it. If a statement failed, it is rolled
    /// back, whatever `act` made of that.
    fn run<T>(
        &self,
        begin: impl Fn(&PgConnection) -> Answer<()>,
        (context, of): (&Context, &Isolation),
        act: &impl Fn(&Tx<'_>) -> Result<T>,
    ) -> std::result::Result<(PgConnection, Result<T>), (Fault, StoreError)> {
        let taken = self.pool.take().map_err(|error| self.failed(error))?;
        if let Err(error) = begin(&taken) {
            self.end(taken, ROLLBACK);
            return Err(self.failed(error));
        }
        let connection = Connection::Postgres(Box::new(taken));
        let tx = Tx::new(&connection, context, of);
        let answer = act(&tx).map_err(|error| context.classified(error));
        let Connection::Postgres(connection) = connection else {
            return Ok((self.pool.take().map_err(|error| self.failed(error))?, answer));
        };
        let connection = *connection;
        match connection.take_failure() {
            None => Ok((connection, answer)),
            Some(fault) => {
                self.end(connection, ROLLBACK);
                self.learn_from(fault);
                let unsaid = || StoreError::Commit("a statement of it failed".to_owned());
                Err((fault, answer.err().unwrap_or_else(unsaid)))
            }
        }
    }

    /// Everything that a writer needs first, on its way with its first statement.
    fn begin_write(&self, c: &PgConnection, of: &Isolation) -> Answer<()> {
        let Some(tenant) = of.tenant() else {
            c.set_role(Role::Sweeper);
            c.tenant().set(None);
            let locks = walls::locks(of, true);
            if let Locks::MasterKey { everyone, master } = locks {
                // What was sealed while it waited for the locks must be seen, too.
                c.begin(WRITE)?;
                let locks = vec![Owned::Integer(everyone), Owned::Integer(master)];
                return c.send_ahead(AS_ROTATOR, locks);
            }
            c.begin(SWEEP)?;
            let Locks::Alone(key) = locks else { return Ok(()) };
            return c.send_ahead(AS_SWEEPER, vec![Owned::Integer(key)]);
        };
        c.set_role(Role::Tenant);
        c.begin(WRITE)?;
        let known = match self.number_of(tenant) {
            Some(known) => Some(known),
            // Nobody is kept waiting for a tenant that is there.
            None => {
                c.send_ahead(AS_TENANT, wall_values(tenant, None))?;
                self.look_up(c, tenant)?
            }
        };
        c.tenant().set(known);
        let mut values = wall_values(tenant, known);
        let statement = match walls::locks(of, known.is_some()) {
            Locks::Memory { tenant, memory } => {
                values.extend([Owned::Integer(tenant), Owned::Integer(memory)]);
                AS_WRITER
            }
            Locks::NewTenant { tenant, memory } => {
                values.extend([Owned::Integer(tenant), Owned::Integer(memory)]);
                AS_MAKER
            }
            Locks::Alone(key) => {
                values.push(Owned::Integer(key));
                AS_ONLY_WRITER
            }
            // Of no tenant.
            Locks::MasterKey { .. } => return Ok(()),
        };
        c.send_ahead(statement, values)?;
        if known.is_none() {
            // Nobody else makes it now: either it is there, or it is ours to make.
            let number = self.look_up(c, tenant)?.unwrap_or_else(tenant_number);
            enter(c, number)?;
        }
        Ok(())
    }

    fn begin_read(&self, c: &PgConnection, of: &Isolation) -> Answer<()> {
        c.begin(READ)?;
        let Some(tenant) = of.tenant() else {
            c.set_role(Role::Sweeper);
            c.tenant().set(None);
            return c.send_ahead(AS_READER_OF_ALL, vec![]);
        };
        let known = self.number_of(tenant);
        c.set_role(Role::Tenant);
        c.tenant().set(known);
        c.send_ahead(AS_TENANT, wall_values(tenant, known))?;
        if known.is_none()
            && let Some(number) = self.look_up(c, tenant)?
        {
            enter(c, number)?;
        }
        Ok(())
    }

    /// The number of a tenant that we have not met.
    fn look_up(&self, c: &PgConnection, tenant: &Tenant) -> Answer<Option<i64>> {
        let rows = c.query(NUMBER_OF, &[Value::Text(tenant.as_str())])?;
        let number: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
        if let Some(number) = number {
            let mut tenants = self.tenants();
            if tenants.len() >= KNOWN_TENANTS {
                tenants.clear();
            }
            tenants.insert(tenant.clone(), number);
        }
        Ok(number)
    }

    /// Commits, and waits until it is durable.
    fn commit<T>(&self, connection: PgConnection, token: i64, answer: T) -> Tried<T> {
        let number = connection.number();
        // Whatever was sent before, the witness too, is done when COMMIT goes out.
        let prepare = || connection.settle().and_then(|()| connection.send_ahead(COMMIT, vec![]));
        if let Err(error) = prepare() {
            // COMMIT was not sent.
            self.end(connection, ROLLBACK);
            let (fault, error) = self.failed(error);
            return Tried::Failed(fault, error);
        }
        match connection.settle() {
            Ok(()) => {
                self.pool.give_back(connection);
                Tried::Done(Ok(answer))
            }
            // The server refused, and has rolled it back.
            Err(error) if !error.ends_connection() => {
                self.end(connection, ROLLBACK);
                let (fault, error) = self.failed(error);
                Tried::Failed(fault, error)
            }
            Err(error) => {
                self.failed(error);
                self.pool.give_back(connection);
                Tried::Unanswered(answer, number, token)
            }
        }
    }

    /// Whether the last transaction of a lost connection was committed.
    fn was_committed(&self, number: i64, token: i64, patience: &mut Patience) -> Result<bool> {
        loop {
            let error = match self.last_token(number) {
                Ok(found) => return Ok(found == Some(token)),
                Err(error) => error,
            };
            let server = self.pool.address.shown.clone();
            let reason = format!(
                "the connection was lost while committing, and whether it was committed is not known ({error})"
            );
            patience.wait(Fault::Gone, StoreError::Unavailable { server, reason })?;
        }
    }

    /// The token of the last commit on a connection that is lost. Waits for one that is
    /// still going on.
    fn last_token(&self, number: i64) -> Answer<Option<i64>> {
        let connection = self.pool.take()?;
        connection.set_role(Role::Tenant);
        let look = || {
            connection.begin(WRITE)?;
            connection.query(WITNESSED, &[Value::Integer(number)])
        };
        let rows = look();
        connection.take_failure();
        self.end(connection, ROLLBACK);
        Ok(rows?.first().and_then(|row| row.try_get(0).ok()))
    }

    /// Ends a transaction without waiting for the answer, and gives the connection back.
    fn end(&self, connection: PgConnection, how: &'static str) {
        if !connection.is_broken() {
            match connection.send_ahead(how, vec![]) {
                Ok(()) => connection.flush(),
                Err(error) => tracing::debug!(%error, "a transaction was left open"),
            }
        }
        connection.take_failure();
        self.pool.give_back(connection);
    }

    fn failed(&self, error: PgError) -> (Fault, StoreError) {
        let fault = error.fault();
        self.learn_from(fault);
        (fault, error.into_store())
    }

    /// Behind a lost connection there may be another server, which knows other tenants.
    fn learn_from(&self, fault: Fault) {
        if fault == Fault::Gone || fault == Fault::Permission {
            self.tenants().clear();
        }
    }

    fn tenants(&self) -> MutexGuard<'_, BTreeMap<Tenant, i64>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience(&self) -> Patience {
        Patience::of(Duration::from_secs(self.pool.options.retry_seconds))
    }
}

/// A tenant's number and name as settings of the transaction.
fn wall_values(tenant: &Tenant, number: Option<i64>) -> Vec<Owned> {
    let number = number.map(|number| number.to_string()).unwrap_or_default();
    vec![Owned::Text(number), Owned::Text(tenant.as_str().to_owned())]
}

/// Lets the transaction see the tenant of that number.
fn enter(c: &PgConnection, number: i64) -> Answer<()> {
    c.tenant().set(Some(number));
    c.send_ahead(IN_TENANT, vec![Owned::Text(number.to_string())])
}

/// How long, and how often, something is tried again.
struct Patience {
    begun: Instant,
    limit: Duration,
    pause: Duration,
    taken: u32,
}

impl Patience {
    fn of(limit: Duration) -> Self {
        Self { begun: Instant::now(), limit, pause: FIRST_PAUSE, taken: 0 }
    }

    /// Waits a little if it is worth another try, else answers the error.
    fn wait(&mut self, fault: Fault, error: StoreError) -> Result<()> {
        if fault == Fault::Taken {
            self.taken += 1;
        }
        if !fault.is_passing() || self.taken > TAKEN_TRIES || self.begun.elapsed() >= self.limit {
            return Err(error);
        }
        tracing::debug!(?fault, %error, "trying again");
        std::thread::sleep(jittered(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Between half of a pause and all of it, so that those who met do not meet again.
fn jittered(pause: Duration) -> Duration {
    let share = (random_number() % 1000) as f64 / 1000.0;
    pause.mul_f64(0.5 + share / 2.0)
}
