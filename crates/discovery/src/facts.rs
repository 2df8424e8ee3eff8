//! Holds what one server says of itself and of others, and reads it from the rows that it answers.

mod answers;
mod grants;
mod peers;

use weir_eviction::Membership;
use weir_topology::{
    GaleraState, GroupMember, GroupState, MemberRow, Millis, ReplicaState, Risk, SourceLink,
};

pub use self::answers::{Answers, NamedRow, Refused};
pub use self::grants::Grants;
pub use self::peers::{Peer, peers};

/// More characters of a name are cut off.
const NAME_CHARS_MAX: usize = 255;
/// More rows of a list (replicas, sources, members) are passed over.
pub const ROWS_MAX: usize = 256;

/// Whose server it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Product {
    /// MariaDB.
    MariaDb,
    /// Percona Server, or Percona XtraDB Cluster.
    Percona,
    /// Oracle's MySQL, or something that calls itself so.
    #[default]
    MySql,
}

/// What tells one server from all others, whatever it is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// `server_uuid` of MySQL, or `wsrep_gcomm_uuid` of a Galera node.
    Uuid(String),
    /// Where it has neither: `hostname`, `port` and `server_id`.
    Numbers(String, u16, String),
}

/// What a server says of itself. Fields of which it has said nothing have the value that makes it look worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Whose server.
    pub product: Product,
    /// `version`, as it stands there.
    pub version: String,
    /// Its first three numbers.
    pub version_number: (u16, u16, u16),
    /// `hostname`
    pub hostname: String,
    /// `port`: where it listens, which is not where it was reached if something stands in between.
    pub port: u16,
    /// `server_id`
    pub server_id: String,
    /// `server_uuid`; empty on MariaDB.
    pub server_uuid: String,
    /// `read_only` or `super_read_only`.
    pub is_read_only: bool,
    /// Of a Galera node.
    pub galera: Option<GaleraFacts>,
    /// Of a member of a group.
    pub group: Option<GroupFacts>,
    /// From whom it replicates, each source.
    pub sources: Vec<SourceFacts>,
    /// Who has registered as its replica.
    pub replicas: Vec<ReplicaFacts>,
    /// The hosts from which its binary log is read right now, one for each reader.
    pub dump_hosts: Vec<String>,
    /// The account that asks.
    pub account: AccountFacts,
    /// What decides whether it can do its part.
    pub settings: Settings,
    /// What it was not allowed to tell.
    pub refused: Vec<Refused>,
}

/// What a Galera node says.
#[derive(Clone, Debug, PartialEq)]
pub struct GaleraFacts {
    /// `wsrep_cluster_name`
    pub cluster_name: String,
    /// Its state, with the members' addresses.
    pub state: GaleraState,
    /// The hosts of `wsrep_cluster_address`: where it looks for its cluster when it starts.
    pub seeds: Vec<String>,
    /// What speaks against evicting dead nodes from its cluster.
    pub obstacles: Vec<weir_eviction::Obstacle>,
}

/// What a member of a group says.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupFacts {
    /// Its view.
    pub state: GroupState,
    /// `MEMBER_ID`, `MEMBER_HOST` and `MEMBER_PORT` of each member.
    pub addresses: Vec<(String, String, u16)>,
}

impl GroupFacts {
    /// Itself as the group sees it.
    pub fn own(&self) -> Option<&GroupMember> {
        self.state.own()
    }
}

/// One source of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    /// Who it is, and whether it is connected.
    pub link: SourceLink,
    /// Seconds behind; none if that is not known.
    pub lag_s: Option<u64>,
    /// By positions of its own (SOURCE_AUTO_POSITION, MASTER_USE_GTID): another server can take the source's place.
    pub uses_gtids: bool,
}

/// A registered replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFacts {
    /// `report_host`; empty if it has none.
    pub host: String,
    /// `report_port`; 0 if it has none.
    pub port: u16,
    /// `server_uuid`; empty on MariaDB.
    pub uuid: String,
}

/// The account that asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountFacts {
    /// The host part of USER(): this host as the server sees it.
    pub host_here: String,
    /// CURRENT_USER(): which account that is.
    pub name: String,
    /// What it may do everywhere.
    pub grants: Grants,
}

