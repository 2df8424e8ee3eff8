//! Logins succeed or fail, with the right error.

mod limits;
mod refusals;
mod tls;

use std::process::Command;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Weir, WeirConfig, hostgroup};
use weir_tests::dialogue::{Caller, Dialogue, Plugin, Said};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel(
            "login::a_wrong_password_and_an_unknown_user_are_told_the_same",
            wrong_password_and_unknown_user,
        ),
        Case::parallel("login::every_plugin_leads_in_or_is_switched", every_plugin_leads_in),
        Case::parallel("login::caching_sha2_as_the_default_plugin", caching_sha2_as_the_default),
        Case::parallel("login::a_user_known_by_its_native_hash", known_by_native_hash),
        Case::parallel("login::an_additional_password_while_one_is_changed", additional_password),
        Case::parallel("login::the_mariadb_client_logs_in", the_mariadb_client),
        Case::parallel("login::change_user_is_a_new_login", change_user),
        Case::parallel("login::change_user_with_a_wrong_password_changes_nothing", change_user_refused),
        Case::parallel("login::a_session_with_a_wait_timeout_of_its_own_is_closed", own_wait_timeout),
        Case::parallel("login::reset_connection_forgets_all_but_the_schema", reset_connection),
        Case::parallel("login::clients_without_newer_capabilities", without_newer_capabilities),
        Case::parallel("login::collations_are_those_of_the_server", collations),
        Case::parallel(
            "login::character_sets_that_no_client_can_have",
            character_sets_that_no_client_can_have,
        ),
        Case::parallel("login::the_greeting_names_the_servers_version", greeting),
        Case::parallel("login::a_schema_that_is_not_there", unknown_schema),
    ];
    cases.extend(limits::trials());
    cases.extend(refusals::trials());
    cases.extend(tls::trials());
    cases
}

/// Servers are shown the first password, whichever the client has.
fn additional_password(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.user_column(Account::APP.user, "attributes", r#"{"additional_password": "before"}"#);
    })?;
    let old = Account { password: "before", ..Account::APP };
    for account in [Account::APP, old] {
        let mut session = Session::with(weir.addr(), &Login::new(account))?;
        session.run("SET @held = 1")?;
        ensure!(session.value("SELECT CURRENT_USER()")?.starts_with("app@"), "somebody else is logged in");
        session.change_user(old, "test")?.done()?;
        ensure!(session.value("SELECT @held IS NULL")? == "1", "the session is the old one");
    }
    let wrong = Account { password: "before that", ..Account::APP };
    let refused = RawClient::connect(weir.addr())?.authenticate(&Login::new(wrong))?;
    ensure!(refused.err()?.code == 1045, "{refused}");
    Ok(())
}

fn wrong_password_and_unknown_user(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    for (user, password, used) in [("app", "wrong", "YES"), ("nobody", "app", "YES"), ("app", "", "NO")] {
        let account = Account { user, password };
        let mut client = RawClient::connect(weir.addr())?;
        let packet = client.authenticate(&Login::new(account))?;
        let err = packet.err()?;
        let message = String::from_utf8_lossy(err.message).into_owned();
        let wanted = format!("Access denied for user '{user}'@'127.0.0.1' (using password: {used})");
        ensure!(err.code == 1045, "{user}/{password}: {packet}");
        ensure!(err.sqlstate == Some(*b"28000"), "{user}/{password}: {:?}", err.sqlstate);
        ensure!(message == wanted, "{user}/{password}: {message:?} instead of {wanted:?}");
        ensure!(client.packets().is_closed(), "{user}/{password}: still open after the refusal");
    }
    Ok(())
}

