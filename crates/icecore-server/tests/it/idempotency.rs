//! The same key twice.

use serde_json::json;

use crate::client::{Host, fresh};

const TURNS: &str =
    r#"{"turns":[{"id":"mine","role":"user","content":"a"},{"role":"user","content":"b"}]}"#;

async fn post(host: &Host, path: &str, key: &str, body: &str) -> (String, bool, String) {
    let answer = host.call("POST", path, &[("Idempotency-Key", key)], Some(body)).await;
    let replayed = answer.header("openwop-Idempotent-Replay") == Some("true");
    let code = if answer.status < 400 { answer.status.to_string() } else { answer.code() };
    (code, replayed, answer.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_gets_the_same_answer() {
    let (dir, host) = fresh().await;
    let first = post(&host, "/sessions/s/turns", "k1", TURNS).await;
    assert_eq!((first.0.as_str(), first.1), ("201", false));
    let again = post(&host, "/sessions/s/turns", "k1", TURNS).await;
    assert_eq!(again, ("201".to_owned(), true, first.2.clone()));
    assert_eq!(host.get("/stats").await.json()["turns"], 2);
    // Also after a restart.
    host.stop().await;
    let host = Host::start(dir.path()).await;
    let again = post(&host, "/sessions/s/turns", "k1", TURNS).await;
    assert_eq!(again, ("201".to_owned(), true, first.2));
    // Another body, or the same for another memory.
    let other = post(&host, "/sessions/s/turns", "k1", &TURNS.replace("\"b\"", "\"c\"")).await;
    assert_eq!((other.0.as_str(), other.1), ("409 idempotency_key_mismatch", false));
    let other = post(&host, "/sessions/s/turns?memoryRef=x", "k1", TURNS).await;
    assert_eq!(other.0, "409 idempotency_key_mismatch");
    // Another session is another request, another operation another key.
    let other = post(&host, "/sessions/z/turns", "k1", TURNS).await;
    assert_eq!(other.0, "409 idempotency_key_mismatch");
    assert_eq!(post(&host, "/context", "k1", r#"{"budget":10}"#).await.0, "200");
    // And another tenant has its own keys.
    let key = format!("Bearer {}", host.key_of("other", icecore_server::Role::Writer).await);
    let headers = [("Authorization", key.as_str()), ("Idempotency-Key", "k1")];
    let theirs = host.call("POST", "/sessions/z/turns", &headers, Some(TURNS)).await;
    assert_eq!((theirs.status, theirs.header("openwop-idempotent-replay")), (201, None));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_have_one_effect() {
    let (_dir, host) = fresh().await;
    let host = std::sync::Arc::new(host);
    let body = r#"{"turns":[{"role":"user","content":"once"}]}"#;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let host = host.clone();
            tokio::spawn(async move { post(&host, "/sessions/s/turns", "same", body).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|(_, replayed, _)| !replayed).count(), 1);
    assert!(answers.iter().all(|(code, _, text)| code == "201" && *text == answers[0].2));
    assert_eq!(host.get("/stats").await.json()["turns"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_not_kept() {
    let (_dir, host) = fresh().await;
    let bad = r#"{"turns":[{"role":"user"}]}"#;
    assert_eq!(post(&host, "/sessions/s/turns", "k", bad).await.0, "400 validation_error");
    assert_eq!(post(&host, "/sessions/s/turns", "k", TURNS).await.0, "201");
    let ask = r#"{"session":"later","budget":10}"#;
    assert_eq!(post(&host, "/context", "k", ask).await.0, "404 not_found");
    post(&host, "/sessions/later/turns", "k2", TURNS).await;
    assert_eq!(post(&host, "/context", "k", ask).await.0, "200");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_and_receipts_come_again_too() {
    let (_dir, host) = fresh().await;
    post(&host, "/sessions/s/turns", "a", TURNS).await;
    let ask = r#"{"session":"s","budget":100}"#;
    let first = post(&host, "/context", "q", ask).await;
    host.post("/sessions/s/turns", r#"{"turns":[{"role":"user","content":"news"}]}"#).await;
    assert_eq!(post(&host, "/context", "q", ask).await, ("200".to_owned(), true, first.2.clone()));
    let other = post(&host, "/context", "q", r#"{"session":"s","budget":99}"#).await;
    assert_eq!(other.0, "409 idempotency_key_mismatch");
    let receipt = post(&host, "/forget", "f", r#"{"session":"s"}"#).await;
    assert_eq!(receipt.0, "200");
    let again = post(&host, "/forget", "f", r#"{"session":"s"}"#).await;
    assert_eq!(again, ("200".to_owned(), true, receipt.2));
    // What was forgotten is not remembered by way of an answer.
    assert_eq!(post(&host, "/context", "q", ask).await.0, "404 not_found");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_outcomes_hold_nothing_of_a_forgotten_session() {
    let (dir, host) = fresh().await;
    let secret = ["snow", "leopard", "77"].concat();
    let body = json!({"turns":[{"id": secret, "role":"user", "content": secret}]}).to_string();
    let path = format!("/sessions/{secret}/turns");
    assert_eq!(post(&host, &path, &secret, &body).await.0, "201");
    assert_eq!(post(&host, &path, &secret, &body).await.0, "201");
    let forget = json!({ "session": secret }).to_string();
    assert_eq!(post(&host, "/forget", "f", &forget).await.0, "200");
    host.settled().await;
    host.stop().await;
    let mut files = vec![dir.path().to_owned()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_a_length() {
    let (_dir, host) = fresh().await;
    let ok = "k".repeat(255);
    assert_eq!(post(&host, "/sessions/s/turns", &ok, TURNS).await.0, "201");
    let long = "k".repeat(256);
    let (code, _, text) = post(&host, "/sessions/s/turns", &long, TURNS).await;
    assert_eq!(code, "400 validation_error");
    assert!(text.contains("idempotency_key_bytes"), "{text}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_over_one_store_have_one_effect() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = [
        std::sync::Arc::new(Host::start(dir.path()).await),
        std::sync::Arc::new(Host::start(dir.path()).await),
    ];
    let body = r#"{"turns":[{"role":"user","content":"once"}]}"#;
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let host = hosts[n % 2].clone();
            tokio::spawn(async move { post(&host, "/sessions/s/turns", "same", body).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|(_, replayed, _)| !replayed).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|(code, _, text)| code == "201" && *text == answers[0].2));
    assert_eq!(hosts[0].get("/stats").await.json()["turns"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_and_verdicts_come_again_after_a_restart() {
    let (dir, host) = fresh().await;
    let fact = r#"{"text":"Ana lives in Lisbon.","subject":"Ana"}"#;
    let told = post(&host, "/facts", "f", fact).await;
    assert_eq!((told.0.as_str(), told.1), ("201", false), "{told:?}");
    let id = serde_json::from_str::<serde_json::Value>(&told.2).unwrap()["facts"][0]["id"].clone();
    let confirm = format!("/facts/{}/confirm", id.as_str().unwrap());
    let confirmed = post(&host, &confirm, "v", "{}").await;
    assert_eq!((confirmed.0.as_str(), confirmed.1), ("200", false));
    // Forgetting something else takes no outcome away.
    post(&host, "/sessions/s/turns", "t", TURNS).await;
    let receipt = post(&host, "/forget", "g", r#"{"session":"s"}"#).await;
    host.stop().await;
    let host = Host::start(dir.path()).await;
    let again = post(&host, "/facts", "f", fact).await;
    assert_eq!((again.0.as_str(), again.1), ("201", true));
    assert!(again.2.contains(id.as_str().unwrap()) && again.2.contains("Lisbon"), "{}", again.2);
    let again = post(&host, &confirm, "v", "{}").await;
    assert_eq!(again, ("200".to_owned(), true, confirmed.2));
    post(&host, "/sessions/u/turns", "u", TURNS).await;
    assert_eq!(post(&host, "/forget", "h", r#"{"session":"u"}"#).await.0, "200");
    let again = post(&host, "/forget", "g", r#"{"session":"s"}"#).await;
    assert_eq!(again, ("200".to_owned(), true, receipt.2));
    let other = post(&host, "/facts", "f", &fact.replace("Lisbon", "Porto")).await;
    assert_eq!(other.0, "409 idempotency_key_mismatch");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_outcome_is_no_fingerprint_of_its_request() {
    use sha2::{Digest, Sha256};
    let plain = |parts: &[&[u8]]| {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().to_vec()
    };
    let (dir, host) = fresh().await;
    assert_eq!(post(&host, "/sessions/s/turns", "k", TURNS).await.0, "201");
    host.stop().await;
    let mut guesses = vec![Sha256::digest(TURNS).to_vec()];
    for path in ["/sessions/s/turns", "/v1/host/icecore/sessions/s/turns"] {
        let (path, body) = (path.as_bytes(), TURNS.as_bytes());
        guesses.push(plain(&[path, b"", body]));
        guesses.push(plain(&[path, b"", b"", body]));
    }
    for file in std::fs::read_dir(dir.path()).unwrap().flatten().filter(|f| f.path().is_file()) {
        let bytes = std::fs::read(file.path()).unwrap();
        let is_guessed = |guess: &Vec<u8>| bytes.windows(32).any(|window| window == &guess[..]);
        assert!(!guesses.iter().any(is_guessed), "{}", file.path().display());
    }
}
