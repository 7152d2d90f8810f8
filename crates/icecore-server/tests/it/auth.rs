//! Keys, roles, tenants, hosts and origins.

use std::io::{Read, Write};
use std::sync::Arc;

use icecore::{Clock, Millis};
use icecore_host::keys::KeyRevocation;
use icecore_server::{
    ADMIN_KEY_FILE, KeyTerms, Role, create_key, create_key_with, ensure_admin_key,
};

use crate::client::{API, HandClock, Host, apart, fresh};
use crate::redaction::{OPEN, absolute, routes};

const TURN: &str = r#"{"turns":[{"role":"user","content":"hi"}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_nothing_is_told() {
    let (_dir, host) = fresh().await;
    let canary = format!("ice_{}", "5ca1ab1e".repeat(8));
    let bearer = format!("Bearer {canary}");
    let basic = format!("Basic {canary}");
    for value in ["", &bearer, &basic, "Bearer", "Bearer \u{fc}", "x"] {
        for (method, path) in [("GET", "/stats"), ("POST", "/forget"), ("GET", "/events")] {
            let answer = host.call(method, path, &[("Authorization", value)], Some("{}")).await;
            assert_eq!(answer.code(), "401 unauthenticated", "{value}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!answer.text.contains(&canary) && !answer.head.contains(&canary));
        }
    }
    let upper = format!("BEARER {}", host.key);
    assert_eq!(host.call("GET", "/stats", &[("Authorization", &upper)], None).await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_bounds_what_a_key_does() {
    let (_dir, host) = fresh().await;
    let check = async |role: Role, expected: &str| {
        let bearer = format!("Bearer {}", host.key_of("default", role).await);
        let auth = [("Authorization", bearer.as_str())];
        let mut found = Vec::new();
        for (method, path, body) in [
            ("POST", "/sessions/s/turns", TURN),
            ("GET", "/sessions/s/turns", ""),
            ("POST", "/context", r#"{"budget":10}"#),
            ("POST", "/forget", r#"{"subject":"nobody"}"#),
        ] {
            found.push(host.call(method, path, &auth, Some(body)).await.status.to_string());
        }
        assert_eq!(found.join(" "), expected, "{role:?}");
    };
    check(Role::Writer, "201 200 200 200").await;
    check(Role::Reader, "403 200 200 403").await;
    check(Role::Admin, "201 200 200 200").await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_only_its_own() {
    let (_dir, host) = fresh().await;
    assert_eq!(host.post("/sessions/s/turns", TURN).await.status, 201);
    let bearer = format!("Bearer {}", host.key_of("other", Role::Admin).await);
    let auth = [("Authorization", bearer.as_str())];
    let get = async |path: &str| host.call("GET", path, &auth, None).await;
    assert_eq!(get("/sessions").await.text, r#"{"sessions":[]}"#);
    let events = get("/events").await.json();
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|e| &e["type"]).collect();
    assert_eq!(kinds, ["key.created"]);
    assert_eq!(get("/stats").await.json()["turns"], 0);
    assert_eq!(get("/sessions/s/turns").await.code(), "404 not_found");
    let forgot = host.call("POST", "/forget", &auth, Some(r#"{"session":"s"}"#)).await;
    assert_eq!(forgot.json()["erased"]["turns"], 0);
    assert_eq!(host.get("/sessions/s/turns").await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_are_refused() {
    let (_dir, host) = fresh().await;
    let own = format!("http://{}", host.address);
    let check = async |headers: &[(&str, &str)], expected: &str| {
        let answer = host.call("GET", "/stats", headers, None).await;
        let found = if answer.status == 200 { "200".to_owned() } else { answer.code() };
        assert_eq!(found, expected, "{headers:?}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    };
    check(&[("Host", "rebound.example")], "403 forbidden_host").await;
    check(&[("Host", "127.0.0.1.example:80")], "403 forbidden_host").await;
    check(&[("Host", "localhost")], "200").await;
    check(&[("Host", "[::1]:7433")], "200").await;
    check(&[("Origin", &own)], "200").await;
    check(&[("Origin", "http://evil.example")], "403 forbidden_origin").await;
    check(&[("Origin", "null")], "403 forbidden_origin").await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_key_is_made_once_and_kept_private() {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(icecore::Memory::builder(), dir.path()).await;
    let first = ensure_admin_key(&memory, dir.path()).await.unwrap();
    assert!(first.created);
    assert_eq!(first.path, dir.path().join(ADMIN_KEY_FILE));
    let text = std::fs::read_to_string(&first.path).unwrap();
    let digits = text.trim().strip_prefix("ice_").unwrap();
    assert!(digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&first.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let again = ensure_admin_key(&memory, dir.path()).await.unwrap();
    assert!(!again.created);
    assert_eq!(std::fs::read_to_string(&again.path).unwrap(), text);
    // A store in use whose key file is gone gets another key; the old still works.
    std::fs::remove_file(&first.path).unwrap();
    assert!(ensure_admin_key(&memory, dir.path()).await.unwrap().created);
    assert_ne!(std::fs::read_to_string(&first.path).unwrap(), text);
    drop(memory);
    // Only hashes are stored.
    for file in std::fs::read_dir(dir.path()).unwrap().flatten() {
        if file.file_name() != ADMIN_KEY_FILE && file.file_type().unwrap().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            assert!(!bytes.windows(64).any(|window| window == digits.as_bytes()), "{file:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_of_hosts_covers_every_route() {
    let (_dir, host) = fresh().await;
    for path in ["/healthz", "/readyz", "/nothing", &format!("{API}/stats")] {
        let request = host.request("GET", path, &[("Host", "rebound.example")], b"");
        assert_eq!(host.raw(&request).await.code(), "403 forbidden_host", "{path}");
    }
    host.stop().await;
}

/// Posts that only read.
pub(crate) const READING_POSTS: [&str; 2] = ["/context", "/search"];

/// The routes of keys, which are an admin's.
fn is_for_admins(path: &str) -> bool {
    path.starts_with("/keys")
}

/// The route table as method and path, without the routes that need no key.
fn table() -> Vec<(&'static str, String)> {
    let of = |method: &'static str| {
        let routes = routes(&method.to_lowercase()).into_iter();
        routes.filter(|path| !OPEN.contains(&path.as_str())).map(move |path| (method, path))
    };
    ["GET", "POST", "PUT", "PATCH", "DELETE"].into_iter().flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_asks_for_its_role() {
    let (_dir, host) = fresh().await;
    let reader = host.key_of("default", Role::Reader).await;
    let writer = host.key_of("default", Role::Writer).await;
    let table = table();
    assert!(table.len() > 15, "{table:?}");
    for (method, route) in table {
        let path = route.replace("{session}", "s").replace("{id}", "none");
        let path = path.replace("{checksum}", "none");
        let path = absolute(path.replace("{*path}", "a.md"));
        let body = if matches!(method, "POST" | "PUT") { "{}" } else { "" };
        let nobody = host.ask(method, &path, &[("Authorization", "")], body).await;
        assert_eq!(nobody.code(), "401 unauthenticated", "{method} {route}");
        let writes = method != "GET" && !READING_POSTS.contains(&route.as_str());
        for (key, is_denied) in
            [(&reader, writes || is_for_admins(&route)), (&writer, is_for_admins(&route))]
        {
            let bearer = format!("Bearer {key}");
            let answer = host.ask(method, &path, &[("Authorization", &bearer)], body).await;
            match is_denied {
                true => assert_eq!(answer.code(), "403 forbidden", "{method} {route}"),
                false => assert!(![401, 403].contains(&answer.status), "{method} {route}"),
            }
        }
        let admin = host.ask(method, &path, &[], body).await;
        assert!(![401, 403, 405].contains(&admin.status), "{method} {route}: {admin:?}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_nobody_learns_which_routes_there_are() {
    let (_dir, host) = fresh().await;
    let ask = async |method: &str, path: &str, key: Option<&str>| {
        let headers = [("Authorization", key.unwrap_or_default())];
        let headers = if key.is_some() { &[][..] } else { &headers[..] };
        host.raw(&host.request(method, path, headers, b"")).await
    };
    for (method, path, known) in [
        ("GET", "/nothing", "404 not_found"),
        ("POST", "/v1/nothing", "404 not_found"),
        ("GET", "/v1/runs/x", "404 not_found"),
        ("GET", "/v1/host/icecore/plans", "404 not_found"),
        ("GET", "/v1/host/icecore/sessions/", "404 not_found"),
        ("DELETE", "/v1/host/icecore/stats", "405 method_not_allowed"),
        ("PUT", "/v1/host/icecore/forget", "405 method_not_allowed"),
        ("HUSH", "/v1/host/icecore/forget", "405 method_not_allowed"),
    ] {
        let nobody = ask(method, path, None).await;
        assert_eq!(nobody.code(), "401 unauthenticated", "{method} {path}");
        assert_eq!(nobody.header("allow"), None, "{method} {path}");
        let caller = ask(method, path, Some("its own")).await;
        assert_eq!(caller.code(), known, "{method} {path}");
        assert_eq!(caller.header("allow").is_some(), caller.status == 405, "{method} {path}");
    }
    let text = [("Content-Type", "text/plain")];
    let other = host.raw(&host.request("POST", "/v1/nothing", &text, b"x")).await;
    assert_eq!(other.code(), "415 unsupported_media_type");
    // What is open to all is no secret.
    for path in OPEN {
        assert_eq!(ask("GET", path, None).await.status, 200, "{path}");
        let wrong = ask("POST", path, None).await;
        assert_eq!(wrong.code(), "405 method_not_allowed", "{path}");
        assert!(wrong.header("allow").is_some(), "{path}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_presented_is_never_repeated() {
    let (dir, host) = fresh().await;
    let word = "quagga7zephyr";
    let jwt = format!("{word}.eyJzdWIiOiJ4In0.{word}");
    let long = word.repeat(300);
    for shown in [word, &jwt, &long, "quagga7zephyr\u{fc}\u{1f98a}", "quagga7zephyr b", "%71;'\"\\"]
    {
        for scheme in ["Bearer ", "bearer  ", "Basic ", "", "Bearer,"] {
            for (method, path) in [("GET", "/stats"), ("POST", "/forget"), ("GET", "/nothing")] {
                let value = format!("{scheme}{shown}");
                let answer =
                    host.call(method, path, &[("Authorization", &value)], Some("{}")).await;
                assert_eq!(answer.code(), "401 unauthenticated", "{value}");
                let all = format!("{}{}", answer.head, answer.text);
                assert!(!all.contains("quagga7") && !all.contains("%71"), "{all}");
            }
        }
    }
    // Bytes that are no text at all.
    let mut raw = host.request("GET", &format!("{API}/stats"), &[("Authorization", "@")], b"");
    let at = raw.iter().position(|byte| *byte == b'@').unwrap();
    raw.splice(at..=at, b"Bearer quagga7\xff\xfe\x80".iter().copied());
    let answer = host.raw(&raw).await;
    assert_eq!(answer.code(), "401 unauthenticated");
    assert!(!answer.text.contains("quagga7"));
    // Two headers, also with a key that is good.
    let good = format!("Bearer {}", host.key);
    for pair in [[good.as_str(), good.as_str()], [good.as_str(), "Bearer x"], ["", good.as_str()]] {
        let [first, second] = pair.map(|value| format!("Authorization: {value}\r\n"));
        let address = host.address;
        let raw = format!(
            "GET {API}/stats HTTP/1.1\r\nHost: {address}\r\n{first}{second}Connection: close\r\n\r\n"
        );
        assert_eq!(host.raw(raw.as_bytes()).await.code(), "401 unauthenticated", "{pair:?}");
    }
    let events = host.get("/events").await.text;
    assert!(!events.contains("auth.denied"), "a stranger is of no tenant: {events}");
    host.stop().await;
    for file in std::fs::read_dir(dir.path()).unwrap().flatten() {
        if file.file_type().unwrap().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"quagga7"), "{file:?}");
        }
    }
}

/// A host whose time moves by hand.
async fn with_clock(clock: &Arc<HandClock>) -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    let memory = crate::place::open(icecore::Memory::builder().clock(clock), dir.path()).await;
    let host = Host::over(memory, dir.path()).await;
    (dir, host)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_expires_to_the_millisecond() {
    let clock = HandClock::new();
    let (_dir, host) = with_clock(&clock).await;
    let expires_at = Some(Millis(clock.now().0 + 1_000));
    let terms = KeyTerms { role: Role::Reader, name: None, expires_at };
    let tenant = icecore::Tenant::new("default").unwrap();
    let key = create_key_with(&host.memory, &tenant, terms).await.unwrap().key;
    assert_eq!(host.by(&key, "GET", "/stats", "").await.status, 200);
    clock.advance(999);
    assert_eq!(host.by(&key, "GET", "/stats", "").await.status, 200);
    // It is held in this process, and ends all the same.
    clock.advance(1);
    let over = host.by(&key, "GET", "/stats", "").await;
    assert_eq!(over.code(), "401 key_expired");
    assert_eq!(over.header("www-authenticate"), Some("Bearer"));
    assert!(!over.text.contains(&key));
    assert_eq!(host.by(&key, "GET", "/nothing", "").await.code(), "401 key_expired");
    // A reader's key that has ended is told that, and not its role.
    assert_eq!(host.by(&key, "POST", "/forget", "{}").await.code(), "401 key_expired");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_revoked_elsewhere_ends_within_seconds() {
    let (_dir, host) = fresh().await;
    let tenant = icecore::Tenant::new("default").unwrap();
    let made = create_key(&host.memory, &tenant, Role::Writer).await.unwrap();
    assert_eq!(host.by(&made.key, "GET", "/stats", "").await.status, 200);
    let follow = host.request(
        "GET",
        &format!("{API}/events"),
        &[("Authorization", &format!("Bearer {}", made.key)), ("Accept", "text/event-stream")],
        b"",
    );
    let (address, (told, is_told)) = (host.address, std::sync::mpsc::channel());
    let follower = std::thread::spawn(move || {
        let mut stream = crate::client::connect(address);
        stream.write_all(&follow).unwrap();
        let (mut heard, mut piece) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&heard).contains("key.created") {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&piece[..read]);
        }
        told.send(()).unwrap();
        stream.read_to_end(&mut heard).unwrap();
    });
    apart(move || is_told.recv().unwrap()).await;
    let revocation = KeyRevocation {
        by: icecore_host::keys::KeyActor::Operator,
        id: made.record.id.clone(),
        tenant: None,
        keeps_an_admin: false,
        at: host.memory.now(),
    };
    icecore::extend::store(&host.memory).revoke_api_key(revocation).await.unwrap().unwrap();
    let mut answer = host.by(&made.key, "GET", "/stats", "").await;
    for _ in 0..100 {
        if answer.status == 401 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        answer = host.by(&made.key, "GET", "/stats", "").await;
    }
    assert_eq!(answer.code(), "401 key_revoked");
    // Whoever follows the log with it hears no more.
    apart(move || follower.join().unwrap()).await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_are_told_to_the_tenant_and_folded() {
    let clock = HandClock::new();
    let (_dir, host) = with_clock(&clock).await;
    let tenant = icecore::Tenant::new("default").unwrap();
    let reader = create_key(&host.memory, &tenant, Role::Reader).await.unwrap();
    let denied = async || -> Vec<serde_json::Value> {
        let events =
            host.memory.events(&tenant, None, icecore::ids::Position(0), 99).await.unwrap();
        let denied = events.iter().filter(|event| event.kind == "auth.denied");
        denied.map(|event| serde_json::from_str(&event.payload).unwrap()).collect()
    };
    let until = async |count: usize| {
        for _ in 0..500 {
            if denied().await.len() >= count {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        denied().await
    };
    let id = &reader.record.id;
    let event = |method: &str, route: &str, count: u64| {
        let routes = [serde_json::json!({"method": method, "route": route, "count": count})];
        serde_json::json!({"keyId": id, "reason": "role", "count": count, "routes": routes})
    };
    let turns = "/v1/host/icecore/sessions/{session}/turns";
    assert_eq!(host.by(&reader.key, "POST", "/sessions/mine/turns", TURN).await.status, 403);
    assert_eq!(until(1).await, [event("POST", turns, 1)]);
    for session in ["a", "b", "c"] {
        let path = format!("/sessions/{session}/turns");
        assert_eq!(host.by(&reader.key, "POST", &path, TURN).await.status, 403);
    }
    clock.advance(60_000);
    // The next one brings those of the minute with it.
    assert_eq!(host.by(&reader.key, "POST", "/sessions/d/turns", TURN).await.status, 403);
    assert_eq!(until(2).await[1..], [event("POST", turns, 4)]);
    for _ in 0..2 {
        assert_eq!(host.by(&reader.key, "POST", "/forget", "{}").await.status, 403);
    }
    let memory = host.memory.clone();
    // What waits is written before the host ends.
    host.stop().await;
    let events = memory.events(&tenant, None, icecore::ids::Position(0), 99).await.unwrap();
    let mut denied = events.iter().filter(|event| event.kind == "auth.denied");
    let last = denied.next_back().unwrap();
    let last: serde_json::Value = serde_json::from_str(&last.payload).unwrap();
    assert_eq!(last, event("POST", "/v1/host/icecore/forget", 2));
    for event in events {
        assert!(!event.payload.contains("mine") && !event.payload.contains("ice_"), "{event:?}");
    }
}
