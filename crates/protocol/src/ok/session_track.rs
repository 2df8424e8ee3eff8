//! Reads session state information: an OK packet's report of what a statement changed.
//!
//! A sequence of entries, each a type byte and a length-encoded body. (MySQL manual, "OK_Packet";
//! MariaDB knowledge base, "OK_Packet".)

use crate::wire::{Malformed, Reader, lenenc_bytes_len, put_lenenc_bytes, put_lenenc_int};

const SYSTEM_VARIABLES: u8 = 0;
const SCHEMA: u8 = 1;
const STATE_CHANGE: u8 = 2;
const GTIDS: u8 = 3;
const TRANSACTION_CHARACTERISTICS: u8 = 4;
const TRANSACTION_STATE: u8 = 5;

/// One change of the session's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionTrack<'a> {
    /// A system variable has a new value. An entry may hold several: they come one by one.
    SystemVariable {
        /// Its name.
        name: &'a [u8],
        /// The new value as text.
        value: &'a [u8],
    },
    /// The current database has this name now; empty for none.
    Schema(&'a [u8]),
    /// Whether anything in the session changed (`session_track_state_change`).
    StateChange(bool),
    /// GTIDs of the transactions the statement committed (MySQL).
    Gtids {
        /// How `gtids` is encoded; 0 is text, the only one there is.
        encoding: u8,
        /// The GTID set.
        gtids: &'a [u8],
    },
    /// The statements that would start this session's transaction elsewhere
    /// (`session_track_transaction_info=CHARACTERISTICS`).
    TransactionCharacteristics(&'a [u8]),
    /// Eight characters, one per aspect of the open transaction: `T`/`I`/`_` explicit, implicit
    /// or none, `r`, `R`, `w`, `W` reads and writes of unsafe or transactional tables, `s`
    /// unsafe statements, `S` result sets sent, `L` LOCK TABLES.
    TransactionState(&'a [u8]),
    /// A type this crate does not know.
    Unknown {
        /// The type byte.
        kind: u8,
        /// The body.
        bytes: &'a [u8],
    },
}

impl SessionTrack<'_> {
    /// Appends the change as an entry of its own.
    pub fn write(&self, out: &mut Vec<u8>) {
        let body_len = self.body_len();
        out.push(self.kind());
        put_lenenc_int(out, body_len as u64);
        match *self {
            Self::SystemVariable { name, value } => {
                put_lenenc_bytes(out, name);
                put_lenenc_bytes(out, value);
            }
            Self::Schema(text) | Self::TransactionCharacteristics(text) | Self::TransactionState(text) => {
                put_lenenc_bytes(out, text);
            }
            // The one body without a length of its own.
            Self::StateChange(changed) => out.push(if changed { b'1' } else { b'0' }),
            Self::Gtids { encoding, gtids } => {
                out.push(encoding);
                put_lenenc_bytes(out, gtids);
            }
            Self::Unknown { bytes, .. } => out.extend_from_slice(bytes),
        }
    }

    /// Bytes that [`SessionTrack::write`] appends.
    pub fn encoded_len(&self) -> usize {
        1 + lenenc_bytes_len(self.body_len())
    }

    fn body_len(&self) -> usize {
        match self {
            Self::SystemVariable { name, value } => {
                lenenc_bytes_len(name.len()) + lenenc_bytes_len(value.len())
            }
            Self::Schema(text) | Self::TransactionCharacteristics(text) | Self::TransactionState(text) => {
                lenenc_bytes_len(text.len())
            }
            Self::StateChange(_) => 1,
            Self::Gtids { gtids, .. } => 1 + lenenc_bytes_len(gtids.len()),
            Self::Unknown { bytes, .. } => bytes.len(),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::SystemVariable { .. } => SYSTEM_VARIABLES,
            Self::Schema(_) => SCHEMA,
            Self::StateChange(_) => STATE_CHANGE,
            Self::Gtids { .. } => GTIDS,
            Self::TransactionCharacteristics(_) => TRANSACTION_CHARACTERISTICS,
            Self::TransactionState(_) => TRANSACTION_STATE,
            Self::Unknown { kind, .. } => *kind,
        }
    }
}

/// Iterates over the changes in an OK packet's session state information; ends after the first
/// malformed entry.
#[derive(Debug, Clone)]
pub struct SessionTracks<'a> {
    entries: Reader<'a>,
    /// What is left of an entry that holds several variables.
    variables: Reader<'a>,
}

