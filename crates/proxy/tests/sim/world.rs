//! Clients, workers and servers, and a network between them that delivers bytes in pieces, late or never.

mod faults;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use weir_config::MysqlVariables;
use weir_proxy::outbox::{Order, SocketId};
use weir_proxy::shared::{Message, Shared};
use weir_proxy::snapshot::{Account, Hostgroup, Server, StrictRead};
use weir_proxy::worker::Worker;
use weir_routing::{CommitOutcome, ReplayMode, TransactionSettings};

use crate::client::Client;
use crate::cluster::{Cluster, Node};
use crate::random::{Random, random};
use crate::script::{self, Rules};
use crate::server::{Conn, Outside};
use crate::support;

/// A command must be answered within this time, whatever happens.
const ANSWER_NS: u64 = 30_000_000_000;
/// When everything is over, the workers must come to rest within this time.
const REST_NS: u64 = 40_000_000_000;
/// More steps than any run needs.
const STEPS_MAX: usize = 400_000;

/// Who is at the other end of a worker's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Client(usize),
    /// A connection is being made to this node.
    Dial(usize),
    Conn(usize),
}

/// A socket of a worker.
struct Link {
    core: usize,
    id: SocketId,
    peer: Peer,
    /// Bytes on their way to the worker.
    to_core: Vec<u8>,
    /// The peer has closed; told when all bytes are in.
    is_finished: bool,
    /// Takes its bytes seldom.
    is_slow: bool,
}

pub(crate) struct World {
    random: Random,
    rules: Rules,
    now: u64,
    cores: Vec<Worker>,
    inboxes: Vec<Receiver<Message>>,
    shared: Arc<Shared>,
    servers: Vec<Arc<Server>>,
    cluster: Cluster,
    links: Vec<Link>,
    clients: Vec<Client>,
    conns: Vec<Option<Conn>>,
    /// Clients that have not connected yet.
    to_come: usize,
    /// Nothing breaks any more.
    is_healing: bool,
    /// A round of the monitor: when it began, and the commits that must be visible at its end.
    probe: (u64, u64),
}

/// Something that can happen next.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive,
    Deliver(usize),
    Flush(usize),
    Dialled(usize),
    ClientActs(usize),
    ClientReads(usize),
    ServerActs(usize),
    Message(usize),
}

impl World {
    pub(crate) fn new(seed: u64, rules: Rules) -> Self {
        let rules = Rules { is_careful: seed % 2 == 1, ..rules };
        let nodes = if rules.is_replicated { 3 } else { 2 };
        let mut cluster = Cluster::default();
        cluster.replays = rules.is_replicated;
        let mut servers = Vec::new();
        for at in 0..nodes {
            let is_reader = rules.is_replicated && at > 0;
            cluster.nodes.push(Node {
                may_write: !is_reader,
                refuses_lock_wait: is_reader,
                ..Node::default()
            });
            servers.push(support::server(3306 + at as u16, rules.max_connections));
        }
        let groups = groups(&rules, nodes);
        let users = users(&rules);
        let snapshot = support::snapshot(&users, &servers, groups, variables());
        let (shared, inboxes) = Shared::new(rules.workers, 1, Box::new(|_| ())).expect("eventfds");
        let now = 1_000_000_000;
        let core = |worker| Worker::new(worker, shared.clone(), snapshot.clone(), [seed as u8; 32], now);
        let cores = (0..rules.workers).map(core).collect();
        Self {
            random: random(seed),
            now,
            cores,
            inboxes,
            shared,
            servers,
            cluster,
            links: Vec::new(),
            clients: Vec::new(),
            conns: Vec::new(),
            to_come: rules.clients,
            is_healing: false,
            probe: (0, 0),
            rules,
        }
    }

