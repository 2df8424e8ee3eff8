//! The two EOF packets of a result, for clients without DEPRECATE_EOF.
//!
//! Servers are always spoken to with it: only so does the end of a result report what the statement has changed. (In an
//! EOF MySQL 9.7 does not even say that something has changed, and the next OK reports it, which may be another session's;
//! MariaDB 10.11 says that, but not what.) So the flags of the EOF behind the column definitions, by which clients decide
//! how to go on, are known when the result is over. Till then it stands there with the flags that it will probably have,
//! and is kept back with the rows behind it as long as they are few; then it gets those of the end. Seen on both servers: they
//! are the same but for MySQL's OUT parameters, and for the count of warnings: servers give there those from before the first
//! row. Which these are nobody can tell at the end, so all are counted: clients that ask before they read the rows miss none.

use weir_protocol::capability::Capabilities;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::ok::{EofPacket, OkPacket};
use weir_protocol::status::StatusFlags;
use weir_sql::Kind;

use super::Core;
use super::model::{BackendKey, Ending, SessionKey, WorkKind};

/// So much of a result waits for its end where only flags of little meaning are in doubt (indexes not used). Servers gather
/// as much before they send.
const SURE_BYTES: usize = 16 << 10;
/// And so much where the text does not tell whether another result follows, or these are OUT parameters.
const UNSURE_BYTES: usize = 192 << 10;
/// Where the count of warnings stands in the packet, and the flags behind it.
const WARNINGS_AT: usize = HEADER_LEN + 1;
const STATUS_AT: usize = WARNINGS_AT + 2;

/// An EOF whose flags are not sure yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenEof {
    /// Its place behind the begin of what is held.
    at: usize,
    /// When more than this has come behind it, it goes as it is.
    bytes_max: usize,
}

/// The results of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results {
    /// If each statement gives one.
    count: usize,
    /// The first of them, which surely give one.
    sure: usize,
}

impl Core {
    /// All definitions of a result, or of a prepared statement's parameters or columns, have passed.
    pub(super) fn columns_end(&mut self, key: BackendKey, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        if session.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            return;
        }
        let reply = &mut self.backends[key].reply;
        let mut sequence = reply.next_sequence();
        reply.shift_sequence();
        if session.work.wants_cursor {
            // Where the server has opened a cursor, the end of the definitions is the end of the reply.
            session.work.owed_eof = Some(sequence);
            return;
        }
        if session.work.kind != WorkKind::Prepare {
            return self.put_open_eof(holder, sequence);
        }
        let warnings = match session.work.ending {
            Ending::Ok { warnings, .. } => warnings,
            _ => 0,
        };
        let eof = EofPacket { warnings, status: session.status() };
        if let Some(buffer) = self.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| eof.write(out));
        }
    }

    /// The EOF between definitions and rows, where it was not clear yet whether rows would follow.
    pub(super) fn put_owed_eof(&mut self, holder: SessionKey) {
        if let Some(sequence) = self.sessions[holder].work.owed_eof.take() {
            self.put_open_eof(holder, sequence);
        }
    }

    fn put_open_eof(&mut self, holder: SessionKey, mut sequence: u8) {
        let (follows, is_sure) = self.another_result_follows(holder);
        let session = &mut self.sessions[holder];
        let mut status = session.status();
        status.set(StatusFlags::MORE_RESULTS_EXISTS, follows);
        self.out.hold(session.socket);
        let at = self.out.held_bytes(session.socket);
        let bytes_max = if is_sure { SURE_BYTES } else { UNSURE_BYTES };
        session.work.open_eof = Some(OpenEof { at, bytes_max });
        if let Some(buffer) = self.out.buffer(session.socket) {
            let eof = EofPacket { warnings: 0, status };
            frame::packet(buffer, &mut sequence, |out| eof.write(out));
        }
    }

    /// Whether another result follows the one whose columns have come, and whether that and the other flags that matter
    /// are certain.
    fn another_result_follows(&mut self, holder: SessionKey) -> (bool, bool) {
        let session = &self.sessions[holder];
        if session.upload.is_some() {
            return (false, false);
        }
        if session.work.kind == WorkKind::Query && session.runs_several() {
            let results = self.results_of_text(holder);
            let so_far = self.sessions[holder].work.results as usize;
            return (so_far + 1 < results.count, so_far < results.sure);
        }
        let work = &session.work;
        match work.statement.kind {
            // Behind the results of a CALL comes its OK. One of them may be that of the OUT parameters.
            Kind::Call | Kind::Compound => (true, work.kind == WorkKind::Query),
            kind => (false, gives_one_result(kind)),
        }
    }

    /// How many results a text of several statements has; it is looked through once for all of them.
    fn results_of_text(&mut self, holder: SessionKey) -> Results {
        let session = &self.sessions[holder];
        if let Some(known) = session.work.results_of_text {
            return known;
        }
        let kinds = weir_sql::kinds(self.text(holder), session.dialect);
        let sure = kinds.iter().take_while(|kind| gives_one_result(**kind)).count();
        let results = Results { count: kinds.len(), sure };
        self.sessions[holder].work.results_of_text = Some(results);
        results
    }

    /// Lets an EOF go as it is, when too much has come behind it.
    pub(super) fn limit_open_eof(&mut self, holder: SessionKey) {
        let session = &self.sessions[holder];
        if let Some(open) = session.work.open_eof
            && self.out.held_bytes(session.socket) > open.at + open.bytes_max
        {
            self.close_eof(holder, None);
        }
    }

    /// Lets an EOF go, with these flags and warnings if they are known.
    pub(super) fn close_eof(&mut self, holder: SessionKey, known: Option<EofPacket>) {
        let session = &mut self.sessions[holder];
        let Some(open) = session.work.open_eof.take() else { return };
        let place = open.at + WARNINGS_AT..open.at + STATUS_AT + 2;
        if let (Some(known), Some(bytes)) = (known, self.out.held(session.socket).get_mut(place))
            && let Some((warnings, status)) = bytes.split_first_chunk_mut::<2>()
        {
            *warnings = known.warnings.to_le_bytes();
            status.copy_from_slice(&known.status.bits().to_le_bytes());
        }
        if session.work.withheld_bytes_max == 0 {
            self.out.release(session.socket);
        }
    }

    /// The end of a result: the EOF in front of its rows can be set right, and another one ends them.
    pub(super) fn result_end(
        &mut self,
        key: BackendKey,
        holder: SessionKey,
        ok: &OkPacket<'_>,
        mut sequence: u8,
    ) {
        let mut status = ok.status;
        status.remove(StatusFlags::SESSION_STATE_CHANGED);
        self.close_eof(holder, Some(EofPacket { warnings: ok.warnings, status }));
        if status.contains(StatusFlags::PS_OUT_PARAMS) && !self.backends[key].greeted.is_mariadb {
            // As MySQL (9.7) ends OUT parameters, although the CALL's OK follows: clients go by the EOF before.
            status.remove(StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS_EXISTS);
        }
        if let Some(buffer) = self.out.buffer(self.sessions[holder].socket) {
            let eof = EofPacket { warnings: ok.warnings, status };
            frame::packet(buffer, &mut sequence, |out| eof.write(out));
        }
    }
}

/// Whether a statement of this kind is surely answered by one result.
fn gives_one_result(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Call
            | Kind::Compound
            | Kind::Execute
            | Kind::ExecuteImmediate
            | Kind::SetStatement
            | Kind::Empty
            | Kind::Other
    )
}
