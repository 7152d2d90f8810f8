//! Takes in the value of a secret: from a pipe, a terminal or the environment.
//!
//! It is held in memory that is wiped, is never grown (a grown buffer leaves its
//! old self behind), and no message here repeats any of it.

use std::ffi::OsStr;
use std::io::{IsTerminal, Read, Stdin, Write};
use std::os::unix::ffi::OsStringExt;

use icecore::privacy::{MAX_SECRET_BYTES, SecretError};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};

/// Room for the longest secret and its newline.
const MOST_BYTES: usize = MAX_SECRET_BYTES + 2;

/// The value of the environment variable `name`. The name is not repeated: who
/// writes `--from-env $TOKEN` has given the value.
pub fn from_env(name: &OsStr) -> Outcome<Zeroizing<String>> {
    let is_name = !name.is_empty() && !name.as_encoded_bytes().iter().any(|b| b"=\0".contains(b));
    let value = std::env::var_os(name).filter(|_| is_name).ok_or_else(|| {
        Failure::refused(
            "there is no environment variable of the name that --from-env gives",
            "give the variable's name, without `$`, and export it",
        )
    })?;
    checked(Zeroizing::new(value.into_vec()))
}

/// The value from standard input: all of it without its last newline, or one line
/// that is typed unseen.
pub fn from_stdin(name: &str) -> Outcome<Zeroizing<String>> {
    let stdin = std::io::stdin();
    match stdin.is_terminal() {
        true => typed(&stdin, name),
        false => checked(piped(&mut stdin.lock())?),
    }
}

fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(format!("cannot read standard input: {error}"))
}

/// Reads to the end. What is longer than any secret is only counted.
fn piped(input: &mut impl Read) -> Outcome<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; MOST_BYTES]);
    let mut length = 0;
    loop {
        let room = if length < MOST_BYTES { length } else { 0 };
        match input.read(&mut bytes[room..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    if length > MOST_BYTES {
        return Err(Failure::Memory(SecretError::TooLong { bytes: length }.into()));
    }
    bytes.truncate(length);
    for end in [b'\n', b'\r'] {
        if bytes.last() == Some(&end) {
            bytes.pop();
        } else {
            break;
        }
    }
    Ok(bytes)
}

fn checked(mut bytes: Zeroizing<Vec<u8>>) -> Outcome<Zeroizing<String>> {
    if bytes.is_empty() {
        return Err(Failure::refused(
            "the value is empty",
            "pipe it in, type it when asked, or name a variable with --from-env",
        ));
    }
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err(Failure::refused(
                "the value is not UTF-8 text",
                "give it as it would be written in a conversation, say in base64 or hex",
            ))
        }
    }
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct Unseen<'a> {
    stdin: &'a Stdin,
    before: Termios,
}

impl<'a> Unseen<'a> {
    fn new(stdin: &'a Stdin) -> std::io::Result<Self> {
        let unseen = Self { stdin, before: tcgetattr(stdin)? };
        unseen.set(1, 0)?;
        Ok(unseen)
    }

    /// Each byte comes as it is typed, Ctrl-C too: nothing may end the process
    /// while the terminal is mute.
    fn set(&self, least: u8, tenths: u8) -> std::io::Result<()> {
        let mut mode = self.before.clone();
        mode.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        mode.special_codes[SpecialCodeIndex::VMIN] = least;
        mode.special_codes[SpecialCodeIndex::VTIME] = tenths;
        Ok(tcsetattr(self.stdin, OptionalActions::Now, &mode)?)
    }

    /// The next byte; none if the terminal is gone or, with a limit, nothing came.
    fn byte(&self) -> std::io::Result<Option<u8>> {
        let mut byte = [0];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(self.stdin, &mut byte))?;
        Ok((read > 0).then_some(byte[0]))
    }
}

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        // What else was pasted must not reach the shell.
        let _ = tcsetattr(self.stdin, OptionalActions::Flush, &self.before);
    }
}

fn typed(stdin: &Stdin, name: &str) -> Outcome<Zeroizing<String>> {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "Value of `{}` (it is not shown; Enter ends it): ", shown(name));
    let _ = stderr.flush();
    let line = Unseen::new(stdin).map_err(unreadable).and_then(|terminal| line(&terminal));
    let _ = writeln!(stderr);
    checked(line?)
}

/// The name in a prompt: who gives the value for the name should not see it there.
fn shown(name: &str) -> String {
    crate::draw::clip(&crate::hush::said(name), 48)
}

fn line(terminal: &Unseen<'_>) -> Outcome<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST_BYTES));
    while let Some(byte) = terminal.byte().map_err(unreadable)? {
        match byte {
            b'\n' | b'\r' => break,
            // Ctrl-C, Ctrl-\ and Ctrl-D.
            0x03 | 0x1c => return Err(Failure::refused("interrupted", "nothing was registered")),
            0x04 => return Ok(bytes),
            // Backspace takes a character, Ctrl-U all.
            0x08 | 0x7f => while bytes.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
            0x15 => bytes.clear(),
            _ if bytes.len() == MOST_BYTES => {
                return Err(Failure::Memory(SecretError::TooLong { bytes: bytes.len() }.into()));
            }
            byte => bytes.push(byte),
        }
    }
    // A value of several lines that is pasted goes on at once.
    terminal.set(0, 1).map_err(unreadable)?;
    if terminal.byte().map_err(unreadable)?.is_some() {
        return Err(Failure::refused(
            "more came after the first line, and nothing was registered",
            "pipe a value of several lines in: `icecore secret add NAME < FILE`",
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &[u8], expected: Result<&str, &str>) {
        let found = piped(&mut &input[..]).and_then(checked);
        let found = found.map(|value| value.to_string()).map_err(|failure| failure.message());
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn one_newline_is_no_part_of_the_value() {
        check(b"q8Zk2Lm9Xw", Ok("q8Zk2Lm9Xw"));
        check(b"q8Zk2Lm9Xw\n", Ok("q8Zk2Lm9Xw"));
        check(b"q8Zk2Lm9Xw\r\n", Ok("q8Zk2Lm9Xw"));
        check(b"a\nb\n\n", Ok("a\nb\n"));
        check(b" blanks are kept ", Ok(" blanks are kept "));
    }

    #[test]
    fn what_is_no_value_is_refused_and_not_repeated() {
        check(b"", Err("the value is empty"));
        check(b"\n", Err("the value is empty"));
        check(b"q8Zk\xff2Lm9Xw", Err("the value is not UTF-8 text"));
        let bytes = 1 << 20;
        let expected =
            format!("a secret has at most {MAX_SECRET_BYTES} bytes, this one has {bytes}");
        check(&vec![b'x'; bytes], Err(&expected));
        let longest = "x".repeat(MAX_SECRET_BYTES);
        check(format!("{longest}\r\n").as_bytes(), Ok(&longest));
    }
}
