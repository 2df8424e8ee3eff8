//! `mysql_galera_hostgroups`, `mysql_group_replication_hostgroups` and `mysql_replication_hostgroups`: which hostgroups
//! belong together, and who says which of their servers writes.

use std::collections::{BTreeMap, HashMap, HashSet};

use weir_topology::{Endpoint, ReadOnlyCheck};

use crate::Config;
use crate::error::Report;
use crate::fields::Fields;
use crate::place::Place;
use crate::suggest::unknown_word;
use crate::tables::{COMMENT_CHARS_MAX, INT_MAX, Lines, Row, required_hostgroup};

pub(crate) const GALERA: &str = "mysql_galera_hostgroups";
pub(crate) const GROUP_REPLICATION: &str = "mysql_group_replication_hostgroups";
pub(crate) const REPLICATION: &str = "mysql_replication_hostgroups";

/// A row of `mysql_galera_hostgroups` or `mysql_group_replication_hostgroups`: a cluster. Key: writer_hostgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterHostgroup {
    /// Where writes go. Required.
    pub writer_hostgroup: u32,
    /// Holds the servers that could write and are more than `max_writers`. Required.
    pub backup_writer_hostgroup: u32,
    /// Where reads go. Required.
    pub reader_hostgroup: u32,
    /// Holds the servers that must take no work. Required.
    pub offline_hostgroup: u32,
    /// Whether the row counts, default true.
    pub active: bool,
    /// The most servers that may write at a time, default 1.
    pub max_writers: u32,
    /// Whether writers read, default no.
    pub writer_is_also_reader: WriterIsAlsoReader,
    /// A reader that is further behind leaves, in transactions; 0 (default): no limit.
    pub max_transactions_behind: u32,
    /// For humans.
    pub comment: String,
}

impl ClusterHostgroup {
    /// The four hostgroups with their column names.
    pub fn hostgroups(&self) -> [(&'static str, u32); 4] {
        [
            ("writer_hostgroup", self.writer_hostgroup),
            ("backup_writer_hostgroup", self.backup_writer_hostgroup),
            ("reader_hostgroup", self.reader_hostgroup),
            ("offline_hostgroup", self.offline_hostgroup),
        ]
    }
}

/// Which servers of a cluster read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriterIsAlsoReader {
    /// 0: every healthy server but the writer, unless that would leave none.
    No,
    /// 1: every healthy server.
    Yes,
    /// 2: backup writers read, writers do not.
    BackupWriters,
}

/// A row of `mysql_replication_hostgroups`: servers with asynchronous replication. Key: writer_hostgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationHostgroup {
    /// Where writes go. Required.
    pub writer_hostgroup: u32,
    /// Where reads go. Required.
    pub reader_hostgroup: u32,
    /// What makes a server a reader, default `read_only`.
    pub check_type: ReadOnlyCheck,
    /// For humans.
    pub comment: String,
}

impl ReplicationHostgroup {
    /// The two hostgroups with their column names.
    pub fn hostgroups(&self) -> [(&'static str, u32); 2] {
        [("writer_hostgroup", self.writer_hostgroup), ("reader_hostgroup", self.reader_hostgroup)]
    }
}

/// The hostgroups of an active cluster, whatever decides its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The table that it is from.
    pub table: &'static str,
    /// Where writes go.
    pub writer_hostgroup: u32,
    /// Where reads go.
    pub reader_hostgroup: u32,
    /// Holds the servers that could write and need not; replication has none.
    pub backup_writer_hostgroup: Option<u32>,
    /// Holds the servers that take no work; with replication they stay among the readers.
    pub offline_hostgroup: Option<u32>,
}

impl Cluster {
    /// All its hostgroups.
    pub fn hostgroups(self) -> impl Iterator<Item = u32> {
        let always = [self.writer_hostgroup, self.reader_hostgroup];
        always.into_iter().chain(self.backup_writer_hostgroup).chain(self.offline_hostgroup)
    }
}

