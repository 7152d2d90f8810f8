//! How a credential is spelled where it is met: quoted in code, escaped in JSON,
//! indented in YAML, behind a plus in a diff.
//!
//! The secret's ends travel as two private-use characters through every escaping
//! and are taken out of the finished text, so its range is known exactly.

use std::ops::Range;

use super::Place;
use super::draw::Draw;

/// Where secrets are met, and so are those of the corpus.
pub const SETTINGS: [&str; 12] = [
    "prose", "code", "json", "yaml", "env", "shell", "url", "log", "markdown", "diff",
    "stack trace", "tool output",
];

const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

/// What stands directly beside a credential in text that is not ASCII.
const NEIGHBOURS: [(&str, &str); 5] =
    [("é", "é"), ("日本", "語"), ("🔑", "🔑"), ("“", "”"), ("\u{a0}", "\u{a0}")];

/// The last two are put around a value and not around its name.
const AROUND_VALUES: usize = 3;

/// What kind of text a sample is.
enum Shape {
    /// One word: `ghp_…`, a URL.
    Token(String),
    /// A setting: `API_KEY=…`.
    Named {
        name: String,
        value: String,
    },
    /// A header, a command, a sentence.
    Line(String),
    Block(String),
}

/// `sample` as text of `setting`, and where its secret is.
pub(super) fn spelled(
    (sample, secret): (&str, Range<usize>),
    setting: &str,
    place: Place,
    number: usize,
    draw: &mut Draw,
) -> (String, Range<usize>) {
    let (before, rest) = sample.split_at(secret.start);
    let (inner, after) = rest.split_at(secret.len());
    let mut shape = shape(&format!("{before}{OPEN}{inner}{CLOSE}{after}"));
    if place == Place::Unicode {
        shape = beside(shape, setting, number);
    }
    let text = placed(setting, place, &piece(setting, &shape, draw), &shape, draw);
    unmarked(&text)
}

/// The text without the marks, and what stood between them.
fn unmarked(text: &str) -> (String, Range<usize>) {
    let (before, rest) = text.split_once(OPEN).unwrap_or(("", text));
    let (inner, after) = rest.split_once(CLOSE).unwrap_or((rest, ""));
    (format!("{before}{inner}{after}"), before.len()..before.len() + inner.len())
}

fn shape(sample: &str) -> Shape {
    if sample.contains('\n') {
        return Shape::Block(sample.to_owned());
    }
    if let Some((name, value)) = setting_of(sample) {
        return Shape::Named { name: name.to_owned(), value: value.to_owned() };
    }
    if sample.contains([' ', '"', '\'']) {
        Shape::Line(sample.to_owned())
    } else {
        Shape::Token(sample.to_owned())
    }
}

