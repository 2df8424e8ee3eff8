//! Clients that go away, statements that run too long, and KILL: what must end ends, and nothing else.

mod keepalive;
mod kill;
mod stress;

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use weir_protocol::command::Command;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Node, Weir};
use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel(
            "vanish::a_transaction_of_a_client_that_is_gone_is_rolled_back",
            transaction_is_rolled_back,
        ),
        Case::parallel("vanish::a_statement_of_a_client_that_is_gone_is_killed", statement_is_killed),
        Case::parallel("vanish::a_waiting_client_that_is_gone_waits_no_more", waiter_is_forgotten),
        Case::parallel("vanish::locks_of_a_client_that_is_gone_are_free", locks_are_free),
        Case::parallel("vanish::a_reader_that_is_gone_in_the_middle_of_rows", gone_in_the_middle_of_rows),
        Case::parallel("vanish::default_query_timeout_ends_a_statement", query_timeout),
        Case::parallel("vanish::without_killing_the_statement_goes_on_if_told_so", killing_switched_off),
    ];
    cases.extend(keepalive::trials());
    cases.extend(kill::trials());
    cases.extend(stress::trials());
    cases
}

/// How long it may take until what must end has ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's own id of the connection that a pinned session holds. CONNECTION_ID() and the like are Weir's.
fn server_thread(session: &mut Session) -> Result<String, Box<dyn Error>> {
    let port = session.raw().packets().socket().local_addr()?.port();
    let mark = format!("session {} from port {port}", session.id());
    let own = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%{mark}%'");
    Ok(session.value(&own)?)
}

/// The node that is the writer.
fn writer_of<'a>(env: &'a Env, weir: &Weir) -> Result<&'a Node, Box<dyn Error>> {
    let name = Session::open(weir.addr(), "test")?.value("SELECT @@wsrep_node_name FOR UPDATE")?;
    let writer = env.cluster()?.nodes().iter().find(|node| node.name() == name);
    Ok(writer.ok_or_else(|| format!("no node is called {name}"))?)
}

/// Waits until no statement with this mark runs at any node.
fn gone_from_servers(env: &Env, mark: &str, within: Duration) -> CaseResult {
    let sql = running_sql(mark);
    for node in env.cluster()?.nodes() {
        let mut direct = Session::open(node.addr(), "test")?;
        eventually(&format!("{mark} no longer runs on {}", node.name()), within, || {
            Ok(direct.value(&sql)? == "0")
        })?;
    }
    Ok(())
}

fn running_sql(mark: &str) -> String {
    format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%{mark}%' AND ID <> CONNECTION_ID()"
    )
}

