//! A server that stops, is full, is crowded, or does not know us.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::testing::postgres::{Crowd, Stop, TestServer, own_server};

#[test]
fn a_server_that_comes_back_is_found_again() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let store = connect(database.url());
    lose_the_server(&server, &store);
}

/// Stops the server in the middle of a write, in each way, and starts it again.
pub(super) fn lose_the_server(server: &TestServer, store: &Store) {
    for (at, how) in [Stop::Fast, Stop::Immediate].into_iter().enumerate() {
        let name = format!("{how:?}");
        let runs = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            write(store, &Isolation::Global, |tx| {
                put_note(tx, &name, "once")?;
                if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                    server.stop(how);
                    scope.spawn(|| server.start_again());
                }
                Ok(())
            })
            .unwrap();
        });
        assert_eq!(count_notes(store, &name), 1);
        // What was acknowledged before is there still.
        assert_eq!(count_notes(store, "Fast"), 1, "{at}");
    }
}

#[test]
fn a_server_that_stays_away_is_told_in_time() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let options = PostgresOptions { retry_seconds: 0, ..PostgresOptions::default() };
    let store = connect_with(database.url(), options).unwrap();
    server.stop(Stop::Fast);
    let answer = write(&store, &Isolation::Global, |tx| put_note(tx, "a", "b"));
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    let answer = read(&store, &Isolation::Global, |_| Ok(()));
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    server.start_again();
    assert_eq!(count_notes(&store, "a"), 0);
}

