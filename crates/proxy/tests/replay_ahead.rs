//! Interrupted transactions run again at once, and before others write.

#![allow(clippy::unwrap_used)]

mod support;

use support::bench::TWO_ROWS;
use support::interrupted::{Cluster, UPDATE};

#[test]
fn between_two_statements_it_runs_again_without_being_asked() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    cluster.write(&[1]);
    cluster.bench.pass_ms(1_000);
    assert_eq!(
        (cluster.texts(), cluster.bench.reply(client)),
        (vec!["BEGIN".to_owned(), UPDATE.to_owned()], None)
    );
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
    assert_eq!(cluster.texts(), ["COMMIT"]);
}

/// Clients without DEPRECATE_EOF have seen an EOF packet in front of the rows that servers don't send.
#[test]
fn rows_are_the_same_however_their_client_had_them_framed() {
    for capabilities in [support::MODERN, support::OLD] {
        let mut cluster = Cluster::new();
        let client = cluster.bench.client_with(0, "app", capabilities);
        for sql in ["BEGIN", TWO_ROWS, UPDATE, TWO_ROWS] {
            assert_eq!(support::run(&mut cluster.bench, client, sql), None);
        }
        cluster.bench.lose(0);
        cluster.write(&[1]);
        cluster.bench.pass_ms(1_000);
        assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None, "{capabilities:?}");
    }
}

/// Another session has left the number on the next connection that an explicit one in the transaction equals.
#[test]
fn the_last_insert_id_of_others_is_not_the_transactions() {
    let mut cluster = Cluster::new();
    let client = cluster.bench.client(0, "app");
    cluster.bench.insert_id = 5;
    for sql in ["SELECT LAST_INSERT_ID(3)", "BEGIN", "INSERT INTO t (id) VALUES (5)"] {
        assert_eq!(support::run(&mut cluster.bench, client, sql), None);
    }
    cluster.bench.own.clear();
    cluster.bench.lose(0);
    cluster.write(&[1]);
    cluster.bench.pass_ms(1_000);
    let own: Vec<_> = cluster.bench.own.iter().map(|(_, text)| text.as_str()).collect();
    assert!(own.contains(&"SET SESSION last_insert_id=0"), "{own:?}");
}

/// A read that was broken off ends otherwise when it runs again; its client has learnt nothing.
#[test]
fn a_read_that_was_broken_off_is_not_repeated() {
    let mut cluster = Cluster::new();
    let client = cluster.bench.client(0, "app");
    for sql in ["BEGIN", UPDATE] {
        assert_eq!(support::run(&mut cluster.bench, client, sql), None);
    }
    cluster.bench.fails = 1317;
    let told = support::run(&mut cluster.bench, client, "SELECT a FROM broken");
    assert_eq!(told.map(|told| told.0), Some(1317));
    cluster.bench.fails = 0;
    cluster.bench.log.clear();
    cluster.bench.lose(0);
    cluster.write(&[1]);
    cluster.bench.pass_ms(1_000);
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
    assert_eq!(cluster.texts(), ["BEGIN", UPDATE, "COMMIT"]);
}

#[test]
fn others_write_behind_it_whoever_serves_them() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    let others = [0, 1].map(|core| cluster.bench.client(core, "bob"));
    for other in others {
        cluster.bench.query(other, "INSERT INTO t VALUES (2)");
    }
    cluster.write(&[1]);
    cluster.bench.pass_ms(1_000);
    let insert = || "INSERT INTO t VALUES (2)".to_owned();
    assert_eq!(cluster.texts(), ["BEGIN".to_owned(), UPDATE.to_owned(), insert(), insert()]);
    assert!(others.into_iter().all(|other| cluster.bench.is_answered(other)));
    assert!(!cluster.lets_replays_first());
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
}

/// It would be given the number of a row that another one has told its client of.
#[test]
fn what_a_transaction_does_next_waits_for_the_others_too() {
    let mut cluster = Cluster::new();
    let [first, second] = [0, 1].map(|core| cluster.bench.client(core, "bob"));
    for client in [first, second] {
        assert_eq!(support::run(&mut cluster.bench, client, "BEGIN"), None);
    }
    cluster.interrupted();
    for client in [first, second] {
        cluster.bench.query(client, "INSERT INTO t VALUES (2)");
    }
    cluster.write(&[1]);
    cluster.bench.pass_ms(1_000);
    let at = |texts: &[String], sql: &str| texts.iter().position(|text| text == sql).unwrap();
    let texts = cluster.texts();
    assert!(at(&texts, UPDATE) < at(&texts, "INSERT INTO t VALUES (2)"), "{texts:?}");
    for client in [first, second] {
        assert!(cluster.bench.is_answered(client));
        assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
    }
}

#[test]
fn reads_and_those_who_are_late_wait_for_no_transaction_that_does_not_get_on() {
    let mut cluster = Cluster::new();
    cluster.interrupted();
    let [reader, writer] = [(); 2].map(|()| cluster.bench.client(1, "bob"));
    cluster.bench.holds = true;
    cluster.bench.query(reader, "SELECT a FROM t");
    cluster.bench.query(writer, "INSERT INTO t VALUES (2)");
    cluster.write(&[1]);
    let mut waited_ms = 0;
    while !cluster.bench.log.iter().any(|(_, text)| text == "BEGIN") {
        cluster.bench.pass_ms(1);
    }
    while !cluster.bench.log.iter().any(|(_, text)| text.starts_with("INSERT")) {
        cluster.bench.pass_ms(1);
        waited_ms += 1;
        assert!(waited_ms < 600, "{:?}", cluster.bench.log);
    }
    assert!(waited_ms > 400, "it has waited for {waited_ms} ms");
    assert!(cluster.bench.log.iter().any(|(_, text)| text.starts_with("SELECT")), "{:?}", cluster.bench.log);
    assert!(!cluster.lets_replays_first());
}

