//! Runs the binary and shows what it did.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A data directory with the binary that works on it.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// Where the data lies.
    pub fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// A file beside the data.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// The command with its environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_icecore"));
        command.env_clear().env("HOME", self.dir.path()).env("COLUMNS", "80");
        command.env("ICECORE_DATA", self.data()).args(args);
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    pub fn output_with_input(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What a run did, as text to compare.
    pub fn shown(&self, args: &[&str]) -> String {
        self.describe(&self.output(args))
    }

    pub fn describe(&self, output: &Output) -> String {
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(&self.dir.path().display().to_string(), "[DIR]")
        };
        let status = output.status.code().map_or("killed".to_owned(), |code| code.to_string());
        let mut shown = format!("exit {status}\n");
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                shown.push_str(&format!("--- {name}\n{}", text(bytes)));
            }
        }
        shown
    }

    /// Runs and expects success; answers stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {}", self.describe(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// As [`Place::ok`], as JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut args = args.to_vec();
        args.push("--json");
        serde_json::from_str(&self.ok(&args)).unwrap()
    }

    /// `check` finds nothing wrong.
    pub fn check(&self) {
        assert_eq!(self.json(&["check"])["ok"], true);
    }
}

/// Turn JSONL of `count` turns.
pub fn conversation(count: usize) -> String {
    let line = |n: usize| {
        let role = ["user", "assistant"][n % 2];
        format!(
            "{{\"role\":\"{role}\",\"content\":\"Turn {n} is about glacier number {} and its moraine.\",\"timestamp\":\"2024-05-01T10:{:02}:{:02}Z\"}}\n",
            n * 7 % 31,
            n / 60 % 60,
            n % 60
        )
    };
    (1..=count).map(line).collect()
}

/// Every file below `dir`.
pub fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found
}

/// Whether this process may do anything; some refusals cannot be shown then.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
