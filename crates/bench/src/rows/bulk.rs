//! Sends a gigabyte in one piece, either way.

use std::time::{Duration, Instant};

use weir_lab::client::Client;
use weir_lab::measure::{Metric, Sample};
use weir_lab::{ClientError, Error};

use crate::bench::{Bench, empty_case, login, progress};
use crate::peer::{Kind, Peer};
use crate::report::Case;
use crate::row::{Layout, Row};

const KINDS: [Kind; 5] = [Kind::Direct, Kind::HaProxy, Kind::ProxySql, Kind::Weir, Kind::WeirEpoll];
/// Clients at a time: one, and the one that was there before it.
const CLIENTS: u32 = 10;
const MIB: u64 = 1 << 20;
/// Length of a row, and of a line of the file, bytes.
const ROW_BYTES: u64 = 1000;
/// What the client reads at a time, bytes.
const READ_BYTES: usize = 256 * 1024;
/// Lines in a packet of the file: near 64 KB, as clients send.
const LINES_PER_PACKET: usize = 64;
/// Sent before the first round, so that no peer pays for cold caches, MiB.
const WARM_UP_MIB: u32 = 4;

pub(super) fn measure(bench: &Bench<'_>, row: Row) -> Result<Vec<Case>, Error> {
    let peers = bench.peers(Layout::OneNode, CLIENTS, &KINDS)?;
    let mib = bench.scale.bulk_mib;
    let mut case = empty_case(row, &format!("{mib} MiB"), row.goals(1), &peers);
    progress(&format!("{row}: warming up"));
    for peer in &peers {
        transfer(peer, row, WARM_UP_MIB)?;
    }
    for round in 0..bench.scale.bulk_rounds {
        bench.rounds(&mut case, &peers, round, |peer| visit(peer, row, mib))?;
    }
    Ok(vec![case])
}

fn visit(peer: &Peer, row: Row, mib: u32) -> Result<Sample, Error> {
    let Some(usage) = peer.usage() else {
        let (bytes, took) = transfer(peer, row, mib)?;
        return Ok(speed(bytes, took));
    };
    let (cpu_before, memory_before_kib) = (usage.cpu_time()?, usage.rss_kib()?);
    let (peak_kib, transferred) = usage.with_peak(|| transfer(peer, row, mib));
    let (bytes, took) = transferred?;
    let cpu = usage.cpu_time()?.saturating_sub(cpu_before);
    let growth_kib = peak_kib.saturating_sub(memory_before_kib);
    let gib = bytes as f64 / (1024 * MIB) as f64;
    Ok(speed(bytes, took)
        .with(Metric::CpuMsPerGib, cpu.as_secs_f64() * 1000.0 / gib)
        .with(Metric::PeakGrowthMib, growth_kib as f64 / 1024.0))
}

fn speed(bytes: u64, took: Duration) -> Sample {
    Sample::default().with(Metric::MibPerS, bytes as f64 / MIB as f64 / took.as_secs_f64())
}

/// Sends or receives so much; gives the bytes that passed and the time they took.
fn transfer(peer: &Peer, row: Row, mib: u32) -> Result<(u64, Duration), Error> {
    let doing = || Error::client(format!("{row} via {}", peer.kind));
    let login = login(peer.addr);
    let login = if row == Row::LocalInfile { login.local_files() } else { login };
    let mut client = login.connect().map_err(doing())?;
    let started = Instant::now();
    let rows = u64::from(mib) * MIB / ROW_BYTES;
    let bytes = match row {
        Row::LocalInfile => send_file(&mut client, rows),
        _ => receive_result(&mut client, rows),
    };
    Ok((bytes.map_err(doing())?, started.elapsed()))
}

fn receive_result(client: &mut Client, rows: u64) -> Result<u64, ClientError> {
    client.send_query(&format!("SELECT REPEAT('x', {ROW_BYTES}) FROM seq_1_to_{rows}"))?;
    Ok(client.reply(&mut vec![0; READ_BYTES], 1)?.bytes)
}

/// The server skips every line, because none begins as lines have to: what is measured is the way to it.
fn send_file(client: &mut Client, lines: u64) -> Result<u64, ClientError> {
    let mut buffer = vec![0; READ_BYTES];
    client.send_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE sbtest1 LINES STARTING BY 'row:' (c)")?;
    let Some(mut sequence) = client.reply(&mut buffer, 1)?.file_sequence else {
        return Err(ClientError::Protocol("the server does not ask for the file".to_owned()));
    };
    let mut line = vec![b'x'; ROW_BYTES as usize - 1];
    line.push(b'\n');
    let packet = line.repeat(LINES_PER_PACKET);
    let packets = lines.div_ceil(LINES_PER_PACKET as u64);
    for _ in 0..packets {
        client.send_packet(&mut sequence, &packet)?;
    }
    client.send_packet(&mut sequence, b"")?;
    client.reply(&mut buffer, sequence)?;
    Ok(packets * packet.len() as u64)
}
