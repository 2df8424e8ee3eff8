//! Parameters of executions, in the few types that tell the protocol's cases apart.

use weir_protocol::resultset::ColumnType;
use weir_protocol::wire::{put_lenenc_bytes, put_u64};

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// NULL.
    Null,
    /// A signed integer of eight bytes.
    Int(i64),
    /// A string in the session's character set.
    Text(String),
}

impl From<i64> for Param {
    fn from(value: i64) -> Param {
        Param::Int(value)
    }
}

impl From<&str> for Param {
    fn from(value: &str) -> Param {
        Param::Text(value.to_owned())
    }
}

/// Appends what follows the fixed start of a COM_STMT_EXECUTE.
pub(super) fn put(out: &mut Vec<u8>, params: &[Param], with_types: bool) {
    if params.is_empty() {
        return;
    }
    let mut bitmap = vec![0_u8; params.len().div_ceil(8)];
    for (at, _) in params.iter().enumerate().filter(|(_, param)| **param == Param::Null) {
        bitmap[at / 8] |= 1 << (at % 8);
    }
    out.extend_from_slice(&bitmap);
    out.push(u8::from(with_types));
    if with_types {
        for param in params {
            let code = match param {
                Param::Null => ColumnType::NULL,
                Param::Int(_) => ColumnType::LONGLONG,
                Param::Text(_) => ColumnType::VAR_STRING,
            };
            out.extend_from_slice(&[code.0, 0]);
        }
    }
    for param in params {
        match param {
            Param::Null => {}
            Param::Int(value) => put_u64(out, value.cast_unsigned()),
            Param::Text(text) => put_lenenc_bytes(out, text.as_bytes()),
        }
    }
}
