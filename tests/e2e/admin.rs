//! The admin port: what a ProxySQL DBA types, with the ordinary mariadb client, and what it does to live traffic.

use std::net::SocketAddrV4;
use std::process::{Command, Output};
use std::time::Duration;

use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir, WeirConfig, hostgroup, weir_binary};
use weir_tests::{Bystanders, Case, CaseResult, Env, Session, ensure, eventually};

mod drivers;
mod exporter;
mod hostile;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("admin::the_articles_set_up_typed_at_an_empty_weir", articles),
        Case::parallel("admin::users_come_and_go_under_live_traffic", users),
        Case::parallel("admin::a_load_is_whole_or_not_at_all", whole_or_not),
        Case::parallel("admin::the_same_again_disturbs_nothing", same_again),
        Case::parallel("admin::a_restart_keeps_what_was_saved_and_forgets_the_rest", restart),
        Case::serial("admin::pause_kill_and_drain", verbs),
        Case::parallel("admin::a_firewall_that_would_not_filter_is_refused", firewall),
        Case::parallel("admin::a_dry_run_of_a_switchover_is_a_row", dry_run),
        Case::parallel("admin::the_port_and_its_accounts_change_while_it_runs", port_changes),
        Case::parallel("admin::default_passwords_stay_at_home", default_passwords),
        Case::parallel("admin::a_port_in_use_is_an_error_at_the_start", port_in_use),
        Case::parallel("admin::drivers_are_content", drivers::content),
        Case::parallel("admin::mysqld_exporter_is_content", exporter::scraped),
        Case::parallel("admin::nothing_reaches_out_of_the_database", hostile::outside),
        Case::parallel("admin::statements_without_end_are_stopped", hostile::bombs),
        Case::parallel("admin::silent_connections_and_junk_stop_nobody", hostile::silent),
        Case::parallel("admin::secrets_are_told_to_nobody", hostile::secrets),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);

/// The admin port of a Weir, by way of the mariadb client.
pub(crate) struct Admin {
    addr: SocketAddrV4,
    user: String,
    password: String,
}

impl Admin {
    pub(crate) fn at(addr: SocketAddrV4) -> Self {
        Self { addr, user: "admin".to_owned(), password: "admin".to_owned() }
    }

    pub(crate) fn addr(&self) -> SocketAddrV4 {
        self.addr
    }

    fn output(&self, sql: &str) -> Result<Output, Box<dyn std::error::Error>> {
        let mut client = Command::new("mariadb");
        client.arg("--no-defaults").arg(format!("-u{}", self.user)).arg(format!("-p{}", self.password));
        client.arg(format!("-h{}", self.addr.ip())).arg(format!("-P{}", self.addr.port()));
        client.args(["--batch", "--skip-column-names", "-e", sql]);
        Ok(client.output()?)
    }

