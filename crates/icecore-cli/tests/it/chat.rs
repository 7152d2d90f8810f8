//! The chat in a terminal of its own.

use std::io::{Read, Write};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig};
use pty_process::Size;
use pty_process::blocking::{Command, Pty};
use rustix::termios::{LocalModes, tcgetattr};
use tokio::runtime::Runtime;

use crate::run::{Place, conversation};

/// A test that waits longer than this for something on the screen has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary in a terminal, and what is on its screen.
struct Seat {
    pty: Arc<Pty>,
    child: std::process::Child,
    heard: Receiver<Vec<u8>>,
    parser: vt100::Parser,
}

impl Seat {
    fn take(place: &Place, args: &[&str]) -> Self {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let command = Command::new(env!("CARGO_BIN_EXE_icecore"))
            .env_clear()
            .env("HOME", place.dir.path())
            .env("TERM", "xterm-256color")
            .env("ICECORE_DATA", place.data())
            .current_dir(place.dir.path())
            .args(args);
        let child = command.spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let (sender, heard) = channel();
        let reader = Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // Reading fails once the other side is gone.
            while let Ok(count @ 1..) = (&*reader).read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { pty, child, heard, parser: vt100::Parser::default() }
    }

    fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until all of these are on the screen.
    fn see(&mut self, texts: &[&str]) {
        let began = Instant::now();
        while !texts.iter().all(|text| self.screen().contains(text)) {
            let left = PATIENCE.saturating_sub(began.elapsed());
            match self.heard.recv_timeout(left) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(_) => panic!("{texts:?} never came:\n{}", self.screen()),
            }
        }
    }

    /// Waits until it ends; then the terminal must be as it was.
    fn leave(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        while let Ok(bytes) = self.heard.recv_timeout(PATIENCE) {
            self.parser.process(&bytes);
        }
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        let modes = tcgetattr(&*self.pty).map(|modes| modes.local_modes);
        // Some systems have nothing to tell once the other side is gone.
        if let Ok(modes) = modes {
            assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        }
        status
    }
}

fn upstream(runtime: &Runtime) -> Upstream {
    let config = UpstreamConfig { window: 8_192, ..UpstreamConfig::default() };
    runtime.block_on(Upstream::start(config))
}

fn settings(place: &Place, upstream: &Upstream) -> String {
    let url = upstream.url();
    place.file(
        "config.toml",
        format!(
            "[models.small]\nurl = \"{url}\"\nwindow = 8192\nreserve = 1024\nretries = 0\n\
             input_price = 0.5\noutput_price = 1.5\n"
        ),
    )
}

