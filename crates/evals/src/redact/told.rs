//! The figures as tables, and as one JSON document.

use icecore_domain::testing::corpus::Case;
use serde_json::{Value, json};

use super::found::{Count, Counts, Data};
use super::peer::{Peer, Way};
use super::{MAX_FALSE, MIN_RECALL, MIN_RECALL_OF_WORST, Measured};
use crate::report::{strings, table};

const SHOWN_KINDS: usize = 10;
const MAX_EXAMPLE_CHARS: usize = 150;

/// What the corpus is.
pub fn corpus(cases: &[Case], seed: u64) -> String {
    let secrets = cases.iter().filter(|case| case.secret.is_some()).count();
    let bytes: usize = cases.iter().map(|case| case.text.len()).sum();
    format!(
        "\n== redaction: {secrets} secrets, {} texts without, {:.1} MB, seed {seed}\n",
        cases.len() - secrets,
        bytes as f64 / 1e6
    )
}

/// Everything that was measured.
pub fn tables(measured: &Measured) -> String {
    let found = &measured.found;
    let mut text = overall(measured);
    text += &counted("recall by setting", &found.by_setting, measured, |way| &way.found.by_setting);
    text += &counted("recall by place", &found.by_place, measured, |way| &way.found.by_place);
    text += &worst_kinds(measured);
    text += &families(measured);
    text += &speed(measured);
    text += &hostile(measured);
    text + &data(&measured.data)
}

fn percent(count: Option<&Count>) -> String {
    count.map_or("-".to_owned(), |count| format!("{:.2}%", count.share() * 100.0))
}

