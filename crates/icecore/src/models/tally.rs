//! What one piece of work spends on models, for whoever has to tell it.

use std::sync::{Arc, Mutex, PoisonError};

use icecore_domain::chat::Usage;

tokio::task_local! {
    static TALLY: Arc<Mutex<Usage>>;
}

/// Does `work`, and says what it spent on models.
pub async fn spending<T>(work: impl Future<Output = T>) -> (T, Usage) {
    let tally = Arc::new(Mutex::default());
    let done = TALLY.scope(Arc::clone(&tally), work).await;
    let spent = *tally.lock().unwrap_or_else(PoisonError::into_inner);
    (done, spent)
}

/// Notes what was spent, if anybody wants to know.
pub(super) fn note(usage: Usage) {
    // Nobody listens where there is no such scope.
    let _ = TALLY.try_with(|tally| {
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.input = tally.input.saturating_add(usage.input);
        tally.cached_input = tally.cached_input.saturating_add(usage.cached_input);
        tally.output = tally.output.saturating_add(usage.output);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_told_apart() {
        let spend = |input| async move { note(Usage { input, cached_input: 1, output: 2 }) };
        let one = spending(async {
            spend(10).await;
            spend(20).await;
        });
        let ((_, first), (_, second)) = tokio::join!(one, spending(spend(5)));
        assert_eq!(first, Usage { input: 30, cached_input: 2, output: 4 });
        assert_eq!(second, Usage { input: 5, cached_input: 1, output: 2 });
        // Nobody counts, and nothing happens.
        spend(7).await;
    }
}
