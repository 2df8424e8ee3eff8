//! Determines what a server with asynchronous replication covers.
//!
//! The only writer covers everything: what it does not have, no server has. That is also so after a change of writer; a
//! write that the old one acknowledged and never passed on is lost, and waiting would not bring it back.
//!
//! A replica covers what the only writer had acknowledged at t0 when it has applied the position that the writer told
//! after t0. Both need global transaction ids: `gtid_mode = ON` on MySQL, the binary log on MariaDB. Without, a replica
//! covers nothing, and sessions that have written read at the writer.
//!
//! With several writers nobody covers anything new.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use weir_client::{Connection, Error, Options};
use weir_sql::literal;
use weir_topology::{ServerShared, Unchecked};

use super::alarm::Alarm;
use super::{GAP, IDLE_PAUSE, PAUSE, REST, Standing, UNFIT_PAUSE, Writer};
use crate::clock::monotonic_ns;
use crate::probe_thread::{Order, ends};

/// The binary log's position, and whether it is kept; each server family has its own.
const POSITION_MARIADB: &str = "SELECT @@GLOBAL.gtid_binlog_pos, @@GLOBAL.log_bin";
const POSITION_MYSQL: &str = "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_mode";
/// How long the server itself waits for a position before it says that it does not have it yet, in seconds; less than
/// [`READ_TIMEOUT`].
const WAIT_S: u32 = 1;
/// How long an answer may take.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// A longer position is not waited for. Positions of usual servers have less than 1 KiB.
const POSITION_BYTES_MAX: usize = 64 * 1024;

pub(super) fn run(mut options: Options, alarm: &Alarm, standing: &Standing, orders: &Receiver<Order>) {
    let shared = &*alarm.shared;
    options.read_timeout = Some(READ_TIMEOUT);
    let mut replica = Replica { options, connection: None, followed: None, rests_until: Instant::now() };
    let mut begun_at = Instant::now();
    loop {
        // In this order: a write that was acknowledged before this moment went to the writer that is told now.
        let begin_ns = monotonic_ns();
        let pause = match standing.writer().filter(|_| standing.works()) {
            Some(Writer::Itself) => {
                replica.forget();
                shared.coverage.check_begins(begin_ns, 0);
                shared.coverage.check_ends(begin_ns, begin_ns);
                PAUSE
            }
            Some(Writer::Other(_)) if replica.rests() && !is_asked(shared) => PAUSE,
            Some(Writer::Other(writer)) => {
                begun_at = Instant::now();
                replica.catch_up(*writer, begin_ns, shared)
            }
            None => {
                replica.forget();
                shared.coverage.note_unchecked(Unchecked::NotYet);
                IDLE_PAUSE
            }
        };
        let gap = GAP.saturating_sub(begun_at.elapsed());
        let pause = if shared.coverage.is_wanted() && pause == PAUSE { gap } else { pause };
        if !pause.is_zero() {
            alarm.wait::<Connection>(&[], pause);
        }
        if ends(orders) {
            return;
        }
    }
}

/// Whether somebody waits for the server to be checked, or may soon.
fn is_asked(shared: &ServerShared) -> bool {
    shared.coverage.is_wanted() || shared.may_lack_writes()
}

struct Replica {
    options: Options,
    connection: Option<Connection>,
    followed: Option<Followed>,
    /// Until then only writes are a reason to ask again.
    rests_until: Instant,
}

/// The writer, and the position that is waited for.
struct Followed {
    options: Options,
    connection: Connection,
    awaited: Option<(u64, String)>,
}

impl Replica {
    fn forget(&mut self) {
        self.connection = None;
        self.followed = None;
        self.rests_until = Instant::now();
    }

    fn rests(&self) -> bool {
        Instant::now() < self.rests_until
    }

