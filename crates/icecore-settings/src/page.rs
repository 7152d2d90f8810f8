//! Settings as a person reads them: a list, an example file, a page.

use std::collections::BTreeMap;

use crate::{Section, Spec, Visit};

/// One setting as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its full name.
    pub key: String,
    /// Its value as TOML.
    pub value: String,
}

/// Every setting with its value, table by table.
pub fn rows(settings: &mut dyn Section) -> Vec<Row> {
    let mut rows = Vec::new();
    push_rows(settings, "", &mut rows);
    let mut order: Vec<String> = Vec::new();
    let place = |row: &Row| {
        let path = row.key.strip_prefix("advanced.").unwrap_or(&row.key);
        let table = path.split('.').next().unwrap_or_default();
        let place = order.iter().position(|one| one == table).unwrap_or_else(|| {
            order.push(table.to_owned());
            order.len() - 1
        });
        (path.len() < row.key.len(), place)
    };
    rows.sort_by_cached_key(place);
    rows
}

fn push_rows(settings: &mut dyn Section, prefix: &str, rows: &mut Vec<Row>) {
    settings.walk(prefix, &Spec::default(), &mut |visit| match visit {
        Visit::Group { .. } => {}
        Visit::Setting { key, value, .. } => {
            rows.push(Row { key: key.to_owned(), value: value.show().to_string() });
        }
        Visit::Tables { path, tables, .. } => {
            for name in tables.names() {
                if let Some(table) = tables.table(&name) {
                    push_rows(table, &format!("{path}.{name}."), rows);
                }
            }
        }
    });
}

/// A setting or a heading, with the table that it stands in.
enum Line {
    /// What a group of settings is for.
    Heading(String),
    Setting {
        name: String,
        value: String,
        expected: String,
        about: String,
    },
    /// A table that the user names, and what it can have.
    Named {
        path: String,
        about: String,
        settings: Vec<Line>,
    },
}

/// The lines of every table, in the order of declaration; `advanced` ones at the end.
fn tables(settings: &mut dyn Section) -> Vec<(String, Vec<Line>)> {
    let mut order = Vec::new();
    let mut lines: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    // A heading waits for the first setting under it, since that may be an advanced one.
    let mut headings: BTreeMap<String, String> = BTreeMap::new();
    let mut push = |table: &str, line: Line| {
        if !lines.contains_key(table) {
            order.push(table.to_owned());
        }
        lines.entry(table.to_owned()).or_default().push(line);
    };
    settings.walk("", &Spec::default(), &mut |visit| match visit {
        Visit::Group { prefix, spec } => {
            let (table, _) = prefix.split_once('.').unwrap_or((prefix, ""));
            headings.insert(table.to_owned(), spec.sentence());
        }
        Visit::Setting { key, spec, value } => {
            let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
            if let Some(heading) = headings.remove(table).filter(|heading| !heading.is_empty()) {
                push(table, Line::Heading(heading));
            }
            push(table, setting(name, spec, value));
        }
        Visit::Tables { path, spec, tables } => {
            let (table, _) = path.split_once('.').unwrap_or((path, ""));
            let mut settings = Vec::new();
            tables.empty().walk("", &Spec::default(), &mut |visit| {
                if let Visit::Setting { key, spec, value } = visit {
                    settings.push(setting(key, spec, value));
                }
            });
            push(table, Line::Named { path: path.to_owned(), about: spec.sentence(), settings });
        }
    });
    order.sort_by_key(|table| table.starts_with("advanced."));
    let lines = order.into_iter().filter_map(|table| lines.remove_entry(&table));
    lines.collect()
}

fn setting(name: &str, spec: &Spec, value: &mut dyn crate::Value) -> Line {
    Line::Setting {
        name: name.to_owned(),
        value: value.show().to_string(),
        expected: value.expected(spec.range.as_ref()),
        about: match spec.variables {
            [] => spec.sentence(),
            others => format!("{} [{}]", spec.sentence(), others.join(", ")),
        },
    }
}

/// The widest line of an example.
const WIDTH: usize = 96;

/// A file in which every setting stands as a comment, with its default.
pub fn example(settings: &mut dyn Section) -> String {
    let mut text = String::new();
    for (table, lines) in tables(settings) {
        if table.starts_with("advanced.") && !text.contains("\n[advanced.") {
            text += "\n# What follows is seldom changed.\n";
        }
        text += &format!("\n[{table}]\n");
        for line in &lines {
            match line {
                Line::Heading(heading) => text += &comment("# ", heading),
                Line::Named { path, about, settings } => {
                    text += &comment("# ", about);
                    text += &format!("#   [{path}.NAME]\n");
                    settings.iter().for_each(|line| text += &example_line("#   ", line));
                }
                setting => text += &example_line("#", setting),
            }
        }
    }
    text.trim_start().to_owned()
}

fn example_line(mark: &str, line: &Line) -> String {
    let Line::Setting { name, value, about, .. } = line else { return String::new() };
    let given = format!("{mark}{name} = {value}");
    let beside = format!("{given:<32} # {}", about.trim_end_matches('.'));
    match beside.chars().count() <= WIDTH {
        true => beside + "\n",
        false => format!("{}{given}\n", comment("# ", about)),
    }
}

/// Text as lines of comment.
fn comment(mark: &str, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), mark.to_owned());
    for word in text.split_whitespace() {
        if line.len() > mark.len() && line.chars().count() + word.chars().count() >= WIDTH {
            lines += &format!("{}\n", line.trim_end());
            line = mark.to_owned();
        }
        line += word;
        line.push(' ');
    }
    lines + line.trim_end() + "\n"
}

/// A page in Markdown: a table of settings for every table of the file.
pub fn reference(settings: &mut dyn Section) -> String {
    let mut text = String::new();
    for (table, lines) in tables(settings) {
        text += &format!("\n## `[{table}]`\n");
        let mut is_open = false;
        for line in &lines {
            match line {
                Line::Heading(heading) => {
                    text += &format!("\n{heading}\n");
                    is_open = false;
                }
                Line::Named { path, about, settings } => {
                    text += &format!("\n### `[{path}.NAME]`\n\n{about}\n");
                    text += HEAD;
                    settings.iter().for_each(|line| text += &reference_line(line));
                    is_open = false;
                }
                setting => {
                    if !is_open {
                        text += HEAD;
                    }
                    is_open = true;
                    text += &reference_line(setting);
                }
            }
        }
    }
    text.trim_start().to_owned()
}

const HEAD: &str = "\n| setting | default | must be | |\n|---|---|---|---|\n";

fn reference_line(line: &Line) -> String {
    let Line::Setting { name, value, expected, about } = line else { return String::new() };
    let cell = |text: &str| text.replace('|', "\\|");
    format!("| `{name}` | `{}` | {} | {} |\n", cell(value), cell(expected), cell(about))
}
