//! Sends one server reads that wait, and takes their answers.
//!
//! A read may come back late for two reasons. The server has much to apply: then its answer is on its way, and asking
//! anew would mean to wait anew. Or the cluster's view changed while it waited, and the server has lost it: then it
//! comes back when Galera's own limit is reached (`repl.causal_read_timeout`, 30 s), or never, while another one is
//! answered at once. So a late read is not given up; a second one is sent beside it, on a session of its own, and
//! whichever ends first counts.

use std::time::{Duration, Instant};

use tracing::{debug, warn};
use weir_client::{Connection, Error, Options};
use weir_topology::{Millis, ServerShared, Unchecked};

use super::alarm::Alarm;
use super::pace::Pace;
use super::{IDLE_PAUSE, PAUSE, REST, Tables, Told, UNFIT_PAUSE};
use crate::clock::{monotonic_ms, monotonic_ns, nanos};
use crate::epoch_tables::{self, Fault};

/// Reads a table, which every server waits for that waits at all, and which everybody may read. MySQL does not wait for
/// a SELECT without tables, nor for one of its performance schema.
const READ: &str = "SELECT 1 FROM information_schema.ENGINES LIMIT 1";
/// MariaDB waits for any SELECT (seen on 10.11), and this one costs it less.
const READ_MARIADB: &str = "SELECT 1";
/// Who waits need not wait for a check that is late: another one is begun beside it after this time, or twice the usual one.
const STAGGER_MIN: Duration = Duration::from_millis(5);
/// After so long another read is sent beside one that is late; after twice that beside two, and so on.
const PATIENCE: Duration = Duration::from_millis(250);
/// Reads that wait at the same time.
const READS_MAX: usize = 4;
/// Sessions that are kept for the next reads.
const SESSIONS_KEPT: usize = 2;
/// A read that has waited for so long is given up, to make room for another. The server may go on waiting.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(5);
/// How long what does not wait may take: setting a session up, and an answer once it has begun to come.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest wait for answers before orders are looked at.
const LISTEN_MAX: Duration = Duration::from_millis(25);
/// One session that does not seem to wait may be a server's that is just changing its view.
const UNFIT_MAX: u32 = 3;

/// How a session is made to wait.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    variable: &'static str,
    /// With autocommit: in one transaction that never ends, reads would see the tables as they were at its beginning.
    set: &'static str,
    /// Counts the waits of all sessions.
    counter: &'static str,
}

pub(super) const GALERA: Waiting = Waiting {
    variable: "wsrep_sync_wait",
    set: "SET SESSION wsrep_sync_wait = 1, autocommit = 1",
    counter: "SHOW GLOBAL STATUS LIKE 'wsrep_causal_reads'",
};
/// The counter is there from MySQL 8.1 on.
pub(super) const GROUP_REPLICATION: Waiting = Waiting {
    variable: "group_replication_consistency",
    set: "SET SESSION group_replication_consistency = 'BEFORE', autocommit = 1",
    counter: "SHOW GLOBAL STATUS LIKE 'Gr_transactions_consistency_before_begin_count'",
};

/// The reads that are under way on one server.
pub(super) struct Reads<'a> {
    waiting: Waiting,
    options: Options,
    shared: &'a ServerShared,
    told: Told,
    alarm: &'a Alarm,
    pace: Pace,
    sessions: Vec<Session>,
    /// When the next read is due, if nobody wants one.
    due: Instant,
    /// None is begun before: the last one failed, or began just now.
    not_before: Instant,
    /// When the epoch's tables were read last.
    epoch_read_at: Option<Instant>,
    /// Until then a read is only begun if it may tell something new.
    rests_until: Instant,
    /// The last read that has come back was sent then.
    covered_ns: u64,
    /// Failures in a row.
    failures: u32,
    /// Sessions in a row that didn't wait.
    unfit: u32,
    /// The epoch's tables can't be read: the next read is a plain one, so that the server's coverage goes on.
    is_plain_next: bool,
}

