//! `icecore config`: effective settings with their origin.

use serde_json::json;

use crate::app::DEFAULT_MEMORY;
use crate::draw::table;
use crate::failure::{Outcome, Status};
use crate::hush;
use crate::json;
use crate::printer::{Printer, Tone};
use crate::settings::{FileSettings, Origin, Settings};

/// How the example begins.
const EXAMPLE: &str = "\
# Settings of Icecore. Every line here is the default: take the `#` away from one to change it.
# Environment variables go before this file, and flags before both: `page` under [serve] is
# ICECORE_SERVE_PAGE, too. docs/settings.md has it all in tables.
";

/// Prints the commented example.
pub fn example(printer: &Printer) -> Outcome<Status> {
    let tables = icecore_settings::example(&mut FileSettings::default());
    printer.raw(&format!("{EXAMPLE}\n{tables}"))?;
    Ok(Status::Done)
}

/// Prints each setting with its value and where it comes from.
pub fn show(settings: &Settings, printer: &Printer) -> Outcome<Status> {
    let mut rows = all(settings);
    // An address may hold a password.
    rows.iter_mut().for_each(|(_, value, _)| *value = hush::said(value).into_owned());
    if printer.is_json() {
        let list: Vec<_> =
            rows.iter().map(|(name, value, origin)| json::setting(name, value, origin)).collect();
        printer.json(&json!({ "settings": list }))?;
        return Ok(Status::Done);
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, value, origin)| vec![name.clone(), value.clone(), origin.to_string()])
        .collect();
    for (line, (.., origin)) in table(&cells, &[]).iter().zip(&rows) {
        let line = match origin {
            Origin::Default => printer.paint(Tone::Dim, line),
            _ => line.clone(),
        };
        printer.line(&line)?;
    }
    Ok(Status::Done)
}

fn all(settings: &Settings) -> Vec<(String, String, Origin)> {
    let typed = |given: bool| if given { Origin::Flag } else { Origin::Default };
    let (data, flags) = (&settings.data, &settings.flags);
    let config = settings.config.as_ref().map(|path| path.display().to_string());
    let memory = settings.memory.clone();
    // The key itself is never shown.
    let (key, key_origin) = match settings.master_key {
        Some(_) => ("(hidden)".to_owned(), Origin::Env("ICECORE_MASTER_KEY".to_owned())),
        None => (data.join("master.key").display().to_string(), Origin::Default),
    };
    let before = [
        ("data", data.display().to_string(), settings.data_origin.clone()),
        ("store", store(settings), settings.store_origin.clone()),
        ("config", config.unwrap_or_else(|| "none".to_owned()), settings.config_origin.clone()),
        ("tenant", settings.tenant.clone(), typed(flags.tenant.is_some())),
        (
            "memory",
            memory.unwrap_or_else(|| DEFAULT_MEMORY.to_owned()),
            typed(settings.memory.is_some()),
        ),
        ("master key", key, key_origin),
    ];
    // Nor is that one; its name is.
    let objects = settings
        .object_keys
        .as_ref()
        .map(|keys| ("objects key", keys.id.clone(), Origin::Env("AWS_ACCESS_KEY_ID".to_owned())));
    let before = before.into_iter().chain(objects);
    let before = before.map(|(name, value, origin)| (name.to_owned(), value, origin));
    before.chain(settings.rows()).collect()
}

/// The store without its password.
fn store(settings: &Settings) -> String {
    let database = settings.database.as_deref().map(without_password);
    database.unwrap_or_else(|| "SQLite in the data directory".to_owned())
}

/// A database's URL as it may be shown.
pub fn without_password(url: &str) -> String {
    let parts = url
        .split_once("://")
        .map(|(kind, rest)| (kind, rest.rsplit_once('@').map_or(rest, |(_, place)| place)));
    match parts {
        Some((kind, place)) => format!("{kind}://{}", place.split('?').next().unwrap_or_default()),
        None => "(hidden)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use icecore_settings::{example, reference, rows, variables};

    use super::*;

    /// The example with its commented settings in force.
    fn uncommented(text: &str) -> String {
        let is_setting = |line: &str| {
            line.strip_prefix("#").is_some_and(|rest| rest.starts_with(char::is_alphabetic))
        };
        let line = |line: &str| match is_setting(line) {
            true => line[1..].to_owned(),
            false => line.to_owned(),
        };
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_says_the_defaults() {
        let text = format!("{EXAMPLE}\n{}", example(&mut FileSettings::default()));
        let defaults = rows(&mut FileSettings::default());
        assert_eq!(rows(&mut FileSettings::parse(&text).unwrap()), defaults);
        let mut all = FileSettings::default();
        let given = icecore_settings::read(&mut all, &uncommented(&text)).unwrap();
        assert_eq!(rows(&mut all), defaults);
        let missing: Vec<_> = defaults.iter().filter(|row| !given.contains(&row.name())).collect();
        assert!(missing.is_empty(), "{missing:?}");
        FileSettings::parse(&uncommented(&text)).unwrap();
    }

    /// A table in the example that the user is to name.
    #[test]
    fn the_model_of_the_example_can_be_declared() {
        let text = example(&mut FileSettings::default());
        let its = text.lines().skip_while(|line| *line != "#   [models.NAME]");
        let its: Vec<&str> = its
            .take_while(|line| line.starts_with("# "))
            .filter_map(|line| line.strip_prefix("#   "))
            .collect();
        let is_given = |line: &&str| {
            !line.starts_with("key_secret") && !line.contains(" = 0 ") && !line.ends_with(" = 0")
        };
        let filled = |line: &str| {
            line.replace("url = \"\"", "url = \"http://h/v1\"").replace("\"\"", "\"x\"")
        };
        let table: Vec<String> = its.into_iter().filter(is_given).map(filled).collect();
        let config = FileSettings::parse(&table.join("\n")).unwrap();
        assert_eq!(config.models.table("NAME").unwrap().url, "http://h/v1");
    }

    #[test]
    fn every_setting_has_a_sentence_and_variables_of_its_own() {
        let reference = reference(&mut FileSettings::default());
        let silent: Vec<&str> = reference.lines().filter(|line| line.ends_with("|  |")).collect();
        assert!(silent.is_empty(), "{silent:?}");
        let all = variables(&mut FileSettings::default());
        let mut names: Vec<&String> = all.iter().flat_map(|(_, names)| names).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// `UPDATE_DOCS=1` writes the page anew.
    #[test]
    fn the_reference_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let page = format!("{PAGE}\n{}", reference(&mut FileSettings::default()));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let is_fresh = std::fs::read_to_string(path).unwrap() == page;
        assert!(is_fresh, "docs/settings.md is stale: run this test with UPDATE_DOCS=1");
    }

    const PAGE: &str = "\
# Settings

A file in TOML; `icecore config example` prints one to begin with, `icecore config show` says which value is in force and where it comes from.
The file is `config.toml` under the platform's directory for settings, or the one that `--config` or `ICECORE_CONFIG` names.
Flags beat environment variables, those beat the file, and the file beats the defaults.
Environment variables are made of table and name, also for what stands under `[advanced]`: `page` under `[serve]` is `ICECORE_SERVE_PAGE`. Other variables that give a setting stand in brackets. Tables with names of your choice, such as `[models.NAME]`, are in the file alone.
What stands under `[advanced]` is seldom changed.
This page is generated from the declarations in the code.
";
}