fn every_plugin_leads_in(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let app = |plugin| Caller { user: "app", password: "app", plugin, tls: None };
    for (plugin, wanted) in [
        (Plugin::Native, vec![Said::Ok]),
        (Plugin::Sha2, vec![Said::Fast, Said::Ok]),
        (Plugin::Unheard, vec![Said::Switch(Plugin::Native), Said::Ok]),
    ] {
        let mut client = Dialogue::start(weir.addr(), &app(plugin))?;
        ensure!(client.said == wanted, "{plugin:?}: {:?} instead of {wanted:?}", client.said);
        ensure!(client.value("SELECT 6 * 7")? == "42", "{plugin:?}: no answer");
        // Whether a user exists can't be told from what is asked.
        let others = [Caller { password: "other", ..app(plugin) }, Caller { user: "nobody", ..app(plugin) }];
        for caller in others {
            let refused = Dialogue::start(weir.addr(), &caller)?;
            ensure!(
                refused.refusal().is_some_and(|(code, _)| code == 1045),
                "{caller:?}: {:?}",
                refused.said
            );
            let switches = |said: &[Said]| said.iter().filter(|said| matches!(said, Said::Switch(_))).count();
            ensure!(switches(&refused.said) == switches(&wanted), "{caller:?}: {:?}", refused.said);
        }
    }
    Ok(())
}

fn caching_sha2_as_the_default(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("default_authentication_plugin", "caching_sha2_password");
    })?;
    let offered = RawClient::connect(weir.addr())?.greeting().auth_plugin.clone();
    ensure!(offered == "caching_sha2_password", "the greeting offers {offered}");
    for plugin in [Plugin::Sha2, Plugin::Native, Plugin::Unheard] {
        let caller = Caller { user: "app", password: "app", plugin, tls: None };
        let mut client = Dialogue::start(weir.addr(), &caller)?;
        ensure!(client.said.last() == Some(&Said::Ok), "{plugin:?}: {:?}", client.said);
        ensure!(client.value("SELECT 'in'")? == "in", "{plugin:?}: no answer");
        if plugin == Plugin::Unheard {
            let wanted = [Said::Switch(Plugin::Sha2), Said::Fast, Said::Ok];
            ensure!(client.said == wanted, "{:?} instead of {wanted:?}", client.said);
        }
    }
    // A client from before the plugins can only answer the native way.
    let old = Login::new(Account::APP).without(Capabilities::PLUGIN_AUTH);
    let answer = RawClient::connect(weir.addr())?.authenticate(&Login { plugin: None, ..old })?;
    ensure!(answer.first() == Some(0), "a client without plugins: {answer}");
    Ok(())
}

/// The only users are those given, with their passwords in stored form.
pub(crate) fn weir_for_users(
    env: &Env,
    users: &[(&str, &str)],
    change: impl FnOnce(&mut WeirConfig),
) -> Result<Weir, String> {
    env.weir(|config| {
        config.document_mut().remove("mysql_users");
        for (name, password) in users {
            let row = [
                ("username", (*name).into()),
                ("password", (*password).into()),
                ("default_hostgroup", hostgroup::WRITER.into()),
            ];
            config.push("mysql_users", &row);
        }
        change(config);
    })
}

fn known_by_native_hash(env: &Env) -> CaseResult {
    // SELECT PASSWORD('app')
    let weir = weir_for_users(env, &[("app", "*5BCB3E6AC345B435C7C2E6B7949A04CE6F6563D3")], |_| {})?;
    let app = |plugin| Caller { user: "app", password: "app", plugin, tls: None };
    let mut client = Dialogue::start(weir.addr(), &app(Plugin::Native))?;
    ensure!(client.said == [Said::Ok], "{:?}", client.said);
    let user = client.value("SELECT CURRENT_USER()")?;
    ensure!(user == "app@%", "the server knows the session as {user}");
    // A hash of the other plugin can't be checked against it.
    let mut switched = Dialogue::start(weir.addr(), &app(Plugin::Sha2))?;
    ensure!(switched.said == [Said::Switch(Plugin::Native), Said::Ok], "{:?}", switched.said);
    ensure!(switched.value("SELECT 'in'")? == "in", "no answer");
    let refused = Dialogue::start(weir.addr(), &Caller { password: "App", ..app(Plugin::Native) })?;
    ensure!(refused.refusal().is_some_and(|(code, _)| code == 1045), "{:?}", refused.said);
    Ok(())
}