    /// One question to the writer or the replica; gives the pause that is due after it.
    fn catch_up(&mut self, writer: Options, begin_ns: u64, shared: &ServerShared) -> Duration {
        let awaited = self.followed.as_ref().and_then(|followed| followed.awaited.as_ref());
        let began_ns = awaited.map_or(begin_ns, |(moment_ns, _)| *moment_ns);
        shared.coverage.check_begins(began_ns, began_ns);
        let progress = self.try_to_catch_up(writer, begin_ns);
        if !matches!(progress, Ok(Progress::NotYet)) {
            shared.coverage.note_pending(0);
        }
        match progress {
            Ok(Progress::Covers(moment_ns)) => {
                shared.coverage.check_ends(moment_ns, monotonic_ns());
                self.rests_until = Instant::now() + REST;
                PAUSE
            }
            Ok(Progress::NotYet) => Duration::ZERO,
            Ok(Progress::NoPositions) => {
                warn!(
                    server = %shared.endpoint,
                    "its writer reports no global transaction ids: Weir can't tell whether reads are fresh"
                );
                self.forget();
                shared.coverage.note_unchecked(Unchecked::NoPositions);
                UNFIT_PAUSE
            }
            Err(error) => {
                debug!(server = %shared.endpoint, %error, "no causal probe");
                self.forget();
                shared.coverage.note_unchecked(Unchecked::NotYet);
                IDLE_PAUSE
            }
        }
    }

    fn try_to_catch_up(&mut self, mut writer: Options, begin_ns: u64) -> Result<Progress, Error> {
        writer.read_timeout = Some(READ_TIMEOUT);
        let mut followed = match self.followed.take().filter(|followed| followed.options == writer) {
            Some(followed) => followed,
            None => {
                let connection = Connection::connect(&writer)?;
                Followed { options: writer, connection, awaited: None }
            }
        };
        let (moment_ns, position) = match followed.awaited.take() {
            Some(awaited) => awaited,
            None => match position_of(&mut followed.connection)? {
                Some(position) => (begin_ns, position),
                None => return Ok(Progress::NoPositions),
            },
        };
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert(Connection::connect(&self.options)?),
        };
        let function = match connection.server_version().contains("MariaDB") {
            true => "MASTER_GTID_WAIT",
            false => "WAIT_FOR_EXECUTED_GTID_SET",
        };
        let has_it =
            connection.query(&format!("SELECT {function}({}, {WAIT_S})", literal::text(&position)))?;
        let progress = match has_it.first() {
            Some("0") => Progress::Covers(moment_ns),
            // The wait timed out, on MySQL and on MariaDB.
            Some("1" | "-1") => {
                followed.awaited = Some((moment_ns, position));
                Progress::NotYet
            }
            _ => Progress::NoPositions,
        };
        self.followed = Some(followed);
        Ok(progress)
    }
}

enum Progress {
    /// The replica has everything that was acknowledged before a moment, in nanoseconds.
    Covers(u64),
    /// It is behind; the same position is waited for again.
    NotYet,
    /// The writer has no positions that can be waited for.
    NoPositions,
}

/// The position of a writer; none if it has none that tells all its transactions.
fn position_of(writer: &mut Connection) -> Result<Option<String>, Error> {
    let question = match writer.server_version().contains("MariaDB") {
        true => POSITION_MARIADB,
        false => POSITION_MYSQL,
    };
    let answer = writer.query(question)?;
    Ok(answer.text(0, 0).zip(answer.text(0, 1)).and_then(|(position, kept)| usable(position, kept)))
}

/// A position as it can be put into a statement. An empty one is no position: every server would have it.
fn usable(position: &str, kept: &str) -> Option<String> {
    let is_kept = kept.eq_ignore_ascii_case("ON") || kept == "1";
    let position: String = position.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let is_plain = position.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | ',' | '_'));
    (is_kept && is_plain && !position.is_empty() && position.len() <= POSITION_BYTES_MAX).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_that_can_be_waited_for() {
        let set = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,\n4350f323-7565-4e59-8763-4b1b83a0ce0e:tag_1:1";
        let plain = set.replace('\n', "");
        assert_eq!(usable(set, "ON"), Some(plain));
        assert_eq!(usable("0-1-100,1-2-7", "1").as_deref(), Some("0-1-100,1-2-7"));
        for (position, kept) in
            [("0-1-100", "0"), ("0-1-100", "ON_PERMISSIVE"), ("", "ON"), ("\n", "1"), ("0'-1", "1")]
        {
            assert_eq!(usable(position, kept), None, "{position:?} {kept}");
        }
        assert_eq!(usable(&"0-1-1,".repeat(20_000), "1"), None);
    }
}