struct Session {
    connection: Connection,
    /// What makes it wait for nothing else.
    read: &'static str,
    /// What it waits for.
    asked: Option<Asked>,
}

/// A statement that was sent.
#[derive(Clone, Copy)]
struct Asked {
    what: What,
    sent: Instant,
    /// All that was acknowledged before this moment is visible when the read has waited.
    at_ns: u64,
    at: Millis,
}

#[derive(Clone, Copy)]
enum What {
    /// The session's first read; the server's counter was this before it.
    First { counted: u64 },
    /// The counter again.
    Counter { counted: u64 },
    /// A read of a table that is always there.
    Plain,
    /// A read of the epoch's tables.
    Epoch(Tables),
}

impl<'a> Reads<'a> {
    pub(super) fn new(waiting: Waiting, mut options: Options, alarm: &'a Alarm, told: Told) -> Self {
        options.read_timeout = Some(ANSWER_TIMEOUT);
        Self {
            waiting,
            options,
            shared: &alarm.shared,
            told,
            alarm,
            pace: Pace::new(Instant::now()),
            sessions: Vec::new(),
            due: Instant::now(),
            not_before: Instant::now(),
            epoch_read_at: None,
            rests_until: Instant::now(),
            covered_ns: 0,
            failures: 0,
            unfit: 0,
            is_plain_next: false,
        }
    }

    /// The server is no member of its cluster now: what it was asked before says nothing.
    pub(super) fn forget(&mut self) {
        self.sessions.clear();
        let now = Instant::now();
        (self.due, self.not_before, self.rests_until) = (now, now, now);
        (self.failures, self.unfit) = (0, 0);
        self.shared.coverage.note_pending(0);
        self.shared.coverage.note_unchecked(Unchecked::NotYet);
    }

    /// Nothing to do for so long, unless a check is wanted.
    pub(super) fn sleep(&self, pause: Duration) {
        self.alarm.wait::<Connection>(&[], pause);
    }

    /// Begins a read if one is due or wanted, and waits for answers for a moment. While somebody waits for what the epoch's
    /// tables show, `in_hurry`, it does not rest.
    pub(super) fn go_on(&mut self, epoch_of: Option<Tables>, in_hurry: bool) {
        self.sessions
            .retain(|session| session.asked.is_none_or(|asked| asked.sent.elapsed() < GIVEN_UP_AFTER));
        let now = Instant::now();
        let mut next = self.next_begin(in_hurry);
        if next.is_some_and(|at| at <= now) {
            self.begin(epoch_of.filter(|_| in_hurry || self.is_epoch_due(now)));
            next = self.next_begin(in_hurry);
        }
        let pause = next.map_or(LISTEN_MAX, |at| at.saturating_duration_since(Instant::now()));
        self.listen(pause.min(LISTEN_MAX));
    }

    /// The earliest moment at which a read may be begun; none as long as too many have not come back.
    fn next_begin(&self, in_hurry: bool) -> Option<Instant> {
        let late = self.asked().count();
        let Some(last) = self.asked().map(|asked| asked.sent).max() else {
            if self.shared.coverage.is_wanted() {
                return Some(self.not_before);
            }
            let rests = !in_hurry && !self.shared.may_lack_writes();
            let due = if rests { self.due.max(self.rests_until) } else { self.due };
            return Some(due.max(self.not_before));
        };
        let patience = if late == 1 && self.shared.coverage.is_wanted() {
            STAGGER_MIN.max(2 * Duration::from_nanos(self.shared.coverage.latency_ns()))
        } else {
            PATIENCE * u32::try_from(late).unwrap_or(u32::MAX)
        };
        (late < READS_MAX).then(|| (last + patience.min(PATIENCE * READS_MAX as u32)).max(self.not_before))
    }

    /// Whether a check is to read the epoch's tables, too, which costs more.
    fn is_epoch_due(&self, now: Instant) -> bool {
        self.epoch_read_at.is_none_or(|at| now.duration_since(at) >= PAUSE)
    }

