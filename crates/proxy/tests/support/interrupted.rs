//! A cluster whose transactions are interrupted.

use std::sync::Arc;

use weir_config::MysqlVariables;
use weir_protocol::ok::{OK_HEADER, OkPacket};
use weir_protocol::status::StatusFlags;
use weir_proxy::snapshot::{Holding, Hostgroup, Server};
use weir_routing::ReplayMode;

use super::bench::Bench;

pub const UPDATE: &str = "UPDATE t SET a = 1";

/// Two workers in front of a writer, of one that may follow, and of readers.
pub struct Cluster {
    pub bench: Bench,
    pub holding: Arc<Holding>,
    pub readers: Vec<usize>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    pub fn new() -> Self {
        Self::held_by(Holding::new(None, 100))
    }

    /// One with these limits on waiting.
    pub fn held_by(holding: Holding) -> Self {
        let holding = Arc::new(holding);
        let group = super::hostgroup([0]);
        let bench = Bench::new(2, &[10, 10, 10], group, MysqlVariables::default());
        let mut cluster = Self { bench, holding, readers: Vec::new() };
        cluster.write(&[0]);
        cluster
    }

    pub fn writers(&self, servers: &[usize]) -> Hostgroup {
        Hostgroup {
            reader_hostgroup: Some(1),
            holding: Some(self.holding.clone()),
            transaction_replay: ReplayMode::Safe,
            transaction_replay_max_bytes: 64 << 10,
            ..super::hostgroup(servers.iter().copied())
        }
    }

    /// These servers write from now on.
    pub fn write(&mut self, servers: &[usize]) {
        self.publish(self.writers(servers));
    }

    /// These are the writers from now on.
    pub fn publish(&mut self, writers: Hostgroup) {
        let readers = super::hostgroup(self.readers.iter().copied());
        self.bench.publish_rules(Arc::default(), [(0, writers), (1, readers)]);
    }

    /// This server leaves, with the next configuration, and its grace is over.
    pub fn is_over(&mut self, server: usize) {
        let old = &self.bench.servers[server];
        self.bench.servers[server] = Arc::new(Server {
            endpoint: old.endpoint.clone(),
            addr: old.addr,
            max_connections: old.max_connections,
            is_gone: false,
            is_silent: false,
            tls: None,
            is_leaving: true,
            leave_by: Some(1),
            care: old.care.clone(),
            proxy_header: old.proxy_header,
            shared: old.shared.clone(),
        });
    }

    /// A client with an open transaction, whose server is lost, and is the writer no more.
    pub fn interrupted(&mut self) -> usize {
        self.interrupted_of("app")
    }

    /// The same of this user.
    pub fn interrupted_of(&mut self, user: &str) -> usize {
        let [client] = self.interrupted_all([user]);
        client
    }

    /// The same of several clients.
    pub fn interrupted_all<const N: usize>(&mut self, users: [&str; N]) -> [usize; N] {
        let clients = users.map(|user| self.begun(user));
        self.bench.log.clear();
        self.bench.lose(0);
        self.bench.pass_ms(50);
        self.write(&[]);
        self.bench.pass_ms(50);
        for client in clients {
            assert_eq!((self.bench.reply(client), &*self.bench.log), (None, &[][..]));
        }
        clients
    }

    /// A client with an open transaction.
    pub fn begun(&mut self, user: &str) -> usize {
        let client = self.bench.client(0, user);
        for sql in ["BEGIN", UPDATE] {
            assert_eq!(super::run(&mut self.bench, client, sql), None);
        }
        client
    }

    /// What servers got of clients meanwhile.
    pub fn texts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.bench.log).into_iter().map(|(_, text)| text).collect()
    }

    pub fn lets_replays_first(&self) -> bool {
        self.holding.lets_replays_first(self.bench.now)
    }

    /// The servers answer what they hold as in a transaction.
    pub fn release_in_transaction(&mut self) {
        let status = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS;
        self.bench.release_with(super::ok(1, OkPacket::new(OK_HEADER, status), &[]));
    }
}