#[test]
fn what_has_become_of_it_is_told_with_the_next_statement() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    cluster.bench.fails = 1105;
    cluster.write(&[1]);
    cluster.bench.pass_ms(1_000);
    assert_eq!(
        (cluster.texts(), cluster.bench.reply(client)),
        (vec!["BEGIN".to_owned(), UPDATE.to_owned()], None)
    );
    assert!(!cluster.lets_replays_first());
    let (code, message) = support::run(&mut cluster.bench, client, "INSERT INTO t VALUES (3)").unwrap();
    assert!(code == 1213 && message.contains("another answer"), "{code}: {message}");
    assert_eq!(cluster.texts(), [""; 0]);
    assert_eq!(support::run(&mut cluster.bench, client, "INSERT INTO t VALUES (4)"), None);
}

#[test]
fn where_a_server_comes_late_it_runs_again_then() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    cluster.bench.pass_ms(20_000);
    assert_eq!(cluster.bench.reply(client), None, "nobody has asked");
    assert!(!cluster.lets_replays_first(), "others have waited for long enough");
    cluster.write(&[1]);
    cluster.bench.pass_ms(50);
    assert_eq!(cluster.texts(), ["BEGIN", UPDATE]);
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
}

#[test]
fn who_leaves_lets_the_others_go_on() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    assert!(cluster.lets_replays_first());
    let (core, id) = (cluster.bench.clients[client].core, cluster.bench.clients[client].id);
    cluster.bench.cores[core].closed(id, cluster.bench.now);
    cluster.bench.run();
    assert!(!cluster.lets_replays_first());
}

#[test]
fn what_would_commit_it_before_it_has_run_again_is_refused() {
    for sql in ["CREATE TABLE u (a INT)", "BEGIN", "CALL p()"] {
        let mut cluster = Cluster::new();
        let client = cluster.interrupted();
        cluster.bench.pass_ms(20_000);
        cluster.bench.query(client, sql);
        cluster.write(&[1]);
        cluster.bench.pass_ms(2_000);
        let told = cluster.bench.error(client);
        assert!(told.as_ref().is_some_and(|(code, _)| *code == 1213), "{sql}: {told:?}");
        assert_eq!(cluster.texts(), [""; 0], "{sql}");
    }
}

#[test]
fn where_only_the_connection_was_lost_the_next_statement_is_waited_for() {
    let mut cluster = Cluster::new();
    let client = cluster.bench.client(0, "app");
    for sql in ["BEGIN", UPDATE] {
        assert_eq!(support::run(&mut cluster.bench, client, sql), None);
    }
    cluster.bench.log.clear();
    cluster.bench.lose(0);
    cluster.bench.pass_ms(1_000);
    // It stays the writer, whatever else is news.
    cluster.write(&[0]);
    cluster.bench.pass_ms(1_000);
    assert!(!cluster.lets_replays_first());
    assert_eq!(cluster.texts(), [""; 0]);
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
    assert_eq!(cluster.texts(), ["BEGIN", UPDATE, "COMMIT"]);
}

#[test]
fn the_half_second_begins_with_the_next_writer_however_long_that_takes() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    let in_flight = cluster.bench.client(1, "app");
    let other = cluster.bench.client(1, "bob");
    cluster.bench.query(in_flight, "INSERT INTO t VALUES (3)");
    cluster.bench.query(other, "INSERT INTO t VALUES (2)");
    cluster.bench.pass_ms(3_000);
    assert_eq!(cluster.texts(), [""; 0]);
    cluster.write(&[1]);
    cluster.bench.pass_ms(1_000);
    assert_eq!(cluster.texts()[..2], ["BEGIN", UPDATE]);
    assert!(cluster.bench.is_answered(other) && cluster.bench.is_answered(in_flight));
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
}

#[test]
fn who_rolls_back_or_only_pings_waits_for_no_server() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    cluster.bench.query(client, "ROLLBACK");
    assert!(cluster.bench.is_answered(client));
    assert!(!cluster.lets_replays_first());
    cluster.write(&[1]);
    cluster.bench.pass_ms(100);
    assert_eq!(cluster.texts(), [""; 0]);
}

/// What has run again until then would hold its locks beside what runs again next.
#[test]
fn one_that_is_killed_on_its_way_leaves_nothing_behind() {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    let killer = cluster.bench.client(0, "app");
    cluster.bench.holds = true;
    cluster.write(&[1]);
    cluster.bench.pass_ms(50);
    assert_eq!(cluster.texts(), ["BEGIN"]);
    let id = cluster.bench.clients[client].connection_id;
    cluster.bench.query(killer, &format!("KILL QUERY {id}"));
    cluster.bench.holds = false;
    // BEGIN is answered before the KILL.
    cluster.release_in_transaction();
    cluster.bench.release_one();
    cluster.bench.pass_ms(50);
    cluster.write(&[1]);
    cluster.bench.pass_ms(3_000);
    let begun = cluster.bench.conns.iter().filter(|conn| conn.is_in_transaction).count();
    assert!(begun <= 1, "{begun} connections have it: {:?}", cluster.bench.log);
    assert_eq!(cluster.bench.reply(client), None, "nobody has asked");
    let (core, socket) = (cluster.bench.clients[client].core, cluster.bench.clients[client].id);
    cluster.bench.cores[core].closed(socket, cluster.bench.now);
    cluster.bench.run();
    cluster.bench.pass_ms(3_000);
    assert!(cluster.bench.conns.iter().all(|conn| !conn.is_in_transaction));
}
