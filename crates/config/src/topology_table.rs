//! `weir_topology`: what ProxySQL's tables of clusters have no column for.

use std::collections::HashMap;
use std::time::Duration;

use weir_topology::{Choices, DonorReads, EpochUse, Failback, ReadOnlyCheck};

use crate::clusters::{Cluster, ClusterHostgroup};
use crate::error::Report;
use crate::fields::Fields;
use crate::suggest::unknown_word;
use crate::tables::{Lines, PASSWORD_BYTES_MAX, Row, USERNAME_CHARS_MAX, required_hostgroup};
use crate::{Config, Secret, clusters};

/// The longest time that a user may want something to wait, in milliseconds: an hour.
const WAIT_MS_MAX: u64 = 3_600_000;
/// The longest grace of a switchover, in milliseconds: all statements of the cluster wait meanwhile.
pub const SWITCHOVER_GRACE_MS_MAX: u64 = 30_000;
/// A day.
const UPTIME_S_MAX: u64 = 86_400;
/// Larger results than this are not held back: a server is not read while so much waits for a client.
const RETRY_BUFFER_BYTES_MAX: u32 = 256 << 10;

/// A row of `weir_topology`: how one cluster is looked after. Key: writer_hostgroup. A cluster without a row has the
/// defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeirTopology {
    /// Names the cluster. Required.
    pub writer_hostgroup: u32,
    /// What decides between servers.
    pub choices: Choices,
    /// In which time a reader that was away comes back to its full share, default 5 s.
    pub slow_start: Duration,
    /// How long a statement waits for a server of the cluster; none (default):
    /// `MysqlVariables::connect_timeout_server_max`.
    pub hold_timeout: Option<Duration>,
    /// The most sessions that wait for a server of the cluster at a time, default 10000.
    pub held_max: u32,
    /// Results of reads up to this size are held back until they are complete, so that a read whose server dies
    /// meanwhile is run again elsewhere; 0: none. Default 16384: most results, and less than what comes in one piece.
    pub retry_buffer_bytes: u32,
    /// How long sessions may keep a server that is drained or in maintenance; then those that run nothing are closed.
    /// None (0, the default): for as long as they want.
    pub drain_grace: Option<Duration>,
    /// How long a switchover waits for transactions and pins on the old writer, default 1 s.
    pub switchover_pin_grace: Duration,
    /// Whether a Galera cluster is helped to get rid of a dead node, default [`Assist::Dead`].
    pub assist: Assist,
    /// The account for that; none (default): the monitor's.
    pub assist_account: Option<OwnAccount>,
    /// The account that changes `read_only`, replication or a group's primary for a switchover; none (default): the
    /// monitor's.
    pub switchover_account: Option<OwnAccount>,
    /// The account with which a former writer replicates from the next one, with `mysql_replication_hostgroups`; none
    /// (default): that of the switchover.
    pub replication_account: Option<OwnAccount>,
    /// Whether a replica is made the writer when the writer is lost, with `mysql_replication_hostgroups`. Off by default:
    /// writes that no replica has received are lost then.
    pub auto_failover: bool,
}

/// When a Galera cluster is helped to get rid of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Assist {
    /// Never.
    Off,
    /// When it is proven to be dead.
    #[default]
    Dead,
    /// Also when it hangs.
    Hung,
}

/// An account for one of Weir's own duties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAccount {
    /// Its name, never empty.
    pub username: String,
    /// Its password in clear, maybe empty.
    pub password: Secret,
}

impl WeirTopology {
    /// The defaults.
    pub fn of(writer_hostgroup: u32) -> Self {
        Self {
            writer_hostgroup,
            choices: Choices::default(),
            slow_start: Duration::from_secs(5),
            hold_timeout: None,
            held_max: 10_000,
            retry_buffer_bytes: 16 << 10,
            drain_grace: None,
            switchover_pin_grace: Duration::from_secs(1),
            assist: Assist::default(),
            assist_account: None,
            switchover_account: None,
            replication_account: None,
            auto_failover: false,
        }
    }
}

