//! Builds what the workers go by from configuration and roles.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use weir_accounts::KnownAccounts;
use weir_config::{
    CONSISTENCY_TIMEOUT_MS, Config, DEADLOCK_RETRIES, MysqlServer, SendProxyProtocol,
    TRANSACTION_REPLAY_MAX_BYTES, WeirHostgroup, WeirTopology,
};
use weir_monitor::{Reach, ServerAddress, ServerAddresses, monotonic_ns};
use weir_operations::foreign_switchover;
use weir_protocol::auth::StoredPassword;
use weir_protocol::auth::crypt::{SALT_LEN, Sha2Crypt};
use weir_protocol::auth::rsa::RsaKey;
use weir_proxy::snapshot::{
    Care, Health, History, Holding, Hostgroup, Member, Server, Snapshot, StrictRead, Throttle,
};
use weir_routing::{CommitOutcome, Rules};
use weir_sql::Dialect;
use weir_topology::{Endpoint, Flavour, Group, Place, Reason, Role, Roles, ServerRegistry, Status, Trouble};

use crate::server_tls::ServersTls;
use crate::user_directory::UserDirectory;

/// Shown to clients until a server has told its own version. The prefix is how a MariaDB of today greets
/// clients of the days when versions began with 5.
const SERVER_VERSION: &str = "5.5.5-10.11.0-MariaDB-weir";

/// A hash of caching_sha2_password that nobody knows the password of.
static DECOY: LazyLock<Arc<StoredPassword>> = LazyLock::new(|| {
    let (mut password, mut salt) = ([0; 32], [0; SALT_LEN]);
    // Without randomness from the system it is a password that somebody may guess, and still nobody's.
    let _ = (getrandom::fill(&mut password), getrandom::fill(&mut salt));
    let hashed = Sha2Crypt::of(&password, salt.map(|byte| byte | 1), 5);
    Arc::new(hashed.map_or(StoredPassword::Unknown, StoredPassword::Sha2))
});

/// Makes snapshots; keeps what outlives a single one.
#[derive(Debug)]
pub(crate) struct Snapshots {
    pub(crate) registry: ServerRegistry,
    /// Where servers are.
    pub(crate) addresses: ServerAddresses,
    /// With which clients may seal a password.
    pub(crate) rsa_key: Option<Arc<RsaKey>>,
    /// Counts of hostgroups go on over reloads.
    throttles: HashMap<u32, Arc<Throttle>>,
    /// Sessions that wait are counted over reloads, by writer hostgroup.
    holdings: HashMap<u32, Arc<Holding>>,
    /// Since when servers have been leaving (monotonic, nanoseconds).
    leaving: HashMap<Endpoint, u64>,
    /// How connections to servers are encrypted.
    pub(crate) servers_tls: ServersTls,
    /// The query rules; the same allocation as long as they have not changed.
    rules: Arc<Rules>,
    /// Who may log in.
    users: UserDirectory,
    /// What is known of the servers' accounts, by hostgroup.
    pub(crate) followed: BTreeMap<u32, KnownAccounts>,
    /// This Weir's name.
    pub(crate) instance: Arc<str>,
    /// Writer hostgroups whose statements wait, and why.
    pub(crate) held: BTreeMap<u32, String>,
}

impl Snapshots {
    pub(crate) fn new(registry: ServerRegistry) -> Self {
        Self {
            registry,
            addresses: ServerAddresses::new(),
            rsa_key: None,
            throttles: HashMap::new(),
            holdings: HashMap::new(),
            leaving: HashMap::new(),
            servers_tls: ServersTls::default(),
            rules: Arc::default(),
            users: UserDirectory::default(),
            followed: BTreeMap::new(),
            instance: Arc::from(""),
            held: BTreeMap::new(),
        }
    }

    /// How servers are reached, for the monitor: as by the workers.
    pub(crate) fn reach(&self) -> Reach {
        let address = |(endpoint, known): (&Endpoint, &ServerAddress)| (endpoint.clone(), known.address());
        Reach { tls: self.servers_tls.for_monitor(), addresses: self.addresses.iter().map(address).collect() }
    }

