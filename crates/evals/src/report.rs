//! Tables for people, and one JSON document for programs.

use serde_json::{Value, json};

use crate::data::Dataset;
use crate::measures::{ALL, CONTEXT, Means, Record, SEARCH, Task, percentile};
use crate::plot::{Chart, Line, Scale};
use crate::recall::{BASELINES, Ingest, Measured, OURS, PLOTTED_BUDGETS, SYSTEMS};
use crate::stretches::Kept;

/// A table as text: the first column is left-aligned, the rest are figures.
pub fn table(title: &str, heads: &[String], rows: &[Vec<String>]) -> String {
    let lines = || std::iter::once(heads).chain(rows.iter().map(Vec::as_slice));
    let width = |at: usize| lines().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = format!("\n{title}\n");
    for row in lines() {
        let mut line = format!("  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A figure of a table; `-` where there is none.
pub fn figure(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3}"))
}

/// Cells of a table.
pub fn strings(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}x", ours / theirs),
        _ => "-".to_owned(),
    }
}

/// Means of one system at one task.
pub fn means(records: &[Record], system: &str, task: Task) -> Means {
    Means::of(records.iter().filter(|record| record.system == system && record.task == task))
}

/// Everything that `recall` prints about a file.
pub fn recall(dataset: &Dataset, measured: &Measured, budgets: &[u32]) -> String {
    let mut text = format!(
        "\n== {}: {} conversations, {} turns, {} questions with evidence\n",
        dataset.name,
        dataset.conversations.len(),
        dataset.turn_count(),
        measured.records.iter().filter(|r| r.system == OURS && r.task == Task::Search).count(),
    );
    text.push_str(&search(&measured.records));
    text.push_str(&search_by_category(&measured.records, "search by category, hybrid"));
    text.push_str(&context(&measured.records, budgets));
    text.push_str(&context_by_category(&measured.records, budgets));
    text.push_str(&latency(&measured.records, budgets));
    text
}

fn search(records: &[Record]) -> String {
    let mut heads = strings(&["", "n"]);
    heads.extend(strings(&SEARCH));
    let row = |system: &&str| {
        let means = means(records, system, Task::Search);
        let mut row = vec![(*system).to_owned(), means.count(ALL).to_string()];
        row.extend(SEARCH.map(|measure| figure(means.get(ALL, measure))));
        row
    };
    let mut rows: Vec<Vec<String>> = SYSTEMS.iter().map(row).collect();
    let (ours, bm25) = (means(records, OURS, Task::Search), means(records, "BM25", Task::Search));
    let mut last = vec![format!("{OURS} / BM25"), String::new()];
    last.extend(SEARCH.map(|measure| ratio(ours.get(ALL, measure), bm25.get(ALL, measure))));
    rows.push(last);
    table("search, turns, ALL", &heads, &rows)
}

/// Ours beside BM25 for each category.
pub fn search_by_category(records: &[Record], title: &str) -> String {
    let measures = ["R@5", "R@10", "all@5"];
    let mut heads = strings(&["", "n"]);
    measures.iter().for_each(|measure| heads.extend(strings(&[measure, "BM25", "ratio"])));
    let (ours, bm25) = (means(records, OURS, Task::Search), means(records, "BM25", Task::Search));
    let row = |category: &str| {
        let mut row = vec![category.to_owned(), ours.count(category).to_string()];
        for measure in measures {
            let (mine, other) = (ours.get(category, measure), bm25.get(category, measure));
            row.extend([figure(mine), figure(other), ratio(mine, other)]);
        }
        row
    };
    table(title, &heads, &ours.categories().map(row).collect::<Vec<_>>())
}

