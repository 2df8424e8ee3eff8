//! Real drivers through Weir, in front of Galera and of MySQL: `tests/drivers/` has a program per language that puts its
//! drivers through the scenarios of `tests/drivers/scenarios.txt`.

use std::collections::HashSet;
use std::error::Error;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use weir_testkit::{Weir, cache_dir};
use weir_tests::{Case, CaseResult, Env, ensure};

/// The longest that all scenarios of a driver may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Connections to each server: fewer than the sessions of some scenarios, more than the pins of any.
const CONNECTIONS_MAX: i64 = 8;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("drivers::pymysql_on_galera", |env| python(env, "pymysql", Family::Galera)),
        Case::parallel("drivers::pymysql_on_mysql", |env| python(env, "pymysql", Family::Mysql)),
        Case::parallel("drivers::mysql_connector_python_on_galera", |env| {
            python(env, "mysql-connector-pure", Family::Galera)
        }),
        Case::parallel("drivers::mysql_connector_python_on_mysql", |env| {
            python(env, "mysql-connector-pure", Family::Mysql)
        }),
        Case::parallel("drivers::mysql_connector_python_in_c_on_galera", |env| {
            python(env, "mysql-connector-c", Family::Galera)
        }),
        Case::parallel("drivers::mysql_connector_python_in_c_on_mysql", |env| {
            python(env, "mysql-connector-c", Family::Mysql)
        }),
        Case::parallel("drivers::mysqlclient_on_galera", |env| python(env, "mysqlclient", Family::Galera)),
        Case::parallel("drivers::mysqlclient_on_mysql", |env| python(env, "mysqlclient", Family::Mysql)),
        Case::parallel("drivers::mariadb_client_on_galera", |env| {
            command_line(env, Path::new("mariadb"), Family::Galera)
        }),
        Case::parallel("drivers::mariadb_client_on_mysql", |env| {
            command_line(env, Path::new("mariadb"), Family::Mysql)
        }),
        Case::parallel("drivers::mysql_client_on_mysql", |env| {
            command_line(env, &cache_dir()?.join("mysql/bin/mysql"), Family::Mysql)
        }),
        Case::parallel("drivers::mysql_async_on_galera", |env| rust(env, Family::Galera)),
        Case::parallel("drivers::mysql_async_on_mysql", |env| rust(env, Family::Mysql)),
    ]
}

/// The servers behind Weir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Galera,
    Mysql,
}

fn python(env: &Env, driver: &str, family: Family) -> CaseResult {
    let interpreter = cache_dir()?.join("python-drivers/bin/python");
    let program = drivers_dir().join("python/main.py");
    let script = "scripts/get-python-drivers";
    ensure!(interpreter.is_file(), "there is no {}: run {script}", interpreter.display());
    let mut command = Command::new(interpreter);
    // No compiled files beside the sources.
    command.arg("-B").arg(program).arg(driver);
    put_through(env, family, command)
}

fn rust(env: &Env, family: Family) -> CaseResult {
    const NAME: &str = "weir-driver-mysql-async";
    // target/debug/deps/e2e-0123: the program is two steps up, beside weir.
    let program = std::env::current_exe()?.ancestors().nth(2).map(|dir| dir.join(NAME)).unwrap_or_default();
    ensure!(program.is_file(), "there is no {}: run `make drivers`", program.display());
    put_through(env, family, Command::new(program))
}

