//! The agents that are installed: manifests in, inventory out.
//!
//! Each is a JSON file of one directory. The inventory says of every agent what it
//! is and what it has to do without on this host; never how it is prompted, nor what
//! its schemas are.
//!
//! ```json
//! {
//!   "agentId": "harbour.pilot",
//!   "persona": "pilot",
//!   "label": "Harbour pilot",
//!   "modelClass": "general",
//!   "packName": "harbour",
//!   "packVersion": "1.2.0",
//!   "memoryShape": { "longTerm": true },
//!   "requiresCapabilities": ["memory.search.semantic"]
//! }
//! ```
//!
//! The keys above up to `packVersion` must be there; those that are not known here
//! are left to others.

mod inventory;
mod manifest;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use inventory::{AgentEntry, MemoryShape};
use manifest::Manifest;

/// The most manifests of a directory.
pub const MAX_MANIFESTS: usize = 256;

/// The largest manifest, in bytes.
pub const MAX_MANIFEST_BYTES: usize = 64 << 10;

/// The manifests that are there with `--conformance`.
const FIXTURES: [(&str, &str); 2] = [
    ("conformance-keeper.json", include_str!("../agents/conformance-keeper.json")),
    ("conformance-rehearser.json", include_str!("../agents/conformance-rehearser.json")),
];

/// The agents that are installed, by id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Agents {
    installed: BTreeMap<String, Installed>,
}

#[derive(Debug, Clone, PartialEq)]
struct Installed {
    manifest: Manifest,
    /// The name of its file.
    file: String,
    is_fixture: bool,
}

/// Why the agents cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentsError {
    /// The directory cannot be listed.
    #[error("cannot read the directory of agent manifests `{}`: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// More manifests than a host takes.
    #[error("`{}` has more than {most} agent manifests", path.display())]
    TooMany {
        /// Where.
        path: PathBuf,
        /// The most.
        most: usize,
    },
    /// A manifest that cannot be read.
    #[error("cannot read the agent manifest `{file}`: {source}")]
    Unreadable {
        /// Its name.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// A manifest that is too large.
    #[error("the agent manifest `{file}` has more than {most} bytes")]
    TooLarge {
        /// Its name.
        file: String,
        /// The most bytes.
        most: usize,
    },
    /// A manifest that is not JSON.
    #[error("the agent manifest `{file}` is not valid JSON: {problem}")]
    Syntax {
        /// Its name.
        file: String,
        /// What is wrong, and in which line.
        problem: String,
    },
    /// A manifest whose field is not as it must be.
    #[error("in the agent manifest `{file}`, {problem}")]
    Field {
        /// Its name.
        file: String,
        /// Which field, and what it must be.
        problem: String,
    },
    /// Two manifests of one agent.
    #[error("the agent manifests `{first}` and `{second}` have the same `agentId`")]
    Twice {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
}

impl AgentsError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Directory { .. } => {
                "give `openwop.agents` a directory that this user can read, or leave it out"
            }
            Self::TooMany { .. } => "move those that are not needed to another directory",
            Self::Unreadable { .. } => "let this user read it, or move it away",
            Self::TooLarge { .. } => "keep prompts and schemas in files of their own",
            Self::Syntax { .. } | Self::Field { .. } => {
                "correct it, or move it away; a manifest has `agentId`, `persona`, `label`, \
                 `modelClass`, `packName` and `packVersion`"
            }
            Self::Twice { .. } => "give one of them another id, or move it away",
        }
    }
}

impl Agents {
    /// Reads the manifests of a directory: its `*.json`, without links, hidden files
    /// and what lies deeper.
    pub fn load(dir: &Path) -> Result<Self, AgentsError> {
        let mut agents = Self::default();
        for path in manifests(dir)? {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = read(&path, &file)?;
            agents.install(file, &text, false)?;
        }
        Ok(agents)
    }

    /// These, and the two fixtures of a conformance run: one whose memory is all here,
    /// and one that asks for more than there is.
    pub fn with_fixtures(mut self) -> Result<Self, AgentsError> {
        for (file, text) in FIXTURES {
            self.install(file.to_owned(), text.as_bytes(), true)?;
        }
        Ok(self)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.installed.len()
    }

