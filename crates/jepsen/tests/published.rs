//! Histories that others have published, and the names that they gave them.

use weir_jepsen::checker::{History, Key, Kind, Op, Order, Value, linearizable, list_append, rw_register};

fn read(key: Key, value: Value) -> Op {
    Op::Read { key, found: Some(value) }
}

fn write(key: Key, value: Value) -> Op {
    Op::Write { key, value }
}

fn list(key: Key, found: &[Value]) -> Op {
    Op::List { key, found: Some(found.to_vec()) }
}

fn append(key: Key, value: Value) -> Op {
    Op::Append { key, value }
}

/// Transactions of different processes: begin, end, operations.
fn history(transactions: &[(u64, u64, Vec<Op>)]) -> History {
    let mut history = History::default();
    for (process, (from, to, ops)) in (0..).zip(transactions) {
        history.push(process, *from, *to, Kind::Ok, ops.clone());
    }
    history
}

fn at_once(transactions: &[Vec<Op>]) -> History {
    history(&transactions.iter().map(|ops| (0, 100, ops.clone())).collect::<Vec<_>>())
}

/// Berenson and others, "A Critique of ANSI SQL Isolation Levels" (1995): H4, the lost update P4.
/// r1[x=100] r2[x=100] w2[x=120] c2 w1[x=130] c1
#[test]
fn critique_h4_is_a_lost_update() {
    let found = rw_register::check(
        &at_once(&[
            vec![write(1, 100)],
            vec![read(1, 100), write(1, 130)],
            vec![read(1, 100), write(1, 120)],
        ]),
        Order::RealTime,
    );
    assert!(found.names().contains(&"lost-update".to_owned()), "{:?}", found.names());
}

/// The same paper: H5, the write skew A5B. r1[x=50] r1[y=50] r2[x=50] r2[y=50] w1[y=-40] w2[x=-40] c1 c2, with other
/// numbers for the same values.
#[test]
fn critique_h5_is_write_skew() {
    let found = rw_register::check(
        &at_once(&[
            vec![write(1, 50), write(2, 50)],
            vec![read(1, 50), read(2, 50), write(2, 41)],
            vec![read(1, 50), read(2, 50), write(1, 42)],
        ]),
        Order::RealTime,
    );
    assert_eq!(found.names(), ["G2-item"]);
}

/// The same paper: A5A, read skew. r1[x] w2[x] w2[y] c2 r1[y]
#[test]
fn critique_a5a_is_read_skew() {
    let found = rw_register::check(
        &at_once(&[vec![read(1, 0), read(2, 0), write(1, 1), write(2, 1)], vec![read(1, 0), read(2, 1)]]),
        Order::RealTime,
    );
    assert_eq!(found.names(), ["G-single"]);
}

/// Adya, Liskov, O'Neil, "Generalized Isolation Level Definitions" (2000): Hwcycle.
/// w1(x1, 2) w2(x2, 5) w2(y2, 5) c2 w1(y1, 8) c1, with x1 before x2 and y2 before y1. As lists, which show that order.
#[test]
fn adya_hwcycle_is_g0() {
    let found = list_append::check(
        &at_once(&[
            vec![append(1, 2), append(2, 8)],
            vec![append(1, 5), append(2, 5)],
            vec![list(1, &[2, 5]), list(2, &[5, 8])],
        ]),
        Order::RealTime,
    );
    assert!(found.names().contains(&"G0".to_owned()), "{:?}", found.names());
}

/// The same paper: H1', in which each of two transactions reads what the other one has written.
#[test]
fn adya_circular_information_flow_is_g1c() {
    let found = rw_register::check(
        &at_once(&[vec![write(1, 2), read(2, 5)], vec![write(2, 5), read(1, 2)]]),
        Order::RealTime,
    );
    assert_eq!(found.names(), ["G1c"]);
}

