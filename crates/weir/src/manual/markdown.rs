//! Turns a line of the guide's Markdown into text for a manual page: code becomes bold, emphasis italic, and of a link the
//! text stays.

use clap_mangen::roff::{Inline, bold, italic, roman};

/// The pieces of a line, in order. What is not closed stays as it is.
pub(super) fn inlines(text: &str) -> Vec<Inline> {
    let mut pieces = Vec::new();
    let (mut rest, mut plain) = (text, String::new());
    while let Some(sign) = rest.chars().next() {
        let taken = match sign {
            '`' => enclosed(rest, "`", "`").map(|(text, after)| (vec![bold(text)], after)),
            '*' => enclosed(rest, "*", "*").map(|(text, after)| (vec![italic(text)], after)),
            '[' => link(rest).map(|(text, after)| (inlines(text), after)),
            '\\' => escaped(rest).map(|(text, after)| (vec![roman(text)], after)),
            _ => None,
        };
        match taken {
            Some((taken, after)) => {
                if !plain.is_empty() {
                    pieces.push(roman(std::mem::take(&mut plain)));
                }
                pieces.extend(taken);
                rest = after;
            }
            None => {
                plain.push(sign);
                rest = &rest[sign.len_utf8()..];
            }
        }
    }
    if !plain.is_empty() {
        pieces.push(roman(plain));
    }
    pieces
}

/// What stands between two signs at the beginning of the text, which is not nothing, and what follows them.
fn enclosed<'t>(text: &'t str, open: &str, close: &str) -> Option<(&'t str, &'t str)> {
    let (inside, after) = text.strip_prefix(open)?.split_once(close)?;
    (!inside.is_empty()).then_some((inside, after))
}

/// The text of `[text](target)`, and what follows it.
fn link(text: &str) -> Option<(&str, &str)> {
    let (inside, after) = enclosed(text, "[", "]")?;
    let (_, after) = enclosed(after, "(", ")")?;
    Some((inside, after))
}

/// `\|` is a bar in a table of Markdown, and `\*` a star.
fn escaped(text: &str) -> Option<(&str, &str)> {
    let after = text.strip_prefix('\\')?;
    let sign = after.chars().next().filter(char::is_ascii_punctuation)?;
    Some(after.split_at(sign.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_emphasis_and_links_become_text() {
        let found = inlines("`0..1`, *Restart* and [`a` link](page.md#x); a\\|b");
        let wanted = vec![
            bold("0..1"),
            roman(", "),
            italic("Restart"),
            roman(" and "),
            bold("a"),
            roman(" link"),
            roman("; a"),
            roman("|"),
            roman("b"),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_not_closed_stays() {
        for text in ["a ` b", "2 * 3", "[x] (y", "[x](y", "``", "\\", "é[", "\\é"] {
            assert_eq!(inlines(text), vec![roman(text)], "{text}");
        }
        assert_eq!(inlines(""), vec![]);
    }

    #[test]
    fn every_description_of_a_setting_is_read_whole() {
        let docs =
            weir_config::tables().iter().flat_map(|table| table.columns.iter().map(|column| column.doc));
        for doc in docs.chain(weir_config::variables().iter().map(|variable| variable.doc)) {
            for piece in inlines(doc) {
                if let Inline::Roman(text) = piece {
                    assert!(!text.contains("](") && !text.contains('`'), "{doc}: {text}");
                }
            }
        }
    }
}
