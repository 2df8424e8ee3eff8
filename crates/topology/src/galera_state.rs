//! Reads a Galera node's own report of its state.

/// More members than any Galera cluster has; what is beyond is not kept.
const MEMBERS_MAX: usize = 128;

/// The node's status and variables, as of one probe (Galera manual, "Galera Status Variables"; MariaDB and PXC name
/// them alike). The default is a node that says nothing good of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GaleraState {
    /// `wsrep_ready`: the node accepts queries.
    pub ready: bool,
    /// `wsrep_connected`: the node is connected to its cluster.
    pub connected: bool,
    /// `wsrep_cluster_status`: `Primary`, `non-Primary` or `Disconnected`.
    pub cluster_status: String,
    /// `wsrep_cluster_state_uuid`: which history the data belongs to.
    pub cluster_state_uuid: String,
    /// `wsrep_cluster_conf_id`: counts the views of the cluster. 2^64-1 while disconnected.
    pub cluster_conf_id: u64,
    /// `wsrep_cluster_size`: members of the view.
    pub cluster_size: u32,
    /// `wsrep_cluster_weight`: what their votes weigh together for the next view's quorum (`pc.weight`); 0: unknown.
    pub cluster_weight: u32,
    /// `wsrep_incoming_addresses`: the members' addresses by index; many say only `AUTO`.
    pub members: Vec<String>,
    /// `wsrep_local_state`.
    pub local_state: LocalState,
    /// `wsrep_desync`: taken out of flow control by its administrator.
    pub desync: bool,
    /// `wsrep_reject_queries` is not NONE.
    pub reject_queries: bool,
    /// `wsrep_sst_donor_rejects_queries`
    pub sst_donor_rejects_queries: bool,
    /// `pxc_maint_mode`
    pub maintenance: Maintenance,
    /// `read_only`
    pub read_only: bool,
    /// `wsrep_mode` has REPLICATE_MYISAM or REPLICATE_ARIA, or `wsrep_replicate_myisam` is on: writes to tables without
    /// transactions reach the other nodes.
    pub replicates_all_tables: bool,
    /// `wsrep_local_recv_queue`: transactions received and not yet applied.
    pub local_recv_queue: u32,
    /// Share of the time since the last probe for which flow control held the node up, 0..1000 (per mille).
    pub flow_control_paused_permille: u16,
    /// `wsrep_last_committed`: position in the history; -1 (none) is 0.
    pub last_committed: u64,
    /// `wsrep_local_index`: the node's index in the view.
    pub local_index: Option<u32>,
    /// `wsrep_local_cached_downto`: the oldest transaction that it could send to a node that joins.
    pub cached_downto: u64,
    /// `wsrep_gcomm_uuid`: which process it is among the cluster's.
    pub gcomm_uuid: String,
    /// `wsrep_node_name`
    pub node_name: String,
    /// `gmcast.segment` of `wsrep_provider_options`: the network segment, 0 by default.
    pub segment: u8,
    /// `wsrep_flow_control_paused_ns`: total since start; the share is made of two of them.
    pub flow_control_paused_ns: u64,
}

/// `wsrep_local_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LocalState {
    /// Anything else: 0 undefined, 5 inconsistent.
    #[default]
    Other,
    /// 1: receives a state transfer.
    Joining,
    /// 2: gives a state transfer, or is desynced.
    Donor,
    /// 3: catches up.
    Joined,
    /// 4
    Synced,
}

/// `pxc_maint_mode` of Percona XtraDB Cluster; other servers have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Maintenance {
    /// DISABLED
    #[default]
    None,
    /// MAINTENANCE: set by the administrator.
    Wanted,
    /// SHUTDOWN: the server stops after `pxc_maint_transition_period`.
    Shutdown,
}

