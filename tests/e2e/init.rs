//! `weir init` and `weir serve --cluster`: from the address of one server to a service in front of its cluster.

mod refusals;
mod trial;

use std::error::Error;
use std::fs;
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Family, Mysql, Weir, weir_binary};
use weir_tests::dialogue::{Caller, Dialogue, Plugin, TlsVersion};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::replication::WHO;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::serial("init::one_command_in_front_of_galera", galera),
        Case::serial("init::one_command_in_front_of_a_group", group),
        Case::serial("init::one_command_in_front_of_a_source_and_its_replicas", |env| {
            replication(env, Family::Mysql)
        }),
        Case::serial("init::one_command_in_front_of_mariadb_replicas", |env| {
            replication(env, Family::Mariadb)
        }),
        Case::serial("init::one_command_in_front_of_a_single_server", single),
        Case::serial("init::a_node_that_is_down_is_named_and_left_out", node_down),
    ];
    cases.extend(refusals::trials());
    cases.extend(trial::trials());
    cases
}

pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Reads at any node of Galera, and goes to a reader.
const NODE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";

/// A run of `weir init` of a case's own: an account that may do everything, names and a file that nobody else has.
pub(super) struct Init {
    pub(super) dir: PathBuf,
    pub(super) file: PathBuf,
    pub(super) listen: SocketAddrV4,
    /// The admin port, if there is to be one.
    admin_listen: Option<SocketAddrV4>,
    name: String,
}

impl Init {
    pub(crate) fn new(env: &Env, case: &str) -> Result<Self, Box<dyn Error>> {
        let dir = env.dir()?.join(format!("init-{case}"));
        fs::create_dir_all(&dir)?;
        let file = dir.join("weir.toml");
        let listen = env.free_address()?;
        Ok(Self { dir, file, listen, admin_listen: None, name: format!("init_{case}_") })
    }

    /// The account with which it runs, and its password.
    pub(crate) fn admin(&self) -> String {
        format!("{}admin", self.name)
    }

    /// What makes that account.
    pub(crate) fn admin_sql(&self, grants: &str) -> String {
        let admin = self.admin();
        format!(
            "CREATE USER {admin}@'%' IDENTIFIED BY '{admin}'; GRANT {grants} ON *.* TO {admin}@'%' WITH GRANT OPTION"
        )
    }

    /// The address of a server.
    pub(crate) fn address(&self, server: SocketAddrV4) -> String {
        format!("mysql://{}@{server}", self.admin())
    }

    /// The command for a server, with a file and names of its own.
    pub(crate) fn command(
        &self,
        server: SocketAddrV4,
        arguments: &[&str],
    ) -> Result<Command, Box<dyn Error>> {
        let mut command = Command::new(weir_binary()?);
        command.arg("init").arg(self.address(server)).arg("-o").arg(&self.file);
        let admin_listen = self.admin_listen.map(|address| address.to_string()).unwrap_or_default();
        command.args(["--prefix", &self.name, "--admin-listen", &admin_listen]);
        command.args(["--listen", &self.listen.to_string()]).args(arguments);
        command.env("MYSQL_PWD", self.admin()).stdin(Stdio::null());
        Ok(command)
    }

    pub(crate) fn run(&self, server: SocketAddrV4, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
        Ok(self.command(server, arguments)?.output()?)
    }

    /// Runs it to the end, twice: the second one has nothing to do. No account is named.
    fn to_the_end(&self, server: SocketAddrV4, more: &[&str]) -> Result<String, Box<dyn Error>> {
        let arguments = [&["--yes"], more].concat();
        let output = self.run(server, &arguments)?;
        let out = succeeded(&output)?;
        ensure!(out.contains("\nNext:\n") && !out.contains("missing:"), "{out}");
        let mode = fs::metadata(&self.file)?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "the file has mode {mode:o}");
        let text = fs::read_to_string(&self.file)?;
        let password = text.split("monitor_password = \"").nth(1).and_then(|rest| rest.split('"').next());
        ensure!(
            password.is_some_and(|password| password.len() == 32 && !out.contains(password)),
            "{text}\n{out}"
        );
        let again = succeeded(&self.run(server, &arguments)?)?;
        ensure!(again.contains("everything is there already"), "{again}");
        ensure!(fs::read_to_string(&self.file)? == text, "the second run has changed the file");
        let check =
            Command::new(weir_binary()?).args(["check", "--cluster", "-c"]).arg(&self.file).output()?;
        succeeded(&check)?;
        Ok(out)
    }

    /// A Weir with the file, which takes statements.
    fn serve(&self) -> Result<Weir, Box<dyn Error>> {
        let weir = Weir::start_with_file(&weir_binary()?, &self.file, self.listen, &self.dir, "weir")?;
        // MySQL's accounts show their password once, as at a server; a client of the tests only proves it.
        let app = Caller { user: "app", password: "app", plugin: Plugin::Sha2, tls: Some(TlsVersion::V13) };
        eventually("a writer", PATIENCE, || {
            let _ = Dialogue::start(self.listen, &app);
            let session = Session::open(self.listen, "test");
            Ok(session.is_ok_and(|mut session| session.value("SELECT @@read_only").is_ok()))
        })?;
        Ok(weir)
    }
}