fn the_mariadb_client(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let port = weir.addr().port().to_string();
    let run = |more: &[&str], password: &str| {
        Command::new("mariadb")
            .args(["--no-defaults", "-h127.0.0.1", "-P", &port, "-uapp", &format!("-p{password}")])
            .args(["-N", "-B", "-e", "SELECT CURRENT_USER(), DATABASE()", "test"])
            .args(more)
            .output()
    };
    for more in [["--skip-ssl"].as_slice(), &["--ssl"], &["--default-auth=caching_sha2_password"]] {
        let output = run(more, "app")?;
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success() && text == "app@%\ttest\n", "{more:?}: {text}{errors}");
    }
    let output = run(&[], "wrong")?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let wanted = "ERROR 1045 (28000): Access denied for user 'app'@'127.0.0.1' (using password: YES)";
    ensure!(!output.status.success() && errors.contains(wanted), "{errors}");
    Ok(())
}

fn change_user(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("SET @mine = 1, SESSION wait_timeout = 4321, NAMES latin1")?;
    session.run("CREATE TEMPORARY TABLE mine (id INT)")?;
    let statement = session.prepare("SELECT 1")?;
    session.run("BEGIN")?;

    session.change_user(Account::APP2, "test")?.done()?;
    let who = session.rows("SELECT CURRENT_USER(), DATABASE(), @mine")?;
    ensure!(who == [["app2@%", "test", "NULL"]], "after the change: {who:?}");
    let rows = session
        .rows("SELECT @@wait_timeout = @@global.wait_timeout, @@character_set_client, @@in_transaction")?;
    ensure!(rows == [["1", "utf8mb4", "0"]], "after the change: {rows:?}");
    session.refused(&format!("SELECT * FROM {schema}.mine"), 1146)?;
    let stale = session.execute(&statement, &[])?;
    ensure!(stale.error() == Some(1243), "a statement of the old user: {stale:?}");

    // And back, without a schema.
    session.change_user(Account::APP, "")?.done()?;
    let user = session.value("SELECT CURRENT_USER()")?;
    ensure!(user == "app@%", "{user}");
    Ok(())
}

fn change_user_refused(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    for (user, password) in [("app2", "wrong"), ("nobody", "app2"), ("app2", "")] {
        let mut session = Session::open(weir.addr(), "test")?;
        session.run("SET @mine = 1")?;
        let answer = session.change_user(Account { user, password }, "test")?;
        ensure!(answer.error() == Some(1045), "{user}/{password}: {answer:?}");
        // MySQL closes the connection, MariaDB goes on as the old user in the old schema, with nothing else.
        let rows = session.rows("SELECT CURRENT_USER(), DATABASE(), @mine")?;
        ensure!(rows == [["app@%", "test", "NULL"]], "{user}/{password}: goes on as {rows:?}");
        for expected in [1045, 1045, 1047, 1047] {
            let answer = session.change_user(Account { user, password }, "test")?;
            ensure!(answer.error() == Some(expected), "{user}/{password}: {answer:?} in place of {expected}");
        }
        ensure!(session.value("SELECT 5")? == "5", "it goes on");
    }
    Ok(())
}

/// As on a direct connection, in a transaction and outside.
fn own_wait_timeout(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 3)?;
    let mut silent = Session::open(weir.addr(), "test")?;
    let mut in_transaction = Session::open(weir.addr(), "test")?;
    let mut patient = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    silent.run("SET wait_timeout = 4")?;
    in_transaction.run("SET SESSION wait_timeout = 4")?;
    in_transaction.run("BEGIN")?;
    patient.run("SET wait_timeout = 4")?;
    patient.run("SET wait_timeout = 100")?;
    other.ping()?;
    std::thread::sleep(Duration::from_millis(1500));
    silent.ping()?.done()?;
    std::thread::sleep(Duration::from_secs(3));
    silent.ping()?.done()?;
    for (name, session) in [("silent", &mut silent), ("in a transaction", &mut in_transaction)] {
        // A ping would begin the time anew.
        let packets = session.raw().packets();
        packets.set_read_timeout(Duration::from_millis(50))?;
        let what = format!("the session that is {name} is closed");
        eventually(&what, Duration::from_secs(30), || {
            while packets.read_packet().is_ok() {}
            Ok(packets.is_closed())
        })?;
    }
    ensure!(patient.value("SELECT 1")? == "1" && other.value("SELECT 1")? == "1", "others are there");
    Ok(())
}

