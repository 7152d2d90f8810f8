//! Keys, roles, tenants, hosts and origins.

use icecore_server::{ADMIN_KEY_FILE, Role, ensure_admin_key};

use crate::client::{API, fresh};

const TURN: &str = r#"{"turns":[{"role":"user","content":"hi"}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_nothing_is_told() {
    let (_dir, host) = fresh().await;
    let canary = format!("ice_{}", "5ca1ab1e".repeat(8));
    let bearer = format!("Bearer {canary}");
    let basic = format!("Basic {canary}");
    for value in ["", &bearer, &basic, "Bearer", "Bearer \u{7f}", "x"] {
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
    assert_eq!(get("/events").await.text, r#"{"events":[]}"#);
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
    let memory = icecore::Memory::open(dir.path()).await.unwrap();
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