    /// Reads that have not come back and would tell something new.
    fn asked(&self) -> impl Iterator<Item = Asked> {
        let covered_ns = self.covered_ns;
        self.sessions.iter().filter_map(|session| session.asked).filter(move |asked| asked.at_ns > covered_ns)
    }

    /// Sends a read, on a session that has come back or on a new one.
    fn begin(&mut self, epoch_of: Option<Tables>) {
        let what = match epoch_of.filter(|_| !self.is_plain_next) {
            Some(tables) => {
                self.epoch_read_at = Some(Instant::now());
                What::Epoch(tables)
            }
            None => What::Plain,
        };
        self.is_plain_next = false;
        let gap = self.pace.gap(self.shared.coverage.latency_ns());
        self.not_before = Instant::now() + gap;
        self.shared.coverage.note_next(monotonic_ns().saturating_add(nanos(gap)));
        let free = self.sessions.iter_mut().find(|session| session.asked.is_none());
        let begun = match free {
            Some(session) => session.ask(what, &self.waiting),
            None => Session::open(&self.waiting, &self.options).map(|session| self.sessions.push(session)),
        };
        if let Err(error) = begun {
            self.failed(&error);
        }
        if let Some(newest) = self.asked().map(|asked| asked.at_ns).max() {
            self.shared.coverage.check_begins(newest, self.oldest_ns());
        }
    }

    /// When the first read began that has not come back; 0: all have.
    fn oldest_ns(&self) -> u64 {
        self.asked().map(|asked| asked.at_ns).min().unwrap_or(0)
    }

    fn failed(&mut self, error: &Error) {
        debug!(server = %self.shared.endpoint, %error, "a causal read failed");
        self.sessions.retain(|session| !session.connection.is_broken());
        self.failures = self.failures.saturating_add(1);
        self.shared.coverage.note_unchecked(Unchecked::NotYet);
        // The first may be due to a change of the view that is over.
        self.not_before = Instant::now() + if self.failures == 1 { PAUSE } else { IDLE_PAUSE };
    }

    /// Waits for answers, and takes those that are there.
    fn listen(&mut self, timeout: Duration) {
        let waits = |session: &&Session| session.asked.is_some();
        let waited: Vec<&Connection> =
            self.sessions.iter().filter(waits).map(|session| &session.connection).collect();
        let speaks = self.alarm.wait(&waited, timeout);
        let mut speaks = speaks.into_iter();
        for mut session in std::mem::take(&mut self.sessions) {
            if session.asked.is_some() && speaks.next() == Some(true) && !self.hear(&mut session) {
                continue;
            }
            self.sessions.push(session);
        }
        self.tidy();
        self.shared.coverage.note_pending(self.oldest_ns());
    }

    /// Takes an answer; false if the session is of no further use.
    fn hear(&mut self, session: &mut Session) -> bool {
        let Some(asked) = session.asked.take() else { return true };
        let answer =
            session.connection.finish().map(|results| results.into_iter().next().unwrap_or_default());
        match (asked.what, answer) {
            (What::First { counted }, Ok(_)) => {
                // Of the read is told when it is known to have waited.
                let check = Asked { what: What::Counter { counted }, ..asked };
                return session.ask_as(check, self.waiting.counter).is_ok();
            }
            (What::Counter { counted }, Ok(answer)) => {
                let after = answer.text(0, 1).and_then(|count| count.parse::<u64>().ok());
                if after.is_none_or(|after| after <= counted) {
                    self.does_not_wait();
                    return false;
                }
                self.unfit = 0;
                self.came_back(asked);
            }
            (What::Plain, Ok(_)) => self.came_back(asked),
            (What::Epoch(Tables { with_drains, .. }), Ok(answer)) => {
                let read = epoch_tables::understand(&answer, with_drains, asked.at);
                self.told.tell(read);
                // The read itself has waited, whatever it says.
                self.came_back(asked);
            }
            (What::Epoch(_), Err(error)) => {
                let fault = Fault::from(error);
                match &fault {
                    Fault::Other(error) => self.failed(error),
                    _ => self.is_plain_next = true,
                }
                self.told.tell(Err(fault));
            }
            (_, Err(error)) => self.failed(&error),
        }
        !session.connection.is_broken()
    }

