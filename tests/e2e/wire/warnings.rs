//! SHOW WARNINGS behind statements that leave the warnings of the one before, and behind errors of Weir's own.

use weir_protocol::command::Command;
use weir_testkit::Account;
use weir_testkit::wire::{Login, RawClient};
use weir_tests::{Case, CaseResult};

use super::{Place, Twins, as_it_is, mysql};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("wire::warnings_behind_statements_without_tables_on_mariadb", |env| {
            // While a text PREPARE holds the connection, the other client is refused soon.
            let weir = env.narrow_weir_with(&[1], 1, |config| {
                config.variable("connect_timeout_server_max", 1000);
            })?;
            warnings(&(weir, env.cluster()?.node(1).addr(), env.schema()?), &[ANYWHERE, OF_MARIADB].concat())
        }),
        Case::parallel("wire::warnings_behind_statements_without_tables_on_mysql", |env| {
            warnings(&mysql(env)?, ANYWHERE)
        }),
    ]
}

const ANYWHERE: &[&str] = &[
    "ALTER DATABASE CHARACTER SET utf8mb4",
    "PREPARE s FROM 'SELECT 1/0'",
    "PREPARE s FROM 'SELECT 1 FROM t'",
    "PREPARE s FROM 'SELEC'",
    "DEALLOCATE PREPARE s",
    "KILL 4000000000",
    "KILL QUERY 4000000000",
    "SET session_track_schema = 'neither'",
    "XA RECOVER",
    "SHOW GRANTS",
    "SHOW TABLES",
    "SHOW PROCESSLIST",
    "COMMIT",
    "DO 1",
];

const OF_MARIADB: &[&str] = &[
    "CREATE OR REPLACE DATABASE @_more",
    "DROP DATABASE IF EXISTS @_none",
    "CREATE OR REPLACE FUNCTION f() RETURNS INT RETURN 1",
    "CREATE OR REPLACE PROCEDURE p() SELECT * FROM t",
    "CREATE OR REPLACE VIEW v AS SELECT 1",
    "HELP 'nothing'",
];

fn warnings((weir, server, schema): &Place, texts: &[&str]) -> CaseResult {
    let login = Login::new(Account::APP).schema(schema);
    let mut other = RawClient::login(weir.addr(), &login)?;
    let mut twins = Twins::open(weir.addr(), *server, &login)?;
    twins.direct.query("CREATE TABLE t (id INT PRIMARY KEY)")?;
    for text in texts {
        let text = text.replace('@', schema);
        for begins_with in ["SELECT 1/0", "SELECT 1 FROM t"] {
            twins.query(begins_with, as_it_is)?;
            for client in [&mut twins.through, &mut twins.direct] {
                super::answer(client, &[&[Command::Query.code()], text.as_bytes()].concat())?;
            }
            // The one connection has served somebody else.
            other.query("SELECT 'other' FROM t")?;
            for ask in ["SHOW WARNINGS", "SHOW ERRORS", "SHOW COUNT(*) ERRORS", "SELECT @@warning_count"] {
                let answer = twins.query(ask, |packets| packets.iter_mut().for_each(|packet| packet.seq = 0));
                answer.map_err(|error| format!("after {begins_with}, {text}: {error}"))?;
            }
        }
    }
    Ok(())
}
