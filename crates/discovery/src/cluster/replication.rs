//! Tells the source from its replicas.

use std::collections::BTreeSet;

use weir_topology::{Endpoint, Link};

use super::{Cluster, Kind, Member, Refusal, Remark};
use crate::facts::SourceFacts;
use crate::findings::{Findings, Server};

/// A replica that is further behind gets a remark, in seconds.
const LAG_S_MAX: u64 = 10;

/// The replication to which the server belongs that the user has named; a single server, if there is none.
pub(super) fn cluster(findings: &Findings) -> Result<Cluster, Refusal> {
    let servers = &findings.servers;
    // Clusters that replicate from here are replicas of their own: another Weir's.
    let of = |server: &Server| match super::is_clustered(&server.facts) {
        true => Vec::new(),
        false => sources_of(findings, server),
    };
    let sources: Vec<Vec<Option<usize>>> = servers.iter().map(of).collect();
    let related = related(findings.start, &sources);
    if let [only] = related.iter().copied().collect::<Vec<_>>().as_slice()
        && sources.get(*only).is_none_or(Vec::is_empty)
    {
        return Ok(single(findings, *only));
    }
    let of_related =
        || related.iter().filter_map(|index| Some((*index, servers.get(*index)?, sources.get(*index)?)));
    for (_, server, from) in of_related().filter(|(_, _, from)| from.len() > 1) {
        let named = server.facts.sources.iter().filter_map(|source| source.link.endpoint.clone());
        if from.iter().collect::<BTreeSet<_>>().len() > 1 {
            return Err(Refusal::SeveralSources {
                replica: server.endpoint.clone(),
                sources: named.collect(),
            });
        }
    }
    let writers: Vec<usize> =
        of_related().filter(|(_, server, _)| !server.facts.is_read_only).map(|(index, ..)| index).collect();
    if writers.len() > 1 {
        let names = writers.iter().filter_map(|index| Some(servers.get(*index)?.endpoint.clone()));
        return Err(Refusal::SeveralWriters(names.collect()));
    }
    let writer = writers.first().copied();
    if let Some(server) =
        writer.and_then(|index| servers.get(index)).filter(|server| !server.facts.sources.is_empty())
    {
        return Err(Refusal::WriterReplicates(server.endpoint.clone(), sources_listed(server)));
    }
    let (mut members, mut remarks) = (Vec::new(), Vec::new());
    for (index, server, from) in of_related() {
        let is_writer = writer == Some(index);
        let source = server.facts.sources.first();
        let name = |index: usize| servers.get(index).map(|server| &server.endpoint);
        let known = from.first().copied().flatten().and_then(name);
        let named = source.and_then(|source| source.link.endpoint.as_ref());
        let role = match (is_writer, known.or(named)) {
            (true, _) => "source".to_owned(),
            (false, Some(source)) => format!("replica of {source}"),
            (false, None) => "source, read_only".to_owned(),
        };
        let state = match source {
            Some(source) => of_source(source),
            None if server.facts.is_read_only => "read_only".to_owned(),
            None => "takes writes".to_owned(),
        };
        remarks.extend(of_member(server, source, is_writer, known, writer.and_then(name)));
        members.push(Member { server: index, role, state, segment: 0 });
    }
    if writer.is_none() {
        remarks.push(Remark::of_cluster(
            "every server that was reached is read_only: until one takes writes (SET GLOBAL read_only = OFF), statements wait",
        ));
    }
    Ok(Cluster { kind: Kind::Replication, name: String::new(), members, writer, remarks })
}

