//! Statements that their server has undone for a deadlock, or for a write of another Galera node, run again, and exactly
//! once in the end.

use std::error::Error;
use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use weir_testkit::{Account, Family, Weir, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::admin::Admin;
use crate::replication::weir_with;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("deadlocks::statements_that_were_undone_run_again", mariadb),
        Case::parallel("deadlocks::statements_that_were_undone_run_again_at_mysql", |env| {
            run_again(&of_mysql(env)?)?;
            unlogged(&of_mysql(env)?)
        }),
        Case::parallel("deadlocks::writes_at_two_galera_nodes_count_once_each", galera),
    ]
}

const DEADLOCK: u16 = 1213;
const PATIENCE: Duration = Duration::from_secs(30);
const RETRIED: &str = "Weir_deadlocks_retried";
const TOLD: &str = "Weir_deadlocks_told";

/// Runs a statement as root.
type AsRoot<'e> = dyn Fn(&str) -> Result<String, Box<dyn Error>> + 'e;

/// One server behind Weir, and a schema there with tables.
struct Place<'e> {
    weir: Weir,
    admin: Admin,
    server: SocketAddrV4,
    root: Box<AsRoot<'e>>,
    schema: String,
}

/// A server of its own: Galera's (10.11) run such statements again themselves (`wsrep_retry_autocommit`).
fn mariadb(env: &Env) -> CaseResult {
    let mariadb = env.own_servers(Family::Mariadb, 1, false)?;
    let place = |schema: &str, retries: i64| -> Result<Place<'_>, Box<dyn Error>> {
        let source = mariadb.source();
        source.root_query(&format!(
            "CREATE DATABASE {schema}; GRANT ALL ON {schema}.* TO {}@'%'",
            Account::APP.user
        ))?;
        let admin = env.free_address()?;
        let weir = weir_with(env, &mariadb, false, |config| {
            config.admin(admin);
            let row = [("hostgroup_id", hostgroup::WRITER.into()), ("deadlock_retries", retries.into())];
            config.push("weir_hostgroups", &row);
        })?;
        Place::of(weir, admin, source.addr(), schema, move |sql| {
            Ok(source.root_query(sql)?.concat().concat())
        })
    };
    run_again(&place("again", 3)?)?;
    left(&place("leaves", 3)?)?;
    transaction(&place("begun", 3)?)?;
    switched_off(&place("off", 0)?)
}

fn of_mysql(env: &Env) -> Result<Place<'_>, Box<dyn Error>> {
    let (admin, source) = (env.free_address()?, env.mysql()?.source());
    let weir = env.mysql_weir_with(4, |config| {
        config.admin(admin);
    })?;
    let root = move |sql: &str| Ok(source.root_query(sql)?.concat().concat());
    Place::of(weir, admin, source.addr(), &env.mysql_schema()?, root)
}

fn of_galera(env: &Env) -> Result<Place<'_>, Box<dyn Error>> {
    let (admin, node) = (env.free_address()?, env.cluster()?.node(1));
    let weir = env.narrow_weir_with(&[1], 4, |config| {
        config.admin(admin);
    })?;
    let root = move |sql: &str| Ok(node.root_query(sql)?.concat().concat());
    Place::of(weir, admin, node.addr(), &env.schema()?, root)
}

impl<'e> Place<'e> {
    fn of(
        weir: Weir,
        admin: SocketAddrV4,
        server: SocketAddrV4,
        schema: &str,
        root: impl Fn(&str) -> Result<String, Box<dyn Error>> + 'e,
    ) -> Result<Self, Box<dyn Error>> {
        let place =
            Self { weir, admin: Admin::at(admin), server, root: Box::new(root), schema: schema.to_owned() };
        place.prepare()?;
        Ok(place)
    }

    fn prepare(&self) -> CaseResult {
        let mut session = Session::open(self.server, &self.schema)?;
        for sql in [
            "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)",
            "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)",
            "CREATE TABLE weight (id INT AUTO_INCREMENT PRIMARY KEY)",
            "CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, t_id INT) ENGINE = MyISAM",
        ] {
            session.run(sql)?;
        }
        Ok(())
    }

