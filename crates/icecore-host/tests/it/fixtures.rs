//! What the conformance suite's workflows leave behind.

use icecore::formats::json::JsonText;
use icecore::ids::Position;
use icecore_host::runs::{RunStatus, Stepped};
use serde_json::{Value, json};

use crate::support::{Bench, Event, NOOP, ROUNDTRIP, TTL, me, principal, request, settings};

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_run_of_nothing_sums_itself_up() {
    for bench in Bench::both() {
        assert_eq!(bench.create("r", NOOP).await.status, RunStatus::Pending);
        bench.finish("r").await;
        assert_eq!(bench.record("r").await.status, RunStatus::Completed);
        let expected = "run.started node.started node.completed memory.written run.completed";
        assert_eq!(bench.kinds("r").await, expected);
        let events = bench.events("r").await;
        let owner = json!({"tenant": "me", "workspace": "default", "principal": "key-1"});
        assert_eq!(events[0].payload, json!({"workflowId": NOOP, "owner": owner}));
        let written = &events[3];
        assert_eq!(written.payload["memoryId"], "mem-r-summary");
        assert_eq!(written.payload["memoryRef"], "runs/conformance-noop");
        assert_eq!(written.node.as_deref(), Some("rest"));
        assert!(written.payload.get("content").is_none());
        let [summary] = &bench.entries("runs/conformance-noop").await[..] else {
            panic!("one entry")
        };
        assert_eq!(summary.id, "mem-r-summary");
        let tags: Vec<&str> = summary.tags.iter().map(|tag| tag.as_str()).collect();
        assert_eq!(tags, ["run-summary", "run-id:r", "workflow:conformance-noop"]);
    }
}

#[tokio::test]
async fn inputs_become_variables_and_stay_out_of_events_and_summary() {
    for bench in Bench::both() {
        let kind = icecore::privacy::Redactor::kinds()
            .iter()
            .find(|kind| kind.id == "github-token")
            .unwrap();
        let canary = kind.sample(4711);
        let inputs = json!({"value": [1, {"a": "word-of-mine"}], "made-up-name": canary});
        let inputs = JsonText::parse(&inputs.to_string()).unwrap();
        let mut request = request("r", "conformance-identity");
        request.inputs = inputs;
        bench.host.runs.create(&me(), request).await.unwrap();
        bench.finish("r").await;
        let variables = bench.variables("r").await;
        assert_eq!(variables["value"], json!([1, {"a": "word-of-mine"}]));
        assert!(
            variables["made-up-name"].as_str().unwrap().starts_with("[REDACTED:"),
            "{variables:?}"
        );
        let told = format!("{:?}", bench.events("r").await);
        let summary = format!("{:?}", bench.entries("runs/conformance-identity").await);
        for word in ["word-of-mine", "made-up-name", canary.as_str()] {
            assert!(!told.contains(word), "{told}");
            assert!(!summary.contains(word), "{summary}");
        }
        let expected = "run.started node.started variable.changed variable.changed node.completed \
                    memory.written run.completed";
        assert_eq!(bench.kinds("r").await, expected);
    }
}

#[tokio::test]
async fn a_run_reads_what_it_wrote() {
    for bench in Bench::both() {
        bench.run("r", ROUNDTRIP).await;
        let read = bench.variables("r").await["memoryReadback"].clone();
        assert_eq!(read["id"], "mem-r-recall-1");
        assert!(!read["content"].as_str().unwrap().is_empty());
        assert_eq!(read["tags"], json!(["source:run", "run-id:r"]));
        assert_eq!(read["createdAt"], "2026-01-01T00:00:00Z");
        assert!(read.get("expiresAt").is_none());
        let written = |event: &&Event| event.kind == "memory.written";
        let events = bench.events("r").await;
        let agents = events.iter().filter(written).map(|event| &event.payload["agentId"]);
        for agent in agents {
            assert_eq!(agent, "icecore.conformance.roundtrip");
        }
    }
}

#[tokio::test]
async fn a_secret_that_a_run_writes_is_hidden() {
    for bench in Bench::both() {
        for id in ["r1", "r2"] {
            bench.run(id, "conformance-agent-memory-redaction").await;
            let read = bench.variables(id).await["memoryReadback"].clone();
            let content = read["content"].as_str().unwrap();
            assert!(content.contains("[REDACTED:conformance-test-secret]"), "{content}");
        }
        let secrets = bench.store.secrets(me().tenant()).await.unwrap().secrets;
        let [secret] = &secrets[..] else { panic!("the second run finds the first one's secret") };
        assert!(secret.value().len() >= 24);
        let kept = format!("{:?}", bench.entries("conformance/agent-memory-redaction").await);
        assert!(!kept.contains(secret.value()));
        let told = format!("{:?} {:?}", bench.events("r1").await, bench.record("r1").await);
        assert!(!told.contains(secret.value()));
    }
}

