//! `weir_consistency` and `weir_token` as clients see them: variables of their sessions that no server knows.

use std::error::Error;
use std::net::SocketAddrV4;
use std::process::Command;
use std::time::Duration;

use weir_testkit::{Account, Family, Weir, WeirConfig, hostgroup};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::replication;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("consistency_variables::a_session_sets_its_own_level", |env| {
            level(env.narrow_weir(&[1], 2)?.addr())
        }),
        Case::parallel("consistency_variables::a_session_sets_its_own_level_on_mysql", |env| {
            level(env.mysql_weir(2)?.addr())
        }),
        Case::parallel("consistency_variables::prepared_statements_set_and_show_the_level", |env| {
            prepared(env.narrow_weir(&[1], 1)?.addr())
        }),
        Case::parallel("consistency_variables::prepared_statements_set_and_show_the_level_on_mysql", |env| {
            prepared(env.mysql_weir(1)?.addr())
        }),
        Case::parallel("consistency_variables::the_level_is_the_users_or_the_hostgroups", defaults),
        Case::parallel("consistency_variables::the_command_line_shows_them", command_line),
        Case::parallel("consistency_variables::a_token_is_good_at_another_weir", token),
        Case::serial("consistency_variables::a_token_of_another_history_is_refused", other_history),
    ]
}

const REFUSED_BY_WEIR: u16 = 1105;
const UNKNOWN_VARIABLE: u16 = 1193;
const LOCAL_VARIABLE: u16 = 1228;
const WRONG_VALUE: u16 = 1231;
const WRONG_TYPE: u16 = 1232;
const PATIENCE: Duration = Duration::from_secs(30);

const LEVEL: &str = "SELECT @@weir_consistency";
const TOKEN: &str = "SELECT @@weir_token";

fn shows(session: &mut Session, expected: &str, after: &str) -> CaseResult {
    let level = session.value(LEVEL)?;
    ensure!(level == expected, "after {after} the level is {level}, not {expected}");
    Ok(())
}

fn level(weir: SocketAddrV4) -> CaseResult {
    let mut client = Session::open(weir, "test")?;
    let mut neighbour = Session::open(weir, "test")?;
    shows(&mut client, "session", "the login")?;
    for (sql, expected) in [
        ("SET weir_consistency = 'global'", "global"),
        ("SET SESSION weir_consistency = eventual", "eventual"),
        ("SET @@weir_consistency = 'Strict'", "strict"),
        ("set /* fresh */ @@session.WEIR_CONSISTENCY := \"GLOBAL\" /* from now on */", "global"),
        ("SET LOCAL weir_consistency = CONCAT('st', 'rict')", "strict"),
        ("SET @level = 'eventual'", "strict"),
        ("SET weir_consistency = @level, @before = @@weir_consistency", "eventual"),
        ("SET weir_consistency = DEFAULT", "session"),
        ("SET wait_timeout = 77, weir_consistency = global, NAMES latin1", "global"),
    ] {
        client.run(sql)?;
        shows(&mut client, expected, sql)?;
    }
    let rows = client
        .rows("SELECT @@wait_timeout, @@character_set_client, @before, @@local.weir_consistency AS c")?;
    ensure!(rows == [["77", "latin1", "strict", "global"]], "{rows:?}");
    let names =
        client.query("SELECT @@weir_consistency, @@session.weir_consistency AS level, 1")?.column_names();
    ensure!(names == ["@@weir_consistency", "level", "1"], "{names:?}");
    shows(&mut neighbour, "session", "nothing of its own")?;

    let message = client.refused("SET weir_consistency = 'x'", WRONG_VALUE)?;
    let begins = message.starts_with("Variable 'weir_consistency' can't be set to the value of 'x'");
    ensure!(begins && message.contains("eventual, session, global and strict"), "{message}");
    client.refused("SET weir_consistency = NULL", WRONG_VALUE)?;
    client.refused("SET weir_consistency = 'strict', no_such_variable = 1", UNKNOWN_VARIABLE)?;
    client.refused("SET wait_timeout = 78, weir_consistency = 'x'", WRONG_VALUE)?;
    let message = client.refused("SET GLOBAL weir_consistency = 'strict'", LOCAL_VARIABLE)?;
    ensure!(message.contains("weir_hostgroups.consistency"), "{message}");
    client.refused("SET STATEMENT weir_consistency = 'strict' FOR SELECT 1", REFUSED_BY_WEIR)?;
    let rows = client.rows("SELECT @@weir_consistency, @@wait_timeout")?;
    ensure!(rows == [["global", "77"]], "what was refused has had an effect: {rows:?}");

    client.reset()?.done()?;
    shows(&mut client, "session", "COM_RESET_CONNECTION")?;
    client.run("SET weir_consistency = strict")?;
    client.run("SET @pins = 1")?;
    client.reset()?.done()?;
    shows(&mut client, "session", "COM_RESET_CONNECTION of a session with a connection")?;
    client.run("SET weir_consistency = strict")?;
    client.change_user(Account::APP2, "test")?.done()?;
    shows(&mut client, "session", "COM_CHANGE_USER")
}

