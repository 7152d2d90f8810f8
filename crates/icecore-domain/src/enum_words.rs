//! Enums whose values are words, in files, on the wire and on the command line.

/// Gives an enum without fields its words: `ALL`, `as_str` and `parse`.
///
/// ```
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// enum Fruit {
///     Plum,
///     Fig,
/// }
/// icecore_domain::words!(Fruit { Plum = "plum", Fig = "fig" });
///
/// assert_eq!(Fruit::parse("fig"), Some(Fruit::Fig));
/// assert_eq!(Fruit::ALL.map(Fruit::as_str), ["plum", "fig"]);
/// ```
#[macro_export]
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// Every value, in order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word for it, the same wherever it is stored or shown.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value of a word.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == word)
            }
        }
    };
}
