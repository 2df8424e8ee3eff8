//! The admin interface over its port, with an engine that only notes what it is asked.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use weir_admin::{Admin, AdminSockets, Engine, EngineCommand, Rows, Settings, SwitchoverPlan};
use weir_client::{Connection, Error, Options, QueryResult};
use weir_config::{Config, ListenAddress, TableRows};
use weir_query_log::{AuditEvent, AuditKind};
use weir_store::{Store, Value};
use weir_topology::Endpoint;

#[path = "admin/audit.rs"]
mod audit;
#[path = "admin/crowd.rs"]
mod crowd;
#[path = "admin/digests.rs"]
mod digests;
#[path = "admin/metadata.rs"]
mod metadata;

/// An engine without a Weir.
#[derive(Default)]
struct Notes {
    applied: Mutex<Vec<Config>>,
    commands: Mutex<Vec<EngineCommand>>,
    audited: Mutex<Vec<(AuditKind, [String; 3])>>,
    /// How often each table was asked for.
    reads: Mutex<HashMap<String, u32>>,
    /// Told when the second digest is asked for, which comes when it may.
    pause: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Notes {
    /// The row of a table, if it is one of this engine's.
    fn row(&self, table: &str) -> Option<Vec<Value>> {
        let mut reads = self.reads.lock().unwrap();
        let count = reads.entry(table.to_owned()).or_default();
        *count += 1;
        let row = vec![Value::Text("reads".into()), Value::Text(count.to_string())];
        if table == "stats_mysql_processlist" {
            let session = [
                "0",
                "12",
                "app",
                "shop",
                "10.0.0.9",
                "50312",
                "100",
                "",
                "",
                "db1",
                "3306",
                "Query",
                "2500",
                "SELECT SLEEP(9)",
                "0",
                "{}",
            ];
            return Some(session.iter().map(|text| Value::Text((*text).into())).collect());
        }
        (table == "stats_mysql_global").then_some(row)
    }
}

impl Notes {
    /// Three of them.
    fn digests(&self) -> impl Iterator<Item = Vec<Value>> {
        let mut pause = self.pause.lock().unwrap().take();
        (0..3).map(move |count| {
            if count == 1
                && let Some((reached, go_on)) = pause.take()
            {
                reached.send(()).unwrap();
                go_on.recv().unwrap();
            }
            let mut row = vec![Value::Text("x".into()); 6];
            row.extend((0..8).map(|_| Value::Integer(count)));
            row
        })
    }
}

impl Engine for Notes {
    fn apply(&self, config: &Config) -> Result<Vec<String>, Vec<String>> {
        self.applied.lock().unwrap().push(config.clone());
        Ok(Vec::new())
    }

