//! A proxy in front of Weir tells by the PROXY protocol where its clients are, and Weir goes by that.

use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weir_protocol::proxy_header::{write_v1, write_v2};
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, HaProxy, HaProxyOptions, Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::admin::Admin;
use crate::query_rules::add_rules;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("proxy_header::haproxy_tells_where_its_clients_are", |env| {
            ["auto", "epoll"].iter().try_for_each(|driver| told_by_haproxy(env, driver))
        }),
        Case::parallel("proxy_header::tls_begins_behind_the_header", |env| {
            ["auto", "epoll"].iter().try_for_each(|driver| tls(env, driver))
        }),
        Case::parallel("proxy_header::who_sends_none_is_served_all_the_same", absent),
        Case::parallel("proxy_header::broken_ones_and_those_from_elsewhere_are_refused_and_counted", refused),
        Case::parallel("proxy_header::a_reload_changes_who_may_send_one", reload),
    ]
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Where clients are that nobody else is.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);
/// Both forms in HAProxy's words.
const VERSIONS: [&str; 2] = ["send-proxy", "send-proxy-v2"];

type Failable<T> = Result<T, Box<dyn Error>>;

/// An HAProxy in front of a Weir.
fn haproxy(env: &Env, weir: &Weir, header: &'static str) -> Failable<HaProxy> {
    let listen = env.free_address()?;
    let options = HaProxyOptions {
        name: format!("haproxy-{}", listen.port()),
        listen,
        servers: vec![weir.addr()],
        threads: 1,
        connections_max: 100,
        balance: "first",
        proxy_header: Some(header),
        check: None,
    };
    Ok(HaProxy::start(&options, env.dir()?)?)
}

/// A Weir that takes headers from these networks, and its admin port.
fn weir_for(env: &Env, networks: &str, change: impl FnOnce(&mut WeirConfig)) -> Failable<(Weir, Admin)> {
    let admin = env.free_address()?;
    let weir = env.weir(|config| {
        config.admin(admin).variable("proxy_protocol_networks", networks);
        change(config);
    })?;
    Ok((weir, Admin::at(admin)))
}

/// A session of a client at [`CLIENT`], and the address of its socket.
fn session_from_client(at: SocketAddrV4) -> Failable<(Session, String)> {
    let mut raw = RawClient::connect_from(CLIENT, at)?;
    let address = raw.packets().socket().local_addr()?.to_string();
    let answer = raw.authenticate(&Login::new(Account::APP).schema("test"))?;
    answer.ok(raw.capabilities())?;
    Ok((Session::over(raw), address))
}

fn told_by_haproxy(env: &Env, driver: &str) -> CaseResult {
    let (weir, admin) = weir_for(env, "127.0.0.1, 10.0.0.0/8", |config| {
        config.variable("io_driver", driver).variable("auditlog_filename", "audit");
        let rule = format!("client_addr = '{CLIENT}', match_pattern = 'who', error_msg = 'it is you'");
        add_rules(config, &[&rule]);
    })?;
    for header in VERSIONS {
        let haproxy = haproxy(env, &weir, header)?;
        let (mut session, address) = session_from_client(haproxy.addr())?;
        ensure!(session.value("SELECT CURRENT_USER()")? == "app@%", "{header}: no login");
        let id = session.value("SELECT CONNECTION_ID()")?;
        let sql = "SELECT cli_host || ':' || cli_port FROM stats_mysql_processlist WHERE SessionID =";
        let shown = admin.run(&format!("{sql} {id}"))?;
        ensure!(shown == [address.as_str()], "{driver}, {header}: {shown:?}, not {address}");
        let answer = session.query("SELECT 'who'")?;
        ensure!(format!("{answer:?}").contains("it is you"), "{header}: no rule for {CLIENT}: {answer:?}");
        // Another client of the same proxy is somebody else.
        let other = Session::open(haproxy.addr(), "test")?.value("SELECT 'who'")?;
        ensure!(other == "who", "{header}: {other}");
        let login = Login::new(Account { user: "app", password: "wrong" });
        let refusal = RawClient::connect_from(CLIENT, haproxy.addr())?.authenticate(&login)?;
        let message = String::from_utf8_lossy(refusal.err()?.message).into_owned();
        ensure!(message.contains(&format!("'app'@'{CLIENT}'")), "{header}: {message}");
        let line = weir.log().lines().rfind(|line| line.contains("login refused")).map(str::to_owned);
        ensure!(line.is_some_and(|line| line.contains(&format!("peer={CLIENT}:"))), "{}", weir.log());
        eventually("the audit log has the client's address", PATIENCE, || {
            let text = fs::read_to_string(weir.datadir().join("audit.00000001")).unwrap_or_default();
            let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut logins = whole.filter(|line| line["event"] == "MySQL_Client_Connect_OK");
            Ok(logins.any(|line| line["client_addr"] == address.as_str()))
        })?;
    }
    let counted = admin.run(
        "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name LIKE 'Weir_proxy_headers%' \
         ORDER BY Variable_Name",
    )?;
    // Three for each version, and HAProxy's own look whether somebody is there.
    let [taken, refused] = &counted[..] else { return Err(format!("{counted:?}").into()) };
    ensure!(taken.parse::<u32>()? >= 6 && refused == "0", "{counted:?}");
    Ok(())
}

