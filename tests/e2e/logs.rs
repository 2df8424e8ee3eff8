//! The events log, the slow log and the audit log.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Duration;

use serde_json::Value;
use weir_protocol::command::Command;
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Signal, Weir, WeirConfig, hostgroup, weir_binary};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("logs::events_tell_what_ran_where", events),
        Case::parallel("logs::the_hostgroup_is_where_the_statement_ran", hostgroups),
        Case::parallel("logs::passwords_in_statements_are_masked", passwords),
        Case::parallel("logs::rules_choose_what_is_logged", rules),
        Case::parallel("logs::slow_statements_have_a_log_of_their_own", slow),
        Case::parallel("logs::an_audit_of_logins_and_their_ends", audit),
        Case::parallel("logs::changes_at_the_admin_port_are_audited", admin_changes),
        Case::parallel("logs::sigusr1_begins_the_next_files", sigusr1),
        Case::parallel("logs::a_reload_switches_logs_on_and_off", reload),
        Case::parallel("logs::a_disk_that_is_gone_stops_nobody", no_disk),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);

/// A file of the datadir.
fn file(weir: &Weir, name: &str) -> PathBuf {
    weir.datadir().join(name)
}

fn lines(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may be on its way.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// The lines of a log, once there is one that is `wanted`.
fn once(path: &Path, wanted: impl Fn(&Value) -> bool) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut found = Vec::new();
    let seen = eventually(&format!("the line in {}", path.display()), PATIENCE, || {
        found = lines(path)?;
        Ok(found.iter().any(&wanted))
    });
    seen.map_err(|error| format!("{error}; there are: {found:?}"))?;
    Ok(found)
}

fn is_query(line: &Value, query: &str) -> bool {
    line["query"] == query
}

fn the<'a>(lines: &'a [Value], event: &str, query: &str) -> Result<&'a Value, String> {
    let found = lines.iter().find(|line| is_query(line, query) && line["event"] == event);
    found.ok_or_else(|| format!("no {event} of {query}: {lines:?}"))
}

fn logging(config: &mut WeirConfig) {
    config.variable("eventslog_filename", "events").variable("eventslog_default_log", 1);
}

fn events(env: &Env) -> CaseResult {
    let weir = env.weir(logging)?;
    let schema = env.schema()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20))")?;
    session.run("INSERT INTO t (name) VALUES ('one'), ('two')")?;
    session.rows("SELECT name FROM t")?;
    session.refused("SELECT nothing FROM t", 1054)?;
    let statement = session.prepare("SELECT name FROM t WHERE id = ?")?;
    // Which numbers a node gives out depends on its place in the cluster.
    let id: i64 = session.value("SELECT MIN(id) FROM t")?.parse()?;
    session.execute(&statement, &[Param::Int(id)])?;
    session.refused("KILL 16777215", 1094)?;
    let long = format!("SELECT '{}' FROM t", "x".repeat(2 << 20));
    session.rows(&long)?;
    session.value("SELECT 'last'")?;
    let path = file(&weir, "events.00000001");
    let lines = once(&path, |line| is_query(line, "SELECT 'last'"))?;
    let insert = the(&lines, "COM_QUERY", "INSERT INTO t (name) VALUES ('one'), ('two')")?;
    ensure!(insert["rows_affected"] == 2 && insert["last_insert_id"].is_u64(), "{insert}");
    ensure!(insert["hostgroup_id"] == hostgroup::WRITER && insert["errno"] == 0, "{insert}");
    ensure!(insert["username"] == "app" && insert["schemaname"] == schema.as_str(), "{insert}");
    ensure!(insert["thread_id"] == session.id(), "{insert}");
    let servers: Vec<String> = env.cluster()?.nodes().iter().map(|node| node.addr().to_string()).collect();
    ensure!(insert["server"].as_str().is_some_and(|server| servers.contains(&server.to_owned())), "{insert}");
    let digest = insert["digest"].as_str().unwrap_or_default();
    ensure!(digest.len() == 18 && digest.starts_with("0x"), "{insert}");
    let (from, to) = (insert["starttime_timestamp_us"].as_u64(), insert["endtime_timestamp_us"].as_u64());
    ensure!(to.zip(from).map(|(to, from)| to - from) == insert["duration_us"].as_u64(), "{insert}");
    let select = the(&lines, "COM_QUERY", "SELECT name FROM t")?;
    ensure!(select["rows_sent"] == 2 && select["rows_affected"] == 0, "{select}");
    let failed = the(&lines, "COM_QUERY", "SELECT nothing FROM t")?;
    let says = failed["error"].as_str().is_some_and(|error| error.contains("nothing"));
    ensure!(failed["errno"] == 1054 && says, "{failed}");
    the(&lines, "COM_STMT_PREPARE", "SELECT name FROM t WHERE id = ?")?;
    let executed = the(&lines, "COM_STMT_EXECUTE", "SELECT name FROM t WHERE id = ?")?;
    ensure!(executed["rows_sent"] == 1 && executed["client_stmt_id"] == statement.id, "{executed}");
    let own = the(&lines, "COM_QUERY", "KILL 16777215")?;
    ensure!(own["errno"] == 1094 && own["hostgroup_id"] == -1 && own["server"].is_null(), "{own}");
    let cut = lines.iter().find(|line| line["query_length"].is_u64()).ok_or("the long one is missing")?;
    ensure!(cut["query"].as_str().map(str::len) == Some(32768), "{cut}");
    ensure!(
        cut["query_length"].as_u64() >= Some(2 << 20) && cut["rows_sent"] == 2,
        "{}",
        cut["query_length"]
    );
    let mode = path.metadata()?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    Ok(())
}