impl Config {
    /// How the cluster with this writer hostgroup is looked after.
    pub fn topology_of(&self, writer_hostgroup: u32) -> WeirTopology {
        let row = self.weir_topology.iter().find(|row| row.writer_hostgroup == writer_hostgroup);
        row.cloned().unwrap_or_else(|| WeirTopology::of(writer_hostgroup))
    }
}

/// Reads a row. `config` has the clusters, active or not.
pub(crate) fn weir_topology(row: &Row<'_>, config: &Config, report: &mut Report) -> Option<WeirTopology> {
    let mut f = Fields::of(row, report);
    let writer_hostgroup = required_hostgroup(&mut f, "writer_hostgroup");
    let defaults = WeirTopology::of(writer_hostgroup.unwrap_or_default());
    let read = WeirTopology {
        choices: choices(&mut f),
        slow_start: f.millis("slow_start_ms", defaults.slow_start, 0..=600_000),
        hold_timeout: optional_millis(&mut f, "hold_timeout_ms", 1..=WAIT_MS_MAX),
        held_max: f.integer("max_held", defaults.held_max, 1..=1_000_000),
        retry_buffer_bytes: f.integer(
            "retry_buffer_bytes",
            defaults.retry_buffer_bytes,
            0..=RETRY_BUFFER_BYTES_MAX,
        ),
        drain_grace: optional_millis(&mut f, "drain_grace_ms", 0..=WAIT_MS_MAX)
            .filter(|grace| !grace.is_zero()),
        switchover_pin_grace: f.millis(
            "switchover_pin_grace_ms",
            defaults.switchover_pin_grace,
            0..=SWITCHOVER_GRACE_MS_MAX,
        ),
        assist: word(
            &mut f,
            "assist",
            &[("off", Assist::Off), ("dead", Assist::Dead), ("hung", Assist::Hung)],
            defaults.assist,
        ),
        assist_account: account(&mut f, "assist_username", "assist_password"),
        switchover_account: account(&mut f, "switchover_username", "switchover_password"),
        replication_account: account(&mut f, "replication_username", "replication_password"),
        auto_failover: f.boolean("auto_failover", defaults.auto_failover),
        ..defaults
    };
    if let Some(id) = writer_hostgroup {
        fits_cluster(&mut f, config, id);
        if read.auto_failover {
            fits_failover(&mut f, config, id);
        }
    }
    f.finish_row();
    writer_hostgroup.map(|_| read)
}

/// What decides between servers.
fn choices(f: &mut Fields<'_, '_>) -> Choices {
    let defaults = Choices::default();
    let failbacks =
        [("never", Failback::Never), ("drained", Failback::Drained), ("immediate", Failback::Immediate)];
    let epochs =
        [("auto", EpochUse::Auto), ("required", EpochUse::Required), ("optional", EpochUse::Optional)];
    let donors = [("read", DonorReads::WhileQueueIsShort), ("avoid", DonorReads::AsLastResort)];
    Choices {
        failback: word(f, "failback", &failbacks, defaults.failback),
        uptime_min_ms: 1000 * f.integer("min_uptime_s", defaults.uptime_min_ms / 1000, 0..=UPTIME_S_MAX),
        reader_segment: optional_integer(f, "prefer_segment", 0..=255)
            .and_then(|segment| u8::try_from(segment).ok()),
        readers_min: f.integer("min_readers", defaults.readers_min, 1..=1000),
        donor_reads: word(f, "donor", &donors, defaults.donor_reads),
        unconfirmed_failover_ms: f.integer(
            "unconfirmed_failover_ms",
            defaults.unconfirmed_failover_ms,
            1000..=WAIT_MS_MAX,
        ),
        epoch: word(f, "epoch", &epochs, defaults.epoch),
    }
}

