//! Commitments at the door, listed page by page and by how they stand.

use icecore_server::Role;
use serde_json::json;

use crate::client::{Host, fresh};

async fn committed(host: &Host, intention: &str) -> String {
    let body = json!({"intention": intention, "when": {"tag": "t", "mentions": "w"}}).to_string();
    let made = host.post("/commitments", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().unwrap().to_owned()
}

async fn listed(host: &Host, query: &str) -> Vec<String> {
    let found = host.get(&format!("/commitments?{query}")).await;
    assert_eq!(found.status, 200, "{found:?}");
    let found = found.json();
    let found = found["commitments"].as_array().unwrap().iter();
    found.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_goes_on_before_what_was_listed() {
    let (_dir, host) = fresh().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(committed(&host, &format!("number {number}")).await);
    }
    let called_off = host.call("DELETE", &format!("/commitments/{}", ids[2]), &[], None).await;
    assert_eq!(called_off.status, 200);
    let (mut all, mut before) = (Vec::new(), String::new());
    loop {
        let page = listed(&host, &format!("limit=2{before}")).await;
        let Some(last) = page.last() else { break };
        before = format!("&before={last}");
        all.extend(page);
    }
    ids.reverse();
    assert_eq!(all, ids);
    let pending = listed(&host, "state=pending").await;
    assert_eq!(pending, [&ids[..2], &ids[3..]].concat());
    assert_eq!(listed(&host, "state=cancelled").await, [ids[2].clone()]);
    assert_eq!(listed(&host, &format!("state=pending&before={}", ids[1])).await, ids[3..]);
    assert_eq!(listed(&host, "state=fired").await, Vec::<String>::new());

    // What it waited for is told while it waits.
    let told =
        async |id: &str| host.get(&format!("/commitments/{id}")).await.json()["when"].clone();
    assert_eq!(told(&ids[0]).await, json!({"tag": "t", "mentions": "w"}));
    assert_eq!(told(&ids[2]).await, json!({}));

    let wrong = host.get("/commitments?state=Pending").await;
    assert_eq!(wrong.code(), "400 validation_error");
    assert!(wrong.text.contains("parameter `state` must be"), "{}", wrong.text);
    assert_eq!(host.get("/commitments?before=c-0").await.code(), "404 not_found");
    let stranger = format!("Bearer {}", host.key_of("stranger", Role::Reader).await);
    let theirs = [("Authorization", stranger.as_str())];
    let path = format!("/commitments?before={}", ids[0]);
    assert_eq!(host.call("GET", &path, &theirs, None).await.code(), "404 not_found");
    host.stop().await;
}
