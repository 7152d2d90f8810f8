//! From SQLite's spelling of a statement to PostgreSQL's.
//!
//! Statements are written once, in what both understand, but for a few words:
//!
//! | SQLite | PostgreSQL |
//! |---|---|
//! | `?3` | `$3` |
//! | `FROM turns INDEXED BY turns_by_lookup`, `NOT INDEXED` | `FROM turns` |
//! | `CROSS JOIN b ON …`, which holds an order | `JOIN b ON …` |
//! | `a IS b`, `a IS NOT b` | `a IS NOT DISTINCT FROM b`, `a IS DISTINCT FROM b` |
//! | `x'00ff'` | `'\x00ff'::bytea` |
//! | `/* FOR SHARE */`, `/* FOR UPDATE */` | `FOR SHARE`, `FOR UPDATE` |
//!
//! The last is a comment to SQLite, whose writers are alone anyhow. What else stands in
//! quotes or in comments is left alone.

use super::value::type_of;
use crate::engine::Kind;

/// The statement as PostgreSQL reads it.
pub(super) fn translated(sql: &str) -> String {
    with_parameters(sql, "$")
}

/// A query for many at once: its parameters are arrays of such kinds, one value for each,
/// and its last column is the number of the one that a row answers. The rows of each stand
/// in the query's own order.
///
/// `OFFSET 0` holds the server to asking for one after the other, by their keys: it cannot
/// know how few they are, and must not read a table for them.
pub(super) fn for_each(sql: &str, kinds: &[Kind]) -> String {
    let listed = |each: &dyn Fn(usize, Kind) -> String| {
        let each: Vec<String> = (1..).zip(kinds).map(|(at, kind)| each(at, *kind)).collect();
        each.join(", ")
    };
    let arrays = listed(&|at, kind| format!("${at}::{}[]", type_of(kind).name()));
    let columns = listed(&|at, _| format!("p{at}"));
    let query = with_parameters(sql, "each_of.p");
    format!(
        "SELECT found.*, each_of.number
         FROM UNNEST({arrays}) WITH ORDINALITY AS each_of ({columns}, number),
           LATERAL (SELECT * FROM ({query}) AS one OFFSET 0) AS found"
    )
}

/// The statement with parameters that are called something and their number.
fn with_parameters(sql: &str, called: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    let mut rest = sql;
    let mut largest = 0;
    while let Some(token) = Token::first_of(rest) {
        let (text, after) = rest.split_at(token.length());
        rest = match token {
            Token::Parameter(_) => parameter(text, after, called, &mut largest, &mut out),
            Token::Word(_) => word(text, after, &mut out),
            Token::Other(_) => {
                out.push_str(lock(text).unwrap_or(text));
                after
            }
        };
    }
    out
}

/// The lock that a comment asks for.
fn lock(comment: &str) -> Option<&str> {
    let said = comment.strip_prefix("/* ")?.strip_suffix(" */")?;
    ["FOR SHARE", "FOR UPDATE"].contains(&said).then_some(said)
}

/// A piece of a statement, and how many bytes it has.
enum Token {
    Parameter(usize),
    Word(usize),
    Other(usize),
}

impl Token {
    fn first_of(sql: &str) -> Option<Self> {
        let first = sql.chars().next()?;
        let other = |end: Option<usize>| Token::Other(end.unwrap_or(sql.len()));
        Some(match first {
            '?' => Token::Parameter(1 + span(&sql[1..], |c| c.is_ascii_digit())),
            '\'' | '"' => Token::Other(quoted(sql, first)),
            '-' if sql.starts_with("--") => other(sql.find('\n')),
            '/' if sql.starts_with("/*") => other(sql.find("*/").map(|at| at + 2)),
            c if is_in_word(c) => Token::Word(span(sql, is_in_word)),
            c => Token::Other(c.len_utf8()),
        })
    }

    fn length(&self) -> usize {
        match self {
            Token::Parameter(length) | Token::Word(length) | Token::Other(length) => *length,
        }
    }
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How many bytes at the beginning are such characters.
fn span(text: &str, is_in: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_in(c)).unwrap_or(text.len())
}

