//! Reads and writes the packets that end an answer: OK, ERR and EOF, and what OK tells about the session.

mod eof;
mod err;
mod session_track;

pub use eof::EofPacket;
pub use err::ErrPacket;
pub use session_track::{SessionTrack, SessionTracks};

use crate::capability::Capabilities;
use crate::status::StatusFlags;
use crate::wire::{Malformed, Reader, put_lenenc_bytes, put_lenenc_int, put_u16};

/// First byte of the OK packet that ends a command.
pub const OK_HEADER: u8 = 0x00;
/// First byte of the OK packet that ends a result set's rows under DEPRECATE_EOF.
pub const OK_AS_EOF_HEADER: u8 = 0xFE;

/// OK: the command succeeded, or with header 0xFE and DEPRECATE_EOF, the rows are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OkPacket<'a> {
    /// [`OK_HEADER`] or [`OK_AS_EOF_HEADER`].
    pub header: u8,
    /// Rows changed, or found with FOUND_ROWS.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value generated.
    pub last_insert_id: u64,
    /// The session's status after the command.
    pub status: StatusFlags,
    /// Warnings raised.
    pub warnings: u16,
    /// Text for people: "Rows matched: 1  Changed: 1  Warnings: 0".
    pub info: &'a [u8],
    /// Changes of the session's state, encoded; see [`OkPacket::session_tracks`]. Empty without
    /// SESSION_TRACK or if nothing changed.
    pub session_state: &'a [u8],
}

impl<'a> OkPacket<'a> {
    /// An OK without text and state changes.
    pub fn new(header: u8, status: StatusFlags) -> Self {
        OkPacket {
            header,
            affected_rows: 0,
            last_insert_id: 0,
            status,
            warnings: 0,
            info: b"",
            session_state: b"",
        }
    }

    /// Parses a payload that starts with 0x00 or 0xFE, on a connection with `capabilities`.
    ///
    /// The caller knows from where it stands, and from the length, that the payload is no row,
    /// EOF or authentication switch.
    #[inline]
    pub fn parse(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let header = reader.u8()?;
        if header != OK_HEADER && header != OK_AS_EOF_HEADER {
            return Err(Malformed::UnexpectedHeader(header));
        }
        let affected_rows = reader.lenenc_int()?;
        let last_insert_id = reader.lenenc_int()?;
        let status = StatusFlags::from_bits_retain(reader.u16()?);
        let warnings = reader.u16()?;
        // The manuals say that without SESSION_TRACK the text reaches to the end of the packet,
        // but MariaDB and MySQL put its length in front all the same.
        let info = if reader.is_empty() { b"" } else { reader.lenenc_bytes()? };
        let tracked = capabilities.contains(Capabilities::SESSION_TRACK)
            && status.contains(StatusFlags::SESSION_STATE_CHANGED);
        let session_state = if tracked && !reader.is_empty() { reader.lenenc_bytes()? } else { b"" };
        Ok(OkPacket { header, affected_rows, last_insert_id, status, warnings, info, session_state })
    }