    fn rows(&self, table: &str, take: &mut dyn FnMut(Rows<'_>)) {
        if table == "stats_mysql_query_digest" {
            return take(&mut self.digests());
        }
        if let Some(row) = self.row(table) {
            take(&mut std::iter::once(row));
        }
    }

    fn rows_and_reset(&self, table: &str, take: &mut dyn FnMut(Rows<'_>)) {
        self.rows(&format!("reset of {table}"), take);
    }

    fn kill(&self, thread_id: u64, _query_only: bool) -> bool {
        thread_id == 7
    }

    fn audit(&self, event: &AuditEvent<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = [text(event.username), text(event.statement), text(event.extra)];
        self.audited.lock().unwrap().push((event.kind, line));
    }

    fn command(&self, command: EngineCommand) -> Result<String, String> {
        self.commands.lock().unwrap().push(command);
        Ok("as you wish".into())
    }

    fn plan_switchover(&self, hostgroup: u32, to: Option<Endpoint>) -> Result<SwitchoverPlan, String> {
        let next_writer = to.ok_or_else(|| format!("{hostgroup} has no other server"))?;
        let writer = "db1:3306".parse().unwrap();
        Ok(SwitchoverPlan { writer, next_writer, sessions: "2 sessions (transaction)".into() })
    }

    fn file_rows(&self) -> Result<TableRows, Vec<String>> {
        Err(vec!["there is no file".into()])
    }

    fn config_text(&self, _rows: &TableRows) -> Result<String, String> {
        Ok("# nothing\n".into())
    }

    fn metrics_text(&self) -> Result<String, String> {
        Ok("# EOF\n".into())
    }
}

struct Rig {
    notes: Arc<Notes>,
    admin: Admin,
    port: u16,
}

impl Rig {
    fn start() -> Self {
        let store = Arc::new(Mutex::new(Store::in_memory().unwrap()));
        let notes = Arc::new(Notes::default());
        let admin =
            Admin::start(&settings(), AdminSockets::open(&settings()).unwrap(), None, store, notes.clone())
                .unwrap();
        let address = admin.addresses().remove(0);
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        Self { notes, admin, port }
    }

    fn connect(&self, user: &str, password: &str) -> Result<Connection, Error> {
        Connection::connect(&Options::new("127.0.0.1", self.port, user, password))
    }

    fn admin(&self) -> Connection {
        self.connect("admin", "secret").unwrap()
    }
}

fn settings() -> Settings {
    let pair = |user: &str, password: &str| vec![(user.to_owned(), password.to_owned())];
    Settings {
        interfaces: vec![ListenAddress::Tcp("127.0.0.1:0".parse().unwrap())],
        admins: pair("admin", "secret"),
        stats: pair("stats", "look"),
        ..Settings::default()
    }
}

fn rows(result: &QueryResult) -> Vec<Vec<String>> {
    let width = result.columns.len();
    let row = |at| (0..width).map(|column| result.text(at, column).unwrap_or("NULL").to_owned()).collect();
    (0..result.rows.len()).map(row).collect()
}

fn query(connection: &mut Connection, sql: &str) -> Vec<Vec<String>> {
    rows(&connection.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn refusal(connection: &mut Connection, sql: &str) -> String {
    connection.query(sql).expect_err(sql).to_string()
}

#[test]
fn who_has_no_password_does_not_come_in() {
    let rig = Rig::start();
    for (user, password) in [("admin", "admin"), ("admin", ""), ("root", "secret"), ("", "")] {
        assert_eq!(rig.connect(user, password).unwrap_err().code(), Some(1045), "{user}");
    }
    assert_eq!(query(&mut rig.admin(), "SELECT 1 + 1"), [["2"]]);
    assert_eq!(query(&mut rig.connect("stats", "look").unwrap(), "SELECT USER()"), [["stats@%"]]);
}

#[test]
fn who_is_told_passwords_does_not_come_in_clear() {
    let rig = Rig::start();
    rig.admin();
    let closed = Settings { encrypted_only: Some("admin".to_owned()), ..settings() };
    rig.admin.apply(&closed, rig.admin.sockets(&closed).unwrap()).unwrap();
    let refused = rig.connect("admin", "secret").unwrap_err();
    assert_eq!(refused.code(), Some(3159), "{refused}");
    // Who does not know the password is not told.
    assert_eq!(rig.connect("admin", "guess").unwrap_err().code(), Some(1045));
    assert!(rig.connect("stats", "look").is_ok());
}

#[test]
fn rows_are_written_and_read_as_dbas_type_it() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    let insert =
        "INSERT INTO mysql_servers(hostgroup_id,hostname,port) VALUES (1,'db1',3306),(1,\"db2\",3306);";
    assert_eq!(admin.query(insert).unwrap().ok.affected_rows, 2);
    admin
        .query("REPLACE INTO `mysql_servers` (hostgroup_id, hostname, weight) VALUES (1, 'db1', 50)")
        .unwrap();
    admin.query("INSERT IGNORE INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'db1')").unwrap();
    let read = query(&mut admin, "SELECT hostname, weight FROM main.mysql_servers ORDER BY hostname\\G");
    assert_eq!(read, [["db1", "50"], ["db2", "1"]]);
    admin.query("SAVE MYSQL SERVERS TO DISK").unwrap();
    admin.query("DELETE FROM mysql_servers").unwrap();
    assert_eq!(query(&mut admin, "SELECT COUNT(*) FROM disk.mysql_servers"), [["2"]]);
    admin.query("LOAD MYSQL SERVERS FROM DISK").unwrap();
    assert_eq!(query(&mut admin, "SELECT COUNT(*) FROM mysql_servers"), [["2"]]);
    let sums = query(&mut admin, "CHECKSUM MYSQL SERVERS");
    assert_eq!(query(&mut admin, "CHECKSUM DISK MYSQL SERVERS"), sums);
    // A constraint of the table.
    assert!(refusal(&mut admin, "UPDATE mysql_servers SET port = 70000").contains("CHECK"));
}

#[test]
fn variables_are_known_by_name() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    assert_eq!(admin.query("SET mysql-max_connections = 500").unwrap().ok.affected_rows, 1);
    assert_eq!(query(&mut admin, "SELECT @@mysql-max_connections"), [["500"]]);
    let like = "SHOW VARIABLES LIKE 'mysql-max_connections'";
    assert_eq!(query(&mut admin, like), [["mysql-max_connections", "500"]]);
    for wrong in [
        "SET mysql-max_conections=5",
        "UPDATE global_variables SET variable_value=5 WHERE variable_name='mysql-max_conections'",
        "INSERT INTO global_variables VALUES ('mysql-max_conections', '5')",
    ] {
        let error = refusal(&mut admin, wrong);
        assert!(error.contains("did you mean 'mysql-max_connections'"), "{wrong}: {error}");
    }
    assert_eq!(
        query(&mut admin, "SELECT * FROM global_variables WHERE variable_name LIKE '%conections'").len(),
        0
    );
    admin.query("SET mysql-monitor_password='hush'").unwrap();
    let shown = query(&mut admin, "SHOW VARIABLES LIKE 'mysql-monitor_password'");
    assert_eq!(shown, [["mysql-monitor_password", "********"]]);
}

#[test]
fn what_a_driver_asks_first_is_answered() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    for sql in [
        "SET NAMES utf8mb4",
        "SET autocommit=0",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET character_set_results = NULL",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "/* mysql-connector */SELECT @@session.auto_increment_increment AS auto_increment_increment, \
         @@character_set_client AS character_set_client, @@transaction_isolation AS transaction_isolation",
        "SELECT DATABASE(), USER(), VERSION(), CONNECTION_ID()",
        "SHOW WARNINGS",
        "SHOW COLLATION",
        "SHOW ENGINES",
        "SHOW GLOBAL STATUS",
        "SHOW VARIABLES WHERE Variable_name IN ('sql_mode', 'lower_case_table_names')",
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'main'",
        "SELECT SCHEMA_NAME FROM INFORMATION_SCHEMA.SCHEMATA",
        "SHOW FULL TABLES FROM `main` LIKE 'mysql%'",
        "SHOW FULL COLUMNS FROM `mysql_users` FROM `main`",
        "SHOW INDEX FROM mysql_users",
        "SHOW CREATE TABLE mysql_users",
        "SHOW PLUGINS",
    ] {
        admin.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let heading = admin.query("SELECT @@version_comment LIMIT 1").unwrap();
    assert_eq!(heading.columns, ["@@version_comment"]);
    admin.use_schema("stats").unwrap();
    assert_eq!(query(&mut admin, "SELECT DATABASE()"), [["stats"]]);
    assert!(query(&mut admin, "SHOW TABLES").contains(&vec!["stats_mysql_global".to_owned()]));
    assert_eq!(admin.use_schema("nothing").unwrap_err().code(), Some(1049));
    let unknown = refusal(&mut admin, "SELECT @@version_coment");
    assert!(unknown.contains("did you mean 'version_comment'"), "{unknown}");
}

#[test]
fn a_session_hears_what_has_no_effect() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    admin.query("SET some_setting = 1").unwrap();
    let warnings = query(&mut admin, "SHOW WARNINGS");
    assert!(warnings[0][2].contains("some_setting has no effect"), "{warnings:?}");
    assert_eq!(query(&mut admin, "SHOW COUNT(*) WARNINGS"), [["1"]]);
    admin.query("DELETE FROM mysql_users").unwrap();
    assert!(query(&mut admin, "SHOW WARNINGS").is_empty());
    admin.query("ROLLBACK").unwrap();
    assert!(query(&mut admin, "SHOW WARNINGS")[0][2].contains("nothing was rolled back"));
    admin.query("SELEC").unwrap_err();
    assert_eq!(query(&mut admin, "SHOW WARNINGS")[0][0], "Error");
}

#[test]
fn com_init_db_is_as_use() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    admin.query("SET wait_for_nobody = 1").unwrap();
    admin.use_schema("stats").unwrap();
    assert_eq!(query(&mut admin, "SHOW WARNINGS"), Vec::<Vec<String>>::new());
    assert_eq!(query(&mut admin, "SELECT DATABASE()"), [["stats"]]);
    let refusal = admin.use_schema("nothing").unwrap_err().to_string();
    assert!(refusal.contains("Unknown database 'nothing'"), "{refusal}");
    assert_eq!(query(&mut admin, "SHOW WARNINGS")[0][..2], ["Error", "1049"]);
    assert_eq!(query(&mut admin, "SELECT DATABASE()"), [["stats"]]);
}

#[test]
fn one_user_is_loaded_and_the_others_stay() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    let users = |admin: &mut Connection| {
        query(admin, "SELECT username, default_hostgroup FROM runtime_mysql_users ORDER BY username")
    };
    admin.query("INSERT INTO mysql_users (username, password) VALUES ('app', 'x'), ('web-1', 'y')").unwrap();
    admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
    admin.query("UPDATE mysql_users SET default_hostgroup = 7").unwrap();
    admin.query("INSERT INTO mysql_users (username, password) VALUES ('new', 'z')").unwrap();
    admin.query("LOAD MYSQL USER web-1 TO RUNTIME").unwrap();
    assert_eq!(users(&mut admin), [["app", "0"], ["web-1", "7"]]);
    admin.query("load mysql user 'new' to runtime").unwrap();
    assert_eq!(users(&mut admin), [["app", "0"], ["new", "0"], ["web-1", "7"]]);
    let refusal = refusal(&mut admin, "LOAD MYSQL USER nobody TO RUNTIME");
    assert!(refusal.contains("LOAD MYSQL USER nobody: there is no such user in mysql_users"), "{refusal}");
    assert_eq!(rig.notes.applied.lock().unwrap().len(), 3);
    assert!(rig.connect("stats", "look").unwrap().query("LOAD MYSQL USER app TO RUNTIME").is_err());
}

