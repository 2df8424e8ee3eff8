//! A session's rights and its first values are what the server says when the session logs in, however long
//! the connections to the server have been open.

use std::error::Error;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_protocol::status::StatusFlags;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Family, Mysql, Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::query_rules::add_rules;
use crate::replication::weir_with;

const VICTIM: Account = Account { user: "renewed", password: "renewed" };
/// May change accounts and global variables.
const BOSS: Account = Account { user: "boss", password: "boss" };
const ACCESS_DENIED: u16 = 1045;
const NO_RIGHT_TO_TABLE: u16 = 1142;
/// Within this time a change that was made straight at a server is noticed, also on a busy machine: the monitor looks
/// once a second.
const NOTICED: Duration = Duration::from_secs(20);
const READ: &str = "SELECT COUNT(*) FROM test.kept";

/// The cases of this module. Each has servers of its own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("accounts::a_login_proves_itself_to_the_server_as_it_is_now", |env| {
            accounts_change(env, Family::Mariadb)
        }),
        Case::serial("accounts::a_login_proves_itself_to_mysql_as_it_is_now", |env| {
            accounts_change(env, Family::Mysql)
        }),
        Case::serial("accounts::settings_are_those_of_the_login_on_mariadb", |env| {
            settings_stay(env, Family::Mariadb)
        }),
        Case::serial("accounts::settings_are_those_of_the_login_on_mysql", |env| {
            settings_stay(env, Family::Mysql)
        }),
        Case::serial("accounts::a_role_of_a_login_is_nobody_elses_on_mariadb", |env| {
            roles_stay(env, Family::Mariadb)
        }),
        Case::serial("accounts::a_role_of_a_login_is_nobody_elses_on_mysql", |env| {
            roles_stay(env, Family::Mysql)
        }),
        Case::serial("accounts::settings_that_only_some_may_change_are_noticed_too", settings_of_some),
        Case::serial("accounts::servers_with_other_settings_are_not_told_apart", other_settings),
        Case::serial("accounts::what_a_name_of_a_character_set_means_is_the_sessions_own", names_of_sets),
        Case::serial("accounts::a_read_on_another_server_leaves_no_settings_behind", settings_aside),
        Case::parallel("accounts::who_ignores_spaces_does_so_on_every_connection", ignore_space),
        Case::serial("accounts::without_autocommit_no_read_leaves_the_writer", no_autocommit),
        Case::serial("accounts::a_servers_own_init_connect_has_run_for_every_session", own_init_connect),
    ]
}

/// Servers, and a Weir with some connections to each, as the accounts of this module.
struct Stage {
    servers: Mysql,
    weir: Weir,
}

impl Stage {
    fn new(env: &Env, family: Family, servers: u8, connections_max: i64) -> Result<Stage, Box<dyn Error>> {
        let servers = env.own_servers(family, servers, false)?;
        servers.source().root_query(&format!(
            "CREATE TABLE test.kept (id INT PRIMARY KEY); CREATE USER {BOSS}@'%' IDENTIFIED BY '{BOSS}'; \
             GRANT ALL ON *.* TO {BOSS}@'%' WITH GRANT OPTION",
            BOSS = BOSS.user,
        ))?;
        servers.wait_replicated()?;
        let mut config = WeirConfig::new(env.free_address()?);
        for server in servers.servers() {
            config.server(server.addr(), hostgroup::WRITER, &[("max_connections", connections_max.into())]);
        }
        for account in [Account::APP, BOSS, VICTIM] {
            config.user(account, hostgroup::WRITER, &[]);
        }
        config.variable("threads", 1);
        config.variable("free_connections_pct", 100);
        config.monitor(Account::MONITOR);
        let weir = env.weir_with(&config)?;
        eventually("a statement runs", Duration::from_secs(20), || {
            Ok(Session::open(weir.addr(), "test").and_then(|mut session| session.run("DO 0")).is_ok())
        })?;
        for server in servers.servers() {
            weir.wait_log(
                &format!("session variables have been read server={}", server.addr()),
                NOTICED * 5,
            )?;
        }
        Ok(Stage { servers, weir })
    }

    fn login(&self, account: Account) -> Result<Session, Box<dyn Error>> {
        Ok(Session::with(self.weir.addr(), &Login::new(account))?)
    }

    /// Makes a change by a statement through Weir, or straight at the server.
    fn change(&self, through: bool, sql: &str) -> CaseResult {
        if through {
            self.login(BOSS)?.run(sql)?;
        } else {
            self.servers.source().root_query(sql)?;
        }
        Ok(())
    }