fn tls(env: &Env, driver: &str) -> CaseResult {
    let (weir, _) = weir_for(env, "127.0.0.1", |config| {
        config.variable("io_driver", driver).user_column("app", "use_ssl", 1);
    })?;
    for header in VERSIONS {
        let haproxy = haproxy(env, &weir, header)?;
        let client = |options: &[&str]| {
            let mut client = Command::new("mariadb");
            client.args(["--no-defaults", "-uapp", "-papp", "-N", "-B", "-e", "SELECT REPEAT('x', 500000)"]);
            client.arg(format!("-h{}", haproxy.addr().ip())).arg(format!("-P{}", haproxy.addr().port()));
            client.args(options).output()
        };
        let over_tls = client(&["--ssl"])?;
        let errors = String::from_utf8_lossy(&over_tls.stderr);
        ensure!(over_tls.status.success(), "{driver}, {header}: {errors}");
        ensure!(over_tls.stdout.len() == 500_001, "{driver}, {header}: {} bytes", over_tls.stdout.len());
        ensure!(!client(&["--skip-ssl"])?.status.success(), "{header}: use_ssl is not kept");
    }
    Ok(())
}

fn absent(env: &Env) -> CaseResult {
    let (weir, admin) = weir_for(env, "*", |_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let id = session.value("SELECT CONNECTION_ID()")?;
    let shown = admin.run(&format!("SELECT cli_host FROM stats_mysql_processlist WHERE SessionID = {id}"))?;
    ensure!(shown == ["127.0.0.1"], "{shown:?}");
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-uapp", "-papp", "--ssl", "-N", "-B", "-e", "SELECT 7"]);
    client.arg(format!("-h{}", weir.addr().ip())).arg(format!("-P{}", weir.addr().port()));
    let output = client.output()?;
    ensure!(output.stdout == b"7\n", "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Code and message of what a connection that begins with these bytes is told; it must end with that.
fn told(source: Ipv4Addr, weir: &Weir, header: &[u8]) -> Failable<(u16, String)> {
    let mut client = RawClient::connect_from(source, weir.addr())?;
    client.packets().write_bytes(header)?;
    let packet = client.packets().read_packet()?;
    let err = packet.err()?;
    let told = (err.code, String::from_utf8_lossy(err.message).into_owned());
    ensure!(client.packets().is_closed(), "the connection goes on after {told:?}");
    Ok(told)
}

fn refused(env: &Env) -> CaseResult {
    let (weir, admin) = weir_for(env, &CLIENT.to_string(), |_| {})?;
    let mut headers = [Vec::new(), Vec::new()];
    let (client, target) = (([192, 0, 2, 7], 50_000).into(), weir.addr().into());
    write_v1(client, target, &mut headers[0]);
    write_v2(client, target, &mut headers[1]);
    for header in &headers {
        let (code, message) = told(Ipv4Addr::LOCALHOST, &weir, header)?;
        ensure!(code == 1130 && message.contains("not accepted from '127.0.0.1'"), "{code} {message}");
    }
    for header in [&b"PROXY TCP4 192.0.2.7\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x21\x7F\0\0"] {
        let (code, message) = told(CLIENT, &weir, header)?;
        ensure!(code == 1043 && message.contains("broken header of the PROXY protocol"), "{code} {message}");
    }
    let refusals = |reason: &str| weir.log().lines().filter(|line| line.contains(reason)).count();
    ensure!(refusals("reason=\"a broken header of the PROXY protocol\"") == 2, "{}", weir.log());
    ensure!(refusals("the network is not in mysql-proxy_protocol_networks") == 2, "{}", weir.log());
    let sql =
        "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Weir_proxy_headers_refused'";
    let counted = admin.run(sql)?;
    ensure!(counted == ["4"], "{counted:?}");
    Ok(())
}

fn reload(env: &Env) -> CaseResult {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let weir = env.weir_with(&config)?;
    let haproxy = haproxy(env, &weir, "send-proxy-v2")?;
    ensure!(Session::open(haproxy.addr(), "test").is_err(), "a header is taken from everybody");
    config.variable("proxy_protocol_networks", "127.0.0.0/8");
    weir.reload(&config)?;
    eventually("headers are taken", PATIENCE, || Ok(Session::open(haproxy.addr(), "test").is_ok()))?;
    let (mut session, _) = session_from_client(haproxy.addr())?;
    config.variable("proxy_protocol_networks", "127.0.0.0/33");
    weir.reload(&config)?;
    weir.wait_log("configuration rejected", PATIENCE)?;
    config.variable("proxy_protocol_networks", "");
    weir.reload(&config)?;
    eventually("headers are refused", PATIENCE, || Ok(Session::open(haproxy.addr(), "test").is_err()))?;
    ensure!(session.value("SELECT 7")? == "7", "who is connected is not served any more");
    Ok(())
}
