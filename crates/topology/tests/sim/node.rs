//! A modelled Galera node: what it is, and what it says of itself.

use weir_topology::{Endpoint, GaleraState, LocalState, Maintenance, ProbeError};

use crate::cluster::ClusterSettings;
use crate::queue::Time;

/// The most nodes of a world.
pub(crate) const NODES_MAX: usize = 5;

/// What the operating system makes of a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// Its port refuses connections.
    Dead,
    /// It works.
    Running,
    /// SIGSTOP: the kernel accepts connections, nobody answers.
    Hung,
}

/// A membership that a set of nodes has agreed on.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) primary: bool,
    pub(crate) conf_id: u64,
    /// Bit n: node n.
    pub(crate) members: u8,
    /// Which life of each node.
    pub(crate) lives: [u32; NODES_MAX],
    /// Members that have left in order since: they do not count for the quorum of the next view.
    pub(crate) left: u8,
    pub(crate) history: usize,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) process: Process,
    /// Counts its starts.
    pub(crate) life: u32,
    /// The view that it has installed, an index into the cluster's views.
    pub(crate) view: Option<usize>,
    /// The view that it is about to install.
    pub(crate) installing: Option<usize>,
    /// The last Primary view that it took part in; what it counts the quorum by.
    pub(crate) last_primary: Option<usize>,
    pub(crate) state: LocalState,
    /// Which history its data belongs to.
    pub(crate) history: usize,
    /// That began as the cluster's, and goes by its UUID.
    pub(crate) is_branch: bool,
    /// Whether it has all transactions up to `received`.
    pub(crate) complete: bool,
    /// Transactions received, in the order of the history.
    pub(crate) received: usize,
    /// Transactions applied; what a crash leaves.
    pub(crate) applied: usize,
    pub(crate) applied_at: Time,
    /// Time to apply one, in microseconds.
    pub(crate) apply_us: u64,
    /// Counts state transfers and what ends them, so that late events are known.
    pub(crate) transfer: u32,
    /// During an SST the joiner takes no connections.
    pub(crate) is_open: bool,
    /// When the present life may take part in the group: its predecessor must have been noticed missing.
    pub(crate) joins_at: Time,
    pub(crate) read_only: bool,
    pub(crate) desync: bool,
    pub(crate) rejects: bool,
    pub(crate) donor_rejects: bool,
    pub(crate) maintenance: Maintenance,
    /// Transactions in the receive queue that are not the model's.
    pub(crate) backlog: u32,
    pub(crate) paused_permille: u16,
    /// Answers "too many connections".
    pub(crate) busy: bool,
    pub(crate) segment: u8,
    /// Writes that wait for the group, by index.
    pub(crate) pending: Vec<usize>,
    /// Writes that have come while it hangs.
    pub(crate) unread: Vec<usize>,
    /// When it stopped being a working member of the newest Primary component; none while it is one.
    pub(crate) quorum_lost_at: Option<Time>,
    /// When it stopped being up to date; none while it is.
    pub(crate) stale_since: Option<Time>,
    /// When it stopped calling itself a member of a Primary component.
    pub(crate) claim_lost_at: Option<Time>,
    /// Since when it could take a write.
    pub(crate) writable_since: Option<Time>,
    /// Since when it can take none, and from when until when it could take none last.
    pub(crate) unwritable_since: Option<Time>,
    pub(crate) lapse: (Time, Time),
}