/// What decides whether a server can do its part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `log_bin`
    pub has_binlog: bool,
    /// `log_replica_updates`, `log_slave_updates`
    pub logs_replicated: bool,
    /// `gtid_mode` is ON; always on MariaDB, which can't be without.
    pub has_gtids: bool,
    /// `require_secure_transport`
    pub requires_tls: bool,
    /// Settings with which data may be lost.
    pub risks: Vec<Risk>,
}

impl Facts {
    /// Reads what a server has answered. Values that make no sense are as good as none.
    pub fn from_answers(answers: &Answers) -> Self {
        let version = name_of(answers.variable("version").unwrap_or(&answers.greeting));
        let product = product(&version, answers.variable("version_comment").unwrap_or_default());
        let is_mariadb = product == Product::MariaDb;
        let is_on = |name: &str| answers.variable(name).is_some_and(is_on);
        Self {
            product,
            version_number: version_number(&version),
            version,
            hostname: name_of(answers.variable("hostname").unwrap_or_default()),
            port: answers.variable("port").and_then(|port| port.parse().ok()).unwrap_or(0),
            server_id: name_of(answers.variable("server_id").unwrap_or_default()),
            server_uuid: name_of(answers.variable("server_uuid").unwrap_or_default()).to_ascii_lowercase(),
            is_read_only: answers.variable("read_only").is_none_or(|value| !is_off(value))
                || is_on("super_read_only"),
            galera: galera(answers),
            group: group(answers),
            sources: answers.sources.iter().take(ROWS_MAX).filter_map(source).collect(),
            replicas: answers.replicas.iter().take(ROWS_MAX).map(replica).collect(),
            dump_hosts: answers.dump_hosts.iter().take(ROWS_MAX).filter_map(|host| host_of(host)).collect(),
            account: AccountFacts {
                host_here: answers.user.rsplit_once('@').map(|(_, host)| name_of(host)).unwrap_or_default(),
                name: name_of(&answers.current_user),
                grants: Grants::of_rows(answers.grants.iter().map(String::as_str)),
            },
            settings: Settings {
                has_binlog: is_on("log_bin"),
                logs_replicated: is_on("log_replica_updates") || is_on("log_slave_updates"),
                has_gtids: is_mariadb || is_on("gtid_mode"),
                requires_tls: is_on("require_secure_transport"),
                risks: answers
                    .variables
                    .iter()
                    .filter_map(|(name, value)| Risk::of_variable(name, value))
                    .collect(),
            },
            refused: answers.refused.clone(),
        }
    }

    /// What tells it from all others.
    pub fn identity(&self) -> Identity {
        let node = self.galera.as_ref().map(|galera| galera.state.gcomm_uuid.as_str()).unwrap_or_default();
        match (self.server_uuid.as_str(), node) {
            ("", "") => Identity::Numbers(self.hostname.clone(), self.port, self.server_id.clone()),
            ("", node) => Identity::Uuid(node.to_ascii_lowercase()),
            (uuid, _) => Identity::Uuid(uuid.to_owned()),
        }
    }

    /// How replicas name it: `server_uuid`, or MariaDB's `server_id`.
    pub fn replication_id(&self) -> &str {
        if self.server_uuid.is_empty() { &self.server_id } else { &self.server_uuid }
    }

    /// `MariaDB 10.11.6`
    pub fn server_name(&self) -> String {
        let (major, minor, patch) = self.version_number;
        let product = match self.product {
            Product::MariaDb => "MariaDB",
            Product::Percona => "Percona",
            Product::MySql => "MySQL",
        };
        format!("{product} {major}.{minor}.{patch}")
    }
}

fn product(version: &str, comment: &str) -> Product {
    let has = |word: &str| [version, comment].iter().any(|text| text.to_ascii_lowercase().contains(word));
    if has("mariadb") {
        Product::MariaDb
    } else if has("percona") || has("wsrep") {
        Product::Percona
    } else {
        Product::MySql
    }
}