fn reset_connection(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    for pinned in [false, true] {
        session.run("SET SESSION wait_timeout = 4321, sql_mode = 'ANSI_QUOTES', NAMES latin1")?;
        let statement = session.prepare("SELECT 1")?;
        if pinned {
            session.run("SET @mine = 1")?;
            session.run("CREATE TEMPORARY TABLE mine (id INT)")?;
            session.run("SELECT GET_LOCK('reset_connection', 1)")?;
            session.run("BEGIN")?;
            session.run("INSERT INTO t VALUES (1)")?;
        }
        session.reset()?.done()?;
        let rows = session.rows(
            "SELECT DATABASE(), @mine, @@wait_timeout = @@global.wait_timeout, \
             @@sql_mode = @@global.sql_mode, @@character_set_client, IS_FREE_LOCK('reset_connection')",
        )?;
        let wanted = [[schema.as_str(), "NULL", "1", "1", "utf8mb4", "1"]];
        ensure!(rows == wanted, "pinned {pinned}: {rows:?}");
        session.refused("SELECT * FROM mine", 1146)?;
        let count = session.value("SELECT COUNT(*) FROM t")?;
        ensure!(count == "0", "pinned {pinned}: the transaction was not rolled back");
        let stale = session.execute(&statement, &[])?;
        ensure!(stale.error() == Some(1243), "pinned {pinned}: a statement of before: {stale:?}");
    }
    Ok(())
}

fn without_newer_capabilities(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    // Whether a server has the first capability only tells MySQL from MariaDB.
    let all = Login::new(Account::APP).schema(&schema).with(Capabilities::SESSION_TRACK);
    let all = all.without(Capabilities::LONG_PASSWORD);
    let logins = [
        ("everything", all.clone()),
        ("without DEPRECATE_EOF", all.clone().without(Capabilities::DEPRECATE_EOF)),
        ("without SESSION_TRACK", all.clone().without(Capabilities::SESSION_TRACK)),
        ("without both", all.clone().without(Capabilities::SESSION_TRACK | Capabilities::DEPRECATE_EOF)),
        ("without PLUGIN_AUTH", Login { plugin: None, ..all.clone() }.without(Capabilities::PLUGIN_AUTH)),
        ("without TRANSACTIONS", all.without(Capabilities::TRANSACTIONS)),
    ];
    let node = env.cluster()?.node(1).addr();
    for (what, login) in logins {
        let mut answers = Vec::new();
        for server in [weir.addr(), node] {
            let mut session = Session::with(server, &login)?;
            let mut seen = Vec::new();
            for sql in [
                "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, word VARCHAR(20))",
                "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
                "SELECT id, word FROM t ORDER BY id FOR UPDATE",
                "SET autocommit = 0",
                "SELECT * FROM t WHERE id = 77 FOR UPDATE",
                "USE test",
                "nonsense",
            ] {
                seen.push(session.query(sql)?);
            }
            let statement = session.prepare("SELECT ?, 'b' UNION SELECT 2, NULL")?;
            seen.push(session.execute(&statement, &[Param::Int(1)])?);
            answers.push(seen);
        }
        let [through, direct] = answers.as_slice() else { return Err("two servers".into()) };
        for (at, (through, direct)) in through.iter().zip(direct).enumerate() {
            ensure!(through == direct, "{what}, step {at}:\n{through:?}\ninstead of\n{direct:?}");
        }
    }
    Ok(())
}

