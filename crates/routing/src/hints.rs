//! Reads hints in a statement's first comment: `/* hostgroup=2;query_timeout=500 */`.

use weir_sql::{Dialect, Lexer, TokenKind};
use weir_topology::Gtid;

use crate::{CommitOutcome, Consistency, Decision, ReplayMode, TransactionSettings};

/// A first comment is only looked for in so many bytes of a statement.
const LOOKED_AT_BYTES_MAX: usize = 65_000;
/// A longer comment has no hints.
const COMMENT_BYTES_MAX: usize = 4096;

/// The hints that a statement gives about its own routing. Keys that are unknown, and values that don't fit, are what
/// they look like: a comment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `hostgroup`
    pub hostgroup: Option<u32>,
    /// `query_timeout`
    pub timeout_ms: Option<u32>,
    /// `query_retries`
    pub retries: Option<u32>,
    /// `query_delay`
    pub delay_ms: Option<u32>,
    /// `weir_consistency`
    pub consistency: Option<Consistency>,
    /// `weir_replay` and `weir_commit_outcome`
    pub transactions: TransactionSettings,
    /// `min_gtid`: the transaction that the server must have executed. Rules say nothing of it, and it is no part of a decision.
    pub min_gtid: Option<Gtid>,
    /// There is a `min_gtid` that is no transaction's id.
    pub has_bad_gtid: bool,
}

/// When hints are looked at: mysql-query_processor_first_comment_parsing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintOrder {
    /// 1: before the rules, which have the last word.
    Before,
    /// 2: after the rules, whatever they say.
    #[default]
    After,
    /// 3: both, so that hints have the last word.
    Both,
}

impl Hints {
    /// Reads the first comment of the form `/* */` in a statement, wherever it stands.
    pub fn of(statement: &[u8], dialect: Dialect) -> Self {
        let looked_at = &statement[..statement.len().min(LOOKED_AT_BYTES_MAX)];
        // Most statements have none, and this is a fraction of the cost of reading them.
        if !has_comment(looked_at) {
            return Self::default();
        }
        first_comment(looked_at, dialect).map(Self::parse).unwrap_or_default()
    }

    /// Reads what is between `/*` and `*/`.
    pub fn parse(comment: &[u8]) -> Self {
        let mut hints = Self::default();
        for part in comment.split(|byte| *byte == b';') {
            let mut sides = part.splitn(2, |byte| *byte == b'=');
            let (Some(name), Some(value)) = (sides.next(), sides.next()) else { continue };
            // An optimizer hint, `/*+ ;hostgroup=2 */`, may stand in front.
            let name = name.trim_ascii();
            let name = name.strip_prefix(b"+").map_or(name, <[u8]>::trim_ascii_start);
            let value = value.trim_ascii();
            if name == b"weir_consistency" {
                hints.consistency = Consistency::of_word(value).or(hints.consistency);
                continue;
            }
            if name == b"weir_replay" {
                let transactions = &mut hints.transactions;
                transactions.replay = ReplayMode::of_word(value).or(transactions.replay);
                continue;
            }
            if name == b"weir_commit_outcome" {
                let transactions = &mut hints.transactions;
                transactions.commit_outcome = CommitOutcome::of_word(value).or(transactions.commit_outcome);
                continue;
            }
            if name == b"min_gtid" {
                let gtid = Gtid::parse(value);
                hints.min_gtid = gtid.or(hints.min_gtid);
                hints.has_bad_gtid |= gtid.is_none();
                continue;
            }
            let Some(value) = number(value) else { continue };
            match name {
                b"hostgroup" => hints.hostgroup = Some(value),
                b"query_timeout" => hints.timeout_ms = Some(value),
                b"query_retries" => hints.retries = Some(value),
                b"query_delay" => hints.delay_ms = Some(value),
                _ => {}
            }
        }
        hints
    }

    pub(crate) fn decision(self) -> Decision {
        Decision {
            hostgroup: self.hostgroup,
            is_hinted: self.hostgroup.is_some(),
            timeout_ms: self.timeout_ms.filter(|timeout_ms| *timeout_ms > 0),
            retries: self.retries,
            delay_ms: self.delay_ms,
            hinted_consistency: self.consistency,
            hinted_transactions: self.transactions,
            ..Decision::default()
        }
    }
}

fn has_comment(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair == b"/*")
}

/// What is in the first plain comment that stands between two tokens: neither in a string nor executed by a server.
fn first_comment(text: &[u8], dialect: Dialect) -> Option<&[u8]> {
    let mut lexer = Lexer::of_all_comments(text, dialect);
    let mut end = 0;
    loop {
        let token = lexer.token();
        let start = if token.kind == TokenKind::End { text.len() } else { token.start() };
        if let Some(comment) = text.get(end..start).and_then(plain_comment) {
            return Some(comment);
        }
        if token.kind == TokenKind::End {
            return None;
        }
        end = token.end();
    }
}

