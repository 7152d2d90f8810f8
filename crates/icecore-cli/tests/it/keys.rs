//! Keys of the host's callers, as the command line looks after them.

use std::time::Duration;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::run::Place;
use crate::serve::{Host, start, start_with};
use crate::signals::signal;

const STATS: &str = "/v1/host/icecore/stats";

fn create(place: &Place, args: &[&str]) -> (String, String) {
    let made = place.json(&[&["key", "create"], args].concat());
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

/// What was shown, with what differs from one run to the next named.
fn tamed(shown: &str) -> String {
    let mut out = Vec::new();
    for line in shown.lines() {
        let words = line.split_inclusive(' ').map(|word| match word.trim() {
            id if id.starts_with("key-") && id.len() == 20 => word.replace(id, "[KEY-ID]"),
            key if key.starts_with("ice_") && key.len() == 68 => word.replace(key, "[KEY]"),
            _ => word.to_owned(),
        });
        out.push(words.collect::<String>());
    }
    out.join("\n")
}

#[test]
fn a_key_is_printed_once_and_listed_without_itself() {
    let place = Place::new();
    let shown = place.shown(&["key", "create", "--tenant", "acme", "--role", "writer"]);
    assert_snapshot!(tamed(&shown), @r"
    exit 0
    --- stdout
    [KEY]
    --- stderr
    [KEY-ID] is a key of tenant `acme` with the role writer
    It is shown this once: only its hash is stored
    ");
    let made = place
        .json(&["key", "create", "--role", "reader", "--name", "a dashboard", "--expires", "90d"]);
    assert_eq!((&made["tenant"], &made["role"]), (&json!("default"), &json!("reader")));
    assert!(made["key"].as_str().unwrap().starts_with("ice_") && made["expiresAt"].is_string());
    let mut listed = place.json(&["key", "list"])["keys"].take();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!((&listed[0]["tenant"], &listed[0]["name"]), (&json!("acme"), &Value::Null));
    let mut expected = made.clone();
    expected.as_object_mut().unwrap().remove("key");
    assert_eq!(listed[1].take(), expected);
    assert_eq!(
        place.json(&["key", "list", "--tenant", "acme"])["keys"].as_array().unwrap().len(),
        1
    );
    assert_eq!(place.json(&["key", "list", "--tenant", "rival"]), json!({"keys": []}));
    let table = place.ok(&["key", "list"]);
    assert!(!table.contains("ice_"), "{table}");
    for word in ["key", "tenant", "role", "acme", "a dashboard", "never", "valid"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let events = place.ok(&["events", "--json"]);
    assert!(events.contains("key.created") && !events.contains("ice_"), "{events}");
}

#[test]
fn names_lose_their_secrets() {
    let place = Place::new();
    let token = format!("ghp_{}", "a1B2".repeat(9));
    create(&place, &["--role", "reader", "--name", &format!("job with {token}")]);
    let listed = place.ok(&["key", "list", "--json"]);
    assert!(listed.contains("[REDACTED:github-token]") && !listed.contains(&token), "{listed}");
}

#[test]
fn what_cannot_be_done_is_refused_with_a_hint() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["key", "revoke", "key-0"]), @r"
    exit 1
    --- stderr
    error: there is no key `key-0`
    hint: `icecore key list` shows the ids; without --tenant it shows those of all tenants
    ");
    let (id, key) = create(&place, &["--role", "reader"]);
    let typed = place.shown(&["key", "revoke", &key]);
    assert!(typed.starts_with("exit 1") && !typed.contains(&key[4..]), "{typed}");
    let foreign = place.shown(&["key", "rotate", &id, "--tenant", "acme"]);
    assert!(foreign.starts_with("exit 1") && foreign.contains("there is no key"), "{foreign}");
    place.ok(&["key", "revoke", &id]);
    place.ok(&["key", "revoke", &id]);
    let ended = place.shown(&["key", "rotate", &id]).replace(&id, "[KEY-ID]");
    assert_snapshot!(ended, @r"
    exit 1
    --- stderr
    error: key `[KEY-ID]` has expired or was revoked, and cannot be rotated
    hint: make a new one with `icecore key create`
    ");
    for expires in ["soon", "2001-01-01T00:00:00Z", "0s"] {
        let refused = place.output(&["key", "create", "--role", "reader", "--expires", expires]);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{expires}");
    }
    let named = place.shown(&["key", "create", "--role", "reader", "--name", ""]);
    assert!(named.starts_with("exit 1"), "{named}");
    assert_eq!(place.json(&["key", "list"])["keys"].as_array().unwrap().len(), 1);
}

/// Asks until the host answers as expected, for as long as it is allowed to take.
fn within_five_seconds(host: &Host, key: &str, expected: &str) {
    for _ in 0..50 {
        if host.status_of(key, STATS) == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the host does not answer {expected} after five seconds");
}

#[test]
fn a_running_host_sees_what_the_command_line_does() {
    let place = Place::new();
    let mut host = start(&place);
    let (id, key) = create(&place, &["--role", "writer", "--name", "a job"]);
    within_five_seconds(&host, &key, "200");
    let rotated = place.json(&["key", "rotate", &id, "--overlap", "1h"]);
    let new = rotated["key"].as_str().unwrap();
    assert_eq!((&rotated["name"], &rotated["role"]), (&json!("a job"), &json!("writer")));
    within_five_seconds(&host, new, "200");
    assert_eq!(host.status_of(&key, STATS), "200");
    place.ok(&["key", "revoke", &id]);
    within_five_seconds(&host, &key, "401");
    assert!(host.ask_with(&format!("Bearer {key}"), "GET", STATS, "").contains("key_revoked"));
    assert_eq!(host.status_of(new, STATS), "200");
    // Both tell the same of keys, but for whose they are.
    let mut printed = place.json(&["key", "list", "--tenant", "default"]);
    for key in printed["keys"].as_array_mut().unwrap() {
        assert_eq!(key.as_object_mut().unwrap().remove("tenant"), Some(json!("default")));
    }
    let answered = host.get("/v1/host/icecore/keys");
    let (_, answered) = answered.split_once("\r\n\r\n").unwrap();
    assert_eq!(printed, serde_json::from_str::<Value>(answered).unwrap());
    signal(&host.child, "TERM");
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    let kinds: Vec<Value> = place
        .ok(&["events", "--json"])
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
    assert!(kinds.contains(&"key.rotated") && kinds.contains(&"auth.denied"), "{kinds:?}");
}

#[test]
fn the_end_of_the_admin_key_is_told() {
    let place = Place::new();
    let mut host = start(&place);
    let keys = place.json(&["key", "list"]);
    let id = keys["keys"][0]["id"].as_str().unwrap().to_owned();
    signal(&host.child, "TERM");
    host.child.wait().unwrap();
    let told = place.shown(&["key", "revoke", &id]);
    assert!(
        told.contains("`admin.key` in the data directory holds a key that was revoked"),
        "{told}"
    );
    assert!(told.contains("tenant `default` has no valid admin key left"), "{told}");
    let log = place.file("serve.log", "");
    let mut host = start_with(&place, &log);
    signal(&host.child, "TERM");
    host.child.wait().unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("the key in `admin.key` was revoked"), "{said}");
    // Without the file there is a new one.
    std::fs::remove_file(place.data().join("admin.key")).unwrap();
    let mut host = start(&place);
    assert!(host.get(STATS).starts_with("HTTP/1.1 200"));
    signal(&host.child, "TERM");
    host.child.wait().unwrap();
}

#[test]
fn no_log_repeats_what_was_presented() {
    let place = Place::new();
    let log = place.file("serve.log", "");
    let mut host = start_with(&place, &log);
    // None of a shape that is hidden anyway.
    for shown in ["Bearer quagga7zephyr", "Bearer quagga7 zephyr", "quagga7", "Basic cXVhZ2dhNw=="]
    {
        let answer = host.ask_with(shown, "GET", STATS, "");
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        let answer = host.ask_with(shown, "GET", "/quagga7/path", "");
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    signal(&host.child, "TERM");
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("denied") && said.contains("unknown") && said.contains("malformed"));
    assert!(!said.contains("quagga7") && !said.contains("cXVhZ2dh"), "{said}");
}
