//! Finds the nearest known command or name, for "did you mean".

/// Longer texts are not compared: the distance takes time quadratic in the length.
const CHARS_MAX: usize = 80;

/// The candidate with the fewest edits, letter case aside, if they are few for its length; the first of several.
pub(crate) fn nearest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let count = text.chars().count();
    if count > CHARS_MAX {
        return None;
    }
    let text = text.to_lowercase();
    let edits_max = (count / 3).clamp(1, 8);
    candidates
        .into_iter()
        .filter(|candidate| candidate.chars().count().abs_diff(count) <= edits_max)
        .map(|candidate| (strsim::damerau_levenshtein(&text, &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= edits_max)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
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