    /// What a new login's first statement is answered: 0, or an error. Waits for the `expected` answer, unless the change
    /// was made through Weir: then it is there at once.
    fn expect_read(&self, through: bool, expected: &[u16], after: &str) -> CaseResult {
        let answer =
            || -> Result<u16, Box<dyn Error>> { Ok(self.login(VICTIM)?.query(READ)?.error().unwrap_or(0)) };
        if !through {
            return eventually(after, NOTICED, || Ok(expected.contains(&answer()?)));
        }
        let answer = answer()?;
        ensure!(expected.contains(&answer), "{after}: {answer} instead of {expected:?}");
        Ok(())
    }
}

fn accounts_change(env: &Env, family: Family) -> CaseResult {
    // Enough for the account to keep a connection of its own.
    let stage = Stage::new(env, family, 1, 6)?;
    let name = format!("{}@'%'", VICTIM.user);
    for through in [true, false] {
        let expect = |sql: &str, expected: &[u16]| -> CaseResult {
            stage.change(through, sql)?;
            stage.expect_read(through, expected, &format!("through Weir: {through}, {sql}"))
        };
        stage.change(through, &format!("CREATE USER {name} IDENTIFIED BY '{}'", VICTIM.password))?;
        expect(&format!("GRANT SELECT ON *.* TO {name}"), &[0])?;
        expect(&format!("REVOKE SELECT ON *.* FROM {name}"), &[NO_RIGHT_TO_TABLE])?;
        expect(&format!("GRANT SELECT ON *.* TO {name}"), &[0])?;
        expect(&format!("ALTER USER {name} ACCOUNT LOCK"), &[4151, 3118])?;
        expect(&format!("ALTER USER {name} ACCOUNT UNLOCK"), &[0])?;
        expect(&format!("ALTER USER {name} PASSWORD EXPIRE"), &[1820, 1862])?;
        expect(&format!("ALTER USER {name} IDENTIFIED BY '{}'", VICTIM.password), &[0])?;
        // One that is connected loses the account, too, with the next connection that it gets.
        let mut connected = stage.login(VICTIM)?;
        ensure!(connected.query(READ)?.error().is_none(), "no answer");
        expect(&format!("DROP USER {name}"), &[ACCESS_DENIED])?;
        ensure!(connected.query(READ)?.error() == Some(ACCESS_DENIED), "an account that is gone still reads");
        let created = format!("CREATE USER {name} IDENTIFIED BY '{}'", VICTIM.password);
        expect(&created, &[NO_RIGHT_TO_TABLE])?;
        stage.change(through, &format!("DROP USER {name}"))?;
        stage.expect_read(through, &[ACCESS_DENIED], "dropped again")?;
    }
    // Others never noticed.
    ensure!(stage.login(Account::APP)?.value(READ)? == "0", "no answer");
    Ok(())
}

/// The statement that shows what a session has, and the statements that change what sessions begin with.
fn settings(family: Family) -> (&'static str, [(&'static str, &'static str); 4]) {
    let (isolation, show) = match family {
        Family::Mysql => (
            "transaction_isolation",
            "SELECT CONCAT_WS('|', @@sql_mode, @@transaction_isolation, @@time_zone, @@autocommit)",
        ),
        Family::Mariadb => {
            ("tx_isolation", "SELECT CONCAT_WS('|', @@sql_mode, @@tx_isolation, @@time_zone, @@autocommit)")
        }
    };
    let settings = [
        ("sql_mode", "'ANSI_QUOTES'"),
        (isolation, "'SERIALIZABLE'"),
        ("time_zone", "'+03:00'"),
        ("autocommit", "0"),
    ];
    (show, settings)
}

