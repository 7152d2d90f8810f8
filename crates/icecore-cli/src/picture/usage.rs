//! What a tenant keeps and used today beside what it may, as a table.
//!
//! ```text
//!   tenant acme          used        bound
//!   turns               1,234       10,000    12 %
//!   bytes             3.2 MiB      1.0 GiB     0 %
//!   requests today         12
//! ```

use icecore_host::bounds::TenantUsage;

use crate::draw::{bytes, number, table};
use crate::printer::{Printer, Tone};

/// The columns that are set to the right.
const RIGHTS: &[usize] = &[1, 2, 3];

/// From here on a share is shown as a warning, in percent.
const NEAR: u64 = 90;

/// A line for each thing that is counted; nothing where there is nothing to tell.
pub fn picture(usage: &TenantUsage, tenant: &str, printer: &Printer) -> Vec<String> {
    let (used, bounds) = (&usage.used, &usage.bounds);
    let plain: fn(u64) -> String = number;
    let counted = [
        ("turns", used.turns, bounds.turns, plain),
        ("bytes", used.bytes, bounds.bytes, bytes),
        ("requests today", used.day.requests, bounds.requests_a_day, plain),
        ("tokens today", used.day.tokens, bounds.tokens_a_day, plain),
    ];
    if counted.iter().all(|(_, used, bound, _)| *used == 0 && *bound == 0) {
        return Vec::new();
    }
    let head = [&format!("tenant {tenant}"), "used", "bound", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (name, used, bound, shown) in counted {
        let (most, share) = match bound {
            0 => ("none".to_owned(), String::new()),
            bound => (shown(bound), format!("{} %", percent(used, bound))),
        };
        rows.push(vec![name.to_owned(), shown(used), most, share]);
    }
    let mut lines: Vec<String> =
        table(&rows, RIGHTS).into_iter().map(|line| format!("  {line}")).collect();
    lines[0] = printer.paint(Tone::Dim, &lines[0]);
    for (line, (_, used, bound, _)) in lines[1..].iter_mut().zip(counted) {
        if bound > 0 && percent(used, bound) >= NEAR {
            *line = printer.paint(Tone::Note, line);
        }
    }
    if bounds.requests_a_day > 0 || bounds.tokens_a_day > 0 {
        let ends = format!("  the day ends at {}", usage.day_ends);
        lines.push(printer.paint(Tone::Dim, &ends));
    }
    lines
}

fn percent(used: u64, bound: u64) -> u64 {
    (u128::from(used) * 100 / u128::from(bound.max(1))).min(999) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_has_its_most() {
        assert_eq!(percent(9_999, 10_000), 99);
        assert_eq!(percent(10_000, 10_000), 100);
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(u64::MAX, 1), 999);
    }
}
