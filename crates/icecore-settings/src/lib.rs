//! Settings that are declared once.
//!
//! ```
//! use icecore_settings::{Section, read, rows, settings};
//!
//! settings! {
//!     /// What a library bears.
//!     pub struct Shelf {
//!         /// Books that fit.
//!         books: u32 = 40, 1..=1_000;
//!         /// The longest loan.
//!         loan_seconds: u64 = 86_400, 1..=31_536_000 => advanced;
//!     }
//!
//!     /// The file.
//!     pub struct File {
//!         /// The shelf in the hall.
//!         shelf: Shelf => at "shelf.";
//!     }
//! }
//!
//! let mut file = File::default();
//! let given = read(&mut file, "[shelf]\nbooks = 7\n[advanced.shelf]\nloan_seconds = 60").unwrap();
//! assert_eq!((file.shelf.books, file.shelf.loan_seconds), (7, 60));
//! assert!(given.contains("shelf.books"));
//! let wrong = read(&mut file, "[shelf]\nbook = 7").unwrap_err();
//! assert_eq!(wrong.to_string(), "there is no setting `shelf.book`");
//! assert_eq!(wrong.hint().unwrap(), "did you mean `shelf.books`?");
//! ```
//!
//! [`settings!`] makes the struct and its `Default`, and lets [`Section::walk`] visit each
//! setting with its name, sentence and range. All else here is a walk: reading a file
//! ([`read`]) or a text ([`set`]), showing values ([`rows`]), the example file
//! ([`example`]) and the reference page ([`reference`]).
//!
//! A crate declares the settings that it obeys, and checks what no single one of them
//! shows. This crate knows no file, no environment and no setting.

#![allow(missing_docs, reason = "the names of plain fields and variants say what they are")]

mod page;
mod reading;
mod value;

pub use page::{Row, example, reference, rows};
pub use reading::{SettingError, check, read, set, variables};
pub use value::{Money, Range, Value, http_host};

use std::collections::BTreeMap;
use std::fmt::Display;

/// The largest number that TOML can hold: as the end of a range it says "no limit".
pub const MOST: u64 = i64::MAX as u64;

/// What a declaration says of a setting or a group of them, beside its value.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    pub name: &'static str,
    /// Its documentation, line by line.
    pub about: &'static [&'static str],
    pub range: Option<Range>,
    /// Where a group begins, such as `dreams.`.
    pub prefix: Option<&'static str>,
    /// What follows the prefix of the group around this one.
    pub inner_prefix: &'static str,
    /// The full name, where it is not the prefix of the group and the field's name.
    pub full_name: Option<&'static str>,
    pub is_advanced: bool,
    /// Environment variables that give it, beside the one that its name makes.
    pub variables: &'static [&'static str],
}

