//! Tells who a connection is logged in as.

use std::sync::Arc;

use weir_protocol::capability::Capabilities;

use crate::pool::pools::Pool;
use crate::pool::waiting::Waiter;
use crate::server::connection::Principal;
use crate::session::Session;
use crate::snapshot::Account;

/// The capabilities that a backend connection takes over from its session, because they change results or
/// safety. Connections that differ in them are not interchangeable.
pub(crate) const IDENTITY_CAPABILITIES: Capabilities = Capabilities::FOUND_ROWS
    .union(Capabilities::IGNORE_SPACE)
    .union(Capabilities::MULTI_STATEMENTS)
    .union(Capabilities::INTERACTIVE)
    .union(Capabilities::LOCAL_FILES)
    .union(Capabilities::MARIADB_EXTENDED_METADATA)
    .union(Capabilities::QUERY_ATTRIBUTES);

/// Who a backend connection is logged in as, and with which capabilities.
pub(crate) struct Identity {
    pub(crate) account: Arc<Account>,
    pub(crate) capabilities: Capabilities,
}

#[derive(Default)]
pub(crate) struct Identities(pub(crate) Vec<Identity>);

impl Identities {
    pub(crate) fn of(&mut self, account: &Arc<Account>, capabilities: Capabilities) -> usize {
        let capabilities = capabilities & IDENTITY_CAPABILITIES;
        let known = self
            .0
            .iter()
            .position(|known| Arc::ptr_eq(&known.account, account) && known.capabilities == capabilities);
        known.unwrap_or_else(|| {
            self.0.push(Identity { account: account.clone(), capabilities });
            self.0.len() - 1
        })
    }
}

impl Pool {
    /// For whom a connection has to be that this session could have.
    pub(crate) fn principal_of(&self, session: &Session) -> Principal {
        let client = self.server.client_told(session.client.peer.ip());
        Principal { identity: session.identity, client }
    }

    /// The same of one that waits.
    pub(crate) fn principal_awaited(&self, waiter: &Waiter) -> Principal {
        Principal { identity: waiter.identity, client: self.server.client_told(waiter.client) }
    }
}
