//! Finds the nearest known name, for "did you mean", and makes texts fit to be quoted.

/// Names longer than this are not compared: the distance takes time quadratic in the length.
const NAME_CHARS_MAX: usize = 80;

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
    match nearest(&word.to_ascii_uppercase(), allowed.iter().copied())
        .or_else(|| nearest(&word, allowed.iter().copied()))
    {
        Some(nearest) => format!("unknown word \"{word}\", did you mean \"{nearest}\"?"),
        None => format!("unknown word \"{word}\" (one of: {})", allowed.join(", ")),
    }
}

/// The known name with the fewest edits, if they are few for its length; the first of several.
pub(crate) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if name.chars().count() > NAME_CHARS_MAX {
        return None;
    }
    let edits_max = (name.chars().count() / 3).clamp(1, 6);
    known
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
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
