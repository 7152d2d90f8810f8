//! What keys and work come to, without a terminal.

use icecore::ForgetRequest;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::screen::{Paint, draw};
use super::state::{
    Confirm, Done, Effect, Event, Handoff, Job, Kind, Mode, Model, Note, State, Tone, Turn, Views,
    Voice,
};
use super::update::{begin, update};

pub fn turn(seq: u64, voice: Voice, text: &str) -> Turn {
    let who = match voice {
        Voice::Person => "you",
        Voice::Model => "small-instruct",
        Voice::Tool => "tool",
        Voice::System => "system",
    };
    Turn {
        seq,
        voice,
        who: who.to_owned(),
        at: format!("2026-11-18 10:{:02}", seq % 60),
        text: text.to_owned(),
        calls: Vec::new(),
    }
}

/// A session of some turns that was never compacted.
pub fn views(count: u64) -> Views {
    let one = |seq: u64| match seq % 2 {
        1 => turn(seq, Voice::Person, &format!("What is known of island number {seq}?")),
        _ => turn(seq, Voice::Model, &format!("Island {seq} has a harbour and two ferries a day.")),
    };
    let turns: Vec<Turn> = (1..=count).map(one).collect();
    Views { sent: turns.clone(), turns, tokens: 1_917, sent_tokens: 1_917, ..Views::default() }
}

/// The same after a compaction.
pub fn compacted(count: u64) -> Views {
    let before = views(count);
    let text = "[icecore handoff 1, in place of 10 earlier turns]\nWritten by the memory system.\n\n## Goal\n- Find an island with a harbour and more than one ferry a day.";
    Views {
        handoff: Some(Handoff { number: 1, text: text.to_owned(), tokens: 61 }),
        sent: before.turns[before.turns.len() - 2..].to_vec(),
        sent_tokens: 934,
        ..before
    }
}

/// A chat of 80 by 24 that has opened a session.
pub fn opened(views: Views, has_model: bool) -> State {
    let model = has_model.then(|| Model { name: "small".to_owned(), window: 8_192 });
    let mut state = State::new("trip", model, 128_000, false);
    update(&mut state, Event::Resize(80, 24));
    let effects = begin(&mut state);
    assert_eq!(effects, [Effect::Do(1, Job::Open("trip".to_owned()))]);
    finish(&mut state, Done { views: Some(views), ..Done::default() });
    state
}

pub fn finish(state: &mut State, done: Done) {
    let id = state.work.as_ref().unwrap().id;
    update(state, Event::Done(id, Box::new(done)));
}

pub fn press(state: &mut State, code: KeyCode) -> Vec<Effect> {
    update(state, Event::Key(KeyEvent::from(code)))
}

