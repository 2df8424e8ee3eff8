//! Accounts that only the servers have log in at Weir, as they would at the servers.

mod certificates;
mod drivers;

use std::error::Error;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Family, Mysql, Weir, WeirConfig, hostgroup};
use weir_tests::dialogue::{Caller, Dialogue, Plugin, Said, TlsVersion};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// Within this time a change at the servers is in force, also on a busy machine; else it takes 5 s at most.
const IN_FORCE: Duration = Duration::from_secs(30);
/// How long a session goes on behind a change, so that it lives through its coming into force.
const GOES_ON: Duration = Duration::from_secs(10);
/// The monitor's account here: it may read accounts.
const FOLLOWER: Account = Account { user: "follower", password: "follower" };

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("followed_accounts::logins_end_as_at_a_mariadb", |env| {
            same_answers(env, Family::Mariadb)
        }),
        Case::serial("followed_accounts::logins_end_as_at_a_mysql", |env| same_answers(env, Family::Mysql)),
        Case::serial("followed_accounts::drivers_log_in_as_at_a_mariadb", |env| {
            drivers::same_answers(env, Family::Mariadb)
        }),
        Case::serial("followed_accounts::drivers_log_in_as_at_a_mysql", |env| {
            drivers::same_answers(env, Family::Mysql)
        }),
        Case::serial("followed_accounts::changes_are_in_force_soon_on_mariadb", |env| {
            changes(env, Family::Mariadb)
        }),
        Case::serial("followed_accounts::changes_are_in_force_soon_on_mysql", |env| {
            changes(env, Family::Mysql)
        }),
        Case::serial("followed_accounts::a_row_of_mysql_users_comes_first", row_comes_first),
        Case::serial("followed_accounts::a_client_learns_why_accounts_are_not_known", not_known),
        Case::serial("followed_accounts::a_public_key_of_ed25519_is_enough", ed25519),
        Case::serial("followed_accounts::both_passwords_of_a_mysql_account_log_in", dual_passwords),
        Case::serial("followed_accounts::accounts_that_require_a_certificate", certificates::required),
        Case::serial("followed_accounts::a_reload_switches_them_off_and_on", switched_off_and_on),
        Case::serial("followed_accounts::ten_thousand_accounts", ten_thousand),
    ]
}

struct Stage {
    servers: Mysql,
    weir: Weir,
    config: WeirConfig,
}

impl Stage {
    /// A server with accounts, and a Weir that has no account of its own but what `change` adds.
    fn new(
        env: &Env,
        family: Family,
        accounts: &str,
        change: impl FnOnce(&mut WeirConfig, &Mysql),
    ) -> Result<Stage, Box<dyn Error>> {
        let servers = env.own_servers(family, 1, false)?;
        let table = if family == Family::Mariadb { "mysql.global_priv" } else { "mysql.user" };
        servers.source().root_query(&format!(
            "CREATE USER follower@'%' IDENTIFIED BY 'follower'; GRANT SELECT ON {table} TO follower@'%'; {accounts}"
        ))?;
        let mut config = WeirConfig::new(env.free_address()?);
        config.server(servers.source().addr(), hostgroup::WRITER, &[]);
        config.push(
            "weir_hostgroups",
            &[("hostgroup_id", hostgroup::WRITER.into()), ("follow_accounts", 1.into())],
        );
        config.variable("threads", 1).variable("have_ssl", true);
        config.monitor(FOLLOWER);
        change(&mut config, &servers);
        let weir = env.weir_with(&config)?;
        Ok(Stage { servers, weir, config })
    }

    fn root(&self, sql: &str) -> CaseResult {
        self.servers.source().root_query(sql)?;
        Ok(())
    }

    /// How a login ends through Weir and straight at the server.
    fn both(&self, caller: &Caller<'_>) -> Result<(String, String), Box<dyn Error>> {
        Ok((outcome(self.weir.addr(), caller)?, outcome(self.servers.source().addr(), caller)?))
    }

    /// Waits until a login through Weir ends so.
    fn becomes(&self, caller: &Caller<'_>, expected: &str, after: &str) -> CaseResult {
        eventually(&format!("{after}: {expected}"), IN_FORCE, || {
            Ok(outcome(self.weir.addr(), caller)?.starts_with(expected))
        })
    }
}

fn caller<'a>(user: &'a str, password: &'a str) -> Caller<'a> {
    Caller { user, password, plugin: Plugin::Native, tls: None }
}