fn context(records: &[Record], budgets: &[u32]) -> String {
    let mut heads = strings(&["budget"]);
    CONTEXT.iter().for_each(|measure| heads.extend(strings(&[measure, "BM25", "ratio"])));
    heads.extend(strings(&["dense evid", "newest evid"]));
    let row = |budget: &u32| {
        let of = |system: &str| means(records, system, Task::Context(*budget));
        let (ours, bm25) = (of(OURS), of("BM25"));
        let mut row = vec![budget.to_string()];
        for measure in CONTEXT {
            let cell = |value: Option<f64>| match measure {
                "tokens" => value.map_or("-".to_owned(), |value| format!("{value:.0}")),
                _ => figure(value),
            };
            let (mine, other) = (ours.get(ALL, measure), bm25.get(ALL, measure));
            row.extend([cell(mine), cell(other), ratio(mine, other)]);
        }
        row.extend(["dense", "newest"].map(|system| figure(of(system).get(ALL, "evid"))));
        row
    };
    table("context, ALL", &heads, &budgets.iter().map(row).collect::<Vec<_>>())
}

fn context_by_category(records: &[Record], budgets: &[u32]) -> String {
    let mut heads = strings(&["evid at"]);
    budgets.iter().for_each(|budget| heads.extend([budget.to_string(), "BM25".to_owned()]));
    let of = |system: &str, budget: &u32| means(records, system, Task::Context(*budget));
    let found: Vec<(Means, Means)> =
        budgets.iter().map(|budget| (of(OURS, budget), of("BM25", budget))).collect();
    let row = |category: &str| {
        let mut row = vec![category.to_owned()];
        for (ours, bm25) in &found {
            row.extend([ours, bm25].map(|means| figure(means.get(category, "evid"))));
        }
        row
    };
    let Some((first, _)) = found.first() else { return String::new() };
    table("context by category", &heads, &first.categories().map(row).collect::<Vec<_>>())
}

fn latency(records: &[Record], budgets: &[u32]) -> String {
    let row = |label: String, system: &str, task: Task| {
        let mut row = vec![label];
        row.extend(latency_cells(times(records, system, task)));
        row
    };
    let mut rows: Vec<Vec<String>> = SYSTEMS
        .iter()
        .filter(|system| !BASELINES.contains(system))
        .map(|system| row(format!("search {system}"), system, Task::Search))
        .collect();
    rows.extend(budgets.iter().map(|b| row(format!("context {b}"), OURS, Task::Context(*b))));
    table("latency, ms", &strings(&["", "n", "p50", "p95", "max"]), &rows)
}

fn times(records: &[Record], system: &str, task: Task) -> Vec<f64> {
    let matching = records.iter().filter(|r| r.system == system && r.task == task);
    matching.map(|record| record.took.as_secs_f64() * 1e3).collect()
}

/// How many, the median, the 95th percentile and the most, in milliseconds.
pub fn latency_cells(mut ms: Vec<f64>) -> [String; 4] {
    ms.sort_by(f64::total_cmp);
    let at = |share: f64| format!("{:.3}", percentile(&ms, share));
    [ms.len().to_string(), at(0.5), at(0.95), at(1.0)]
}

/// What two fifths of the tokens of a hundred turns keep.
pub fn kept(kept: &Kept) -> String {
    let of = |measure: &str| figure(kept.means.get(ALL, measure));
    let rows = [vec![
        kept.stretches.to_string(),
        kept.means.count(ALL).to_string(),
        of("evid"),
        of("all"),
        of("sent"),
        (kept.raw_tokens / kept.stretches.max(1) as u64).to_string(),
        kept.means.get(ALL, "tokens").map_or("-".to_owned(), |tokens| format!("{tokens:.0}")),
    ]];
    let heads = ["stretches", "n", "evid", "all", "sent", "raw tokens", "tokens"];
    table("100 turns in 40% of their tokens, ALL", &strings(&heads), &rows)
}

/// What it cost, and what was broken.
pub fn closing(ingest: &Ingest, measured: &Measured) -> String {
    let problems: Vec<String> = measured
        .problems
        .iter()
        .map(|(problem, times)| format!("{problem} ({times} times)"))
        .collect();
    format!(
        "\n  ingest {:.0} turns/s settled\n  disk {} bytes per 1,000 turns\n  {} token counts checked; problems: {}\n",
        ingest.turns as f64 / ingest.took.as_secs_f64(),
        ingest.disk_bytes * 1000 / ingest.turns.max(1) as u64,
        measured.counted,
        if problems.is_empty() { "none".to_owned() } else { problems.join("; ") },
    )
}

