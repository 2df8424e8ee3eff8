//! Translates what MySQL's SQL has and SQLite's has not, as far as drivers ask for it when they look for tables and columns.

use crate::tokens::Token;

/// Functions that SQLite has by another name.
const FUNCTIONS: [(&str, &str); 4] =
    [("LEAST", "min"), ("GREATEST", "max"), ("LCASE", "lower"), ("UCASE", "upper")];
/// With one of them a query without GROUP BY has one row, for which SQLite knows HAVING.
const AGGREGATES: [&str; 7] = ["COUNT", "SUM", "TOTAL", "MIN", "MAX", "AVG", "GROUP_CONCAT"];

/// Replacements of tokens: (place, text).
pub(super) type Edits = Vec<(usize, &'static str)>;

/// `CONVERT(x, type)` becomes `CAST(x AS type)`, `CONVERT(x USING charset)` becomes `(x)`, and functions get their names.
pub(super) fn edits(tokens: &[Token<'_>]) -> Edits {
    let mut edits = Edits::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [name, open] = pair else { continue };
        if !open.is_symbol('(') {
            continue;
        }
        if let Some((_, other)) = FUNCTIONS.iter().find(|(known, _)| name.is(known)) {
            edits.push((at, other));
        } else if name.is("CONVERT") {
            convert(tokens, at, &mut edits);
        }
    }
    edits.sort_unstable_by_key(|(at, _)| *at);
    edits
}

fn convert(tokens: &[Token<'_>], name: usize, edits: &mut Edits) {
    let (mut depth, mut comma) = (0_usize, None);
    for (at, token) in tokens.iter().enumerate().skip(name + 1) {
        if token.is_symbol('(') {
            depth += 1;
        } else if token.is_symbol(')') {
            depth -= 1;
            if depth == 0 {
                if let Some(comma) = comma {
                    edits.extend([(name, "CAST"), (comma, " AS")]);
                }
                return;
            }
        } else if depth == 1 && token.is_symbol(',') {
            comma = Some(at);
        } else if depth == 1 && token.is("USING") {
            return edits.extend([(name, ""), (at, ""), (at + 1, "")]);
        }
    }
}

/// A query whose HAVING is a WHERE for its columns' new names.
pub(super) struct Having<'t, 'a> {
    /// Up to HAVING.
    pub query: &'t [Token<'a>],
    pub condition: &'t [Token<'a>],
    /// ORDER BY and what follows it, up to LIMIT.
    pub order: &'t [Token<'a>],
    /// LIMIT and what follows it.
    pub limit: &'t [Token<'a>],
}

/// The parts of a query with HAVING that SQLite would refuse, since nothing is grouped.
pub(super) fn having<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<Having<'t, 'a>> {
    tokens.first().filter(|first| first.is("SELECT"))?;
    let (mut depth, mut having, mut order, mut limit) = (0_usize, None, tokens.len(), tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        match token {
            _ if token.is_symbol('(') => depth += 1,
            _ if token.is_symbol(')') => depth = depth.checked_sub(1)?,
            _ if depth > 0 => {}
            _ if ["GROUP", "UNION", "INTERSECT", "EXCEPT"].iter().any(|word| token.is(word)) => return None,
            _ if token.is("HAVING") => having = having.or(Some(at)),
            _ if token.is("ORDER") && having.is_some() => order = order.min(at),
            _ if token.is("LIMIT") && having.is_some() => limit = limit.min(at),
            _ => {}
        }
    }
    let (having, order) = (having?, order.min(limit));
    let condition = tokens.get(having + 1..order).filter(|condition| !condition.is_empty())?;
    let is_aggregate = |pair: &[Token<'_>]| matches!(pair, [name, open] if open.is_symbol('(') && AGGREGATES.iter().any(|known| name.is(known)));
    if condition.windows(2).any(is_aggregate) {
        return None;
    }
    Some(Having {
        query: tokens.get(..having)?,
        condition,
        order: tokens.get(order..limit)?,
        limit: tokens.get(limit..)?,
    })
}
