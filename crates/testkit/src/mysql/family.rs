//! Lists the differences between the two families of servers.

use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::server::{MysqlServer, ServerConfig};
use super::{ACCOUNTS, INITIALIZE_TIMEOUT, Programs, REPLICATION, START_TIMEOUT};
use crate::process::run_checked;
use crate::run_dir::ServerUser;
use crate::template::Template;
use crate::{Account, TestkitError, versions};

/// Each server makes its own identity; the rest is faster made anew than copied.
const LEFT_OUT: [&str; 2] = ["auto.cnf", "ib_buffer_pool"];

/// Whose servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Oracle MySQL, from `scripts/get-mysql` or where `WEIR_TEST_MYSQL` says.
    Mysql,
    /// The system's MariaDB or that of `WEIR_TEST_MARIADB`, without Galera.
    Mariadb,
}

impl Family {
    pub(super) fn programs(self) -> Result<Programs, TestkitError> {
        let user = ServerUser::current()?;
        if self == Self::Mariadb {
            return Ok(Programs {
                server: versions::mariadb("mariadbd", "mariadb-server")?,
                client: versions::mariadb("mariadb", "mariadb-client")?,
                install_db: Some(versions::mariadb("mariadb-install-db", "mariadb-server")?),
                user,
            });
        }
        Ok(Programs {
            server: versions::mysql("mysqld")?,
            client: versions::mysql("mysql")?,
            install_db: None,
            user,
        })
    }

    /// Lines of my.cnf beside those that both understand. Small and fast to start: a test server, not a database.
    pub(super) fn cnf(self, config: &ServerConfig) -> String {
        match self {
            Self::Mysql => "\
mysqlx=OFF
secure-file-priv=
gtid-mode=ON
enforce-gtid-consistency=ON
innodb-redo-log-capacity=64M
"
            .to_owned(),
            // A server that starts removes what others have left in its tmpdir, or are using there.
            Self::Mariadb => format!(
                "\
tmpdir={}
log-slave-updates=ON
binlog-format=ROW
innodb-log-file-size=48M
",
                config.file(".tmp").display()
            ),
        }
    }