    /// Takes over the query rules, unless they are the same as before: then sessions and counters go on with them.
    pub(crate) fn take_rules(&mut self, config: &Config) {
        if self.rules == config.rules {
            return;
        }
        for note in config.rules.notes() {
            let (rule_id, column, because) = (note.rule_id, note.column, note.because);
            tracing::info!(
                rule_id,
                column,
                because,
                "pattern of a query rule is tried by PCRE2, with limits"
            );
        }
        self.rules = config.rules.clone();
    }

    /// Takes what is known of the servers' accounts, where they are to be followed now. Nothing is known of a hostgroup whose
    /// accounts have just begun to be.
    pub(crate) fn take_accounts(&mut self, config: &Config, mut known: BTreeMap<u32, KnownAccounts>) {
        let followed = config.weir_hostgroups.iter().filter(|row| row.follow_accounts);
        self.followed = followed
            .map(|row| (row.hostgroup_id, known.remove(&row.hostgroup_id).unwrap_or_default()))
            .collect();
    }

    /// The snapshot that follows from a configuration and the roles of now.
    pub(crate) fn build(&mut self, config: &Config, roles: &Roles) -> Arc<Snapshot> {
        let stands = Stands::of(roles);
        self.note_leaving(config, &stands);
        let mut servers = Vec::new();
        let mut places: BTreeMap<Endpoint, usize> = BTreeMap::new();
        let hostgroups = config.hostgroups_by_server();
        // The limit is the server's, over all its hostgroups: the largest of its rows.
        let mut limits: HashMap<Endpoint, u32> = HashMap::new();
        for row in &config.servers {
            let limit = limits.entry(row.endpoint()).or_default();
            *limit = row.max_connections.max(*limit);
        }
        for row in &config.servers {
            let endpoint = row.endpoint();
            let Some(addr) = self.addresses.get(&endpoint).and_then(|known| known.at) else { continue };
            let max_connections = limits.get(&endpoint).copied().unwrap_or(0);
            places.entry(endpoint.clone()).or_insert_with(|| {
                servers.push(Arc::new(Server {
                    endpoint: endpoint.to_string(),
                    addr,
                    max_connections,
                    tls: self.servers_tls.of(&endpoint).cloned(),
                    is_gone: stands.of_server(&endpoint).has_no_hope,
                    is_silent: stands.of_server(&endpoint).is_silent,
                    proxy_header: proxy_header(config, hostgroups.get(&endpoint)),
                    is_leaving: self.leaving.contains_key(&endpoint),
                    leave_by: self.leave_by(config, &endpoint),
                    care: care(config, hostgroups.get(&endpoint)),
                    shared: self.registry.server(&endpoint),
                }));
                servers.len() - 1
            });
        }
        let version = config.variables.server_version.clone();
        let server_version = version
            .or(roles.server_version.as_deref().map(Into::into))
            .unwrap_or_else(|| SERVER_VERSION.into());
        let is_mariadb = server_version.contains("MariaDB");
        Arc::new(Snapshot {
            users: self.users.take(&config.users, &self.followed),
            servers,
            hostgroups: self.hostgroups(config, roles, &places),
            rules: self.rules.clone(),
            variables: config.variables.clone(),
            is_mariadb,
            default_collation: if is_mariadb { "latin1_swedish_ci" } else { "utf8mb4_0900_ai_ci" }.into(),
            dialect: Dialect {
                server: weir_sql::Server::of_version(server_version.as_bytes()),
                ..Dialect::default()
            },
            server_version,
            tls: config.variables.have_ssl,
            // MariaDB's accounts are asked for a scramble alone, as whoever is not there is.
            decoy: (!is_mariadb && !self.followed.is_empty()).then(|| DECOY.clone()),
            rsa_key: self.rsa_key.clone(),
        })
    }

