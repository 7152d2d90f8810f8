//! What models cost against what that saved.
//!
//! Saved is what contexts and views did not have to hold: of each summary in a context
//! the tokens of the turns that it stands for, less its own; of each API view that was
//! made for a request the tokens that its handoff took out of it. What a person's own
//! conversation costs is told, but is no price of the memory.

use std::collections::BTreeMap;

use icecore_domain::chat::{Prices, Usage};
use icecore_domain::ids::Tenant;
use icecore_store::Spending;

use super::spend::SAVED;
use crate::base::Purpose;
use crate::error::Result;
use crate::models::ModelCalls;

/// What models were asked, what that cost and what it saved, of all days.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelStats {
    /// By purpose and model, in that order. Days are summed up.
    pub spent: Vec<Spending>,
    /// Tokens that contexts and views did not have to hold.
    pub saved_tokens: u64,
    /// Whether it was worth it; nothing if nothing was spent.
    pub break_even: Option<BreakEven>,
}

/// What was spent on the memory against what it saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakEven {
    /// Tokens read and written by models in the service of the memory.
    pub spent_tokens: u64,
    /// Tokens that contexts and views did not have to hold.
    pub saved_tokens: u64,
    /// Millionths of the currency that those cost.
    pub spent_cost: u64,
    /// What the saved ones would have cost to read; nothing where no model has a price.
    pub saved_cost: Option<u64>,
    /// Whether more was saved than spent: in money where there are prices, else in
    /// tokens.
    pub is_reached: bool,
}

impl ModelCalls {
    /// What models cost and saved, of a tenant or one of its memories.
    pub(crate) async fn model_stats(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
    ) -> Result<ModelStats> {
        let mut days = self.store.spending(tenant, memory, i64::MIN).await?;
        days.extend(self.asking.ledger.unwritten(tenant, memory));
        let mut sums: BTreeMap<(String, String), Spending> = BTreeMap::new();
        for one in days {
            let sum = sums.entry((one.purpose.clone(), one.model.clone())).or_insert_with(|| {
                let (purpose, model) = (one.purpose.clone(), one.model.clone());
                Spending { purpose, model, ..Spending::default() }
            });
            sum.add(&one);
        }
        let saved_tokens = sums.values().map(|one| one.saved).fold(0, u64::saturating_add);
        let spent: Vec<Spending> = sums.into_values().filter(|one| one.purpose != SAVED).collect();
        let break_even = break_even(&spent, saved_tokens, self.reading_price());
        Ok(ModelStats { spent, saved_tokens, break_even })
    }

    /// What the model costs that sessions are compacted for, or that sums up.
    fn reading_price(&self) -> Option<Prices> {
        let models = &self.models;
        let first = models.handoffs.0.first().or_else(|| models.summaries.0.first());
        let price = first.map(|first| first.profile().prices).or(models.reading_price);
        price.filter(|prices| prices.input > 0)
    }
}

fn break_even(spent: &[Spending], saved_tokens: u64, price: Option<Prices>) -> Option<BreakEven> {
    let own = spent.iter().filter(|one| one.purpose != Purpose::Exchange.as_str());
    let mut sum = Spending::default();
    own.for_each(|one| sum.add(one));
    let spent_tokens = sum.input.saturating_add(sum.output);
    if spent_tokens == 0 {
        return None;
    }
    let saved = Usage { input: saved_tokens, ..Usage::default() };
    let saved_cost = price.map(|price| price.cost(saved));
    let is_reached = match saved_cost {
        Some(saved_cost) if sum.cost > 0 => saved_cost >= sum.cost,
        _ => saved_tokens >= spent_tokens,
    };
    Some(BreakEven { spent_tokens, saved_tokens, spent_cost: sum.cost, saved_cost, is_reached })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(purpose: &str, input: u64, output: u64, cost: u64) -> Spending {
        Spending { purpose: purpose.to_owned(), input, output, cost, ..Spending::default() }
    }

    #[test]
    fn what_was_saved_is_set_against_what_was_spent() {
        let price = Prices { input: 2_000_000, cached_input: 0, output: 0 };
        let own = [spent("summary", 900, 100, 3_000), spent("exchange", 1 << 40, 0, 1 << 40)];
        let check = |saved, price| {
            let made = break_even(&own, saved, price).unwrap();
            assert_eq!((made.spent_tokens, made.spent_cost), (1_000, 3_000));
            (made.saved_cost, made.is_reached)
        };
        assert_eq!(check(1_499, Some(price)), (Some(2_998), false));
        assert_eq!(check(1_500, Some(price)), (Some(3_000), true));
        assert_eq!(check(999, None), (None, false));
        assert_eq!(check(1_000, None), (None, true));
        assert_eq!(break_even(&own[1..], 7, None), None);
        assert_eq!(break_even(&[], 7, Some(price)), None);
    }
}
