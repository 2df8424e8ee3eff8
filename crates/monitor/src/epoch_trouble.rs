//! Says what is wrong with the agreement about a cluster, and what follows for writes.

use weir_topology::EpochTrouble;

use crate::epoch_client::EpochScope;

/// For so long the tables may not be read, or the lease be over, before that is said.
const UNREAD_MS: u64 = 5_000;
/// What ends it where the account may not use the tables and writes need them.
const NEXT_STEP: &str = "; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.* to the monitor's account, or, if no \
                         other Weir is in front of it, set weir_topology.epoch to optional";

/// What is known of the tables of one cluster.
pub(crate) struct Facts<'a> {
    pub(crate) scope: EpochScope,
    /// Facts alone must do.
    pub(crate) goes_by_facts: bool,
    /// Other Weirs are known.
    pub(crate) has_others: bool,
    /// Why the account may not use the tables, or why they are unfit.
    pub(crate) denied: Option<&'a str>,
    /// Why they could not be read, or this Weir's row not be written.
    pub(crate) fault: Option<&'a str>,
    /// For how long they have not been read.
    pub(crate) unread_ms: u64,
    /// For how long the lease has been over; none while writes are sent.
    pub(crate) stopped_ms: Option<u64>,
}

/// What is to be known of an epoch that can't be read or written; none while all is well, or may be in a moment.
pub(crate) fn trouble(facts: &Facts<'_>) -> Option<EpochTrouble> {
    let cause = facts.denied.or(facts.fault)?;
    let is_refused = facts.denied.is_some();
    let is_stopped_long = facts.stopped_ms.is_some_and(|ms| ms >= UNREAD_MS);
    if facts.unread_ms < UNREAD_MS && !is_refused && !is_stopped_long {
        return None;
    }
    let needs_epoch = facts.scope == EpochScope::Writer && !facts.goes_by_facts;
    let stops_writes = needs_epoch && facts.stopped_ms.is_some();
    let step = if is_refused { NEXT_STEP } else { "" };
    let words = match facts.scope {
        EpochScope::Plans if facts.has_others && is_refused => format!(
            "weir.topology can't be used ({cause}): the other Weirs are not told of switchovers and drains; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.* to the monitor's account"
        ),
        EpochScope::Plans => return None,
        EpochScope::Writer if facts.goes_by_facts => format!(
            "weir.topology can't be used ({cause}): this Weir chooses the writer by its own observations"
        ),
        EpochScope::Writer if stops_writes => {
            format!("weir.topology can't be used ({cause}): NO WRITE IS SENT to this cluster{step}")
        }
        EpochScope::Writer => {
            format!("weir.topology can't be used ({cause}): writes are sent until the lease is over{step}")
        }
    };
    Some(EpochTrouble { words: words.into(), stops_writes, is_refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts<'static> {
        Facts {
            scope: EpochScope::Writer,
            goes_by_facts: false,
            has_others: true,
            denied: None,
            fault: Some("no answer for 1000 ms"),
            unread_ms: 60_000,
            stopped_ms: None,
        }
    }

    #[test]
    fn writes_have_stopped_only_when_the_lease_is_over() {
        let during_ddl = trouble(&facts()).expect("the tables have not been read for long");
        assert!(
            !during_ddl.stops_writes && during_ddl.words.contains("until the lease is over"),
            "{during_ddl}"
        );
        let over = trouble(&Facts { stopped_ms: Some(0), ..facts() }).expect("it is over");
        assert!(over.stops_writes && !over.is_refused && over.words.contains("NO WRITE IS SENT"), "{over}");
        let revoked = trouble(&Facts { denied: Some("denied"), unread_ms: 0, ..facts() }).expect("denied");
        assert!(!revoked.stops_writes && revoked.is_refused && revoked.words.contains("GRANT"), "{revoked}");
    }

    #[test]
    fn a_lease_that_ends_although_the_tables_are_read_is_seen() {
        let unwritten = |ms| trouble(&Facts { unread_ms: 0, stopped_ms: Some(ms), ..facts() });
        assert_eq!(unwritten(100), None, "another beat may come");
        assert!(unwritten(6000).expect("none came").stops_writes);
        assert_eq!(trouble(&Facts { unread_ms: 100, ..facts() }), None);
    }
}
