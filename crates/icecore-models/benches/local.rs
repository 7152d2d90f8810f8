//! Texts a second of a local encoder:
//! `cargo bench -p icecore-models --features local-models --bench local -- FOLDER [THREADS]`.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]

use std::path::Path;
use std::time::Instant;

use icecore_domain::embed::Embedder;
use icecore_models::LocalEmbedder;

const TURN: &str =
    "I finally booked the flights to Lisbon for May, we land on Tuesday evening with Caroline.";

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let Some(folder) = arguments.first() else {
        println!("no model's folder given, nothing measured");
        return;
    };
    let threads = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let start = Instant::now();
    let model = LocalEmbedder::load(Path::new(folder), threads).expect("a model");
    println!("{} ready after {:.0} ms", model.model(), start.elapsed().as_secs_f64() * 1e3);
    for count in [1, 64, 256] {
        let start = Instant::now();
        model.embed(&vec![TURN; count]).expect("vectors");
        let seconds = start.elapsed().as_secs_f64();
        println!("{count} texts: {:.0} texts/s", count as f64 / seconds);
    }
}
