//! Tells what kind of cluster was found, who its members are, and what about it a user should know.

mod galera;
mod group;
mod remarks;
mod replication;

use std::fmt;

use weir_topology::Endpoint;

use crate::facts::Facts;
use crate::findings::{Findings, Server};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its kind.
    pub kind: Kind,
    /// Its own name; empty if it has none.
    pub name: String,
    /// Its members, as places in [`Findings::servers`].
    pub members: Vec<Member>,
    /// The member that takes writes now. None: nobody does, or with Galera and with several primaries any could.
    pub writer: Option<usize>,
    /// What a user should know.
    pub remarks: Vec<Remark>,
}

/// How the servers belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Galera cluster, of MariaDB or Percona.
    Galera {
        /// Members of its view that have no data: garbd.
        arbitrators: usize,
    },
    /// A MySQL Group Replication group.
    Group {
        /// The group chooses one writer.
        has_one_primary: bool,
    },
    /// A source and its replicas.
    Replication,
    /// One server.
    Single,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its place in [`Findings::servers`].
    pub server: usize,
    /// `primary`, `replica of 10.0.0.11:3306` ...
    pub role: String,
    /// `Synced`, `read_only, 0 s behind` ...
    pub state: String,
    /// The network segment (`gmcast.segment`).
    pub segment: u8,
}

/// Something to know before going on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// About which servers; none: about the cluster.
    pub servers: Vec<Endpoint>,
    /// What is so, what may come of it, and what to do.
    pub text: String,
}

/// Why Weir can't stand in front of what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No node is in the Primary component.
    #[error(
        "no node of the Galera cluster {name:?} that was reached has quorum (wsrep_cluster_status): bring the cluster up first"
    )]
    NoPrimaryComponent {
        /// `wsrep_cluster_name`
        name: String,
    },
    /// No member of the group is ONLINE with quorum.
    #[error(
        "no member of the group that was reached is ONLINE with a majority: start the group first (START GROUP_REPLICATION)"
    )]
    NoGroup,
    /// Two servers would both get writes.
    #[error(
        "{} are not read_only, and belong to one replication: Weir would send writes to all of them. \
         Set read_only = ON on all but the source (SET GLOBAL read_only = ON, and in my.cnf), then run this again", listed(.0)
    )]
    SeveralWriters(Vec<Endpoint>),
    /// The only server that takes writes is a replica.
    #[error(
        "{0} takes writes and replicates from {1}, which was not reached or is read_only: writes would go to a replica. \
         Bring its source up and set read_only = ON on the replica; or, if it has taken the source's place, make it forget \
         that (RESET REPLICA ALL, RESET SLAVE ALL). Then run this again"
    )]
    WriterReplicates(Endpoint, String),
    /// A member of a cluster that takes writes and is a replica.
    #[error(
        "{0} takes writes and replicates from {1}, which is not in its cluster: the cluster is a replica, and writes to it \
         would make two writers. Point at the source instead, or end the replication (RESET REPLICA ALL, RESET SLAVE ALL)"
    )]
    ClusterReplicates(Endpoint, String),
    /// A replica of two servers.
    #[error(
        "{replica} replicates from several sources ({}): Weir follows one source with its replicas. \
         Point at one of the sources, or leave out the replica",
        listed(sources)
    )]
    SeveralSources {
        /// Which.
        replica: Endpoint,
        /// From whom.
        sources: Vec<Endpoint>,
    },
}

/// Whether it is in a Galera cluster or in a group.
fn is_clustered(facts: &Facts) -> bool {
    facts.galera.is_some() || facts.group.is_some()
}

fn listed(servers: &[Endpoint]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Cluster {
    /// What the server that the user has named belongs to. A replica of a Galera node or of a group's member leads to that
    /// cluster; their source does not, as that cluster is the replica.
    ///
    /// # Errors
    /// When Weir can't stand in front of it.
    pub fn of(findings: &Findings) -> Result<Self, Refusal> {
        let facts =
            replication::upstream(findings).into_iter().filter_map(|index| findings.servers.get(index));
        let in_cluster = facts.map(|server| &server.facts).find(|facts| is_clustered(facts));
        let mut cluster = match in_cluster.map(|facts| (&facts.galera, &facts.group)) {
            Some((Some(galera), _)) => galera::cluster(findings, galera)?,
            Some((None, Some(group))) => group::cluster(findings, group)?,
            _ => replication::cluster(findings)?,
        };
        if matches!(cluster.kind, Kind::Galera { .. } | Kind::Group { .. }) {
            cluster.remarks.extend(replication::of_outside(findings, &cluster)?);
        }
        cluster.remarks.extend(remarks::of_all(findings, cluster.kind, &cluster.members));
        cluster.remarks = remarks::gathered(cluster.remarks);
        Ok(cluster)
    }

    /// The members with their servers.
    pub fn servers<'f>(&self, findings: &'f Findings) -> impl Iterator<Item = (&Member, &'f Server)> {
        self.members.iter().filter_map(|member| Some((member, findings.servers.get(member.server)?)))
    }

    /// The server on which accounts are made: the writer, or where any will do the one that the user has named.
    pub fn origin<'f>(&self, findings: &'f Findings) -> Option<&'f Server> {
        let is_member = |index: &usize| self.members.iter().any(|member| member.server == *index);
        let chosen = match self.kind {
            Kind::Galera { .. } | Kind::Single => self.able(findings).find(|index| *index == findings.start),
            Kind::Group { .. } | Kind::Replication => None,
        };
        let index = chosen.or(self.writer).or_else(|| self.able(findings).next()).filter(is_member)?;
        findings.servers.get(index)
    }

    /// Members that could take writes now.
    pub(crate) fn able(&self, findings: &Findings) -> impl Iterator<Item = usize> {
        let can = |(_, server): &(&Member, &Server)| {
            let facts = &server.facts;
            let in_cluster = facts.galera.as_ref().is_none_or(galera::is_able);
            let in_group =
                facts.group.as_ref().is_none_or(|group| group.own().is_some_and(|own| own.is_primary));
            in_cluster && in_group && !facts.is_read_only
        };
        self.servers(findings).filter(can).map(|(member, _)| member.server).collect::<Vec<_>>().into_iter()
    }

    /// `Galera cluster "shop", 3 nodes`
    pub fn title(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" {:?}", self.name) };
        let count = self.members.len();
        let s = if count == 1 { "" } else { "s" };
        match self.kind {
            Kind::Galera { .. } => format!("Galera cluster{name}, {count} node{s}"),
            Kind::Group { has_one_primary: true } => {
                format!("MySQL group{name} with one primary, {count} member{s}")
            }
            Kind::Group { has_one_primary: false } => {
                format!("MySQL group{name} with several primaries, {count} member{s}")
            }
            Kind::Replication => match count.saturating_sub(1) {
                1 => "a source and 1 replica".to_owned(),
                replicas => format!("a source and {replicas} replicas"),
            },
            Kind::Single => "a single server".to_owned(),
        }
    }
}

impl Kind {
    /// The word for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Galera { .. } => "galera",
            Self::Group { .. } => "group",
            Self::Replication => "replication",
            Self::Single => "single",
        }
    }
}

impl Remark {
    fn of(server: &Endpoint, text: impl Into<String>) -> Self {
        Self { servers: vec![server.clone()], text: text.into() }
    }

    fn of_cluster(text: impl Into<String>) -> Self {
        Self { servers: Vec::new(), text: text.into() }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.servers.is_empty() {
            write!(f, "{}: ", listed(&self.servers))?;
        }
        f.write_str(&self.text)
    }
}

#[cfg(test)]
pub(crate) mod tests;
