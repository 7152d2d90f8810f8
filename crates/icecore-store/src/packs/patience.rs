//! How long what fails is tried again.
//!
//! The client itself asks again where a server says that it is busy or broken, and where
//! nothing was sent. Here is asked again what may have been done though no answer came:
//! every operation of ours can be repeated.

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use object_store::client::HttpError;
use object_store::{BackoffConfig, Error, RetryConfig};
use tokio::time::{Instant, sleep, timeout_at};

/// The first pause, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The bounds of one operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// No try begins after this.
    pub(super) retry: Duration,
    /// The longest that one request may take.
    pub(super) request: Duration,
}

/// One operation, tried until it is done or patience ends.
pub(super) struct Tries {
    began: Instant,
    patience: Patience,
    pause: Duration,
}

impl Patience {
    /// How the client asks again by itself.
    pub(super) fn of_client(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: FIRST_PAUSE,
                max_backoff: LONGEST_PAUSE,
                base: 2.0,
            },
            // Time is the bound.
            max_retries: 1_000,
            retry_timeout: self.retry,
        }
    }

    pub(super) fn begin(&self) -> Tries {
        Tries { began: Instant::now(), patience: *self, pause: FIRST_PAUSE }
    }

    /// Asks until there is an answer, of whatever kind, or patience ends.
    pub(super) async fn persist<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = self.begin();
        loop {
            match tries.within(ask()).await {
                Err(error) if is_lost(&error) && tries.go_on().await => {}
                done => return done,
            }
        }
    }
}

impl Tries {
    /// One try, which ends when patience does.
    pub(super) async fn within<T>(
        &self,
        ask: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let ends = self.began + self.patience.retry + self.patience.request;
        match timeout_at(ends, ask).await {
            Ok(answer) => answer,
            Err(_) => Err(too_slow()),
        }
    }

    /// Waits a little before the next try, or says that there is none.
    pub(super) async fn go_on(&mut self) -> bool {
        let Some(pause) = self.next_pause(self.began.elapsed()) else { return false };
        sleep(pause).await;
        true
    }

    /// The pause after so much time, if another try still begins in time.
    fn next_pause(&mut self, elapsed: Duration) -> Option<Duration> {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        (elapsed + pause < self.patience.retry).then_some(pause)
    }
}

fn too_slow() -> Error {
    let source = std::io::Error::from(ErrorKind::TimedOut);
    Error::Generic { store: "S3", source: Box::new(source) }
}

/// Whether no answer came, or not the whole of one.
pub(super) fn is_lost(error: &Error) -> bool {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.into_iter().any(|cause| {
        let timed_out = cause.downcast_ref::<std::io::Error>();
        cause.is::<HttpError>()
            || timed_out.is_some_and(|cause| cause.kind() == ErrorKind::TimedOut)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use object_store::client::HttpErrorKind;

    use super::*;

    fn cut() -> Error {
        let source = std::io::Error::from(ErrorKind::ConnectionReset);
        let source = Box::new(HttpError::new(HttpErrorKind::Interrupted, source));
        Error::Generic { store: "S3", source }
    }

    fn refused() -> Error {
        Error::Generic { store: "S3", source: "no".into() }
    }

    async fn check(retry: Duration, answers: impl Fn(u32) -> Result<u32, Error>) -> (bool, u32) {
        let patience = Patience { retry, request: Duration::from_secs(1) };
        let asked = Cell::new(0);
        let done = patience.persist(|| {
            asked.set(asked.get() + 1);
            std::future::ready(answers(asked.get()))
        });
        (done.await.is_ok(), asked.get())
    }

    #[tokio::test]
    async fn a_lost_answer_is_asked_for_again() {
        let long = Duration::from_secs(60);
        let third = |asked| if asked == 3 { Ok(asked) } else { Err(cut()) };
        assert_eq!(check(long, third).await, (true, 3));
        assert_eq!(check(long, |_| Err(refused())).await, (false, 1));
        assert_eq!(check(Duration::ZERO, |_| Err(cut())).await, (false, 1));
    }

    #[test]
    fn pauses_grow_and_patience_ends() {
        let patience = Patience { retry: Duration::from_secs(20), request: Duration::ZERO };
        let mut tries = patience.begin();
        let (mut elapsed, mut pauses) = (Duration::ZERO, Vec::new());
        while let Some(pause) = tries.next_pause(elapsed) {
            elapsed += pause;
            pauses.push(pause.as_millis());
        }
        let grown = [100, 200, 400, 800, 1_600];
        assert_eq!(pauses, [&grown[..], &[2_000; 8]].concat());
    }

    #[tokio::test]
    async fn a_try_that_never_ends_is_given_up() {
        let patience = Patience { retry: Duration::ZERO, request: Duration::from_millis(1) };
        let error = patience.persist(std::future::pending::<Result<(), Error>>).await.unwrap_err();
        assert!(is_lost(&error), "{error}");
    }
}
