//! The host under test: the real binary over a directory of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::client::{Ask, Client, Door};
use crate::Result;

/// A host that runs until it is stopped.
pub struct Server {
    child: Child,
    pub door: Door,
    _dir: tempfile::TempDir,
}

/// A directory for a host that is still to start.
pub struct Place {
    bin: PathBuf,
    config: Option<PathBuf>,
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new(bin: &Path, config: Option<&Path>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        Ok(Self { bin: bin.to_owned(), config: config.map(Path::to_owned), dir })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.bin);
        command.args(args).arg("--data").arg(self.dir.path());
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command
    }

    /// A key that may write for `tenant`.
    pub fn key(&self, tenant: &str) -> Result<String> {
        let args = ["key", "create", "--tenant", tenant, "--role", "writer", "--json"];
        let output = self.command(&args).stderr(Stdio::inherit()).output()?;
        let told: Value = serde_json::from_slice(&output.stdout)?;
        Ok(told["key"].as_str().ok_or("`key create` printed no key")?.to_owned())
    }

    pub fn start(self) -> Result<Server> {
        let args = ["serve", "--listen", "127.0.0.1:0", "--json", "--quiet"];
        let mut child = self.command(&args).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("the host has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let first: Value = serde_json::from_str(&line)?;
        let field = |name: &str| first[name].as_str().ok_or("the host does not say where it is");
        let address = field("listening")?.trim_start_matches("http://").parse()?;
        let key = std::fs::read_to_string(field("keyFile")?)?.trim().to_owned();
        Ok(Server { child, door: Door { address, key }, _dir: self.dir })
    }
}

impl Server {
    /// Resident memory of the host, in MiB.
    pub fn resident_mib(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS"))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
    }

    /// Waits until no derived work is due.
    pub async fn settled(&self) -> Result<()> {
        let mut client = Client::connect(&self.door).await?;
        loop {
            let answer = client.ask(&Ask::metrics()).await?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let mut pending =
                text.lines().filter_map(|l| l.strip_prefix("icecore_pending_branches "));
            match pending.next() {
                Some("0") => return Ok(()),
                Some(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                None => return Err("the host does not say what is due".into()),
            }
        }
    }

    /// Ends it as an operator would; whether it ended well.
    pub fn stop(mut self) -> Result<bool> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where something failed on the way it still runs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
