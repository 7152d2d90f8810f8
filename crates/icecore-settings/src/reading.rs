//! From a file or a variable to settings, with an error that says what to do.

use std::collections::BTreeSet;

use toml::Table;

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
    Unknown {
        /// As it was written.
        name: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A key that is in another table.
    #[error("the setting `{name}` is called `{to}`")]
    Moved {
        /// As it was written.
        name: String,
        /// Its name.
        to: String,
    },
    /// A value of the wrong type or out of range.
    #[error("`{key}` must be {expected}, not {found}")]
    Value {
        /// Which setting.
        key: String,
        /// What it must be.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Values that do not go together.
    #[error("{message}")]
    Conflict {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
}

impl SettingError {
    /// Values that do not go together, and what to do.
    pub fn conflict(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Conflict { message: message.into(), hint: hint.into() }
    }

    /// A name that was written for another.
    pub fn unknown<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Unknown { name: name.to_owned(), nearest: nearest(name, known).map(str::to_owned) }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            Self::Moved { to, .. } => {
                let (table, key) = to.rsplit_once('.')?;
                Some(format!("write `{key}` under `[{table}]`"))
            }
            Self::Conflict { hint, .. } => Some(hint.clone()).filter(|hint| !hint.is_empty()),
            _ => None,
        }
    }

    pub(crate) fn value(key: &str, expected: String, found: &toml::Value) -> Self {
        let text = found.to_string().replace('\n', " ");
        let found = match text.chars().count() {
            0..=60 => text,
            _ => text.chars().take(60).chain(['…']).collect(),
        };
        Self::Value { key: key.to_owned(), expected, found }
    }
}

/// Reads a file into settings; what it leaves out stays. Answers the names that it has.
pub fn read(settings: &mut dyn Section, text: &str) -> Result<BTreeSet<String>, SettingError> {
    let document: Table = text.parse().map_err(|error: toml::de::Error| {
        SettingError::Syntax(error.message().replace('\n', "; "))
    })?;
    let mut file = File { names: Names::of(settings), keys: Vec::new(), tables: Vec::new() };
    file.sort("", &document)?;
    let mut given = BTreeSet::new();
    for (key, value) in file.keys {
        give(settings, &key, value)?;
        given.insert(key);
    }
    // What a table leaves out may be taken from a setting that stands after it.
    for (path, name, table) in file.tables {
        read_table(settings, &path, name, table, &mut given)?;
    }
    Ok(given)
}

/// What a file says, sorted by how it is read.
struct File<'a> {
    names: Names,
    keys: Vec<(String, &'a toml::Value)>,
    /// Path, name and contents of tables that the user names.
    tables: Vec<(String, &'a str, &'a toml::Value)>,
}

impl<'a> File<'a> {
    fn sort(&mut self, path: &str, table: &'a Table) -> Result<(), SettingError> {
        for (name, value) in table {
            let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if self.names.keys.contains(&full) {
                self.keys.push((full, value));
            } else if let Some(table) = value.as_table().filter(|_| self.names.is_table(&full)) {
                self.sort(&full, table)?;
            } else if self.names.is_table(&full) {
                return Err(SettingError::value(&full, "a table".to_owned(), value));
            } else if self.names.tables.contains(path)
                && (value.is_table() || !self.names.has_keys(path))
            {
                self.tables.push((path.to_owned(), name, value));
            } else {
                return Err(self.names.unknown(&full, value.is_table()));
            }
        }
        Ok(())
    }
}

/// The names that there are.
struct Names {
    keys: BTreeSet<String>,
    /// Where tables of the user's names are.
    tables: BTreeSet<String>,
}

impl Names {
    fn of(settings: &mut dyn Section) -> Self {
        let mut names = Self { keys: BTreeSet::new(), tables: BTreeSet::new() };
        settings.walk("", &Spec::default(), &mut |visit| match visit {
            Visit::Setting { key, .. } => _ = names.keys.insert(key.to_owned()),
            Visit::Tables { path, .. } => _ = names.tables.insert(path.to_owned()),
            Visit::Group { .. } => {}
        });
        names
    }

    fn has_keys(&self, path: &str) -> bool {
        let begins =
            |key: &String| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.keys.iter().any(begins)
    }