/// Waits until a statement with this mark runs somewhere.
fn runs_on_servers(env: &Env, mark: &str) -> CaseResult {
    let mut nodes = Vec::new();
    for node in env.cluster()?.nodes() {
        nodes.push(Session::open(node.addr(), "test")?);
    }
    eventually(&format!("{mark} runs"), PATIENCE, || {
        for node in &mut nodes {
            if node.value(&running_sql(mark))? != "0" {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// How a client goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    Closes,
    Resets,
    Quits,
}

impl Going {
    const ALL: [Going; 3] = [Going::Closes, Going::Resets, Going::Quits];

    fn leave(self, mut session: Session) -> CaseResult {
        match self {
            Going::Closes => {}
            Going::Resets => {
                let socket = session.raw().packets().socket().try_clone()?;
                drop(session);
                weir_testkit::wire::PacketStream::new(socket)?.reset()?;
            }
            Going::Quits => session.raw().send_command(&[1])?,
        }
        Ok(())
    }
}

fn weir(env: &Env, threads: i64) -> Result<Weir, String> {
    env.weir(|config| {
        config.variable("threads", threads);
    })
}

/// How many transactions a thread of the server has open.
fn transactions_of(direct: &mut Session, thread: &str) -> Result<String, Box<dyn Error>> {
    // The server makes the table's content anew only after a pause of a tenth of a second.
    thread::sleep(Duration::from_millis(150));
    let sql = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE TRX_MYSQL_THREAD_ID";
    Ok(direct.value(&format!("{sql} = {thread}"))?)
}

fn transaction_is_rolled_back(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 2)?, env.schema()?);
    let node = writer_of(env, &weir)?;
    node.root_query(&format!(
        "CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT); INSERT INTO {schema}.t VALUES (1, 0)"
    ))?;
    let mut direct = Session::open(node.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    for going in Going::ALL {
        for begin in ["BEGIN", "SET autocommit = 0"] {
            let mut session = Session::open(weir.addr(), &schema)?;
            session.run(begin)?;
            session.run("INSERT INTO t VALUES (2, 0)")?;
            session.run("UPDATE t SET n = n + 1 WHERE id = 1")?;
            let thread = server_thread(&mut session)?;
            let mut open = || transactions_of(&mut direct, &thread);
            ensure!(open()? == "1", "{going:?}, {begin}: no transaction of thread {thread} to begin with");
            going.leave(session)?;
            eventually(&format!("{going:?}, {begin}: no transaction is left"), PATIENCE, || {
                Ok(open()? == "0")
            })?;
            let started = Instant::now();
            let rows = other.rows("SELECT id, n FROM t FOR UPDATE")?;
            ensure!(rows == [["1", "0"]], "{going:?}, {begin}: {rows:?}");
            ensure!(started.elapsed() < PATIENCE, "{going:?}, {begin}: locked for {:?}", started.elapsed());
        }
    }
    // Nor does the next session inherit anything.
    let rows = other.rows("SELECT @@autocommit, @@in_transaction")?;
    ensure!(rows == [["1", "0"]], "{rows:?}");
    Ok(())
}

fn statement_is_killed(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 2)?, env.schema()?);
    for going in [Going::Closes, Going::Resets] {
        for (kind, begin, sql) in [
            ("read", "", "SELECT SLEEP(60), 'MARK'"),
            ("write", "", "DO SLEEP(60), 'MARK'"),
            ("transaction", "BEGIN", "SELECT SLEEP(60), 'MARK'"),
            ("compound", "", "BEGIN NOT ATOMIC DO SLEEP(60), 'MARK'; END"),
        ] {
            let mark = format!("{schema}_{going:?}_{kind}");
            let mut session = Session::open(weir.addr(), &schema)?;
            if !begin.is_empty() {
                session.run(begin)?;
            }
            session.send_query(&sql.replace("MARK", &mark))?;
            runs_on_servers(env, &mark)?;
            going.leave(session)?;
            gone_from_servers(env, &mark, PATIENCE)?;
        }
    }
    Session::open(weir.addr(), &schema)?.value("SELECT 'still here'")?;
    Ok(())
}

fn waiter_is_forgotten(env: &Env) -> CaseResult {
    let (weir, schema) = (crate::prepared::weir_with_connections(env, 1, 1)?, env.schema()?);
    env.cluster()?.node(1).root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    // The first one to come asks the server for the schema.
    let mut holder = Session::open(weir.addr(), &schema)?;
    holder.run("BEGIN")?;
    holder.run("SELECT 1 FOR UPDATE")?;
    for (id, going) in Going::ALL.into_iter().enumerate() {
        let mut waiter = Session::open(weir.addr(), &schema)?;
        waiter.send_query(&format!("INSERT INTO t VALUES ({id})"))?;
        thread::sleep(Duration::from_millis(50));
        going.leave(waiter)?;
    }
    let mut next = Session::open(weir.addr(), &schema)?;
    eventually("only the holder and the next one are left", PATIENCE, || {
        // Weir's own answer, which needs no connection.
        next.raw().send_command(&[Command::Statistics.code()])?;
        let packet = next.raw().packets().read_packet()?;
        Ok(String::from_utf8_lossy(&packet.payload).contains("  Threads: 2  "))
    })?;
    next.send_query("SELECT COUNT(*) FROM t")?;
    thread::sleep(Duration::from_millis(100));
    holder.run("COMMIT")?;
    let rows = next.results()?.value()?;
    ensure!(rows == "0", "{rows} statements of clients that had left have run");
    holder.value("SELECT 'still here'")?;
    Ok(())
}

fn locks_are_free(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 1)?, env.schema()?);
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    let lock = format!("lock_{schema}");
    for (what, sql) in [
        ("GET_LOCK", format!("SELECT GET_LOCK('{lock}', 0)")),
        ("LOCK TABLES", "LOCK TABLES t WRITE".to_owned()),
        ("temporary table", "CREATE TEMPORARY TABLE mine (id INT)".to_owned()),
        ("user variable", "SET @mine = 1".to_owned()),
    ] {
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run(&sql)?;
        session.vanish();
        let mut next = Session::open(weir.addr(), &schema)?;
        eventually(&format!("{what} is gone"), PATIENCE, || {
            Ok(next.value(&format!("SELECT IS_FREE_LOCK('{lock}')"))? == "1")
        })?;
        let started = Instant::now();
        next.run("INSERT INTO t SELECT COALESCE(MAX(id), 0) + 1 FROM t")?;
        ensure!(started.elapsed() < Duration::from_secs(10), "{what}: INSERT waited {:?}", started.elapsed());
        next.refused("SELECT * FROM mine", 1146)?;
        let value = next.value("SELECT @mine")?;
        ensure!(value == "NULL", "{what}: @mine is {value}");
    }
    Ok(())
}

