//! Causal reads as in ProxySQL: `min_gtid`, `gtid_from_hostgroup`, `gtid_port`, and what is shown of them.

use std::error::Error;
use std::io::Write;
use std::net::{SocketAddrV4, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use toml_edit::Value;
use weir_testkit::{Account, Family, Mysql, Weir, WeirConfig, hostgroup};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::admin::Admin;
use crate::replication::{PATIENCE, id};

/// The cases of this module. Those with replicas have servers of their own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("min_gtid::a_read_waits_for_a_server_with_its_transaction", |env| {
            waits(env, Family::Mysql)
        }),
        Case::serial("min_gtid::a_read_waits_for_its_transaction_on_mariadb", |env| {
            waits(env, Family::Mariadb)
        }),
        Case::serial("min_gtid::a_transaction_that_no_server_has_is_waited_for_in_vain", in_vain),
        Case::serial("min_gtid::a_binlog_reader_tells_what_its_server_has", binlog_reader),
        Case::serial("min_gtid::a_rule_lets_read_what_its_session_has_written", from_hostgroup),
        Case::serial("min_gtid::members_of_a_group_tell_what_they_have", group),
        Case::parallel("min_gtid::on_galera_what_was_acknowledged_is_there", galera),
    ]
}

const UNREACHABLE: u16 = 9001;
/// A read that a replica may have, with the server that has answered it.
const COUNT: &str = "SELECT COUNT(*), (SELECT VARIABLE_VALUE FROM SCHEMA.global_variables WHERE VARIABLE_NAME = \
                     'server_id') FROM numbers";

/// A source and its replica behind a Weir.
struct Pair {
    mysql: Mysql,
    weir: Weir,
    admin: Admin,
    source: String,
    replica: String,
}

impl Pair {
    fn new(
        env: &Env,
        family: Family,
        of_replica: &[(&str, Value)],
        change: impl FnOnce(&mut WeirConfig),
    ) -> Result<Self, Box<dyn Error>> {
        let mysql = env.own_servers(family, 2, false)?;
        let (listen, admin) = (env.free_address()?, env.free_address()?);
        let mut config = WeirConfig::new(listen);
        config.admin(admin).user(Account::APP, hostgroup::WRITER, &[]).monitor(Account::MONITOR);
        let row =
            [("writer_hostgroup", hostgroup::WRITER.into()), ("reader_hostgroup", hostgroup::READER.into())];
        config.push("mysql_replication_hostgroups", &row);
        config.variable("monitor_writer_is_also_reader", false).variable("threads", 2);
        config.variable("connect_timeout_server_max", 5_000);
        config.server(mysql.server(1).addr(), hostgroup::WRITER, &[]);
        config.server(mysql.server(2).addr(), hostgroup::READER, of_replica);
        change(&mut config);
        let weir = env.weir_with(&config)?;
        Session::open(weir.addr(), "test")?.run("CREATE TABLE numbers (number INT PRIMARY KEY)")?;
        mysql.wait_replicated()?;
        let (source, replica) = (id(&mysql, 1)?, id(&mysql, 2)?);
        let pair = Self { mysql, weir, admin: Admin::at(admin), source, replica };
        eventually("the replica reads", PATIENCE, || {
            let [_, server] = pair.read(&mut pair.session()?, "")?;
            Ok(server == pair.replica)
        })?;
        Ok(pair)
    }

    /// One whose reads may go anywhere, unless they say more.
    fn session(&self) -> Result<Session, Box<dyn Error>> {
        let mut session = Session::open(self.weir.addr(), "test")?;
        session.run("SET weir_consistency = eventual")?;
        Ok(session)
    }

    /// How many rows are seen, and which server has told.
    fn read(&self, session: &mut Session, comment: &str) -> Result<[String; 2], Box<dyn Error>> {
        let sql = format!("{comment}{}", self.count());
        let row = session.rows(&sql)?.into_iter().next().ok_or("no row")?;
        Ok(row.try_into().map_err(|row| format!("{row:?}"))?)
    }

    fn count(&self) -> String {
        let schema = match self.mysql.family() {
            Family::Mysql => "performance_schema",
            Family::Mariadb => "information_schema",
        };
        COUNT.replace("SCHEMA", schema)
    }