/// `10.0.0.11:3306, 10.0.0.12:3306`
pub(super) fn sources_listed(server: &Server) -> String {
    let name = |source: &SourceFacts| {
        source.link.endpoint.as_ref().map_or_else(|| "an unknown server".to_owned(), ToString::to_string)
    };
    server.facts.sources.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn single(findings: &Findings, index: usize) -> Cluster {
    let is_read_only = findings.servers.get(index).is_some_and(|server| server.facts.is_read_only);
    let state = if is_read_only { "read_only" } else { "takes writes" };
    let member = Member { server: index, role: "server".to_owned(), state: state.to_owned(), segment: 0 };
    let writer = (!is_read_only).then_some(index);
    let remark = || {
        Remark::of_cluster(
            "the server is read_only: until it takes writes (SET GLOBAL read_only = OFF), statements wait",
        )
    };
    let remarks = is_read_only.then(remark).into_iter().collect();
    Cluster { kind: Kind::Single, name: String::new(), members: vec![member], writer, remarks }
}

/// The servers from which one replicates, each none if it was not reached.
fn sources_of(findings: &Findings, server: &Server) -> Vec<Option<usize>> {
    let place = |source: &SourceFacts| {
        let by_name = source.link.endpoint.as_ref().and_then(|name| findings.server(name));
        // MariaDB's numbers are often the same everywhere.
        let is_it = |other: &Server| {
            !other.facts.server_uuid.is_empty()
                && other.facts.server_uuid.eq_ignore_ascii_case(&source.link.id)
        };
        by_name.map(|(index, _)| index).or_else(|| findings.servers.iter().position(is_it))
    };
    server.facts.sources.iter().map(place).collect()
}

/// The server that the user has named, its sources, theirs, and so on.
pub(super) fn upstream(findings: &Findings) -> Vec<usize> {
    let mut upstream = vec![findings.start];
    let mut next = 0;
    while let Some(server) = upstream.get(next).and_then(|index| findings.servers.get(*index)) {
        for source in sources_of(findings, server).into_iter().flatten() {
            if !upstream.contains(&source) {
                upstream.push(source);
            }
        }
        next += 1;
    }
    upstream
}

/// Tells of members of a Galera cluster or a group that replicate from a server that is none.
///
/// # Errors
/// If such a member would take writes.
pub(super) fn of_outside(findings: &Findings, cluster: &Cluster) -> Result<Vec<Remark>, Refusal> {
    let is_member = |index: usize| cluster.members.iter().any(|member| member.server == index);
    let able: Vec<usize> = cluster.able(findings).collect();
    let mut remarks = Vec::new();
    for (member, server) in cluster.servers(findings) {
        let from = sources_of(findings, server);
        if from.iter().all(|source| source.is_some_and(is_member)) {
            continue;
        }
        let (endpoint, sources) = (server.endpoint.clone(), sources_listed(server));
        if able.contains(&member.server) {
            return Err(Refusal::ClusterReplicates(endpoint, sources));
        }
        remarks.push(Remark::of(
            &endpoint,
            format!(
                "replicates from {sources}, which is not in its cluster: the cluster is a replica, and writes to it would \
                 make two writers"
            ),
        ));
    }
    Ok(remarks)
}

/// All servers that replicate from one another, directly or not, the first one among them.
fn related(start: usize, sources: &[Vec<Option<usize>>]) -> BTreeSet<usize> {
    let mut related = BTreeSet::from([start]);
    loop {
        let before = related.len();
        for (index, from) in sources.iter().enumerate() {
            let mut from = from.iter().flatten();
            if related.contains(&index) {
                related.extend(from);
            } else if from.any(|source| related.contains(source)) {
                related.insert(index);
            }
        }
        if related.len() == before {
            return related;
        }
    }
}

fn of_source(source: &SourceFacts) -> String {
    match (source.link.link, source.lag_s) {
        (Link::Up, Some(seconds)) => format!("{seconds} s behind"),
        (Link::Up, None) => "does not apply".to_owned(),
        (Link::Down, _) => "does not reach its source".to_owned(),
        (Link::Trying, _) => "connects to its source".to_owned(),
        (Link::Idle, _) => "replication stopped".to_owned(),
    }
}

fn of_member(
    server: &Server,
    source: Option<&SourceFacts>,
    is_writer: bool,
    known: Option<&Endpoint>,
    writer: Option<&Endpoint>,
) -> Vec<Remark> {
    let settings = &server.facts.settings;
    let mut texts = Vec::new();
    if !settings.has_binlog {
        texts.push(
            "log_bin is off: the server can't be a source, and reads after writes go to the source"
                .to_owned(),
        );
    } else if !settings.logs_replicated && !is_writer {
        texts.push(
            "log_replica_updates (log_slave_updates) is off: as a source it would not pass on what it has received".to_owned(),
        );
    }
    if !settings.has_gtids {
        texts.push(
            "gtid_mode is not ON: `weir switchover` is not possible, and reads after writes go to the source"
                .to_owned(),
        );
    }
    if let Some(source) = source {
        if !source.uses_gtids {
            texts.push(
                "replicates by file and position: `weir switchover` needs SOURCE_AUTO_POSITION = 1 (MariaDB: MASTER_USE_GTID)"
                    .to_owned(),
            );
        }
        if source.link.link != Link::Up || source.lag_s.is_none() {
            texts.push(format!("the replica {}: it gets no reads that have to be fresh", of_source(source)));
        } else if let Some(lag) = source.lag_s.filter(|lag| *lag > LAG_S_MAX) {
            texts.push(format!("the replica is {lag} s behind"));
        }
        match (known, writer) {
            (Some(known), Some(writer)) if known != writer => {
                texts.push(format!("replicates from {known}, which replicates itself: it is behind by both"));
            }
            (None, _) => texts.push("its source was not reached".to_owned()),
            _ => {}
        }
    }
    texts.into_iter().map(|text| Remark::of(&server.endpoint, text)).collect()
}
