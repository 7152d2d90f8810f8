//! A request's turn to be worked on.
//!
//! Places are few and a client can be slow. So a place is held only while we work:
//! it is given up while a body comes, or while the same request runs elsewhere, and
//! who finds none free waits in line. Large bodies also wait for memory: of their
//! tenant's share for all that is announced, of the host's for what has come.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use hyper::body::Body;
use icecore::Tenant;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::app::Shared;
use crate::error::ApiError;
use crate::share::Share;

/// What one request holds, until the last of its clones has ended.
#[derive(Clone)]
pub(crate) struct Work(Arc<Inner>);

struct Inner {
    app: Shared,
    held: Mutex<Held>,
    /// The deadline is another.
    moved: Notify,
}

struct Held {
    /// Of the tenant that asks, once it is known.
    share: Option<Arc<Share>>,
    /// The tenant's, then the host's.
    places: [Option<OwnedSemaphorePermit>; 2],
    /// The tenant's, then the host's.
    memory: [Option<OwnedSemaphorePermit>; 2],
    /// None while somebody is waited for who has limits of their own.
    deadline: Option<Instant>,
}

impl Held {
    /// Puts the deadline off.
    fn allow(&mut self, time: Duration) {
        self.deadline = self.deadline.map(|deadline| deadline + time);
    }
}

/// Bodies up to this size are within what a connection may cost anyway.
pub(crate) const SMALL_BODY: usize = 64 << 10;

/// Answers up to this size are within what a connection may cost anyway.
const SMALL_ANSWER: u64 = 64 << 10;