    /// Runs to the end: everybody has had their say, and nothing is left over.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            self.now += 1 + self.random.below(100_000) as u64;
            if !self.is_healing {
                self.break_something();
            }
            self.follow();
            let events = self.events();
            if events.is_empty() {
                if self.is_over() {
                    return self.come_to_rest();
                }
                self.pass_time();
            } else {
                let event = self.random.pick(&events);
                self.happen(event)?;
            }
            self.tick();
            self.check()?;
        }
        Err(format!("not over after {STEPS_MAX} steps"))
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::with_capacity(64);
        if self.to_come > 0 {
            events.push(Event::Arrive);
        }
        for (at, link) in self.links.iter().enumerate() {
            let out = self.cores[link.core].out();
            if let Peer::Dial(_) = link.peer {
                events.push(Event::Dialled(at));
                continue;
            }
            if (!link.to_core.is_empty() || link.is_finished) && !out.is_paused(link.id) {
                events.push(Event::Deliver(at));
            }
            if !out.unsent(link.id).is_empty() && !link.is_slow {
                events.push(Event::Flush(at));
            }
        }
        for (at, client) in self.clients.iter().enumerate() {
            if client.has_packet() {
                events.push(Event::ClientReads(at));
            } else if !client.is_cut && client.is_idle() {
                events.push(Event::ClientActs(at));
            }
        }
        for (at, conn) in self.conns.iter().enumerate() {
            if conn.as_ref().is_some_and(|conn| conn.is_ready(self.now)) {
                events.push(Event::ServerActs(at));
            }
        }
        // Messages can't be looked at without being taken: now and then somebody looks.
        if !events.is_empty() {
            events.extend((0..self.cores.len()).map(Event::Message));
        }
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrive => self.arrive(),
            Event::Deliver(at) => self.deliver(at),
            Event::Flush(at) => {
                let all = self.cores[self.links[at].core].out().unsent(self.links[at].id).len();
                let count = if self.random.percent(70) { all } else { 1 + self.random.below(all) };
                self.flush(at, count)?;
            }
            Event::Dialled(at) => self.dialled(at),
            Event::ClientActs(at) => {
                let ids: Vec<u32> = self.clients.iter().map(|client| client.connection_id).collect();
                let client = &mut self.clients[at];
                script::next(client, &mut self.random, &self.rules, &ids, self.now);
                self.post(at);
            }
            Event::ClientReads(at) => {
                self.clients[at].read(&mut self.cluster, &self.rules)?;
                self.post(at);
            }
            Event::ServerActs(at) => self.serve(at),
            Event::Message(core) => self.pass_message(core),
        }
        for core in 0..self.cores.len() {
            self.carry_out(core)?;
        }
        Ok(())
    }

    fn pass_message(&mut self, core: usize) {
        if let Ok(message) = self.inboxes[core].try_recv() {
            self.cores[core].message(message, self.now);
        }
    }

    /// Delivers all messages between workers. True if there was one.
    fn pass_messages(&mut self) -> bool {
        let mut any = false;
        for core in 0..self.cores.len() {
            while let Ok(message) = self.inboxes[core].try_recv() {
                self.cores[core].message(message, self.now);
                any = true;
            }
        }
        any
    }

    fn arrive(&mut self) {
        self.to_come -= 1;
        let at = self.clients.len();
        let core = self.random.below(self.cores.len());
        self.shared.mailboxes[core].sessions.fetch_add(1, Ordering::Relaxed);
        let peer = SocketAddr::from(([127, 0, 0, 1], 40_000 + at as u16));
        let id = self.cores[core]
            .accept(peer.into(), &support::listener(), self.now)
            .expect("a worker that takes clients");
        let statements = 1 + self.random.below(self.rules.statements);
        self.clients.push(Client::new(at, &mut self.random, statements));
        let is_slow = self.random.percent(5);
        self.link(core, id, Peer::Client(at), is_slow);
    }

    fn link(&mut self, core: usize, id: SocketId, peer: Peer, is_slow: bool) {
        self.links.push(Link { core, id, peer, to_core: Vec::new(), is_finished: false, is_slow });
    }

    /// What a client has written is on its way.
    fn post(&mut self, client: usize) {
        let bytes = std::mem::take(&mut self.clients[client].out);
        if let Some(link) = self.links.iter_mut().find(|link| link.peer == Peer::Client(client)) {
            link.to_core.extend_from_slice(&bytes);
        }
    }

    fn deliver(&mut self, at: usize) {
        let link = &mut self.links[at];
        let (core, id) = (link.core, link.id);
        if link.to_core.is_empty() {
            link.is_finished = false;
            return self.cores[core].closed(id, self.now);
        }
        let all = link.to_core.len();
        let count = if self.random.percent(60) { all } else { 1 + self.random.below(all) };
        let mut bytes: Vec<u8> = link.to_core.drain(..count.min(128 << 10)).collect();
        self.cores[core].data(id, &mut bytes, self.now);
    }

    /// So many bytes that a worker has queued reach the peer.
    fn flush(&mut self, at: usize, count: usize) -> Result<(), String> {
        let Link { core, id, peer, .. } = self.links[at];
        let bytes = &self.cores[core].out().unsent(id)[..count];
        match peer {
            Peer::Client(client) => self.clients[client].inbox.extend_from_slice(bytes),
            Peer::Conn(conn) => {
                if let Some(conn) = &mut self.conns[conn] {
                    conn.inbox.extend_from_slice(bytes);
                }
            }
            Peer::Dial(_) => return Err("bytes for a server before its connection stands".into()),
        }
        if self.cores[core].out().sent(id, count) {
            self.cores[core].drained(id, self.now);
        }
        Ok(())
    }

    fn dialled(&mut self, at: usize) {
        let Link { core, id, peer, .. } = self.links[at];
        let Peer::Dial(node) = peer else { return };
        if self.cluster.nodes[node].is_down {
            let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            return self.cores[core].connected(id, Err(refused), self.now);
        }
        let mut conn = Conn::new(node, &mut self.cluster);
        self.links[at].to_core = std::mem::take(&mut conn.out);
        self.links[at].peer = Peer::Conn(self.conns.len());
        self.conns.push(Some(conn));
        self.cores[core].connected(id, Ok(()), self.now);
    }

    fn serve(&mut self, at: usize) {
        let Some(conn) = &mut self.conns[at] else { return };
        let outside = conn.step(&mut self.cluster, self.now);
        let node = conn.node;
        if let Outside::Kill { thread, query_only } = outside {
            let victim = self.conns.iter().position(|conn| {
                conn.as_ref().is_some_and(|conn| conn.node == node && conn.thread == thread)
            });
            if let Some(victim) = victim {
                if let Some(conn) = &mut self.conns[victim] {
                    conn.killed(&mut self.cluster, query_only);
                }
                self.answer(victim);
            }
        }
        self.answer(at);
    }

    /// What a server's connection has written is on its way; a closed one is over.
    fn answer(&mut self, at: usize) {
        let Some(conn) = &mut self.conns[at] else { return };
        let bytes = std::mem::take(&mut conn.out);
        let is_closed = conn.is_closed;
        if let Some(link) = self.links.iter_mut().find(|link| link.peer == Peer::Conn(at)) {
            link.to_core.extend_from_slice(&bytes);
            link.is_finished |= is_closed;
        }
        if is_closed {
            self.conns[at] = None;
        }
    }

    /// What a worker has ordered.
    fn carry_out(&mut self, core: usize) -> Result<(), String> {
        loop {
            let (mut orders, mut dirty) = (Vec::new(), Vec::new());
            self.cores[core].out().take_dirty(&mut dirty);
            self.cores[core].out().take_orders(&mut orders);
            if orders.is_empty() {
                return Ok(());
            }
            for order in orders {
                match order {
                    Order::Connect(id, addr) => {
                        let node = usize::from(addr.port() - 3306);
                        self.link(core, id, Peer::Dial(node), false);
                    }
                    Order::Resume(_) | Order::AcknowledgeWithin(..) | Order::Forfeit(_) => {}
                    Order::Close(id) => self.closed_by_core(core, id)?,
                    Order::StartTls(..) | Order::StartServerTls(..) => return Err("TLS was ordered".into()),
                    Order::Check(..) => return Err("a check was ordered".into()),
                }
            }
        }
    }

    fn closed_by_core(&mut self, core: usize, id: SocketId) -> Result<(), String> {
        let at = self.links.iter().position(|link| link.core == core && link.id == id);
        if let Some(at) = at {
            if !matches!(self.links[at].peer, Peer::Dial(_)) {
                let all = self.cores[core].out().unsent(id).len();
                self.flush(at, all)?;
            }
            match self.links.swap_remove(at).peer {
                Peer::Client(client) => self.clients[client].cut(&self.rules)?,
                Peer::Conn(conn) => {
                    if let Some(mut conn) = self.conns[conn].take() {
                        conn.close(&mut self.cluster);
                    }
                }
                Peer::Dial(_) => {}
            }
        }
        self.cores[core].out().forget(id);
        Ok(())
    }

    /// Nothing can happen now: on to the next deadline.
    fn pass_time(&mut self) {
        if self.pass_messages() {
            return;
        }
        for link in &mut self.links {
            if link.is_slow {
                link.is_slow = false;
                return;
            }
        }
        let sleeping =
            self.conns.iter().flatten().filter_map(|conn| conn.sleeping.as_ref().map(|(due, _)| *due));
        let next = self.cores.iter().map(Worker::next_deadline).chain(sleeping).min().unwrap_or(0);
        self.now = self.now.max(next);
    }

    fn tick(&mut self) {
        for core in &mut self.cores {
            if core.next_deadline() <= self.now {
                core.tick(self.now);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.to_come == 0 && self.clients.iter().all(|client| client.is_cut)
    }

    fn check(&mut self) -> Result<(), String> {
        if let Some(fault) = self.cluster.faults.pop() {
            return Err(fault);
        }
        for client in &self.clients {
            if !client.is_cut && client.waits_since().is_some_and(|since| since + ANSWER_NS < self.now) {
                return Err(format!("no answer for too long: {}", client.describe()));
            }
        }
        for server in &self.servers {
            let open = server.shared.connections_open.load(Ordering::Relaxed);
            if open > self.rules.max_connections {
                return Err(format!("{} has {open} connections", server.endpoint));
            }
        }
        Ok(())
    }

    /// All clients are gone: the workers must have nothing left but idle connections, and counters that agree.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.is_healing = true;
        for node in &mut self.cluster.nodes {
            (node.is_down, node.is_out) = (false, false);
        }
        let until = self.now + REST_NS;
        loop {
            let events = self.events();
            match events.first() {
                Some(_) => {
                    let event = self.random.pick(&events);
                    self.happen(event)?;
                }
                None if self.pass_messages() => {}
                None if self.is_at_rest() => break,
                None => self.pass_time(),
            }
            self.tick();
            for core in 0..self.cores.len() {
                self.carry_out(core)?;
            }
            self.check()?;
            if self.now > until {
                return Err(format!(
                    "no rest: {:?}",
                    self.cores.iter().map(Worker::census).collect::<Vec<_>>()
                ));
            }
        }
        for (at, server) in self.servers.iter().enumerate() {
            let open = server.shared.connections_open.load(Ordering::Relaxed);
            let seen = self.conns.iter().flatten().filter(|conn| conn.node == at).count();
            let counted: u32 = self.cores.iter().map(|core| core.census().pools[at].open).sum();
            if open != counted || seen != counted as usize {
                return Err(format!("{}: {open} rights, {counted} counted, {seen} there", server.endpoint));
            }
        }
        match self.shared.clients.load(Ordering::Relaxed) {
            0 => Ok(()),
            left => Err(format!("{left} clients are counted and gone")),
        }
    }

    fn is_at_rest(&self) -> bool {
        self.links.iter().all(|link| matches!(link.peer, Peer::Conn(_)))
            && self.cores.iter().map(Worker::census).all(|census| {
                let pools = &census.pools;
                let idle: usize = pools.iter().map(|pool| pool.idle).sum();
                let open: u32 = pools.iter().map(|pool| pool.open).sum();
                census.sessions == 0
                    && census.leases + census.busy + census.parked == 0
                    && census.connections == idle
                    && open as usize == idle
                    && pools.iter().all(|pool| pool.dialing + pool.handovers == 0 && pool.waiters == 0)
            })
    }
}