pub fn control(state: &mut State, c: char) -> Vec<Effect> {
    update(state, Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
}

/// Types a line and sends it.
pub fn say(state: &mut State, line: &str) -> Vec<Effect> {
    line.chars().for_each(|c| drop(press(state, KeyCode::Char(c))));
    press(state, KeyCode::Enter)
}

#[test]
fn what_is_typed_is_asked_and_what_comes_is_shown() {
    let mut state = opened(views(4), true);
    assert_eq!(say(&mut state, "And 5?"), [Effect::Do(2, Job::Ask(Some("And 5?".to_owned())))]);
    update(&mut state, Event::Reminded(2, 2, 1));
    for piece in ["Lost", "", "Five ", "is small."] {
        update(&mut state, Event::Piece(2, piece.to_owned()));
    }
    let told = |state: &State| match &state.work.as_ref().unwrap().kind {
        Kind::Asking { answer, .. } => answer.clone(),
        Kind::Doing(what) => (*what).to_owned(),
    };
    // An empty piece says that the answer begins anew.
    assert_eq!((told(&state).as_str(), state.reminded), ("Five is small.", Some((2, 1))));
    finish(&mut state, Done { views: Some(views(6)), ..Done::default() });
    assert_eq!((state.work.is_none(), state.views.turns.len()), (true, 6));
}

#[test]
fn what_is_sent_meanwhile_goes_next() {
    let mut state = opened(views(4), true);
    say(&mut state, "And 5?");
    assert_eq!(say(&mut state, "And 6?"), []);
    assert_eq!((state.editor.text().as_str(), state.is_next), ("And 6?", true));
    let done =
        |is_unanswered| Box::new(Done { views: Some(views(6)), is_unanswered, ..Done::default() });
    let effects = update(&mut state, Event::Done(2, done(false)));
    assert_eq!(effects, [Effect::Do(3, Job::Ask(Some("And 6?".to_owned())))]);
    // Not after a failure, and not if it was changed.
    say(&mut state, "And 7?");
    assert_eq!(update(&mut state, Event::Done(3, done(true))), []);
    assert_eq!(state.editor.text(), "And 7?");
    press(&mut state, KeyCode::Enter);
    say(&mut state, "And 8?");
    press(&mut state, KeyCode::Backspace);
    assert_eq!(update(&mut state, Event::Done(4, done(false))), []);
    assert_eq!(state.editor.text(), "And 8");
}

#[test]
fn escape_gives_up_and_late_words_are_not_heard() {
    let mut state = opened(views(4), true);
    say(&mut state, "And 5?");
    update(&mut state, Event::Piece(2, "Half of".to_owned()));
    let effects = press(&mut state, KeyCode::Esc);
    assert_eq!(effects, [Effect::Stop, Effect::Do(3, Job::Load)]);
    update(&mut state, Event::Piece(2, " an answer".to_owned()));
    update(&mut state, Event::Done(2, Box::default()));
    assert_eq!(state.work.as_ref().map(|work| work.id), Some(3));
    finish(&mut state, Done { views: Some(views(5)), ..Done::default() });
    let note = state.notes.last().unwrap();
    assert_eq!((note.head.as_str(), note.lines[0].as_str()), ("cancelled", "Half of"));
    // It stands behind the request that it was for.
    assert_eq!(note.after, Some(5));
    assert_eq!(say(&mut state, "/retry"), [Effect::Do(4, Job::Ask(None))]);
}

#[test]
fn a_request_that_was_not_taken_goes_back_to_the_input() {
    let mut state = opened(views(4), true);
    say(&mut state, "Too much");
    let failed = |views| Done {
        notes: vec![Note::trouble("it does not fit", None)],
        views: Some(views),
        is_unanswered: true,
        ..Done::default()
    };
    finish(&mut state, failed(views(4)));
    assert_eq!(state.editor.text(), "Too much");
    press(&mut state, KeyCode::Enter);
    // One that was taken and not answered stays where it is.
    finish(&mut state, failed(views(5)));
    assert_eq!(state.editor.text(), "");
}

#[test]
fn without_a_model_memory_commands_work_and_questions_say_why_not() {
    let mut state = opened(Views::default(), false);
    assert_eq!(say(&mut state, "Hello?"), []);
    let note = state.notes.last().unwrap();
    assert_eq!((note.tone, note.head.as_str()), (Tone::Bad, "there is no model to answer"));
    assert!(note.lines[0].contains("/learn TEXT") && note.lines[0].contains("/recall WORDS"));
    let recall = Job::Recall("the ferry".to_owned());
    assert_eq!(say(&mut state, "/recall the ferry"), [Effect::Do(2, recall)]);
}

#[test]
fn every_command_asks_for_its_work() {
    let check = |line: &str, job: Job| {
        let mut state = opened(views(2), true);
        assert_eq!(say(&mut state, line), [Effect::Do(2, job)], "{line}");
    };
    check("/compact", Job::Compact);
    check("/learn", Job::Learn(None));
    check("/learn I like it.", Job::Learn(Some("I like it.".to_owned())));
    check("/session", Job::Sessions);
    check("/session other", Job::Open("other".to_owned()));
    check("/export out.jsonl", Job::Export(Some("out.jsonl".into())));
    check("/forget session", Job::Weigh(ForgetRequest::Session("trip".to_owned())));
    let mut state = opened(views(2), true);
    assert_eq!(say(&mut state, "/quit"), [Effect::Quit]);
    assert_eq!(say(&mut state, "/sesion"), []);
    assert_eq!(state.notes[0].lines, ["hint: did you mean /session? /help lists all"]);
    press(&mut state, KeyCode::Char('/'));
    press(&mut state, KeyCode::Char('c'));
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.editor.text(), "/compact ");
}

