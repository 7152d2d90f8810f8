//! Draws from a seed: numbers, letters and words. Equal seeds draw alike.

use crate::redact::samples;

pub(super) const HEX: &str = "0123456789abcdef";
pub(super) const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
pub(super) const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
pub(super) const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
pub(super) const DIGITS: &str = "0123456789";

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "account", "address", "adapter", "anchor", "archive", "balance", "banner", "batch", "billing",
    "bridge", "bucket", "buffer", "builder", "cache", "calendar", "canvas", "catalog", "channel",
    "checkout", "client", "cluster", "column", "config", "consumer", "context", "counter",
    "customer", "dashboard", "delivery", "device", "document", "driver", "editor", "engine",
    "entity", "event", "export", "factory", "feature", "filter", "folder", "gateway", "handler",
    "header", "image", "import", "index", "input", "invoice", "journal", "ledger", "legacy",
    "library", "listener", "locale", "manager", "mapper", "market", "matrix", "member", "message",
    "metric", "mirror", "mobile", "module", "monitor", "network", "notice", "object", "order",
    "output", "packet", "parser", "partner", "payment", "pipeline", "planner", "player", "plugin",
    "policy", "portal", "printer", "process", "product", "profile", "project", "provider", "proxy",
    "query", "queue", "reader", "record", "region", "release", "render", "report", "request",
    "response", "router", "sample", "scanner", "schedule", "schema", "sensor", "server", "service",
    "shipping", "signal", "socket", "source", "storage", "stream", "student", "summary", "supplier",
    "support", "switch", "system", "table", "target", "theme", "thread", "ticket", "timer", "topic",
    "tracker", "transfer", "update", "upload", "vendor", "version", "video", "viewer", "volume",
    "wallet", "widget", "window", "worker", "writer",
];

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "Ada", "Ben", "Chiara", "Dmitri", "Elif", "Farid", "Grace", "Hana", "Ivan", "Joana", "Kofi",
    "Lena", "Mateo", "Nadia", "Oskar", "Priya", "Quentin", "Rosa", "Sven", "Tomás", "Uma", "Viktor",
    "Wen", "Ximena", "Yusuf", "Zoë",
];

/// A stream of draws.
pub(super) struct Draw(u64);

impl Draw {
    /// A stream for one purpose: `name` keeps those of one seed apart.
    pub(super) fn named(seed: u64, name: &str, number: usize) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(hash.wrapping_add((number as u64).wrapping_mul(0xd134_2543_de82_ef95)))
    }

    pub(super) fn next(&mut self) -> u64 {
        samples::next(&mut self.0)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }

    /// A number from `low` to `high`.
    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// `count` characters of `letters`.
    pub(super) fn text(&mut self, letters: &str, count: usize) -> String {
        (0..count).map(|_| char::from(letters.as_bytes()[self.below(letters.len())])).collect()
    }

    pub(super) fn hex(&mut self, count: usize) -> String {
        self.text(HEX, count)
    }

    pub(super) fn word(&mut self) -> &'static str {
        self.pick(WORDS)
    }

    pub(super) fn person(&mut self) -> &'static str {
        self.pick(NAMES)
    }

    /// `OrderParser`: `count` words, each with a capital.
    pub(super) fn camel(&mut self, count: usize) -> String {
        (0..count).map(|_| capital(self.word())).collect()
    }

    pub(super) fn uuid(&mut self) -> String {
        let variant = self.pick(&["8", "9", "a", "b"]);
        let [a, b, c, d, e] = [8, 4, 3, 3, 12].map(|count| self.hex(count));
        format!("{a}-{b}-4{c}-{variant}{d}-{e}")
    }

    pub(super) fn date(&mut self) -> String {
        let (year, month, day) =
            (self.between(2015, 2026), self.between(1, 12), self.between(1, 28));
        format!("{year}-{month:02}-{day:02}")
    }

    pub(super) fn time(&mut self) -> String {
        let (hour, minute, second) = (self.below(24), self.below(60), self.below(60));
        format!("{hour:02}:{minute:02}:{second:02}")
    }

    pub(super) fn version(&mut self) -> String {
        format!("{}.{}.{}", self.below(12), self.below(40), self.below(30))
    }

    /// `template` in which `{word}` and the like are drawn anew each time; see
    /// [`Draw::hole`]. Any other brace stands for itself.
    pub(super) fn fill(&mut self, template: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            rest = &rest[open..];
            let filled = rest.find('}').and_then(|end| Some((self.hole(&rest[1..end])?, end + 1)));
            match filled {
                Some((text, length)) => {
                    out.push_str(&text);
                    rest = &rest[length..];
                }
                None => {
                    out.push('{');
                    rest = &rest[1..];
                }
            }
        }
        out + rest
    }

    /// What stands for `{name}`, if it stands for anything.
    fn hole(&mut self, name: &str) -> Option<String> {
        let drawn = |letters: &str, count: &str, draw: &mut Self| {
            count.parse().ok().map(|count| draw.text(letters, count))
        };
        Some(match name {
            "word" => self.word().to_owned(),
            "Word" => capital(self.word()),
            "WORD" => self.word().to_uppercase(),
            "name" => self.person().to_owned(),
            "camel" => {
                let count = self.between(2, 4);
                self.camel(count)
            }
            "uuid" => self.uuid(),
            "date" => self.date(),
            "time" => self.time(),
            "version" => self.version(),
            "n" => self.between(2, 99).to_string(),
            _ => {
                let (class, count) = name.split_once(':')?;
                let letters = match class {
                    "hex" => HEX,
                    "low" => LOWER,
                    "alnum" => ALNUM,
                    "b64" => BASE64,
                    "dig" => DIGITS,
                    _ => return None,
                };
                return drawn(letters, count, self);
            }
        })
    }
}

/// `word` with a capital.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>())
        + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_holes_and_keeps_other_braces() {
        let text = Draw(3).fill("{ {hex:8} {nope} {n}");
        assert!(text.starts_with("{ ") && text.contains(" {nope} "), "{text}");
        assert_eq!(text, Draw(3).fill("{ {hex:8} {nope} {n}"));
        assert_ne!(Draw::named(1, "a", 0).next(), Draw::named(1, "b", 0).next());
    }
}
