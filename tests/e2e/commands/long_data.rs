//! COM_STMT_SEND_LONG_DATA: values ahead of their execution, of any size.

use weir_protocol::command::{Command, StmtExecute, StmtLongData};
use weir_protocol::frame;
use weir_protocol::resultset::ColumnType;
use weir_testkit::TestkitError;
use weir_tests::session::{Answer, Prepared};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::ask;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("commands::long_data_in_pieces", in_pieces),
        Case::parallel("commands::long_data_that_is_more_than_is_kept", more_than_kept),
        Case::parallel("commands::long_data_of_two_statements_of_one_text", of_two_statements),
        Case::parallel("commands::long_data_that_is_wrong_is_told_at_the_execution", wrong),
        Case::parallel("commands::long_data_is_dropped_by_a_reset", dropped),
        Case::parallel("commands::long_data_holds_no_connection_unless_it_must", holds_no_connection),
    ]
}

const SELECT: &str = "SELECT LENGTH(?), MD5(?)";

pub(crate) fn send(
    session: &mut Session,
    statement: &Prepared,
    param: u16,
    data: &[u8],
) -> Result<(), TestkitError> {
    let mut payload = Vec::with_capacity(data.len() + StmtLongData::LEN);
    StmtLongData { stmt_id: statement.id, param }.write(&mut payload);
    payload.extend_from_slice(data);
    let mut bytes = Vec::new();
    frame::write_packet(&mut bytes, &mut 0, &payload);
    session.raw().packets().write_bytes(&bytes)
}

/// Executes with two parameters that were sent as long data.
pub(crate) fn execute(session: &mut Session, statement: &Prepared) -> Result<Answer, TestkitError> {
    let mut payload = Vec::new();
    StmtExecute { stmt_id: statement.id, flags: 0, iteration_count: 1 }.write(&mut payload);
    payload.extend_from_slice(&[0, 1, ColumnType::LONG_BLOB.0, 0, ColumnType::LONG_BLOB.0, 0]);
    session.raw().send_command(&payload)?;
    session.results()
}

/// The same data, through Weir and directly.
fn compare(env: &Env, pieces: &[usize]) -> CaseResult {
    let (weir, node) = (env.weir(|_| {})?, env.cluster()?.node(1));
    let mut told = Vec::new();
    for server in [weir.addr(), node.addr()] {
        let mut session = Session::open(server, "test")?;
        let statement = session.prepare(SELECT)?;
        for round in 0..2_u8 {
            for (number, size) in (0_u8..).zip(pieces) {
                let data = vec![b'a' + round * 3 + number % 20; *size];
                send(&mut session, &statement, 0, &data)?;
                send(&mut session, &statement, 1, &data)?;
            }
            told.push(execute(&mut session, &statement)?.binary_rows()?);
        }
        ensure!(session.value("SELECT 'in step'")? == "in step", "out of step");
    }
    let total: usize = pieces.iter().sum();
    ensure!(told[0][0][0] == total.to_string(), "{:?} instead of {total}", told[0]);
    ensure!(told[..2] == told[2..], "{told:?}");
    Ok(())
}

fn in_pieces(env: &Env) -> CaseResult {
    compare(env, &[5, 0, 1, 3000, 100_000])?;
    compare(env, &[0])
}

fn more_than_kept(env: &Env) -> CaseResult {
    // Many pieces that are kept, and then not; one over the limit; one of several packets; some behind it.
    compare(env, &[60_000; 40])?;
    compare(env, &[1_500_000, 10])?;
    compare(env, &[100, 20_000_000, 3, 1_048_570])
}

fn of_two_statements(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let statements = [session.prepare(SELECT)?, session.prepare(SELECT)?, session.prepare(SELECT)?];
    for size in [10, 3_000_000] {
        for (number, statement) in statements[..2].iter().enumerate() {
            for param in 0..2 {
                send(&mut session, statement, param, &vec![b'x'; size + number])?;
            }
        }
        let rows = session.execute(&statements[2], &["third".into(), "third".into()])?.binary_rows()?;
        ensure!(rows[0][0] == "5", "the third: {rows:?}");
        for (number, statement) in statements[..2].iter().enumerate().rev() {
            let rows = execute(&mut session, statement)?.binary_rows()?;
            ensure!(rows[0][0] == (size + number).to_string(), "statement {number}: {rows:?}");
        }
    }
    Ok(())
}

fn wrong(env: &Env) -> CaseResult {
    let (weir, node) = (env.weir(|_| {})?, env.cluster()?.node(1));
    let mut told = Vec::new();
    for server in [weir.addr(), node.addr()] {
        let mut session = Session::open(server, "test")?;
        let statement = session.prepare(SELECT)?;
        // A parameter that there is not, also behind good data; a statement that there is not.
        send(&mut session, &statement, 0, b"good")?;
        send(&mut session, &statement, 2, b"bad")?;
        send(&mut session, &Prepared { id: 99, ..statement.clone() }, 0, b"nobody's")?;
        told.push(execute(&mut session, &statement)?);
        told.push(execute(&mut session, &statement)?);
        let reset = [&[Command::StmtReset.code()][..], &statement.id.to_le_bytes()].concat();
        ask(&mut session, &reset)?;
        told.push(session.execute(&statement, &["a".into(), "b".into()])?);
        told.push(session.query("SELECT 'in step'")?);
    }
    let (through, direct) = told.split_at(4);
    ensure!(through[0].error() == Some(1210), "{through:?}");
    for (here, there) in through.iter().zip(direct) {
        ensure!(here.error() == there.error(), "{here:?} through Weir, {there:?} directly");
        ensure!(here.binary_rows() == there.binary_rows(), "{here:?} through Weir, {there:?} directly");
    }
    Ok(())
}

fn dropped(env: &Env) -> CaseResult {
    let weir = crate::prepared::weir_with_connections(env, 1, 1)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    for size in [100, 2_000_000] {
        let statement = session.prepare(SELECT)?;
        send(&mut session, &statement, 0, &vec![b'x'; size])?;
        ask(&mut session, &[&[Command::StmtReset.code()][..], &statement.id.to_le_bytes()].concat())?;
        ensure!(other.value("SELECT 'free'")? == "free", "not free after a reset");
        let rows = session.execute(&statement, &["four".into(), "four".into()])?.binary_rows()?;
        ensure!(rows[0][0] == "4", "after COM_STMT_RESET: {rows:?}");
        send(&mut session, &statement, 0, &vec![b'x'; size])?;
        session.close(&statement)?;
        ensure!(other.value("SELECT 'free'")? == "free", "not free after closing");
        let again = session.prepare(SELECT)?;
        send(&mut session, &again, 0, &vec![b'y'; size])?;
        session.reset()?.done()?;
        ensure!(other.value("SELECT 'free'")? == "free", "not free after COM_RESET_CONNECTION");
    }
    Ok(())
}

fn holds_no_connection(env: &Env) -> CaseResult {
    let weir = crate::prepared::weir_with_connections(env, 1, 1)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    let statement = session.prepare(SELECT)?;
    send(&mut session, &statement, 0, &[b'x'; 900_000])?;
    ensure!(other.value("SELECT 'at once'")? == "at once", "kept data holds the connection");
    send(&mut session, &statement, 1, &[b'x'; 900_000])?;
    // From here on there is a connection that the rest went to.
    other.send_query("SELECT 'later'")?;
    let rows = execute(&mut session, &statement)?.binary_rows()?;
    ensure!(rows[0][0] == "900000", "{rows:?}");
    let value = other.results()?.value()?;
    ensure!(value == "later", "{value}");
    Ok(())
}