    /// Runs the statement, which locks the rows 1 to 3 in turn, against a transaction straight at the server that has row 3,
    /// wants row 1, and has more to lose: the statement is undone.
    fn meet(&self, client: &mut Session, sql: &str, keeps_log: bool) -> Result<Option<u16>, Box<dyn Error>> {
        let mut other = Session::open(self.server, &self.schema)?;
        other.run("BEGIN")?;
        for _ in 0..20 {
            other.run("INSERT INTO weight VALUES (NULL), (NULL), (NULL), (NULL), (NULL)")?;
        }
        if keeps_log {
            // Who has changed what can't be undone is spared, so both have.
            other.run("INSERT INTO log (t_id) VALUES (0)")?;
        }
        other.run("SELECT v FROM t WHERE id = 3 FOR UPDATE")?;
        let waits = format!(
            "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%{}%'",
            self.schema
        );
        let sql = format!("{sql} /* {} */", self.schema);
        thread::scope(|scope| {
            let answer =
                scope.spawn(|| client.query(&sql).map(|answer| answer.error()).map_err(|e| e.to_string()));
            eventually("the statement waits for row 3", PATIENCE, || Ok((self.root)(&waits)? == "1"))?;
            other.run("SELECT v FROM t WHERE id = 1 FOR UPDATE")?;
            thread::sleep(Duration::from_millis(50));
            other.run("COMMIT")?;
            Ok(answer.join().map_err(|_| "the client's thread has panicked")??)
        })
    }

    fn count(&self, name: &str) -> Result<u64, Box<dyn Error>> {
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = '{name}'");
        Ok(self.admin.run(&sql)?.concat().parse()?)
    }
}

fn run_again(place: &Place<'_>) -> CaseResult {
    let mut client = Session::open(place.weir.addr(), &place.schema)?;
    ensure!(
        place.meet(&mut client, "UPDATE t SET v = v + 1 WHERE id <= 3", false)?.is_none(),
        "its client was told"
    );
    let seen = client.rows("SELECT v FROM t ORDER BY id")?;
    ensure!(seen.concat() == ["1", "1", "1"], "{seen:?}");
    ensure!(client.value("SELECT ROW_COUNT()")? == "-1", "the question before was a query");
    ensure!(place.count(RETRIED)? == 1 && place.count(TOLD)? == 0, "counted otherwise");
    let mut prepared = Session::open(place.weir.addr(), &place.schema)?;
    let statement =
        prepared.prepare(&format!("UPDATE t SET v = v + ? WHERE id <= 3 /* {} */", place.schema))?;
    prepared.execute(&statement, &[10.into()])?.done()?;
    let seen = client.rows("SELECT v FROM t ORDER BY id")?;
    ensure!(seen.concat() == ["11", "11", "11"], "{seen:?}");
    Ok(())
}

/// A table without transactions keeps what the trigger has written.
fn left(place: &Place<'_>) -> CaseResult {
    let trigger =
        "CREATE TRIGGER logged BEFORE DELETE ON t FOR EACH ROW INSERT INTO log (t_id) VALUES (OLD.id)";
    (place.root)(&format!("USE {}; {trigger}", place.schema))?;
    let mut client = Session::open(place.weir.addr(), &place.schema)?;
    let told = place.meet(&mut client, "DELETE FROM t WHERE id <= 3", true)?;
    let logged = client.rows("SELECT t_id FROM log WHERE t_id > 0 ORDER BY id")?;
    ensure!(told == Some(DEADLOCK), "{told:?}: {logged:?}");
    let logged = client.rows("SELECT t_id FROM log WHERE t_id > 0 ORDER BY id")?;
    ensure!(logged.concat() == ["1", "2"], "once each, and not again: {logged:?}");
    let seen = client.rows("SELECT v FROM t ORDER BY id")?;
    ensure!(seen.concat() == ["0", "0", "0"], "{seen:?}");
    ensure!(place.count(RETRIED)? == 0 && place.count(TOLD)? == 1, "counted otherwise");
    client.run("UPDATE t SET v = 5 WHERE id = 2")?;
    Ok(())
}

