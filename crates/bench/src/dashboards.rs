//! Reads statistics while something else is measured: a scraper of /metrics, and connections to the admin port.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use weir_lab::{ClientError, Error, Stop};

use crate::bench::admin_login;

/// What each admin connection reads, one table after the other.
const TABLES: [&str; 4] = [
    "SELECT * FROM stats_mysql_connection_pool",
    "SELECT * FROM stats_mysql_query_digest ORDER BY sum_time DESC LIMIT 20",
    "SELECT * FROM stats_mysql_processlist",
    "SELECT * FROM stats_mysql_global",
];
/// Between two looks of one of them, as dashboards do.
const PAUSE: Duration = Duration::from_secs(1);
/// A scrape that takes longer has failed.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(30);

/// Where they look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dashboards {
    pub(crate) admin: SocketAddrV4,
    pub(crate) web: SocketAddrV4,
    /// Connections to the admin port.
    pub(crate) connections: u32,
}

impl Dashboards {
    /// Does something while they look; with how many tables and pages were read meanwhile.
    ///
    /// # Errors
    /// Also if one of them could not look.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> Result<T, Error>) -> Result<(T, u64), Error> {
        let (end, looks) = (Stop::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            let mut lookers = Vec::new();
            for connection in 0..self.connections {
                let (end, looks) = (&end, &looks);
                lookers.push(scope.spawn(move || read_tables(self.admin, connection, end, looks)));
            }
            lookers.push(scope.spawn(|| scrape(self.web, &end, &looks)));
            let result = work();
            end.raise();
            let failed = lookers.into_iter().find_map(|looker| looker.join().ok().and_then(Result::err));
            match failed {
                Some(cause) => Err(Error::client("looking at statistics")(cause)),
                None => Ok((result?, looks.load(Ordering::Relaxed))),
            }
        })
    }
}

fn read_tables(admin: SocketAddrV4, number: u32, end: &Stop, looks: &AtomicU64) -> Result<(), ClientError> {
    // Not all in the same moment, which no dashboards do.
    let _ = end.sleep(PAUSE * (number % 20) / 20);
    let mut client = admin_login(admin).connect()?;
    while !end.is_raised() {
        for table in TABLES {
            client.query(table)?;
            looks.fetch_add(1, Ordering::Relaxed);
        }
        let _ = end.sleep(PAUSE);
    }
    Ok(())
}

fn scrape(web: SocketAddrV4, end: &Stop, looks: &AtomicU64) -> Result<(), ClientError> {
    while !end.is_raised() {
        scrape_once(web)?;
        looks.fetch_add(1, Ordering::Relaxed);
        let _ = end.sleep(PAUSE);
    }
    Ok(())
}

/// Reads /metrics.
///
/// # Errors
/// Also if it is not answered with 200.
pub(crate) fn scrape_once(web: SocketAddrV4) -> Result<(), ClientError> {
    let mut stream = TcpStream::connect(web)?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {web}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page)?;
    if !page.starts_with(b"HTTP/1.1 200 ") {
        let line = page.split(|byte| *byte == b'\r').next().unwrap_or_default();
        return Err(ClientError::Protocol(format!("/metrics: {}", String::from_utf8_lossy(line))));
    }
    Ok(())
}
