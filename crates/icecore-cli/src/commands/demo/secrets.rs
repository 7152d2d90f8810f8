//! What was hidden, what stands there now, and why.

use icecore::StoredTurn;
use icecore::formats::turn_jsonl;
use icecore::privacy::{Hidden, Kind, Proof, Redactor};

use super::steps::{all_turns, is_on_disk, text_of};
use super::{Demo, dummy};
use crate::commands::redact;
use crate::draw::{clip, count, wrap};
use crate::failure::Outcome;
use crate::json;
use crate::printer::Tone;

/// What a marker begins with.
const MARKER: &str = "[REDACTED:";

/// A line of a stored turn with its marker, and the same line as it was given.
struct Found {
    seq: u64,
    stored: String,
    given: String,
    /// Where the marker stands, and the secret stood.
    at: usize,
    /// The marker's name: of a kind or of a registered secret.
    name: String,
}

/// What became of the secrets.
pub struct Secrets {
    /// What was hidden.
    pub hidden: Hidden,
    /// How many were not.
    pub leaked: usize,
}

/// Shows each secret by its marker and never by its value.
pub async fn hidden(demo: &Demo) -> Outcome<Secrets> {
    demo.heading("Secrets stay out")?;
    demo.line(&format!(
        "  Before she began, Mira registered one: `icecore secret add {}`.",
        dummy::REGISTERED
    ))?;
    demo.line("")?;
    let turns = all_turns(demo).await?;
    for found in turns.iter().flat_map(|turn| found(demo, turn)) {
        show(demo, &found)?;
    }
    let stats = demo.memory.stats(demo.scope.tenant(), None).await?;
    let hidden = stats.store.hidden;
    demo.line("")?;
    for line in wrap(&redact::told(&hidden), demo.printer.width() - 4) {
        demo.line(&format!("  {line}"))?;
    }
    // A sealed pack shows nothing: what is in it counts as it is read back.
    let read_back: Vec<String> = turns.iter().map(json::full_line).collect();
    let has_leaked = |secret: &&String| {
        is_on_disk(demo.dir.path(), secret) || read_back.iter().any(|turn| turn.contains(*secret))
    };
    let leaked = demo.secrets.iter().filter(has_leaked).count();
    let given = count(demo.secrets.len() as u64, "dummy secret");
    demo.line(&match leaked {
        0 => format!("  {given} went in: none is in a file, none comes back in a turn."),
        leaked => {
            demo.printer.paint(Tone::Bad, &format!("  {given} went in, {leaked} came through."))
        }
    })?;
    Ok(Secrets { hidden, leaked })
}

/// The names that markers in a text give.
pub fn markers(text: &str) -> Vec<String> {
    let after = text.split(MARKER).skip(1);
    after.filter_map(|rest| rest.split_once(']')).map(|(name, _)| name.to_owned()).collect()
}

fn found(demo: &Demo, turn: &StoredTurn) -> Vec<Found> {
    let given = demo.given.lines().filter_map(|line| turn_jsonl::parse_line(line).ok());
    let given = given.map(|line| line.turn).find(|given| given.id.as_deref() == Some(&turn.id));
    let given = given.map(|given| given.content.text().into_owned()).unwrap_or_default();
    let stored = text_of(turn);
    // No dummy secret has a newline, so the lines go side by side.
    let lines = stored.lines().zip(given.lines());
    let found = |(stored, given): (&str, &str)| {
        let at = stored.find(MARKER)?;
        let name = markers(stored).into_iter().next()?;
        let (stored, given) = (stored.to_owned(), given.to_owned());
        Some(Found { seq: turn.seq.0, stored, given, at, name })
    };
    lines.filter_map(found).collect()
}

fn show(demo: &Demo, found: &Found) -> Outcome<()> {
    let room = demo.printer.width() - 14;
    let line = excerpt(&found.stored, found.at, room);
    // Colour the marker alone, and only where all of it is seen.
    let marker = format!("{MARKER}{}]", found.name);
    let line = line.replacen(&marker, &demo.printer.paint(Tone::Note, &marker), 1);
    demo.line(&format!("  turn {:>3}  {line}", found.seq))?;
    let why = clip(&why(demo, found), room);
    demo.line(&format!("            {}", demo.printer.paint(Tone::Dim, &why)))
}

/// As much of a line around `at` as there is room for.
fn excerpt(line: &str, at: usize, room: usize) -> String {
    let marker = line[at..].find(']').map_or(0, |end| end + 1);
    let before: Vec<char> = line[..at].chars().collect();
    // A little of what comes after is seen too.
    let most = room.saturating_sub(marker + 12);
    if before.len() <= most {
        return clip(line, room);
    }
    let tail = &before[before.len() - most..];
    // From the beginning of a word.
    let word = tail.iter().position(|c| *c == ' ').map_or(0, |at| at + 1);
    let start: String = tail[word..].iter().collect();
    clip(&format!("…{start}{}", &line[at..]), room)
}

/// What gave the secret away.
fn why(demo: &Demo, found: &Found) -> String {
    if found.name == dummy::REGISTERED {
        return match found.given.contains(&demo.registered) {
            true => format!("registered as {}", found.name),
            false => format!("registered as {}, found in base64", found.name),
        };
    }
    let kind = Redactor::kinds().iter().find(|kind| kind.id == found.name);
    let Some(kind) = kind else { return "a value under a telling name".to_owned() };
    let about = match kind.proof {
        Proof::Shape => "the shape of what follows",
        Proof::Strong | Proof::Random(_) => "a value that looks drawn at random",
        Proof::Password => "a value such as people choose",
        Proof::Checked(_) => "a value whose checksum holds",
    };
    match keyword(kind, &found.given, found.at) {
        Some(keyword) => format!("the keyword `{keyword}` and {about}"),
        None => about.to_owned(),
    }
}

/// The keyword of `kind` that stands nearest before the secret, or begins it.
fn keyword<'a>(kind: &Kind, given: &'a str, at: usize) -> Option<&'a str> {
    let lower = given.to_ascii_lowercase();
    let nearest = |keyword: &&'static str| {
        let places = lower.match_indices(*keyword).map(|(place, _)| place);
        places.filter(|place| *place <= at).last()
    };
    let found = kind.keywords.iter().filter_map(|keyword| Some((nearest(keyword)?, keyword.len())));
    found.max().map(|(place, length)| &given[place..place + length])
}
