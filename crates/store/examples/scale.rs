//! Measures how long the store takes with a large configuration and many digests:
//! `cargo run --release -p weir-store --example scale [DIRECTORY]`
//!
//! 50,000 users, 10,000 query rules, 1,000 servers and 1,000,000 digests. Prints seconds, one step a line.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use weir_config::{Cell, TableRow, TableRows};
use weir_store::{Layer, Module, STATS, Store, Value};

const USERS: i64 = 50_000;
const RULES: i64 = 10_000;
const SERVERS: i64 = 1_000;
const DIGESTS: i64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let dir =
        given.unwrap_or_else(|| std::env::temp_dir().join(format!("weir-scale-{}", std::process::id())));
    let mut store = Store::open(&dir)?.store;
    let rows = configuration();
    timed("rows to memory", || store.replace(&Module::ALL, &rows))?;
    timed("SAVE TO DISK", || store.copy_all(&Module::ALL, Layer::Memory, Layer::Disk))?;
    timed("LOAD FROM DISK", || store.copy_all(&Module::ALL, Layer::Disk, Layer::Memory))?;
    let loaded = timed("LOAD TO RUNTIME: read and check all", || store.prepare_runtime(&Module::ALL));
    let loaded = loaded.map_err(|faults| format!("{faults:?}"))?;
    timed("LOAD TO RUNTIME: note", || store.commit_runtime(loaded))?;
    let loaded = timed("LOAD MYSQL SERVERS TO RUNTIME", || store.prepare_runtime(&[Module::MysqlServers]));
    let loaded = loaded.map_err(|faults| format!("{faults:?}"))?;
    timed("the same again: note", || store.commit_runtime(loaded))?;
    let digests = || (0..DIGESTS).map(digest);
    timed("1,000,000 digests put", || store.put(STATS, "stats_mysql_query_digest", digests()))?;
    timed("the same again", || store.put(STATS, "stats_mysql_query_digest", digests()))?;
    let top = "SELECT digest FROM stats.stats_mysql_query_digest ORDER BY sum_time DESC LIMIT 10";
    timed("the ten hottest", || -> Result<usize, rusqlite::Error> {
        let mut statement = store.connection().prepare(top)?;
        let found = statement.query_map([], |row| row.get::<_, String>(0))?.count();
        Ok(found)
    })?;
    drop(store);
    timed("open again", || Store::open(&dir))?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn timed<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = step();
    println!("{:>8.3} s  {what}", start.elapsed().as_secs_f64());
    result
}

fn configuration() -> TableRows {
    let mut rows = TableRows::new();
    for at in 0..SERVERS {
        let host = format!("10.0.{}.{}", at / 250, at % 250 + 1);
        rows.push("mysql_servers", row([("hostgroup_id", (at % 100).into()), ("hostname", host.into())]));
    }
    for at in 0..USERS {
        let cells = [
            ("username", format!("user{at}").into()),
            ("password", format!("*{at:040X}").into()),
            ("default_hostgroup", (at % 100).into()),
        ];
        rows.push("mysql_users", row(cells));
    }
    for at in 0..RULES {
        let cells = [
            ("rule_id", (at + 1).into()),
            ("active", 1.into()),
            ("match_digest", format!("^SELECT .* FROM table{at} WHERE").into()),
            ("destination_hostgroup", (at % 100).into()),
            ("apply", 1.into()),
        ];
        rows.push("mysql_query_rules", row(cells));
    }
    rows
}

fn row<const N: usize>(cells: [(&'static str, Cell); N]) -> TableRow {
    cells.into_iter().map(|(name, cell)| (name.into(), cell)).collect()
}

fn digest(at: i64) -> Vec<Value> {
    let text = |text: String| Value::Text(text);
    let mut row = vec![
        Value::Integer(100),
        text("shop".into()),
        text("app".into()),
        text(String::new()),
        text(format!("0x{:016X}", at.wrapping_mul(0x09E3_779B_97F4_A7C1))),
        text(format!("SELECT c FROM sbtest{at} WHERE id=?")),
    ];
    row.extend((0..8).map(|column| Value::Integer(at * column)));
    row
}
