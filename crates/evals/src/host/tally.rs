//! What clients saw: times by kind of request, and failures by kind of failure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Answer;
use crate::Result;
use crate::measures::percentile;

/// Times and failures.
#[derive(Debug, Default)]
pub struct Tally {
    times: BTreeMap<&'static str, Vec<f64>>,
    failures: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts an answer, or that there was none.
    pub fn count(&mut self, kind: &'static str, answer: &Result<Answer>) {
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => self.add(kind, answer.took),
            Ok(answer) => {
                let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let code = body["error"].as_str().unwrap_or("-");
                self.fail(format!("{kind}: {} {code}", answer.status));
            }
            Err(error) => self.fail(format!("{kind}: {error}")),
        }
    }

    pub fn add(&mut self, kind: &'static str, took: Duration) {
        self.times.entry(kind).or_default().push(took.as_secs_f64() * 1e3);
    }

    pub fn fail(&mut self, what: String) {
        *self.failures.entry(what).or_default() += 1;
    }

    pub fn merge(&mut self, other: Tally) {
        for (kind, times) in other.times {
            self.times.entry(kind).or_default().extend(times);
        }
        for (what, count) in other.failures {
            *self.failures.entry(what).or_default() += count;
        }
    }

    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    pub fn failures(&self) -> &BTreeMap<String, u64> {
        &self.failures
    }

    pub fn requests(&self) -> usize {
        self.times.values().map(Vec::len).sum()
    }

    pub fn kinds(&self) -> Vec<&'static str> {
        self.times.keys().copied().collect()
    }

    /// So many of a hundred requests of a kind took at most this long, in ms; of
    /// all kinds where none is given.
    pub fn at(&self, kind: Option<&str>, share: f64) -> f64 {
        let wanted = |of: &str| kind.is_none_or(|kind| kind == of);
        let all = self.times.iter().filter(|(of, _)| wanted(of)).flat_map(|(_, times)| times);
        let mut all: Vec<f64> = all.copied().collect();
        all.sort_by(f64::total_cmp);
        percentile(&all, share)
    }

    pub fn to_json(&self) -> Value {
        let spread = |kind: Option<&str>| {
            json!({ "p50": self.at(kind, 0.5), "p95": self.at(kind, 0.95),
                "p99": self.at(kind, 0.99), "max": self.at(kind, 1.0) })
        };
        let kinds: serde_json::Map<String, Value> =
            self.kinds().into_iter().map(|kind| (kind.to_owned(), spread(Some(kind)))).collect();
        json!({ "requests": self.requests(), "failed": self.failed(), "failures": self.failures,
            "allMs": spread(None), "ms": kinds })
    }

    /// Rows of a table: a line for each kind, and one for all.
    pub fn rows(&self, name: &str) -> Vec<Vec<String>> {
        let kinds = self.kinds().into_iter().map(Some).chain([None]);
        let row = |kind: Option<&'static str>| {
            let count = match kind {
                Some(kind) => self.times.get(kind).map_or(0, Vec::len),
                None => self.requests(),
            };
            let mut cells = vec![format!("{name} {}", kind.unwrap_or("all")), count.to_string()];
            cells
                .extend([0.5, 0.95, 0.99, 1.0].map(|share| format!("{:.2}", self.at(kind, share))));
            cells.push(if kind.is_none() { self.failed().to_string() } else { String::new() });
            cells
        };
        kinds.map(row).collect()
    }
}

/// The heads of [`Tally::rows`].
pub const HEADS: [&str; 7] = ["", "requests", "p50 ms", "p95", "p99", "max", "failed"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_failures_are_kept_apart() {
        let mut tally = Tally::default();
        (1..=100).for_each(|ms| tally.add("search", Duration::from_millis(ms)));
        let answer =
            |status| Answer { status, body: b"{\"error\":\"x\"}".to_vec(), took: Duration::ZERO };
        tally.count("add", &Ok(answer(503)));
        tally.count("add", &Err("gone".into()));
        assert_eq!((tally.requests(), tally.failed()), (100, 2));
        assert_eq!(tally.at(Some("search"), 0.95), 95.0);
        let failures: Vec<&String> = tally.failures().keys().collect();
        assert_eq!(failures, ["add: 503 x", "add: gone"]);
    }
}