#[test]
fn statistics_are_of_the_moment_and_resets_are_asked_for_once() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    let read = |admin: &mut Connection| query(admin, "SELECT Variable_Value FROM stats_mysql_global");
    assert_eq!(read(&mut admin), [["1"]]);
    assert_eq!(read(&mut admin), [["2"]]);
    assert_eq!(query(&mut admin, "SHOW MYSQL STATUS"), [["reads", "3"]]);
    query(&mut admin, "SELECT COUNT(*) FROM stats_mysql_query_digest_reset");
    let reads = rig.notes.reads.lock().unwrap();
    assert_eq!(reads.get("reset of stats_mysql_query_digest_reset"), Some(&1));
}

#[test]
fn sessions_are_in_information_schema_as_servers_have_them() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    let sql = "SELECT ID, USER, HOST, DB, COMMAND, TIME, STATE, INFO FROM INFORMATION_SCHEMA.PROCESSLIST";
    let expected = [["12", "app", "10.0.0.9:50312", "shop", "Query", "2", "", "SELECT SLEEP(9)"]];
    assert_eq!(query(&mut admin, sql), expected);
    assert_eq!(query(&mut rig.connect("stats", "look").unwrap(), sql), expected);
    let count = "select count(*) from information_schema.processlist where user <> 'weir'";
    assert_eq!(query(&mut admin, count), [["1"]]);
    query(&mut admin, "SELECT COUNT(*) FROM information_schema.PROCESSLIST");
    // Each is as of its own moment.
    assert_eq!(rig.notes.reads.lock().unwrap().get("stats_mysql_processlist"), Some(&4));
}