    /// Who serves each hostgroup, and how.
    fn hostgroups(
        &mut self,
        config: &Config,
        roles: &Roles,
        places: &BTreeMap<Endpoint, usize>,
    ) -> HashMap<u32, Hostgroup> {
        let mut hostgroups = hostgroups(config, roles, places);
        for (id, hostgroup) in &mut hostgroups {
            let attributes = config.attributes_of(*id);
            let limit = attributes
                .map_or(config.variables.throttle_connections_per_sec_to_hostgroup, |attributes| {
                    attributes.throttle_connections_per_sec
                });
            let known = self.throttles.get(id).filter(|known| known.limit() == limit);
            hostgroup.throttle = known.cloned().unwrap_or_else(|| Arc::new(Throttle::new(limit)));
            self.throttles.insert(*id, hostgroup.throttle.clone());
            let own = config.weir_hostgroups.iter().find(|row| row.hostgroup_id == *id);
            hostgroup.balancing = own.map(|row| row.balancing).unwrap_or_default();
            let cluster = config.clusters().find(|cluster| cluster.hostgroups().any(|of| of == *id));
            // What is said of the cluster's writers holds for its readers, too.
            let writers = cluster.as_ref().map_or(*id, |cluster| cluster.writer_hostgroup);
            let of_writers = config.weir_hostgroups.iter().find(|row| row.hostgroup_id == writers);
            hostgroup.history = history(roles.group(writers));
            hostgroup.consistency = of_writers.map(|row| row.consistency).unwrap_or_default();
            hostgroup.strict = match roles.group(writers).map(|group| &group.flavour) {
                Some(Flavour::Galera) => StrictRead::WsrepSyncWait,
                Some(Flavour::GroupReplication) => StrictRead::GroupConsistency,
                _ => StrictRead::OnWriter,
            };
            hostgroup.replicates_transactions_only =
                roles.group(writers).is_some_and(Group::replicates_transactions_only);
            hostgroup.reads = of_writers.map(|row| row.reads).unwrap_or_default();
            let timeout_ms = of_writers.map_or(CONSISTENCY_TIMEOUT_MS, |row| row.consistency_timeout_ms);
            hostgroup.consistency_timeout = Duration::from_millis(timeout_ms.into());
            hostgroup.deadlock_retries = of_writers.map_or(DEADLOCK_RETRIES, |row| row.deadlock_retries);
            hostgroup.transaction_replay = of_writers.map(|row| row.transaction_replay).unwrap_or_default();
            hostgroup.transaction_replay_max_bytes =
                of_writers.map_or(TRANSACTION_REPLAY_MAX_BYTES, |row| row.transaction_replay_max_bytes);
            hostgroup.marks_commits =
                of_writers.is_some_and(|row| row.commit_outcome == CommitOutcome::Marker);
            let care = config.topology_of(cluster.map_or(*id, |cluster| cluster.writer_hostgroup));
            hostgroup.slow_start = care.slow_start;
            hostgroup.retry_buffer_bytes = if cluster.is_some() { care.retry_buffer_bytes } else { 0 };
            hostgroup.holding = cluster.map(|_| self.holding(&care));
            hostgroup.keeps_connections = attributes.is_some_and(|attributes| !attributes.multiplex);
            if let Some(attributes) = attributes {
                limit_online(hostgroup, attributes.max_num_online_servers);
            }
            if let Some(because) = self.held.get(id) {
                hostgroup.members.clear();
                hostgroup.is_held = true;
                hostgroup.absent = because.clone();
            }
            let group = roles.group(*id);
            if let Some((to, by, _)) = group.and_then(|group| foreign_switchover(group, &self.instance)) {
                hostgroup.members.clear();
                hostgroup.is_held = true;
                hostgroup.absent = format!("held for a switchover to {to} by another Weir ({by})");
            } else if let Some(reason) = group.and_then(|group| group.waits_for.as_ref()) {
                let separator = if hostgroup.absent.is_empty() { "" } else { "; " };
                hostgroup.absent += &format!("{separator}the next writer {reason}");
            }
        }
        hostgroups
    }

