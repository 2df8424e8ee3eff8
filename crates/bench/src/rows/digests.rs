//! Measures very many digests: what each takes, and whether anybody waits while all of them are read.

use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::measure::{Metric, Sample};
use weir_lab::{ClientError, Error, Stop};

use super::scale::memory_mib;
use crate::bench::{Bench, admin_login, login, progress};
use crate::dashboards::scrape_once;
use crate::peer::Peer;

/// Clients that run statements of different digests.
const CALLERS: u32 = 8;
/// Has Weir read every row, and sends few.
const READ: &str = "SELECT * FROM stats_mysql_query_digest ORDER BY sum_time DESC LIMIT 20";
/// The same, and the digests begin again.
const RESET: &str = "SELECT COUNT(*) FROM stats_mysql_query_digest_reset";
/// What another dashboard reads meanwhile.
const BESIDE: &str = "SELECT * FROM stats_mysql_global";
/// Between two looks of those beside.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs many statements, each of a digest of its own: how fast, and what they add to memory.
pub(super) fn run(bench: &Bench<'_>, peer: &Peer) -> Result<Sample, Error> {
    let digests = bench.scale.digests;
    progress(&format!("running statements of {digests} digests"));
    let (before_mib, begun) = (memory_mib(peer)?, Instant::now());
    let doing = || Error::client("a statement of its own digest");
    thread::scope(|scope| {
        let run = |caller: u32| {
            let mut client = login(peer.addr).connect().map_err(doing())?;
            for digest in (caller..digests).step_by(CALLERS as usize) {
                if digest % 1024 == caller {
                    bench.stop.check()?;
                }
                client
                    .query(&format!("SELECT c FROM sbtest1 AS digest_{digest} WHERE id = 1"))
                    .map_err(doing())?;
            }
            Ok(())
        };
        let callers: Vec<_> = (0..CALLERS).map(|caller| scope.spawn(move || run(caller))).collect();
        callers.into_iter().try_for_each(|caller| caller.join().unwrap_or(Err(Error::Interrupted)))
    })?;
    let took = begun.elapsed();
    let grown_mib = memory_mib(peer)? - before_mib;
    Ok(Sample::default()
        .with(Metric::DigestsMib, grown_mib)
        .with(Metric::BytesPerDigest, grown_mib * f64::from(1 << 20) / f64::from(digests))
        .with(Metric::NewDigestsPerS, f64::from(digests) / took.as_secs_f64()))
}

/// Reads all of them, while others look at metrics and at other tables.
pub(super) fn read(admin: SocketAddrV4, web: SocketAddrV4) -> Result<Sample, Error> {
    let doing = || Error::client("reading all digests");
    let mut client = admin_login(admin).connect().map_err(doing())?;
    let end = Stop::default();
    let (read, scrape, beside) = thread::scope(|scope| {
        let scrapes = scope.spawn(|| longest(&end, || scrape_once(web)));
        let others = scope.spawn(|| {
            let mut client = admin_login(admin).connect()?;
            longest(&end, || client.query(BESIDE))
        });
        let begun = Instant::now();
        let read = client.query(READ).map(|()| begun.elapsed());
        end.raise();
        (read, joined(scrapes), joined(others))
    });
    Ok(Sample::default()
        .with(Metric::DigestsReadMs, ms(read.map_err(doing())?))
        .with(Metric::ScrapeMsMax, ms(scrape.map_err(doing())?))
        .with(Metric::AdminMsMax, ms(beside.map_err(doing())?)))
}

/// Reads all of them once more, and they begin again.
pub(super) fn begin_again(admin: SocketAddrV4) -> Result<Sample, Error> {
    let doing = || Error::client("reading all digests, which begin again");
    let mut client = admin_login(admin).connect().map_err(doing())?;
    let begun = Instant::now();
    client.query(RESET).map_err(doing())?;
    Ok(Sample::default().with(Metric::DigestsResetMs, ms(begun.elapsed())))
}

/// Looks again and again until it is over: how long the slowest look took.
fn longest(end: &Stop, mut look: impl FnMut() -> Result<(), ClientError>) -> Result<Duration, ClientError> {
    let mut longest = Duration::ZERO;
    while !end.is_raised() {
        let begun = Instant::now();
        look()?;
        longest = longest.max(begun.elapsed());
        thread::sleep(PAUSE);
    }
    Ok(longest)
}

fn joined(
    looker: thread::ScopedJoinHandle<'_, Result<Duration, ClientError>>,
) -> Result<Duration, ClientError> {
    looker.join().unwrap_or_else(|_| Err(ClientError::Protocol("a panic".to_owned())))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