    /// Rows, columns apart by tabs.
    pub(crate) fn run(&self, sql: &str) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let output = self.output(sql)?;
        if !output.status.success() {
            return Err(format!("{sql}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// The error of a statement that must fail.
    pub(crate) fn refusal(&self, sql: &str) -> Result<String, Box<dyn std::error::Error>> {
        let output = self.output(sql)?;
        ensure!(!output.status.success(), "{sql} was taken");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A Weir with an admin port.
pub(crate) fn start(
    env: &Env,
    change: impl FnOnce(&mut WeirConfig),
) -> Result<(Weir, Admin), Box<dyn std::error::Error>> {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let addr = env.free_address()?;
    config.admin(addr);
    change(&mut config);
    Ok((env.weir_with(&config)?, Admin::at(addr)))
}

fn firewall(env: &Env) -> CaseResult {
    let (mut config, addr) = (WeirConfig::new(env.free_address()?), env.free_address()?);
    config.admin(addr);
    let _weir = env.weir_with(&config)?;
    let admin = Admin::at(addr);
    // One that is empty or off is loaded and saved as ever.
    admin.run("LOAD MYSQL FIREWALL TO RUNTIME; SAVE MYSQL FIREWALL TO DISK")?;
    admin.run(
        "INSERT INTO mysql_firewall_whitelist_users (active, username, client_address, mode) VALUES \
         (1, 'app', '', 'OFF'), (0, 'app', '10.0.0.1', 'PROTECTING'); \
         INSERT INTO mysql_firewall_whitelist_rules (active, username, client_address, schemaname, digest) VALUES \
         (1, 'app', '', 'test', '0x1234'); LOAD MYSQL FIREWALL TO RUNTIME; LOAD MYSQL VARIABLES TO RUNTIME",
    )?;
    let count = "SELECT COUNT(*) FROM runtime_mysql_firewall_whitelist_users";
    ensure!(admin.run(count)? == ["2"], "they are in force");
    for mode in ["DETECTING", "PROTECTING"] {
        admin.run(&format!("UPDATE mysql_firewall_whitelist_users SET mode = '{mode}', active = 1"))?;
        let refusal = admin.refusal("LOAD MYSQL FIREWALL TO RUNTIME")?;
        let cause = "mysql_firewall_whitelist_users has active rows (for app@ and 1 more), and Weir has no firewall: no \
                     statement would be filtered";
        ensure!(refusal.contains(cause), "{refusal}");
    }
    admin.run("DELETE FROM mysql_firewall_whitelist_users; LOAD MYSQL FIREWALL TO RUNTIME")?;
    ensure!(admin.run(count)? == ["0"], "they are gone");
    for variable in ["mysql-firewall_whitelist_enabled", "mysql-automatic_detect_sqli"] {
        admin.run(&format!("SET {variable} = 'true'"))?;
        let refusal = admin.refusal("LOAD MYSQL VARIABLES TO RUNTIME")?;
        ensure!(refusal.contains(variable) && refusal.contains("set it to false"), "{refusal}");
        admin.run(&format!("SET {variable} = 'false'; LOAD MYSQL VARIABLES TO RUNTIME"))?;
    }
    Ok(())
}

fn dry_run(env: &Env) -> CaseResult {
    let (_weir, admin) = start(env, |_| {})?;
    let hostgroup = hostgroup::WRITER;
    let ask = format!("WEIR SWITCHOVER HOSTGROUP {hostgroup} DRY RUN");
    eventually("somebody could be the next writer", PATIENCE, || Ok(admin.output(&ask)?.status.success()))?;
    let writers =
        format!("SELECT hostname || ':' || port FROM runtime_mysql_servers WHERE hostgroup_id = {hostgroup}");
    let writer = admin.run(&writers)?;
    let row = admin.run(&ask)?;
    let cells: Vec<&str> = row.first().ok_or("no row")?.split('\t').collect();
    ensure!(row.len() == 1 && cells.len() == 4, "{row:?}");
    ensure!(cells[0] == hostgroup.to_string() && [cells[1]] == *writer && cells[2] != cells[1], "{row:?}");
    let to = admin.run(&format!("WEIR SWITCHOVER HOSTGROUP {hostgroup} TO '{}' DRY RUN", cells[2]))?;
    ensure!(to == row, "{to:?}");
    ensure!(admin.run(&writers)? == writer, "nothing has moved");
    let refusal = admin.refusal("WEIR SWITCHOVER HOSTGROUP 4711 DRY RUN")?;
    ensure!(refusal.contains("4711 is not the writer hostgroup of a cluster"), "{refusal}");
    Ok(())
}

/// Live traffic that must not notice anything.
fn bystanders(env: &Env, weir: &Weir) -> Result<Bystanders, Box<dyn std::error::Error>> {
    let schema = env.schema()?;
    Bystanders::make_table(env, &schema)?;
    Ok(Bystanders::start(weir.addr(), &Login::new(Account::APP).schema(&schema), 4)?)
}

/// What the articles type: servers, Galera hostgroups, users, read/write split, monitor; memory to runtime to disk.
fn articles(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let (listen, addr) = (env.free_address()?, env.free_address()?);
    let mut config = WeirConfig::new(listen);
    config.admin(addr);
    let weir = env.weir_with(&config)?;
    let admin = Admin::at(addr);
    ensure!(admin.run("SELECT COUNT(*) FROM runtime_mysql_servers")? == ["0"], "it is not empty");
    for (at, node) in cluster.nodes().iter().enumerate() {
        let (ip, port) = (node.addr().ip().to_string(), node.addr().port());
        let writer_weight = 10_000 >> at;
        for (hostgroup, weight) in [(100, writer_weight), (101, 100)] {
            admin.run(&format!(
                "INSERT INTO mysql_servers (hostname,hostgroup_id,port,weight,max_connections,comment) \
                 VALUES ('{ip}',{hostgroup},{port},{weight},200,'DC1');"
            ))?;
        }
    }
    let (app, monitor) = (Account::APP, Account::MONITOR);
    let typed = format!(
        "insert into mysql_galera_hostgroups (writer_hostgroup,backup_writer_hostgroup,reader_hostgroup, \
         offline_hostgroup,active,max_writers,writer_is_also_reader,max_transactions_behind) \
         values (100,102,101,9101,1,1,0,10);
         INSERT INTO mysql_users (username,password,default_hostgroup,default_schema,transaction_persistent) \
         VALUES ('{}','{}',100,'test',1);
         INSERT INTO mysql_query_rules (rule_id, active, match_pattern, destination_hostgroup, apply) \
         VALUES(1,1,'^SELECT.*FOR UPDATE$', 100, 1);
         INSERT INTO mysql_query_rules (rule_id, active, match_pattern, destination_hostgroup, apply) \
         VALUES(2,1,'^SELECT', 101, 1);
         UPDATE global_variables SET variable_value='{}' WHERE variable_name='mysql-monitor_username';
         SET mysql-monitor_password='{}';
         LOAD MYSQL VARIABLES TO RUNTIME; SAVE MYSQL VARIABLES TO DISK;
         LOAD MYSQL USERS TO RUNTIME; SAVE MYSQL USERS TO DISK;
         LOAD MYSQL SERVERS TO RUNTIME; SAVE MYSQL SERVERS TO DISK;
         LOAD MYSQL QUERY RULES TO RUNTIME; SAVE MYSQL QUERY RULES TO DISK;",
        app.user, app.password, monitor.user, monitor.password
    );
    admin.run(&typed)?;
    eventually("a client is served, and reads leave the writer", PATIENCE, || {
        let Ok(mut session) = Session::with(weir.addr(), &Login::new(app).schema("test")) else {
            return Ok(false);
        };
        let writer = session.value("SELECT @@wsrep_node_name FOR UPDATE");
        let reader = session.value("SELECT @@wsrep_node_name");
        Ok(matches!((reader, writer), (Ok(reader), Ok(writer)) if reader != writer))
    })?;
    ensure!(admin.run("SELECT COUNT(*) FROM disk.mysql_query_rules")? == ["2"], "the rules are not saved");
    let pool = "SELECT SUM(Queries) > 0 FROM stats_mysql_connection_pool WHERE hostgroup = 100";
    ensure!(admin.run(pool)? == ["1"], "nothing is counted at the writer");
    let digest = "SELECT hostgroup FROM stats_mysql_query_digest WHERE digest_text = 'SELECT @@wsrep_node_name' \
                  AND count_star > 0";
    ensure!(admin.run(digest)?.contains(&"101".to_owned()), "no read was counted at the readers");
    ensure!(admin.run("SELECT SUM(hits) > 0 FROM stats_mysql_query_rules")? == ["1"], "no rule was hit");
    let roles = "SELECT COUNT(*) FROM runtime_mysql_servers WHERE hostgroup_id = 100 AND status = 'ONLINE'";
    ensure!(admin.run(roles)? == ["1"], "there is not one writer");
    let checksum = |layer: &str| admin.run(&format!("CHECKSUM {layer} MYSQL USERS"));
    ensure!(checksum("MEMORY")? == checksum("DISK")?, "memory and disk differ");
    Ok(())
}

fn users(env: &Env) -> CaseResult {
    let user = env.account()?;
    let (weir, admin) = start(env, |_| {})?;
    let known = || Session::with(weir.addr(), &Login::new(user).schema("test"));
    ensure!(known().is_err(), "the user is known before");
    let bystanders = bystanders(env, &weir)?;
    admin.run(&format!(
        "INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('{}', '{}', {})",
        user.user,
        user.password,
        hostgroup::WRITER
    ))?;
    ensure!(known().is_err(), "a row in memory is in force");
    admin.run("LOAD MYSQL USERS TO RUNTIME")?;
    // In force when LOAD is answered: no patience is needed.
    known()?.value("SELECT 1")?;
    let twin = format!("SELECT default_hostgroup FROM runtime_mysql_users WHERE username='{}'", user.user);
    ensure!(admin.run(&twin)? == [hostgroup::WRITER.to_string()], "runtime does not show it");
    // Runtime goes back to memory, which had been emptied.
    admin.run("DELETE FROM mysql_users; SAVE MYSQL USERS FROM RUNTIME")?;
    let count = format!("SELECT COUNT(*) FROM mysql_users WHERE username='{}'", user.user);
    ensure!(admin.run(&count)? == ["1"], "memory has it no more");
    admin.run(&format!("DELETE FROM mysql_users WHERE username='{}'; LOAD MYSQL USERS TO RUN", user.user))?;
    ensure!(known().is_err(), "a deleted user still comes in");
    bystanders.finish()?;
    Ok(())
}

fn whole_or_not(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    let before = admin.run("SELECT COUNT(*) FROM runtime_mysql_query_rules")?;
    admin.run(
        "INSERT INTO mysql_query_rules (rule_id, active, match_digest) VALUES (1, 1, '^SELECT'), (2, 1, '(unclosed'), \
         (3, 1, '[z-a]')",
    )?;
    let refusal = admin.refusal("LOAD MYSQL QUERY RULES TO RUNTIME; SHOW WARNINGS")?;
    ensure!(refusal.contains('2') && refusal.contains('3'), "not every row is named: {refusal}");
    ensure!(admin.run("SELECT COUNT(*) FROM runtime_mysql_query_rules")? == before, "a part was taken");
    Session::with(weir.addr(), &Login::new(Account::APP).schema("test"))?.value("SELECT 1")?;
    let nearest = admin.refusal("LOAD MYSQL QUERY RULE TO RUNTIME")?;
    ensure!(nearest.contains("did you mean \"LOAD MYSQL QUERY RULES TO RUNTIME\""), "{nearest}");
    Ok(())
}

fn same_again(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    let login = Login::new(Account::APP).schema("test");
    let bystanders = bystanders(env, &weir)?;
    let mut session = Session::with(weir.addr(), &login)?;
    session.query("BEGIN")?;
    let before = session.value("SELECT CONNECTION_ID()")?;
    for _ in 0..3 {
        admin.run(
            "LOAD MYSQL SERVERS TO RUNTIME; LOAD MYSQL USERS TO RUNTIME; LOAD MYSQL QUERY RULES TO RUNTIME; \
             LOAD MYSQL VARIABLES TO RUNTIME; LOAD ADMIN VARIABLES TO RUNTIME; LOAD SCHEDULER TO RUNTIME",
        )?;
    }
    ensure!(session.value("SELECT CONNECTION_ID()")? == before, "the session is another one");
    session.query("COMMIT")?;
    bystanders.finish()?;
    Ok(())
}

fn restart(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |config| {
        // A database, as users have it.
        config.arguments(&[]);
    })?;
    let rule = |id: u32| {
        format!("INSERT INTO mysql_query_rules (rule_id, active, match_digest) VALUES ({id},1,'^x')")
    };
    admin.run(&rule(1))?;
    admin.run("LOAD MYSQL QUERY RULES TO RUNTIME; SAVE MYSQL QUERY RULES TO DISK")?;
    admin.run(&rule(2))?;
    admin.run(
        "LOAD MYSQL QUERY RULES TO RUNTIME; SET mysql-max_connections=77; LOAD MYSQL VARIABLES TO RUNTIME",
    )?;
    let rules = "SELECT GROUP_CONCAT(rule_id) FROM runtime_mysql_query_rules";
    ensure!(admin.run(rules)? == ["1,2"], "they are not in force");
    // No time to say goodbye.
    let weir = weir.restart(&weir_binary()?)?;
    ensure!(admin.run(rules)? == ["1"], "{:?}", admin.run(rules)?);
    ensure!(admin.run("SELECT @@mysql-max_connections")? != ["77"], "what was not saved is there");
    Session::with(weir.addr(), &Login::new(Account::APP).schema("test"))?.value("SELECT 1")?;
    Ok(())
}

fn verbs(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    let login = Login::new(Account::APP).schema("test");
    let mut stays = Session::with(weir.addr(), &login)?;
    admin.run("PROXYSQL PAUSE")?;
    ensure!(std::net::TcpStream::connect(weir.addr()).is_err(), "a new client is taken");
    stays.value("SELECT 1")?;
    admin.run("PROXYSQL RESUME")?;
    // When PAUSE is answered the address is free.
    admin.run(&"PROXYSQL PAUSE; PROXYSQL RESUME;".repeat(50))?;
    let mut victim = Session::with(weir.addr(), &login)?;
    admin.run(&format!("KILL CONNECTION {}", victim.id()))?;
    ensure!(victim.value("SELECT 1").is_err(), "the session lives");
    ensure!(admin.refusal("KILL 4000000000")?.contains("1094"), "an unknown session was killed");
    stays.value("SELECT 1")?;
    let server = env.cluster()?.node(2).addr();
    let info = admin.run(&format!("WEIR DRAIN '{server}'"));
    ensure!(info.is_ok(), "{info:?}");
    admin.run(&format!("WEIR UNDRAIN '{server}'"))?;
    ensure!(admin.refusal("WEIR DRAIN '127.9.9.9:1'")?.contains("not in mysql_servers"), "an unknown server");
    admin.run("PROXYSQL RELOAD TLS")?;
    admin.run("PROXYSQL SHUTDOWN")?;
    drop(stays);
    weir.wait_exit(PATIENCE)?;
    Ok(())
}

fn port_changes(env: &Env) -> CaseResult {
    let (_weir, admin) = start(env, |_| {})?;
    let moved = env.free_address()?;
    let typed = format!(
        "SET admin-mysql_ifaces='{moved}'; SET admin-admin_credentials='boss:secret9'; LOAD ADMIN VARIABLES TO RUNTIME"
    );
    admin.run(&typed)?;
    let there = Admin { addr: moved, user: "boss".to_owned(), password: "secret9".to_owned() };
    ensure!(there.run("SELECT 1")? == ["1"], "nobody answers");
    admin.refusal("SELECT 1")?;
    let hidden = there.run("SHOW VARIABLES LIKE 'admin-admin_credentials'")?;
    ensure!(hidden == ["admin-admin_credentials\t********"], "{hidden:?}");
    let wrong = there.refusal("SET admin-mysql_iface='x'")?;
    ensure!(wrong.contains("admin-mysql_ifaces"), "{wrong}");
    Ok(())
}

fn default_passwords(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    weir.wait_log("default passwords", PATIENCE)?;
    let port = env.free_address()?.port();
    let open = format!("SET admin-mysql_ifaces='{};0.0.0.0:{port}'", admin.addr);
    admin.run(&open)?;
    let refusal = admin.refusal("LOAD ADMIN VARIABLES TO RUNTIME")?;
    ensure!(refusal.contains("admin-allow_default_credentials"), "{refusal}");
    admin.run("SET admin-allow_default_credentials='true'; LOAD ADMIN VARIABLES TO RUNTIME")?;
    Ok(())
}

fn port_in_use(env: &Env) -> CaseResult {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let std::net::SocketAddr::V4(addr) = taken.local_addr()? else { return Err("no IPv4".into()) };
    let mut config = WeirConfig::new(env.free_address()?);
    config.admin(addr);
    let Err(error) = env.weir_with(&config) else { return Err("it started".into()) };
    ensure!(error.contains("admin-mysql_ifaces"), "{error}");
    Ok(())
}
