//! What the host says of itself, and that it is true.

use icecore::settings::CompactionSettings;
use icecore::{Memory, MemorySettings};
use icecore_host::HostSettings;
use icecore_host::settings::WorkspaceSettings;
use icecore_server::Limits;
use serde_json::{Value, json};

use crate::client::{Answer, Host, behaving, fresh, in_conformance};

const PATH: &str = "/.well-known/openwop";
const NO_KEY: (&str, &str) = ("Authorization", "");

async fn ask(host: &Host, headers: &[(&str, &str)]) -> Answer {
    host.ask("GET", PATH, headers, "").await
}

/// The families of a host as it comes.
fn usual() -> Value {
    json!({
        "memory": {
            "supported": true,
            "writable": true,
            "maxEntrySizeBytes": 65_536,
            "ttlSupported": true,
            "search": {"supported": true, "modes": ["semantic", "filter"]},
            "retention": {"ttl": true, "forget": true},
            "compaction": {
                "supported": true,
                "trigger": "host-managed",
                "maxInputEntries": 1_000,
                "maxOutputBytes": 65_536,
            },
            "distillation": {
                "supported": true,
                "maxTokenBudget": 64_000,
                "scheduled": true,
                "indexEmitted": true,
                "tokenizerName": "o200k_base",
                "archiveRetention": "P90D",
            },
            "attribution": {"supported": true, "emitsWriteEvents": true},
            "injectionBudget": {"supported": true, "tokenCounter": "chars"},
        },
        "agents": {
            "memoryBackends": ["long-term"],
            "memoryConsolidation": {"supported": true, "schedule": "scheduled"},
            "commitments": {"supported": true, "fireConditions": ["time", "predicate"]},
        },
        "workspace": {
            "supported": true,
            "versioned": true,
            "maxFileBytes": 1_048_576,
            "maxFiles": 256,
            "maxVersions": 20,
        },
        "scheduling": {
            "supported": true,
            "cron": true,
            "delayed": true,
            "calendar": false,
            "maxFutureHorizon": "P90D",
        },
        "secrets": {"supported": true, "scopes": ["tenant"], "resolution": "host-managed"},
        "replay": {
            "supported": true,
            "modes": ["replay"],
            "retention": {"windowSeconds": 604_800},
            "sideEffectSuppression": "none",
        },
    })
}