#[test]
fn a_crowded_server_is_waited_for() {
    let Some(server) = own_server() else { return };
    server.run("CREATE ROLE plain LOGIN");
    let database = server.fresh_database();
    drop(connect(database.url()));
    server.run("GRANT icecore_tenant, icecore_sweeper TO plain");
    server.stop(Stop::Fast);
    server.set_max_connections(12);
    server.start_again();
    let url = database.url().replace("icecore_test@", "plain@");
    let impatient = PostgresOptions { retry_seconds: 0, ..PostgresOptions::default() };
    let store = connect_with(&url, impatient).unwrap();
    let patient = connect(&url);
    // Forget their connections, so that each needs a new one.
    for store in [&store, &patient] {
        while let Some(connection) =
            store.postgres().unwrap().database.transactions.pool.pop_for_test()
        {
            drop(connection);
        }
    }
    let crowd = Crowd::gather(&url);
    assert!(crowd.count() >= 5);
    let answer = write(&store, &Isolation::Global, |tx| put_note(tx, "a", "b"));
    let error = answer.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable { reason, .. } if reason.contains("no place for another connection")),
        "{error}"
    );
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| write(&patient, &Isolation::Global, |tx| put_note(tx, "a", "b")));
        drop(crowd);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(count_notes(&patient, "a"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_gets_no_connection_is_told_so() {
    let Some(database) = fresh_database() else { return };
    let options = PostgresOptions { connections: 1, wait_seconds: 0, ..PostgresOptions::default() };
    let url = database.url().to_owned();
    let connected = tokio::task::spawn_blocking(move || connect_with(&url, options));
    let store = connected.await.unwrap().unwrap();
    let (entered, inside) = tokio::sync::oneshot::channel();
    let (leave, left) = std::sync::mpsc::channel();
    let first = std::sync::Mutex::new(Some((entered, left)));
    let long = store.read(Isolation::Global, "test", move |_| {
        if let Some((entered, left)) = first.lock().unwrap().take() {
            entered.send(()).unwrap();
            left.recv().unwrap();
        }
        Ok(())
    });
    let second = async {
        inside.await.unwrap();
        let answer = store.read(Isolation::Global, "test", |_| Ok(())).await;
        leave.send(()).unwrap();
        answer
    };
    let (first, second) = tokio::join!(long, second);
    first.unwrap();
    let error = second.unwrap_err();
    assert!(matches!(error, StoreError::NoConnection { connections: 1, seconds: 0 }), "{error}");
    assert!(error.to_string().contains("`postgres.connections`"));
    store.read(Isolation::Global, "test", |_| Ok(())).await.unwrap();
}

#[test]
fn connections_are_used_again_and_the_idle_are_closed() {
    let Some(database) = fresh_database() else { return };
    let options =
        PostgresOptions { idle_connections: 1, idle_seconds: 0, ..PostgresOptions::default() };
    let store = connect_with(database.url(), options).unwrap();
    let open = || {
        let sql = "SELECT count(*) FROM icecore.commits";
        database.rows(sql)[0][0].clone().unwrap().parse::<i64>().unwrap()
    };
    let before = open();
    for _ in 0..5 {
        read(&store, &Isolation::Global, |_| Ok(())).unwrap();
    }
    assert_eq!(open(), before);
    // Three at once, of which one stays.
    read(&store, &Isolation::Global, |_| {
        read(&store, &Isolation::Global, |_| read(&store, &Isolation::Global, |_| Ok(())))
    })
    .unwrap();
    assert_eq!(open(), before + 2);
    assert_eq!(store.postgres().unwrap().database.transactions.pool.idle_for_test(), 1);
}

#[test]
fn who_is_not_let_in_is_told_why() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let options = PostgresOptions { retry_seconds: 0, ..PostgresOptions::default() };
    let refused = |url: &str, expected: &str| {
        let error = connect_with(url, options).err().unwrap();
        let hint = error.hint().unwrap_or_default();
        assert!(matches!(error, StoreError::DatabaseRefused { .. }), "{error}");
        assert!(hint.contains(expected), "{error}: {hint}");
    };
    refused(&database.url().replace(database.name(), "no_such_database"), "create it");
    refused(&database.url().replace("icecore_test@", "nobody@"), "the user");
    refused(&format!("{}?sslmode=require", database.url()), "sslmode");
    server.run("CREATE ROLE secretive LOGIN PASSWORD 'right'");
    let rules = server.data_directory().unwrap().join("pg_hba.conf");
    let others = std::fs::read_to_string(&rules).unwrap();
    let rule = "host all secretive 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(&rules, format!("{rule}{others}")).unwrap();
    server.run("SELECT pg_reload_conf()");
    server.stop(Stop::Fast);
    server.start_again();
    refused(&database.url().replace("icecore_test@", "secretive:wrong@"), "password");
    refused(&database.url().replace("icecore_test@", "secretive@"), "password");
}

/// A key and a certificate for 127.0.0.1, and the authority that signed it.
fn make_certificates(server: &TestServer) -> Option<(PathBuf, tempfile::TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    let script = "set -e; cd \"$1\"
        new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        openssl req -x509 $new -keyout ca.key -out ca.pem -subj /CN=authority -days 2
        openssl req $new -keyout server.key -out server.csr -subj /CN=server
        echo 'subjectAltName=IP:127.0.0.1' > names
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
            -extfile names -out server.pem";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "certificates"]).arg(dir.path());
    let made = command.output().unwrap();
    if !made.status.success() {
        return None;
    }
    let data = server.data_directory().unwrap();
    let owner = std::fs::metadata(&data).unwrap();
    for file in ["server.key", "server.pem"] {
        let copy = data.join(file);
        std::fs::copy(dir.path().join(file), &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&copy, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    Some((dir.path().join("ca.pem"), dir))
}

#[test]
fn a_certificate_is_looked_at_as_the_url_says() {
    let Some(server) = own_server() else { return };
    let Some((authority, _dir)) = make_certificates(&server) else {
        let _ = writeln!(std::io::stderr(), "skipped: no openssl to make certificates with");
        return;
    };
    for (name, value) in
        [("ssl", "on"), ("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")]
    {
        server.configure(name, value);
    }
    server.stop(Stop::Fast);
    server.start_again();
    let database = server.fresh_database();
    let authority = format!("sslrootcert={}", authority.display());
    let elsewhere = database.url().replace("127.0.0.1", "localhost");
    let connect = |url: &str, options: &str| {
        let patience = PostgresOptions { retry_seconds: 0, ..PostgresOptions::default() };
        connect_with(&format!("{url}?{options}"), patience)
    };
    for (options, is_hidden) in [
        ("sslmode=disable".to_owned(), false),
        ("sslmode=prefer".to_owned(), true),
        ("sslmode=require".to_owned(), true),
        (format!("sslmode=verify-ca&{authority}"), true),
        (format!("sslmode=verify-full&{authority}"), true),
    ] {
        let _store = connect(database.url(), &options).unwrap();
        let found = database.rows(
            "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a ON a.pid = s.pid
             WHERE a.datname = current_database() AND a.application_name = 'icecore'",
        );
        let expected = if is_hidden { "t" } else { "f" };
        assert_eq!(found[0][0].as_deref(), Some(expected), "{options}");
    }
    // The certificate is for another name, or by an authority that nobody knows.
    assert!(connect(&elsewhere, &format!("sslmode=verify-ca&{authority}")).is_ok());
    for (url, options) in [
        (elsewhere.as_str(), format!("sslmode=verify-full&{authority}")),
        (database.url(), "sslmode=verify-full".to_owned()),
        (database.url(), "sslmode=verify-ca".to_owned()),
    ] {
        let error = connect(url, &options).err().unwrap();
        assert!(
            error.hint().is_some_and(|hint| hint.contains("ssl") || hint.contains("write")),
            "{error}"
        );
    }
}
