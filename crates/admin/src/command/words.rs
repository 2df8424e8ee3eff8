//! Turns what DBAs type into what SQLite runs.

use weir_sql::literal::sqlite_text;

use super::Sql;
use super::dialect::{edits, having};
use crate::tokens::{Kind, Token};

/// The statement in SQLite's dialect: without comments, `INSERT IGNORE` as `INSERT OR IGNORE`, and `@@variables` as
/// calls of the function that knows them; and what else MySQL has and SQLite has not.
pub(super) fn sql(tokens: &[Token<'_>]) -> Sql {
    let mut system = Vec::new();
    let mut text = |tokens: &[Token<'_>]| text_of(tokens, &mut system);
    let text = match having(tokens) {
        None => text(tokens),
        Some(parts) => {
            let (query, order) = (text(parts.query), text(parts.order));
            format!("SELECT * FROM ({query} {order}) WHERE {} {}", text(parts.condition), text(parts.limit))
        }
    };
    Sql { text: text.trim_end().to_owned(), variables: variables(tokens), system }
}

/// The text of a statement, or of a part of one, in SQLite's dialect; adds the `@@variables` in it.
pub(super) fn text_of(tokens: &[Token<'_>], system: &mut Vec<String>) -> String {
    let edits = edits(tokens);
    let mut text = String::new();
    let mut end = None;
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        if end.is_some_and(|end| end != token.span.start) {
            text.push(' ');
        }
        let at = tokens.len() - rest.len();
        rest = after;
        end = Some(token.span.end);
        if let Ok(found) = edits.binary_search_by_key(&at, |(at, _)| *at) {
            text.push_str(edits.get(found).map_or("", |(_, other)| other));
        } else if token.is_symbol('@')
            && let Some((name, used)) = system_variable(token, after)
        {
            text.push_str(&format!("{VARIABLE}({})", sqlite_text(&name)));
            system.push(name);
            end = after.get(used - 1).map(|token| token.span.end);
            rest = after.get(used..).unwrap_or_default();
        } else if token.is("IGNORE") && is_of_insert(tokens, token) {
            text.push_str("OR IGNORE");
        } else {
            text.push_str(token.source);
        }
    }
    text
}

/// Whether it is the second word of an INSERT.
fn is_of_insert(tokens: &[Token<'_>], token: &Token<'_>) -> bool {
    matches!(tokens, [verb, second, ..] if verb.is("INSERT") && second.span == token.span)
}

/// The SQL function that knows `@@variables`.
pub(crate) const VARIABLE: &str = "weir_variable";

/// `@`, and one of `@name`, `@session.name`, `@global.name`, `@mysql-name` behind it: the name and how many tokens.
fn system_variable<'a>(at: &Token<'_>, rest: &[Token<'a>]) -> Option<(String, usize)> {
    let [second, first, ..] = rest else { return None };
    if !second.is_symbol('@') || second.span.start != at.span.end || first.kind == Kind::Symbol {
        return None;
    }
    let mut used = 2;
    let mut name = format!("@@{}", first.value());
    while let [joint, part, ..] = rest.get(used..)? {
        let is_joint = joint.is_symbol('.') || joint.is_symbol('-');
        let is_close = joint.span.end == part.span.start && part.kind != Kind::Symbol;
        if !is_joint || !is_close {
            break;
        }
        name.push_str(joint.source);
        name.push_str(&part.value());
        used += 2;
    }
    Some((name, used))
}

/// The names in `variable_name = 'x'` and `variable_name IN ('x', ...)`.
fn variables(tokens: &[Token<'_>]) -> Vec<String> {
    let mut names = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !token.value().eq_ignore_ascii_case("variable_name") || token.kind == Kind::Symbol {
            continue;
        }
        let mut rest = tokens.get(at + 1..).unwrap_or_default().iter();
        match rest.next() {
            Some(equals) if equals.is_symbol('=') => {
                // `==` is SQLite's too.
                let literal = rest.find(|token| !token.is_symbol('='));
                names.extend(
                    literal.filter(|token| token.kind == Kind::Text).map(|token| token.value().into_owned()),
                );
            }
            Some(word) if word.is("IN") => {
                let list = rest.skip(1).take_while(|token| !token.is_symbol(')'));
                names.extend(
                    list.filter(|token| token.kind == Kind::Text).map(|token| token.value().into_owned()),
                );
            }
            _ => {}
        }
    }
    names
}