    /// Writes a row beside the Weir, and tells the transaction's id.
    fn write(&self, number: u32) -> Result<String, Box<dyn Error>> {
        let source = self.mysql.source();
        source.root_query(&format!("INSERT INTO test.numbers VALUES ({number})"))?;
        let position = match self.mysql.family() {
            Family::Mysql => "SELECT @@GLOBAL.gtid_executed",
            Family::Mariadb => "SELECT @@GLOBAL.gtid_binlog_pos",
        };
        let position = source.root_query(position)?.concat().concat().replace(['\n', '\\'], "");
        Ok(match self.mysql.family() {
            Family::Mysql => {
                let uuid = source.root_query("SELECT @@server_uuid")?.concat().concat();
                let own = position.split(',').map(str::trim).find(|part| part.starts_with(&uuid));
                let last = own.and_then(|own| own.rsplit([':', '-']).next()).ok_or("no transaction")?;
                format!("{uuid}:{last}")
            }
            Family::Mariadb => position,
        })
    }
}

/// The id of a transaction that comes so much later.
fn later(gtid: &str, by: u64) -> Result<String, Box<dyn Error>> {
    let at = gtid.rfind([':', '-']).ok_or("no id")? + 1;
    Ok(format!("{}{}", &gtid[..at], gtid[at..].parse::<u64>()? + by))
}

fn waits(env: &Env, family: Family) -> CaseResult {
    let pair = Pair::new(env, family, &[], |_| {})?;
    let mut session = pair.session()?;
    pair.mysql.stop_applier(2)?;
    let gtid = pair.write(1)?;
    let [seen, server] = pair.read(&mut session, "")?;
    ensure!((&*seen, &server) == ("0", &pair.replica), "the replica stands still: {seen} on {server}");
    for comment in [format!("/* min_gtid={gtid} */ "), format!("/*;min_gtid={gtid};*/")] {
        let [seen, server] = pair.read(&mut session, &comment)?;
        ensure!((&*seen, &server) == ("1", &pair.source), "{comment}: {seen} on {server}");
    }
    let prepared = session.prepare(&format!("/* min_gtid={gtid} */ {}", pair.count()))?;
    let rows = session.execute(&prepared, &[] as &[Param])?.binary_rows()?;
    ensure!(rows == [["1", &pair.source]], "prepared: {rows:?}");

    // At the readers and nowhere else.
    let there = format!("/* hostgroup={}; min_gtid={gtid} */ ", hostgroup::READER);
    let began = Instant::now();
    let (waited, [seen, server]) = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let read = pair.read(&mut session, &there).map_err(|error| error.to_string())?;
            Ok::<_, String>((began.elapsed(), read))
        });
        thread::sleep(Duration::from_millis(500));
        pair.mysql.start_applier(2)?;
        Ok::<_, Box<dyn Error>>(reading.join().map_err(|_| "the reader has panicked")??)
    })?;
    ensure!((&*seen, &server) == ("1", &pair.replica), "{seen} on {server}");
    ensure!(waited >= Duration::from_millis(400), "it has waited for {waited:?} only");
    for round in 2..40 {
        let gtid = pair.write(round)?;
        let [seen, _] = pair.read(&mut session, &format!("/* min_gtid={gtid} */ "))?;
        ensure!(seen == round.to_string(), "{seen} rows after {round}");
    }
    shown(&pair, &gtid)
}

/// What the admin port shows of that.
fn shown(pair: &Pair, gtid: &str) -> CaseResult {
    let rows = pair.admin.run("SELECT hostname, port, gtid_executed FROM stats_mysql_gtid_executed")?;
    ensure!(rows.len() == 2, "{rows:?}");
    let source = gtid.split([':', '-']).next().unwrap_or_default();
    ensure!(rows.iter().all(|row| row.contains(source)), "{gtid}: {rows:?}");
    let synced = "SELECT SUM(Queries_GTID_sync) FROM stats_mysql_connection_pool";
    let synced: u64 = pair.admin.run(synced)?.concat().parse()?;
    let global =
        "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'GTID_consistent_queries'";
    let global: u64 = pair.admin.run(global)?.concat().parse()?;
    ensure!(synced >= 40 && synced == global, "{synced} at servers, {global} in all");
    Ok(())
}

