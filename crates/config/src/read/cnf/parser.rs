//! Reads the settings of a libconfig file as a tree.

use std::collections::BTreeMap;

use super::lexer::{Fault, Lexer, Token};

/// Deeper than any of ProxySQL's files.
const DEPTH_MAX: usize = 8;

/// `name = value;`
#[derive(Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) name: String,
    /// Of the name, from 1.
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i64),
    Real(f64),
    Text(String),
    /// `{ name = value; ... }`
    Group(Vec<Setting>),
    /// `( value, ... )` or `[ value, ... ]`, each with its line.
    List(Vec<(usize, Value)>),
}

/// The settings of a file, in its order. No name is twice in a group.
///
/// # Errors
/// The first place that is no libconfig.
pub(super) fn parse(text: &str) -> Result<Vec<Setting>, Fault> {
    let mut parser = Parser { lexer: Lexer::new(text), token: Token::End, line: 1, depth: 0 };
    parser.step()?;
    let settings = parser.settings()?;
    match parser.token {
        Token::End => Ok(settings),
        _ => Err(parser.expected("a setting's name or the end")),
    }
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next one, and its line.
    token: Token,
    line: usize,
    depth: usize,
}

impl Parser<'_> {
    /// Takes the next token, and gives it.
    fn step(&mut self) -> Result<Token, Fault> {
        let (token, line) = self.lexer.next()?;
        self.line = line;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn is(&self, mark: char) -> bool {
        self.token == Token::Mark(mark)
    }

    fn expected(&self, what: &str) -> Fault {
        let found = match &self.token {
            Token::Name(name) => format!("\"{name}\""),
            Token::Bool(value) => value.to_string(),
            Token::Integer(number) => number.to_string(),
            Token::Real(number) => number.to_string(),
            // It may be a password.
            Token::Text(_) => "a string".to_owned(),
            Token::Mark(mark) => format!("\"{mark}\""),
            Token::End => "the end of the file".to_owned(),
        };
        Fault { line: self.line, reason: format!("{what} is expected here, not {found}") }
    }

    /// As many settings as there are.
    fn settings(&mut self) -> Result<Vec<Setting>, Fault> {
        let mut settings = Vec::new();
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        while let Token::Name(name) = &self.token {
            let (name, line) = (name.clone(), self.line);
            if let Some(first) = lines.insert(name.clone(), line) {
                return Err(Fault { line, reason: format!("{name} is already there (line {first})") });
            }
            self.step()?;
            if !self.is('=') && !self.is(':') {
                return Err(self.expected("= or :"));
            }
            self.step()?;
            let value = self.value()?;
            if self.is(';') || self.is(',') {
                self.step()?;
            }
            settings.push(Setting { name, line, value });
        }
        Ok(settings)
    }

    fn value(&mut self) -> Result<Value, Fault> {
        let close = match &self.token {
            Token::Mark('{') => '}',
            Token::Mark('(') => ')',
            Token::Mark('[') => ']',
            Token::Mark(_) | Token::Name(_) | Token::End => {
                return Err(self.expected("a value (a text needs quotes)"));
            }
            Token::Bool(_) | Token::Integer(_) | Token::Real(_) | Token::Text(_) => {
                return Ok(match self.step()? {
                    Token::Bool(value) => Value::Bool(value),
                    Token::Integer(number) => Value::Integer(number),
                    Token::Real(number) => Value::Real(number),
                    Token::Text(text) => Value::Text(text),
                    Token::Name(_) | Token::Mark(_) | Token::End => Value::List(Vec::new()),
                });
            }
        };
        if self.depth == DEPTH_MAX {
            return Err(Fault { line: self.line, reason: format!("nested more than {DEPTH_MAX} deep") });
        }
        self.depth += 1;
        self.step()?;
        let value =
            if close == '}' { Value::Group(self.settings()?) } else { Value::List(self.list(close)?) };
        if !self.is(close) {
            let what = if close == '}' { "a setting's name or }" } else { ", or the end of the list" };
            return Err(self.expected(what));
        }
        self.step()?;
        self.depth -= 1;
        Ok(value)
    }

    /// Values with commas between; one behind the last is forgiven.
    fn list(&mut self, close: char) -> Result<Vec<(usize, Value)>, Fault> {
        let mut values = Vec::new();
        while !self.is(close) {
            values.push((self.line, self.value()?));
            if !self.is(',') {
                break;
            }
            self.step()?;
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_groups_and_lists() {
        let text = "a = 1;\nb : \"x\" \"y\"\nc = { d = true, e = [1, 2,]; };\nf = ( { g=1 },\n (), 2.5 ),";
        let named = |name: &str, line, value| Setting { name: name.to_owned(), line, value };
        let wanted = vec![
            named("a", 1, Value::Integer(1)),
            named("b", 2, Value::Text("xy".to_owned())),
            named(
                "c",
                3,
                Value::Group(vec![
                    named("d", 3, Value::Bool(true)),
                    named("e", 3, Value::List(vec![(3, Value::Integer(1)), (3, Value::Integer(2))])),
                ]),
            ),
            named(
                "f",
                4,
                Value::List(vec![
                    (4, Value::Group(vec![named("g", 4, Value::Integer(1))])),
                    (5, Value::List(Vec::new())),
                    (5, Value::Real(2.5)),
                ]),
            ),
        ];
        assert_eq!(parse(text).unwrap(), wanted);
        assert_eq!(parse(" # nothing\n").unwrap(), []);
    }

    #[test]
    fn faults_say_what_is_expected() {
        let deep = format!("a = {}", "(".repeat(DEPTH_MAX + 1));
        for (text, line, reason) in [
            ("a", 1, "= or : is expected here, not the end of the file"),
            ("a =\n;", 2, "a value (a text needs quotes) is expected here, not \";\""),
            ("a = ONLINE", 1, "a value (a text needs quotes) is expected here, not \"ONLINE\""),
            ("a = 1\na = 2", 2, "a is already there (line 1)"),
            ("a = (1 2)", 1, ", or the end of the list is expected here, not 2"),
            ("a = (\n1", 2, ", or the end of the list is expected here, not the end of the file"),
            ("a = {\n{", 2, "a setting's name or } is expected here, not \"{\""),
            ("a = 1;;", 1, "a setting's name or the end is expected here, not \";\""),
            ("a = 1\n\"secret\"", 2, "a setting's name or the end is expected here, not a string"),
            (&deep, 1, "nested more than 8 deep"),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!((fault.line, fault.reason.as_str()), (line, reason), "{text:?}");
        }
    }
}
