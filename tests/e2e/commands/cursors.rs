//! Cursors: EXECUTE leaves the rows at the server, and FETCH brings them.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, StmtExecute, StmtFetch};
use weir_protocol::ok::{ErrPacket, OK_HEADER};
use weir_protocol::status::StatusFlags;
use weir_testkit::wire::{Login, Packet};
use weir_testkit::{Account, TestkitError};
use weir_tests::session::Prepared;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::ask;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("commands::rows_come_by_a_cursor", by_cursor),
        Case::parallel("commands::a_cursor_holds_its_connection_and_lets_it_go", holds_and_lets_go),
        Case::parallel("commands::two_cursors_over_the_same_text", two_cursors),
        Case::parallel("commands::a_cursor_among_other_statements", among_others),
    ]
}

fn execute(statement: &Prepared, flags: u8) -> Vec<u8> {
    let mut payload = Vec::new();
    StmtExecute { stmt_id: statement.id, flags, iteration_count: 1 }.write(&mut payload);
    payload
}

fn fetch(session: &mut Session, stmt_id: u32, rows: u32) -> Result<Vec<Packet>, TestkitError> {
    let mut payload = Vec::new();
    StmtFetch { stmt_id, rows }.write(&mut payload);
    session.raw().send_command(&payload)?;
    until_end(session)
}

/// Rows up to the packet behind them.
fn until_end(session: &mut Session) -> Result<Vec<Packet>, TestkitError> {
    let mut packets = Vec::new();
    loop {
        let packet = session.raw().packets().read_packet()?;
        let is_last = matches!(packet.first(), Some(0xFE | ErrPacket::HEADER));
        packets.push(packet);
        if is_last {
            return Ok(packets);
        }
    }
}

/// Executes with a cursor, and reads whatever answers: with a cursor there are no rows.
fn open(session: &mut Session, statement: &Prepared) -> Result<Vec<Packet>, TestkitError> {
    session.raw().send_command(&execute(statement, StmtExecute::CURSOR_TYPE_READ_ONLY))?;
    let mut packets = vec![session.raw().packets().read_packet()?];
    if matches!(packets[0].first(), Some(OK_HEADER | ErrPacket::HEADER)) {
        return Ok(packets);
    }
    for _ in 0..packets[0].first().unwrap_or(0) {
        packets.push(session.raw().packets().read_packet()?);
    }
    if !session.raw().capabilities().contains(Capabilities::DEPRECATE_EOF) {
        let eof = session.raw().packets().read_packet()?;
        let has_cursor = eof.eof()?.status.contains(StatusFlags::CURSOR_EXISTS);
        packets.push(eof);
        if has_cursor {
            return Ok(packets);
        }
    }
    packets.extend(until_end(session)?);
    Ok(packets)
}

fn status(session: &mut Session, packets: &[Packet]) -> Result<StatusFlags, TestkitError> {
    let last = packets.last().ok_or_else(|| TestkitError::Protocol("no packet".to_owned()))?;
    if session.raw().capabilities().contains(Capabilities::DEPRECATE_EOF) {
        Ok(last.ok(session.raw().capabilities())?.status)
    } else {
        Ok(last.eof()?.status)
    }
}

fn numbers(env: &Env, count: usize) -> Result<String, Box<dyn std::error::Error>> {
    let schema = env.schema()?;
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, word VARCHAR(20))"))?;
    let values: Vec<String> = (1..=count).map(|id| format!("({id}, 'word {id}')")).collect();
    node.root_query(&format!("INSERT INTO {schema}.t VALUES {}", values.join(", ")))?;
    env.wait_applied()?;
    Ok(schema)
}

