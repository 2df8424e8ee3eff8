//! COM_STATISTICS, COM_SET_OPTION, COM_FIELD_LIST, COM_PROCESS_INFO, COM_PROCESS_KILL, and those that do not pass.

use std::thread;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::Command;
use weir_testkit::Account;
use weir_testkit::wire::Login;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::ask;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("commands::statistics_are_weirs_own", statistics),
        Case::parallel("commands::multi_statements_are_switched_on_and_off", multi_statements),
        Case::parallel(
            "commands::multi_statements_are_switched_in_a_transaction",
            multi_statements_on_a_lease,
        ),
        Case::parallel("commands::the_columns_of_a_table", field_list),
        Case::parallel("commands::process_info_is_show_processlist", process_info),
        Case::parallel("commands::process_kill_ends_a_session", process_kill),
        Case::parallel("commands::what_is_about_a_server_itself_is_refused", refused),
    ]
}

/// With and without the OK packets that end results today.
fn logins(schema: &str) -> [Login; 2] {
    // Answers carry it along, and MariaDB does not offer it.
    let login = Login::new(Account::APP).schema(schema).without(Capabilities::LONG_PASSWORD);
    [login.clone(), login.without(Capabilities::DEPRECATE_EOF)]
}

fn statistics(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let _other = Session::open(weir.addr(), "test")?;
    session.run("DO 1")?;
    session.raw().send_command(&[Command::Statistics.code()])?;
    let packet = session.raw().packets().read_packet()?;
    let text = String::from_utf8_lossy(&packet.payload).into_owned();
    let is_right = packet.seq == 1
        && text.starts_with("Uptime: ")
        && text.contains("  Threads: 2  Questions: ")
        && text.contains("  Queries per second avg: ");
    ensure!(is_right, "{packet}");
    ensure!(session.value("SELECT 'in step'")? == "in step", "out of step");
    Ok(())
}

fn multi_statements(env: &Env) -> CaseResult {
    let (weir, node) = (env.weir(|_| {})?, env.cluster()?.node(1));
    for login in logins("test") {
        let mut through = Session::with(weir.addr(), &login)?;
        let mut direct = Session::with(node.addr(), &login)?;
        for (option, text) in [
            (&[0, 0][..], "SELECT 1; SELECT 2"),
            (&[1, 0], "SELECT 1; SELECT 2"),
            (&[0, 0], "SELECT 'once more'; DO 1"),
            (&[7, 0], "SELECT 'still on'; DO 1"),
        ] {
            let payload = [&[Command::SetOption.code()], option].concat();
            let (here, there) = (ask(&mut through, &payload)?, ask(&mut direct, &payload)?);
            ensure!(here == there, "option {option:?}: {here:?} through Weir, {there:?} directly");
            let (here, there) = (through.query(text)?, direct.query(text)?);
            ensure!(here == there, "{text} after {option:?}: {here:?} through Weir, {there:?} directly");
        }
    }
    Ok(())
}

fn multi_statements_on_a_lease(env: &Env) -> CaseResult {
    let weir = crate::prepared::weir_with_connections(env, 1, 1)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    session.run("BEGIN")?;
    ask(&mut session, &[Command::SetOption.code(), 0, 0])?;
    let answer = session.query("SELECT 1; SELECT 2")?;
    ensure!(answer.results.len() == 2, "in the transaction: {answer:?}");
    session.run("COMMIT")?;
    // The only connection goes to one who may not do that.
    other.refused("SELECT 1; SELECT 2", 1064)?;
    let answer = session.query("SELECT 3; SELECT 4")?;
    ensure!(answer.results.len() == 2, "on another connection: {answer:?}");
    ask(&mut session, &[Command::SetOption.code(), 1, 0])?;
    session.refused("SELECT 1; SELECT 2", 1064)?;
    Ok(())
}

fn field_list(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let node = env.cluster()?.node(1);
    node.root_query(&format!(
        "CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(20) DEFAULT 'none', \
         at TIMESTAMP NULL DEFAULT NULL)"
    ))?;
    for login in logins(&schema) {
        let mut through = Session::with(weir.addr(), &login)?;
        let mut direct = Session::with(node.addr(), &login)?;
        for arguments in ["t\0", "t\0w%", "t\0nothing", "no_such_table\0%", ""] {
            let payload = [&[Command::FieldList.code()], arguments.as_bytes()].concat();
            let (here, there) = (ask(&mut through, &payload)?, ask(&mut direct, &payload)?);
            ensure!(here == there, "{arguments:?}: {here:?} through Weir, {there:?} directly");
        }
        ensure!(through.value("SELECT 'in step'")? == "in step", "out of step");
    }
    Ok(())
}

fn process_info(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.raw().send_command(&[Command::ProcessInfo.code()])?;
    let answer = session.results()?;
    let names = answer.column_names();
    ensure!(names.first().is_some_and(|name| name == "Id"), "columns {names:?}");
    ensure!(!answer.rows()?.is_empty(), "nobody is connected");
    Ok(())
}

fn process_kill(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut killer = Session::open(weir.addr(), "test")?;
    // Some of them belong to the other worker.
    for round in 0..4 {
        let mut victim = Session::open(weir.addr(), "test")?;
        victim.run("BEGIN")?;
        let payload = [&[Command::ProcessKill.code()][..], &victim.id().to_le_bytes()].concat();
        let answer = ask(&mut killer, &payload)?;
        ensure!(answer[0].first() == Some(0), "round {round}: {answer:?}");
        thread::sleep(Duration::from_millis(200));
        ensure!(victim.ping().is_err(), "round {round}: still there");
        // Nobody has the id now.
        let answer = ask(&mut killer, &payload)?;
        let error = answer[0].err()?;
        let words = format!("Unknown thread id: {}", victim.id());
        ensure!(error.code == 1094 && error.message == words.as_bytes(), "round {round}: {answer:?}");
    }
    Ok(())
}

fn refused(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let cases = [
        (Command::Shutdown, 1227),
        (Command::Refresh, 1227),
        (Command::Debug, 1227),
        (Command::BinlogDump, 1227),
        (Command::BinlogDumpGtid, 1227),
        (Command::RegisterSlave, 1227),
        (Command::CreateDb, 1047),
        (Command::DropDb, 1047),
        (Command::TableDump, 1047),
        (Command::Sleep, 1047),
        (Command::Time, 1047),
        (Command::Daemon, 1047),
        (Command::StmtBulkExecute, 1047),
        (Command::Multi, 1047),
    ];
    for (command, code) in cases {
        let answer = ask(&mut session, &[&[command.code()][..], &[0; 8]].concat())?;
        let error = answer[0].err()?;
        ensure!(error.code == code && answer[0].seq == 1, "{}: {answer:?}", command.name());
    }
    ensure!(session.value("SELECT 'in step'")? == "in step", "out of step");
    Ok(())
}
