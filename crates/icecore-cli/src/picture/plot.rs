//! Dreams as an SVG: tokens used of the budget, and sizes before and after. Readable on
//! light and on dark ground.

use icecore::dreams::{DreamRecord, DreamState};

use crate::draw::{bytes, count, number};

const WIDTH: f64 = 820.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
/// Where each panel begins, and how high it is.
const PANELS: [f64; 2] = [84.0, 352.0];
const PANEL_HEIGHT: f64 = 180.0;
const HEIGHT: f64 = 596.0;

/// More dreams than this are not drawn: the newest are.
const MOST: usize = 120;

/// Labels of the horizontal axis, at most.
const LABELS: usize = 12;

const STYLE: &str = "\
text{font:13px Helvetica,Arial,sans-serif;fill:#555}\
.title{font-size:17px;font-weight:bold;fill:#111}.head{font-weight:bold;fill:#222}\
.ground{fill:#fff}.grid{stroke:#e3e6ea}.axis{stroke:#8a9199}\
.read{fill:#0b66c3}.written{fill:#e08a1e}.budget{stroke:#b3261e;stroke-width:2;fill:none}\
.before{fill:#8fa3b5}.after{fill:#0b66c3}.gone{opacity:.35}\
@media(prefers-color-scheme:dark){text{fill:#aab4be}.title{fill:#f2f5f8}.head{fill:#dde3e9}\
.ground{fill:#12161b}.grid{stroke:#2a3138}.axis{stroke:#6b757f}\
.read{fill:#5aa9f5}.written{fill:#f0b15c}.budget{stroke:#ff8a80}\
.before{fill:#5d6f80}.after{fill:#5aa9f5}}";

/// The plot of dreams, oldest first, of what goes by a name.
pub fn dreams(dreams: &[DreamRecord], whose: &str) -> String {
    let shown = &dreams[dreams.len().saturating_sub(MOST)..];
    let first = dreams.len() - shown.len() + 1;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"32\">{title}</text>\n",
        title = escaped(&title(dreams.len(), shown.len(), whose)),
    );
    svg.push_str(&tokens(shown, first));
    svg.push_str(&sizes(shown, first));
    svg.push_str("</svg>\n");
    svg
}

fn title(all: usize, shown: usize, whose: &str) -> String {
    match all == shown {
        true => format!("{} of {whose}", count(all as u64, "dream")),
        false => format!("The last {shown} of {} dreams of {whose}", number(all as u64)),
    }
}

/// What was read and written, under the budget.
fn tokens(dreams: &[DreamRecord], first: usize) -> String {
    let most = dreams.iter().map(|dream| dream.figures.budget).max().unwrap_or(1);
    let panel = Panel { top: PANELS[0], places: dreams.len(), first, most: round_up(most) };
    let mut svg = panel.frame("Tokens used of the budget", "tokens", &number);
    svg.push_str(&key(
        PANELS[0],
        &[("read", "read"), ("written", "written"), ("budget", "budget")],
    ));
    let mut line = String::new();
    for (at, dream) in dreams.iter().enumerate() {
        let figures = dream.figures;
        let (x, width) = panel.bar(at, 0.7, 0.0);
        let read = panel.height(figures.input_tokens);
        let written = panel.height(figures.output_tokens);
        let tip = format!(
            "dream {}: {} read, {} written, {} allowed",
            first + at,
            number(figures.input_tokens),
            number(figures.output_tokens),
            number(figures.budget)
        );
        let bars = [("read", 0.0, read), ("written", read, written)];
        svg.push_str(&group(dream, &tip, &panel, x, width, &bars));
        let y = panel.bottom() - panel.height(figures.budget);
        let (from, step) = panel.bar(at, 0.94, 0.0);
        line.push_str(&format!("M{from:.1} {y:.1}h{step:.1}"));
    }
    svg.push_str(&format!("<path class=\"budget\" d=\"{line}\"/>\n"));
    svg
}

/// The bytes that a dream stood for, and those that stand for them.
fn sizes(dreams: &[DreamRecord], first: usize) -> String {
    let sizes = dreams.iter().map(|dream| dream.figures);
    let most = sizes.map(|figures| figures.bytes_before.max(figures.bytes_after)).max();
    let most = round_up_bytes(most.unwrap_or(1));
    let panel = Panel { top: PANELS[1], places: dreams.len(), first, most };
    let mut svg = panel.frame("Memory before and after each dream", "bytes", &bytes);
    svg.push_str(&key(PANELS[1], &[("before", "before"), ("after", "after")]));
    for (at, dream) in dreams.iter().enumerate() {
        let figures = dream.figures;
        let tip = format!(
            "dream {}: {} before, {} after",
            first + at,
            bytes(figures.bytes_before),
            bytes(figures.bytes_after)
        );
        let pairs = [("before", figures.bytes_before, 0.0), ("after", figures.bytes_after, 0.35)];
        for (class, size, shift) in pairs {
            let (x, width) = panel.bar(at, 0.35, shift - 0.175);
            let bars = [(class, 0.0, panel.height(size))];
            svg.push_str(&group(dream, &tip, &panel, x, width, &bars));
        }
    }
    svg
}

