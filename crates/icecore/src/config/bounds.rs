//! `[bounds]` and `[bounds.tenants.NAME]`: what tenants may keep and use.

use icecore_domain::ids::Tenant;
use toml::Value;

use super::{ConfigError, FileConfig, Shown, unknown, wrong};
use crate::bounds::{BoundSettings, TenantBounds};

/// The keys of a tenant's table, in the order in which they are shown.
const KEYS: [&str; 4] = ["turns", "bytes", "requests_a_day", "tokens_a_day"];

fn slot<'a>(bounds: &'a mut TenantBounds, key: &str) -> Option<&'a mut u64> {
    Some(match key {
        "turns" => &mut bounds.turns,
        "bytes" => &mut bounds.bytes,
        "requests_a_day" => &mut bounds.requests_a_day,
        "tokens_a_day" => &mut bounds.tokens_a_day,
        _ => return None,
    })
}

/// Reads the tables `[bounds.tenants.NAME]`; gives the keys that they have.
pub(super) fn read_tenants(
    config: &mut FileConfig,
    tables: &toml::Table,
) -> Result<Vec<String>, ConfigError> {
    let mut given = Vec::new();
    for (name, table) in tables {
        let at = format!("bounds.tenants.{name}");
        let Value::Table(table) = table else { return Err(wrong(&at, "a table", table)) };
        let tenant = Tenant::new(name.clone());
        let tenant = tenant.map_err(|_| {
            wrong("bounds.tenants", "tables by the names of tenants", &Value::from(name.clone()))
        })?;
        let mut bounds = config.bounds.everyone;
        for (key, value) in table {
            let full = format!("{at}.{key}");
            let Some(slot) = slot(&mut bounds, key) else {
                let known: Vec<String> = KEYS.iter().map(|key| format!("{at}.{key}")).collect();
                return Err(unknown(&full, known.iter().map(String::as_str)));
            };
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            *slot = number.ok_or_else(|| wrong(&full, "a whole number of at least 0", value))?;
            given.push(full);
        }
        config.bounds.tenants.insert(tenant, bounds);
    }
    Ok(given)
}

/// The settings of the tenants' tables.
pub(super) fn shown(settings: &BoundSettings) -> Vec<Shown> {
    let one = |(tenant, bounds): (&Tenant, &TenantBounds)| {
        let mut bounds = *bounds;
        KEYS.map(|key| Shown {
            key: format!("bounds.tenants.{tenant}.{key}"),
            value: slot(&mut bounds, key).map(|slot| slot.to_string()).unwrap_or_default(),
            given: false,
        })
    };
    settings.tenants.iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_set_by_name_and_by_tenant() {
        // The tenant's table stands first, and what it leaves out is as for everyone.
        let config = FileConfig::parse(
            "[bounds.tenants.acme]\nturns = 0\ntokens_a_day = 7\n\
             [bounds]\nturns = 1\nbytes = 2\nrequests_a_day = 3\ntokens_a_day = 4\n\
             step_requests = 5\nstep_tokens = 6\nstep_seconds = 8",
        );
        let config = config.unwrap();
        let everyone = TenantBounds { turns: 1, bytes: 2, requests_a_day: 3, tokens_a_day: 4 };
        let acme = TenantBounds { turns: 0, tokens_a_day: 7, ..everyone };
        let expected = BoundSettings {
            everyone,
            tenants: [(Tenant::new("acme".to_owned()).unwrap(), acme)].into(),
            step_requests: 5,
            step_tokens: 6,
            step_seconds: 8,
        };
        assert_eq!(config.bounds, expected);
        let shown = config.settings();
        let value = |key: &str| {
            let one = shown.iter().find(|one| one.key == key).unwrap();
            (one.value.clone(), one.given)
        };
        assert_eq!(value("bounds.tenants.acme.tokens_a_day"), ("7".to_owned(), true));
        assert_eq!(value("bounds.tenants.acme.bytes"), ("2".to_owned(), false));
        assert_eq!(value("bounds.step_tokens"), ("6".to_owned(), true));
    }

    #[test]
    fn mistakes_about_bounds_are_named() {
        let check = |file: &str, expected: &str| {
            let error = FileConfig::parse(file).unwrap_err();
            let told = format!("{error} {}", error.hint().unwrap_or_default());
            assert!(told.contains(expected), "{told}");
        };
        check("[bounds]\nturn = 1", "did you mean `bounds.turns`?");
        check("[bounds]\nturns = -1", "`bounds.turns` must be a whole number of at least 0");
        check("[bounds.tenants.a]\nbyte = 1", "did you mean `bounds.tenants.a.bytes`?");
        check("[bounds.tenants.a]\nbytes = -1", "`bounds.tenants.a.bytes` must be a whole number");
        check("[bounds.tenants]\na = 1", "`bounds.tenants.a` must be a table");
        check("[bounds.tenants.\"\"]\nturns = 1", "must be tables by the names of tenants");
    }
}