fn in_vain(env: &Env) -> CaseResult {
    let pair = Pair::new(env, Family::Mysql, &[], |config| {
        config.variable("connect_timeout_server_max", 1_000);
    })?;
    let mut session = pair.session()?;
    let future = later(&pair.write(1)?, 1_000)?;
    for place in [String::new(), format!("hostgroup={};", hostgroup::READER)] {
        let sql = format!("/* {place}min_gtid={future} */ {}", pair.count());
        let message = session.refused(&sql, UNREACHABLE)?;
        let expected = format!("has not executed min_gtid={future}");
        ensure!(message.contains(&expected), "{message}");
    }
    // A session that is held on its connection is told sooner.
    session.run("CREATE TEMPORARY TABLE own (id INT)")?;
    let message = session.refused(&format!("/* min_gtid={future} */ SELECT * FROM own"), UNREACHABLE)?;
    ensure!(message.contains("the session is held there"), "{message}");
    ensure!(session.rows("SELECT * FROM own")?.is_empty(), "the session is as it was");
    session.run("DROP TEMPORARY TABLE own")?;

    // What is no id is ignored, as in ProxySQL.
    for wrong in ["", "1", "uuid:1", &format!("{future}-9")] {
        pair.read(&mut session, &format!("/* min_gtid={wrong} */ "))?;
    }
    let count =
        "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Weir_min_gtid_malformed'";
    ensure!(pair.admin.run(count)? == ["4"], "{:?}", pair.admin.run(count)?);
    pair.weir.wait_log("comments had a min_gtid that is no transaction's id", PATIENCE)?;
    Ok(())
}

fn binlog_reader(env: &Env) -> CaseResult {
    let reader = TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    let port = reader.local_addr()?.port();
    let pair = Pair::new(env, Family::Mysql, &[("gtid_port", i64::from(port).into())], |config| {
        config.variable("binlog_reader_connect_retry_msec", 200);
    })?;
    let mut session = pair.session()?;
    let (mut stream, _) = reader.accept()?;
    let gtid = pair.write(1)?;
    let (uuid, number) = gtid.split_once(':').ok_or("no id")?;
    let number: u64 = number.parse()?;
    // As no server of the pair has it, whoever answers goes by what is told here.
    let future = later(&gtid, 1_000_000)?;
    let executed =
        || pair.admin.run("SELECT gtid_executed, events FROM stats_mysql_gtid_executed WHERE events > 0");
    let there = |gtid: &str| format!("/* hostgroup={};min_gtid={gtid} */ ", hostgroup::READER);
    stream.write_all(format!("ST={uuid}:1-{number}\n").as_bytes())?;
    let [_, server] = pair.read(&mut session, &there(&gtid))?;
    ensure!(server == pair.replica, "answered by {server}");
    let [plain, first] = [uuid.replace('-', ""), (number + 1).to_string()];
    stream.write_all(format!("I1={plain}:{first}\nI2={}\n", number + 2).as_bytes())?;
    stream.write_all(format!("I4={}-{}\n", number + 3, number + 1_000_000).as_bytes())?;
    let began = Instant::now();
    let [_, server] = pair.read(&mut session, &there(&future))?;
    ensure!(
        server == pair.replica && began.elapsed() < Duration::from_secs(2),
        "{server} after {:?}",
        began.elapsed()
    );
    let rows = executed()?;
    ensure!(rows == [format!("{uuid}:1-{}\t3", number + 1_000_000)], "{rows:?}");

    // What is none of its lines ends it. Until it is there again the server itself is asked.
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n")?;
    pair.weir.wait_log("no binlog reader is followed", PATIENCE)?;
    let (mut stream, _) = reader.accept()?;
    session.refused(&format!("{}{}", there(&future), pair.count()), UNREACHABLE)?;
    let [seen, server] = pair.read(&mut session, &there(&gtid))?;
    ensure!((&*seen, &server) == ("1", &pair.replica), "{seen} on {server}");
    stream.write_all(format!("ST={uuid}:1-{}\n", number + 1_000_000).as_bytes())?;
    let [_, server] = pair.read(&mut session, &there(&future))?;
    ensure!(server == pair.replica, "answered by {server}");
    let port_shown = "SELECT gtid_port FROM runtime_mysql_servers ORDER BY hostgroup_id";
    ensure!(pair.admin.run(port_shown)?.contains(&port.to_string()), "it is not shown");
    Ok(())
}

