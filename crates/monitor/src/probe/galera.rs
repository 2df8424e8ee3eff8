//! Probes a Galera node.

use std::time::Instant;

use weir_client::{Connection, Error};
use weir_topology::GaleraState;

const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_connected', \
    'wsrep_cluster_status', 'wsrep_cluster_state_uuid', 'wsrep_cluster_conf_id', 'wsrep_cluster_size', \
    'wsrep_cluster_weight', 'wsrep_incoming_addresses', 'wsrep_local_state', 'wsrep_local_recv_queue', \
    'wsrep_flow_control_paused_ns', 'wsrep_last_committed', 'wsrep_local_index', 'wsrep_local_cached_downto', 'wsrep_gcomm_uuid')";
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_node_name', 'wsrep_desync', \
    'wsrep_reject_queries', 'wsrep_sst_donor_rejects_queries', 'pxc_maint_mode', 'read_only', 'super_read_only', \
    'wsrep_mode', 'wsrep_replicate_myisam')";
const PROVIDER_OPTIONS: &str = "SHOW GLOBAL VARIABLES LIKE 'wsrep_provider_options'";

/// `wsrep_cluster_conf_id` of a node that is in no view: -1.
const NO_VIEW: u64 = u64::MAX;

/// What is kept from one look to the next.
#[derive(Default)]
pub(super) struct Memory {
    /// `wsrep_provider_options`, which doesn't change while the server runs as far as Weir uses it.
    provider_options: String,
    /// When flow control was last looked at, and what it said.
    paused: Option<(Instant, u64)>,
}

impl Memory {
    /// What a new connection is asked once.
    pub(super) fn begin(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let options = connection.query(PROVIDER_OPTIONS)?;
        self.provider_options = options.text(0, 1).unwrap_or_default().to_owned();
        Ok(())
    }

    pub(super) fn state(&mut self, connection: &mut Connection) -> Result<GaleraState, Error> {
        let status = connection.query(STATUS)?;
        let variables = connection.query(VARIABLES)?;
        let options = [("wsrep_provider_options", self.provider_options.as_str())];
        let mut state = GaleraState::from_rows(status.pairs().chain(variables.pairs()).chain(options));
        leave_view(&mut state);
        let now = Instant::now();
        if let Some((then, paused_ns)) = self.paused.replace((now, state.flow_control_paused_ns)) {
            let elapsed_ns = now.duration_since(then).as_nanos();
            state.flow_control_paused_permille =
                permille(paused_ns, state.flow_control_paused_ns, elapsed_ns);
        }
        Ok(state)
    }
}

/// The server does not report its variables as of one moment. A node that leaves its cluster may still say that it is connected,
/// and Primary, when the number of its view is gone already (2^64-1), which would be newer than that of every other node.
/// Seen with Galera 26.4.23.
fn leave_view(state: &mut GaleraState) {
    state.connected &= state.cluster_conf_id != NO_VIEW;
}

/// Share of the elapsed time for which flow control held the node up. The counter starts again with the server.
fn permille(before_ns: u64, after_ns: u64, elapsed_ns: u128) -> u16 {
    let paused_ns = u128::from(after_ns.saturating_sub(before_ns));
    let share = (paused_ns * 1000).checked_div(elapsed_ns).unwrap_or(0);
    u16::try_from(share.min(1000)).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_view_is_not_connected() {
        let seen = |conf_id| {
            let rows = [
                ("wsrep_connected", "ON"),
                ("wsrep_cluster_status", "Primary"),
                ("wsrep_cluster_conf_id", conf_id),
            ];
            let mut state = GaleraState::from_rows(rows);
            leave_view(&mut state);
            state.connected
        };
        assert!(seen("6"));
        assert!(!seen("18446744073709551615"));
    }

    #[test]
    fn the_share_of_flow_control() {
        assert_eq!(permille(0, 50_000_000, 100_000_000), 500);
        assert_eq!(permille(10, 10, 100), 0);
        assert_eq!(permille(100, 5, 100), 0, "the server has been started again");
        assert_eq!(permille(0, 1000, 10), 1000);
        assert_eq!(permille(0, 1000, 0), 0);
    }
}
