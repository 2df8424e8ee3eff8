//! A Weir starts with nothing, with a file, with what was saved.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Weir, WeirConfig, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::http::serve_http;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("startup::an_empty_configuration_runs_until_it_gets_servers", empty_configuration),
        Case::parallel("startup::the_database_wins_and_says_what_differs", database_wins),
        Case::parallel("startup::what_an_admin_saves_is_there_again", saved_by_admin),
        Case::parallel("startup::a_damaged_database_is_told", damaged_database),
        Case::parallel("startup::a_start_that_fails_saves_nothing", failed_start),
        Case::serial("startup::a_start_that_fails_leaves_no_row_in_weir_instances", unregistered),
        Case::serial("startup::a_clean_stop_leaves_no_row_in_weir_instances", clean_stop),
        Case::parallel("startup::the_guide_s_proxysql_cnf_serves", guide_proxysql_cnf),
        Case::parallel("startup::a_configuration_is_converted_there_and_back", converted),
        Case::parallel("startup::the_process_id_is_in_a_file_while_it_serves", pid_file),
        Case::parallel("startup::the_log_names_each_risky_setting_of_a_server_once", risky_settings),
        Case::parallel("startup::import_reports_what_has_no_effect", import_reports),
    ]
}

const PATIENCE: Duration = Duration::from_secs(20);

