//! Small things to draw with: numbers, columns, wrapped text.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `1234567` as `1,234,567`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the largest unit that leaves at least one.
pub fn bytes(value: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut amount = value as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", units[unit])
}

/// Millionths as money, to the hundredth of a hundredth.
pub fn money(millionths: u64) -> String {
    format!("{}.{:04}", number(millionths / 1_000_000), millionths % 1_000_000 / 100)
}

/// `1 turn`, `2 turns`.
pub fn count(value: u64, noun: &str) -> String {
    match (value, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{} {stem}ies", number(value)),
        (_, None) => format!("{} {noun}s", number(value)),
    }
}

/// Text that a terminal shows and does not obey.
pub fn harmless(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        '\u{7f}' => '␡',
        c if (c as u32) < 0x20 => char::from_u32(0x2400 + c as u32).unwrap_or('?'),
        // C1 controls and what turns the direction of text around.
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// At most `columns` wide, with an ellipsis if something is left out.
pub fn clip(text: &str, columns: usize) -> String {
    let text: String = harmless(text).replace(['\n', '\t'], " ");
    if text.width() <= columns {
        return text;
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        out.push(c);
    }
    format!("{}…", out.trim_end())
}

/// Filled with blanks on the right to `columns`.
pub fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(text.width())))
}

/// Filled with blanks on the left to `columns`.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(text.width())))
}

/// Lines of at most `columns`, broken between words where possible.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    harmless(text).split('\n').flat_map(|line| wrap_line(line, columns.max(8))).collect()
}

fn wrap_line(line: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut current) = (Vec::new(), String::new());
    for word in line.split(' ') {
        let gap = usize::from(!current.is_empty());
        if current.width() + gap + word.width() <= columns {
            if gap == 1 {
                current.push(' ');
            }
            current.push_str(word);
            continue;
        }
        if !current.is_empty() {
            lines.push(std::mem::take(&mut current));
        }
        for c in word.chars() {
            if current.width() + c.width().unwrap_or(0) > columns {
                lines.push(std::mem::take(&mut current));
            }
            current.push(c);
        }
    }
    lines.push(current);
    lines
}

/// Rows as aligned columns; the first row is the head. `rights` are the columns
/// that hold numbers.
pub fn table(rows: &[Vec<String>], rights: &[usize]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(at, cell)| match rights.contains(&at) {
            true => right(cell, widths[at]),
            false => left(cell, widths[at]),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Shares `total` out by weight: every weight above zero gets at least `least`,
/// and all of it is given.
pub fn share(weights: &[u64], total: usize, least: usize) -> Vec<usize> {
    let sum: u64 = weights.iter().sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let part = |weight: &u64| match weight {
        0 => 0,
        weight => ((*weight as f64 / sum as f64 * total as f64).round() as usize).max(least),
    };
    let mut parts: Vec<usize> = weights.iter().map(part).collect();
    // Rounding and the least may have given too much or too little: the largest
    // can bear it.
    while let Some(largest) = (0..parts.len()).max_by_key(|at| parts[*at]) {
        match parts.iter().sum::<usize>().cmp(&total) {
            std::cmp::Ordering::Less => parts[largest] += 1,
            std::cmp::Ordering::Greater if parts[largest] > least.max(1) => parts[largest] -= 1,
            _ => break,
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1234567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1023, 1536, 5 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([count(1, "turn"), count(2, "entry")], ["1 turn", "2 entries"]);
    }

    #[test]
    fn money_is_told_to_the_fourth_place() {
        assert_eq!(money(0), "0.0000");
        assert_eq!(money(4_299), "0.0042");
        assert_eq!(money(1_234_000_000), "1,234.0000");
    }

    #[test]
    fn text_fits_and_cannot_command_the_terminal() {
        assert_eq!(clip("a long\nsentence", 8), "a long…");
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(harmless("\x1b[2Jx\u{202e}"), "␛[2Jx\u{fffd}");
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(share(&[1, 1, 98], 10, 2), [2, 2, 6]);
        assert_eq!(share(&[0, 5, 0], 10, 2), [0, 10, 0]);
        assert_eq!(share(&[0, 0], 10, 1), [0, 0]);
        assert_eq!(share(&[1, 1, 1], 10, 1).iter().sum::<usize>(), 10);
    }
}
