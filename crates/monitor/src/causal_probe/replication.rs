//! Determines what a server with asynchronous replication covers.
//!
//! The only writer covers everything: what it does not have, no server has. That is also so after a change of writer; a
//! write that the old one acknowledged and never passed on is lost, and waiting would not bring it back. Somebody else may
//! have moved that role a moment ago, as another Weir does: so a server counts as the writer if it says itself, after t0, that it
//! is not read_only. A new writer is made only when the old one is.
//!
//! A replica covers what the only writer had acknowledged at t0 when it has applied the position that the writer told
//! after t0. Both need global transaction ids: `gtid_mode = ON` on MySQL, the binary log on MariaDB. Without, a replica
//! covers nothing, and sessions that have written read at the writer.
//!
//! A writer that was restored from a backup, or whose log was reset, gives numbers once more that its replicas have of the
//! former transactions: they would seem to have the new ones. So the writer has to have what the replica had from it at the check
//! before; at the first one, it is asked once more behind that.
//!
//! With several writers nobody covers anything new.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use weir_client::{Connection, Error, Options};
use weir_sql::literal;
use weir_topology::{ReadOnlyCheck, ReplicaState, ServerShared, Unchecked, positions};

use super::alarm::Alarm;
use super::pace::Pace;
use super::{IDLE_PAUSE, PAUSE, REST, Source, Standing, UNFIT_PAUSE, Writer};
use crate::clock::{monotonic_ns, nanos};
use crate::probe_thread::{Order, ends};

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
    let mut server = Server::new(options);
    let mut not_before = Instant::now();
    loop {
        // Whoever wants a check is heard at once, and waits until it is time.
        let rest = not_before.saturating_duration_since(Instant::now());
        if !rest.is_zero() {
            thread::sleep(rest);
        }
        // In this order: a write that was acknowledged before this moment went to the writer that is told now.
        let begin_ns = monotonic_ns();
        let pause = match standing.writer().filter(|_| standing.works()) {
            Some(_) if server.rests() && !is_asked(shared) => PAUSE,
            Some(writer) => {
                let gap = server.pace.gap(shared.coverage.latency_ns());
                not_before = Instant::now() + gap;
                shared.coverage.note_next(begin_ns.saturating_add(nanos(gap)));
                server.check(writer, begin_ns, shared)
            }
            None => {
                server.forget();
                shared.coverage.note_unchecked(Unchecked::NotYet);
                IDLE_PAUSE
            }
        };
        let pause = if shared.coverage.is_wanted() && pause == PAUSE { Duration::ZERO } else { pause };
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

/// The server that is checked.
struct Server {
    options: Options,
    connection: Option<Connection>,
    followed: Option<Followed>,
    pace: Pace,
    /// Until then only writes are a reason to ask again.
    rests_until: Instant,
    /// The log has been told why it can't be checked.
    is_told: Option<Unchecked>,
}

/// The writer, and the position that is waited for.
struct Followed {
    source: Source,
    connection: Connection,
    awaited: Option<Awaited>,
    /// What the server had from the writer when both were asked last; none: not both have been, on these connections.
    had: Option<String>,
}

/// A position that the writer has told after a moment, in nanoseconds.
struct Awaited {
    moment_ns: u64,
    position: String,
    /// The writer's own name.
    server_uuid: String,
}

impl Server {
    fn new(options: Options) -> Self {
        let now = Instant::now();
        Self {
            options,
            connection: None,
            followed: None,
            pace: Pace::new(now),
            rests_until: now,
            is_told: None,
        }
    }

    fn forget(&mut self) {
        self.connection = None;
        self.followed = None;
        self.rests_until = Instant::now();
    }

    fn rests(&self) -> bool {
        Instant::now() < self.rests_until
    }

    /// One question to the writer or the server itself; gives the pause that is due after it.
    fn check(&mut self, writer: Writer, begin_ns: u64, shared: &ServerShared) -> Duration {
        let awaited = self.followed.as_ref().and_then(|followed| followed.awaited.as_ref());
        let began_ns = awaited.map_or(begin_ns, |awaited| awaited.moment_ns);
        shared.coverage.check_begins(began_ns, began_ns);
        let progress = match writer {
            Writer::Itself(check) => self.looks_at_itself(check, begin_ns),
            Writer::Other(source) => self.catch_up(*source, begin_ns),
        };
        if !matches!(progress, Ok(Progress::NotYet)) {
            shared.coverage.note_pending(0);
        }
        match progress {
            Ok(Progress::Covers(moment_ns)) => {
                let now_ns = monotonic_ns();
                self.pace.note(now_ns.saturating_sub(moment_ns), Instant::now());
                shared.coverage.check_ends(moment_ns, now_ns);
                self.rests_until = Instant::now() + REST;
                self.is_told = None;
                PAUSE
            }
            Ok(Progress::NotYet) => Duration::ZERO,
            Ok(Progress::Uncheckable(why)) => {
                self.forget();
                shared.coverage.note_unchecked(why);
                if why == Unchecked::WriterReadOnly {
                    return IDLE_PAUSE;
                }
                if self.is_told.replace(why) != Some(why) {
                    let why = why.as_str();
                    warn!(server = %shared.endpoint, "Weir can't tell whether reads are fresh: {why}");
                }
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

    /// It is the writer, as long as it says so itself.
    fn looks_at_itself(&mut self, check: ReadOnlyCheck, begin_ns: u64) -> Result<Progress, Error> {
        self.followed = None;
        let columns = variables(check).map(|name| format!("@@GLOBAL.{name}"));
        let question = format!("SELECT {}", columns.collect::<Vec<_>>().join(", "));
        let answer = connected(&mut self.connection, &self.options)?.query(&question)?;
        let is_writer = is_writable(check, |column| answer.text(0, column));
        Ok(if is_writer {
            Progress::Covers(begin_ns)
        } else {
            Progress::Uncheckable(Unchecked::WriterReadOnly)
        })
    }

    fn catch_up(&mut self, mut source: Source, begin_ns: u64) -> Result<Progress, Error> {
        source.options.read_timeout = Some(READ_TIMEOUT);
        let mut followed = match self.followed.take().filter(|followed| followed.source == source) {
            Some(followed) => followed,
            None => {
                let connection = Connection::connect(&source.options)?;
                Followed { source, connection, awaited: None, had: None }
            }
        };
        let awaited = match followed.awaited.take() {
            Some(awaited) => awaited,
            None => match followed.ask(begin_ns)? {
                Ok(awaited) => awaited,
                Err(why) => return Ok(Progress::Uncheckable(why)),
            },
        };
        if self.connection.is_none() {
            // Another server may be there.
            followed.had = None;
        }
        let connection = connected(&mut self.connection, &self.options)?;
        let (function, has) = match connection.server_version().contains("MariaDB") {
            true => ("MASTER_GTID_WAIT", "@@GLOBAL.gtid_slave_pos"),
            false => ("WAIT_FOR_EXECUTED_GTID_SET", "@@GLOBAL.gtid_executed"),
        };
        let position = literal::text(&awaited.position);
        let answer = connection.query(&format!("SELECT {function}({position}, {WAIT_S}), {has}"))?;
        let progress = match answer.text(0, 0) {
            Some("0") => {
                let has = answer.text(0, 1).unwrap_or_default();
                let is_first = followed.had.is_none();
                followed.had = Some(followed.part_of(&awaited, has));
                // What it has may be of the source as it was before.
                if is_first && let Err(why) = followed.ask(begin_ns)? {
                    return Ok(Progress::Uncheckable(why));
                }
                Progress::Covers(awaited.moment_ns)
            }
            // The wait timed out, on MySQL and on MariaDB.
            Some("1" | "-1") => {
                followed.awaited = Some(awaited);
                Progress::NotYet
            }
            _ => return Ok(Progress::Uncheckable(Unchecked::NoPositions)),
        };
        self.followed = Some(followed);
        Ok(progress)
    }
}

impl Followed {
    /// Asks the writer for its position, whether it still writes, and whether it has what its replica has had from it.
    fn ask(&mut self, moment_ns: u64) -> Result<Result<Awaited, Unchecked>, Error> {
        let check = self.source.check;
        let had = self.had.as_deref().unwrap_or_default();
        let is_mariadb = self.is_mariadb();
        let mut question = match is_mariadb {
            true => "SELECT @@GLOBAL.gtid_binlog_pos, @@GLOBAL.log_bin, '', 1".to_owned(),
            false => format!(
                "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_mode, @@GLOBAL.server_uuid, \
                 GTID_SUBSET({}, @@GLOBAL.gtid_executed)",
                literal::text(had)
            ),
        };
        for name in variables(check) {
            question.push_str(", @@GLOBAL.");
            question.push_str(name);
        }
        let answer = self.connection.query(&question)?;
        let text = |column| answer.text(0, column).unwrap_or_default();
        if !is_writable(check, |column| answer.text(0, COLUMNS + column)) {
            return Ok(Err(Unchecked::WriterReadOnly));
        }
        let is_set_back = if is_mariadb { positions::is_behind(text(0), had) } else { text(3) == "0" };
        // A log that was reset has nothing.
        if is_set_back || (text(0).is_empty() && !had.is_empty()) {
            return Ok(Err(Unchecked::SourceWentBack));
        }
        let Some(position) = usable(text(0), text(1)) else { return Ok(Err(Unchecked::NoPositions)) };
        Ok(Ok(Awaited { moment_ns, position, server_uuid: text(2).to_owned() }))
    }

    /// What of a replica's position comes from this writer; nothing if it is too long to be asked for.
    fn part_of(&self, awaited: &Awaited, has: &str) -> String {
        let part = match self.is_mariadb() {
            true => has.to_owned(),
            false => positions::given_by(has, &awaited.server_uuid),
        };
        usable(&part, "ON").unwrap_or_default()
    }

    fn is_mariadb(&self) -> bool {
        self.connection.server_version().contains("MariaDB")
    }
}

enum Progress {
    /// The server has everything that was acknowledged before a moment, in nanoseconds.
    Covers(u64),
    /// It is behind; the same position is waited for again.
    NotYet,
    /// Nobody can tell what it has, for this reason.
    Uncheckable(Unchecked),
}

/// Columns in front of those of [`variables`] in the answer to [`Followed::ask`].
const COLUMNS: usize = 4;

fn connected<'c>(
    connection: &'c mut Option<Connection>,
    options: &Options,
) -> Result<&'c mut Connection, Error> {
    Ok(match connection {
        Some(connection) => connection,
        None => connection.insert(Connection::connect(options)?),
    })
}

/// What tells whether a server is read_only.
fn variables(check: ReadOnlyCheck) -> impl Iterator<Item = &'static str> {
    let names: &[&str] = match check {
        ReadOnlyCheck::ReadOnly => &["read_only"],
        ReadOnlyCheck::InnodbReadOnly => &["innodb_read_only"],
        ReadOnlyCheck::SuperReadOnly => &["super_read_only"],
        ReadOnlyCheck::Both | ReadOnlyCheck::Either => &["read_only", "innodb_read_only"],
    };
    names.iter().copied()
}

/// Whether a server with these values of [`variables`] takes writes.
fn is_writable<'a>(check: ReadOnlyCheck, value: impl Fn(usize) -> Option<&'a str>) -> bool {
    let values = variables(check).enumerate().filter_map(|(at, name)| Some((name, value(at)?)));
    let state = ReplicaState::from_rows(values, std::iter::empty::<[(&str, Option<&str>); 0]>());
    state.is_read_only(check) == Ok(false)
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
    use std::net::SocketAddrV4;

    use weir_testkit::{FakeServer, Script, Step};
    use weir_topology::Endpoint;

    use super::*;
    use crate::causal_probe::fake::{row, server};

    fn options(address: SocketAddrV4) -> Options {
        Options::new(&address.ip().to_string(), address.port(), "monitor", "")
    }

    /// A writer that gives these answers, of position and read_only.
    fn writer(answers: &'static [(&'static str, &'static str)]) -> FakeServer {
        let script = |script: Script, (position, read_only): &(&str, &str)| {
            row(script.query("SELECT @@GLOBAL.gtid_binlog_pos"), &[position, "1", "", "1", read_only])
        };
        server(move |_| answers.iter().fold(Script::new(), script).step(Step::Ignore))
    }

    /// A replica that has what is waited for, and has this position then.
    fn replica(positions: &'static [&'static str]) -> FakeServer {
        let script = |script: Script, has: &&str| row(script.query("SELECT MASTER_GTID_WAIT("), &["0", has]);
        server(move |_| positions.iter().fold(Script::new(), script).step(Step::Ignore))
    }

    /// Checks the replica at these moments; gives whether it covers what was before each, and why it can't be checked.
    fn checked(writer: &FakeServer, replica: &FakeServer, moments: &[u64]) -> Vec<(bool, Option<Unchecked>)> {
        let endpoint = Endpoint::new("127.0.0.1", replica.addr().port());
        let shared = ServerShared::new(endpoint);
        let mut server = Server::new(options(replica.addr()));
        let source = Source { options: options(writer.addr()), check: ReadOnlyCheck::ReadOnly };
        let mut check = |moment: &u64| {
            server.check(Writer::Other(Box::new(source.clone())), *moment, &shared);
            (shared.covers(moment - 1), shared.coverage.unchecked())
        };
        moments.iter().map(&mut check).collect()
    }

    const COVERS: (bool, Option<Unchecked>) = (true, None);

    #[test]
    fn a_replica_has_what_the_writer_told_if_that_still_writes() {
        let writer_of = writer(&[("0-1-10", "0"), ("0-1-10", "OFF"), ("0-1-12", "0"), ("0-1-12", "1")]);
        let replica = replica(&["0-1-10", "0-1-12"]);
        let moved = (false, Some(Unchecked::WriterReadOnly));
        assert_eq!(checked(&writer_of, &replica, &[100, 200, 300]), [COVERS, COVERS, moved]);
        // It has become read_only between the two questions of a first check.
        let writer = writer(&[("0-1-10", "0"), ("0-1-10", "ON")]);
        assert_eq!(checked(&writer, &replica, &[100]), [moved]);
    }

    #[test]
    fn numbers_that_a_restored_writer_gives_once_more_are_not_taken_for_the_former() {
        let back = (false, Some(Unchecked::SourceWentBack));
        // Weir has just begun, and the replica has up to 1000 of what was before.
        let replica_of = replica(&["0-1-1000"]);
        let writer_of = writer(&[("0-1-501", "0"), ("0-1-502", "0")]);
        assert_eq!(checked(&writer_of, &replica_of, &[100]), [back]);
        // RESET MASTER, of which no connection breaks.
        for after in ["0-1-3", ""] {
            let answers: Vec<_> = [("0-1-1000", "0"); 2].into_iter().chain([(after, "0")]).collect();
            let writer_of = writer(answers.leak());
            assert_eq!(checked(&writer_of, &replica(&["0-1-1000"]), &[100, 200]), [COVERS, back], "{after}");
        }
        // What a replica has from elsewhere does not matter.
        let replica = replica(&["0-1-7,5-3-1000"]);
        let writer = writer(&[("0-1-7", "0"), ("0-1-7", "0")]);
        assert_eq!(checked(&writer, &replica, &[100]), [COVERS]);
    }

    #[test]
    fn the_writer_is_who_says_so_itself() {
        let answers = ["0", "OFF", "ON", "NO_LOCK"];
        let script = |script: Script, is: &&str| row(script.query("SELECT @@GLOBAL.read_only"), &[is]);
        let fake = server(move |_| answers.iter().fold(Script::new(), script).step(Step::Ignore));
        let shared = ServerShared::new(Endpoint::new("127.0.0.1", fake.addr().port()));
        let mut itself = Server::new(options(fake.addr()));
        for (moment, is_covered) in [(100, true), (200, true), (300, false)] {
            itself.check(Writer::Itself(ReadOnlyCheck::ReadOnly), moment, &shared);
            assert_eq!(shared.covers(moment - 1), is_covered, "{moment}");
        }
        assert_eq!(shared.coverage.unchecked(), Some(Unchecked::WriterReadOnly));
        let is = |check, values: &[&str]| is_writable(check, |at| values.get(at).copied());
        assert!(!is(ReadOnlyCheck::ReadOnly, &["NO_LOCK"]) && !is(ReadOnlyCheck::ReadOnly, &[]));
        assert!(is(ReadOnlyCheck::Both, &["1", "0"]) && !is(ReadOnlyCheck::Either, &["1", "0"]));
        assert!(is(ReadOnlyCheck::SuperReadOnly, &["0"]) && !is(ReadOnlyCheck::InnodbReadOnly, &["1"]));
    }

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
