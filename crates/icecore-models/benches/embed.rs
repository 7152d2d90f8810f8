//! Texts a second and microseconds a query of the bundled table, on one core.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]

use std::hint::black_box;
use std::time::Instant;

use icecore_domain::embed::Embedder;
use icecore_models::StaticEmbedder;

const TURNS: [&str; 5] = [
    "I finally booked the flights to Lisbon for the second week of May, we land on Tuesday evening.",
    "That's wonderful! Did you manage to find the apartment near the river you were talking about?",
    "Not yet, the one with the balcony was gone, but my sister Caroline knows someone in Alfama.",
    "Please always answer in metric units, and remember that I don't eat shellfish or peanuts.",
    "We décided to migrate the café's bookings from MySQL to PostgreSQL 16 before the summer rush.",
];
const QUERY: &str = "When did Caroline book the apartment in Lisbon?";

fn main() {
    let start = Instant::now();
    let model = StaticEmbedder::bundled();
    println!("ready after {:.2} ms", start.elapsed().as_secs_f64() * 1e3);

    let turns: Vec<&str> = TURNS.iter().copied().cycle().take(10_000).collect();
    let tokens: usize = turns.iter().map(|turn| model.tokenize(turn).len()).sum();
    println!("{:.1} tokens a text", tokens as f64 / turns.len() as f64);
    let texts_a_second = best(|| drop(black_box(model.embed(black_box(&turns))))).recip() * 1e4;
    println!("{texts_a_second:.0} texts/s");
    let tokenized = best(|| turns.iter().for_each(|turn| drop(black_box(model.tokenize(turn)))));
    println!("{:.0} texts/s tokenized alone", 1e4 / tokenized);
    let query = best(|| (0..1000).for_each(|_| drop(black_box(model.embed_one(QUERY)))));
    println!("{:.2} µs a query", query / 1e3 * 1e6);
}

/// Seconds of the fastest of ten runs: the others were disturbed.
fn best(run: impl Fn()) -> f64 {
    let seconds = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..10).map(seconds).fold(f64::INFINITY, f64::min)
}