/// A client prints through Weir what it prints straight at a server.
fn command_line(env: &Env, client: &Path, family: Family) -> CaseResult {
    let (weir, server) = match family {
        Family::Galera => (env.narrow_weir(&[1, 2], CONNECTIONS_MAX)?, env.cluster()?.node(1).addr()),
        Family::Mysql => (env.mysql_weir(CONNECTIONS_MAX)?, env.mysql()?.source().addr()),
    };
    let print = |address: SocketAddrV4| -> Result<String, Box<dyn Error>> {
        let schema = if family == Family::Galera { env.schema()? } else { env.mysql_schema()? };
        let mut command = Command::new(client);
        if client == Path::new("mariadb") {
            // The other one, unpacked for the tests, reads no file in any case.
            command.arg("--no-defaults");
        }
        command.args(["-uapp", "-papp", "--force", "--table", "--verbose", "-vv", "-n"]);
        command.arg(format!("-h{}", address.ip())).arg(format!("-P{}", address.port()));
        // Through Weir as well as straight, without or with TLS, is up to the client.
        command.arg("--default-character-set=utf8mb4").arg(&schema);
        let output = env.dir()?.join(format!("{schema}-client.log"));
        run_with(command, Stdio::from(fs::File::open(drivers_dir().join("cli/script.sql"))?), &output)?;
        Ok(without_times(&fs::read_to_string(&output)?.replace(&schema, "SCHEMA")))
    };
    let (straight, through) = (print(server)?, print(weir.addr())?);
    ensure!(straight.lines().count() > 300, "the client did not run the script:\n{straight}");
    if let Some((wanted, got)) =
        straight.lines().zip(through.lines()).find(|(straight, through)| straight != through)
    {
        return Err(format!("expected {wanted:?}, got {got:?}; all of it:\n{through}").into());
    }
    ensure!(straight.len() == through.len(), "through Weir it prints more or less:\n{through}");
    Ok(())
}

/// "(0.001 sec)" is never the same.
fn without_times(text: &str) -> String {
    let line = |line: &str| match (line.rfind('('), line.ends_with(" sec)")) {
        (Some(at), true) => line[..at].to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<String>>().join("\n")
}

/// Runs a driver's program and looks at what it says of each scenario.
fn put_through(env: &Env, family: Family, mut command: Command) -> CaseResult {
    let (weir, schema) = match family {
        Family::Galera => (env.narrow_weir(&[1, 2], CONNECTIONS_MAX)?, env.schema()?),
        Family::Mysql => (env.mysql_weir(CONNECTIONS_MAX)?, env.mysql_schema()?),
    };
    command
        .env("WEIR_HOST", weir.addr().ip().to_string())
        .env("WEIR_PORT", weir.addr().port().to_string())
        .env("WEIR_CA", weir.datadir().join("weir-cert.pem"))
        .env("WEIR_SCHEMA", &schema)
        .env("WEIR_SERVER", if family == Family::Mysql { "mysql" } else { "mariadb" });
    let output = env.dir()?.join(format!("{schema}-driver.log"));
    run(command, &output)?;
    let said = fs::read_to_string(&output)?;
    let failed: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("ok ") && !line.starts_with("skip ")).collect();
    ensure!(failed.is_empty(), "{}\n{}", failed.join("\n"), end_of_log(&weir));
    let dealt_with: HashSet<&str> = said.lines().filter_map(|line| line.split([' ', ':']).nth(1)).collect();
    let scenarios = fs::read_to_string(drivers_dir().join("scenarios.txt"))?;
    let missing: Vec<&str> = scenarios
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !dealt_with.contains(line))
        .collect();
    ensure!(missing.is_empty(), "not run: {missing:?}; the program said:\n{said}");
    Ok(())
}

fn run(command: Command, output: &Path) -> CaseResult {
    run_with(command, Stdio::null(), output)
}

/// Runs a program to its end, with what it prints in a file.
pub(crate) fn run_with(mut command: Command, input: Stdio, output: &Path) -> CaseResult {
    let file = fs::File::create(output)?;
    let mut child = command.stdin(input).stdout(file.try_clone()?).stderr(file).spawn()?;
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            let said = fs::read_to_string(output)?;
            return Err(format!("no end within {TIMEOUT:?}; it said:\n{said}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn end_of_log(weir: &Weir) -> String {
    let log = weir.log();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

pub(crate) fn drivers_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers")
}
