//! Values that a setting may have.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::MOST;

/// The numbers that a setting may be; of a text, its length in characters.
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

macro_rules! number {
    ($($number:ty)*) => {$(
        impl Value for $number {
            fn expected(&self, range: Option<&Range>) -> String {
                let (least, most) = range.map_or((0, <$number>::MAX as u64), |range| {
                    (*range.start(), *range.end())
                });
                match most {
                    MOST.. => format!("a whole number of at least {least}"),
                    most => format!("a whole number from {least} to {most}"),
                }
            }

            fn read(&mut self, given: &toml::Value, range: Option<&Range>) -> bool {
                let number = given.as_integer().and_then(|number| u64::try_from(number).ok());
                let number = number.filter(|number| range.is_none_or(|range| range.contains(number)));
                let number = number.and_then(|number| <$number>::try_from(number).ok());
                number.map(|number| *self = number).is_some()
            }

            fn show(&self) -> toml::Value {
                toml::Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )*};
}

number!(u8 u32 u64 usize);

impl Value for bool {
    fn expected(&self, _: Option<&Range>) -> String {
        "`true` or `false`".to_owned()
    }

    fn read(&mut self, given: &toml::Value, _: Option<&Range>) -> bool {
        given.as_bool().map(|flag| *self = flag).is_some()
    }

    fn show(&self) -> toml::Value {
        (*self).into()
    }
}

impl Value for String {
    fn expected(&self, _: Option<&Range>) -> String {
        "a string".to_owned()
    }

    fn read(&mut self, given: &toml::Value, _: Option<&Range>) -> bool {
        given.as_str().map(|text| text.clone_into(self)).is_some()
    }

    fn show(&self) -> toml::Value {
        self.as_str().into()
    }
}

/// Without a text it is an empty string.
impl Value for Option<String> {
    fn expected(&self, _: Option<&Range>) -> String {
        "a string".to_owned()
    }

    fn read(&mut self, given: &toml::Value, _: Option<&Range>) -> bool {
        let text = given.as_str();
        text.map(|text| *self = (!text.is_empty()).then(|| text.to_owned())).is_some()
    }

    fn show(&self) -> toml::Value {
        self.as_deref().unwrap_or_default().into()
    }
}

/// Without a number it is 0.
impl Value for Option<u64> {
    fn expected(&self, range: Option<&Range>) -> String {
        self.unwrap_or_default().expected(range)
    }

    fn read(&mut self, given: &toml::Value, range: Option<&Range>) -> bool {
        let mut number = 0_u64;
        let is_read = number.read(given, range);
        if is_read {
            *self = Some(number).filter(|number| *number > 0);
        }
        is_read
    }

    fn show(&self) -> toml::Value {
        self.unwrap_or_default().show()
    }
}

/// Without a path it is an empty string.
impl Value for Option<PathBuf> {
    fn expected(&self, _: Option<&Range>) -> String {
        "a path".to_owned()
    }

    fn read(&mut self, given: &toml::Value, _: Option<&Range>) -> bool {
        let path = given.as_str();
        path.map(|path| *self = (!path.is_empty()).then(|| PathBuf::from(path))).is_some()
    }

    fn show(&self) -> toml::Value {
        self.as_ref().map(|path| path.display().to_string()).unwrap_or_default().into()
    }
}

impl Value for Vec<String> {
    fn expected(&self, _: Option<&Range>) -> String {
        "a list of strings".to_owned()
    }

    fn read(&mut self, given: &toml::Value, _: Option<&Range>) -> bool {
        let words = given.as_array().map(|list| list.iter().map(|word| word.as_str()));
        let words = words.and_then(Iterator::collect::<Option<Vec<_>>>);
        words.map(|words| *self = words.into_iter().map(str::to_owned).collect()).is_some()
    }

    fn show(&self) -> toml::Value {
        self.clone().into()
    }
}

/// An amount in millionths of a currency. A file has it as a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Money(pub u64);

impl Value for Money {
    fn expected(&self, _: Option<&Range>) -> String {
        "a number from 0 to 1000000000, such as 0.25".to_owned()
    }

    fn read(&mut self, given: &toml::Value, _: Option<&Range>) -> bool {
        let number = match given {
            toml::Value::Integer(whole) => *whole as f64,
            toml::Value::Float(number) => *number,
            _ => f64::NAN,
        };
        let is_amount = (0.0..=1e9).contains(&number);
        if is_amount {
            self.0 = (number * 1e6).round() as u64;
        }
        is_amount
    }

    fn show(&self) -> toml::Value {
        (self.0 as f64 / 1e6).into()
    }
}

/// Without an amount it is 0.
impl Value for Option<Money> {
    fn expected(&self, range: Option<&Range>) -> String {
        self.unwrap_or_default().expected(range)
    }

    fn read(&mut self, given: &toml::Value, range: Option<&Range>) -> bool {
        let mut amount = Money::default();
        let is_read = amount.read(given, range);
        if is_read {
            *self = Some(amount);
        }
        is_read
    }

    fn show(&self) -> toml::Value {
        self.unwrap_or_default().show()
    }
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
