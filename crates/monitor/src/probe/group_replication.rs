//! Probes a server with MySQL Group Replication.

use weir_client::{Connection, Error, QueryResult};
use weir_topology::{GroupState, MemberRow};

/// The columns in the order of [`MemberRow`]. A server that is in no group has no row in the second table.
const MEMBERS: &str = "SELECT m.MEMBER_ID, m.MEMBER_STATE, m.MEMBER_ROLE, s.VIEW_ID, s.COUNT_TRANSACTIONS_IN_QUEUE, \
    s.COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE FROM performance_schema.replication_group_members m \
    LEFT JOIN performance_schema.replication_group_member_stats s ON s.MEMBER_ID = m.MEMBER_ID";
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'group_replication_group_name', \
    'group_replication_single_primary_mode', 'read_only', 'super_read_only')";

pub(super) fn state(connection: &mut Connection) -> Result<GroupState, Error> {
    let members = connection.query(MEMBERS)?;
    let variables = connection.query(VARIABLES)?;
    Ok(GroupState::from_rows(variables.pairs(), rows(&members)))
}

fn rows(members: &QueryResult) -> impl Iterator<Item = MemberRow<'_>> {
    (0..members.rows.len()).map(|row| {
        let text = |column| members.text(row, column).unwrap_or_default();
        MemberRow {
            id: text(0),
            state: text(1),
            role: text(2),
            view_id: text(3),
            certification_queue: text(4),
            applier_queue: text(5),
        }
    })
}
