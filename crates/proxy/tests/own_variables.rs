//! `weir_consistency` and `weir_token`: variables of sessions that no server knows.

#![allow(clippy::unwrap_used)]

mod support;

use support::bench::Bench;
use support::{run, value};
use weir_config::MysqlVariables;
use weir_protocol::command::{put_reset_connection, put_stmt_prepare};
use weir_protocol::frame;
use weir_proxy::snapshot::{History, Hostgroup};
use weir_routing::Consistency;

fn hostgroup(history: Option<&str>) -> Hostgroup {
    Hostgroup {
        consistency: Consistency::Eventual,
        history: history.map(History::of),
        ..support::hostgroup([0])
    }
}

fn bench(history: Option<&str>) -> Bench {
    Bench::new(1, &[10], hostgroup(history), MysqlVariables::default())
}

fn level(bench: &mut Bench, client: usize) -> String {
    value(bench, client, "@@weir_consistency")
}

#[test]
fn a_level_is_the_sessions_own_and_reaches_no_server() {
    let mut bench = bench(None);
    let (client, other) = (bench.client(0, "app"), bench.client(0, "app"));
    assert_eq!(level(&mut bench, client), "eventual", "the hostgroup's");
    for (sql, expected) in [
        ("SET weir_consistency = 'global'", "global"),
        ("set session WEIR_CONSISTENCY = Strict", "strict"),
        ("SET @@weir_consistency = session", "session"),
        ("SET /* a */ @@session . `weir_consistency` /* b */ := /* c */ \"GLOBAL\" /* d */", "global"),
        ("SET @@local.weir_consistency = DEFAULT", "eventual"),
        ("SET weir_consistency = strict, LOCAL weir_consistency = global;", "global"),
    ] {
        assert_eq!(run(&mut bench, client, sql), None, "{sql}");
        assert_eq!(level(&mut bench, client), expected, "{sql}");
    }
    assert_eq!(level(&mut bench, other), "eventual");
    assert!(!bench.own.iter().any(|(_, text)| text.to_ascii_lowercase().contains("weir")), "{:?}", bench.own);
}

#[test]
fn a_wrong_word_is_refused_and_changes_nothing() {
    let mut bench = bench(None);
    let client = bench.client(0, "app");
    assert_eq!(run(&mut bench, client, "SET weir_consistency = global"), None);
    for (sql, shown) in [
        ("SET weir_consistency = 'x'", "x"),
        ("SET weir_consistency = NULL", "NULL"),
        ("SET weir_consistency = 1", "1"),
        ("SET weir_consistency = ''", ""),
        ("SET weir_consistency = strict, weir_consistency = y", "y"),
    ] {
        let (code, message) = run(&mut bench, client, sql).unwrap();
        let expected =
            format!("Variable 'weir_consistency' can't be set to the value of '{shown}' (allowed are ");
        assert_eq!(code, 1231, "{sql}: {message}");
        assert!(message.starts_with(&expected) && message.contains("eventual, session, global and strict"));
    }
    for sql in ["SET GLOBAL weir_consistency = 'global'", "SET @@persist.weir_token = 'x', @x = 1"] {
        let (code, message) = run(&mut bench, client, sql).unwrap();
        assert!(code == 1228 && message.contains("weir_hostgroups.consistency"), "{code} {message}");
    }
    let (code, message) =
        run(&mut bench, client, "SET STATEMENT weir_consistency = global FOR SELECT 1").unwrap();
    assert!(code == 1105 && message.contains("plain SET"), "{code} {message}");
    assert_eq!(level(&mut bench, client), "global");
    assert!(
        !bench.own.iter().any(|(_, text)| text.contains("weir") || text.contains("@x")),
        "{:?}",
        bench.own
    );
}

#[test]
fn a_list_takes_effect_as_a_whole() {
    let mut bench = bench(None);
    let client = bench.client(0, "app");
    let sql = "SET wait_timeout=7, weir_consistency = 'global', @x = @@weir_consistency";
    assert_eq!(run(&mut bench, client, sql), None);
    let (_, sent) = bench.own.last().unwrap();
    assert!(sent.starts_with("SET wait_timeout=7, @x = CONVERT('") && !sent.contains("weir"), "{sent}");
    assert_eq!(level(&mut bench, client), "global");
    bench.refused = "no_such";
    let refused = run(&mut bench, client, "SET weir_consistency = 'strict', no_such = 1");
    assert_eq!(refused.map(|(code, _)| code), Some(1193));
    assert_eq!(level(&mut bench, client), "global", "the rest was refused");
    bench.lost = "@y";
    let lost = run(&mut bench, client, "SET weir_consistency = 'strict', @y = 1");
    assert!(lost.is_some_and(|(_, message)| message.contains("Lost connection")));
    let other = bench.client(0, "app");
    bench.query(other, "SET weir_consistency = 'strict', wait_timeout=8");
    assert_eq!(level(&mut bench, other), "strict");
}

#[test]
fn a_reset_ends_it() {
    let mut bench = bench(None);
    let client = bench.client(0, "app");
    run(&mut bench, client, "SET weir_consistency = 'strict'");
    let mut reset = Vec::new();
    put_reset_connection(&mut reset);
    bench.clients[client].got.clear();
    bench.send(client, &reset);
    assert!(bench.is_answered(client));
    assert_eq!(level(&mut bench, client), "eventual");
}

