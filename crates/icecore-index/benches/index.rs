//! How fast an index is, and how large: `cargo bench -p icecore-index -- [part]…`
//!
//! Parts: `visit`, `nearest [rows]`, `commit [docs]`. Without arguments all of
//! them, at 10,000 and 100,000; `nearest 1000000` takes a gigabyte.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may panic")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use icecore_domain::embed::{ModelId, Vector};
use icecore_domain::ids::{Branch, Position, Principal, Scope, Seq, SessionNo, Tenant};
use icecore_domain::redact::Redactor;
use icecore_domain::time::Millis;
use icecore_index::{
    Batch, Commit, Document, Field, Index, IndexSettings, Role, ScopeIndex, Source, Watermark,
    analysis,
};

const DIMS: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let sizes: Vec<usize> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![10_000, 100_000] } else { sizes };
    let parts: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|a| a.parse::<usize>().is_err()).collect();
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if wanted("analysis") {
        analysis_speed();
    }
    for size in sizes {
        if wanted("nearest") {
            nearest(size);
        }
        if wanted("commit") || wanted("visit") {
            commit_and_visit(size);
        }
    }
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 31
    }

    /// A vector around one of a thousand directions, as meanings cluster.
    fn vector(&mut self) -> Vector {
        let mut topic = Numbers(self.next() % 1_000);
        let component = |_| (topic.next() % 129) as i64 + (self.next() % 127) as i64 - 128;
        Vector::new((0..DIMS).map(component).map(|c| c as i8).collect::<Vec<i8>>())
    }

    /// Some twenty words, common ones more often.
    fn text(&mut self) -> String {
        let count = 5 + self.next() % 30;
        let word = |_| {
            let rank = (30_000_f64.powf((self.next() % 10_000) as f64 / 10_000.0)) as u64;
            format!("w{}", rank * 7919 % 1_000_003)
        };
        (0..count).map(word).collect::<Vec<_>>().join(" ")
    }
}

fn model() -> ModelId {
    ModelId { name: "random".to_owned(), hash: [1; 32], dims: DIMS }
}

fn scope() -> Scope {
    let person = Principal::local_operator(Tenant::new("bench").unwrap());
    person.scope(Redactor::standard().text("bench")).unwrap()
}

fn document(number: u64, text: String, vectors: Vec<Vector>) -> Document {
    let source =
        Source::Turn { session: SessionNo(number / 500), seq: Seq(number), branch: Branch::MAIN };
    let at = Millis(1_700_000_000_000 + number as i64 * 60_000);
    let speaker = Some(if number.is_multiple_of(2) { "Ana" } else { "Ben" }.to_owned());
    Document { source, at, role: Role::User, speaker, signs: 0, text, vectors }
}

/// Feeds documents and commits whenever the tail is full.
fn fill(index: &ScopeIndex, size: usize, with_text: bool) -> (Duration, Duration) {
    let mut numbers = Numbers(1);
    let (mut pushing, mut committing) = (Duration::ZERO, Duration::ZERO);
    for first in (0..size).step_by(10_000) {
        let end = size.min(first + 10_000);
        let documents = (first..end).map(|number| {
            let text = if with_text { numbers.text() } else { String::new() };
            document(number as u64, text, vec![numbers.vector()])
        });
        let documents: Vec<Document> = documents.collect();
        let from = index.watermark();
        let to = Watermark { position: Position(end as u64), ..from };
        let begin = Instant::now();
        index.push(Batch { from, to, model: Some(model()), documents }).unwrap();
        pushing += begin.elapsed();
        let begin = Instant::now();
        if index.tail_is_full() || end == size {
            assert_ne!(index.commit().unwrap(), Commit::Busy);
        }
        committing += begin.elapsed();
    }
    (pushing, committing)
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    format!("p50 {:?} p95 {:?}", at(50), at(95))
}