    /// The changes of the session's state, one by one.
    #[inline]
    pub fn session_tracks(&self) -> SessionTracks<'a> {
        SessionTracks::new(self.session_state)
    }

    /// Appends the payload for a client with `capabilities`.
    ///
    /// `session_state` goes out as it is if the client has SESSION_TRACK and is left out
    /// otherwise; the status flag SESSION_STATE_CHANGED is set to fit.
    pub fn write(&self, capabilities: Capabilities, out: &mut Vec<u8>) {
        let tracked = capabilities.contains(Capabilities::SESSION_TRACK);
        self.write_start(tracked && !self.session_state.is_empty(), out);
        if tracked && !self.session_state.is_empty() {
            put_lenenc_bytes(out, self.info);
            put_lenenc_bytes(out, self.session_state);
        } else if !self.info.is_empty() {
            put_lenenc_bytes(out, self.info);
        }
    }

    /// Appends the payload like [`OkPacket::write`], with only those state changes that `keep`
    /// chooses; it is asked twice about each.
    ///
    /// Fails before anything is appended if `session_state` is malformed.
    pub fn write_filtered(
        &self,
        capabilities: Capabilities,
        out: &mut Vec<u8>,
        keep: impl Fn(&SessionTrack<'a>) -> bool,
    ) -> Result<(), Malformed> {
        let mut kept_len = 0;
        for track in self.session_tracks() {
            let track = track?;
            if keep(&track) {
                kept_len += track.encoded_len();
            }
        }
        if kept_len == 0 || !capabilities.contains(Capabilities::SESSION_TRACK) {
            OkPacket { session_state: b"", ..*self }.write(capabilities, out);
            return Ok(());
        }
        self.write_start(true, out);
        put_lenenc_bytes(out, self.info);
        put_lenenc_int(out, kept_len as u64);
        for track in self.session_tracks().flatten().filter(|track| keep(track)) {
            track.write(out);
        }
        Ok(())
    }

    fn write_start(&self, state_changed: bool, out: &mut Vec<u8>) {
        let mut status = self.status;
        status.set(StatusFlags::SESSION_STATE_CHANGED, state_changed);
        out.push(self.header);
        put_lenenc_int(out, self.affected_rows);
        put_lenenc_int(out, self.last_insert_id);
        put_u16(out, status.bits());
        put_u16(out, self.warnings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACK: Capabilities = Capabilities::PROTOCOL_41.union(Capabilities::SESSION_TRACK);

    fn state_of(tracks: &[SessionTrack<'_>]) -> Vec<u8> {
        let mut state = Vec::new();
        tracks.iter().for_each(|track| track.write(&mut state));
        state
    }

    /// MariaDB 10.11's answer to `SET time_zone='+01:00', autocommit=0, sql_mode='ANSI_QUOTES'`.
    #[test]
    fn a_captured_packet_is_understood() {
        let payload = b"\x00\x00\x00\x00\xC0\x00\x00\x00\x3E\
            \x00\x15\x08sql_mode\x0BANSI_QUOTES\
            \x00\x11\x09time_zone\x06+01:00\
            \x00\x0F\x0Aautocommit\x03OFF\
            \x02\x011";
        let ok = OkPacket::parse(payload, TRACK).unwrap();
        assert_eq!(ok.status, StatusFlags::SESSION_STATE_CHANGED | StatusFlags::ANSI_QUOTES);
        let tracks: Vec<_> = ok.session_tracks().collect::<Result<_, _>>().unwrap();
        assert_eq!(
            tracks,
            [
                SessionTrack::SystemVariable { name: b"sql_mode", value: b"ANSI_QUOTES" },
                SessionTrack::SystemVariable { name: b"time_zone", value: b"+01:00" },
                SessionTrack::SystemVariable { name: b"autocommit", value: b"OFF" },
                SessionTrack::StateChange(true),
            ]
        );
        let mut again = Vec::new();
        ok.write_filtered(TRACK, &mut again, |_| true).unwrap();
        assert_eq!(again, payload);
    }

    /// MySQL 9.7's answers to an INSERT and to a SELECT within a transaction.
    #[test]
    fn mysql_s_gtids_and_transaction_states_are_understood() {
        let insert = b"\x00\x01\x00\x02\x40\x00\x00\x00\x3C\
            \x00\x10\x0Cstatement_id\x0213\
            \x03\x28\x00\x26377137d9-e583-11f1-938a-02fc00000001:3";
        let select = b"\xFE\x00\x00\x03\x60\x00\x00\x00\x1D\
            \x00\x10\x0Cstatement_id\x0216\
            \x05\x09\x08T_____S_";
        let gtids = SessionTrack::Gtids { encoding: 0, gtids: b"377137d9-e583-11f1-938a-02fc00000001:3" };
        for (payload, expected) in
            [(&insert[..], gtids), (&select[..], SessionTrack::TransactionState(b"T_____S_"))]
        {
            let ok = OkPacket::parse(payload, TRACK).unwrap();
            assert_eq!(ok.session_tracks().nth(1), Some(Ok(expected)));
            let mut again = Vec::new();
            ok.write(TRACK, &mut again);
            assert_eq!(again, payload);
        }
    }

    /// An answer to an INSERT without SESSION_TRACK, the same from MariaDB 10.11 and MySQL 9.7.
    #[test]
    fn the_text_has_its_length_in_front_even_without_tracking() {
        let payload = b"\x00\x02\x00\x02\x00\x00\x00\x26Records: 2  Duplicates: 0  Warnings: 0";
        let ok = OkPacket::parse(payload, Capabilities::PROTOCOL_41).unwrap();
        assert_eq!((ok.affected_rows, ok.info.len()), (2, 38));
        let mut again = Vec::new();
        ok.write(Capabilities::PROTOCOL_41, &mut again);
        assert_eq!(again, payload);
    }

    #[test]
    fn only_the_chosen_changes_go_out() {
        let state = state_of(&[
            SessionTrack::Schema(b"shop"),
            SessionTrack::SystemVariable { name: b"autocommit", value: b"OFF" },
            SessionTrack::TransactionState(b"T_______"),
        ]);
        let ok = OkPacket {
            session_state: &state,
            info: b"hi",
            ..OkPacket::new(OK_HEADER, StatusFlags::IN_TRANS)
        };
        let mut payload = Vec::new();
        ok.write_filtered(TRACK, &mut payload, |track| matches!(track, SessionTrack::Schema(_))).unwrap();
        let back = OkPacket::parse(&payload, TRACK).unwrap();
        assert!(back.status.contains(StatusFlags::SESSION_STATE_CHANGED));
        assert_eq!(back.info, b"hi");
        assert_eq!(back.session_tracks().collect::<Vec<_>>(), [Ok(SessionTrack::Schema(b"shop"))]);

        payload.clear();
        ok.write_filtered(TRACK, &mut payload, |_| false).unwrap();
        let back = OkPacket::parse(&payload, TRACK).unwrap();
        assert_eq!(
            (back.status, back.session_state, back.info),
            (StatusFlags::IN_TRANS, &b""[..], &b"hi"[..])
        );
    }

    #[test]
    fn a_client_without_tracking_gets_the_plain_form() {
        let state = state_of(&[SessionTrack::Schema(b"shop")]);
        let ok = OkPacket {
            session_state: &state,
            info: b"hi",
            ..OkPacket::new(OK_HEADER, StatusFlags::AUTOCOMMIT)
        };
        let mut payload = Vec::new();
        ok.write(Capabilities::PROTOCOL_41, &mut payload);
        assert_eq!(payload, b"\0\0\0\x02\0\0\0\x02hi");
    }

    #[test]
    fn malformed_state_leaves_the_output_alone() {
        let ok = OkPacket { session_state: &[0, 200, 1], ..OkPacket::new(OK_HEADER, StatusFlags::empty()) };
        let mut out = Vec::new();
        assert_eq!(ok.write_filtered(TRACK, &mut out, |_| true), Err(Malformed::Truncated));
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn survives_the_wire(rows: u64, id: u64, status: u16, warnings: u16, eof: bool, tracked: bool,
                             info in proptest::collection::vec(any::<u8>(), 0..300),
                             schema in proptest::option::of("[a-z]{0,300}")) {
            let capabilities = if tracked { TRACK } else { Capabilities::PROTOCOL_41 };
            let mut session_state = Vec::new();
            if let (true, Some(schema)) = (tracked, &schema) {
                SessionTrack::Schema(schema.as_bytes()).write(&mut session_state);
            }
            let mut status = StatusFlags::from_bits_retain(status);
            status.set(StatusFlags::SESSION_STATE_CHANGED, !session_state.is_empty());
            let ok = OkPacket {
                header: if eof { OK_AS_EOF_HEADER } else { OK_HEADER },
                affected_rows: rows, last_insert_id: id, status, warnings,
                info: &info, session_state: &session_state,
            };
            let (mut whole, mut filtered) = (Vec::new(), Vec::new());
            ok.write(capabilities, &mut whole);
            ok.write_filtered(capabilities, &mut filtered, |_| true).unwrap();
            prop_assert_eq!(OkPacket::parse(&whole, capabilities), Ok(ok));
            prop_assert_eq!(whole, filtered);
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(payload in proptest::collection::vec(any::<u8>(), 0..64), bits: u64) {
            if let Ok(ok) = OkPacket::parse(&payload, Capabilities::from_bits_retain(bits)) {
                ok.session_tracks().for_each(drop);
            }
        }
    }
}
