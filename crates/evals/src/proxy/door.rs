//! The proxy under test: the real binary, alone or in the host, over a directory of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::Result;

/// A directory and the binary that works on it.
pub struct Place {
    bin: PathBuf,
    dir: tempfile::TempDir,
}

/// A proxy that runs until it is stopped.
pub struct Door {
    child: Child,
    pub address: SocketAddr,
}

impl Place {
    pub fn new(bin: &Path) -> Result<Self> {
        Ok(Self { bin: bin.to_owned(), dir: tempfile::tempdir()? })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.bin);
        command.args(args).arg("--data").arg(self.dir.path().join("data"));
        command
    }

    /// `icecore proxy`.
    pub fn alone(&self, upstream: &str, window: u64) -> Result<Door> {
        let window = window.to_string();
        let args = ["proxy", "--upstream", upstream, "--window", &window];
        self.listening(&args)
    }

    /// `icecore serve` with an upstream for every tenant.
    pub fn serving(&self, upstream: &str, window: u64) -> Result<Door> {
        let config = self.dir.path().join("config.toml");
        let text = format!(
            "[proxy]\nopenai_url = \"{upstream}\"\nanthropic_url = \"{upstream}\"\nwindow = {window}\n"
        );
        std::fs::write(&config, text)?;
        let config = config.display().to_string();
        self.listening(&["serve", "--config", &config])
    }

    fn listening(&self, args: &[&str]) -> Result<Door> {
        let mut command = self.command(args);
        command.args(["--listen", "127.0.0.1:0", "--json", "--quiet"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("the proxy has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let first: Value = serde_json::from_str(&line)
            .map_err(|_| format!("{args:?} does not say where it listens: {line:?}"))?;
        let address = first["listening"].as_str().ok_or("it does not say where it listens")?;
        Ok(Door { child, address: address.trim_start_matches("http://").parse()? })
    }

    /// A key that may write for `tenant`.
    pub fn key(&self, tenant: &str) -> Result<String> {
        let args = ["key", "create", "--tenant", tenant, "--role", "writer", "--json", "--quiet"];
        let output = self.command(&args).stderr(Stdio::inherit()).output()?;
        let told: Value = serde_json::from_slice(&output.stdout)?;
        Ok(told["key"].as_str().ok_or("`key create` printed no key")?.to_owned())
    }

    /// What `check` says of the store.
    pub fn is_whole(&self) -> Result<bool> {
        Ok(self.command(&["check", "--json"]).stderr(Stdio::inherit()).output()?.status.success())
    }
}

impl Door {
    /// Resident memory, in MiB.
    pub fn resident_mib(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS"))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
    }

    /// Ends it as an operator would; whether it ended well.
    pub fn stop(mut self) -> Result<bool> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Where something failed on the way it still runs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