impl Config {
    /// The active clusters, table by table.
    pub fn clusters(&self) -> impl Iterator<Item = Cluster> {
        let cluster = |table: &'static str| {
            move |row: &ClusterHostgroup| Cluster {
                table,
                writer_hostgroup: row.writer_hostgroup,
                reader_hostgroup: row.reader_hostgroup,
                backup_writer_hostgroup: Some(row.backup_writer_hostgroup),
                offline_hostgroup: Some(row.offline_hostgroup),
            }
        };
        let replication = |row: &ReplicationHostgroup| Cluster {
            table: REPLICATION,
            writer_hostgroup: row.writer_hostgroup,
            reader_hostgroup: row.reader_hostgroup,
            backup_writer_hostgroup: None,
            offline_hostgroup: None,
        };
        let galera = self.galera_hostgroups.iter().filter(|row| row.active).map(cluster(GALERA));
        let groups = self.group_replication_hostgroups.iter().filter(|row| row.active);
        let groups = groups.map(cluster(GROUP_REPLICATION));
        galera.chain(groups).chain(self.replication_hostgroups.iter().map(replication))
    }
}

pub(crate) fn cluster_hostgroup(row: &Row<'_>, report: &mut Report) -> Option<ClusterHostgroup> {
    let mut f = Fields::of(row, report);
    let writer = required_hostgroup(&mut f, "writer_hostgroup");
    let backup_writer = required_hostgroup(&mut f, "backup_writer_hostgroup");
    let reader = required_hostgroup(&mut f, "reader_hostgroup");
    let offline = required_hostgroup(&mut f, "offline_hostgroup");
    let active = f.boolean("active", true);
    let max_writers = f.integer("max_writers", 1, 1..=1000);
    let writer_is_also_reader = match f.item("writer_is_also_reader").map(|item| (item, item.as_integer())) {
        None | Some((_, Some(0))) => WriterIsAlsoReader::No,
        Some((_, Some(1))) => WriterIsAlsoReader::Yes,
        Some((_, Some(2))) => WriterIsAlsoReader::BackupWriters,
        Some((item, _)) => {
            f.refuse("writer_is_also_reader", format!("{} is none of 0, 1 and 2", item.describe()));
            WriterIsAlsoReader::No
        }
    };
    let max_transactions_behind = f.integer("max_transactions_behind", 0, 0..=INT_MAX);
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(ClusterHostgroup {
        writer_hostgroup: writer?,
        backup_writer_hostgroup: backup_writer?,
        reader_hostgroup: reader?,
        offline_hostgroup: offline?,
        active,
        max_writers,
        writer_is_also_reader,
        max_transactions_behind,
        comment,
    })
}

pub(crate) fn replication_hostgroup(row: &Row<'_>, report: &mut Report) -> Option<ReplicationHostgroup> {
    const WORDS: [&str; 5] = [
        "read_only",
        "innodb_read_only",
        "super_read_only",
        "read_only&innodb_read_only",
        "read_only|innodb_read_only",
    ];
    let mut f = Fields::of(row, report);
    let writer = required_hostgroup(&mut f, "writer_hostgroup");
    let reader = required_hostgroup(&mut f, "reader_hostgroup");
    let check_type = match f.optional_text("check_type", 64).as_deref() {
        None | Some("read_only") => ReadOnlyCheck::ReadOnly,
        Some("innodb_read_only") => ReadOnlyCheck::InnodbReadOnly,
        Some("super_read_only") => ReadOnlyCheck::SuperReadOnly,
        Some("read_only&innodb_read_only") => ReadOnlyCheck::Both,
        Some("read_only|innodb_read_only") => ReadOnlyCheck::Either,
        Some(word) => {
            f.refuse("check_type", unknown_word(word, &WORDS));
            ReadOnlyCheck::ReadOnly
        }
    };
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(ReplicationHostgroup { writer_hostgroup: writer?, reader_hostgroup: reader?, check_type, comment })
}

/// Where the rows of the three tables stand.
pub(crate) struct ClusterLines<'t> {
    pub(crate) galera: Lines<'t>,
    pub(crate) group_replication: Lines<'t>,
    pub(crate) replication: Lines<'t>,
}

/// A row of any of the three tables: where it stands, whether it counts, and its hostgroups by column.
type AnyRow<'l> = (&'l Place<'l>, bool, Vec<(&'static str, u32)>);

