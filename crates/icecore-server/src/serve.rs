//! Accepting connections, and ending well.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use icecore::MemoryError;
use icecore::store::StoreError;
use icecore_host::Host;
use icecore_settings::{SettingError, settings};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::app::{App, Shared};
use crate::audit;
use crate::host::Hosts;
use crate::limits::Limits;
use crate::line::{Line, Lines, Peer, Place};
use crate::listen::{Accepted, Listener};
use crate::open_files;
use crate::proxy::{Alone, Proxy, ProxyOptions, alone_router};
use crate::routes;
use crate::stream::{Answering, Watched};
use crate::work::Hold;

settings! {
    /// How a host is run.
    pub struct ServerOptions {
        /// Where to listen: an address and a port, or `unix:PATH`, a socket for the user that runs
        /// the host.
        listen: String = "127.0.0.1:7433".to_owned();
        /// Names by which callers may address the host, beside loopback's own. Where other
        /// machines can reach it, an empty list allows any name; give yours there, against pages
        /// that rebind theirs.
        allowed_hosts: Vec<String>;
        /// Limits; an error that comes from one names it.
        limits: Limits => at "serve.";
        /// The compacting proxy.
        proxy: ProxyOptions => at "proxy.";
    }
}

impl ServerOptions {
    /// Refuses values that do not go together.
    pub fn check(&self) -> Result<(), SettingError> {
        self.limits.check()?;
        self.proxy.check()
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
    /// A proxy without keys, where others could reach it.
    #[error("a proxy that asks for no key listens on loopback only, and {address} is not")]
    NotLoopback {
        /// Where it was to listen.
        address: std::net::SocketAddr,
    },
    /// A limit under which nothing would work.
    #[error("the limit {0}")]
    Limit(#[source] SettingError),
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

/// Answers that are cut off at the end have this long to be kept.
const KEEPING_GRACE: Duration = Duration::from_secs(5);

/// After a failed accept (say, no more file handles) we wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a host, or a memory with the default settings of one, on `listener` and
/// does its background work, until `shutdown` resolves. Then no new connection is accepted, what was accepted is finished
/// (within `shutdown_seconds`), and the call returns.
pub async fn serve(
    host: impl Into<Host>,
    listener: impl Into<Listener>,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    run(host.into(), listener.into(), options, None, shutdown).await
}

/// Runs the compacting proxy alone, on behalf of one person on this machine: no key of ours
/// is asked for. All else is as with [`serve`].
pub async fn serve_proxy(
    host: impl Into<Host>,
    alone: Alone,
    listener: impl Into<Listener>,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    run(host.into(), listener.into(), options, Some(alone), shutdown).await
}

async fn run(
    host: Host,
    listener: Listener,
    options: ServerOptions,
    alone: Option<Alone>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ServerOptions { mut limits, allowed_hosts, proxy, .. } = options;
    limits.check().map_err(ServeError::Limit)?;
    limits.connections = open_files::make_room(limits.connections);
    let hosts = match &listener {
        Listener::Tcp(tcp) => {
            let address = tcp.local_addr().map_err(ServeError::Listen)?;
            // Who needs no key must be of this machine.
            if alone.is_some() && !address.ip().is_loopback() {
                return Err(ServeError::NotLoopback { address });
            }
            Hosts::at(address, allowed_hosts)
        }
        Listener::Unix(_) => Hosts::in_file(),
    };
    let (close, closing) = watch::channel(false);
    let worker = tokio::spawn(work(host.clone(), closing.clone()));
    let lines = Lines::new(&limits);
    let proxy = Proxy::new(proxy, alone, &limits);
    let app = App::under(host, limits, hosts, proxy, closing.clone());
    let log = tokio::spawn(audit::keep_log(Arc::clone(&app)));

    let connections = GracefulShutdown::new();
    let swept = Arc::clone(&lines);
    let sweeper = tokio::spawn(async move { swept.sweep(|| *closing.borrow()).await });
    tokio::select! {
        () = accept(&app, &lines, &listener, &connections) => {}
        () = shutdown => {}
    }
    drop(listener);
    close.send_replace(true);
    finish(&app, connections).await;
    sweeper.abort();
    let _ = tokio::time::timeout(WORKER_GRACE, log).await;
    audit::finish(&app).await;
    app.host.bounds.write().await;
    // The worker ends by itself; if it panicked there is nothing left to save.
    let _ = worker.await;
    Ok(())
}

/// Accepts for ever.
async fn accept(
    app: &Shared,
    lines: &Arc<Lines>,
    listener: &Listener,
    connections: &GracefulShutdown,
) {
    let router = match app.proxy.alone {
        Some(_) => alone_router(Arc::clone(app)),
        None => routes::router(Arc::clone(app)),
    };
    loop {
        match listener.accept().await {
            Ok(Accepted::Tcp(stream, peer)) => {
                // Small answers should not wait for more of them.
                let _ = stream.set_nodelay(true);
                let place = lines.admit(peer).await;
                let watcher = connections.watcher();
                tokio::spawn(converse(stream, place, router.clone(), watcher, Arc::clone(app)));
            }
            Ok(Accepted::Unix(stream)) => {
                let place = lines.admit(Peer::Local).await;
                let watcher = connections.watcher();
                tokio::spawn(converse(stream, place, router.clone(), watcher, Arc::clone(app)));
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
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    place: Place,
    router: Router,
    watcher: Watcher,
    app: Shared,
) {
    let _open = app.metrics.connected();
    let header_bytes = app.limits.header_bytes;
    let line = Arc::clone(&place.line);
    let door = Door { router: TowerToHyperService::new(router), line: Arc::clone(&line) };
    let stream = TokioIo::new(Watched::new(stream, Arc::clone(&line), header_bytes));
    let connection = http1::Builder::new()
        // Our own watch over lines tells an idle one from a half-sent head.
        .header_read_timeout(None)
        .max_header_size(header_bytes)
        // A caller that has said all and closed its side is still heard.
        .half_close(true)
        .serve_connection(stream, door);
    tokio::select! {
        ended = watcher.watch(connection) => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        }
        () = line.evicted() => tracing::debug!("a connection waited too long for its client"),
    }
}

/// The routes, as one connection reaches them.
struct Door {
    router: TowerToHyperService<Router>,
    line: Arc<Line>,
}

impl Service<Request<Incoming>> for Door {
    type Response = Response<Answering>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let has_body = !hyper::body::Body::is_end_stream(request.body());
        let in_time = self.line.begin(has_body);
        request.extensions_mut().insert(Arc::clone(&self.line));
        let (router, line) = (self.router.clone(), Arc::clone(&self.line));
        Box::pin(async move {
            if !in_time {
                // The connection goes before anything is done.
                std::future::pending::<()>().await;
            }
            let response = router.call(request).await?;
            let hold = response.extensions().get::<Hold>().cloned();
            Ok(response.map(|body| Answering::new(body, line, hold)))
        })
    }
}

/// Lets connections end after their present request, and waits for requests
/// whose callers have gone.
async fn finish(app: &App, connections: GracefulShutdown) {
    let all = app.limits.concurrent_requests as u32;
    let kept = || app.proxy.streams.acquire_many(app.limits.proxy_streams as u32);
    let done = async {
        connections.shutdown().await;
        let _ = app.requests.acquire_many(all).await;
        let _ = kept().await;
    };
    if tokio::time::timeout(app.limits.shutdown_time(), done).await.is_err() {
        tracing::warn!("some requests did not finish within `shutdown_seconds`");
        // What came of their answers is not lost.
        app.proxy.cut();
        let _ = tokio::time::timeout(KEEPING_GRACE, kept()).await;
    }
}

/// Keeps the memory's worker and the engine of runs going.
async fn work(host: Host, closing: watch::Receiver<bool>) {
    while !*closing.borrow() {
        let host = host.clone();
        let (stop, mut late) = (closing.clone(), closing.clone());
        let worker = async move {
            let halt = closed(stop.clone());
            let memory = async {
                match host.settings().read_only {
                    true => host.memory.keep_until(halt).await,
                    false => host.memory.work_until(halt).await,
                }
            };
            let both = async { tokio::join!(memory, host.run_until(closed(stop))) };
            tokio::select! {
                _ = both => {}
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