/// A body gets its memory in steps of this size.
const STEP: usize = 256 << 10;

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
        let deadline = Some(Instant::now() + app.limits.request_time());
        let held =
            Mutex::new(Held { share: None, places: [None, None], memory: [None, None], deadline });
        Self(Arc::new(Inner { app: Arc::clone(app), held, moved: Notify::new() }))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits in line for a place: first for one of the tenant's, then of all.
    pub(crate) async fn begin(&self) -> Result<(), ApiError> {
        let app = &self.0.app;
        let limits = &app.limits;
        let busy = |most: usize, names: &str| {
            let seconds = limits.queue_seconds;
            let message = format!(
                "the host works on {most} requests at once ({names}), and none ended within {seconds} s (`queue_seconds`)"
            );
            ApiError::later("overloaded", message)
        };
        let waiting = app.metrics.waits();
        let share = self.held().share.clone();
        let own = match share {
            None => None,
            Some(share) => {
                let place = self.in_line(&share.requests, 1).await;
                let names = "of one tenant: `tenant_percent` of `concurrent_requests`";
                Some(place.ok_or_else(|| busy(limits.tenant_requests(), names))?)
            }
        };
        let place = self.in_line(&app.requests, 1).await;
        let place =
            place.ok_or_else(|| busy(limits.concurrent_requests, "`concurrent_requests`"))?;
        drop(waiting);
        let mut held = self.held();
        held.places = [own, Some(place)];
        held.deadline = Some(Instant::now() + app.limits.request_time());
        self.0.moved.notify_one();
        Ok(())
    }

    /// From here on the tenant that asks pays for it. Where its share is used up, the
    /// place is given up until some of it is free.
    pub(crate) async fn charge(&self, tenant: &Tenant) -> Result<(), ApiError> {
        let share = self.0.app.shares.of(tenant);
        let own = Arc::clone(&share.requests).try_acquire_owned();
        {
            let mut held = self.held();
            held.share = Some(share);
            if let Ok(own) = own {
                held.places[0] = Some(own);
                return Ok(());
            }
            held.places = [None, None];
            held.allow(self.0.app.limits.queue_time() * 2);
        }
        self.begin().await
    }

    /// Gives up the place while somebody else is slow, and takes one again.
    pub(crate) async fn aside<T>(&self, wait: impl Future<Output = T>) -> Result<T, ApiError> {
        {
            let mut held = self.held();
            held.places = [None, None];
            // What is waited for has a limit of its own.
            let limits = &self.0.app.limits;
            held.allow(limits.body_time() + limits.queue_time() * 2 + limits.retry_time());
        }
        let came = wait.await;
        self.begin().await?;
        Ok(came)
    }

    /// Gives up the place for good, or until the next is taken: from here on somebody is
    /// waited for who may take long, and has limits of their own.
    pub(crate) fn leave(&self) {
        let mut held = self.held();
        held.places = [None, None];
        held.deadline = None;
        self.0.moved.notify_one();
    }

    /// Waits in line for the memory of a body, as far as it is the tenant's: whoever
    /// announces much and sends nothing keeps it from nobody else.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= SMALL_BODY {
            return Ok(());
        }
        let Some(share) = self.held().share.clone() else { return Ok(()) };
        let memory = self.in_line(&share.bodies, pieces(bytes)).await.ok_or_else(|| {
            let most = self.0.app.limits.tenant_buffered();
            ApiError::later(
                "overloaded",
                format!("bodies of {most} bytes of one tenant are at hand already (`tenant_percent` of `buffered_bytes`)"),
            )
        })?;
        self.held().memory[0] = Some(memory);
        Ok(())
    }

    /// Waits in line for the host's memory, once a body has so many bytes.
    pub(crate) async fn grow(&self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= SMALL_BODY {
            return Ok(());
        }
        let app = &self.0.app;
        let has = self.held().memory[1].as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let needs = pieces(bytes) as usize;
        if needs <= has {
            return Ok(());
        }
        let limits = &app.limits;
        let most = pieces(limits.body_bytes.max(limits.proxy_body().0)) as usize;
        let more = needs.next_multiple_of(pieces(STEP) as usize).min(most.max(needs)) - has;
        let memory = self.in_line(&app.bodies, more as u32).await.ok_or_else(|| {
            let most = app.limits.buffered_bytes;
            ApiError::later(
                "overloaded",
                format!("bodies of {most} bytes in all are at hand already (`buffered_bytes`)"),
            )
        })?;
        match &mut self.held().memory[1] {
            Some(held) => held.merge(memory),
            none => *none = Some(memory),
        }
        Ok(())
    }

    /// Gives back what a body turned out not to need.
    pub(crate) fn keep(&self, bytes: usize) {
        let mut held = self.held();
        for memory in held.memory.iter_mut().flatten() {
            let spare = memory.num_permits().saturating_sub(pieces(bytes) as usize);
            drop(memory.split(spare));
        }
    }

    /// Waits in line for the memory of an answer, which keeps it until it is written.
    /// The place is kept as well: answers that wait are no more than places.
    pub(crate) async fn hold(&self, mut response: Response) -> Response {
        let Some(bytes) = response.body().size_hint().exact().filter(|size| *size > SMALL_ANSWER)
        else {
            return response;
        };
        let (app, share) = (&self.0.app, self.held().share.clone());
        let limits = &app.limits;
        let pieces = |most: usize| pieces(most.min(usize::try_from(bytes).unwrap_or(most)));
        let mut permits = Vec::new();
        let own = share.as_ref().map(|share| {
            let most = limits.tenant_answers();
            (Arc::clone(&share.answers), most, "of one tenant: `tenant_percent` of `answers_bytes`")
        });
        let all = (Arc::clone(&app.unread), limits.answers_bytes, "`answers_bytes`");
        for (room, most, names) in own.into_iter().chain([all]) {
            // A single one that is larger than all the room takes all of it.
            let Some(permit) = self.in_line(&room, pieces(most)).await else {
                let message = format!("answers of {most} bytes wait for their readers ({names})");
                return ApiError::later("overloaded", message).into_response();
            };
            permits.push(permit);
        }
        response.extensions_mut().insert(Hold { _all: Arc::new((share, permits)) });
        response
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
            let deadline = self.held().deadline;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => return,
                Some(left) => {
                    let _ = tokio::time::timeout(left, self.0.moved.notified()).await;
                }
                None => self.0.moved.notified().await,
            }
        }
    }

    /// Gives everything back.
    pub(crate) fn end(&self) {
        let mut held = self.held();
        held.places = [None, None];
        held.memory = [None, None];
    }
}