    fn install(&mut self, file: String, text: &[u8], is_fixture: bool) -> Result<(), AgentsError> {
        let manifest = Manifest::parse(&file, text)?;
        match self.installed.get(&manifest.agent_id) {
            Some(other) => Err(AgentsError::Twice { first: other.file.clone(), second: file }),
            None => {
                let id = manifest.agent_id.clone();
                self.installed.insert(id, Installed { manifest, file, is_fixture });
                Ok(())
            }
        }
    }
}

/// The manifests of a directory by name, so that the same one is complained of first
/// on every machine.
fn manifests(dir: &Path) -> Result<Vec<PathBuf>, AgentsError> {
    let failed = |source| AgentsError::Directory { path: dir.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_json = entry.path().extension().is_some_and(|extension| extension == "json");
        // The type of the entry itself: a link is not followed.
        if !is_hidden && is_json && entry.file_type().map_err(failed)?.is_file() {
            found.push(entry.path());
        }
        if found.len() > MAX_MANIFESTS {
            return Err(AgentsError::TooMany { path: dir.to_owned(), most: MAX_MANIFESTS });
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path, file: &str) -> Result<Vec<u8>, AgentsError> {
    let failed = |source| AgentsError::Unreadable { file: file.to_owned(), source };
    let mut text = Vec::new();
    let opened = File::open(path).map_err(failed)?;
    opened.take(MAX_MANIFEST_BYTES as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    match text.len() > MAX_MANIFEST_BYTES {
        true => Err(AgentsError::TooLarge { file: file.to_owned(), most: MAX_MANIFEST_BYTES }),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(id: &str) -> String {
        format!(
            r#"{{"agentId":"{id}","persona":"p","label":"L","modelClass":"general",
                "packName":"pack","packVersion":"1"}}"#
        )
    }

    fn ids(agents: &Agents) -> Vec<&str> {
        agents.installed.keys().map(String::as_str).collect()
    }

    #[test]
    fn manifests_are_the_json_files_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        put("b.json", &manifest("second"));
        put("a.json", &manifest("third"));
        put("z.json", &manifest("first"));
        put("notes.txt", "not a manifest");
        put(".hidden.json", "not one either");
        fs::create_dir(dir.path().join("deeper.json")).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("b.json", dir.path().join("link.json")).unwrap();
        let agents = Agents::load(dir.path()).unwrap();
        assert_eq!(ids(&agents), ["first", "second", "third"]);
        assert_eq!(agents.with_fixtures().unwrap().count(), 5);
    }

    fn check(files: &[(&str, &str)], expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let error = Agents::load(dir.path()).and_then(Agents::with_fixtures).unwrap_err();
        let found = error.to_string().replace(&dir.path().display().to_string(), "DIR");
        assert_eq!(found, expected);
        assert!(!error.hint().is_empty());
    }

    #[test]
    fn mistakes_are_named_with_their_file() {
        check(
            &[("a.json", "{\"agentId\": ")],
            "the agent manifest `a.json` is not valid JSON: EOF while parsing a value at line 1 column 12",
        );
        check(
            &[("a.json", &manifest("x")), ("b.json", &manifest("x"))],
            "the agent manifests `a.json` and `b.json` have the same `agentId`",
        );
        check(
            &[("a.json", &manifest("icecore.conformance.keeper"))],
            "the agent manifests `a.json` and `conformance-keeper.json` have the same `agentId`",
        );
        check(
            &[("large.json", &" ".repeat(MAX_MANIFEST_BYTES + 1))],
            "the agent manifest `large.json` has more than 65536 bytes",
        );
        check(&[("a.json", "[]")], "in the agent manifest `a.json`, there is no JSON object");
    }

    #[test]
    fn the_number_of_manifests_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let put = |n: usize| {
            fs::write(dir.path().join(format!("{n}.json")), manifest(&format!("{n}"))).unwrap();
        };
        (0..MAX_MANIFESTS).for_each(put);
        assert_eq!(Agents::load(dir.path()).unwrap().count(), MAX_MANIFESTS);
        put(MAX_MANIFESTS);
        let error = Agents::load(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("has more than 256 agent manifests"), "{error}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_a_mistake() {
        let error = Agents::load(Path::new("/nowhere/agents")).unwrap_err();
        let expected = "cannot read the directory of agent manifests `/nowhere/agents`: ";
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(error.hint().contains("openwop.agents"));
    }
}