/// Ours beside both ways of asking detect-secrets.
fn overall(measured: &Measured) -> String {
    let ours = &measured.found;
    let corpus = measured.speed.iter().find(|speed| speed.name == "the corpus");
    let rate = corpus.map_or(0.0, |speed| speed.mb_per_second);
    let megabytes = corpus.map_or(0.0, |speed| speed.bytes as f64 / 1e6);
    let worst = |kinds: &[(&'static str, Count)]| percent(kinds.first().map(|kind| &kind.1));
    let mut rows = vec![vec![
        "Icecore".to_owned(),
        percent(Some(&ours.recall)),
        worst(&ours.worst_kinds()),
        format!("{:.3}%", ours.false_positives.share() * 100.0),
        format!("{} of {}", ours.false_positives.marked, ours.false_positives.all),
        format!("{rate:.1}"),
    ]];
    for (name, way) in measured.peer.iter().flat_map(ways) {
        let theirs = &way.found;
        let their_rate = megabytes / way.seconds;
        rows.push(vec![
            name.clone(),
            percent(Some(&theirs.recall)),
            worst(&theirs.worst_kinds()),
            format!("{:.3}%", theirs.false_positives.share() * 100.0),
            format!("{} of {}", theirs.false_positives.marked, theirs.false_positives.all),
            format!("{their_rate:.2}"),
        ]);
        let times = |ours: f64, theirs: f64| match theirs > 0.0 {
            true => format!("{:.2}x", ours / theirs),
            false => "-".to_owned(),
        };
        rows.push(vec![
            "  Icecore / it".to_owned(),
            times(ours.recall.share(), theirs.recall.share()),
            String::new(),
            format!("{:.4}x", ours.false_positives.share() / theirs.false_positives.share()),
            String::new(),
            times(rate, their_rate),
        ]);
    }
    let heads = ["", "recall", "worst kind", "false positives", "texts", "corpus MB/s"];
    table("overall", &strings(&heads), &rows)
}

fn ways(peer: &Peer) -> [(String, &Way); 2] {
    let name = |way: &str| format!("detect-secrets {}, {way}", peer.version);
    [(name("as strings"), &peer.string), (name("as files"), &peer.file)]
}

/// The heads of the columns of detect-secrets.
fn peer_heads(measured: &Measured) -> &'static [&'static str] {
    if measured.peer.is_some() { &["its strings", "its files"] } else { &[] }
}

fn peer_cells(measured: &Measured, of: impl Fn(&Way) -> Option<&Count>) -> Vec<String> {
    let ways = measured.peer.iter().flat_map(|peer| [&peer.string, &peer.file]);
    ways.map(|way| percent(of(way))).collect()
}

fn counted(title: &str, counts: &Counts, measured: &Measured, of: fn(&Way) -> &Counts) -> String {
    let mut heads = strings(&["", "n", "found"]);
    heads.extend(strings(peer_heads(measured)));
    let row = |(name, count): (&&'static str, &Count)| {
        let mut row = vec![(*name).to_owned(), count.all.to_string(), percent(Some(count))];
        row.extend(peer_cells(measured, |way| of(way).get(name)));
        row
    };
    table(title, &heads, &counts.iter().map(row).collect::<Vec<_>>())
}

fn worst_kinds(measured: &Measured) -> String {
    let mut heads = strings(&["", "n", "found"]);
    heads.extend(strings(peer_heads(measured)));
    let kinds = measured.found.worst_kinds();
    let row = |(kind, count): &(&'static str, Count)| {
        let mut row = vec![(*kind).to_owned(), count.all.to_string(), percent(Some(count))];
        row.extend(peer_cells(measured, |way| way.found.by_kind.get(kind)));
        row
    };
    let shown = &kinds[..kinds.len().min(SHOWN_KINDS)];
    let title = format!("the {} worst of {} kinds", shown.len(), kinds.len());
    let mut text = table(&title, &heads, &shown.iter().map(row).collect::<Vec<_>>());
    for (kind, _) in shown {
        for example in measured.found.missed.get(kind).into_iter().flatten().take(1) {
            text += &format!("    {kind} {}\n", cut(example));
        }
    }
    text
}

fn families(measured: &Measured) -> String {
    let mut heads = strings(&["", "n", "hidden"]);
    heads.extend(strings(peer_heads(measured)));
    let row = |(family, count): &(&'static str, Count)| {
        let mut row = vec![(*family).to_owned(), count.all.to_string(), percent(Some(count))];
        row.extend(peer_cells(measured, |way| way.found.by_family.get(family)));
        row
    };
    let rows: Vec<Vec<String>> = measured.found.worst_families().iter().map(row).collect();
    let mut text = table("false positives by family", &heads, &rows);
    for (family, examples) in &measured.found.hidden {
        for example in examples {
            text += &format!("    {family} {}\n", cut(example));
        }
    }
    text
}

fn cut(example: &str) -> String {
    let mut text: String = example.chars().take(MAX_EXAMPLE_CHARS).collect();
    if text.len() < example.len() {
        text.push('…');
    }
    text
}

fn speed(measured: &Measured) -> String {
    let row = |speed: &super::speed::Speed| {
        let megabytes = speed.bytes as f64 / 1e6;
        vec![speed.name.clone(), format!("{megabytes:.1}"), format!("{:.0}", speed.mb_per_second)]
    };
    let rows: Vec<Vec<String>> = measured.speed.iter().map(row).collect();
    table("speed, one core", &strings(&["", "MB", "MB/s"]), &rows)
}

fn hostile(measured: &Measured) -> String {
    let row = |line: &super::hostile::Hostile| {
        vec![
            line.name.clone(),
            format!("{:.1}", line.short_ns),
            format!("{:.1}", line.long_ns),
            format!("{:.2}", line.long_ns / line.short_ns),
        ]
    };
    let rows: Vec<Vec<String>> = measured.hostile.iter().map(row).collect();
    let heads = ["", "1 MB", "10 MB", "ratio"];
    table("one hostile line, ns a byte (a ratio of 1 is linear)", &strings(&heads), &rows)
}

fn data(data: &[Data]) -> String {
    if data.is_empty() {
        return "\n  set ICECORE_EVAL_DATA for what is hidden in real conversations\n".to_owned();
    }
    let row = |data: &Data| {
        let kinds: Vec<String> =
            data.by_kind.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
        vec![
            data.name.clone(),
            data.turns.to_string(),
            format!("{:.1}", data.bytes as f64 / 1e6),
            data.changed.to_string(),
            if kinds.is_empty() { "-".to_owned() } else { kinds.join(", ") },
        ]
    };
    let rows: Vec<Vec<String>> = data.iter().map(row).collect();
    table("hidden in conversations", &strings(&["", "turns", "MB", "changed", "kinds"]), &rows)
}

/// The promises that were not kept.
pub fn broken(measured: &Measured) -> Vec<String> {
    let found = &measured.found;
    let mut broken = Vec::new();
    if found.recall.share() < MIN_RECALL {
        broken.push(format!("recall {}", percent(Some(&found.recall))));
    }
    for (kind, count) in found.worst_kinds() {
        if count.share() < MIN_RECALL_OF_WORST {
            broken.push(format!("{kind} {}", percent(Some(&count))));
        }
    }
    if found.false_positives.share() > MAX_FALSE {
        let count = found.false_positives;
        broken.push(format!("false positives {} of {}", count.marked, count.all));
    }
    for data in measured.data.iter().filter(|data| data.name.starts_with("locomo")) {
        if data.changed > 0 {
            broken.push(format!("{} turns of {} changed", data.changed, data.name));
        }
    }
    broken
}

pub fn promises(broken: &[String]) -> String {
    match broken {
        [] => "\n  every promise is kept\n".to_owned(),
        _ => format!("\n  promises not kept: {}\n", broken.join("; ")),
    }
}

/// The figures as a document.
pub fn to_json(seed: u64, measured: &Measured, broken: &[String]) -> Value {
    let counts = |counts: &Counts| -> Value {
        let one = |(name, count): (&&'static str, &Count)| ((*name).to_owned(), count_json(count));
        Value::Object(counts.iter().map(one).collect())
    };
    let scanner = |found: &super::Found| {
        json!({
            "recall": count_json(&found.recall),
            "falsePositives": count_json(&found.false_positives),
            "byKind": counts(&found.by_kind),
            "bySetting": counts(&found.by_setting),
            "byPlace": counts(&found.by_place),
            "byFamily": counts(&found.by_family),
        })
    };
    let peer = measured.peer.as_ref().map(|peer| {
        let way = |way: &Way| json!({ "found": scanner(&way.found), "seconds": way.seconds });
        json!({ "version": peer.version, "string": way(&peer.string), "file": way(&peer.file) })
    });
    let speed = measured.speed.iter().map(
        |speed| json!({ "text": speed.name, "bytes": speed.bytes, "mbPerSecond": speed.mb_per_second }),
    );
    let hostile = measured.hostile.iter().map(
        |line| json!({ "line": line.name, "nsPerByte1MB": line.short_ns, "nsPerByte10MB": line.long_ns }),
    );
    let data = measured.data.iter().map(
        |data| json!({ "name": data.name, "turns": data.turns, "changed": data.changed, "byKind": data.by_kind }),
    );
    json!({
        "seed": seed,
        "icecore": scanner(&measured.found),
        "detectSecrets": peer,
        "speed": speed.collect::<Vec<_>>(),
        "hostile": hostile.collect::<Vec<_>>(),
        "data": data.collect::<Vec<_>>(),
        "broken": broken,
    })
}

fn count_json(count: &Count) -> Value {
    json!({ "marked": count.marked, "all": count.all, "share": count.share() })
}
