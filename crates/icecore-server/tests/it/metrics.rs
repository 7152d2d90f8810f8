//! What the host tells of its work.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use icecore::store::StoreError;
use icecore::{Memory, MemoryBuilder};
use icecore_server::{Limits, Role, ServerOptions};
use icecore_store::hooks::{Call, Hook};
use icecore_store::{Packs, Store};
use serde_json::json;

use crate::client::{Host, fresh};

/// The samples, by name and labels.
async fn samples(host: &Host) -> BTreeMap<String, f64> {
    let answer = host.raw(&host.request("GET", "/metrics", &[("Authorization", "")], b"")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(answer.text.ends_with("# EOF\n"));
    let lines = answer.text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("icecore_"), "{line}");
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_told_in_figures() {
    let (_dir, host) = fresh().await;
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let body = json!({"turns":[{"role":"user","content":format!("{token} is mine")}]}).to_string();
    assert_eq!(host.post("/sessions/private/turns", &body).await.status, 201);
    assert_eq!(host.post("/search", r#"{"query":"mine"}"#).await.status, 200);
    let context = host.post("/context", r#"{"budget":100}"#).await;
    let refused = host.call("GET", "/stats", &[("Authorization", "")], None).await;
    assert_eq!(refused.status, 401);
    let found = samples(&host).await;
    let check = |name: &str, expected: f64| {
        assert_eq!(found.get(name).copied(), Some(expected), "{name}: {found:#?}");
    };
    let route = "/v1/host/icecore/sessions/{session}/turns";
    let asked = format!("{{method=\"POST\",route=\"{route}\",status=\"201\"}}");
    check(&format!("icecore_requests_total{asked}"), 1.0);
    check(&format!("icecore_request_duration_seconds_count{{route=\"{route}\"}}"), 1.0);
    check("icecore_denials_total{reason=\"no_key\"}", 1.0);
    check("icecore_turns_added_total", 1.0);
    check("icecore_searches_total", 1.0);
    check("icecore_context_tokens_total", context.json()["tokens"].as_f64().unwrap());
    check("icecore_redactions_total{kind=\"github-token\"}", 1.0);
    check("icecore_requests_in_progress", 0.0);
    check("icecore_requests_waiting", 0.0);
    check("icecore_event_streams", 0.0);
    check("icecore_store_queue_depth", 0.0);
    check(&format!("icecore_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0);
    for name in [
        "icecore_connections",
        "icecore_request_body_bytes_total",
        "icecore_response_body_bytes_total",
        "icecore_tokens_added_total",
        "icecore_store_read_duration_seconds_count",
        "icecore_store_write_duration_seconds_count",
        "icecore_store_queue_wait_seconds_count",
        "icecore_store_commit_duration_seconds_count",
        "icecore_store_committed_writes_total",
        "icecore_process_resident_memory_bytes",
        "icecore_process_open_fds",
        "icecore_process_start_time_seconds",
    ] {
        assert!(found.get(name).is_some_and(|value| *value > 0.0), "{name}: {found:#?}");
    }
    assert!(found.contains_key("icecore_pending_branches"));
    let all = format!("{found:?}");
    for private in ["private", "default", token.as_str(), host.key.as_str()] {
        assert!(!all.contains(private), "{private}: {all}");
    }
    host.stop().await;
}

/// A word from a number.
fn word(number: u64) -> String {
    format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_adds_no_series() {
    let (_dir, host) = fresh().await;
    let names = async || samples(&host).await.into_keys().collect::<BTreeSet<String>>();
    let ask = async |number: u64| {
        let method = match number % 5 {
            0 => word(number).to_uppercase(),
            n => ["GET", "POST", "DELETE", "OPTIONS"][n as usize - 1].to_owned(),
        };
        let path = match number % 3 {
            0 => format!("/{}", word(number)),
            1 => format!("/v1/host/icecore/{}/{}", word(number), word(number + 1)),
            _ => format!("/v1/host/icecore/sessions/{}/turns", word(number)),
        };
        host.raw(&host.request(&method, &path, &[], b"")).await
    };
    for number in 0..60 {
        ask(number).await;
    }
    // Asking is counted too, once it is answered.
    names().await;
    let before = names().await;
    for number in 60..1_000 {
        ask(number).await;
    }
    let after = names().await;
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
    let unknown = |name: &&String| name.contains("route=\"unknown\"") && name.contains("status=");
    assert!(after.iter().any(|name| unknown(&name)), "{after:#?}");
    assert!(after.len() < 400, "{}", after.len());
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_loopback_metrics_are_for_admins() {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let host = Host::on("0.0.0.0:0", memory, dir.path(), Limits::default()).await;
    let ask = async |key: &str| {
        let bearer = if key.is_empty() { String::new() } else { format!("Bearer {key}") };
        let request = host.request("GET", "/metrics", &[("Authorization", &bearer)], b"");
        host.raw(&request).await
    };
    assert_eq!(ask("").await.code(), "401 unauthenticated");
    assert_eq!(ask(&host.key_of("default", Role::Writer).await).await.code(), "403 forbidden");
    assert_eq!(ask(&host.key_of("other", Role::Admin).await).await.code(), "403 forbidden");
    assert_eq!(ask(&host.key_of("default", Role::Admin).await).await.status, 200);
    assert_eq!(ask(&host.key).await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_far_behind_says_by_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::with(dir.path(), Limits { ready_pending: 0, ..Limits::default() }).await;
    let ready = async || host.raw(&host.request("GET", "/readyz", &[], b"")).await;
    assert_eq!(ready().await.status, 200);
    let body = r#"{"turns":[{"role":"user","content":"x"}]}"#;
    // The worker may be faster than we ask.
    for number in 0..200 {
        host.post(&format!("/sessions/s{number}/turns"), body).await;
        let answer = ready().await;
        if answer.status == 503 {
            assert_eq!(answer.code(), "503 behind");
            assert_eq!(answer.json()["details"]["limit"], "ready_pending");
            assert!(answer.json()["details"]["pending"].as_u64().unwrap() > 0);
            return host.stop().await;
        }
    }
    panic!("derived work was never due");
}

/// Writes fail, or never answer, while it says so.
#[derive(Default)]
struct Trouble {
    fails: AtomicBool,
    hangs: AtomicBool,
}

#[async_trait]
impl Hook for Trouble {
    async fn before(&self, call: Call<'_>, _: &mut (dyn Any + Send)) -> Result<(), StoreError> {
        if call.writes && self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        match call.writes && self.fails.load(Ordering::SeqCst) {
            true => Err(StoreError::Panicked { op: call.op }),
            false => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_store_takes_no_writes_says_so_and_recovers_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let trouble = Arc::new(Trouble::default());
    let store = Store::in_memory([1; 32]).hooked(Arc::clone(&trouble) as Arc<dyn Hook>);
    let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
    let options = ServerOptions::default();
    let host = Host::optioned("127.0.0.1:0", memory.into(), dir.path(), options).await;
    let ready = async || host.raw(&host.request("GET", "/readyz", &[], b"")).await;
    assert_eq!(ready().await.status, 200);
    for how in [&trouble.fails, &trouble.hangs] {
        how.store(true, Ordering::SeqCst);
        let asked = Instant::now();
        assert_eq!(ready().await.code(), "503 store_unavailable");
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        how.store(false, Ordering::SeqCst);
        assert_eq!(ready().await.status, 200);
    }
    host.stop().await;
}