/// The number in a file.
fn number_in(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The nodes of these tests do not wait for their disks.
fn risky_settings(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let told = |weir: &Weir| weir.log().matches("risk: innodb_flush_log_at_trx_commit is 0: writes").count();
    eventually("a word about each node", PATIENCE, || Ok(told(&weir) == 3))?;
    // What stays is not told again.
    let before = weir.log().matches("risk: ").count();
    weir.sighup()?;
    weir.wait_log("configuration applied", PATIENCE)?;
    std::thread::sleep(Duration::from_millis(1500));
    ensure!(told(&weir) == 3 && weir.log().matches("risk: ").count() == before, "{}", weir.log());
    Ok(())
}

fn pid_file(env: &Env) -> CaseResult {
    let config = WeirConfig::new(env.free_address()?);
    let first = env.weir_with(&config)?;
    let path = first.datadir().join("weir.pid");
    // Connections are accepted a moment before the file is there.
    eventually("the process id", PATIENCE, || Ok(number_in(&path) == Some(first.process().pid())))?;
    // Whoever takes over writes its own, and the old one leaves it alone.
    let second = first.follow(&weir_binary()?, None)?;
    ensure!(first.wait_exit(PATIENCE)?.success(), "{}", first.log());
    eventually("the process id", PATIENCE, || Ok(number_in(&path) == Some(second.process().pid())))?;
    second.sigterm()?;
    ensure!(second.wait_exit(PATIENCE)?.success() && !path.exists(), "{path:?} is left");
    // Killed, it leaves one behind, which the next replaces.
    fs::write(&path, "1\n")?;
    let own = env.dir()?.join("own.pid");
    let third = second.restart_with(
        &weir_binary()?,
        vec!["--config-mode=file".to_owned(), format!("--pidfile={}", own.display())],
    )?;
    eventually("the process id", PATIENCE, || Ok(number_in(&own) == Some(third.process().pid())))?;
    ensure!(number_in(&path) == Some(1), "nobody has asked for {path:?}");
    third.sigterm()?;
    ensure!(third.wait_exit(PATIENCE)?.success() && !own.exists(), "{own:?} is left");
    Ok(())
}

fn empty_configuration(env: &Env) -> CaseResult {
    let address = env.free_address()?;
    let weir = env.weir_with(&WeirConfig::new(address))?;
    let packet = RawClient::connect(weir.addr())?.authenticate(&Login::new(Account::APP))?;
    ensure!(packet.err()?.code == 1045, "nobody is known yet, but: {packet:?}");
    let config = WeirConfig::for_cluster(env.cluster()?, address);
    weir.reload(&config)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let value = session.value("SELECT 1")?;
    ensure!(value == "1", "{value}");
    // And back: those who are in may stay, nobody comes in any more.
    weir.reload(&WeirConfig::new(address))?;
    eventually("nobody is known again", PATIENCE, || {
        let packet = RawClient::connect(weir.addr())?.authenticate(&Login::new(Account::APP))?;
        Ok(packet.first() != Some(0) && packet.err()?.code == 1045)
    })
}

/// A user with this password, whose server nobody listens at.
fn with_user(env: &Env, password: &'static str) -> Result<WeirConfig, String> {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server("127.0.0.1:9".parse().map_err(|_| "no address")?, 1, &[]);
    config.user(Account { user: "someone", password }, 1, &[]);
    config.arguments(&[]);
    Ok(config)
}

/// A Weir with just this configuration.
fn start(env: &Env, config: &WeirConfig) -> Result<Weir, Box<dyn std::error::Error>> {
    let name = format!("startup-{}", config.listen().port());
    Ok(Weir::start(&weir_binary()?, config, env.dir()?, &name)?)
}

/// Runs `weir serve` where the port is taken; what it says.
fn fail(config: &Path, arguments: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    let output = Command::new(weir_binary()?).args(["serve", "-c"]).arg(config).args(arguments).output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(!output.status.success(), "it has started: {said}");
    Ok(said)
}

fn failed_start(env: &Env) -> CaseResult {
    let dir = env.dir()?.join("failed-start");
    fs::create_dir_all(&dir)?;
    let (file, database) = (dir.join("weir.toml"), dir.join("data").join("weir.db"));
    let taken = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let mut config = with_user(env, "first")?;
    config.variable("interfaces", taken.local_addr()?.to_string());
    fs::write(&file, config.render(&dir.join("data")))?;
    let said = fail(&file, &[])?;
    ensure!(said.contains("in use"), "{said}");
    ensure!(!database.exists(), "a database was saved");
    // The file is mended, and read again.
    let config = with_user(env, "second")?;
    fs::write(&file, config.render(&dir.join("data")))?;
    let weir = Weir::start_with_file(&weir_binary()?, &file, config.listen(), &dir, "weir")?;
    ensure!(is_let_in(&weir, "second")?, "the mended file is not in force");
    weir.wait_log("configuration: saved to a new database", PATIENCE)?;
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    // Nor does a failure set aside or change what was saved.
    let mut third = with_user(env, "third")?;
    third.variable("interfaces", taken.local_addr()?.to_string());
    fs::write(&file, third.render(weir.datadir()))?;
    for beginning in ["--initial", "--reload"] {
        fail(&file, &[beginning])?;
        ensure!(!weir.datadir().join("weir.db.bak").exists(), "{beginning} has set the database aside");
    }
    fs::write(&file, config.render(weir.datadir()))?;
    let diff = command(&["config", "diff", "-c", &text(&file)])?;
    ensure!(diff.status.success(), "a start that failed has changed the database: {diff:?}");
    Ok(())
}

fn clean_stop(env: &Env) -> CaseResult {
    // Also where it comes while the tables are made.
    env.forget_epochs()?;
    let account = env.account()?;
    let weir = env.weir(|config| {
        config.monitor(account);
    })?;
    let instance = fs::read_to_string(weir.datadir().join("instance"))?;
    let count = format!(
        "SET wsrep_sync_wait = 1; SELECT COUNT(*) FROM weir.instances WHERE instance = '{}'",
        instance.trim()
    );
    let rows = || env.cluster()?.node(2).root_query(&count).map_err(|error| error.to_string());
    eventually("it is in weir.instances", PATIENCE, || Ok(rows().is_ok_and(|rows| rows == [["1"]])))?;
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    ensure!(rows()? == [["0"]], "its row is left");
    Ok(())
}

/// It finds out late, after everything else is there, that an address is taken.
fn unregistered(env: &Env) -> CaseResult {
    env.forget_epochs()?;
    let (account, dir) = (env.account()?, env.dir()?.join("unregistered"));
    fs::create_dir_all(&dir)?;
    let (file, data) = (dir.join("weir.toml"), dir.join("weir-data"));
    let taken = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let std::net::SocketAddr::V4(at) = taken.local_addr()? else { return Err("no IPv4".into()) };
    let mut good = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    good.monitor(account);
    let node = env.cluster()?.node(2);
    let written = || -> Result<Option<String>, Box<dyn std::error::Error>> {
        let Ok(instance) = fs::read_to_string(data.join("instance")) else { return Ok(None) };
        let sql = format!("SELECT COUNT(*) FROM weir.instances WHERE instance = '{}'", instance.trim());
        let rows = node.root_query(&format!("SET wsrep_sync_wait = 1; {sql}"));
        // Without a table there is no row.
        Ok(Some(rows.map_or_else(|_| "0".to_owned(), |rows| rows.concat().concat())))
    };
    for what in ["the listener", "the admin port", "HTTP"] {
        let mut config = good.clone();
        match what {
            "the listener" => {
                config.variable("interfaces", at.to_string());
            }
            "the admin port" => {
                config.admin(at);
            }
            _ => serve_http(&mut config, at),
        }
        fs::write(&file, config.render(&data))?;
        let said = fail(&file, &[])?;
        ensure!(said.contains("in use"), "{what}: {said}");
        let rows = written()?;
        ensure!(rows.as_deref().is_none_or(|rows| rows == "0"), "{what}: {rows:?} rows");
    }
    fs::write(&file, good.render(&data))?;
    let weir = Weir::start_with_file(&weir_binary()?, &file, good.listen(), &dir, "weir")?;
    eventually("it is in weir.instances", PATIENCE, || Ok(written()?.as_deref() == Some("1")))?;
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    Ok(())
}

fn is_let_in(weir: &Weir, password: &'static str) -> Result<bool, Box<dyn std::error::Error>> {
    let login = Login::new(Account { user: "someone", password });
    Ok(RawClient::connect(weir.addr())?.authenticate(&login)?.first() == Some(0))
}

/// Ends a Weir, has it started again with other arguments, and gives what it has logged since.
fn again(weir: Weir, arguments: &[&str]) -> Result<(Weir, String), Box<dyn std::error::Error>> {
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    restart(weir, arguments)
}

/// The same for one that has ended.
fn restart(weir: Weir, arguments: &[&str]) -> Result<(Weir, String), Box<dyn std::error::Error>> {
    let before = weir.log().len();
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let weir = weir.restart_with(&weir_binary()?, arguments)?;
    let log = weir.log().get(before..).unwrap_or_default().to_owned();
    Ok((weir, log))
}

fn database_wins(env: &Env) -> CaseResult {
    let config = with_user(env, "first")?;
    let weir = start(env, &config)?;
    weir.wait_log("configuration: saved to a new database", PATIENCE)?;
    let mut changed = config.clone();
    changed.user_column("someone", "password", "second");
    changed.user_column("someone", "max_connections", 7);
    // SIGHUP takes the file, but does not save it.
    weir.reload(&changed)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    ensure!(is_let_in(&weir, "second")? && !is_let_in(&weir, "first")?, "the file is not in force");
    let diff = command(&["config", "diff", "-c", &text(weir.config_path())])?;
    ensure!(diff.status.code() == Some(3), "{diff:?}");

    let (weir, log) = again(weir, &[])?;
    ensure!(log.contains("configuration: the database, not the file"), "{log}");
    ensure!(log.contains("mysql_users (someone, 1): password: differs"), "{log}");
    ensure!(log.contains("max_connections: 7 in the file, 10000 in the database"), "{log}");
    ensure!(!log.contains("second") && !log.contains("first"), "a secret is in the log:\n{log}");
    ensure!(is_let_in(&weir, "first")? && !is_let_in(&weir, "second")?, "the database is not in force");

    let (weir, log) = again(weir, &["--config-mode=file"])?;
    ensure!(log.contains("configuration: the file (--config-mode=file)"), "{log}");
    ensure!(is_let_in(&weir, "second")?, "the file is not in force");
    let (weir, _) = again(weir, &[])?;
    ensure!(is_let_in(&weir, "first")?, "the mode file has changed the database");

    let (weir, log) = again(weir, &["--reload"])?;
    ensure!(log.contains("configuration: the file over the database"), "{log}");
    ensure!(is_let_in(&weir, "second")?, "the file is not in force");
    let (weir, log) = again(weir, &[])?;
    ensure!(log.contains("is equal"), "{log}");
    ensure!(is_let_in(&weir, "second")?, "--reload has not saved");

    fs::write(weir.config_path(), config.render(weir.datadir()))?;
    let (weir, _) = again(weir, &["--initial"])?;
    ensure!(is_let_in(&weir, "first")?, "the file is not in force");
    eventually("the database is set aside", PATIENCE, || Ok(weir.datadir().join("weir.db.bak").exists()))?;
    let (weir, log) = again(weir, &[])?;
    ensure!(is_let_in(&weir, "first")? && log.contains("is equal"), "--initial has not saved: {log}");
    Ok(())
}

/// Has an admin do something, with the ordinary client.
fn administer(addr: SocketAddrV4, sql: &str) -> CaseResult {
    let (host, port) = (format!("-h{}", addr.ip()), format!("-P{}", addr.port()));
    let arguments = ["--no-defaults", "-uadmin", "-padmin", &host, &port, "-e", sql];
    let output = Command::new("mariadb").args(arguments).output()?;
    ensure!(output.status.success(), "{sql}: {output:?}");
    Ok(())
}

fn saved_by_admin(env: &Env) -> CaseResult {
    let mut config = with_user(env, "first")?;
    let admin = env.free_address()?;
    config.admin(admin);
    let weir = start(env, &config)?;
    let change = "UPDATE mysql_users SET password = 'second'; LOAD MYSQL USERS TO RUNTIME";
    administer(admin, change)?;
    ensure!(is_let_in(&weir, "second")? && !is_let_in(&weir, "first")?, "LOAD has no effect");
    let (weir, _) = again(weir, &[])?;
    ensure!(is_let_in(&weir, "first")?, "what was not saved is still there");

    administer(admin, &format!("{change}; SAVE MYSQL USERS TO DISK"))?;
    let (weir, log) = again(weir, &[])?;
    ensure!(is_let_in(&weir, "second")?, "what was saved is gone");
    ensure!(log.contains("mysql_users (someone, 1): password: differs"), "{log}");

    // The file once more, by SIGHUP, and back to what was saved.
    weir.sighup()?;
    weir.wait_log("configuration applied", PATIENCE)?;
    ensure!(is_let_in(&weir, "first")?, "the file is not in force");
    administer(admin, "LOAD MYSQL USERS TO RUNTIME")?;
    ensure!(is_let_in(&weir, "first")?, "the file is not in memory");
    administer(admin, "LOAD MYSQL USERS FROM DISK; LOAD MYSQL USERS TO RUNTIME")?;
    ensure!(is_let_in(&weir, "second")?, "SIGHUP has changed the database");
    Ok(())
}

fn damaged_database(env: &Env) -> CaseResult {
    let config = with_user(env, "first")?;
    let weir = start(env, &config)?;
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    let database = weir.datadir().join("weir.db");
    fs::write(&database, "no database any more, but a text that is long enough to be looked at")?;
    let output = command(&["serve", "-c", &text(weir.config_path())])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && said.contains("weir.db is damaged"), "{output:?}");
    let (weir, _) = restart(weir, &["--initial"])?;
    ensure!(is_let_in(&weir, "first")?, "the file is not in force");
    Ok(())
}

