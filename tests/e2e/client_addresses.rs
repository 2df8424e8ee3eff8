//! Servers are told by the PROXY protocol where clients are, and accounts and lists of processes go by that.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Family, HaProxy, HaProxyOptions, Mysql, Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("client_addresses::a_mariadb_server_knows_where_clients_are", |env| {
            [("v1", "auto"), ("v2", "epoll")].into_iter().try_for_each(|(version, driver)| {
                let server = server(env)?;
                known(env, &server, version, driver)?;
                one_connection(env, &server, version)?;
                by_host(env, &server, version)?;
                over_tls(env, &server, version)
            })
        }),
        Case::serial("client_addresses::a_reload_changes_what_servers_are_told", reload),
        Case::serial("client_addresses::a_server_that_takes_no_header_is_named", not_taken),
    ]
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Where clients are.
const CLIENTS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(127, 0, 0, 77), Ipv4Addr::new(127, 0, 0, 78), Ipv4Addr::new(127, 0, 0, 79)];
/// An account that is let in from the first of them only.
const LOCAL: Account = Account { user: "local", password: "local" };

type Failable<T> = Result<T, Box<dyn Error>>;

/// A MariaDB that takes headers, and can do TLS.
fn server(env: &Env) -> Failable<Mysql> {
    let made = rcgen::generate_simple_self_signed(vec!["db.weir.test".to_owned()])?;
    let (cert, key) = (env.dir()?.join("mariadb-cert.pem"), env.dir()?.join("mariadb-key.pem"));
    fs::write(&cert, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    let cnf = format!(
        "proxy-protocol-networks=127.0.0.0/8\nssl-cert={}\nssl-key={}",
        cert.display(),
        key.display()
    );
    Ok(env.own_servers_with(Family::Mariadb, 1, false, &cnf)?)
}

fn config(env: &Env, server: &Mysql, version: &str) -> Result<WeirConfig, String> {
    let mut config = WeirConfig::for_plain_servers(&[server.source().addr()], env.free_address()?);
    sends(&mut config, version);
    config.variable("threads", 1);
    Ok(config)
}

fn sends(config: &mut WeirConfig, version: &str) {
    config.document_mut().remove("weir_hostgroups");
    let row = [("hostgroup_id", hostgroup::WRITER.into()), ("send_proxy_protocol", version.into())];
    config.push("weir_hostgroups", &row);
}

/// A session of a client that is there.
fn session(from: Ipv4Addr, at: SocketAddrV4, account: Account) -> Failable<Session> {
    let mut raw = RawClient::connect_from(from, at)?;
    let answer = raw.authenticate(&Login::new(account))?;
    answer.ok(raw.capabilities())?;
    Ok(Session::over(raw))
}

fn is_at(session: &mut Session, client: Ipv4Addr) -> CaseResult {
    let user = session.value("SELECT USER()")?;
    ensure!(user == format!("app@{client}"), "{user}, but the client is at {client}");
    Ok(())
}

fn known(env: &Env, server: &Mysql, version: &str, driver: &str) -> CaseResult {
    let mut config = config(env, server, version)?;
    config.variable("io_driver", driver).variable("proxy_protocol_networks", "127.0.0.1");
    let weir = env.weir_with(&config)?;
    let mut sessions = Vec::new();
    for client in CLIENTS {
        for _ in 0..2 {
            sessions.push((client, session(client, weir.addr(), Account::APP)?));
        }
    }
    for round in 0..20 {
        for (client, session) in &mut sessions {
            is_at(session, *client)?;
            session.run(&format!("SET @round = {round}"))?;
        }
    }
    let sql = "SELECT DISTINCT host FROM information_schema.processlist WHERE user = 'app'";
    let hosts: BTreeSet<String> = sessions[0].1.rows(sql)?.into_iter().flatten().collect();
    let told: BTreeSet<String> = CLIENTS.iter().map(ToString::to_string).collect();
    let bare = |host: &String| host.split(':').next().unwrap_or_default().to_owned();
    ensure!(hosts.iter().map(bare).collect::<BTreeSet<_>>() == told, "{hosts:?}");
    kill(&weir)?;
    behind_haproxy(env, &weir)
}

/// A KILL comes from the same address as what it is to end.
fn kill(weir: &Weir) -> CaseResult {
    let mut victim = session(CLIENTS[0], weir.addr(), Account::APP)?;
    let mut other = session(CLIENTS[1], weir.addr(), Account::APP)?;
    let id = victim.id();
    let waiting = thread::spawn(move || {
        let answer = victim.query("SELECT SLEEP(600)").map_err(|error| error.to_string())?;
        Ok::<_, String>(format!("{answer:?}"))
    });
    while !waiting.is_finished() {
        other.run(&format!("KILL QUERY {id}"))?;
        thread::sleep(Duration::from_millis(20));
    }
    let answer = waiting.join().map_err(|_| "the session's thread broke")??;
    ensure!(answer.contains("1317"), "{answer}");
    Ok(())
}

/// The address that a header has told Weir is the one that it tells the server.
fn behind_haproxy(env: &Env, weir: &Weir) -> CaseResult {
    let listen = env.free_address()?;
    let options = HaProxyOptions {
        name: format!("haproxy-{}", listen.port()),
        listen,
        servers: vec![weir.addr()],
        threads: 1,
        connections_max: 100,
        balance: "first",
        proxy_header: Some("send-proxy-v2"),
        check: None,
    };
    let haproxy = HaProxy::start(&options, env.dir()?)?;
    is_at(&mut session(CLIENTS[2], haproxy.addr(), Account::APP)?, CLIENTS[2])
}

/// With a single connection to the server, no session is ever served on that of another client.
fn one_connection(env: &Env, server: &Mysql, version: &str) -> CaseResult {
    let mut config = WeirConfig::new(env.free_address()?);
    let columns = [("max_connections", 1.into())];
    config.server(server.source().addr(), hostgroup::WRITER, &columns);
    config.user(Account::APP, hostgroup::WRITER, &[]).monitor(Account::MONITOR);
    config.variable("threads", 2);
    sends(&mut config, version);
    let weir = env.weir_with(&config)?;
    let mut sessions = Vec::new();
    for client in CLIENTS.into_iter().chain(CLIENTS) {
        sessions.push((client, session(client, weir.addr(), Account::APP)?));
    }
    for _ in 0..10 {
        for (client, session) in &mut sessions {
            is_at(session, *client)?;
        }
    }
    // A transaction keeps the connection: meanwhile nobody else has one.
    let [(client, first), .., (_, other)] = &mut sessions[..] else { return Err("no sessions".into()) };
    first.run("BEGIN")?;
    other.send_query("SELECT USER()")?;
    is_at(first, *client)?;
    first.run("COMMIT")?;
    let user = other.results()?.value().map_err(|error| error.to_string())?;
    ensure!(user == format!("app@{}", CLIENTS[2]), "{user}");
    Ok(())
}

/// The server's accounts say from where a user may come.
fn by_host(env: &Env, server: &Mysql, version: &str) -> CaseResult {
    let create = format!(
        "CREATE OR REPLACE USER local@'{0}' IDENTIFIED BY 'local'; GRANT SELECT ON *.* TO local@'{0}'",
        CLIENTS[0]
    );
    server.source().root_query(&create)?;
    let mut config = config(env, server, version)?;
    config.user(LOCAL, hostgroup::WRITER, &[]);
    let weir = env.weir_with(&config)?;
    let mut allowed = session(CLIENTS[0], weir.addr(), LOCAL)?;
    let account = allowed.value("SELECT CURRENT_USER()")?;
    ensure!(account == format!("local@{}", CLIENTS[0]), "{account}");
    let mut elsewhere = session(CLIENTS[1], weir.addr(), LOCAL)?;
    let message = elsewhere.refused("SELECT 1", 1045)?;
    ensure!(message.contains(&CLIENTS[1].to_string()), "{message}");
    // That is nobody else's fault.
    for _ in 0..5 {
        allowed.value("SELECT 1")?;
        is_at(&mut session(CLIENTS[1], weir.addr(), Account::APP)?, CLIENTS[1])?;
    }
    Ok(())
}

/// The header goes in front of TLS towards the server.
fn over_tls(env: &Env, server: &Mysql, version: &str) -> CaseResult {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(server.source().addr(), hostgroup::WRITER, &[("use_ssl", 1.into())]);
    config.user(Account::APP, hostgroup::WRITER, &[]).monitor(Account::MONITOR);
    sends(&mut config, version);
    let weir = env.weir_with(&config)?;
    let mut session = session(CLIENTS[0], weir.addr(), Account::APP)?;
    is_at(&mut session, CLIENTS[0])?;
    let cipher = session.rows("SHOW STATUS LIKE 'Ssl_cipher'")?;
    ensure!(cipher[0][1].len() > 3, "not encrypted: {cipher:?}");
    Ok(())
}

fn reload(env: &Env) -> CaseResult {
    let server = server(env)?;
    let mut config = config(env, &server, "off")?;
    let weir = env.weir_with(&config)?;
    let mut session = session(CLIENTS[0], weir.addr(), Account::APP)?;
    is_at(&mut session, Ipv4Addr::LOCALHOST)?;
    for (version, place) in
        [("v1", CLIENTS[0]), ("v2", CLIENTS[0]), ("off", Ipv4Addr::LOCALHOST), ("v2", CLIENTS[0])]
    {
        sends(&mut config, version);
        weir.reload(&config)?;
        eventually("the server is told otherwise", PATIENCE, || {
            Ok(session.value("SELECT USER()")? == format!("app@{place}"))
        })?;
    }
    Ok(())
}

fn not_taken(env: &Env) -> CaseResult {
    let mut config = WeirConfig::for_plain_servers(&[], env.free_address()?);
    config.server(env.cluster()?.node(1).addr(), hostgroup::WRITER, &[]);
    config.variable("connect_timeout_server_max", 500);
    sends(&mut config, "v2");
    let weir = env.weir_with(&config)?;
    let mut session = session(CLIENTS[0], weir.addr(), Account::APP)?;
    let answer = format!("{:?}", session.query("SELECT 1")?);
    ensure!(answer.contains("roxy"), "{answer}");
    Ok(())
}
