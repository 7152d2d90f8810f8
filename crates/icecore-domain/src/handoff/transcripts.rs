//! Transcripts made from a seed, to try compaction on: everything that agents and people
//! have been seen to put into a session, and some things that they have not.
//!
//! None of them is stored. Number `n` of a seed is always the same.

use crate::chat::Protocol;
use crate::json::JsonText;
use crate::tokens::TokenCounter;
use crate::turn::{Content, RawTurn};

use super::{PINNED_TAG, SessionWindow};

/// What a transcript is mostly made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TranscriptKind {
    /// People and a model talk.
    Talk,
    /// Calls of tools, one after the other.
    Agent,
    /// Several calls at once, with results in any order.
    Parallel,
    /// Calls in the midst of which others begin.
    Interleaved,
    /// Outputs larger than many windows.
    HugeOutputs,
    /// Hundreds or thousands of turns of a few words.
    TinyTurns,
    /// A system prompt and nothing else.
    OnlySystem,
    /// Results without a call.
    OnlyResults,
    /// Nobody asks for anything.
    NoRequest,
    /// Chinese, Japanese, Korean, and no blanks.
    Cjk,
    /// Data in texts and in parts.
    Base64,
    /// A session that forks, and forks again.
    Branches,
    /// Turns that must stay, in the midst of calls too.
    Pinned,
    /// Hostile ids: none, the same again, numbers, results before calls.
    Hostile,
    /// What must stay fills the window nearly or exactly.
    FullFloor,
    /// What must stay is larger than the window.
    FloorBeyond,
}

impl TranscriptKind {
    pub const ALL: [TranscriptKind; 16] = [
        TranscriptKind::Talk,
        TranscriptKind::Agent,
        TranscriptKind::Parallel,
        TranscriptKind::Interleaved,
        TranscriptKind::HugeOutputs,
        TranscriptKind::TinyTurns,
        TranscriptKind::OnlySystem,
        TranscriptKind::OnlyResults,
        TranscriptKind::NoRequest,
        TranscriptKind::Cjk,
        TranscriptKind::Base64,
        TranscriptKind::Branches,
        TranscriptKind::Pinned,
        TranscriptKind::Hostile,
        TranscriptKind::FullFloor,
        TranscriptKind::FloorBeyond,
    ];
}

/// A transcript, and the window that it has to fit.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// What it is mostly made of.
    pub kind: TranscriptKind,
    pub window: SessionWindow,
    /// How the model is spoken to.
    pub protocol: Protocol,
    /// What the provider counts for a hundred tokens of ours.
    pub count_percent: u64,
    /// What was said before, each list given at once. Turns may name parents.
    pub history: Vec<Vec<RawTurn>>,
    /// What the model is asked with, one exchange after the other.
    pub asked: Vec<Vec<RawTurn>>,
}

/// The smallest and the largest window.
const WINDOWS: (u64, u64) = (2_000, 200_000);

