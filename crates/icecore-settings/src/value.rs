//! Values that a setting may have.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::MOST;

/// The numbers that a setting may be.
pub type Range = RangeInclusive<u64>;

/// A value that a file or a variable can give.
pub trait Value {
    /// What it must be, as it stands in an error: `a whole number from 1 to 9`.
    fn expected(&self, range: Option<&Range>) -> String;
    /// Takes what was given; `false` and nothing changed if it is no such value.
    fn read(&mut self, given: &toml::Value, range: Option<&Range>) -> bool;
    /// The value as it stands in a file.
    fn show(&self) -> toml::Value;
}

/// Implements [`Value`] by three expressions: what it must be, how it is read, how it is shown.
macro_rules! values {
    ($($kind:ty, |$range:ident| $expected:expr, |$given:ident| $read:expr, |$value:ident| $show:expr;)*) => {$(
        impl Value for $kind {
            fn expected(&self, $range: Option<&Range>) -> String {
                $expected
            }

            fn read(&mut self, $given: &toml::Value, $range: Option<&Range>) -> bool {
                let read: Option<Self> = $read;
                read.map(|value| *self = value).is_some()
            }

            fn show(&self) -> toml::Value {
                let $value = self;
                $show.into()
            }
        }
    )*};
}

macro_rules! numbers {
    ($($number:ty)*) => {
        values! {
            $($number,
                |range| number_in(range.unwrap_or(&(0..=<$number>::MAX as u64))),
                |given| number(given, range).and_then(|number| number.try_into().ok()),
                |value| i64::try_from(*value).unwrap_or(i64::MAX);)*
        }
    };
}

numbers!(u8 u32 u64 usize);

values! {
    bool, |_range| "`true` or `false`".to_owned(), |given| given.as_bool(), |value| *value;
    String, |_range| "a string".to_owned(), |given| text(given), |value| value.as_str();
    // Without a text, a path or a number it is empty or 0.
    Option<String>,
        |_range| "a string".to_owned(),
        |given| text(given).map(|text| Some(text).filter(|text| !text.is_empty())),
        |value| value.as_deref().unwrap_or_default();
    Option<PathBuf>,
        |_range| "a path".to_owned(),
        |given| text(given).map(|text| (!text.is_empty()).then(|| text.into())),
        |value| value.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    Option<u64>,
        |range| number_in(range.unwrap_or(&(0..=MOST))),
        |given| number(given, range).map(|number| Some(number).filter(|number| *number > 0)),
        |value| value.unwrap_or_default() as i64;
    Vec<String>,
        |_range| "a list of strings".to_owned(),
        |given| given.as_array().and_then(|list| list.iter().map(text).collect()),
        |value| value.clone();
    Money, |_range| MONEY.to_owned(), |given| money(given), |value| value.0 as f64 / 1e6;
    Option<Money>,
        |_range| MONEY.to_owned(),
        |given| money(given).map(Some),
        |value| value.unwrap_or_default().show();
}

fn number_in(range: &Range) -> String {
    match (range.start(), range.end()) {
        (least, &(MOST..)) => format!("a whole number of at least {least}"),
        (least, most) => format!("a whole number from {least} to {most}"),
    }
}

fn number(given: &toml::Value, range: Option<&Range>) -> Option<u64> {
    let number = given.as_integer().and_then(|number| u64::try_from(number).ok());
    number.filter(|number| range.is_none_or(|range| range.contains(number)))
}

fn text(given: &toml::Value) -> Option<String> {
    given.as_str().map(str::to_owned)
}

/// An amount in millionths of a currency. A file has it as a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Money(pub u64);

const MONEY: &str = "a number from 0 to 1000000000, such as 0.25";

fn money(given: &toml::Value) -> Option<Money> {
    let amount = given.as_float().or_else(|| given.as_integer().map(|whole| whole as f64))?;
    (0.0..=1e9).contains(&amount).then_some(Money((amount * 1e6).round() as u64))
}

/// The host of an address that is `http://` or `https://` and holds no credentials.
pub fn http_host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?.0,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    let is_host = !host.is_empty() && !authority.contains(['@', '\\', ' ']);
    is_host.then_some(host)
}