    fn came_back(&mut self, asked: Asked) {
        let now_ns = monotonic_ns();
        self.pace.note(now_ns.saturating_sub(asked.at_ns), Instant::now());
        self.shared.coverage.check_ends(asked.at_ns, now_ns);
        self.failures = 0;
        self.covered_ns = self.covered_ns.max(asked.at_ns);
        (self.due, self.rests_until) = (Instant::now() + PAUSE, Instant::now() + REST);
    }

    fn does_not_wait(&mut self) {
        self.unfit += 1;
        if self.unfit < UNFIT_MAX {
            self.not_before = Instant::now() + IDLE_PAUSE;
            return;
        }
        let Waiting { variable, .. } = self.waiting;
        warn!(server = %self.shared.endpoint, "{variable} has no effect here: Weir can't tell whether reads are fresh");
        self.told.tell(Err(Fault::Unfit(variable)));
        self.shared.coverage.note_unchecked(Unchecked::DoesNotWait);
        self.not_before = Instant::now() + UNFIT_PAUSE;
    }

    /// What was sent before a read that has come back would tell nothing new: its session is given up, unless there are no
    /// others. A second session is there for when a read is late.
    fn tidy(&mut self) {
        let is_of_use = |session: &Session| session.asked.is_none_or(|asked| asked.at_ns > self.covered_ns);
        let mut spare =
            SESSIONS_KEPT.saturating_sub(self.sessions.iter().filter(|session| is_of_use(session)).count());
        let mut free = SESSIONS_KEPT;
        self.sessions.retain(|session| {
            let left = if session.asked.is_none() { &mut free } else { &mut spare };
            let is_kept = *left > 0 || (session.asked.is_some() && is_of_use(session));
            *left = left.saturating_sub(1);
            is_kept
        });
    }
}

impl Session {
    /// A session that waits, with its first read under way.
    fn open(waiting: &Waiting, options: &Options) -> Result<Self, Error> {
        let mut connection = Connection::connect(options)?;
        // Before it waits itself, so that these are answered at once.
        let counted = connection.query(waiting.counter)?.text(0, 1).and_then(|count| count.parse().ok());
        connection.query(waiting.set)?;
        let read = if connection.server_version().contains("MariaDB") { READ_MARIADB } else { READ };
        let mut session = Self { connection, read, asked: None };
        session.ask(What::First { counted: counted.unwrap_or(u64::MAX) }, waiting)?;
        Ok(session)
    }

    fn ask(&mut self, what: What, waiting: &Waiting) -> Result<(), Error> {
        let asked = Asked { what, sent: Instant::now(), at_ns: monotonic_ns(), at: monotonic_ms() };
        match what {
            What::First { .. } | What::Plain => self.ask_as(asked, self.read),
            What::Counter { .. } => self.ask_as(asked, waiting.counter),
            What::Epoch(Tables { hostgroup, with_drains }) => {
                self.ask_as(asked, &epoch_tables::question(hostgroup, with_drains))
            }
        }
    }

    fn ask_as(&mut self, asked: Asked, sql: &str) -> Result<(), Error> {
        self.connection.begin(sql)?;
        self.asked = Some(asked);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, sync_channel};

    use weir_testkit::{FakeServer, Script, Step};
    use weir_topology::Endpoint;

    use super::*;
    use crate::causal_probe::fake::{row, server};
    use crate::topology_thread::Event;

    /// Up to the first read.
    fn set_up() -> Script {
        let script = row(Script::new().query("SHOW GLOBAL STATUS"), &["wsrep_causal_reads", "7"]);
        script.query(GALERA.set).ok().query("SELECT 1")
    }