#[tokio::test]
async fn an_entry_that_expires_is_waited_for() {
    for bench in Bench::both() {
        bench.run("r", TTL).await;
        let variables = bench.variables("r").await;
        let (fresh, expired) = (&variables["freshId"], &variables["expiredId"]);
        assert_eq!((fresh, expired), (&json!("mem-r-outlive-1"), &json!("mem-r-outlive-2")));
        assert_eq!(ids(&variables["memoryList"]), ["mem-r-outlive-1"]);
        let expires = variables["memoryList"][0]["expiresAt"].as_str().unwrap().to_owned();
        assert!(expires > bench.memory().now().to_rfc3339(), "{expires}");
        // The entry was put like any other, and has really expired since.
        let events = bench.events("r").await;
        let written = events.iter().filter(|event| event.kind == "memory.written");
        let named: Vec<&Value> = written.map(|event| &event.payload["memoryId"]).collect();
        assert_eq!(named, ["mem-r-outlive-1", "mem-r-outlive-2", "mem-r-summary"]);
        let last = events.last().unwrap();
        assert!(last.at.0 >= events[0].at.0 + 150);
        // In an hour the other has expired too.
        bench.clock.advance(3_600_000);
        assert_eq!(ids(&bench.variables("r").await["memoryList"]), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn a_run_sees_its_own_tenant_alone() {
    for bench in Bench::both() {
        bench.run("r", "conformance-agent-memory-cross-tenant").await;
        assert_eq!(bench.record("r").await.status, RunStatus::Completed);
        let variables = bench.variables("r").await;
        assert_eq!(variables["ownerEntryId"], "mem-r-peek-1");
        assert_eq!(ids(&variables["ownerProbe"]), ["mem-r-peek-1"]);
        assert_eq!(variables["crossTenantProbe"], json!([]));
        // Nothing was written for another tenant.
        let log = async |tenant: &str| bench.store.head(principal(tenant).tenant()).await.unwrap();
        assert_eq!(log("icecore-conformance-other").await, Position(0));
        assert_eq!(bench.store.tenants().await.unwrap(), [me().tenant().clone()]);
        assert_eq!(bench.entries("conformance/another-tenant/agent-memory").await, []);
    }
}

#[tokio::test]
async fn the_other_tenant_has_another() {
    for bench in Bench::both() {
        let other = principal("icecore-conformance-other");
        let run = request("r", "conformance-agent-memory-cross-tenant");
        bench.host.runs.create(&other, run).await.unwrap();
        bench.host.runs.settle().await.unwrap();
        let variables = bench.host.runs.get(&other, "r").await.unwrap().variables;
        assert_eq!(variables["crossTenantProbe"], json!([]));
    }
}

#[tokio::test]
async fn a_budget_is_kept_and_relevance_orders_otherwise_than_time() {
    for bench in Bench::both() {
        for id in ["r1", "r2"] {
            bench.run(id, "conformance-agent-memory-injection-budget").await;
            let variables = bench.variables(id).await;
            let entry = |number: u64| format!("mem-{id}-budget-{number}");
            let number = |name: &str| variables[name].as_u64().unwrap();
            assert_eq!(number("tokenBudget"), 120);
            assert!((1..=120).contains(&number("budgetedTokenTotal")), "{variables:?}");
            assert_eq!(variables["overBudgetEntryOmitted"], json!(true));
            assert_eq!(variables["overBudgetEntryId"], entry(3));
            let budgeted = ids(&variables["budgetedEntries"]);
            assert!(!budgeted.is_empty() && !budgeted.contains(&entry(3).as_str()), "{budgeted:?}");
            let sample = variables["redactedContentSample"].as_str().unwrap();
            assert!(sample.contains("[REDACTED:conformance-test-secret]"), "{sample}");
            assert_eq!(variables["crossTenantBudgetedProbe"], json!([]));
            let newest: Vec<String> = (1..=5).rev().map(entry).collect();
            assert_eq!(variables["recencyOrder"], json!(newest));
            let relevant = variables["relevanceOrder"].as_array().unwrap();
            assert_eq!((relevant.len(), &relevant[0]), (5, &json!(entry(1))));
        }
    }
}

#[tokio::test]
async fn fixtures_are_there_for_conformance_alone() {
    for bench in Bench::both() {
        assert_eq!(bench.host.runs.workflows().count(), 8);
        let plain = bench.again(icecore_host::HostSettings::default());
        assert_eq!(plain.runs.workflows().collect::<Vec<_>>(), [icecore::dreams::DREAM_WORKFLOW]);
        let refused = plain.runs.create(&me(), request("r", NOOP)).await;
        assert!(
            matches!(refused, Err(icecore_host::runs::RunsError::UnknownWorkflow)),
            "{refused:?}"
        );
        // A run of it is left to a host that has it, but not for ever.
        bench.create("r", NOOP).await;
        bench.create("r2", NOOP).await;
        plain.runs.settle().await.unwrap();
        assert_eq!(plain.runs.step(me().tenant(), "r").await.unwrap(), Stepped::Unknown);
        bench.finish("r2").await;
        assert_eq!(bench.record("r2").await.status, RunStatus::Completed);
        assert_eq!(bench.record("r").await.status, RunStatus::Pending);
        bench.clock.advance(24 * 3_600 * 1_000);
        plain.runs.settle().await.unwrap();
        let run = plain.runs.get(&me(), "r").await.unwrap().record;
        assert_eq!(run.status, RunStatus::Failed);
        assert_eq!(run.error.unwrap().code, "workflow_unavailable");
        assert!(settings().conformance);
    }
}