/// Name and value, where `sample` is `name = "value"` in some spelling.
fn setting_of(sample: &str) -> Option<(&str, &str)> {
    let sample = sample.trim_start_matches(['"', '\'']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let length = sample.find(|c| !is_name(c))?;
    let (name, rest) = sample.split_at(length);
    let rest = rest.trim_start_matches(['"', '\'']).trim_start();
    // A colon inside a word joins the parts of one credential.
    let signs = ["=>", ":=", "=", ": ", ":\"", ":'"];
    let rest = signs.iter().find_map(|sign| rest.strip_prefix(sign))?;
    let value = rest.trim_start().trim_matches(['"', '\'']);
    let is_plain = !value.contains([' ', '"', '\'', ';', '&', ',']) && !value.starts_with("//");
    let is_named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (is_plain && is_named && value.contains(OPEN)).then_some((name, value))
}

/// The same with neighbours that are not ASCII.
fn beside(shape: Shape, setting: &str, number: usize) -> Shape {
    let is_quoted = matches!(setting, "json" | "code");
    let (before, after) = NEIGHBOURS[number % NEIGHBOURS.len()];
    let around = |text: String| format!("{before}{text}{after}");
    match shape {
        Shape::Named { name, value } if is_quoted || number % NEIGHBOURS.len() < AROUND_VALUES => {
            let (before, after) = NEIGHBOURS[number % AROUND_VALUES];
            Shape::Named { name: format!("{before}{name}"), value: format!("{value}{after}") }
        }
        Shape::Named { name, value } => Shape::Named { name, value: around(value) },
        Shape::Token(text) => Shape::Token(around(text)),
        Shape::Line(text) => Shape::Line(around(text)),
        Shape::Block(text) => Shape::Block(around(text)),
    }
}

/// The credential as `setting` spells it, without its line.
fn piece(setting: &str, shape: &Shape, draw: &mut Draw) -> String {
    let key = draw.pick(&["value", "note", "data", "entry", "field"]);
    match (setting, shape) {
        ("code", Shape::Token(text)) => quoted(text, draw),
        ("code", Shape::Named { name, value }) => {
            let sign = draw.pick(&[" = ", "=", ": ", " := "]);
            format!("{name}{sign}{}", quoted(value, draw))
        }
        ("code", Shape::Line(text)) => format!("\"{}\"", escaped(text)),
        ("code", Shape::Block(text)) => match draw.below(2) {
            0 => format!("\"\"\"{text}\"\"\""),
            _ => format!("\"{}\"", escaped(text)),
        },
        ("json", Shape::Named { name, value }) => format!("\"{name}\": \"{}\"", escaped(value)),
        ("json", Shape::Token(text) | Shape::Line(text) | Shape::Block(text)) => {
            format!("\"{key}\": \"{}\"", escaped(text))
        }
        ("yaml", Shape::Named { name, value }) => match draw.below(3) {
            0 => format!("{name}: \"{value}\""),
            1 => format!("{name}: '{value}'"),
            _ => format!("{name}: {value}"),
        },
        ("yaml", Shape::Token(text)) => match draw.below(2) {
            0 => format!("{key}: {text}"),
            _ => format!("{key}: \"{text}\""),
        },
        ("yaml", Shape::Line(text)) => format!("{key}: \"{}\"", escaped(text)),
        ("yaml", Shape::Block(text)) => format!("{key}: |\n    {}", text.replace('\n', "\n    ")),
        ("env", Shape::Named { name, value }) => match draw.below(3) {
            0 => format!("{name}=\"{value}\""),
            1 => format!("{name}='{value}'"),
            _ => format!("{name}={value}"),
        },
        ("env", Shape::Token(text)) => format!("{}={text}", key.to_uppercase()),
        ("env", Shape::Line(text) | Shape::Block(text)) => {
            format!("{}=\"{}\"", key.to_uppercase(), escaped(text))
        }
        ("shell", Shape::Named { name, value }) => format!("{name}='{value}'"),
        ("shell", Shape::Token(text)) => format!("'{text}'"),
        ("shell", Shape::Line(text)) if is_command(text) => text.clone(),
        ("shell", Shape::Line(text)) => format!("\"{}\"", escaped(text)),
        ("shell", Shape::Block(text)) => format!("cat > /tmp/part <<'EOF'\n{text}\nEOF"),
        ("url", Shape::Named { name, value }) => {
            format!("https://api.example.com/v1/items?page=2&{name}={value}&sort=asc")
        }
        ("url", Shape::Token(text)) => in_url(text, draw),
        ("markdown", Shape::Token(text) | Shape::Line(text)) => match draw.below(3) {
            0 => format!("**{text}**"),
            1 => format!("`{text}`"),
            _ => text.clone(),
        },
        ("markdown", Shape::Named { name, value }) => match draw.below(3) {
            0 => format!("`{name}={value}`"),
            1 => format!("**{name}**: `{value}`"),
            _ => format!("{name}: {value}"),
        },
        ("log" | "tool output", Shape::Block(text)) if draw.below(2) == 0 => escaped(text),
        (_, Shape::Named { name, value }) => match draw.below(3) {
            0 => format!("{name}: {value}"),
            1 => format!("{name}=\"{value}\""),
            _ => format!("{name}={value}"),
        },
        (_, Shape::Token(text) | Shape::Line(text) | Shape::Block(text)) => text.clone(),
    }
}

/// A line of `setting` with `piece` at its place, and the lines around it.
fn placed(setting: &str, place: Place, piece: &str, shape: &Shape, draw: &mut Draw) -> String {
    let template = match (place, shape) {
        (_, Shape::Block(_)) if setting == "yaml" => "config:\n  {p}\n  retries: 3\n",
        (_, Shape::Block(_)) if setting == "shell" => "set -e\n{p}\nchmod 600 /tmp/part\n",
        (_, Shape::Line(_) | Shape::Block(_)) if setting == "url" => request(place),
        (Place::Start, _) => draw.pick(&start(setting)),
        (Place::Middle | Place::Unicode, _) => draw.pick(&middle(setting)),
        (Place::End, _) => draw.pick(&end(setting)),
    };
    let (before, after) = template.split_once("{p}").unwrap_or((template, ""));
    let text = format!("{}{piece}{}", draw.fill(before), draw.fill(after));
    match setting {
        "diff" => in_diff(&text, draw),
        "json" if place == Place::Middle && draw.below(3) == 0 => {
            format!("{{\"name\": \"save\", \"arguments\": \"{}\"}}", escaped(&text))
        }
        _ => text,
    }
}

fn start(setting: &str) -> [&'static str; 2] {
    match setting {
        "prose" => ["{p} is the one I meant, {name} says.", "{p}\nThat is all I could find."],
        "code" => ["{p}, // as {name} had it\n3,\n", "{p}\nrun({n})\n"],
        "json" => ["{\n{p},\n\"count\": {n}\n}", "[\n{\n{p}\n}\n]"],
        "yaml" => ["{p} # since {date}\nretries: {n}\n", "{p}\n{word}: {n}\n"],
        "env" => ["{p}\nLOG_LEVEL=debug\n", "{p}\n"],
        "shell" => ["{p} ./run.sh --{word} {n}", "{p} | tail -n {n}"],
        "url" => ["{p} is what it opens", "{p}\nHost: api.example.com"],
        "log" => ["{p} seen by {word}-{n} at {date}T{time}Z", "{p} ({word}, {n} ms)"],
        "markdown" => ["{p} goes into the {word} settings.", "{p}\n\n## {Word}\n"],
        "diff" => ["{p}", "{p}\nretries = {n}"],
        "stack trace" => [
            "{p} is not valid here\n    at parse{camel} (src/{word}.ts:{n}:9)\n    at main (src/index.ts:3:1)",
            "{p}\n  File \"/srv/app/{word}.py\", line {n}, in {word}\n",
        ],
        _ => ["{p}   active   {n}d", "{p}\n{n} rows"],
    }
}

fn middle(setting: &str) -> [&'static str; 3] {
    match setting {
        "prose" => [
            "Could you try {p} on the second machine and tell {name}?",
            "I wrote it down ({p}), so do not worry.",
            "We used {p}, then the {word} broke.",
        ],
        "code" => [
            "    client = {camel}({n}, {p}, timeout=30)\n",
            "  const {word} = build({ {p} });\n",
            "\tif err := open({p}); err != nil {\n",
        ],
        "json" => [
            "{\"id\": {n}, {p}, \"ok\": true}",
            "{\"{word}\":{\"n\":{n},{p}},\"ok\":true}",
            "{\n  {p},\n  \"{word}\": {n}\n}",
        ],
        "yaml" => [
            "  - { id: {n}, {p}, on: true }\n",
            "{word}:\n  {p} # {name}\n  n: {n}\n",
            "  {p} # see {word}\n",
        ],
        "env" => ["export {p} # {word}\n", "A={n}\nexport {p}\nB=2\n", "  {p} # {date}\n"],
        "shell" => [
            "docker run -e {p} {word}:{n}",
            "curl -s -H {p} https://api.example.com/{word}",
            "cd /srv/{word} && env {p} make deploy",
        ],
        "url" => ["GET {p} HTTP/1.1", "see <{p}> for {word}", "[{word}]({p} \"{word}\")"],
        "log" => [
            "{date}T{time}Z INFO  [{word}-{n}] sending {p} to upstream (attempt 2)",
            "level=warn {p} dur={n}ms",
            "[{time}] {word}: got {p}; retrying in {n} s",
        ],
        "markdown" => [
            "- Put {p} into the **{word}** file\n",
            "| {n} | {p} | yes |\n",
            "1. Run `{word}` with {p} ([docs](https://example.com/{word}))\n",
        ],
        "diff" => ["    {p} # {word}", "  {word}: {n} {p} end", "\t{p}\n\t{word}()"],
        "stack trace" => [
            "RuntimeError: request with {p} failed (status 401)\n  File \"/srv/{word}.py\", line {n}, in send\n",
            "thread 'main' panicked at src/{word}.rs:{n}:5:\nunexpected {p} in {word}\nstack backtrace:\n   0: {word}::run\n",
            "java.lang.IllegalStateException: bad {p} for {word}\n\tat com.example.{word}.{camel}.call({camel}.java:{n})\n",
        ],
        _ => [
            "$ show {word}\n row {n} | {p} | ok\n",
            "stdout: {n}: {p} (done)\nexit code 0",
            "Tool result: found {p} in {word}.txt:{n}\n",
        ],
    }
}

fn end(setting: &str) -> [&'static str; 2] {
    match setting {
        "prose" => ["Here is what I use at the moment: {p}", "{name} sent me this: {p}."],
        "code" => ["    return {p}", "{word} = load({n}) or {p}\n"],
        "json" => ["{\n  \"id\": {n}, {p}\n}", "{\"ok\": true, {p}}"],
        "yaml" => ["{word}:\n  n: {n}\n  {p}\n", "{word}:\n    {p}"],
        "env" => ["# {word}\nexport {p}", "N={n}\n  {p}\n"],
        "shell" => ["./deploy --target {word} {p}", "sudo -u {word} env {p}"],
        "url" => ["fetching {p}", "{date} 301 -> {p}\n"],
        "log" => ["{date} {time} WARN {word}: {p}", "<{n}>{word}[{n}]: {p}\n"],
        "markdown" => ["> {p}", "* {Word}: {p}\n"],
        "diff" => ["{word} {p}", "    {p}"],
        "stack trace" => [
            "Caused by: invalid value: {p}\n    at com.example.{camel}.run({camel}.java:{n})\n",
            "panic: {p}\n\ngoroutine 1 [running]:\nmain.{word}()\n",
        ],
        _ => ["$ cat {word}\n{n} {p}", "result {n}: {p}\n"],
    }
}

/// What is no part of a URL stands beside one.
fn request(place: Place) -> &'static str {
    match place {
        Place::Start => "{p}\nReferer: https://api.example.com/{word}?page={n}\n",
        Place::End => "https://api.example.com/{word}/{uuid} {p}",
        _ => "GET https://api.example.com/{word}?page={n} HTTP/1.1\n> {p} [sent]\n",
    }
}

