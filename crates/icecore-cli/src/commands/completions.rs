//! `icecore completions`: what a shell can complete.

use clap_complete::Shell;

use crate::failure::{Outcome, Status};
use crate::printer::Printer;

/// Prints the script for a shell.
pub fn run(shell: Shell, command: &mut clap::Command, printer: &Printer) -> Outcome<Status> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "icecore", &mut script);
    printer.raw(&String::from_utf8_lossy(&script))?;
    Ok(Status::Done)
}
