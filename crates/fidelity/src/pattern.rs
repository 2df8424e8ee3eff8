//! Reads `--only WAY/STATE`.

use std::str::FromStr;

/// Which cells are wanted: names, or parts of names with `*` for the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    way: String,
    state: String,
}

impl Pattern {
    /// Whether the cell of this way and state is.
    pub fn matches(&self, way: &str, state: &str) -> bool {
        fits(&self.way, way) && fits(&self.state, state)
    }
}

impl FromStr for Pattern {
    type Err = String;

    /// `WAY/STATE`; one of them may be left out, as in `call` and `/role`.
    fn from_str(text: &str) -> Result<Pattern, String> {
        let (way, state) = text.split_once('/').unwrap_or((text, ""));
        if state.contains('/') {
            return Err("expected WAY/STATE".to_owned());
        }
        let part = |part: &str| if part.is_empty() { "*".to_owned() } else { part.to_owned() };
        Ok(Pattern { way: part(way), state: part(state) })
    }
}

/// `*` stands for any number of characters.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    (0..=name.len()).any(|at| name.get(at..).is_some_and(|end| fits(rest, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_names_or_parts_of_them() {
        let matches = |text: &str, way, state| text.parse::<Pattern>().unwrap().matches(way, state);
        assert!(matches("call/role", "call", "role"));
        assert!(!matches("call/role", "call-fails", "role"));
        assert!(matches("call*/role", "call-fails", "role"));
        assert!(matches("call", "call", "anything"));
        assert!(matches("/session_track*", "multi", "session_track_schema"));
        assert!(!matches("/session_track*", "multi", "schema"));
        assert!(matches("*fails*/x", "trigger-insert-fails", "x"));
        assert!("a/b/c".parse::<Pattern>().is_err());
    }
}
