//! MariaDB's id -1 for the statement that was prepared last: clients send PREPARE and EXECUTE in one go.

use weir_protocol::command::Command;
use weir_testkit::Account;
use weir_testkit::wire::{Login, RawClient};
use weir_tests::{Case, CaseResult, Env, ensure};

use super::{Place, Twins, as_it_is, mariadb, mysql};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("wire::minus_one_is_the_statement_prepared_last", |env| compare(&mariadb(env)?)),
        Case::parallel("wire::minus_one_is_no_statement_of_mysql", with_mysql),
        Case::parallel("wire::prepare_and_execute_may_come_in_one_go", in_one_go),
    ]
}

const LAST: [u8; 4] = [0xFF; 4];

fn prepare(sql: &str) -> Vec<u8> {
    [&[Command::StmtPrepare.code()], sql.as_bytes()].concat()
}

fn execute_last(parameters: &[u8], flags: u8) -> Vec<u8> {
    [&[Command::StmtExecute.code()], &LAST[..], &[flags, 1, 0, 0, 0], parameters].concat()
}

/// One of the commands whose arguments are an id, and more.
fn with_last(command: Command, more: &[u8]) -> Vec<u8> {
    [&[command.code()], &LAST[..], more].concat()
}

fn compare((weir, server, schema): &Place) -> CaseResult {
    let login = Login::new(Account::APP).schema(schema);
    let mut twins = Twins::open(weir.addr(), *server, &login)?;
    let run = execute_last(&[], 0);
    let ask = |twins: &mut Twins, payloads: &[&[u8]]| -> CaseResult {
        payloads.iter().try_for_each(|payload| twins.ask(payload, as_it_is).map(drop))
    };
    ask(&mut twins, &[&run, &prepare("SELECT 41"), &run, &run, b"\x03SELECT 1", &run])?;
    ask(&mut twins, &[&prepare("SELECT 42"), &run, &prepare("SELEC 43"), &run])?;
    // Not answered.
    let close = with_last(Command::StmtClose, &[]);
    ask(&mut twins, &[&prepare("SELECT 44"), &run])?;
    for client in [&mut twins.through, &mut twins.direct] {
        client.send_command(&close)?;
    }
    ask(&mut twins, &[&run, &prepare("SELECT 45"), &with_last(Command::StmtReset, &[]), &run])?;
    ask(&mut twins, &[&prepare("SELECT ?")])?;
    for client in [&mut twins.through, &mut twins.direct] {
        client.send_command(&with_last(Command::StmtSendLongData, b"\0\0long"))?;
    }
    ask(&mut twins, &[&execute_last(&[0, 1, 0xFC, 0], 0)])?;
    ask(&mut twins, &[&execute_last(b"\0\x01\xFD\0\x05short", 0), &[Command::ResetConnection.code()], &run])?;
    ask(&mut twins, &[&[Command::StmtExecute.code()], &[Command::StmtExecute.code(), 1, 0]])
}

fn with_mysql(env: &Env) -> CaseResult {
    let (weir, _, schema) = mysql(env)?;
    let mut client = RawClient::login(weir.addr(), &Login::new(Account::APP).schema(&schema))?;
    super::answer(&mut client, &prepare("SELECT 1"))?;
    let answer = super::answer(&mut client, &execute_last(&[], 0))?;
    ensure!(answer[0].err()?.code == 1243, "{answer:?}");
    Ok(())
}

/// Also where many sessions share a connection, and where the PREPARE fails.
fn in_one_go(env: &Env) -> CaseResult {
    let weir = crate::prepared::weir_with_connections(env, 1, 1)?;
    let login = Login::new(Account::APP).schema("test");
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(RawClient::login(weir.addr(), &login)?);
    }
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_command(&prepare(&format!("SELECT '{number} of {round}'")))?;
            client.send_command(&execute_last(&[], 0))?;
            client.send_command(&prepare("SELECT FROM"))?;
            client.send_command(&execute_last(&[], 0))?;
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let mut next = || client.packets().read_packet();
            let prepared = [next()?, next()?];
            ensure!(prepared[0].first() == Some(0), "{prepared:?}");
            let result = [next()?, next()?, next()?, next()?];
            let text = format!("{number} of {round}");
            ensure!(result[2].payload.ends_with(text.as_bytes()), "{text}: {result:?}");
            let refused = [next()?, next()?];
            ensure!(refused[0].err()?.code == 1064 && refused[1].err()?.code == 1243, "{refused:?}");
        }
    }
    Ok(())
}