#[test]
fn forgetting_wants_a_yes_and_leaves_no_quotes() {
    let mut state = opened(views(2), true);
    state.notes.push(Note::new(Tone::Told, "1 hit", vec!["a secret place".to_owned()]));
    let request = ForgetRequest::Subject("Ana".to_owned());
    let ask = |state: &mut State| {
        say(state, "/forget subject Ana");
        let told = "Forget subject Ana: 2 turns.".to_owned();
        let confirm = Some(Confirm { request: request.clone(), told });
        finish(state, Done { confirm, ..Done::default() });
    };
    ask(&mut state);
    // Neither a slip nor a paste decides.
    assert_eq!(press(&mut state, KeyCode::Char('x')), []);
    assert_eq!(press(&mut state, KeyCode::Enter), []);
    update(&mut state, Event::Paste("yes".to_owned()));
    assert!(matches!(state.mode, Mode::Confirming(_)));
    assert_eq!(press(&mut state, KeyCode::Esc), []);
    assert_eq!(state.notes.last().unwrap().head, "nothing was forgotten");
    ask(&mut state);
    let effects = press(&mut state, KeyCode::Char('y'));
    assert_eq!(effects, [Effect::Do(4, Job::Forget(request.clone()))]);
    let receipt = Note::new(Tone::Told, "erased 2 turns", Vec::new());
    finish(&mut state, Done { notes: vec![receipt], is_forgotten: true, ..Done::default() });
    assert_eq!(state.notes.len(), 1);
    press(&mut state, KeyCode::Up);
    assert_eq!(state.editor.text(), "");
}

#[test]
fn control_c_leaves_the_second_time() {
    let mut state = opened(views(2), true);
    state.editor.set("half a line");
    assert_eq!(control(&mut state, 'c'), []);
    assert!(state.editor.is_empty() && state.is_leaving);
    press(&mut state, KeyCode::Char('x'));
    assert_eq!(control(&mut state, 'c'), []);
    assert_eq!(control(&mut state, 'c'), [Effect::Quit]);
    let mut state = opened(views(2), true);
    assert_eq!(control(&mut state, 'd'), [Effect::Quit]);
}

#[test]
fn words_are_found_and_walked_through() {
    let mut state = opened(views(40), true);
    control(&mut state, 'f');
    say(&mut state, "NUMBER 1");
    let at = |state: &State| match &state.mode {
        Mode::Searching(search) => Some((search.at + 1, search.found.len())),
        _ => None,
    };
    let is_seen = |state: &State, text: &str| {
        state.display.shown().iter().any(|row| row.text().contains(text))
    };
    // 1, 11, 13, 15, 17 and 19.
    assert_eq!(at(&state), Some((6, 6)));
    assert!(is_seen(&state, "island number 19?"));
    press(&mut state, KeyCode::Char('n'));
    assert_eq!(at(&state), Some((1, 6)));
    assert!(is_seen(&state, "island number 1?"));
    press(&mut state, KeyCode::Char('N'));
    press(&mut state, KeyCode::Char('N'));
    assert!(is_seen(&state, "island number 17?"));
    // Whoever types on leaves.
    press(&mut state, KeyCode::Char('x'));
    assert_eq!((at(&state), state.editor.text().as_str()), (None, "x"));
    state.editor.clear();
    say(&mut state, "/search nowhere at all");
    assert_eq!(at(&state), Some((1, 0)));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.mode, Mode::Typing);
}

#[test]
fn keys_and_the_wheel_scroll() {
    let mut state = opened(views(60), true);
    let top = |state: &State| state.display.top();
    let end = top(&state);
    press(&mut state, KeyCode::PageUp);
    assert_eq!(top(&state), end - 19);
    let wheel = |kind, column| MouseEvent { kind, column, row: 5, modifiers: KeyModifiers::NONE };
    update(&mut state, Event::Mouse(wheel(MouseEventKind::ScrollUp, 3)));
    assert_eq!(top(&state), end - 22);
    press(&mut state, KeyCode::Home);
    assert_eq!(top(&state), 0);
    press(&mut state, KeyCode::End);
    assert_eq!(top(&state), end);
    // With both views, the one under the pointer moves.
    press(&mut state, KeyCode::F(2));
    let (display, sent) = (top(&state), state.sent.top());
    update(&mut state, Event::Mouse(wheel(MouseEventKind::ScrollUp, 70)));
    assert_eq!((top(&state), state.sent.top()), (display, sent - 3));
}