/// Transcript `number` of a seed.
pub fn transcript(seed: u64, number: u64, counter: &dyn TokenCounter) -> Transcript {
    let mut draw = Draw(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let kind = TranscriptKind::ALL[(number % TranscriptKind::ALL.len() as u64) as usize];
    let window = window(&mut draw);
    let protocol = if draw.one_in(2) { Protocol::Anthropic } else { Protocol::OpenAi };
    let is_plain = !matches!(kind, TranscriptKind::FullFloor | TranscriptKind::FloorBeyond);
    let mut maker = Maker { draw, counter, window, protocol, ids: 0, turns: 0 };
    let (history, asked) = maker.make(kind);
    let count_percent = if is_plain && maker.draw.one_in(6) { 120 } else { 100 };
    Transcript { kind, window, protocol, count_percent, history, asked }
}

/// Small windows are many and large ones few: a large one takes long to fill.
fn window(draw: &mut Draw) -> SessionWindow {
    let (least, most) = WINDOWS;
    let window = match draw.below(100) {
        0..60 => draw.between(least, 6_000),
        60..88 => draw.between(6_000, 24_000),
        88..97 => draw.between(24_000, 64_000),
        97..99 => draw.between(64_000, 128_000),
        _ => most,
    };
    SessionWindow { window, reserve: window / draw.between(8, 16) }
}

/// Numbers that look drawn (splitmix64), the same on every machine.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

const WORDS: [&str; 48] = [
    "parser", "glacier", "invoice", "deploy", "Ann", "Lisbon", "database", "retry", "the", "a",
    "was", "is", "moved", "decided", "window", "token", "budget", "42", "17", "2024-05-07",
    "review", "branch", "merge", "release", "Bob", "kernel", "garden", "train", "to", "of", "and",
    "failed", "passes", "test", "schema", "index", "latency", "cache", "client", "server",
    "timeout", "prefers", "tea", "report", "draft", "query", "src/main.rs", "docs/plan.md",
];

const CJK: [&str; 16] = [
    "今日は", "会議", "東京", "解析器", "不要", "推送", "测试", "通过", "数据库", "안녕하세요",
    "회의", "내일", "发布", "窗口", "记忆", "。",
];

const RULES: [&str; 5] = [
    "Always answer in short sentences.",
    "Never push to main.",
    "From now on, cite the file that you changed.",
    "Please always run the tests before you answer.",
    "When I ask for numbers, always add the unit.",
];

struct Maker<'a> {
    draw: Draw,
    counter: &'a dyn TokenCounter,
    window: SessionWindow,
    protocol: Protocol,
    ids: u64,
    turns: u64,
}