/// The guide's file, for the servers and users of the tests.
fn proxysql_cnf(env: &Env, listen: &str) -> Result<String, Box<dyn std::error::Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/proxysql.cnf");
    let mut cnf = fs::read_to_string(path)?;
    for (node, address) in env.cluster()?.nodes().iter().zip(["10.0.0.11", "10.0.0.12", "10.0.0.13"]) {
        ensure!(cnf.contains(address), "the guide's file has no {address}");
        let row = format!("address=\"{address}\", port=3306");
        let addr = node.addr();
        cnf = cnf.replace(&row, &format!("address=\"{}\", port={}", addr.ip(), addr.port()));
    }
    for (from, to) in [
        ("0.0.0.0:6033", listen),
        ("mysql_ifaces=\"127.0.0.1:6032\"", "mysql_ifaces=\"\""),
        ("monitor_username=\"monitor\"", &format!("monitor_username=\"{}\"", Account::MONITOR.user)),
        ("monitor_password=\"monitor\"", &format!("monitor_password=\"{}\"", Account::MONITOR.password)),
        ("username=\"app\", password=\"app\"", &credentials(Account::APP)),
        ("username=\"report\", password=\"report\"", &credentials(Account::APP2)),
    ] {
        ensure!(cnf.contains(from), "the guide's file has no {from}");
        cnf = cnf.replace(from, to);
    }
    Ok(cnf)
}

