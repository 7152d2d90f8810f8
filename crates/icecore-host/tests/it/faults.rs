//! A crash at every write, and what a fresh engine makes of it.

use std::sync::Arc;

use icecore_host::runs::{RunStatus, RunsError};
use icecore_store::Store;
use icecore_store::hooks::Failing;
use serde_json::{Map, Value};

use crate::support::{Bench, HandClock, finish, host_over, me, request, settings};

const WORKFLOWS: [(&str, &str); 7] = [
    ("conformance-noop", "runs/conformance-noop"),
    ("conformance-identity", "runs/conformance-identity"),
    ("conformance-agent-memory-roundtrip", "conformance/agent-memory-roundtrip"),
    ("conformance-agent-memory-redaction", "conformance/agent-memory-redaction"),
    ("conformance-agent-memory-ttl", "conformance/agent-memory-ttl"),
    ("conformance-agent-memory-cross-tenant", "runs/conformance-agent-memory-cross-tenant"),
    ("conformance-agent-memory-injection-budget", "conformance/agent-memory-injection-budget"),
];

/// What came of a run.
#[derive(Debug, PartialEq)]
struct Result {
    status: RunStatus,
    variables: Map<String, Value>,
    events: Vec<(String, Value)>,
    entries: Vec<(String, String)>,
}

/// Makes the run and works on it, unless a write fails.
async fn live(
    store: Store,
    clock: &Arc<HandClock>,
    workflow: &str,
) -> std::result::Result<(), RunsError> {
    let host = host_over(store, clock, settings());
    host.runs.create(&me(), request("r", workflow)).await?;
    finish(&host, clock, "r").await
}

async fn result(bench: &Bench, memory: &str) -> Result {
    let entries = bench.entries(memory).await.into_iter();
    let events = bench.events("r").await.into_iter();
    Result {
        status: bench.record("r").await.status,
        variables: bench.variables("r").await,
        events: events.map(|event| (event.kind, event.payload)).collect(),
        entries: entries.map(|entry| (entry.id, entry.content.into_string())).collect(),
    }
}

#[tokio::test]
async fn a_crash_at_any_write_costs_a_delay_and_nothing_else() {
    for (workflow, memory) in WORKFLOWS {
        let bench = Bench::new();
        let counting = Failing::after(u64::MAX);
        live(bench.store.hooked(counting.clone()), &bench.clock, workflow).await.unwrap();
        let expected = result(&bench, memory).await;
        assert_eq!(expected.status, RunStatus::Completed);
        assert!(counting.writes() >= 4, "it is made, begins, does something and ends");

        for nth in 1..=counting.writes() {
            for is_done in [false, true] {
                let bench = Bench::over(Store::in_memory([1; 32]));
                let faulty = bench.store.hooked(Failing::at(nth, is_done));
                let lived = live(faulty, &bench.clock, workflow).await;
                // A crash between the last write and the answer.
                let at = format!("{workflow}, write {nth}, done: {is_done}");
                assert!(lived.is_err(), "{at}");

                // A client that heard nothing asks again.
                match bench.host.runs.create(&me(), request("r", workflow)).await {
                    Ok(_) | Err(RunsError::Memory(_)) => {}
                    Err(error) => panic!("{at}: {error}"),
                }
                bench.finish("r").await;
                assert_eq!(result(&bench, memory).await, expected, "{at}");
                assert_eq!(bench.store.check().await.unwrap(), Vec::<String>::new(), "{at}");
            }
        }
    }
}