#[test]
fn what_reaches_out_of_the_tables_is_refused() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    for sql in [
        "ATTACH DATABASE '/etc/passwd' AS x",
        "DETACH DATABASE disk",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT writefile('/tmp/x', 'y')",
        "PRAGMA journal_mode = OFF",
        "PRAGMA writable_schema = 1",
        "SELECT * FROM pragma_database_list",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "DROP TABLE mysql_users",
        "ALTER TABLE mysql_users RENAME TO x",
        "VACUUM INTO '/tmp/weir-copy'",
        "INSERT INTO sqlite_master VALUES (1, 2, 3, 4, 5)",
        "INSERT INTO stats.stats_mysql_global VALUES ('a', 'b')",
        "UPDATE runtime_mysql_users SET password = ''",
        "DELETE FROM monitor.mysql_server_ping_log",
        "SELECT * FROM intent.mysql_users",
        "SAVEPOINT x",
        "SELECT 1; DELETE FROM mysql_users",
        "REINDEX",
    ] {
        let error = refusal(&mut admin, sql);
        assert_eq!(query(&mut admin, "SELECT 1"), [["1"]], "{sql}: {error}");
    }
    let denied = refusal(&mut admin, "UPDATE runtime_mysql_users SET password = ''");
    assert!(denied.contains("change mysql_users and load it TO RUNTIME"), "{denied}");
}