fn credentials(account: Account) -> String {
    format!("username=\"{}\", password=\"{}\"", account.user, account.password)
}

fn guide_proxysql_cnf(env: &Env) -> CaseResult {
    let address = env.free_address()?;
    let file = scratch(env)?.join("proxysql.cnf");
    fs::write(&file, proxysql_cnf(env, &address.to_string())?)?;
    let check = command(&["config", "check", "-c", &text(&file)])?;
    let warnings = String::from_utf8_lossy(&check.stderr);
    ensure!(check.status.success(), "{check:?}");
    ensure!(warnings.contains("proxysql.cnf:3: errorlog: has no effect"), "{warnings}");

    let name = format!("proxysql-{}", address.port());
    let weir = Weir::start_with_file(&weir_binary()?, &file, address, env.dir()?, &name)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let table = format!("{}.t", env.schema()?);
    session.run(&format!("CREATE TABLE {table} (id INT PRIMARY KEY)"))?;
    session.run(&format!("INSERT INTO {table} VALUES (1)"))?;
    ensure!(session.value(&format!("SELECT COUNT(*) FROM {table}"))? == "1", "its own write is not seen");
    // The rules of the file: a locking read to the writer, others to the readers, of which the writer is one.
    let node = "SELECT @@wsrep_node_name";
    session.run("BEGIN")?;
    let writer = session.value(&format!("{node} FROM {table} FOR UPDATE"))?;
    session.run("COMMIT")?;
    eventually("reads are answered by others than the writer", PATIENCE, || {
        Ok(session.value(node)? != writer)
    })?;

    // A database now: the file is not asked any more, and said to be the same.
    let (weir, log) = again(weir, &["--datadir", &text(&env.dir()?.join(format!("{name}-data")))])?;
    ensure!(log.contains("is equal"), "{log}");
    Session::open(weir.addr(), "test")?.value("SELECT 1")?;
    Ok(())
}

