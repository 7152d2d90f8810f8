//! What stays hot.
//!
//! The open tail always does. Of the closed micros the youngest do, as many as
//! `hot_chunks` says and `hot_max_tokens` allows. Age is by place in the branch:
//! a message's own date plays no part, so importing old history demotes no more
//! than a live conversation would.

/// How many of the youngest closed micros stay hot. `young_tokens` are theirs,
/// youngest first.
pub fn micros_kept_hot(
    young_tokens: impl IntoIterator<Item = u64>,
    open_tokens: u64,
    hot_chunks: u32,
    hot_max_tokens: u64,
) -> usize {
    let mut tokens = open_tokens;
    let fits = |micro: &u64| {
        tokens = tokens.saturating_add(*micro);
        tokens <= hot_max_tokens
    };
    young_tokens.into_iter().take(hot_chunks as usize).take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_stay_while_they_are_few_and_small() {
        let check = |young: &[u64], open, chunks, tokens, kept| {
            assert_eq!(micros_kept_hot(young.iter().copied(), open, chunks, tokens), kept);
        };
        check(&[], 0, 2, 100, 0);
        check(&[10, 10, 10], 0, 2, 100, 2);
        check(&[10, 10, 10], 0, 5, 100, 3);
        check(&[60, 60], 0, 2, 100, 1);
        check(&[60, 60], 50, 2, 100, 0);
        check(&[50, 50], 0, 2, 100, 2);
        check(&[50, 50], 0, 0, 100, 0);
    }
}
