//! Runs `weir status`: shows who writes, who reads, and why.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use weir_statistics::{ClusterStatus, Report, ServerStatus, Status, TransactionsStatus};

use crate::control::{ControlClient, ControlClientError};
use crate::stats::put_table;
use crate::topology_log::{self, Entry};

/// Exit status: a cluster has no writer, or no write is sent to it.
const NO_WRITER: u8 = 3;

/// Asks a Weir and shows what it says.
pub(crate) fn status(client: &ControlClient, is_json: bool) -> Result<ExitCode, ControlClientError> {
    let status = client.status()?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let put = if is_json { put_json(&status, &mut out) } else { put_words(&status, &mut out) };
    match put.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(ControlClientError::Output(error));
        }
        _ => {}
    }
    let take_writes = status.clusters.iter().all(ClusterStatus::takes_writes);
    Ok(if take_writes { ExitCode::SUCCESS } else { ExitCode::from(NO_WRITER) })
}

/// Shows the last lines of the topology log, also of a Weir that does not run.
pub(crate) fn log(
    client: &ControlClient,
    count: usize,
    is_json: bool,
) -> Result<ExitCode, ControlClientError> {
    let datadir = client.datadir();
    let entries = topology_log::last_entries(datadir, count)
        .map_err(|error| ControlClientError::Log { path: datadir.to_path_buf(), error })?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let put = if is_json { put_lines(&entries, &mut out) } else { put_log(&entries, &mut out) };
    match put.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ControlClientError::Output(error)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn put_lines(entries: &[Entry], out: &mut impl Write) -> io::Result<()> {
    for entry in entries {
        serde_json::to_writer(&mut *out, entry)?;
        writeln!(out)?;
    }
    Ok(())
}

fn put_log(entries: &[Entry], out: &mut impl Write) -> io::Result<()> {
    let columns = ["time", "cluster", "hostgroup", "server", "view", "epoch", "change", "reason"];
    let number = |number: Option<u64>| json!(number.map(|number| number.to_string()).unwrap_or_default());
    let row = |entry: &Entry| {
        vec![
            json!(entry.time),
            number(entry.cluster.map(u64::from)),
            number(entry.hostgroup.map(u64::from)),
            json!(entry.server.as_deref().unwrap_or_default()),
            number(entry.view),
            number(entry.epoch),
            json!(entry.change),
            json!(entry.reason),
        ]
    };
    let rows = entries.iter().map(row).collect();
    put_table(&Report { columns: columns.map(str::to_owned).to_vec(), rows, dropped: 0 }, out)
}

fn put_json(status: &Status, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, status)?;
    writeln!(out)
}

fn put_words(status: &Status, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "weir {}, {} clients", status.version, status.clients)?;
    status.clusters.iter().try_for_each(|cluster| put_cluster(cluster, out))?;
    put_transactions(&status.transactions, out)?;
    writeln!(out)?;
    put_servers(&status.servers, out)
}

/// Nothing, where nothing has happened to any.
fn put_transactions(transactions: &TransactionsStatus, out: &mut impl Write) -> io::Result<()> {
    let TransactionsStatus {
        replayed,
        replayed_us,
        lost,
        outcomes_asked,
        outcomes_asked_us,
        outcomes_committed,
    } = *transactions;
    let mean_ms = |sum_us: u64, count: u64| sum_us as f64 / count.max(1) as f64 / 1000.0;
    if replayed + lost > 0 {
        let mean_ms = mean_ms(replayed_us, replayed);
        writeln!(out, "interrupted transactions: {replayed} ran again (mean {mean_ms:.1} ms), {lost} lost")?;
    }
    if outcomes_asked > 0 {
        let mean_ms = mean_ms(outcomes_asked_us, outcomes_asked);
        writeln!(
            out,
            "interrupted COMMITs: {outcomes_asked} asked for (mean {mean_ms:.1} ms), {outcomes_committed} had taken effect"
        )?;
    }
    Ok(())
}

fn put_cluster(cluster: &ClusterStatus, out: &mut impl Write) -> io::Result<()> {
    let hostgroup = cluster.writer_hostgroup;
    if cluster.writers.is_empty() {
        let lost = match cluster.lost_writers.as_slice() {
            [] => String::new(),
            lost => format!(": lost {}, statements wait for the next one", lost.join(", ")),
        };
        writeln!(out, "cluster of hostgroup {hostgroup}: no writer{lost}")?;
        if let Some(why) = &cluster.waits_for {
            writeln!(out, "  the next one {why}")?;
        }
        for (server, why) in &cluster.cannot_write {
            writeln!(out, "  {server} can't write: {why}")?;
        }
    } else {
        writeln!(out, "cluster of hostgroup {hostgroup}: writer {}", cluster.writers.join(", "))?;
    }
    if let Some(epoch) = cluster.epoch {
        let others = match cluster.other_weirs.as_slice() {
            [] => "no other Weir".to_owned(),
            others => format!("other Weirs: {}", others.join(", ")),
        };
        writeln!(out, "  epoch {epoch}, {others}")?;
        if !cluster.silent_weirs.is_empty() {
            writeln!(out, "  not heard of lately: {}", cluster.silent_weirs.join(", "))?;
        }
    }
    if let Some(trouble) = &cluster.epoch_trouble {
        writeln!(out, "  {trouble}")?;
    }
    for (server, what) in &cluster.discovered {
        writeln!(out, "  {server}: {what}")?;
    }
    if let Some(unfinished) = &cluster.unfinished_switchover {
        writeln!(out, "  unfinished switchover: {unfinished}")?;
    }
    if let Some(assist) = &cluster.assist {
        writeln!(out, "  eviction of dead nodes is {assist}")?;
    }
    if !cluster.donors.is_empty() {
        writeln!(out, "  a node that joins should have wsrep_sst_donor={}", cluster.donor_list())?;
    }
    Ok(())
}

fn put_servers(servers: &[ServerStatus], out: &mut impl Write) -> io::Result<()> {
    // Where a server is says nothing new where that is its name.
    let has_names = servers.iter().any(|server| server.address != server.server);
    let columns = ["hostgroup", "server", "address", "role", "status", "weight", "used", "free", "reason"];
    let is_shown = |column: &&str| has_names || *column != "address";
    let columns: Vec<&str> = columns.into_iter().filter(is_shown).collect();
    let row = |server: &ServerStatus| {
        let reason = match server.drained_by.as_slice() {
            _ if server.is_drained => "drained by weir drain".to_owned(),
            [] => server.reason.clone(),
            others if server.drained_by_silent.is_empty() => format!("drained by {}", others.join(", ")),
            others => format!(
                "drained by {}; not heard of: {}, see weir undrain --force",
                others.join(", "),
                server.drained_by_silent.join(", ")
            ),
        };
        let address = has_names.then(|| json!(server.address));
        let first = [json!(server.hostgroup), json!(server.server)].into_iter().chain(address);
        let rest = [
            json!(server.role),
            json!(server.status),
            json!(server.weight),
            json!(server.used),
            json!(server.free),
            json!(reason),
        ];
        first.chain(rest).collect()
    };
    let rows = servers.iter().map(row).collect();
    put_table(&Report { columns: columns.into_iter().map(str::to_owned).collect(), rows, dropped: 0 }, out)
}