/// `OK` with the account that the server names, or the error; where a server says another name of this host, the address.
fn outcome(at: SocketAddrV4, caller: &Caller<'_>) -> Result<String, Box<dyn Error>> {
    let mut client = Dialogue::start(at, caller)?;
    Ok(match client.said.last() {
        Some(Said::Ok) => match client.value("SELECT CURRENT_USER()") {
            Ok(account) => format!("OK {account}"),
            Err(error) => format!("in, but {error}"),
        },
        Some(Said::Err { code, message }) => {
            format!("{code} {}", message.replace("@'localhost'", "@'127.0.0.1'"))
        }
        other => return Err(format!("{other:?}").into()),
    })
}

const ACCOUNTS: &str = "CREATE USER plain@'%' IDENTIFIED BY 'secret'; \
    CREATE USER blank@'%' IDENTIFIED BY ''; \
    CREATE USER near@'127.0.0.%' IDENTIFIED BY 'secret'; \
    CREATE USER far@'10.9.8.%' IDENTIFIED BY 'secret'; \
    CREATE USER nearby@'127.0.0.0/255.0.0.0' IDENTIFIED BY 'secret'; \
    CREATE USER twofold@'%' IDENTIFIED BY 'everywhere'; \
    CREATE USER twofold@'127.%' IDENTIFIED BY 'here'; \
    CREATE USER locked@'%' IDENTIFIED BY 'secret' ACCOUNT LOCK; \
    CREATE USER encrypted@'%' IDENTIFIED BY 'secret' REQUIRE SSL; \
    CREATE USER certified@'%' IDENTIFIED BY 'secret' REQUIRE X509; \
    CREATE USER named@'%' IDENTIFIED BY 'secret' REQUIRE SUBJECT '/CN=named';";

fn same_answers(env: &Env, family: Family) -> CaseResult {
    let stage = Stage::new(env, family, ACCOUNTS, |config, _| {
        if family == Family::Mysql {
            config.server_column("use_ssl", 1);
        }
    })?;
    let plugin = if family == Family::Mariadb { Plugin::Native } else { Plugin::Sha2 };
    // MariaDB 10.11 has no TLS before it gets a certificate; MySQL asks somebody whom it does not know for odd plugins.
    let (ways, strangers): (&[_], &[_]) = match family {
        Family::Mariadb => (&[None], &["nobody"]),
        Family::Mysql => (&[None, Some(TlsVersion::V13)], &[]),
    };
    for &tls in ways {
        let users =
            ["plain", "blank", "near", "nearby", "twofold", "locked", "encrypted", "certified", "named"];
        for &user in users.iter().chain(strangers) {
            for password in ["secret", "wrong", "", "here", "everywhere"] {
                let caller = Caller { user, password, plugin, tls };
                let (through, straight) = stage.both(&caller)?;
                ensure!(through == straight, "{user} {password:?} {tls:?}: {through} instead of {straight}");
            }
        }
    }
    let through = |user, tls| outcome(stage.weir.addr(), &Caller { user, password: "secret", plugin, tls });
    ensure!(through("plain", None)? == "OK plain@%", "no login");
    if family == Family::Mysql {
        ensure!(through("encrypted", Some(TlsVersion::V13))? == "OK encrypted@%", "no login over TLS");
    }
    for user in ["far", "nobody"] {
        let told = through(user, None)?;
        ensure!(told.starts_with("1045"), "{user}: {told}");
    }
    Ok(())
}