fn prepared(weir: SocketAddrV4) -> CaseResult {
    let mut client = Session::open(weir, "test")?;
    let mut neighbour = Session::open(weir, "test")?;
    let look = client.prepare("SELECT @@weir_consistency, ?")?;
    let set = client.prepare("SET weir_consistency = ?, wait_timeout = 79")?;
    let global = client.prepare("SET @@session.weir_consistency = global")?;
    let default = client.prepare("SET weir_consistency = DEFAULT")?;
    ensure!((look.params, set.params, global.params) == (1, 1, 0), "{look:?} {set:?} {global:?}");
    let mut shows = |client: &mut Session, expected: &str| -> CaseResult {
        let rows = client.execute(&look, &[7.into()])?.binary_rows()?;
        ensure!(rows[0][0] == expected, "{expected} expected: {rows:?}");
        let theirs = neighbour.value(LEVEL)?;
        ensure!(theirs == "session", "the neighbour has {theirs}");
        Ok(())
    };
    shows(&mut client, "session")?;
    client.execute(&global, &[])?.done()?;
    shows(&mut client, "global")?;
    client.execute(&set, &["strict".into()])?.done()?;
    shows(&mut client, "strict")?;
    let refused = client.execute(&set, &["x".into()])?.error();
    ensure!(refused == Some(WRONG_VALUE), "{refused:?}");
    let refused = client.execute(&set, &[Param::Null])?.error();
    ensure!(refused == Some(WRONG_VALUE), "{refused:?}");
    shows(&mut client, "strict")?;
    ensure!(client.value("SELECT @@wait_timeout")? == "79", "the rest of the list");
    client.run("SET weir_consistency = eventual")?;
    shows(&mut client, "eventual")?;
    client.execute(&default, &[])?.done()?;
    shows(&mut client, "session")?;
    let both = client.try_prepare("SET weir_consistency = 'global', no_such_variable = 1")?;
    ensure!(both.is_err(), "a server has not been asked about the rest");
    Ok(())
}

