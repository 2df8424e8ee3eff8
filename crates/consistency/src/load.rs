//! Runs sessions that read and write in turn as fast as they can, and counts where their reads go.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_lab::{Error, Latencies, Stop};
use weir_seeds::SplitMix;
use weir_testkit::Account;

use crate::client::{Client, Refused};
use crate::session::ROWS_PER_COUNTER;
use crate::stage::SCHEMA;

/// Reads before each of the two writes of a loop.
const READS: u32 = 5;
/// After an error.
const PAUSE: Duration = Duration::from_millis(20);

/// What a load has seen.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LoadSeen {
    /// Statements per second.
    pub(crate) statements_per_s: f64,
    /// Of them, reads.
    pub(crate) reads_per_s: f64,
    /// Of them, writes.
    pub(crate) writes_per_s: f64,
    /// Middle and end of the reads' times, ms.
    pub(crate) read_ms: [f64; 2],
    /// The same of the writes'.
    pub(crate) write_ms: [f64; 2],
    /// Reads that each server has answered.
    pub(crate) by_server: BTreeMap<usize, u64>,
    /// Failed statements.
    pub(crate) errors: u64,
    /// One of their texts.
    pub(crate) first_error: Option<String>,
}

impl LoadSeen {
    /// Of all reads, those that another server than `writer` has answered, percent.
    pub(crate) fn readers_percent(&self, writer: usize) -> f64 {
        let all: u64 = self.by_server.values().sum();
        let on_writer = self.by_server.get(&writer).copied().unwrap_or(0);
        if all == 0 { 0.0 } else { 100.0 * (all - on_writer) as f64 / all as f64 }
    }
}

/// What one session has seen.
#[derive(Debug, Default)]
struct Seen {
    reads: Latencies,
    writes: Latencies,
    by_server: BTreeMap<usize, u64>,
    errors: u64,
    first_error: Option<String>,
}

/// So many sessions for so long. There have to be as many counters.
pub(crate) fn run(
    address: SocketAddrV4,
    account: Account,
    sessions: u32,
    time: Duration,
    stop: &Stop,
) -> Result<LoadSeen, Error> {
    let barrier = Barrier::new(sessions as usize);
    let sessions = sessions as usize;
    let all: Vec<Seen> = thread::scope(|scope| {
        let run = |number: usize| {
            let barrier = &barrier;
            scope.spawn(move || session(address, account, [number, sessions], barrier, time, stop))
        };
        let running: Vec<_> = (0..sessions).map(run).collect();
        running
            .into_iter()
            .map(|session| session.join().map_err(|_| Error::panicked("a session of the load")))
            .collect::<Result<_, Error>>()
    })?;
    stop.check()?;
    let mut sum = Seen::default();
    for mut seen in all {
        seen.reads.move_to(&mut sum.reads);
        seen.writes.move_to(&mut sum.writes);
        seen.by_server
            .into_iter()
            .for_each(|(server, reads)| *sum.by_server.entry(server).or_default() += reads);
        sum.errors += seen.errors;
        sum.first_error = sum.first_error.or(seen.first_error);
    }
    let per_s = |latencies: &Latencies| latencies.count() as f64 / time.as_secs_f64();
    let times =
        |latencies: &Latencies| [50.0, 99.0].map(|percent| latencies.percentile_ms(percent).unwrap_or(0.0));
    Ok(LoadSeen {
        statements_per_s: per_s(&sum.reads) + per_s(&sum.writes),
        reads_per_s: per_s(&sum.reads),
        writes_per_s: per_s(&sum.writes),
        read_ms: times(&sum.reads),
        write_ms: times(&sum.writes),
        by_server: sum.by_server,
        errors: sum.errors,
        first_error: sum.first_error,
    })
}

fn session(
    address: SocketAddrV4,
    account: Account,
    [number, sessions]: [usize; 2],
    barrier: &Barrier,
    time: Duration,
    stop: &Stop,
) -> Seen {
    let (mut seen, mut random) = (Seen::default(), SplitMix::new(number as u64 + 1));
    let mut client = Client::open(address, account, SCHEMA);
    barrier.wait();
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.is_raised() {
        let outcome = match &mut client {
            Ok(client) => turn(client, &mut random, [number, sessions], &mut seen, end),
            Err(_) => Err(None),
        };
        if let Err(refused) = outcome {
            if let Some(Refused { code, text }) = refused {
                seen.errors += 1;
                seen.first_error.get_or_insert_with(|| format!("{code}: {text}"));
            }
            thread::sleep(PAUSE);
            client = Client::open(address, account, SCHEMA);
            if let Err(refused) = &client {
                seen.errors += 1;
                seen.first_error.get_or_insert_with(|| refused.to_string());
            }
        }
    }
    seen
}

/// Some reads of any counter, and a write of the session's own.
fn turn(
    client: &mut Client,
    random: &mut SplitMix,
    [number, sessions]: [usize; 2],
    seen: &mut Seen,
    end: Instant,
) -> Result<(), Option<Refused>> {
    for _ in 0..READS {
        let row = random.below(sessions * ROWS_PER_COUNTER);
        let sent = Instant::now();
        if sent >= end {
            return Ok(());
        }
        let sql = format!("SELECT c.v, n.name + 0 FROM counters c, failover.node n WHERE c.id = {row}");
        let found = client.read(&sql).map_err(Some)?;
        seen.reads.record(sent.elapsed());
        *seen.by_server.entry(found.server).or_default() += 1;
    }
    let sent = Instant::now();
    let (first, second) = (number * ROWS_PER_COUNTER, number * ROWS_PER_COUNTER + 1);
    client.run(&format!("UPDATE counters SET v = v + 1 WHERE id IN ({first}, {second})")).map_err(Some)?;
    seen.writes.record(sent.elapsed());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readers_share_leaves_out_the_writers() {
        let seen = |by_server: &[(usize, u64)]| LoadSeen {
            statements_per_s: 0.0,
            reads_per_s: 0.0,
            writes_per_s: 0.0,
            read_ms: [0.0; 2],
            write_ms: [0.0; 2],
            by_server: by_server.iter().copied().collect(),
            errors: 0,
            first_error: None,
        };
        assert!((seen(&[(1, 10), (2, 40), (3, 50)]).readers_percent(1) - 90.0).abs() < 0.01);
        assert!((seen(&[(2, 40)]).readers_percent(1) - 100.0).abs() < 0.01);
        assert!(seen(&[]).readers_percent(1).abs() < 0.01);
    }
}