fn changes(env: &Env, family: Family) -> CaseResult {
    let accounts = "CREATE USER plain@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON test.* TO plain@'%'; \
        CREATE TABLE test.kept (id INT PRIMARY KEY);";
    let stage = Stage::new(env, family, accounts, |_, _| {})?;
    let plugin = if family == Family::Mariadb { Plugin::Native } else { Plugin::Sha2 };
    let tls = (family == Family::Mysql).then_some(TlsVersion::V13);
    let with = |password| Caller { user: "plain", password, plugin, tls };
    let mut connected = Dialogue::start(stage.weir.addr(), &with("secret"))?;
    let reads = |connected: &mut Dialogue| -> CaseResult {
        let until = Instant::now() + GOES_ON;
        while Instant::now() < until {
            ensure!(connected.value("SELECT COUNT(*) FROM test.kept")? == "0", "no answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    // Its connection has proven itself since the last change.
    reads(&mut connected)?;
    stage.root("CREATE USER later@'%' IDENTIFIED BY 'later'")?;
    let later = Caller { user: "later", password: "later", plugin, tls };
    stage.becomes(&later, "OK", "created")?;
    // A session goes on when its password is changed, as at a server, unless another change has just been made.
    reads(&mut connected)?;
    stage.root("ALTER USER plain@'%' IDENTIFIED BY 'changed'")?;
    reads(&mut connected)?;
    stage.becomes(&with("secret"), "1045", "changed")?;
    stage.becomes(&with("changed"), "OK", "changed")?;
    ensure!(connected.value("SELECT COUNT(*) FROM test.kept")? == "0", "no answer");
    stage.root("REVOKE SELECT ON test.* FROM plain@'%'")?;
    eventually("the right is gone, also for who is connected", IN_FORCE, || {
        Ok(connected.value("SELECT COUNT(*) FROM test.kept").is_err())
    })?;
    stage.root("ALTER USER plain@'%' ACCOUNT LOCK")?;
    stage.becomes(&with("changed"), if family == Family::Mariadb { "4151" } else { "3118" }, "locked")?;
    stage.root("ALTER USER plain@'%' ACCOUNT UNLOCK")?;
    stage.becomes(&with("changed"), "OK", "unlocked")?;
    stage.root("ALTER USER plain@'%' PASSWORD EXPIRE")?;
    stage.becomes(&with("changed"), "1862", "expired")?;
    stage.root("ALTER USER plain@'%' IDENTIFIED BY 'changed'")?;
    stage.becomes(&with("changed"), "OK", "renewed")?;
    stage.root("ALTER USER plain@'%' WITH MAX_USER_CONNECTIONS 1")?;
    let first = Dialogue::start(stage.weir.addr(), &with("changed"))?;
    stage.becomes(&with("changed"), "1226", "limited")?;
    drop(first);
    stage.root("DROP USER plain@'%'")?;
    stage.becomes(&with("changed"), "1045", "dropped")?;
    Ok(())
}

fn row_comes_first(env: &Env) -> CaseResult {
    let accounts =
        "CREATE USER plain@'%' IDENTIFIED BY 'secret'; CREATE USER closed@'%' IDENTIFIED BY 'secret';";
    let own = Account { user: "plain", password: "another" };
    let closed = Account { user: "closed", password: "secret" };
    let stage = Stage::new(env, Family::Mariadb, accounts, |config, _| {
        config.user(own, hostgroup::WRITER, &[]);
        config.user(closed, hostgroup::WRITER, &[("active", 0.into())]);
    })?;
    let through = |password| outcome(stage.weir.addr(), &caller("plain", password));
    ensure!(through("secret")?.starts_with("1045"), "the server's password logs in");
    // The password of the row is not the server's, which says so.
    let mut session = RawClient::connect(stage.weir.addr())?;
    ensure!(session.authenticate(&Login::new(own))?.first() == Some(0), "the row's password does not log in");
    ensure!(outcome(stage.weir.addr(), &caller("closed", "secret"))?.starts_with("1045"), "it is not active");
    stage.weir.wait_log("the user is not active", IN_FORCE)?;
    Ok(())
}

fn not_known(env: &Env) -> CaseResult {
    let servers = env.own_servers(Family::Mariadb, 1, false)?;
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(servers.source().addr(), hostgroup::WRITER, &[]);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.push(
        "weir_hostgroups",
        &[("hostgroup_id", hostgroup::WRITER.into()), ("follow_accounts", 1.into())],
    );
    // It may log in, and no more.
    config.monitor(Account::MONITOR);
    let weir = env.weir_with(&config)?;
    let told = outcome(weir.addr(), &caller("plain", "secret"))?;
    ensure!(told.starts_with("9001 The accounts of the servers are not known yet"), "{told}");
    let logged = format!(
        "the accounts of the servers can't be read hostgroup=100 trouble=\"{}",
        servers.source().addr()
    );
    weir.wait_log(&logged, IN_FORCE)?;
    ensure!(
        Session::open(weir.addr(), "test")?.value("SELECT 1")? == "1",
        "a row of mysql_users does not log in"
    );
    servers.source().root_query(
        "GRANT SELECT ON mysql.global_priv TO monitor@'%'; CREATE USER plain@'%' IDENTIFIED BY 'secret'",
    )?;
    eventually("the accounts are followed", IN_FORCE, || {
        Ok(outcome(weir.addr(), &caller("plain", "secret"))? == "OK plain@%")
    })
}

fn switched_off_and_on(env: &Env) -> CaseResult {
    let accounts = "CREATE USER plain@'%' IDENTIFIED BY 'secret';";
    let stage = Stage::new(env, Family::Mariadb, accounts, |config, _| {
        config.user(Account::APP, hostgroup::WRITER, &[]);
    })?;
    let plain = caller("plain", "secret");
    let mut open = Dialogue::start(stage.weir.addr(), &plain)?;
    ensure!(open.value("SELECT 1")? == "1", "no answer");
    // The same again disturbs nobody.
    stage.weir.reload(&stage.config)?;
    ensure!(open.value("SELECT 1")? == "1", "no answer");
    let mut without = stage.config.clone();
    without.document_mut().remove("weir_hostgroups");
    stage.weir.reload(&without)?;
    stage.becomes(&plain, "1045", "switched off")?;
    ensure!(open.value("SELECT 1").is_err(), "a session of an account that is followed no more goes on");
    ensure!(Session::open(stage.weir.addr(), "test")?.value("SELECT 1")? == "1", "a row does not log in");
    stage.weir.reload(&stage.config)?;
    stage.becomes(&plain, "OK plain@%", "switched on again")
}

/// Weir never has the password before a client has shown it; then also those who only prove it get in.
fn ed25519(env: &Env) -> CaseResult {
    let accounts = "INSTALL SONAME 'auth_ed25519'; \
        CREATE USER signer@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret');";
    let stage = Stage::new(env, Family::Mariadb, accounts, |_, _| {})?;
    let by = |password, plugin, tls| Caller { user: "signer", password, plugin, tls };
    for (password, expected) in [("wrong", "1045"), ("secret", "OK signer@%")] {
        let told = outcome(stage.weir.addr(), &by(password, Plugin::Sha2, Some(TlsVersion::V13)))?;
        ensure!(told.starts_with(expected), "{password}: {told}");
    }
    let mut client = Dialogue::start(stage.weir.addr(), &by("secret", Plugin::Sha2, None))?;
    ensure!(client.said == [Said::Fast, Said::Ok], "{:?}", client.said);
    ensure!(client.value("SELECT CURRENT_USER()")? == "signer@%", "somebody else");
    let told = outcome(stage.weir.addr(), &by("wrong", Plugin::Sha2, None))?;
    ensure!(told.starts_with("1045"), "{told}");
    Ok(())
}

fn dual_passwords(env: &Env) -> CaseResult {
    let accounts = "CREATE USER plain@'%' IDENTIFIED BY 'first'; \
        ALTER USER plain@'%' IDENTIFIED BY 'second' RETAIN CURRENT PASSWORD;";
    let stage = Stage::new(env, Family::Mysql, accounts, |_, _| {})?;
    let with =
        |password| Caller { user: "plain", password, plugin: Plugin::Sha2, tls: Some(TlsVersion::V13) };
    for (password, expected) in [("first", "OK"), ("second", "OK"), ("third", "1045"), ("first", "OK")] {
        let told = outcome(stage.weir.addr(), &with(password))?;
        ensure!(told.starts_with(expected), "{password}: {told}");
    }
    stage.root("ALTER USER plain@'%' DISCARD OLD PASSWORD")?;
    stage.becomes(&with("first"), "1045", "discarded")?;
    stage.becomes(&with("second"), "OK", "kept")
}

/// Start, change and drop are in force soon, and the data path's memory is bounded.
fn ten_thousand(env: &Env) -> CaseResult {
    let numbers = "INSERT INTO mysql.global_priv SELECT '%', CONCAT('many', seq), JSON_OBJECT('access', 0, \
        'plugin', 'mysql_native_password', 'authentication_string', PASSWORD(CONCAT('secret', seq))) \
        FROM test.seq_1_to_9999; FLUSH PRIVILEGES";
    let stage =
        Stage::new(env, Family::Mariadb, "CREATE USER many0@'%' IDENTIFIED BY 'secret0';", |_, _| {})?;
    let before_kib = memory_kib(&stage.weir)?;
    stage.root(numbers)?;
    let last = caller("many9999", "secret9999");
    stage.becomes(&last, "OK many9999@%", "10,000 accounts")?;
    let account_bytes = memory_kib(&stage.weir)?.saturating_sub(before_kib) * 1024 / 10_000;
    ensure!(account_bytes < 4096, "{account_bytes} bytes an account");
    stage.root("ALTER USER many5000@'%' IDENTIFIED BY 'changed'")?;
    stage.becomes(&caller("many5000", "changed"), "OK", "changed")?;
    stage.root("DROP USER many5001@'%'")?;
    stage.becomes(&caller("many5001", "secret5001"), "1045", "dropped")
}

fn memory_kib(weir: &Weir) -> Result<u64, Box<dyn Error>> {
    Ok(weir_lab::Usage::of(weir.process().pid()).rss_kib()?)
}