#[test]
fn an_account_of_statistics_only_looks() {
    let rig = Rig::start();
    let mut stats = rig.connect("stats", "look").unwrap();
    query(&mut stats, "SELECT * FROM stats_mysql_global");
    query(&mut stats, "SELECT * FROM runtime_mysql_servers");
    query(&mut stats, "SELECT * FROM runtime_mysql_query_rules");
    query(&mut stats, "SELECT * FROM runtime_checksums_values");
    query(&mut stats, "SHOW TABLES");
    query(&mut stats, "SHOW MYSQL STATUS");
    query(
        &mut stats,
        "SELECT COUNT(*) FROM stats_mysql_global JOIN stats.stats_memory_metrics USING (Variable_Name)",
    );
    for sql in [
        "SELECT * FROM mysql_users",
        "SELECT COUNT(*) FROM mysql_users",
        "SELECT * FROM runtime_mysql_users",
        "SELECT * FROM runtime_weir_topology",
        "SELECT COUNT(*) FROM runtime_weir_topology",
        "SELECT * FROM runtime_global_variables",
        "SELECT * FROM disk.mysql_users",
        "SELECT * FROM global_variables",
        "SELECT COUNT(*) FROM (SELECT 'secret' AS password) guess JOIN mysql_users USING (password)",
        "SELECT COUNT(*) FROM (SELECT 'secret' AS password) guess NATURAL JOIN disk.mysql_users",
        "SELECT @@admin-admin_credentials",
        "DELETE FROM mysql_users",
        "SET mysql-threads=1",
        "LOAD MYSQL USERS TO RUNTIME",
        "SAVE MYSQL USERS TO DISK",
        "PROXYSQL SHUTDOWN",
        "KILL 7",
        "WEIR DRAIN 'db1:3306'",
        "SELECT CONFIG FILE",
        "SAVE CONFIG TO FILE /tmp/x",
        "TRUNCATE stats_mysql_query_digest",
        "SHOW MYSQL USERS",
        "CHECKSUM MYSQL USERS",
    ] {
        let error = stats.query(sql).expect_err(sql);
        assert_eq!(error.code(), Some(1227), "{sql}: {error}");
    }
    assert!(rig.notes.commands.lock().unwrap().is_empty());
}

#[test]
fn a_statement_without_end_is_stopped() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c";
    let timeouts = std::time::Duration::from_secs(60);
    let options = Options::new("127.0.0.1", rig.port, "admin", "secret").timeouts(timeouts, timeouts);
    let mut patient = Connection::connect(&options).unwrap();
    assert_eq!(patient.query(endless).unwrap_err().code(), Some(1969));
    let huge = refusal(&mut admin, "SELECT hex(zeroblob(100000000))");
    assert!(huge.contains("too big"), "{huge}");
    assert_eq!(query(&mut admin, "SELECT 1"), [["1"]]);
}

#[test]
fn commands_reach_the_engine() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    for sql in ["PROXYSQL PAUSE", "proxysql resume;", "PROXYSQL FLUSH LOGS", "WEIR DRAIN 'db1:3306'"] {
        admin.query(sql).unwrap();
    }
    let plan = admin.query("WEIR SWITCHOVER HOSTGROUP 10 TO 'db2:3306' FORCE DRY RUN").unwrap();
    assert_eq!(plan.columns, ["hostgroup", "writer", "next_writer", "sessions"]);
    assert!(refusal(&mut admin, "WEIR SWITCHOVER HOSTGROUP 10 DRY RUN").contains("10 has no other server"));
    let row = query(&mut admin, "WEIR SWITCHOVER HOSTGROUP 10 TO 'db2:3306' DRY RUN");
    assert_eq!(row, [["10", "db1:3306", "db2:3306", "2 sessions (transaction)"]]);
    let noted = rig.notes.commands.lock().unwrap().clone();
    let drain = EngineCommand::Drain("db1:3306".parse().unwrap());
    assert_eq!(noted, [EngineCommand::Pause, EngineCommand::Resume, EngineCommand::FlushLogs, drain]);
    admin.query("KILL 7").unwrap();
    assert_eq!(admin.query("KILL 8").unwrap_err().code(), Some(1094));
    assert!(refusal(&mut admin, "PROXYSQL RESTART").contains("weir serve --takeover"));
    admin.query("PROXYSQL READONLY").unwrap();
    assert!(refusal(&mut admin, "DELETE FROM mysql_users").contains("PROXYSQL READWRITE"));
    assert!(refusal(&mut admin, "SET mysql-threads=1").contains("PROXYSQL READWRITE"));
    admin.query("PROXYSQL READWRITE").unwrap();
    admin.query("DELETE FROM mysql_users").unwrap();
    assert_eq!(query(&mut admin, "SHOW PROMETHEUS METRICS"), [["# EOF\n"]]);
}