impl ClusterLines<'_> {
    /// Whether no row was refused.
    pub(crate) fn are_complete(&self, config: &Config) -> bool {
        self.galera.are_complete(&config.galera_hostgroups)
            && self.group_replication.are_complete(&config.group_replication_hostgroups)
            && self.replication.are_complete(&config.replication_hostgroups)
    }

    fn rows<'l>(&'l self, config: &Config) -> Vec<AnyRow<'l>> {
        let cluster = |lines: &'l Lines<'l>| {
            move |(at, row): (usize, &ClusterHostgroup)| (lines.at(at), row.active, row.hostgroups().to_vec())
        };
        let galera = config.galera_hostgroups.iter().enumerate().map(cluster(&self.galera));
        let groups = config.group_replication_hostgroups.iter().enumerate();
        let groups = groups.map(cluster(&self.group_replication));
        let replication = config.replication_hostgroups.iter().enumerate();
        let replication =
            replication.map(|(at, row)| (self.replication.at(at), true, row.hostgroups().to_vec()));
        galera.chain(groups).chain(replication).collect()
    }
}

/// One hostgroup has one meaning: no two columns of a row and no two rows share one.
pub(crate) fn distinct(config: &Config, lines: &ClusterLines<'_>, report: &mut Report) {
    let mut seen: HashMap<u32, (&str, &Place<'_>)> = HashMap::new();
    for (place, _, hostgroups) in lines.rows(config) {
        for (column, hostgroup) in hostgroups {
            let Some((first_column, first)) = seen.get(&hostgroup) else {
                seen.insert(hostgroup, (column, place));
                continue;
            };
            let reason = if first.path() == place.path() {
                format!("{hostgroup} is already the {first_column} of this row")
            } else {
                format!("{hostgroup} is already the {first_column} of another row ({})", first.pointer())
            };
            report.refuse(place, column, reason);
        }
    }
}

/// A cluster is looked at through its servers.
pub(crate) fn have_servers(config: &Config, lines: &ClusterLines<'_>, report: &mut Report) {
    let used: HashSet<u32> = config.servers.iter().map(|server| server.hostgroup_id).collect();
    for (place, active, hostgroups) in lines.rows(config) {
        if active && !hostgroups.iter().any(|(_, hostgroup)| used.contains(hostgroup)) {
            report.tolerate(place, "", "no row of mysql_servers is in any of its hostgroups");
        }
    }
}

/// A server is asked for the state of one kind of cluster.
pub(crate) fn one_kind_per_server(config: &Config, servers: &Lines<'_>, report: &mut Report) {
    let tables: HashMap<u32, &'static str> = config
        .clusters()
        .flat_map(|cluster| cluster.hostgroups().map(move |hostgroup| (hostgroup, cluster.table)))
        .collect();
    let mut kinds: BTreeMap<Endpoint, &'static str> = BTreeMap::new();
    for (index, server) in config.servers.iter().enumerate() {
        let Some(table) = tables.get(&server.hostgroup_id) else { continue };
        let first = kinds.entry(server.endpoint()).or_insert(table);
        if first != table {
            let reason = format!("{} is in a cluster of {first} and in one of {table}", server.endpoint());
            report.refuse(servers.at(index), "hostgroup_id", reason);
        }
    }
}

/// How far behind a server is, is asked with asynchronous replication only.
pub(crate) fn lag_limits(config: &Config, servers: &Lines<'_>, report: &mut Report) {
    let hostgroups = config.hostgroups_by_server();
    for (index, server) in config.servers.iter().enumerate().filter(|(_, row)| row.max_replication_lag > 0) {
        let ids = hostgroups.get(&server.endpoint());
        let is_in = |hostgroup: u32| ids.is_some_and(|ids| ids.contains(&hostgroup));
        if !config.replication_hostgroups.iter().any(|row| is_in(row.writer_hostgroup)) {
            let reason = format!(
                "{} is not built yet for servers outside mysql_replication_hostgroups (only 0)",
                server.max_replication_lag
            );
            report.tolerate(servers.at(index), "max_replication_lag", reason);
        }
    }
}
