//! Reads the commands of prepared statements, and the answer to COM_STMT_PREPARE.

use std::ops::Range;

use super::attributes::named_type;
use crate::capability::Capabilities;
use crate::command::Command;
use crate::wire::{Malformed, Reader, put_u16, put_u32};

/// The fixed start of COM_STMT_EXECUTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StmtExecute {
    /// The id that COM_STMT_PREPARE was answered with.
    pub stmt_id: u32,
    /// Cursor type, see the constants.
    pub flags: u8,
    /// Always 1.
    pub iteration_count: u32,
}

/// The parameters of a COM_STMT_EXECUTE, as ranges of its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StmtParameters {
    /// How many there are: the statement's own, and behind them the query attributes.
    pub count: usize,
    /// One bit per parameter, `(count + 7) / 8` bytes, the lowest bit first: set for NULL.
    pub null_bitmap: Range<usize>,
    /// Whether types are sent; if not, those of the previous execution hold.
    pub new_params_bound: bool,
    /// Of the statement's own two bytes per parameter: type, and 0x80 for unsigned; from a client with QUERY_ATTRIBUTES its
    /// name behind that. Empty unless `new_params_bound`.
    pub types: Range<usize>,
    /// The values of those, attributes included, that are neither NULL nor sent as long data.
    pub values: Range<usize>,
}

impl StmtExecute {
    /// Bytes of the fixed start, command byte included.
    pub const LEN: usize = 10;
    /// Where the statement id stands in the payload: a proxy replaces these four bytes.
    pub const STMT_ID: Range<usize> = 1..5;
    /// Where the flags stand in the payload.
    pub const FLAGS: usize = 5;
    /// Rows are sent at once.
    pub const CURSOR_TYPE_NO_CURSOR: u8 = 0;
    /// Rows stay on the server and come by COM_STMT_FETCH.
    pub const CURSOR_TYPE_READ_ONLY: u8 = 1;

    /// Parses the start of a payload that begins with the command byte.
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            0x17 => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        Ok(StmtExecute { stmt_id: reader.u32()?, flags: reader.u8()?, iteration_count: reader.u32()? })
    }

    /// A client with QUERY_ATTRIBUTES tells how many parameters there are also for a statement that has none.
    pub const PARAMETER_COUNT_AVAILABLE: u8 = 8;

    /// Finds the parameters in the same `payload`, for a statement with `n_params` of them and a client with these
    /// `capabilities`: with QUERY_ATTRIBUTES there are a count and names in between, and maybe more parameters (MySQL's source
    /// documentation: "COM_STMT_EXECUTE").
    ///
    /// `payload` may end anywhere in the values, if they are not there yet.
    pub fn parameters(
        payload: &[u8],
        n_params: u16,
        capabilities: Capabilities,
    ) -> Result<StmtParameters, Malformed> {
        let n_params = usize::from(n_params);
        let has_attributes = capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
        let (mut start, mut count) = (Self::LEN, n_params);
        let is_counted =
            payload.get(Self::FLAGS).is_some_and(|flags| flags & Self::PARAMETER_COUNT_AVAILABLE != 0);
        if has_attributes && (n_params > 0 || is_counted) {
            let rest = payload.get(start..).ok_or(Malformed::Truncated)?;
            let mut reader = Reader::new(rest);
            count = reader.lenenc_int()?.try_into().map_err(|_| Malformed::Truncated)?;
            start += rest.len() - reader.remaining();
            if count < n_params {
                return Err(Malformed::Truncated);
            }
        }
        if count == 0 {
            return Ok(StmtParameters {
                count,
                null_bitmap: start..start,
                new_params_bound: false,
                types: start..start,
                values: start..payload.len().max(start),
            });
        }
        let bitmap_end = start.checked_add(count.div_ceil(8)).ok_or(Malformed::Truncated)?;
        let new_params_bound = *payload.get(bitmap_end).ok_or(Malformed::Truncated)? == 1;
        let types_start = bitmap_end + 1;
        let (mut types_end, mut values_start) = (types_start, types_start);
        if new_params_bound && has_attributes {
            let mut reader = Reader::new(&payload[types_start..]);
            for at in 0..count {
                named_type(&mut reader)?;
                values_start = payload.len() - reader.remaining();
                if at < n_params {
                    types_end = values_start;
                }
            }
        } else if new_params_bound {
            types_end = types_start + 2 * n_params;
            values_start = types_end;
        }
        if values_start > payload.len() {
            return Err(Malformed::Truncated);
        }
        Ok(StmtParameters {
            count,
            null_bitmap: start..bitmap_end,
            new_params_bound,
            types: types_start..types_end,
            values: values_start..payload.len(),
        })
    }

    /// Appends the fixed start, command byte included.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(Command::StmtExecute.code());
        put_u32(out, self.stmt_id);
        out.push(self.flags);
        put_u32(out, self.iteration_count);
    }
}

