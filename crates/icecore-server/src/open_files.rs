//! The machine's limit on open files, each connection being one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside connections: the store, its index, packs, logs.
const RESERVED: u64 = 256;

/// Raises the limit as far as it may be, and answers how many connections then fit.
pub(crate) fn make_room(connections: usize) -> usize {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, maximum: found.maximum };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => found.maximum,
        Err(_) => found.current,
    };
    let fit = fitting(connections, files);
    if fit < connections {
        tracing::warn!(
            connections = fit,
            wanted = connections,
            "the limit on open files leaves fewer `connections`; raise it with `ulimit -n`"
        );
    }
    fit
}

/// `None` is no limit.
fn fitting(connections: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return connections };
    // With few files, half of them: a small host is better than none.
    let room = files.saturating_sub(RESERVED).max(files / 2).max(1);
    connections.min(usize::try_from(room).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        assert_eq!(fitting(4_096, None), 4_096);
        assert_eq!(fitting(4_096, Some(1 << 20)), 4_096);
        assert_eq!(fitting(4_096, Some(1_024)), 768);
        assert_eq!(fitting(4_096, Some(64)), 32);
        assert_eq!(fitting(10, Some(0)), 1);
    }
}
