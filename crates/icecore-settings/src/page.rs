//! Settings as a person reads them: a list, an example file, a page.

use crate::{Section, Spec, Visit};

/// A setting as it is shown, or a heading, which has no key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The table, such as `advanced.serve`.
    pub table: String,
    /// The name in its table.
    pub key: String,
    /// The value as TOML.
    pub value: String,
    /// What the value must be.
    pub expected: String,
    /// What the setting is for.
    pub about: String,
}

impl Row {
    /// The full name.
    pub fn name(&self) -> String {
        format!("{}.{}", self.table, self.key)
    }
}

/// Every setting with its value, table by table; those under `[advanced]` at the end.
pub fn rows(settings: &mut dyn Section) -> Vec<Row> {
    let rows = collect(settings, false).into_iter();
    rows.filter(|row| !row.key.is_empty()).collect()
}

/// As [`rows`], with headings. As a sample, tables that the user names are one called NAME.
fn collect(settings: &mut dyn Section, is_sample: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    push(settings, "", is_sample, &mut rows);
    let mut order: Vec<String> = Vec::new();
    rows.iter().for_each(|row| {
        if !order.contains(&row.table) {
            order.push(row.table.clone());
        }
    });
    order.sort_by_key(|table| table.starts_with("advanced."));
    rows.sort_by_key(|row| order.iter().position(|table| *table == row.table));
    rows
}

fn push(settings: &mut dyn Section, prefix: &str, is_sample: bool, rows: &mut Vec<Row>) {
    // A heading waits for a setting of its table, since all of them may be advanced.
    let mut heading = Row::default();
    settings.walk(prefix, &Spec::default(), &mut |visit| match visit {
        Visit::Group { prefix, spec } => {
            let table = prefix.rsplit_once('.').map_or("", |(table, _)| table).to_owned();
            heading = Row { table, about: spec.sentence(), ..Row::default() };
        }
        Visit::Setting { key, spec, value } => {
            let (table, key) = key.rsplit_once('.').unwrap_or(("", key));
            if heading.table == table && !heading.about.is_empty() {
                rows.push(std::mem::take(&mut heading));
            }
            rows.push(Row {
                table: table.to_owned(),
                key: key.to_owned(),
                value: value.show().to_string(),
                expected: value.expected(spec.range.as_ref()),
                about: match spec.variables {
                    [] => spec.sentence(),
                    others => format!("{} [{}]", spec.sentence(), others.join(", ")),
                },
            });
        }
        Visit::Tables { path, spec, tables } => {
            if is_sample {
                let (table, about) = (format!("{path}.NAME"), spec.sentence());
                rows.push(Row { table, about, ..Row::default() });
                push(tables.empty(), &format!("{path}.NAME."), is_sample, rows);
            }
            for name in tables.names() {
                if let Some(table) = tables.table(&name) {
                    push(table, &format!("{path}.{name}."), is_sample, rows);
                }
            }
        }
    });
}

/// The widest line of an example.
const WIDTH: usize = 96;

/// A file in which every setting stands as a comment, with its default.
pub fn example(settings: &mut dyn Section) -> String {
    let (mut text, mut table) = (String::new(), String::new());
    for row in collect(settings, true) {
        let is_named = row.table.ends_with(".NAME");
        let is_new = row.table != table;
        if is_new && !is_named {
            if row.table.starts_with("advanced.") && !table.starts_with("advanced.") {
                text += "\n# What follows is seldom changed.\n";
            }
            text += &format!("\n[{}]\n", row.table);
        }
        if row.key.is_empty() {
            text += if is_new && !is_named { "" } else { "\n" };
            text += &comment("# ", &row.about);
        }
        if is_new && is_named {
            text += &format!("#   [{}]\n", row.table);
        }
        if !row.key.is_empty() {
            let mark = if is_named { "#   " } else { "#" };
            let given = format!("{mark}{} = {}", row.key, row.value);
            let beside = format!("{given:<32} # {}\n", row.about.trim_end_matches('.'));
            text += &match beside.chars().count() <= WIDTH {
                true => beside,
                false => format!("{}{given}\n", comment("# ", &row.about)),
            };
        }
        table = row.table;
    }
    text.trim_start().to_owned()
}

/// Text as lines of comment.
fn comment(mark: &str, text: &str) -> String {
    let mut lines = vec![mark.trim_end().to_owned()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                *line += &format!(" {word}");
            }
            _ => lines.push(format!("{mark}{word}")),
        }
    }
    lines.join("\n") + "\n"
}

/// A page in Markdown: a table of settings for every table of the file.
pub fn reference(settings: &mut dyn Section) -> String {
    let (mut text, mut table, mut is_open) = (String::new(), String::new(), false);
    let cell = |text: &str| text.replace('|', "\\|");
    for row in collect(settings, true) {
        if row.table != table {
            text += &format!("\n## `[{}]`\n", row.table);
            is_open = false;
        }
        if row.key.is_empty() {
            text += &format!("\n{}\n", row.about);
            is_open = false;
        } else {
            if !is_open {
                text += "\n| setting | default | must be | |\n|---|---|---|---|\n";
            }
            is_open = true;
            let (value, expected, about) =
                (cell(&row.value), cell(&row.expected), cell(&row.about));
            text += &format!("| `{}` | `{value}` | {expected} | {about} |\n", row.key);
        }
        table = row.table;
    }
    text.trim_start().to_owned()
}
