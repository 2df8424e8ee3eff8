//! Reads query attributes: named values that a client with QUERY_ATTRIBUTES sends beside a statement (MySQL 8.0.23 and
//! later).
//!
//! In a COM_QUERY they stand between the command byte and the text, and are announced by a count also where there are
//! none (MySQL's source documentation: "COM_QUERY"); in a COM_STMT_EXECUTE they are parameters behind the statement's own.

use crate::resultset::ColumnType;
use crate::wire::{Malformed, Reader};

/// What a COM_QUERY without any has in their place.
pub const NO_QUERY_ATTRIBUTES: &[u8] = &[0, 1];
/// More than a client can send in a statement (its limit is 32 in each of MySQL's own clients).
const ATTRIBUTES_MAX: u64 = 0xFFFF;

/// How many bytes the attributes take at the start of `bytes`, which follow the command byte of a COM_QUERY.
///
/// # Errors
/// They do not end in these bytes, or are no attributes.
pub fn query_attributes_len(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut reader = Reader::new(bytes);
    let count = reader.lenenc_int()?;
    let _sets = reader.lenenc_int()?;
    if count > ATTRIBUTES_MAX {
        return Err(Malformed::Truncated);
    }
    let count = count as usize;
    if count > 0 {
        let nulls = reader.fixed(count.div_ceil(8))?;
        if reader.u8()? != 1 {
            // Nothing was sent before from which the types could be known.
            return Err(Malformed::UnexpectedHeader(0));
        }
        let mut types = Vec::with_capacity(count);
        for _ in 0..count {
            types.push(named_type(&mut reader)?);
        }
        for (at, column_type) in types.into_iter().enumerate() {
            if nulls[at / 8] & (1 << (at % 8)) == 0 {
                skip_value(&mut reader, column_type)?;
            }
        }
    }
    Ok(bytes.len() - reader.remaining())
}

/// Skips the type of a parameter and its name.
pub(super) fn named_type(reader: &mut Reader<'_>) -> Result<ColumnType, Malformed> {
    let column_type = ColumnType(reader.u8()?);
    reader.u8()?;
    reader.lenenc_bytes()?;
    Ok(column_type)
}

/// Skips a value in the binary format (MySQL's source documentation: "Binary Protocol Value"). The text begins behind the
/// last one, so only types are taken whose length every server sees alike: of NULL (where it is none), INT24, YEAR and the
/// types that only storage engines know, MySQL 9.7 takes some for strings.
fn skip_value(reader: &mut Reader<'_>, column_type: ColumnType) -> Result<(), Malformed> {
    match column_type {
        ColumnType::TINY => reader.skip(1),
        ColumnType::SHORT => reader.skip(2),
        ColumnType::LONG | ColumnType::FLOAT => reader.skip(4),
        ColumnType::LONGLONG | ColumnType::DOUBLE => reader.skip(8),
        ColumnType::DATE | ColumnType::DATETIME | ColumnType::TIMESTAMP | ColumnType::TIME => {
            let len = reader.u8()?;
            reader.skip(len.into())
        }
        ColumnType::DECIMAL | ColumnType::VARCHAR | ColumnType::BIT => reader.lenenc_bytes().map(|_| ()),
        ColumnType(code) if code >= ColumnType::JSON.0 => reader.lenenc_bytes().map(|_| ()),
        ColumnType(code) => Err(Malformed::UnexpectedHeader(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_are_two_bytes() {
        assert_eq!(query_attributes_len(b"\x00\x01SELECT 1"), Ok(2));
        assert_eq!(query_attributes_len(b"\x00"), Err(Malformed::Truncated));
    }

    #[test]
    fn attributes_end_where_the_text_begins() {
        let mut bytes = vec![3, 1, 0b010, 1];
        bytes.extend_from_slice(b"\x08\x00\x01n"); // BIGINT
        bytes.extend_from_slice(b"\xfe\x00\x04null"); // STRING, NULL
        bytes.extend_from_slice(b"\xfe\x00\x00"); // STRING without a name
        bytes.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(b"\x03abc");
        let len = bytes.len();
        for cut in 0..len {
            assert_eq!(query_attributes_len(&bytes[..cut]), Err(Malformed::Truncated), "{cut}");
        }
        bytes.extend_from_slice(b"SELECT 1");
        assert_eq!(query_attributes_len(&bytes), Ok(len));
    }

    #[test]
    fn a_temporal_value_tells_its_length() {
        let bytes = b"\x02\x01\x00\x01\x0c\x00\x00\x0b\x00\x00\x04\xea\x07\x0b\x17\x00DO 1";
        assert_eq!(query_attributes_len(bytes), Ok(bytes.len() - 4));
    }

    #[test]
    fn a_value_whose_length_servers_see_otherwise_is_refused() {
        for code in [6, 9, 13, 14, 20, 0xF2, 0xF4] {
            let mut bytes = [1, 1, 0, 1, code, 0, 1, b'n', 4].to_vec();
            bytes.extend_from_slice(b"SELECT 1 -- DO 2");
            assert_eq!(query_attributes_len(&bytes), Err(Malformed::UnexpectedHeader(code)), "{code}");
            // As NULL it has none.
            bytes[2] = 1;
            assert_eq!(query_attributes_len(&bytes), Ok(8), "{code}");
        }
    }

    #[test]
    fn attributes_without_types_are_refused() {
        assert!(query_attributes_len(b"\x01\x01\x00\x00\x03abcDO 1").is_err());
    }
}
