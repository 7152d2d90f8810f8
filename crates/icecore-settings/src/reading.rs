//! From a file or a variable to settings, with an error that says what to do.

use std::collections::BTreeSet;

use toml::{Table, Value as Toml};

use crate::{Section, Spec, Value, Visit};

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// Not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A table or key that does not exist.
    #[error("there is no setting `{name}`")]
    Unknown { name: String, nearest: Option<String> },
    /// A key that is in another table.
    #[error("the setting `{name}` is called `{to}`")]
    Moved { name: String, to: String },
    /// A value of the wrong type or out of range.
    #[error("`{key}` must be {expected}, not {found}")]
    Value { key: String, expected: String, found: String },
    /// Values that do not go together.
    #[error("{message}")]
    Conflict { message: String, hint: String },
}

impl SettingError {
    /// Values that do not go together, and what to do.
    pub fn conflict(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Conflict { message: message.into(), hint: hint.into() }
    }

    /// A name that was probably written for another.
    pub fn unknown<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        // Settings under `[advanced]` are found without it, too.
        let bare = |key: &str| key.strip_prefix("advanced.").unwrap_or(key).to_owned();
        let likeness = |key: &&str| strsim::jaro_winkler(&bare(name), &bare(key));
        let close = known.into_iter().filter(|key| likeness(key) > 0.8);
        let nearest = close.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        Self::Unknown { name: name.to_owned(), nearest: nearest.map(str::to_owned) }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest, .. } => {
                nearest.as_ref().map(|nearest| format!("did you mean `{nearest}`?"))
            }
            Self::Moved { to, .. } => {
                let (table, key) = to.rsplit_once('.')?;
                Some(format!("write `{key}` under `[{table}]`"))
            }
            Self::Conflict { hint, .. } => Some(hint.clone()),
            _ => None,
        }
    }

    fn value(key: &str, expected: impl Into<String>, found: &Toml) -> Self {
        let mut found = found.to_string().replace('\n', " ");
        if let Some((end, _)) = found.char_indices().nth(60) {
            found.truncate(end);
            found.push('…');
        }
        Self::Value { key: key.to_owned(), expected: expected.into(), found }
    }
}

/// Reads a file into settings; what it leaves out stays. Answers the names that it has.
pub fn read(settings: &mut dyn Section, text: &str) -> Result<BTreeSet<String>, SettingError> {
    let syntax = |error: toml::de::Error| SettingError::Syntax(error.message().replace('\n', "; "));
    let document: Table = text.parse().map_err(syntax)?;
    let mut file = File { names: Names::of(settings), keys: Vec::new(), tables: Vec::new() };
    file.sort("", &document)?;
    let mut given = BTreeSet::new();
    for (key, value) in file.keys {
        give(settings, "", &key, value)?;
        given.insert(key);
    }
    // What a table leaves out may be taken from a setting that stands after it.
    for (path, name, value) in file.tables {
        read_table(settings, &path, name, value, &mut given)?;
    }
    Ok(given)
}

/// What a file says, sorted by how it is read.
struct File<'a> {
    names: Names,
    keys: Vec<(String, &'a Toml)>,
    /// Path, name and contents of tables that the user names.
    tables: Vec<(String, &'a str, &'a Toml)>,
}

impl<'a> File<'a> {
    fn sort(&mut self, path: &str, table: &'a Table) -> Result<(), SettingError> {
        for (name, value) in table {
            let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if self.names.keys.contains(&full) {
                self.keys.push((full, value));
            } else if self.names.is_table(&full) {
                let table = value.as_table();
                self.sort(
                    &full,
                    table.ok_or_else(|| SettingError::value(&full, "a table", value))?,
                )?;
            } else if self.names.tables.contains(path)
                && (value.is_table() || !self.names.keys.iter().any(|key| is_in(key, path)))
            {
                self.tables.push((path.to_owned(), name, value));
            } else {
                return Err(self.names.unknown(&full, value.is_table()));
            }
        }
        Ok(())
    }
}

fn is_in(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
}

/// The names that there are: of settings, and where tables of the user's names are.
#[derive(Default)]
struct Names {
    keys: BTreeSet<String>,
    tables: BTreeSet<String>,
}

impl Names {
    fn of(settings: &mut dyn Section) -> Self {
        let mut names = Self::default();
        settings.walk("", &Spec::default(), &mut |visit| match visit {
            Visit::Setting { key, .. } => _ = names.keys.insert(key.to_owned()),
            Visit::Tables { path, .. } => _ = names.tables.insert(path.to_owned()),
            Visit::Group { .. } => {}
        });
        names
    }

    fn is_table(&self, path: &str) -> bool {
        self.tables.contains(path)
            || self.keys.iter().chain(&self.tables).any(|key| is_in(key, path))
    }

