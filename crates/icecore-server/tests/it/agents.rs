//! The agents that are installed, as callers see them.

use icecore::privacy::Redactor;
use icecore::{Memory, Tenant};
use icecore_host::HostSettings;
use icecore_server::Role;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::client::{Host, behaving, fresh, in_conformance};

const PATH: &str = "/v1/agents";

async fn list(host: &Host) -> Value {
    let answer = host.ask("GET", PATH, &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// A directory of manifests, each of which says a little more.
fn manifests(more: &[Value]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (n, more) in more.iter().enumerate() {
        let mut manifest = json!({
            "agentId": format!("harbour.{n}"), "persona": "pilot", "label": "Pilot",
            "modelClass": "general", "packName": "harbour", "packVersion": "1.2.0",
            "systemPrompt": "You bring ships in.", "handoff": {"taskSchema": {"title": "Task"}},
        });
        for (key, value) in more.as_object().unwrap() {
            manifest[key] = value.clone();
        }
        std::fs::write(dir.path().join(format!("{n}.json")), manifest.to_string()).unwrap();
    }
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_agents_has_no_inventory() {
    let (_dir, host) = fresh().await;
    for path in [PATH, "/v1/agents/harbour.0"] {
        let answer = host.ask("GET", path, &[], "").await;
        assert_eq!(answer.code(), "501 capability_not_provided", "{path}");
        let nobody = host.ask("GET", path, &[("Authorization", "")], "").await;
        assert_eq!(nobody.code(), "401 unauthenticated", "{path}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conformance_run_finds_one_agent_with_all_its_memory_and_one_without() {
    let (_dir, host) = in_conformance().await;
    let expected = json!({
        "agents": [
            {
                "agentId": "icecore.conformance.keeper",
                "persona": "keeper",
                "label": "Keeper",
                "description": "Keeps what it is told and finds it again. All the memory it asks for is here.",
                "modelClass": "general",
                "packName": "icecore.conformance",
                "packVersion": "1.0.0",
                "toolAllowlist": [],
                "hasHandoffSchemas": false,
                "memoryShape": {"scratchpad": true, "conversation": true, "longTerm": true},
                "confidenceThreshold": 0.7,
            },
            {
                "agentId": "icecore.conformance.rehearser",
                "persona": "rehearser",
                "label": "Rehearser",
                "description": "Goes through what other agents did once more, and asks for more than a memory host has.",
                "modelClass": "general",
                "packName": "icecore.conformance",
                "packVersion": "1.0.0",
                "toolAllowlist": [],
                "hasHandoffSchemas": false,
                "memoryShape": {"longTerm": true},
                "degraded": ["memory.replay-snapshot", "multiAgent.executionModel"],
                "memoryDegraded": true,
                "degradedMemoryDimensions": ["replay-snapshot"],
            },
        ],
        "total": 2,
    });
    let all = list(&host).await;
    assert_eq!(all, expected);
    for agent in all["agents"].as_array().unwrap() {
        let path = format!("{PATH}/{}", agent["agentId"].as_str().unwrap());
        assert_eq!(&host.ask("GET", &path, &[], "").await.json(), agent);
    }
    let unknown = host.ask("GET", "/v1/agents/no.such.agent", &[], "").await;
    assert_eq!(unknown.code(), "404 not_found");
    assert!(!unknown.text.contains("no.such"), "{unknown:?}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_told_without_prompts_schemas_and_secrets() {
    let token = Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap().sample(7);
    let registered = "kumquat4711zebraParade";
    let dir = manifests(&[
        json!({"agentId": "harbour.last/one", "description": format!("{registered} and {token}")}),
        json!({"memoryShape": {"longTerm": true}, "requiresCapabilities": ["tides", "memory.search"]}),
    ]);
    let settings = HostSettings { agents: Some(dir.path().to_owned()), ..HostSettings::default() };
    let (_dir, host) = behaving(settings).await;
    let (tenant, value) = (Tenant::new("default").unwrap(), Zeroizing::new(registered.to_owned()));
    host.memory.add_secret(&tenant, "fruit", value, false).await.unwrap();

    let all = list(&host).await;
    assert_eq!(all["total"], 2);
    assert_eq!(all["agents"][0]["agentId"], "harbour.1");
    assert_eq!(all["agents"][0]["degraded"], json!(["tides"]));
    assert_eq!(all["agents"][0].get("memoryDegraded"), None);
    assert_eq!(all["agents"][0]["hasHandoffSchemas"], true);
    let text = all.to_string();
    for hidden in [token.as_str(), registered, "ships in", "Task"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    // Whose secret it is not reads it: the manifests are the host's.
    let other = format!("Bearer {}", host.key_of("other", Role::Reader).await);
    let theirs = host.ask("GET", PATH, &[("Authorization", &other)], "").await;
    assert!(theirs.text.contains(registered) && !theirs.text.contains(&token), "{theirs:?}");
    let one = host.ask("GET", "/v1/agents/harbour.last%2Fone", &[], "").await;
    assert_eq!(one.json(), all["agents"][1]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inventory_follows_what_the_host_can_do() {
    let manifests =
        manifests(&[json!({"requiresCapabilities": ["memory.search.semantic", "workspace"]})]);
    let dir = tempfile::tempdir().unwrap();
    let off = icecore_host::settings::WorkspaceSettings { enabled: false, ..Default::default() };
    let builder = Memory::builder().index_file(None).embedder(None);
    let memory = crate::place::open(builder, dir.path()).await;
    let settings = HostSettings {
        agents: Some(manifests.path().to_owned()),
        workspace: off,
        ..HostSettings::default()
    };
    let host = Host::behaving(memory, dir.path(), settings).await;
    let agent = &list(&host).await["agents"][0];
    assert_eq!(agent["degraded"], json!(["memory.search.semantic", "workspace"]));
    assert_eq!(agent["degradedMemoryDimensions"], json!(["search"]));
    host.stop().await;
}
