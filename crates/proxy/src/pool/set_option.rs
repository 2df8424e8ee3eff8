//! Gives a session other capabilities by COM_SET_OPTION, and with them another identity.

use weir_protocol::capability::Capabilities;
use weir_protocol::frame::HEADER_LEN;

use crate::keys::ConnectionKey;
use crate::pool::identity::IDENTITY_CAPABILITIES;
use crate::pool::pools::Pools;
use crate::session::Session;

/// COM_SET_OPTION's argument that switches CLIENT_MULTI_STATEMENTS on.
const MULTI_STATEMENTS_ON: u16 = 0;
/// And off.
const MULTI_STATEMENTS_OFF: u16 = 1;

impl Session {
    /// What the session's COM_SET_OPTION makes of its capabilities; `None` for an option that there is not.
    pub(crate) fn wanted_capabilities(&self) -> Option<Capabilities> {
        let payload = self.input.inbox.get(HEADER_LEN + 1..self.input.command_bytes)?;
        let option = u16::from_le_bytes(payload.try_into().ok()?);
        let mut capabilities = self.capabilities;
        match option {
            MULTI_STATEMENTS_ON => capabilities |= Capabilities::MULTI_STATEMENTS,
            MULTI_STATEMENTS_OFF => capabilities -= Capabilities::MULTI_STATEMENTS,
            _ => return None,
        }
        Some(capabilities)
    }
}

impl Pools {
    /// The server has taken the session's COM_SET_OPTION.
    pub(crate) fn take_option(&mut self, session: &mut Session, key: ConnectionKey) {
        self.assume_option(session);
        let connection = &mut self.connections[key];
        connection.identity = session.identity;
        connection.capabilities = session.capabilities & IDENTITY_CAPABILITIES;
    }

    /// From now on the session has the capabilities that its command asks for.
    pub(crate) fn assume_option(&mut self, session: &mut Session) {
        let Some(capabilities) = session.wanted_capabilities() else { return };
        let Some(account) = session.account.clone() else { return };
        let identity = self.identities.of(&account, capabilities);
        session.capabilities = capabilities;
        session.identity = identity;
    }
}
