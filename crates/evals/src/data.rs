//! Conversations with questions about them, as the files hold them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use icecore::RawTurn;
use icecore::ingest::Timestamp;
use serde::Deserialize;

use crate::Result;

/// A conversation and what is asked about it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    pub memory_ref: String,
    pub sessions: Vec<Session>,
    pub questions: Vec<Question>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Session {
    pub session: String,
    pub turns: Vec<Turn>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    pub id: String,
    pub role: String,
    pub name: Option<String>,
    pub content: String,
    pub timestamp: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Question {
    pub id: String,
    pub question: String,
    pub answer: String,
    pub category: String,
    /// Ids of the turns that answer it.
    pub evidence: Vec<String>,
}

/// A file's conversations, under the name of the file.
pub struct Dataset {
    pub name: String,
    pub conversations: Vec<Conversation>,
}

impl Dataset {
    pub fn load(path: &Path) -> Result<Self> {
        let told = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(told)?;
        let mut conversations = Vec::new();
        for (number, line) in BufReader::new(GzDecoder::new(file)).lines().enumerate() {
            let parsed = serde_json::from_str(&line.map_err(told)?);
            let parsed = parsed
                .map_err(|error| format!("{} line {}: {error}", path.display(), number + 1))?;
            conversations.push(parsed);
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let name = file.trim_end_matches(".gz").trim_end_matches(".jsonl").to_owned();
        Ok(Self { name, conversations })
    }

    pub fn turn_count(&self) -> usize {
        self.conversations.iter().map(|conversation| conversation.turns().count()).sum()
    }
}

impl Conversation {
    /// Its turns in order.
    pub fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.sessions.iter().flat_map(|session| &session.turns)
    }

    /// The questions that have evidence; of many, `sample` at even distances.
    pub fn asked(&self, sample: Option<usize>) -> Vec<&Question> {
        let all: Vec<&Question> =
            self.questions.iter().filter(|question| !question.evidence.is_empty()).collect();
        match sample {
            Some(sample) if sample < all.len() => {
                let step = all.len() as f64 / sample as f64;
                (0..sample).map(|n| all[(n as f64 * step) as usize]).collect()
            }
            _ => all,
        }
    }
}

impl Turn {
    /// As the engine takes it.
    pub fn raw(&self) -> Result<RawTurn> {
        let mut turn = RawTurn::new(&self.role, &self.content);
        turn.id = Some(self.id.clone());
        turn.name = self.name.clone();
        turn.timestamp = self.timestamp.clone().map(Timestamp::parse).transpose()?;
        Ok(turn)
    }

    /// As the baselines see it: day, speaker, text.
    pub fn line(&self) -> String {
        let who = self.name.as_deref().unwrap_or(&self.role);
        match self.day() {
            Some(day) => format!("{day} {who}: {}", self.content),
            None => format!("{who}: {}", self.content),
        }
    }

    fn day(&self) -> Option<String> {
        let at: jiff::Timestamp = self.timestamp.as_ref()?.parse().ok()?;
        let date = jiff::tz::TimeZone::UTC.to_datetime(at).date();
        Some(date.strftime("%-d %B %Y").to_string())
    }
}

/// A text with single spaces.
pub fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