/// The figures on each half of the conversations, every other one.
pub fn folds(records: &[Record], budgets: &[u32]) -> String {
    let mut text = String::new();
    let mut rows = Vec::new();
    for (half, name) in ["even conversations", "odd conversations"].iter().enumerate() {
        let own: Vec<Record> =
            records.iter().filter(|record| record.conversation % 2 == half).cloned().collect();
        text.push_str(&search_by_category(&own, &format!("search by category, hybrid, {name}")));
        for system in [OURS, "BM25"] {
            let mut row = vec![format!("{system}, {name}")];
            for budget in budgets {
                let means = means(&own, system, Task::Context(*budget));
                row.push(figure(means.get(ALL, "evid")));
            }
            rows.push(row);
        }
    }
    let mut heads = strings(&["evid at"]);
    heads.extend(budgets.iter().map(u32::to_string));
    text + &table("context, ALL, by half", &heads, &rows)
}

/// What leaving out each signal costs, from the full ranking's records and those
/// without it.
pub fn ablation(full: &[Record], without: &[Vec<Record>]) -> String {
    let mut heads = strings(&["without", "n"]);
    heads.extend(strings(&SEARCH));
    let all = Means::of(full.iter());
    let mut first = vec!["(nothing)".to_owned(), all.count(ALL).to_string()];
    first.extend(SEARCH.map(|measure| figure(all.get(ALL, measure))));
    let mut rows = vec![first];
    for records in without {
        let means = Means::of(records.iter());
        let name = records.first().map_or("-", |record| record.system);
        let mut row = vec![name.to_owned(), String::new()];
        row.extend(SEARCH.map(|measure| {
            let (with, less) = (all.get(ALL, measure), means.get(ALL, measure));
            let cost = with.zip(less).map(|(with, less)| less - with);
            cost.map_or("-".to_owned(), |cost| format!("{cost:+.3}"))
        }));
        rows.push(row);
    }
    table("what leaving out a signal costs, ALL", &heads, &rows)
}

/// The figures as a document.
pub fn to_json(dataset: &Dataset, measured: &Measured, budgets: &[u32]) -> Value {
    let records = &measured.records;
    let by_system = |task: Task| -> Value {
        let named = |system: &&str| ((*system).to_owned(), means(records, system, task).to_json());
        Value::Object(SYSTEMS.iter().map(named).filter(|(_, means)| *means != json!({})).collect())
    };
    let contexts: serde_json::Map<String, Value> =
        budgets.iter().map(|b| (b.to_string(), by_system(Task::Context(*b)))).collect();
    json!({
        "name": dataset.name,
        "conversations": dataset.conversations.len(),
        "turns": dataset.turn_count(),
        "search": by_system(Task::Search),
        "context": contexts,
        "tokenCountsChecked": measured.counted,
        "problems": measured.problems,
    })
}

/// Evidence found against tokens spent.
pub fn recall_chart(dataset: &Dataset, records: &[Record]) -> Chart {
    let names = [
        (OURS, "Icecore"),
        ("BM25", "BM25"),
        ("dense", "vectors alone"),
        ("newest", "newest first"),
    ];
    let line = |(system, name): (&str, &str)| {
        let point = |budget: u32| {
            let found = means(records, system, Task::Context(budget)).get(ALL, "evid")?;
            Some((f64::from(budget), found))
        };
        Line {
            name: name.to_owned(),
            points: PLOTTED_BUDGETS.into_iter().filter_map(point).collect(),
        }
    };
    Chart {
        title: format!("Evidence found, by tokens spent ({})", dataset.name),
        x_label: "tokens of context".to_owned(),
        y_label: "mean share of a question's evidence turns that stand whole in its context"
            .to_owned(),
        y_scale: Scale::Percent,
        lines: names.into_iter().map(line).collect(),
    }
}
