//! Runs MySQL Router in front of a Group Replication group.
//!
//! Router finds a group's primary by the metadata of InnoDB Cluster, which MySQL Shell writes; Debian has no MySQL Shell.
//! Of that metadata Router reads some views of the schema `mysql_innodb_cluster_metadata` (its log names each that is
//! missing): here is a schema with what they have to tell.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::group::GROUP_NAME;
use super::{Mysql, MysqlServer};
use crate::process::{Process, wait_for_port};
use crate::{Account, TestkitError, cache_dir, preflight};

/// The longest until it accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The name of the cluster in its metadata.
const CLUSTER: &str = "weir";

/// Where MySQL Router's clients connect.
#[derive(Debug, Clone)]
pub struct MysqlRouterOptions {
    /// Tells several of one run apart; part of the file names.
    pub name: String,
    /// For what writes: connections go to the primary.
    pub writes: SocketAddrV4,
    /// For reads: to the secondaries in turn.
    pub reads: SocketAddrV4,
}

/// A running MySQL Router; dropping it kills it.
#[derive(Debug)]
pub struct MysqlRouter {
    // Ended with this.
    _process: Process,
    options: MysqlRouterOptions,
}

impl MysqlRouter {
    /// Writes metadata into the group and a configuration into the group's directory, starts MySQL Router and waits until
    /// it accepts connections.
    ///
    /// # Errors
    /// [`TestkitError::NoMysql`] if it was not unpacked.
    pub fn start(group: &Mysql, options: MysqlRouterOptions) -> Result<MysqlRouter, TestkitError> {
        let program = program("mysqlrouter")?;
        preflight::port_is_free(options.writes)?;
        preflight::port_is_free(options.reads)?;
        let dir = group.dir().join(&options.name);
        let doing = |path: &Path| TestkitError::io(format!("write {}", path.display()));
        fs::create_dir(&dir).map_err(doing(&dir))?;
        register(group)?;
        write_password(&dir)?;
        let write = |name: &str, text: String| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(doing(&path)).map(|()| path)
        };
        write("state.json", state(group.servers()))?;
        let config_path = write(
            "mysqlrouter.conf",
            options.render(&dir, &cache_dir()?.join("mysql/usr/lib/mysqlrouter/plugin")),
        )?;
        let log_path = dir.join("mysqlrouter.log");
        let mut command = Command::new(program);
        let process = Process::spawn_logged(&options.name, command.arg("-c").arg(&config_path), &log_path)?;
        for address in [options.writes, options.reads] {
            wait_for_port(address, &process, &log_path, START_TIMEOUT)?;
        }
        Ok(MysqlRouter { _process: process, options })
    }

    /// Where what writes connects.
    pub fn writes(&self) -> SocketAddrV4 {
        self.options.writes
    }

    /// Where reads connect.
    pub fn reads(&self) -> SocketAddrV4 {
        self.options.reads
    }
}

impl MysqlRouterOptions {
    /// A look at the group every half a second; connections pass through with their own TLS.
    fn render(&self, dir: &Path, plugins: &Path) -> String {
        let Account { user, .. } = Account::MONITOR;
        let routing = |name: &str, bind: &SocketAddrV4, role: &str, strategy: &str| {
            format!(
                "[routing:{name}]\nbind_address={}\nbind_port={}\ndestinations=metadata-cache://{CLUSTER}/?role={role}\n\
                 routing_strategy={strategy}\nprotocol=classic\nmax_connections=2000\n",
                bind.ip(),
                bind.port()
            )
        };
        let dir = dir.display();
        format!(
            "[DEFAULT]\nname={}\nplugin_folder={}\nlogging_folder=\nruntime_folder={dir}\ndata_folder={dir}\nkeyring_path={dir}/keyring\n\
             master_key_path={dir}/key\ndynamic_state={dir}/state.json\nconnect_timeout=5\nread_timeout=30\n\
             client_ssl_mode=PASSTHROUGH\nserver_ssl_mode=AS_CLIENT\nunknown_config_option=error\n\
             [logger]\nlevel=INFO\n\
             [metadata_cache:weir]\ncluster_type=gr\nrouter_id=1\nuser={user}\nmetadata_cluster={CLUSTER}\nttl=0.5\n\
             auth_cache_ttl=-1\nauth_cache_refresh_interval=2\nuse_gr_notifications=0\n{}{}",
            self.name,
            plugins.display(),
            routing("writes", &self.writes, "PRIMARY", "first-available"),
            routing("reads", &self.reads, "SECONDARY", "round-robin-with-fallback"),
        )
    }
}

/// One of the programs that `scripts/get-mysql` unpacks.
fn program(name: &str) -> Result<PathBuf, TestkitError> {
    let path = cache_dir()?.join("mysql/bin").join(name);
    if path.is_file() { Ok(path) } else { Err(TestkitError::NoMysql { path }) }
}

