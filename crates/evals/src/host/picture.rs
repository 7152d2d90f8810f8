//! Two pictures: memory over time, and how long requests took in each scenario.

use serde_json::Value;

use crate::plot::{colour, escaped, grouped};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 48.0;

/// Resident memory of a soak.
pub fn soak(document: &Value) -> Option<String> {
    let slope = document["mibPerMinute"].as_f64().unwrap_or(0.0);
    let under = format!("MiB resident; {slope:+.2} MiB a minute in the second half");
    let points = points(document)?.into_iter().map(|(at, mib)| (at / 60.0, mib)).collect();
    let along = Along { name: "minutes", least: 0.1, label: |at| format!("{at:.1}") };
    Some(memory("Memory of the host under moderate load", &under, points, &along))
}

/// Resident memory of a proxy over its requests.
pub fn requests(document: &Value) -> Option<String> {
    let more = document["morePercent"].as_f64().unwrap_or(0.0);
    let under = format!(
        "MiB resident; two thirds of the requests add turns, the last adds none: {more:+.1}% within it"
    );
    let along = Along { name: "requests", least: 1.0, label: |at| grouped(at.round()) };
    Some(memory("Memory of the proxy over its requests", &under, points(document)?, &along))
}

/// Resident memory over memories that were touched.
pub fn touched(document: &Value) -> Option<String> {
    let more = document["growthPercent"].as_f64().unwrap_or(0.0);
    let under = format!("MiB resident; {more:+.1}% in the second half");
    let along = Along { name: "memories touched", least: 1.0, label: |at| grouped(at.round()) };
    Some(memory("Memory of the host over memories", &under, points(document)?, &along))
}

fn points(document: &Value) -> Option<Vec<(f64, f64)>> {
    let samples = document["residentMib"].as_array()?.iter();
    Some(samples.filter_map(|pair| Some((pair[0].as_f64()?, pair[1].as_f64()?))).collect())
}

/// What memory is drawn over.
struct Along {
    name: &'static str,
    least: f64,
    label: fn(f64) -> String,
}

fn memory(title: &str, under: &str, points: Vec<(f64, f64)>, along: &Along) -> String {
    let (furthest, most) = points
        .iter()
        .fold((0.0_f64, 0.0_f64), |most, point| (most.0.max(point.0), most.1.max(point.1)));
    let (furthest, most) = (furthest.max(along.least), (most * 1.2).max(1.0));
    let x = |at: f64| LEFT + at / furthest * (WIDTH - LEFT - RIGHT);
    let y = |mib: f64| HEIGHT - BOTTOM - mib / most * (HEIGHT - TOP - BOTTOM);
    let mut svg = begun(title, under, HEIGHT);
    for tick in 0..=4 {
        let (mib, at) = (most * f64::from(tick) / 4.0, furthest * f64::from(tick) / 4.0);
        svg += &format!(
            "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"#e4e4e4\"/>\n",
            y(mib),
            WIDTH - RIGHT
        );
        svg += &text(LEFT - 8.0, y(mib) + 4.0, "end", &grouped(mib.round()));
        svg += &text(x(at), HEIGHT - BOTTOM + 20.0, "middle", &(along.label)(at));
    }
    svg += &text(f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 8.0, "middle", along.name);
    let line: Vec<String> =
        points.iter().map(|point| format!("{:.1} {:.1}", x(point.0), y(point.1))).collect();
    svg += &format!(
        "<path d=\"M{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"/>\n",
        line.join("L"),
        colour(0)
    );
    svg + "</svg>\n"
}

/// A bar to p99 with its p50 and p95, for each group of requests.
pub fn times(document: &Value) -> Option<String> {
    let mut bars = Vec::new();
    for (scenario, found) in document.as_object()? {
        for (name, tally) in found.as_object()? {
            let at = |share: &str| tally["allMs"][share].as_f64();
            if let (Some(p50), Some(p95), Some(p99)) = (at("p50"), at("p95"), at("p99")) {
                let name =
                    if scenario == name { name.clone() } else { format!("{scenario}: {name}") };
                bars.push((name, [p50, p95, p99]));
            }
        }
    }
    let most = bars.iter().map(|bar| bar.1[2]).fold(0.1, f64::max);
    let height = TOP + 30.0 * bars.len() as f64 + 16.0;
    let mut svg = begun("How long requests took", "ms at p50, p95 and p99", height);
    for (number, (name, shares)) in bars.iter().enumerate() {
        let y = TOP + 30.0 * number as f64;
        svg += &text(210.0, y + 14.0, "end", name);
        for (tone, ms) in shares.iter().enumerate().rev() {
            let (width, opacity) = (ms / most * 380.0, [1.0, 0.55, 0.25][tone]);
            svg += &format!(
                "<rect x=\"220\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\" fill=\"{}\" \
                 fill-opacity=\"{opacity}\"/>\n",
                colour(0)
            );
        }
        let label = shares.map(|ms| format!("{ms:.1}")).join(" · ");
        svg += &text(228.0 + shares[2] / most * 380.0, y + 14.0, "start", &label);
    }
    (!bars.is_empty()).then(|| svg + "</svg>\n")
}

fn begun(title: &str, under: &str, height: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"24\" y=\"28\" font-size=\"17\" font-weight=\"bold\" fill=\"#111\">{title}</text>\n\
         <text x=\"24\" y=\"48\" fill=\"#666\">{}</text>\n",
        escaped(under)
    )
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    let text = escaped(text);
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pictures_show_what_there_is() {
        let soaked = json!({ "residentMib": [[0.0, 80.0], [60.0, 90.0]], "mibPerMinute": 0.5 });
        let svg = soak(&soaked).unwrap();
        assert!(svg.contains("+0.50 MiB a minute") && !svg.contains("NaN"), "{svg}");
        assert_eq!(soak(&Value::Null), None);
        let asked = json!({ "residentMib": [[0.0, 80.0], [9000.0, 90.0]], "morePercent": 1.5 });
        let svg = requests(&asked).unwrap();
        assert!(svg.contains("adds none: +1.5% within it") && svg.contains(">9,000<"), "{svg}");
        let document =
            json!({ "mixed": { "mixed": { "allMs": { "p50": 1.0, "p95": 2.0, "p99": 4.0 } } } });
        assert!(times(&document).unwrap().contains("1.0 · 2.0 · 4.0"));
        assert_eq!(times(&json!({})), None);
    }
}