impl GaleraState {
    /// Reads the rows of SHOW GLOBAL STATUS and SHOW GLOBAL VARIABLES. Names that are not known are passed over, and
    /// values that make no sense leave the field at its default, which never makes a node look better than it is.
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut state = Self::default();
        for (name, value) in rows {
            state.set(&name.to_ascii_lowercase(), value.trim());
        }
        state
    }

    fn set(&mut self, name: &str, value: &str) {
        match name {
            "wsrep_ready" => self.ready = is_on(value),
            "wsrep_connected" => self.connected = is_on(value),
            "wsrep_cluster_status" => self.cluster_status = value.to_owned(),
            "wsrep_cluster_state_uuid" => self.cluster_state_uuid = value.to_owned(),
            "wsrep_cluster_conf_id" => self.cluster_conf_id = value.parse().unwrap_or(0),
            "wsrep_cluster_size" => self.cluster_size = value.parse().unwrap_or(0),
            "wsrep_cluster_weight" => self.cluster_weight = value.parse().unwrap_or(0),
            "wsrep_incoming_addresses" => {
                self.members =
                    value.split(',').take(MEMBERS_MAX).map(|part| part.trim().to_owned()).collect();
            }
            "wsrep_local_state" => self.local_state = LocalState::from_number(value),
            "wsrep_desync" => self.desync = is_on(value),
            "wsrep_reject_queries" => self.reject_queries = !value.eq_ignore_ascii_case("NONE"),
            "wsrep_sst_donor_rejects_queries" => self.sst_donor_rejects_queries = is_on(value),
            "pxc_maint_mode" => {
                self.maintenance = match value.to_ascii_uppercase().as_str() {
                    "DISABLED" => Maintenance::None,
                    "SHUTDOWN" => Maintenance::Shutdown,
                    _ => Maintenance::Wanted,
                }
            }
            // PXC and MySQL: NO_LOCK and the like do not exist here; anything but OFF and 0 is read only.
            "read_only" | "super_read_only" => {
                self.read_only |= !(value.eq_ignore_ascii_case("OFF") || value == "0")
            }
            "wsrep_mode" => {
                let all = ["REPLICATE_MYISAM", "REPLICATE_ARIA"];
                let mut modes = value.split(',').map(str::trim);
                self.replicates_all_tables |=
                    modes.any(|mode| all.iter().any(|all| mode.eq_ignore_ascii_case(all)));
            }
            "wsrep_replicate_myisam" => self.replicates_all_tables |= is_on(value),
            "wsrep_local_recv_queue" => self.local_recv_queue = value.parse().unwrap_or(u32::MAX),
            "wsrep_flow_control_paused_ns" => self.flow_control_paused_ns = value.parse().unwrap_or(0),
            "wsrep_last_committed" => self.last_committed = value.parse().unwrap_or(0),
            "wsrep_local_index" => self.local_index = value.parse().ok(),
            "wsrep_local_cached_downto" => self.cached_downto = value.parse().unwrap_or(0),
            "wsrep_gcomm_uuid" => self.gcomm_uuid = value.to_owned(),
            "wsrep_node_name" => self.node_name = value.to_owned(),
            "wsrep_provider_options" => self.segment = segment(value).unwrap_or(0),
            _ => {}
        }
    }

    /// The node's own address among the members of its view, if it is one that tells it apart.
    pub(crate) fn own_address(&self) -> Option<&str> {
        let own = self.members.get(usize::try_from(self.local_index?).ok()?)?.as_str();
        let known = !own.is_empty() && !own.eq_ignore_ascii_case("AUTO") && !own.starts_with("0.0.0.0");
        (known && self.members.iter().filter(|member| *member == own).count() == 1).then_some(own)
    }

    /// Whether it knows which history its data belongs to; a node that has not joined yet says only zeros.
    pub(crate) fn has_history(&self) -> bool {
        self.cluster_state_uuid.contains(|digit| !matches!(digit, '0' | '-'))
    }

    /// Whether both are the same node: it is listed under two names.
    pub(crate) fn is_same_node(&self, other: &Self) -> bool {
        !self.gcomm_uuid.is_empty() && self.gcomm_uuid == other.gcomm_uuid
    }

    /// Whether it is in the component that has quorum.
    pub fn is_primary(&self) -> bool {
        self.cluster_status.eq_ignore_ascii_case("Primary")
    }
}

impl LocalState {
    fn from_number(value: &str) -> Self {
        match value {
            "1" => Self::Joining,
            "2" => Self::Donor,
            "3" => Self::Joined,
            "4" => Self::Synced,
            _ => Self::Other,
        }
    }

    /// The name as `wsrep_local_state_comment` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "neither Synced nor on its way to it",
            Self::Joining => "Joining",
            Self::Donor => "Donor/Desynced",
            Self::Joined => "Joined",
            Self::Synced => "Synced",
        }
    }
}

fn is_on(value: &str) -> bool {
    value.eq_ignore_ascii_case("ON") || value == "1"
}

fn segment(provider_options: &str) -> Option<u8> {
    let option =
        provider_options.split(';').find_map(|option| option.trim().strip_prefix("gmcast.segment"))?;
    option.trim().strip_prefix('=')?.trim().parse().ok()
}
