//! Checks that each row of `weir_topology` is of a cluster.

use std::collections::HashMap;

use crate::model::clusters::Cluster;
use crate::model::config::Config;
use crate::report::error::Report;
use crate::report::place::Lines;

/// Each row is of a cluster, and each cluster has at most one.
pub(crate) fn have_clusters(config: &Config, lines: &Lines<'_>, report: &mut Report) {
    let inactive = config.galera_hostgroups.iter().chain(&config.group_replication_hostgroups);
    let known: Vec<u32> = inactive
        .map(|row| row.writer_hostgroup)
        .chain(config.clusters().map(|Cluster { writer_hostgroup, .. }| writer_hostgroup))
        .collect();
    let mut seen = HashMap::new();
    for (index, row) in config.weir_topology.iter().enumerate() {
        let (id, place) = (row.writer_hostgroup, lines.at(index));
        if let Some(first) = seen.insert(id, place) {
            let reason = format!("hostgroup {id} is already there ({})", first.pointer());
            report.refuse(place, "writer_hostgroup", reason);
        } else if !known.contains(&id) {
            let reason = format!("hostgroup {id} is not the writer_hostgroup of a cluster");
            report.tolerate(place, "writer_hostgroup", reason);
        }
    }
}