/// The length of what is quoted, whose quotes are doubled inside.
fn quoted(sql: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(next) = sql[at..].find(quote) {
        at += next + 1;
        match sql[at..].starts_with(quote) {
            true => at += 1,
            false => return at,
        }
    }
    sql.len()
}

/// A parameter without a number has the next one, as in SQLite.
fn parameter<'a>(
    text: &str,
    after: &'a str,
    called: &str,
    largest: &mut u32,
    out: &mut String,
) -> &'a str {
    let number = text[1..].parse().unwrap_or(*largest + 1);
    *largest = number.max(*largest);
    out.push_str(&format!("{called}{number}"));
    after
}

/// A word, with those after it that belong to it; answers what follows.
fn word<'a>(text: &str, after: &'a str, out: &mut String) -> &'a str {
    let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
    if is(text, "x")
        && let Some(digits) = after.strip_prefix('\'')
        && let Some(end) = digits.find('\'')
    {
        out.push_str(&format!("'\\x{}'::bytea", &digits[..end]));
        return &digits[end + 1..];
    }
    let (next, past_next) = next_word(after);
    if is(text, "INDEXED") && is(next, "BY") {
        let (_, past_index) = next_word(past_next);
        return trimmed(past_index, out);
    }
    if is(text, "NOT") && is(next, "INDEXED") {
        return trimmed(past_next, out);
    }
    if is(text, "CROSS") && is(next, "JOIN") && is_conditional(past_next) {
        return after.trim_start();
    }
    if is(text, "IS") {
        return compared(after, out);
    }
    out.push_str(text);
    after
}

/// Whether a join is followed by its condition.
fn is_conditional(mut sql: &str) -> bool {
    const ENDS: [&str; 9] =
        ["ON", "JOIN", "CROSS", "LEFT", "WHERE", "ORDER", "GROUP", "LIMIT", "UNION"];
    let mut depth = 0;
    while let Some(token) = Token::first_of(sql) {
        let (text, after) = sql.split_at(token.length());
        match (&token, text) {
            (Token::Other(_), "(") => depth += 1,
            (Token::Other(_), ")") if depth == 0 => return false,
            (Token::Other(_), ")") => depth -= 1,
            (Token::Word(_), word) if depth == 0 => {
                let end = ENDS.iter().find(|end| word.eq_ignore_ascii_case(end));
                if let Some(end) = end {
                    return *end == "ON";
                }
            }
            _ => {}
        }
        sql = after;
    }
    false
}

/// What stands after `IS`. NULL, truth and `DISTINCT FROM` read the same on both.
fn compared<'a>(after: &'a str, out: &mut String) -> &'a str {
    const SAME: [&str; 5] = ["NULL", "TRUE", "FALSE", "DISTINCT", "UNKNOWN"];
    let is_same = |word: &str| SAME.iter().any(|same| word.eq_ignore_ascii_case(same));
    let (next, past_next) = next_word(after);
    let is_not = next.eq_ignore_ascii_case("NOT");
    let operand = if is_not { next_word(past_next).0 } else { next };
    if is_same(operand) {
        out.push_str("IS");
        return after;
    }
    out.push_str(if is_not { "IS DISTINCT FROM" } else { "IS NOT DISTINCT FROM" });
    if is_not { past_next } else { after }
}

/// The next word and what follows it; empty where something else comes first.
fn next_word(sql: &str) -> (&str, &str) {
    let begun = sql.trim_start();
    begun.split_at(span(begun, is_in_word))
}

