//! The JSON that `--json` prints: the same objects as the HTTP routes.

use icecore::config::Shown;
use icecore::json::quote;
use icecore::turn_jsonl::write_fields;
use icecore::{
    AddedSecret, ApiKeyRecord, CheckReport, ChunkInfo, Context, EntryRecord, EventRecord, FactInfo,
    Hit, Hits, ImportReport, Level, PackReport, RawTurn, Receipt, Remembered, Rescanned,
    SecretRecord, SessionInfo, Stats, StoredTurn, Tier, Timestamp, View, WindowItem,
};
use icecore_server::NewKey;
use serde_json::{Map, Value, json};

/// A turn with where it is kept. Text, because numbers and strings of a
/// provider keep their spelling. A field of the client's that has one of our
/// names stands under `clientFields`.
pub fn turn(turn: &StoredTurn) -> String {
    let mut ours = vec![
        ("seq", turn.seq.to_string()),
        ("branch", quote(&turn.branch.to_string())),
        ("tokens", turn.tokens.to_string()),
        ("tier", quote(turn.tier.as_str())),
    ];
    let Some(stored) = &turn.turn else {
        ours.push(("timestamp", quote(&turn.at.to_rfc3339())));
        ours.push(("expired", "true".to_owned()));
        return object(std::iter::once(("id", quote(&turn.id))).chain(ours));
    };
    let mut fields = with_defaults(turn, stored.fields());
    let taken = |key: &str| {
        ours.iter().any(|(mine, _)| *mine == key) || matches!(key, "expired" | "clientFields")
    };
    let (hidden, shown): (Vec<_>, Vec<_>) =
        fields.extra.into_iter().partition(|(key, _)| taken(key));
    fields.extra = shown;
    if !hidden.is_empty() {
        let hidden = hidden.iter().map(|(key, json)| (key.as_str(), json.to_string()));
        ours.push(("clientFields", object(hidden)));
    }
    write_fields(&ours, &fields)
}

/// A turn as a line that says what was given by default too. What the client
/// said under one of our names goes before what we would say.
pub fn full_line(turn: &StoredTurn) -> String {
    let Some(stored) = &turn.turn else { return String::new() };
    let fields = with_defaults(turn, stored.fields());
    let mut ours = vec![
        ("session", quote(&turn.session)),
        ("seq", turn.seq.to_string()),
        ("branch", quote(&turn.branch.to_string())),
    ];
    ours.retain(|(mine, _)| !fields.extra.iter().any(|(key, _)| key == mine));
    write_fields(&ours, &fields)
}

/// The fields with an id and a time. A null in their place says no more than
/// that we gave one.
fn with_defaults(turn: &StoredTurn, fields: &RawTurn) -> RawTurn {
    let mut fields = fields.clone();
    fields.id = Some(turn.id.clone());
    fields.timestamp = fields.timestamp.or_else(|| Timestamp::parse(turn.at.to_rfc3339()).ok());
    fields.extra.retain(|(key, _)| !matches!(key.as_str(), "id" | "timestamp"));
    fields
}

fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> =
        members.map(|(key, value)| format!("{}:{value}", quote(key))).collect();
    format!("{{{}}}", members.join(","))
}

/// A list of turns under a name, with more members after it.
pub fn turns(name: &str, turns: &[StoredTurn], more: &[(&str, String)]) -> String {
    let list: Vec<String> = turns.iter().map(turn).collect();
    let more: String = more.iter().map(|(key, value)| format!(",{}:{value}", quote(key))).collect();
    format!("{{{}:[{}]{more}}}", quote(name), list.join(","))
}

/// `GET /sessions/{session}/view`
pub fn view(view: &View) -> String {
    turns("messages", &view.messages, &[("tokens", view.tokens.to_string())])
}

/// `POST /sessions/{session}/turns`
pub fn remembered(remembered: &Remembered) -> Value {
    json!({
        "turnIds": remembered.turn_ids,
        "firstSeq": remembered.first_seq.0,
        "lastSeq": remembered.last_seq.0,
        "added": remembered.added,
        "known": remembered.known,
        "forgotten": remembered.forgotten,
    })
}

/// What an import did.
pub fn imported(report: &ImportReport) -> Value {
    json!({
        "lines": report.lines,
        "added": report.added,
        "known": report.known,
        "forgotten": report.forgotten,
    })
}

