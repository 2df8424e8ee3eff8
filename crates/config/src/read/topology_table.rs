//! Reads the rows of `weir_topology`.

use std::time::Duration;

use weir_topology::{Choices, DonorReads, EpochUse, Failback, ReadOnlyCheck};

use crate::field::fields::{Fields, Row};
use crate::model::clusters::{ClusterHostgroup, GALERA, GROUP_REPLICATION, REPLICATION};
use crate::model::config::Config;
use crate::model::topology_table::{Assist, AutoDiscover, OwnAccount, WeirTopology};
use crate::read::servers::required_hostgroup;
use crate::report::error::Report;
use crate::value::limits::{PASSWORD_BYTES_MAX, USERNAME_CHARS_MAX};
use crate::value::password::Secret;
use crate::value::suggest::unknown_word;

/// Reads a row. `config` has the clusters, active or not.
pub(crate) fn weir_topology(row: &Row<'_>, config: &Config, report: &mut Report) -> Option<WeirTopology> {
    let mut f = Fields::of(row, report);
    let writer_hostgroup = required_hostgroup(&mut f, "writer_hostgroup");
    let defaults = WeirTopology::of(writer_hostgroup.unwrap_or_default());
    let read = WeirTopology {
        choices: choices(&mut f),
        slow_start: Duration::from_millis(f.number("slow_start_ms")),
        hold_timeout: optional_millis(&mut f, "hold_timeout_ms"),
        held_max: f.number("max_held"),
        retry_buffer_bytes: f.number("retry_buffer_bytes"),
        drain_grace: optional_millis(&mut f, "drain_grace_ms").filter(|grace| !grace.is_zero()),
        switchover_pin_grace: Duration::from_millis(f.number("switchover_pin_grace_ms")),
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
        auto_discover: word(
            &mut f,
            "auto_discover",
            &[("off", AutoDiscover::Off), ("tell", AutoDiscover::Tell), ("follow", AutoDiscover::Follow)],
            defaults.auto_discover,
        ),
        ..defaults
    };
    if let Some(id) = writer_hostgroup {
        fits_cluster(&mut f, config, id);
        if read.auto_failover {
            fits_failover(&mut f, config, id);
        }
        let is_replication = config.replication_hostgroups.iter().any(|row| row.writer_hostgroup == id);
        if read.auto_discover == AutoDiscover::Follow && is_replication {
            // Whoever registers at the source would get its writes one day, and a vote in auto_failover.
            f.refuse(
                "auto_discover",
                "\"follow\" does not apply to a row of mysql_replication_hostgroups: use \"tell\"",
            );
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
        uptime_min_ms: 1000 * f.number::<u64>("min_uptime_s"),
        reader_segment: optional_number(f, "prefer_segment").and_then(|segment| u8::try_from(segment).ok()),
        readers_min: f.number("min_readers"),
        donor_reads: word(f, "donor", &donors, defaults.donor_reads),
        unconfirmed_failover_ms: f.number("unconfirmed_failover_ms"),
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
        (REPLICATION, &[&OF_GALERA, &NOT_OF_REPLICATION])
    } else if has(&config.group_replication_hostgroups) {
        (GROUP_REPLICATION, &[&OF_GALERA, &OF_REPLICATION])
    } else if has(&config.galera_hostgroups) {
        (GALERA, &[&NOT_OF_GALERA, &OF_REPLICATION])
    } else {
        return;
    };
    for key in unfit.iter().copied().flatten().copied() {
        if f.has(key) {
            f.refuse(key, format!("does not apply to a row of {table}"));
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
            f.refuse("auto_failover", format!("applies to rows of {} only", REPLICATION));
        }
        Some(row) if unset.contains(&row.check_type) => f.refuse(
            "auto_failover",
            "can't be where check_type uses innodb_read_only, which no statement can set",
        ),
        _ => {}
    }
}

/// One of some words.
pub(crate) fn word<T: Copy>(
    f: &mut Fields<'_, '_>,
    name: &'static str,
    words: &[(&'static str, T)],
    default: T,
) -> T {
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

fn optional_number(f: &mut Fields<'_, '_>, name: &'static str) -> Option<u64> {
    f.item(name).map(|_| f.number(name))
}

fn optional_millis(f: &mut Fields<'_, '_>, name: &'static str) -> Option<Duration> {
    optional_number(f, name).map(Duration::from_millis)
}

/// An account of two keys; a password alone is a fault.
fn account(f: &mut Fields<'_, '_>, name: &'static str, password: &'static str) -> Option<OwnAccount> {
    let username = f.optional_text(name, USERNAME_CHARS_MAX);
    let secret = f.secret_text(password, PASSWORD_BYTES_MAX);
    if username.as_deref() == Some("") {
        f.refuse(name, "is empty");
    }
    if username.is_none() && secret.is_some() {
        f.refuse(password, format!("needs {name}"));
    }
    let username = username.filter(|name| !name.is_empty())?;
    Some(OwnAccount { username, password: Secret::new(secret.unwrap_or_default()) })
}