fn hostgroups(env: &Env) -> CaseResult {
    let (primary, replicas) = (env.free_address()?, env.free_address()?);
    let weir = env.weir(|config| {
        logging(config);
        for (address, mode) in [(primary, "primary"), (replicas, "replicas")] {
            config.push("weir_listeners", &[("address", address.to_string().into()), ("mode", mode.into())]);
        }
    })?;
    let schema = env.schema()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    eventually("a reader has a read", PATIENCE, || {
        session.value("SELECT 'free'")?;
        let lines = lines(&file(&weir, "events.00000001"))?;
        Ok(lines
            .iter()
            .any(|line| is_query(line, "SELECT 'free'") && line["hostgroup_id"] == hostgroup::READER))
    })?;
    session.run("BEGIN")?;
    session.rows("SELECT 'in a transaction' FROM t")?;
    session.run("ROLLBACK")?;
    session.run("SET @pinned = 1")?;
    session.rows("SELECT 'under a pin', @pinned FROM t")?;
    for (address, text) in [(primary, "primary"), (replicas, "replicas")] {
        let mut session = Session::open(address, &schema)?;
        for number in 1..=2 {
            session.rows(&format!("SELECT '{text}', {number}"))?;
        }
    }
    let lines = once(&file(&weir, "events.00000001"), |line| is_query(line, "SELECT 'replicas', 2"))?;
    for query in
        ["BEGIN", "SELECT 'in a transaction' FROM t", "ROLLBACK", "SELECT 'under a pin', @pinned FROM t"]
    {
        let line = the(&lines, "COM_QUERY", query)?;
        ensure!(line["hostgroup_id"] == hostgroup::WRITER, "{line}");
    }
    for (text, wanted) in [("primary", hostgroup::WRITER), ("replicas", hostgroup::READER)] {
        let hostgroup = |number| -> Result<Value, String> {
            let line = the(&lines, "COM_QUERY", &format!("SELECT '{text}', {number}"))?;
            Ok(line["hostgroup_id"].clone())
        };
        let (first, second) = (hostgroup(1)?, hostgroup(2)?);
        ensure!(first == wanted && second == wanted, "{text}: {first}, {second}");
    }
    Ok(())
}

fn passwords(env: &Env) -> CaseResult {
    let weir = env.weir(logging)?;
    let account = env.account()?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run(&format!("ALTER USER {} IDENTIFIED BY 'sesame'", account.user))?;
    // Whether it can be prepared is up to the server; it is logged in any case.
    let prepared = session.try_prepare(&format!("ALTER USER {} IDENTIFIED BY 'sesame'", account.user))?;
    let was_prepared = prepared.is_ok();
    session.value("SELECT 'last'")?;
    let path = file(&weir, "events.00000001");
    let lines = once(&path, |line| is_query(line, "SELECT 'last'"))?;
    the(&lines, "COM_QUERY", &format!("ALTER USER {} IDENTIFIED BY '***'", account.user))?;
    let event = "COM_STMT_PREPARE";
    let line = the(&lines, event, &format!("ALTER USER {} IDENTIFIED BY '***'", account.user))?;
    ensure!((line["errno"] == 0) == was_prepared, "{line}");
    ensure!(!fs::read_to_string(&path)?.contains("sesame"), "a password is in {}", path.display());
    Ok(())
}