/// The space before what was left out goes with it.
fn trimmed<'a>(after: &'a str, out: &mut String) -> &'a str {
    out.truncate(out.trim_end().len());
    after
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(sql: &str, expected: &str) {
        assert_eq!(translated(sql), expected);
    }

    #[test]
    fn parameters_have_dollars() {
        check("SELECT ?1, ?12 FROM t WHERE a=?2", "SELECT $1, $12 FROM t WHERE a=$2");
        check("VALUES (?, ?, ?5, ?)", "VALUES ($1, $2, $5, $6)");
    }

    #[test]
    fn many_at_once_are_rows_of_arrays() {
        let sql = "SELECT a FROM t NOT INDEXED WHERE b = ?2 AND c = ?1 LIMIT ?3";
        let made = for_each(sql, &[Kind::Integer, Kind::Text, Kind::Blob]);
        let words: Vec<&str> = made.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "SELECT found.*, each_of.number \
             FROM UNNEST($1::int8[], $2::text[], $3::bytea[]) \
             WITH ORDINALITY AS each_of (p1, p2, p3, number), \
             LATERAL (SELECT * FROM (SELECT a FROM t WHERE b = each_of.p2 AND c = each_of.p1 \
             LIMIT each_of.p3) AS one OFFSET 0) AS found"
        );
    }

    #[test]
    fn no_index_is_named() {
        check("FROM turns t INDEXED BY turns_by_lookup\n WHERE x", "FROM turns t\n WHERE x");
        check("DELETE FROM a indexed by b", "DELETE FROM a");
        check("FROM a NOT INDEXED WHERE", "FROM a WHERE");
        check("FROM reindexed WHERE by = 1", "FROM reindexed WHERE by = 1");
    }

    #[test]
    fn a_join_with_a_condition_is_not_crossed() {
        check("a CROSS JOIN b ON a.x = b.x WHERE 1", "a JOIN b ON a.x = b.x WHERE 1");
        check("a CROSS JOIN (SELECT 1 WHERE 2) b ON 3", "a JOIN (SELECT 1 WHERE 2) b ON 3");
        for crossed in ["a CROSS JOIN b WHERE 1", "a CROSS JOIN b JOIN c ON 1", "(a CROSS JOIN b)"]
        {
            check(crossed, crossed);
        }
        check("a CROSS JOIN b INDEXED BY i ON 1", "a JOIN b ON 1");
    }

    #[test]
    fn is_compares_also_what_may_be_null() {
        check("a IS ?1", "a IS NOT DISTINCT FROM $1");
        check("a IS NOT b.c", "a IS DISTINCT FROM b.c");
        check("a is not (SELECT 1)", "a IS DISTINCT FROM (SELECT 1)");
        check("a IS 'x'", "a IS NOT DISTINCT FROM 'x'");
        for same in ["a IS NULL", "a IS NOT NULL", "a IS\n NOT  null", "a IS NOT TRUE"] {
            check(same, same);
        }
        check("a IS NOT DISTINCT FROM b", "a IS NOT DISTINCT FROM b");
        check("this IS nullable", "this IS NOT DISTINCT FROM nullable");
    }

    #[test]
    fn bytes_are_spelt_with_a_backslash() {
        check("VALUES (x'00ff', X'')", r"VALUES ('\x00ff'::bytea, '\x'::bytea)");
        check("max'a'", "max'a'");
    }

    #[test]
    fn rows_are_locked_where_a_comment_says_so() {
        check("SELECT 1 FROM a /* FOR SHARE */", "SELECT 1 FROM a FOR SHARE");
        check("SELECT 1 FROM a /* FOR UPDATE */", "SELECT 1 FROM a FOR UPDATE");
        check("SELECT 1 /* FOR NOBODY */", "SELECT 1 /* FOR NOBODY */");
    }

    #[test]
    fn quotes_and_comments_are_left_alone() {
        check("'a ?1 IS b' || ?1", "'a ?1 IS b' || $1");
        check("'it''s ?1' || \"x?2\" || ?3", "'it''s ?1' || \"x?2\" || $3");
        check("a -- ?1 IS b\n + ?1", "a -- ?1 IS b\n + $1");
        check("a /* INDEXED BY ?1 */ + ?1", "a /* INDEXED BY ?1 */ + $1");
        check("'never ended ?1", "'never ended ?1");
        check("a -- ?1", "a -- ?1");
    }

    proptest! {
        #[test]
        fn nothing_stops_it_and_plain_text_stays(sql in "[a-hA-H0-9 ='\"(),.\\-/*\\n]{0,40}") {
            // `x` and the words that change are not in that alphabet.
            prop_assert_eq!(translated(&sql), sql);
        }

        #[test]
        fn any_text_is_read_to_its_end(sql in "\\PC{0,40}") {
            translated(&sql);
        }
    }
}