#[test]
fn prepared_statements_set_it_and_show_what_holds() {
    let mut bench = bench(Some("a"));
    let client = bench.client(0, "app");
    let prepare = |bench: &mut Bench, sql: &str| {
        bench.clients[client].got.clear();
        let mut command = Vec::new();
        put_stmt_prepare(&mut command, sql.as_bytes());
        bench.send(client, &command);
        u32::from_le_bytes(bench.reply(client).unwrap()[1..5].try_into().unwrap())
    };
    let (select, set) = (
        prepare(&mut bench, "SELECT @@weir_consistency, @@weir_token"),
        prepare(&mut bench, "SET weir_consistency = global"),
    );
    let execute = |bench: &mut Bench, id: u32| {
        bench.clients[client].got.clear();
        let mut command = Vec::new();
        let payload = [&[0x17][..], &id.to_le_bytes(), &[0], &1_u32.to_le_bytes()].concat();
        frame::write_packet(&mut command, &mut 0, &payload);
        bench.send(client, &command);
        assert!(bench.is_answered(client));
        bench.prepared.len()
    };
    let before = execute(&mut bench, select);
    run(&mut bench, client, "INSERT INTO t VALUES (1)");
    assert_eq!(execute(&mut bench, select), before, "its token holds at any time");
    assert_eq!(execute(&mut bench, set), before);
    assert_eq!(level(&mut bench, client), "global");
    assert_eq!(execute(&mut bench, select), before + 1, "another text is prepared");
    assert_eq!(execute(&mut bench, select), before + 1);
}

#[test]
fn a_token_is_of_its_history() {
    let mut bench = bench(Some("a"));
    let (writer, reader) = (bench.client(0, "app"), bench.client(0, "bob"));
    let nothing = value(&mut bench, writer, "@@weir_token");
    assert!(nothing.starts_with("w1-") && nothing.ends_with("-1-0"), "{nothing}");
    run(&mut bench, writer, "INSERT INTO t VALUES (1)");
    let token = value(&mut bench, writer, "@@weir_token");
    assert_ne!(token, nothing);
    assert_eq!(run(&mut bench, reader, &format!("SET weir_token = '{token}'")), None);
    assert_eq!(value(&mut bench, reader, "@@weir_token"), token, "it is handed on");
    assert_eq!(run(&mut bench, reader, &format!("SET weir_token = '{nothing}'")), None);
    assert_eq!(value(&mut bench, reader, "@@weir_token"), token, "an older one takes nothing away");
    assert_eq!(run(&mut bench, reader, "SET weir_token = DEFAULT"), None);
    assert_eq!(value(&mut bench, reader, "@@weir_token"), nothing);

    let refused = |bench: &mut Bench, value: &str, why: &str| {
        let (code, message) = run(bench, reader, &format!("SET weir_token = {value}")).unwrap();
        assert!((code == 1231 || code == 1232) && message.contains(why), "{value}: {code} {message}");
    };
    refused(&mut bench, "NULL", "the history was not known");
    refused(&mut bench, "1", "Incorrect argument type");
    refused(&mut bench, "'x'", "no token");
    refused(&mut bench, "'w2-1-2-3'", "another version");
    refused(&mut bench, &format!("'w1-{}'", "0".repeat(300)), "longer than 200 bytes");
    let servers = bench.servers.clone();
    bench.publish(servers.clone(), hostgroup(Some("b")));
    refused(&mut bench, &format!("'{token}'"), "another history than that of hostgroup 0");
    bench.publish(servers, hostgroup(None));
    refused(&mut bench, &format!("'{token}'"), "the history of hostgroup 0 is not known");
    assert_eq!(value(&mut bench, reader, "@@weir_token"), "SELECT CONVERT(NULL USING utf8mb3) AS v");
}

#[test]
fn a_token_of_another_process_or_of_a_later_statement_is_of_the_present() {
    let mut bench = bench(Some("a"));
    let client = bench.client(0, "app");
    run(&mut bench, client, "INSERT INTO t VALUES (1)");
    let token = value(&mut bench, client, "@@weir_token");
    let (history, moment) = (&token[..19], |token: &str| token.rsplit('-').next().unwrap().to_owned());
    bench.pass_ms(50);
    for (given, expected) in [
        (format!("{history}-2-1"), Some(format!("{:x}", bench.now))),
        (format!("{history}-0-0"), Some(format!("{:x}", bench.now))),
        (format!("{history}-1-ffffffffffffffff"), Some(format!("{:x}", bench.now))),
        (format!("{history}-1-1"), None),
    ] {
        run(&mut bench, client, "SET weir_token = DEFAULT");
        assert_eq!(run(&mut bench, client, &format!("SET weir_token = '{given}'")), None, "{given}");
        let told = moment(&value(&mut bench, client, "@@weir_token"));
        assert_eq!(told, expected.unwrap_or_else(|| moment(&token)), "{given}");
    }
    for sql in [
        "DO 1; SELECT @@weir_token",
        "INSERT INTO t VALUES (1) RETURNING a, @@weir_token",
        "SELECT a, @@weir_token FROM t",
    ] {
        run(&mut bench, client, sql);
        let sent = bench.log.iter().rev().find(|(_, text)| text.contains("w1-"));
        assert!(sent.is_some_and(|(_, text)| text.contains(&format!("'{history}-0-0'"))), "{sql}: {sent:?}");
        bench.log.clear();
    }
}

/// Another session, or a server that has recovered, may have prepared it.
#[test]
fn what_xa_commit_commits_is_a_write_of_its_session() {
    let mut bench = bench(Some("a"));
    let client = bench.client(0, "app");
    let before = value(&mut bench, client, "@@weir_token");
    assert_eq!(run(&mut bench, client, "XA COMMIT 'of another'"), None);
    assert_ne!(value(&mut bench, client, "@@weir_token"), before);
}