/// Router takes its account's password from a file of its own kind.
fn write_password(dir: &Path) -> Result<(), TestkitError> {
    let Account { user, password } = Account::MONITOR;
    let (key, keyring) = (dir.join("key"), dir.join("keyring"));
    for (arguments, input) in [(vec!["init"], ""), (vec!["set", user, "password"], password)] {
        let mut command = Command::new(program("mysqlrouter_keyring")?);
        command.arg(arguments[0]).arg(format!("--master-key-file={}", key.display())).arg(&keyring);
        command
            .args(arguments.iter().skip(1))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let doing = || TestkitError::io("run mysqlrouter_keyring");
        let mut child = command.spawn().map_err(doing())?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).map_err(doing())?;
        }
        let status = child.wait().map_err(doing())?;
        if !status.success() {
            return Err(TestkitError::ProgramFailed {
                program: "mysqlrouter_keyring".to_owned(),
                status: status.to_string(),
                output: String::new(),
            });
        }
    }
    Ok(())
}

/// Where Router finds the metadata at its start.
fn state(servers: &[MysqlServer]) -> String {
    let urls: Vec<String> = servers.iter().map(|server| format!("\"mysql://{}\"", server.addr())).collect();
    format!(
        "{{\"metadata-cache\":{{\"group-replication-id\":\"{GROUP_NAME}\",\"cluster-metadata-servers\":[{}]}},\
         \"version\":\"1.0.0\"}}\n",
        urls.join(",")
    )
}

/// Writes the metadata on whichever member takes it, the primary.
fn register(group: &Mysql) -> Result<(), TestkitError> {
    let sql = metadata(group.servers())?;
    let mut refused = None;
    for server in group.servers().iter().filter(|server| server.process().is_some()) {
        match server.root_query(&sql) {
            // Router asks the others, too, until one has it.
            Ok(_) => return Ok(()),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| TestkitError::Options("no server of the group runs".to_owned())))
}

/// Statements that make the schema anew.
fn metadata(servers: &[MysqlServer]) -> Result<String, TestkitError> {
    let mut instances = Vec::new();
    for server in servers {
        let rows = server.root_query("SELECT @@GLOBAL.server_uuid")?;
        let uuid = rows.first().and_then(|row| row.first()).cloned().unwrap_or_default();
        instances.push(format!(
            "({}, '{}', '{uuid}', '{}')",
            instances.len() + 1,
            server.name(),
            server.addr()
        ));
    }
    let Account { user, .. } = Account::MONITOR;
    Ok(format!(
        "DROP DATABASE IF EXISTS mysql_innodb_cluster_metadata;
        CREATE DATABASE mysql_innodb_cluster_metadata; USE mysql_innodb_cluster_metadata;
        CREATE TABLE members (instance_id INT PRIMARY KEY, label VARCHAR(50), uuid VARCHAR(36) CHARACTER SET ascii,
            address VARCHAR(50));
        INSERT INTO members VALUES {};
        CREATE TABLE v2_routers (router_id INT PRIMARY KEY, router_name VARCHAR(50), product_name VARCHAR(50),
            address VARCHAR(50), version VARCHAR(20), last_check_in TIMESTAMP NULL, attributes JSON, cluster_id VARCHAR(36),
            options JSON, clusterset_id VARCHAR(36));
        INSERT INTO v2_routers VALUES (1, 'router', 'MySQL Router', 'localhost', '', NULL, '{{}}', '1', '{{}}', NULL);
        CREATE VIEW schema_version (major, minor, patch) AS SELECT 2, 2, 0;
        CREATE VIEW v2_gr_clusters AS SELECT 'gr' cluster_type, 'pm' primary_mode, '1' cluster_id, '{CLUSTER}' cluster_name,
            '{GROUP_NAME}' group_name, '' description, JSON_OBJECT() options, JSON_OBJECT() router_options,
            JSON_OBJECT() attributes;
        CREATE VIEW v2_clusters AS SELECT cluster_type, primary_mode, cluster_id, cluster_name, router_options
            FROM v2_gr_clusters;
        CREATE VIEW v2_instances AS SELECT instance_id, '1' cluster_id, label, uuid mysql_server_uuid, address,
            address endpoint, NULL xendpoint, JSON_OBJECT() attributes FROM members;
        CREATE VIEW v2_this_instance AS SELECT '1' cluster_id, instance_id, '{CLUSTER}' cluster_name, 'gr' cluster_type
            FROM members WHERE uuid = (SELECT CONVERT(VARIABLE_VALUE USING ascii) FROM performance_schema.global_variables
            WHERE VARIABLE_NAME = 'server_uuid');
        CREATE VIEW v2_cs_members AS SELECT '1' cluster_id, CAST(NULL AS CHAR(36)) clusterset_id FROM members;
        CREATE VIEW v2_router_options AS SELECT router_id, router_name router_label, options router_options FROM v2_routers;
        GRANT SELECT, INSERT, UPDATE, EXECUTE ON mysql_innodb_cluster_metadata.* TO {user}@'%';
        GRANT SELECT ON performance_schema.* TO {user}@'%';",
        instances.join(", ")
    ))
}