/// The words behind `=>` in a declaration, with their texts.
impl Spec {
    pub fn at(self, texts: &[&'static str]) -> Self {
        Self { prefix: texts.first().copied(), ..self }
    }

    pub fn under(self, texts: &[&'static str]) -> Self {
        Self { inner_prefix: texts.first().copied().unwrap_or_default(), ..self }
    }

    pub fn key(self, texts: &[&'static str]) -> Self {
        Self { full_name: texts.first().copied(), ..self }
    }

    pub fn env(self, variables: &'static [&'static str]) -> Self {
        Self { variables, ..self }
    }

    pub fn advanced(self, _: &[&'static str]) -> Self {
        Self { is_advanced: true, ..self }
    }
}

impl Spec {
    /// What the settings of this group begin with.
    pub fn prefix_in(&self, prefix: &str) -> String {
        format!("{}{}", self.prefix.unwrap_or(prefix), self.inner_prefix)
    }

    fn key_in(&self, prefix: &str) -> String {
        let name = self.full_name.map_or_else(|| format!("{prefix}{}", self.name), str::to_owned);
        if self.is_advanced { format!("advanced.{name}") } else { name }
    }

    fn sentence(&self) -> String {
        let lines = self.about.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    }
}

/// What a walk comes to.
pub enum Visit<'a> {
    /// A group of settings begins.
    Group { prefix: &'a str, spec: &'a Spec },
    /// A setting, with its full name.
    Setting { key: &'a str, spec: &'a Spec, value: &'a mut dyn Value },
    /// Tables that the user names, and what stands before the name.
    Tables { path: &'a str, spec: &'a Spec, tables: &'a mut dyn Tables },
}

/// A setting, or a group of them. [`settings!`] implements it for structs.
pub trait Section {
    /// Visits every setting in the order of declaration.
    fn walk(&mut self, prefix: &str, spec: &Spec, visit: &mut dyn FnMut(Visit<'_>));
}

impl<T: Value> Section for T {
    fn walk(&mut self, prefix: &str, spec: &Spec, visit: &mut dyn FnMut(Visit<'_>)) {
        visit(Visit::Setting { key: &spec.key_in(prefix), spec, value: self });
    }
}

/// Tables of one kind with names of the user's choice, such as `[models.NAME]`.
pub trait Tables {
    /// The names of those that are there.
    fn names(&self) -> Vec<String>;
    /// The table of a name, made if it is missing. `None` for an impossible name.
    fn table(&mut self, name: &str) -> Option<&mut dyn Section>;
    /// A table that says nothing.
    fn empty(&mut self) -> &mut dyn Section;
}

/// A map of tables, and what a new one begins as.
#[doc(hidden)]
pub struct Named<'a, K, T> {
    pub tables: &'a mut BTreeMap<K, T>,
    pub empty: T,
}

impl<K, T> Tables for Named<'_, K, T>
where
    K: Ord + Display + TryFrom<String>,
    T: Section + Clone,
{
    fn names(&self) -> Vec<String> {
        self.tables.keys().map(K::to_string).collect()
    }

    fn table(&mut self, name: &str) -> Option<&mut dyn Section> {
        let name = K::try_from(name.to_owned()).ok()?;
        Some(self.tables.entry(name).or_insert_with(|| self.empty.clone()))
    }

    fn empty(&mut self) -> &mut dyn Section {
        &mut self.empty
    }
}

/// Declares a struct of settings: `name: type = default, least..=most => words;` with a doc
/// comment, which is the setting's sentence everywhere. Without a default a field has its
/// type's. The words behind `=>`, with commas between them, say more:
///
/// | word | the field |
/// |---|---|
/// | `advanced` | stands under `[advanced]` |
/// | `at "dreams."` | is a group whose settings begin with that |
/// | `under "openai_"` | is a group whose settings have that behind the prefix around it |
/// | `key "chat.model"` | has that full name |
/// | `env "AWS_REGION" "AWS_DEFAULT_REGION"` | is given by these variables too |
/// | `tables "models"` | is a map of tables with names of the user's choice |
/// | `tables "bounds.tenants" of everyone` | the same; a table begins as that field |
/// | `none` | is no setting |
#[macro_export]
macro_rules! settings {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident: $ty:ty $(= $default:expr $(, $range:expr)?)?
                    $(=> $($word:ident $($text:literal)* $(of $base:ident)?),+)?;
            )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $name {
            $($(#[doc = $doc])* pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::__default!($($default)?),)* }
            }
        }

        impl $crate::Section for $name {
            fn walk(
                &mut self,
                prefix: &str,
                spec: &$crate::Spec,
                visit: &mut dyn FnMut($crate::Visit<'_>),
            ) {
                let prefix = &spec.prefix_in(prefix);
                visit($crate::Visit::Group { prefix, spec });
                $($crate::__walk!(
                    [$($($word $($text)* $(of $base)?),+)?] self $field prefix visit
                    $crate::Spec {
                        name: stringify!($field),
                        about: &[$($doc),*],
                        range: None $($(.or(Some($range)))?)?,
                        ..Default::default()
                    }
                );)*
            }
        }
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __walk {
    ([none] $($rest:tt)*) => {};
    ([tables $path:literal] $this:ident $field:ident $prefix:ident $visit:ident $spec:expr) => {
        $crate::__walk!([tables $path from Default::default()] $this $field $visit $spec)
    };
    (
        [tables $path:literal of $base:ident]
        $this:ident $field:ident $prefix:ident $visit:ident $spec:expr
    ) => {
        $crate::__walk!([tables $path from $this.$base.clone()] $this $field $visit $spec)
    };
    ([tables $path:literal from $empty:expr] $this:ident $field:ident $visit:ident $spec:expr) => {
        $visit($crate::Visit::Tables {
            path: $path,
            spec: &$spec,
            tables: &mut $crate::Named { empty: $empty, tables: &mut $this.$field },
        })
    };
    (
        [$($word:ident $($text:literal)*),*]
        $this:ident $field:ident $prefix:ident $visit:ident $spec:expr
    ) => {
        $crate::Section::walk(
            &mut $this.$field,
            $prefix,
            &$spec$(.$word(&[$($text),*]))*,
            $visit,
        )
    };
}

/// Declares an enum whose variants are words in a settings file; the first is the default.
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $(#[$first_meta:meta])* $first:ident = $first_word:literal,
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        $vis enum $name {
            $(#[$first_meta])*
            #[default]
            $first,
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// All of them, the default first.
            pub const ALL: &'static [Self] = &[Self::$first, $(Self::$variant),*];

            /// The word for it.
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_word,
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl $crate::Value for $name {
            fn expected(&self, _: Option<&$crate::Range>) -> String {
                $crate::one_of(&[$first_word, $($word),*])
            }

            fn read(&mut self, given: &$crate::toml::Value, _: Option<&$crate::Range>) -> bool {
                let named = Self::ALL.iter().find(|one| given.as_str() == Some(one.as_str()));
                named.map(|one| *self = *one).is_some()
            }

            fn show(&self) -> $crate::toml::Value {
                self.as_str().into()
            }
        }
    };
}

#[doc(hidden)]
pub use toml;

/// Words as a sentence names them: `"a", "b" or "c"`.
pub fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}
