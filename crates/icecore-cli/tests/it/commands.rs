//! What each command prints.

use insta::assert_snapshot;

use crate::run::{Place, conversation};

#[test]
fn add_and_show_one_turn() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["add", "--session", "trip", "We leave on 4 May."]), @r"
    exit 0
    --- stdout
    Added turn-1.1 to session trip
    ");
    let shown = place.ok(&["show", "turn-1.1"]);
    assert!(shown.starts_with("user  20") && shown.contains("\n  We leave on 4 May.\n"), "{shown}");
    assert!(shown.ends_with("  session trip, turn 1 of branch main, hot\n"), "{shown}");
    let turn = place.json(&["show", "turn-1.1"]);
    assert_eq!(
        (&turn["role"], &turn["seq"], &turn["tier"]),
        (&"user".into(), &1.into(), &"hot".into())
    );
}

#[test]
fn add_reads_lines_and_says_what_was_added() {
    let place = Place::new();
    let lines = b"{\"role\":\"user\",\"content\":\"ok\"}\n{\"role\":\"user\",\"content\":\"ok\",\"id\":\"x\"}\n";
    let output = place.output_with_input(&["add", "--json"], lines);
    assert_snapshot!(place.describe(&output), @r#"
    exit 0
    --- stdout
    {"lines":2,"added":2,"known":0,"forgotten":0,"turnIds":["turn-1.1","x"],"firstSeq":1,"lastSeq":2}
    "#);
    // Without an id each is new; with one it is the same turn.
    let output = place.output_with_input(&["add"], lines);
    assert_snapshot!(place.describe(&output), @r"
    exit 0
    --- stdout
    Added 1 turn; 1 turn there already
    ");
    assert_snapshot!(place.describe(&place.output_with_input(&["add"], b"")), @r"
    exit 1
    --- stderr
    error: no turns were given
    hint: give a TEXT, or turn JSONL on standard input
    ");
}

#[test]
fn flags_stand_before_and_after_the_command() {
    let place = Place::new();
    place.ok(&["--memory", "ops", "add", "one"]);
    let sessions = place.json(&["sessions", "--memory", "ops"]);
    assert_eq!(sessions["sessions"][0]["turns"], 1);
    assert_eq!(place.json(&["sessions"])["sessions"].as_array().unwrap().len(), 0);
}

#[test]
fn sessions_are_a_table() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["sessions"]), @r"
    exit 0
    --- stderr
    No sessions yet. `icecore add` and `icecore import` begin them.
    ");
    place.ok(&["add", "--session", "a trip", "hello there"]);
    place.ok(&["add", "--session", "b", "hi"]);
    let shown = place.shown(&["sessions"]);
    let without_dates: Vec<&str> =
        shown.lines().map(|line| line.split("  20").next().unwrap()).collect();
    assert_snapshot!(without_dates.join("\n"), @r"
    exit 0
    --- stdout
    session  turns  tokens  branches  last change
    a trip       1       2         1
    b            1       1         1
    ");
}

#[test]
fn stats_draw_the_layers() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["stats"]), @r"
    exit 0
    --- stdout
      tenant default  0 turns in 0 sessions, 0 tokens (o200k_base)

      Nothing here yet. `icecore add` and `icecore import` begin it.
    ");
    let file = place.file("c.jsonl", conversation(257));
    place.ok(&["import", &file]);
    let picture = place.ok(&["stats"]);
    let drawing: Vec<&str> = picture.lines().take(18).collect();
    assert_snapshot!(drawing.join("\n"), @r"
    tenant default  257 turns in 1 session, 3,598 tokens (o200k_base)

    ╭──────────────╮              turns       tokens       bytes    a turn
    │░░░░░░░░░░░░░░│  hot            22          308     2.5 KiB     117 B
    │░░░░░░░░░░░░░░│  turns as they came, 7 in the open tail
    │▒▒▒▒▒▒▒▒▒▒▒▒▒▒│  warm           35          490       756 B      21 B
    │▒▒▒▒▒▒▒▒▒▒▒▒▒▒│  one compact text for each micro
    │██████████████│  cold          200        2,800     1.7 KiB       8 B
    │██████████████│  summaries at hand, turns sealed in 2 packs
    │██████████████│
    │██████████████│
    ╰──────────────╯

    macro          2                  ███████████ ███████████
    mini          10               ██ ██ ██ ██ ██ ██ ██ ██ ▒▒ ░░
    micro         30       ████████████████████████████████████▒▒▒▒▒▒░░░░
    turns        257 █████████████████████████████████████████████▒▒▒▒▒▒▒▒░░░░░
                                       █ cold  ▒ warm  ░ hot
    ");
    let stats = place.json(&["stats"]);
    assert_eq!(stats["pending"], 0);
    assert_eq!(stats["tiers"]["cold"]["turns"], 200);
    let ascii = place.command(&["stats"]).env("LANG", "de_DE.ISO-8859-1").output().unwrap();
    assert!(ascii.stdout.is_ascii());
}

#[test]
fn a_bound_refuses_and_stats_tell_how_near_it_is() {
    let place = Place::new();
    let file = place.file("bounds.toml", "[bounds]\nturns = 2\nbytes = 1048576");
    let with = |args: &[&'static str]| [args, &["--config", &file]].concat().join("\n");
    let run = |args: &[&'static str]| {
        let line = with(args);
        place.shown(&line.lines().collect::<Vec<_>>())
    };
    place.ok(&["add", "one", "--config", &file]);
    place.ok(&["add", "two", "--config", &file]);
    assert_snapshot!(run(&["add", "three"]), @r"
    exit 1
    --- stderr
    error: tenant `default` keeps 2 of 2 turns (`bounds.turns`), and this adds 1
    hint: forget what is not needed any more, or have `bounds.turns` raised; nothing was written, and reading, `forget` and `export` go on
    ");
    let picture = place.ok(&["stats", "--config", &file]);
    let table: Vec<&str> = picture.lines().rev().take(5).collect();
    assert_snapshot!(table.into_iter().rev().collect::<Vec<_>>().join("\n"), @r"
    tenant default  used    bound
    turns              2        2  100 %
    bytes           62 B  1.0 MiB    0 %
    requests today     0     none
    tokens today       2     none
    ");
    assert_snapshot!(run(&["export"]), @r#"
    exit 0
    --- stdout
    {"role":"user","content":"one"}
    {"role":"user","content":"two"}
    "#);
    place.ok(&["forget", "--session", "default", "--config", &file]);
    place.ok(&["add", "three", "--config", &file]);
}

#[test]
fn context_stays_within_its_budget_and_explains_itself() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(257));
    place.ok(&["import", &file]);
    for budget in ["0", "40", "400", "4000"] {
        let context = place.json(&["context", "--budget", budget]);
        assert!(context["tokens"].as_u64().unwrap() <= budget.parse().unwrap());
    }
    let output = place.output(&["context", "--budget", "300", "--explain"]);
    let explained = String::from_utf8(output.stderr).unwrap();
    assert!(explained.contains(" of 300 tokens, "), "{explained}");
    assert!(explained.contains("hot turns") && explained.contains("stands for older turns"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("Turn 257 is about"));
}

#[test]
fn chunks_expand_and_show_as_ctf() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(257));
    place.ok(&["import", &file]);
    let chunk = place.json(&["show", "macro-1.0.1-100"]);
    assert_eq!(chunk["tier"], "cold");
    assert_eq!(chunk["turns"].as_array().unwrap().len(), 100);
    assert_eq!(chunk["children"].as_array().unwrap().len(), 4);
    let ctf = place.ok(&["show", "micro-1.0.1-10", "--ctf"]);
    assert!(ctf.starts_with("#CTF v2"), "{ctf}");
    assert_snapshot!(place.shown(&["show", "nothing"]), @r"
    exit 1
    --- stderr
    error: nothing in memory `default` has the id `nothing`
    hint: `icecore export --all` shows the ids of turns, `icecore context --explain` those of chunks
    ");
}

#[test]
fn views_and_events() {
    let place = Place::new();
    place.ok(&["add", "--session", "s", "--name", "Ana", "hello\u{1b}[2J"]);
    let view = place.json(&["view", "--session", "s"]);
    assert_eq!(view["messages"][0]["content"], "hello\u{1b}[2J");
    // A terminal must not obey what was said.
    let shown = place.ok(&["view", "--session", "s", "--view", "api"]);
    assert!(shown.contains("hello␛[2J") && !shown.contains('\u{1b}'));
    assert_snapshot!(place.shown(&["view", "--session", "x"]), @r"
    exit 1
    --- stderr
    error: there is no session `x` in memory `default`
    hint: `icecore sessions` lists what is there
    ");
    let event: serde_json::Value =
        serde_json::from_str(place.ok(&["events", "--json"]).lines().next().unwrap()).unwrap();
    assert_eq!((&event["seq"], &event["type"]), (&1.into(), &"turn.appended".into()));
    assert_eq!(place.ok(&["events", "--after", "1"]), "");
}

#[test]
fn settings_come_from_somewhere() {
    let place = Place::new();
    let file = place.file("config.toml", "[memory]\nhot_chunks = 3\n");
    let shown = place
        .command(&["config", "show", "--config", &file])
        .env("ICECORE_MASTER_KEY", "ab")
        .output()
        .unwrap();
    let shown = place.describe(&shown);
    let columns: Vec<String> =
        shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let memory = columns.iter().position(|line| line.starts_with("memory.")).unwrap();
    assert_snapshot!(columns[..memory + 5].join("\n"), @r#"
    exit 0
    --- stdout
    data [DIR]/data environment ICECORE_DATA
    store SQLite in the data directory default
    config [DIR]/config.toml flag
    tenant default default
    memory default default
    master key (hidden) environment ICECORE_MASTER_KEY
    memory.micro_chunk_size 10 default
    memory.mini_chunk_interval 25 default
    memory.macro_chunk_interval 100 default
    memory.hot_chunks 3 file
    memory.auto_summarize true default
    "#);
    // All that the example has is shown, with the same value but for the one of the file.
    let mut table = String::new();
    let mut differing = Vec::new();
    for line in place.ok(&["config", "example"]).lines() {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned();
        }
        let setting = line.strip_prefix('#').filter(|line| line.starts_with(char::is_alphabetic));
        let Some((key, value)) = setting.and_then(|line| line.split_once(" = ")) else { continue };
        let value = value.split("  ").next().unwrap().split(" # ").next().unwrap();
        let row = format!("{table}.{key} {value} default");
        if !columns.contains(&row) {
            differing.push(row);
        }
    }
    assert_eq!(differing, ["memory.hot_chunks 2 default"]);
    let file = place.file("bad.toml", "[memory]\nhot_chunk = 3\n");
    assert_snapshot!(place.shown(&["stats", "--config", &file]), @r"
    exit 1
    --- stderr
    error: in `[DIR]/bad.toml`: there is no setting `memory.hot_chunk`
    hint: did you mean `memory.hot_chunks`?
    ");
    assert_snapshot!(place.shown(&["stats", "--config", "/nowhere.toml"]), @r"
    exit 1
    --- stderr
    error: cannot read the settings file `/nowhere.toml`: No such file or directory (os error 2)
    hint: `icecore config example` prints one to begin with
    ");
    assert_snapshot!(place.shown(&["stats", "--store", "mongodb://me@host/db"]), @r"
    exit 1
    --- stderr
    error: a store of the kind `mongodb` is not in this build
    hint: leave --store out, or use sqlite:DIR or postgres://…
    ");
    assert!(place.ok(&["config", "example"]).contains("hot_chunks = 2"));
}

#[test]
fn usage_is_refused_with_2() {
    let place = Place::new();
    for args in [&["forget"][..], &["context"], &["nonsense"], &["import"], &["show"]] {
        assert_eq!(place.output(args).status.code(), Some(2), "{args:?}");
    }
    for command in ["search", "model"] {
        assert_eq!(place.output(&[command]).status.code(), Some(2), "{command} needs more");
    }
    assert_eq!(place.output(&["proxy"]).status.code(), Some(2), "proxy is absent");
    assert!(place.ok(&["completions", "bash"]).contains("_icecore"));
    assert!(place.ok(&["import", "--help"]).contains("Example"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(3000));
    place.ok(&["import", &file]);
    let mut child = place
        .command(&["export"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn the_demo_runs_through() {
    let place = Place::new();
    let shown = place.ok(&["demo"]);
    assert!(shown.contains("Expanded again: 100 of 100 turns"), "{shown}");
    assert!(shown.contains("none is in a file, none comes back in a turn"), "{shown}");
    assert!(shown.contains("GITHUB_TOKEN=[REDACTED:github-token]"), "{shown}");
    assert!(shown.contains("registered as station-tunnel, found in base64"), "{shown}");
    assert!(shown.contains("in no file of the store"), "{shown}");
    assert!(shown.contains("the same sources give the same bytes"), "{shown}");
    assert!(shown.contains("1 archive verified, 1 erased"), "{shown}");
    let ticks = shown.lines().filter(|line| line.trim_start().starts_with('✓')).count();
    // The third question needs two turns, the second of which it does not name.
    assert_eq!(ticks, 4, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let told = place.json(&["demo"]);
    assert_eq!(told["ok"], true, "{told}");
    assert_eq!(told["questions"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&told["secretsHidden"], &told["redacted"]["station-tunnel"]),
        (&6.into(), &2.into())
    );
    assert!(!place.data().exists());
}
