//! How fast text is read, on one core.

use std::time::Instant;

use icecore_domain::redact::Redactor;
use icecore_domain::testing::corpus::Case;
use serde_json::json;

use super::found;
use crate::Result;
use crate::data::Dataset;

/// Each text is read over and over for about so long; the best round counts, for
/// the others met the rest of the machine.
const BYTES: usize = 4 << 20;
const ROUNDS: usize = 7;

/// Some texts and how fast they are read.
pub struct Speed {
    pub name: String,
    pub bytes: usize,
    pub mb_per_second: f64,
}

const PROSE: &[&str] = &[
    "We walked along the river until the light went, and talked about the house.",
    "Did you ask them whether the meeting on Thursday could be moved to the morning?",
    "I think the second draft reads better, though the ending still feels a little rushed.",
    "Mum called: the train is late again, so she will take a taxi from the station.",
    "What I remember best is the garden, with the lemon tree and the old stone bench.",
    "The keys are under the pot, and he forgot the password for the television again.",
    "No, it was 1998, and there were about 40 of us; Élodie took the photographs.",
];

/// Code that people wrote: our own.
const CODE: &[&str] = &[
    include_str!("../plot.rs"),
    include_str!("../../../icecore-domain/src/redact.rs"),
    include_str!("../../../icecore-domain/src/json.rs"),
    include_str!("../../peers/peers.py"),
];

pub fn measure(redactor: &Redactor, cases: &[Case]) -> Result<Vec<Speed>> {
    let turns: Vec<&str> = PROSE.iter().cycle().take(BYTES / 80).copied().collect();
    let long: String = turns.join("\n");
    let code: String = repeated(CODE);
    let json: String = turns.iter().enumerate().map(|(n, turn)| {
        json!({ "id": format!("turn-{n}"), "role": "user", "content": turn, "timestamp": "2026-03-01T10:00:00Z" }).to_string() + "\n"
    }).collect();
    let corpus: Vec<&str> = cases.iter().map(|case| case.text.as_str()).collect();
    let mut speeds = vec![
        speed(redactor, "prose, a turn at a time", &turns),
        speed(redactor, "prose, one long text", &[&long]),
        speed(redactor, "code, one long text", &[&code]),
        speed(redactor, "code, a line at a time", &code.lines().collect::<Vec<_>>()),
        speed(redactor, "JSON lines", &[&json]),
        speed(redactor, "the corpus", &corpus),
    ];
    for path in found::files()? {
        let dataset = Dataset::load(&path)?;
        let turns: Vec<&str> = dataset
            .conversations
            .iter()
            .flat_map(|conversation| conversation.turns())
            .map(|turn| turn.content.as_str())
            .collect();
        speeds.push(speed(redactor, &format!("{}, a turn at a time", dataset.name), &turns));
    }
    Ok(speeds)
}

fn repeated(texts: &[&str]) -> String {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    texts.concat().repeat((BYTES / bytes.max(1)).max(1))
}

fn speed(redactor: &Redactor, name: &str, texts: &[&str]) -> Speed {
    let bytes = texts.iter().map(|text| text.len()).sum();
    let seconds = (0..ROUNDS).map(|_| read(redactor, texts)).fold(f64::INFINITY, f64::min);
    Speed { name: name.to_owned(), bytes, mb_per_second: bytes as f64 / 1e6 / seconds }
}

/// Seconds to redact `texts` once.
pub fn read(redactor: &Redactor, texts: &[&str]) -> f64 {
    let begun = Instant::now();
    for text in texts {
        std::hint::black_box(redactor.text(std::hint::black_box(text)));
    }
    begun.elapsed().as_secs_f64()
}
