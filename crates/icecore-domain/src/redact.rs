//! Text whose secrets were looked for.
//!
//! Nothing reaches a disk, a log or a model unless it is one of the `Redacted…`
//! types, and only a [`Redactor`] makes those from what a client sent. "Redact
//! before writing" is a thing that compiles, not a thing to remember.

mod checksum;
mod decode;
mod engine;
mod hide;
mod jumble;
mod keywords;
mod kind;
mod marker;
mod patterns;
mod pii;
mod plausible;
mod registered;
pub(crate) mod samples;
mod secret;
mod stream;

#[cfg(test)]
mod pii_tests;
#[cfg(test)]
mod redact_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

pub use self::kind::{Edge, Kind, Proof};
pub use self::marker::TagKey;
pub use self::pii::pii_kinds;
pub use self::secret::{
    MAX_SECRET_BYTES, MAX_SECRET_NAME_CHARS, MAX_SECRETS, MIN_SECRET_CHARS, Secret, SecretError,
    SecretName,
};
pub use self::stream::{MAX_HELD_BYTES, RedactedStream};

use self::engine::Engine;
use self::hide::Hider;
use self::registered::Registered;
use crate::json::{JsonText, TextPlace};
use crate::turn::{Content, KNOWN_FIELDS, RawTurn};

/// A value longer than this is no password, and its key says nothing about it.
const MAX_NAMED_VALUE_BYTES: usize = 4096;

/// A shorter value is no secret, whatever its key says.
const MIN_NAMED_VALUE_BYTES: usize = 4;

/// A longer key names nothing. It is looked at for each of its values.
const MAX_NAME_OF_VALUE_BYTES: usize = 64;

/// How many secrets of each kind were hidden: by the kind's id, or the name of a
/// registered secret.
pub type Hidden = BTreeMap<String, u64>;

/// Derived text in which something secret was left after redaction. It holds
/// no text: nobody may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("derived text was not clean after redaction")]
pub struct NotClean;

/// A kind of personal data that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{id}` is no kind of personal data; there are `all`, {}", known_pii())]
pub struct UnknownPii {
    pub id: String,
}

fn known_pii() -> String {
    let ids: Vec<String> = pii_kinds().iter().map(|kind| format!("`{}`", kind.id)).collect();
    ids.join(", ")
}

/// What a plain word in a password field is called.
const PASSWORD_FIELD: &str = "password";

/// Text that has been through a [`Redactor`].
///
/// The field is private and only the redactor and the store's own reading door
/// make one, so holding it is proof that its secrets were looked for. This does
/// not compile:
///
/// ```compile_fail,E0423
/// use icecore_domain::redact::RedactedText;
/// let text = RedactedText("straight from a client".to_owned());
/// ```
///
/// And this does:
///
/// ```
/// use icecore_domain::redact::{RedactedText, Redactor};
/// let text: RedactedText = Redactor::standard().text("straight from a client");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RedactedText(String);

/// A JSON value of which every text has been through a [`Redactor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedJson(JsonText);

/// A turn of which every field has been through a [`Redactor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedTurn(RawTurn);

impl RedactedText {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by value.
    pub fn into_string(self) -> String {
        self.0
    }

    /// The text up to its last line's end: nothing, where it has one line.
    pub fn without_last_line(mut self) -> Self {
        let end = self.0.rfind('\n').unwrap_or(0);
        self.0.truncate(end);
        self
    }

    /// The store's door for what it reads back from its own disk. Everywhere
    /// else this would break the promise, and clippy refuses it.
    pub fn read_back(text: String) -> Self {
        Self(text)
    }
}

impl std::ops::Deref for RedactedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedactedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RedactedJson {
    pub fn json(&self) -> &JsonText {
        &self.0
    }

    /// The store's door; see [`RedactedText::read_back`].
    pub fn read_back(json: JsonText) -> Self {
        Self(json)
    }
}

impl RedactedTurn {
    pub fn fields(&self) -> &RawTurn {
        &self.0
    }

    /// A turn that says what is redacted already, with nothing else in it.
    pub fn saying(role: &'static str, text: RedactedText) -> Self {
        Self(RawTurn::new(role, text.into_string()))
    }

    /// Its fields, by value.
    pub fn into_fields(self) -> RawTurn {
        self.0
    }

