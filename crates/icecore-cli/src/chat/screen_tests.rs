//! Whole screens, as a person sees them.

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;

use super::screen::{Paint, draw};
use super::state::{Confirm, Done, Event, Note, State, Tone, Views, Voice};
use super::update::update;
use super::update_tests::{compacted, finish, opened, press, say, turn, views};

fn drawn(state: &State, has_color: bool) -> Terminal<TestBackend> {
    let (width, height) = state.size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, Paint { has_color }, frame)).unwrap();
    terminal
}

/// The screen as text, without the blanks at the ends of lines.
fn screen(state: &State) -> String {
    let text = drawn(state, false).backend().to_string();
    // Behind a line with wide characters stands what they hide.
    let line = |line: &str| {
        let line = line.split("\" Hidden by").next().unwrap_or_default();
        line.trim_matches('"').trim_end().to_owned()
    };
    let lines = text.lines().map(line);
    lines.collect::<Vec<_>>().join("\n")
}

fn priced(views: Views) -> Views {
    Views { cost: Some(12_345), ..views }
}

#[test]
fn before_a_compaction() {
    let mut state = opened(priced(views(12)), true);
    state.reminded = Some((2, 1));
    assert_snapshot!(screen(&state));
}

#[test]
fn after_a_compaction_people_see_no_break() {
    let mut state = opened(priced(views(12)), true);
    let before: Vec<String> = state.display.shown().iter().map(|row| row.text()).collect();
    say(&mut state, "/compact");
    finish(&mut state, Done { views: Some(priced(compacted(12))), ..Done::default() });
    let after: Vec<String> = state.display.shown().iter().map(|row| row.text()).collect();
    assert_eq!(before, after);
    let line = "The model goes on with that; F2 shows both views.".to_owned();
    let note = Note::new(Tone::Told, "handoff 1: 1,917 to 934 tokens", vec![line]);
    say(&mut state, "/compact");
    finish(&mut state, Done { notes: vec![note], ..Done::default() });
    assert_snapshot!(screen(&state));
}

#[test]
fn both_views() {
    let mut state = opened(priced(compacted(12)), true);
    press(&mut state, KeyCode::F(2));
    assert_snapshot!(screen(&state));
    update(&mut state, Event::Resize(40, 18));
    assert_snapshot!("both_views_one_above_the_other", screen(&state));
}

#[test]
fn no_model() {
    assert_snapshot!(screen(&opened(Views::default(), false)));
}

#[test]
fn an_error_and_an_answer_on_its_way() {
    let mut state = opened(views(2), true);
    say(&mut state, "And 3?");
    let hint = Some("/retry asks again".to_owned());
    let note = Note::trouble("`small` does not answer: status 500: it is on fire", hint);
    let views = Views { turns: views(3).turns, ..views(2) };
    finish(&mut state, Done { notes: vec![note], views: Some(views), ..Done::default() });
    say(&mut state, "/retry");
    update(&mut state, Event::Piece(3, "It has:\n- a harbour,\n- and the bakery".to_owned()));
    assert_snapshot!(screen(&state));
}

#[test]
fn tools_are_short_and_the_input_grows() {
    let mut called = turn(3, Voice::Model, "I look.");
    called.calls = vec![format!("read {{\"path\":\"{}\"}}", "long/".repeat(30))];
    let result = turn(4, Voice::Tool, "first line\nsecond\nthird");
    let system = turn(1, Voice::System, "You plan journeys.");
    let turns = vec![system, turn(2, Voice::Person, "Read it, 漢字 👩‍👩‍👧."), called, result];
    let mut state = opened(Views { sent: turns.clone(), turns, ..Views::default() }, true);
    update(&mut state, Event::Paste("two\nlines".to_owned()));
    update(&mut state, Event::Paste("log\n".repeat(312)));
    assert_snapshot!(screen(&state));
}

#[test]
fn a_narrow_screen() {
    let mut state = opened(views(4), true);
    update(&mut state, Event::Resize(20, 6));
    assert_snapshot!(screen(&state));
    update(&mut state, Event::Resize(30, 10));
    assert_snapshot!("a_screen_that_is_less_narrow", screen(&state));
}

#[test]
fn plain_characters() {
    let mut state = opened(compacted(4), true);
    state.is_ascii = true;
    state.laid = None;
    press(&mut state, KeyCode::F(2));
    say(&mut state, "And?");
    let shown = screen(&state);
    assert!(shown.is_ascii(), "{shown}");
}

#[test]
fn the_help_and_a_question() {
    let mut state = opened(views(4), true);
    press(&mut state, KeyCode::F(1));
    assert_snapshot!("the_help", screen(&state));
    press(&mut state, KeyCode::Esc);
    say(&mut state, "/forget session");
    let request = icecore::ForgetRequest::Session("trip".to_owned());
    let told = "Forget session trip: 4 turns.".to_owned();
    let confirm = Some(Confirm { request, told });
    finish(&mut state, Done { confirm, ..Done::default() });
    let shown = screen(&state);
    assert!(shown.contains("? Forget session trip: 4 turns. Press y to erase it for good"));
}

#[test]
fn colours_are_there_only_where_they_may_be() {
    let state = opened(compacted(12), true);
    let colors =
        |buffer: &Buffer| buffer.content().iter().filter(|cell| cell.fg != Color::Reset).count();
    assert_eq!(colors(drawn(&state, false).backend().buffer()), 0);
    assert!(colors(drawn(&state, true).backend().buffer()) > 0);
}
