//! What models cost and saved, as a table.

use icecore::models::{BreakEven, ModelStats, Spending};

use crate::draw::{money, number, table};
use crate::printer::{Printer, Tone};

/// The columns that are set to the right.
const RIGHTS: &[usize] = &[2, 3, 4, 5, 6, 7];

/// A line for each purpose and model, and whether it was worth it; nothing where no model
/// was ever asked.
pub fn picture(stats: &ModelStats, printer: &Printer) -> Vec<String> {
    if stats.spent.is_empty() {
        return Vec::new();
    }
    let head = ["for", "model", "asked", "failed", "reused", "read", "written", "cost"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(stats.spent.iter().map(row));
    let mut lines: Vec<String> =
        table(&rows, RIGHTS).into_iter().map(|line| format!("  {line}")).collect();
    lines[0] = printer.paint(Tone::Dim, &lines[0]);
    lines.push(format!("  {}", balance(stats)));
    lines
}

fn row(spent: &Spending) -> Vec<String> {
    vec![
        spent.purpose.clone(),
        spent.model.clone(),
        number(spent.calls),
        number(spent.failed),
        number(spent.reused),
        number(spent.input),
        number(spent.output),
        money(spent.cost),
    ]
}

fn balance(stats: &ModelStats) -> String {
    let saved = format!("{} tokens saved in contexts and views", number(stats.saved_tokens));
    let Some(even) = stats.break_even else { return saved };
    let BreakEven { spent_tokens, spent_cost, saved_cost, is_reached, .. } = even;
    let against = match saved_cost {
        Some(saved_cost) if spent_cost > 0 => {
            format!("worth {}, for {}", money(saved_cost), money(spent_cost))
        }
        _ => format!("for {} spent", number(spent_tokens)),
    };
    let word = if is_reached { "it has paid off" } else { "it has not paid off yet" };
    format!("{saved}, {against}: {word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balance_is_told_in_money_where_there_is_a_price() {
        let even = |spent_cost, saved_cost, is_reached| {
            let even = BreakEven {
                spent_tokens: 900,
                saved_tokens: 1_000,
                spent_cost,
                saved_cost,
                is_reached,
            };
            balance(&ModelStats {
                saved_tokens: 1_000,
                break_even: Some(even),
                ..ModelStats::default()
            })
        };
        assert_eq!(
            even(0, None, true),
            "1,000 tokens saved in contexts and views, for 900 spent: it has paid off"
        );
        assert_eq!(
            even(20_000, Some(3_000), false),
            "1,000 tokens saved in contexts and views, worth 0.0030, for 0.0200: it has not paid off yet"
        );
        assert_eq!(balance(&ModelStats::default()), "0 tokens saved in contexts and views");
    }
}