/// A whole document: what is always there, and these families in both places.
fn whole(families: Value, fixtures: &[&str]) -> Value {
    let mut document = json!({
        "protocolVersion": "1.0",
        "implementation": {"name": "icecore", "version": env!("CARGO_PKG_VERSION")},
        "supportedTransports": ["rest"],
        "supportedEnvelopes": [],
        "schemaVersions": {},
        "limits": {
            "clarificationRounds": 0,
            "schemaRounds": 0,
            "envelopesPerTurn": 0,
            "maxRequestBodyBytes": 8 << 20,
        },
        "x-host-icecore-memory-query": {
            "supported": true,
            "entries": "/v1/host/icecore/entries",
            "search": "/v1/host/icecore/search",
            "context": "/v1/host/icecore/context",
        },
        "capabilities": families,
    });
    if !fixtures.is_empty() {
        document["fixtures"] = json!(fixtures);
    }
    for (name, family) in families.as_object().unwrap() {
        document[name] = family.clone();
    }
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_open_and_the_same_for_all() {
    let (_dir, host) = fresh().await;
    let open = ask(&host, &[NO_KEY]).await;
    assert_eq!(open.status, 200);
    assert_eq!(open.json(), whole(usual(), &[]));
    assert_eq!(open.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(ask(&host, &[]).await.text, open.text);
    assert_eq!(ask(&host, &[("Authorization", "Bearer nobody")]).await.text, open.text);
    let put = host.ask("PUT", PATH, &[], "{}").await;
    assert_eq!(put.code(), "405 method_not_allowed");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_it_is_not_sent_it_again() {
    let (_dir, host) = fresh().await;
    let first = ask(&host, &[NO_KEY]).await;
    let etag = first.header("etag").unwrap().to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10, "{etag}");
    assert_eq!(first.header("capabilities-etag"), Some(etag.as_str()));
    let again = ask(&host, &[NO_KEY, ("If-None-Match", &etag)]).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    assert_eq!(again.header("etag"), Some(etag.as_str()));
    assert_eq!(again.header("capabilities-etag"), Some(etag.as_str()));
    assert_eq!(ask(&host, &[NO_KEY, ("If-None-Match", "\"other\"")]).await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_follows_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let limits = WorkspaceSettings { enabled: true, file_bytes: 4096, files: 3, versions: 1 };
    let memory = crate::place::open(Memory::builder().embedder(None), dir.path()).await;
    let settings = HostSettings { workspace: limits, ..HostSettings::default() };
    let host = Host::behaving(memory, dir.path(), settings).await;
    let document = ask(&host, &[NO_KEY]).await.json();
    let workspace = json!({
        "supported": true,
        "versioned": false,
        "maxFileBytes": 4096,
        "maxFiles": 3,
        "maxVersions": 1,
    });
    assert_eq!(document["workspace"], workspace);
    assert_eq!(document["memory"]["search"]["modes"], json!(["filter"]));
    assert_eq!(document["capabilities"]["memory"], document["memory"]);
    host.stop().await;

    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { body_bytes: 2048, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let document = ask(&host, &[NO_KEY]).await.json();
    assert_eq!(document["limits"]["maxRequestBodyBytes"], 2048);
    assert_eq!(document["workspace"]["maxFileBytes"], 2048);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conformance_run_is_told_of_agents_workflows_and_replay() {
    let (_dir, host) = in_conformance().await;
    let mut families = usual();
    families["agents"]["manifestRuntime"] = json!({"supported": true, "installScope": "host"});
    let fixtures = [
        "conformance-agent-memory-cross-tenant",
        "conformance-agent-memory-injection-budget",
        "conformance-agent-memory-redaction",
        "conformance-agent-memory-roundtrip",
        "conformance-agent-memory-ttl",
        "conformance-identity",
        "conformance-noop",
    ];
    assert_eq!(ask(&host, &[NO_KEY]).await.json(), whole(families, &fixtures));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_only_reads_claims_no_writing() {
    let settings = HostSettings { conformance: true, read_only: true, ..HostSettings::default() };
    let (_dir, host) = behaving(settings).await;
    let mut families = usual();
    families["memory"]["writable"] = json!(false);
    families["memory"]["retention"]["forget"] = json!(false);
    families["memory"]["attribution"]["emitsWriteEvents"] = json!(false);
    for writing in ["compaction", "distillation"] {
        families["memory"].as_object_mut().unwrap().remove(writing);
    }
    families["agents"] = json!({
        "memoryBackends": ["long-term"],
        "manifestRuntime": {"supported": true, "installScope": "host"},
    });
    // Its block cannot say that files are only read.
    families.as_object_mut().unwrap().remove("workspace");
    families.as_object_mut().unwrap().remove("scheduling");
    families.as_object_mut().unwrap().remove("replay");
    assert_eq!(ask(&host, &[NO_KEY]).await.json(), whole(families, &[]));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_nothing_is_found_by_meaning() {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder().embedder(None), dir.path()).await;
    let host = Host::over(memory, dir.path()).await;
    let mut families = usual();
    families["memory"]["search"]["modes"] = json!(["filter"]);
    assert_eq!(ask(&host, &[NO_KEY]).await.json(), whole(families, &[]));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_is_told_of_while_it_is_on() {
    let open = async |compaction: CompactionSettings, entry_bytes: usize| {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = MemorySettings { compaction, ..MemorySettings::default() };
        settings.entries.bytes = entry_bytes;
        let memory = crate::place::open(Memory::builder().settings(settings), dir.path()).await;
        let host = Host::over(memory, dir.path()).await;
        let document = ask(&host, &[NO_KEY]).await.json();
        host.stop().await;
        document
    };
    let off = CompactionSettings { entries: 0, ..CompactionSettings::default() };
    let mut families = usual();
    families["memory"].as_object_mut().unwrap().remove("compaction");
    assert_eq!(open(off, 65_536).await, whole(families, &[]));
    let small = CompactionSettings { input_entries: 7, ..CompactionSettings::default() };
    let told = open(small, 900).await["memory"]["compaction"].clone();
    assert_eq!((&told["maxInputEntries"], &told["maxOutputBytes"]), (&json!(7), &json!(900)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_query_api_that_is_named_is_there() {
    let (_dir, host) = fresh().await;
    let query = ask(&host, &[NO_KEY]).await.json()["x-host-icecore-memory-query"].clone();
    for (name, method, body) in [
        ("entries", "GET", ""),
        ("search", "POST", r#"{"query":"x"}"#),
        ("context", "POST", r#"{"query":"x","budget":9}"#),
    ] {
        let answer = host.ask(method, query[name].as_str().unwrap(), &[], body).await;
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
    }
    // The protocol has no route for this, and so neither have we.
    assert_eq!(host.ask("GET", "/v1/memory", &[], "").await.code(), "404 not_found");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_switched_off_is_not_named() {
    let dir = tempfile::tempdir().unwrap();
    let off = WorkspaceSettings { enabled: false, ..WorkspaceSettings::default() };
    let memory = crate::place::open(Memory::builder().index_file(None), dir.path()).await;
    let settings = HostSettings { workspace: off, ..HostSettings::default() };
    let host = Host::behaving(memory, dir.path(), settings).await;
    let document = ask(&host, &[NO_KEY]).await.json();
    assert_eq!(document.get("workspace"), None);
    assert_eq!(document["memory"]["distillation"]["indexEmitted"], false);
    assert_eq!(document["capabilities"].get("workspace"), None::<&Value>);
    let files = "/v1/host/workspace/files";
    let file = format!("{files}/a.md");
    for (method, path, body) in [
        ("GET", files, ""),
        ("GET", file.as_str(), ""),
        ("PUT", file.as_str(), r#"{"content":"x"}"#),
        ("DELETE", file.as_str(), ""),
    ] {
        let refused = host.ask(method, path, &[], body).await;
        assert_eq!(refused.code(), "501 capability_not_provided", "{method} {path}");
        let nobody = host.ask(method, path, &[NO_KEY], body).await;
        assert_eq!(nobody.code(), "401 unauthenticated", "{method} {path}");
    }
    host.stop().await;
}
