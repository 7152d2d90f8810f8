//! Work on much that was read, piece by piece and beside the async threads.

use std::sync::Arc;

use crate::base::INLINE_BYTES;
use crate::error::{Result, off_thread};

/// Bytes worked on at once: some hundredths of a second, after which a request that
/// was given up stops.
const PIECE_BYTES: usize = 256 << 10;

/// What an item costs besides its bytes.
const ITEM_BYTES: usize = 64;

/// Does `work` on each of `items`, of which `size` tells the bytes. Little is done
/// at once; much must not hold up whoever else is served by the same thread.
///
/// Pieces are copied to be worked on, so that whoever stops waiting leaves every
/// item either as it was or as it shall be.
pub async fn in_pieces<'a, T: Clone + Send + 'static>(
    items: impl IntoIterator<Item = &'a mut T>,
    size: impl Fn(&T) -> usize,
    work: impl Fn(&mut T) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let mut items: Vec<&mut T> = items.into_iter().collect();
    let sizes: Vec<usize> = items.iter().map(|item| size(item) + ITEM_BYTES).collect();
    if sizes.iter().sum::<usize>() <= INLINE_BYTES {
        return items.into_iter().try_for_each(work);
    }
    let work = Arc::new(work);
    let (mut rest, mut sizes) = (items.as_mut_slice(), sizes.as_slice());
    while !rest.is_empty() {
        let count = first_piece(sizes);
        let (piece, left) = rest.split_at_mut(count);
        let mut copies: Vec<T> = piece.iter().map(|item| (**item).clone()).collect();
        let work = Arc::clone(&work);
        let done = off_thread(move || {
            copies.iter_mut().try_for_each(|copy| work(copy))?;
            Ok::<_, crate::error::MemoryError>(copies)
        })
        .await??;
        for (item, done) in piece.iter_mut().zip(done) {
            **item = done;
        }
        (rest, sizes) = (left, &sizes[count..]);
    }
    Ok(())
}

/// How many items the first piece has: at least one.
fn first_piece(sizes: &[usize]) -> usize {
    let mut bytes = 0;
    let fits = |size: &&usize| {
        bytes += **size;
        bytes <= PIECE_BYTES
    };
    sizes.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    /// The threads that worked on `count` texts of `bytes` each.
    async fn threads(count: usize, bytes: usize) -> Vec<ThreadId> {
        let mut texts = vec!["a".repeat(bytes); count];
        let seen: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
        let noted = Arc::clone(&seen);
        in_pieces(&mut texts, String::len, move |text| {
            text.push('!');
            noted.lock().unwrap().push(std::thread::current().id());
            Ok(())
        })
        .await
        .unwrap();
        assert!(texts.iter().all(|text| text.len() == bytes + 1 && text.ends_with("a!")));
        Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn little_is_done_here_and_much_elsewhere() {
        let here = std::thread::current().id();
        assert_eq!(threads(3, 100).await, [here; 3]);
        for (count, bytes) in [(1, 1 << 20), (40, 100_000), (10_000, 1)] {
            let threads = threads(count, bytes).await;
            assert!(threads.len() == count && !threads.contains(&here), "{count} of {bytes}");
        }
    }

    #[tokio::test]
    async fn who_gives_up_stops_the_work_after_the_piece_at_hand() {
        let mut texts = vec!["a".repeat(PIECE_BYTES); 10];
        let (began, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let work = in_pieces(&mut texts, String::len, move |_| {
            began.send(()).unwrap();
            // Until the request is gone.
            let _ = may_go_on.lock().unwrap().recv();
            Ok(())
        });
        tokio::select! {
            _ = work => unreachable!("it waits"),
            _ = has_begun.recv() => {}
        }
        drop(go_on);
        // The channel closes when nobody works any more.
        assert_eq!(has_begun.recv().await, None);
    }

    #[tokio::test]
    async fn a_failure_is_told() {
        for bytes in [1, 1 << 20] {
            let mut texts = vec!["a".repeat(bytes); 2];
            let fail = |_: &mut String| Err(crate::error::MemoryError::Internal("no".to_owned()));
            in_pieces(&mut texts, String::len, fail).await.unwrap_err();
        }
    }
}