fn converted(env: &Env) -> CaseResult {
    let dir = scratch(env)?;
    let [cnf, toml, back, database] = ["a.cnf", "b.toml", "c.cnf", "data"].map(|name| text(&dir.join(name)));
    fs::write(&cnf, proxysql_cnf(env, "127.0.0.1:6033")?)?;
    for arguments in [
        ["config", "export", "-c", &cnf, "-o", &toml].as_slice(),
        &["config", "check", "-c", &toml],
        &["config", "import", &toml, "--datadir", &database],
        &["config", "export", "--datadir", &database, "--cnf", "-o", &back],
        &["config", "diff", "-c", &toml, "--datadir", &database],
        &["config", "diff", "-c", &back, "--datadir", &database],
        &["config", "check", "-c", &format!("{database}/weir.db")],
    ] {
        let output = command(arguments)?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
    }
    // What TOML does not take is a comment, and what differs at last is just that.
    let written = fs::read_to_string(&toml)?;
    ensure!(written.contains("match_digest = \"^SELECT .* FOR UPDATE\""), "{written}");
    let diff = command(&["config", "diff", "-c", &cnf, "--with", &back, "--json"])?;
    let differences: serde_json::Value = serde_json::from_slice(&diff.stdout)?;
    let of_tables =
        differences.as_array().into_iter().flatten().filter(|one| one["table"] != "global_variables");
    ensure!(of_tables.count() == 0, "{differences}");
    Ok(())
}

fn import_reports(env: &Env) -> CaseResult {
    let dir = scratch(env)?;
    let [cnf, database] = ["a.cnf", "data"].map(|name| text(&dir.join(name)));
    fs::write(
        &cnf,
        "mysql_servers=( { address=\"127.0.0.1\", hostgroup=1, compression=1 } )\n\
         pgsql_users=( { username=\"x\" } )\nmysql_variables={ no_such=1; monitor_password=\"a secret\" }\n",
    )?;
    let tried = command(&["config", "import", &cnf, "--datadir", &database, "--dry-run", "--json"])?;
    let report: serde_json::Value = serde_json::from_slice(&tried.stdout)?;
    let warnings = report["warnings"].as_array().ok_or("no warnings")?;
    let lines: Vec<Option<u64>> = warnings.iter().map(|warning| warning["line"].as_u64()).collect();
    ensure!(lines == [Some(1), Some(2), Some(3)], "{report}");
    ensure!(!Path::new(&database).exists(), "--dry-run has made {database}");
    let done = command(&["config", "import", &cnf, "--datadir", &database])?;
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    ensure!(done.status.success() && said.contains("3 warnings") && !said.contains("secret"), "{done:?}");
    let twice = command(&["config", "import", &cnf, "--datadir", &database])?;
    let said = String::from_utf8_lossy(&twice.stderr);
    ensure!(twice.status.code() == Some(1) && said.contains("--force"), "{twice:?}");
    fs::write(&cnf, "mysql_servers=( { address=\"127.0.0.1\", hostgroup=1, port=70000 } )")?;
    let faulty = command(&["config", "import", &cnf, "--datadir", &database, "--force"])?;
    let said = String::from_utf8_lossy(&faulty.stderr);
    ensure!(
        faulty.status.code() == Some(1) && said.contains("a.cnf:1:") && said.contains("70000"),
        "{faulty:?}"
    );
    Ok(())
}

/// A directory of the case's own.
fn scratch(env: &Env) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let dir = env.dir()?.join(format!("startup-{}", env.free_address()?.port()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn command(arguments: &[&str]) -> Result<Output, Box<dyn std::error::Error>> {
    Ok(Command::new(weir_binary()?).args(arguments).output()?)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
