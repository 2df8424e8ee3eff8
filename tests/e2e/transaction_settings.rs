//! Who says what becomes of a transaction: its hostgroup, or its user, a rule, its session, a comment, each against those
//! before it.

use std::net::SocketAddrV4;

use weir_testkit::wire::Login;
use weir_testkit::{Account, WeirConfig};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use crate::commit_outcome::{ANSWER_LOST, COMMIT, cutting};
use crate::replay::{Place, error_of};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("transaction_settings::a_session_sets_its_own", |env| {
            variables(env.narrow_weir(&[1], 2)?.addr())
        }),
        Case::parallel("transaction_settings::a_session_sets_its_own_on_mysql", |env| {
            variables(env.mysql_weir(2)?.addr())
        }),
        Case::parallel("transaction_settings::replay_where_the_hostgroup_has_none", |env| {
            replays(env, "off")
        }),
        Case::parallel("transaction_settings::no_replay_where_the_hostgroup_has_it", |env| {
            replays(env, "on")
        }),
        Case::parallel("transaction_settings::markers_where_the_hostgroup_has_none", |env| marks(env, "off")),
        Case::parallel("transaction_settings::no_markers_where_the_hostgroup_has_them", |env| {
            marks(env, "marker")
        }),
    ]
}

const WRONG_VALUE: u16 = 1231;
const LOCAL_VARIABLE: u16 = 1228;
const LOST: u16 = 1053;

fn variables(weir: SocketAddrV4) -> CaseResult {
    let mut client = Session::open(weir, "test")?;
    let mut neighbour = Session::open(weir, "test")?;
    let mut shows = |client: &mut Session, expected: [&str; 2], after: &str| -> CaseResult {
        let rows = client.rows("SELECT @@weir_replay, @@session.weir_commit_outcome")?;
        ensure!(rows == [expected], "after {after}: {rows:?}");
        let theirs = neighbour.rows("SELECT @@weir_replay, @@weir_commit_outcome")?;
        ensure!(theirs == [["SAFE", "off"]], "the neighbour has {theirs:?}");
        Ok(())
    };
    shows(&mut client, ["SAFE", "off"], "the login")?;
    for (sql, expected) in [
        ("SET weir_replay = ON", ["ON", "off"]),
        ("SET SESSION weir_commit_outcome = 'Marker', @@weir_replay = 0", ["OFF", "marker"]),
        ("SET @before = @@weir_commit_outcome, weir_replay = 1 + 0", ["ON", "marker"]),
        ("SET weir_replay = CONCAT('o', 'ff'), wait_timeout = 77, weir_commit_outcome = off", ["OFF", "off"]),
        ("SET weir_commit_outcome = @before, weir_replay = TRUE", ["ON", "marker"]),
        ("SET weir_commit_outcome = DEFAULT, weir_replay = DEFAULT", ["SAFE", "off"]),
    ] {
        client.run(sql)?;
        shows(&mut client, expected, sql)?;
    }
    ensure!(client.value("SELECT @@wait_timeout")? == "77", "the rest of a list");
    client.refused("SET weir_replay = 'x'", WRONG_VALUE)?;
    client.refused("SET weir_commit_outcome = 1", WRONG_VALUE)?;
    client.refused("SET wait_timeout = 78, weir_replay = 1, weir_commit_outcome = NULL", WRONG_VALUE)?;
    let message = client.refused("SET GLOBAL weir_replay = ON", LOCAL_VARIABLE)?;
    ensure!(message.contains("weir_hostgroups.transaction_replay"), "{message}");
    shows(&mut client, ["SAFE", "off"], "what was refused")?;
    let set = client.prepare("SET weir_replay = ?, weir_commit_outcome = ?")?;
    client.execute(&set, &[1.into(), "marker".into()])?.done()?;
    shows(&mut client, ["ON", "marker"], "an execution")?;
    client.execute(&set, &["off".into(), "marker".into()])?.done()?;
    shows(&mut client, ["OFF", "marker"], "another one")?;
    let refused = client.execute(&set, &[1.into(), Param::Null])?.error();
    ensure!(refused == Some(WRONG_VALUE), "{refused:?}");
    client.reset()?.done()?;
    shows(&mut client, ["SAFE", "off"], "COM_RESET_CONNECTION")?;
    client.run("SET weir_replay = ON")?;
    client.change_user(Account::APP2, "test")?.done()?;
    shows(&mut client, ["SAFE", "off"], "COM_CHANGE_USER")
}

