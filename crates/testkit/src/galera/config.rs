//! Writes the configuration of one node of a Galera cluster.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use super::priority;

/// Galera's own ports: group messages, incremental and full state transfer.
pub(super) const GALERA_PORTS: [u16; 3] = [GROUP_PORT, IST_PORT, SST_PORT];
const GROUP_PORT: u16 = 4567;
const IST_PORT: u16 = 4568;
const SST_PORT: u16 = 4444;

/// Group timings for loopback clusters. Nodes leave and join in order within a moment; only a killed or hung node is
/// noticed by suspect_timeout, which must outlast the pauses of two busy cores (with 2 s, nodes of a loaded test machine
/// took each other for dead). install_timeout must not be below inactive_timeout, or a view is given up too early.
const EVS_OPTIONS: &str = "evs.inactive_check_period=PT0.1S;evs.keepalive_period=PT0.1S;\
    evs.suspect_timeout=PT5S;evs.inactive_timeout=PT10S;evs.join_retrans_period=PT0.1S;evs.install_timeout=PT10S";

/// Everything that differs between the nodes of a cluster.
#[derive(Debug, Clone)]
pub(super) struct NodeConfig {
    /// 1 for n1.
    pub(super) index: usize,
    /// The cluster's directory.
    pub(super) dir: PathBuf,
    /// Where clients connect.
    pub(super) address: SocketAddrV4,
    /// The addresses of all nodes, this one too.
    pub(super) members: Vec<Ipv4Addr>,
    pub(super) cluster_name: String,
    pub(super) extra_cnf: String,
    pub(super) provider_options: String,
    /// The network namespace that the server runs in, if it is another than ours.
    pub(super) namespace: Option<String>,
    /// What starts the server with the right to [`priority::OPTION`], if that is wanted and allowed.
    pub(super) starter: Option<&'static [&'static str]>,
}

impl NodeConfig {
    pub(super) fn name(&self) -> String {
        format!("n{}", self.index)
    }

    /// `DIR/nN` for the data, `DIR/nN.SUFFIX` for everything else of the node.
    pub(super) fn file(&self, suffix: &str) -> PathBuf {
        self.dir.join(format!("{}{suffix}", self.name()))
    }

    /// The text of the node's my.cnf.
    pub(super) fn render(&self, provider: &Path, run_as_mysql: bool) -> String {
        let mut text = String::from("[mysqld]\n");
        if run_as_mysql {
            text.push_str("user=mysql\n");
        }
        let ip = self.address.ip();
        let members: Vec<String> = self.members.iter().map(|ip| format!("{ip}:{GROUP_PORT}")).collect();
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "\
datadir={data}
tmpdir={tmp}
socket={socket}
pid-file={pid}
log-error={log}
bind-address={ip}
port={port}
skip-name-resolve
max_connections=3000
performance_schema=OFF
innodb_buffer_pool_size=128M
innodb_log_file_size=48M
innodb_flush_log_at_trx_commit=0
innodb_autoinc_lock_mode=2
server-id=1
log-bin=bin
log-slave-updates=1
binlog_format=ROW
gtid-domain-id={index}
wsrep_on=ON
wsrep_gtid_mode=ON
wsrep_gtid_domain_id=100
wsrep_provider={provider}
wsrep_cluster_name={cluster}
wsrep_cluster_address=gcomm://{members}
wsrep_node_name={name}
wsrep_node_address={ip}
wsrep_sst_method=rsync
wsrep_sst_receive_address={ip}:{SST_PORT}
wsrep_slave_threads=2
wsrep_provider_options=\"gmcast.listen_addr=tcp://{ip}:{GROUP_PORT};ist.recv_addr={ip}:{IST_PORT};\
gcache.size=64M;{EVS_OPTIONS};{priority}{provider_options}\"
{extra}
",
            data = self.file("").display(),
            // A server that starts removes what others have left in its tmpdir, or are using there.
            tmp = self.file(".tmp").display(),
            socket = self.file(".sock").display(),
            pid = self.file(".pid").display(),
            log = self.file(".err").display(),
            port = self.address.port(),
            index = self.index,
            provider = provider.display(),
            cluster = self.cluster_name,
            members = members.join(","),
            name = self.name(),
            priority = self.starter.map_or("", |_| priority::OPTION),
            provider_options = self.provider_options,
            extra = self.extra_cnf,
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_configuration_names_its_own_address_and_all_members() {
        let first = Ipv4Addr::new(127, 0, 0, 31);
        let config = NodeConfig {
            index: 2,
            dir: PathBuf::from("/var/tmp/weir-x-1"),
            address: SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 32), 3306),
            members: vec![first, Ipv4Addr::new(127, 0, 0, 32)],
            cluster_name: "weir-x".to_owned(),
            extra_cnf: "wsrep_slave_threads=4".to_owned(),
            provider_options: String::new(),
            namespace: None,
            starter: None,
        };
        let text = config.render(Path::new("/lib/galera.so"), true);
        for line in [
            "user=mysql",
            "datadir=/var/tmp/weir-x-1/n2",
            "tmpdir=/var/tmp/weir-x-1/n2.tmp",
            "bind-address=127.0.0.32",
            "wsrep_cluster_address=gcomm://127.0.0.31:4567,127.0.0.32:4567",
            "gtid-domain-id=2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("wsrep_slave_threads=4\n") && !text.contains("thread_prio"));
        let config = NodeConfig { starter: Some(&["setpriv"]), ..config };
        assert!(config.render(Path::new("/lib/galera.so"), true).contains(";gcomm.thread_prio=rr:2;"));
        assert!(!config.render(Path::new("/lib/galera.so"), false).contains("user="));
    }
}