/// Keys that mean something for some kinds of clusters only.
fn fits_cluster(f: &mut Fields<'_, '_>, config: &Config, writer_hostgroup: u32) {
    const OF_GALERA: [&str; 9] = [
        "failback",
        "min_uptime_s",
        "prefer_segment",
        "donor",
        "unconfirmed_failover_ms",
        "epoch",
        "assist",
        "assist_username",
        "assist_password",
    ];
    const NOT_OF_REPLICATION: [&str; 1] = ["min_readers"];
    const NOT_OF_GALERA: [&str; 2] = ["switchover_username", "switchover_password"];
    const OF_REPLICATION: [&str; 2] = ["replication_username", "replication_password"];
    let has = |rows: &[ClusterHostgroup]| rows.iter().any(|row| row.writer_hostgroup == writer_hostgroup);
    let of_replicas =
        config.replication_hostgroups.iter().any(|row| row.writer_hostgroup == writer_hostgroup);
    let (table, unfit): (_, &[&[&'static str]]) = if of_replicas {
        (clusters::REPLICATION, &[&OF_GALERA, &NOT_OF_REPLICATION])
    } else if has(&config.group_replication_hostgroups) {
        (clusters::GROUP_REPLICATION, &[&OF_GALERA, &OF_REPLICATION])
    } else if has(&config.galera_hostgroups) {
        (clusters::GALERA, &[&NOT_OF_GALERA, &OF_REPLICATION])
    } else {
        return;
    };
    for key in unfit.iter().copied().flatten().copied() {
        if f.has(key) {
            f.refuse(key, format!("does not hold for a row of {table}"));
        }
    }
}

/// Only read_only servers can be made writable; a cluster that chooses its writer does so itself.
fn fits_failover(f: &mut Fields<'_, '_>, config: &Config, writer_hostgroup: u32) {
    let rows = &config.replication_hostgroups;
    let replicas = rows.iter().find(|row| row.writer_hostgroup == writer_hostgroup);
    let chooses_itself = config
        .galera_hostgroups
        .iter()
        .chain(&config.group_replication_hostgroups)
        .any(|row| row.writer_hostgroup == writer_hostgroup);
    let unset = [ReadOnlyCheck::InnodbReadOnly, ReadOnlyCheck::Both];
    match replicas {
        None if chooses_itself => {
            f.refuse("auto_failover", format!("holds for rows of {} only", clusters::REPLICATION));
        }
        Some(row) if unset.contains(&row.check_type) => f.refuse(
            "auto_failover",
            "can't be where check_type looks at innodb_read_only, which no statement can set",
        ),
        _ => {}
    }
}

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

/// One of some words.
fn word<T: Copy>(f: &mut Fields<'_, '_>, name: &'static str, words: &[(&'static str, T)], default: T) -> T {
    let Some(item) = f.item(name) else { return default };
    let Some(text) = item.as_str() else {
        f.refuse(name, format!("{} is not a string", item.describe()));
        return default;
    };
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return *value;
    }
    let known: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
    f.refuse(name, unknown_word(text, &known));
    default
}

fn optional_integer(
    f: &mut Fields<'_, '_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
) -> Option<u64> {
    let least = *range.start();
    f.item(name).map(|_| f.integer(name, least, range))
}

fn optional_millis(
    f: &mut Fields<'_, '_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
) -> Option<Duration> {
    optional_integer(f, name, range).map(Duration::from_millis)
}

/// An account of two keys; a password alone is a fault.
fn account(f: &mut Fields<'_, '_>, name: &'static str, password: &'static str) -> Option<OwnAccount> {
    let username = f.optional_text(name, USERNAME_CHARS_MAX);
    let secret = f.secret_text(password, PASSWORD_BYTES_MAX);
    if username.as_deref() == Some("") {
        f.refuse(name, "is empty");
    }
    if username.is_none() && secret.is_some() {
        f.refuse(password, format!("is of no use without {name}"));
    }
    let username = username.filter(|name| !name.is_empty())?;
    Some(OwnAccount { username, password: Secret::new(secret.unwrap_or_default()) })
}