fn groups(rules: &Rules, nodes: usize) -> Vec<(u32, Hostgroup)> {
    if !rules.is_replicated {
        return vec![(0, support::hostgroup(0..nodes))];
    }
    let mut groups = vec![(0, support::hostgroup([0])), (1, support::hostgroup([1, 2]))];
    groups[0].1.reader_hostgroup = Some(1);
    for (_, group) in &mut groups {
        group.is_replicated = true;
        group.strict = StrictRead::WsrepSyncWait;
        group.replicates_transactions_only = true;
        group.retry_buffer_bytes = rules.retry_buffer_bytes;
        (group.deadlock_retries, group.transaction_replay_max_bytes) = (3, 64 << 10);
        group.transaction_replay = replay_mode(rules);
        group.marks_commits = rules.marks_commits;
        if rules.users_decide {
            (group.transaction_replay, group.marks_commits) = (ReplayMode::Off, !rules.marks_commits);
        }
    }
    groups
}

/// Its tables have transactions, as `on` takes for granted; `safe` goes by nothing that the servers have not told.
fn replay_mode(rules: &Rules) -> ReplayMode {
    if rules.is_careful { ReplayMode::Safe } else { ReplayMode::On }
}

fn users(rules: &Rules) -> [Arc<Account>; 2] {
    ["app", "bob"].map(|name| {
        let mut account = support::account(name, 0);
        let user = Arc::get_mut(&mut account).map(|account| Arc::make_mut(&mut account.user));
        let user = user.expect("nobody else has it");
        user.transaction_persistent = !rules.leaves_transactions;
        if rules.users_decide {
            let outcome = if rules.marks_commits { CommitOutcome::Marker } else { CommitOutcome::Off };
            user.transactions =
                TransactionSettings { replay: Some(replay_mode(rules)), commit_outcome: Some(outcome) };
        }
        account
    })
}

fn variables() -> MysqlVariables {
    MysqlVariables {
        connect_timeout_server_max: std::time::Duration::from_secs(3),
        default_query_timeout: std::time::Duration::from_secs(5),
        max_stmts_per_connection: 4,
        ..MysqlVariables::default()
    }
}