fn rules(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("eventslog_filename", "events");
        let rule = |digest: &str, log: i64| {
            [("active", 1.into()), ("match_digest", digest.into()), ("log", log.into())]
        };
        config.push("mysql_query_rules", &rule("^SELECT", 1));
        config.push("mysql_query_rules", &rule("secret", 0));
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    for text in ["SELECT 1", "DO 2", "SELECT 3 AS secret", "SELECT 'last'"] {
        session.query(text)?;
    }
    let lines = once(&file(&weir, "events.00000001"), |line| is_query(line, "SELECT 'last'"))?;
    let queries: Vec<_> = lines.iter().filter_map(|line| line["query"].as_str()).collect();
    ensure!(queries == ["SELECT 1", "SELECT 'last'"], "{queries:?}");
    Ok(())
}

fn slow(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("slowlog_filename", "slow").variable("long_query_time", 400);
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.value("SELECT SLEEP(0.5)")?;
    let path = file(&weir, "slow.00000001");
    let lines = once(&path, |line| is_query(line, "SELECT SLEEP(0.5)"))?;
    let long = lines.iter().all(|line| line["duration_us"].as_u64() > Some(400_000));
    ensure!(long && !file(&weir, "events.00000001").exists(), "{lines:?}");
    Ok(())
}

