//! `icecore config`: effective settings with their origin.

use icecore::config::Shown;
use serde_json::json;

use crate::draw::table;
use crate::failure::{Outcome, Status};
use crate::hush;
use crate::json;
use crate::printer::{Printer, Tone};
use crate::settings::{Origin, Settings};

/// The file that the binary ships.
const EXAMPLE: &str = include_str!("../../config.example.toml");

/// Prints the commented example.
pub fn example(printer: &Printer) -> Outcome<Status> {
    printer.raw(EXAMPLE)?;
    Ok(Status::Done)
}

/// Prints each setting with its value and where it comes from.
pub fn show(settings: &Settings, printer: &Printer) -> Outcome<Status> {
    let mut rows = all(settings);
    // An address may hold a password.
    rows.iter_mut().for_each(|(shown, _)| shown.value = hush::said(&shown.value).into_owned());
    if printer.is_json() {
        let list: Vec<_> =
            rows.iter().map(|(shown, origin)| json::setting(shown, &origin.to_string())).collect();
        printer.json(&json!({ "settings": list }))?;
        return Ok(Status::Done);
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|(shown, origin)| vec![shown.key.clone(), shown.value.clone(), origin.to_string()])
        .collect();
    for (line, (_, origin)) in table(&cells, &[]).iter().zip(&rows) {
        let line = match origin {
            Origin::Default => printer.paint(Tone::Dim, line),
            _ => line.clone(),
        };
        printer.line(&line)?;
    }
    Ok(Status::Done)
}

fn all(settings: &Settings) -> Vec<(Shown, Origin)> {
    let plain = |key: &str, value: String| Shown { key: key.to_owned(), value, given: false };
    let typed = |given: bool| if given { Origin::Flag } else { Origin::Default };
    let config = match &settings.config {
        Some(path) => path.display().to_string(),
        None => "none".to_owned(),
    };
    // The key itself is never shown.
    let (key, key_origin) = match settings.master_key {
        Some(_) => ("(hidden)".to_owned(), Origin::Env("ICECORE_MASTER_KEY")),
        None => (settings.data.join("master.key").display().to_string(), Origin::Default),
    };
    let mut rows = vec![
        (plain("data", settings.data.display().to_string()), settings.data_origin),
        (plain("store", store(settings)), settings.store_origin),
        (plain("config", config), settings.config_origin),
        (plain("tenant", settings.tenant.clone()), typed(settings.flags.tenant.is_some())),
        (
            plain("memory", settings.memory.clone().unwrap_or_else(|| "default".to_owned())),
            typed(settings.memory.is_some()),
        ),
        (plain("master key", key), key_origin),
    ];
    if let Some(keys) = &settings.object_keys {
        // Nor is that one; its name is.
        rows.push((plain("objects key", keys.id.clone()), Origin::Env("AWS_ACCESS_KEY_ID")));
    }
    let from_file = |shown: Shown| {
        let origin = match settings.overruled.get(shown.key.as_str()) {
            Some(variable) => Origin::Env(variable),
            None if shown.given => Origin::File,
            None => Origin::Default,
        };
        (shown, origin)
    };
    rows.extend(settings.file.settings().into_iter().map(from_file));
    rows
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
    use icecore::config::FileConfig;

    use super::EXAMPLE;

    /// The example with its commented settings in force.
    fn uncommented() -> String {
        let is_setting = |line: &str| {
            line.strip_prefix("#").is_some_and(|rest| rest.starts_with(char::is_alphabetic))
        };
        let line = |line: &str| match is_setting(line) {
            true => line[1..].to_owned(),
            false => line.to_owned(),
        };
        EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_says_the_defaults() {
        let (shipped, mut defaults) = (FileConfig::parse(EXAMPLE).unwrap(), FileConfig::default());
        assert_eq!(shipped.memory, defaults.memory);
        let all = FileConfig::parse(&uncommented()).unwrap();
        assert_eq!((&all.memory, &all.serve), (&defaults.memory, &defaults.serve));
        assert_eq!((&all.embedding, &all.index), (&defaults.embedding, &defaults.index));
        assert_eq!((&all.redaction, all.workspace), (&defaults.redaction, defaults.workspace));
        assert_eq!((&all.telemetry, &all.models), (&defaults.telemetry, &defaults.models));
        assert_eq!((&all.proxy, all.postgres), (&defaults.proxy, defaults.postgres));
        assert_eq!(all.objects, defaults.objects);
        let missing: Vec<String> =
            all.settings().into_iter().filter(|s| !s.given).map(|s| s.key).collect();
        assert_eq!(missing, [""; 0]);
        defaults = shipped;
        assert!(!defaults.settings().is_empty());
    }

    /// The model of the example, which is no default.
    #[test]
    fn the_model_of_the_example_can_be_declared() {
        let is_its = |line: &&str| line.starts_with("#   ");
        let table: Vec<&str> = EXAMPLE.lines().filter(is_its).map(|line| &line[4..]).collect();
        // A key is in one place.
        let table = table.join("\n").replace("\nkey_secret", "\n#");
        let config = FileConfig::parse(&table).unwrap();
        let left_out: Vec<String> = config
            .settings()
            .into_iter()
            .filter(|shown| shown.key.starts_with("models.small.") && !shown.given)
            .map(|shown| shown.key)
            .collect();
        assert_eq!(left_out, ["models.small.key_secret"]);
    }
}
