//! Servers that are named by names: what these mean may change, may be several addresses, or nothing, or not be known
//! for long. Weir is started with a resolver of the case's own, which takes a mount namespace.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use weir_testkit::wire::Login;
use weir_testkit::{Account, OwnResolver, Weir, WeirConfig, hostgroup, not_run, weir_binary};
use weir_tests::{Case, CaseResult, Env, Forwarder, Session, ensure, eventually};

use crate::admin::Admin;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("names::a_name_that_means_another_server_is_followed", another_server),
        Case::parallel("names::a_name_that_means_nothing_is_its_server_s_fault_alone", nothing),
        Case::parallel("names::of_both_families_the_address_that_answers_is_taken", both_families),
        Case::serial("names::a_resolver_that_hangs_holds_up_nobody", hangs),
    ]
}

/// Which node answered.
const WHERE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";
const HOSTGROUP: i64 = 7;
const OTHERS: i64 = 8;
const PATIENCE: Duration = Duration::from_secs(60);
/// The DNS server that never answers.
const SILENT: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

/// A Weir with the resolver of a case.
fn start(env: &Env, resolver: &OwnResolver, config: &WeirConfig) -> Result<Weir, Box<dyn Error>> {
    let name = format!("names-{}", config.listen().port());
    Ok(Weir::start_with_resolver(resolver, &weir_binary()?, config, env.dir()?, &name)?)
}

/// A resolver of the case's own, if there can be one.
fn resolver(env: &Env, config: &WeirConfig) -> Result<Option<OwnResolver>, Box<dyn Error>> {
    Ok(OwnResolver::new(env.dir()?, &format!("names-{}", config.listen().port()))?)
}

/// `name` in a plain hostgroup for the user app, and a node by its address in another one for app2.
fn config(env: &Env, name: &str, port: u16) -> Result<WeirConfig, Box<dyn Error>> {
    let mut config = WeirConfig::new(env.free_address()?);
    config.push(
        "mysql_servers",
        &[("hostgroup_id", HOSTGROUP.into()), ("hostname", name.into()), ("port", i64::from(port).into())],
    );
    config.server(env.cluster()?.node(3).addr(), OTHERS, &[]);
    config.user(Account::APP, HOSTGROUP, &[]);
    config.user(Account::APP2, OTHERS, &[]);
    config.monitor(Account::MONITOR);
    // Every second.
    config.variable("monitor_local_dns_cache_refresh_interval", 0);
    config.variable("monitor_local_dns_cache_ttl", 0);
    config.variable("connect_timeout_server_max", 1500);
    Ok(config)
}

fn ip(env: &Env, node: usize) -> Result<IpAddr, String> {
    Ok(IpAddr::V4(*env.cluster()?.node(node).addr().ip()))
}