/// `GET /sessions`
pub fn sessions(sessions: &[SessionInfo]) -> Value {
    let one = |session: &SessionInfo| {
        json!({
            "session": session.session,
            "turns": session.turns,
            "tokens": session.tokens,
            "branches": session.branches.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "lastSeq": session.last_seq.0,
            "updatedAt": session.updated_at.to_rfc3339(),
        })
    };
    json!({ "sessions": sessions.iter().map(one).collect::<Vec<_>>() })
}

/// `GET /chunks/{id}`
pub fn chunk(chunk: &ChunkInfo) -> Value {
    json!({
        "id": chunk.id.to_string(),
        "session": chunk.session,
        "branch": chunk.id.branch.to_string(),
        "level": chunk.id.level.as_str(),
        "tier": chunk.tier.as_str(),
        "firstSeq": chunk.first_seq.0,
        "lastSeq": chunk.last_seq.0,
        "turnCount": chunk.turns,
        "tokens": chunk.tokens,
        "summary": chunk.summary.as_ref().map(|summary| &summary.text),
        "themes": chunk.summary.as_ref().map(|summary| summary.themes.as_slice()).unwrap_or_default(),
        "keyFacts":
            chunk.summary.as_ref().map(|summary| summary.key_facts.as_slice()).unwrap_or_default(),
        "parent": chunk.parent.map(|id| id.to_string()),
        "children": chunk.children.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// A chunk and the turns it expands to.
pub fn expanded(info: &ChunkInfo, turns: &[StoredTurn]) -> String {
    let head = chunk(info).to_string();
    let list: Vec<String> = turns.iter().map(turn).collect();
    format!("{},\"turns\":[{}]}}", head.trim_end_matches('}'), list.join(","))
}

/// `GET /entries/{id}`
pub fn entry(entry: &EntryRecord, memory: &str) -> Value {
    json!({
        "id": entry.id,
        "memoryRef": memory,
        "content": entry.content.as_str(),
        "tags": entry.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(),
        "createdAt": entry.created_at.to_rfc3339(),
        "expiresAt": entry.expires_at.map(|at| at.to_rfc3339()),
    })
}

/// `POST /context`
pub fn context(context: &Context) -> Value {
    let one = |item: &WindowItem| {
        json!({
            "kind": item.kind.as_str(),
            "id": item.id,
            "tier": item.tier,
            "tokens": item.tokens,
            "score": item.score,
            "reason": item.reason,
            "text": item.text,
            "sources": item.sources,
        })
    };
    let body = json!({
        "text": context.text,
        "tokens": context.tokens,
        "budget": context.budget,
        "items": context.items.iter().map(one).collect::<Vec<_>>(),
    });
    with_notices(body, &context.notices)
}

/// `POST /search`
pub fn hits(found: &Hits) -> Value {
    let body = json!({ "hits": found.hits.iter().map(hit).collect::<Vec<_>>() });
    with_notices(body, &found.notices)
}

fn hit(hit: &Hit) -> Value {
    let signals: Map<String, Value> =
        hit.signals.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({
        "kind": hit.kind.as_str(),
        "id": hit.id,
        "session": hit.session,
        "seq": hit.seq.map(|seq| seq.0),
        "role": hit.role,
        "name": hit.name,
        "text": hit.text,
        "score": hit.score,
        "reason": hit.reason,
        "signals": signals,
        "timestamp": hit.at.to_rfc3339(),
    })
}

fn with_notices(mut body: Value, notices: &[String]) -> Value {
    if !notices.is_empty() {
        body["notices"] = json!(notices);
    }
    body
}

/// One of `GET /events`
pub fn event(event: &EventRecord) -> Value {
    let payload: Value = serde_json::from_str(&event.payload).unwrap_or_default();
    json!({
        "seq": event.position.0,
        "type": event.kind,
        "timestamp": event.at.to_rfc3339(),
        "payload": payload,
    })
}

/// `GET /facts`
pub fn facts(facts: &[FactInfo]) -> Value {
    let one = |fact: &FactInfo| {
        let sources = fact.sources.iter();
        let sources = sources.map(|s| json!({ "turnId": s.turn_id, "quote": s.quote }));
        json!({
            "id": fact.id,
            "text": fact.text,
            "kind": fact.kind.as_str(),
            "subject": fact.subject,
            "status": fact.status.as_str(),
            "validFrom": fact.valid_from.to_rfc3339(),
            "validTo": fact.valid_to.map(|at| at.to_rfc3339()),
            "sources": sources.collect::<Vec<_>>(),
        })
    };
    json!({ "facts": facts.iter().map(one).collect::<Vec<_>>() })
}

/// `POST /forget`
pub fn receipt(receipt: &Receipt) -> Value {
    let erased = receipt.erased;
    json!({
        "receiptId": receipt.id,
        "kind": receipt.kind,
        "at": receipt.at.to_rfc3339(),
        "dryRun": receipt.dry_run,
        "erased": {
            "turns": erased.turns,
            "entries": erased.entries,
            "chunks": erased.chunks,
            "facts": erased.facts,
            "vectors": erased.vectors,
            "packs": erased.packs,
            "archives": 0,
        },
        "statement": receipt.statement(),
        "sha256": receipt.sha256,
    })
}

/// `GET /stats`
pub fn stats(stats: &Stats, memory: Option<&str>) -> Value {
    let store = &stats.store;
    let mut tiers = Map::new();
    for (at, tier) in Tier::ALL.into_iter().enumerate() {
        let sizes = json!({
            "turns": store.tier_turns[at],
            "tokens": store.tier_tokens[at],
            "bytes": store.tier_bytes[at],
        });
        tiers.insert(tier.as_str().to_owned(), sizes);
    }
    let levels = |counts: [u64; 3]| {
        let pairs = Level::ALL.into_iter().zip(counts);
        pairs.map(|(level, count)| (level.as_str().to_owned(), count.into())).collect::<Map<_, _>>()
    };
    json!({
        "memoryRef": memory,
        "sessions": store.sessions,
        "branches": store.branches,
        "turns": store.turns,
        "tokens": store.tokens,
        "openTurns": store.open_turns,
        "tiers": tiers,
        "chunks": levels(store.chunks),
        "summaries": levels(store.summaries),
        "summaryBytes": store.summary_bytes,
        "packs": store.packs,
        "entries": store.entries,
        "erased": store.erased,
        "expired": store.expired,
        "epoch": store.epoch,
        "redacted": store.hidden,
        "pending": stats.pending,
        "diskBytes": stats.disk_bytes,
        "tokenizer": stats.tokenizer,
    })
}

/// An API key, without what its holder presents.
pub fn key(key: &ApiKeyRecord) -> Value {
    json!({
        "id": key.id,
        "tenant": key.tenant.as_str(),
        "name": key.name.as_ref().map(|name| name.as_str()),
        "role": key.role,
        "createdAt": key.created_at.to_rfc3339(),
        "expiresAt": key.expires_at.map(|at| at.to_rfc3339()),
        "revokedAt": key.revoked_at.map(|at| at.to_rfc3339()),
    })
}

/// A key that was just made, shown this once.
pub fn new_key(made: &NewKey) -> Value {
    let mut value = key(&made.record);
    value["key"] = json!(made.key);
    value
}

/// A registered secret, without its values.
pub fn secret(secret: &SecretRecord) -> Value {
    json!({
        "name": secret.name.as_str(),
        "values": secret.values,
        "createdAt": secret.created_at.to_rfc3339(),
        "updatedAt": secret.updated_at.to_rfc3339(),
    })
}

/// The same, with what to know once it is added.
pub fn added_secret(added: &AddedSecret) -> Value {
    let mut value = secret(&added.record);
    value["isCommon"] = added.is_common.into();
    value["rescanAdvised"] = added.has_earlier.into();
    value
}

/// What a rescan did.
pub fn rescanned(done: &Rescanned) -> Value {
    json!({
        "lookedAt": done.looked_at,
        "turns": done.turns,
        "packs": done.packs,
        "names": done.names,
        "entries": done.entries,
        "facts": done.facts,
        "events": done.events,
        "redacted": done.hidden,
        "dryRun": done.dry_run,
    })
}

/// A pack, and what is wrong with it.
pub fn pack(report: &PackReport) -> Value {
    let pack = &report.pack;
    json!({
        "pack": pack.name,
        "memoryRef": pack.scope.memory(),
        "chunk": pack.id.to_string(),
        "bytes": pack.bytes,
        "sha256": hex::encode(pack.sha256),
        "createdAt": pack.created_at.to_rfc3339(),
        "problem": report.problem,
    })
}

/// What `check` found.
pub fn check(report: &CheckReport) -> Value {
    json!({
        "ok": report.is_ok(),
        "turns": report.turns,
        "texts": report.texts,
        "packs": report.packs,
        "indexes": report.indexes,
        "orphans": report.orphans,
        "removed": report.removed,
        "problems": report.problems,
    })
}

/// One setting.
pub fn setting(shown: &Shown, origin: &str) -> Value {
    json!({ "key": shown.key, "value": shown.value, "origin": origin })
}
