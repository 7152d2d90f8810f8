//! Each route, with whole answers where they are the same every time.

use serde_json::{Value, json};

use crate::client::{API, Host, fresh};

const TURNS: &str = r#"{"turns":[
    {"id":"a","role":"user","name":"Ana","content":"We leave on 4 May.","timestamp":"2024-05-01T10:00:00+02:00","mood":1.50},
    {"id":"b","role":"assistant","content":[{"type":"text","text":"Noted."}],"timestamp":"2024-05-01T08:01:00Z"},
    {"id":"c","role":"assistant","content":null,"timestamp":"2024-05-01T08:02:00Z","tokens":"mine","seq":null}
]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn turns_come_back_with_every_field() {
    let (_dir, host) = fresh().await;
    let added = host.post("/sessions/trip/turns", TURNS).await;
    assert_eq!(added.status, 201);
    assert_eq!(
        added.json(),
        json!({"turnIds":["a","b","c"],"firstSeq":1,"lastSeq":3,"added":3,"known":0,"forgotten":0})
    );
    let found = host.get("/sessions/trip/turns").await;
    assert_eq!(
        found.text,
        concat!(
            r#"{"turns":["#,
            r#"{"seq":1,"branch":"main","tokens":7,"tier":"hot","id":"a","role":"user","name":"Ana","content":"We leave on 4 May.","timestamp":"2024-05-01T10:00:00+02:00","mood":1.50},"#,
            r#"{"seq":2,"branch":"main","tokens":3,"tier":"hot","id":"b","role":"assistant","content":[{"type":"text","text":"Noted."}],"timestamp":"2024-05-01T08:01:00Z"},"#,
            r#"{"seq":3,"branch":"main","tokens":0,"tier":"hot","clientFields":{"tokens":"mine","seq":null},"id":"c","role":"assistant","content":null,"timestamp":"2024-05-01T08:02:00Z"}"#,
            r#"]}"#
        )
    );
    let page = host.get("/sessions/trip/turns?after=1&limit=1").await.json();
    assert_eq!(page["turns"].as_array().unwrap().len(), 1);
    assert_eq!(page["turns"][0]["id"], "b");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_out_is_given() {
    let (_dir, host) = fresh().await;
    let body = r#"{"turns":[{"role":"user","content":"ok","id":null,"timestamp":null},{"role":"user","content":"ok"}]}"#;
    let added = host.post("/sessions/s/turns", body).await.json();
    assert_eq!(added["turnIds"], json!(["turn-1.1", "turn-1.2"]));
    let turns = host.get("/sessions/s/turns").await.json();
    for turn in turns["turns"].as_array().unwrap() {
        assert!(turn["timestamp"].as_str().unwrap().ends_with('Z'), "{turn}");
        assert_eq!(turn["content"], "ok");
        assert_eq!(turn.get("clientFields"), None);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sending_again_adds_nothing_and_another_body_is_refused() {
    let (_dir, host) = fresh().await;
    host.post("/sessions/trip/turns", TURNS).await;
    let again = host.post("/sessions/trip/turns", TURNS).await;
    assert_eq!(again.status, 201);
    assert_eq!((&again.json()["added"], &again.json()["known"]), (&json!(0), &json!(3)));
    let changed = TURNS.replace("4 May", "5 May").replace("\"id\":\"b\"", "\"id\":\"new\"");
    let refused = host.post("/sessions/trip/turns", &changed).await;
    assert_eq!(refused.code(), "409 turn_conflict");
    assert_eq!(refused.json()["details"], json!({"turnId":"a","session":"trip","index":0}));
    // All or none.
    assert_eq!(host.get("/sessions").await.json()["sessions"][0]["turns"], 3);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_in_paths_are_decoded() {
    let (_dir, host) = fresh().await;
    let body = r#"{"turns":[{"role":"user","content":"hi","session":"a/b ü"}]}"#;
    assert_eq!(host.post("/sessions/a%2Fb%20%C3%BC/turns", body).await.status, 201);
    assert_eq!(host.get("/sessions").await.json()["sessions"][0]["session"], "a/b ü");
    assert_eq!(host.get("/sessions/a%2Fb%20%C3%BC/turns").await.status, 200);
    assert_eq!(host.get("/sessions/%FF/turns").await.code(), "400 validation_error");
    let other = host.post("/sessions/other/turns", body).await;
    assert_eq!(other.code(), "400 validation_error");
    assert!(other.text.contains("turns[0]: field `session`"), "{}", other.text);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_views_and_branches() {
    let (_dir, host) = fresh().await;
    host.post("/sessions/trip/turns", TURNS).await;
    let fork = r#"{"turns":[{"id":"d","role":"user","content":"Or June?","parentIds":["a"]}]}"#;
    host.post("/sessions/trip/turns", fork).await;
    let mut sessions = host.get("/sessions").await.json();
    let updated = sessions["sessions"][0]["updatedAt"].take();
    assert!(updated.as_str().unwrap().ends_with('Z'));
    assert_eq!(
        sessions,
        json!({"sessions":[{"session":"trip","turns":4,"tokens":13,"branches":["main","fork-1"],
            "lastSeq":4,"updatedAt":null}]})
    );
    let ids = |view: &Value| -> Vec<String> {
        let messages = view["messages"].as_array().unwrap();
        messages.iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect()
    };
    let main = host.get("/sessions/trip/view?view=display&branch=main").await.json();
    assert_eq!(
        (ids(&main), &main["tokens"]),
        (vec!["a".into(), "b".into(), "c".into()], &json!(10))
    );
    let fork = host.get("/sessions/trip/view?view=api&branch=fork-1").await.json();
    assert_eq!(ids(&fork), ["a", "d"]);
    assert_eq!(host.get("/sessions/trip/view").await.json(), fork);
    assert_eq!(host.get("/sessions/trip/view?view=all").await.code(), "400 validation_error");
    assert_eq!(host.get("/sessions/trip/view?branch=fork-9").await.code(), "404 not_found");
    host.stop().await;
}

async fn fill(host: &Host, session: &str, turns: usize) {
    let turns: Vec<Value> = (1..=turns)
        .map(|n| json!({"id": format!("t{n}"), "role": "user", "content": format!("Point {n} is about glaciers and how they move.")}))
        .collect();
    let body = json!({ "turns": turns }).to_string();
    assert_eq!(host.post(&format!("/sessions/{session}/turns"), &body).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_form_a_tree_that_expands() {
    let (_dir, host) = fresh().await;
    fill(&host, "long", 120).await;
    host.settled().await;
    let chunks = host.get("/chunks?session=long").await.json();
    let chunks = chunks["chunks"].as_array().unwrap();
    let of =
        |level: &str| chunks.iter().filter(|chunk| chunk["level"] == level).collect::<Vec<_>>();
    assert!(!of("micro").is_empty() && !of("mini").is_empty() && !of("macro").is_empty());
    let whole = of("macro")[0];
    assert_eq!((&whole["firstSeq"], &whole["lastSeq"]), (&json!(1), &json!(100)));
    assert!(!whole["summary"].as_str().unwrap().is_empty());
    let id = whole["id"].as_str().unwrap();
    assert_eq!(&host.get(&format!("/chunks/{id}")).await.json(), whole);
    let turns = host.get(&format!("/chunks/{id}/expand")).await.json();
    assert_eq!(turns["turns"].as_array().unwrap().len(), 100);
    let first = host.get("/chunks?session=long&limit=2").await.json();
    assert_eq!(first["chunks"].as_array().unwrap(), &chunks[..2]);
    let after = first["chunks"][1]["id"].as_str().unwrap();
    let next = host.get(&format!("/chunks?limit=2&after={after}")).await.json();
    assert_eq!(next["chunks"].as_array().unwrap(), &chunks[2..4]);
    assert_eq!(host.get("/chunks/macro-9.0.1-100").await.code(), "404 not_found");
    assert_eq!(host.get("/chunks/nonsense/expand").await.code(), "404 not_found");
    assert_eq!(host.get("/chunks?session=none").await.code(), "404 not_found");

    let stats = host.get("/stats").await.json();
    assert_eq!((&stats["turns"], &stats["sessions"]), (&json!(120), &json!(1)));
    assert_eq!(stats["chunks"]["macro"], 1);
    let tiers = &stats["tiers"];
    let all: u64 =
        ["hot", "warm", "cold"].iter().map(|t| tiers[t]["turns"].as_u64().unwrap()).sum();
    assert_eq!(all, 120);
    assert!(stats["diskBytes"].as_u64().unwrap() > 0);
    assert_eq!(host.get("/stats?memoryRef=other").await.json()["turns"], 0);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_stays_within_its_budget() {
    let (_dir, host) = fresh().await;
    fill(&host, "long", 120).await;
    host.settled().await;
    for budget in [0, 1, 50, 500, 5000] {
        let body = json!({"session":"long","query":"glaciers","budget":budget}).to_string();
        let context = host.post("/context", &body).await.json();
        assert!(context["tokens"].as_u64().unwrap() <= budget, "{context}");
        let counted = host.memory.counter().count(context["text"].as_str().unwrap());
        assert_eq!(context["tokens"], counted);
        assert_eq!(context["budget"], budget);
    }
    let body = r#"{"budget":500,"format":"messages"}"#;
    let context = host.post("/context", body).await.json();
    let items = context["items"].as_array().unwrap();
    let fields = ["kind", "id", "tier", "tokens", "score", "reason", "text", "sources"];
    assert!(items.iter().all(|item| item.as_object().unwrap().keys().eq(fields)));
    let messages = context["messages"].as_array().unwrap();
    assert_eq!(messages.len(), items.len());
    for (item, message) in items.iter().zip(messages) {
        let role = if item["kind"] == "turn" { "user" } else { "system" };
        assert_eq!(message, &json!({"role": role, "content": item["text"]}));
    }
    let check = async |body: &str, code: &str| {
        assert_eq!(host.post("/context", body).await.code(), code, "{body}");
    };
    check(r#"{"session":"none","budget":10}"#, "404 not_found").await;
    check(r#"{"session":"long","branch":"fork-1","budget":10}"#, "404 not_found").await;
    check(r#"{"query":"x"}"#, "400 validation_error").await;
    check(r#"{"budget":-1}"#, "400 validation_error").await;
    check(r#"{"budget":1000001}"#, "400 validation_error").await;
    check(r#"{"budget":1,"format":"xml"}"#, "400 validation_error").await;
    check(r#"{"budget":1,"branch":"main"}"#, "400 validation_error").await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_gives_a_receipt_and_lasts() {
    let (_dir, host) = fresh().await;
    host.post("/sessions/trip/turns", TURNS).await;
    let none = json!({"turns":0,"entries":0,"chunks":0,"facts":0,"vectors":0,"packs":0,"runs":0,"archives":0,"handoffs":0});
    let dry = host.post("/forget", r#"{"session":"trip","dryRun":true}"#).await.json();
    assert_eq!((&dry["erased"]["turns"], &dry["dryRun"]), (&json!(3), &json!(true)));
    assert_eq!(host.get("/sessions/trip/turns").await.status, 200);
    let receipt = host.post("/forget", r#"{"session":"trip"}"#).await;
    assert_eq!(receipt.status, 200);
    let receipt = receipt.json();
    assert_eq!(receipt["erased"]["turns"], 3);
    assert_eq!(receipt["sha256"].as_str().unwrap().len(), 64);
    assert!(!receipt["receiptId"].as_str().unwrap().is_empty());
    assert_eq!(host.get("/sessions/trip/turns").await.code(), "404 not_found");
    assert_eq!(host.get("/sessions").await.json(), json!({"sessions":[]}));
    assert_eq!(host.post("/forget", r#"{"session":"trip"}"#).await.json()["erased"], none);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_turns_stay_forgotten_unless_insisted_on() {
    let (_dir, host) = fresh().await;
    host.post("/sessions/trip/turns", TURNS).await;
    let receipt = host.post("/forget", r#"{"subject":"Ana"}"#).await.json();
    assert_eq!(receipt["erased"]["turns"], 1);
    let again = host.post("/sessions/trip/turns", TURNS).await;
    assert_eq!(again.status, 201);
    let again = again.json();
    assert_eq!(
        (&again["forgotten"], &again["known"], &again["added"]),
        (&json!(1), &json!(2), &json!(0))
    );
    let insist = TURNS.replacen('{', r#"{"insist":true,"#, 1);
    assert_eq!(host.post("/sessions/trip/turns", &insist).await.json()["added"], 1);
    let before = host.post("/forget", r#"{"before":"2024-05-01T08:02:00Z"}"#).await.json();
    assert_eq!(before["erased"]["turns"], 2);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_to_forget_must_be_clear() {
    let (_dir, host) = fresh().await;
    for body in [
        "{}",
        r#"{"session":"a","subject":"b"}"#,
        r#"{"before":"yesterday"}"#,
        r#"{"subject":""}"#,
        r#"{"session":"a","dryrun":true}"#,
        r#"{"session":"a","dryRun":"yes"}"#,
    ] {
        assert_eq!(host.post("/forget", body).await.code(), "400 validation_error", "{body}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_are_apart() {
    let (_dir, host) = fresh().await;
    host.post("/sessions/s/turns?memoryRef=one", r#"{"turns":[{"role":"user","content":"1"}]}"#)
        .await;
    let two = r#"{"memoryRef":"two","turns":[{"role":"user","content":"2"}]}"#;
    assert_eq!(host.post("/sessions/s/turns", two).await.status, 201);
    assert_eq!(host.post("/sessions/s/turns?memoryRef=two", two).await.status, 201);
    assert_eq!(
        host.post("/sessions/s/turns?memoryRef=one", two).await.code(),
        "400 validation_error"
    );
    assert_eq!(host.get("/sessions/s/turns").await.code(), "404 not_found");
    let one = host.get("/sessions/s/turns?memoryRef=one").await.json();
    assert_eq!(one["turns"][0]["content"], "1");
    assert_eq!(host.get("/stats").await.json()["turns"], 3);
    assert_eq!(host.get("/stats?memoryRef=one").await.json()["turns"], 1);
    // Who reads what cannot be finds nothing there.
    assert_eq!(host.get("/sessions?memoryRef=").await.json(), json!({"sessions":[]}));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_small_routes() {
    let (_dir, host) = fresh().await;
    assert_eq!(host.get("/archives").await.text, r#"{"archives":[]}"#);
    let plain = async |method: &str, path: &str| {
        host.raw(&host.request(method, path, &[("Authorization", "")], b"")).await
    };
    assert_eq!(plain("GET", "/healthz").await.text, r#"{"status":"ok"}"#);
    assert_eq!(plain("GET", "/readyz").await.text, r#"{"status":"ready"}"#);
    let keyed =
        async |method: &str, path: &str| host.raw(&host.request(method, path, &[], b"")).await;
    assert_eq!(keyed("GET", "/nothing").await.code(), "404 not_found");
    assert_eq!(keyed("GET", &format!("{API}/nothing")).await.code(), "404 not_found");
    assert_eq!(keyed("GET", &format!("{API}/sessions/")).await.code(), "404 not_found");
    let wrong = keyed("DELETE", &format!("{API}/sessions")).await;
    assert_eq!(wrong.code(), "405 method_not_allowed");
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    assert_eq!(
        plain("OPTIONS", &format!("{API}/stats")).await.header("access-control-allow-origin"),
        None
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything() {
    let (dir, host) = fresh().await;
    fill(&host, "long", 60).await;
    host.settled().await;
    let paths = [
        "/sessions",
        "/sessions/long/turns?limit=500",
        "/chunks",
        "/events",
        "/sessions/long/view",
    ];
    let mut before = Vec::new();
    for path in paths {
        before.push(host.get(path).await.text);
    }
    let key = host.key.clone();
    host.stop().await;
    let host = Host::start(dir.path()).await;
    assert_eq!(host.key, key);
    for (path, before) in paths.iter().zip(before) {
        assert_eq!(host.get(path).await.text, before, "{path}");
    }
    host.stop().await;
}