fn from_hostgroup(env: &Env) -> CaseResult {
    let pair = Pair::new(env, Family::Mysql, &[], |config| {
        let rule = [
            ("rule_id", 1.into()),
            ("active", 1.into()),
            ("match_pattern", "own".into()),
            ("gtid_from_hostgroup", hostgroup::WRITER.into()),
        ];
        config.push("mysql_query_rules", &rule);
    })?;
    let mut session = pair.session()?;
    pair.mysql.stop_applier(2)?;
    session.run("INSERT INTO numbers VALUES (1)")?;
    let [seen, server] = pair.read(&mut session, "")?;
    ensure!((&*seen, &server) == ("0", &pair.replica), "at eventual: {seen} on {server}");
    let [seen, server] = pair.read(&mut session, "/* own */ ")?;
    ensure!((&*seen, &server) == ("1", &pair.source), "with the rule: {seen} on {server}");
    let [seen, _] = pair.read(&mut session, "/* own; weir_consistency=eventual */ ")?;
    ensure!(seen == "0", "the statement itself has the last word");
    let [_, server] = pair.read(&mut pair.session()?, "/* own */ ")?;
    ensure!(server == pair.replica, "one that has written nothing reads anywhere");
    pair.mysql.start_applier(2)?;
    eventually("the replica has it", PATIENCE, || {
        let [seen, server] = pair.read(&mut session, "/* own */ ")?;
        ensure!(seen == "1", "{seen} on {server}");
        Ok(server == pair.replica)
    })?;
    let synced = "SELECT SUM(Queries_GTID_sync) > 0 FROM stats_mysql_connection_pool";
    ensure!(pair.admin.run(synced)? == ["1"], "it is not counted");
    Ok(())
}

fn group(env: &Env) -> CaseResult {
    let mysql = env.own_servers(Family::Mysql, 3, true)?;
    let servers: Vec<SocketAddrV4> = mysql.servers().iter().map(|server| server.addr()).collect();
    let mut config = WeirConfig::for_group(&servers, env.free_address()?);
    config.variable("connect_timeout_server_max", 5_000).variable("threads", 2);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("CREATE TABLE own (id INT PRIMARY KEY)")?;
    let name = mysql.source().root_query("SELECT @@group_replication_group_name")?.concat().concat();
    let mut reader = Session::open(weir.addr(), "test")?;
    reader.run("SET weir_consistency = eventual")?;
    let at_readers = format!("/* hostgroup={} */ SELECT COUNT(*) FROM own", hostgroup::READER);
    eventually("the others have the table", PATIENCE, || {
        Ok((0..6).all(|_| reader.rows(&at_readers).is_ok()))
    })?;
    // What is written to the table can't be applied there.
    let others = mysql.servers().iter().skip(1).map(|server| {
        let mut held = Session::open(server.addr(), "test")?;
        held.run("LOCK TABLES own READ")?;
        Ok(held)
    });
    let others = others.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    session.run("INSERT INTO own VALUES (1)")?;
    let executed = mysql.source().root_query("SELECT @@GLOBAL.gtid_executed")?.concat().concat();
    let mut parts = executed.split(',').map(|part| part.trim_start_matches("\\n").trim());
    let own = parts.rfind(|part| part.starts_with(&name));
    let last = own.and_then(|own| own.rsplit([':', '-']).next()).ok_or("no transaction")?;
    let hint = format!("min_gtid={name}:{last}");
    ensure!(reader.value(&at_readers)? == "0", "the others have it already");
    for _ in 0..4 {
        let seen = reader.value(&format!("/* {hint} */ SELECT COUNT(*) FROM own"))?;
        ensure!(seen == "1", "{seen} rows");
    }
    let waiting = at_readers.replace(" */", &format!("; {hint} */"));
    thread::scope(|scope| {
        let reading = scope.spawn(|| reader.value(&waiting).map_err(|error| error.to_string()));
        thread::sleep(Duration::from_millis(300));
        ensure!(!reading.is_finished(), "it does not wait");
        drop(others);
        let seen = reading.join().map_err(|_| "the reader has panicked")??;
        ensure!(seen == "1", "{seen} rows");
        Ok(())
    })
}

fn galera(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let weir = env.weir(|config| {
        config.variable("threads", 2);
    })?;
    let mut writer = Session::open(weir.addr(), &schema)?;
    writer.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let mut reader = Session::open(weir.addr(), &schema)?;
    reader.run("SET weir_consistency = eventual")?;
    for round in 1..50 {
        writer.run(&format!("INSERT INTO t VALUES ({round})"))?;
        let seen = reader.value("/* min_gtid=0-1-1 */ SELECT COUNT(*) FROM t")?;
        ensure!(seen == round.to_string(), "{seen} rows after {round}");
    }
    Ok(())
}