fn settings_stay(env: &Env, family: Family) -> CaseResult {
    let (show, settings) = settings(family);
    for connections_max in [1, 4] {
        let stage = Stage::new(env, family, 1, connections_max)?;
        let mut oldest = stage.login(Account::APP)?;
        let at_first = oldest.value(show)?;
        let mut others: Vec<(Session, String)> = Vec::new();
        for (through, (name, value)) in
            [true, false].into_iter().flat_map(|way| settings.map(|set| (way, set)))
        {
            let how = format!("{connections_max} connections, through Weir: {through}, {name}");
            let value = if through { value } else { "DEFAULT" };
            let mut before = stage.login(Account::APP)?;
            let seen_before = before.value(show)?;
            others.push((before, seen_before.clone()));
            stage.change(through, &format!("SET GLOBAL {name} = {value}"))?;
            let expected =
                Session::with(stage.servers.source().addr(), &Login::new(Account::APP))?.value(show)?;
            ensure!(expected != seen_before, "{how}: nothing has changed");
            if through {
                let seen = stage.login(Account::APP)?.value(show)?;
                ensure!(seen == expected, "{how}: a new session has {seen}, not {expected}");
            }
            eventually(&how, NOTICED, || Ok(stage.login(Account::APP)?.value(show)? == expected))?;
            let mut after = stage.login(Account::APP)?;
            // As at a server, before any statement has run.
            let is_on = after.ping()?.done()?.status.contains(StatusFlags::AUTOCOMMIT);
            ensure!(
                is_on != (expected.ends_with("|0") || expected.ends_with("|OFF")),
                "{how}: the login says autocommit {is_on}"
            );
            others.push((after, expected));
            for _ in 0..3 {
                let seen = oldest.value(show)?;
                ensure!(seen == at_first, "{how}: the first session has {seen} instead of {at_first}");
                for (session, expected) in &mut others {
                    let seen = session.value(show)?;
                    ensure!(seen == *expected, "{how}: a session has {seen} instead of {expected}");
                }
            }
        }
        // How its own statements are read is a session's own, too: a string, not a name.
        ensure!(oldest.value("SELECT \"a\"")? == "a", "read as another session's");
        // What it sets itself it has, and loses with a reset: then it is as new.
        oldest.run("SET time_zone = '+05:00'")?;
        ensure!(oldest.value("SELECT @@time_zone")? == "+05:00", "not set");
        oldest.reset()?.done()?;
        ensure!(oldest.value(show)? == at_first, "globals are as they were at first, this session is not");
    }
    Ok(())
}

/// Neither application nor monitor may set them for a session.
fn settings_of_some(env: &Env) -> CaseResult {
    for (family, name) in
        [(Family::Mariadb, "gtid_domain_id"), (Family::Mysql, "binlog_rows_query_log_events")]
    {
        let stage = Stage::new(env, family, 1, 1)?;
        // What is changed back before the monitor looks is not seen.
        for (changes, value) in ["1", "0", "1"].into_iter().enumerate() {
            stage.change(false, &format!("SET GLOBAL {name} = {value}"))?;
            eventually("the change is noticed", NOTICED, || {
                Ok(stage.weir.log().matches(&format!("changed=\"{name}\"")).count() > changes)
            })?;
            let seen = stage.login(Account::APP)?.value(&format!("SELECT @@session.{name}"))?;
            ensure!(seen == value, "a new session has {name} = {seen}, not {value}");
        }
    }
    Ok(())
}

fn other_settings(env: &Env) -> CaseResult {
    let stage = Stage::new(env, Family::Mariadb, 2, 2)?;
    let differing = "SET GLOBAL sql_mode = 'ANSI', GLOBAL group_concat_max_len = 77, GLOBAL tx_isolation = 'SERIALIZABLE'";
    stage.servers.server(2).root_query(differing)?;
    // Both in one statement: servers take turns.
    let show = "SELECT CONCAT_WS('|', @@sql_mode, @@group_concat_max_len, @@tx_isolation), @@server_id";
    stage.weir.wait_log("global variables have changed", NOTICED)?;
    for _ in 0..5 {
        let mut sessions = [stage.login(Account::APP)?, stage.login(Account::APP)?];
        let mut first: [Option<String>; 2] = [None, None];
        let mut servers = Vec::new();
        for _ in 0..20 {
            for (session, first) in sessions.iter_mut().zip(&mut first) {
                let row = session.rows(show)?.concat();
                let [seen, server] = &row[..] else { return Err("no row".into()) };
                servers.push(server.clone());
                let first = first.get_or_insert_with(|| seen.clone());
                ensure!(seen == first, "{seen} instead of {first}");
            }
        }
        servers.sort();
        servers.dedup();
        ensure!(servers.len() == 2, "only one server was used");
    }
    Ok(())
}

