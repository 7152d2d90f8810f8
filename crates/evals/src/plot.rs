//! Line charts as SVG, each line with its name at its end.

/// A chart whose horizontal axis is logarithmic.
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub y_scale: Scale,
    pub lines: Vec<Line>,
}

/// The vertical axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Shares, from 0 to 100%.
    Percent,
    /// 1, 2, 5, 10 and so on.
    Log,
}

/// A line: its first is drawn as the one that matters.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 56.0;

/// Names of lines are this far apart.
const LABEL_STEP: f64 = 16.0;

const COLOURS: [&str; 6] = ["#0b66c3", "#b4540a", "#3f7d3a", "#7a7a7a", "#8a4fa3", "#a8324a"];

impl Chart {
    /// The chart as a document.
    pub fn svg(&self) -> String {
        let frame = Frame::around(self);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333\">\n\
             <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"28\" font-size=\"17\" font-weight=\"bold\" fill=\"#111\">{title}</text>\n\
             <text x=\"{LEFT}\" y=\"48\" fill=\"#666\">{y_label}</text>\n",
            title = escaped(&self.title),
            y_label = escaped(&self.y_label),
        );
        svg.push_str(&self.grid(&frame));
        for (number, line) in self.lines.iter().enumerate().rev() {
            svg.push_str(&drawn(line, number, &frame));
        }
        svg.push_str(&self.names(&frame));
        svg.push_str("</svg>\n");
        svg
    }

    fn grid(&self, frame: &Frame) -> String {
        let mut svg = String::new();
        let right = WIDTH - RIGHT;
        for (value, label) in frame.y_ticks() {
            let y = frame.y(value);
            svg.push_str(&format!(
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e4e4e4\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{label}</text>\n",
                LEFT - 8.0,
                y + 4.0
            ));
        }
        let bottom = HEIGHT - BOTTOM;
        for value in self.x_values() {
            let x = frame.x(value);
            svg.push_str(&format!(
                "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#999\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{}</text>\n",
                bottom + 20.0,
                grouped(value)
            ));
        }
        svg.push_str(&format!(
            "<path d=\"M{LEFT} {bottom}H{right}\" stroke=\"#999\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{}</text>\n",
            f64::midpoint(LEFT, right),
            HEIGHT - 14.0,
            escaped(&self.x_label)
        ));
        svg
    }

    fn x_values(&self) -> Vec<f64> {
        let mut values: Vec<f64> =
            self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }

    /// The lines' names at their ends, moved apart where they would touch.
    fn names(&self, frame: &Frame) -> String {
        let mut ends: Vec<(f64, usize)> = self
            .lines
            .iter()
            .enumerate()
            .filter_map(|(number, line)| Some((frame.y(line.points.last()?.1), number)))
            .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut svg = String::new();
        let mut lowest = f64::NEG_INFINITY;
        for (y, number) in ends {
            let y = y.max(lowest + LABEL_STEP);
            lowest = y;
            let weight = if number == 0 { " font-weight=\"bold\"" } else { "" };
            svg.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\"{weight}>{}</text>\n",
                WIDTH - RIGHT + 10.0,
                y + 4.0,
                colour(number),
                escaped(&self.lines[number].name)
            ));
        }
        svg
    }
}

fn drawn(line: &Line, number: usize, frame: &Frame) -> String {
    let places: Vec<(f64, f64)> =
        line.points.iter().map(|(x, y)| (frame.x(*x), frame.y(*y))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let (width, radius) = if number == 0 { (3.0, 4.0) } else { (1.75, 2.75) };
    let colour = colour(number);
    let mut svg = format!(
        "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
         stroke-linejoin=\"round\"/>\n",
        path.join("L")
    );
    for (x, y) in places {
        svg.push_str(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>\n"
        ));
    }
    svg
}

/// The colour of a line: the first is the one that matters.
pub fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// From values to places.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    scale: Scale,
}

impl Frame {
    fn around(chart: &Chart) -> Self {
        let points = || chart.lines.iter().flat_map(|line| &line.points);
        let span = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let (low, high) = span(&mut points().map(|point| point.0));
        let y = match chart.y_scale {
            Scale::Percent => (0.0, 1.0),
            Scale::Log => {
                let (low, high) = span(&mut points().map(|point| point.1));
                let below = steps().rfind(|step| *step <= low).unwrap_or(low);
                let above = steps().find(|step| *step >= high && *step > below).unwrap_or(high);
                (below.log10(), above.log10())
            }
        };
        Self { x: (low.log10(), high.log10()), y, scale: chart.y_scale }
    }

    fn x(&self, value: f64) -> f64 {
        let share = match self.x.1 - self.x.0 {
            span if span > 0.0 => (value.log10() - self.x.0) / span,
            _ => 0.5,
        };
        LEFT + 12.0 + share * (WIDTH - LEFT - RIGHT - 24.0)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Log { value.log10() } else { value };
        let share = (value - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn y_ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Percent => {
                (0..=5).map(|n| (f64::from(n) / 5.0, format!("{}%", n * 20))).collect()
            }
            Scale::Log => steps()
                .filter(|step| (self.y.0..=self.y.1).contains(&step.log10()))
                .map(|step| (step, grouped(step)))
                .collect(),
        }
    }
}

/// 1, 2 and 5 with every power of ten that we could need.
fn steps() -> impl DoubleEndedIterator<Item = f64> {
    let of = |power: i32| [1.0, 2.0, 5.0].map(|step| format!("{step}e{power}"));
    (-3..7).flat_map(of).filter_map(|step| step.parse().ok())
}

/// A number with commas between thousands.
pub fn grouped(value: f64) -> String {
    if value < 1.0 {
        return format!("{value}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Text that may stand in a document.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(y_scale: Scale) -> Chart {
        let line = |name: &str, y: f64| Line {
            name: name.to_owned(),
            points: vec![(500.0, y / 2.0), (1000.0, y)],
        };
        Chart {
            title: "Found & kept".to_owned(),
            x_label: "tokens".to_owned(),
            y_label: "share".to_owned(),
            y_scale,
            lines: vec![line("ours", 0.9), line("theirs", 0.89)],
        }
    }

    /// Every tag that opens is closed by itself or by its own end.
    fn is_well_formed(svg: &str) -> bool {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let Some((inside, text)) = tag.split_once('>') else { return false };
            let is_quoted = inside.matches('"').count() % 2 == 0;
            if !is_quoted || text.contains('&') && !text.contains(';') {
                return false;
            }
            let name = inside.trim_end_matches('/').split([' ', '\n']).next().unwrap_or_default();
            match name.strip_prefix('/') {
                Some(name) if open.pop() != Some(name) => return false,
                None if !inside.ends_with('/') => open.push(name),
                _ => {}
            }
        }
        open.is_empty()
    }

    #[test]
    fn a_chart_is_well_formed() {
        for scale in [Scale::Percent, Scale::Log] {
            let svg = chart(scale).svg();
            assert!(is_well_formed(&svg), "{svg}");
            assert!(svg.contains("Found &amp; kept") && !svg.contains("NaN"));
        }
    }

    #[test]
    fn names_do_not_touch() {
        let svg = chart(Scale::Percent).svg();
        let places: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains(">ours<") || line.contains(">theirs<"))
            .map(|line| line.split("y=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|y| y.parse().unwrap())
            .collect();
        assert!(places[1] - places[0] >= LABEL_STEP);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [0.1, 12.0, 1_000.0, 1_234_567.0].map(grouped),
            ["0.1", "12", "1,000", "1,234,567"]
        );
    }
}
