//! Lists the known differences: every limit that the guide names (docs/guide/multiplexing-limits.md), with the cells
//! where it shows. A difference that none of them covers is wrong.

use serde::Serialize;
use weir_testkit::Family;

use crate::comparison::{Finding, Moment, Outcome};
use crate::pattern::fits;
use crate::session_view::Looker;
use crate::stage::Plan;
use crate::state::State;

/// Ways in which a server comes to code that no text shows.
const HIDDEN_CODE: [&str; 2] = ["trigger-*", "view"];

/// What a client is shown of its session's changes.
const TRACKING: [&str; 3] =
    ["session_track_gtids", "session_track_state_change", "session_track_transaction_info"];

/// Something that Weir can't do as a server does.
#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    #[serde(skip)]
    ways: &'static [&'static str],
    #[serde(skip)]
    states: &'static [&'static str],
    /// What shows it.
    #[serde(skip)]
    labels: &'static [&'static str],
    /// At servers of this family only.
    #[serde(skip)]
    family: Option<Family>,
    /// Whether others than the session itself see it, by whether connections are reset after hidden code.
    #[serde(skip)]
    is_seen_by_others: fn(is_reset: bool, moment: Moment) -> bool,
}

/// All of them. Each explains only what its labels show: the rest of a cell must be as at the server.
pub(crate) const ALL: [Limit; 6] = [
    Limit {
        name: "hidden lock",
        why: "GET_LOCK() in a trigger or behind a view is not reported: the lock is the connection's, until it \
              is reset, and is lost then",
        ways: &HIDDEN_CODE,
        states: &["user-lock"],
        labels: &[
            "SELECT IS_FREE_LOCK('<lock>')",
            "SELECT GET_LOCK('<lock>', 0)",
            "DO RELEASE_LOCK('<lock>')",
        ],
        family: None,
        is_seen_by_others: |is_reset, moment| !is_reset || moment == Moment::There,
    },
    Limit {
        name: "hidden temporary table",
        why: "CREATE TEMPORARY TABLE ... SELECT in a trigger or behind a view is not reported",
        ways: &HIDDEN_CODE,
        states: &["temporary-table"],
        labels: &["SELECT what FROM <s>.shadow"],
        family: None,
        is_seen_by_others: |is_reset, _| !is_reset,
    },
    Limit {
        name: "hidden SET @@x",
        why: "MariaDB does not report SET @@x without a scope in a trigger or behind a view",
        ways: &HIDDEN_CODE,
        states: &["setting-without-scope"],
        labels: &["time_zone"],
        family: Some(Family::Mariadb),
        is_seen_by_others: |is_reset, _| !is_reset,
    },
    Limit {
        name: "hidden SET ROLE",
        why: "MySQL does not report SET ROLE in a trigger or behind a view: other sessions of the same user have the role",
        ways: &HIDDEN_CODE,
        states: &["role"],
        labels: &["CURRENT_ROLE()"],
        family: Some(Family::Mysql),
        is_seen_by_others: |is_reset, _| !is_reset,
    },
    Limit {
        name: "tracking before an error",
        why: "what code that has failed has set session_track_... to is not known until the server reports it, with the next \
              change",
        ways: &["*-fails"],
        states: &TRACKING,
        labels: &TRACKING,
        family: None,
        is_seen_by_others: |_, _| false,
    },
    Limit {
        name: "hidden INTO @x",
        why: "SELECT ... INTO @x in a trigger or behind a view is not reported: the session loses it when others have used \
              its connection",
        ways: &HIDDEN_CODE,
        states: &["user-variable-into"],
        labels: &["SELECT @fid"],
        family: None,
        is_seen_by_others: |_, _| false,
    },
];

impl Limit {
    fn covers(&self, (way, state): (&str, &State), family: Family) -> bool {
        self.family.is_none_or(|only| only == family)
            && self.ways.iter().any(|pattern| fits(pattern, way))
            && self.states.contains(&state.name.as_str())
    }

    fn explain(&self, is_reset: bool, findings: &mut [Finding]) -> Option<&'static str> {
        let is_explained = |finding: &Finding| {
            finding.outcome == Outcome::Wrong
                && self.labels.contains(&finding.label.as_str())
                && (finding.who == Looker::A || (self.is_seen_by_others)(is_reset, finding.moment))
        };
        let mut explained = None;
        for finding in findings.iter_mut().filter(|finding| is_explained(finding)) {
            finding.outcome = Outcome::Limit;
            explained = Some(self.name);
        }
        explained
    }
}

/// Marks those differences of a cell that a limit explains.
pub(crate) fn explain(
    cell: (&str, &State),
    plan: &Plan<'_>,
    findings: &mut [Finding],
) -> Option<&'static str> {
    let limit = ALL.iter().find(|limit| limit.covers(cell, plan.family))?;
    limit.explain(plan.reset_after_hidden_code, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::catalogue;

    fn outcomes(cell: (&str, &str), is_reset: bool, found: &[(Looker, &str)]) -> Vec<Outcome> {
        let state = catalogue(Family::Mariadb).into_iter().find(|state| state.name == cell.1).unwrap();
        let finding = |(who, label): &(Looker, &str)| Finding {
            outcome: Outcome::Wrong,
            who: *who,
            moment: Moment::Gone,
            is_late: false,
            label: (*label).to_owned(),
            text: String::new(),
        };
        let mut findings: Vec<Finding> = found.iter().map(finding).collect();
        if let Some(limit) = ALL.iter().find(|limit| limit.covers((cell.0, &state), Family::Mariadb)) {
            limit.explain(is_reset, &mut findings);
        }
        findings.into_iter().map(|finding| finding.outcome).collect()
    }

    #[test]
    fn a_limit_explains_what_its_state_shows_and_nothing_else() {
        use Outcome::{Limit, Wrong};
        let shadow = "SELECT what FROM <s>.shadow";
        let found = [(Looker::B, shadow), (Looker::A, shadow), (Looker::B, "sql_mode")];
        assert_eq!(outcomes(("trigger-insert", "temporary-table"), false, &found), [Limit, Limit, Wrong]);
        assert_eq!(outcomes(("trigger-insert", "temporary-table"), true, &found), [Wrong, Limit, Wrong]);
        assert_eq!(outcomes(("call", "temporary-table"), false, &found), [Wrong; 3]);
        let into = [(Looker::A, "SELECT @fid"), (Looker::B, "SELECT @fid")];
        assert_eq!(outcomes(("view", "user-variable-into"), false, &into), [Limit, Wrong]);
        assert_eq!(outcomes(("view", "user-variable"), false, &into), [Wrong; 2]);
    }

    #[test]
    fn every_limit_is_about_a_state_and_a_way_that_there_are() {
        for limit in &ALL {
            let family = limit.family.unwrap_or(Family::Mysql);
            let (states, ways) = (catalogue(family), crate::way::catalogue(family));
            for wanted in limit.states.iter().filter(|state| !state.starts_with("session_track")) {
                assert!(states.iter().any(|state| state.name == *wanted), "{wanted}");
            }
            for pattern in limit.ways {
                assert!(ways.iter().any(|way| fits(pattern, way.name)), "{pattern}");
            }
        }
    }
}
