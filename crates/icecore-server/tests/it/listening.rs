//! A socket in the file system.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use icecore::Memory;
use icecore_server::{Listener, ServerOptions, ensure_admin_key, serve};

use crate::client::{API, apart, connect, read_answer, read_head};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_listens_at_a_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ice.sock");
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let key = ensure_admin_key(&memory, dir.path()).await.unwrap();
    let key = std::fs::read_to_string(key.path).unwrap().trim().to_owned();
    let listener = Listener::bind(&format!("unix:{}", path.display())).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let host = tokio::spawn(serve(memory, listener, ServerOptions::default(), async {
        let _ = stopped.await;
    }));
    let socket = path.clone();
    let ask = async |headers: &str| {
        let (socket, key, headers) = (socket.clone(), key.clone(), headers.to_owned());
        apart(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            let request = format!(
                "GET {API}/stats HTTP/1.1\r\n{headers}Authorization: Bearer {key}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).unwrap();
            let mut reader = BufReader::new(stream);
            let head = read_head(&mut reader);
            let mut rest = String::new();
            reader.read_to_string(&mut rest).unwrap();
            head.split(' ').nth(1).unwrap().to_owned()
        })
        .await
    };
    assert_eq!(ask("Host: any.example\r\n").await, "200");
    assert_eq!(ask("Host: localhost\r\n").await, "200");
    assert_eq!(ask("Host: localhost\r\nOrigin: http://evil.example\r\n").await, "403");
    let _ = stop.send(());
    host.await.unwrap().unwrap();
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_answers_to_the_names_that_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let listener = Listener::bind("localhost:0").await.unwrap();
    let address = listener.address().unwrap();
    assert_eq!(listener.shown(), format!("http://{address}"));
    let options =
        ServerOptions { allowed_hosts: vec!["memory.example".to_owned()], ..Default::default() };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let host = tokio::spawn(serve(memory, listener, options, async {
        let _ = stopped.await;
    }));
    for (name, expected) in [
        ("memory.example", 200),
        ("Memory.Example:443", 200),
        ("localhost", 200),
        ("other.example", 403),
        ("memory.example.other", 403),
    ] {
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {name}\r\n\r\n");
        let answer = apart(move || {
            let mut stream = connect(address);
            stream.write_all(request.as_bytes()).unwrap();
            read_answer(stream)
        });
        assert_eq!(answer.await.status, expected, "{name}");
    }
    let _ = stop.send(());
    host.await.unwrap().unwrap();
}
