//! Query attributes: named values that MySQL's clients send beside their statements.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, NO_QUERY_ATTRIBUTES, StmtExecute};
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Weir};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

use super::{PATIENCE, answer};

/// ER_MALFORMED_PACKET
const MALFORMED: u16 = 1835;
const WHO: &[u8] = b"SELECT mysql_query_attribute_string('who')";

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("wire::query_attributes_reach_mysql", reach),
        Case::parallel("wire::sessions_with_and_without_query_attributes_share_a_weir", shared),
        Case::parallel("wire::query_attributes_that_are_none_are_refused", broken),
        Case::parallel("wire::mariadb_is_not_sent_query_attributes", not_offered),
    ]
}

/// The attribute `who` with this value, as it stands in front of a text.
fn who(value: &str) -> Vec<u8> {
    [&[1, 1, 0, 1, 0xFE, 0, 3], &b"who"[..], &[value.len() as u8], value.as_bytes()].concat()
}

/// A Weir that offers them, before MySQL servers with the component that shows them to statements.
fn offering(env: &Env, connections_max: i64) -> Result<Weir, Box<dyn std::error::Error>> {
    for server in env.mysql()?.servers() {
        // One that has it already says so.
        let _ = server.root_query("INSTALL COMPONENT 'file://component_query_attributes'");
    }
    let weir = env.mysql_weir(connections_max)?;
    eventually("query attributes are offered", PATIENCE, || {
        let _ = RawClient::login(weir.addr(), &Login::new(Account::APP))?.query("DO 1")?;
        let greeting = RawClient::connect(weir.addr())?.greeting().clone();
        Ok(greeting.capabilities.contains(Capabilities::QUERY_ATTRIBUTES))
    })?;
    Ok(weir)
}

fn login(schema: &str) -> Login {
    Login::new(Account::APP).schema(schema).with(Capabilities::QUERY_ATTRIBUTES)
}

/// The only value of the reply to a COM_QUERY.
fn value(
    client: &mut RawClient,
    attributes: &[u8],
    sql: &[u8],
) -> Result<String, Box<dyn std::error::Error>> {
    let packets = answer(client, &[&[Command::Query.code()], attributes, sql].concat())?;
    let row = packets.get(2).ok_or_else(|| format!("{packets:?}"))?;
    Ok(match row.payload.split_first() {
        Some((0xFB, _)) => "NULL".to_owned(),
        Some((_, text)) => String::from_utf8_lossy(text).into_owned(),
        None => String::new(),
    })
}

fn reach(env: &Env) -> CaseResult {
    let weir = offering(env, 4)?;
    let server = env.mysql()?.source().addr();
    let mut twins = super::Twins::open(weir.addr(), server, &login(&env.mysql_schema()?))?;
    for (attributes, sql) in [
        (NO_QUERY_ATTRIBUTES.to_vec(), WHO),
        (who("me"), WHO),
        (NO_QUERY_ATTRIBUTES.to_vec(), WHO),
        (who("again"), b"SELECT mysql_query_attribute_string('who'), ROW_COUNT()"),
        (who("you"), b"SET @seen = mysql_query_attribute_string('who')"),
        (NO_QUERY_ATTRIBUTES.to_vec(), b"SELECT @seen"),
        (NO_QUERY_ATTRIBUTES.to_vec(), b"SELECT CAST('x' AS SIGNED)"),
        (who("warned"), b"SHOW WARNINGS"),
        (who("several"), b"SELECT 1; SELECT mysql_query_attribute_string('who')"),
        (who("nonsense"), b"nonsense"),
    ] {
        twins.ask(&[&[Command::Query.code()], &attributes[..], sql].concat(), super::as_it_is)?;
    }
    // A long text flows through in pieces, and in several packets. It is also the columns' name, up to 256 bytes of it.
    for bytes in [3 << 20, 17 << 20] {
        let long = format!("SELECT mysql_query_attribute_string('who'), LENGTH('{}')", "x".repeat(bytes));
        let command = [&[Command::Query.code()], &who("long")[..], long.as_bytes()].concat();
        twins.ask(&command, super::as_it_is)?;
    }
    // With and without parameters of the statement's own; without, a flag announces the count.
    let mut parameters = vec![2, 0, 1];
    parameters.extend_from_slice(b"\x03\0\0\xfe\0\x03who\x07\0\0\0\x02me");
    let mut alone = vec![1, 0, 1];
    alone.extend_from_slice(b"\xfe\0\x03who\x02me");
    let flags = StmtExecute::PARAMETER_COUNT_AVAILABLE;
    let without = b"\x01\0\x01\x03\0\0\x07\0\0\0".to_vec();
    let of_before = b"\x01\0\0\x08\0\0\0".to_vec();
    let one = [without, of_before.clone(), parameters, of_before];
    twins.execute_each("SELECT ?, mysql_query_attribute_string('who')", &one, flags, super::as_it_is)?;
    let none = [vec![0], alone, vec![0]];
    twins.execute_each("SELECT mysql_query_attribute_string('who')", &none, flags, super::as_it_is)?;
    Ok(())
}

