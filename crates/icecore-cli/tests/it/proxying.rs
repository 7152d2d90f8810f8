//! The proxy alone, as the command line starts and ends it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use crate::run::Place;
use crate::signals::signal;

/// A running proxy. It ends with this at the latest.
pub struct Proxy {
    child: Child,
    address: String,
}

impl Proxy {
    /// One on a free port in front of `upstream`.
    pub fn start(place: &Place, upstream: &str, more: &[&str]) -> Self {
        let args =
            ["proxy", "--json", "--quiet", "--listen", "127.0.0.1:0", "--upstream", upstream];
        let mut command = place.command(&[&args, more].concat());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let first: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = first["listening"].as_str().unwrap().to_owned();
        Self { child, address }
    }

    /// Its address with a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    /// Ends it, and sees that it ends well.
    pub fn stop(mut self) {
        signal(&self.child, "TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
