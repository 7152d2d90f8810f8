//! Hints between hosts that something has changed.
//!
//! A write is told to the others after it was committed, in a transaction of its own:
//! NOTIFY inside it would make all commits of the database wait for each other. Writes of
//! a few milliseconds are told together. A hint that is lost costs a delay and no more:
//! whoever needs to know asks the log. Behind a pooler nothing can be listened to: unless the
//! URL names the server itself (`direct`), all is said to have changed now and then.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::MissedTickBehavior;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::{ToSql, Type};

use super::address::Address;
use super::pool::Pool;
use super::tls::Tls;

/// How long writes are gathered before they are told.
const GATHER: Duration = Duration::from_millis(5);

/// How long nothing is tried after a connection was lost.
const PAUSE: Duration = Duration::from_millis(500);

/// How often all is said to have changed where nothing can be heard.
const POLL: Duration = Duration::from_secs(1);

/// Tenants told at once; beyond, all are said to have changed.
const TENANTS: usize = 1000;

/// What stands for all tenants in a message.
const ALL: i64 = 0;

/// What another host may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Something of the tenant that has this number.
    Tenant(i64),
    /// Anything: some hints may have been lost.
    Anything,
}

/// Changes that are yet to be told.
pub(super) struct Hints {
    address: Address,
    tls: Tls,
    is_listening: AtomicBool,
    changed: Mutex<BTreeSet<i64>>,
    wake: Arc<Notify>,
}

impl Hints {
    pub(super) fn new(pool: &Pool) -> Self {
        Self {
            address: pool.address.clone(),
            tls: pool.tls.clone(),
            is_listening: AtomicBool::new(false),
            changed: Mutex::default(),
            wake: Arc::default(),
        }
    }

    /// Something of a tenant was committed, or of one that has no number here yet.
    pub(super) fn changed(&self, tenant: Option<i64>) {
        if !self.is_listening.load(Ordering::Relaxed) {
            return;
        }
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        match changed.len() < TENANTS {
            true => changed.insert(tenant.unwrap_or(ALL)),
            false => {
                changed.clear();
                changed.insert(ALL)
            }
        };
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<i64> {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *changed).into_iter().collect()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// Tells and listens until the hints are dropped.
pub(super) fn listen(hints: &Arc<Hints>, told: impl Fn(Hint) + Send + Sync + 'static) {
    hints.is_listening.store(true, Ordering::Relaxed);
    let (hints, wake) = (Arc::downgrade(hints), Arc::clone(&hints.wake));
    tokio::spawn(async move {
        while let Some(current) = hints.upgrade() {
            let (address, tls) = (current.address.clone(), current.tls.clone());
            drop(current);
            if let Err(error) = talk(&hints, &wake, address, tls, &told).await {
                tracing::debug!(%error, "hints from other hosts are interrupted");
            }
            if hints.strong_count() > 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    });
}

/// Tells and listens on one connection, until it is lost or the hints are dropped.
async fn talk(
    hints: &Weak<Hints>,
    wake: &Notify,
    address: Address,
    tls: Tls,
    told: &impl Fn(Hint),
) -> Result<(), tokio_postgres::Error> {
    let can_listen = address.listener.is_some();
    let (client, mut connection) = address.listener.unwrap_or(address.config).connect(tls).await?;
    let (send, mut heard) = mpsc::unbounded_channel();
    let driven = tokio::spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notification(message)) => {
                    let _ = send.send((message.process_id(), message.payload().to_owned()));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    });
    if can_listen {
        let channel = super::connection::quoted(&address.schema);
        // What a hint is about was committed; the hint itself need not be durable.
        client.batch_execute(&format!("SET synchronous_commit = off; LISTEN {channel}")).await?;
    }
    let own: i32 = client.query_typed_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let tell = "SELECT pg_notify($1, number::text) FROM unnest($2::bigint[]) AS of(number)";
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    told(Hint::Anything);
    loop {
        tokio::select! {
            message = heard.recv() => match message {
                Some((process, _)) if process == own => {}
                Some((_, payload)) => told(read(&payload)),
                None => break,
            },
            () = wake.notified() => {
                tokio::time::sleep(GATHER).await;
                let Some(hints) = hints.upgrade() else { break };
                let changed = hints.take();
                drop(hints);
                if !changed.is_empty() {
                    let values: [(&(dyn ToSql + Sync), Type); 2] =
                        [(&address.schema, Type::TEXT), (&changed, Type::INT8_ARRAY)];
                    client.execute_typed(tell, &values).await?;
                }
            }
            _ = poll.tick(), if !can_listen => told(Hint::Anything),
        }
    }
    driven.abort();
    Ok(())
}

fn read(payload: &str) -> Hint {
    match payload.parse() {
        Ok(ALL) | Err(_) => Hint::Anything,
        Ok(number) => Hint::Tenant(number),
    }
}