impl Node {
    /// A member of the first view, which all nodes share.
    pub(crate) fn new(segment: u8) -> Self {
        Self {
            process: Process::Running,
            life: 0,
            view: Some(0),
            installing: None,
            last_primary: Some(0),
            state: LocalState::Synced,
            history: 0,
            is_branch: false,
            complete: true,
            received: 0,
            applied: 0,
            applied_at: 0,
            apply_us: 50,
            transfer: 0,
            is_open: true,
            joins_at: 0,
            read_only: false,
            desync: false,
            rejects: false,
            donor_rejects: false,
            maintenance: Maintenance::None,
            backlog: 0,
            paused_permille: 0,
            busy: false,
            segment,
            pending: Vec::new(),
            unread: Vec::new(),
            quorum_lost_at: None,
            stale_since: None,
            claim_lost_at: None,
            writable_since: Some(0),
            unwritable_since: None,
            lapse: (0, 0),
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.process == Process::Running
    }

    /// The view that it will be in when it has done what it is about to do.
    pub(crate) fn target(&self) -> Option<usize> {
        self.installing.or(self.view)
    }

    /// Whether nothing but the group keeps it from writing.
    pub(crate) fn wants_writes(&self) -> bool {
        self.state == LocalState::Synced
            && !self.read_only
            && !self.desync
            && !self.rejects
            && !self.busy
            && self.maintenance == Maintenance::None
    }

    /// Whether nothing but the group keeps it from reading.
    pub(crate) fn wants_reads(&self) -> bool {
        let donor = self.state == LocalState::Donor && !self.donor_rejects;
        (self.state == LocalState::Synced || donor)
            && !self.rejects
            && !self.busy
            && self.maintenance == Maintenance::None
    }

    /// Lets it apply what time allows.
    pub(crate) fn apply(&mut self, now: Time) {
        let done = usize::try_from((now - self.applied_at) / self.apply_us.max(1)).unwrap_or(usize::MAX);
        if self.runs() && done > 0 {
            self.applied = self.received.min(self.applied.saturating_add(done));
        }
        self.applied_at = now;
    }
}

/// The address of a node, the same for clients and for the group.
pub(crate) fn endpoint(node: usize) -> Endpoint {
    Endpoint::new(&format!("10.0.0.{}", node + 1), 3306)
}

/// The node with an address.
pub(crate) fn node_of(endpoint: &Endpoint) -> usize {
    let last = endpoint.host.rsplit('.').next().and_then(|number| number.parse::<usize>().ok());
    last.map_or(0, |number| number - 1)
}

/// The state uuid of a history.
pub(crate) fn uuid_of(history: usize) -> String {
    format!("bf2509c7-e57f-11f1-a4d9-{history:012}")
}

/// What a node that runs says to a probe.
pub(crate) fn answer(
    index: usize,
    node: &Node,
    views: &[View],
    settings: &ClusterSettings,
) -> Result<GaleraState, ProbeError> {
    if !node.is_open {
        return Err(ProbeError::Unreachable("connection refused".to_owned()));
    }
    if node.busy {
        return Err(ProbeError::Busy("Too many connections".to_owned()));
    }
    let mut state = GaleraState {
        cluster_conf_id: u64::MAX,
        read_only: node.read_only,
        desync: node.desync,
        reject_queries: node.rejects,
        sst_donor_rejects_queries: node.donor_rejects,
        maintenance: node.maintenance,
        local_recv_queue: u32::try_from(node.received - node.applied)
            .unwrap_or(u32::MAX)
            .saturating_add(node.backlog),
        flow_control_paused_permille: node.paused_permille,
        last_committed: u64::try_from(node.applied).unwrap_or(0),
        node_name: format!("n{index}"),
        segment: node.segment,
        cluster_state_uuid: uuid_of(if node.is_branch { 0 } else { node.history }),
        ..GaleraState::default()
    };
    let Some(view) = node.view.and_then(|view| views.get(view)) else {
        state.cluster_status = "Disconnected".to_owned();
        return Ok(state);
    };
    let members = (0..NODES_MAX).filter(|member| view.members & (1 << member) != 0);
    state.cluster_weight = members.clone().map(|member| settings.weights[member]).sum();
    state.local_index =
        members.clone().position(|member| member == index).and_then(|at| u32::try_from(at).ok());
    state.members = members
        .map(|member| if settings.auto { "AUTO".to_owned() } else { endpoint(member).to_string() })
        .collect();
    state.cluster_size = u32::try_from(state.members.len()).unwrap_or(0);
    state.connected = true;
    if view.primary {
        state.cluster_status = "Primary".to_owned();
        state.cluster_conf_id = view.conf_id;
        state.local_state =
            if node.desync && node.state == LocalState::Synced { LocalState::Donor } else { node.state };
        state.ready = !matches!(node.state, LocalState::Joining | LocalState::Other);
    } else {
        state.cluster_status = "non-Primary".to_owned();
    }
    Ok(state)
}