fn no_autocommit(env: &Env) -> CaseResult {
    let servers = env.own_servers(Family::Mariadb, 2, false)?;
    servers.source().root_query("CREATE TABLE test.kept (id INT PRIMARY KEY)")?;
    servers.wait_replicated()?;
    for server in servers.servers() {
        server.root_query("SET GLOBAL autocommit = 0")?;
    }
    let weir = weir_with(env, &servers, false, |config| {
        config.variable("threads", 1);
    })?;
    let writer = servers.source().root_query("SELECT @@server_id")?.concat().concat();
    let who =
        "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'server_id'";
    for round in 0..20 {
        let mut session = Session::open(weir.addr(), "test")?;
        let status = session.ping()?.done()?.status;
        ensure!(!status.contains(StatusFlags::AUTOCOMMIT), "{round}: the login says autocommit");
        let seen = session.value(who)?;
        ensure!(seen == writer, "{round}: a read without autocommit ran on {seen}");
        session.run(&format!("INSERT INTO kept VALUES ({round})"))?;
        if round % 2 == 0 {
            session.run("COMMIT")?;
        } else {
            session.run("ROLLBACK")?;
        }
    }
    let count = servers.source().root_query(READ)?.concat().concat();
    ensure!(count == "10", "{count} of 10 transactions were committed");
    Ok(())
}

fn own_init_connect(env: &Env) -> CaseResult {
    for family in [Family::Mariadb, Family::Mysql] {
        let stage = Stage::new(env, family, 1, 1)?;
        let name = format!("{}@'%'", VICTIM.user);
        stage.change(
            false,
            &format!(
                "CREATE USER {name} IDENTIFIED BY '{}'; GRANT SELECT ON *.* TO {name}; \
                 SET GLOBAL init_connect = 'SET @@session.group_concat_max_len = 777'",
                VICTIM.password
            ),
        )?;
        let show = "SELECT @@group_concat_max_len";
        eventually("init_connect is noticed", NOTICED, || Ok(stage.login(VICTIM)?.value(show)? == "777"))?;
        for _ in 0..3 {
            let mut session = stage.login(VICTIM)?;
            ensure!(session.value(show)? == "777", "{family:?}: init_connect has not run");
            // The connection has to be reset.
            session.run("SET @mine = 1")?;
            drop(session);
            ensure!(stage.login(VICTIM)?.value(show)? == "777", "{family:?}: not after a reset");
            stage.change(true, &format!("GRANT SELECT ON *.* TO {name}"))?;
            ensure!(stage.login(VICTIM)?.value(show)? == "777", "{family:?}: not after a change of accounts");
            // Another user's connection.
            ensure!(stage.login(BOSS)?.value("SELECT 1")? == "1", "no answer");
            ensure!(stage.login(VICTIM)?.value(show)? == "777", "{family:?}: not after another user");
        }
    }
    Ok(())
}

/// A role that a login gives by itself is this login's: whoever gets the connection next has his own, or none. (It
/// outlives a COM_CHANGE_USER on MariaDB.)
fn roles_stay(env: &Env, family: Family) -> CaseResult {
    let stage = Stage::new(env, family, 1, 1)?;
    let (name, host) = match family {
        Family::Mariadb => ("secret", ""),
        Family::Mysql => ("secret", "@'%'"),
    };
    let victim = format!("{}@'%'", VICTIM.user);
    let default_is = |role: &str| match family {
        Family::Mariadb => format!("SET DEFAULT ROLE {role} FOR {victim}"),
        Family::Mysql => format!("SET DEFAULT ROLE {role} TO {victim}"),
    };
    let own_role = |account: Account| -> Result<bool, Box<dyn Error>> {
        Ok(stage.login(account)?.value("SELECT IFNULL(CURRENT_ROLE(), 'NONE')")?.contains(name))
    };
    for through in [true, false] {
        for sql in [
            format!("CREATE ROLE {name}"),
            format!("GRANT SELECT ON test.* TO {name}"),
            format!("CREATE USER {victim} IDENTIFIED BY '{}'", VICTIM.password),
            format!("GRANT {name} TO {victim}"),
            default_is(name),
        ] {
            stage.change(through, &sql)?;
        }
        eventually("the login has its role", NOTICED, || own_role(VICTIM))?;
        stage.expect_read(through, &[0], "with the role")?;
        ensure!(!own_role(Account::APP)?, "through Weir: {through}: another user has the role");
        ensure!(own_role(VICTIM)?, "through Weir: {through}: the role is not there again");
        let revoked = format!("REVOKE {name} FROM {victim}");
        for taken in [default_is("NONE"), revoked] {
            stage.change(through, &taken)?;
            let after = format!("through Weir: {through}, {taken}");
            stage.expect_read(through, &[NO_RIGHT_TO_TABLE], &after)?;
            stage.change(through, &format!("GRANT {name} TO {victim}"))?;
            // MySQL forgets the default of a role that is revoked.
            stage.change(through, &default_is(name))?;
            stage.expect_read(through, &[0], &format!("{after} and given back"))?;
        }
        stage.change(through, &format!("DROP ROLE {name}{host}"))?;
        stage.expect_read(through, &[NO_RIGHT_TO_TABLE], "without the role")?;
        stage.change(through, &format!("DROP USER {victim}"))?;
    }
    Ok(())
}

