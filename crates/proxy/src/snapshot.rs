//! What the workers know of configuration and topology: immutable, swapped whole.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use weir_config::{MysqlUser, MysqlVariables};
use weir_protocol::auth::StoredPassword;
use weir_protocol::auth::rsa::RsaKey;
use weir_session::login::Credential;
use weir_sql::Dialect;
use weir_topology::ServerShared;

/// One consistent view of configuration and roles.
#[derive(Debug)]
pub struct Snapshot {
    /// Active users by name.
    pub users: HashMap<Vec<u8>, Arc<Account>>,
    /// Every server that is in some hostgroup, in no order.
    pub servers: Vec<Arc<Server>>,
    /// Who serves a hostgroup now.
    pub hostgroups: HashMap<u32, Hostgroup>,
    /// `[mysql_variables]`.
    pub variables: MysqlVariables,
    /// The version that the greeting shows.
    pub server_version: String,
    /// The servers are MariaDBs.
    pub is_mariadb: bool,
    /// Collation of a login that asks for one that the servers do not know.
    pub default_collation: String,
    /// How statements are read where a session has not set sql_mode.
    pub dialect: Dialect,
    /// Whether clients may ask for TLS.
    pub tls: bool,
    /// With which clients may seal a password; made when some user's password needs it.
    pub rsa_key: Option<Arc<RsaKey>>,
}

/// A user with what a login has taught about the password.
#[derive(Debug)]
pub struct Account {
    /// The row of `mysql_users`.
    pub user: MysqlUser,
    /// The password in a form that can be checked.
    pub stored: Arc<StoredPassword>,
    /// Clients logged in as this user.
    pub clients: AtomicU32,
    /// What backends accept, once it is known: a hash in the configuration alone does not tell it, a client's
    /// login does. Touched at logins only.
    pub credential: Mutex<Option<Credential>>,
}

/// A server and what all workers share about it.
#[derive(Debug)]
pub struct Server {
    /// `host:port`, as configured; the server's name in messages.
    pub endpoint: String,
    /// Where to connect to.
    pub addr: SocketAddr,
    /// Connections of all workers together.
    pub max_connections: u32,
    /// It is out of every hostgroup for a reason that leaves its connections no hope (OFFLINE_HARD): they are cut.
    pub is_gone: bool,
    /// How connections are encrypted; `None`: not at all. The same object as long as nothing about it changes.
    pub tls: Option<Arc<ServerTls>>,
    /// Counters and positions, shared with the control plane.
    pub shared: Arc<ServerShared>,
}

/// TLS towards a server.
#[derive(Debug)]
pub struct ServerTls {
    /// Which certificates are trusted, and which one is shown.
    pub config: Arc<ClientConfig>,
    /// The server's name as it is told in the handshake.
    pub name: ServerName<'static>,
}

impl Server {
    /// Takes the right to open one more connection, if max_connections leaves one.
    pub fn try_open(&self) -> bool {
        let open = &self.shared.connections_open;
        let more = |open| (open < self.max_connections).then_some(open + 1);
        open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Gives the right to a connection back.
    pub fn close_one(&self) {
        self.shared.connections_open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The servers that may be used for one role now.
#[derive(Debug, Default)]
pub struct Hostgroup {
    /// Servers with their weights.
    pub members: Vec<Member>,
    /// For a writer hostgroup: where its plain reads go.
    pub reader_hostgroup: Option<u32>,
    /// Whether a read must wait for a session's own last write here (Galera).
    pub is_replicated: bool,
    /// Why there are not more members, for error messages ("127.0.0.11:3306 is non-Primary").
    pub absent: String,
}

/// A server's share in a hostgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Index into [`Snapshot::servers`].
    pub server: usize,
    /// Share of statements relative to the other members; 0 only if no other member is there.
    pub weight: u32,
}