/// The first plain comment among what stands between two tokens: spaces and comments of every kind.
fn plain_comment(gap: &[u8]) -> Option<&[u8]> {
    let mut rest = gap;
    loop {
        let at = rest.iter().position(|byte| matches!(byte, b'#' | b'-' | b'/'))?;
        rest = &rest[at..];
        if !rest.starts_with(b"/*") {
            // To the end of the line; a lone sign is none of a comment's.
            rest = &rest[rest.iter().position(|byte| *byte == b'\n')?..];
            continue;
        }
        let inside = &rest[2..];
        if inside.starts_with(b"!") || inside.starts_with(b"M!") {
            rest = inside;
            continue;
        }
        let len = inside.windows(2).position(|pair| pair == b"*/")?;
        return (len <= COMMENT_BYTES_MAX).then(|| &inside[..len]);
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    // Hostgroups and times are 31 bits wide everywhere.
    text.parse::<u32>().ok().filter(|value| i32::try_from(*value).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_of_statements() {
        let hostgroup = |hostgroup| Hints { hostgroup: Some(hostgroup), ..Hints::default() };
        for (statement, hints) in [
            ("/* hostgroup=2 */ SELECT 1", hostgroup(2)),
            ("/*hostgroup=2*/SELECT 1", hostgroup(2)),
            ("  \n/* hostgroup = 2 */ SELECT 1", hostgroup(2)),
            ("/* ;hostgroup=2; */ SELECT 1", hostgroup(2)),
            ("SELECT /* hostgroup=2 */ 1", hostgroup(2)),
            ("SELECT 1 /* hostgroup=2 */", hostgroup(2)),
            ("SELECT /*+ MAX_EXECUTION_TIME(9) ;hostgroup=2 */ 1", hostgroup(2)),
            ("-- a word\n/* hostgroup=2 */ SELECT 1", hostgroup(2)),
            (
                "SELECT /* weir_consistency = Global */ 1",
                Hints { consistency: Some(Consistency::Global), ..Hints::default() },
            ),
            ("/* weir_consistency=causal */ SELECT 1", Hints::default()),
            (
                "/* weir_replay=ON; weir_commit_outcome = marker */ START TRANSACTION",
                Hints {
                    transactions: TransactionSettings {
                        replay: Some(ReplayMode::On),
                        commit_outcome: Some(CommitOutcome::Marker),
                    },
                    ..Hints::default()
                },
            ),
            (
                "BEGIN /* weir_replay=0 */",
                Hints {
                    transactions: TransactionSettings { replay: Some(ReplayMode::Off), commit_outcome: None },
                    ..Hints::default()
                },
            ),
            ("/* weir_replay=yes;weir_commit_outcome=1 */ BEGIN", Hints::default()),
            ("SELECT 1 - /* hostgroup=2 */ 2", hostgroup(2)),
            ("/* controller=users */ SELECT 1", Hints::default()),
            ("/* hostgroup=x */ SELECT 1", Hints::default()),
            ("/* hostgroup=-1 */ SELECT 1", Hints::default()),
            ("/* hostgroup=99999999999 */ SELECT 1", Hints::default()),
            ("/* HOSTGROUP=2 */ SELECT 1", Hints::default()),
            ("/*! hostgroup=2 */ SELECT 1", Hints::default()),
            ("/* one */ SELECT /* hostgroup=2 */ 1", Hints::default()),
            ("SELECT '/* hostgroup=2 */'", Hints::default()),
            ("SELECT `/* hostgroup=2 */`", Hints::default()),
            ("-- /* hostgroup=2 */\nSELECT 1", Hints::default()),
            ("# /* hostgroup=2 */\nSELECT 1", Hints::default()),
            ("/* hostgroup=2", Hints::default()),
            (
                "/* query_timeout=100;query_retries=3;query_delay=20;hostgroup=0;mirror=7 */ SELECT 1",
                Hints {
                    hostgroup: Some(0),
                    timeout_ms: Some(100),
                    retries: Some(3),
                    delay_ms: Some(20),
                    ..Hints::default()
                },
            ),
        ] {
            assert_eq!(Hints::of(statement.as_bytes(), Dialect::default()), hints, "{statement}");
        }
    }

    #[test]
    fn the_transaction_that_has_to_be_there() {
        const GTID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23";
        let of = |statement: &str| Hints::of(statement.as_bytes(), Dialect::default());
        let having = |gtid: &str| Hints { min_gtid: Gtid::parse(gtid.as_bytes()), ..Hints::default() };
        for comment in
            [format!("min_gtid={GTID}"), format!(";min_gtid={GTID}"), format!(" ; min_gtid = {GTID} ; ")]
        {
            assert_eq!(of(&format!("SELECT /*{comment}*/ 1")), having(GTID), "{comment}");
            assert_eq!(of(&format!("/*{comment}*/ SELECT 1")), having(GTID), "{comment}");
        }
        assert_eq!(of("/* min_gtid=0-1-100 */ SELECT 1"), having("0-1-100"));
        let with_hostgroup = Hints { hostgroup: Some(2), ..having(GTID) };
        assert_eq!(of(&format!("/* hostgroup=2;min_gtid={GTID} */ SELECT 1")), with_hostgroup);
        for value in ["", "1", "uuid:1", &GTID[1..], &format!("{GTID}-24"), &format!("{GTID},{GTID}")] {
            let hints = of(&format!("/* min_gtid={value} */ SELECT 1"));
            assert_eq!(hints, Hints { has_bad_gtid: true, ..Hints::default() }, "{value}");
        }
    }
}
