//! Marks around quoted data, so that no text can end its own quotation.

/// `first`, else the first of `next-1`, `next-2`, … that the data does not contain.
pub(crate) fn fence(first: &str, next: &str, is_contained: impl Fn(&str) -> bool) -> String {
    let others = (1_u32..).map(|number| format!("{next}-{number}"));
    let mut marks = std::iter::once(first.to_owned()).chain(others);
    marks.find(|mark| !is_contained(mark)).unwrap_or_default()
}
