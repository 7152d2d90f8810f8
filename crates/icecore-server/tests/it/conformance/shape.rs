//! Whether a value has the shape that the contract gives it.
//!
//! The protocol closes most of its objects: a member too many is as wrong as one too
//! few. The schemas of our own document are another matter (see `schema.rs`): these
//! shapes are the contract's, so that a mistake in both our answer and our document
//! is seen here.

use icecore::Millis;
use serde_json::Value;

/// A member: its name, with `?` if it may be missing, and what it is.
pub(crate) type Field = (&'static str, Kind);

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Anything,
    Flag,
    /// True and nothing else.
    True,
    /// A whole number of at least this.
    Whole(u64),
    /// From 0 to 1.
    Share,
    Text,
    /// A text that is not empty.
    Word,
    Moment,
    /// A path of a workspace file.
    Path,
    /// One of these words.
    Among(&'static [&'static str]),
    Each(&'static Kind),
    /// The same, and none of them twice.
    EachOnce(&'static Kind),
    /// An object of any names.
    Map(&'static Kind),
    Closed(&'static [Field]),
    Open(&'static [Field]),
}

/// Panics with every way in which `value` is something else.
#[track_caller]
pub(crate) fn fits(kind: &Kind, value: &Value) {
    let found = misfits(kind, value);
    assert!(found.is_empty(), "{found:#?} in {value}");
}

pub(crate) fn misfits(kind: &Kind, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look(kind, value, "$", &mut found);
    found
}

fn look(kind: &Kind, value: &Value, at: &str, found: &mut Vec<String>) {
    let is_fine = match kind {
        Kind::Anything => true,
        Kind::Flag => value.is_boolean(),
        Kind::True => *value == true,
        Kind::Whole(least) => value.as_u64().is_some_and(|number| number >= *least),
        Kind::Share => value.as_f64().is_some_and(|number| (0.0..=1.0).contains(&number)),
        Kind::Text => value.is_string(),
        Kind::Word => value.as_str().is_some_and(|text| !text.is_empty()),
        Kind::Moment => value.as_str().is_some_and(|text| Millis::parse_rfc3339(text).is_ok()),
        Kind::Path => value.as_str().is_some_and(is_path),
        Kind::Among(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        Kind::Each(_) | Kind::EachOnce(_) => value.is_array(),
        Kind::Map(_) | Kind::Closed(_) | Kind::Open(_) => value.is_object(),
    };
    if !is_fine {
        return found.push(format!("{at} is {value}"));
    }
    match kind {
        Kind::Each(one) | Kind::EachOnce(one) => {
            let items = value.as_array().unwrap();
            for (index, item) in items.iter().enumerate() {
                look(one, item, &format!("{at}[{index}]"), found);
                if matches!(kind, Kind::EachOnce(_)) && items[..index].contains(item) {
                    found.push(format!("{at} holds {item} twice"));
                }
            }
        }
        Kind::Map(one) => {
            for (name, item) in value.as_object().unwrap() {
                look(one, item, &format!("{at}.{name}"), found);
            }
        }
        Kind::Closed(fields) => look_in(fields, true, value, at, found),
        Kind::Open(fields) => look_in(fields, false, value, at, found),
        _ => {}
    }
}

fn look_in(fields: &[Field], is_closed: bool, value: &Value, at: &str, found: &mut Vec<String>) {
    let members = value.as_object().unwrap();
    for (name, kind) in fields {
        let plain = name.trim_end_matches('?');
        match members.get(plain) {
            Some(member) => look(kind, member, &format!("{at}.{plain}"), found),
            None if plain == *name => found.push(format!("{at}.{plain} is missing")),
            None => {}
        }
    }
    let is_known = |name: &str| fields.iter().any(|(known, _)| known.trim_end_matches('?') == name);
    for name in members.keys().filter(|name| is_closed && !is_known(name)) {
        found.push(format!("{at}.{name} is no member of a closed object"));
    }
}

fn is_path(text: &str) -> bool {
    let may_follow = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    text.len() <= 256
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(may_follow)
}

const MEMORY: Kind = Kind::Open(&[
    ("supported?", Kind::Flag),
    ("maxEntrySizeBytes?", Kind::Whole(1)),
    ("ttlSupported?", Kind::Flag),
    ("writable?", Kind::Flag),
    (
        "search?",
        Kind::Closed(&[
            ("supported", Kind::Flag),
            ("modes?", Kind::EachOnce(&Kind::Among(&["semantic", "filter"]))),
        ]),
    ),
    ("retention?", Kind::Closed(&[("ttl?", Kind::Flag), ("forget?", Kind::Flag)])),
    (
        "compaction?",
        Kind::Closed(&[
            ("supported", Kind::Flag),
            ("trigger", Kind::Among(&TRIGGERS)),
            ("maxInputEntries?", Kind::Whole(1)),
            ("maxOutputBytes?", Kind::Whole(0)),
        ]),
    ),
    (
        "distillation?",
        Kind::Closed(&[
            ("supported", Kind::Flag),
            ("maxTokenBudget?", Kind::Whole(1)),
            ("scheduled?", Kind::Flag),
            ("indexEmitted?", Kind::Flag),
            ("tokenizerName?", Kind::Word),
            ("archiveRetention?", Kind::Word),
        ]),
    ),
    ("attribution?", Kind::Closed(&[("supported", Kind::True), ("emitsWriteEvents?", Kind::Flag)])),
    (
        "injectionBudget?",
        Kind::Closed(&[("supported", Kind::Flag), ("tokenCounter", Kind::Among(&COUNTERS))]),
    ),
]);

const TRIGGERS: [&str; 3] = ["host-managed", "client-requested", "both"];

const COUNTERS: [&str; 4] = ["o200k_base", "cl100k_base", "chars", "host-defined"];

const AGENTS: Kind = Kind::Open(&[
    ("supported?", Kind::Flag),
    ("memoryBackends?", Kind::EachOnce(&Kind::Among(&["long-term"]))),
    (
        "memoryConsolidation?",
        Kind::Closed(&[
            ("supported", Kind::Flag),
            ("schedule?", Kind::Among(&["host-managed", "scheduled", "on-demand"])),
        ]),
    ),
    (
        "commitments?",
        Kind::Closed(&[
            ("supported", Kind::Flag),
            ("fireConditions?", Kind::EachOnce(&Kind::Among(&["time", "predicate"]))),
        ]),
    ),
    (
        "manifestRuntime?",
        Kind::Closed(&[
            ("supported", Kind::Flag),
            ("handoffValidation?", Kind::Flag),
            ("installScope?", Kind::Among(&["host", "tenant"])),
        ]),
    ),
]);

const WORKSPACE: Kind = Kind::Closed(&[
    ("supported", Kind::Flag),
    ("versioned?", Kind::Flag),
    ("maxFileBytes?", Kind::Whole(1)),
    ("maxFiles?", Kind::Whole(1)),
    ("maxVersions?", Kind::Whole(1)),
]);

const SCHEDULING: Kind = Kind::Closed(&[
    ("supported", Kind::Flag),
    ("cron?", Kind::Flag),
    ("delayed?", Kind::Flag),
    ("calendar?", Kind::Flag),
    ("maxFutureHorizon?", Kind::Word),
]);

const SECRETS: Kind = Kind::Closed(&[
    ("supported", Kind::Flag),
    ("scopes", Kind::EachOnce(&Kind::Among(&["tenant", "user", "run", "workspace"]))),
    ("resolution", Kind::Among(&["host-managed"])),
]);

const REPLAY: Kind = Kind::Open(&[
    ("supported", Kind::Flag),
    ("modes?", Kind::EachOnce(&Kind::Among(&["replay", "branch"]))),
    ("retention?", Kind::Open(&[("windowSeconds?", Kind::Whole(0))])),
    ("sideEffectSuppression?", Kind::Among(&["recorded-outcome", "none"])),
]);

/// The whole discovery document. Its own level is open.
pub(crate) const DOCUMENT: Kind = Kind::Open(&[
    ("protocolVersion", Kind::Among(&["1.0"])),
    ("supportedEnvelopes", Kind::Each(&Kind::Word)),
    ("schemaVersions", Kind::Map(&Kind::Whole(0))),
    (
        "limits",
        Kind::Closed(&[
            ("clarificationRounds", Kind::Whole(0)),
            ("schemaRounds", Kind::Whole(0)),
            ("envelopesPerTurn", Kind::Whole(0)),
            ("maxRequestBodyBytes?", Kind::Whole(1)),
        ]),
    ),
    (
        "implementation?",
        Kind::Closed(&[("name?", Kind::Text), ("version?", Kind::Text), ("vendor?", Kind::Text)]),
    ),
    ("supportedTransports?", Kind::Each(&Kind::Among(&["rest", "mcp", "a2a", "grpc"]))),
    ("fixtures?", Kind::EachOnce(&Kind::Word)),
    ("memory?", MEMORY),
    ("agents?", AGENTS),
    ("workspace?", WORKSPACE),
    ("scheduling?", SCHEDULING),
    ("secrets?", SECRETS),
    ("replay?", REPLAY),
]);

pub(crate) const ENTRY: Kind = Kind::Open(&[
    ("id", Kind::Word),
    ("content", Kind::Text),
    ("tags", Kind::Each(&Kind::Text)),
    ("createdAt", Kind::Moment),
    ("expiresAt?", Kind::Moment),
]);

pub(crate) const RUN_EVENT: Kind = Kind::Closed(&[
    ("eventId", Kind::Word),
    ("runId", Kind::Word),
    ("type", Kind::Word),
    ("payload", Kind::Anything),
    ("timestamp", Kind::Moment),
    ("sequence", Kind::Whole(0)),
    ("nodeId?", Kind::Text),
    ("causationId?", Kind::Text),
]);

/// The payload of `memory.compacted`.
pub(crate) const COMPACTED: Kind = Kind::Open(&[
    ("memoryRef", Kind::Word),
    ("outputId", Kind::Word),
    ("sourceCount", Kind::Whole(1)),
    ("trigger", Kind::Among(&TRIGGERS)),
    ("byteSize", Kind::Whole(0)),
    ("sourceIds?", Kind::Each(&Kind::Word)),
]);

/// What the payload of a dream says of it.
pub(crate) const DISTILLED: Kind = Kind::Closed(&[
    ("tokenBudget", Kind::Whole(1)),
    ("tokensUsed", Kind::Whole(0)),
    ("indexUpdated?", Kind::Flag),
]);

/// The payload of `memory.written`.
pub(crate) const WRITTEN: Kind =
    Kind::Open(&[("memoryRef", Kind::Word), ("memoryId", Kind::Word), ("nodeId?", Kind::Word)]);

pub(crate) const FILE: Kind = Kind::Closed(&[
    ("path", Kind::Path),
    ("content", Kind::Text),
    ("contentType?", Kind::Text),
    ("version", Kind::Whole(1)),
    ("etag?", Kind::Text),
    ("updatedAt", Kind::Moment),
]);

const DIMENSIONS: [&str; 8] = [
    "read", "write", "search", "long-term-durability", "compaction", "attribution",
    "replay-snapshot", "retention",
];

const AGENT: Kind = Kind::Closed(&[
    ("agentId", Kind::Text),
    ("persona", Kind::Text),
    ("label", Kind::Text),
    ("modelClass", Kind::Text),
    ("packName", Kind::Text),
    ("packVersion", Kind::Text),
    ("toolAllowlist", Kind::Each(&Kind::Text)),
    ("hasHandoffSchemas", Kind::Flag),
    ("description?", Kind::Text),
    (
        "memoryShape?",
        Kind::Closed(&[
            ("scratchpad?", Kind::Flag),
            ("conversation?", Kind::Flag),
            ("longTerm?", Kind::Flag),
        ]),
    ),
    ("confidenceThreshold?", Kind::Share),
    ("degraded?", Kind::EachOnce(&Kind::Word)),
    ("memoryDegraded?", Kind::Flag),
    ("degradedMemoryDimensions?", Kind::EachOnce(&Kind::Among(&DIMENSIONS))),
]);

pub(crate) const INVENTORY: Kind =
    Kind::Closed(&[("agents", Kind::Each(&AGENT)), ("total", Kind::Whole(0))]);

#[test]
fn a_shape_sees_what_is_wrong() {
    let value = serde_json::json!({"agents": [{"agentId": 7, "extra": true}], "total": -1});
    let found = misfits(&INVENTORY, &value).join("\n");
    for wrong in ["[0].agentId is 7", ".persona is missing", ".extra is no", "$.total is -1"] {
        assert!(found.contains(wrong), "{wrong}: {found}");
    }
    let twice = serde_json::json!({"supported": true, "modes": ["filter", "filter"]});
    assert_eq!(misfits(&REPLAY, &twice).len(), 3);
}
