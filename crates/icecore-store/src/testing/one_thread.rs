//! All work on one thread, in an order that a test can repeat.

use std::cell::Cell;

thread_local! {
    static ONE_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, what is used on this thread does all its work on it, in an order that
/// follows from nothing but what it is asked.
#[derive(Debug)]
pub struct OneThread(());

impl OneThread {
    /// Begins.
    pub fn begin() -> Self {
        ONE_THREAD.set(true);
        Self(())
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        ONE_THREAD.set(false);
    }
}

/// Whether nothing goes to other threads.
pub fn is_one_thread() -> bool {
    ONE_THREAD.get()
}