/// Which character set `utf8` is depends on old_mode (MariaDB), with which a session begins.
fn names_of_sets(env: &Env) -> CaseResult {
    let stage = Stage::new(env, Family::Mariadb, 1, 1)?;
    let source = stage.servers.source();
    source.root_query("CREATE TABLE test.words (word VARCHAR(20) CHARACTER SET utf8mb4)")?;
    let show =
        "SELECT CONCAT_WS(' ', @@character_set_client, @@character_set_connection, @@collation_connection)";
    for (at, mode) in ["'UTF8_IS_UTF8MB3'", "''", "'UTF8_IS_UTF8MB3'"].into_iter().enumerate() {
        stage.change(true, &format!("SET GLOBAL old_mode = {mode}"))?;
        let mut direct = Session::with(source.addr(), &Login::new(Account::APP))?;
        direct.run("SET NAMES utf8")?;
        let expected = direct.value(show)?;
        let mut session = stage.login(Account::APP)?;
        session.run("SET NAMES utf8")?;
        stage.login(Account::APP)?.run("SET NAMES latin1")?;
        let seen = session.value(show)?;
        ensure!(
            seen == expected,
            "{at}: SET NAMES utf8 with old_mode {mode} is {seen} instead of {expected}"
        );
    }
    Ok(())
}

/// A session whose connection is kept may have a read run elsewhere, where the settings are others.
fn settings_aside(env: &Env) -> CaseResult {
    let servers = env.own_servers(Family::Mariadb, 2, false)?;
    servers
        .source()
        .root_query("CREATE TABLE test.kept (id INT PRIMARY KEY); INSERT INTO test.kept VALUES (1)")?;
    servers.wait_replicated()?;
    servers.server(2).root_query("SET GLOBAL sql_mode = 'ANSI', GLOBAL group_concat_max_len = 77")?;
    const ELSEWHERE: i64 = 7;
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(servers.source().addr(), hostgroup::WRITER, &[("max_connections", 1.into())]);
    config.server(servers.server(2).addr(), ELSEWHERE, &[("max_connections", 1.into())]);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.user_column(Account::APP.user, "transaction_persistent", 0);
    config.variable("threads", 1);
    config.variable("free_connections_pct", 100);
    config.monitor(Account::MONITOR);
    let rule = format!("match_pattern = 'elsewhere', destination_hostgroup = {ELSEWHERE}, apply = 1");
    add_rules(&mut config, &[&rule]);
    let weir = env.weir_with(&config)?;
    for server in [1, 2] {
        let known = format!("session variables have been read server={}", servers.server(server).addr());
        weir.wait_log(&known, NOTICED * 5)?;
    }
    // Nothing that asks for variables leaves a transaction.
    let here = "SELECT CONCAT('a' || 'b', LENGTH(GROUP_CONCAT(REPEAT('a', 200)))) FROM kept";
    let there = format!("{here} /* elsewhere */");
    let mut session = Session::open(weir.addr(), "test")?;
    let own = session.value(here)?;
    session.run("BEGIN")?;
    ensure!(session.value(&there)? == own, "aside, the session has the other server's settings");
    session.run("COMMIT")?;
    for round in 0..3 {
        let seen = session.value(&there)?;
        ensure!(seen == own, "{round}: the session has {seen} on the other server instead of {own}");
        ensure!(session.value(here)? == own, "{round}: the session has lost its own");
    }
    Ok(())
}

/// CLIENT_IGNORE_SPACE counts at a login only: neither COM_RESET_CONNECTION nor COM_CHANGE_USER does it again.
fn ignore_space(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let login = Login::new(Account::APP).schema("test").with(Capabilities::IGNORE_SPACE);
    let count = "SELECT COUNT (*) FROM (SELECT 1) AS one";
    for other in [Login::new(Account::APP2), login.clone()] {
        let mut session = Session::with(weir.addr(), &login)?;
        ensure!(session.value(count)? == "1", "not at first");
        session.run("SET @a = 1")?;
        drop(session);
        Session::with(weir.addr(), &other)?.value("SELECT 1")?;
        ensure!(Session::with(weir.addr(), &login)?.value(count)? == "1", "not on a connection of before");
    }
    Ok(())
}