/// `10.11.6-MariaDB-log`; MariaDB may put `5.5.5-` before it for old replicas.
fn version_number(version: &str) -> (u16, u16, u16) {
    let version = version.strip_prefix("5.5.5-").filter(|rest| rest.contains("MariaDB")).unwrap_or(version);
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

fn galera(answers: &Answers) -> Option<GaleraFacts> {
    let has_provider =
        answers.variable("wsrep_provider").is_some_and(|provider| !provider.is_empty() && provider != "none");
    if !has_provider || !answers.variable("wsrep_on").is_some_and(is_on) {
        return None;
    }
    let rows = || {
        answers.variables.iter().chain(&answers.status).map(|(name, value)| (name.as_str(), value.as_str()))
    };
    let address = answers.variable("wsrep_cluster_address").unwrap_or_default();
    Some(GaleraFacts {
        cluster_name: name_of(answers.variable("wsrep_cluster_name").unwrap_or_default()),
        state: GaleraState::from_rows(rows()),
        seeds: seeds(address),
        obstacles: Membership::from_rows(Millis(0), rows()).obstacles(),
    })
}

/// The hosts of `gcomm://host:4567,host?option=value`.
fn seeds(address: &str) -> Vec<String> {
    let Some(list) = address.trim().strip_prefix("gcomm://") else { return Vec::new() };
    let list = list.split('?').next().unwrap_or_default();
    list.split(',').take(ROWS_MAX).filter_map(host_of).collect()
}

fn group(answers: &Answers) -> Option<GroupFacts> {
    answers.variable("group_replication_group_name").filter(|name| !name.is_empty())?;
    let text = |row: &NamedRow, name: &str| row.text(name).to_owned();
    let rows: Vec<[String; 5]> = answers
        .members
        .iter()
        .take(ROWS_MAX)
        .map(|row| {
            ["MEMBER_ID", "MEMBER_STATE", "MEMBER_ROLE", "MEMBER_HOST", "MEMBER_PORT"]
                .map(|name| text(row, name))
        })
        .collect();
    let members =
        rows.iter().map(|[id, state, role, ..]| MemberRow { id, state, role, ..MemberRow::default() });
    let variables = answers.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let address = |[id, _, _, host, port]: &[String; 5]| {
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some((name_of(id).to_ascii_lowercase(), host_of(host)?, port))
    };
    Some(GroupFacts {
        state: GroupState::from_rows(variables, members),
        addresses: rows.iter().filter_map(address).collect(),
    })
}

/// A row of SHOW REPLICA STATUS, as [`ReplicaState`] reads it. A group's own channels are none.
fn source(row: &NamedRow) -> Option<SourceFacts> {
    let channel = row.first_text(&["Channel_Name", "Connection_name"]);
    if channel.starts_with("group_replication_") {
        return None;
    }
    let none: [(&str, &str); 0] = [];
    let state = ReplicaState::from_rows(none, [row.columns()]);
    let auto = row.first_text(&["Auto_Position"]);
    let gtid = row.first_text(&["Using_Gtid"]);
    Some(SourceFacts {
        link: state.source?,
        lag_s: match state.lag {
            weir_topology::Lag::Seconds(seconds) => Some(seconds),
            _ => None,
        },
        uses_gtids: auto == "1" || !(gtid.is_empty() || gtid.eq_ignore_ascii_case("No")),
    })
}

/// A row of SHOW REPLICAS, SHOW SLAVE HOSTS.
fn replica(row: &NamedRow) -> ReplicaFacts {
    ReplicaFacts {
        host: host_of(row.text("Host")).unwrap_or_default(),
        port: row.text("Port").parse().unwrap_or(0),
        uuid: name_of(row.first_text(&["Replica_UUID", "Slave_UUID"])).to_ascii_lowercase(),
    }
}

/// The host of `host`, `host:port`, `[v6]:port` or `v6`; none if nobody can be there.
fn host_of(text: &str) -> Option<String> {
    let text = text.trim();
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None if text.matches(':').count() > 1 => text,
        None => text.split(':').next().unwrap_or_default(),
    };
    is_host(host).then(|| host.to_owned())
}

/// Whether it can be the name or the address of a host.
fn is_host(host: &str) -> bool {
    let is_nowhere =
        ["auto", "unspecified", "0.0.0.0", "::", "null"].iter().any(|no| host.eq_ignore_ascii_case(no));
    let is_char = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !host.is_empty() && !is_nowhere && host.len() <= NAME_CHARS_MAX && host.chars().all(is_char)
}

fn name_of(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

fn is_on(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("ON") || value.trim() == "1"
}

fn is_off(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("OFF") || value.trim() == "0"
}

#[cfg(test)]
mod tests;
