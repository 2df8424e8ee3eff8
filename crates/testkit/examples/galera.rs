//! Starts a cluster, shows how long that and the usual accidents take, and stops it.
//!
//! `cargo run -p weir-testkit --example galera`

use std::time::Instant;

use weir_testkit::{Galera, GaleraOptions, TestkitError};

fn main() -> Result<(), TestkitError> {
    let started = Instant::now();
    let timed = |what: &str| println!("{:6.2} s  {what}", started.elapsed().as_secs_f64());
    let cluster =
        Galera::start(GaleraOptions { progress: |line| println!("{line}"), ..GaleraOptions::tests() })?;
    timed("started");
    cluster.node(1).root_query("CREATE TABLE test.t (id INT PRIMARY KEY); INSERT INTO test.t VALUES (1)")?;
    cluster.node(3).stop()?;
    timed("n3 stopped");
    cluster.wait_synced(std::time::Duration::from_secs(10))?;
    timed("the others agree");
    cluster.start_node(3)?;
    timed("n3 joined again");
    cluster.node(1).kill()?;
    cluster.wait_synced(std::time::Duration::from_secs(10))?;
    timed("n1 killed and the others agree");
    cluster.start_node(1)?;
    timed("n1 joined again");
    drop(cluster);
    timed("all stopped");
    Ok(())
}