    /// What to say of a name that is not there.
    fn unknown(&self, name: &str, is_table: bool) -> SettingError {
        let advanced = format!("advanced.{name}");
        let elsewhere = name.strip_prefix("advanced.").unwrap_or(&advanced);
        if self.keys.contains(elsewhere) {
            return SettingError::Moved { name: name.to_owned(), to: elsewhere.to_owned() };
        }
        let all = self.keys.iter().chain(&self.tables);
        let tables = all.flat_map(|key| key.match_indices('.').map(move |(at, _)| &key[..at]));
        match is_table {
            true => SettingError::unknown(name, tables),
            false => SettingError::unknown(name, self.keys.iter().map(String::as_str)),
        }
    }
}

/// Reads a table that the user named.
fn read_table(
    settings: &mut dyn Section,
    at: &str,
    name: &str,
    value: &Toml,
    given: &mut BTreeSet<String>,
) -> Result<(), SettingError> {
    let mut done = Ok(());
    settings.walk("", &Spec::default(), &mut |visit| {
        let Visit::Tables { path, tables, .. } = visit else { return };
        if path != at {
            return;
        }
        let prefix = format!("{path}.{name}");
        done = match (value, tables.table(name)) {
            (_, None) => {
                let expected = format!("tables with names that are allowed under `{path}`");
                Err(SettingError::value(path, expected, &name.into()))
            }
            (Toml::Table(table), Some(section)) => table.iter().try_for_each(|(key, value)| {
                let full = format!("{prefix}.{key}");
                if value.as_str() == Some("") {
                    // To say nothing is to leave it out.
                    return Err(SettingError::value(&full, "a string that is not empty", value));
                }
                give(section, &format!("{prefix}."), &full, value)?;
                given.insert(full);
                Ok(())
            }),
            (other, Some(_)) => Err(SettingError::value(&prefix, "a table", other)),
        };
    });
    done
}

/// Gives the setting of a name a value.
fn give(
    section: &mut dyn Section,
    prefix: &str,
    name: &str,
    value: &Toml,
) -> Result<(), SettingError> {
    let (mut known, mut done) = (Vec::new(), None);
    section.walk(prefix, &Spec::default(), &mut |visit| {
        if let Visit::Setting { key, spec, value: slot } = visit {
            known.push(key.to_owned());
            if key == name {
                done = Some(take(key, spec, slot, std::slice::from_ref(value)));
            }
        }
    });
    done.unwrap_or_else(|| Err(SettingError::unknown(name, known.iter().map(String::as_str))))
}

/// Takes the first reading of what was given that is a value.
fn take(
    key: &str,
    spec: &Spec,
    slot: &mut dyn Value,
    readings: &[Toml],
) -> Result<(), SettingError> {
    match readings.iter().any(|given| slot.read(given, spec.range.as_ref())) {
        true => Ok(()),
        false => Err(SettingError::value(key, slot.expected(spec.range.as_ref()), &readings[0])),
    }
}

/// Gives a setting what a flag or a variable says: the text itself, or what it is in TOML,
/// or a list of words between commas.
pub fn set(settings: &mut dyn Section, name: &str, text: &str) -> Result<(), SettingError> {
    let in_toml = format!("x = {text}").parse::<Table>().ok().and_then(|mut one| one.remove("x"));
    let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
    let readings: Vec<Toml> =
        [text.into()].into_iter().chain(in_toml).chain([words.into()]).collect();
    let mut done = Ok(());
    settings.walk("", &Spec::default(), &mut |visit| {
        if let Visit::Setting { key, spec, value } = visit
            && key == name
        {
            done = take(key, spec, value, &readings);
        }
    });
    done
}

/// Refuses a value out of its range, which a program can give though no file can.
pub fn check(settings: &mut dyn Section) -> Result<(), SettingError> {
    let mut done = Ok(());
    settings.walk("", &Spec::default(), &mut |visit| {
        if let Visit::Setting { key, spec, value } = visit
            && done.is_ok()
        {
            // A program names a field; that it stands under `[advanced]` is the file's matter.
            let field = key.strip_prefix("advanced.").unwrap_or(key);
            let own = value.show();
            done = take(field, spec, value, &[own]);
        }
    });
    done
}

/// Every setting with the environment variables that give it, the strongest first: for
/// `serve.page` and `advanced.serve.page` that is `ICECORE_SERVE_PAGE`.
pub fn variables(settings: &mut dyn Section) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    settings.walk("", &Spec::default(), &mut |visit| {
        if let Visit::Setting { key, spec, .. } = visit {
            let path = key.strip_prefix("advanced.").unwrap_or(key);
            let own = format!("ICECORE_{}", path.replace('.', "_").to_uppercase());
            let others = spec.variables.iter().map(|name| (*name).to_owned());
            all.push((key.to_owned(), [own].into_iter().chain(others).collect()));
        }
    });
    all
}