    /// Servers that leave have begun to when this was first seen.
    fn note_leaving(&mut self, config: &Config, stands: &Stands<'_>) {
        let now = monotonic_ns();
        let endpoints = config.servers.iter().map(MysqlServer::endpoint);
        let leaving = endpoints.filter(|endpoint| stands.of_server(endpoint).is_leaving);
        let since = |endpoint: Endpoint| {
            let since = self.leaving.get(&endpoint).copied().unwrap_or(now);
            (endpoint, since)
        };
        self.leaving = leaving.map(since).collect();
    }

    /// When a server that leaves must be left: the least grace of its clusters.
    fn leave_by(&self, config: &Config, endpoint: &Endpoint) -> Option<u64> {
        let since = self.leaving.get(endpoint)?;
        let ids = config.hostgroups_of(endpoint);
        let clusters = config.clusters().filter(|cluster| ids.contains(&cluster.writer_hostgroup));
        let graces = clusters.filter_map(|cluster| config.topology_of(cluster.writer_hostgroup).drain_grace);
        let grace = graces.min()?;
        Some(since.saturating_add(u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How sessions wait for a server of a cluster: counted as before, unless the limits have changed.
    fn holding(&mut self, care: &WeirTopology) -> Arc<Holding> {
        let known = self.holdings.get(&care.writer_hostgroup);
        let known = known
            .filter(|known| (known.timeout(), known.sessions_max()) == (care.hold_timeout, care.held_max));
        let new = || Arc::new(Holding::new(care.hold_timeout, care.held_max));
        let holding = known.cloned().unwrap_or_else(new);
        self.holdings.insert(care.writer_hostgroup, holding.clone());
        holding
    }
}

/// The history of a cluster's data, if it is known.
fn history(group: Option<&Group>) -> Option<History> {
    // Names of different kinds are never the same.
    let kind = match group?.flavour {
        Flavour::Galera => "galera",
        Flavour::GroupReplication => "group",
        Flavour::Replication => "replication",
    };
    let name = &group?.history;
    (!name.is_empty()).then(|| History::of(&format!("{kind} {name}")))
}

/// More servers online than there may be are a sign that two clusters serve, so nobody does.
fn limit_online(hostgroup: &mut Hostgroup, servers_max: u32) {
    let online = hostgroup.members.iter().filter(|member| member.health != Health::Shunned).count();
    if online > servers_max as usize {
        hostgroup.members.clear();
        hostgroup.absent =
            format!("{online} servers are online, more than max_num_online_servers {servers_max}");
    }
}

/// How connections to a server are looked after: by the attributes of its hostgroups, where it has any.
fn care(config: &Config, hostgroups: Option<&BTreeSet<u32>>) -> Care {
    let variables = &config.variables;
    let rows = || hostgroups.into_iter().flatten().filter_map(|id| config.attributes_of(*id));
    let init_connect = rows().map(|row| &row.init_connect).find(|statements| !statements.is_empty());
    Care {
        init_connect: init_connect.unwrap_or(&variables.init_connect).clone(),
        free_connections_pct: rows()
            .map(|row| row.free_connections_pct)
            .max()
            .unwrap_or(variables.free_connections_pct),
        is_warmed: rows()
            .map(|row| row.connection_warming)
            .reduce(|one, other| one || other)
            .unwrap_or(variables.connection_warming),
    }
}

/// What a server is told of clients' addresses: the most that one of its hostgroups wants.
fn proxy_header(config: &Config, hostgroups: Option<&BTreeSet<u32>>) -> SendProxyProtocol {
    let is_its = |row: &&WeirHostgroup| hostgroups.is_some_and(|ids| ids.contains(&row.hostgroup_id));
    let wanted = config.weir_hostgroups.iter().filter(is_its).map(|row| row.send_proxy_protocol);
    wanted.max().unwrap_or_default()
}

/// Facts about servers that hold in every hostgroup that they are in.
struct Stands<'r>(HashMap<&'r Endpoint, Stand>);

#[derive(Clone, Copy, Default)]
struct Stand {
    has_no_hope: bool,
    is_silent: bool,
    is_leaving: bool,
}

impl<'r> Stands<'r> {
    fn of(roles: &'r Roles) -> Self {
        let mut stands: HashMap<&Endpoint, Stand> = HashMap::with_capacity(roles.places.len());
        for place in &roles.places {
            let everywhere = Stand { has_no_hope: true, is_silent: true, is_leaving: true };
            let stand = stands.entry(&place.endpoint).or_insert(everywhere);
            stand.has_no_hope &= has_no_hope(place);
            stand.is_silent &= is_silent(place);
            stand.is_leaving &= is_leaving(place);
        }
        Self(stands)
    }

    /// Nothing is so of a server that is in no hostgroup.
    fn of_server(&self, endpoint: &Endpoint) -> Stand {
        self.0.get(endpoint).copied().unwrap_or_default()
    }
}

/// Connections to the server are of no use any more. A Galera node that is silent may still answer, and a new writer
/// is not chosen before the cluster has dropped it; of a server in a plain hostgroup nothing else will ever be heard.
fn has_no_hope(place: &Place) -> bool {
    let is_silent = place.role == Role::Plain && matches!(place.reason, Reason::TimedOut { .. });
    place.status == Status::OfflineHard || (place.status == Status::Shunned && is_silent)
}

/// Nothing is heard of the server, and it may still answer what it was asked.
fn is_silent(place: &Place) -> bool {
    let is_unheard = matches!(place.reason, Reason::TimedOut { .. } | Reason::NotObservedForLong { .. });
    place.status == Status::OfflineSoft && is_unheard
}

/// The server works, and somebody wants it to end that.
fn is_leaving(place: &Place) -> bool {
    let is_wanted =
        matches!(place.reason, Reason::Wished(_) | Reason::Maintenance(_) | Reason::RejectsQueries);
    place.status == Status::OfflineHard || (place.status == Status::OfflineSoft && is_wanted)
}

/// How a place stands in its hostgroup; none if it takes no work there.
fn health(place: &Place) -> Option<Health> {
    match (place.status, &place.trouble) {
        _ if place.role == Role::Offline => None,
        (Status::Online, None) => Some(Health::Good),
        (Status::Online, Some(_)) => Some(Health::Slow),
        (Status::Shunned, Some(Trouble::ConnectFailures { .. })) => Some(Health::Shunned),
        _ => None,
    }
}

/// Who serves each hostgroup, and for those who do not, why.
fn hostgroups(config: &Config, roles: &Roles, places: &BTreeMap<Endpoint, usize>) -> HashMap<u32, Hostgroup> {
    let mut hostgroups: HashMap<u32, Hostgroup> = HashMap::new();
    for place in &roles.places {
        let hostgroup = hostgroups.entry(place.hostgroup).or_default();
        match (places.get(&place.endpoint), health(place)) {
            (Some(server), Some(health)) => {
                hostgroup.members.push(Member { server: *server, weight: place.weight, health });
            }
            _ => {
                let separator = if hostgroup.absent.is_empty() { "" } else { "; " };
                hostgroup.absent += &format!("{separator}{}: {}", place.endpoint, place.reason);
            }
        }
    }
    for cluster in config.clusters() {
        // With replication servers without work stay among the readers.
        let home = cluster.offline_hostgroup.unwrap_or(cluster.reader_hostgroup);
        let is_offline = |place: &&Place| place.hostgroup == home && place.role == Role::Offline;
        let offline = roles.places.iter().filter(is_offline);
        let reasons: Vec<String> =
            offline.map(|place| format!("{}: {}", place.endpoint, place.reason)).collect();
        if let Some(id) = cluster.offline_hostgroup {
            // It exists, whether a server is in it now or not.
            hostgroups.entry(id).or_default();
        }
        for id in cluster.hostgroups().filter(|id| Some(*id) != cluster.offline_hostgroup) {
            let hostgroup = hostgroups.entry(id).or_default();
            hostgroup.is_replicated = true;
            if !reasons.is_empty() {
                hostgroup.absent = reasons.join("; ");
            }
        }
        hostgroups.entry(cluster.writer_hostgroup).or_default().reader_hostgroup =
            Some(cluster.reader_hostgroup);
    }
    hostgroups
}