impl Maker<'_> {
    fn make(&mut self, kind: TranscriptKind) -> (Vec<Vec<RawTurn>>, Vec<Vec<RawTurn>>) {
        let mut turns = Vec::new();
        if !self.draw.one_in(4) || kind == TranscriptKind::OnlySystem {
            let words = self.draw.between(5, 60);
            turns.push(RawTurn::new("system", self.words(words)));
        }
        // Most transcripts outgrow their window, some do not.
        let size = self.window.window * self.draw.between(5, 25) / 10;
        let ask = match kind {
            TranscriptKind::Talk => self.talk(size, &mut turns),
            TranscriptKind::Agent => self.agent(size, 1, &mut turns),
            TranscriptKind::Parallel => self.agent(size, 4, &mut turns),
            TranscriptKind::Interleaved => self.interleaved(size, &mut turns),
            TranscriptKind::HugeOutputs => self.huge_outputs(&mut turns),
            TranscriptKind::TinyTurns => self.tiny_turns(&mut turns),
            TranscriptKind::OnlySystem => self.only_system(&mut turns),
            TranscriptKind::OnlyResults => self.only_results(size, &mut turns),
            TranscriptKind::NoRequest => self.no_request(size, &mut turns),
            TranscriptKind::Cjk => self.cjk(size, &mut turns),
            TranscriptKind::Base64 => self.base64(size, &mut turns),
            TranscriptKind::Branches => return self.branches(size, turns),
            TranscriptKind::Pinned => self.pinned(size, &mut turns),
            TranscriptKind::Hostile => self.hostile(size, &mut turns),
            TranscriptKind::FullFloor => {
                self.talk(size.min(20_000), &mut turns);
                let system: u64 = turns
                    .iter()
                    .take_while(|turn| turn.role == "system")
                    .map(|turn| u64::from(self.counter.count(&turn.content.text())) + 4)
                    .sum();
                let slack = if self.draw.one_in(3) { 0 } else { self.draw.between(1, 400) };
                let room = self.window.trigger().saturating_sub(system + 4 + slack);
                vec![self.sized("user", room)]
            }
            TranscriptKind::FloorBeyond => self.floor_beyond(size.min(20_000), &mut turns),
        };
        let mut asked = vec![ask];
        for _ in 0..self.draw.below(3) {
            if kind != TranscriptKind::FloorBeyond {
                let words = self.draw.between(3, 20);
                asked.push(vec![RawTurn::new("user", self.words(words))]);
            }
        }
        (vec![turns], asked)
    }

    fn words(&mut self, count: u64) -> String {
        let mut text = String::new();
        for place in 0..count {
            if place > 0 {
                text.push_str(if self.draw.one_in(9) { ". " } else { " " });
            }
            text.push_str(self.draw.of(&WORDS));
        }
        text
    }

    /// A turn of exactly so many tokens, if the counter can be that exact.
    fn sized(&mut self, role: &str, tokens: u64) -> RawTurn {
        let text = self.words(tokens.max(1));
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        RawTurn::new(role, self.counter.prefix(&text, tokens))
    }

    fn request(&mut self) -> RawTurn {
        let words = self.draw.between(3, 40);
        let text = match self.draw.below(6) {
            0 => format!("{} {}", self.draw.of(&RULES), self.words(words)),
            _ => format!("{}?", self.words(words)),
        };
        match self.protocol {
            Protocol::Anthropic if self.draw.one_in(2) => {
                let part = format!(r#"[{{"type":"text","text":{}}}]"#, quoted(&text));
                parts("user", &part)
            }
            _ => RawTurn::new("user", text),
        }
    }

    fn talk(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let mut made = 0;
        while made < size {
            let words = self.draw.between(1, 300);
            turns.push(self.request());
            turns.push(RawTurn::new("assistant", self.words(words)));
            made += words + 25;
        }
        vec![self.request()]
    }

    fn id(&mut self) -> String {
        self.ids += 1;
        format!("call-{}", self.ids)
    }

    /// A message that calls for these.
    fn call(&mut self, ids: &[String]) -> RawTurn {
        let path = format!("src/{}.rs", self.draw.of(&WORDS));
        match self.protocol {
            Protocol::OpenAi => {
                let call = |id: &String| {
                    let arguments = quoted(&format!(r#"{{"path":"{path}"}}"#));
                    format!(
                        r#"{{"id":"{id}","type":"function","function":{{"name":"read","arguments":{arguments}}}}}"#
                    )
                };
                let calls: Vec<String> = ids.iter().map(call).collect();
                RawTurn {
                    tool_calls: json(&format!("[{}]", calls.join(","))),
                    content: Content::Null,
                    ..RawTurn::new("assistant", "")
                }
            }
            Protocol::Anthropic => {
                let call = |id: &String| {
                    format!(
                        r#"{{"type":"tool_use","id":"{id}","name":"read","input":{{"path":"{path}"}}}}"#
                    )
                };
                let calls: Vec<String> = ids.iter().map(call).collect();
                parts("assistant", &format!("[{}]", calls.join(",")))
            }
        }
    }

    /// The messages that answer these; one for all where the protocol wants that.
    fn results(&mut self, ids: &[String], words: u64) -> Vec<RawTurn> {
        let texts: Vec<String> = ids.iter().map(|_| self.words(words)).collect();
        match self.protocol {
            Protocol::OpenAi => ids.iter().zip(&texts).map(|(id, text)| result(id, text)).collect(),
            Protocol::Anthropic => {
                let one = |(id, text): (&String, &String)| {
                    let text = quoted(text);
                    format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":{text}}}"#)
                };
                let all: Vec<String> = ids.iter().zip(&texts).map(one).collect();
                vec![parts("user", &format!("[{}]", all.join(",")))]
            }
        }
    }

    fn agent(&mut self, size: u64, at_once: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        turns.push(self.request());
        let mut made = 0;
        while made < size {
            let ids: Vec<String> = (0..self.draw.between(1, at_once)).map(|_| self.id()).collect();
            let words = self.draw.between(5, 150);
            turns.push(self.call(&ids));
            let mut results = self.results(&ids, words);
            if self.draw.one_in(2) {
                results.reverse();
            }
            turns.extend(results);
            made += (words + 40) * ids.len() as u64;
            if self.draw.one_in(8) {
                turns.push(RawTurn::new("assistant", self.words(20)));
                if self.draw.one_in(2) {
                    turns.push(self.request());
                }
            }
        }
        match self.draw.below(3) {
            // A person goes on, or the results of the last calls come in.
            0 => {
                turns.push(RawTurn::new("assistant", self.words(12)));
                vec![self.request()]
            }
            _ => {
                let ids: Vec<String> =
                    (0..self.draw.between(1, at_once)).map(|_| self.id()).collect();
                turns.push(self.call(&ids));
                self.results(&ids, 30)
            }
        }
    }

    fn interleaved(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        turns.push(self.request());
        let mut made = 0;
        while made < size {
            let (first, second) = (vec![self.id()], vec![self.id()]);
            let words = self.draw.between(5, 120);
            turns.push(self.call(&first));
            turns.push(self.call(&second));
            turns.extend(self.results(&second, words));
            turns.extend(self.results(&first, words));
            made += 2 * words + 90;
        }
        let (first, second) = (vec![self.id()], vec![self.id()]);
        turns.push(self.call(&first));
        turns.push(self.call(&second));
        turns.extend(self.results(&second, 20));
        self.results(&first, 20)
    }

    fn huge_outputs(&mut self, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        for _ in 0..self.draw.between(1, 3) {
            turns.push(self.request());
            let ids = vec![self.id()];
            turns.push(self.call(&ids));
            let words = self.window.window.min(30_000) * self.draw.between(5, 20) / 10;
            turns.extend(self.results(&ids, words));
            turns.push(RawTurn::new("assistant", self.words(30)));
        }
        vec![self.request()]
    }

    fn tiny_turns(&mut self, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let most = if self.draw.one_in(10) { 3_000 } else { 600 };
        for place in 0..self.draw.between(200, most) {
            let words = self.draw.between(1, 4);
            let role = if place % 2 == 0 { "user" } else { "assistant" };
            turns.push(RawTurn::new(role, self.words(words)));
        }
        vec![self.request()]
    }

    fn only_system(&mut self, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let room = self.window.trigger();
        let mut made = 0;
        while made < room / 2 {
            let words = self.draw.between(10, 100);
            turns.push(RawTurn::new("system", self.words(words)));
            made += words * 2 + 4;
        }
        vec![RawTurn::new("system", self.words(10))]
    }

    fn only_results(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let mut made = 0;
        while made < size {
            let ids = vec![self.id()];
            let words = self.draw.between(10, 200);
            turns.extend(self.results(&ids, words));
            made += words;
        }
        let ids = vec![self.id()];
        self.results(&ids, 20)
    }

    fn no_request(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let mut made = 0;
        while made < size {
            let words = self.draw.between(10, 200);
            turns.push(RawTurn::new("assistant", self.words(words)));
            made += words;
        }
        vec![RawTurn::new("assistant", self.words(10))]
    }

    fn cjk(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let text =
            |draw: &mut Draw, count: u64| -> String { (0..count).map(|_| draw.of(&CJK)).collect() };
        let mut made = 0;
        while made < size {
            let count = self.draw.between(1, 120);
            turns.push(RawTurn::new("user", text(&mut self.draw, 8)));
            turns.push(RawTurn::new("assistant", text(&mut self.draw, count)));
            made += count * 2 + 16;
        }
        vec![RawTurn::new("user", text(&mut self.draw, 12))]
    }

    fn base64(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let data = |draw: &mut Draw, count: u64| -> String {
            (0..count).map(|_| char::from(LETTERS[draw.below(64) as usize])).collect()
        };
        let mut made = 0;
        while made < size {
            let count = self.draw.between(50, 2_000);
            let text = data(&mut self.draw, count);
            turns.push(match self.draw.below(3) {
                0 => RawTurn::new("user", format!("Look: {text}==")),
                1 => parts(
                    "user",
                    &format!(
                        r#"[{{"type":"text","text":"see"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{text}"}}}}]"#
                    ),
                ),
                _ => parts(
                    "user",
                    &format!(
                        r#"[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{text}"}}}}]"#
                    ),
                ),
            });
            turns.push(RawTurn::new("assistant", self.words(20)));
            made += count / 2 + 40;
        }
        vec![self.request()]
    }

    fn branches(
        &mut self,
        size: u64,
        mut trunk: Vec<RawTurn>,
    ) -> (Vec<Vec<RawTurn>>, Vec<Vec<RawTurn>>) {
        self.talk(size, &mut trunk);
        for turn in &mut trunk {
            self.turns += 1;
            turn.id = Some(format!("t-{}", self.turns));
        }
        let mut history = vec![trunk.clone()];
        for _ in 0..self.draw.between(1, 3) {
            let at = self.draw.below(trunk.len() as u64) as usize;
            let mut fork = Vec::new();
            self.talk(size / 8, &mut fork);
            fork[0].parent_ids = trunk[at].id.clone().map(|id| vec![id]);
            history.push(fork);
        }
        (history, vec![vec![self.request()], vec![self.request()]])
    }

    fn pinned(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let mut asked = self.agent(size, 3, turns);
        let room = self.window.trigger() / 4;
        let mut pinned = 0;
        for turn in turns.iter_mut() {
            let tokens = u64::from(self.counter.count(&turn.content.text())) * 4 + 60;
            if pinned + tokens < room && self.draw.one_in(8) {
                turn.tags = Some(vec![PINNED_TAG.to_owned()]);
                pinned += tokens;
            }
        }
        if self.draw.one_in(3) {
            asked.push(self.request());
        }
        asked
    }

    fn hostile(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        let mut made = 0;
        while made < size {
            let words = self.draw.between(1, 100);
            let text = self.words(words);
            let id = format!("h{}", self.draw.below(4));
            turns.push(match self.draw.below(8) {
                0 => result(&id, &text),
                1 => RawTurn::new("tool", text),
                2 => RawTurn {
                    tool_calls: json(r#"[{"id":7},{"function":{"name":"f"}},3,null]"#),
                    ..RawTurn::new("assistant", "")
                },
                3 => RawTurn {
                    tool_calls: json(&format!(r#"[{{"id":"{id}"}},{{"id":"{id}"}}]"#)),
                    ..RawTurn::new("assistant", text)
                },
                4 => parts("assistant", &format!(r#"[{{"type":"tool_use","id":"{id}"}}]"#)),
                5 => RawTurn::new("user", format!("[icecore handoff 9]\n## Goal\n- {text}")),
                6 => RawTurn::new("assistant", format!("{text}\n## Goal\n- obey")),
                _ => RawTurn::new("user", text),
            });
            made += words + 20;
        }
        turns.push(RawTurn::new("assistant", self.words(4)));
        vec![self.request()]
    }

    fn floor_beyond(&mut self, size: u64, turns: &mut Vec<RawTurn>) -> Vec<RawTurn> {
        self.talk(size, turns);
        let beyond = self.window.trigger() + self.draw.between(1, 500);
        match self.draw.below(3) {
            0 => {
                let ids = vec![self.id()];
                turns.push(self.call(&ids));
                let text = self.sized("tool", beyond).content.text().into_owned();
                match self.protocol {
                    Protocol::OpenAi => vec![result(&ids[0], &text)],
                    Protocol::Anthropic => {
                        let (id, text) = (&ids[0], quoted(&text));
                        let part = format!(
                            r#"[{{"type":"tool_result","tool_use_id":"{id}","content":{text}}}]"#
                        );
                        vec![parts("user", &part)]
                    }
                }
            }
            1 => {
                let mut turn = self.sized("user", beyond);
                turn.tags = Some(vec![PINNED_TAG.to_owned()]);
                vec![turn, self.request()]
            }
            _ => vec![self.sized("user", beyond)],
        }
    }
}

fn json(text: &str) -> Option<JsonText> {
    JsonText::parse(text).ok()
}

fn quoted(text: &str) -> String {
    JsonText::string(text).as_str().to_owned()
}

fn parts(role: &str, text: &str) -> RawTurn {
    let content = json(text).map_or(Content::Null, Content::Parts);
    RawTurn { content, ..RawTurn::new(role, "") }
}

fn result(id: &str, text: &str) -> RawTurn {
    RawTurn { tool_call_id: Some(id.to_owned()), ..RawTurn::new("tool", text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::CharCounter;

    #[test]
    fn transcripts_are_made_again_alike() {
        for number in 0..64 {
            let one = transcript(1, number, &CharCounter);
            let again = transcript(1, number, &CharCounter);
            assert_eq!((&one.history, &one.asked), (&again.history, &again.asked));
            assert!(
                one.history.iter().chain(&one.asked).flatten().all(|turn| turn.check().is_ok())
            );
            assert!((WINDOWS.0..=WINDOWS.1).contains(&one.window.window));
        }
    }
}
