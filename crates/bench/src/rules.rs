//! Makes twenty query rules as an application with ProxySQL may have them: most are for somebody else's statements, the
//! last one is met by a plain read.

/// A column of a rule, in ProxySQL's words, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// A number.
    Number(&'static str, i64),
    /// A text.
    Text(&'static str, &'static str),
}

use Column::{Number, Text};

/// Rules that send everything to one of two hostgroups.
pub(crate) fn rules(writer: i64, reader: i64) -> Vec<Vec<Column>> {
    let to_writer = |condition: Column| vec![condition, Number("destination_hostgroup", writer)];
    let refuse = |pattern| vec![Text("match_digest", pattern), Text("error_msg", "not allowed here")];
    let mut rules = vec![
        to_writer(Text("username", "batch")),
        to_writer(Text("username", "migration")),
        vec![Text("username", "reporting"), Number("destination_hostgroup", reader)],
        to_writer(Text("schemaname", "audit")),
        to_writer(Text("digest", "0x3F2A8C1D5E6B7A90")),
        to_writer(Text("digest", "0x91B4D7E2C3A5F608")),
        to_writer(Text("digest", "0x07C5E9A1B2D3F4E6")),
        vec![Text("digest", "0xA4B8C2D6E0F13579"), Number("timeout", 5_000)],
        vec![Text("digest", "0x5D1C9B7A3E2F8046"), Number("timeout", 60_000)],
        refuse(r"^(DROP|TRUNCATE) TABLE"),
        refuse(r"^DELETE FROM \S+$"),
        refuse(r"INTO (OUTFILE|DUMPFILE)"),
        to_writer(Text("match_digest", r"^CALL ")),
        to_writer(Text("match_digest", r"^SELECT .* FROM orders WHERE status ?= ?\?")),
        to_writer(Text("match_digest", r"^SELECT .* FROM (cart|checkout)_")),
        to_writer(Text("match_digest", r"^INSERT INTO (sessions|tokens) ")),
        to_writer(Text("match_digest", r"^SELECT .*(GET_LOCK|RELEASE_LOCK)\(")),
        to_writer(Text("match_digest", r"^SELECT .* LOCK IN SHARE MODE$")),
        to_writer(Text("match_digest", r"^SELECT .* FOR UPDATE")),
        vec![Text("match_digest", r"^SELECT "), Number("destination_hostgroup", reader)],
    ];
    for (i, rule) in rules.iter_mut().enumerate() {
        let id = i64::try_from(i).unwrap_or_default() * 10 + 10;
        rule.splice(0..0, [Number("rule_id", id), Number("active", 1)]);
        rule.push(Number("apply", 1));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twenty_and_the_last_takes_reads() {
        let rules = rules(100, 102);
        assert_eq!(rules.len(), 20);
        let last = rules.last().unwrap();
        assert!(last.contains(&Text("match_digest", "^SELECT ")));
        assert!(last.contains(&Number("destination_hostgroup", 102)));
        assert!(rules.iter().all(|rule| rule.contains(&Number("apply", 1))));
    }
}