/// A hostgroup that is no cluster's has no log of transactions.
fn unlogged(place: &Place<'_>) -> CaseResult {
    for begin in ["BEGIN", "SET autocommit = 0"] {
        let mut client = Session::open(place.weir.addr(), &place.schema)?;
        client.run(begin)?;
        let told = place.meet(&mut client, "UPDATE t SET v = v + 1 WHERE id <= 3", false)?;
        ensure!(told == Some(DEADLOCK), "{begin}: {told:?}");
        let seen = client.rows("SELECT v FROM t ORDER BY id")?;
        ensure!(seen.concat() == ["0", "0", "0"], "{begin}: {seen:?}");
    }
    ensure!(place.count(RETRIED)? == 0, "a transaction's statement was run again");
    Ok(())
}

/// A transaction runs again as a whole.
fn transaction(place: &Place<'_>) -> CaseResult {
    // One of before can't: what its session started with is not known.
    place.weir.wait_log("session variables have been read", PATIENCE)?;
    for begin in ["BEGIN", "SET autocommit = 0"] {
        let mut client = Session::open(place.weir.addr(), &place.schema)?;
        client.run(begin)?;
        client.run("INSERT INTO t VALUES (4, 7)")?;
        let told = place.meet(&mut client, "UPDATE t SET v = v + 1 WHERE id <= 3", false)?;
        ensure!(told.is_none(), "{begin}: {told:?}");
        let seen = client.rows("SELECT v FROM t ORDER BY id")?;
        ensure!(seen.concat() == ["1", "1", "1", "7"], "{begin}: {seen:?}");
        client.run("ROLLBACK")?;
    }
    ensure!(place.count(RETRIED)? == 2, "counted otherwise");
    Ok(())
}

fn switched_off(place: &Place<'_>) -> CaseResult {
    let mut client = Session::open(place.weir.addr(), &place.schema)?;
    let told = place.meet(&mut client, "UPDATE t SET v = v + 1 WHERE id <= 3", false)?;
    ensure!(told == Some(DEADLOCK), "{told:?}");
    Ok(())
}

/// One row, written through Weir at one node and straight at another: what fails certification there has had no effect.
fn galera(env: &Env) -> CaseResult {
    const WRITES: usize = 150;
    let place = of_galera(env)?;
    let elsewhere = env.cluster()?.node(2).addr();
    let mut direct = Session::open(elsewhere, &place.schema)?;
    eventually("the row is there", PATIENCE, || {
        Ok(direct.value("SELECT COUNT(*) FROM t").is_ok_and(|n| n == "3"))
    })?;
    let add = "UPDATE t SET v = v + 1 WHERE id = 1";
    let acknowledged = |mut session: Session| -> Result<usize, String> {
        let mut done = 0;
        for _ in 0..WRITES {
            let answer = session.query(add).map_err(|error| error.to_string())?;
            match answer.error() {
                None => done += 1,
                Some(DEADLOCK) => {}
                Some(code) => return Err(format!("error {code}")),
            }
        }
        Ok(done)
    };
    let clients = [place.weir.addr(), place.weir.addr(), elsewhere, elsewhere]
        .map(|addr| Session::open(addr, &place.schema));
    let mut done = Vec::new();
    thread::scope(|scope| -> CaseResult {
        let mut threads = Vec::new();
        for client in clients {
            let client = client?;
            threads.push(scope.spawn(|| acknowledged(client)));
        }
        for thread in threads {
            done.push(thread.join().map_err(|_| "a client's thread has panicked")??);
        }
        Ok(())
    })?;
    let total: usize = done.iter().sum();
    eventually("both nodes have all", PATIENCE, || {
        let mut client = Session::open(place.server, &place.schema)?;
        let sum = "SELECT v FROM t WHERE id = 1";
        Ok(client.value(sum)? == total.to_string() && direct.value(sum)? == total.to_string())
    })?;
    let (retried, told) = (place.count(RETRIED)?, place.count(TOLD)?);
    ensure!(retried > 0, "the writes have never met: {done:?}, {told} told");
    Ok(())
}
