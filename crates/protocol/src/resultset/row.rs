//! Reads text rows, and writes values of binary rows.

use crate::wire::{Malformed, Reader, put_lenenc_bytes, put_u64};

/// First byte of a text row's field that is NULL.
const NULL_FIELD: u8 = 0xFB;
/// First byte of a binary row.
const BINARY_ROW: u8 = 0x00;

/// The fields of a text row, one by one; ends after the first malformed one.
#[derive(Debug, Clone)]
pub struct TextRow<'a> {
    reader: Reader<'a>,
}

impl<'a> TextRow<'a> {
    /// Iterates over the fields in a row's payload.
    pub fn new(payload: &'a [u8]) -> Self {
        TextRow { reader: Reader::new(payload) }
    }
}

impl<'a> Iterator for TextRow<'a> {
    /// The field's text, or `None` for NULL.
    type Item = Result<Option<&'a [u8]>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let field = self.reader.lenenc_bytes_or_null();
        if field.is_err() {
            self.reader.rest();
        }
        Some(field)
    }
}

/// Appends the payload of a text row; `None` is NULL.
pub fn put_text_row<'v>(out: &mut Vec<u8>, values: impl IntoIterator<Item = Option<&'v [u8]>>) {
    for value in values {
        match value {
            Some(text) => put_lenenc_bytes(out, text),
            None => out.push(NULL_FIELD),
        }
    }
}

/// A value of a binary row, and the column types it goes with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BinaryValue<'a> {
    /// NULL; any type.
    Null,
    /// LONGLONG.
    Int(i64),
    /// LONGLONG with the flag UNSIGNED.
    UInt(u64),
    /// DOUBLE.
    Double(f64),
    /// Strings, blobs, NEWDECIMAL, JSON.
    Bytes(&'a [u8]),
}

/// Appends the payload of a binary row.
pub fn put_binary_row(out: &mut Vec<u8>, values: &[BinaryValue<'_>]) {
    out.push(BINARY_ROW);
    let bitmap = out.len();
    // The first two bits of the bitmap are not used.
    out.resize(bitmap + (values.len() + 2).div_ceil(8), 0);
    for (at, value) in values.iter().enumerate() {
        match *value {
            BinaryValue::Null => {
                let bit = at + 2;
                if let Some(byte) = out.get_mut(bitmap + bit / 8) {
                    *byte |= 1 << (bit % 8);
                }
            }
            BinaryValue::Int(value) => put_u64(out, value as u64),
            BinaryValue::UInt(value) => put_u64(out, value),
            BinaryValue::Double(value) => put_u64(out, value.to_bits()),
            BinaryValue::Bytes(value) => put_lenenc_bytes(out, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn binary_rows_mark_null_in_the_bitmap() {
        let mut row = Vec::new();
        put_binary_row(
            &mut row,
            &[BinaryValue::Int(-1), BinaryValue::Null, BinaryValue::Bytes(b"ab"), BinaryValue::Double(1.0)],
        );
        let expected: &[&[u8]] = &[&[0, 0b1000], &[0xFF; 8], b"\x02ab", &1.0f64.to_le_bytes()];
        assert_eq!(row, expected.concat());

        row.clear();
        put_binary_row(&mut row, &[BinaryValue::Null; 7]);
        assert_eq!(row, [0, 0b1111_1100, 0b1]);
    }

    #[test]
    fn a_malformed_field_ends_the_row() {
        let mut row = TextRow::new(b"\x01a\x09b");
        assert_eq!(row.next(), Some(Ok(Some(&b"a"[..]))));
        assert_eq!(row.next(), Some(Err(Malformed::Truncated)));
        assert_eq!(row.next(), None);
    }

    proptest! {
        #[test]
        fn text_rows_survive_the_wire(values: Vec<Option<Vec<u8>>>) {
            let mut row = Vec::new();
            put_text_row(&mut row, values.iter().map(Option::as_deref));
            let back: Result<Vec<_>, _> = TextRow::new(&row).collect();
            let sent: Vec<_> = values.iter().map(Option::as_deref).collect();
            prop_assert_eq!(back, Ok(sent));
        }
    }
}
