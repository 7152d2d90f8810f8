//! What ends a command early, and the one place that tells it.

use std::error::Error;
use std::process::ExitCode;

use icecore::MemoryError;
use icecore::store::StoreError;
use icecore_host::schedules::SchedulingError;

use crate::printer::Printer;
use crate::settings::SettingsError;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Done,
    /// The user can fix it.
    Refused,
    /// Our fault or the machine's.
    Broken,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(match status {
            Status::Done => 0,
            Status::Refused => 1,
            Status::Broken => 3,
        })
    }
}

/// Why a command did not come to its end.
#[derive(Debug)]
pub enum Failure {
    /// The memory refused or failed.
    Memory(MemoryError),
    /// The settings cannot be used.
    Settings(SettingsError),
    /// Something else that the user can fix.
    Refused(String, Option<String>),
    /// Something else that the user cannot fix.
    Broken(String),
    /// Whoever read stdout went away.
    ReaderGone,
    /// Stdout cannot be written.
    Output(std::io::Error),
}

/// The result of a command or of a part of one.
pub type Outcome<T> = Result<T, Failure>;

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        Failure::Memory(error)
    }
}

impl From<SchedulingError> for Failure {
    fn from(error: SchedulingError) -> Self {
        match error {
            SchedulingError::Memory(error) => Failure::Memory(error),
            error => Failure::Refused(error.to_string(), None),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Failure::Settings(error)
    }
}

impl Failure {
    /// A refusal with a hint.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::Refused(message.into(), Some(hint.into()))
    }

    /// Tells the user, and says how the process is to end.
    pub fn tell(&self, printer: &Printer) -> Status {
        if let Failure::ReaderGone = self {
            return Status::Done;
        }
        printer.error(&self.message());
        if let Some(hint) = self.hint() {
            printer.hint(&hint);
        }
        self.status()
    }

    /// The message with its causes.
    pub fn message(&self) -> String {
        match self {
            Failure::Memory(error) => with_causes(error),
            Failure::Settings(error) => error.message(),
            Failure::Refused(message, _) | Failure::Broken(message) => message.clone(),
            Failure::ReaderGone => "the reader of the output went away".to_owned(),
            Failure::Output(error) => format!("cannot write the output: {error}"),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Failure::Memory(error) => hint_of(error),
            Failure::Settings(error) => error.hint(),
            Failure::Refused(_, hint) => hint.clone(),
            Failure::Broken(_) | Failure::ReaderGone | Failure::Output(_) => None,
        }
    }

    fn status(&self) -> Status {
        match self {
            Failure::Memory(error) if error.is_refusal() => Status::Refused,
            Failure::Settings(_) | Failure::Refused(..) => Status::Refused,
            Failure::ReaderGone => Status::Done,
            Failure::Memory(_) | Failure::Broken(_) | Failure::Output(_) => Status::Broken,
        }
    }
}

/// What to do about an error, with the commands and options of this program.
pub fn hint_of(error: &MemoryError) -> Option<String> {
    let MemoryError::Store(error) = error else { return error.hint() };
    let hint = match error {
        StoreError::NotAStore { .. } => "choose another directory with --data",
        StoreError::Damaged { .. } => {
            "stop all icecore processes, keep a copy of the directory, run `icecore check`, and restore from a backup what it names"
        }
        StoreError::ReadOnly { path } | StoreError::ForeignOwner { path, .. } => {
            let path = path.display();
            return Some(format!(
                "run as the owner of `{path}`, or choose another directory with --data"
            ));
        }
        StoreError::SharedMasterKey { .. } => {
            "move the key file to a directory of its own and name that with --data, or give the keys in ICECORE_MASTER_KEY and ICECORE_NEW_MASTER_KEY; nothing was changed"
        }
        StoreError::NothingThere { .. } => {
            "`--tenant` and `--memory` choose; `--all` takes every tenant"
        }
        StoreError::WrongBackupKey { .. } => {
            "name the file of the key that it was taken with by --key-file, or set ICECORE_MASTER_KEY; nothing was changed"
        }
        StoreError::HalfMoved { .. } => "run `icecore migrate` again as before, and it goes on",
        StoreError::TargetNotEmpty => {
            "nothing is overwritten: name an empty directory or database with --to; nothing was changed"
        }
        StoreError::NotEmpty { .. } => {
            "nothing is overwritten: restore into another directory with --data, or into an empty database; nothing was changed"
        }
        StoreError::Collides { .. }
        | StoreError::PositionsTaken { .. }
        | StoreError::OtherTenantKey { .. } => {
            "restore into another directory with --data, or into an empty database; nothing was changed"
        }
        StoreError::PackMissing { .. } | StoreError::PackDamaged { .. } => {
            "restore the file from a backup; `icecore check` lists every damaged pack"
        }
        error => return error.hint(),
    };
    Some(hint.to_owned())
}

/// A message and the causes that it does not already repeat.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = next.source();
    }
    text
}
