//! What a dream reads, and how much it may write.

/// Something that is due, by what it would cost to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Tokens of each way to read it, finest first: whole, then by summaries of rising
    /// levels. At least one.
    pub costs: Vec<u32>,
    /// Whether it is what the last dream came to: it is read in any case, first, and
    /// does not count as covered.
    pub is_carried: bool,
}

/// What bounds a dream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of what is read and what is written together.
    pub budget: u64,
    /// Tokens of what is written, at most.
    pub output: u64,
    /// The share of what is due that must be covered.
    pub min_coverage_percent: u8,
}

/// A dream that fits its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// For each source that is read, the first so many of those due: which of its
    /// `costs`.
    pub readings: Vec<usize>,
    /// Tokens of what is read.
    pub input: u64,
    /// Tokens that may be written.
    pub output: u64,
    /// Sources that stay due.
    pub remaining: u64,
    /// The smallest budget that would not have been refused.
    pub minimum: u64,
}

/// Why nothing is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is nothing due.
    #[error("nothing is due")]
    Nothing,
    /// The budget covers less than it must.
    #[error("a budget of {budget} tokens covers too little: it takes {minimum}")]
    TooSmall {
        /// What was given.
        budget: u64,
        /// The smallest budget that would do.
        minimum: u64,
    },
}

/// Plans a dream over what is due, oldest first, and `beyond`, the number of further
/// sources that were not looked at because they cannot fit.
pub fn plan(due: &[Due], beyond: u64, limits: &Limits) -> Result<Plan, Refusal> {
    let _ = (due, beyond, limits);
    todo!()
}
