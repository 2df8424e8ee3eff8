//! Statements and rows beyond the 16 MB that fit in one packet.

use std::error::Error;
use std::time::Duration;

use weir_protocol::command::StmtExecute;
use weir_protocol::frame::PAYLOAD_MAX;
use weir_protocol::resultset::ColumnType;
use weir_protocol::wire::{Reader, put_lenenc_bytes};
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Weir};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::{growth_kib, one_row};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("streaming::a_blob_of_20_and_40_mb_as_text", blob_as_text),
        Case::parallel("streaming::a_blob_of_20_and_40_mb_as_parameter", blob_as_parameter),
        Case::parallel("streaming::a_blob_whose_type_was_sent_to_another_connection", blob_without_its_type),
        Case::parallel("streaming::statements_of_just_about_16_mb", statements_at_the_limit),
        Case::parallel("streaming::rows_of_just_about_16_mb", rows_at_the_limit),
        Case::parallel("streaming::a_statement_beyond_max_allowed_packet", beyond_max_allowed_packet),
        Case::parallel("streaming::a_client_gone_in_the_middle_of_a_long_statement", gone_in_the_middle),
    ]
}

/// Bytes without a pattern that a lost or doubled piece would keep; none of them needs an escape in a string.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend((0..8).map(|at| ALPHABET[(state >> (at * 7) & 63) as usize]));
    }
    bytes.truncate(len);
    bytes
}

fn weir_for_blobs(env: &Env) -> Result<(Weir, String), Box<dyn Error>> {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    env.cluster()?
        .node(1)
        .root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, b LONGBLOB)"))?;
    Ok((weir, schema))
}

/// Reads a blob back, through Weir and straight, as text and by a prepared statement.
fn check_blob(env: &Env, weir: &Weir, schema: &str, id: usize, wanted: &[u8]) -> CaseResult {
    // Another session than the one that wrote reads what its server has applied.
    for node in env.cluster()?.nodes() {
        node.root_query(&format!("SET wsrep_sync_wait = 15; SELECT COUNT(*) FROM {schema}.t"))?;
    }
    let login = Login::new(Account::APP).schema(schema);
    for server in [weir.addr(), env.cluster()?.node(1).addr()] {
        let mut client = RawClient::login(server, &login)?;
        client.packets().set_read_timeout(Duration::from_secs(30))?;
        let sql = format!("\x03SELECT b FROM t WHERE id = {id}");
        let row = one_row(&mut client, sql.as_bytes())
            .map_err(|error| format!("{server}, row {id}, {} bytes: {error}", wanted.len()))?;
        let value = Reader::new(&row).lenenc_bytes().map_err(|error| error.to_string())?.to_vec();
        ensure!(value == wanted, "{server}: {} bytes of {} came back, or others", value.len(), wanted.len());
        client.query("SELECT 'in step'")?.ok()?;
    }
    let mut session = Session::with(weir.addr(), &login)?;
    let statement = session.prepare("SELECT b FROM t WHERE id = ?")?;
    let client = session.raw();
    client.packets().set_read_timeout(Duration::from_secs(30))?;
    let mut execute = execute(statement.id, ColumnType::LONGLONG);
    execute.extend_from_slice(&(id as u64).to_le_bytes());
    let row =
        one_row(client, &execute).map_err(|error| format!("prepared, {} bytes: {error}", wanted.len()))?;
    let mut reader = Reader::new(&row);
    reader.skip(2).map_err(|error| error.to_string())?;
    let value = reader.lenenc_bytes().map_err(|error| error.to_string())?;
    ensure!(value == wanted, "prepared: {} bytes of {} came back, or others", value.len(), wanted.len());
    Ok(())
}

/// The start of an EXECUTE with one parameter.
fn execute(id: u32, column_type: ColumnType) -> Vec<u8> {
    let mut payload = Vec::new();
    StmtExecute { stmt_id: id, flags: 0, iteration_count: 1 }.write(&mut payload);
    payload.extend_from_slice(&[0, 1, column_type.0, 0]);
    payload
}