fn by_cursor(env: &Env) -> CaseResult {
    let (weir, node, schema) = (env.weir(|_| {})?, env.cluster()?.node(1), numbers(env, 25)?);
    let login = Login::new(Account::APP).schema(&schema);
    for login in [login.clone(), login.without(Capabilities::DEPRECATE_EOF)] {
        let mut told: Vec<Vec<Vec<Packet>>> = Vec::new();
        for server in [weir.addr(), node.addr()] {
            let mut session = Session::with(server, &login)?;
            let mut said = Vec::new();
            let texts = [
                "SELECT id, word FROM t ORDER BY id",
                "SELECT id FROM t WHERE id < 0",
                "UPDATE t SET word = word WHERE id < 0",
                "SHOW TABLES",
            ];
            for text in texts {
                let Ok(statement) = session.try_prepare(text)? else { continue };
                said.push(open(&mut session, &statement)?);
                for rows in [7, 0, 100, 1] {
                    said.push(fetch(&mut session, statement.id, rows)?);
                }
                // Opened again, and left by a reset, by an execution without one, and by closing.
                said.push(open(&mut session, &statement)?);
                said.push(fetch(&mut session, statement.id, 2)?);
                let reset = [&[Command::StmtReset.code()][..], &statement.id.to_le_bytes()].concat();
                said.push(ask(&mut session, &reset)?);
                said.push(fetch(&mut session, statement.id, 2)?);
                said.push(open(&mut session, &statement)?);
                session.raw().send_command(&execute(&statement, 0))?;
                let plain = session.results()?;
                said.push(fetch(&mut session, statement.id, 2)?);
                ensure!(plain.error().is_none(), "{text}: {plain:?}");
                said.push(open(&mut session, &statement)?);
                session.close(&statement)?;
                said.push(ask(&mut session, &reset)?);
            }
            said.push(fetch(&mut session, 7777, 1)?);
            told.push(said);
        }
        // Errors name the statement's id, and servers count otherwise.
        let is_same = |here: &[Packet], there: &[Packet]| {
            let code = |packets: &[Packet]| packets.last().and_then(|last| Some(last.err().ok()?.code));
            here == there || (code(here).is_some() && code(here) == code(there))
        };
        ensure!(told[0].len() == told[1].len(), "{} and {} replies", told[0].len(), told[1].len());
        for (at, (here, there)) in told[0].iter().zip(&told[1]).enumerate() {
            ensure!(is_same(here, there), "reply {at}: {here:?} through Weir, {there:?} directly");
        }
    }
    Ok(())
}

fn holds_and_lets_go(env: &Env) -> CaseResult {
    let (weir, schema) = (crate::prepared::weir_with_connections(env, 1, 1)?, numbers(env, 10)?);
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    let statement = session.prepare("SELECT id FROM t ORDER BY id")?;
    for way in ["last row", "reset", "close", "reset of the connection"] {
        let statement = if way == "close" { session.prepare("SELECT id FROM t")? } else { statement.clone() };
        let opened = open(&mut session, &statement)?;
        ensure!(status(&mut session, &opened)?.contains(StatusFlags::CURSOR_EXISTS), "{opened:?}");
        fetch(&mut session, statement.id, 3)?;
        // The only connection is the cursor's now.
        other.send_query("SELECT 'waits'")?;
        std::thread::sleep(std::time::Duration::from_millis(50));
        session.value("SELECT COUNT(*) FROM t")?;
        fetch(&mut session, statement.id, 3)?;
        match way {
            "last row" => {
                let rest = fetch(&mut session, statement.id, 100)?;
                ensure!(status(&mut session, &rest)?.contains(StatusFlags::LAST_ROW_SENT), "{rest:?}");
            }
            "reset" => {
                ask(&mut session, &[&[Command::StmtReset.code()][..], &statement.id.to_le_bytes()].concat())?;
            }
            "close" => session.close(&statement)?,
            _ => {
                session.reset()?.done()?;
            }
        }
        let value = other.results()?.value()?;
        ensure!(value == "waits", "after {way}: {value}");
    }
    Ok(())
}

fn two_cursors(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, numbers(env, 10)?);
    let mut session = Session::open(weir.addr(), &schema)?;
    let text = "SELECT id FROM t ORDER BY id";
    let statements = [session.prepare(text)?, session.prepare(text)?];
    open(&mut session, &statements[0])?;
    fetch(&mut session, statements[0].id, 4)?;
    open(&mut session, &statements[1])?;
    // Each goes on from where it was, and an execution without a cursor disturbs neither.
    let third = session.prepare(text)?;
    let rows = session.execute(&third, &[])?.binary_rows()?;
    ensure!(rows.len() == 10, "{rows:?}");
    for (statement, left) in statements.iter().zip([6, 10]) {
        let packets = fetch(&mut session, statement.id, 100)?;
        ensure!(packets.len() == left + 1, "{} rows instead of {left}", packets.len() - 1);
    }
    Ok(())
}

fn among_others(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, numbers(env, 10)?);
    let mut session = Session::open(weir.addr(), &schema)?;
    let statement = session.prepare("SELECT id FROM t ORDER BY id")?;
    for in_transaction in [false, true] {
        if in_transaction {
            session.run("START TRANSACTION")?;
        }
        open(&mut session, &statement)?;
        fetch(&mut session, statement.id, 1)?;
        // Writes go on, also to what the cursor reads: its rows are those of before.
        session.run("INSERT INTO t VALUES (100, 'new')")?;
        let insert = session.prepare("UPDATE t SET word = ? WHERE id = 100")?;
        session.execute(&insert, &["newer".into()])?.done()?;
        session.run("DELETE FROM t WHERE id = 100")?;
        if in_transaction {
            session.run("COMMIT")?;
        }
        let packets = fetch(&mut session, statement.id, 100)?;
        ensure!(packets.len() == 10, "in a transaction {in_transaction}: {} rows", packets.len() - 1);
    }
    Ok(())
}