fn shared(env: &Env) -> CaseResult {
    let weir = offering(env, 1)?;
    let (one, other) = (env.mysql_schema()?, env.mysql_schema()?);
    let mut with =
        [RawClient::login(weir.addr(), &login(&one))?, RawClient::login(weir.addr(), &login(&other))?];
    let mut without = RawClient::login(weir.addr(), &Login::new(Account::APP).schema(&one))?;
    for round in 0..5 {
        for client in &mut with {
            let set = format!("SET time_zone = '+0{round}:00', sql_mode = ''");
            answer(client, &[&[Command::Query.code()], NO_QUERY_ATTRIBUTES, set.as_bytes()].concat())?;
        }
        for (client, schema) in with.iter_mut().zip([&one, &other]) {
            // Weir's own SET and USE go in front of it.
            let seen = value(client, &who("me"), b"SELECT CONCAT(DATABASE(), @@time_zone)")?;
            ensure!(seen == format!("{schema}+0{round}:00"), "{round}: {seen}");
        }
        ensure!(value(&mut without, b"", b"SELECT DATABASE()")? == one, "another schema");
        // What the connection still knew is fetched for another session, and the statement that asks is begun again.
        value(&mut with[0], &who("warned"), b"SELECT CAST('x' AS SIGNED)")?;
        value(&mut with[1], &who("other"), b"SELECT 1")?;
        let warnings = value(&mut with[0], &who("asks"), b"SHOW COUNT(*) WARNINGS")?;
        ensure!(warnings == "1", "{warnings} warnings");
        // A function that Weir does not know keeps the connection: it ends with its client.
        let mut short = RawClient::login(weir.addr(), &login(&one))?;
        for (attributes, expected) in [(who("short"), "short"), (NO_QUERY_ATTRIBUTES.to_vec(), "NULL")] {
            let seen = value(&mut short, &attributes, WHO)?;
            ensure!(seen == expected, "{round}: {seen} instead of {expected}");
        }
    }
    ensure!(value(&mut without, b"", WHO)? == "NULL", "another session's attribute");
    Ok(())
}

fn broken(env: &Env) -> CaseResult {
    let weir = offering(env, 2)?;
    let mut client = RawClient::login(weir.addr(), &login("test"))?;
    for attributes in
        [&b""[..], b"\x01", b"\x05\x01\0\x01", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\x01"]
    {
        let packets = answer(&mut client, &[&[Command::Query.code()], attributes].concat())?;
        let code = packets[0].err()?.code;
        ensure!(code == MALFORMED, "{attributes:?}: {code}");
    }
    ensure!(value(&mut client, &who("me"), WHO)? == "me", "the session has not gone on");
    let prepared = answer(&mut client, &[&[Command::StmtPrepare.code()], &b"SELECT 1"[..]].concat())?;
    ensure!(prepared[0].first() == Some(0), "{prepared:?}");
    let execute = |id: u32, rest: &[u8]| {
        let flags = StmtExecute::PARAMETER_COUNT_AVAILABLE;
        [&[Command::StmtExecute.code()][..], &id.to_le_bytes(), &[flags, 1, 0, 0, 0], rest].concat()
    };
    for rest in [&b""[..], b"\x01", b"\x01\0\0\x02me", b"\x01\0\x01\xfe\0"] {
        let packets = answer(&mut client, &execute(1, rest))?;
        let code = packets[0].err()?.code;
        ensure!(code == MALFORMED, "{rest:?}: {code}");
    }
    ensure!(answer(&mut client, &execute(1, b"\0"))?.len() > 3, "the statement has not gone on");
    Ok(())
}

fn not_offered(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let greeting = RawClient::connect(weir.addr())?.greeting().clone();
    ensure!(!greeting.capabilities.contains(Capabilities::QUERY_ATTRIBUTES), "{:?}", greeting.capabilities);
    Ok(())
}
