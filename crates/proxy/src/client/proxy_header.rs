//! Takes the header of the PROXY protocol off the front of what a client sends: from then on its address is the client's.
//!
//! Weir has greeted by then, as MySQL's servers do: nobody waits for a header. A proxy sends it in front of the client's
//! first packet, and who does not send one is known by that packet's first bytes. MariaDB goes about it in the same way.

use weir_protocol::error;
use weir_protocol::proxy_header::{self, Opening, ProxiedClient};
use weir_session::login::Refusal;

use crate::peer::Peer;
use crate::session::phase::Phase;
use crate::work::Work;

impl Work<'_> {
    /// Takes the header, if there is one. False while it is not known, or if the login has ended with it.
    pub(crate) fn passes_proxy_header(&mut self) -> bool {
        let session = &mut *self.session;
        match proxy_header::parse(&session.input.inbox) {
            Ok(Opening::Incomplete) => return false,
            Ok(Opening::Absent) => {}
            Ok(Opening::Header { len, client }) => {
                session.input.inbox.drain(..len);
                self.ctx.statistics.totals.proxy_headers += 1;
                // Of a client at a Unix socket of the proxy's nothing is known here, and "localhost" is another machine's.
                let is_here = session.client.peer.ip().is_none_or(|proxy| proxy.is_loopback());
                if let ProxiedClient::Tcp(address) = client
                    && (is_here || !address.ip().is_loopback())
                {
                    session.client.peer = Peer::Tcp(address);
                    if let Phase::Login(login) = &mut session.phase {
                        login.come_from(address.ip());
                    }
                }
            }
            Err(fault) => {
                self.ctx.statistics.totals.refused_proxy_header += 1;
                let message = format!("Bad handshake: broken header of the PROXY protocol: {fault}");
                self.refuse_login(error::HANDSHAKE_ERROR, &message, Refusal::BrokenProxyHeader);
                return false;
            }
        }
        self.session.client.awaits_proxy_header = false;
        true
    }

    /// Refuses a first packet that can be none.
    pub(crate) fn refuse_first_packet(&mut self) {
        let session = &*self.session;
        if session.identity != usize::MAX || !proxy_header::begins(&session.input.inbox) {
            return self.refuse_login(error::HANDSHAKE_ERROR, "Bad handshake", Refusal::BadHandshake);
        }
        self.ctx.statistics.totals.refused_proxy_header += 1;
        let host = session.client.peer.ip().map_or_else(|| "localhost".to_owned(), |ip| ip.to_string());
        let message = format!("A header of the PROXY protocol is not accepted from '{host}'");
        self.refuse_login(error::HOST_NOT_PRIVILEGED, &message, Refusal::ProxyHeaderNotAllowed);
    }
}
