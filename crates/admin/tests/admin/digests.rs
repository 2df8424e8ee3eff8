//! Digests, of which there may be very many.

use std::sync::mpsc::channel;
use std::thread;

use super::{Rig, query, refusal};

#[test]
fn nobody_waits_for_who_reads_all_digests() {
    let rig = Rig::start();
    let (reached, is_reached) = channel();
    let (go_on, may_go_on) = channel();
    *rig.notes.pause.lock().unwrap() = Some((reached, may_go_on));
    let mut reader = rig.admin();
    let reads = thread::spawn(move || {
        query(&mut reader, "SELECT COUNT(*), MAX(count_star), USER() FROM stats_mysql_query_digest")
    });
    is_reached.recv().unwrap();
    let mut other = rig.admin();
    assert_eq!(query(&mut other, "SELECT Variable_Value FROM stats_mysql_global"), [["1"]]);
    query(&mut other, "INSERT INTO mysql_users (username) VALUES ('x')");
    go_on.send(()).unwrap();
    assert_eq!(reads.join().unwrap(), [["3", "2", "admin@%"]]);
    // Where the digests are not alone, they are in the one database with all else.
    let joined = "SELECT COUNT(*) FROM stats_mysql_query_digest d JOIN mysql_users u USING (username)";
    assert_eq!(query(&mut other, joined), [["3"]]);
    assert!(refusal(&mut other, "DELETE FROM stats_mysql_query_digest").contains("can't be changed"));
    query(&mut other, "TRUNCATE stats_mysql_query_digest");
    let reads = rig.notes.reads.lock().unwrap();
    assert_eq!(reads.get("reset of stats_mysql_query_digest_reset"), Some(&1));
}