#[test]
fn the_port_moves_and_sessions_stay() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    let mut moved = settings();
    moved.interfaces = vec![ListenAddress::Tcp("127.0.0.2:0".parse().unwrap())];
    moved.admins = vec![("root".to_owned(), "new".to_owned())];
    rig.admin.apply(&moved, rig.admin.sockets(&moved).unwrap()).unwrap();
    assert_eq!(query(&mut admin, "SELECT 1"), [["1"]]);
    assert!(rig.connect("admin", "secret").is_err(), "nobody listens there");
    let address: std::net::SocketAddr = rig.admin.addresses().remove(0).parse().unwrap();
    let at = Options::new("127.0.0.2", address.port(), "root", "new");
    assert_eq!(query(&mut Connection::connect(&at).unwrap(), "SELECT 1"), [["1"]]);
    // An address that is taken changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    moved.interfaces.push(ListenAddress::Tcp(taken.local_addr().unwrap()));
    moved.admins.clear();
    let error = rig.admin.sockets(&moved).unwrap_err().to_string();
    assert!(error.contains("another program listens there"), "{error}");
    assert!(Connection::connect(&at).is_ok());
}

#[test]
fn many_at_a_time_share_what_is_read_of_the_engine() {
    let rig = Rig::start();
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let mut admin = rig.admin();
                for _ in 0..20 {
                    query(&mut admin, "SELECT * FROM stats_mysql_global");
                }
            });
        }
    });
    assert!(*rig.notes.reads.lock().unwrap().get("stats_mysql_global").unwrap() <= 32 * 20);
}

#[test]
fn when_it_ends_its_sessions_end() {
    let Rig { admin, port, .. } = Rig::start();
    let options = Options::new("127.0.0.1", port, "admin", "secret");
    let mut session = Connection::connect(&options).unwrap();
    drop(admin);
    assert!(session.query("SELECT 1").is_err());
    assert!(Connection::connect(&options).is_err());
}

#[test]
fn sockets_change_hands_and_nobody_is_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("admin.sock");
    let mut settings = settings();
    settings.interfaces.push(ListenAddress::Unix(path.clone()));
    let begin = |sockets: AdminSockets, settings: &Settings| {
        let store = Arc::new(Mutex::new(Store::in_memory().unwrap()));
        Admin::start(settings, sockets, None, store, Arc::new(Notes::default())).unwrap()
    };
    let first = begin(AdminSockets::open(&settings).unwrap(), &settings);
    let port = first.addresses()[0].rsplit(':').next().unwrap().parse().unwrap();
    let options = Options::new("127.0.0.1", port, "admin", "secret");
    // Who takes over and dies before it is ready leaves everything as it was.
    drop(AdminSockets::adopt(&settings, first.takeover_sockets().unwrap()).unwrap());
    assert!(path.exists());
    let mut old = Connection::connect(&options).unwrap();
    let mut sockets = AdminSockets::adopt(&settings, first.takeover_sockets().unwrap()).unwrap();
    first.let_go();
    sockets.own();
    // It waits until somebody serves it.
    let waits = thread::spawn(move || Connection::connect(&options).unwrap().query("SELECT 7").unwrap());
    old.query("SELECT 1").unwrap();
    let refusal = old.query("DELETE FROM mysql_users").unwrap_err();
    assert_eq!((refusal.code(), refusal.to_string().contains("connect again")), (Some(1053), true));
    let second = begin(sockets, &settings);
    assert_eq!(rows(&waits.join().unwrap()), [["7"]]);
    drop(old);
    first.finish(Duration::from_secs(3600));
    drop(first);
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    // A third one that does not want the Unix socket.
    settings.interfaces.pop();
    let mut sockets = AdminSockets::adopt(&settings, second.takeover_sockets().unwrap()).unwrap();
    second.let_go();
    sockets.own();
    assert!(!path.exists());
}
