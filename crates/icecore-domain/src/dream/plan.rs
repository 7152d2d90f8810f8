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
    #[error("nothing is due")]
    Nothing,
    #[error("a budget of {budget} tokens covers too little: it takes {minimum}")]
    TooSmall {
        budget: u64,
        /// The smallest budget that would do.
        minimum: u64,
    },
}

/// What is written has room for at least so many tokens, so that there can be a line.
const LEAST_OUTPUT: u64 = 16;
/// At least one token is written for so many that are read.
const LEAST_SHARE: u64 = 16;
/// Nothing is read finer that leaves less than one token to write for so many.
const USEFUL_SHARE: u64 = 4;

/// Plans a dream over what is due, oldest first, and `beyond`, the number of further
/// sources that were not looked at because they cannot fit.
///
/// Read is the longest prefix that fits at its coarsest, and that as finely as fits:
/// one level for all, so that the order in which they came does not matter where all
/// are read. What must be covered has to be among `due`: where `beyond` hides some of
/// it, no budget is enough.
pub fn plan(due: &[Due], beyond: u64, limits: &Limits) -> Result<Plan, Refusal> {
    let counted = due.iter().filter(|one| !one.is_carried).count() as u64;
    let total = counted.saturating_add(beyond);
    if total == 0 {
        return Err(Refusal::Nothing);
    }
    let must_cover = must_cover(total, limits.min_coverage_percent);
    let must_read = must_read(due, must_cover);
    let minimum = need(input_of(&due[..must_read], COARSEST), LEAST_SHARE, limits);
    if counted < must_cover || limits.budget < minimum {
        let minimum =
            minimum.max(if counted < must_cover { limits.budget.saturating_add(1) } else { 0 });
        return Err(Refusal::TooSmall { budget: limits.budget, minimum });
    }
    let read = &due[..longest(due, limits).max(must_read)];
    let levels = read.iter().map(|one| one.costs.len()).max().unwrap_or(0);
    let fits = |level: &usize| need(input_of(read, *level), USEFUL_SHARE, limits) <= limits.budget;
    let level = (0..levels).find(fits).unwrap_or(COARSEST);
    let input = input_of(read, level);
    let covered = read.iter().filter(|one| !one.is_carried).count() as u64;
    Ok(Plan {
        readings: read.iter().map(|one| reading(one, level).0).collect(),
        input,
        output: limits.output.min(limits.budget.saturating_sub(input)),
        remaining: total - covered,
        minimum,
    })
}

/// A level that no source goes beyond.
const COARSEST: usize = usize::MAX;

/// How many sources have to be covered, at least one.
fn must_cover(total: u64, percent: u8) -> u64 {
    let share = (u128::from(total) * u128::from(percent.min(100))).div_ceil(100);
    u64::try_from(share).unwrap_or(total).max(1)
}

/// How many have to be read for that: as many of the first as hold them, and what is
/// carried.
fn must_read(due: &[Due], must_cover: u64) -> usize {
    let carried = due.iter().rposition(|one| one.is_carried).map_or(0, |at| at + 1);
    let mut left = must_cover;
    let enough = due.iter().position(|one| {
        left -= u64::from(!one.is_carried);
        left == 0
    });
    carried.max(enough.map_or(due.len(), |at| at + 1))
}

/// The longest prefix that fits at its coarsest.
fn longest(due: &[Due], limits: &Limits) -> usize {
    let mut input = 0_u64;
    let too_much = due.iter().position(|one| {
        input = input.saturating_add(reading(one, COARSEST).1);
        need(input, LEAST_SHARE, limits) > limits.budget
    });
    too_much.unwrap_or(due.len())
}

/// The budget that it takes to read `input` tokens and to write one for every `share`.
fn need(input: u64, share: u64, limits: &Limits) -> u64 {
    let output = input.div_ceil(share).max(LEAST_OUTPUT).min(limits.output);
    input.saturating_add(output)
}

/// Tokens of some sources, read at a level.
fn input_of(due: &[Due], level: usize) -> u64 {
    due.iter().fold(0, |sum, one| sum.saturating_add(reading(one, level).1))
}

