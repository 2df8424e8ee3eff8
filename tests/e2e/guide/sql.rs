//! The SQL in the guide: all of it runs where it belongs, in the order in which a user would come to it.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddrV4;
use std::process::{Command, Stdio};

use weir_testkit::{Account, WeirConfig, hostgroup};
use weir_tests::{CaseResult, Env, Session, ensure, eventually};

use super::{Found, PATIENCE, blocks};
use crate::switchover::{wait_writer, writer};

/// Where a block runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// As root at a server.
    Server,
    /// At the admin port of a Weir without servers and users.
    EmptyWeir,
    /// At the admin port of a Weir in front of a cluster.
    Admin,
    /// Where applications connect.
    Data,
}

/// Every block: its page, how it begins, and where it runs. What can't run somewhere gets a list of its own here, with
/// the reason.
const BLOCKS: &[(&str, &str, Place)] = &[
    ("start.md", "-- Weir's monitor.", Place::Server),
    ("accounts.md", "GRANT SELECT ON mysql.global_priv", Place::Server),
    ("several-weirs.md", "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.*", Place::Server),
    ("eviction.md", "CREATE USER weir_assist", Place::Server),
    ("commit-outcome.md", "CREATE DATABASE IF NOT EXISTS weir;", Place::Server),
    ("admin.md", "INSERT INTO mysql_servers", Place::EmptyWeir),
    ("start.md", "-- a plain read", Place::Data),
    ("query-rules-routing.md", "/* hostgroup=10 */", Place::Data),
    ("gtids.md", "SELECT /* ;min_gtid=", Place::Data),
    ("replay-settings.md", "SET weir_replay = ON", Place::Data),
    ("admin-commands.md", "WEIR SWITCHOVER", Place::Admin),
    ("scheduler.md", "INSERT INTO scheduler", Place::Admin),
    ("consistency.md", "SELECT * FROM stats_weir_reads", Place::Admin),
    ("gtids.md", "SELECT * FROM stats_mysql_gtid_executed", Place::Admin),
    ("accounts.md", "SELECT * FROM stats_weir_accounts", Place::Admin),
    ("discovery.md", "SELECT * FROM stats_weir_discovered_servers", Place::Admin),
    // The last one: afterwards the admin port has other accounts.
    ("proxies.md", "SET admin-admin_credentials", Place::Admin),
];

/// The accounts that blocks make, for clients of a network that is not there.
const ACCOUNTS: [&str; 3] = ["monitor@'10.0.0.%'", "app@'10.0.0.%'", "weir_assist@'10.0.0.%'"];

pub(super) fn run(env: &Env) -> CaseResult {
    let found = blocks(&["sql"])?;
    let is_block =
        |found: &Found, file: &str, begin: &str| found.file == file && found.text.starts_with(begin);
    for Found { file, text } in &found {
        let is_listed = |(of, begin, _): &(&str, &str, Place)| file == of && text.starts_with(begin);
        ensure!(BLOCKS.iter().any(is_listed), "{file}: not in BLOCKS, so nobody runs it:\n{text}");
    }
    let mut of_place: Vec<(Place, &Found)> = Vec::new();
    for (file, begin, place) in BLOCKS {
        let block = found.iter().find(|found| is_block(found, file, begin));
        of_place.push((*place, block.ok_or_else(|| format!("{file} has no block {begin:?}"))?));
    }
    let at = |place: Place| -> Vec<&Found> {
        of_place.iter().filter(|(of, _)| *of == place).map(|(_, block)| *block).collect()
    };
    at_server(env, &at(Place::Server))?;
    at_empty_weir(env, &at(Place::EmptyWeir))?;
    at_weir(env, &at(Place::Data), &at(Place::Admin))
}

fn at_server(env: &Env, blocks: &[&Found]) -> CaseResult {
    let node = env.cluster()?.node(1);
    let forget = format!("DROP USER IF EXISTS {}", ACCOUNTS.join(", "));
    node.root_query(&forget)?;
    for Found { file, text } in blocks {
        node.root_query(text).map_err(|error| format!("{file}: {error}"))?;
    }
    node.root_query(&forget)?;
    Ok(())
}

fn at_empty_weir(env: &Env, blocks: &[&Found]) -> CaseResult {
    let (cluster, admin) = (env.cluster()?, env.free_address()?);
    let mut config = WeirConfig::new(env.free_address()?);
    config.admin(admin);
    let weir = env.weir_with(&config)?;
    let ip = |node: usize| format!("'{}'", cluster.node(node).addr().ip());
    for block in blocks {
        let replaced = [
            ("'10.0.0.11'", ip(1)),
            ("'10.0.0.12'", ip(2)),
            ("'app', 'secret'", format!("'app', '{}'", Account::APP.password)),
            ("'secret'", format!("'{}'", Account::MONITOR.password)),
        ];
        at_admin_port(admin, block, &replaced)?;
    }
    // What was loaded serves.
    let mut session = Session::open(weir.addr(), "test")?;
    ensure!(session.value("SELECT 1")? == "1", "no answer");
    ensure!(!session.value("SELECT @@wsrep_node_name FOR UPDATE")?.is_empty(), "no writer");
    Ok(())
}

fn at_weir(env: &Env, data: &[&Found], orders: &[&Found]) -> CaseResult {
    let (admin, schema) = (env.free_address()?, env.schema()?);
    let weir = env.weir(|config| {
        config.admin(admin);
    })?;
    wait_writer(&weir)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (c INT)")?;
    eventually("all readers have the table", PATIENCE, || {
        let sql = format!("/* hostgroup={} */ SELECT c FROM t", hostgroup::READER);
        Ok((0..6).all(|_| session.rows(&sql).is_ok()))
    })?;
    for Found { file, text } in data {
        let text = text
            .replace("hostgroup=10 ", &format!("hostgroup={} ", hostgroup::WRITER))
            .replace("hostgroup=20 ", &format!("hostgroup={} ", hostgroup::READER));
        for sql in text.lines().filter(|line| !line.starts_with("--")) {
            let sql = sql.trim_end_matches(';');
            session.rows(sql).map_err(|error| format!("{file}: {sql}: {error}"))?;
        }
    }
    let writer = writer(&weir)?;
    let nodes = env.cluster()?.nodes().iter().map(|node| node.addr().to_string());
    let other = nodes.into_iter().find(|node| *node != writer).ok_or("no other node")?;
    let replaced = [
        ("10.0.0.12:3306", other),
        ("/usr/local/bin/check-nodes", "/bin/true".to_owned()),
        ("0.0.0.0:6032", admin.to_string()),
        ("'10.0.0.", "'127.9.9.".to_owned()),
    ];
    orders.iter().try_for_each(|block| at_admin_port(admin, block, &replaced))
}

/// Types a block into the command line client.
fn at_admin_port(admin: SocketAddrV4, block: &Found, replaced: &[(&str, String)]) -> CaseResult {
    let mut text = block.text.clone();
    for (from, to) in replaced {
        text = text.replace(from, to);
    }
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-uadmin", "-padmin", "-h127.0.0.1"]).arg(format!("-P{}", admin.port()));
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = client.spawn()?;
    let input = running.stdin.take().ok_or("no input")?;
    let typed = { input }.write_all(text.as_bytes());
    let output = running.wait_with_output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {error}\n{text}", block.file);
    typed.map_err(|error| -> Box<dyn Error> { format!("{}: {error}", block.file).into() })
}