#[test]
fn another_session_begins_without_what_was_said_in_this() {
    let mut state = opened(views(4), true);
    say(&mut state, "/recall ferry");
    let note = Note::new(Tone::Told, "1 hit", Vec::new());
    finish(&mut state, Done { notes: vec![note], ..Done::default() });
    say(&mut state, "/session work");
    let session = Some("work".to_owned());
    finish(&mut state, Done { session, views: Some(Views::default()), ..Done::default() });
    assert_eq!((state.session.as_str(), state.notes.len()), ("work", 0));
}

fn any_event() -> impl Strategy<Value = Event> {
    let code = prop_oneof![
        4 => any::<char>().prop_map(KeyCode::Char),
        2 => prop::sample::select(vec!['y', 'n', 'N', '/', 'c', 'f', 'o', 'j', 'u', 'w', ' ']).prop_map(KeyCode::Char),
        6 => prop::sample::select(vec![
            KeyCode::Enter, KeyCode::Esc, KeyCode::Tab, KeyCode::Backspace, KeyCode::Delete,
            KeyCode::Left, KeyCode::Right, KeyCode::Up, KeyCode::Down, KeyCode::Home,
            KeyCode::End, KeyCode::PageUp, KeyCode::PageDown, KeyCode::F(1), KeyCode::F(2),
        ]),
    ];
    let modifiers = prop::sample::select(vec![
        KeyModifiers::NONE,
        KeyModifiers::CONTROL,
        KeyModifiers::ALT,
        KeyModifiers::SHIFT,
    ]);
    let key = (code, modifiers).prop_map(|(code, with)| Event::Key(KeyEvent::new(code, with)));
    let kinds = vec![
        MouseEventKind::ScrollUp,
        MouseEventKind::ScrollDown,
        MouseEventKind::Down(MouseButton::Left),
    ];
    let mouse =
        (prop::sample::select(kinds), 0_u16..140, 0_u16..50).prop_map(|(kind, column, row)| {
            Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
        });
    let line = prop::sample::select(vec![
        "/compact", "/learn", "/forget session", "/session", "/search island", "/view", "/help",
        "hello",
    ]);
    let done = (0_u64..8, 0_u64..12, any::<bool>(), any::<bool>()).prop_map(
        |(id, count, is_compacted, is_told)| {
            let views = if is_compacted && count > 2 { compacted(count) } else { views(count) };
            let request = ForgetRequest::Session("trip".to_owned());
            let confirm = (count == 3).then(|| Confirm { request, told: "Forget it.".to_owned() });
            let note = Note::new(Tone::Told, "a note", vec!["of words 漢字".repeat(9)]);
            let notes = if is_told { vec![note] } else { Vec::new() };
            let done = Done {
                notes,
                views: Some(views),
                confirm,
                is_forgotten: count == 5,
                is_unanswered: count == 7,
                ..Done::default()
            };
            Event::Done(id, Box::new(done))
        },
    );
    prop_oneof![
        8 => key,
        2 => mouse,
        2 => (0_u16..140, 0_u16..50).prop_map(|(width, height)| Event::Resize(width, height)),
        1 => ".{0,30}|(line\n){0,9}".prop_map(Event::Paste),
        2 => line.prop_map(|line| Event::Paste(line.to_owned())),
        2 => (0_u64..8, "\\PC{0,40}").prop_map(|(id, piece)| Event::Piece(id, piece)),
        3 => done,
        1 => Just(Event::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn nothing_that_happens_at_any_size_breaks_it(
        events in prop::collection::vec(any_event(), 0..60),
        has_model in any::<bool>(),
        is_ascii in any::<bool>(),
    ) {
        let mut state = opened(views(6), has_model);
        state.is_ascii = is_ascii;
        for event in events {
            update(&mut state, event);
            let (width, height) = state.size;
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(&state, Paint { has_color: has_model }, frame)).unwrap();
        }
    }
}
