//! Runs a session whose reads may leave an open transaction, against servers that say and do anything meanwhile.

use std::sync::Arc;

use weir_protocol::command::Command;
use weir_routing::{Options, QueryRule, Rules};

use super::{Bench, Role};

/// What the client sends: the statements around a transaction, and those that leave it or may not.
const STATEMENTS: [(Command, &[u8]); 16] = [
    (Command::Query, b"BEGIN"),
    (Command::Query, b"SELECT c FROM far WHERE id=1"),
    (Command::Query, b"COMMIT"),
    (Command::Query, b"INSERT INTO t VALUES (1)"),
    (Command::Query, b"SELECT c FROM t"),
    (Command::Query, b"SELECT LAST_INSERT_ID() FROM far"),
    (Command::Query, b"SELECT FOUND_ROWS()"),
    (Command::Query, b"SHOW WARNINGS"),
    (Command::Query, b"SET NAMES latin1"),
    (Command::Query, b"SET @far = 1"),
    (Command::Query, b"CALL far()"),
    (Command::StmtPrepare, b"SELECT c FROM far WHERE id = ?"),
    (Command::StmtExecute, b"\x01\0\0\0\0\x01\0\0\0\0\x01\xFD\0\x01x"),
    (Command::Query, b"ROLLBACK"),
    (Command::ResetConnection, b""),
    (Command::Query, b"START TRANSACTION READ ONLY"),
];

/// Each byte is a step. Below 16 a statement of the client's; below 32 another one while servers are silent; below 48
/// the next bytes, as many as its lower four bits say, come from a connection, the oldest or (bit 6) the newest; below
/// 64 one of these is closed; from 128 on servers answer again, and time passes. The first byte chooses whether the
/// client is an old one.
pub fn fuzz_core_aside(data: &[u8]) {
    let &[choice, ref steps @ ..] = data else { return };
    let mut bench = Bench::with(&[3306, 3307], rules(), false);
    bench.log_in(choice & 1 != 0);
    let mut rest = steps;
    while let Some((&step, after)) = rest.split_first() {
        rest = after;
        let (kind, argument) = (step & 0x30, usize::from(step & 0x0F));
        let is_newest = step & 0x40 != 0;
        if step & 0x80 != 0 {
            bench.server = Role::Answers;
            bench.pass_time(50_000_000 << argument);
            bench.settle();
            continue;
        }
        match kind {
            0 | 0x10 => {
                let (command, body) = STATEMENTS[argument];
                bench.server = if kind == 0 { Role::Answers } else { Role::Silent };
                bench.client_commands(command, body);
            }
            0x20 => {
                let (said, after) = rest.split_at(argument.min(rest.len()));
                rest = after;
                let chosen = if is_newest { bench.conns.last() } else { bench.conns.first() };
                if let Some(id) = chosen.map(|conn| conn.id) {
                    bench.core.data(id, &mut said.to_vec(), bench.now);
                    bench.settle();
                }
            }
            _ if !bench.conns.is_empty() => {
                let at = if is_newest { bench.conns.len() - 1 } else { 0 };
                let gone = bench.conns.remove(at);
                bench.core.closed(gone.id, bench.now);
                bench.settle();
            }
            _ => {}
        }
    }
    bench.server = Role::Answers;
    bench.end();
}

/// What names `far` is sent to hostgroup 1.
fn rules() -> Arc<Rules> {
    let rule = QueryRule {
        rule_id: 1,
        active: true,
        match_pattern: Some("far".to_owned()),
        destination_hostgroup: Some(1),
        ..QueryRule::default()
    };
    Rules::compile(&[rule], &[], Options::default()).unwrap_or_default()
}
