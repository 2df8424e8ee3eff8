//! The types of what Weir itself puts into statements, and MariaDB's types that have no number.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::Command;
use weir_testkit::wire::{Login, Packet};
use weir_testkit::{Account, WeirConfig};
use weir_tests::{Case, CaseResult, Env, ensure};

use super::{Place, Twins, as_it_is, mariadb, mysql};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("wire::what_weir_knows_has_the_types_of_mariadb", |env| types(&mariadb(env)?)),
        Case::parallel("wire::what_weir_knows_has_the_types_of_mysql", |env| types(&mysql(env)?)),
        Case::parallel("wire::mariadb_tells_types_without_a_number", extended),
    ]
}

const KNOWN: [&str; 4] = ["CONNECTION_ID()", "ROW_COUNT()", "FOUND_ROWS()", "@@pseudo_thread_id"];

fn types((weir, server, schema): &Place) -> CaseResult {
    let mut twins = Twins::open(weir.addr(), *server, &Login::new(Account::APP).schema(schema))?;
    for name in KNOWN {
        // The values are others, and MySQL warns of FOUND_ROWS().
        twins.query(&format!("SELECT {name}"), |packets| packets.truncate(2))?;
        twins.query(&format!("SELECT 1 ORDER BY {name}"), |packets| packets.truncate(2))?;
        let mut tables = Vec::new();
        for client in [&mut twins.through, &mut twins.direct] {
            let create = format!(
                "CREATE TABLE made SELECT {name} AS plain, CONCAT({name}) AS text, -({name}) AS less"
            );
            let mut packets = Vec::new();
            for sql in [&*create, "SHOW CREATE TABLE made", "DROP TABLE made"] {
                packets.push(super::answer(client, &[&[Command::Query.code()], sql.as_bytes()].concat())?);
            }
            ensure!(packets[0][0].first() == Some(0), "{create}: {:?}", packets[0]);
            tables.push(packets.swap_remove(1));
        }
        super::alike(name, &tables[0], &tables[1])?;
    }
    Ok(())
}

const COLUMNS: &str = "CREATE TABLE IF NOT EXISTS kinds (id INT PRIMARY KEY, j JSON, u UUID, a INET6, p POINT, g GEOMETRY, \
    l LINESTRING, w VARCHAR(20), b BLOB)";

fn extended(env: &Env) -> CaseResult {
    let node = env.cluster()?.node(1);
    let version = node.root_query("SELECT VERSION()")?.concat().concat();
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(node.addr(), 1, &[("max_connections", 2.into())]);
    config.user(Account::APP, 1, &[]).variable("server_version", version);
    config.monitor(Account::MONITOR);
    let weir = env.weir_with(&config)?;
    let plain = Login::new(Account::APP).schema(&env.schema()?).without(Capabilities::LONG_PASSWORD);
    let asking = plain.clone().with(Capabilities::MARIADB_EXTENDED_METADATA);
    let mut plain = Twins::open(weir.addr(), node.addr(), &plain)?;
    let mut asking = Twins::open(weir.addr(), node.addr(), &asking)?;
    super::answer(&mut plain.direct, &[&[Command::Query.code()], COLUMNS.as_bytes()].concat())?;
    for _ in 0..2 {
        for twins in [&mut asking, &mut plain] {
            let packets = twins.query("SELECT * FROM kinds", as_it_is)?;
            let says_json =
                packets.iter().any(|packet: &Packet| packet.payload.windows(4).any(|part| part == b"json"));
            let asks = twins.through.capabilities().contains(Capabilities::MARIADB_EXTENDED_METADATA);
            ensure!(says_json == asks, "{packets:?}");
            twins.ask(
                &[&[Command::StmtPrepare.code()], &b"SELECT j, p, ? FROM kinds"[..]].concat(),
                as_it_is,
            )?;
            twins.execute("SELECT u, a, ? FROM kinds", &[7], 0, as_it_is)?;
            twins.query("SELECT 1/0", as_it_is)?;
            twins.query("SHOW WARNINGS", as_it_is)?;
        }
    }
    Ok(())
}