/// What a command that has succeeded has printed.
pub(super) fn succeeded(output: &Output) -> Result<String, String> {
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        Ok(out.into_owned())
    } else {
        Err(format!("{}\n{out}\n{error}", output.status))
    }
}

/// The only JSON object that was printed.
pub(super) fn json(output: &Output) -> Result<Value, Box<dyn Error>> {
    Ok(serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {output:?}"))?)
}

/// Sessions read at these servers, each of them, within some statements.
fn read_at(weir: SocketAddrV4, question: &str, wanted: &[String]) -> CaseResult {
    eventually("reads at all readers", PATIENCE, || {
        let mut found = Vec::new();
        for _ in 0..20 {
            found.push(Session::open(weir, "test")?.value(question)?);
        }
        found.sort();
        found.dedup();
        let mut wanted = wanted.to_vec();
        wanted.sort();
        Ok(found == wanted)
    })
}

/// A write, and a read of it by another session.
fn write_and_read(weir: SocketAddrV4, case: &str) -> CaseResult {
    let mut session = Session::open(weir, "test")?;
    session.run(&format!("CREATE TABLE init_{case} (id INT PRIMARY KEY)"))?;
    session.run(&format!("INSERT INTO init_{case} VALUES (7)"))?;
    let found = session.value(&format!("SELECT id FROM init_{case}"))?;
    session.run(&format!("DROP TABLE init_{case}"))?;
    ensure!(found == "7", "{found}");
    Ok(())
}

fn galera(env: &Env) -> CaseResult {
    let init = Init::new(env, "galera")?;
    let cluster = env.cluster()?;
    // The writer would stay what Weirs of earlier cases have agreed on.
    env.forget_epochs()?;
    cluster.node(1).root_query(&init.admin_sql("ALL"))?;
    env.wait_applied()?;
    let out = init.to_the_end(cluster.node(2).addr(), &[])?;
    let begin = "Galera cluster \"weir-tests\", 3 nodes\n";
    ensure!(out.starts_with(begin), "{out}");
    for node in cluster.nodes() {
        ensure!(out.lines().any(|line| line.starts_with(&node.addr().to_string())), "{out}");
    }
    ensure!(out.contains("GRANT SUPER ON *.* TO") && out.contains("'...' PASSWORD EXPIRE NEVER;"), "{out}");
    let weir = init.serve()?;
    write_and_read(weir.addr(), "galera")?;
    let writer = Session::open(weir.addr(), "test")?.value("SELECT @@wsrep_node_name")?;
    ensure!(writer == "n2", "the node that was named writes, not {writer}");
    read_at(weir.addr(), NODE, &["n1".to_owned(), "n3".to_owned()])?;
    weir.wait_log("assisted eviction is on", PATIENCE)?;
    drop(weir);
    env.forget_epochs().map_err(Into::into)
}

/// Each server's number.
fn ids(mysql: &Mysql) -> Result<Vec<String>, Box<dyn Error>> {
    let id = |server: &weir_testkit::MysqlServer| Ok(server.root_query(WHO)?.concat().concat());
    mysql.servers().iter().map(id).collect()
}

fn who_reads(family: Family) -> String {
    let schema = if family == Family::Mysql { "performance_schema" } else { "information_schema" };
    format!("SELECT VARIABLE_VALUE FROM {schema}.global_variables WHERE VARIABLE_NAME = 'server_id'")
}

fn group(env: &Env) -> CaseResult {
    let init = Init::new(env, "group")?;
    let mysql = env.own_mysql(3, true)?;
    mysql.source().root_query(&init.admin_sql("ALL"))?;
    mysql.wait_replicated()?;
    // Members ask for the password of an account that they see for the first time.
    let out = init.to_the_end(mysql.server(2).addr(), &["--trust-peers"])?;
    ensure!(out.contains("with one primary, 3 members\n"), "{out}");
    ensure!(out.contains("GRANT GROUP_REPLICATION_ADMIN ON *.* TO"), "{out}");
    let weir = init.serve()?;
    write_and_read(weir.addr(), "group")?;
    let ids = ids(&mysql)?;
    let writer = Session::open(weir.addr(), "test")?.value(WHO)?;
    ensure!(Some(&writer) == ids.first(), "{writer} of {ids:?} writes");
    read_at(weir.addr(), &who_reads(Family::Mysql), &ids[1..])?;
    switches_over(&weir)
}

fn replication(env: &Env, family: Family) -> CaseResult {
    let init = Init::new(env, if family == Family::Mysql { "replicas" } else { "mariadb" })?;
    let mysql = env.own_servers(family, 3, false)?;
    mysql.source().root_query(&init.admin_sql("ALL"))?;
    mysql.wait_replicated()?;
    // Nor do the replicas have a report_host.
    let out = init.to_the_end(mysql.server(3).addr(), &["--trust-peers"])?;
    ensure!(out.starts_with("a source and 2 replicas\n"), "{out}");
    let source = mysql.source().addr().to_string();
    ensure!(out.contains(&format!("replica of {source}")), "{out}");
    ensure!(out.contains(&format!("\nOn {source}, with random passwords:\n")), "{out}");
    let weir = init.serve()?;
    write_and_read(weir.addr(), "replicas")?;
    let ids = ids(&mysql)?;
    let writer = Session::open(weir.addr(), "test")?.value(WHO)?;
    ensure!(Some(&writer) == ids.first(), "{writer} of {ids:?} writes");
    // The source reads too, as ProxySQL has it by default.
    read_at(weir.addr(), &who_reads(family), &ids)?;
    switches_over(&weir)?;
    let next = Session::open(weir.addr(), "test")?.value(WHO)?;
    ensure!(next != writer, "{next} writes after the switchover");
    // The former writer has followed with the account that was made for that.
    eventually("the old writer to replicate", PATIENCE, || {
        let status = if family == Family::Mysql { "SHOW REPLICA STATUS" } else { "SHOW ALL SLAVES STATUS" };
        let rows = mysql.source().root_query(status)?.concat();
        Ok(rows
            .iter()
            .any(|field| field == "init_replicas_replication" || field == "init_mariadb_replication")
            && rows.iter().filter(|field| *field == "Yes").count() >= 2)
    })
}

/// With the account that was made for it.
fn switches_over(weir: &Weir) -> CaseResult {
    let mut command = Command::new(weir_binary()?);
    command.args(["switchover", "100", "--datadir"]).arg(weir.datadir());
    succeeded(&command.output()?)?;
    Ok(())
}

fn single(env: &Env) -> CaseResult {
    let mut init = Init::new(env, "single")?;
    let admin = env.free_address()?;
    init.admin_listen = Some(admin);
    let mysql = env.own_servers(Family::Mariadb, 1, false)?;
    mysql.source().root_query(&init.admin_sql("ALL"))?;
    let out = init.to_the_end(mysql.source().addr(), &[])?;
    ensure!(out.starts_with("a single server\n"), "{out}");
    let weir = init.serve()?;
    write_and_read(weir.addr(), "single")?;
    // It shows passwords.
    let text = fs::read_to_string(&init.file)?;
    let password = text.split("\"admin:").nth(1).and_then(|rest| rest.split('"').next());
    let password: &'static str = password.ok_or("no password")?.to_owned().leak();
    let asks = |password| {
        let account = Account { user: "admin", password };
        Session::with(admin, &Login::new(account))?.value("SELECT COUNT(*) FROM mysql_servers")
    };
    ensure!(asks("admin").is_err(), "ProxySQL's password is taken");
    ensure!(asks(password)? == "1" && !out.contains(password), "{out}");
    Ok(())
}

fn node_down(env: &Env) -> CaseResult {
    let init = Init::new(env, "down")?;
    let cluster = env.cluster()?;
    cluster.node(1).root_query(&init.admin_sql("ALL"))?;
    env.wait_applied()?;
    cluster.node(3).stop()?;
    let down = cluster.node(3).addr().to_string();
    let output = init.run(cluster.node(1).addr(), &["--dry-run", "--json"])?;
    succeeded(&output)?;
    let found = json(&output)?;
    ensure!(found["servers"].as_array().is_some_and(|servers| servers.len() == 2), "{found}");
    let missing = &found["not_reached"][0];
    ensure!(
        missing["server"] == down.as_str() && missing["named_by"] == "in wsrep_cluster_address",
        "{found}"
    );
    let text = found["files"][0]["text"].as_str().unwrap_or_default();
    let comment = format!("# {{ hostgroup_id = 100, hostname = \"{}\" }}", cluster.node(3).addr().ip());
    ensure!(text.contains(&comment), "{text}");
    let remarks = found["remarks"].to_string();
    ensure!(remarks.contains("if half of them are lost at once"), "{remarks}");
    ensure!(
        remarks.contains(&format!("{down}: not reached, so there is no account with which Weir evicts")),
        "{remarks}"
    );
    Ok(())
}

/// A path as text.
pub(super) fn text_of(path: &Path) -> String {
    path.display().to_string()
}