/// The fixed start of COM_STMT_SEND_LONG_DATA; the rest of the payload is a piece of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StmtLongData {
    /// The id that COM_STMT_PREPARE was answered with.
    pub stmt_id: u32,
    /// The parameter, from 0.
    pub param: u16,
}

impl StmtLongData {
    /// Bytes of the fixed start, command byte included.
    pub const LEN: usize = 7;

    /// Parses the start of a payload that begins with the command byte.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            0x18 => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        Ok(StmtLongData { stmt_id: reader.u32()?, param: reader.u16()? })
    }

    /// Appends the fixed start, command byte included.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(Command::StmtSendLongData.code());
        put_u32(out, self.stmt_id);
        put_u16(out, self.param);
    }
}

/// COM_STMT_FETCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StmtFetch {
    /// The id that COM_STMT_PREPARE was answered with.
    pub stmt_id: u32,
    /// At most so many rows.
    pub rows: u32,
}

impl StmtFetch {
    /// Parses a payload that begins with the command byte.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            0x1C => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        Ok(StmtFetch { stmt_id: reader.u32()?, rows: reader.u32()? })
    }

    /// Appends the payload, command byte included.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(Command::StmtFetch.code());
        put_u32(out, self.stmt_id);
        put_u32(out, self.rows);
    }
}

/// The first packet of a successful answer to COM_STMT_PREPARE.
///
/// Definitions of the parameters follow, then those of the columns, each closed by EOF unless
/// DEPRECATE_EOF is agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StmtPrepareOk {
    /// The statement's id on this connection.
    pub stmt_id: u32,
    /// Columns of its result set; 0 if it has none.
    pub columns: u16,
    /// Its parameters.
    pub params: u16,
    /// Warnings raised.
    pub warnings: u16,
}

impl StmtPrepareOk {
    /// Where the statement id stands in the payload: a proxy replaces these four bytes.
    pub const STMT_ID: Range<usize> = 1..5;