    fn is_table(&self, path: &str) -> bool {
        let leads = |table: &String| {
            table.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.has_keys(path) || self.tables.iter().any(leads)
    }

    /// What to say of a name that is not there.
    fn unknown(&self, name: &str, is_table: bool) -> SettingError {
        let elsewhere = match name.strip_prefix("advanced.") {
            Some(name) => name.to_owned(),
            None => format!("advanced.{name}"),
        };
        if self.keys.contains(&elsewhere) {
            return SettingError::Moved { name: name.to_owned(), to: elsewhere };
        }
        if !is_table {
            return SettingError::unknown(name, self.keys.iter().map(String::as_str));
        }
        let tables = self.keys.iter().chain(&self.tables).flat_map(|key| {
            let dots = key.match_indices('.').map(|(at, _)| &key[..at]);
            dots.chain(self.tables.contains(key).then_some(key.as_str()))
        });
        SettingError::unknown(name, tables)
    }
}

/// Reads one table that the user named.
fn read_table(
    settings: &mut dyn Section,
    at: &str,
    name: &str,
    table: &toml::Value,
    given: &mut BTreeSet<String>,
) -> Result<(), SettingError> {
    let mut done = Ok(());
    settings.walk("", &Spec::default(), &mut |visit| {
        if let Visit::Tables { path, tables, .. } = visit
            && path == at
        {
            done = match (table, tables.table(name)) {
                (_, None) => {
                    let expected = format!("tables with names that are allowed under `{path}`");
                    Err(SettingError::value(path, expected, &toml::Value::from(name)))
                }
                (toml::Value::Table(table), Some(section)) => {
                    read_keys(section, &format!("{path}.{name}."), table, given)
                }
                (other, Some(_)) => {
                    Err(SettingError::value(&format!("{path}.{name}"), "a table".to_owned(), other))
                }
            };
        }
    });
    done
}

fn read_keys(
    section: &mut dyn Section,
    prefix: &str,
    table: &Table,
    given: &mut BTreeSet<String>,
) -> Result<(), SettingError> {
    for (key, value) in table {
        let full = format!("{prefix}{key}");
        let mut known = Vec::new();
        let mut done = None;
        section.walk(prefix, &Spec::default(), &mut |visit| {
            if let Visit::Setting { key, spec, value: slot } = visit {
                known.push(key.to_owned());
                if key == full {
                    done = Some(match value.as_str() {
                        // To say nothing is to leave it out.
                        Some("") => {
                            let expected = "a string that is not empty".to_owned();
                            Err(SettingError::value(key, expected, value))
                        }
                        _ => take(key, spec, slot, value),
                    });
                }
            }
        });
        match done {
            Some(done) => done?,
            None => return Err(SettingError::unknown(&full, known.iter().map(String::as_str))),
        }
        given.insert(full);
    }
    Ok(())
}

fn take(
    key: &str,
    spec: &Spec,
    slot: &mut dyn Value,
    given: &toml::Value,
) -> Result<(), SettingError> {
    match slot.read(given, spec.range.as_ref()) {
        true => Ok(()),
        false => Err(SettingError::value(key, slot.expected(spec.range.as_ref()), given)),
    }
}

/// Looks a setting up by its full name.
fn find<T>(
    settings: &mut dyn Section,
    wanted: &str,
    then: impl FnOnce(&Spec, &mut dyn Value) -> T,
) -> Option<T> {
    let (mut then, mut found) = (Some(then), None);
    settings.walk("", &Spec::default(), &mut |visit| {
        if let Visit::Setting { key, spec, value } = visit
            && key == wanted
            && let Some(then) = then.take()
        {
            found = Some(then(spec, value));
        }
    });
    found
}

fn give(settings: &mut dyn Section, key: &str, given: &toml::Value) -> Result<(), SettingError> {
    let done = find(settings, key, |spec, slot| take(key, spec, slot, given));
    done.unwrap_or_else(|| Err(SettingError::unknown(key, [])))
}

/// Gives a setting what a flag or a variable says: the text itself, or what it is in TOML,
/// or a list of words between commas.
pub fn set(settings: &mut dyn Section, key: &str, text: &str) -> Result<(), SettingError> {
    let in_toml = format!("x = {text}").parse::<Table>().ok().and_then(|mut one| one.remove("x"));
    let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
    let readings = [Some(text.into()), in_toml, Some(words.into())];
    let done = find(settings, key, |spec, slot| {
        let mut readings = readings.iter().flatten();
        match readings.any(|reading| slot.read(reading, spec.range.as_ref())) {
            true => Ok(()),
            false => {
                let expected = slot.expected(spec.range.as_ref());
                Err(SettingError::value(key, expected, &toml::Value::from(text)))
            }
        }
    });
    done.unwrap_or_else(|| Err(SettingError::unknown(key, [])))
}

/// Refuses a value out of its range, which a program can give though no file can.
pub fn check(settings: &mut dyn Section) -> Result<(), SettingError> {
    let mut done = Ok(());
    settings.walk("", &Spec::default(), &mut |visit| {
        if let Visit::Setting { key, spec, value } = visit
            && done.is_ok()
        {
            let own = value.show();
            done = take(key, spec, value, &own);
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
            let others = spec.variables.iter().map(|name| (*name).to_owned());
            all.push((key.to_owned(), [variable(key)].into_iter().chain(others).collect()));
        }
    });
    all
}

/// The variable that a setting's name makes.
fn variable(key: &str) -> String {
    let key = key.strip_prefix("advanced.").unwrap_or(key);
    format!("ICECORE_{}", key.replace('.', "_").to_uppercase())
}

/// What was probably meant. Settings under `[advanced]` are found without it, too.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let bare = |key: &str| key.strip_prefix("advanced.").unwrap_or(key).to_owned();
    let name = bare(name);
    let likeness = |key: &&str| strsim::jaro_winkler(&name, &bare(key));
    let close = known.into_iter().filter(|key| likeness(key) > 0.8);
    close.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}
