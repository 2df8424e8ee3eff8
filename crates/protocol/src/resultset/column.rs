//! Reads and writes column definitions.

use bitflags::bitflags;

use crate::capability::Capabilities;
use crate::charset::{BINARY, UTF8MB4_GENERAL_CI};
use crate::wire::{Malformed, Reader, put_lenenc_bytes, put_u16, put_u32};

/// The type of a column or parameter; a code without a constant here is kept as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ColumnType(pub u8);

macro_rules! column_types {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal;)*) => {
        impl ColumnType {
            $($(#[doc = $doc])* pub const $name: ColumnType = ColumnType($code);)*
        }
    };
}

column_types! {
    /// DECIMAL from before MySQL 5.0.
    DECIMAL = 0x00;
    /// TINYINT, BOOLEAN.
    TINY = 0x01;
    /// SMALLINT.
    SHORT = 0x02;
    /// INT.
    LONG = 0x03;
    /// FLOAT.
    FLOAT = 0x04;
    /// DOUBLE.
    DOUBLE = 0x05;
    /// NULL without a type.
    NULL = 0x06;
    /// TIMESTAMP.
    TIMESTAMP = 0x07;
    /// BIGINT.
    LONGLONG = 0x08;
    /// MEDIUMINT.
    INT24 = 0x09;
    /// DATE.
    DATE = 0x0A;
    /// TIME.
    TIME = 0x0B;
    /// DATETIME.
    DATETIME = 0x0C;
    /// YEAR.
    YEAR = 0x0D;
    /// VARCHAR, as servers keep it; clients see VAR_STRING.
    VARCHAR = 0x0F;
    /// BIT.
    BIT = 0x10;
    /// VECTOR (MySQL 9).
    VECTOR = 0xF2;
    /// JSON (MySQL; MariaDB's is a string).
    JSON = 0xF5;
    /// DECIMAL.
    NEWDECIMAL = 0xF6;
    /// ENUM, as servers keep it; clients see STRING with a flag.
    ENUM = 0xF7;
    /// SET, as servers keep it; clients see STRING with a flag.
    SET = 0xF8;
    /// TINYBLOB, TINYTEXT.
    TINY_BLOB = 0xF9;
    /// MEDIUMBLOB, MEDIUMTEXT.
    MEDIUM_BLOB = 0xFA;
    /// LONGBLOB, LONGTEXT.
    LONG_BLOB = 0xFB;
    /// BLOB, TEXT.
    BLOB = 0xFC;
    /// VARCHAR, VARBINARY.
    VAR_STRING = 0xFD;
    /// CHAR, BINARY, ENUM, SET.
    STRING = 0xFE;
    /// GEOMETRY.
    GEOMETRY = 0xFF;
}

bitflags! {
    /// Flags of a column; unknown bits are kept.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ColumnFlags: u16 {
        /// NOT NULL.
        const NOT_NULL = 1;
        /// Part of the primary key.
        const PRI_KEY = 1 << 1;
        /// Part of a unique key.
        const UNIQUE_KEY = 1 << 2;
        /// Part of a key.
        const MULTIPLE_KEY = 1 << 3;
        /// BLOB or TEXT.
        const BLOB = 1 << 4;
        /// UNSIGNED.
        const UNSIGNED = 1 << 5;
        /// ZEROFILL.
        const ZEROFILL = 1 << 6;
        /// Binary collation.
        const BINARY = 1 << 7;
        /// ENUM.
        const ENUM = 1 << 8;
        /// AUTO_INCREMENT.
        const AUTO_INCREMENT = 1 << 9;
        /// TIMESTAMP.
        const TIMESTAMP = 1 << 10;
        /// SET.
        const SET = 1 << 11;
        /// NOT NULL without a default.
        const NO_DEFAULT_VALUE = 1 << 12;
        /// ON UPDATE CURRENT_TIMESTAMP.
        const ON_UPDATE_NOW = 1 << 13;
        /// A number.
        const NUM = 1 << 15;

        const _ = !0;
    }
}

/// A column's definition (`ColumnDefinition41`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnDefinition<'a> {
    /// The database of the table.
    pub schema: &'a [u8],
    /// The table's alias.
    pub table: &'a [u8],
    /// The table's name.
    pub org_table: &'a [u8],
    /// The column's alias, the heading.
    pub name: &'a [u8],
    /// The column's name in the table.
    pub org_name: &'a [u8],
    /// MariaDB's extended type, encoded (with MARIADB_EXTENDED_METADATA).
    pub extended: &'a [u8],
    /// Collation id.
    pub collation: u16,
    /// Largest length of a value, in bytes.
    pub length: u32,
    /// The type.
    pub column_type: ColumnType,
    /// Flags.
    pub flags: ColumnFlags,
    /// Digits behind the decimal point; 0x1F for as many as there are.
    pub decimals: u8,
}

