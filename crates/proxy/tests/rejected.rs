//! Checks what a session sees of a Galera node that leaves its cluster, and of a server that is lost at a transaction's
//! edge.

#![allow(clippy::unwrap_used)]

mod support;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::put_stmt_prepare;
use weir_protocol::frame;
use weir_proxy::snapshot::Hostgroup;

/// Two nodes of a cluster that may write; every client's first statement goes to the first.
fn cluster() -> Bench {
    let writers = Hostgroup { is_replicated: true, ..support::hostgroup([0, 1]) };
    Bench::new(1, &[10, 10], writers, MysqlVariables::default())
}

fn run(bench: &mut Bench, client: usize, sql: &str) -> Option<(u16, String)> {
    bench.clients[client].got.clear();
    bench.query(client, sql);
    bench.pass_ms(1);
    assert!(!bench.clients[client].got.is_empty(), "no answer to {sql}");
    bench.error(client)
}

#[test]
fn a_transaction_on_a_node_that_leaves_its_cluster_can_be_begun_again_at_once() {
    let mut bench = cluster();
    let client = bench.client(0, "app");
    run(&mut bench, client, "BEGIN");
    let (node, _) = bench.log[0];
    let other = 1 - node;
    bench.outside = vec![node];
    let (code, message) = run(&mut bench, client, "INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(code, 1213, "{message}");
    assert!(message.contains("has left its cluster"), "{message}");
    assert!(
        !bench.conns.iter().any(|conn| conn.node == node),
        "what was begun there ends with its connection"
    );
    for sql in ["BEGIN", "INSERT INTO t VALUES (1)", "COMMIT"] {
        assert_eq!(run(&mut bench, client, sql), None, "{sql}");
    }
    let last: Vec<_> = bench.log.iter().rev().take(3).map(|(node, _)| *node).collect();
    assert_eq!(last, [other; 3]);
}

#[test]
fn a_commit_that_such_a_node_turns_away_is_no_unknown_one() {
    let mut bench = cluster();
    let client = bench.client(0, "app");
    run(&mut bench, client, "BEGIN");
    bench.outside = vec![bench.log[0].0];
    assert_eq!(run(&mut bench, client, "COMMIT").map(|(code, _)| code), Some(1213));
    assert_eq!(run(&mut bench, client, "INSERT INTO t VALUES (1)"), None);
}

#[test]
fn without_a_transaction_the_statement_runs_on_another_node() {
    let mut bench = cluster();
    let client = bench.client(0, "app");
    run(&mut bench, client, "SELECT 1 FROM t");
    bench.outside = vec![0];
    for sql in ["INSERT INTO t VALUES (1)", "BEGIN", "INSERT INTO t VALUES (1)", "COMMIT"] {
        assert_eq!(run(&mut bench, client, sql), None, "{sql}");
    }
}

#[test]
fn a_begin_that_is_lost_with_its_server_is_run_again() {
    for sql in ["BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK"] {
        let mut bench = cluster();
        let client = bench.client(0, "app");
        bench.hangs_up = true;
        bench.query(client, sql);
        bench.hangs_up = false;
        bench.pass_ms(2_000);
        assert!(!bench.clients[client].got.is_empty(), "no answer to {sql}");
        assert_eq!(bench.error(client), None, "{sql}: {:?}", bench.log);
    }
}

/// The member has undone it, and the others may have got it: nobody knows, and nobody may run it again.
#[test]
fn a_write_that_a_member_gives_up_when_it_leaves_its_group_is_unknown() {
    let mut bench = cluster();
    let client = bench.client(0, "app");
    bench.cut_off = vec![0, 1];
    let (code, message) = run(&mut bench, client, "INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(code, 1053, "{message}");
    assert!(message.contains("it may or may not have taken effect"), "{message}");
    assert_eq!(bench.log.len(), 1, "it was run again: {:?}", bench.log);
}

/// The same behind a file, where the answer does not begin with the error.
#[test]
fn a_file_that_a_member_gives_up_when_it_leaves_its_group_is_unknown() {
    let mut bench = cluster();
    let client = bench.client_with(0, "app", support::MODERN | Capabilities::LOCAL_FILES);
    bench.cut_off = vec![0, 1];
    bench.query(client, "LOAD DATA LOCAL INFILE 'file' INTO TABLE t");
    assert_eq!(bench.reply(client).unwrap(), b"\xFBfile");
    let mut rows = Vec::new();
    let mut sequence = 2;
    frame::write_packet(&mut rows, &mut sequence, b"1\n2\n3\n");
    frame::write_packet(&mut rows, &mut sequence, b"");
    bench.send(client, &rows);
    bench.pass_ms(1);
    assert_eq!(bench.clients[client].got[3], sequence, "the number that comes behind the file");
    let (code, message) = bench.error(client).unwrap();
    assert_eq!(code, 1053, "{message}");
    assert!(message.contains("it may or may not have taken effect"), "{message}");
}

#[test]
fn who_has_nothing_on_a_node_that_leaves_behind_an_error_is_not_held_there() {
    let mut bench = cluster();
    let client = bench.client(0, "app");
    assert_eq!(run(&mut bench, client, "SELECT 1 FROM t"), None);
    (bench.fails, bench.answers_no_question) = (1180, vec![0, 1]);
    assert_eq!(run(&mut bench, client, "UPDATE t SET v = 1").map(|(code, _)| code), Some(1180));
    let node = bench.log[bench.log.len() - 1].0;
    assert!(!bench.conns.iter().any(|conn| conn.node == node), "nothing holds the session there");
    (bench.fails, bench.answers_no_question) = (0, vec![]);
    bench.pass_ms(500);
    assert_eq!(run(&mut bench, client, "DO 1"), None);
}

#[test]
fn statements_at_a_primary_that_hands_over_run_elsewhere() {
    for sql in ["SELECT 1 FROM t", "INSERT INTO t VALUES (1)", "BEGIN", "CREATE TABLE z (id INT)"] {
        let mut bench = cluster();
        let client = bench.client(0, "app");
        bench.handing_over = vec![0, 1];
        bench.query(client, sql);
        bench.pass_ms(1);
        bench.handing_over = vec![bench.log[0].0];
        bench.pass_ms(100);
        assert!(bench.error(client).is_none(), "{sql}");
        let (first, last) = (bench.log[0].0, bench.log[bench.log.len() - 1].0);
        assert_eq!(last, 1 - first, "{sql}");
    }
    let mut bench = cluster();
    bench.handing_over = vec![0, 1];
    let client = bench.client(0, "app");
    assert_eq!(run(&mut bench, client, "CALL p()").map(|(code, _)| code), Some(4094), "it may have begun");
}

#[test]
fn who_waits_for_a_node_to_have_its_last_write_is_told_so() {
    let mut bench = cluster();
    bench.lags = true;
    let client = bench.client(0, "app");
    assert_eq!(run(&mut bench, client, "INSERT INTO t VALUES (1)"), None);
    bench.down = vec![bench.log[0].0];
    bench.hangs_up = true;
    bench.query(client, "SELECT 1 FROM t");
    bench.hangs_up = false;
    bench.pass_ms(12_000);
    let (code, message) = bench.error(client).unwrap();
    assert_eq!(code, 9001, "{message}");
    assert!(message.contains("no causality check of it has ended yet"), "{message}");
}

/// The node asks before each of them whether it takes statements: what ran before the one that it refuses may be there.
#[test]
fn a_statement_that_runs_others_is_not_run_again_at_another_node() {
    let statements =
        ["CALL p()", "BEGIN NOT ATOMIC INSERT INTO t VALUES (1); COMMIT; SELECT 1; END", "EXECUTE s"];
    for (sql, begins) in statements.into_iter().flat_map(|sql| [(sql, false), (sql, true)]) {
        let mut bench = cluster();
        let client = bench.client(0, "app");
        if begins {
            run(&mut bench, client, "BEGIN");
        }
        bench.outside = vec![0, 1];
        let ran = bench.log.len();
        let (code, message) = run(&mut bench, client, sql).unwrap();
        assert_eq!(code, 1053, "{sql}: {message}");
        assert!(message.contains("may or may not have taken effect"), "{sql}: {message}");
        assert_eq!(bench.log.len(), ran + 1, "{sql} was run again: {:?}", bench.log);
    }
}

/// They can't commit.
#[test]
fn a_statement_with_a_stored_function_runs_at_another_node() {
    let mut bench = cluster();
    let client = bench.client(0, "app");
    run(&mut bench, client, "SELECT 1 FROM t");
    bench.outside = vec![0];
    assert_eq!(run(&mut bench, client, "INSERT INTO t VALUES (f())"), None);
    let mut bench = cluster();
    let client = bench.client(0, "app");
    run(&mut bench, client, "BEGIN");
    bench.outside = vec![bench.log[0].0];
    let (code, _) = run(&mut bench, client, "INSERT INTO t VALUES (f())").unwrap();
    assert_eq!(code, 1213);
}

#[test]
fn an_execution_moves_that_such_a_node_does_not_prepare() {
    let mut bench = cluster();
    let client = bench.client(0, "app");
    let mut prepare = Vec::new();
    put_stmt_prepare(&mut prepare, b"INSERT INTO t VALUES (1)");
    bench.send(client, &prepare);
    bench.pass_ms(1);
    let node = bench.prepared[0];
    // The connection that knows the statement is somebody else's now.
    let is_taken = (0..4).any(|_| {
        let other = bench.client(0, "app");
        run(&mut bench, other, "BEGIN");
        bench.log.last().is_some_and(|(at, _)| *at == node)
    });
    assert!(is_taken);
    // The other node is busy.
    bench.holds = true;
    while bench.log.last().is_none_or(|(at, _)| *at == node) {
        let busy = bench.client(0, "app");
        bench.query(busy, "SELECT 1 FROM t");
    }
    bench.holds = false;
    bench.outside = vec![node];
    bench.clients[client].got.clear();
    let id = 1_u32.to_le_bytes();
    bench.send(client, &[&[10, 0, 0, 0, 0x17], &id[..], &[0, 1, 0, 0, 0]].concat());
    bench.pass_ms(20);
    assert!(bench.is_answered(client));
    assert_eq!(bench.error(client), None);
    assert_eq!(bench.prepared, [node, node, 1 - node]);
}

/// One server, where statements that it has undone may be run again so often.
fn undoing(deadlock_retries: u32) -> Bench {
    let group = Hostgroup { deadlock_retries, ..support::hostgroup([0]) };
    let mut bench = Bench::new(1, &[10], group, MysqlVariables::default());
    // As MariaDB (10.11) shows them.
    bench.conditions = vec![1213, 1213];
    bench
}

/// How often the UPDATE has come, and what its client was told in the end.
fn updates(bench: &mut Bench, sql: &str) -> (usize, Option<u16>) {
    let client = bench.client(0, "app");
    bench.query(client, sql);
    bench.pass_ms(200);
    assert!(!bench.clients[client].got.is_empty(), "no answer to {sql}: {:?}", bench.log);
    let told = bench.error(client).map(|(code, _)| code);
    (bench.log.iter().filter(|(_, text)| text.starts_with("UPDATE")).count(), told)
}

#[test]
fn a_statement_that_its_server_has_undone_is_run_again() {
    for (deadlocks, sent, told) in
        [(0, 1, None), (1, 2, None), (3, 4, None), (4, 4, Some(1213)), (9, 4, Some(1213))]
    {
        let mut bench = undoing(3);
        bench.deadlocks = deadlocks;
        assert_eq!(updates(&mut bench, "UPDATE t SET v = 1"), (sent, told), "{deadlocks}");
    }
    let mut bench = undoing(0);
    bench.deadlocks = 1;
    assert_eq!(updates(&mut bench, "UPDATE t SET v = 1"), (1, Some(1213)), "switched off");
    assert!(
        !bench.log.iter().any(|(_, text)| text.starts_with("SHOW")),
        "asked for nothing: {:?}",
        bench.log
    );
}

#[test]
fn what_its_server_has_not_surely_undone_whole_is_not_run_again() {
    for (conditions, count) in [
        (vec![1213, 1196], None),
        (vec![1196, 1213, 1196], None),
        (vec![1265], None),
        // max_error_count hides the rest.
        (vec![1213], Some(2)),
    ] {
        let mut bench = undoing(3);
        (bench.deadlocks, bench.conditions, bench.condition_count) = (1, conditions.clone(), count);
        assert_eq!(updates(&mut bench, "UPDATE t SET v = 1"), (1, Some(1213)), "{conditions:?} {count:?}");
        // The session goes on.
        let client = bench.client(0, "app");
        assert_eq!(run(&mut bench, client, "UPDATE t SET v = 1"), None);
    }
}

#[test]
fn what_ends_more_than_itself_is_not_run_again() {
    for before in ["BEGIN", "CREATE TEMPORARY TABLE z (id INT)"] {
        let mut bench = undoing(3);
        let client = bench.client(0, "app");
        run(&mut bench, client, before);
        bench.deadlocks = 1;
        let told = run(&mut bench, client, "UPDATE t SET v = 1").map(|(code, _)| code);
        assert_eq!(told, Some(1213), "{before}");
        assert_eq!(bench.log.iter().filter(|(_, text)| text.starts_with("UPDATE")).count(), 1, "{before}");
    }
    for sql in
        ["UPDATE t SET v = f()", "UPDATE t SET v = (@a := @a + 1)", "UPDATE t SET v = GET_LOCK('a', 1)"]
    {
        let mut bench = undoing(3);
        bench.deadlocks = 1;
        assert_eq!(updates(&mut bench, sql), (1, Some(1213)), "{sql}");
    }
}

/// The server has undone it before.
#[test]
fn a_connection_that_is_lost_while_it_is_asked_what_is_left_costs_no_second_try() {
    let mut bench = undoing(3);
    let client = bench.client(0, "app");
    assert_eq!(run(&mut bench, client, "UPDATE t SET v = 1"), None);
    bench.deadlocks = 1;
    bench.holds = true;
    bench.clients[client].got.clear();
    bench.query(client, "UPDATE t SET v = 2");
    bench.release_with(support::error(1, 1213, "Deadlock found when trying to get lock"));
    bench.lose(0);
    bench.holds = false;
    bench.pass_ms(200);
    let (code, message) = bench.error(client).unwrap();
    assert_eq!(code, 1213, "{message}");
    assert_eq!(bench.log.iter().filter(|(_, text)| text.starts_with("UPDATE")).count(), 2, "{:?}", bench.log);
    assert_eq!(run(&mut bench, client, "UPDATE t SET v = 3"), None, "the session goes on");
}
