//! Replies as a client reads them, with every sequence id checked.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::StmtPrepareOk;
use weir_protocol::ok::{ErrPacket, OkPacket};
use weir_protocol::wire::Reader;

/// A whole reply.
#[derive(Debug)]
pub(crate) enum Reply {
    Ok {
        affected_rows: u64,
        insert_id: u64,
        warnings: u16,
    },
    Err {
        code: u16,
        message: String,
    },
    /// The rows' packets.
    Rows(Vec<Vec<u8>>),
    Prepared {
        id: u32,
        params: u16,
    },
    /// An auth switch request's packet.
    Switch(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    /// Definitions, and whether an EOF closes them.
    Definitions(u64),
    Eof,
    Rows,
}

/// Puts a reply together from packets.
#[derive(Debug)]
pub(crate) struct Assembler {
    stage: Stage,
    /// Groups of definitions that follow those being read.
    next_definitions: u64,
    prepared: Option<StmtPrepareOk>,
    rows: Vec<Vec<u8>>,
    pub sequence: u8,
}

impl Assembler {
    pub(crate) fn new() -> Self {
        Self { stage: Stage::First, next_definitions: 0, prepared: None, rows: Vec::new(), sequence: 1 }
    }

    /// Takes the next packet; the reply, when it is whole.
    pub(crate) fn packet(
        &mut self,
        sequence: u8,
        payload: &[u8],
        is_prepare: bool,
        capabilities: Capabilities,
    ) -> Result<Option<Reply>, String> {
        if sequence != self.sequence {
            return Err(format!("sequence id {sequence} where {} was due", self.sequence));
        }
        self.sequence = sequence.wrapping_add(1);
        let has_eof = !capabilities.contains(Capabilities::DEPRECATE_EOF);
        let first = *payload.first().ok_or("an empty packet")?;
        match self.stage {
            Stage::First => self.first(first, payload, is_prepare, capabilities),
            Stage::Definitions(left) => {
                self.stage = match left {
                    1 if has_eof => Stage::Eof,
                    1 => return Ok(self.after_definitions()),
                    _ => Stage::Definitions(left - 1),
                };
                Ok(None)
            }
            Stage::Eof => {
                if first != 0xFE || payload.len() != 5 {
                    return Err(format!("no EOF after definitions: {}", payload.escape_ascii()));
                }
                Ok(self.after_definitions())
            }
            Stage::Rows if first == 0xFF => error(payload).map(Some),
            Stage::Rows if first == 0xFE && payload.len() < 0xFF_FFFF => {
                if has_eof != (payload.len() == 5) {
                    return Err(format!("a result set ends with {}", payload.escape_ascii()));
                }
                Ok(Some(Reply::Rows(std::mem::take(&mut self.rows))))
            }
            Stage::Rows => {
                self.rows.push(payload.to_vec());
                Ok(None)
            }
        }
    }

    fn first(
        &mut self,
        first: u8,
        payload: &[u8],
        is_prepare: bool,
        capabilities: Capabilities,
    ) -> Result<Option<Reply>, String> {
        match first {
            0xFF => error(payload).map(Some),
            0x00 if is_prepare => {
                let prepared = StmtPrepareOk::parse(payload).map_err(|error| error.to_string())?;
                self.prepared = Some(prepared);
                self.stage = Stage::Definitions(u64::from(prepared.params));
                self.next_definitions = u64::from(prepared.columns);
                if prepared.params == 0 {
                    return Ok(self.after_definitions());
                }
                Ok(None)
            }
            0x00 => {
                let ok = OkPacket::parse(payload, capabilities).map_err(|error| error.to_string())?;
                ok.session_tracks().collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
                Ok(Some(Reply::Ok {
                    affected_rows: ok.affected_rows,
                    insert_id: ok.last_insert_id,
                    warnings: ok.warnings,
                }))
            }
            0xFE => Ok(Some(Reply::Switch(payload.to_vec()))),
            _ => {
                let columns = Reader::new(payload).lenenc_int().map_err(|error| error.to_string())?;
                self.stage = Stage::Definitions(columns);
                Ok(None)
            }
        }
    }

    /// Goes on after a group of definitions.
    fn after_definitions(&mut self) -> Option<Reply> {
        let Some(StmtPrepareOk { stmt_id, params, .. }) = self.prepared else {
            self.stage = Stage::Rows;
            return None;
        };
        match std::mem::take(&mut self.next_definitions) {
            0 => Some(Reply::Prepared { id: stmt_id, params }),
            more => {
                self.stage = Stage::Definitions(more);
                None
            }
        }
    }
}

fn error(payload: &[u8]) -> Result<Reply, String> {
    let err = ErrPacket::parse(payload).map_err(|error| error.to_string())?;
    Ok(Reply::Err { code: err.code, message: String::from_utf8_lossy(err.message).into_owned() })
}