fn blob_as_text(env: &Env) -> CaseResult {
    let (weir, schema) = weir_for_blobs(env)?;
    let mut client = RawClient::login(weir.addr(), &Login::new(Account::APP).schema(&schema))?;
    client.packets().set_read_timeout(Duration::from_secs(60))?;
    for (id, mib) in [(1, 20), (2, 40)] {
        let blob = noise(mib << 20, id as u64);
        let insert = [format!("\x03INSERT INTO t VALUES ({id}, '").as_bytes(), &blob, b"')"].concat();
        let growth = growth_kib(weir.process(), || {
            client.send_command(&insert)?;
            client.read_reply()?.ok()?;
            Ok(())
        })?;
        ensure!(growth < 24 << 10, "{mib} MB sent through cost {growth} KiB");
        check_blob(env, &weir, &schema, id, &blob)?;
    }
    client.query("SELECT 'in step'")?.ok()?;
    Ok(())
}

fn blob_as_parameter(env: &Env) -> CaseResult {
    let (weir, schema) = weir_for_blobs(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    for (id, mib) in [(1, 20), (2, 40)] {
        let blob = noise(mib << 20, id as u64);
        let insert = session.prepare(&format!("INSERT INTO t VALUES ({id}, ?)"))?;
        let mut payload = execute(insert.id, ColumnType::LONG_BLOB);
        put_lenenc_bytes(&mut payload, &blob);
        session.raw().send_command(&payload)?;
        session.results()?.done()?;
        check_blob(env, &weir, &schema, id, &blob)?;
    }
    session.value("SELECT 'in step'")?;
    Ok(())
}

fn blob_without_its_type(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, b LONGBLOB)"))?;
    let weir = crate::prepared::weir_with_connections(env, 2, 1)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let (mut first, mut second) =
        (Session::open(weir.addr(), &schema)?, Session::open(weir.addr(), &schema)?);
    // Weir has to add what the client left out, also where the packet has no room for it.
    let full = PAYLOAD_MAX - StmtExecute::LEN - 2 - 4;
    for (id, len) in
        [2_000_000, full - 3, full - 2, full - 1, full, full + 1, 20 << 20].into_iter().enumerate()
    {
        let insert = session.prepare(&format!("INSERT INTO t VALUES ({id}, ?)"))?;
        // While one session holds one connection, the types go to the other one.
        first.run("BEGIN")?;
        let mut payload = execute(insert.id, ColumnType::LONG_BLOB);
        put_lenenc_bytes(&mut payload, b"small");
        session.raw().send_command(&payload)?;
        session.results()?.done()?;
        // Then they change over.
        second.run("BEGIN")?;
        first.run("COMMIT")?;
        session.run(&format!("DELETE FROM t WHERE id = {id}"))?;
        let blob = noise(len, id as u64);
        payload.truncate(StmtExecute::LEN);
        payload.extend_from_slice(&[0, 0]);
        put_lenenc_bytes(&mut payload, &blob);
        session.raw().send_command(&payload)?;
        let answer = session.results().map_err(|error| format!("{len} bytes: {error}"))?;
        answer.done().map_err(|error| format!("{len} bytes: {error}"))?;
        second.run("COMMIT")?;
        let stored = node.root_query(&format!("SELECT LENGTH(b) FROM {schema}.t WHERE id = {id}"))?;
        ensure!(stored == [[len.to_string()]], "{len} bytes: {stored:?} were stored");
        session.close(&insert)?;
    }
    Ok(())
}

