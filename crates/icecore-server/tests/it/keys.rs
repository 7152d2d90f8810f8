//! The keys of a tenant over HTTP: made, listed, rotated, taken back.

use icecore_server::{ADMIN_KEY_FILE, Role, create_key};
use serde_json::{Value, json};

use crate::client::{Answer, Host, fresh};

/// The ids of the keys that a key sees.
async fn ids(host: &Host, key: &str) -> Vec<String> {
    let found = host.by(key, "GET", "/keys", "").await.json();
    let keys = found["keys"].as_array().unwrap();
    keys.iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect()
}

async fn kinds(host: &Host) -> Vec<String> {
    let found = host.get("/events").await.json();
    let events = found["events"].as_array().unwrap().iter();
    events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

fn text(answer: &Answer, field: &str) -> String {
    answer.json()[field].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_made_shown_once_and_taken_back() {
    let (_dir, host) = fresh().await;
    let body = r#"{"role":"writer","name":"the deploy job","expiresAt":"2999-01-01T00:00:00Z"}"#;
    let made = host.post("/keys", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (id, key) = (text(&made, "id"), text(&made, "key"));
    assert!(id.starts_with("key-") && key.len() == 68 && key.starts_with("ice_"));
    let mut record = made.json();
    record.as_object_mut().unwrap().remove("key");
    let expected = json!({"id": id, "name": "the deploy job", "role": "writer",
        "createdAt": record["createdAt"], "expiresAt": "2999-01-01T00:00:00Z", "revokedAt": null});
    assert_eq!(record, expected);
    let listed = host.get("/keys").await;
    assert_eq!(listed.json()["keys"][1], expected);
    assert!(!listed.text.contains("ice_"), "{}", listed.text);
    assert_eq!(host.by(&key, "GET", "/stats", "").await.status, 200);

    let revoked = host.call("DELETE", &format!("/keys/{id}"), &[], None).await;
    assert_eq!((revoked.status, &revoked.json()["id"]), (200, &json!(id)));
    let at = text(&revoked, "revokedAt");
    // At once in the host that did it, and once for all.
    assert_eq!(host.by(&key, "GET", "/stats", "").await.code(), "401 key_revoked");
    let again = host.call("DELETE", &format!("/keys/{id}"), &[], None).await;
    assert_eq!((again.status, text(&again, "revokedAt")), (200, at));
    assert_eq!(kinds(&host).await[..3], ["key.created", "key.created", "key.revoked"]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_sees_its_own_tenant_alone() {
    let (_dir, host) = fresh().await;
    let other = host.key_of("other", Role::Admin).await;
    let (own, foreign) = (ids(&host, &host.key).await, ids(&host, &other).await);
    assert_eq!((own.len(), foreign.len()), (1, 1));
    let made = host.by(&other, "POST", "/keys", r#"{"role":"admin"}"#).await;
    assert_eq!(ids(&host, &other).await, [foreign[0].clone(), text(&made, "id")]);
    assert_eq!(ids(&host, &host.key).await, own);
    for id in [own[0].as_str(), "key-0000000000000000", "x%2Fy", "%00"] {
        let gone = host.by(&other, "DELETE", &format!("/keys/{id}"), "").await;
        assert_eq!(gone.code(), "404 not_found", "{id}");
        let gone = host.by(&other, "POST", &format!("/keys/{id}/rotate"), "{}").await;
        assert_eq!(gone.code(), "404 not_found", "{id}");
    }
    assert_eq!(host.get("/stats").await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_keeps_an_admin() {
    let (_dir, host) = fresh().await;
    let own = ids(&host, &host.key).await.remove(0);
    let path = format!("/keys/{own}");
    assert_eq!(host.call("DELETE", &path, &[], None).await.code(), "409 last_admin_key");
    let brief = r#"{"role":"admin"}"#;
    let other = host.post("/keys", brief).await;
    assert_eq!(host.call("DELETE", &path, &[], None).await.status, 200);
    assert_eq!(host.get("/stats").await.code(), "401 key_revoked");
    let last = format!("/keys/{}", text(&other, "id"));
    let refused = host.by(&text(&other, "key"), "DELETE", &last, "").await;
    assert_eq!(refused.code(), "409 last_admin_key");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_rotated_with_or_without_an_overlap() {
    let (_dir, host) = fresh().await;
    let made = host.post("/keys", r#"{"role":"reader","name":"a dashboard"}"#).await;
    let rotate = async |id: &str, body: &str| host.post(&format!("/keys/{id}/rotate"), body).await;
    let old = (text(&made, "id"), text(&made, "key"));
    assert_eq!(host.by(&old.1, "GET", "/stats", "").await.status, 200);
    let next = rotate(&old.0, r#"{"overlapSeconds":3600}"#).await;
    assert_eq!(next.status, 201, "{next:?}");
    assert_eq!((text(&next, "role"), text(&next, "name")), ("reader".into(), "a dashboard".into()));
    assert_eq!(next.json()["replaces"]["id"], old.0);
    assert!(next.json()["replaces"]["expiresAt"].is_string());
    // Both work for an hour.
    assert_eq!(host.by(&old.1, "GET", "/stats", "").await.status, 200);
    assert_eq!(host.by(&text(&next, "key"), "GET", "/stats", "").await.status, 200);
    // Without an overlap the old one ends at once; a body may be left out.
    let last = rotate(&text(&next, "id"), "").await;
    assert_eq!(last.status, 201, "{last:?}");
    assert_eq!(host.by(&text(&next, "key"), "GET", "/stats", "").await.code(), "401 key_revoked");
    assert_eq!(rotate(&text(&next, "id"), "{}").await.code(), "409 key_ended");
    assert_eq!(kinds(&host).await[2..4], ["key.rotated", "key.rotated"]);
    for body in [
        r#"{"overlapSeconds":-1}"#,
        r#"{"overlapSeconds":2592001}"#,
        r#"{"overlapSeconds":1e99}"#,
        r#"{"overlap":1}"#,
        "[]",
    ] {
        assert_eq!(rotate(&text(&last, "id"), body).await.code(), "400 validation_error", "{body}");
    }
    assert_eq!(host.by(&text(&last, "key"), "GET", "/stats", "").await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_admin_key_outlives_its_rotation_for_a_minute() {
    let (_dir, host) = fresh().await;
    let own = ids(&host, &host.key).await.remove(0);
    let next = host.post(&format!("/keys/{own}/rotate"), "").await;
    assert_eq!(next.status, 201, "{next:?}");
    let old = &next.json()["replaces"];
    assert!(old["revokedAt"].is_null() && old["expiresAt"].is_string(), "{old}");
    // The answer was lost: the old key serves for another try.
    let again = host.post(&format!("/keys/{}/rotate", text(&next, "id")), "").await;
    assert_eq!(again.status, 201, "{again:?}");
    assert!(again.json()["replaces"]["revokedAt"].is_string(), "there was another admin key");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_who_changed_a_key() {
    let (_dir, host) = fresh().await;
    let own = ids(&host, &host.key).await.remove(0);
    let made = host.post("/keys", r#"{"role":"reader"}"#).await;
    let next = host.post(&format!("/keys/{}/rotate", text(&made, "id")), "").await;
    let path = format!("/keys/{}", text(&next, "id"));
    assert_eq!(host.call("DELETE", &path, &[], None).await.status, 200);
    let events = host.get("/events").await.json();
    let by = |event: &Value| format!("{} {}", event["type"], event["payload"]["by"]);
    let found: Vec<String> = events["events"].as_array().unwrap().iter().map(by).collect();
    let expected = [
        r#""key.created" "operator""#.to_owned(),
        format!(r#""key.created" "{own}""#),
        format!(r#""key.rotated" "{own}""#),
        format!(r#""key.revoked" "{own}""#),
    ];
    assert_eq!(found, expected, "{events}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_turns_out_secret_is_not_shown() {
    let (_dir, host) = fresh().await;
    let word = ["saxifrage", "7042", "kestrel"].join("-");
    let body = json!({"role": "reader", "name": format!("job of {word}")}).to_string();
    let made = host.post("/keys", &body).await;
    let tenant = icecore::Tenant::new("default").unwrap();
    let value = zeroize::Zeroizing::new(word.clone());
    host.memory.add_secret(&tenant, "db", value, false).await.unwrap();
    let listed = host.get("/keys").await;
    let rotated = host.post(&format!("/keys/{}/rotate", text(&made, "id")), "").await;
    let path = format!("/keys/{}", text(&rotated, "id"));
    let revoked = host.call("DELETE", &path, &[], None).await;
    for answer in [listed, rotated, revoked] {
        assert!(answer.text.contains("job of [REDACTED:db]"), "{answer:?}");
        assert!(!answer.text.contains(&word), "{answer:?}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_terms_are_refused_by_name() {
    let (_dir, host) = fresh().await;
    let long = format!(r#"{{"role":"reader","name":"{}"}}"#, "x".repeat(101));
    for (body, reason) in [
        ("{}", "field `role` is missing"),
        (r#"{"role":"root"}"#, "field `role` must be"),
        (r#"{"role":7}"#, "field `role`"),
        (r#"{"role":"reader","name":""}"#, "field `name`"),
        (r#"{"role":"reader","name":"a\u0000b"}"#, "field `name`"),
        (long.as_str(), "field `name`"),
        (r#"{"role":"reader","expiresAt":"soon"}"#, "field `expiresAt`"),
        (r#"{"role":"reader","expiresAt":"2001-01-01T00:00:00Z"}"#, "field `expiresAt`"),
        (r#"{"role":"reader","tenant":"other"}"#, "field `tenant`"),
    ] {
        let answer = host.post("/keys", body).await;
        assert_eq!(answer.code(), "400 validation_error", "{body}");
        assert!(answer.text.contains(reason), "{body}: {}", answer.text);
    }
    assert_eq!(ids(&host, &host.key).await.len(), 1);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_names_the_key_and_never_shows_it() {
    let (dir, host) = fresh().await;
    let headers = [("Idempotency-Key", "once")];
    let ask = async |path: &str, body: &str| host.call("POST", path, &headers, Some(body)).await;
    let made = ask("/keys", r#"{"role":"reader"}"#).await;
    assert_eq!(made.status, 201);
    let again = ask("/keys", r#"{"role":"reader"}"#).await;
    assert_eq!(again.code(), "409 idempotency_key_used");
    assert_eq!(again.json()["details"], json!({"keyId": text(&made, "id")}));
    let other = ask("/keys", r#"{"role":"writer"}"#).await;
    assert_eq!(other.code(), "409 idempotency_key_mismatch");
    let path = format!("/keys/{}/rotate", text(&made, "id"));
    let next = ask(&path, "{}").await;
    assert_eq!(next.status, 201);
    let again = ask(&path, "{}").await;
    assert_eq!(again.code(), "409 idempotency_key_used");
    assert_eq!(again.json()["details"], json!({"keyId": text(&next, "id")}));
    assert_eq!(ids(&host, &host.key).await.len(), 3);
    let shown = [text(&made, "key"), text(&next, "key")];
    host.stop().await;
    for file in std::fs::read_dir(dir.path()).unwrap().flatten() {
        if file.file_name() != ADMIN_KEY_FILE && file.file_type().unwrap().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            for key in &shown {
                assert!(!bytes.windows(64).any(|part| part == &key.as_bytes()[4..]), "{file:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_in_pages() {
    let (_dir, host) = fresh().await;
    let tenant = icecore::Tenant::new("default").unwrap();
    for _ in 0..4 {
        create_key(&host.memory, &tenant, Role::Reader).await.unwrap();
    }
    let all = ids(&host, &host.key).await;
    let page = async |query: &str| -> Vec<Value> {
        let found = host.get(&format!("/keys{query}")).await.json();
        found["keys"].as_array().unwrap().iter().map(|key| key["id"].clone()).collect()
    };
    assert_eq!(page("?limit=2").await, all[..2]);
    assert_eq!(page(&format!("?after={}&limit=2", all[1])).await, all[2..4]);
    assert_eq!(page(&format!("?after={}", all[4])).await, [Value::Null; 0]);
    assert_eq!(page("?after=nothing").await, [Value::Null; 0]);
    assert_eq!(host.get("/keys?limit=0").await.code(), "400 validation_error");
    host.stop().await;
}
