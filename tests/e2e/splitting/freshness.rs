//! A session's reads never miss its own writes, although they go to nodes that apply them later.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use weir_testkit::{Galera, Weir};
use weir_tests::session::Prepared;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::WHERE;

/// Sessions that write and read at the same time.
const SESSIONS: u32 = 4;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("splitting::a_session_never_misses_its_own_writes", own_writes),
        Case::parallel("splitting::definitions_are_seen_at_once", definitions),
        // They hold nodes up, which the cases beside them would feel.
        Case::serial("splitting::not_even_from_readers_that_lag_behind", lagging_readers),
        Case::serial("splitting::not_even_from_readers_that_were_stopped_for_a_moment", paused_readers),
    ]
}

fn own_writes(env: &Env) -> CaseResult {
    let cycles = Cycles::new(env, 600)?;
    let outcome = cycles.run()?;
    outcome.check()?;
    // Else nothing was tested.
    ensure!(outcome.from_readers >= outcome.reads / 20, "{outcome:?}: hardly a read went to a reader");
    Ok(())
}

/// Big transactions of a neighbour keep the only applier of each reader busy for long.
fn lagging_readers(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let cycles = Cycles::new(env, 500)?;
    let schema = &cycles.schema;
    let mut neighbour = Session::open(cluster.node(1).addr(), schema)?;
    neighbour.run("CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(60), KEY (v))")?;
    for node in cluster.nodes() {
        node.root_query("SET GLOBAL wsrep_slave_threads = 1")?;
    }
    let finished = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::Relaxed) {
                let fill = "INSERT INTO big SELECT seq, CONCAT(seq, '-', RAND()) FROM seq_1_to_20000";
                if neighbour.run(fill).and_then(|_| neighbour.run("DELETE FROM big")).is_err() {
                    break;
                }
                // Readers that are held up for too long are taken out; they shall catch up now and then.
                thread::sleep(Duration::from_millis(150));
            }
        });
        let outcome = cycles.run();
        finished.store(true, Ordering::Relaxed);
        outcome
    });
    for node in cluster.nodes() {
        node.root_query("SET GLOBAL wsrep_slave_threads = 2")?;
    }
    outcome?.check()
}

/// A reader that does nothing for a moment has what was written meanwhile still to apply when it wakes up.
fn paused_readers(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let cycles = Cycles::new(env, 300)?;
    let finished = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| pause_in_turn(cluster, &finished));
        let outcome = cycles.run();
        finished.store(true, Ordering::Relaxed);
        outcome
    });
    outcome?.check()
}

fn pause_in_turn(cluster: &Galera, finished: &AtomicBool) {
    for index in [2, 3].into_iter().cycle() {
        if finished.load(Ordering::Relaxed) {
            return;
        }
        let node = cluster.node(index);
        if node.pause().is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(60));
        if node.resume().is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(90));
    }
}

/// Sessions that write in turn by every way there is, and read each time what they wrote.
struct Cycles {
    weir: Weir,
    schema: String,
    per_session: u32,
    reads: AtomicU32,
    from_readers: AtomicU32,
}

/// What the sessions saw.
#[derive(Debug)]
struct Outcome {
    reads: u32,
    from_readers: u32,
    stale: Vec<String>,
}

impl Outcome {
    fn check(&self) -> CaseResult {
        let Outcome { reads, from_readers, stale } = self;
        ensure!(
            stale.is_empty(),
            "{} of {reads} reads ({from_readers} from readers) were stale:\n{}",
            stale.len(),
            stale.join("\n")
        );
        Ok(())
    }
}

impl Cycles {
    fn new(env: &Env, per_session: u32) -> Result<Cycles, Box<dyn Error>> {
        let schema = env.schema()?;
        let mut root = Session::open(env.cluster()?.node(1).addr(), &schema)?;
        root.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")?;
        root.run("CREATE PROCEDURE p(n INT, w INT) UPDATE t SET v = w WHERE id = n")?;
        for id in 0..SESSIONS {
            root.run(&format!("INSERT INTO t VALUES ({id}, 0)"))?;
        }
        let weir = env.weir(|config| {
            config.variable("threads", 2);
        })?;
        Ok(Cycles { weir, schema, per_session, reads: AtomicU32::new(0), from_readers: AtomicU32::new(0) })
    }

