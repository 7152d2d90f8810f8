//! The host, as the command line starts and ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::run::Place;
use crate::signals::signal;

struct Host {
    child: Child,
    address: String,
    key: String,
}

fn start(place: &Place) -> Host {
    let mut child = place
        .command(&["serve", "--listen", "127.0.0.1:0", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let first: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = first["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let key = std::fs::read_to_string(first["keyFile"].as_str().unwrap()).unwrap();
    Host { child, address, key: key.trim().to_owned() }
}

impl Host {
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let key = &self.key;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn the_host_says_where_it_listens_and_ends_well() {
    let place = Place::new();
    place.ok(&["add", "--session", "s", "before"]);
    for start_number in 1..=2 {
        let mut host = start(&place);
        let answer = host.get("/v1/host/icecore/sessions");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\"session\":\"s\""), "{answer}");
        // The command line works beside a running host, and the host sees it.
        place.ok(&["add", "--session", "s", "beside"]);
        let turns = host.get("/v1/host/icecore/sessions/s/turns");
        assert_eq!(turns.matches("beside").count(), start_number, "{turns}");
        signal(&host.child, "TERM");
        assert_eq!(host.child.wait().unwrap().code(), Some(0));
    }
    place.check();
}

#[test]
fn an_address_that_cannot_be_used_is_refused() {
    let place = Place::new();
    insta::assert_snapshot!(place.shown(&["serve", "--listen", "nonsense"]), @r"
    exit 1
    --- stderr
    error: `nonsense` is no address to listen on
    hint: write an address and a port, like 127.0.0.1:7433
    ");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let shown = place.shown(&["serve", "--listen", &address]).replace(&address, "[ADDRESS]");
    insta::assert_snapshot!(shown, @r"
    exit 1
    --- stderr
    error: cannot listen on [ADDRESS]: Address already in use (os error 98)
    hint: choose another with --listen; port 0 takes a free one
    ");
}