fn statements_at_the_limit(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut client = RawClient::login(weir.addr(), &Login::new(Account::APP).schema("test"))?;
    client.packets().set_read_timeout(Duration::from_secs(30))?;
    // At exact multiples an empty packet has to follow.
    let lengths = [PAYLOAD_MAX - 1, PAYLOAD_MAX, PAYLOAD_MAX + 1, 2 * PAYLOAD_MAX, 2 * PAYLOAD_MAX + 1];
    // At the limit of what Weir keeps, too.
    for len in lengths.into_iter().chain([(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + 4]) {
        let (start, end) = ("\x03SELECT LENGTH('", "')");
        let filler = len - start.len() - end.len();
        let statement = [start.as_bytes(), &noise(filler, 3), end.as_bytes()].concat();
        let row = one_row(&mut client, &statement).map_err(|error| format!("{len} bytes: {error}"))?;
        let told = String::from_utf8_lossy(row.get(1..).unwrap_or_default()).into_owned();
        ensure!(told == filler.to_string(), "{len} bytes: the server saw {told} of {filler}");
        client.query("SELECT 'in step'")?.ok()?;
    }
    Ok(())
}

fn rows_at_the_limit(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut client = RawClient::login(weir.addr(), &Login::new(Account::APP).schema("test"))?;
    client.packets().set_read_timeout(Duration::from_secs(30))?;
    // The length in front of the value takes 4 bytes up to 16 MB, then 9.
    let lengths = [PAYLOAD_MAX - 5, PAYLOAD_MAX - 4, PAYLOAD_MAX - 3, PAYLOAD_MAX, 2 * PAYLOAD_MAX - 9];
    for len in lengths.into_iter().chain([PAYLOAD_MAX + 1, 2 * PAYLOAD_MAX - 8]) {
        let sql = format!("\x03SELECT REPEAT('y', {len})");
        let row = one_row(&mut client, sql.as_bytes()).map_err(|error| format!("{len} bytes: {error}"))?;
        let value = Reader::new(&row).lenenc_bytes().map_err(|error| error.to_string())?;
        ensure!(
            value.len() == len && value.iter().all(|byte| *byte == b'y'),
            "{} of {len} bytes",
            value.len()
        );
        client.query("SELECT 'in step'")?.ok()?;
    }
    Ok(())
}

fn beyond_max_allowed_packet(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("max_allowed_packet", 2_000_000);
    })?;
    let mut other = Session::open(weir.addr(), "test")?;
    let login = Login::new(Account::APP).schema("test");
    // Announced, but not sent: Weir does not wait for it.
    let mut client = RawClient::login(weir.addr(), &login)?;
    let announced = 2_000_001_u32.to_le_bytes();
    client.packets().write_bytes(&[&announced[..3], b"\0\x03SELECT '"].concat())?;
    let answer = client.packets().read_packet()?;
    ensure!(answer.err()?.code == 1153, "{answer}");
    ensure!(client.packets().is_closed(), "the connection is still open");
    // As much as allowed goes through.
    let mut client = RawClient::login(weir.addr(), &login)?;
    let statement = [b"\x03SELECT LENGTH('".as_slice(), &noise(1_999_900, 1), b"')"].concat();
    let row = one_row(&mut client, &statement)?;
    ensure!(row == b"\x071999900", "{}", row.escape_ascii());
    // A statement of several packets is too long only when they are added up.
    let weir = env.weir(|config| {
        config.variable("max_allowed_packet", PAYLOAD_MAX as i64 + 1000);
    })?;
    let mut client = RawClient::login(weir.addr(), &login)?;
    let statement = [b"\x03SELECT LENGTH('".as_slice(), &noise(PAYLOAD_MAX + 5000, 1), b"')"].concat();
    // The connection may be reset before everything is written.
    let sent = client.send_command(&statement);
    match client.packets().read_packet() {
        Ok(answer) => ensure!(answer.err()?.code == 1153, "{answer}"),
        Err(error) => {
            ensure!(!error.to_string().contains("in time"), "neither answered nor closed: {sent:?}, {error}")
        }
    }
    other.value("SELECT 'still here'")?;
    Ok(())
}

fn gone_in_the_middle(env: &Env) -> CaseResult {
    let (weir, schema) = weir_for_blobs(env)?;
    let login = Login::new(Account::APP).schema(&schema);
    for (id, mib) in [(1, 2), (2, 17)] {
        let mut client = RawClient::login(weir.addr(), &login)?;
        let insert =
            [format!("\x03INSERT INTO t VALUES ({id}, '").as_bytes(), &noise(mib << 20, 1), b"')"].concat();
        let mut bytes = Vec::new();
        weir_protocol::frame::write_packet(&mut bytes, &mut 0, &insert);
        client.packets().write_bytes(&bytes[..bytes.len() - 100])?;
        drop(client);
    }
    let mut session = Session::with(weir.addr(), &login)?;
    let count = session.value("SELECT COUNT(*) FROM t FOR UPDATE")?;
    ensure!(count == "0", "{count} rows of statements that never arrived whole");
    session.run("INSERT INTO t VALUES (1, 'one')")?;
    Ok(())
}