    fn run(&self) -> Result<Outcome, Box<dyn Error>> {
        let results: Vec<Result<Vec<String>, String>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..SESSIONS)
                .map(|id| scope.spawn(move || self.write_and_read(id).map_err(|error| error.to_string())))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
                .collect()
        });
        let mut stale = Vec::new();
        for result in results {
            stale.extend(result?);
        }
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        Ok(Outcome { reads: count(&self.reads), from_readers: count(&self.from_readers), stale })
    }

    /// One session's cycles; returns what it read that was older than what it had written.
    fn write_and_read(&self, id: u32) -> Result<Vec<String>, Box<dyn Error>> {
        let mut session = Session::open(self.weir.addr(), &self.schema)?;
        let read = format!("SELECT v, ({WHERE}) FROM t WHERE id = {id}");
        let prepared = session.prepare("UPDATE t SET v = ? WHERE id = ?")?;
        let mut stale = Vec::new();
        for value in 1..=self.per_session {
            write(&mut session, &prepared, id, value)?;
            // Sometimes at once, sometimes when readers may just have it.
            for pause_ms in [0, 0, 3, u64::from(value % 7) * 10] {
                thread::sleep(Duration::from_millis(if value % 5 == 0 { pause_ms } else { 0 }));
                let rows = session.rows(&read)?;
                self.reads.fetch_add(1, Ordering::Relaxed);
                let row = rows.first().ok_or("the row is gone")?;
                self.from_readers.fetch_add(u32::from(row[1] != "n1"), Ordering::Relaxed);
                if row[0] != value.to_string() {
                    stale.push(format!("session {id} wrote {value} and read {} on {}", row[0], row[1]));
                }
            }
        }
        Ok(stale)
    }
}

/// Writes in one of the ways there are.
fn write(session: &mut Session, prepared: &Prepared, id: u32, value: u32) -> CaseResult {
    let update = format!("UPDATE t SET v = {value} WHERE id = {id}");
    let texts: Vec<String> = match value % 8 {
        0 => vec!["BEGIN".to_owned(), update, "COMMIT".to_owned()],
        1 => vec![
            "SET autocommit = 0".to_owned(),
            update,
            "COMMIT".to_owned(),
            "SET autocommit = 1".to_owned(),
        ],
        2 => vec![format!("REPLACE INTO t VALUES ({id}, {value})")],
        3 => {
            session.execute(prepared, &[i64::from(value).into(), i64::from(id).into()])?.done()?;
            Vec::new()
        }
        4 => vec![format!("INSERT INTO t VALUES ({id}, 0) ON DUPLICATE KEY UPDATE v = {value}")],
        // The change of autocommit commits.
        5 => vec!["SET autocommit = 0".to_owned(), update, "SET autocommit = 1".to_owned()],
        // Another BEGIN commits.
        6 => vec!["BEGIN".to_owned(), update, "BEGIN".to_owned(), "ROLLBACK".to_owned()],
        _ => vec![update],
    };
    for sql in &texts {
        session.run(sql)?;
    }
    Ok(())
}

fn definitions(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let weir = env.weir(|config| {
        config.variable("threads", 1);
    })?;
    let mut session = Session::open(weir.addr(), &schema)?;
    for round in 0..25 {
        session.run("CREATE TABLE d (id INT PRIMARY KEY)")?;
        let rows = session.rows("SELECT * FROM d")?;
        ensure!(rows.is_empty(), "round {round}: a new table has {rows:?}");
        session.run("INSERT INTO d VALUES (1), (2)")?;
        session.run("ALTER TABLE d ADD COLUMN w INT DEFAULT 5")?;
        let rows = session.rows("SELECT w FROM d")?;
        ensure!(rows == [["5"], ["5"]], "round {round}: the new column has {rows:?}");
        session.run("TRUNCATE TABLE d")?;
        let rows = session.rows("SELECT w FROM d")?;
        ensure!(rows.is_empty(), "round {round}: after TRUNCATE there are {rows:?}");
        session.run("CREATE VIEW w AS SELECT COUNT(*) AS n FROM d")?;
        ensure!(session.value("SELECT n FROM w")? == "0", "round {round}: the view");
        session.run("DROP VIEW w")?;
        session.run("DROP TABLE d")?;
        session.refused("SELECT * FROM d", 1146)?;
    }
    Ok(())
}