/// Kingsbury, Alvaro, "Elle" (2020), of TiDB: a transaction misses an append to a list, and its own comes after that one.
#[test]
fn elle_tidb_is_g_single() {
    let found = list_append::check(
        &at_once(&[
            vec![append(34, 2)],
            vec![append(34, 1)],
            vec![list(34, &[2, 1]), append(36, 5), append(34, 4)],
            vec![append(34, 5)],
            vec![list(34, &[2, 1, 5, 4])],
        ]),
        Order::Data,
    );
    assert_eq!(found.names(), ["G-single"]);
}

/// The same paper, of Dgraph: a transaction that reads its own write as if it had not happened.
#[test]
fn elle_dgraph_is_internal() {
    let found = rw_register::check(&at_once(&[vec![write(10, 2), read(10, 0)]]), Order::Data);
    assert_eq!(found.names(), ["internal"]);
}

/// Fekete, O'Neil, O'Neil, "A Read-Only Transaction Anomaly Under Snapshot Isolation" (2004):
/// R2(X0) R2(Y0) R1(Y0) W1(Y1) C1 R3(X0) R3(Y1) C3 W2(X2) C2. Without the reader all would be well.
#[test]
fn fekete_reader_makes_snapshots_not_serializable() {
    let mut transactions =
        vec![(10, 30, vec![read(2, 0), write(2, 20)]), (0, 100, vec![read(1, 0), read(2, 0), write(1, 11)])];
    assert!(rw_register::check(&history(&transactions), Order::RealTime).names().is_empty());
    transactions.push((40, 50, vec![read(1, 0), read(2, 20)]));
    assert_eq!(rw_register::check(&history(&transactions), Order::RealTime).names(), ["G2-item"]);
}

/// Cerone, Gotsman, "Analysing Snapshot Isolation" (2016), the long fork, which parallel snapshot isolation allows and
/// snapshot isolation does not.
#[test]
fn cerone_long_fork_is_no_write_skew() {
    let found = rw_register::check(
        &at_once(&[
            vec![read(1, 0), write(1, 1)],
            vec![read(2, 0), write(2, 1)],
            vec![read(1, 1), read(2, 0)],
            vec![read(1, 0), read(2, 1)],
        ]),
        Order::Data,
    );
    assert_eq!(found.names(), ["G-nonadjacent"]);
}

/// Jepsen's report on MariaDB Galera Cluster 12.1.2 (March 2026) has lost updates and stale reads on healthy clusters; by
/// their definitions: two transactions read one version and both append; a read begins after an append was acknowledged,
/// and misses it.
#[test]
fn jepsen_galera_has_lost_updates_and_stale_reads() {
    let lost = [
        vec![append(1, 1)],
        vec![list(1, &[1]), append(1, 2)],
        vec![list(1, &[1]), append(1, 3)],
        vec![list(1, &[1, 2, 3])],
    ];
    let found = list_append::check(&at_once(&lost), Order::Data);
    assert_eq!(found.names(), ["G-single", "lost-update"]);
    let stale = [(0, 10, vec![append(1, 1)]), (20, 30, vec![list(1, &[])]), (40, 50, vec![list(1, &[1])])];
    assert_eq!(list_append::check(&history(&stale), Order::RealTime).names(), ["G-single-realtime"]);
}

/// Herlihy, Wing, "Linearizability" (1990): that a read must not go back behind another one that was over.
#[test]
fn herlihy_reads_do_not_go_back() {
    let reads = |first, second| {
        let operations =
            [(0, 100, vec![write(1, 1)]), (10, 20, vec![read(1, first)]), (30, 40, vec![read(1, second)])];
        linearizable::check(&history(&operations), linearizable::STEPS_MAX).names()
    };
    assert!(reads(0, 1).is_empty() && reads(0, 0).is_empty() && reads(1, 1).is_empty());
    assert_eq!(reads(1, 0), ["not-linearizable"]);
}