fn defaults(env: &Env) -> CaseResult {
    let weir = env.narrow_weir_with(&[1], 1, |config| {
        let hostgroup_row = [("hostgroup_id", hostgroup::WRITER.into()), ("consistency", "eventual".into())];
        config.push("weir_hostgroups", &hostgroup_row);
        config.user_column(Account::APP2.user, "attributes", r#"{"weir_consistency": "strict"}"#);
    })?;
    let mut client = Session::open(weir.addr(), "test")?;
    shows(&mut client, "eventual", "the hostgroup")?;
    client.change_user(Account::APP2, "test")?.done()?;
    shows(&mut client, "strict", "the user")?;
    client.run("SET weir_consistency = global")?;
    shows(&mut client, "global", "SET")?;
    client.run("SET weir_consistency = DEFAULT")?;
    shows(&mut client, "strict", "SET ... DEFAULT")
}

fn command_line(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let run = |sql: &str| -> Result<String, Box<dyn Error>> {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-uapp", "-papp", "--table", "test"]);
        client.arg(format!("-h{}", weir.addr().ip())).arg(format!("-P{}", weir.addr().port()));
        let output = client.args(["-e", sql]).output()?;
        Ok(String::from_utf8([output.stdout, output.stderr].concat())?)
    };
    let shown = run("SET weir_consistency = 'global'; SELECT @@weir_consistency;")?;
    ensure!(shown.contains("| @@weir_consistency |") && shown.contains("| global             |"), "{shown}");
    let shown = run("SET weir_consistency = 'fresh'")?;
    let expected =
        "ERROR 1231 (42000) at line 1: Variable 'weir_consistency' can't be set to the value of 'fresh'";
    ensure!(shown.contains(expected), "{shown}");
    Ok(())
}

/// The token of a session, once the history is known.
fn token_of(session: &mut Session) -> Result<String, Box<dyn Error>> {
    let mut token = String::new();
    eventually("there is a token", PATIENCE, || {
        token = session.value(TOKEN)?;
        Ok(token != "NULL")
    })?;
    ensure_token(&token)?;
    Ok(token)
}

fn ensure_token(token: &str) -> CaseResult {
    let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    ensure!(token.starts_with("w1-") && is_plain && token.len() <= 200, "{token}");
    Ok(())
}

fn galera(env: &Env) -> Result<Weir, Box<dyn Error>> {
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let weir = env.weir_with(&config)?;
    eventually("it serves", PATIENCE, || {
        Ok(Session::open(weir.addr(), "test").is_ok_and(|mut session| session.run("DO 0").is_ok()))
    })?;
    Ok(weir)
}

fn token(env: &Env) -> CaseResult {
    let (one, two) = (galera(env)?, galera(env)?);
    let schema = env.schema()?;
    let mut writer = Session::open(one.addr(), &schema)?;
    let nothing = token_of(&mut writer)?;
    writer.run("CREATE TABLE written (id INT PRIMARY KEY)")?;
    writer.run("INSERT INTO written VALUES (1)")?;
    let token = token_of(&mut writer)?;
    ensure!(token != nothing, "the write has changed nothing: {token}");
    let set = format!("SET weir_token = '{token}'");
    for weir in [&one, &two] {
        let mut reader = Session::open(weir.addr(), &schema)?;
        reader.run(&set)?;
        let prepared = reader.prepare("SET @@session.weir_token = ?")?;
        reader.execute(&prepared, &[token.as_str().into()])?.done()?;
        reader.run("SET @token = @@weir_token")?;
        reader.run("SET weir_token = @token, wait_timeout = 80")?;
        let handed_on = token_of(&mut reader)?;
        ensure!(handed_on[..19] == token[..19], "{handed_on} is of another history than {token}");
        let look = reader.prepare(TOKEN)?;
        let rows = reader.execute(&look, &[])?.binary_rows()?;
        ensure_token(&rows[0][0])?;
        reader.run(&format!("SET weir_token = '{}'", rows[0][0]))?;
        for (value, code, why) in [
            ("NULL", WRONG_VALUE, "history was not known"),
            ("7", WRONG_TYPE, "Incorrect argument type"),
            ("'something'", WRONG_VALUE, "no token"),
            ("'w2-0-0-0'", WRONG_VALUE, "another version"),
            ("REPEAT('w', 300)", WRONG_VALUE, "longer than 200 bytes"),
            ("'w1-0123456789abcdef-1-1'", WRONG_VALUE, "of another history"),
        ] {
            let message = reader.refused(&format!("SET weir_token = {value}"), code)?;
            ensure!(message.contains(why), "{value}: {message}");
        }
        reader.run("SET weir_token = DEFAULT")?;
        reader.reset()?.done()?;
        reader.run(&set)?;
    }
    Ok(())
}

fn other_history(env: &Env) -> CaseResult {
    let here = galera(env)?;
    let mut galera = Session::open(here.addr(), "test")?;
    let token = token_of(&mut galera)?;
    let servers = env.own_servers(Family::Mariadb, 2, false)?;
    let (one, two) = (replication::weir(env, &servers, false)?, replication::weir(env, &servers, false)?);
    let mut source = Session::open(one.addr(), "test")?;
    source.run("INSERT INTO numbers VALUES (1, 1)")?;
    let theirs = token_of(&mut source)?;
    let mut other = Session::open(two.addr(), "test")?;
    token_of(&mut other)?;
    other.run(&format!("SET weir_token = '{theirs}'"))?;
    for (session, token) in [(&mut other, &token), (&mut galera, &theirs)] {
        let message = session.refused(&format!("SET weir_token = '{token}'"), WRONG_VALUE)?;
        ensure!(message.contains("it is of another history than that of hostgroup"), "{message}");
    }
    Ok(())
}
