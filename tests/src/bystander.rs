//! Sessions that work on quietly while a case is unkind to others, and look at every value they get.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_testkit::TestkitError;
use weir_testkit::wire::Login;

use crate::session::{Param, Session};
use crate::{CaseResult, Env};

/// Rows of the table that bystanders read.
const ROWS: u64 = 200;

/// A few sessions in threads of their own.
pub struct Bystanders {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Seen, String>>>,
}

/// What bystanders have seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Statements whose every value was right.
    pub statements: u64,
    /// The longest that one of them took.
    pub slowest: Duration,
}

impl Bystanders {
    /// Makes the table `bystander` in `schema`, on all nodes.
    pub fn make_table(env: &Env, schema: &str) -> CaseResult {
        let cluster = env.cluster()?;
        cluster.node(1).root_query(&format!(
            "CREATE TABLE {schema}.bystander (id INT PRIMARY KEY, word VARCHAR(100), n INT);
             USE {schema};
             INSERT INTO bystander SELECT seq, CONCAT('row ', seq, ' of {schema}'), 0 FROM seq_1_to_{ROWS}"
        ))?;
        for node in cluster.nodes() {
            node.root_query(&format!("SET wsrep_sync_wait = 15; SELECT COUNT(*) FROM {schema}.bystander"))?;
        }
        Ok(())
    }

    /// Starts `count` sessions; `login` must name the schema with the table.
    pub fn start(server: SocketAddrV4, login: &Login, count: usize) -> Result<Bystanders, TestkitError> {
        let stop = Arc::new(AtomicBool::new(false));
        let sessions: Result<Vec<Session>, TestkitError> =
            (0..count).map(|_| Session::with(server, login)).collect();
        let schema = login.schema.clone().unwrap_or_default();
        let work = |(number, session): (usize, Session)| {
            let (stop, schema) = (Arc::clone(&stop), schema.clone());
            thread::spawn(move || {
                let tag = format!("bystander {number}");
                Bystander { session, tag, schema, number: number as u64 + 1 }.work(&stop)
            })
        };
        let threads = sessions?.into_iter().enumerate().map(work).collect();
        Ok(Bystanders { stop, threads })
    }

    /// Ends the sessions; fails if one of them has seen an error or a wrong value.
    pub fn finish(mut self) -> Result<Seen, String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for thread in self.threads.drain(..) {
            let seen = thread.join().map_err(|_| "a bystander panicked".to_owned())??;
            all.statements += seen.statements;
            all.slowest = all.slowest.max(seen.slowest);
        }
        if all.statements == 0 { Err("the bystanders did nothing".to_owned()) } else { Ok(all) }
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Bystander {
    session: Session,
    tag: String,
    schema: String,
    number: u64,
}

impl Bystander {
    fn work(mut self, stop: &AtomicBool) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let mut round = 0;
        // At least once: a case may be over before all of them have begun.
        while round == 0 || !stop.load(Ordering::Relaxed) {
            round += 1;
            let started = Instant::now();
            self.round(round).map_err(|error| format!("{}, round {round}: {error}", self.tag))?;
            seen.slowest = seen.slowest.max(started.elapsed());
            seen.statements += 1;
        }
        Ok(seen)
    }

    fn round(&mut self, round: u64) -> Result<(), String> {
        match round % 4 {
            0 => self.ask_for_itself(round),
            1 => self.read_rows(round),
            2 => self.execute(round),
            _ => self.write_and_roll_back(round),
        }
    }

    fn ask_for_itself(&mut self, round: u64) -> Result<(), String> {
        let mark = format!("{} {round}", self.tag);
        let rows = self.rows(&format!("SELECT {round}, '{mark}', DATABASE()"))?;
        same(&rows, &[vec![round.to_string(), mark, self.schema.clone()]])
    }

    fn read_rows(&mut self, round: u64) -> Result<(), String> {
        let from = 1 + round * 7 % (ROWS - 20);
        let sql =
            format!("SELECT id, word FROM bystander WHERE id BETWEEN {from} AND {} ORDER BY id", from + 20);
        let rows = self.rows(&sql)?;
        let wanted: Vec<Vec<String>> = (from..=from + 20)
            .map(|id| vec![id.to_string(), format!("row {id} of {}", self.schema)])
            .collect();
        same(&rows, &wanted)
    }

    fn execute(&mut self, round: u64) -> Result<(), String> {
        let text = |error: TestkitError| error.to_string();
        let statement = self.session.prepare("SELECT ?, CONCAT(?, ' ', ?)").map_err(text)?;
        let number = i64::try_from(round).unwrap_or(i64::MAX);
        let params = [number.into(), Param::Text(self.tag.clone()), number.into()];
        let rows = self.session.execute(&statement, &params).map_err(text)?.binary_rows()?;
        self.session.close(&statement).map_err(text)?;
        same(&rows, &[vec![round.to_string(), format!("{} {round}", self.tag)]])
    }

    fn write_and_roll_back(&mut self, round: u64) -> Result<(), String> {
        let id = self.number;
        self.rows("BEGIN")?;
        self.rows(&format!("UPDATE bystander SET n = {round} WHERE id = {id}"))?;
        let rows = self.rows(&format!("SELECT id, n FROM bystander WHERE id = {id}"))?;
        self.rows("ROLLBACK")?;
        same(&rows, &[vec![id.to_string(), round.to_string()]])
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        self.session.rows(sql).map_err(|error| error.to_string())
    }
}

fn same(got: &[Vec<String>], wanted: &[Vec<String>]) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("expected {wanted:?}, got {got:?}")) }
}