impl<'a> SessionTracks<'a> {
    /// Iterates over `session_state` of an [`OkPacket`](crate::ok::OkPacket).
    pub fn new(session_state: &'a [u8]) -> Self {
        SessionTracks { entries: Reader::new(session_state), variables: Reader::new(b"") }
    }

    fn parse_next(&mut self) -> Result<SessionTrack<'a>, Malformed> {
        if !self.variables.is_empty() {
            return self.parse_variable();
        }
        let kind = self.entries.u8()?;
        let bytes = self.entries.lenenc_bytes()?;
        let mut body = Reader::new(bytes);
        Ok(match kind {
            SYSTEM_VARIABLES => {
                self.variables = body;
                return self.parse_variable();
            }
            SCHEMA => SessionTrack::Schema(body.lenenc_bytes()?),
            STATE_CHANGE => SessionTrack::StateChange(body.u8()? == b'1'),
            GTIDS => SessionTrack::Gtids { encoding: body.u8()?, gtids: body.lenenc_bytes()? },
            TRANSACTION_CHARACTERISTICS => SessionTrack::TransactionCharacteristics(body.lenenc_bytes()?),
            TRANSACTION_STATE => SessionTrack::TransactionState(body.lenenc_bytes()?),
            _ => SessionTrack::Unknown { kind, bytes },
        })
    }

    fn parse_variable(&mut self) -> Result<SessionTrack<'a>, Malformed> {
        let name = self.variables.lenenc_bytes()?;
        let value = self.variables.lenenc_bytes()?;
        Ok(SessionTrack::SystemVariable { name, value })
    }
}

impl<'a> Iterator for SessionTracks<'a> {
    type Item = Result<SessionTrack<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.entries.is_empty() && self.variables.is_empty() {
            return None;
        }
        let item = self.parse_next();
        if item.is_err() {
            *self = SessionTracks::new(b"");
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire() {
        let sent = [
            SessionTrack::SystemVariable { name: b"sql_mode", value: b"" },
            SessionTrack::Schema(b""),
            SessionTrack::StateChange(true),
            SessionTrack::Gtids { encoding: 0, gtids: b"3E11FA47-71CA-11E1-9E33-C80AA9429562:23" },
            SessionTrack::TransactionCharacteristics(b"START TRANSACTION READ ONLY;"),
            SessionTrack::TransactionState(b"T_______"),
            SessionTrack::Unknown { kind: 99, bytes: &[1, 2, 3] },
        ];
        let mut state = Vec::new();
        for track in &sent {
            let before = state.len();
            track.write(&mut state);
            assert_eq!(state.len() - before, track.encoded_len());
        }
        let back: Vec<_> = SessionTracks::new(&state).collect::<Result<_, _>>().unwrap();
        assert_eq!(back, sent);
    }

    #[test]
    fn one_entry_may_hold_several_variables() {
        let state = b"\x00\x08\x01a\x011\x01b\x012\x01\x02\x01d";
        let tracks: Vec<_> = SessionTracks::new(state).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            tracks,
            [
                SessionTrack::SystemVariable { name: b"a", value: b"1" },
                SessionTrack::SystemVariable { name: b"b", value: b"2" },
                SessionTrack::Schema(b"d"),
            ]
        );
    }

    #[test]
    fn a_malformed_entry_ends_the_iteration() {
        // A variable's value longer than its entry, and an entry longer than the packet.
        for state in [&b"\x00\x04\x01a\x09x\x01\x02\x01d"[..], b"\x01\x7f\x01", b"\x00\x00\x01\x02\x01d"] {
            let mut tracks = SessionTracks::new(state);
            assert_eq!(tracks.next(), Some(Err(Malformed::Truncated)));
            assert_eq!(tracks.next(), None);
        }
    }
}
