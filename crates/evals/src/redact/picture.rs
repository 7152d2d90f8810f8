//! Recall by kind and false positives by family, ours beside detect-secrets.

use super::Measured;
use super::found::Found;
use crate::plot::{colour, escaped};

const WIDTH: f64 = 980.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 92.0;
/// The chart of kinds.
const KINDS_WIDTH: f64 = 380.0;
/// Bars of families begin here.
const BARS_LEFT: f64 = 690.0;
const BARS_WIDTH: f64 = 200.0;
const ROW: f64 = 15.0;

/// A scanner: its name, what it found, its colour.
type Scanner<'a> = (&'static str, &'a Found, &'static str);

pub fn svg(measured: &Measured) -> String {
    let mut scanners: Vec<Scanner> = vec![("Icecore", &measured.found, colour(0))];
    if let Some(peer) = &measured.peer {
        scanners.push(("detect-secrets, as strings", &peer.string.found, colour(1)));
        scanners.push(("detect-secrets, as files", &peer.file.found, colour(3)));
    }
    let families = measured.found.by_family.len() as f64;
    let height = TOP + families * ROW + 64.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#333\">\n\
         <title>What is hidden</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    svg += &text(LEFT, 28.0, "start", "bold", "#111", "Secrets found, by kind");
    svg += &text(BARS_LEFT - 150.0, 28.0, "start", "bold", "#111", "Hidden, though no secret");
    svg += &legend(&scanners);
    svg += &kinds(&scanners, height);
    svg += &families_chart(&scanners, height);
    svg + "</svg>\n"
}

fn text(x: f64, y: f64, anchor: &str, weight: &str, fill: &str, text: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-weight=\"{weight}\" \
         fill=\"{fill}\">{}</text>\n",
        escaped(text)
    )
}

fn legend(scanners: &[Scanner]) -> String {
    let one = |(number, (name, _, colour)): (usize, &Scanner)| {
        let x = LEFT + 190.0 * number as f64;
        format!("<rect x=\"{x}\" y=\"44\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n")
            + &text(x + 18.0, 54.0, "start", "normal", "#333", name)
    };
    scanners.iter().enumerate().map(one).collect()
}

/// A step for each kind, from the best found to the worst; each scanner in its
/// own order.
fn kinds(scanners: &[Scanner], height: f64) -> String {
    let bottom = height - 64.0;
    let y = |share: f64| bottom - share * (bottom - TOP);
    let mut svg = String::new();
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(share);
        svg += &format!("<path d=\"M{LEFT} {at:.1}h{KINDS_WIDTH}\" stroke=\"#e4e4e4\"/>\n");
        let label = format!("{:.0}%", share * 100.0);
        svg += &text(LEFT - 8.0, at + 4.0, "end", "normal", "#666", &label);
    }
    for (_, found, colour) in scanners.iter().rev() {
        let shares = found.worst_kinds().into_iter().rev().map(|(_, count)| count.share());
        let step = KINDS_WIDTH / found.by_kind.len().max(1) as f64;
        let path: Vec<String> = shares.map(|share| format!("V{:.1}h{step:.3}", y(share))).collect();
        svg += &format!(
            "<path d=\"M{LEFT} {:.1}{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\n",
            y(1.0),
            path.join("")
        );
    }
    let count = scanners.first().map_or(0, |scanner| scanner.1.by_kind.len());
    let label = format!("{count} kinds, best found first");
    svg + &text(LEFT + KINDS_WIDTH / 2.0, bottom + 22.0, "middle", "normal", "#666", &label)
}

/// A row of bars for each family.
fn families_chart(scanners: &[Scanner], height: f64) -> String {
    let Some((_, ours, _)) = scanners.first() else { return String::new() };
    let worst_of = |family: &str| -> f64 {
        let shares = scanners.iter().filter_map(|scanner| scanner.1.by_family.get(family));
        shares.map(|count| count.share()).fold(0.0, f64::max)
    };
    let mut families: Vec<&str> = ours.by_family.keys().copied().collect();
    families.sort_by(|a, b| worst_of(b).total_cmp(&worst_of(a)).then(a.cmp(b)));
    let bar = (ROW - 3.0) / scanners.len() as f64;
    let mut svg = String::new();
    for (row, family) in families.iter().enumerate() {
        let y = TOP + row as f64 * ROW;
        svg += &text(BARS_LEFT - 8.0, y + 10.0, "end", "normal", "#333", family);
        for (number, (_, found, colour)) in scanners.iter().enumerate() {
            let share = found.by_family.get(family).map_or(0.0, |count| count.share());
            svg += &format!(
                "<rect x=\"{BARS_LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{bar:.1}\" fill=\"{colour}\"/>\n",
                y + number as f64 * bar,
                share * BARS_WIDTH
            );
        }
        let label =
            format!("{:.2}%", ours.by_family.get(family).map_or(0.0, |n| n.share()) * 100.0);
        svg += &text(WIDTH - 20.0, y + 10.0, "end", "normal", colour(0), &label);
    }
    let bottom = height - 64.0;
    svg += &format!("<path d=\"M{BARS_LEFT} {TOP}V{bottom}\" stroke=\"#999\"/>\n");
    for (share, label) in [(0.0, "0%"), (0.5, "50%"), (1.0, "100%")] {
        let x = BARS_LEFT + share * BARS_WIDTH;
        svg += &text(x, bottom + 18.0, "middle", "normal", "#666", label);
    }
    svg + &text(BARS_LEFT, bottom + 38.0, "start", "normal", "#666", "share of texts, by family")
}
