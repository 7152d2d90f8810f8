//! Who and where: separate types for separate things, so that a session is
//! never passed where a memory is meant.

use std::fmt;

use crate::redact::RedactedText;

/// The isolation boundary. Comes only from a credential.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(String);

/// Names of tenants, memories, sessions and branches are at most this long.
pub const MAX_NAME_BYTES: usize = 512;

/// A name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    #[error("a {kind} needs a name, and the one given is empty")]
    Empty { kind: &'static str },
    #[error("the name of a {kind} is at most {MAX_NAME_BYTES} bytes, this one has {bytes}")]
    TooLong { kind: &'static str, bytes: usize },
    /// The name of a memory that reads as a way through directories.
    #[error("the name of a memory may not begin with a slash or hold `..` between slashes")]
    Path,
    /// Holds a control character, which no terminal or URL shows faithfully.
    #[error("the name of a {kind} may not hold control characters")]
    Control { kind: &'static str },
}

/// Checks the rules that every name obeys.
pub fn check_name(kind: &'static str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong { kind, bytes: name.len() });
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::Control { kind });
    }
    Ok(())
}

/// Checks what a caller calls a memory, before it is looked for. Any form of
/// reference will do, with slashes, colons and spaces, but none that anybody
/// could take for a way out of a directory.
pub fn check_memory(name: &str) -> Result<(), NameError> {
    check_name("memory", name)?;
    let is_slash = |c: char| matches!(c, '/' | '\\');
    if name.starts_with(is_slash) || name.split(is_slash).any(|part| part == "..") {
        Err(NameError::Path)
    } else {
        Ok(())
    }
}

impl Tenant {
    /// A tenant by name.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        check_name("tenant", &name)?;
        Ok(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Tenant {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        Self::new(name)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The workspace of a credential that names none.
pub const DEFAULT_WORKSPACE: &str = "default";

/// Somebody whose right to act for a tenant has been established.
///
/// The two constructors are the two ways that can happen, and a [`Scope`] comes
/// only from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    tenant: Tenant,
    workspace: String,
}

impl Principal {
    /// The person at the machine, who can read the data directory anyway.
    pub fn local_operator(tenant: Tenant) -> Self {
        Self::in_default(tenant)
    }

    /// The holder of a key that was found and compared; `tenant` is the key's.
    pub fn key_holder(tenant: Tenant) -> Self {
        Self::in_default(tenant)
    }

    fn in_default(tenant: Tenant) -> Self {
        Self { tenant, workspace: DEFAULT_WORKSPACE.to_owned() }
    }

    /// The same, at work in another of the tenant's workspaces.
    pub fn at_work_in(self, workspace: RedactedText) -> Result<Self, NameError> {
        check_name("workspace", workspace.as_str())?;
        Ok(Self { workspace: workspace.into_string(), ..self })
    }

    /// The name of the workspace that this principal works in.
    pub(crate) fn workspace_name(&self) -> &str {
        &self.workspace
    }

    /// Whom this principal acts for.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// One memory of this principal's tenant.
    pub fn scope(&self, memory: RedactedText) -> Result<Scope, NameError> {
        check_name("memory", memory.as_str())?;
        Ok(Scope { tenant: self.tenant.clone(), memory: memory.into_string() })
    }

    /// A memory that has no name, so that nothing can ever be in it: what a reader
    /// gets who asks for one that cannot be.
    pub fn nowhere(&self) -> Scope {
        Scope { tenant: self.tenant.clone(), memory: String::new() }
    }
}

/// One tenant's memory under one `memoryRef`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    tenant: Tenant,
    memory: String,
}

impl Scope {
    /// Whose memory.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub fn memory(&self) -> &str {
        &self.memory
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.memory)
    }
}

/// A named conversation in a scope. The name has been through the redactor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName(String);

impl SessionName {
    /// The session that turns belong to when nobody names one.
    pub const DEFAULT: &str = "default";

    /// A session by its redacted name.
    pub fn new(name: RedactedText) -> Result<Self, NameError> {
        check_name("session", name.as_str())?;
        Ok(Self(name.into_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Number of a record in the tenant's log: the cursor of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// Append order within a session, dense, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// Place of a turn among its branch's own turns, dense, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ordinal(pub u64);

/// The store's number for a session, unique in a tenant and never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub u64);

/// A branch of a session; 0 is the one a session begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Branch(pub u32);

impl Branch {
    /// The branch every session begins with.
    pub const MAIN: Branch = Branch(0);

    /// Reads what [`Branch`] displays: `main`, `fork-1`, `fork-2`, …
    pub fn parse(name: &str) -> Option<Branch> {
        match name {
            "main" => Some(Branch::MAIN),
            _ => {
                let number: u32 = name.strip_prefix("fork-")?.parse().ok()?;
                let branch = Branch(number);
                (number > 0 && branch.to_string() == name).then_some(branch)
            }
        }
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("main"),
            number => write!(f, "fork-{number}"),
        }
    }
}

macro_rules! numbers {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
numbers!(Position, Seq, Ordinal, SessionNo);

/// The id that a turn has when its client gave none: `turn-<session>.<seq>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId {
    pub session: SessionNo,
    pub seq: Seq,
}

impl TurnId {
    /// Reads what [`TurnId`] displays.
    pub fn parse(text: &str) -> Option<TurnId> {
        let (session, seq) = text.strip_prefix("turn-")?.split_once('.')?;
        let id = TurnId { session: SessionNo(session.parse().ok()?), seq: Seq(seq.parse().ok()?) };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn-{}.{}", self.session, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_what_they_display() {
        let turn = TurnId { session: SessionNo(3), seq: Seq(41) };
        assert_eq!(TurnId::parse(&turn.to_string()), Some(turn));
        assert_eq!(TurnId::parse("turn-03.41"), None);
        for branch in [Branch::MAIN, Branch(1), Branch(12)] {
            assert_eq!(Branch::parse(&branch.to_string()), Some(branch));
        }
        assert_eq!(Branch::parse("fork-0"), None);
        assert_eq!(Branch::parse("fork-01"), None);
    }

    #[test]
    fn names_have_rules() {
        assert_eq!(Tenant::new(""), Err(NameError::Empty { kind: "tenant" }));
        assert_eq!(Tenant::new("a\nb"), Err(NameError::Control { kind: "tenant" }));
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert!(matches!(Tenant::new(long), Err(NameError::TooLong { bytes: 513, .. })));
        assert!(Tenant::new("x".repeat(MAX_NAME_BYTES)).is_ok());
    }

    #[test]
    fn a_memory_is_called_as_one_likes_but_not_by_a_path() {
        for name in [
            "conformance/agent-memory-1",
            "mem_tenant:default_agent:x_longTerm",
            "mem://conformance/a",
            "conformance-distill",
            "a..b/c...",
            "...",
            "C:",
            "Grüße an alle",
        ] {
            assert_eq!(check_memory(name), Ok(()), "{name}");
        }
        for name in ["..", "../x", "a/../../b", "a\\..\\b", "/etc/passwd", "\\x", "a/.."] {
            assert_eq!(check_memory(name), Err(NameError::Path), "{name}");
        }
        let (kind, bytes) = ("memory", 10_000);
        assert_eq!(check_memory(""), Err(NameError::Empty { kind }));
        assert_eq!(check_memory("nul\0byte"), Err(NameError::Control { kind }));
        assert_eq!(check_memory("\u{202e}\u{7}"), Err(NameError::Control { kind }));
        assert_eq!(check_memory(&"r".repeat(bytes)), Err(NameError::TooLong { kind, bytes }));
    }
}