    /// The store's door; see [`RedactedText::read_back`].
    pub fn read_back(turn: RawTurn) -> Self {
        Self(turn)
    }
}

/// Hides credentials. Built once, used everywhere.
///
/// What it takes away is replaced by `[REDACTED:<id>]`, the id of the
/// credential's [`Kind`]. Markers that are already there survive, and those of
/// others (`[BYOK:…]`, `<REDACTED:…>`) take our form, so redacting twice equals
/// redacting once.
#[derive(Clone)]
pub struct Redactor {
    engine: Arc<Engine>,
    registered: Option<Arc<Registered>>,
    tag_key: TagKey,
    tags: bool,
}

/// The table, compiled once for all who use it as it is.
static STANDARD: LazyLock<Arc<Engine>> =
    LazyLock::new(|| Arc::new(Engine::new(patterns::KINDS.iter().collect())));

/// A table without kinds.
static NOTHING: LazyLock<Engine> = LazyLock::new(|| Engine::new(Vec::new()));

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(…)")
    }
}

impl Redactor {
    /// The redactor with our table of credential kinds.
    pub fn standard() -> Self {
        Self {
            engine: Arc::clone(&STANDARD),
            registered: None,
            tag_key: TagKey::default(),
            tags: false,
        }
    }

    /// The kinds it knows, each with its samples.
    pub fn kinds() -> &'static [Kind] {
        patterns::KINDS
    }

    /// The same, which also hides what a tenant registered.
    pub fn for_tenant(&self, secrets: &[Secret], tag_key: TagKey) -> Self {
        let registered = Registered::new(secrets).map(Arc::new);
        Self { engine: Arc::clone(&self.engine), registered, tag_key, tags: self.tags }
    }

    /// The same, which also hides personal data of these kinds (see
    /// [`pii_kinds`]), or of every kind where `all` is among them.
    pub fn with_pii<S: AsRef<str>>(&self, ids: &[S]) -> Result<Self, UnknownPii> {
        let is_asked = |kind: &&Kind| ids.iter().any(|id| ["all", kind.id].contains(&id.as_ref()));
        let is_known = |id: &str| id == "all" || pii_kinds().iter().any(|kind| kind.id == id);
        if let Some(unknown) = ids.iter().map(AsRef::as_ref).find(|id| !is_known(id)) {
            return Err(UnknownPii { id: unknown.to_owned() });
        }
        let asked: Vec<&Kind> = pii_kinds().iter().filter(is_asked).collect();
        if asked.is_empty() {
            return Ok(self.clone());
        }
        let kinds = patterns::KINDS.iter().chain(asked).collect();
        Ok(Self { engine: Arc::new(Engine::new(kinds)), ..self.clone() })
    }

    /// The same, which gives every marker a short tag that tells two secrets of
    /// a kind apart: `[REDACTED:github-token:1f3a9c]`.
    pub fn with_tags(mut self, tags: bool) -> Self {
        self.tags = tags;
        self
    }

    /// Hides what is secret in `text`.
    pub fn text(&self, text: &str) -> RedactedText {
        RedactedText(self.replaced(text).unwrap_or_else(|| text.to_owned()))
    }

    /// Hides what is secret in a name: of a session, a memory, a turn, a field. Its
    /// markers always carry tags, for two names must not become one.
    pub fn name(&self, name: &str) -> RedactedText {
        RedactedText(self.tagged(name).unwrap_or_else(|| name.to_owned()))
    }

    /// `text` with its secrets hidden behind tagged markers.
    fn tagged(&self, text: &str) -> Option<String> {
        Hider { tag_key: Some(&self.tag_key), ..self.hider() }.replaced(text)
    }

    /// Whether a tenant's own secrets are among what it hides.
    pub fn has_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// `text`, which went through a redactor with the same table, without what
    /// this tenant registered besides.
    pub fn besides(&self, text: RedactedText) -> RedactedText {
        let hider = Hider { engine: &NOTHING, ..self.hider() };
        match hider.replaced(text.as_str()).filter(|_| self.has_registered()) {
            Some(replaced) => RedactedText(replaced),
            None => text,
        }
    }

    /// As [`text`](Self::text), and how many secrets were hidden. Markers that
    /// were already there are not counted.
    pub fn text_counted(&self, text: &str) -> (RedactedText, Hidden) {
        let redacted = self.text(text);
        let hidden = hidden_between(text, redacted.as_str());
        (redacted, hidden)
    }

    /// As [`turn`](Self::turn), and how many secrets were hidden.
    pub fn turn_counted(&self, turn: RawTurn) -> (RedactedTurn, Hidden) {
        let mut hidden = Tally::default();
        each_text(&turn, |text| hidden.before(text));
        let redacted = self.turn(turn);
        each_text(&redacted.0, |text| hidden.after(text));
        (redacted, hidden.hidden())
    }

    /// Hides what is secret in every field of `turn`.
    pub fn turn(&self, turn: RawTurn) -> RedactedTurn {
        let text = |text: String| self.replaced(&text).unwrap_or(text);
        let name = |name: String| self.tagged(&name).unwrap_or(name);
        let list = |list: Vec<String>| list.into_iter().map(text).collect();
        RedactedTurn(RawTurn {
            id: turn.id.map(name),
            role: text(turn.role),
            content: match turn.content {
                Content::Text(content) => Content::Text(text(content)),
                Content::Null => Content::Null,
                Content::Parts(json) => Content::Parts(self.json(&json)),
            },
            name: turn.name.map(text),
            timestamp: turn.timestamp,
            model: turn.model.map(text),
            parent_ids: turn.parent_ids.map(|ids| ids.into_iter().map(name).collect()),
            tags: turn.tags.map(list),
            confidence: turn.confidence,
            tool_calls: turn.tool_calls.map(|json| self.json(&json)),
            tool_call_id: turn.tool_call_id.map(text),
            extra: self.extra(turn.extra),
        })
    }

    /// The fields we do not know, names and values. Names whose secrets are hidden
    /// stay apart by their tags: a turn with one field twice could never be read
    /// back.
    fn extra(&self, fields: Vec<(String, JsonText)>) -> Vec<(String, JsonText)> {
        let clean: Vec<Option<String>> = fields.iter().map(|(key, _)| self.tagged(key)).collect();
        // Names that stay go first. So a second redaction, to which all of them
        // are such names, changes none.
        let kept = fields.iter().zip(&clean).filter(|(_, clean)| clean.is_none());
        let mut taken: BTreeSet<String> = kept.map(|((key, _), _)| key.clone()).collect();
        taken.extend(KNOWN_FIELDS.map(str::to_owned));
        let renamed = |((key, json), clean): ((String, JsonText), Option<String>)| {
            let value = self.field(&key, &json);
            let Some(clean) = clean else { return (key, value) };
            let name = self.free_name(&key, clean, &taken);
            taken.insert(name.clone());
            // The value as a second redaction would see it, under its new name.
            let value = self.field(&name, &value);
            (name, value)
        };
        fields.into_iter().zip(clean).map(renamed).collect()
    }

    /// `clean`, or another name for the field `key` where a field has it already.
    /// The few digits of two tags may be alike.
    fn free_name(&self, key: &str, clean: String, taken: &BTreeSet<String>) -> String {
        let is_free = |name: &String| !taken.contains(name) && self.tagged(name).is_none();
        Some(clean).filter(is_free).unwrap_or_else(|| {
            let mut salted = key.to_owned();
            loop {
                let mut name = String::new();
                marker::write_tagged(&mut name, marker::UNNAMED, &self.tag_key, &salted);
                if is_free(&name) {
                    return name;
                }
                salted.push('#');
            }
        })
    }

    /// Hides what is secret in one derived text, and looks again; and how many
    /// secrets were hidden. Markers that were already there are not counted.
    pub fn derived_text(&self, text: &str) -> Result<(RedactedText, Hidden), NotClean> {
        let redacted = RedactedText(self.derived(text)?);
        let hidden = hidden_between(text, redacted.as_str());
        Ok((redacted, hidden))
    }

    /// Text that we made ourselves is written only if a second look finds it
    /// clean: redacting twice equals redacting once, or something is broken.
    pub(crate) fn derived(&self, text: &str) -> Result<String, NotClean> {
        let Some(redacted) = self.replaced(text) else { return Ok(text.to_owned()) };
        match self.replaced(&redacted) {
            None => Ok(redacted),
            Some(_) => Err(NotClean),
        }
    }

    /// Hides what is secret in the strings, keys and bare scalars of `json`;
    /// the rest keeps its spelling.
    pub fn json(&self, json: &JsonText) -> JsonText {
        json.map_text(|place, text| match place {
            TextPlace::Key => self.tagged(text),
            TextPlace::Under(key) => self.replaced_under(key, text),
            TextPlace::Alone => self.replaced(text),
        })
    }

    /// As [`json`](Self::json), for the store.
    pub fn redacted_json(&self, json: &JsonText) -> RedactedJson {
        RedactedJson(self.json(json))
    }

    /// The same for the value of a field. The field's name counts for values
    /// that have no key of their own.
    fn field(&self, name: &str, json: &JsonText) -> JsonText {
        if json.as_str().contains('{') {
            return self.json(json);
        }
        json.map_text(|_, text| self.replaced_under(name, text))
    }

    /// The text of a value that stands under `key`, which may be all that tells
    /// a password from a word.
    fn replaced_under(&self, key: &str, text: &str) -> Option<String> {
        let is_named = (MIN_NAMED_VALUE_BYTES..=MAX_NAMED_VALUE_BYTES).contains(&text.len())
            && key.len() <= MAX_NAME_OF_VALUE_BYTES
            && self.engine.has_keyword(key);
        if !is_named {
            return self.replaced(text);
        }
        // The key as it will be stored: a second redaction sees no other.
        let clean_key = self.replaced(key);
        let key = clean_key.as_deref().unwrap_or(key);
        let plain = self.replaced(text);
        let value = plain.as_deref().unwrap_or(text);
        // Written as code would write it, the table's own patterns apply.
        let named = self.replaced(&format!("{key}=\"{value}\""));
        let inner = named.as_deref().and_then(|named| {
            let named = named.strip_prefix(key)?.strip_prefix("=\"")?;
            named.strip_suffix('"')
        });
        if named.is_none()
            && marker::markers(value).is_empty()
            && plausible::is_password_field(key, value)
        {
            return Some(marker::of(PASSWORD_FIELD));
        }
        inner.map(str::to_owned).or(plain)
    }

    /// The text with its secrets hidden, or `None` where it holds none.
    fn replaced(&self, text: &str) -> Option<String> {
        self.hider().replaced(text)
    }

    fn hider(&self) -> Hider<'_> {
        Hider {
            engine: &self.engine,
            registered: self.registered.as_deref(),
            tag_key: self.tags.then_some(&self.tag_key),
        }
    }
}

