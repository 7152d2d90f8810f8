//! Sessions of every kind, made from a seed, through exchanges with a scripted model.

use crate::trials::{Seen, trial};

/// How many are tried here; `evals session-fuzz` tries as many as one likes.
const TRANSCRIPTS: u64 = 160;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_runs_out() {
    let mut seen = Seen::default();
    for number in 0..TRANSCRIPTS {
        seen.add(trial(8, number).await);
    }
    assert_eq!(seen.problems, [""; 0]);
    assert!(seen.compacted > TRANSCRIPTS / 4, "{seen:?}");
    assert!(seen.exceeding >= TRANSCRIPTS / 16, "{seen:?}");
    assert!(seen.pairs > 1_000 && seen.floor_bytes > 10_000, "{seen:?}");
}