fn gone_in_the_middle_of_rows(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 1)?, env.schema()?);
    for going in [Going::Closes, Going::Resets] {
        let mark = format!("{schema}_{going:?}");
        let mut session = Session::open(weir.addr(), &schema)?;
        session.send_query(&format!("SELECT REPEAT('x', 1000000) FROM seq_1_to_5000 /* {mark} */"))?;
        for _ in 0..20 {
            session.raw().packets().read_packet()?;
        }
        going.leave(session)?;
        gone_from_servers(env, &mark, PATIENCE)?;
        let value = Session::open(weir.addr(), &schema)?.value("SELECT 'right'")?;
        ensure!(value == "right", "{going:?}: {value}");
    }
    Ok(())
}

fn query_timeout(env: &Env) -> CaseResult {
    let (weir, schema) = (
        env.weir(|config| {
            config.variable("default_query_timeout", 4000).variable("threads", 1);
        })?,
        env.schema()?,
    );
    // Beside other cases that may take longer than the limit.
    env.cluster()?.node(1).root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    env.wait_applied()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let slow = "SELECT COUNT(*) FROM seq_1_to_100000000 a JOIN seq_1_to_100000000 b WHERE a.seq + b.seq = -1";
    for sql in ["SELECT SLEEP(60)", "DO SLEEP(60)", slow, "SELECT SLEEP(60) FROM t FOR UPDATE"] {
        session.run("REPLACE INTO t VALUES (1)")?;
        let started = Instant::now();
        let answer = session.query(sql)?;
        let ran = started.elapsed();
        ensure!(is_interrupted(&answer), "{sql}: {answer:?} after {ran:?}");
        ensure!((3.5..18.0).contains(&ran.as_secs_f64()), "{sql}: ended after {ran:?}");
        // The session goes on.
        let value = session.value("SELECT 'on'")?;
        ensure!(value == "on", "{sql}: {value}");
    }
    // In a transaction too, which stays open: it is for the client to end it.
    session.run("BEGIN")?;
    session.run("REPLACE INTO t VALUES (2)")?;
    let answer = session.query("SELECT SLEEP(60)")?;
    ensure!(is_interrupted(&answer), "{answer:?}");
    let count = session.value("SELECT COUNT(*) FROM t")?;
    ensure!(count == "2", "{count} rows inside the transaction");
    session.run("ROLLBACK")?;
    // Time is counted per statement: a long session is none.
    for _ in 0..8 {
        session.value("SELECT SLEEP(1)").map_err(|error| format!("{error}; Weir said:\n{}", weir.log()))?;
    }
    Ok(())
}

/// 1317 or MariaDB's 1969, the "1" that SLEEP returns when it is interrupted, or the warning of a DO.
fn is_interrupted(answer: &weir_tests::session::Answer) -> bool {
    matches!(answer.error(), Some(1317 | 1969))
        || answer.done().is_ok_and(|done| done.warnings > 0)
        || answer.value().is_ok_and(|value| value == "1")
        || matches!(answer.results.last(), Some(Outcome::Err { code: 3024, .. }))
}

fn killing_switched_off(env: &Env) -> CaseResult {
    let (weir, schema) = (
        env.weir(|config| {
            config.variable("kill_backend_connection_when_disconnect", false);
        })?,
        env.schema()?,
    );
    let mark = format!("{schema}_lives");
    let mut session = Session::with(weir.addr(), &Login::new(Account::APP).schema(&schema))?;
    session.send_query(&format!("DO SLEEP(10) /* {mark} */"))?;
    runs_on_servers(env, &mark)?;
    session.vanish();
    thread::sleep(Duration::from_millis(1000));
    runs_on_servers(env, &mark)?;
    gone_from_servers(env, &mark, Duration::from_secs(40))?;
    Ok(())
}
