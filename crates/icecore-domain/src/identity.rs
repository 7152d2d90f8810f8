//! When two turns are the same turn.
//!
//! Each turn is stored with a keyed hash of its raw body. The hash decides
//! whether a re-sent id is the same turn or a conflict and which lines an import
//! already holds, without keeping the raw text or a hash that could be guessed,
//! and a later redaction rule changes nothing about it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::turn::{Content, RawTurn};

/// A tenant's key for identities. Wiped from memory when dropped.
#[derive(Clone, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub struct IdentityKey([u8; 32]);

impl std::fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdentityKey(…)")
    }
}

/// What a stored turn is recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TurnIdentity {
    /// Finds the turn: from its client id where it has one, else from its body.
    /// Short, so that an index of it is small; a hit is confirmed by `body`.
    pub lookup: i64,
    /// Keyed hash of the canonical raw body, 128 bits.
    pub body: [u8; 16],
}

/// What a message of a client's history is known by: a keyed hash of it and of all
/// messages before it. The same words after other words have another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link([u8; 16]);

impl Link {
    /// A link as it was stored.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, for a store.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl IdentityKey {
    /// A key from 32 secret bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The identity of a turn.
    pub fn identify(&self, turn: &RawTurn) -> TurnIdentity {
        let body = self.keyed(b"body", |mac| write_canonical(turn, mac));
        let lookup = match &turn.id {
            Some(id) => self.lookup_of_id(id),
            None => {
                let mut head = [0; 8];
                head.copy_from_slice(&body[..8]);
                i64::from_be_bytes(head)
            }
        };
        let mut short = [0; 16];
        short.copy_from_slice(&body[..16]);
        TurnIdentity { lookup, body: short }
    }

    /// What a turn with this client id is found by.
    pub fn lookup_of_id(&self, id: &str) -> i64 {
        let hash = self.keyed(b"id", |mac| mac.update(id.as_bytes()));
        let mut head = [0; 8];
        head.copy_from_slice(&hash[..8]);
        i64::from_be_bytes(head)
    }

    /// A keyed hash of a name, by which a forgotten name is still recognised.
    pub fn hash_name(&self, kind: &str, name: &str) -> [u8; 16] {
        let hash = self.keyed(kind.as_bytes(), |mac| mac.update(name.as_bytes()));
        let mut short = [0; 16];
        short.copy_from_slice(&hash[..16]);
        short
    }

    /// A keyed hash of several texts, each with its length so that none runs into the
    /// next. Who has not the key can guess nothing from it.
    pub fn hash_parts(&self, kind: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.keyed(kind.as_bytes(), |mac| {
            for part in parts {
                mac.update(&(part.len() as u64).to_be_bytes());
                mac.update(part);
            }
        })
    }

    /// The link before the first message of any history.
    pub fn first_link(&self) -> Link {
        Link(self.hash_name("thread", ""))
    }

    /// The link of a message that is recognised by these bytes, after another.
    pub fn next_link(&self, before: Link, recognised_by: &[u8]) -> Link {
        let hash = self.keyed(b"link", |mac| {
            mac.update(&before.0);
            mac.update(recognised_by);
        });
        let mut short = [0; 16];
        short.copy_from_slice(&hash[..16]);
        Link(short)
    }

    fn keyed(&self, domain: &[u8], write: impl FnOnce(&mut Hmac<Sha256>)) -> [u8; 32] {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .expect("HMAC takes keys of any length");
        mac.update(&[domain.len() as u8]);
        mac.update(domain);
        write(&mut mac);
        mac.finalize().into_bytes().into()
    }
}