    /// Parses the payload; an ERR packet is an error here, as any other header is.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            0x00 => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        let (stmt_id, columns, params) = (reader.u32()?, reader.u16()?, reader.u16()?);
        // One byte of filler; servers before 5.0 end here.
        let warnings = if reader.remaining() >= 3 {
            reader.skip(1)?;
            reader.u16()?
        } else {
            0
        };
        Ok(StmtPrepareOk { stmt_id, columns, params, warnings })
    }

    /// Appends the payload.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(0x00);
        put_u32(out, self.stmt_id);
        put_u16(out, self.columns);
        put_u16(out, self.params);
        out.push(0);
        put_u16(out, self.warnings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepare_ok_survives_the_wire() {
        let sent = StmtPrepareOk { stmt_id: 0xDEAD_BEEF, columns: 3, params: 700, warnings: 1 };
        let mut payload = Vec::new();
        sent.write(&mut payload);
        assert_eq!(payload.len(), 12);
        assert_eq!(StmtPrepareOk::parse(&payload), Ok(sent));
        assert_eq!(StmtPrepareOk::parse(&[0xFF, 1, 2]), Err(Malformed::UnexpectedHeader(0xFF)));
    }

    #[test]
    fn long_data_and_fetches_survive_the_wire() {
        let mut payload = Vec::new();
        StmtLongData { stmt_id: 7, param: 300 }.write(&mut payload);
        assert_eq!(payload.len(), StmtLongData::LEN);
        payload.extend_from_slice(b"a piece");
        assert_eq!(StmtLongData::parse(&payload), Ok(StmtLongData { stmt_id: 7, param: 300 }));
        assert_eq!(StmtLongData::parse(&payload[..6]), Err(Malformed::Truncated));
        payload.clear();
        StmtFetch { stmt_id: 9, rows: 70_000 }.write(&mut payload);
        assert_eq!(StmtFetch::parse(&payload), Ok(StmtFetch { stmt_id: 9, rows: 70_000 }));
        assert_eq!(StmtFetch::parse(&payload[..8]), Err(Malformed::Truncated));
        assert_eq!(StmtFetch::parse(b"\x18"), Err(Malformed::UnexpectedHeader(0x18)));
    }

    #[test]
    fn parameters_are_found_with_and_without_types() {
        // SELECT ?, ? with an int 7 and NULL.
        let mut payload = Vec::new();
        StmtExecute { stmt_id: 9, flags: 0, iteration_count: 1 }.write(&mut payload);
        assert_eq!(payload.len(), StmtExecute::LEN);
        payload.extend_from_slice(&[0b10, 1, 3, 0, 6, 0, 7, 0, 0, 0]);
        assert_eq!(StmtExecute::parse(&payload).unwrap().stmt_id, 9);
        let found = StmtExecute::parameters(&payload, 2, Capabilities::empty()).unwrap();
        assert_eq!(found.null_bitmap, 10..11);
        assert!(found.new_params_bound);
        assert_eq!((found.types, found.values), (12..16, 16..20));

        payload.truncate(StmtExecute::LEN);
        payload.extend_from_slice(&[0b10, 0, 7, 0, 0, 0]);
        let again = StmtExecute::parameters(&payload, 2, Capabilities::empty()).unwrap();
        assert_eq!((again.types, again.values), (12..12, 12..16));
    }

    #[test]
    fn attributes_stand_behind_the_parameters() {
        let with = Capabilities::QUERY_ATTRIBUTES;
        // SELECT ? with an int 7, and the attribute `who`.
        let mut payload = Vec::new();
        StmtExecute { stmt_id: 9, flags: 8, iteration_count: 1 }.write(&mut payload);
        payload.extend_from_slice(&[2, 0, 1]);
        payload.extend_from_slice(b"\x03\0\0\xfe\0\x03who\x07\0\0\0\x02me");
        let found = StmtExecute::parameters(&payload, 1, with).unwrap();
        assert_eq!((found.count, found.null_bitmap, found.types), (2, 11..12, 13..16));
        assert_eq!(&payload[found.values], b"\x07\0\0\0\x02me");
        // Without parameters only the flag tells that there is a count.
        payload.truncate(StmtExecute::LEN);
        assert!(StmtExecute::parameters(&payload, 0, with).is_err());
        payload.push(0);
        assert_eq!(StmtExecute::parameters(&payload, 0, with).unwrap().count, 0);
        payload[StmtExecute::FLAGS] = 0;
        assert_eq!(StmtExecute::parameters(&payload[..10], 0, with).unwrap().values, 10..10);
        // Fewer than the statement has.
        assert_eq!(StmtExecute::parameters(&payload, 1, with), Err(Malformed::Truncated));
    }

    #[test]
    fn a_packet_too_short_for_its_parameters_is_an_error() {
        let mut payload = Vec::new();
        StmtExecute { stmt_id: 9, flags: 0, iteration_count: 1 }.write(&mut payload);
        assert!(StmtExecute::parameters(&payload, 0, Capabilities::empty()).is_ok());
        assert_eq!(StmtExecute::parameters(&payload, 1, Capabilities::empty()), Err(Malformed::Truncated));
        payload.extend_from_slice(&[0, 1, 3]);
        assert_eq!(StmtExecute::parameters(&payload, 1, Capabilities::empty()), Err(Malformed::Truncated));
        assert_eq!(StmtExecute::parse(&payload[..9]), Err(Malformed::Truncated));
    }
}
