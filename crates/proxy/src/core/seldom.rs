//! Commands that clients seldom send: what Weir answers itself, what one server is asked, and what is refused in a
//! server's own way.

use std::sync::atomic::Ordering;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::Command;
use weir_protocol::error;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::ok::{EofPacket, OK_AS_EOF_HEADER, OkPacket};
use weir_sql::KillTarget;

use super::Core;
use super::local::Outcome;
use super::model::{BackendKey, SessionKey, WorkKind};

/// COM_SET_OPTION's argument that switches CLIENT_MULTI_STATEMENTS on.
const MULTI_STATEMENTS_ON: u16 = 0;
/// And off.
const MULTI_STATEMENTS_OFF: u16 = 1;

impl Core {
    /// COM_FIELD_LIST: the columns of a table with their defaults. MySQL 9 does not know it any more, and says so.
    pub(super) fn field_list(&mut self, key: SessionKey) -> bool {
        let session = &mut self.sessions[key];
        session.work.kind = WorkKind::FieldList;
        session.work.is_read = session.lease.is_some();
        self.start(key)
    }

    /// COM_SET_OPTION changes a capability, and with it the connections that the session may use. Where it can't
    /// leave the one that it has, the server has to agree.
    pub(super) fn set_option(&mut self, key: SessionKey) -> bool {
        if self.wanted_capabilities(key).is_none() {
            self.reply_error(key, error::UNKNOWN_COM_ERROR, "Unknown command");
            self.command_done(key);
            return true;
        }
        if self.sessions[key].lease.is_some() {
            let work = &mut self.sessions[key].work;
            work.kind = WorkKind::SetOption;
            work.is_read = true;
            return self.start(key);
        }
        if let Some(kept) = self.sessions[key].kept.take() {
            // It would be lent to the session again, with the option as it was.
            self.fetch_kept(kept, SessionKey::MAX);
        }
        self.assume_option(key);
        let session = &self.sessions[key];
        let (capabilities, status) = (session.capabilities, session.status());
        let mut sequence = 1;
        if let Some(buffer) = self.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| {
                if capabilities.contains(Capabilities::DEPRECATE_EOF) {
                    OkPacket::new(OK_AS_EOF_HEADER, status).write(capabilities, out);
                } else {
                    EofPacket { warnings: 0, status }.write(out);
                }
            });
        }
        self.command_done(key);
        true
    }

    /// The server has taken the session's COM_SET_OPTION.
    pub(super) fn take_option(&mut self, key: BackendKey, holder: SessionKey) {
        self.assume_option(holder);
        self.backends[key].identity = self.sessions[holder].identity;
    }

    /// From now on the session has the capabilities that its command asks for.
    fn assume_option(&mut self, key: SessionKey) {
        let Some(capabilities) = self.wanted_capabilities(key) else { return };
        let Some(account) = self.sessions[key].account.clone() else { return };
        let identity = self.identities.of(&account, capabilities);
        let session = &mut self.sessions[key];
        session.capabilities = capabilities;
        session.identity = identity;
    }

    /// What the session's COM_SET_OPTION makes of its capabilities; `None` for an option that there is not.
    fn wanted_capabilities(&self, key: SessionKey) -> Option<Capabilities> {
        let session = &self.sessions[key];
        let payload = session.inbox.get(HEADER_LEN + 1..session.command_bytes)?;
        let option = u16::from_le_bytes(payload.try_into().ok()?);
        let mut capabilities = session.capabilities;
        match option {
            MULTI_STATEMENTS_ON => capabilities |= Capabilities::MULTI_STATEMENTS,
            MULTI_STATEMENTS_OFF => capabilities -= Capabilities::MULTI_STATEMENTS,
            _ => return None,
        }
        Some(capabilities)
    }

    /// COM_PROCESS_INFO is SHOW PROCESSLIST, and goes its way.
    pub(super) fn process_info(&mut self, key: SessionKey) -> bool {
        let session = &mut self.sessions[key];
        let mut packet = Vec::new();
        weir_protocol::command::put_query(&mut packet, b"SHOW PROCESSLIST");
        let len = packet.len();
        session.inbox.splice(..session.command_bytes, packet);
        session.command_bytes = len;
        session.work.is_bare = session.has_query_attributes();
        self.query(key)
    }

    /// COM_PROCESS_KILL is KILL with a connection id.
    pub(super) fn process_kill(&mut self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let id = session.inbox.get(HEADER_LEN + 1..session.command_bytes).unwrap_or_default();
        let Ok(id) = <[u8; 4]>::try_from(id) else {
            self.reply_error(key, error::MALFORMED_PACKET, "Malformed communication packet");
            self.command_done(key);
            return true;
        };
        match self.kill(key, &KillTarget::Connection(u32::from_le_bytes(id).into()), false) {
            Outcome::Asked => {}
            Outcome::Answered | Outcome::Run => self.answered_here(key),
        }
        false
    }

    /// COM_STATISTICS: a line of text, in the words of servers as far as they fit.
    pub(super) fn statistics(&mut self, key: SessionKey) {
        self.publish_questions();
        let questions: u64 =
            self.shared.mailboxes.iter().map(|mailbox| mailbox.questions.load(Ordering::Relaxed)).sum();
        let uptime_s = (self.now - self.started_at) / 1_000_000_000;
        let threads = self.shared.clients.load(Ordering::Relaxed);
        let average = questions as f64 / uptime_s.max(1) as f64;
        let text = format!(
            "Uptime: {uptime_s}  Threads: {threads}  Questions: {questions}  Queries per second avg: {average:.3}"
        );
        let mut sequence = 1;
        if let Some(buffer) = self.out.buffer(self.sessions[key].socket) {
            frame::write_packet(buffer, &mut sequence, text.as_bytes());
        }
    }

    /// Lets the other workers know how many commands have come; once a second is often enough.
    pub(super) fn publish_questions(&self) {
        self.shared.mailboxes[self.worker]
            .questions
            .store(self.statistics.totals.questions, Ordering::Relaxed);
    }

    /// Commands that are about a server itself are none of a client's business here: which one would it be? They get
    /// what a server tells those who may not. The rest no server knows, or not any more.
    pub(super) fn refuse_command(&mut self, key: SessionKey, command: Option<Command>) {
        let privilege = match command {
            Some(Command::Shutdown) => "SHUTDOWN",
            Some(Command::Refresh) => "RELOAD",
            Some(Command::Debug) => "SUPER",
            Some(Command::BinlogDump | Command::BinlogDumpGtid | Command::RegisterSlave) => {
                "REPLICATION SLAVE"
            }
            _ => return self.reply_error(key, error::UNKNOWN_COM_ERROR, "Unknown command"),
        };
        let name = command.map_or("", Command::name);
        let message = format!(
            "Access denied; you need (at least one of) the {privilege} privilege(s) for this operation \
             ({name} does not pass Weir)"
        );
        self.reply_error(key, error::SPECIFIC_ACCESS_DENIED, &message);
    }
}