/// Counts what was hidden: the markers there are now and were not before.
#[derive(Default)]
struct Tally {
    before: Hidden,
    after: Hidden,
}

impl Tally {
    fn before(&mut self, text: &str) {
        count(text, &mut self.before);
    }

    fn after(&mut self, text: &str) {
        count(text, &mut self.after);
    }

    fn hidden(self) -> Hidden {
        let new = |(name, count): (String, u64)| {
            let count = count.saturating_sub(self.before.get(&name).copied().unwrap_or(0));
            (count > 0).then_some((name, count))
        };
        self.after.into_iter().filter_map(new).collect()
    }
}

/// How many markers of each kind a redacted text has more than the text it was made of.
pub(crate) fn hidden_between(text: &str, redacted: &str) -> Hidden {
    let mut hidden = Tally::default();
    hidden.before(text);
    hidden.after(redacted);
    hidden.hidden()
}

/// Counts the markers of `text` by name, without their tags.
fn count(text: &str, counts: &mut Hidden) {
    for found in marker::markers(text) {
        let name = found.name.unwrap_or(marker::UNNAMED);
        let name = name.split(':').next().unwrap_or(name);
        *counts.entry(name.to_owned()).or_default() += 1;
    }
}

/// Every text of a turn, JSON in its spelling.
fn each_text(turn: &RawTurn, mut tell: impl FnMut(&str)) {
    let strings = [&turn.id, &turn.name, &turn.model, &turn.tool_call_id];
    strings.into_iter().flatten().for_each(|text| tell(text));
    tell(&turn.role);
    match &turn.content {
        Content::Text(text) => tell(text),
        Content::Null => {}
        Content::Parts(json) => tell(json.as_str()),
    }
    turn.parent_ids.iter().chain(&turn.tags).flatten().for_each(|text| tell(text));
    turn.tool_calls.iter().for_each(|json| tell(json.as_str()));
    for (key, json) in &turn.extra {
        tell(key);
        tell(json.as_str());
    }
}