/// A panel: places side by side, values from nothing to the most.
struct Panel {
    top: f64,
    places: usize,
    /// The number of the first place.
    first: usize,
    most: u64,
}

impl Panel {
    fn bottom(&self) -> f64 {
        self.top + PANEL_HEIGHT
    }

    fn step(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.places.max(1) as f64
    }

    fn height(&self, value: u64) -> f64 {
        value as f64 / self.most.max(1) as f64 * PANEL_HEIGHT
    }

    /// Where a bar stands that takes this share of its place, shifted by another.
    fn bar(&self, at: usize, share: f64, shift: f64) -> (f64, f64) {
        // A few dreams are not drawn as walls.
        let step = self.step();
        let wide = step.min(72.0);
        let middle = LEFT + (at as f64 + 0.5) * step;
        (middle + (shift - share / 2.0) * wide, share * wide)
    }

    fn frame(&self, head: &str, unit: &str, shown: &dyn Fn(u64) -> String) -> String {
        let (top, bottom, right) = (self.top, self.bottom(), WIDTH - RIGHT);
        let mut svg = format!(
            "<text class=\"head\" x=\"{LEFT}\" y=\"{:.1}\">{head}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{unit}</text>\n",
            top - 22.0,
            LEFT - 8.0,
            top - 22.0,
        );
        for quarter in 0..=4 {
            let value = self.most * quarter / 4;
            let y = bottom - self.height(value);
            svg.push_str(&format!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 8.0,
                y + 4.0,
                shown(value)
            ));
        }
        let every = self.places.div_ceil(LABELS).max(1);
        for at in (0..self.places).step_by(every) {
            let x = LEFT + (at as f64 + 0.5) * self.step();
            svg.push_str(&format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                bottom + 18.0,
                self.first + at
            ));
        }
        svg.push_str(&format!(
            "<path class=\"axis\" d=\"M{LEFT} {bottom:.1}H{right}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">dream, oldest first</text>\n",
            f64::midpoint(LEFT, right),
            bottom + 38.0
        ));
        svg
    }
}

/// Bars on top of each other, with what a pointer is told of them.
fn group(
    dream: &DreamRecord,
    tip: &str,
    panel: &Panel,
    x: f64,
    width: f64,
    bars: &[(&str, f64, f64)],
) -> String {
    // What was taken back or forgotten is there no more, but was.
    let gone = match dream.state {
        DreamState::Undone | DreamState::Erased => " class=\"gone\"",
        DreamState::InForce | DreamState::Superseded => "",
    };
    let mut svg = format!("<g{gone}><title>{}</title>", escaped(tip));
    for (class, above, height) in bars {
        let y = panel.bottom() - above - height;
        svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }
    svg.push_str("</g>\n");
    svg
}

/// What the colours mean, at the right above a panel.
fn key(top: f64, names: &[(&str, &str)]) -> String {
    let mut svg = String::new();
    let mut x = WIDTH - RIGHT;
    for (class, name) in names.iter().rev() {
        x -= 24.0 + 7.0 * name.len() as f64;
        let y = top - 32.0;
        svg.push_str(&match *class {
            "budget" => {
                format!("<path class=\"budget\" d=\"M{x:.1} {:.1}h12\"/>\n", y + 6.0)
            }
            class => format!(
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\"/>\n"
            ),
        });
        svg.push_str(&format!("<text x=\"{:.1}\" y=\"{:.1}\">{name}</text>\n", x + 17.0, y + 11.0));
    }
    svg
}

/// The next number whose quarters read well.
fn round_up(value: u64) -> u64 {
    let mut step: u64 = 1;
    while step <= value / 100 {
        step = step.saturating_mul(10);
    }
    let ends = [4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 60, 64, 80, 100];
    let fits = ends.into_iter().map(|times| step.saturating_mul(times));
    fits.into_iter().find(|most| *most >= value).unwrap_or(value)
}

/// The same in the unit in which so many bytes are shown.
fn round_up_bytes(value: u64) -> u64 {
    let mut unit: u64 = 1;
    while value / unit >= 1024 {
        unit *= 1024;
    }
    round_up(value.div_ceil(unit)).saturating_mul(unit)
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // What XML cannot say.
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let ends = [0, 1, 5, 13, 101, 12_000, 64_000, 64_001, 99_999].map(round_up);
        assert_eq!(ends, [4, 4, 8, 16, 120, 12_000, 64_000, 80_000, 100_000]);
        assert_eq!(round_up(u64::MAX), u64::MAX);
        let ends = [900, 1_025, 7_500, 3 << 20].map(round_up_bytes);
        assert_eq!(ends, [1_000, 4 << 10, 8 << 10, 4 << 20]);
        assert_eq!(round_up_bytes(u64::MAX), u64::MAX);
    }

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escaped("a<b>&\u{1}"), "a&lt;b&gt;&amp;\u{fffd}");
    }
}
