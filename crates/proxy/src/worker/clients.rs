//! Accepts clients, and closes their sessions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::{HashMap, HashMapExt};
use weir_config::Listener;
use weir_protocol::capability::Capabilities;
use weir_protocol::error;
use weir_protocol::handshake::Scramble;
use weir_routing::TransactionSettings;
use weir_session::login::{ClientLogin, PasswordResult, Refusal};
use weir_session::pin::PinBoard;

use crate::client::login::default_plugin;
use crate::context::Context;
use crate::keys::{Nanos, SessionKey};
use crate::outbox::{Owner, SocketId};
use crate::peer::Peer;
use crate::session::execution::Execution;
use crate::session::freshness::Freshness;
use crate::session::phase::Phase;
use crate::session::retained::Retained;
use crate::session::tracked::LOGIN_COLLATION;
use crate::session::{
    Client, ClientStatements, Diagnostics, Farewell, Input, Place, Session, Stay, Times, Tracked, Transaction,
};
use crate::worker::Worker;

/// A client that has just connected.
struct Arrival<'l> {
    key: SessionKey,
    socket: SocketId,
    id: u32,
    peer: Peer,
    listener: &'l Arc<Listener>,
}

impl Worker {
    /// Greets a new client.
    pub(crate) fn greet(&mut self, peer: Peer, listener: &Arc<Listener>) -> Option<SocketId> {
        if self.ctx.drain.until.is_some() {
            return None;
        }
        let id = self.sessions.new_id(&self.ctx);
        let key = self.sessions.vacant_key();
        let socket = self.ctx.out.open(Owner::Session(key));
        self.ctx.ids.insert(id, key);
        self.ctx.statistics.totals.clients_accepted += 1;
        let offered = self.pools.offered(&self.ctx);
        let variables = &self.ctx.snapshot.variables;
        let scramble = self.ctx.random.scramble();
        let login = ClientLogin::new(offered, default_plugin(variables), scramble, peer.ip());
        let mut login = Box::new(login);
        let mut greeting = Vec::new();
        login.greet(id, self.ctx.snapshot.server_version.as_bytes(), &mut greeting);
        let newcomer = self.ctx.newcomer(Arrival { key, socket, id, peer, listener }, login, scramble);
        self.sessions.insert(newcomer);
        self.ctx.out.send(socket, &greeting);
        let variables = &self.ctx.snapshot.variables;
        self.ctx
            .timers
            .login_started(socket, self.ctx.now + variables.connect_timeout_client.as_nanos() as Nanos);
        let clients = self.ctx.shared.clients.fetch_add(1, Ordering::Relaxed);
        if clients >= variables.max_connections {
            self.work(key).refuse_login(
                error::CON_COUNT_ERROR,
                "Too many connections",
                Refusal::MaxConnections,
            );
        }
        Some(socket)
    }
}

impl Context {
    /// The session of a client of whom nothing is known yet.
    fn newcomer(&self, arrival: Arrival<'_>, login: Box<ClientLogin>, scramble: Scramble) -> Session {
        let Arrival { key, socket, id, peer, listener } = arrival;
        Session {
            key,
            socket,
            id,
            listener: listener.clone(),
            client: self.unknown_client(peer, scramble),
            capabilities: Capabilities::PROTOCOL_41,
            phase: Phase::Login(login),
            input: Input {
                inbox: Vec::new(),
                command_bytes: 0,
                upload: None,
                is_cut_short: false,
                close_when_done: false,
                infile: None,
            },
            account: None,
            identity: usize::MAX,
            tracked: Tracked {
                state: self.fresh.clone(),
                defaults: None,
                suits: None,
                dialect: self.learnt.default_dialect,
                is_text_certain: true,
                knows_sql_mode: false,
                has_servers_wait: false,
            },
            place: Place { caller: None, scope: None, next_flag_in: 0, decided: None },
            times: Times { watched_at: 0, last_active_at: self.now, own_wait_s: 0 },
            lease: None,
            stay: Stay { detour: None, stays_in: None },
            diagnostics: NO_DIAGNOSTICS,
            farewell: Farewell { owed_error: None, pending_error: None },
            pins: PinBoard::default(),
            execution: Execution::default(),
            prepared: ClientStatements {
                all: HashMap::new(),
                bytes: 0,
                next_id: 0,
                last_prepared: 0,
                long_data_bytes: 0,
            },
            track: None,
            moving: None,
            transaction: Transaction {
                is_autocommit: true,
                is_read_only: false,
                is_next_read_only: false,
                is_unlogged: false,
                own: TransactionSettings::default(),
                since: self.now,
                log: None,
            },
            freshness: Freshness::default(),
        }
    }

    /// A client that has not sent anything yet.
    fn unknown_client(&self, peer: Peer, scramble: Scramble) -> Client {
        Client {
            peer,
            awaits_proxy_header: self.snapshot.variables.proxy_protocol_networks.contain(peer.ip()),
            is_tls: false,
            certificate: None,
            program: None,
            login_collation: &LOGIN_COLLATION,
            scramble,
            refused_changes: 0,
            connected_at: self.now,
            has_logged_in: false,
        }
    }
}

/// The diagnostics of a session that has run nothing yet.
const NO_DIAGNOSTICS: Diagnostics = Diagnostics {
    retained_on: None,
    retained: Retained::empty(),
    has_own_insert_id: false,
    is_insert_id_lost: false,
    fetching: 0,
    last_insert_id: 0,
    last_gtid: String::new(),
    row_count: 0,
    found_rows: Some(0),
    saved_warnings: None,
    last_error: None,
};

impl Worker {
    /// The check that a login waits for is done.
    pub(crate) fn password_checked(&mut self, socket: SocketId, verdict: PasswordResult) {
        let Some(Owner::Session(key)) = self.ctx.out.owner(socket) else { return };
        let Phase::Login(login) = &mut self.sessions[key].phase else { return };
        if !login.is_checking() {
            return;
        }
        let step = login.checked(verdict);
        if self.work(key).login_step(step) {
            self.work(key).advance();
        }
    }

    /// A session that has ended is removed.
    pub(crate) fn remove(&mut self, key: SessionKey) {
        let mut session = self.sessions.remove(key);
        self.pools.end_log(&mut session);
        self.ctx.ids.remove(&session.id);
        self.ctx.timers.login_ended(session.socket);
        if let Some(account) = &session.account {
            account.clients.fetch_sub(1, Ordering::Relaxed);
        }
        self.ctx.out.close(session.socket);
        self.ctx.shared.clients.fetch_sub(1, Ordering::Relaxed);
        self.ctx.shared.mailboxes[self.ctx.worker].sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