fn collations(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let node = env.cluster()?.node(1).addr();
    let sql = "SELECT @@character_set_client, @@character_set_connection, @@character_set_results, \
               @@collation_connection";
    // 255 is what MySQL 8's clients ask for (utf8mb4_0900_ai_ci) and MariaDB does not know; 250 and 0 are nothing.
    for id in [45, 8, 33, 46, 47, 63, 83, 192, 224, 28, 13, 1, 255, 250, 0] {
        let login = Login { collation: id, ..Login::new(Account::APP) };
        let through = Session::with(weir.addr(), &login)?.rows(sql)?;
        let direct = Session::with(node, &login)?.rows(sql)?;
        ensure!(through == direct, "collation {id}: {through:?} instead of {direct:?}");
    }
    Ok(())
}

fn character_sets_that_no_client_can_have(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let node = env.cluster()?.node(1).addr();
    // ucs2_general_ci, utf16_general_ci, utf16le_general_ci, utf32_general_ci, ucs2_unicode_ci
    for id in [35, 54, 56, 60, 128] {
        let login = Login { collation: id, ..Login::new(Account::APP) };
        let through = RawClient::connect(weir.addr())?.authenticate(&login)?.to_string();
        let direct = RawClient::connect(node)?.authenticate(&login)?.to_string();
        ensure!(through == direct, "collation {id}: {through} instead of {direct}");
    }
    Ok(())
}

fn greeting(env: &Env) -> CaseResult {
    let server = RawClient::connect(env.cluster()?.node(1).addr())?.greeting().version.clone();
    let weir = env.weir(|_| {})?;
    // Until the first server has answered the monitor there is nothing to follow.
    Session::open(weir.addr(), "test")?.value("SELECT 1")?;
    // Each worker learns it in its turn.
    eventually(&format!("clients are greeted with {server}"), Duration::from_secs(20), || {
        Ok(RawClient::connect(weir.addr())?.greeting().version == server)
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    let (id, told) = (session.id().to_string(), session.value("SELECT CONNECTION_ID()")?);
    ensure!(id == told && id != "0", "the greeting says {id}, CONNECTION_ID() {told}");

    let weir = env.weir(|config| {
        config.variable("server_version", "8.0.36");
    })?;
    let version = RawClient::connect(weir.addr())?.greeting().version.clone();
    ensure!(version == "8.0.36", "{version} in spite of server_version");
    Ok(())
}

fn unknown_schema(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let node = env.cluster()?.node(1);
    let login = Login::new(Account::APP).schema("no_such_schema");
    // As long as there is no writer, nobody can be asked.
    Session::open(weir.addr(), "test")?.run("DO 1")?;
    let told = |server| -> Result<_, Box<dyn std::error::Error>> {
        let mut client = RawClient::connect(server)?;
        let packet = client.authenticate(&login)?;
        ensure!(client.packets().is_closed(), "still open after {packet}");
        Ok(packet)
    };
    let (here, there) = (told(weir.addr())?, told(node.addr())?);
    ensure!(here == there && here.err()?.code == 1049, "{here} through Weir, {there} directly");
    // Schemas that are there are asked for once, and one that is dropped is noticed by the statement at the latest.
    let schema = env.schema()?;
    for _ in 0..5 {
        let mut session = Session::open(weir.addr(), &schema)?;
        ensure!(session.value("SELECT DATABASE()")? == schema, "in another schema");
    }
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run(&format!("DROP DATABASE {schema}"))?;
    // COM_CHANGE_USER is a login, too.
    let mut session = Session::open(weir.addr(), "test")?;
    let answer = session.change_user(Account::APP2, "no_such_schema")?;
    ensure!(answer.error() == Some(1049), "COM_CHANGE_USER: {answer:?}");
    ensure!(session.ping().is_err(), "open after a COM_CHANGE_USER that failed");
    // No server can be asked: then the login is good, and the first statement says what is wrong.
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(env.free_address()?, 1, &[]).user(Account::APP, 1, &[]);
    config.variable("connect_timeout_server_max", 500).variable("threads", 1);
    let weir = env.weir_with(&config)?;
    let mut session = Session::with(weir.addr(), &login)?;
    session.refused("SELECT 1", 9001)?;
    Ok(())
}