    /// One whose first read comes back, and whose counter then says this.
    fn comes_back(counter: &str) -> Script {
        let script = row(set_up(), &["1"]).query("SHOW GLOBAL STATUS");
        row(script, &["wsrep_causal_reads", counter])
    }

    fn probe(server: &FakeServer, of: impl FnOnce(&mut Reads<'_>, &ServerShared, &Receiver<Event>)) {
        let address = server.addr();
        let endpoint = Endpoint::new(&address.ip().to_string(), address.port());
        let shared = Arc::new(ServerShared::new(endpoint.clone()));
        let (events, heard) = sync_channel(100);
        let told = Told { events, generation: 1, endpoint, last: None };
        let options = Options::new(&address.ip().to_string(), address.port(), "monitor", "");
        let alarm = Alarm::of(shared.clone()).unwrap();
        of(&mut Reads::new(GALERA, options, &alarm, told), &shared, &heard);
    }

    fn until(reads: &mut Reads<'_>, what: &str, is_so: impl Fn(&Reads<'_>) -> bool) {
        let begun = Instant::now();
        while !is_so(reads) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            reads.go_on(None, false);
        }
    }

    #[test]
    fn a_read_that_the_server_has_lost_holds_up_nothing() {
        let server = server(|connection| match connection {
            0 => set_up().step(Step::Ignore),
            _ => row(comes_back("8").query("SELECT 1"), &["1"]).step(Step::Ignore),
        });
        probe(&server, |reads, shared, _| {
            let written_ns = monotonic_ns();
            shared.note_write(written_ns);
            until(reads, "the second read counts", |_| shared.covers(written_ns));
            assert_eq!(reads.asked().count(), 0, "the first one is of no use any more");
            let written_ns = monotonic_ns();
            shared.note_write(written_ns);
            until(reads, "the session goes on", |_| shared.covers(written_ns));
            assert_eq!(server.connections(), 2);
        });
    }

    #[test]
    fn while_nobody_writes_there_is_nothing_to_ask() {
        let server = server(|_| comes_back("8").query("SELECT 1").step(Step::Ignore));
        probe(&server, |reads, shared, _| {
            // A write of long ago.
            shared.note_write(1);
            until(reads, "the first read covers it", |_| !shared.may_lack_writes());
            (reads.due, reads.rests_until) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
            reads.go_on(None, false);
            assert!(reads.asked().next().is_none());
            shared.note_write(monotonic_ns());
            reads.go_on(None, false);
            assert!(reads.asked().next().is_some());
        });
    }

    #[test]
    fn what_is_late_is_not_begun_anew() {
        // All reads take longer than the probe's patience, as on a server with much to apply.
        let late = PATIENCE * 3;
        let server = server(move |_| {
            let script = row(set_up().step(Step::Wait(late)), &["1"]).query("SHOW GLOBAL STATUS");
            row(script, &["wsrep_causal_reads", "8"]).step(Step::Ignore)
        });
        probe(&server, |reads, shared, _| {
            until(reads, "it comes back", |_| shared.coverage.covered_until_ns() > 0);
            assert!(server.connections() <= u32::try_from(READS_MAX).unwrap() + 1);
        });
    }

    #[test]
    fn a_session_that_does_not_wait_covers_nothing() {
        let server = server(|_| comes_back("7").step(Step::Ignore));
        probe(&server, |reads, shared, heard| {
            until(reads, "it is found out", |reads| reads.unfit >= UNFIT_MAX);
            assert!(!shared.covers(0));
            let told = heard.try_recv();
            assert!(matches!(told, Ok(Event::Epoch { result: Err(Fault::Unfit("wsrep_sync_wait")), .. })));
            let connections = server.connections();
            reads.go_on(None, false);
            assert_eq!(server.connections(), connections, "not for a while");
            reads.forget();
            until(reads, "back in the cluster it is tried again", |_| server.connections() > connections);
        });
    }
}
