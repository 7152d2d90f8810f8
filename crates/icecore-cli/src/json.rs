//! What `--json` prints beside the answers of the HTTP routes, which are the
//! server's own types.

use icecore::formats::json::quote;
use icecore::formats::turn_jsonl::write_fields;
use icecore::ingest::{ImportReport, Timestamp};
use icecore::knowledge::EntryRecord;
use icecore::layers::ChunkInfo;
use icecore::maintenance::{CheckReport, PackReport, Rescanned};
use icecore::privacy::{AddedSecret, SecretRecord};
use icecore::{RawTurn, StoredTurn};
use icecore_host::keys::ApiKeyRecord;
use icecore_server::{NewKey, wire};
use serde_json::{Value, json};

use crate::settings::Origin;

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

/// What an import did.
pub fn imported(report: &ImportReport) -> Value {
    json!({
        "lines": report.lines,
        "added": report.added,
        "known": report.known,
        "forgotten": report.forgotten,
    })
}

/// A chunk and the turns it expands to, which stand where their number would.
pub fn expanded(info: &ChunkInfo, turns: &[StoredTurn]) -> String {
    let mut head = json!(wire::Chunk::from(info));
    head["turnCount"] = head["turns"].take();
    if let Some(members) = head.as_object_mut() {
        members.remove("turns");
    }
    let list: Vec<String> = turns.iter().map(wire::turn).collect();
    let head = head.to_string();
    let open = head.strip_suffix('}').unwrap_or(&head);
    format!("{open},\"turns\":[{}]}}", list.join(","))
}

/// `GET /entries/{id}`
pub fn entry(entry: &EntryRecord, memory: &str) -> Value {
    let mut body = json!({
        "id": entry.id,
        "memoryRef": memory,
        "content": entry.content.as_str(),
        "tags": entry.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(),
        "createdAt": entry.created_at.to_rfc3339(),
    });
    if let Some(at) = entry.expires_at {
        body["expiresAt"] = json!(at.to_rfc3339());
    }
    body
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
        "files": done.files,
        "runs": done.runs,
        "commitments": done.commitments,
        "handoffs": done.handoffs,
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
        "archives": report.archives,
        "indexes": report.indexes,
        "orphans": report.orphans,
        "removed": report.removed,
        "orphanArchives": report.orphan_archives,
        "removedArchives": report.removed_archives,
        "problems": report.problems,
    })
}

/// One setting.
pub fn setting(name: &str, value: &str, origin: &Origin) -> Value {
    json!({ "key": name, "value": value, "origin": origin.to_string() })
}