/// app2, and a rule for statements with a mark, say so.
fn differ(config: &mut WeirConfig, name: &str, word: &str) {
    let attributes = format!(r#"{{"{name}": "{word}"}}"#);
    config.user_column(Account::APP2.user, "attributes", attributes.as_str());
    let rule = [
        ("rule_id", 1.into()),
        ("active", 1.into()),
        ("match_pattern", "of a rule".into()),
        ("attributes", attributes.as_str().into()),
    ];
    config.push("mysql_query_rules", &rule);
}

/// Of sessions: who they are, what they say, how they begin a transaction, and whether that is as the hostgroup has it.
fn cases(name: &str, as_hostgroup: &str, otherwise: &str) -> Vec<(Account, String, String, bool)> {
    let nothing = || "DO 0".to_owned();
    let set = |word: &str| format!("SET {name} = '{word}'");
    let hint = |word: &str| format!("/* {name}={word} */ START TRANSACTION");
    let (app, app2) = (Account::APP, Account::APP2);
    vec![
        (app, nothing(), "BEGIN".into(), true),
        (app2, nothing(), "BEGIN".into(), false),
        (app2, set(as_hostgroup), "BEGIN".into(), true),
        (app, set(otherwise), "BEGIN".into(), false),
        (app, "SET autocommit = 0".into(), set(otherwise), false),
        (app, nothing(), "BEGIN /* of a rule */".into(), false),
        (app, set(as_hostgroup), "BEGIN /* of a rule */".into(), true),
        // It is the transaction's first statement, and this one is none of it.
        (app, "SET autocommit = 0".into(), "UPDATE t SET id = id WHERE id = 0 /* of a rule */".into(), false),
        (app, "SET autocommit = 0".into(), "DO 'of a rule'".into(), true),
        (app, set(as_hostgroup), hint(otherwise), false),
        (app2, nothing(), hint(as_hostgroup), true),
    ]
}

fn replays(env: &Env, replay: &str) -> CaseResult {
    let is_on = replay == "on";
    let (as_hostgroup, otherwise) = if is_on { ("on", "off") } else { ("off", "on") };
    let place = Place::configured(env, replay, "off", |config| differ(config, "weir_replay", otherwise))?;
    let begin = |account: Account| -> Result<Session, Box<dyn std::error::Error>> {
        Ok(Session::with(place.weir.addr(), &Login::new(account).schema(&place.schema))?)
    };
    let goes_on = |client: &mut Session, is_expected: bool, what: &str| -> CaseResult {
        client.run("INSERT INTO child VALUES (1, 'first')")?;
        place.kill()?;
        let told = client.query("INSERT INTO child VALUES (2, 'second')")?.error();
        ensure!(told == (!is_expected).then_some(LOST), "{what}: {told:?}");
        if is_expected {
            client.run("COMMIT")?;
            client.run("DELETE FROM child")?;
            client.run("COMMIT")?;
        }
        Ok(())
    };
    for (account, said, begins, is_as_hostgroup) in cases("weir_replay", as_hostgroup, otherwise) {
        let mut client = begin(account)?;
        client.run(&said)?;
        client.run(&begins)?;
        let what = format!("{} {said}; {begins}", account.user);
        goes_on(&mut client, is_as_hostgroup == is_on, &what)?;
    }
    // What is said in an open transaction is for the next one.
    let mut client = begin(Account::APP)?;
    client.run("SET autocommit = 0")?;
    client.run("INSERT INTO child VALUES (3, 'third')")?;
    client.run(&format!("SET weir_replay = {otherwise}"))?;
    goes_on(&mut client, is_on, "an open transaction")?;
    let mut client = begin(Account::APP)?;
    client.run("BEGIN")?;
    client.run(&format!("SET weir_replay = {otherwise}"))?;
    client.run("COMMIT")?;
    client.run("BEGIN")?;
    goes_on(&mut client, !is_on, "the next one")
}

fn marks(env: &Env, of_hostgroup: &str) -> CaseResult {
    let is_on = of_hostgroup == "marker";
    let otherwise = if is_on { "off" } else { "marker" };
    let (weir, forwarder, _, schema) = cutting(env, ANSWER_LOST, of_hostgroup, "off", |config| {
        differ(config, "weir_commit_outcome", otherwise);
    })?;
    for (account, said, begins, is_as_hostgroup) in cases("weir_commit_outcome", of_hostgroup, otherwise) {
        let what = format!("{} {said}; {begins}", account.user);
        let mut client = Session::with(weir.addr(), &Login::new(account).schema(&schema))?;
        client.run(&said)?;
        client.run(&begins)?;
        client.run("INSERT INTO t (word) VALUES ('x')")?;
        let cuts = forwarder.cuts();
        let told = error_of(&client.query(COMMIT)?);
        ensure!(forwarder.cuts() == cuts + 1, "{what}: the way is whole");
        let is_known = told.is_none();
        ensure!(is_known == (is_as_hostgroup == is_on), "{what}: {told:?}");
        ensure!(told.is_none_or(|(_, sqlstate, _)| sqlstate == "08007"), "{what}: another error");
    }
    Ok(())
}
