//! Checks how much a session may have prepared.

#![allow(clippy::unwrap_used)]

mod support;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::command::{put_reset_connection, put_stmt_close, put_stmt_prepare};

#[test]
fn a_session_has_prepared_statements_of_so_many_bytes_at_most() {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    let client = bench.client(0, "app");
    let mut number = 0;
    let mut prepare = |bench: &mut Bench| {
        number += 1;
        let mut command = Vec::new();
        put_stmt_prepare(&mut command, format!("SELECT {number}, '{}'", "x".repeat(1_000_000)).as_bytes());
        bench.send(client, &command);
        let reply = bench.reply(client).unwrap();
        reply[0] == 0
    };
    let prepared = (0..100).take_while(|_| prepare(&mut bench)).count();
    assert!((30..=34).contains(&prepared), "{prepared} MB");
    let mut close = Vec::new();
    put_stmt_close(&mut close, 1);
    bench.send(client, &close);
    assert!(prepare(&mut bench) && !prepare(&mut bench), "one has gone, one may come");
    let mut reset = Vec::new();
    put_reset_connection(&mut reset);
    bench.send(client, &reset);
    assert!(bench.is_answered(client) && prepare(&mut bench));
}
