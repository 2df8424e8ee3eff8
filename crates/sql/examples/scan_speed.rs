//! Measures how long a scan and a digest take: `cargo run --release -p weir-sql --example scan_speed`.

use std::hint::black_box;
use std::time::Instant;

use weir_sql::{Dialect, DigestOptions, Digester, scan};

const STATEMENTS: &[(&str, &str)] = &[
    ("point select", "SELECT c FROM sbtest1 WHERE id=50122 AND tenant='ab12cd34ef'"),
    ("prepared point select", "SELECT c FROM sbtest1 WHERE id=?"),
    (
        "join with functions",
        "SELECT o.id, COUNT(*) AS items, COALESCE(SUM(i.price * i.quantity), 0) AS total, MAX(i.created_at) \
         FROM orders o LEFT JOIN order_items i ON i.order_id = o.id AND i.deleted_at IS NULL \
         WHERE o.customer_id = 918273 AND o.created_at >= '2026-10-01 00:00:00' AND o.status IN ('paid','sent') \
         GROUP BY o.id ORDER BY total DESC LIMIT 50",
    ),
    (
        "insert",
        "INSERT INTO `sbtest1` (`id`, `k`, `c`, `pad`) VALUES (50122, 49987, \
         '68487932199-96439406143-93774651418-41631865787-96406072701', '22195207048-70116052123-74140395089')",
    ),
    ("set", "SET NAMES utf8mb4, @@session.sql_mode = 'STRICT_TRANS_TABLES', autocommit = 1"),
];

fn main() {
    let dialect = Dialect::default();
    let mut digester = Digester::new(DigestOptions::default());
    for (name, text) in STATEMENTS {
        let scanned = best_ns(|| {
            black_box(scan(black_box(text.as_bytes()), dialect));
        });
        let digested = best_ns(|| {
            black_box(digester.digest(black_box(text.as_bytes())).hash);
        });
        println!("{name:22} {:4} bytes, scan {scanned:7.1} ns, digest {digested:7.1} ns", text.len());
    }
}

/// The best of many short runs: others may use the processor too.
fn best_ns(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..3000 {
        let rounds = 200_u32;
        let start = Instant::now();
        for _ in 0..rounds {
            run();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds));
    }
    best
}