/// Each field as tag, length and bytes, absent ones left out, so that no two
/// bodies share an encoding. JSON counts by its normalised text.
fn write_canonical(turn: &RawTurn, mac: &mut Hmac<Sha256>) {
    let mut put = |tag: u8, bytes: &[u8]| {
        mac.update(&[tag]);
        mac.update(&(bytes.len() as u64).to_be_bytes());
        mac.update(bytes);
    };
    put(b'r', turn.role.as_bytes());
    match &turn.content {
        Content::Text(text) => put(b'c', text.as_bytes()),
        Content::Null => put(b'0', b""),
        Content::Parts(json) => put(b'p', json.normalised().as_bytes()),
    }
    let texts =
        [(b'i', &turn.id), (b'n', &turn.name), (b'm', &turn.model), (b'k', &turn.tool_call_id)];
    for (tag, text) in texts {
        if let Some(text) = text {
            put(tag, text.as_bytes());
        }
    }
    if let Some(timestamp) = &turn.timestamp {
        put(b't', timestamp.as_str().as_bytes());
    }
    for (tag, list) in [(b'P', &turn.parent_ids), (b'T', &turn.tags)] {
        if let Some(list) = list {
            put(tag, &(list.len() as u64).to_be_bytes());
            list.iter().for_each(|item| put(b'.', item.as_bytes()));
        }
    }
    for (tag, json) in [(b'C', &turn.confidence), (b'K', &turn.tool_calls)] {
        if let Some(json) = json {
            put(tag, json.normalised().as_bytes());
        }
    }
    let mut extra: Vec<_> = turn.extra.iter().collect();
    extra.sort_by(|a, b| a.0.cmp(&b.0));
    for (key, json) in extra {
        put(b'x', key.as_bytes());
        put(b'v', json.normalised().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn_jsonl::parse_line;

    fn body(line: &str) -> TurnIdentity {
        IdentityKey::new([7; 32]).identify(&parse_line(line).unwrap().turn)
    }

    #[test]
    fn spelling_and_field_order_do_not_matter_and_content_does() {
        let a = body(r#"{"role":"user","content":"hi","x":{"a": 1},"y":2}"#);
        assert_eq!(a, body(r#"{"y":2,"content":"\u0068i","x":{"a":1},"role":"user"}"#));
        assert_ne!(a, body(r#"{"role":"user","content":"hi","x":{"a":2},"y":2}"#));
        assert_ne!(a, body(r#"{"role":"user","content":"hi"}"#));
        assert_ne!(
            body(r#"{"role":"user","content":null}"#),
            body(r#"{"role":"user","content":""}"#)
        );
        assert_ne!(
            body(r#"{"role":"a","content":"b","tags":["x","y"]}"#),
            body(r#"{"role":"a","content":"b","tags":["xy"]}"#)
        );
    }

    #[test]
    fn an_id_finds_its_turn_whatever_the_body() {
        let one = body(r#"{"role":"user","content":"one","id":"7"}"#);
        let two = body(r#"{"role":"user","content":"two","id":"7"}"#);
        assert_eq!(one.lookup, two.lookup);
        assert_ne!(one.body, two.body);
    }

    #[test]
    fn another_key_gives_another_identity() {
        let turn = RawTurn::new("user", "hi");
        let (a, b) = (IdentityKey::new([1; 32]), IdentityKey::new([2; 32]));
        assert_ne!(a.identify(&turn), b.identify(&turn));
        assert_ne!(a.hash_name("session", "s"), b.hash_name("session", "s"));
        assert_ne!(a.hash_parts("request", &[b"s"]), b.hash_parts("request", &[b"s"]));
    }

    #[test]
    fn a_link_tells_of_all_that_came_before() {
        let chain = |key: u8, messages: &[&str]| {
            let key = IdentityKey::new([key; 32]);
            let next = |link, message: &&str| key.next_link(link, message.as_bytes());
            messages.iter().fold(key.first_link(), next)
        };
        assert_eq!(chain(7, &["a", "b"]), chain(7, &["a", "b"]));
        assert_ne!(chain(7, &["a", "b"]), chain(7, &["c", "b"]));
        assert_ne!(chain(7, &["a", "b"]), chain(7, &["b"]));
        assert_ne!(chain(7, &["a", "b"]), chain(7, &["ab"]));
        assert_ne!(chain(7, &["a"]), chain(8, &["a"]));
        assert_ne!(chain(7, &[]), chain(8, &[]));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let hash = |kind: &str, parts: &[&[u8]]| IdentityKey::new([7; 32]).hash_parts(kind, parts);
        assert_eq!(hash("request", &[b"ab", b"c"]), hash("request", &[b"ab", b"c"]));
        assert_ne!(hash("request", &[b"ab", b"c"]), hash("request", &[b"a", b"bc"]));
        assert_ne!(hash("request", &[b"ab"]), hash("request", &[b"ab", b""]));
        assert_ne!(hash("request", &[b"ab"]), hash("key", &[b"ab"]));
    }
}