fn open(root: Option<&Path>, exact_rows: usize) -> Arc<ScopeIndex> {
    let settings =
        IndexSettings { exact_rows, memory_rows: exact_rows, ..IndexSettings::default() };
    Index::open(root.map(Path::to_owned), settings).scope(&scope()).unwrap()
}

fn nearest(size: usize) {
    let root = tempfile::tempdir().unwrap();
    fill(&open(Some(root.path()), 0), size, false);
    let mut numbers = Numbers(99);
    let queries: Vec<Vector> = (0..100).map(|_| numbers.vector()).collect();
    let mut answers = Vec::new();
    for (name, exact_rows) in [("exact", usize::MAX), ("binary", 0)] {
        let begin = Instant::now();
        let index = open(Some(root.path()), exact_rows);
        let opening = begin.elapsed();
        let snapshot = index.read();
        let mut times = Vec::new();
        for query in &queries {
            let begin = Instant::now();
            let found = snapshot.nearest(query, 100, None).unwrap();
            times.push(begin.elapsed());
            answers.push(found.into_iter().map(|(doc, _)| doc).take(10).collect::<Vec<_>>());
        }
        println!("nearest {size} {name}: {}, opened in {opening:?}", percentiles(times));
    }
    let (exact, binary) = answers.split_at(queries.len());
    let same: usize =
        exact.iter().zip(binary).map(|(a, b)| a.iter().filter(|doc| b.contains(doc)).count()).sum();
    println!("nearest {size} binary finds {:.3} of the exact ten", same as f64 / 1_000.0);
}

fn commit_and_visit(size: usize) {
    let root = tempfile::tempdir().unwrap();
    let index = open(Some(root.path()), IndexSettings::default().exact_rows);
    let (pushing, committing) = fill(&index, size, true);
    let rate = |time: Duration| size as f64 / time.as_secs_f64();
    println!("push {size}: {:.0} docs/s; commit: {:.0} docs/s", rate(pushing), rate(committing));
    for (name, bytes) in sizes(root.path()) {
        println!("  {name}: {:.1} bytes a document", bytes as f64 / size as f64);
    }
    let begin = Instant::now();
    let again = open(Some(root.path()), IndexSettings::default().exact_rows);
    println!("open {size}: {:?}", begin.elapsed());
    let snapshot = again.read();
    let mut numbers = Numbers(1);
    let (mut times, mut postings) = (Vec::new(), 0_u64);
    for _ in 0..200 {
        let terms = analysis::terms(&numbers.text());
        let mut scores = vec![0_f32; size];
        let begin = Instant::now();
        for term in terms.iter().take(8) {
            let visit = |doc: u32, count: u32| {
                postings += 1;
                scores[doc as usize] += count as f32;
            };
            snapshot.visit(term, Field::Content, visit).unwrap();
        }
        times.push(begin.elapsed());
        black_box(&scores);
    }
    let spent: Duration = times.iter().sum();
    println!(
        "visit {size}, eight terms: {}; {:.0} million postings/s",
        percentiles(times),
        postings as f64 / spent.as_secs_f64() / 1e6
    );
}

fn sizes(path: &Path) -> Vec<(String, u64)> {
    let mut found: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.extension().or(path.file_name()).unwrap_or_default();
            *found.entry(name.to_string_lossy().into_owned()).or_default() +=
                entry.metadata().unwrap().len();
        }
    }
    found.into_iter().filter(|(_, bytes)| *bytes > 1_000).collect()
}

fn analysis_speed() {
    let text = "I was wondering whether José's dogs were running through the café in 2024. ";
    let text = text.repeat(2_000);
    let begin = Instant::now();
    let count = black_box(analysis::terms(&text)).len();
    let spent = begin.elapsed().as_secs_f64();
    println!(
        "analysis: {:.1} MB/s, {:.2} million terms/s",
        text.len() as f64 / spent / 1e6,
        count as f64 / spent / 1e6
    );
}