#[test]
fn a_conversation_at_a_terminal() {
    let runtime = Runtime::new().unwrap();
    let upstream = upstream(&runtime);
    let place = Place::new();
    let config = settings(&place, &upstream);
    let turns = place.file("c.jsonl", conversation(60));
    place.ok(&["import", &turns, "--session", "trip"]);
    place.ok(&["add", "--session", "last-year", "The ferry to Naxos leaves at 7:40."]);

    let mut seat = Seat::take(&place, &["chat", "--session", "trip", "--config", &config]);
    seat.see(&["icecore  trip", "Turn 60 is about glacier", " small "]);

    // What comes is seen as it comes, and can be given up.
    upstream.push(Behaviour::StallAfter("It leaves about seven o'clock".to_owned()));
    seat.press("When does the ferry to Naxos leave?\r");
    // The last word waits until it is known to be no secret.
    seat.see(&["It leaves about seven", "Esc cancels", "memory 1"]);
    seat.press("\x1b");
    seat.see(&["cancelled", "… not kept. /retry asks again."]);
    upstream.push(Behaviour::Answer("It leaves at 7:40 in the morning.".to_owned()));
    seat.press("/retry\r");
    seat.see(&["It leaves at 7:40 in the morning.", "cost 0."]);
    let sent = upstream.requests().pop().unwrap();
    assert!(sent.text().contains("[icecore recall]"));
    assert!(sent.text().contains("user in last-year: The ferry to Naxos leaves at 7:40."));

    // A handoff, and both views of it.
    seat.press("/compact\r");
    seat.see(&["handoff 1: "]);
    seat.press("\x1bOQ");
    seat.see(&["people: 62 turns", "model: handoff", "[icecore handoff 1, in place of"]);
    seat.press("\x0f");

    // A long paste is one word here and whole at the model.
    seat.press(&format!("\x1b[200~{}\x1b[201~", "a line of a log\n".repeat(40)));
    seat.see(&["> [pasted 40 lines]"]);
    upstream.push(Behaviour::Answer("Forty lines of a log.".to_owned()));
    seat.press("\r");
    seat.see(&["Forty lines of a log."]);
    let sent = upstream.requests().pop().unwrap().text();
    assert_eq!(sent.matches("a line of a log").count(), 40, "{sent}");

    upstream.push(Behaviour::Length("It goes on and".to_owned()));
    seat.press("How does it go on?\r");
    seat.see(&["It goes on and", "the answer is cut short"]);

    upstream.push(Behaviour::Denied);
    seat.press("And now?\r");
    seat.see(&["! `small` refused the key"]);
    seat.press("/export kept.jsonl\r");
    seat.see(&["67 turns written to kept.jsonl"]);
    seat.press("/quit\r");
    assert_eq!(seat.leave().code(), Some(0));

    // What was given up is no turn; all else is.
    let kept = place.ok(&["view", "--session", "trip"]);
    assert!(kept.contains("It leaves at 7:40 in the morning.") && !kept.contains("about seven"));
    let exported = std::fs::read_to_string(place.dir.path().join("kept.jsonl")).unwrap();
    assert_eq!(exported.lines().count(), 67);
    place.check();
}

#[test]
fn without_a_model_the_memory_answers() {
    let place = Place::new();
    place.ok(&["add", "--session", "trip", "The spare key hangs behind the barometer."]);
    let mut seat = Seat::take(&place, &["chat", "--session", "new", "--no-color"]);
    seat.see(&["No model is declared", "[models.small]", " no model "]);
    seat.press("Hello?\r");
    seat.see(&["! there is no model to answer"]);
    seat.press("/recall spare key\r");
    seat.see(&["1 hit for: spare key", "trip, turn 1, user", "behind the barometer"]);
    seat.press("/forget session trip\r");
    seat.see(&["? Forget session trip: 1 turn"]);
    seat.press("y");
    seat.see(&["erased 1 turn", "receipt forget-"]);
    assert!(!seat.screen().contains("barometer"), "{}", seat.screen());
    seat.press("\x03\x03");
    assert_eq!(seat.leave().code(), Some(0));
    assert_eq!(place.json(&["sessions"])["sessions"].as_array().map(Vec::len), Some(0));
}

#[test]
fn the_terminal_is_given_back_to_whoever_ends_the_chat() {
    let place = Place::new();
    let mut seat = Seat::take(&place, &["chat"]);
    seat.see(&["icecore  default"]);
    crate::signals::signal(&seat.child, "TERM");
    assert_eq!(seat.leave().code(), Some(0));

    let mut seat = Seat::take(&place, &["chat", "--model", "nobody"]);
    assert_eq!(seat.leave().code(), Some(1));
    let shown = seat.screen();
    assert!(shown.contains("error: there is no `[models.nobody]` in the settings"), "{shown}");
}

#[test]
fn without_a_terminal_there_is_no_chat() {
    let place = Place::new();
    insta::assert_snapshot!(place.shown(&["chat"]), @r"
    exit 1
    --- stderr
    error: the chat needs a terminal to draw on and to read from
    hint: run it in one; `icecore add`, `icecore search` and `icecore context` work in pipes
    ");
}
