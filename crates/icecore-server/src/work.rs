//! A request's turn to be worked on.
//!
//! Places are few and a client can be slow. So a place is held only while we work:
//! it is given up while a body comes, or while the same request runs elsewhere, and
//! who finds none free waits in line. Large bodies also wait for memory.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::app::Shared;
use crate::error::ApiError;

/// What one request holds, until the last of its clones has ended.
#[derive(Clone)]
pub(crate) struct Work(Arc<Inner>);

struct Inner {
    app: Shared,
    held: Mutex<Held>,
}

struct Held {
    place: Option<OwnedSemaphorePermit>,
    memory: Option<OwnedSemaphorePermit>,
    deadline: Instant,
}

/// Bodies up to this size are within what a connection may cost anyway.
pub(crate) const SMALL_BODY: usize = 64 << 10;

/// Memory is counted in pieces of this size.
const PIECE: usize = 1 << 10;

/// What has to do with more bytes than this would hold up others on its thread.
const INLINE_BYTES: usize = 256 << 10;

/// Does what has to do with `bytes` bytes, beside the async threads where these are
/// many.
pub(crate) async fn beside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    match bytes <= INLINE_BYTES {
        true => Ok(work()),
        false => {
            tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal(&error))
        }
    }
}

/// Pieces of memory for so many bytes.
pub(crate) fn pieces(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX)
}

impl Work {
    pub(crate) fn new(app: &Shared) -> Self {
        let deadline = Instant::now() + app.limits.request_time();
        let held = Mutex::new(Held { place: None, memory: None, deadline });
        Self(Arc::new(Inner { app: Arc::clone(app), held }))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits in line for a place.
    pub(crate) async fn begin(&self) -> Result<(), ApiError> {
        let app = &self.0.app;
        let waiting = app.metrics.waits();
        let place = self.in_line(&app.requests, 1).await.ok_or_else(|| {
            let most = app.limits.concurrent_requests;
            ApiError::later(
                "overloaded",
                format!(
                    "the host works on {most} requests at once (`concurrent_requests`), and none ended within {} s (`queue_seconds`)",
                    app.limits.queue_seconds
                ),
            )
        })?;
        drop(waiting);
        let mut held = self.held();
        held.place = Some(place);
        held.deadline = Instant::now() + app.limits.request_time();
        Ok(())
    }

    /// Gives up the place while somebody else is slow, and takes one again.
    pub(crate) async fn aside<T>(&self, wait: impl Future<Output = T>) -> Result<T, ApiError> {
        {
            let mut held = self.held();
            held.place = None;
            // What is waited for has a limit of its own.
            let limits = &self.0.app.limits;
            held.deadline += limits.body_time() + limits.queue_time() * 2 + limits.retry_time();
        }
        let came = wait.await;
        self.begin().await?;
        Ok(came)
    }

    /// Waits in line for the memory of a body.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= SMALL_BODY {
            return Ok(());
        }
        let app = &self.0.app;
        let memory = self.in_line(&app.bodies, pieces(bytes)).await.ok_or_else(|| {
            let most = app.limits.buffered_bytes;
            ApiError::later(
                "overloaded",
                format!("bodies of {most} bytes in all are at hand already (`buffered_bytes`)"),
            )
        })?;
        self.held().memory = Some(memory);
        Ok(())
    }

    /// Gives back what a body turned out not to need.
    pub(crate) fn keep(&self, bytes: usize) {
        let mut held = self.held();
        if let Some(memory) = &mut held.memory {
            let spare = memory.num_permits().saturating_sub(pieces(bytes) as usize);
            drop(memory.split(spare));
        }
    }

    async fn in_line(&self, of: &Arc<Semaphore>, many: u32) -> Option<OwnedSemaphorePermit> {
        let time = self.0.app.limits.queue_time();
        let permit = Arc::clone(of).acquire_many_owned(many);
        // Never closed, so only the time can run out.
        tokio::time::timeout(time, permit).await.ok()?.ok()
    }

    /// Resolves when the request has taken too long.
    pub(crate) async fn overdue(&self) {
        loop {
            let left = self.held().deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Gives everything back.
    pub(crate) fn end(&self) {
        let mut held = self.held();
        held.place = None;
        held.memory = None;
    }
}

/// Ends a request's work, also if it panics or is given up.
pub(crate) struct Ending(pub(crate) Work);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::App;
    use crate::limits::Limits;

    fn app(limits: Limits) -> Shared {
        let (_, closing) = tokio::sync::watch::channel(false);
        App::new(icecore::Memory::in_memory(), limits, ([127, 0, 0, 1], 0).into(), closing)
    }

    #[tokio::test]
    async fn who_finds_no_place_waits_in_line() {
        let app = app(Limits { concurrent_requests: 1, queue_seconds: 1, ..Limits::default() });
        let (first, second) = (Work::new(&app), Work::new(&app));
        first.begin().await.unwrap();
        let refused = second.begin().await.unwrap_err();
        assert_eq!(refused.status, 503);
        assert!(format!("{refused:?}").contains("queue_seconds"));
        // While the first waits for something, the second works.
        let waited = first.aside(async { second.begin().await.map(|()| second.end()) }).await;
        waited.unwrap().unwrap();
        let in_line = tokio::spawn(async move { second.begin().await });
        tokio::task::yield_now().await;
        drop(Ending(first));
        in_line.await.unwrap().unwrap();
        assert_eq!(app.requests.available_permits(), 1);
    }

    #[tokio::test]
    async fn what_a_body_does_not_need_is_given_back() {
        let size = 1 << 20;
        let app = app(Limits { body_bytes: size, buffered_bytes: size, ..Limits::default() });
        let work = Work::new(&app);
        work.reserve(SMALL_BODY).await.unwrap();
        assert_eq!(app.bodies.available_permits(), 1 << 10);
        work.reserve(size).await.unwrap();
        assert_eq!(app.bodies.available_permits(), 0);
        work.keep(1_025);
        assert_eq!(app.bodies.available_permits(), (1 << 10) - 2);
        work.end();
        assert_eq!(app.bodies.available_permits(), 1 << 10);
    }

    #[tokio::test]
    async fn many_bytes_are_worked_on_elsewhere() {
        let thread = || std::thread::current().id();
        let here = thread();
        assert_eq!(beside(INLINE_BYTES, thread).await.unwrap(), here);
        assert_ne!(beside(INLINE_BYTES + 1, thread).await.unwrap(), here);
    }
}