/// An answer's memory, for as long as the answer is there.
#[derive(Clone)]
pub(crate) struct Hold {
    _all: Arc<(Option<Arc<Share>>, Vec<OwnedSemaphorePermit>)>,
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
        let tenant = Tenant::new("a").unwrap();
        work.charge(&tenant).await.unwrap();
        let share = app.shares.of(&tenant);
        let free = || (share.bodies.available_permits(), app.bodies.available_permits());
        work.reserve(SMALL_BODY).await.unwrap();
        work.grow(SMALL_BODY).await.unwrap();
        assert_eq!(free(), (1 << 10, 1 << 10));
        // What is announced costs the tenant, what comes costs the host.
        work.reserve(size).await.unwrap();
        assert_eq!(free(), (0, 1 << 10));
        work.grow(SMALL_BODY + 1).await.unwrap();
        assert_eq!(free(), (0, 3 << 8));
        work.grow(SMALL_BODY + 2).await.unwrap();
        assert_eq!(free(), (0, 3 << 8));
        work.grow(size).await.unwrap();
        assert_eq!(free(), (0, 0));
        work.keep(1_025);
        assert_eq!(free(), ((1 << 10) - 2, (1 << 10) - 2));
        work.end();
        assert_eq!(free(), (1 << 10, 1 << 10));
    }

    #[tokio::test]
    async fn who_waits_for_its_tenants_share_holds_no_place() {
        let app = app(Limits { concurrent_requests: 2, queue_seconds: 1, ..Limits::default() });
        let (greedy, other) = (Tenant::new("a").unwrap(), Tenant::new("b").unwrap());
        let (first, second, third) = (Work::new(&app), Work::new(&app), Work::new(&app));
        for work in [&first, &second] {
            work.begin().await.unwrap();
        }
        first.charge(&greedy).await.unwrap();
        let waiting = second.clone();
        let waiting = tokio::spawn(async move { waiting.charge(&greedy).await });
        // Another's goes through meanwhile.
        third.begin().await.unwrap();
        third.charge(&other).await.unwrap();
        let refused = waiting.await.unwrap().unwrap_err();
        assert!(format!("{refused:?}").contains("tenant_percent"), "{refused:?}");
        // One that was aside comes back to its tenant's share.
        third.aside(async {}).await.unwrap();
        assert_eq!(app.requests.available_permits(), 0);
        third.end();
        first.end();
        assert_eq!(app.requests.available_permits(), 2);
    }

    #[tokio::test]
    async fn who_waits_for_a_provider_has_no_deadline_and_no_place() {
        let app = app(Limits { concurrent_requests: 1, ..Limits::default() });
        let work = Work::new(&app);
        work.begin().await.unwrap();
        work.leave();
        assert_eq!(app.requests.available_permits(), 1);
        let overdue = work.overdue();
        tokio::pin!(overdue);
        tokio::select! {
            biased;
            () = &mut overdue => panic!("there is no deadline"),
            () = tokio::task::yield_now() => {}
        }
        // One that works again has its time again.
        work.begin().await.unwrap();
        assert!(work.held().deadline.is_some());
    }

    #[tokio::test]
    async fn many_bytes_are_worked_on_elsewhere() {
        let thread = || std::thread::current().id();
        let here = thread();
        assert_eq!(beside(INLINE_BYTES, thread).await.unwrap(), here);
        assert_ne!(beside(INLINE_BYTES + 1, thread).await.unwrap(), here);
    }
}
