//! Searching, and asking for a context with a question.

use icecore::Memory;
use serde_json::{Value, json};

use crate::client::{Host, fresh};

const TURNS: &str = r#"{"turns":[
    {"id":"a","role":"user","name":"Ana","content":"We leave for Lisbon on 4 May.","timestamp":"2024-05-01T10:00:00Z"},
    {"id":"b","role":"assistant","content":"Then I book the flight.","timestamp":"2024-05-01T10:01:00Z"},
    {"id":"c","role":"user","name":"Ben","content":"The cat eats only tuna.","timestamp":"2024-06-01T10:00:00Z"},
    {"id":"d","role":"narrator","content":"Night fell over Lisbon.","timestamp":"2024-06-02T10:00:00Z"}
]}"#;

async fn with_turns() -> (tempfile::TempDir, Host) {
    let (dir, host) = fresh().await;
    assert_eq!(host.post("/sessions/trip/turns", TURNS).await.status, 201);
    let other = r#"{"turns":[{"id":"e","role":"user","content":"Lisbon again?"}]}"#;
    assert_eq!(host.post("/sessions/other/turns", other).await.status, 201);
    (dir, host)
}

fn ids(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_found_as_soon_as_it_is_acknowledged() {
    let (_dir, host) = with_turns().await;
    for mode in ["hybrid", "lexical", "semantic"] {
        let body = json!({"query":"When do we leave for Lisbon?","mode":mode,"limit":1});
        let found = host.post("/search", &body.to_string()).await.json();
        let hit = &found["hits"][0];
        assert_eq!(ids(&found), ["a"], "{mode}");
        assert_eq!(
            (&hit["kind"], &hit["session"], &hit["seq"], &hit["role"], &hit["name"]),
            (&json!("turn"), &json!("trip"), &json!(1), &json!("user"), &json!("Ana"))
        );
        assert_eq!(hit["text"], "We leave for Lisbon on 4 May.");
        assert_eq!(hit["timestamp"], "2024-05-01T10:00:00Z");
        assert!(!hit["reason"].as_str().unwrap().is_empty(), "{hit}");
        assert!(hit["score"].is_number() && hit["signals"].is_object(), "{hit}");
        assert_eq!(found.get("notices"), None);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_narrows_what_is_found() {
    let (_dir, host) = with_turns().await;
    let check = async |narrow: Value, expected: &[&str]| {
        let mut body = json!({"query":"Lisbon","mode":"lexical"});
        body.as_object_mut().unwrap().extend(narrow.as_object().unwrap().clone());
        let found = host.post("/search", &body.to_string()).await.json();
        let mut found = ids(&found).into_iter().map(str::to_owned).collect::<Vec<_>>();
        found.retain(|id| ["a", "d", "e"].contains(&id.as_str()));
        found.sort();
        assert_eq!(found, expected, "{narrow}");
    };
    check(json!({}), &["a", "d", "e"]).await;
    check(json!({"session":"trip"}), &["a", "d"]).await;
    check(json!({"role":"user"}), &["a", "e"]).await;
    check(json!({"role":"narrator"}), &["d"]).await;
    check(json!({"role":"chorus"}), &[]).await;
    check(json!({"kinds":["fact"]}), &[]).await;
    check(json!({"kinds":["turn"],"before":"2024-05-02T00:00:00Z"}), &["a"]).await;
    check(json!({"after":"2024-06-01T00:00:00Z","before":"2024-07-01T00:00:00Z"}), &["d"]).await;
    check(json!({"memoryRef":"elsewhere"}), &[]).await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_name_the_field_and_the_choices() {
    let (_dir, host) = with_turns().await;
    let check = async |body: Value, code: &str, reason: &str| {
        let answer = host.post("/search", &body.to_string()).await;
        assert_eq!(answer.code(), code, "{body}");
        assert!(answer.text.contains(reason), "{body}: {}", answer.text);
    };
    let invalid = "400 validation_error";
    check(json!({}), invalid, "field `query` is missing").await;
    check(json!({"query":" \n"}), invalid, "field `query` is empty").await;
    check(json!({"query":7}), invalid, "field `query` must be a string").await;
    check(json!({"query":"x","limit":0}), invalid, "from 1 to 500 (`page`)").await;
    check(json!({"query":"x","limit":501}), invalid, "field `limit`").await;
    check(json!({"query":"x","limit":"ten"}), invalid, "field `limit`").await;
    check(json!({"query":"x","mode":"psychic"}), invalid, "`hybrid`, `lexical`, `semantic`").await;
    check(json!({"query":"x","kinds":"turn"}), invalid, "an array of strings").await;
    check(json!({"query":"x","kinds":["dog"]}), invalid, "`turn`, `summary`, `entry`, `fact`")
        .await;
    check(json!({"query":"x","after":"soon"}), invalid, "field `after` must be a timestamp").await;
    check(json!({"query":"x","session":"no"}), "404 not_found", "no such session").await;
    host.stop().await;
}

/// None of these is an error, and none finds what it should not.
#[tokio::test(flavor = "multi_thread")]
async fn strange_queries_are_answered() {
    let (_dir, host) = with_turns().await;
    let strange = [
        "x ".repeat(50_000),
        "Lisbon ".repeat(15_000),
        "the of and to".to_owned(),
        "Wann fahren wir nach Lissabon?".to_owned(),
        "我们什么时候出发".to_owned(),
        "🐈🐈🐈".to_owned(),
        "a:b AND (c".to_owned(),
        "content:\"Lisbon\"~3^2 OR NOT [a TO z] +- *".to_owned(),
        "\u{0}\u{1b}[31m\u{7f}".to_owned(),
        "\"".repeat(1_000),
    ];
    for query in strange {
        for mode in ["hybrid", "lexical", "semantic"] {
            let body = json!({"query":query,"mode":mode});
            let answer = host.post("/search", &body.to_string()).await;
            let shown: String = query.chars().take(20).collect();
            assert_eq!(answer.status, 200, "{shown} {mode}: {}", answer.text);
        }
        let body = json!({"query":query,"budget":60});
        let context = host.post("/context", &body.to_string()).await;
        assert!(context.json()["tokens"].as_u64().unwrap() <= 60, "{}", context.text);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_memory_has_no_hits_and_an_empty_context() {
    let (_dir, host) = fresh().await;
    for mode in ["hybrid", "lexical", "semantic"] {
        let body = json!({"query":"anything","mode":mode});
        assert_eq!(host.post("/search", &body.to_string()).await.json(), json!({"hits":[]}));
    }
    let context = host.post("/context", r#"{"query":"anything","budget":100}"#).await.json();
    assert_eq!((&context["text"], &context["tokens"]), (&json!(""), &json!(0)));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_from_nothing_to_everything_are_kept() {
    let (_dir, host) = with_turns().await;
    for budget in [0, 1, 10, 25, 1_000_000] {
        let body = json!({"query":"When do we leave for Lisbon?","budget":budget});
        let context = host.post("/context", &body.to_string()).await.json();
        let text = context["text"].as_str().unwrap();
        let tokens = host.memory.counter().count(text);
        assert_eq!(context["tokens"], tokens, "{context}");
        assert!(u64::from(tokens) <= budget, "{context}");
        assert_eq!(text.contains("4 May"), budget >= 25, "{budget}: {text}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_gone_from_every_mode_at_once() {
    let (_dir, host) = with_turns().await;
    let search = async |mode: &str| {
        let body = json!({"query":"What does the cat eat? tuna","mode":mode});
        host.post("/search", &body.to_string()).await.text
    };
    for mode in ["hybrid", "lexical", "semantic"] {
        assert!(search(mode).await.contains("tuna"), "{mode}");
    }
    assert_eq!(host.post("/forget", r#"{"subject":"Ben"}"#).await.status, 200);
    for mode in ["hybrid", "lexical", "semantic"] {
        assert!(!search(mode).await.contains("tuna"), "{mode}");
    }
    let context = host.post("/context", r#"{"query":"cat tuna","budget":500}"#).await;
    assert!(!context.text.contains("tuna"), "{}", context.text);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_vectors_search_goes_on_by_words_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder().embedder(None), dir.path()).await;
    let host = Host::over(memory, dir.path()).await;
    host.post("/sessions/trip/turns", TURNS).await;
    let found = host.post("/search", r#"{"query":"Lisbon flight"}"#).await.json();
    assert!(ids(&found).contains(&"a"), "{found}");
    let notice = "searched by words alone: no embedding model is at hand";
    assert_eq!(found["notices"], json!([notice]));
    let context = host.post("/context", r#"{"query":"Lisbon","budget":100}"#).await.json();
    assert_eq!(context["notices"], json!([notice]));
    let refused = host.post("/search", r#"{"query":"Lisbon","mode":"semantic"}"#).await;
    assert_eq!(refused.code(), "503 embedder_unavailable");
    host.stop().await;
}
