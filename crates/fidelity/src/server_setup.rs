//! Prepares a server for the stages that play there.

use weir_lab::Error;
use weir_testkit::{Account, Family, Mysql, MysqlServer};

use crate::client::{Client, Who};
use crate::names::Names;
use crate::session_view::Looker;
use crate::stage::{done, who};
use crate::variables::rows;

/// Does what stages are not for.
const CONTROL: Account = Account { user: "fidcontrol", password: "fidcontrol" };

/// The account that looks behind the scenes, and the server's version.
#[derive(Debug, Clone)]
pub(crate) struct PreparedServer {
    pub(crate) control: Who,
    pub(crate) version: String,
    pub(crate) names: Vec<Names>,
}

impl PreparedServer {
    /// Makes accounts and schemas for `stages` stages.
    pub(crate) fn lay(mysql: &Mysql, stages: usize) -> Result<PreparedServer, Error> {
        let (server, family) = (mysql.source(), mysql.family());
        let control = Who { user: CONTROL.user.to_owned(), password: CONTROL.password.to_owned() };
        account(mysql, CONTROL.user)?;
        let mut prepared = PreparedServer { control, version: String::new(), names: Vec::new() };
        let mut client = Client::open(server.addr(), &prepared.control, "test")?;
        prepared.version = rows(&mut client, "SELECT VERSION()")?.concat().concat();
        let seeded = seeded(server, &prepared.control)?;
        for number in 1..=stages {
            let names = Names::new(number, &seeded);
            for letter in ['a', 'c'] {
                account(mysql, &names.user(letter))?;
            }
            for sql in schemas(family) {
                done(&mut client, &names.fill(&sql))?;
            }
            for letter in ['a', 'b', 'c', 'd', 'o'] {
                let schema = names.schema(letter);
                done(&mut client, &format!("CREATE DATABASE {schema}"))?;
                done(
                    &mut client,
                    &format!(
                        "CREATE TABLE {schema}.mark (id BIGINT AUTO_INCREMENT PRIMARY KEY, who VARCHAR(10), \
                         made TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
                    ),
                )?;
            }
            let role = names.fill("<role>");
            done(&mut client, &format!("CREATE ROLE {role}"))?;
            done(&mut client, &format!("GRANT {role} TO {}", who(&names, Looker::A).user))?;
            prepared.names.push(names);
        }
        client.quit();
        Ok(prepared)
    }
}

/// With all rights: that a session lacks some must not hide what it sees. Its name is its password.
fn account(mysql: &Mysql, user: &str) -> Result<(), Error> {
    mysql.source().root_query(&format!(
        "CREATE USER {user}@'%' IDENTIFIED BY '{user}'; GRANT ALL ON *.* TO {user}@'%' WITH GRANT OPTION"
    ))?;
    if mysql.family() == Family::Mysql {
        // Accounts hold words that live as long as the program.
        let word: &'static str = user.to_owned().leak();
        mysql.remember_password(Account { user: word, password: word })?;
    }
    Ok(())
}

/// What all sessions of a stage share.
fn schemas(family: Family) -> Vec<String> {
    let mut statements: Vec<String> = [
        "CREATE DATABASE <s>",
        "CREATE TABLE <s>.shadow (what VARCHAR(20) NOT NULL)",
        "INSERT INTO <s>.shadow VALUES ('permanent')",
        "CREATE TABLE <s>.locked (id INT)",
        "CREATE TABLE <s>.moved (id INT)",
        "CREATE TABLE <s>.uncommitted (id INT)",
        "CREATE TABLE <s>.numbered (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
        "CREATE TABLE <s>.counted (n INT)",
        "INSERT INTO <s>.counted VALUES (1)",
        "CREATE TABLE <s>.stopwords (value VARCHAR(30)) ENGINE=InnoDB",
    ]
    .map(str::to_owned)
    .to_vec();
    if family == Family::Mariadb {
        statements.push("CREATE SEQUENCE <s>.sequence".to_owned());
    }
    statements
}

/// The first random number after both seeds were 77.
fn seeded(server: &MysqlServer, who: &Who) -> Result<String, Error> {
    let mut client = Client::open(server.addr(), who, "test")?;
    done(&mut client, "SET rand_seed1 = 77, rand_seed2 = 77")?;
    let number = rows(&mut client, "SELECT RAND()")?.concat().concat();
    client.quit();
    Ok(number)
}
