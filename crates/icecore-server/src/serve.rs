//! Accepting connections, and ending well.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use icecore::{Memory, MemoryError, StoreError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::app::{App, Shared};
use crate::audit;
use crate::limits::Limits;
use crate::routes;

/// How a host is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// Where to listen; the caller binds it. Default 127.0.0.1:7433.
    pub listen: SocketAddr,
    /// What bounds its work.
    pub limits: Limits,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 7433).into(), limits: Limits::default() }
    }
}

/// Why a host cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The listener is of no use.
    #[error("cannot listen")]
    Listen(#[source] std::io::Error),
    /// The admin key's file cannot be read or written.
    #[error("cannot use the key file `{path}`")]
    KeyFile {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A limit under which nothing would work.
    #[error("the limit {0}")]
    Limit(String),
    /// A key with a name that it cannot have.
    #[error("the name of a key has 1 to {most} characters, none of them a control character")]
    KeyName {
        /// The most characters.
        most: usize,
    },
    /// A key that would never be of use.
    #[error("a key must expire in the future")]
    KeyExpiry,
    /// The machine gives no random bytes.
    #[error("the machine gives no random bytes for a key: {0}")]
    NoRandomness(String),
    /// The memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl From<StoreError> for ServeError {
    fn from(error: StoreError) -> Self {
        ServeError::Memory(error.into())
    }
}

/// Derived work can be cut anywhere and taken up again, so the end waits only
/// this long for a piece that is under way.
const WORKER_GRACE: Duration = Duration::from_secs(2);

/// After a failed accept (say, no more file handles) we wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `memory` on `listener` and does its background work, until `shutdown`
/// resolves. Then no new connection is accepted, what was accepted is finished
/// (within `shutdown_seconds`), and the call returns.
pub async fn serve(
    memory: Memory,
    listener: TcpListener,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    options.limits.check().map_err(ServeError::Limit)?;
    let address = listener.local_addr().map_err(ServeError::Listen)?;
    let (close, closing) = watch::channel(false);
    let worker = tokio::spawn(work(memory.clone(), closing.clone()));
    let app = App::new(memory, options.limits, address, closing);
    let log = tokio::spawn(audit::keep_log(Arc::clone(&app)));

    let connections = GracefulShutdown::new();
    tokio::select! {
        () = accept(&app, listener, &connections) => {}
        () = shutdown => {}
    }
    close.send_replace(true);
    finish(&app, connections).await;
    let _ = tokio::time::timeout(WORKER_GRACE, log).await;
    audit::finish(&app).await;
    // The worker ends by itself; if it panicked there is nothing left to save.
    let _ = worker.await;
    Ok(())
}

/// Accepts for ever.
async fn accept(app: &Shared, listener: TcpListener, connections: &GracefulShutdown) {
    let router = routes::router(Arc::clone(app));
    let free = Arc::new(Semaphore::new(app.limits.connections));
    // The semaphore is never closed, so a permit always comes.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (app, router, watcher) =
                    (Arc::clone(app), router.clone(), connections.watcher());
                tokio::spawn(converse(app, stream, router, watcher, permit));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection, to its end.
async fn converse(
    app: Shared,
    stream: TcpStream,
    router: Router,
    watcher: Watcher,
    _permit: OwnedSemaphorePermit,
) {
    let _open = app.metrics.connected();
    // Small answers should not wait for more of them.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.limits.header_time())
        // A caller that has said all and closed its side is still heard.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Lets connections end after their present request, and waits for requests
/// whose callers have gone.
async fn finish(app: &App, connections: GracefulShutdown) {
    let all = app.limits.concurrent_requests as u32;
    let done = async {
        connections.shutdown().await;
        let _ = app.requests.acquire_many(all).await;
    };
    if tokio::time::timeout(app.limits.shutdown_time(), done).await.is_err() {
        tracing::warn!("some requests did not finish within `shutdown_seconds`");
    }
}

/// Keeps the memory's worker going.
async fn work(memory: Memory, closing: watch::Receiver<bool>) {
    while !*closing.borrow() {
        let memory = memory.clone();
        let (stop, mut late) = (closed(closing.clone()), closing.clone());
        let worker = async move {
            tokio::select! {
                () = memory.work_until(stop) => {}
                () = async {
                    let _ = late.wait_for(|closing| *closing).await;
                    tokio::time::sleep(WORKER_GRACE).await;
                } => {}
            }
        };
        if tokio::spawn(worker).await.is_err() {
            tracing::error!("the worker panicked and is started again");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Resolves when the door closes.
pub(crate) async fn closed(mut closing: watch::Receiver<bool>) {
    // An error means that the sender is gone, and the door with it.
    let _ = closing.wait_for(|closing| *closing).await;
}
