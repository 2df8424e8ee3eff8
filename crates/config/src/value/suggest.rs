//! Finds the nearest known name, for "did you mean", and makes texts fit to be quoted.

/// Names longer than this are not compared: the distance takes time quadratic in the length.
const NAME_CHARS_MAX: usize = 80;
/// More edits make another name of the longest.
const EDITS_MAX: usize = 8;

/// What is said of a key that nobody knows.
pub(crate) fn unknown_key(name: &str, known: impl Iterator<Item = &'static str>) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("unknown key, did you mean \"{nearest}\"?"),
        None => "unknown key".to_owned(),
    }
}

/// What is said of a word that is none of `allowed`.
pub(crate) fn unknown_word(word: &str, allowed: &[&'static str]) -> String {
    let word = quotable(word);
    match nearest(&word, allowed.iter().copied()) {
        Some(nearest) => format!("unknown word \"{word}\", did you mean \"{nearest}\"?"),
        None => format!("unknown word \"{word}\" (one of: {})", allowed.join(", ")),
    }
}

/// The known name with the fewest edits, letter case aside, if they are few for its length; the first of several.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let count = name.chars().count();
    if count > NAME_CHARS_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let edits_max = (count / 3).clamp(1, EDITS_MAX);
    known
        .into_iter()
        .filter(|candidate| candidate.chars().count().abs_diff(count) <= edits_max)
        .map(|candidate| (strsim::damerau_levenshtein(&name, &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= edits_max)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// The longest text that a fault quotes, in characters.
const QUOTE_CHARS_MAX: usize = 60;

/// `text` fit for one line of a terminal.
pub(crate) fn quotable(text: &str) -> String {
    let mut out: String =
        text.chars().take(QUOTE_CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(QUOTE_CHARS_MAX).is_some() {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_edits_are_needed() {
        let known = ["LOAD MYSQL USERS TO RUNTIME", "mysql-threads"];
        assert_eq!(nearest("load mysql user to runtime", known), Some(known[0]));
        assert_eq!(nearest("mysql-thread", known), Some(known[1]));
        assert_eq!(nearest("DROP DATABASE", known), None);
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }
}