    /// Asks for all transactions of a server.
    pub(super) fn position(self) -> &'static str {
        match self {
            Self::Mysql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
            Self::Mariadb => "SELECT @@GLOBAL.gtid_current_pos",
        }
    }

    /// Waits for a position, so many seconds; gives 0 if it is there.
    pub(super) fn wait_function(self) -> &'static str {
        match self {
            Self::Mysql => "WAIT_FOR_EXECUTED_GTID_SET",
            Self::Mariadb => "MASTER_GTID_WAIT",
        }
    }

    /// Makes a read-only replica.
    pub(super) fn replicate_from(self, source: SocketAddrV4) -> String {
        let Account { user, password } = REPLICATION;
        let (ip, port) = (source.ip(), source.port());
        match self {
            Self::Mysql => format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{ip}', SOURCE_PORT = {port}, SOURCE_USER = '{user}', \
                 SOURCE_PASSWORD = '{password}', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1, \
                 SOURCE_CONNECT_RETRY = 1; START REPLICA; SET GLOBAL super_read_only = ON"
            ),
            Self::Mariadb => format!(
                "CHANGE MASTER TO MASTER_HOST = '{ip}', MASTER_PORT = {port}, MASTER_USER = '{user}', \
                 MASTER_PASSWORD = '{password}', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1; \
                 START SLAVE; SET GLOBAL read_only = ON"
            ),
        }
    }

    /// The data directory that every server starts with; makes it in `dir` if this machine has none yet.
    pub(super) fn template(
        self,
        programs: &Programs,
        dir: &Path,
        servers: &[MysqlServer],
        progress: fn(&str),
    ) -> Result<Template, TestkitError> {
        let mut command = Command::new(&programs.server);
        let version = run_checked("the server's --version", command.arg("--version"), START_TIMEOUT)?;
        let name = if self == Self::Mysql { "mysql" } else { "mariadb" };
        let content = (version, self.accounts_sql(), include_str!("family.rs"));
        let template = Template::new(name, content, &LEFT_OUT)?;
        if !template.exists() {
            progress("first start on this machine: initialising a data directory (a few seconds, once)");
            match self {
                Self::Mysql => self.make_mysql(programs, dir, &template)?,
                Self::Mariadb => self.make_mariadb(programs, servers, &template)?,
            }
        }
        Ok(template)
    }

    fn make_mysql(self, programs: &Programs, dir: &Path, template: &Template) -> Result<(), TestkitError> {
        let (data, accounts) = (dir.join("template"), dir.join("accounts.sql"));
        std::fs::write(&accounts, self.accounts_sql())
            .map_err(TestkitError::io(format!("write {}", accounts.display())))?;
        let mut initialize = Command::new(&programs.server);
        initialize.args([
            "--initialize-insecure",
            // Nothing that replicas would have to replay, so that all servers begin with the same data.
            "--skip-log-bin",
            "--innodb-redo-log-capacity=8M",
            "--innodb-buffer-pool-size=64M",
        ]);
        initialize.arg(format!("--datadir={}", data.display()));
        initialize.arg(format!("--init-file={}", accounts.display()));
        if programs.user.switched {
            initialize.arg("--user=mysql");
        }
        run_checked("mysqld --initialize-insecure", &mut initialize, INITIALIZE_TIMEOUT)?;
        template.take(&data)
    }

    /// With the help of the first server, which runs for that.
    fn make_mariadb(
        self,
        programs: &Programs,
        servers: &[MysqlServer],
        template: &Template,
    ) -> Result<(), TestkitError> {
        let (Some(install_db), Some(server)) = (&programs.install_db, servers.first()) else {
            return Err(TestkitError::Options("there is no server to make a data directory with".to_owned()));
        };
        let mut install = Command::new(install_db);
        install.arg("--no-defaults").arg(format!("--datadir={}", server.data_dir().display()));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.arg("--innodb-log-file-size=48M");
        if programs.user.switched {
            install.arg("--user=mysql");
        }
        run_checked("mariadb-install-db", &mut install, INITIALIZE_TIMEOUT)?;
        server.spawn()?;
        server.wait_ready(START_TIMEOUT, &AtomicBool::new(false))?;
        // Nothing that replicas would have to replay.
        server.root_query(&format!("SET SESSION sql_log_bin = 0; {}", self.accounts_sql()))?;
        server.stop()?;
        template.take(&server.data_dir())
    }

    /// Schemas and accounts, one statement per line as `--init-file` wants it. Names are fixed words, so nothing needs
    /// quoting.
    fn accounts_sql(self) -> String {
        let create = |account: Account, grants: &str| {
            let Account { user, password } = account;
            format!("CREATE USER {user}@'%' IDENTIFIED BY '{password}';\nGRANT {grants} TO {user}@'%';\n")
        };
        let [app, app2, limited, monitor] = ACCOUNTS;
        let mut sql = [
            "CREATE DATABASE sbtest;\nCREATE DATABASE test;\nCREATE DATABASE limited;\n".to_owned(),
            create(app, "ALL ON *.*"),
            create(app2, "ALL ON *.*"),
            create(limited, "ALL ON limited.*"),
        ]
        .concat();
        match self {
            Self::Mysql => sql += &create(monitor, "REPLICATION CLIENT ON *.*"),
            Self::Mariadb => {
                // Anonymous accounts for this host would win over named ones for '%'.
                sql.insert_str(0, "DELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n");
                sql += &create(monitor, "REPLICA MONITOR ON *.*");
                // They write on a server that is read_only, which applications must not.
                for Account { user, .. } in [app, app2] {
                    sql += &format!("REVOKE READ_ONLY ADMIN, SUPER ON *.* FROM {user}@'%';\n");
                }
            }
        }
        sql + &create(REPLICATION, "REPLICATION SLAVE ON *.*")
    }
}