fn run(weir: &Weir, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    Ok(Command::new(weir_binary()?).args(arguments).arg("-c").arg(weir.config_path()).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `weir status` says of a server of a hostgroup: its address, its status and why.
fn shown(weir: &Weir, hostgroup: i64) -> Result<(String, String, String), Box<dyn Error>> {
    let output = run(weir, &["status", "--json"])?;
    let status: Value = serde_json::from_slice(&output.stdout)?;
    let mut servers = status["servers"].as_array().into_iter().flatten();
    let server = servers.find(|server| server["hostgroup"] == hostgroup).ok_or("no such server")?;
    let value = |name: &str| server[name].as_str().unwrap_or_default().to_owned();
    Ok((value("address"), value("status"), value("reason")))
}

/// Connections that have been opened to a server so far.
fn opened(weir: &Weir, server: &str) -> Result<Option<u64>, Box<dyn Error>> {
    let output = run(weir, &["stats", "pool", "--json"])?;
    let mut rows =
        text(&output.stdout).lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    rows.retain(|row| row["server"] == server);
    Ok(rows.first().and_then(|row| row["opened"].as_u64()))
}

/// A session of app, if it gets its server; which one answers.
fn node_of_app(weir: &Weir) -> Result<String, Box<dyn Error>> {
    Ok(Session::open(weir.addr(), "test")?.value(WHERE)?)
}

fn another_server(env: &Env) -> CaseResult {
    let (first, second) = (env.cluster()?.node(1), env.cluster()?.node(2));
    let mut config = config(env, "db.weir.test", first.addr().port())?;
    let admin = env.free_address()?;
    config.admin(admin);
    let Some(resolver) = resolver(env, &config)? else { return Ok(()) };
    resolver.set(&[("db.weir.test", ip(env, 1)?)])?;
    let weir = start(env, &resolver, &config)?;
    let address =
        |node: usize| Ok::<_, String>(SocketAddr::new(ip(env, node)?, first.addr().port()).to_string());
    ensure!(shown(&weir, HOSTGROUP)?.0 == address(1)?, "{:?}", shown(&weir, HOSTGROUP)?);
    let mut open = Session::open(weir.addr(), "test")?;
    open.run("BEGIN")?;
    ensure!(open.value(WHERE)? == first.name(), "the name's server");
    let mut bystander = Session::with(weir.addr(), &Login::new(Account::APP2).schema("test"))?;
    bystander.run("DO 1")?;
    let third = env.cluster()?.node(3).addr().to_string();
    let before = opened(&weir, &third)?;
    ensure!(before.is_some(), "no connections to {third}");

    resolver.set(&[("db.weir.test", ip(env, 2)?)])?;
    eventually("new statements go to the other server", PATIENCE, || {
        Ok(node_of_app(&weir)? == second.name())
    })?;
    ensure!(shown(&weir, HOSTGROUP)?.0 == address(2)?, "{:?}", shown(&weir, HOSTGROUP)?);
    ensure!(open.value(WHERE)? == first.name(), "a transaction goes on where it is");
    open.run("COMMIT")?;
    ensure!(open.value(WHERE)? == second.name(), "and then goes, too");
    bystander.run("DO 1")?;
    ensure!(opened(&weir, &third)? == before, "connections to others were opened anew: {before:?}");
    let log = text(&run(&weir, &["status", "--log"])?.stdout);
    let event = format!("{}, was {}", address(2)?, address(1)?);
    ensure!(log.contains(&event) && weir.log().contains(&event), "no event: {log}\n{}", weir.log());
    let rows = Admin::at(admin).run("SELECT * FROM stats_weir_addresses WHERE hostname = 'db.weir.test'")?;
    let wanted = format!("db.weir.test\t{}\t{}\t{}\t", first.addr().port(), address(2)?, address(2)?);
    ensure!(rows == [wanted.as_str()], "{rows:?}");

    // While the name means nothing, the server stays where it is.
    resolver.set(&[])?;
    weir.wait_log("it stays at", PATIENCE)?;
    ensure!(node_of_app(&weir)? == second.name(), "it is served on");
    Ok(())
}

fn nothing(env: &Env) -> CaseResult {
    let node = env.cluster()?.node(1);
    let mut config = config(env, "nowhere.weir.test", node.addr().port())?;
    let Some(resolver) = resolver(env, &config)? else { return Ok(()) };
    let weir = start(env, &resolver, &config)?;
    let login = Login::new(Account::APP2).schema("test");
    ensure!(Session::with(weir.addr(), &login)?.value("SELECT 1")? == "1", "others are served");
    eventually("the reason is shown", PATIENCE, || {
        let (address, status, reason) = shown(&weir, HOSTGROUP)?;
        Ok(address.is_empty() && status == "SHUNNED" && reason.starts_with("name does not resolve: "))
    })?;
    let refused = Session::open(weir.addr(), "")?.refused("SELECT 1", 9001)?;
    ensure!(refused.contains("nowhere.weir.test") && refused.contains("name does not resolve"), "{refused}");
    // One more such name.
    config.push(
        "mysql_servers",
        &[("hostgroup_id", 9.into()), ("hostname", "nobody.weir.test".into()), ("port", 3306.into())],
    );
    weir.reload(&config)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    weir.wait_log("nobody.weir.test does not resolve", PATIENCE)?;
    resolver.set(&[("nowhere.weir.test", ip(env, 1)?)])?;
    eventually("it is tried again", PATIENCE, || {
        Ok(node_of_app(&weir).is_ok_and(|name| name == node.name()))
    })?;
    weir.wait_log("the name resolves again", PATIENCE)?;
    Ok(())
}

fn both_families(env: &Env) -> CaseResult {
    let (node, address) = (env.cluster()?.node(2), env.free_address()?);
    let config = config(env, "both.weir.test", address.port())?;
    let Some(resolver) = resolver(env, &config)? else { return Ok(()) };
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
    if let Err(error) = TcpListener::bind(v6) {
        not_run("a server with addresses of both families", &error.to_string());
        return Ok(());
    }
    resolver.set(&[("both.weir.test", v6.ip()), ("both.weir.test", IpAddr::V4(*address.ip()))])?;
    let by_v4 = Forwarder::start(address, node.addr())?;
    let weir = start(env, &resolver, &config)?;
    ensure!(node_of_app(&weir)? == node.name(), "the address that answers");
    ensure!(shown(&weir, HOSTGROUP)?.0 == address.to_string(), "{:?}", shown(&weir, HOSTGROUP)?);
    // It is remembered, though the other one answers, too, and looked up every second.
    let by_v6 = Forwarder::start(v6, node.addr())?;
    let reload = config.clone();
    weir.reload(&reload)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    ensure!(shown(&weir, HOSTGROUP)?.0 == address.to_string(), "{:?}", shown(&weir, HOSTGROUP)?);
    drop(by_v4);
    eventually("the other one is tried", PATIENCE, || {
        Ok(node_of_app(&weir).is_ok_and(|name| name == node.name())
            && shown(&weir, HOSTGROUP)?.0 == v6.to_string())
    })?;
    drop(by_v6);
    Ok(())
}

fn hangs(env: &Env) -> CaseResult {
    let silent = match UdpSocket::bind((SILENT, 53)) {
        Ok(silent) => silent,
        Err(error) => {
            not_run("a resolver that hangs (no DNS server)", &format!("{SILENT}: {error}"));
            return Ok(());
        }
    };
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.push(
        "mysql_servers",
        &[("hostgroup_id", OTHERS.into()), ("hostname", "slow.weir.test".into()), ("port", 3306.into())],
    );
    let Some(resolver) = resolver(env, &config)? else { return Ok(()) };
    resolver.ask(IpAddr::V4(SILENT))?;
    let weir = start(env, &resolver, &config)?;
    let still_hangs = || {
        let (_, _, reason) = shown(&weir, OTHERS)?;
        Ok::<_, Box<dyn Error>>(reason.contains("the resolver has not answered yet"))
    };
    eventually("there is a writer", PATIENCE, || Ok(run(&weir, &["status"])?.status.success()))?;
    eventually("the reason is shown", PATIENCE, still_hangs)?;
    config.variable("max_connections", 777);
    weir.reload(&config)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    ensure!(still_hangs()?, "a LOAD has waited for the name: {:?}", shown(&weir, OTHERS)?);
    let (writer, _, _) = shown(&weir, hostgroup::WRITER)?;
    let drained = run(&weir, &["drain", &writer])?;
    ensure!(drained.status.success(), "{}", text(&drained.stderr));
    ensure!(shown(&weir, hostgroup::WRITER)?.0 != writer, "it has another writer");
    ensure!(!node_of_app(&weir)?.is_empty(), "and statements go on");
    ensure!(still_hangs()?, "a role has waited for the name: {:?}", shown(&weir, OTHERS)?);
    ensure!(run(&weir, &["undrain", &writer])?.status.success(), "not taken back");
    drop(silent);
    Ok(())
}
