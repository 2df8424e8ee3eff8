//! Runs ProxySQL, where it is installed: the other layer-7 proxy of the benchmark.

use std::fmt::{self, Write as _};
use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::Process;
use crate::{Account, TestkitError, preflight};

const START_TIMEOUT: Duration = Duration::from_secs(15);

/// What ProxySQL shall do; all else has its default.
#[derive(Debug, Clone)]
pub struct ProxySqlOptions {
    /// Tells several ProxySQLs of one run apart; part of the file names.
    pub name: String,
    /// Where clients connect.
    pub listen: SocketAddrV4,
    /// Where its admin interface listens.
    pub admin: SocketAddrV4,
    /// Threads, as Weir's workers.
    pub threads: u16,
    /// The clients it takes at most.
    pub clients_max: u32,
    /// Further rows of `global_variables`, without "mysql-".
    pub variables: Vec<(&'static str, ProxySqlValue)>,
    /// Hostgroup, address, and `max_connections` where it is not the default.
    pub servers: Vec<(i64, SocketAddrV4, Option<u32>)>,
    /// Who may log in.
    pub account: Account,
    /// Where the account's statements go.
    pub default_hostgroup: i64,
    /// Rows of `mysql_query_rules`.
    pub rules: Vec<Vec<(&'static str, ProxySqlValue)>>,
}

/// A value of ProxySQL's configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxySqlValue {
    /// A number.
    Number(i64),
    /// A text, quoted where it is written.
    Text(String),
}

impl From<i64> for ProxySqlValue {
    fn from(number: i64) -> Self {
        ProxySqlValue::Number(number)
    }
}

impl From<&str> for ProxySqlValue {
    fn from(text: &str) -> Self {
        ProxySqlValue::Text(text.to_owned())
    }
}

impl fmt::Display for ProxySqlValue {
    /// As libconfig reads it: strings in double quotes, with backslash escapes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxySqlValue::Number(number) => write!(f, "{number}"),
            ProxySqlValue::Text(text) => {
                write!(f, "\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
            }
        }
    }
}

impl ProxySqlOptions {
    /// The text of the configuration file
    /// (<https://proxysql.com/documentation/configuring-proxysql/>).
    pub fn render(&self) -> String {
        let Account { user, password } = self.account;
        let mut text = format!(
            "\
admin_variables = {{ admin_credentials=\"admin:admin\"; mysql_ifaces=\"{admin}\"; }};
mysql_variables =
{{
    interfaces=\"{listen}\"
    threads={threads}
    max_connections={clients}
    monitor_username=\"{monitor}\"
    monitor_password=\"{monitor_password}\"
",
            admin = self.admin,
            listen = self.listen,
            threads = self.threads,
            clients = self.clients_max,
            monitor = Account::MONITOR.user,
            monitor_password = Account::MONITOR.password,
        );
        for (name, value) in &self.variables {
            // Writing to a String can't fail.
            let _ = writeln!(text, "    {name}={value}");
        }
        text.push_str("};\n");
        let servers = self.servers.iter().map(|(hostgroup, address, connections_max)| {
            let mut row: Vec<(&str, ProxySqlValue)> = vec![
                ("address", address.ip().to_string().as_str().into()),
                ("port", i64::from(address.port()).into()),
                ("hostgroup", (*hostgroup).into()),
            ];
            row.extend(connections_max.map(|max| ("max_connections", i64::from(max).into())));
            row
        });
        list(&mut text, "mysql_servers", servers);
        let account = vec![
            ("username", user.into()),
            ("password", password.into()),
            ("default_hostgroup", self.default_hostgroup.into()),
            ("max_connections", i64::from(self.clients_max).into()),
            ("active", 1.into()),
        ];
        list(&mut text, "mysql_users", [account]);
        list(&mut text, "mysql_query_rules", self.rules.iter().cloned());
        text
    }
}

fn list<'a>(text: &mut String, name: &str, rows: impl IntoIterator<Item = Vec<(&'a str, ProxySqlValue)>>) {
    let row = |row: Vec<(&str, ProxySqlValue)>| {
        let fields: Vec<String> = row.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("    {{ {} }}", fields.join("; "))
    };
    let rows: Vec<String> = rows.into_iter().map(row).collect();
    let _ = write!(text, "{name} =\n(\n{}\n);\n", rows.join(",\n"));
}

/// A running ProxySQL; dropping it kills it.
#[derive(Debug)]
pub struct ProxySql {
    process: Process,
    listen: SocketAddrV4,
}

impl ProxySql {
    /// Writes the configuration into `dir`, starts `program` and waits until it accepts connections.
    pub fn start(program: &Path, options: &ProxySqlOptions, dir: &Path) -> Result<ProxySql, TestkitError> {
        preflight::port_is_free(options.listen)?;
        preflight::port_is_free(options.admin)?;
        let datadir = dir.join(format!("{}-data", options.name));
        let config_path = dir.join(format!("{}.cnf", options.name));
        let log_path = dir.join(format!("{}.log", options.name));
        fs::create_dir_all(&datadir).map_err(TestkitError::io(format!("make {}", datadir.display())))?;
        let doing = TestkitError::io(format!("write {}", config_path.display()));
        fs::write(&config_path, options.render()).map_err(doing)?;
        let mut command = Command::new(program);
        // In the foreground, from the file and not from an earlier database, without asking for newer versions.
        command.args(["--initial", "-f", "--no-version-check", "-D"]).arg(&datadir);
        command.arg("-c").arg(&config_path);
        let process = Process::serve(&options.name, &mut command, options.listen, &log_path, START_TIMEOUT)?;
        Ok(ProxySql { process, listen: options.listen })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddrV4 {
        self.listen
    }

    /// Its process, for memory and CPU time.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_servers_users_and_rules() {
        let options = ProxySqlOptions {
            name: "proxysql".to_owned(),
            listen: "127.0.0.1:6033".parse().unwrap(),
            admin: "127.0.0.1:6032".parse().unwrap(),
            threads: 2,
            clients_max: 100,
            variables: vec![("ssl_p2s_ca", "/x/ca.pem".into())],
            servers: vec![
                (100, "127.0.0.41:3306".parse().unwrap(), None),
                (102, "127.0.0.42:3306".parse().unwrap(), Some(50)),
            ],
            account: Account::APP,
            default_hostgroup: 100,
            rules: vec![vec![("rule_id", 1.into()), ("match_digest", r"^\S".into())]],
        };
        let text = options.render();
        for line in [
            r#"    interfaces="127.0.0.1:6033""#,
            "    threads=2",
            r#"    ssl_p2s_ca="/x/ca.pem""#,
            r#"    { address="127.0.0.41"; port=3306; hostgroup=100 },"#,
            r#"    { address="127.0.0.42"; port=3306; hostgroup=102; max_connections=50 }"#,
            r#"    { username="app"; password="app"; default_hostgroup=100; max_connections=100; active=1 }"#,
            r#"    { rule_id=1; match_digest="^\\S" }"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }
}