fn audit(env: &Env) -> CaseResult {
    let other = env.account()?;
    let weir = env.weir(|config| {
        config.variable("auditlog_filename", "audit");
        config.user(other, hostgroup::WRITER, &[]);
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    let id = session.id();
    let schema = env.schema()?;
    session.use_schema(&schema)?.done()?;
    session.run("USE test")?;
    ensure!(session.use_schema("no_such_schema")?.error().is_some(), "an unknown schema");
    ensure!(session.change_user(other, "test")?.done().is_ok(), "COM_CHANGE_USER");
    session.raw().send_command(&[Command::Quit.code()])?;
    let wrong = Account { password: "wrong", ..Account::APP };
    let refused = RawClient::connect(weir.addr())?.authenticate(&Login::new(wrong))?;
    ensure!(refused.err()?.code == 1045, "{refused:?}");
    let path = file(&weir, "audit.00000001");
    let lines = once(&path, |line| line["event"] == "MySQL_Client_Connect_ERR")?;
    let failed =
        lines.iter().find(|line| line["event"] == "MySQL_Client_Connect_ERR").ok_or("no failed login")?;
    let says = failed["extra_info"].as_str().is_some_and(|text| text.contains("Access denied"));
    ensure!(failed["username"] == "app" && says, "{failed}");
    let lines = once(&path, |line| line["event"] == "MySQL_Client_Close" && line["thread_id"] == id)?;
    let own: Vec<_> = lines.iter().filter(|line| line["thread_id"] == id).collect();
    let told: Vec<_> = own.iter().map(|line| (line["event"].clone(), line["username"].clone())).collect();
    let expected = [
        ("MySQL_Client_Connect_OK", "app"),
        ("MySQL_Client_Init_DB", "app"),
        ("MySQL_Client_Init_DB", "app"),
        ("MySQL_Client_Change_User_OK", other.user),
        ("MySQL_Client_Quit", other.user),
        ("MySQL_Client_Close", other.user),
    ];
    let expected = expected.map(|(event, user)| (Value::from(event), Value::from(user)));
    ensure!(told == expected, "{told:?}");
    let address = weir.addr().to_string();
    ensure!(own.iter().all(|line| line["proxy_addr"] == address.as_str() && line["ssl"] == false), "{own:?}");
    let schemas: Vec<_> = own.iter().skip(1).take(2).map(|line| &line["schemaname"]).collect();
    ensure!(schemas == [schema.as_str(), "test"], "{own:?}");
    ensure!(own[5]["duration"].as_str().is_some_and(|text| text.ends_with("ms")), "{own:?}");
    Ok(())
}

fn admin_changes(env: &Env) -> CaseResult {
    let port = env.free_address()?;
    let weir = env.weir(|config| {
        config.variable("auditlog_filename", "audit").admin(port);
    })?;
    let run = |password: &str, sql: &str| {
        let mut client = Program::new("mariadb");
        client.args(["--no-defaults", "-uadmin", &format!("-p{password}"), "-h127.0.0.1"]);
        client.arg(format!("-P{}", port.port())).args(["-e", sql]).output()
    };
    let insert =
        "INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('new', 'sesame', 100)";
    for sql in [insert, "SET mysql-monitor_password='sesame'", "LOAD MYSQL USERS TO RUNTIME"] {
        let output = run("admin", sql)?;
        ensure!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    }
    ensure!(!run("wrong", "SELECT 1")?.status.success(), "a wrong password");
    let path = file(&weir, "audit.00000001");
    let lines = once(&path, |line| line["event"] == "Admin_Connect_ERR")?;
    let changes: Vec<_> = lines.iter().filter(|line| line["event"] == "Admin_Change").collect();
    let told: Vec<_> = changes.iter().filter_map(|line| line["query"].as_str()).collect();
    let masked = "INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('***', '***', 100)";
    ensure!(told == [masked, "SET mysql-monitor_password='***'", "LOAD MYSQL USERS TO RUNTIME"], "{told:?}");
    ensure!(changes.iter().all(|line| line["username"] == "admin"), "{changes:?}");
    ensure!(
        changes.iter().all(|line| line["extra_info"].as_str().is_some_and(|text| text.starts_with("OK"))),
        "{changes:?}"
    );
    let address = port.to_string();
    ensure!(changes.iter().all(|line| line["proxy_addr"] == address.as_str()), "{changes:?}");
    ensure!(!fs::read_to_string(&path)?.contains("sesame"), "a password is in the audit log");
    Ok(())
}

fn sigusr1(env: &Env) -> CaseResult {
    let weir = env.weir(logging)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.value("SELECT 'one'")?;
    once(&file(&weir, "events.00000001"), |line| is_query(line, "SELECT 'one'"))?;
    weir.process().signal(Signal::USR1)?;
    weir.wait_log("logs flushed", PATIENCE)?;
    session.value("SELECT 'two'")?;
    let lines = once(&file(&weir, "events.00000002"), |line| is_query(line, "SELECT 'two'"))?;
    ensure!(lines.len() == 1, "{lines:?}");
    // What was logged before the end is there after it.
    session.value("SELECT 'three'")?;
    drop(session);
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    once(&file(&weir, "events.00000002"), |line| is_query(line, "SELECT 'three'"))?;
    Ok(())
}

fn reload(env: &Env) -> CaseResult {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.value("SELECT 'before'")?;
    let taken = |count: usize| {
        eventually("the configuration is taken", PATIENCE, || {
            Ok(weir.log().matches("configuration applied").count() >= count)
        })
    };
    logging(&mut config);
    weir.reload(&config)?;
    taken(1)?;
    session.value("SELECT 'on'")?;
    let path = file(&weir, "events.00000001");
    let lines = once(&path, |line| is_query(line, "SELECT 'on'"))?;
    ensure!(lines.len() == 1, "{lines:?}");
    config.variable("eventslog_filename", "");
    weir.reload(&config)?;
    taken(2)?;
    session.value("SELECT 'off'")?;
    logging(&mut config);
    weir.reload(&config)?;
    taken(3)?;
    session.value("SELECT 'again'")?;
    let lines = once(&file(&weir, "events.00000002"), |line| is_query(line, "SELECT 'again'"))?;
    ensure!(lines.len() == 1, "{lines:?}");
    Ok(())
}

fn no_disk(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        logging(config);
        config.variable("eventslog_filename", "missing/events");
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..10 {
        session.value("SELECT 1")?;
    }
    weir.wait_log("lines of a log were dropped", PATIENCE)?;
    let output = Program::new(weir_binary()?)
        .args(["stats", "logs", "--json", "-c", &weir.config_path().display().to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row: Value = serde_json::from_str(text.lines().next().unwrap_or_default())?;
    ensure!(row["log"] == "events" && row["dropped"].as_u64() > Some(0), "{text}");
    fs::create_dir(weir.datadir().join("missing"))?;
    // The directory is tried again by and by.
    let path = file(&weir, "missing/events.00000001");
    eventually("the log is written", PATIENCE, || {
        session.value("SELECT 'here'")?;
        Ok(lines(&path)?.iter().any(|line| is_query(line, "SELECT 'here'")))
    })?;
    let gap = lines(&path)?;
    ensure!(gap[0]["event"] == "weir_gap" && gap[0]["lines"].as_u64() > Some(0), "{:?}", gap[0]);
    Ok(())
}