/// As a part of the path or of the query, unless it is an address itself.
fn in_url(text: &str, draw: &mut Draw) -> String {
    if text.contains("://") || text.contains("//") {
        return text.to_owned();
    }
    match draw.below(2) {
        _ if text.starts_with('?') => format!("https://files.example.com/a.txt{text}"),
        0 => format!("https://api.example.com/v1/items?page=2&ref={text}&sort=asc"),
        _ => format!("https://api.example.com/v1/{text}/items?page=2"),
    }
}

/// Every line added, or every line removed, between lines that stay.
fn in_diff(text: &str, draw: &mut Draw) -> String {
    let sign = draw.pick(&["+", "-"]);
    let lines: Vec<String> = text.lines().map(|line| format!("{sign}{line}")).collect();
    let file = draw.word();
    format!(
        "--- a/{file}\n+++ b/{file}\n@@ -3,2 +3,{} @@\n retries = 3\n{}\n timeout = 30\n",
        lines.len() + 2,
        lines.join("\n")
    )
}

fn is_command(text: &str) -> bool {
    text.contains(" -") && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn quoted(text: &str, draw: &mut Draw) -> String {
    match draw.below(3) {
        0 => format!("'{text}'"),
        1 => format!("`{text}`"),
        _ => format!("\"{text}\""),
    }
}

/// As JSON and most languages escape it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t")
}
