//! Splits several statements in one text, as `init_connect` has them.

/// A fault of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SplitError {
    /// A quotation that nothing ends.
    #[error("unterminated quote {0}")]
    Quotation(char),
    /// A comment that nothing ends.
    #[error("unterminated comment")]
    Comment,
}

/// The statements between semicolons, without the empty ones. Strings, quoted names and comments may contain semicolons;
/// a backslash escapes within strings, as it does where sql_mode has no NO_BACKSLASH_ESCAPES.
pub(crate) fn split(text: &str) -> Result<Vec<String>, SplitError> {
    let mut statements = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let Some(statement) = statements.last_mut() else { break };
        match c {
            ';' => {
                statements.push(String::new());
                continue;
            }
            '/' if rest.peek() == Some(&'*') => {
                statement.push(c);
                let mut before = ' ';
                loop {
                    let c = rest.next().ok_or(SplitError::Comment)?;
                    statement.push(c);
                    // Not the star that the comment begins with.
                    if before == '*' && c == '/' && !statement.ends_with("/*/") {
                        break;
                    }
                    before = c;
                }
                continue;
            }
            '\'' | '"' | '`' => {
                statement.push(c);
                loop {
                    let next = rest.next().ok_or(SplitError::Quotation(c))?;
                    statement.push(next);
                    if next == '\\' && c != '`' {
                        statement.push(rest.next().ok_or(SplitError::Quotation(c))?);
                    } else if next == c {
                        break;
                    }
                }
                continue;
            }
            _ => statement.push(c),
        }
    }
    let trimmed = statements.iter().map(|statement| statement.trim());
    Ok(trimmed.filter(|statement| !statement.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        for (text, statements) in [
            ("", &[] as &[&str]),
            (" ; ;", &[]),
            ("SET a=1", &["SET a=1"]),
            (" SET a=1 ; SET b=2;", &["SET a=1", "SET b=2"]),
            ("SET a=';'; SET `b;`=2", &["SET a=';'", "SET `b;`=2"]),
            (r#"SET a='\';'; SET b="x"";""#, &[r"SET a='\';'", r#"SET b="x"";""#]),
            (r"SET `\`=1; SET b=2", &[r"SET `\`=1", "SET b=2"]),
            ("SET /* ; */ a=1; SET b=1/2", &["SET /* ; */ a=1", "SET b=1/2"]),
            ("SET a=1 /*/ ; */; SET b=2", &["SET a=1 /*/ ; */", "SET b=2"]),
        ] {
            let expected: Vec<String> = statements.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(split(text), Ok(expected), "{text}");
        }
        assert_eq!(split("SET a='x"), Err(SplitError::Quotation('\'')));
        assert_eq!(split(r"SET a='x\'"), Err(SplitError::Quotation('\'')));
        assert_eq!(split("SET a=1 /* x"), Err(SplitError::Comment));
    }
}