/// How a source is read at a level, and what that costs: by the cheapest way that is no
/// coarser, since a summary may be longer than what it stands for.
fn reading(one: &Due, level: usize) -> (usize, u64) {
    let ways = one.costs.iter().take(level.saturating_add(1)).enumerate();
    let cheapest = ways.min_by_key(|(at, cost)| (**cost, *at));
    cheapest.map_or((0, 0), |(at, cost)| (at, u64::from(*cost)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn due(costs: &[u32]) -> Due {
        Due { costs: costs.to_vec(), is_carried: false }
    }

    fn carried(costs: &[u32]) -> Due {
        Due { costs: costs.to_vec(), is_carried: true }
    }

    fn limits(budget: u64) -> Limits {
        Limits { budget, output: 8_000, min_coverage_percent: 10 }
    }

    #[test]
    fn nothing_due_is_nothing_to_plan() {
        assert_eq!(plan(&[], 0, &limits(1_000)), Err(Refusal::Nothing));
        assert_eq!(plan(&[carried(&[10])], 0, &limits(1_000)), Err(Refusal::Nothing));
    }

    #[test]
    fn a_few_short_entries_can_be_kept_whole() {
        let plan = plan(&vec![due(&[12]); 5], 0, &limits(1_000)).unwrap();
        let expected =
            Plan { readings: vec![0; 5], input: 60, output: 940, remaining: 0, minimum: 28 };
        assert_eq!(plan, expected);
    }

    #[test]
    fn many_short_entries_are_all_covered() {
        let plan = plan(&vec![due(&[18]); 412], 0, &limits(8_000)).unwrap();
        assert_eq!((plan.readings.len(), plan.remaining), (412, 0));
        assert_eq!((plan.input, plan.output), (7_416, 584));
    }

    #[test]
    fn all_is_read_as_finely_as_leaves_room_to_write() {
        let chunks = vec![due(&[1_000, 200, 50]); 10];
        let levels = |budget| plan(&chunks, 0, &limits(budget)).unwrap().readings;
        assert_eq!(levels(12_500), [0; 10]);
        assert_eq!(levels(12_499), [1; 10]);
        assert_eq!(levels(2_500), [1; 10]);
        assert_eq!(levels(2_499), [2; 10]);
        assert_eq!(levels(532), [2; 10]);
        assert_eq!(levels(531), [2; 9]);
    }

    #[test]
    fn a_summary_that_is_longer_is_not_read() {
        let plan = plan(&[due(&[10, 40]), due(&[900, 40])], 0, &limits(100)).unwrap();
        assert_eq!(plan.readings, [0, 1]);
    }

    #[test]
    fn what_is_carried_is_read_but_does_not_count() {
        let all = [carried(&[400, 100]), due(&[50]), due(&[5_000])];
        let found = plan(&all, 0, &limits(200)).unwrap();
        assert_eq!(found.readings, [1, 0]);
        assert_eq!((found.input, found.output, found.remaining), (150, 50, 1));
        assert_eq!(found.minimum, 166);
        let refused = Refusal::TooSmall { budget: 165, minimum: 166 };
        assert_eq!(plan(&all, 0, &limits(165)), Err(refused));
    }

    #[test]
    fn one_gigantic_source_names_what_it_takes() {
        let all = [due(&[u32::MAX])];
        let minimum = u64::from(u32::MAX) + 8_000;
        let refused = Refusal::TooSmall { budget: 64_000, minimum };
        assert_eq!(plan(&all, 0, &limits(64_000)), Err(refused));
        assert!(plan(&all, 0, &limits(minimum)).is_ok());
    }

    #[test]
    fn huge_numbers_do_not_overflow() {
        let all = vec![due(&[u32::MAX]); 1_000];
        let limits = Limits { budget: u64::MAX, output: u64::MAX, min_coverage_percent: 255 };
        let found = plan(&all, 0, &limits).unwrap();
        assert_eq!(found.readings.len(), 1_000);
        assert_eq!(found.input.checked_add(found.output), Some(u64::MAX));
        let refused = plan(&all, u64::MAX, &limits);
        assert_eq!(refused, Err(Refusal::TooSmall { budget: u64::MAX, minimum: u64::MAX }));
    }

    fn any_due() -> impl Strategy<Value = Vec<Due>> {
        let costs = prop::collection::vec(0_u32..3_000, 1..5);
        let plain = prop::collection::vec(costs.clone(), 0..40);
        (plain, prop::option::of(costs)).prop_map(|(plain, first)| {
            let first = first.map(|costs| Due { costs, is_carried: true });
            let plain = plain.into_iter().map(|costs| Due { costs, is_carried: false });
            first.into_iter().chain(plain).collect()
        })
    }

    proptest! {
        #[test]
        fn an_accepted_plan_fits_and_adds_up(
            due in any_due(),
            beyond in 0_u64..20,
            budget in 0_u64..80_000,
            output in 0_u64..9_000,
            percent in 0_u8..=100,
        ) {
            let limits = Limits { budget, output, min_coverage_percent: percent };
            let counted = due.iter().filter(|one| !one.is_carried).count() as u64;
            match plan(&due, beyond, &limits) {
                Ok(found) => {
                    prop_assert!(found.input + found.output <= budget);
                    prop_assert!(found.output <= output);
                    prop_assert!(found.minimum <= budget);
                    let read = due.iter().zip(&found.readings);
                    let input: u64 = read.clone().map(|(one, at)| u64::from(one.costs[*at])).sum();
                    prop_assert_eq!(input, found.input);
                    let covered = read.filter(|(one, _)| !one.is_carried).count() as u64;
                    prop_assert!(covered * 100 >= u64::from(percent) * (counted + beyond));
                    prop_assert_eq!(covered + found.remaining, counted + beyond);
                    prop_assert!(found.output >= output.min(16).min(found.input));
                }
                Err(Refusal::Nothing) => prop_assert_eq!(counted + beyond, 0),
                Err(Refusal::TooSmall { minimum, .. }) => {
                    prop_assert!(minimum > budget);
                    if beyond == 0 {
                        let at = |budget| plan(&due, beyond, &Limits { budget, ..limits });
                        prop_assert_eq!(at(minimum).map(|found| found.minimum), Ok(minimum));
                        prop_assert!(at(minimum - 1).is_err());
                    }
                }
            }
        }

        #[test]
        fn a_larger_budget_never_covers_less(
            due in any_due(),
            beyond in 0_u64..20,
            budget in 0_u64..60_000,
            more in 0_u64..5_000,
        ) {
            let covered = |budget| {
                plan(&due, beyond, &limits(budget)).map_or(0, |found| found.readings.len())
            };
            prop_assert!(covered(budget) <= covered(budget + more));
        }

        #[test]
        fn the_order_does_not_matter_where_all_is_read(
            due in any_due(),
            budget in 0_u64..80_000,
        ) {
            let mut turned: Vec<Due> = due.clone();
            let first = usize::from(due.first().is_some_and(|one| one.is_carried));
            turned[first..].reverse();
            if let Ok(found) = plan(&due, 0, &limits(budget)) && found.remaining == 0 {
                let mut other = plan(&turned, 0, &limits(budget)).unwrap();
                other.readings[first..].reverse();
                prop_assert_eq!(&other.readings, &found.readings);
                prop_assert_eq!((other.input, other.output), (found.input, found.output));
            }
        }
    }
}