/// Bytes of the fields of fixed length, which stand at the end behind a length of their own.
const FIXED_LEN: u8 = 0x0C;

impl<'a> ColumnDefinition<'a> {
    /// A column of text in utf8mb4, with values of at most `length` bytes.
    pub fn text(name: &'a [u8], length: u32) -> Self {
        ColumnDefinition {
            schema: b"",
            table: b"",
            org_table: b"",
            name,
            org_name: b"",
            extended: b"",
            collation: UTF8MB4_GENERAL_CI,
            length,
            column_type: ColumnType::VAR_STRING,
            flags: ColumnFlags::empty(),
            decimals: 0,
        }
    }

    /// A column of 64-bit integers.
    pub fn integer(name: &'a [u8]) -> Self {
        ColumnDefinition {
            collation: BINARY,
            column_type: ColumnType::LONGLONG,
            flags: ColumnFlags::BINARY | ColumnFlags::NUM,
            ..Self::text(name, 21)
        }
    }

    /// Parses the payload on a connection with `capabilities`.
    pub fn parse(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        // The catalog, "def" since there are no others.
        reader.lenenc_bytes()?;
        let schema = reader.lenenc_bytes()?;
        let table = reader.lenenc_bytes()?;
        let org_table = reader.lenenc_bytes()?;
        let name = reader.lenenc_bytes()?;
        let org_name = reader.lenenc_bytes()?;
        let extended = if capabilities.contains(Capabilities::MARIADB_EXTENDED_METADATA) {
            reader.lenenc_bytes()?
        } else {
            b""
        };
        reader.lenenc_int()?;
        Ok(ColumnDefinition {
            schema,
            table,
            org_table,
            name,
            org_name,
            extended,
            collation: reader.u16()?,
            length: reader.u32()?,
            column_type: ColumnType(reader.u8()?),
            flags: ColumnFlags::from_bits_retain(reader.u16()?),
            decimals: reader.u8()?,
        })
    }

    /// Appends the payload for a client with `capabilities`.
    pub fn write(&self, capabilities: Capabilities, out: &mut Vec<u8>) {
        for text in [b"def", self.schema, self.table, self.org_table, self.name, self.org_name] {
            put_lenenc_bytes(out, text);
        }
        if capabilities.contains(Capabilities::MARIADB_EXTENDED_METADATA) {
            put_lenenc_bytes(out, self.extended);
        }
        out.push(FIXED_LEN);
        put_u16(out, self.collation);
        put_u32(out, self.length);
        out.push(self.column_type.0);
        put_u16(out, self.flags.bits());
        out.push(self.decimals);
        put_u16(out, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The column of `SELECT 1` from MariaDB 10.11.
    const CAPTURED: &[u8] = b"\x03def\x00\x00\x00\x011\x00\x0c?\x00\x01\x00\x00\x00\x03\x81\x00\x00\x00\x00";

    #[test]
    fn a_captured_definition_is_understood_and_written_alike() {
        let column = ColumnDefinition::parse(CAPTURED, Capabilities::PROTOCOL_41).unwrap();
        let expected = ColumnDefinition {
            column_type: ColumnType::LONG,
            flags: ColumnFlags::NOT_NULL | ColumnFlags::BINARY,
            length: 1,
            ..ColumnDefinition::integer(b"1")
        };
        assert_eq!(column, expected);
        let mut payload = Vec::new();
        column.write(Capabilities::PROTOCOL_41, &mut payload);
        assert_eq!(payload, CAPTURED);
        for len in 0..CAPTURED.len() - 2 {
            assert!(ColumnDefinition::parse(&CAPTURED[..len], Capabilities::PROTOCOL_41).is_err(), "{len}");
        }
    }

    #[test]
    fn mariadb_s_extended_type_has_its_place() {
        let capabilities = Capabilities::PROTOCOL_41 | Capabilities::MARIADB_EXTENDED_METADATA;
        let column = ColumnDefinition { extended: b"\x01\x04json", ..ColumnDefinition::text(b"doc", 400) };
        let mut payload = Vec::new();
        column.write(capabilities, &mut payload);
        assert_eq!(ColumnDefinition::parse(&payload, capabilities), Ok(column));
    }
}
