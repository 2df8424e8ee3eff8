//! `weir status`: who writes, who reads, and why.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;

use crate::control::{Door, DoorError, Report, ServerStatus, Status};
use crate::stats::put_table;

/// Exit status: a cluster is without a writer.
const NO_WRITER: u8 = 3;

/// Asks a Weir and shows what it says.
pub(crate) fn status(door: &Door, is_json: bool) -> Result<ExitCode, DoorError> {
    let status = door.status()?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let put = if is_json { put_json(&status, &mut out) } else { put_words(&status, &mut out) };
    match put.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(DoorError::Output(error)),
        _ => {}
    }
    let has_writers = status.clusters.iter().all(|cluster| !cluster.writers.is_empty());
    Ok(if has_writers { ExitCode::SUCCESS } else { ExitCode::from(NO_WRITER) })
}

fn put_json(status: &Status, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, status)?;
    writeln!(out)
}

fn put_words(status: &Status, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "weir {}, {} clients", status.version, status.clients)?;
    for cluster in &status.clusters {
        let hostgroup = cluster.writer_hostgroup;
        if cluster.writers.is_empty() {
            let lost = match cluster.lost_writers.as_slice() {
                [] => String::new(),
                lost => format!(": lost {}, statements wait for the next one", lost.join(", ")),
            };
            writeln!(out, "cluster of hostgroup {hostgroup}: no writer{lost}")?;
            for (server, why) in &cluster.cannot_write {
                writeln!(out, "  {server} can't write: {why}")?;
            }
        } else {
            writeln!(out, "cluster of hostgroup {hostgroup}: writer {}", cluster.writers.join(", "))?;
        }
    }
    writeln!(out)?;
    let columns = ["hostgroup", "server", "role", "status", "weight", "used", "free", "reason"];
    let row = |server: &ServerStatus| {
        let reason = if server.is_drained { "drained by weir drain" } else { &server.reason };
        vec![
            json!(server.hostgroup),
            json!(server.server),
            json!(server.role),
            json!(server.status),
            json!(server.weight),
            json!(server.used),
            json!(server.free),
            json!(reason),
        ]
    };
    let rows = status.servers.iter().map(row).collect();
    put_table(&Report { columns: columns.map(str::to_owned).to_vec(), rows, dropped: 0 }, out)
}
