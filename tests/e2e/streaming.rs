//! Large results and large statements: they flow, and nobody else waits for them.

mod large;
mod multi;

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::Usage;
use weir_protocol::frame;
use weir_protocol::ok::{ErrPacket, OK_AS_EOF_HEADER};
use weir_protocol::wire::Reader;
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Process};
use weir_tests::{Bystanders, Case, CaseResult, Env, Session, ensure};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("streaming::a_gigabyte_for_a_slow_reader_needs_little_memory", gigabyte),
        Case::parallel("streaming::a_client_that_stops_reading_holds_up_nobody", stops_reading),
        Case::parallel("streaming::many_small_rows", many_small_rows),
    ];
    cases.extend(large::trials());
    cases.extend(multi::trials());
    cases
}

const ROW_BYTES: usize = 1 << 20;
/// What a result in flight may cost: a few buffers, on either side.
const GROWTH_MAX_KIB: u64 = 12 << 10;

/// The most memory that a process had while `run` ran, above what it had before, KiB.
pub(crate) fn growth_kib(process: &Process, run: impl FnOnce() -> CaseResult) -> Result<u64, Box<dyn Error>> {
    let usage = Usage::of(process.pid());
    let before = usage.rss_kib()?;
    let (most, result) = usage.with_peak(run);
    result?;
    Ok(most.saturating_sub(before))
}

/// Rows of one megabyte, each with its number at its start.
fn rows_sql(rows: usize) -> String {
    format!("SELECT CONCAT(LPAD(seq, 10, '0'), REPEAT('x', {})) FROM seq_1_to_{rows}", ROW_BYTES - 10)
}

/// Starts a result of one column and reads up to its first row.
fn start_rows(client: &mut RawClient, sql: &str) -> CaseResult {
    client.send_command(&[b"\x03", sql.as_bytes()].concat())?;
    let count = client.packets().read_packet()?;
    ensure!(count.payload == [1], "{sql}: {count}");
    client.packets().read_packet()?;
    Ok(())
}

/// Reads the rest of a result of [`rows_sql`]; `pause` is told the number of each row.
fn read_rows(client: &mut RawClient, rows: usize, mut pause: impl FnMut(usize)) -> CaseResult {
    let filler = vec![b'x'; ROW_BYTES - 10];
    for number in 1..=rows {
        let packet = client.packets().read_packet()?;
        let mut reader = Reader::new(&packet.payload);
        let value = reader.lenenc_bytes().map_err(|error| format!("row {number}: {packet} ({error})"))?;
        let (start, rest) = value.split_at(10.min(value.len()));
        ensure!(start == format!("{number:010}").as_bytes(), "row {number}: {packet}");
        ensure!(rest == filler, "row {number} is damaged: {} bytes", rest.len());
        pause(number);
    }
    let end = client.packets().read_packet()?;
    ensure!(end.first() == Some(OK_AS_EOF_HEADER), "the end: {end}");
    Ok(())
}

fn gigabyte(env: &Env) -> CaseResult {
    const ROWS: usize = 1024;
    let weir = env.weir(|config| {
        config.variable("threads", 2);
    })?;
    let login = Login::new(Account::APP).schema("test");
    let mut client = RawClient::login(weir.addr(), &login)?;
    // Buffers that stay have their first use before the measurement.
    start_rows(&mut client, &rows_sql(8))?;
    read_rows(&mut client, 8, |_| {})?;
    let growth = growth_kib(weir.process(), || {
        start_rows(&mut client, &rows_sql(ROWS))?;
        // As one who works on what it reads, and is away for a while in the middle.
        read_rows(&mut client, ROWS, |number| match number {
            500 => thread::sleep(Duration::from_secs(2)),
            _ if number % 4 == 0 => thread::sleep(Duration::from_millis(2)),
            _ => {}
        })
    })?;
    ensure!(growth < GROWTH_MAX_KIB, "a result of {ROWS} MB cost {growth} KiB");
    client.query("SELECT 'in step'")?.ok()?;
    Ok(())
}

fn stops_reading(env: &Env) -> CaseResult {
    const ROWS: usize = 200;
    // One worker: whatever blocks, blocks all.
    let (weir, schema) = (
        env.weir(|config| {
            config.variable("threads", 1);
        })?,
        env.schema()?,
    );
    Bystanders::make_table(env, &schema)?;
    let login = Login::new(Account::APP).schema(&schema);
    let mut stopped = Vec::new();
    let growth = growth_kib(weir.process(), || {
        for _ in 0..5 {
            let mut client = RawClient::login(weir.addr(), &login)?;
            start_rows(&mut client, &rows_sql(ROWS))?;
            stopped.push(client);
        }
        let bystanders = Bystanders::start(weir.addr(), &login, 4)?;
        thread::sleep(Duration::from_secs(3));
        let seen = bystanders.finish()?;
        ensure!(seen.slowest < Duration::from_secs(10), "a statement took {:?} meanwhile", seen.slowest);
        ensure!(seen.statements > 20, "only {} statements meanwhile", seen.statements);
        Ok(())
    })?;
    ensure!(growth < 5 * GROWTH_MAX_KIB, "five stopped readers cost {growth} KiB");
    for client in &mut stopped {
        read_rows(client, ROWS, |_| {})?;
        client.query("SELECT 'in step'")?.ok()?;
    }
    Ok(())
}

fn many_small_rows(env: &Env) -> CaseResult {
    const ROWS: usize = 300_000;
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let started = Instant::now();
    let rows = session
        .rows(&format!("SELECT seq, IF(seq % 3 = 0, NULL, CONCAT('row ', seq)) FROM seq_1_to_{ROWS}"))?;
    ensure!(rows.len() == ROWS, "{} rows", rows.len());
    for (number, row) in (1..).zip(&rows) {
        let word = if number % 3 == 0 { "NULL".to_owned() } else { format!("row {number}") };
        ensure!(row[..] == [number.to_string(), word], "row {number}: {row:?}");
    }
    ensure!(started.elapsed() < Duration::from_secs(60), "took {:?}", started.elapsed());
    // A result that ends with an error in the middle of its rows.
    let answer =
        session.query("SELECT seq, IF(seq < 100000, 1, (SELECT 1 UNION SELECT seq)) FROM seq_1_to_200000")?;
    ensure!(answer.error() == Some(1242), "an error behind rows: {:?}", answer.error());
    session.value("SELECT 'in step'")?;
    Ok(())
}

/// Reads one payload, which may take several packets.
fn read_joined(client: &mut RawClient) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut payload = Vec::new();
    loop {
        let mut packet = client.packets().read_packet()?;
        let is_last = packet.payload.len() < frame::PAYLOAD_MAX;
        payload.append(&mut packet.payload);
        if is_last {
            return Ok(payload);
        }
    }
}

/// Runs a command whose result is one row of one column, and returns the row's payload.
fn one_row(client: &mut RawClient, command: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    client.send_command(command)?;
    let count = client.packets().read_packet()?;
    ensure!(count.first() != Some(ErrPacket::HEADER), "refused: {count}");
    ensure!(count.payload == [1], "expected one column: {count}");
    client.packets().read_packet()?;
    let row = read_joined(client)?;
    let end = client.packets().read_packet()?;
    ensure!(end.first() == Some(OK_AS_EOF_HEADER), "the end: {end}");
    Ok(row)
}
